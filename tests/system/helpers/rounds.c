/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates, computes, looks at every number and frees, again and again until its input ends. Says
 * `ready` after the first round, and how many rounds there were.
 *
 *     rounds [MIB]     it holds so much more meanwhile
 *
 * ROUNDS_PAUSE_MS: so long it rests between them. */
#include "check.h"
#include "../programs/kernels_ptx.h"

#include <poll.h>

enum { COUNT = 64 << 10 };

static unsigned before[COUNT], after[COUNT];

static void compute(CUfunction scale, unsigned round)
{
    CUdeviceptr device;
    unsigned n = COUNT, factor = round;
    void *params[] = {&device, &n, &factor};
    CHECK(cuMemAlloc(&device, sizeof before));
    CHECK(cuMemcpyHtoD(device, before, sizeof before));
    CHECK(cuLaunchKernel(scale, COUNT / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
    CHECK(cuMemcpyDtoH(after, device, sizeof after));
    CHECK(cuMemFree(device));
    for (unsigned i = 0; i < COUNT; i++) {
        if (after[i] != 3 * round * i) { /* 3 is the kernel's own factor */
            printf("wrong: number %u of round %u is %u\n", i, round, after[i]);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr held;
    CUmodule module;
    CUfunction scale;
    struct pollfd input = {.fd = 0, .events = POLLIN};
    unsigned rounds = 0;
    const char *pause = getenv("ROUNDS_PAUSE_MS");
    int pause_ms = pause != NULL ? atoi(pause) : 0;
    for (unsigned i = 0; i < COUNT; i++) {
        before[i] = i;
    }
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    if (argc > 1) {
        CHECK(cuMemAlloc(&held, strtoull(argv[1], NULL, 10) << 20));
    }
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&scale, module, "scale"));
    do {
        compute(scale, ++rounds);
        if (rounds == 1) {
            puts("ready");
            fflush(stdout);
        }
    } while (poll(&input, 1, pause_ms) == 0);
    printf("%u rounds\n", rounds);
    return 0;
}
