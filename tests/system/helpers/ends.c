/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the driver at every stage of its own end, and says what each call returned:
 *
 *   handler   in an exit handler that main registered before cuInit: the library still works
 *   last      in one that was registered before the dynamic linker's own: the library has ended */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static CUdeviceptr memory;
static CUstream stream;
static char host[4096];

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

static void last(int status, void *arg)
{
    (void)status;
    (void)arg;
    call_all("last");
}

/* Before the constructors of all libraries. The dynamic linker registers what ends them (ours, too)
 * after these have run, and handlers are called backwards. atexit() would not do: such a handler is
 * called when the file that registered it ends. */
static void begin(void)
{
    on_exit(last, NULL);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = begin;

int main(void)
{
    CUcontext context = NULL;
    atexit(handler);
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&memory, 4096) != CUDA_SUCCESS ||
        cuStreamCreate(&stream, 0) != CUDA_SUCCESS) {
        return 1;
    }
    return 5;
}
