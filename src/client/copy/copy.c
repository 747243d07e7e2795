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

static bool memmove_behind(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status = towc_send_cuStreamSynchronize(copy->stream);
    if (*ret_status == CUDA_SUCCESS && copy->rows == NULL) {
        memmove((void *)(uintptr_t)copy->to, (const void *)(uintptr_t)copy->from, copy->size);
    } else if (*ret_status == CUDA_SUCCESS) {
        const struct towc_host_rect *to = &copy->rows->to, *from = &copy->rows->from;
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
static CUresult copy_part(const struct towc_copy *copy, size_t offset, size_t size, bool wait)
{
    return copy_flat(copy->to + offset, copy->from + offset, size, copy->stream,
                     (copy->facts & (TOW_FACT_UP | TOW_FACT_DOWN)) | (wait ? TOW_FACT_WAIT : 0));
}

static bool part_is_shared(const struct towc_copy *copy, size_t offset, size_t size)
{
    struct towc_region_view view;
    towc_region_look(copy->link, (uint64_t)(uintptr_t)copy->host.first + offset, size, &view);
    return view.shared;
}

/* Of an upload what is not shared has been read when its part returns. Of a download a part that is
 * shared comes first, and is done when the other one is. */
static bool copy_split(struct towc_copy *copy, CUresult *ret_status)
{
    struct towc_region_view view;
    towc_region_look(copy->link, (uint64_t)(uintptr_t)copy->host.first, copy->size, &view);
    size_t head = (size_t)view.alike, rest = copy->size - head;
    bool up = (copy->facts & TOW_FACT_UP) != 0, wait = (copy->facts & TOW_FACT_WAIT) != 0;
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

/* Until the stream has done what it was given. */
static CUresult copy_await(const struct towc_copy *copy)
{
    uint64_t number = towc_link_sent(copy->link);
    CUresult status = towc_send_cuStreamSynchronize(copy->stream);
    if (status == CUDA_SUCCESS) {
        towc_stream_finished(copy->stream, towc_context_current(), number);
    }
    return status;
}

/* The source is read behind this. While something captures no stream may be waited for. */
static bool await_turn(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status = atomic_load_explicit(&towc_captures, memory_order_relaxed) != 0
                      ? CUDA_SUCCESS
                      : copy_await(copy);
    towc_copy_look_again(copy);
    return *ret_status != CUDA_SUCCESS;
}

/* Who goes a way: with a copy whose source is host memory [1], and with others [0]. */
static towc_copy_executor *const executors[TOW_WAY_COUNT][2] = {
    [TOW_WAY_PEER] = {towc_peer_go, towc_peer_go},
    [TOW_WAY_MEMMOVE] = {memmove_behind, memmove_behind},
    [TOW_WAY_PUSH] = {towc_named_push, towc_named_push},
    [TOW_WAY_CAPTURED] = {towc_named_captured, towc_named_captured},
    [TOW_WAY_SPLIT] = {copy_split, copy_split},
    [TOW_WAY_DEVICE] = {towc_named_device, towc_named_device},
    [TOW_WAY_SHARED] = {towc_shared_copy, towc_shared_copy},
    [TOW_WAY_WAIT_SOURCE] = {towc_upload_wait_source, towc_upload_wait_source},
    [TOW_WAY_NAMED] = {towc_named_copy, towc_named_copy},
    [TOW_WAY_WAIT_TURN] = {await_turn, await_turn},
    [TOW_WAY_DEFERRED] = {towc_upload_deferred, towc_upload_deferred},
    [TOW_WAY_ASYNC] = {towc_download_async, towc_download_async},
    [TOW_WAY_TURN] = {towc_named_turn, towc_named_turn},
    [TOW_WAY_FETCHED] = {towc_download_fetched, towc_download_fetched},
    [TOW_WAY_STAGED] = {towc_download_staged, towc_upload_staged},
    [TOW_WAY_LINE] = {towc_download_line, towc_upload_line},
};

CUresult towc_copy_run(struct towc_copy *copy)
{
    CUresult status = CUDA_SUCCESS;
    bool done = false, up = (copy->facts & TOW_FACT_UP) != 0;
    enum towc_copy_way way;
    do {
        way = towc_copy_plan(copy->facts, copy->tried);
        done = executors[way][up](copy, &status);
        copy->tried |= 1u << way;
    } while (!done);
    bool awaits = (copy->facts & TOW_FACT_WAIT) && towc_copy_awaits(copy->facts, way);
    return status == CUDA_SUCCESS && awaits ? copy_await(copy) : status;
}

/* ---- one dimension ---- */

static CUresult look_and_run(struct towc_copy *copy)
{
    CUresult status = towc_context_link(&copy->link);
    if (status != CUDA_SUCCESS || copy->size == 0) {
        return status;
    }
    status = towc_copy_look(copy);
    return status == CUDA_SUCCESS ? towc_copy_run(copy) : status;
}

static CUresult copy_flat(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
                          unsigned facts)
{
    struct towc_copy copy = {
        .stream = stream, .facts = facts | TOW_FACT_FLAT, .to = to, .from = from, .size = size};
    return look_and_run(&copy);
}

static CUresult copy_unified(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
                             unsigned facts)
{
    struct towc_copy copy = {.stream = stream,
                             .facts = facts | TOW_FACT_FLAT,
                             .unified = true,
                             .to = to,
                             .from = from,
                             .size = size};
    return look_and_run(&copy);
}

CUresult towc_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_flat(dstDevice, (CUdeviceptr)(uintptr_t)srcHost, ByteCount, towc_default_stream(),
                     TOW_FACT_UP | TOW_FACT_WAIT);
}

CUresult towc_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                                   CUstream hStream)
{
    return copy_flat(dstDevice, (CUdeviceptr)(uintptr_t)srcHost, ByteCount, hStream, TOW_FACT_UP);
}

CUresult towc_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_flat((CUdeviceptr)(uintptr_t)dstHost, srcDevice, ByteCount, towc_default_stream(),
                     TOW_FACT_DOWN | TOW_FACT_WAIT);
}

CUresult towc_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream)
{
    return copy_flat((CUdeviceptr)(uintptr_t)dstHost, srcDevice, ByteCount, hStream, TOW_FACT_DOWN);
}

CUresult towc_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_flat(dstDevice, srcDevice, ByteCount, towc_default_stream(), TOW_FACT_WAIT);
}

CUresult towc_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream)
{
    return copy_flat(dstDevice, srcDevice, ByteCount, hStream, 0);
}

CUresult towc_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_unified(dst, src, ByteCount, towc_default_stream(), TOW_FACT_WAIT);
}

CUresult towc_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_unified(dst, src, ByteCount, hStream, 0);
}

CUresult towc_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    struct towc_link *link = NULL;
    CUresult status = towc_context_link(&link);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUcontext here = towc_context_current()->handle;
    dstContext = dstContext != NULL ? dstContext : here;
    srcContext = srcContext != NULL ? srcContext : here;
    if (towc_context_find(dstContext) == NULL || towc_context_find(srcContext) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (ByteCount == 0) {
        return CUDA_SUCCESS;
    }
    if (towc_mirror_check_work(hStream, dstDevice, ByteCount) != CUDA_SUCCESS ||
        towc_mirror_check_work(hStream, srcDevice, ByteCount) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (towc_context_find(dstContext)->link != link ||
        towc_context_find(srcContext)->link != link) {
        return towc_peer_copy(dstDevice, srcDevice, ByteCount, hStream);
    }
    bool seen = towc_mirror_sees(dstDevice) || towc_mirror_sees(srcDevice);
    status = seen ? towc_mirror_push(link) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        status = towc_send_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext,
                                             ByteCount, hStream);
    }
    return status;
}

static CUresult wait_for_other(CUcontext handle, bool *ret_other)
{
    const struct towc_context *context = towc_context_find(handle);
    if (context == NULL || context == towc_context_current()) {
        return CUDA_SUCCESS;
    }
    *ret_other = true;
    return towc_cuCtxSynchronize_v2(handle);
}

CUresult towc_copy_wait_for_others(CUcontext dst, CUcontext src, bool *ret_others)
{
    CUresult status = wait_for_other(dst, ret_others);
    return status == CUDA_SUCCESS ? wait_for_other(src, ret_others) : status;
}

CUresult towc_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount)
{
    CUstream stream = towc_default_stream();
    bool others = false;
    CUresult status = towc_copy_wait_for_others(dstContext, srcContext, &others);
    if (status == CUDA_SUCCESS) {
        status =
            towc_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, stream);
    }
    return status == CUDA_SUCCESS && ByteCount > 0 && (others || towc_mirror_sees(dstDevice))
               ? towc_send_cuStreamSynchronize(stream)
               : status;
}
