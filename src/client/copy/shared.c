/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that name an address of shared memory. */
#include "client/copy/shared.h"

#include "client/link/call.h"
#include "gen/copy.h"
#include "wire/copy.h"

CUresult towc_shared_send(unsigned fn, CUdeviceptr device, const void *host, size_t size,
                          CUstream stream, const struct tow_fence_word *word, uint32_t value,
                          uint64_t *ret_number)
{
    struct towc_call call;
    CUresult status = towc_call_begin(&call, fn, 56, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_number = towc_link_next(call.link);
    tow_enc_u64(&call.enc, device);
    tow_enc_u64(&call.enc, size);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    tow_enc_u32(&call.enc, 0);
    tow_enc_u32(&call.enc, word != NULL ? TOW_COPY_FENCE_WORD : TOW_COPY_SHARED);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)host);
    if (word != NULL) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)word);
        tow_enc_u32(&call.enc, value);
        tow_enc_u32(&call.enc, 0);
    }
    return towc_call_send(&call);
}

static CUresult copy_shared(struct towc_link *link, unsigned fn, CUdeviceptr device,
                            const void *host, size_t size, CUstream stream, bool wait)
{
    uint64_t number = 0;
    struct towc_wait_slot *slot =
        wait && !towc_completion_brings_more(link) ? towc_wait_slot_take(link) : NULL;
    const struct tow_fence_word *word = slot != NULL ? slot->word : NULL;
    CUresult status = towc_shared_send(fn, device, host, size, stream, word,
                                       slot != NULL ? slot->value : 0, &number);
    enum towc_completion_outcome outcome =
        status == CUDA_SUCCESS && slot != NULL
            ? towc_fence_word_wait_long(word, slot->value, tow_share_copy_ns(size))
            : TOW_COMPLETION_REFUSED;
    if (slot != NULL) {
        towc_wait_slot_leave(slot);
    }
    if (status == CUDA_SUCCESS && wait && outcome != TOW_COMPLETION_DONE) {
        /* Also after a refusal: this tells what is wrong. */
        status = towc_completion_ask_stream(link, stream);
        if (status == CUDA_SUCCESS && outcome == TOW_COMPLETION_REFUSED && slot != NULL &&
            fn == TOW_FN_cuMemcpyDtoHAsync_v2) {
            status = copy_shared(link, fn, device, host, size, stream, false);
            status = status == CUDA_SUCCESS ? towc_completion_ask_stream(link, stream) : status;
        }
    } else if (status == CUDA_SUCCESS && outcome == TOW_COMPLETION_DONE) {
        towc_completion_set_quiet(link, stream, number);
    }
    return status;
}

bool towc_shared_copy(struct towc_copy *copy, CUresult *ret_status)
{
    *ret_status = copy_shared(copy->link,
                              towc_copy_is_up(copy) ? TOW_FN_cuMemcpyHtoDAsync_v2
                                                    : TOW_FN_cuMemcpyDtoHAsync_v2,
                              towc_copy_device(copy), copy->host.first, copy->size, copy->stream,
                              (copy->facts & TOW_FACT_WAIT) != 0);
    return true;
}
