/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: each goes the way that the plan says (client/copy/plan.h). Here is the one loop that asks
 * for it, and the prototypes of one dimension.
 */
#include "client/copy/copy.h"

#include <string.h>

#include "client/copy/download.h"
#include "client/copy/named.h"
#include "client/copy/peer.h"
#include "client/copy/shared.h"
#include "client/copy/upload.h"
#include "client/hostmem/mirror.h"
#include "client/stream/context.h"
#include "client/stream/stream.h"
#include "gen/context_client.h"
#include "gen/copy_client.h"
#include "gen/stream_client.h"

static CUresult copy_flat(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
                          unsigned facts);

/* ---- ways of both directions ---- */

static bool memmove_behind(struct tow_copy *copy, CUresult *ret_status)
{
    *ret_status = tow_send_cuStreamSynchronize(copy->stream);
    if (*ret_status == CUDA_SUCCESS && copy->rows == NULL) {
        memmove((void *)(uintptr_t)copy->to, (const void *)(uintptr_t)copy->from, copy->size);
    } else if (*ret_status == CUDA_SUCCESS) {
        const struct tow_box *to = &copy->rows->to, *from = &copy->rows->from;
        for (size_t z = 0; z < to->planes; z++) {
            for (size_t y = 0; y < to->rows; y++) {
                memmove(to->first + z * to->plane + y * to->pitch,
                        from->first + z * from->plane + y * from->pitch, to->width);
            }
        }
    }
    return true;
}

/* One part of a copy that is split, in its own way. */
static CUresult copy_part(const struct tow_copy *copy, size_t offset, size_t size, bool wait)
{
    return copy_flat(copy->to + offset, copy->from + offset, size, copy->stream,
                     (copy->facts & (TOW_FACT_UP | TOW_FACT_DOWN)) | (wait ? TOW_FACT_WAIT : 0));
}

static bool part_is_shared(const struct tow_copy *copy, size_t offset, size_t size)
{
    struct tow_region_view view;
    tow_region_look(copy->link, (uint64_t)(uintptr_t)copy->host.first + offset, size, &view);
    return view.shared;
}

/* Of an upload what is not shared has been read when its part returns. Of a download a part that is
 * shared comes first, and is done when the other one is. */
static bool split(struct tow_copy *copy, CUresult *ret_status)
{
    struct tow_region_view view;
    tow_region_look(copy->link, (uint64_t)(uintptr_t)copy->host.first, copy->size, &view);
    size_t head = (size_t)view.alike, rest = copy->size - head;
    bool up = tow_copy_is_up(copy), wait = (copy->facts & TOW_FACT_WAIT) != 0;
    bool swap = !up && part_is_shared(copy, head, rest);
    if (swap) {
        *ret_status = copy_part(copy, head, rest, false);
    } else {
        *ret_status = copy_part(copy, 0, head, wait && part_is_shared(copy, 0, head) == up);
    }
    if (*ret_status == CUDA_SUCCESS) {
        *ret_status = swap ? copy_part(copy, 0, head, wait) : copy_part(copy, head, rest, wait);
    }
    return true;
}

/* ---- the loop ---- */

static tow_copy_executor *const executors[TOW_WAY_COUNT] = {
    [TOW_WAY_PEER] = tow_peer_go,
    [TOW_WAY_MEMMOVE] = memmove_behind,
    [TOW_WAY_PUSH] = tow_named_push,
    [TOW_WAY_CAPTURED] = tow_named_captured,
    [TOW_WAY_SPLIT] = split,
    [TOW_WAY_DEVICE] = tow_named_device,
    [TOW_WAY_SHARED] = tow_shared_copy,
    [TOW_WAY_SETTLE] = tow_upload_settle,
    [TOW_WAY_NAMED] = tow_named_copy,
    [TOW_WAY_DEFERRED] = tow_upload_deferred,
    [TOW_WAY_LATER] = tow_download_later,
    [TOW_WAY_TURN] = tow_named_turn,
    [TOW_WAY_FETCHED] = tow_download_fetched,
    [TOW_WAY_STAGED] = tow_download_staged, /* but of uploads tow_upload_staged, */
    [TOW_WAY_LINE] = tow_download_line,     /* and tow_upload_line */
};

/* Until the stream has done what it was given. */
static CUresult await(const struct tow_copy *copy)
{
    uint64_t number = tow_link_sent(copy->link);
    CUresult status = tow_send_cuStreamSynchronize(copy->stream);
    if (status == CUDA_SUCCESS) {
        tow_stream_finished(copy->stream, tow_context_current(), number);
    }
    return status;
}

CUresult tow_copy_run(struct tow_copy *copy)
{
    CUresult status = CUDA_SUCCESS;
    bool up = (copy->facts & TOW_FACT_UP) != 0, done = false;
    enum tow_copy_way way;
    do {
        way = tow_copy_plan(copy->facts, copy->tried);
        done = up && way == TOW_WAY_STAGED ? tow_upload_staged(copy, &status)
               : up && way == TOW_WAY_LINE ? tow_upload_line(copy, &status)
                                           : executors[way](copy, &status);
        copy->tried |= 1u << way;
    } while (!done);
    bool waits = (copy->facts & TOW_FACT_WAIT) && tow_copy_awaits(copy->facts, way);
    return status == CUDA_SUCCESS && waits ? await(copy) : status;
}

/* ---- one dimension ---- */

static CUresult copy_flat(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
                          unsigned facts)
{
    struct tow_copy copy = {
        .stream = stream, .facts = facts | TOW_FACT_FLAT, .to = to, .from = from, .size = size};
    CUresult status = tow_context_link(&copy.link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    status = tow_copy_look(&copy);
    return status == CUDA_SUCCESS ? tow_copy_run(&copy) : status;
}

static CUresult copy_unified(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream,
                             unsigned facts)
{
    struct tow_link *link = NULL;
    CUresult status = tow_context_link(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (dst == 0 || src == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    facts |= tow_copy_is_device(dst, stream) ? 0 : TOW_FACT_DOWN;
    facts |= tow_copy_is_device(src, stream) ? 0 : TOW_FACT_UP;
    return copy_flat(dst, src, size, stream, facts);
}

CUresult tow_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_flat(dstDevice, (CUdeviceptr)(uintptr_t)srcHost, ByteCount, tow_default_stream(),
                     TOW_FACT_UP | TOW_FACT_WAIT);
}

CUresult tow_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                                  CUstream hStream)
{
    return copy_flat(dstDevice, (CUdeviceptr)(uintptr_t)srcHost, ByteCount, hStream, TOW_FACT_UP);
}

CUresult tow_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_flat((CUdeviceptr)(uintptr_t)dstHost, srcDevice, ByteCount, tow_default_stream(),
                     TOW_FACT_DOWN | TOW_FACT_WAIT);
}

CUresult tow_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream)
{
    return copy_flat((CUdeviceptr)(uintptr_t)dstHost, srcDevice, ByteCount, hStream, TOW_FACT_DOWN);
}

CUresult tow_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_flat(dstDevice, srcDevice, ByteCount, tow_default_stream(), TOW_FACT_WAIT);
}

CUresult tow_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream)
{
    return copy_flat(dstDevice, srcDevice, ByteCount, hStream, 0);
}

CUresult tow_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_unified(dst, src, ByteCount, tow_default_stream(), TOW_FACT_WAIT);
}

CUresult tow_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_unified(dst, src, ByteCount, hStream, 0);
}

CUresult tow_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                               CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    struct tow_link *link = NULL;
    CUresult status = tow_context_link(&link);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUcontext here = tow_context_current()->handle;
    dstContext = dstContext != NULL ? dstContext : here;
    srcContext = srcContext != NULL ? srcContext : here;
    if (tow_context_find(dstContext) == NULL || tow_context_find(srcContext) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (ByteCount == 0) {
        return CUDA_SUCCESS;
    }
    if (tow_mirror_check_work(hStream, dstDevice, ByteCount) != CUDA_SUCCESS ||
        tow_mirror_check_work(hStream, srcDevice, ByteCount) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (tow_context_find(dstContext)->link != link || tow_context_find(srcContext)->link != link) {
        return tow_peer_copy(dstDevice, srcDevice, ByteCount, hStream);
    }
    bool seen = tow_mirror_sees(dstDevice) || tow_mirror_sees(srcDevice);
    status = seen ? tow_mirror_push(link) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        status = tow_send_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount,
                                            hStream);
    }
    return status;
}

static CUresult wait_for_other(CUcontext handle, bool *ret_other)
{
    const struct tow_context *context = tow_context_find(handle);
    if (context == NULL || context == tow_context_current()) {
        return CUDA_SUCCESS;
    }
    *ret_other = true;
    return tow_cuCtxSynchronize_v2(handle);
}

CUresult tow_copy_wait_for_others(CUcontext dst, CUcontext src, bool *ret_others)
{
    CUresult status = wait_for_other(dst, ret_others);
    return status == CUDA_SUCCESS ? wait_for_other(src, ret_others) : status;
}

CUresult tow_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                          CUcontext srcContext, size_t ByteCount)
{
    CUstream stream = tow_default_stream();
    bool others = false;
    CUresult status = tow_copy_wait_for_others(dstContext, srcContext, &others);
    if (status == CUDA_SUCCESS) {
        status =
            tow_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, stream);
    }
    return status == CUDA_SUCCESS && ByteCount > 0 && (others || tow_mirror_sees(dstDevice))
               ? tow_send_cuStreamSynchronize(stream)
               : status;
}
