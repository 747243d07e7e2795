/* SPDX-License-Identifier: Apache-2.0 */
/* A driver library for `towlined --device PATH` that can do nothing but print, as NVIDIA's does: a
 * synchronisation writes what kernels "printed" to stdout and a failed "assert" to stderr, through
 * stdio and past it, before it returns. The first one succeeds, the second fails. While the file
 * that TOWLINE_PRINTER_SLOW names exists, it takes 7 s to begin; with TOWLINE_PRINTER_NONE it finds
 * no device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

static int context; /* its address is the handle */
static _Thread_local CUcontext current;

CUresult cuInit(unsigned int Flags)
{
    (void)Flags;
    const char *slow = getenv("TOWLINE_PRINTER_SLOW");
    static int begun;
    if (begun++ == 0 && slow != NULL && access(slow, F_OK) == 0) {
        sleep(7);
    }
    return getenv("TOWLINE_PRINTER_NONE") == NULL ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    *driverVersion = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    (void)dev;
    snprintf(name, (size_t)len, "a printer");
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    (void)dev;
    *bytes = 1 << 20;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    (void)attrib;
    (void)dev;
    *pi = 1;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    (void)dev;
    *pctx = (CUcontext)&context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    (void)dev;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    current = ctx;
    return CUDA_SUCCESS;
}

static void put(int fd, const char *text)
{
    ssize_t written = write(fd, text, strlen(text));
    (void)written;
}

CUresult cuCtxSynchronize(void)
{
    static int calls;
    calls++;
    printf("call %d: stdout by stdio\n", calls);
    if (calls == 1) {
        return CUDA_SUCCESS;
    }
    put(STDOUT_FILENO, "stdout by descriptor\n");
    fprintf(stderr, "stderr by stdio\n");
    put(STDERR_FILENO, "stderr by descriptor\n");
    return CUDA_ERROR_ASSERT;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    (void)ctx;
    return cuCtxSynchronize();
}
