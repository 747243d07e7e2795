/* SPDX-License-Identifier: Apache-2.0 */
/* Fence words: words in shared memory that the device writes in place of a reply. */
#include "server/copy/fence_word.h"

#include "gen/context_server.h"
#include "gen/copy.h"
#include "gen/stream_server.h"
#include "server/copy/download.h"
#include "server/copy/share.h"
#include "server/session/session.h"
#include "wire/share.h"

void tows_fence_word_put(struct tows_serve *call, CUstream stream)
{
    uint32_t value = 0;
    struct tow_fence_word *word = tows_fence_word_decode(call, &value);
    if (word == NULL) {
        return;
    }
    tows_completion_put_stream(call, word, value, stream);
}

/* Without a reply: a fence word is to tell when the stream is through. */
void tows_serve_cuStreamSynchronize(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, id);
    if (call->frame.seq == 0) {
        tows_fence_word_put(call, stream);
        call->status = CUDA_SUCCESS; /* what is wrong with the stream is told to who asks */
    } else if (tows_serve_ready(call)) {
        tows_copy_send_stream(call, id, stream);
        call->status = tow_drive(call->driver, cuStreamSynchronize)(stream);
    }
}

/* Without a reply: a fence word is to tell when the context is through. */
static void sync_context(struct tows_serve *call)
{
    uint32_t value = 0;
    struct tow_fence_word *word = tows_fence_word_decode(call, &value);
    uint32_t flags = tow_dec_u32(&call->in);
    if (word != NULL) {
        tows_completion_put_context(call, word, value, (flags & TOW_FENCE_WORD_IDLE) != 0);
        call->status = CUDA_SUCCESS; /* what is wrong with the context is told to who asks */
    }
}

void tows_serve_cuCtxSynchronize(struct tows_serve *call)
{
    if (call->frame.seq == 0) {
        sync_context(call);
    } else if (tows_serve_ready(call)) {
        tows_completion_forget(call->session);
        tows_copy_send_context(call);
        call->status = tow_drive(call->driver, cuCtxSynchronize)();
        if (call->status != CUDA_SUCCESS) {
            tows_completion_lose(call->session);
        }
    }
}
