/* SPDX-License-Identifier: Apache-2.0 */
/* Fills (memset). All of them are asynchronous for device memory, the ones without a stream too. */
#include "client/link/call.h"
#include "client/copy/copy.h"
#include "client/stream/capture.h"
#include "client/hostmem/mirror.h"
#include "client/hostmem/region.h"
#include "gen/copy_client.h"
#include "gen/stream_client.h"

/* What the driver says at once of a fill of `rows` rows of `width` elements. */
static CUresult fill_check(CUdeviceptr to, size_t pitch, size_t element, size_t width, size_t rows,
                           CUstream stream)
{
    if (towc_thread_in_hostfn()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (width == 0 || rows == 0) {
        struct towc_link *link;
        return towc_context_link(&link);
    }
    if (to % element != 0 || (rows > 1 && (pitch % element != 0 || pitch < width * element))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t bytes = 0;
    if (__builtin_mul_overflow(pitch, rows - 1, &bytes) ||
        __builtin_add_overflow(bytes, width * element, &bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_mirror_check_work(stream, to, bytes);
    struct towc_context *context = towc_context_current();
    /* What the host changed around it goes first, lest it overwrite the fill later. */
    return status == CUDA_SUCCESS && context != NULL ? towc_mirror_push(context->link) : status;
}

/* A fill without a stream is synchronous for memory that the host sees too. */
static CUresult fill_sync(CUresult status, CUdeviceptr to)
{
    if (status == CUDA_SUCCESS && towc_mirror_sees(to)) {
        return towc_send_cuStreamSynchronize(towc_default_stream());
    }
    return status;
}

CUresult towc_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    CUresult status = fill_check(dstDevice, 0, 1, N, 1, hStream);
    return status != CUDA_SUCCESS || N == 0 ? status
                                            : towc_send_cuMemsetD8Async(dstDevice, uc, N, hStream);
}

CUresult towc_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    CUresult status = fill_check(dstDevice, 0, 2, N, 1, hStream);
    return status != CUDA_SUCCESS || N == 0 ? status
                                            : towc_send_cuMemsetD16Async(dstDevice, us, N, hStream);
}

CUresult towc_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    CUresult status = fill_check(dstDevice, 0, 4, N, 1, hStream);
    return status != CUDA_SUCCESS || N == 0 ? status
                                            : towc_send_cuMemsetD32Async(dstDevice, ui, N, hStream);
}

CUresult towc_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                size_t Width, size_t Height, CUstream hStream)
{
    CUresult status = fill_check(dstDevice, dstPitch, 1, Width, Height, hStream);
    return status != CUDA_SUCCESS || Width == 0 || Height == 0
               ? status
               : towc_send_cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, hStream);
}

CUresult towc_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                 size_t Width, size_t Height, CUstream hStream)
{
    CUresult status = fill_check(dstDevice, dstPitch, 2, Width, Height, hStream);
    return status != CUDA_SUCCESS || Width == 0 || Height == 0
               ? status
               : towc_send_cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, hStream);
}

CUresult towc_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                 size_t Width, size_t Height, CUstream hStream)
{
    CUresult status = fill_check(dstDevice, dstPitch, 4, Width, Height, hStream);
    return status != CUDA_SUCCESS || Width == 0 || Height == 0
               ? status
               : towc_send_cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, hStream);
}

CUresult towc_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    return fill_sync(towc_cuMemsetD8Async(dstDevice, uc, N, towc_default_stream()), dstDevice);
}

CUresult towc_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    return fill_sync(towc_cuMemsetD16Async(dstDevice, us, N, towc_default_stream()), dstDevice);
}

CUresult towc_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    return fill_sync(towc_cuMemsetD32Async(dstDevice, ui, N, towc_default_stream()), dstDevice);
}

CUresult towc_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                              size_t Width, size_t Height)
{
    return fill_sync(
        towc_cuMemsetD2D8Async(dstDevice, dstPitch, uc, Width, Height, towc_default_stream()),
        dstDevice);
}

CUresult towc_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                               size_t Width, size_t Height)
{
    return fill_sync(
        towc_cuMemsetD2D16Async(dstDevice, dstPitch, us, Width, Height, towc_default_stream()),
        dstDevice);
}

CUresult towc_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                               size_t Width, size_t Height)
{
    return fill_sync(
        towc_cuMemsetD2D32Async(dstDevice, dstPitch, ui, Width, Height, towc_default_stream()),
        dstDevice);
}
