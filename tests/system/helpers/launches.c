/* SPDX-License-Identifier: Apache-2.0 */
/* launches N: N launches with 16 bytes of arguments, then one synchronisation. */

#include "check.h"
#include "../programs/kernels_ptx.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int launches = argc > 1 ? atoi(argv[1]) : 0;
    CUcontext context;
    CUmodule module;
    CUfunction scale;
    CUdeviceptr data;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&scale, module, "scale"));
    CHECK(cuMemAlloc(&data, 4096));
    unsigned n = 1, factor = 1;
    void *params[] = {&data, &n, &factor};
    for (int i = 0; i < launches; i++) {
        CHECK(cuLaunchKernel(scale, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    }
    CHECK(cuCtxSynchronize());
    puts("OK");
    return 0;
}
