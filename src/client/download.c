#include "client/download.h"

#include "client/call.h"
#include "client/lane.h"
#include "client/share.h"
#include "wire/copy.h"
#include "wire/share.h"

/* Bytes of asynchronous downloads under way; beyond, they are waited for. The worker's limit,
 * TOW_PINNED_TOTAL, is more than twice that: it rounds sizes up to powers of two. */
#define LATER_MAX ((size_t)384 << 20)

/* Whether the bytes may come on several lines. Which come first is then open, so memory that an
 * earlier copy is still to fill gets them on the own line, where they come behind that one's. */
static bool is_spread(struct tow_link *link, const void *to, size_t size)
{
    return tow_lane_use(link, size) > 0 && !tow_link_expecting(link, to, size);
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
    CUresult status = tow_share_stage_down(link, to, from, size, stream);
    if (status != CUDA_ERROR_NOT_SUPPORTED) {
        return status;
    }
    bool inside = size <= TOW_COPY_INLINE_MAX;
    bool spread = is_spread(link, to, size);
    struct tow_call call;
    status =
        tow_call_begin(&call, TOW_FN_cuMemcpyDtoHAsync_v2, 40, TOW_CALL_CONTEXT | TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint32_t transfer = 0;
    if (!inside &&
        tow_link_expect(link, to, size, call.context, stream,
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

CUresult tow_download_later(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                            CUstream stream, size_t *ret_sent)
{
    size_t under_way = tow_link_outstanding(link), sent = 0;
    *ret_sent = 0;
    /* Over shared memory large ones are faster through the staging. */
    if (under_way >= LATER_MAX || size > LATER_MAX - under_way ||
        (size > TOW_COPY_ASYNC_MAX && link->share != NULL)) {
        return CUDA_SUCCESS;
    }
    bool spread = is_spread(link, to, size);
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
        if (tow_link_expect(link, (uint8_t *)to + sent, n, call.context, stream,
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
