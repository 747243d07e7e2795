/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a large upload are received straight into page-locked buffers, from which the device
 * copies them while the next ones come. A buffer is used again when the device has read it; as a
 * rule that is long before the next one is needed, so that two or three buffers go round, in the
 * caches. Where a stream stands still (a long kernel, a host function) the buffers become more, up
 * to a limit: the thread that leads must not wait, because what the stream waits for may be behind
 * the bytes on the line.
 */
#include "server/copy/upload.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/copy_server.h"
#include "gen/event.h"
#include "gen/stream.h"
#include "server/copy/deferred_upload.h"
#include "server/copy/pinned.h"
#include "server/session/session.h"
#include "server/copy/copy_3d.h"
#include "server/copy/share.h"
#include "server/session/transfer.h"
#include "wire/copy.h"
#include "wire/share.h"

enum {
    BUFFER_SIZE = 1 << 20, /* a DATA frame */
    FEW = 8,               /* buffers of a context that are made without patience */
    MANY = 256,            /* of a context: beyond these the stream must move on */
};

/* How long more than FEW are put off: a device that is only busy has read one by then. */
#define PATIENCE_NS (1 * TOW_TIME_MS)
#define NAP_NS (20 * TOW_TIME_US)

/* How long the commands behind a synchronous upload wait for the device to begin with it, and to be
 * done once it has: then nothing that came before holds it up. ThreadSanitizer sees what runs at
 * once afterwards, and on a busy machine its software GPU is slow. */
#define READ_WAIT_NS TOW_TIME_S
#if defined(__SANITIZE_THREAD__)
#define BEGIN_WAIT_NS READ_WAIT_NS
#else
#define BEGIN_WAIT_NS (50 * TOW_TIME_MS)
#endif
#define READ_SPIN_NS (50 * TOW_TIME_US)

/* A buffer and the stream that the device reads it in. */
struct slot {
    struct tows_pinned_buffer *buffer; /* owned; its event: the device has read it */
    CUstream stream;                   /* only compared */
    uint64_t upload;                   /* whose bytes it has, or had: its number */
    bool in_hand;   /* bytes are being received into it, or handed to the device */
    unsigned asked; /* threads that ask the driver for its event: it stays meanwhile */
    unsigned uses;  /* how often it was given to the device */
    struct slot *next;
};

struct upload_state {
    struct tows_pinned pinned;
    struct tow_mutex lock;           /* guards the list and what is in it */
    struct slot *slots, **slots_end; /* all; used longest ago first */
    atomic_bool impatient;           /* patience was in vain the last time */
    atomic_uint_least64_t uploads;   /* so many were begun; their numbers */
};

struct upload {
    struct tows_session *session;
    struct upload_state *state;
    CUdeviceptr to;
    uint64_t number;
    uint64_t stream; /* the client's id: it is looked up whenever bytes have come */
    uint32_t context;
    uint16_t thread;
    bool synchronous;  /* the program's call is synchronous, see upload_wait_read() */
    atomic_bool begun; /* the device has read some of its bytes */
    atomic_int status; /* CUresult: the first failure; lanes work on it at a time */
    bool is_3d;        /* then `copy_3d` says where the bytes go, not `to` */
    struct tow_copy_3d copy_3d;
};

static void uploads_fini(struct tows_session *session, void *opaque)
{
    struct upload_state *state = opaque;
    (void)session;
    while (state->slots != NULL) {
        struct slot *next = state->slots->next;
        free(state->slots->buffer); /* its memory went with its context */
        free(state->slots);
        state->slots = next;
    }
    tows_pinned_fini(&state->pinned);
    tow_mutex_fini(&state->lock);
}

static void uploads_init(struct tows_session *session, void *opaque)
{
    struct upload_state *state = opaque;
    tows_pinned_init(&state->pinned, session);
    tow_mutex_init(&state->lock, SERVER_UPLOADS);
    state->slots_end = &state->slots;
}

static struct upload_state *state_of(struct tows_session *session, bool make)
{
    static const struct tows_family_ops ops = {TOW_SESSION_UPLOAD, sizeof(struct upload_state),
                                               uploads_init, uploads_fini};
    return make ? tows_session_make_state(session, &ops)
                : tows_session_state(session, TOW_SESSION_UPLOAD);
}

/* ---- buffers ---- */

/* With the lock held. */
static void unlink_slot(struct upload_state *state, struct slot **at)
{
    struct slot *slot = *at;
    *at = slot->next;
    if (*at == NULL) {
        state->slots_end = at;
    }
    slot->next = NULL;
}

/* With the lock held. */
static void upload_append(struct upload_state *state, struct slot *slot)
{
    slot->next = NULL;
    *state->slots_end = slot;
    state->slots_end = &slot->next;
}

/* It is the device's now, which reads it in that stream, and was used last. */
static void give_slot(struct upload *u, struct slot *slot, CUstream stream)
{
    struct upload_state *state = u->state;
    tow_mutex_lock(&state->lock);
    struct slot **at = &state->slots;
    while (*at != slot) {
        at = &(*at)->next;
    }
    unlink_slot(state, at);
    slot->stream = stream;
    slot->upload = u->number;
    slot->in_hand = false;
    slot->uses++;
    upload_append(state, slot);
    tow_mutex_unlock(&state->lock);
    tows_ending_tell(u->session);
}

/* With the lock held, which is given back meanwhile: whether the device has read it. False through
 * `ret_same` if another thread has used it since: then the answer is about nothing. */
static bool slot_is_read(struct upload *u, struct slot *slot, bool *ret_same)
{
    struct upload_state *state = u->state;
    unsigned uses = slot->uses;
    slot->asked++;
    tow_mutex_unlock(&state->lock);
    bool read =
        tow_drive(u->session->driver, cuEventQuery)(slot->buffer->filled) != CUDA_ERROR_NOT_READY;
    tow_mutex_lock(&state->lock);
    slot->asked--;
    *ret_same = slot->uses == uses && !slot->in_hand;
    if (read && *ret_same && slot->upload == u->number) {
        atomic_store_explicit(&u->begun, true, memory_order_relaxed);
    }
    return read;
}

/* Takes a buffer of the context that the device has read in hand; NULL if there is none.
 * `ret_count`: how many of the context there are. */
static struct slot *take_read(struct upload *u, unsigned *ret_count)
{
    struct upload_state *state = u->state;
    CUstream stream = NULL; /* of one that waits: later ones of it wait as well */
    bool waits = false;
    struct slot *found = NULL;
    unsigned count = 0;
    tow_mutex_lock(&state->lock);
    for (struct slot *slot = state->slots; slot != NULL && found == NULL; slot = slot->next) {
        if (slot->buffer->context != u->context) {
            continue;
        }
        count++;
        if (slot->in_hand || (waits && stream == slot->stream)) {
            continue;
        }
        bool same = false, read = slot_is_read(u, slot, &same);
        if (read && same) {
            slot->in_hand = true;
            found = slot;
        } else if (same) {
            waits = true;
            stream = slot->stream;
        }
    }
    tow_mutex_unlock(&state->lock);
    tows_ending_tell(u->session); /* of those that were asked for */
    *ret_count = count;
    return found;
}

/* A new one, in hand. */
static CUresult make_slot(struct upload *u, struct slot **ret_slot)
{
    struct slot *slot = calloc(1, sizeof *slot);
    CUresult status = slot == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                                   : tows_pinned_take(&u->state->pinned, u->session, u->context,
                                                      BUFFER_SIZE, &slot->buffer);
    if (status != CUDA_SUCCESS) {
        free(slot);
        return status;
    }
    slot->in_hand = true;
    tow_mutex_lock(&u->state->lock);
    upload_append(u->state, slot);
    tow_mutex_unlock(&u->state->lock);
    *ret_slot = slot;
    return CUDA_SUCCESS;
}

/* Looks again and again for as long as `limit_ns`, while the context has any at all. */
static struct slot *wait_read(struct upload *u, int64_t limit_ns)
{
    int64_t until = tow_time_deadline(limit_ns);
    unsigned count;
    struct slot *slot = take_read(u, &count);
    while (slot == NULL && count > 0 && !tow_time_passed(until) &&
           tows_session_goes_on(u->session)) {
        tow_time_sleep(NAP_NS);
        slot = take_read(u, &count);
    }
    return slot;
}

static CUresult next_slot(struct upload *u, struct slot **ret_slot)
{
    struct upload_state *state = u->state;
    unsigned count;
    struct slot *slot = take_read(u, &count);
    CUresult status = CUDA_SUCCESS;
    if (slot == NULL && count >= FEW && !state->impatient) {
        slot = wait_read(u, PATIENCE_NS);
    }
    state->impatient = slot == NULL;
    if (slot == NULL && count < MANY) {
        status = make_slot(u, &slot);
    }
    if (slot == NULL && (status == CUDA_SUCCESS || status == CUDA_ERROR_OUT_OF_MEMORY)) {
        /* No memory, or enough: then the stream must move on. */
        slot = wait_read(u, TOW_TIME_FOREVER);
    }
    if (slot == NULL) {
        return status != CUDA_SUCCESS ? status : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_slot = slot;
    return CUDA_SUCCESS;
}

/* With the lock held: takes those out that nobody has in hand; false if somebody has one. */
static bool take_out(struct upload_state *state, uint32_t context, struct slot **dropped)
{
    bool all = true;
    for (struct slot **at = &state->slots; *at != NULL;) {
        struct slot *slot = *at;
        if (slot->buffer->context != context || slot->in_hand || slot->asked > 0) {
            all &= slot->buffer->context != context;
            at = &slot->next;
            continue;
        }
        unlink_slot(state, at);
        slot->next = *dropped;
        *dropped = slot;
    }
    return all;
}

bool tows_upload_drop_context(struct tows_session *session, uint32_t context, uint32_t heir)
{
    struct upload_state *state = state_of(session, false);
    if (state == NULL) {
        return true;
    }
    struct slot *dropped = NULL;
    tow_mutex_lock(&state->lock);
    bool all = take_out(state, context, &dropped);
    tow_mutex_unlock(&state->lock);
    while (dropped != NULL) {
        struct slot *next = dropped->next;
        tow_drive(session->driver, cuEventSynchronize)(dropped->buffer->filled);
        tows_pinned_give(&state->pinned, dropped->buffer); /* to be dropped with the others */
        free(dropped);
        dropped = next;
    }
    return tows_pinned_drop_context(&state->pinned, session, context, heir) && all;
}

/* ---- the transfer ---- */

static void upload_fail(struct upload *u, CUresult status)
{
    int none = CUDA_SUCCESS;
    atomic_compare_exchange_strong(&u->status, &none, (int)status);
}

static void *upload_place(void *user, uint64_t offset, size_t *size, void **ret_token)
{
    struct upload *u = user;
    (void)offset;
    if (atomic_load(&u->status) != CUDA_SUCCESS) {
        return NULL;
    }
    struct slot *slot = NULL;
    CUresult status = tows_session_enter(u->session, u->context);
    if (status == CUDA_SUCCESS) {
        status = next_slot(u, &slot);
    }
    if (status != CUDA_SUCCESS) {
        upload_fail(u, status);
        return NULL;
    }
    *size = (size_t)tow_min_u64(*size, BUFFER_SIZE);
    *ret_token = slot;
    return slot->buffer->bytes;
}

/* `ret_begun`: the device reads some of them, whatever the result is. */
static CUresult upload_begin(const struct upload *u, const struct tows_driver_copy *driver_copy,
                             uint64_t offset, size_t size, uint8_t *bytes, CUstream stream,
                             bool *ret_begun)
{
    const struct tow_driver *driver = u->session->driver;
    CUresult status = CUDA_SUCCESS;
    size_t at = 0;
    if (!u->is_3d) {
        status = tow_drive(driver, cuMemcpyHtoDAsync_v2)(u->to + offset, bytes, size, stream);
        *ret_begun = status == CUDA_SUCCESS;
        return status;
    }
    *ret_begun = false;
    while (at < size && status == CUDA_SUCCESS) {
        struct tows_driver_copy part;
        size_t n = tows_driver_copy_part(driver_copy, offset + at, size - at, &part);
        status = tows_driver_copy_run(&part, driver, bytes + at, stream);
        *ret_begun |= status == CUDA_SUCCESS;
        at += n;
    }
    return status;
}

/* The device may have them. The stream, the array or a context may have ended since the command
 * came; what is found now stays until they are the device's (hold.h, tows_serve_claim). */
static CUstream hand_over(struct upload *u, uint64_t offset, size_t size, struct slot *slot)
{
    const struct tow_driver *driver = u->session->driver;
    struct tows_serve call = {.session = u->session,
                              .driver = driver,
                              .frame = {.thread = u->thread, .context = u->context}};
    struct tows_driver_copy driver_copy = {0};
    bool begun = false;
    tows_hold_enter(&call);
    CUstream stream = tows_serve_handle(&call, TOW_H_STREAM, u->stream);
    if (u->is_3d) {
        driver_copy = tows_driver_copy_describe(&call, &u->copy_3d);
    }
    CUresult status = call.status, recorded = CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        status = upload_begin(u, &driver_copy, offset, size, slot->buffer->bytes, stream, &begun);
    }
    if (begun) {
        recorded = tow_drive(driver, cuEventRecord)(slot->buffer->filled, stream);
    }
    if (recorded != CUDA_SUCCESS) {
        tow_drive(driver, cuStreamSynchronize)(stream); /* nothing else tells when it was read */
    }
    tows_hold_leave(&call);
    if (status != CUDA_SUCCESS || recorded != CUDA_SUCCESS) {
        upload_fail(u, status != CUDA_SUCCESS ? status : recorded);
    }
    return stream;
}

static void upload_filled(void *user, uint64_t offset, size_t size, void *token)
{
    struct upload *u = user;
    give_slot(u, token, size > 0 ? hand_over(u, offset, size, token) : NULL);
}

static bool is_read(struct upload *u)
{
    bool read = true;
    tow_mutex_lock(&u->state->lock);
    for (struct slot *slot = u->state->slots; slot != NULL && read;) {
        bool same = true;
        if (slot->upload == u->number && !slot->in_hand && slot->buffer->context == u->context) {
            read = slot_is_read(u, slot, &same) || !same;
        }
        slot = same ? slot->next : u->state->slots; /* it was moved in the list */
    }
    tow_mutex_unlock(&u->state->lock);
    tows_ending_tell(u->session);
    return read;
}

/* A synchronous copy from pageable memory is as good as done when it returns. CUDA does not promise
 * it, but programs rely on it, with streams that wait for no other. So the commands behind the copy
 * wait for the device, which as a rule takes some microseconds. Not for long while it has not
 * begun, for what its stream waits for may be behind on the line. */
static void upload_wait_read(struct upload *u)
{
    int64_t began = tow_time_now_ns(), now = began;
    if (tows_session_enter(u->session, u->context) != CUDA_SUCCESS) {
        return;
    }
    while (!is_read(u) && now - began < (u->begun ? READ_WAIT_NS : BEGIN_WAIT_NS)) {
        if (now - began < READ_SPIN_NS) {
            tow_thread_pause();
        } else {
            tow_time_sleep(NAP_NS);
        }
        now = tow_time_now_ns();
    }
}

static void upload_defer(const struct upload *u, CUresult status)
{
    char arguments[160];
    const struct tow_copy_3d *copy_3d = &u->copy_3d;
    if (!u->is_3d) {
        snprintf(arguments, sizeof arguments, "to 0x%llx", (unsigned long long)u->to);
    } else {
        snprintf(arguments, sizeof arguments, "to 0x%llx pitch %zu, %zu x %zu x %zu",
                 (unsigned long long)copy_3d->to.address, (size_t)copy_3d->to.pitch,
                 (size_t)copy_3d->width, (size_t)copy_3d->rows, (size_t)copy_3d->planes);
    }
    tows_session_defer(u->session, u->thread,
                       u->is_3d ? TOW_FN_cuMemcpy3DAsync_v2 : TOW_FN_cuMemcpyHtoDAsync_v2, status,
                       arguments);
}

static void upload_done(void *user, bool ok)
{
    struct upload *u = user;
    CUresult status = (CUresult)atomic_load(&u->status);
    if (ok && status == CUDA_SUCCESS && u->synchronous) {
        upload_wait_read(u);
    }
    if (ok && status != CUDA_SUCCESS) {
        upload_defer(u, status);
    }
    free(u);
}

/* ---- commands ---- */

/* Also with a wrong stream or context: the bytes come in any case. */
static void upload_expect(struct tows_serve *call, const struct upload *what, uint32_t transfer,
                          uint64_t size, bool spread)
{
    struct upload *u = malloc(sizeof *u);
    struct upload_state *state = state_of(call->session, true);
    if (u == NULL || state == NULL) {
        free(u);
        call->malformed = true; /* the bytes that follow could not be told from commands */
        return;
    }
    *u = *what;
    u->session = call->session;
    u->state = state;
    u->number = atomic_fetch_add(&state->uploads, 1) + 1;
    u->context = call->frame.context;
    u->thread = call->frame.thread;
    u->status = (int)call->status;
    struct tows_transfer_sink sink = {.place = upload_place,
                                      .filled = upload_filled,
                                      .done = upload_done,
                                      .user = u,
                                      .spread = spread};
    call->status = CUDA_SUCCESS;
    if (tows_transfer_expect(call->session, transfer, size, &sink) < 0) {
        free(u);
        call->malformed = true;
    }
}

void tows_upload_3d(struct tows_serve *call, const struct tow_copy_3d *copy_3d)
{
    struct upload what = {.stream = copy_3d->stream,
                          .synchronous = (copy_3d->flags & TOW_COPY_3D_SYNCHRONOUS) != 0,
                          .is_3d = true,
                          .copy_3d = *copy_3d};
    const struct tow_copy_operand *to = &copy_3d->to;
    if (to->x > UINT64_MAX - copy_3d->width || to->y > UINT64_MAX - copy_3d->rows ||
        to->z > UINT64_MAX - copy_3d->planes) {
        /* Some part of it would be somewhere. */
        call->status = call->status == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : call->status;
    }
    upload_expect(call, &what, copy_3d->transfer, copy_3d->bytes,
                  (copy_3d->flags & TOW_COPY_3D_SPREAD) != 0);
}

void tows_serve_cuMemcpyHtoDAsync_v2(struct tows_serve *call)
{
    CUdeviceptr to = tow_dec_u64(&call->in);
    uint64_t size = tow_dec_u64(&call->in);
    uint64_t stream_id = tow_dec_u64(&call->in);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, stream_id);
    uint32_t transfer = tow_dec_u32(&call->in);
    uint32_t form = tow_dec_u32(&call->in);
    bool synchronous = (form & TOW_COPY_SYNCHRONOUS) != 0;
    form &= ~TOW_COPY_SYNCHRONOUS;
    if (call->in.bad) {
        call->malformed = true;
        return;
    }
    if (form == TOW_COPY_DEFERRED) {
        tows_deferred_upload_copy(call, to, size, stream);
        return;
    }
    if (form != TOW_COPY_BYTES && form != TOW_COPY_SPREAD) {
        tows_share_copy(call, true, to, size, stream, form);
        return;
    }
    if (transfer == 0) {
        const void *bytes = tow_dec_bytes(&call->in, (size_t)size);
        if (tows_serve_ready(call)) {
            /* Pageable for the driver, and small: it has been read when this returns. */
            call->status =
                tow_drive(call->driver, cuMemcpyHtoDAsync_v2)(to, bytes, (size_t)size, stream);
        }
        return;
    }
    struct upload what = {.to = to, .stream = stream_id, .synchronous = synchronous};
    upload_expect(call, &what, transfer, size, form == TOW_COPY_SPREAD);
}
