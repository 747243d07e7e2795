/* SPDX-License-Identifier: Apache-2.0 */
/* Copies behind host functions, from page-locked memory at an address that the worker uses itself.
 *
 * Says "ready" when its session has begun and reads an address from stdin. There it page-locks
 * memory, and a slow host function writes what an asynchronous copy behind it takes: rows, then all
 * of it. Prints how many bytes of either arrived wrong, or "taken" where it has something itself.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MIB = 1 << 20, ROW = 256, ROWS = 64, SIZE = 129 * MIB };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            printf("error %d in %s\n", (int)result_, #call);                                       \
            return 3;                                                                              \
        }                                                                                          \
    } while (0)

struct note {
    unsigned char *at;
    size_t size;
    int value;
};

/* Longer than a copy waits before it takes other measures. */
static void write_late(void *user)
{
    const struct note *note = user;
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    memset(note->at, note->value, note->size);
}

static size_t other_than(const unsigned char *bytes, size_t size, int value)
{
    size_t other = 0;
    for (size_t i = 0; i < size; i++) {
        other += bytes[i] != value;
    }
    return other;
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr copy;
    CUstream stream;
    unsigned long long address = 0;
    unsigned char *back = malloc(SIZE);
    TRY(cuInit(0));
    TRY(cuDeviceGet(&device, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, device));
    TRY(cuCtxSetCurrent(context));
    TRY(cuMemAlloc(&copy, SIZE));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    printf("ready\n");
    fflush(stdout);
    if (back == NULL || scanf("%llx", &address) != 1) {
        return 1;
    }
    unsigned char *at = mmap((void *)(uintptr_t)address, SIZE, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == MAP_FAILED) {
        printf("taken\n");
        return 4;
    }
    memset(at, 1, SIZE);
    TRY(cuMemHostRegister(at, SIZE, 0));

    struct note rows = {at, ROW * ROWS, 7};
    CUDA_MEMCPY2D p = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = at,
                       .srcPitch = ROW,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = copy,
                       .dstPitch = ROW,
                       .WidthInBytes = ROW,
                       .Height = ROWS};
    TRY(cuLaunchHostFunc(stream, write_late, &rows));
    TRY(cuMemcpy2DAsync(&p, stream));
    TRY(cuStreamSynchronize(stream));
    TRY(cuMemcpyDtoH(back, copy, rows.size));
    printf("rows %zu\n", other_than(back, rows.size, rows.value));

    struct note all = {at, SIZE, 8};
    TRY(cuLaunchHostFunc(stream, write_late, &all));
    TRY(cuMemcpyHtoDAsync(copy, at, SIZE, stream));
    TRY(cuStreamSynchronize(stream));
    TRY(cuMemcpyDtoH(back, copy, SIZE));
    printf("all %zu\n", other_than(back, SIZE, all.value));

    TRY(cuMemHostUnregister(at));
    free(back);
    return 0;
}
