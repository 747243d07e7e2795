/* SPDX-License-Identifier: Apache-2.0 */
/* A program with a session that grows, or with one that does not:
 *
 *   grow more   when its input ends, adds nodes with 4,000 bytes of arguments to a graph until a
 *               call fails
 *   grow stay   waits for the device every 100 ms until its input ends, then says "stayed"
 *
 * It says "ready" on stdout before that, and exits 3 with "error NUMBER" when a call fails. */
#include <cuda.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char text[] = ".version 7.0\n"
                           ".target sm_75\n"
                           ".address_size 64\n"
                           ".visible .entry much(.param .align 8 .b8 much[4000])\n"
                           "{\n"
                           "    ret;\n"
                           "}\n";

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            printf("error %d in %s\n", (int)result_, #call);                                       \
            return 3;                                                                              \
        }                                                                                          \
    } while (0)

static struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

static int more(void)
{
    static char much[4000] = "bytes";
    void *arguments[] = {much};
    CUDA_KERNEL_NODE_PARAMS node = {.gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = arguments};
    CUmodule module;
    CUgraph graph;
    CUgraphNode added;
    TRY(cuModuleLoadData(&module, text));
    TRY(cuModuleGetFunction(&node.func, module, "much"));
    TRY(cuGraphCreate(&graph, 0));
    poll(&input, 1, -1);
    for (;;) {
        TRY(cuGraphAddKernelNode(&added, graph, NULL, 0, &node));
    }
}

static int stay(void)
{
    while (poll(&input, 1, 100) == 0) {
        TRY(cuCtxSynchronize());
    }
    TRY(cuCtxSynchronize());
    printf("stayed\n");
    return 0;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    TRY(cuInit(0));
    TRY(cuDeviceGet(&device, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, device));
    TRY(cuCtxSetCurrent(context));
    printf("ready\n");
    fflush(stdout);
    return argc == 2 && strcmp(argv[1], "more") == 0 ? more() : stay();
}
