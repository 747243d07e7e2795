/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that name an address of shared memory. */
#include "client/copy/shared.h"

#include "client/link/call.h"
#include "gen/copy.h"
#include "wire/copy.h"

CUresult tow_shared_send(unsigned fn, CUdeviceptr device, const void *host, size_t size,
                         CUstream stream, const struct tow_share_note *note, uint32_t value,
                         uint64_t *ret_number)
{
    struct tow_call call;
    CUresult status = tow_call_begin(&call, fn, 56, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    *ret_number = tow_link_next(call.link);
    tow_enc_u64(&call.enc, device);
    tow_enc_u64(&call.enc, size);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    tow_enc_u32(&call.enc, 0);
    tow_enc_u32(&call.enc, note != NULL ? TOW_COPY_NOTED : TOW_COPY_SHARED);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)host);
    if (note != NULL) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)note);
        tow_enc_u32(&call.enc, value);
        tow_enc_u32(&call.enc, 0);
    }
    return tow_call_send(&call);
}

static CUresult copy_shared(struct tow_link *link, unsigned fn, CUdeviceptr device,
                            const void *host, size_t size, CUstream stream, bool wait)
{
    uint64_t number = 0;
    struct tow_desk *desk = wait && !tow_share_brings_more(link) ? tow_desk_take(link) : NULL;
    const struct tow_share_note *note = desk != NULL ? desk->note : NULL;
    CUresult status = tow_shared_send(fn, device, host, size, stream, note,
                                      desk != NULL ? desk->value : 0, &number);
    enum tow_share_outcome outcome =
        status == CUDA_SUCCESS && desk != NULL
            ? tow_share_await_long(note, desk->value, tow_share_copy_ns(size))
            : TOW_SHARE_REFUSED;
    if (desk != NULL) {
        tow_desk_leave(desk);
    }
    if (status == CUDA_SUCCESS && wait && outcome != TOW_SHARE_DONE) {
        /* Also after a refusal: this tells what is wrong. */
        status = tow_share_ask(link, stream);
        if (status == CUDA_SUCCESS && outcome == TOW_SHARE_REFUSED && desk != NULL &&
            fn == TOW_FN_cuMemcpyDtoHAsync_v2) {
            status = copy_shared(link, fn, device, host, size, stream, false);
            status = status == CUDA_SUCCESS ? tow_share_ask(link, stream) : status;
        }
    } else if (status == CUDA_SUCCESS && outcome == TOW_SHARE_DONE) {
        tow_share_note_quiet(link, stream, number);
    }
    return status;
}

CUresult tow_shared_upload(struct tow_link *link, CUdeviceptr to, const void *from, size_t size,
                           CUstream stream, bool wait)
{
    return copy_shared(link, TOW_FN_cuMemcpyHtoDAsync_v2, to, from, size, stream, wait);
}

CUresult tow_shared_download(struct tow_link *link, void *to, CUdeviceptr from, size_t size,
                             CUstream stream, bool wait)
{
    return copy_shared(link, TOW_FN_cuMemcpyDtoHAsync_v2, from, to, size, stream, wait);
}
