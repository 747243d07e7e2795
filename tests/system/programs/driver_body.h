/* SPDX-License-Identifier: Apache-2.0 */
/* A driver-API program with PTX of our own. It calls every function as CALL(name)(...), so that one
 * text serves the program that is linked to libcuda and the one that opens it at run time. */
#include "kernels_ptx.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        CUresult check_result = (call);                                                            \
        if (check_result != CUDA_SUCCESS) {                                                        \
            fprintf(stderr, "FAILED: %s:%d: %s: %d\n", __FILE__, __LINE__, #call, check_result);   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "FAILED: %s:%d: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { N = 1000 };

static void test_launches(CUmodule module)
{
    CUfunction scale, count, reverse;
    CUdeviceptr data, counter;
    uint32_t host[N], value;
    size_t size;
    CHECK(CALL(cuModuleGetFunction)(&scale, module, "scale"));
    CHECK(CALL(cuModuleGetFunction)(&count, module, "count"));
    CHECK(CALL(cuModuleGetFunction)(&reverse, module, "reverse"));
    CHECK(CALL(cuMemAlloc)(&data, sizeof(host)));
    for (uint32_t i = 0; i < N; i++) {
        host[i] = i;
    }
    CHECK(CALL(cuMemcpyHtoD)(data, host, sizeof(host)));

    uint32_t n = N, factor = 4;
    void *params[] = {&data, &n, &factor};
    CHECK(CALL(cuLaunchKernel)(scale, 8, 1, 1, 128, 1, 1, 0, 0, params, NULL));

    struct {
        CUdeviceptr data;
        uint32_t n, factor;
    } packed = {data, 10, 100}; /* the other form: one buffer, laid out as in the PTX */
    size_t packed_size = sizeof(packed);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &packed_size, CU_LAUNCH_PARAM_END};
    CHECK(CALL(cuLaunchKernel)(scale, 1, 1, 1, 32, 1, 1, 0, 0, NULL, extra));
    CHECK(CALL(cuMemcpyDtoH)(host, data, sizeof(host)));
    for (uint32_t i = 0; i < N; i++) {
        EXPECT(host[i] == i * 12 * (i < 10 ? 300 : 1));
    }

    CHECK(CALL(cuModuleGetGlobal)(&counter, &size, module, "counter"));
    EXPECT(size == 4);
    value = 2;
    void *count_params[] = {&value};
    CUlaunchConfig config = {.gridDimX = 3,
                             .gridDimY = 2,
                             .gridDimZ = 1,
                             .blockDimX = 10,
                             .blockDimY = 1,
                             .blockDimZ = 5};
    CHECK(CALL(cuLaunchKernelEx)(&config, count, count_params, NULL));
    CHECK(CALL(cuMemcpyDtoH)(&value, counter, 4));
    EXPECT(value == 5 + 2 * 6 * 50);

    void *reverse_params[] = {&data};
    CHECK(CALL(cuLaunchKernel)(reverse, 1, 1, 1, 100, 1, 1, 400, 0, reverse_params, NULL));
    CHECK(CALL(cuMemcpyDtoH)(host, data, 400));
    for (uint32_t i = 0; i < 100; i++) {
        EXPECT(host[i] == (99 - i) * 10);
    }
    int threads = 0;
    CUfunction bounded;
    CHECK(CALL(cuModuleGetFunction)(&bounded, module, "bounded"));
    CHECK(CALL(cuFuncGetAttribute)(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded));
    EXPECT(threads == 64);
    CHECK(CALL(cuMemFree)(data));
}

static void test_memory(void)
{
    CUdeviceptr a, b, base;
    size_t size;
    uint8_t host[256], back[256];
    CHECK(CALL(cuMemAlloc)(&a, 1024));
    CHECK(CALL(cuMemAlloc)(&b, 1024));
    CHECK(CALL(cuMemGetAddressRange)(&base, &size, a + 100));
    EXPECT(base == a && size >= 1024);
    CHECK(CALL(cuMemsetD8)(a, 0x11, 256));
    CHECK(CALL(cuMemsetD16)(a + 2, 0x2233, 5));
    CHECK(CALL(cuMemsetD32)(a + 16, 0x44556677, 3));
    CHECK(CALL(cuMemcpyDtoD)(b + 1, a, 255));
    CHECK(CALL(cuMemcpyDtoH)(back, b + 1, 255));
    memset(host, 0x11, sizeof(host));
    for (int i = 0; i < 5; i++) {
        host[2 + 2 * i] = 0x33, host[3 + 2 * i] = 0x22;
    }
    for (int i = 0; i < 3; i++) {
        memcpy(host + 16 + 4 * i, "\x77\x66\x55\x44", 4);
    }
    EXPECT(memcmp(host, back, 255) == 0);

    /* A 2D copy: 5 rows of 7 bytes out of rows of 16 into rows of 32. */
    for (int i = 0; i < 256; i++) {
        host[i] = (uint8_t)i;
    }
    CHECK(CALL(cuMemsetD8)(a, 0, 256));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 16,
                          .srcXInBytes = 2,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = a,
                          .dstPitch = 32,
                          .dstXInBytes = 3,
                          .dstY = 2,
                          .WidthInBytes = 7,
                          .Height = 5};
    CHECK(CALL(cuMemcpy2D)(&copy));
    CHECK(CALL(cuMemcpyDtoH)(back, a, 256));
    for (int i = 0; i < 256; i++) {
        int row = i / 32 - 2, column = i % 32 - 3;
        int inside = row >= 0 && row < 5 && column >= 0 && column < 7;
        EXPECT(back[i] == (inside ? (row + 1) * 16 + column + 2 : 0));
    }
    CHECK(CALL(cuMemFree)(a));
    CHECK(CALL(cuMemFree)(b));
}

static void test_streams(CUmodule module)
{
    CUstream first, second;
    CUevent start, stop;
    CUfunction scale;
    CUdeviceptr data;
    uint32_t *host, n = N, factor = 2;
    float ms = -1;
    CHECK(CALL(cuModuleGetFunction)(&scale, module, "scale"));
    CHECK(CALL(cuMemAlloc)(&data, N * 4));
    CHECK(CALL(cuMemAllocHost)((void **)&host, N * 4));
    CHECK(CALL(cuStreamCreate)(&first, CU_STREAM_NON_BLOCKING));
    CHECK(CALL(cuStreamCreate)(&second, CU_STREAM_DEFAULT));
    CHECK(CALL(cuEventCreate)(&start, CU_EVENT_DEFAULT));
    CHECK(CALL(cuEventCreate)(&stop, CU_EVENT_DEFAULT));
    void *params[] = {&data, &n, &factor};
    CHECK(CALL(cuEventRecord)(start, first));
    CHECK(CALL(cuMemsetD32Async)(data, 1, N, first));
    for (int i = 0; i < 5; i++) {
        CHECK(CALL(cuLaunchKernel)(scale, 8, 1, 1, 128, 1, 1, 0, first, params, NULL));
    }
    CHECK(CALL(cuEventRecord)(stop, first));
    CHECK(CALL(cuStreamWaitEvent)(second, stop, 0));
    CHECK(CALL(cuMemcpyDtoHAsync)(host, data, N * 4, second));
    CHECK(CALL(cuStreamSynchronize)(second));
    for (int i = 0; i < N; i++) {
        EXPECT(host[i] == 6 * 6 * 6 * 6 * 6);
        host[i] = (uint32_t)i;
    }
    CHECK(CALL(cuEventSynchronize)(stop));
    CHECK(CALL(cuEventElapsedTime)(&ms, start, stop));
    EXPECT(ms > 0 && ms < 60000);
    CHECK(CALL(cuMemcpyHtoDAsync)(data, host, N * 4, second));
    CHECK(CALL(cuLaunchKernel)(scale, 8, 1, 1, 128, 1, 1, 0, second, params, NULL));
    CHECK(CALL(cuMemcpyDtoHAsync)(host, data, N * 4, second));
    CHECK(CALL(cuStreamSynchronize)(second));
    for (uint32_t i = 0; i < N; i++) {
        EXPECT(host[i] == 6 * i);
    }
    CHECK(CALL(cuEventDestroy)(start));
    CHECK(CALL(cuEventDestroy)(stop));
    CHECK(CALL(cuStreamDestroy)(first));
    CHECK(CALL(cuStreamDestroy)(second));
    CHECK(CALL(cuMemFreeHost)(host));
    CHECK(CALL(cuMemFree)(data));
}

static void test_library(void)
{
    CUlibrary library;
    CUkernel count;
    CUfunction function;
    CUdeviceptr counter;
    size_t size;
    uint32_t value = 1;
    CHECK(CALL(cuLibraryLoadData)(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(CALL(cuLibraryGetKernel)(&count, library, "count"));
    CHECK(CALL(cuLibraryGetGlobal)(&counter, &size, library, "counter"));
    void *params[] = {&value};
    /* A kernel handle can be launched as it is, and as the function of this context. */
    CHECK(CALL(cuLaunchKernel)((CUfunction)count, 1, 1, 1, 7, 1, 1, 0, 0, params, NULL));
    CHECK(CALL(cuKernelGetFunction)(&function, count));
    CHECK(CALL(cuLaunchKernel)(function, 1, 1, 1, 4, 1, 1, 0, 0, params, NULL));
    CHECK(CALL(cuMemcpyDtoH)(&value, counter, 4));
    EXPECT(value == 16);
    CHECK(CALL(cuLibraryUnload)(library));
}

static int body(void)
{
    int version = 0, devices = 0, value = 0;
    char name[100] = "";
    size_t total = 0;
    CUdevice device, same = -1;
    CUcontext context, own, got;
    CUmodule module;
    CHECK(CALL(cuInit)(0));
    CHECK(CALL(cuDriverGetVersion)(&version));
    CHECK(CALL(cuDeviceGetCount)(&devices));
    EXPECT(version >= 13000 && devices >= 1);
    CHECK(CALL(cuDeviceGet)(&device, 0));
    CHECK(CALL(cuDeviceGetName)(name, sizeof(name), device));
    CHECK(CALL(cuDeviceTotalMem)(&total, device));
    CHECK(CALL(cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
    EXPECT(name[0] != '\0' && total > 0 && value == 32);

    CHECK(CALL(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(CALL(cuCtxSetCurrent)(context));
    char log[4096] = "";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
    CHECK(CALL(cuModuleLoadDataEx)(&module, kernels_ptx, 2, options, values));
    test_launches(module);
    test_memory();
    test_streams(module);
    test_library();
    CHECK(CALL(cuModuleUnload)(module));

    /* A context of its own, on the stack above the primary one. */
    CHECK(CALL(cuCtxCreate)(&own, NULL, 0, device));
    CHECK(CALL(cuCtxGetCurrent)(&got));
    CHECK(CALL(cuCtxGetDevice)(&same));
    EXPECT(got == own && same == device);
    CHECK(CALL(cuModuleLoadData)(&module, kernels_ptx));
    test_launches(module);
    CHECK(CALL(cuCtxPopCurrent)(&got));
    EXPECT(got == own);
    CHECK(CALL(cuCtxGetCurrent)(&got));
    EXPECT(got == context);
    CHECK(CALL(cuCtxPushCurrent)(own));
    CHECK(CALL(cuCtxSynchronize)());
    CHECK(CALL(cuCtxDestroy)(own));
    CHECK(CALL(cuCtxGetCurrent)(&got));
    EXPECT(got == context);
    test_memory();
    CHECK(CALL(cuDevicePrimaryCtxRelease)(device));
    puts("OK");
    return 0;
}
