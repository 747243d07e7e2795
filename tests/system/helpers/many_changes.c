/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a pool more often than a record of 2 MiB has room for. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

enum { CHANGES = 20000 };

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        printf("%s: %d\n", what, (int)result);
        exit(1);
    }
}
#define MUST(call) must(call, #call)

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUmemoryPool pool;
    cuuint64_t threshold = 0;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    for (int i = 0; i < CHANGES; i++) {
        MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    }
    MUST(cuCtxSynchronize());
    return 0;
}
