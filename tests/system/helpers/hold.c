/* SPDX-License-Identifier: Apache-2.0 */
/* A client that holds a session in a chosen state until something is done to it:
 *
 *   hold copy    copies 64 MiB to the device and back for ever
 *   hold rows    copies 60 MiB in rows of 1000 bytes to the device for ever
 *   hold fetch   copies 64 MiB from the device into page-locked memory for ever, asynchronously
 *   hold poll    holds 256 MiB and makes a call that waits every 20 ms
 *   hold leave   holds as much until its input ends, and ends, freeing nothing
 *   hold exit    the same, and releases its context while it exits, as the CUDA runtime does
 *   hold launch  launches kernels for ever and waits for none
 *   hold spin    runs a kernel that never ends, and waits for it
 *   hold event   the same, and asks for an event behind it again and again
 *   hold stream  the same with the stream
 *   hold free    prints the free memory and ends
 *
 * It says "ready" on stdout once it is there, and exits 3 with "error NAME" when a call fails. */
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char spin_text[] = ".version 7.0\n"
                                ".target sm_75\n"
                                ".address_size 64\n"
                                ".visible .entry spin()\n"
                                "{\n"
                                "again:\n"
                                "    bra again;\n"
                                "}\n";

static int say(CUresult result, const char *what)
{
    const char *name = "unknown";
    cuGetErrorName(result, &name);
    printf("error %s in %s\n", name, what);
    fflush(stdout);
    return 3;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            return say(result_, #call);                                                            \
        }                                                                                          \
    } while (0)

static void ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static int hold_copy(void)
{
    size_t size = 64 << 20;
    CUdeviceptr at;
    static char *volatile host; /* a copy that fails leaves it */
    host = malloc(size);
    if (host == NULL) {
        return 1;
    }
    memset(host, 7, size);
    TRY(cuMemAlloc(&at, size));
    ready();
    for (;;) {
        TRY(cuMemcpyHtoD(at, host, size));
        TRY(cuMemcpyDtoH(host, at, size));
    }
}

static int hold_rows(void)
{
    enum { WIDTH = 1000, PITCH = 1024, ROWS = 64 << 10 };
    CUdeviceptr at;
    static char *volatile host;
    host = malloc((size_t)PITCH * ROWS);
    if (host == NULL) {
        return 1;
    }
    memset(host, 7, (size_t)PITCH * ROWS);
    TRY(cuMemAlloc(&at, (size_t)PITCH * ROWS));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = PITCH,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = at,
                          .dstPitch = PITCH,
                          .WidthInBytes = WIDTH,
                          .Height = ROWS};
    ready();
    for (;;) {
        TRY(cuMemcpy2D(&copy));
    }
}

static int hold_fetch(void)
{
    size_t size = 64 << 20;
    CUdeviceptr at;
    void *host;
    TRY(cuMemAlloc(&at, size));
    TRY(cuMemAllocHost(&host, size));
    ready();
    for (;;) {
        TRY(cuMemcpyDtoHAsync(host, at, size, NULL));
        TRY(cuCtxSynchronize());
    }
}

static int hold_memory(bool leave)
{
    CUdeviceptr at;
    TRY(cuMemAlloc(&at, 256 << 20));
    TRY(cuMemsetD8(at, 1, 256 << 20));
    TRY(cuCtxSynchronize());
    ready();
    if (leave) {
        while (getchar() != EOF) {
        }
        return 0;
    }
    for (;;) {
        unsigned char byte;
        TRY(cuMemcpyDtoH(&byte, at, 1));
        usleep(20000);
    }
}

static int hold_spin(const char *mode)
{
    CUevent event;
    CUmodule module;
    CUfunction function;
    TRY(cuModuleLoadData(&module, spin_text));
    TRY(cuModuleGetFunction(&function, module, "spin"));
    TRY(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    TRY(cuEventRecord(event, NULL));
    ready();
    CUresult result = CUDA_ERROR_NOT_READY;
    while (result == CUDA_ERROR_NOT_READY && strcmp(mode, "spin") != 0) {
        result = strcmp(mode, "event") == 0 ? cuEventQuery(event) : cuStreamQuery(NULL);
    }
    TRY(strcmp(mode, "spin") == 0 ? cuCtxSynchronize() : result);
    return 0;
}

static int hold_launch(void)
{
    CUmodule module;
    CUfunction function;
    TRY(cuModuleLoadData(&module, ".version 7.0\n.target sm_75\n.address_size 64\n"
                                  ".visible .entry nothing()\n{\n    ret;\n}\n"));
    TRY(cuModuleGetFunction(&function, module, "nothing"));
    TRY(cuCtxSynchronize());
    ready();
    for (;;) {
        TRY(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
        usleep(5000);
    }
}

static int print_free(void)
{
    size_t free_bytes, total;
    TRY(cuMemGetInfo(&free_bytes, &total));
    printf("free %zu of %zu\n", free_bytes, total);
    return 0;
}

static void release(void)
{
    cuDevicePrimaryCtxRelease(0);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "exit") == 0) {
        atexit(release); /* before cuInit: it is called when the library's own were */
    }
    CUdevice device;
    CUcontext context;
    TRY(cuInit(0));
    TRY(cuDeviceGet(&device, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, device));
    TRY(cuCtxSetCurrent(context));
    if (strcmp(mode, "copy") == 0) {
        return hold_copy();
    }
    if (strcmp(mode, "rows") == 0) {
        return hold_rows();
    }
    if (strcmp(mode, "fetch") == 0) {
        return hold_fetch();
    }
    if (strcmp(mode, "poll") == 0) {
        return hold_memory(false);
    }
    if (strcmp(mode, "leave") == 0 || strcmp(mode, "exit") == 0) {
        return hold_memory(true);
    }
    if (strcmp(mode, "launch") == 0) {
        return hold_launch();
    }
    if (strcmp(mode, "spin") == 0 || strcmp(mode, "event") == 0 || strcmp(mode, "stream") == 0) {
        return hold_spin(mode);
    }
    return print_free();
}
