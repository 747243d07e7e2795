/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that name an address of shared memory. */
#include "client/copy/shared.h"

#include "client/link/call.h"
#include "client/stream/stream.h"
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

struct shared_copy {
    struct towc_awaited awaited; /* first: a copy is what is awaited */
    unsigned fn;
    CUdeviceptr device;
    const void *host;
    size_t size;
    CUstream stream;
    uint64_t number; /* of its command */
};

static CUresult send_shared(struct towc_awaited *awaited, const struct towc_wait_slot *slot)
{
    struct shared_copy *c = (struct shared_copy *)awaited;
    return towc_shared_send(c->fn, c->device, c->host, c->size, c->stream,
                            slot != NULL ? slot->word : NULL, slot != NULL ? slot->value : 0,
                            &c->number);
}

static CUresult ask_shared(struct towc_awaited *awaited)
{
    return towc_stream_ask(awaited->link, ((struct shared_copy *)awaited)->stream);
}

static CUresult await_shared(struct shared_copy *c)
{
    CUresult status;
    if (towc_completion_run(&c->awaited, &status) == TOW_COMPLETION_DONE) {
        towc_stream_told(c->awaited.link, c->stream, c->number, c->awaited.owing);
        return status;
    }
    if (status == CUDA_SUCCESS && c->awaited.sent) {
        status = ask_shared(&c->awaited); /* it was refused: this tells what is wrong */
    }
    if (status == CUDA_SUCCESS && (!c->awaited.sent || c->fn == TOW_FN_cuMemcpyDtoHAsync_v2)) {
        status = send_shared(&c->awaited, NULL);
        status = status == CUDA_SUCCESS ? ask_shared(&c->awaited) : status;
    }
    return status;
}

bool towc_shared_copy(struct towc_copy *copy, CUresult *ret_status)
{
    struct shared_copy c = {
        .awaited = {.link = copy->link,
                    .send = send_shared,
                    .ask = ask_shared,
                    .more_ns = tow_share_copy_ns(copy->size)},
        .fn = copy->facts & TOW_FACT_UP ? TOW_FN_cuMemcpyHtoDAsync_v2 : TOW_FN_cuMemcpyDtoHAsync_v2,
        .device = towc_copy_device(copy),
        .host = copy->host.first,
        .size = copy->size,
        .stream = copy->stream,
    };
    *ret_status =
        (copy->facts & TOW_FACT_WAIT) != 0 ? await_shared(&c) : send_shared(&c.awaited, NULL);
    return true;
}
