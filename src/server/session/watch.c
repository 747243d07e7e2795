/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that asks the driver about what the client awaits, ever less often. */
#include "server/session/completion.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/event.h"
#include "server/session/serve.h"
#include "server/session/session.h"
#include "wire/control.h"
#include "wire/id.h"
#include "wire/limits.h"

/* How long the thread sleeps between two looks: a sixteenth of what it has waited already, so that
 * nothing is told much later than it could be, and what takes long costs little. */
#define NAP_MIN_NS (20 * TOW_TIME_US)
#define NAP_MAX_NS TOW_TIME_MS
/* Of a longer nap it is woken for something new. */
#define NAP_SHORT_NS (100 * TOW_TIME_US)

/* How long a reply is held up at most. */
#define TURN_MAX_NS (5 * TOW_TIME_MS)

enum outcome { PENDING, DONE, REFUSED };

struct watch {
    uint32_t value;   /* the newest that was awaited; 0: none ever was */
    uint32_t context; /* of the event or stream */
    uint16_t thread;  /* of the client, which awaits it */
    bool listed;
    enum outcome outcome;
    CUevent event;   /* the driver's; NULL: the stream is awaited */
    CUstream stream; /* the driver's */
};

struct watches {
    struct tows_session *session; /* borrowed: ends after us */
    struct tow_mutex lock;        /* guards the rest; count and owed are looked at without it */
    pthread_cond_t changed;       /* something new is awaited, the thread is to end, or has ended */
    /* One thread at a time asks the driver, for all that is awaited, and holds no lock meanwhile.
     * What it asks for stays until it has: whoever ends that waits. */
    bool asking;
    const struct watch *asked; /* borrowed from who asks; NULL: nothing just now */
    pthread_cond_t answered;   /* either has changed */
    atomic_uint count;
    uint16_t listed[TOW_WATCH_MAX];       /* those awaited, or of which the client is not told */
    _Atomic uint32_t owed[TOW_WATCH_MAX]; /* of each watch: its value while it is listed, else 0 */
    struct watch entries[TOW_WATCH_MAX];
    int64_t nap_ns;
    bool running, ended;
};

static void watch_stop(struct watches *watches)
{
    tow_mutex_lock(&watches->lock);
    watches->ended = true;
    pthread_cond_broadcast(&watches->changed);
    while (watches->running) {
        tow_mutex_wait(&watches->lock, &watches->changed);
    }
    tow_mutex_unlock(&watches->lock);
}

static void watches_fini(struct tows_session *session, void *opaque)
{
    struct watches *watches = opaque;
    (void)session;
    watch_stop(watches);
    tow_mutex_fini(&watches->lock);
    pthread_cond_destroy(&watches->changed);
    pthread_cond_destroy(&watches->answered);
}

static void watches_init(struct tows_session *session, void *opaque)
{
    struct watches *watches = opaque;
    watches->session = session;
    tow_mutex_init(&watches->lock, SERVER_WATCHES);
    tow_cond_init(&watches->changed);
    tow_cond_init(&watches->answered);
}

/* ---- asking the driver ---- */

static enum outcome watch_ask(struct tows_session *session, const struct watch *watch)
{
    CUresult status = tows_session_enter(session, watch->context);
    if (status == CUDA_SUCCESS) {
        status = watch->event != NULL ? tow_drive(session->driver, cuEventQuery)(watch->event)
                                      : tows_completion_ask(session->driver, watch->stream);
    }
    if (status == CUDA_ERROR_NOT_READY) {
        return PENDING;
    }
    /* An error comes with the answer to who asks. */
    return status == CUDA_SUCCESS && !tows_session_owes(session, watch->thread) ? DONE : REFUSED;
}

/* With the lock held and the turn to ask: asks for one, and gives the lock back meanwhile. True if
 * it is not pending any more. */
static bool watch_ask_for(struct watches *watches, unsigned number)
{
    struct watch asked = watches->entries[number];
    watches->asked = &asked;
    tow_mutex_unlock(&watches->lock);
    tows_still_enter(watches->session);
    enum outcome outcome = watch_ask(watches->session, &asked);
    tows_still_leave(watches->session);
    tow_mutex_lock(&watches->lock);
    watches->asked = NULL;
    pthread_cond_broadcast(&watches->answered);
    struct watch *watch = &watches->entries[number];
    if (watch->value == asked.value && watch->outcome == PENDING) {
        watch->outcome = outcome;
    }
    return outcome != PENDING;
}

/* With the lock held: asks for all that is awaited now, and again if any was done: one that was
 * asked for before it may be done for as long, and the client may know that. */
static void watch_collect(struct watches *watches, struct tow_done *ret_done)
{
    uint16_t listed[TOW_WATCH_MAX];
    unsigned count = atomic_load(&watches->count);
    memcpy(listed, watches->listed, count * sizeof listed[0]);
    watches->asking = true;
    for (bool found = true; found;) {
        found = false;
        for (unsigned i = 0; i < count; i++) {
            const struct watch *watch = &watches->entries[listed[i]];
            if (watch->listed && watch->outcome == PENDING) {
                found = watch_ask_for(watches, listed[i]) || found;
            }
        }
    }
    watches->asking = false;
    pthread_cond_broadcast(&watches->answered);
    ret_done->count = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct watch *watch = &watches->entries[listed[i]];
        if (watch->listed && watch->outcome != PENDING) {
            unsigned n = ret_done->count++;
            ret_done->entries[n].watch_id = listed[i];
            ret_done->entries[n].value = watch->value;
            ret_done->entries[n].refused = watch->outcome == REFUSED;
        }
    }
}

/* ---- telling the client ---- */

static int send_done(struct tows_session *session, const struct tow_done *done)
{
    uint8_t *at = NULL;
    uint32_t length = 0;
    size_t room = TOW_FRAME_HEADER + 16 + (size_t)done->count * 8;
    tow_mutex_lock(&session->reply_lock);
    int error = tow_line_reserve(session->line, room, &at);
    if (error >= 0) {
        error = tow_done_encode(done, at, room, &length);
    }
    if (error >= 0) {
        tow_line_commit_now(session->line, length);
    }
    tow_mutex_unlock(&session->reply_lock);
    atomic_fetch_add_explicit(&session->stats->bytes_out, length, memory_order_relaxed);
    return error;
}

/* With the lock held: what was sent is not awaited any more, unless it is again. Only now: whoever
 * replies meanwhile must not find it told before it is. It is told twice then, which does no harm.
 */
static void watch_unlist(struct watches *watches, const struct tow_done *done)
{
    for (uint32_t i = 0; i < done->count; i++) {
        struct watch *watch = &watches->entries[done->entries[i].watch_id];
        if (watch->value == done->entries[i].value) {
            watch->listed = false;
            atomic_store(&watches->owed[done->entries[i].watch_id], 0);
        }
    }
    unsigned kept = 0, count = atomic_load(&watches->count);
    for (unsigned i = 0; i < count; i++) {
        if (watches->entries[watches->listed[i]].listed) {
            watches->listed[kept++] = watches->listed[i];
        }
    }
    atomic_store(&watches->count, kept);
}

/* With the lock held: false if somebody else asks and stands in the driver, for the sake of a host
 * function perhaps, which may in turn need the reply that is held up here; or waits for a
 * processor. */
static bool watch_take_turn(struct watches *watches)
{
    int64_t until = tow_time_deadline(TURN_MAX_NS);
    while (watches->asking) {
        if (tow_mutex_wait_until(&watches->lock, &watches->answered, until) == -ETIMEDOUT) {
            return !watches->asking;
        }
    }
    return true;
}

/* Without the lock: what is done is not known, so the client is to ask for all that it awaits. */
static void send_doubt(struct watches *watches)
{
    struct tow_done done;
    done.count = 0;
    for (unsigned i = 0; i < TOW_WATCH_MAX; i++) {
        uint32_t value = atomic_load(&watches->owed[i]);
        if (value != 0) {
            unsigned n = done.count++;
            done.entries[n].watch_id = i;
            done.entries[n].value = value;
            done.entries[n].refused = true;
        }
    }
    if (done.count > 0) {
        send_done(watches->session, &done);
    }
}

void tows_completion_sweep(struct tows_session *session)
{
    struct watches *watches = tows_session_state(session, TOW_SESSION_WATCH);
    if (watches == NULL || atomic_load_explicit(&watches->count, memory_order_acquire) == 0) {
        return;
    }
    struct tow_done done;
    tow_mutex_lock(&watches->lock);
    bool turn = watch_take_turn(watches);
    if (turn) {
        watch_collect(watches, &done);
    }
    tow_mutex_unlock(&watches->lock);
    if (!turn) {
        send_doubt(watches);
        return;
    }
    if (done.count > 0 && send_done(session, &done) == 0) {
        tow_mutex_lock(&watches->lock);
        watch_unlist(watches, &done);
        tow_mutex_unlock(&watches->lock);
    }
}

static void *watching_thread(void *arg)
{
    struct watches *watches = arg;
    struct tow_done done;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* of this thread: 50 us more would be longer than the naps */
    tow_mutex_lock(&watches->lock);
    while (!watches->ended) {
        if (atomic_load(&watches->count) == 0) {
            watches->nap_ns = NAP_MAX_NS;
            tow_mutex_wait(&watches->lock, &watches->changed);
            watches->nap_ns = NAP_MIN_NS;
            continue;
        }
        if (watches->asking) { /* a thread that is about to reply */
            tow_mutex_wait(&watches->lock, &watches->answered);
            continue;
        }
        tows_session_forget_current(); /* others may have ended that context */
        watch_collect(watches, &done);
        if (done.count > 0) {
            tow_mutex_unlock(&watches->lock);
            int error = send_done(watches->session, &done);
            tow_mutex_lock(&watches->lock);
            watch_unlist(watches, &done);
            watches->ended = watches->ended || error < 0;
            watches->nap_ns = NAP_MIN_NS;
        } else if (tow_mutex_wait_until(&watches->lock, &watches->changed,
                                        tow_time_now_ns() + watches->nap_ns) == 0) {
            watches->nap_ns = NAP_MIN_NS;
        } else {
            watches->nap_ns += watches->nap_ns / 16;
            watches->nap_ns = watches->nap_ns < NAP_MAX_NS ? watches->nap_ns : NAP_MAX_NS;
        }
    }
    watches->running = false;
    pthread_cond_broadcast(&watches->changed);
    tow_mutex_unlock(&watches->lock);
    return NULL;
}

/* ---- what is awaited ---- */

/* With the lock held. Without a thread replies still tell what is done. */
static void watch_wake(struct watches *watches)
{
    pthread_t thread;
    if (!watches->running && !watches->ended &&
        tow_thread_start("towline-watch", watching_thread, watches, &thread) == 0) {
        pthread_detach(thread);
        watches->running = true;
        watches->nap_ns = NAP_MIN_NS;
    } else if (watches->nap_ns > NAP_SHORT_NS) {
        pthread_cond_broadcast(&watches->changed);
    }
}

/* With the lock held: false if it was destroyed meanwhile. */
static bool is_there(struct tows_serve *call, uint64_t id, const struct watch *watch)
{
    struct tows_handles *handles = &call->session->handles;
    if (watch->event == NULL && id <= (uint64_t)(uintptr_t)CU_STREAM_LEGACY) {
        return tows_handles_at(handles, TOW_H_CONTEXT, watch->context) != NULL;
    }
    const struct tows_handle_entry *entry = tows_handles_find(handles, id);
    const void *handle = watch->event != NULL ? (void *)watch->event : (void *)watch->stream;
    return entry != NULL && handle != NULL && entry->handle == handle;
}

static void watch_await(struct tows_serve *call, uint64_t id, CUevent event, CUstream stream)
{
    struct tows_session *session = call->session;
    uint32_t number = tow_dec_u32(&call->in), value = tow_dec_u32(&call->in);
    if (call->in.bad || number >= TOW_WATCH_MAX || value == 0) {
        call->malformed = true;
        return;
    }
    static const struct tows_family_ops ops = {TOW_SESSION_WATCH, sizeof(struct watches),
                                               watches_init, watches_fini};
    struct watches *watches = tows_session_make_state(session, &ops);
    if (watches == NULL) {
        return; /* the client asks again after a while */
    }
    const struct tows_handle_entry *entry =
        event != NULL || id > (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD
            ? tows_handles_find(&session->handles, id)
            : NULL;
    struct watch awaited = {.value = value,
                            .context = entry != NULL ? entry->context : call->frame.context,
                            .thread = call->frame.thread,
                            .listed = true,
                            .event = event,
                            .stream = stream};
    bool fine = (call->status == CUDA_SUCCESS || call->status == CUDA_ERROR_NOT_READY) &&
                !tows_session_owes(session, call->frame.thread);
    tow_mutex_lock(&watches->lock);
    struct watch *watch = &watches->entries[number];
    /* Commands that are waited for may be overtaken: what is newer stays. */
    if (watch->value == 0 || (int32_t)(value - watch->value) > 0) {
        awaited.outcome = fine && is_there(call, id, &awaited) ? PENDING : REFUSED;
        if (!watch->listed) {
            unsigned count = atomic_load(&watches->count);
            watches->listed[count] = (uint16_t)number;
            atomic_store(&watches->count, count + 1);
        }
        *watch = awaited;
        atomic_store(&watches->owed[number], value);
        watch_wake(watches);
    }
    tow_mutex_unlock(&watches->lock);
}

void tows_completion_await_event(struct tows_serve *call, uint64_t id, CUevent event)
{
    watch_await(call, id, event, NULL);
}

void tows_completion_await_stream(struct tows_serve *call, uint64_t id, CUstream stream)
{
    watch_await(call, id, NULL, stream);
}

static bool watch_is_of(const struct watch *watch, bool all, uint32_t context, const void *handle)
{
    return all || (context != 0 && watch->context == context) ||
           (handle != NULL && (watch->event == handle || watch->stream == handle));
}

/* The client is told to ask for those that are awaited and match. When this returns the driver is
 * not asked for one of them. */
static void watch_refuse(struct tows_session *session, bool all, uint32_t context,
                         const void *handle)
{
    struct watches *watches = tows_session_state(session, TOW_SESSION_WATCH);
    if (watches == NULL) {
        return;
    }
    tow_mutex_lock(&watches->lock);
    unsigned count = atomic_load(&watches->count);
    bool any = false;
    for (unsigned i = 0; i < count; i++) {
        struct watch *watch = &watches->entries[watches->listed[i]];
        if (watch->outcome == PENDING && watch_is_of(watch, all, context, handle)) {
            watch->outcome = REFUSED;
            any = true;
        }
    }
    if (any) {
        watch_wake(watches);
    }
    while (watches->asked != NULL && watch_is_of(watches->asked, all, context, handle)) {
        tow_mutex_wait(&watches->lock, &watches->answered);
    }
    tow_mutex_unlock(&watches->lock);
}

void tows_completion_drop(struct tows_session *session, const void *handle)
{
    watch_refuse(session, false, 0, handle);
}

void tows_completion_drop_context(struct tows_session *session, uint32_t context)
{
    watch_refuse(session, false, context, NULL);
}

void tows_completion_refuse(struct tows_session *session)
{
    watch_refuse(session, true, 0, NULL);
}

void tows_completion_end(struct tows_session *session)
{
    struct watches *watches = tows_session_state(session, TOW_SESSION_WATCH);
    if (watches != NULL) {
        watch_stop(watches);
    }
}
