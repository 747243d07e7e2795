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

/* What is smaller is done within any spin. */
#define EXPECTED_MIN (256u << 10)

/* The note at an address that the client sent; NULL breaks the protocol. */
static struct tow_share_note *note_at(struct tows_serve *call, uint64_t address)
{
    if (address % sizeof(struct tow_share_note) != 0 ||
        !tows_share_holds(call, address, sizeof(struct tow_share_note))) {
        call->malformed = true;
        return NULL;
    }
    return (struct tow_share_note *)(uintptr_t)address;
}

struct tow_share_note *tows_share_take_note(struct tows_serve *call, uint32_t *ret_value)
{
    uint64_t address = tow_dec_u64(&call->in);
    *ret_value = tow_dec_u32(&call->in);
    struct tow_share_note *note = call->in.bad ? NULL : note_at(call, address);
    call->malformed = call->malformed || note == NULL;
    return note;
}

/* The stream writes the note when it gets there; or it is refused at once. */
static void leave_note(struct tows_serve *call, struct tow_share_note *note, uint32_t value,
                       CUstream stream)
{
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuStreamWriteValue32_v2)(
            stream, (CUdeviceptr)(uintptr_t)&note->done, value, 0);
    }
    if (call->status != CUDA_SUCCESS) {
        atomic_store_explicit(&note->refused, value, memory_order_release);
    }
}

void tows_share_noted(struct tows_serve *call, struct tow_share_note *note, uint32_t value,
                      bool host_is_source, uint64_t size, CUstream stream)
{
    leave_note(call, note, value, stream);
    /* The program looks at the note and goes on when the copy is done: a worker that has gone to
     * sleep by then makes it wait for longer than a copy of that size may lose. */
    if (size >= EXPECTED_MIN) {
        tow_line_expect(call->session->line, tow_share_copy_ns(size));
    }
    if (!host_is_source) {
        /* The client, refused, asks in the ordinary way and gets the error there. */
        call->status = CUDA_SUCCESS;
    }
}

void tows_share_copy(struct tows_serve *call, bool host_is_source, CUdeviceptr device,
                     uint64_t size, CUstream stream, uint32_t form)
{
    uint64_t host = tow_dec_u64(&call->in);
    struct tow_share_note *note = NULL;
    uint32_t value = 0;
    if (form == TOW_COPY_NOTED) {
        note = tows_share_take_note(call, &value);
    }
    if (call->in.bad || form > TOW_COPY_NOTED || call->malformed) {
        call->malformed = true;
        return;
    }
    if (!tows_share_holds(call, host, size) && call->status == CUDA_SUCCESS) {
        call->status = CUDA_ERROR_INVALID_VALUE; /* another thread's call has just taken it back */
    }
    if (call->status == CUDA_SUCCESS) {
        void *bytes = (void *)(uintptr_t)host;
        call->status =
            host_is_source
                ? tow_drive(call->driver, cuMemcpyHtoDAsync_v2)(device, bytes, (size_t)size, stream)
                : tow_drive(call->driver, cuMemcpyDtoHAsync_v2)(bytes, device, (size_t)size,
                                                                stream);
    }
    if (note != NULL) {
        tows_share_noted(call, note, value, host_is_source, size, stream);
    }
}

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
    leave_note(call, note, value, stream);
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
        leave_note(call, note, value, stream);
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
