/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads behind host functions: the buffer that is waited for, and the copy from it. */
#include "server/copy/late.h"

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

_Static_assert((int)TOW_COPY_LATE_MAX <= (int)TOW_PINNED_MAX, "buffers hold them");

struct late {
    uint64_t number; /* the client's */
    uint64_t size;
    struct tows_pinned_buffer *buffer; /* owned; its event: the device has read it */
    bool copied;  /* the event is recorded: the buffer is free when that is over */
    bool in_hand; /* its command is being carried out, or the driver is asked for it: it stays */
    struct late *next;
};

struct late_state {
    struct tows_pinned pinned;
    struct tow_mutex lock; /* guards the list and what is in it */
    struct late *list;
};

static void late_fini(struct tows_session *session, void *opaque)
{
    struct late_state *state = opaque;
    (void)session;
    while (state->list != NULL) {
        struct late *next = state->list->next;
        free(state->list->buffer);
        free(state->list);
        state->list = next;
    }
    tows_pinned_fini(&state->pinned);
    tow_mutex_fini(&state->lock);
}

static void late_init(struct tows_session *session, void *opaque)
{
    struct late_state *state = opaque;
    tows_pinned_init(&state->pinned, session);
    tow_mutex_init(&state->lock, SERVER_LATE);
}

static struct late_state *state_of(struct tows_session *session, bool make)
{
    static const struct tows_family_ops ops = {TOW_SESSION_LATE, sizeof(struct late_state),
                                               late_init, late_fini};
    return make ? tows_session_make_state(session, &ops)
                : tows_session_state(session, TOW_SESSION_LATE);
}

static void late_enlist(struct late_state *state, struct late *late)
{
    tow_mutex_lock(&state->lock);
    late->next = state->list;
    state->list = late;
    tow_mutex_unlock(&state->lock);
}

/* With the lock held. */
static void late_unlink(struct late_state *state, struct late *late)
{
    struct late **at = &state->list;
    while (*at != late) {
        at = &(*at)->next;
    }
    *at = late->next;
}

/* One that the caller has in hand: nobody uses its buffer any more. */
static void remove_late(struct late_state *state, struct late *late)
{
    tow_mutex_lock(&state->lock);
    late_unlink(state, late);
    tow_mutex_unlock(&state->lock);
    tows_pinned_give(&state->pinned, late->buffer);
    free(late);
}

/* With the lock held: takes the first one from `late` on in hand that the device has been given in
 * the context. NULL: there is none. */
static struct late *take_copied(struct late *late, uint32_t context)
{
    while (late != NULL && (!late->copied || late->in_hand || late->buffer->context != context)) {
        late = late->next;
    }
    if (late != NULL) {
        late->in_hand = true;
    }
    return late;
}

/* Buffers of the context that were read may be used again. */
static void late_sort(struct tows_session *session, struct late_state *state, uint32_t context)
{
    tow_mutex_lock(&state->lock);
    struct late *late = take_copied(state->list, context);
    while (late != NULL) {
        tow_mutex_unlock(&state->lock);
        bool read =
            tow_drive(session->driver, cuEventQuery)(late->buffer->filled) != CUDA_ERROR_NOT_READY;
        tow_mutex_lock(&state->lock);
        struct late *next = take_copied(late->next, context);
        if (read) {
            late_unlink(state, late);
            tows_pinned_give(&state->pinned, late->buffer);
            free(late);
        } else {
            late->in_hand = false;
        }
        late = next;
    }
    tow_mutex_unlock(&state->lock);
    tows_ending_tell(session);
}

/* The device reads the buffer behind the function. */
static CUresult late_queue(struct tows_serve *call, struct late_state *state, struct late *late,
                           CUdeviceptr to, CUstream stream)
{
    const struct tow_driver *driver = call->driver;
    CUresult status = tow_drive(driver, cuMemcpyHtoDAsync_v2)(to, late->buffer->bytes,
                                                              (size_t)late->size, stream);
    if (status == CUDA_SUCCESS) {
        status = tow_drive(driver, cuEventRecord)(late->buffer->filled, stream);
    }
    tow_mutex_lock(&state->lock);
    late->copied = status == CUDA_SUCCESS;
    late->in_hand = false;
    tow_mutex_unlock(&state->lock);
    tows_ending_tell(call->session);
    return status; /* else it stays as it is until the context ends: the client still sends */
}

/* Puts both into the stream. */
static CUresult late_put(struct tows_serve *call, uint64_t id, uint64_t number, CUdeviceptr to,
                         uint64_t size, CUstream stream)
{
    struct late_state *state = state_of(call->session, true);
    struct late *late = calloc(1, sizeof *late);
    struct tows_hostfn_turn *turn = tows_hostfn_make(call->session, id, 0);
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    if (state != NULL && late != NULL && turn != NULL) {
        late_sort(call->session, state, call->frame.context);
        status = tows_pinned_take(&state->pinned, call->session, call->frame.context, (size_t)size,
                                  &late->buffer);
    }
    if (status != CUDA_SUCCESS) {
        tows_hostfn_drop(turn);
        free(late);
        return status;
    }
    late->number = number;
    late->size = size;
    late->in_hand = true;
    late_enlist(state, late);
    status = tow_drive(call->driver, cuLaunchHostFunc)(stream, tows_hostfn_run, turn);
    if (status == CUDA_SUCCESS) {
        call->status = late_queue(call, state, late, to, stream);
        return CUDA_SUCCESS;
    }
    tows_hostfn_drop(turn);
    remove_late(state, late);
    return status;
}

void tows_late_copy(struct tows_serve *call, CUdeviceptr to, uint64_t size, CUstream stream)
{
    uint64_t id = tow_dec_u64(&call->in);
    uint64_t number = tow_dec_u64(&call->in);
    if (call->in.bad || size == 0 || size > TOW_COPY_LATE_MAX) {
        call->malformed = true;
        return;
    }
    CUresult status = call->status;
    if (status == CUDA_SUCCESS) {
        status = late_put(call, id, number, to, size, stream);
    }
    if (status != CUDA_SUCCESS) {
        call->status = status;
        if (call->frame.seq == 0) {
            tows_hostfn_tell(call->session, id, status); /* its turn never comes */
        }
    }
}

int tows_late_take(struct tows_session *session, const uint8_t *at, const struct tow_frame *frame)
{
    struct tow_callback_bytes chunk;
    struct late_state *state = state_of(session, false);
    int error = tow_callback_bytes_decode(at, frame, &chunk);
    if (error == 0 && state != NULL) {
        tow_mutex_lock(&state->lock);
        struct late *late = state->list;
        while (late != NULL && late->number != chunk.number) {
            late = late->next;
        }
        if (late != NULL && chunk.offset <= late->size && chunk.size <= late->size - chunk.offset) {
            memcpy(late->buffer->bytes + chunk.offset, chunk.bytes, (size_t)chunk.size);
        } else if (late != NULL) {
            error = -EPROTO;
        }
        tow_mutex_unlock(&state->lock);
    }
    return error;
}

/* With the lock held: takes those out that nobody copied, and nobody has in hand. */
static struct late *take_lost(struct late_state *state, uint32_t context)
{
    struct late *lost = NULL;
    for (struct late **at = &state->list; *at != NULL;) {
        struct late *late = *at;
        if (late->buffer->context != context || late->copied || late->in_hand) {
            at = &late->next;
            continue;
        }
        *at = late->next;
        late->next = lost;
        lost = late;
    }
    return lost;
}

bool tows_late_drop_context(struct tows_session *session, uint32_t context, uint32_t heir)
{
    struct late_state *state = state_of(session, false);
    if (state == NULL) {
        return true;
    }
    tow_mutex_lock(&state->lock);
    for (struct late *late; (late = take_copied(state->list, context)) != NULL;) {
        tow_mutex_unlock(&state->lock);
        /* Its bytes still find it, and others upload meanwhile, to other contexts. */
        tow_drive(session->driver, cuEventSynchronize)(late->buffer->filled);
        remove_late(state, late);
        tow_mutex_lock(&state->lock);
    }
    struct late *lost = take_lost(state, context);
    tow_mutex_unlock(&state->lock);
    while (lost != NULL) {
        struct late *next = lost->next;
        tows_pinned_lose(&state->pinned, lost->buffer); /* the device may still use it */
        free(lost);
        lost = next;
    }
    return tows_pinned_drop_context(&state->pinned, session, context, heir);
}
