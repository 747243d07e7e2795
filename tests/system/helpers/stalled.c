/* SPDX-License-Identifier: Apache-2.0 */
/* Small uploads of ordinary memory into a stream that stands still, then large copies in another
 * stream: these must not wait for the first one, which this thread lets go afterwards. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 16 << 10, COUNT = 40, LARGE = 3 << 20 };

#define OK(call)                                                                                   \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            printf("%s: %d\n", #call, (int)result_);                                               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(void)
{
    static unsigned char from[LARGE], back[LARGE];
    CUdevice device;
    CUcontext context;
    CUstream still, moving;
    CUdeviceptr word, small, large;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&still, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&moving, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&word, 4));
    OK(cuMemAlloc(&small, SMALL * COUNT));
    OK(cuMemAlloc(&large, LARGE));
    OK(cuMemsetD32(word, 0, 1));
    OK(cuStreamWaitValue32(still, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < COUNT; i++) {
        memset(from, i + 1, SMALL);
        OK(cuMemcpyHtoDAsync(small + (size_t)i * SMALL, from, SMALL, still));
    }
    memset(from, 77, LARGE);
    OK(cuMemcpyHtoDAsync(large, from, LARGE, moving));
    OK(cuMemcpyDtoHAsync(back, large, LARGE, moving));
    OK(cuStreamSynchronize(moving));
    printf("large %d, still %d\n", memcmp(from, back, LARGE) == 0, (int)cuStreamQuery(still));
    OK(cuStreamWriteValue32(moving, word, 1, 0));
    OK(cuStreamSynchronize(still));
    OK(cuMemcpyDtoH(back, small, SMALL * COUNT));
    int right = 0;
    for (int i = 0; i < COUNT; i++) {
        right += back[(size_t)i * SMALL] == i + 1 && back[(size_t)i * SMALL + SMALL - 1] == i + 1;
    }
    printf("small %d\n", right);
    return 0;
}
