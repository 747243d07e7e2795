/* SPDX-License-Identifier: Apache-2.0 */
/* A short session with a bit of everything that most programs do. OK: all of it was right. */
#include "check.h"
#include "../programs/kernels_ptx.h"

#include <string.h>

enum { COUNT = 512 };

static void launch(CUmodule module, CUdeviceptr device, CUstream stream)
{
    CUfunction scale;
    unsigned n = COUNT, factor = 3;
    void *params[] = {&device, &n, &factor};
    CHECK(cuModuleGetFunction(&scale, module, "scale"));
    CHECK(cuLaunchKernel(scale, COUNT / 32, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

int main(void)
{
    CUcontext context;
    CUmodule module;
    CUdeviceptr device;
    CUstream stream;
    CUevent event;
    size_t available, total;
    unsigned before[COUNT], after[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        before[i] = i;
    }
    memset(after, 0, sizeof after);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemGetInfo(&available, &total));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuMemAlloc(&device, sizeof before));
    CHECK(cuMemcpyHtoD(device, before, sizeof before));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    launch(module, device, stream);
    CHECK(cuEventRecord(event, stream));
    CHECK(cuEventSynchronize(event));
    CHECK(cuMemcpyDtoH(after, device, sizeof after));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemFree(device));
    CHECK(cuModuleUnload(module));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuDevicePrimaryCtxRelease(0));
    for (unsigned i = 0; i < COUNT; i++) {
        if (after[i] != 9 * i) { /* by the factor, and by that of the kernel */
            fprintf(stderr, "FAILED: number %u is %u\n", i, after[i]);
            return 1;
        }
    }
    puts("OK");
    return 0;
}
