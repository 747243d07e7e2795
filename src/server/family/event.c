/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of events that are not generated: what follows a record, and queries. */
#include "gen/event_server.h"
#include "server/copy/download.h"
#include "server/session/session.h"
#include "server/copy/fence_word.h"
#include "server/session/completion.h"

/* What follows a record of an event that the program looks at: over shared memory an address and a
 * value, a fence word that the stream writes behind it; else a watch number and a value, of which
 * the client is told. */
enum { FENCE_WORD_SIZE = 16, WATCH_ID_SIZE = 8 };

void tows_serve_cuEventRecord(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUevent event = tows_serve_handle(call, TOW_H_EVENT, id);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuEventRecord)(event, stream);
    }
    if (tow_dec_left(&call->in) >= FENCE_WORD_SIZE) {
        tows_fence_word_put(call, stream);
    } else if (tow_dec_left(&call->in) >= WATCH_ID_SIZE) {
        tows_completion_await_event(call, id, event);
    }
}

void tows_serve_cuEventQuery(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUevent event = tows_serve_handle(call, TOW_H_EVENT, id);
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuEventQuery)(event);
    if (call->status == CUDA_ERROR_NOT_READY && tow_dec_left(&call->in) >= WATCH_ID_SIZE) {
        tows_completion_await_event(call, id, event);
    }
}

void tows_serve_cuEventSynchronize(struct tows_serve *call)
{
    CUevent event = tows_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    if (tows_serve_ready(call)) {
        tows_copy_send_until(call, event);
        call->status = tow_drive(call->driver, cuEventSynchronize)(event);
    }
}

void tows_serve_cuEventElapsedTime_v2(struct tows_serve *call)
{
    CUevent start = tows_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    CUevent end = tows_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    float milliseconds = 0;
    if (!tows_serve_ready(call)) {
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
