/* SPDX-License-Identifier: Apache-2.0 */
/* Receives what a download brings and puts it where the program wants it, waiting or not. */
#include "client/copy/download.h"

#include "client/copy/part.h"
#include "client/copy/stage.h"
#include "client/link/lane.h"
#include "client/stream/context.h"
#include "gen/context_client.h"
#include "gen/copy.h"

CUresult tow_download_settle(struct tow_link *link, const void *host, size_t size)
{
    CUresult status = CUDA_SUCCESS;
    for (int i = 0; i < 4 && status == CUDA_SUCCESS && tow_link_expecting(link, host, size); i++) {
        status = tow_link_settle(link, host, size);
    }
    /* The stream was destroyed, or is another thread's own: then all of them. */
    return tow_link_expecting(link, host, size)
               ? tow_cuCtxSynchronize_v2(tow_context_current()->handle)
               : status;
}

bool tow_download_fetched(struct tow_copy *copy, CUresult *ret_status)
{
    struct tow_staged staged = tow_staged_of(copy);
    return tow_stage_fetch(copy->link, &staged, ret_status);
}

bool tow_download_staged(struct tow_copy *copy, CUresult *ret_status)
{
    struct tow_staged staged = tow_staged_of(copy);
    return tow_stage_down(copy->link, &staged, ret_status);
}

/* Whether the bytes may come on several lines. Which come first is then open, so memory that an
 * earlier copy is still to fill gets them on the own line, where they come behind that one's. */
static bool is_spread(struct tow_link *link, const struct tow_box *to)
{
    return tow_lane_use(link, tow_box_size(to)) > 0 &&
           !tow_link_expecting(link, to->first, tow_box_span(to));
}

/* ---- one dimension ---- */

static void encode_flat(struct tow_call *call, CUdeviceptr from, size_t size, CUstream stream,
                        uint32_t transfer, bool spread)
{
    tow_enc_u64(&call->enc, from);
    tow_enc_u64(&call->enc, size);
    tow_enc_u64(&call->enc, (uint64_t)(uintptr_t)stream);
    tow_enc_u32(&call->enc, transfer);
    tow_enc_u32(&call->enc, spread ? TOW_COPY_SPREAD : TOW_COPY_BYTES);
}

static CUresult await_flat(const struct tow_copy *copy)
{
    struct tow_link *link = copy->link;
    bool inside = copy->size <= TOW_COPY_INLINE_MAX;
    bool spread = is_spread(link, &copy->host);
    struct tow_call call;
    CUresult status =
        tow_call_begin(&call, TOW_FN_cuMemcpyDtoHAsync_v2, 40, TOW_CALL_CONTEXT | TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint32_t transfer = 0;
    if (!inside &&
        tow_link_expect(link, &copy->host, call.context, copy->stream,
                        spread ? TOW_TRANSFER_SPREAD : TOW_TRANSFER_ORDERED, &transfer) < 0) {
        tow_call_cancel(&call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    encode_flat(&call, copy->from, copy->size, copy->stream, transfer, spread);
    status = tow_call_wait(&call);
    if (status == CUDA_SUCCESS && spread) {
        status = tow_link_await(link, transfer);
    }
    if (status == CUDA_SUCCESS && inside) {
        tow_call_get_bytes(&call, copy->host.first, copy->size);
    } else if (status != CUDA_SUCCESS && !inside) {
        tow_link_forget(link, transfer);
    }
    return tow_call_end(&call, status);
}

/* The next bytes of it; `ret_waits`: not so, since the call must know its result. */
static CUresult send_later(struct tow_copy *copy, bool spread, bool *ret_waits)
{
    size_t n = copy->size < TOW_COPY_ASYNC_MAX ? copy->size : TOW_COPY_ASYNC_MAX;
    struct tow_call call;
    CUresult status = tow_call_begin(&call, TOW_FN_cuMemcpyDtoHAsync_v2, 40, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_waits = call.waits;
    if (call.waits) {
        tow_call_cancel(&call);
        return CUDA_SUCCESS;
    }
    uint32_t transfer = 0;
    struct tow_box into = tow_box_flat(copy->host.first, n);
    if (tow_link_expect(copy->link, &into, call.context, copy->stream,
                        spread ? TOW_TRANSFER_CLOSED : TOW_TRANSFER_ORDERED, &transfer) < 0) {
        tow_call_cancel(&call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    encode_flat(&call, copy->from, n, copy->stream, transfer, spread);
    status = tow_call_send(&call);
    if (status != CUDA_SUCCESS) {
        tow_link_forget(copy->link, transfer);
        return status;
    }
    tow_copy_advance(copy, n);
    return CUDA_SUCCESS;
}

static bool leave_flat(struct tow_copy *copy, CUresult *ret_status)
{
    bool spread = is_spread(copy->link, &copy->host), waits = false;
    *ret_status = CUDA_SUCCESS;
    while (*ret_status == CUDA_SUCCESS && copy->size > 0 && !waits) {
        *ret_status = send_later(copy, spread, &waits);
    }
    return !waits;
}

/* ---- two and three dimensions ---- */

/* If it is answered these bytes have come, and all before them of its stream. */
static CUresult send_part(struct tow_link *link, const struct tow_copy_shape *part,
                          const struct tow_box *into, bool answered)
{
    bool spread = (part->flags & TOW_SHAPE_SPREAD) != 0;
    struct tow_copy_shape sent = *part;
    struct tow_call call;
    CUresult status = tow_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2, sizeof sent,
                                     TOW_CALL_CONTEXT | (answered ? TOW_CALL_REPLY : 0));
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (tow_link_expect(link, into, call.context, (CUstream)(uintptr_t)part->stream,
                        spread ? TOW_TRANSFER_CLOSED : TOW_TRANSFER_ORDERED, &sent.transfer) < 0) {
        tow_call_cancel(&call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tow_enc_bytes(&call.enc, &sent, sizeof sent);
    status = tow_call_send(&call);
    if (status != CUDA_SUCCESS) {
        tow_link_forget(link, sent.transfer);
    }
    return status;
}

/* Without `wait` the bytes come with the next synchronisation; then the memory is page-locked, and
 * there is room for them. */
static CUresult send_parts(const struct tow_copy *copy, bool wait)
{
    struct tow_link *link = copy->link;
    const struct tow_copy_shape *shape = &copy->rows->packed;
    const struct tow_box *to = &copy->host;
    /* The first part that the driver refuses is the last: no other is to be told of later. */
    bool each = !tow_copy_is_sure(shape);
    bool spread = is_spread(link, to);
    struct tow_cut cut = tow_cut_make(to, TOW_COPY_ASYNC_MAX);
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; status == CUDA_SUCCESS && i < cut.count; i++) {
        struct tow_part at = tow_cut_part(&cut, i);
        struct tow_box into = tow_box_part(to, &at);
        struct tow_copy_shape part = tow_shape_part(shape, &at);
        part.flags |= spread ? TOW_SHAPE_SPREAD : 0;
        bool here = each || i + 1 == cut.count || !tow_copy_has_room(link, part.bytes);
        status = send_part(link, &part, &into, wait && here);
    }
    if (status != CUDA_SUCCESS && wait) {
        /* Of the parts before the one that failed nothing may come any more. */
        tow_download_settle(link, to->first, tow_box_span(to));
    }
    return status;
}

/* ---- executors ---- */

bool tow_download_line(struct tow_copy *copy, CUresult *ret_status)
{
    *ret_status = copy->rows != NULL ? send_parts(copy, true) : await_flat(copy);
    return true;
}

bool tow_download_later(struct tow_copy *copy, CUresult *ret_status)
{
    if (copy->rows == NULL) {
        return leave_flat(copy, ret_status);
    }
    *ret_status = send_parts(copy, false);
    return true;
}
