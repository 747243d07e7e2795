/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads behind host functions: the buffer that is waited for, and the copy from it. */
#include "server/copy/deferred_upload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "server/copy/hostfn.h"
#include "server/copy/pinned.h"
#include "server/session/session.h"
#include "wire/control.h"
#include "wire/copy.h"
#include "gen/copy.h"
#include "gen/event.h"
#include "gen/launch.h"

_Static_assert((int)TOW_COPY_DEFERRED_MAX <= (int)TOW_PINNED_MAX, "buffers hold them");

struct deferred_upload {
    uint64_t number; /* the client's */
    uint64_t size;
    struct tows_pinned_buffer *buffer; /* owned; its event: the device has read it */
    bool copied;  /* the event is recorded: the buffer is free when that is over */
    bool in_hand; /* its command is being carried out, or the driver is asked for it: it stays */
    struct deferred_upload *next;
};

struct deferred_state {
    struct tows_pinned pinned;
    struct tow_mutex lock; /* guards the list and what is in it */
    struct deferred_upload *list;
};

static void deferred_fini(struct tows_session *session, void *opaque)
{
    struct deferred_state *state = opaque;
    (void)session;
    while (state->list != NULL) {
        struct deferred_upload *next = state->list->next;
        free(state->list->buffer);
        free(state->list);
        state->list = next;
    }
    tows_pinned_fini(&state->pinned);
    tow_mutex_fini(&state->lock);
}

static void deferred_init(struct tows_session *session, void *opaque)
{
    struct deferred_state *state = opaque;
    tows_pinned_init(&state->pinned, session);
    tow_mutex_init(&state->lock, SERVER_DEFERRED_UPLOADS);
}

static struct deferred_state *state_of(struct tows_session *session, bool make)
{
    static const struct tows_family_ops ops = {
        TOW_SESSION_DEFERRED_UPLOADS, sizeof(struct deferred_state), deferred_init, deferred_fini};
    return make ? tows_session_make_state(session, &ops)
                : tows_session_state(session, TOW_SESSION_DEFERRED_UPLOADS);
}

static void deferred_enlist(struct deferred_state *state, struct deferred_upload *upload)
{
    tow_mutex_lock(&state->lock);
    upload->next = state->list;
    state->list = upload;
    tow_mutex_unlock(&state->lock);
}

/* With the lock held. */
static void upload_unlink(struct deferred_state *state, struct deferred_upload *upload)
{
    struct deferred_upload **at = &state->list;
    while (*at != upload) {
        at = &(*at)->next;
    }
    *at = upload->next;
}

/* One that the caller has in hand: nobody uses its buffer any more. */
static void remove_upload(struct deferred_state *state, struct deferred_upload *upload)
{
    tow_mutex_lock(&state->lock);
    upload_unlink(state, upload);
    tow_mutex_unlock(&state->lock);
    tows_pinned_give(&state->pinned, upload->buffer);
    free(upload);
}

/* With the lock held: takes the first one from `upload` on in hand that the device has been given
 * in the context. NULL: there is none. */
static struct deferred_upload *take_copied(struct deferred_upload *upload, uint32_t context)
{
    while (upload != NULL &&
           (!upload->copied || upload->in_hand || upload->buffer->context != context)) {
        upload = upload->next;
    }
    if (upload != NULL) {
        upload->in_hand = true;
    }
    return upload;
}

/* Buffers of the context that were read may be used again. */
static void deferred_sort(struct tows_session *session, struct deferred_state *state,
                          uint32_t context)
{
    tow_mutex_lock(&state->lock);
    struct deferred_upload *upload = take_copied(state->list, context);
    while (upload != NULL) {
        tow_mutex_unlock(&state->lock);
        bool read = tow_drive(session->driver, cuEventQuery)(upload->buffer->filled) !=
                    CUDA_ERROR_NOT_READY;
        tow_mutex_lock(&state->lock);
        struct deferred_upload *next = take_copied(upload->next, context);
        if (read) {
            upload_unlink(state, upload);
            tows_pinned_give(&state->pinned, upload->buffer);
            free(upload);
        } else {
            upload->in_hand = false;
        }
        upload = next;
    }
    tow_mutex_unlock(&state->lock);
    tows_ending_tell(session);
}

/* The device reads the buffer behind the function. */
static CUresult deferred_queue(struct tows_serve *call, struct deferred_state *state,
                               struct deferred_upload *upload, CUdeviceptr to, CUstream stream)
{
    const struct tow_driver *driver = call->driver;
    CUresult status = tow_drive(driver, cuMemcpyHtoDAsync_v2)(to, upload->buffer->bytes,
                                                              (size_t)upload->size, stream);
    if (status == CUDA_SUCCESS) {
        status = tow_drive(driver, cuEventRecord)(upload->buffer->filled, stream);
    }
    tow_mutex_lock(&state->lock);
    upload->copied = status == CUDA_SUCCESS;
    upload->in_hand = false;
    tow_mutex_unlock(&state->lock);
    tows_ending_tell(call->session);
    return status; /* else it stays as it is until the context ends: the client still sends */
}

/* Puts both into the stream. */
static CUresult deferred_put(struct tows_serve *call, uint64_t id, uint64_t number, CUdeviceptr to,
                             uint64_t size, CUstream stream)
{
    struct deferred_state *state = state_of(call->session, true);
    struct deferred_upload *upload = calloc(1, sizeof *upload);
    struct tows_hostfn_turn *turn = tows_hostfn_make(call->session, id, 0);
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    if (state != NULL && upload != NULL && turn != NULL) {
        deferred_sort(call->session, state, call->frame.context);
        status = tows_pinned_take(&state->pinned, call->session, call->frame.context, (size_t)size,
                                  &upload->buffer);
    }
    if (status != CUDA_SUCCESS) {
        tows_hostfn_drop(turn);
        free(upload);
        return status;
    }
    upload->number = number;
    upload->size = size;
    upload->in_hand = true;
    deferred_enlist(state, upload);
    status = tow_drive(call->driver, cuLaunchHostFunc)(stream, tows_hostfn_run, turn);
    if (status == CUDA_SUCCESS) {
        call->status = deferred_queue(call, state, upload, to, stream);
        return CUDA_SUCCESS;
    }
    tows_hostfn_drop(turn);
    remove_upload(state, upload);
    return status;
}

void tows_deferred_upload_copy(struct tows_serve *call, CUdeviceptr to, uint64_t size,
                               CUstream stream)
{
    uint64_t id = tow_dec_u64(&call->in);
    uint64_t number = tow_dec_u64(&call->in);
    if (call->in.bad || size == 0 || size > TOW_COPY_DEFERRED_MAX) {
        call->malformed = true;
        return;
    }
    CUresult status = call->status;
    if (status == CUDA_SUCCESS) {
        status = deferred_put(call, id, number, to, size, stream);
    }
    if (status != CUDA_SUCCESS) {
        call->status = status;
        if (call->frame.seq == 0) {
            tows_hostfn_tell(call->session, id, status); /* its turn never comes */
        }
    }
}

int tows_deferred_upload_take(struct tows_session *session, const uint8_t *at,
                              const struct tow_frame *frame)
{
    struct tow_callback_bytes chunk;
    struct deferred_state *state = state_of(session, false);
    int error = tow_callback_bytes_decode(at, frame, &chunk);
    if (error == 0 && state != NULL) {
        tow_mutex_lock(&state->lock);
        struct deferred_upload *upload = state->list;
        while (upload != NULL && upload->number != chunk.number) {
            upload = upload->next;
        }
        if (upload != NULL && chunk.offset <= upload->size &&
            chunk.size <= upload->size - chunk.offset) {
            memcpy(upload->buffer->bytes + chunk.offset, chunk.bytes, (size_t)chunk.size);
        } else if (upload != NULL) {
            error = -EPROTO;
        }
        tow_mutex_unlock(&state->lock);
    }
    return error;
}

/* With the lock held: takes those out that nobody copied, and nobody has in hand. */
static struct deferred_upload *take_lost(struct deferred_state *state, uint32_t context)
{
    struct deferred_upload *lost = NULL;
    for (struct deferred_upload **at = &state->list; *at != NULL;) {
        struct deferred_upload *upload = *at;
        if (upload->buffer->context != context || upload->copied || upload->in_hand) {
            at = &upload->next;
            continue;
        }
        *at = upload->next;
        upload->next = lost;
        lost = upload;
    }
    return lost;
}

bool tows_deferred_upload_drop_context(struct tows_session *session, uint32_t context,
                                       uint32_t heir)
{
    struct deferred_state *state = state_of(session, false);
    if (state == NULL) {
        return true;
    }
    tow_mutex_lock(&state->lock);
    for (struct deferred_upload *upload; (upload = take_copied(state->list, context)) != NULL;) {
        tow_mutex_unlock(&state->lock);
        /* Its bytes still find it, and others upload meanwhile, to other contexts. */
        tow_drive(session->driver, cuEventSynchronize)(upload->buffer->filled);
        remove_upload(state, upload);
        tow_mutex_lock(&state->lock);
    }
    struct deferred_upload *lost = take_lost(state, context);
    tow_mutex_unlock(&state->lock);
    while (lost != NULL) {
        struct deferred_upload *next = lost->next;
        tows_pinned_lose(&state->pinned, lost->buffer); /* the device may still use it */
        free(lost);
        lost = next;
    }
    return tows_pinned_drop_context(&state->pinned, session, context, heir);
}
