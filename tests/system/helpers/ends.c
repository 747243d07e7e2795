/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the driver at every stage of its own end, and says what each call returned:
 *
 *   handler   in an exit handler that main registered before cuInit: the library still works
 *   last      in one that was registered before the dynamic linker's own: the library has ended
 *
 * With "release" it does what the CUDA runtime does there, and with "again" uses the device once
 * more after that. With "inside" it releases while another thread waits for a stream that never
 * goes on. */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUdeviceptr memory;
static CUstream stream;
static char host[4096];
static int is_all; /* every stage; else only what the argument says */

static void call_all(const char *when)
{
    int version = 0;
    CUdeviceptr more = 0;
    CUcontext context = NULL;
    const char *name = NULL;
    printf("%s: cuCtxGetCurrent %d", when, cuCtxGetCurrent(&context));
    printf(" cuMemAlloc %d", cuMemAlloc(&more, 4096));
    printf(" cuMemcpyDtoH %d", cuMemcpyDtoH(host, memory, sizeof host));
    printf(" cuMemsetD8Async %d", cuMemsetD8Async(memory, 1, 16, stream));
    printf(" cuStreamSynchronize %d", cuStreamSynchronize(stream));
    printf(" cuStreamDestroy %d", cuStreamDestroy(stream));
    printf(" cuMemFree %d", cuMemFree(memory));
    printf(" cuInit %d", cuInit(0));
    cuGetErrorName(CUDA_ERROR_DEINITIALIZED, &name);
    cuDriverGetVersion(&version);
    printf("; %s %d\n", name, version > 0);
}

static void handler(void)
{
    call_all("handler");
}

static void release(void)
{
    printf("release %d\n", cuDevicePrimaryCtxRelease(0));
}

static void again(void)
{
    CUcontext context = NULL;
    int value = 0;
    release();
    printf("old memory %d", cuMemcpyDtoH(host, memory, 4));
    printf(" retain %d", cuDevicePrimaryCtxRetain(&context, 0));
    printf(" current %d", cuCtxSetCurrent(context));
    printf(" alloc %d", cuMemAlloc(&memory, 4096));
    printf(" fill %d", cuMemsetD32(memory, 7, 1024));
    printf(" copy %d", cuMemcpyDtoH(&value, memory, sizeof value));
    printf(" has %d\n", value);
}

static void *wait_for_ever(void *arg)
{
    cuCtxSetCurrent(arg);
    cuStreamWaitValue32(stream, memory, 7, CU_STREAM_WAIT_VALUE_EQ);
    puts("waits");
    fflush(stdout);
    cuStreamSynchronize(stream);
    return NULL;
}

static void last(int status, void *arg)
{
    (void)status;
    (void)arg;
    if (is_all) {
        call_all("last");
    }
}

/* Before the constructors of all libraries. The dynamic linker registers what ends them (ours, too)
 * after these have run, and handlers are called backwards. atexit() would not do: such a handler is
 * called when the file that registered it ends. */
static void begin(void)
{
    on_exit(last, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = begin;

int main(int argc, char **argv)
{
    CUcontext context = NULL;
    const char *what = argc > 1 ? argv[1] : "";
    /* Much, so that a worker's end takes a while. */
    size_t size = strcmp(what, "release") == 0 ? 512 << 20 : 4096;
    is_all = argc == 1;
    bool inside = strcmp(what, "inside") == 0;
    atexit(inside || strcmp(what, "release") == 0 ? release
           : strcmp(what, "again") == 0           ? again
                                                  : handler);
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&memory, size) != CUDA_SUCCESS ||
        cuMemsetD8(memory, 1, size) != CUDA_SUCCESS || cuStreamCreate(&stream, 0) != CUDA_SUCCESS) {
        return 1;
    }
    if (inside) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_ever, context) != 0) {
            return 1;
        }
        getchar(); /* until somebody has seen that it waits */
    }
    return 5;
}
