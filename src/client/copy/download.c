/* SPDX-License-Identifier: Apache-2.0 */
/* Receives what a download brings and puts it where the program wants it, waiting or not. */
#include "client/copy/download.h"

#include "client/copy/part.h"
#include "client/copy/stage.h"
#include "client/link/lane.h"
#include "client/stream/context.h"
#include "gen/context_client.h"
#include "gen/copy.h"

CUresult towc_download_wait(struct towc_link *link, const void *host, size_t size)
{
    CUresult status = CUDA_SUCCESS;
    for (int i = 0; i < 4 && status == CUDA_SUCCESS && towc_link_expecting(link, host, size); i++) {
        status = towc_link_wait_download(link, host, size);
    }
    /* The stream was destroyed, or is another thread's own: then all of them. */
    return towc_link_expecting(link, host, size)
               ? towc_cuCtxSynchronize_v2(towc_context_current()->handle)
               : status;
}

bool towc_download_fetched(struct towc_copy *copy, CUresult *ret_status)
{
    struct towc_staged staged = towc_staged_of(copy);
    return towc_stage_fetch(copy->link, &staged, ret_status);
}

bool towc_download_staged(struct towc_copy *copy, CUresult *ret_status)
{
    struct towc_staged staged = towc_staged_of(copy);
    return towc_stage_down(copy->link, &staged, ret_status);
}

/* Whether the bytes may come on several lines. Which come first is then open, so memory that an
 * earlier copy is still to fill gets them on the own line, where they come behind that one's. */
static bool is_spread(struct towc_link *link, const struct towc_host_rect *to)
{
    return towc_lane_use(link, towc_host_rect_size(to)) > 0 &&
           !towc_link_expecting(link, to->first, towc_host_rect_span(to));
}

/* ---- one dimension ---- */

static void encode_flat(struct towc_call *call, CUdeviceptr from, size_t size, CUstream stream,
                        uint32_t transfer, bool spread)
{
    tow_enc_u64(&call->enc, from);
    tow_enc_u64(&call->enc, size);
    tow_enc_u64(&call->enc, (uint64_t)(uintptr_t)stream);
    tow_enc_u32(&call->enc, transfer);
    tow_enc_u32(&call->enc, spread ? TOW_COPY_SPREAD : TOW_COPY_BYTES);
}

static CUresult await_flat(const struct towc_copy *copy)
{
    struct towc_link *link = copy->link;
    bool inside = copy->size <= TOW_COPY_INLINE_MAX;
    bool spread = is_spread(link, &copy->host);
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuMemcpyDtoHAsync_v2, 40, TOW_CALL_CONTEXT | TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint32_t transfer = 0;
    if (!inside &&
        towc_link_expect(link, &copy->host, call.context, copy->stream,
                         spread ? TOW_TRANSFER_SPREAD : TOW_TRANSFER_ORDERED, 0, &transfer) < 0) {
        towc_call_cancel(&call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    encode_flat(&call, copy->from, copy->size, copy->stream, transfer, spread);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS && spread) {
        status = towc_link_await(link, transfer);
    } else if (status == CUDA_SUCCESS && !inside) {
        status = towc_link_check_whole(link, transfer);
    }
    if (status == CUDA_SUCCESS && inside) {
        towc_call_get_bytes(&call, copy->host.first, copy->size);
    } else if (status != CUDA_SUCCESS && !inside) {
        towc_link_forget(link, transfer);
    }
    return towc_call_end(&call, status);
}

/* The next bytes of it; `ret_waits`: not so, since the call must know its result. */
static CUresult send_async(struct towc_copy *copy, bool spread, bool *ret_waits)
{
    size_t n = copy->size < TOW_COPY_ASYNC_MAX ? copy->size : TOW_COPY_ASYNC_MAX;
    struct towc_call call;
    CUresult status = towc_call_begin(&call, TOW_FN_cuMemcpyDtoHAsync_v2, 40, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_waits = call.waits;
    if (call.waits) {
        towc_call_cancel(&call);
        return CUDA_SUCCESS;
    }
    uint32_t transfer = 0;
    struct towc_host_rect into = towc_host_rect_flat(copy->host.first, n);
    if (towc_link_expect(copy->link, &into, call.context, copy->stream,
                         spread ? TOW_TRANSFER_CLOSED : TOW_TRANSFER_ORDERED, 0, &transfer) < 0) {
        towc_call_cancel(&call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    encode_flat(&call, copy->from, n, copy->stream, transfer, spread);
    status = towc_call_send(&call);
    if (status != CUDA_SUCCESS) {
        towc_link_forget(copy->link, transfer);
        return status;
    }
    towc_copy_advance(copy, n);
    return CUDA_SUCCESS;
}

static bool leave_flat(struct towc_copy *copy, CUresult *ret_status)
{
    bool spread = is_spread(copy->link, &copy->host), waits = false;
    *ret_status = CUDA_SUCCESS;
    while (*ret_status == CUDA_SUCCESS && copy->size > 0 && !waits) {
        *ret_status = send_async(copy, spread, &waits);
    }
    return !waits;
}

/* ---- two and three dimensions ---- */

/* If it is answered these bytes have come, and all before them of its stream. `first`: the transfer
 * of the first part, which sets it. */
static CUresult send_part(struct towc_link *link, const struct tow_copy_3d *part,
                          const struct towc_host_rect *into, bool answered, uint32_t *first)
{
    bool spread = (part->flags & TOW_COPY_3D_SPREAD) != 0;
    struct tow_copy_3d sent = *part;
    struct towc_call call;
    CUresult status = towc_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2, sizeof sent,
                                      TOW_CALL_CONTEXT | (answered ? TOW_CALL_REPLY : 0));
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (towc_link_expect(link, into, call.context, (CUstream)(uintptr_t)part->stream,
                         spread ? TOW_TRANSFER_CLOSED : TOW_TRANSFER_ORDERED, *first,
                         &sent.transfer) < 0) {
        towc_call_cancel(&call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *first = *first != 0 ? *first : sent.transfer;
    tow_enc_bytes(&call.enc, &sent, sizeof sent);
    status = towc_call_send(&call);
    if (status != CUDA_SUCCESS) {
        towc_link_forget(link, sent.transfer);
    }
    return status == CUDA_SUCCESS && answered ? towc_link_check_whole(link, *first) : status;
}

/* Without `wait` the bytes come with the next synchronisation; then the memory is page-locked, and
 * there is room for them. */
static CUresult send_parts(const struct towc_copy *copy, bool wait)
{
    struct towc_link *link = copy->link;
    const struct tow_copy_3d *copy_3d = &copy->rows->packed;
    const struct towc_host_rect *to = &copy->host;
    /* The first part that the driver refuses is the last: no other is to be told of later. */
    bool each = !towc_copy_is_sure(copy_3d);
    bool spread = is_spread(link, to);
    struct towc_cut cut = towc_cut_make(to, TOW_COPY_ASYNC_MAX);
    uint32_t first = 0;
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; status == CUDA_SUCCESS && i < cut.count; i++) {
        struct towc_part at = towc_cut_part(&cut, i);
        struct towc_host_rect into = towc_host_rect_part(to, &at);
        struct tow_copy_3d part = towc_copy_3d_part(copy_3d, &at);
        part.flags |= spread ? TOW_COPY_3D_SPREAD : 0;
        bool here = each || i + 1 == cut.count || !towc_copy_has_room(link, part.bytes);
        status = send_part(link, &part, &into, wait && here, &first);
    }
    if (status != CUDA_SUCCESS && wait) {
        /* Of the parts before the one that failed nothing may come any more. */
        towc_download_wait(link, to->first, towc_host_rect_span(to));
        towc_link_abandon_copy(link, first);
    }
    return status;
}

/* ---- executors ---- */

bool towc_download_line(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status = copy->rows != NULL ? send_parts(copy, true) : await_flat(copy);
    return true;
}

bool towc_download_async(struct towc_copy *copy, CUresult *ret_status)
{
    if (copy->rows == NULL) {
        return leave_flat(copy, ret_status);
    }
    *ret_status = send_parts(copy, false);
    return true;
}
