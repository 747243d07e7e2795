/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of events that are not generated: what follows a record, and queries. */
#include "gen/event_server.h"
#include "server/copy/download.h"
#include "server/session/session.h"
#include "server/copy/note.h"
#include "server/session/watch.h"

/* What follows a record of an event that the program looks at: over shared memory an address and a
 * value, a note that the stream writes behind it; else a slip and a value, of which the client is
 * told. */
enum { NOTE_SIZE = 16, SLIP_SIZE = 8 };

void tow_serve_cuEventRecord(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUevent event = tow_serve_handle(call, TOW_H_EVENT, id);
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    if (tow_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuEventRecord)(event, stream);
    }
    if (tow_dec_left(&call->in) >= NOTE_SIZE) {
        tow_share_note(call, stream);
    } else if (tow_dec_left(&call->in) >= SLIP_SIZE) {
        tow_watch_event(call, id, event);
    }
}

void tow_serve_cuEventQuery(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUevent event = tow_serve_handle(call, TOW_H_EVENT, id);
    if (!tow_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuEventQuery)(event);
    if (call->status == CUDA_ERROR_NOT_READY && tow_dec_left(&call->in) >= SLIP_SIZE) {
        tow_watch_event(call, id, event);
    }
}

void tow_serve_cuEventSynchronize(struct tow_serve *call)
{
    CUevent event = tow_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    if (tow_serve_ready(call)) {
        tow_copy_send_until(call, event);
        call->status = tow_drive(call->driver, cuEventSynchronize)(event);
    }
}

void tow_serve_cuEventElapsedTime_v2(struct tow_serve *call)
{
    CUevent start = tow_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    CUevent end = tow_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    float milliseconds = 0;
    if (!tow_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuEventElapsedTime_v2)(&milliseconds, start, end);
    if (call->status == CUDA_ERROR_NOT_SUPPORTED) {
        /* Drivers before 12.8 have only the first version. */
        call->status = tow_drive(call->driver, cuEventElapsedTime)(&milliseconds, start, end);
    }
    if (call->status == CUDA_SUCCESS) {
        tow_enc_f32(&call->out, milliseconds);
    }
}
