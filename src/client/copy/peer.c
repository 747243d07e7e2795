/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between devices of different servers, piece by piece through this process. */
#include "client/copy/peer.h"

#include <stdlib.h>

#include "client/copy/owner.h"
#include "gen/context_client.h"
#include "gen/copy_client.h"
#include "gen/stream_client.h"

enum { CHUNK = 8 << 20 }; /* bytes on their way at a time */

static CUresult read_chunk(struct towc_context *context, void *into, CUdeviceptr from, size_t size)
{
    CUresult status = towc_cuCtxPushCurrent_v2(context->handle);
    if (status == CUDA_SUCCESS) {
        status = towc_cuMemcpyDtoH_v2(into, from, size);
        towc_cuCtxPopCurrent_v2(NULL);
    }
    return status;
}

static CUresult write_chunk(struct towc_context *context, CUdeviceptr to, const void *from,
                            size_t size)
{
    CUresult status = towc_cuCtxPushCurrent_v2(context->handle);
    if (status == CUDA_SUCCESS) {
        status = towc_cuMemcpyHtoD_v2(to, from, size);
        if (status == CUDA_SUCCESS) {
            /* Streams that do not wait for the default stream must find it too. */
            status = towc_send_cuStreamSynchronize(towc_default_stream());
        }
        towc_cuCtxPopCurrent_v2(NULL);
    }
    return status;
}

CUresult towc_peer_copy(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream)
{
    bool to_device = towc_region_is_device(dst), from_device = towc_region_is_device(src);
    struct towc_context *here = towc_context_current();
    struct towc_context *to = to_device ? towc_owner_at(dst) : NULL;
    struct towc_context *from = from_device ? towc_owner_at(src) : NULL;
    to = to != NULL ? to : here;
    from = from != NULL ? from : here;
    CUresult status = towc_cuStreamSynchronize(stream);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (to_device && !from_device) {
        return write_chunk(to, dst, (const void *)(uintptr_t)src, size);
    }
    if (!to_device) {
        return read_chunk(from, (void *)(uintptr_t)dst, src, size);
    }
    void *chunk = malloc(size < CHUNK ? size : CHUNK);
    if (chunk == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t done = 0; done < size && status == CUDA_SUCCESS;) {
        size_t part = size - done < CHUNK ? size - done : CHUNK;
        status = read_chunk(from, chunk, src + done, part);
        if (status == CUDA_SUCCESS) {
            status = write_chunk(to, dst + done, chunk, part);
        }
        done += part;
    }
    free(chunk);
    return status;
}

/* ---- two and three dimensions, arrays ---- */

/* Copies in a context and waits until every stream finds it done. */
static CUresult copy_in(struct towc_context *context, const CUDA_MEMCPY3D *copy)
{
    CUresult status = towc_cuCtxPushCurrent_v2(context->handle);
    if (status == CUDA_SUCCESS) {
        status = towc_cuMemcpy3D_v2(copy);
        if (status == CUDA_SUCCESS) {
            status = towc_send_cuStreamSynchronize(towc_default_stream());
        }
        towc_cuCtxPopCurrent_v2(NULL);
    }
    return status;
}

static void set_source(CUDA_MEMCPY3D *copy, const CUDA_MEMCPY3D_PEER *p, size_t plane)
{
    copy->srcXInBytes = p->srcXInBytes;
    copy->srcY = p->srcY;
    copy->srcZ = p->srcZ + plane;
    copy->srcLOD = p->srcLOD;
    copy->srcMemoryType = p->srcMemoryType;
    copy->srcHost = p->srcHost;
    copy->srcDevice = p->srcDevice;
    copy->srcArray = p->srcArray;
    copy->srcPitch = p->srcPitch;
    copy->srcHeight = p->srcHeight != 0 ? p->srcHeight : p->srcY + p->Height;
}

static void set_target(CUDA_MEMCPY3D *copy, const CUDA_MEMCPY3D_PEER *p, size_t plane)
{
    copy->dstXInBytes = p->dstXInBytes;
    copy->dstY = p->dstY;
    copy->dstZ = p->dstZ + plane;
    copy->dstLOD = p->dstLOD;
    copy->dstMemoryType = p->dstMemoryType;
    copy->dstHost = p->dstHost;
    copy->dstDevice = p->dstDevice;
    copy->dstArray = p->dstArray;
    copy->dstPitch = p->dstPitch;
    copy->dstHeight = p->dstHeight != 0 ? p->dstHeight : p->dstY + p->Height;
}

static CUresult copy_rows(const CUDA_MEMCPY3D_PEER *p, CUstream stream)
{
    struct towc_context *from = towc_owner_of_source(p), *to = towc_owner_of_target(p);
    size_t size;
    if (__builtin_mul_overflow(p->WidthInBytes, p->Height, &size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_cuStreamSynchronize(stream);
    uint8_t *chunk = status == CUDA_SUCCESS ? malloc(size) : NULL;
    if (chunk == NULL) {
        return status == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : status;
    }
    for (size_t plane = 0; plane < p->Depth && status == CUDA_SUCCESS; plane++) {
        CUDA_MEMCPY3D read = {.dstMemoryType = CU_MEMORYTYPE_HOST,
                              .dstHost = chunk,
                              .WidthInBytes = p->WidthInBytes,
                              .Height = p->Height,
                              .Depth = 1};
        CUDA_MEMCPY3D write = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                               .srcHost = chunk,
                               .WidthInBytes = p->WidthInBytes,
                               .Height = p->Height,
                               .Depth = 1};
        set_source(&read, p, plane);
        set_target(&write, p, plane);
        status = copy_in(from, &read);
        if (status == CUDA_SUCCESS) {
            status = copy_in(to, &write);
        }
    }
    free(chunk);
    return status;
}

bool towc_peer_go(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status = copy->rows != NULL
                      ? copy_rows(copy->rows->asked, copy->stream)
                      : towc_peer_copy(copy->to, copy->from, copy->size, copy->stream);
    return true;
}
