/* SPDX-License-Identifier: Apache-2.0 */
/* Receives what a download brings and puts it where the program wants it, waiting or not. */
#include "client/copy/download.h"

#include "client/link/call.h"
#include "client/link/lane.h"
#include "client/copy/stage.h"
#include "gen/copy.h"
#include "wire/copy.h"
#include "wire/share.h"

/* Bytes of asynchronous downloads under way; beyond, they are waited for. The worker's limit,
 * TOW_PINNED_TOTAL, is more than twice that: it rounds sizes up to powers of two. */
#define LATER_MAX ((size_t)384 << 20)

bool tow_download_is_spread(struct tow_link *link, const struct tow_box *to)
{
    return tow_lane_use(link, tow_box_size(to)) > 0 &&
           !tow_link_expecting(link, to->first, tow_box_span(to));
}

static void encode(struct tow_call *call, CUdeviceptr from, size_t size, CUstream stream,
                   uint32_t transfer, bool spread)
{
    tow_enc_u64(&call->enc, from);
    tow_enc_u64(&call->enc, size);
    tow_enc_u64(&call->enc, (uint64_t)(uintptr_t)stream);
    tow_enc_u32(&call->enc, transfer);
    tow_enc_u32(&call->enc, spread ? TOW_COPY_SPREAD : TOW_COPY_BYTES);
}

CUresult tow_download(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                      CUstream stream)
{
    struct tow_box into = tow_box_flat(to, size);
    struct tow_staged staged = {.host = into, .stream = stream, .device = from};
    CUresult status = CUDA_SUCCESS;
    if (tow_stage_down(link, &staged, &status)) {
        return status;
    }
    bool inside = size <= TOW_COPY_INLINE_MAX;
    bool spread = tow_download_is_spread(link, &into);
    struct tow_call call;
    status =
        tow_call_begin(&call, TOW_FN_cuMemcpyDtoHAsync_v2, 40, TOW_CALL_CONTEXT | TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint32_t transfer = 0;
    if (!inside &&
        tow_link_expect(link, &into, call.context, stream,
                        spread ? TOW_TRANSFER_SPREAD : TOW_TRANSFER_ORDERED, &transfer) < 0) {
        tow_call_cancel(&call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    encode(&call, from, size, stream, transfer, spread);
    status = tow_call_wait(&call);
    if (status == CUDA_SUCCESS && spread) {
        status = tow_link_await(link, transfer);
    }
    if (status == CUDA_SUCCESS && inside) {
        tow_call_get_bytes(&call, to, size);
    } else if (status != CUDA_SUCCESS && !inside) {
        tow_link_forget(link, transfer);
    }
    return tow_call_end(&call, status);
}

bool tow_download_has_room(struct tow_link *link, size_t size)
{
    size_t under_way = tow_link_outstanding(link);
    return under_way < LATER_MAX && size <= LATER_MAX - under_way;
}

CUresult tow_download_later(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                            CUstream stream, size_t *ret_sent)
{
    size_t sent = 0;
    *ret_sent = 0;
    /* Over shared memory large ones are faster through the staging. */
    if (!tow_download_has_room(link, size) || (size > TOW_COPY_ASYNC_MAX && link->share != NULL)) {
        return CUDA_SUCCESS;
    }
    struct tow_box into = tow_box_flat(to, size);
    bool spread = tow_download_is_spread(link, &into);
    while (sent < size) {
        size_t n = size - sent < TOW_COPY_ASYNC_MAX ? size - sent : TOW_COPY_ASYNC_MAX;
        struct tow_call call;
        CUresult status = tow_call_begin(&call, TOW_FN_cuMemcpyDtoHAsync_v2, 40, TOW_CALL_CONTEXT);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        if (call.waits) {
            tow_call_cancel(&call);
            break;
        }
        uint32_t transfer = 0;
        into = tow_box_flat((uint8_t *)to + sent, n);
        if (tow_link_expect(link, &into, call.context, stream,
                            spread ? TOW_TRANSFER_CLOSED : TOW_TRANSFER_ORDERED, &transfer) < 0) {
            tow_call_cancel(&call);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        encode(&call, from + sent, n, stream, transfer, spread);
        status = tow_call_send(&call);
        if (status != CUDA_SUCCESS) {
            tow_link_forget(link, transfer);
            return status;
        }
        sent += n;
    }
    *ret_sent = sent;
    return CUDA_SUCCESS;
}
