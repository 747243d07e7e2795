/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that writes where nothing is: the error is CUDA_ERROR_ILLEGAL_ADDRESS, and the context
 * is lost. Says `ready` before it is launched. */
#include "check.h"
#include "../programs/kernels_ptx.h"

int main(void)
{
    CUcontext context;
    CUmodule module;
    CUfunction scale;
    CUdeviceptr device = 0x10000;
    unsigned n = 256, factor = 1;
    void *params[] = {&device, &n, &factor};
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&scale, module, "scale"));
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) { /* whoever measures says when */
        return 1;
    }
    CHECK(cuLaunchKernel(scale, 1, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
    printf("error %d\n", (int)cuCtxSynchronize());
    return 0;
}
