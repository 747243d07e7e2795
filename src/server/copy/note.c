/* SPDX-License-Identifier: Apache-2.0 */
/* Notes: words in shared memory that the device writes in place of a reply. */
#include "server/copy/note.h"

#include "gen/context_server.h"
#include "gen/copy.h"
#include "gen/stream_server.h"
#include "server/copy/download.h"
#include "server/copy/share.h"
#include "server/session/session.h"
#include "wire/share.h"

void tows_share_note(struct tows_serve *call, CUstream stream)
{
    uint32_t value = 0;
    struct tow_share_note *note = tows_share_take_note(call, &value);
    if (note == NULL) {
        return;
    }
    tows_completion_put_stream(call, note, value, stream);
}

/* Without a reply: a note is to tell when the stream is through. */
void tows_serve_cuStreamSynchronize(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, id);
    if (call->frame.seq == 0) {
        tows_share_note(call, stream);
        call->status = CUDA_SUCCESS; /* what is wrong with the stream is told to who asks */
    } else if (tows_serve_ready(call)) {
        tows_copy_send_stream(call, id, stream);
        call->status = tow_drive(call->driver, cuStreamSynchronize)(stream);
    }
}

/* Without a reply: a note is to tell when the context is through. */
static void note_context(struct tows_serve *call)
{
    uint32_t value = 0;
    struct tow_share_note *note = tows_share_take_note(call, &value);
    uint32_t flags = tow_dec_u32(&call->in);
    if (note != NULL) {
        tows_completion_put_context(call, note, value, (flags & TOW_NOTE_IDLE) != 0);
        call->status = CUDA_SUCCESS; /* what is wrong with the context is told to who asks */
    }
}

void tows_serve_cuCtxSynchronize(struct tows_serve *call)
{
    if (call->frame.seq == 0) {
        note_context(call);
    } else if (tows_serve_ready(call)) {
        tows_completion_forget(call->session);
        tows_copy_send_context(call);
        call->status = tow_drive(call->driver, cuCtxSynchronize)();
        if (call->status != CUDA_SUCCESS) {
            tows_completion_lose(call->session);
        }
    }
}
