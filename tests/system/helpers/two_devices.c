/* SPDX-License-Identifier: Apache-2.0 */
/* One library on the first two devices, whichever servers have them. */

#include "check.h"
#include "../programs/kernels_ptx.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    CUcontext contexts[2];
    CUlibrary library;
    CUkernel kernel;
    int devices = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    if (devices != 2) {
        fprintf(stderr, "FAILED: %d devices, not 2\n", devices);
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        CHECK(cuDevicePrimaryCtxRetain(&contexts[i], i));
    }
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "count"));
    uint32_t expected[2] = {5, 5};
    for (uint32_t i = 0; i < 6; i++) {
        CUdeviceptr counter;
        CUfunction function;
        uint32_t got = 0, value = 10 + i;
        int threads = 0;
        void *params[] = {&value};
        CHECK(cuCtxSetCurrent(contexts[i % 2]));
        CHECK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 2, 1, 1, 0, NULL, params, NULL));
        CHECK(cuKernelGetFunction(&function, kernel));
        CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        CHECK(cuLibraryGetGlobal(&counter, NULL, library, "counter"));
        CHECK(cuMemcpyDtoH(&got, counter, sizeof got));
        CHECK(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel,
                                   (CUdevice)(i % 2)));
        expected[i % 2] += 3 * value;
        if (got != expected[i % 2] || threads < 32) {
            fprintf(stderr, "FAILED: device %u: counter %u, not %u\n", i % 2, got, expected[i % 2]);
            return 1;
        }
    }
    CHECK(cuLibraryUnload(library));
    /* One that its first device has never seen: it comes with the first question. */
    CUdeviceptr fresh;
    uint32_t first = 0;
    CHECK(cuCtxSetCurrent(contexts[0]));
    CHECK(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuCtxSetCurrent(contexts[1]));
    CHECK(cuLibraryGetGlobal(&fresh, NULL, library, "counter"));
    CHECK(cuMemcpyDtoH(&first, fresh, sizeof first));
    if (first != 5) {
        fprintf(stderr, "FAILED: a new library's counter is %u, not 5\n", first);
        return 1;
    }
    CHECK(cuLibraryUnload(library));
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(contexts[i]));
        CHECK(cuCtxSynchronize());
    }
    puts("OK");
    return 0;
}
