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
    CUresult before = call->status;
    if (call->status == CUDA_SUCCESS && tows_session_owes(call->session, call->frame.thread)) {
        call->status = CUDA_ERROR_NOT_READY; /* the ordinary way delivers the error */
    }
    tows_share_leave_note(call, note, value, stream);
    call->status = before;
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
    CUstream stream = NULL;
    bool idle = false;
    uint32_t flags = tow_dec_u32(&call->in);
    if (note == NULL) {
        return;
    }
    if (call->status == CUDA_SUCCESS && tows_session_owes(call->session, call->frame.thread)) {
        call->status = CUDA_ERROR_NOT_READY; /* it must be asked for */
    }
    /* To ask the driver takes a fraction of what the device takes to write a note. */
    idle = call->status == CUDA_SUCCESS && (flags & TOW_NOTE_IDLE) != 0 && tows_busy_idle(call);
    if (call->status == CUDA_SUCCESS && !idle && !tows_busy_last(call, &stream, &idle)) {
        call->status = CUDA_ERROR_NOT_READY;
    }
    if (call->status == CUDA_SUCCESS && idle) {
        atomic_store_explicit(&note->done, value, memory_order_release);
    } else {
        tows_share_leave_note(call, note, value, stream);
    }
    call->status = CUDA_SUCCESS;
}

void tows_serve_cuCtxSynchronize(struct tows_serve *call)
{
    if (call->frame.seq == 0) {
        note_context(call);
    } else if (tows_serve_ready(call)) {
        tows_busy_forget(call->session);
        tows_copy_send_context(call);
        call->status = tow_drive(call->driver, cuCtxSynchronize)();
        if (call->status != CUDA_SUCCESS) {
            tows_busy_lose(call->session);
        }
    }
}
