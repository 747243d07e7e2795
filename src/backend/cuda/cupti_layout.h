/* SPDX-License-Identifier: Apache-2.0 */
/* What is used of CUPTI's structs and numbers: building needs no toolkit. All versions of a record
 * since CUDA 11.6 begin so. tests/unit/check_cupti.c holds this against a toolkit's headers.
 */
#ifndef TOW_BACKEND_CUDA_CUPTI_LAYOUT_H
#define TOW_BACKEND_CUDA_CUPTI_LAYOUT_H

#include <stdint.h>

enum {
    TOW_CUPTI_MEMCPY = 1,
    TOW_CUPTI_MEMSET = 2,
    TOW_CUPTI_CONCURRENT_KERNEL = 10,
    TOW_CUPTI_MEMCPY2 = 22, /* between devices */
    TOW_CUPTI_DRIVER_API = 1,
    TOW_CUPTI_API_ENTER = 0,
};

struct tow_cupti_kernel {
    uint32_t kind, settings[3];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t shape[10];
    uint32_t correlation;
    int64_t grid;
    const char *name;
};

struct tow_cupti_memcpy {
    uint32_t kind;
    uint8_t copy, rest[3];
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
};

struct tow_cupti_memcpy2 {
    uint32_t kind;
    uint8_t copy, rest[3];
    uint64_t bytes, start, end;
    uint32_t device, context, stream, from_to[4], correlation;
};

struct tow_cupti_memset {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
};

struct tow_cupti_call {
    uint32_t site;
    const char *function;
    const void *params;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_number;
    uint64_t *data;
    uint32_t correlation;
};

/* Functions of the driver that give work to a GPU, by CUPTI's numbers. */
#define TOW_CUPTI_FUNCTIONS(each)                                                                  \
    each(cuLaunchKernel, 307) each(cuLaunchKernelEx, 652) each(cuLaunchCooperativeKernel, 477)     \
        each(cuGraphLaunch, 514) each(cuMemcpy, 305) each(cuMemcpyAsync, 306) each(                \
            cuMemcpyHtoD_v2, 276) each(cuMemcpyHtoDAsync_v2, 277) each(cuMemcpyDtoH_v2, 278)       \
            each(cuMemcpyDtoHAsync_v2, 279) each(cuMemcpyDtoD_v2, 280)                             \
                each(cuMemcpyDtoDAsync_v2, 281) each(cuMemcpyAtoHAsync_v2, 283) each(              \
                    cuMemcpyAtoD_v2, 284) each(cuMemcpyDtoA_v2, 285) each(cuMemcpyAtoA_v2, 286)    \
                    each(cuMemcpy2DAsync_v2, 289) each(cuMemcpy3D_v2, 290)                         \
                        each(cuMemcpy3DAsync_v2, 291) each(cuMemcpyHtoA_v2, 292)                   \
                            each(cuMemcpyHtoAAsync_v2, 293) each(cuMemcpyPeerAsync, 319)           \
                                each(cuMemcpy3DPeerAsync, 321) each(cuMemsetD8_v2, 249)            \
                                    each(cuMemsetD8Async, 216) each(cuMemsetD16Async, 218)         \
                                        each(cuMemsetD32Async, 220) each(cuMemsetD2D8Async, 222)   \
                                            each(cuMemsetD2D16Async, 224)                          \
                                                each(cuMemsetD2D32Async, 226)                      \
                                                    each(cuMemBatchDecompressAsync, 761)

#endif
