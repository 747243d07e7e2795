/* SPDX-License-Identifier: Apache-2.0 */
/* Puts functions into streams that call the client, and counts them until they have ended. */
#include "server/copy/hostfn.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/launch_server.h"
#include "gen/stream_server.h"
#include "gen/graph.h"
#include "server/copy/carry.h"
#include "server/copy/download.h"
#include "server/copy/mirror.h"
#include "server/session/session.h"
#include "wire/control.h"

/* One function in a stream or graph. The driver calls tows_hostfn_run or run_callback with it. */
struct tows_hostfn_turn {
    struct tows_session *session; /* borrowed: outlives its streams */
    uint64_t id;
    bool repeats;
    struct tows_hostfn_turn *next, *prev; /* in the state's list */
};

/* A driver thread that waits for the client. Lives on its stack. */
struct waiter {
    struct waiter *next;
    uint64_t id;
    CUresult status;
    bool sent, done;
};

struct state {
    struct tow_mutex lock;          /* guards the rest */
    pthread_cond_t changed;         /* a waiter came or is done, or the session ends */
    struct waiter *waiters;         /* newest first */
    struct tows_hostfn_turn *turns; /* owned: kept ones, which graphs and their copies may call at
                                     * any time, and those that have not run */
    bool ended;
    bool courier; /* the thread that tells the client runs */
};

static void hostfn_fini(struct tows_session *session, void *opaque)
{
    (void)session;
    struct state *state = opaque;
    while (state->turns != NULL) {
        struct tows_hostfn_turn *next = state->turns->next;
        free(state->turns);
        state->turns = next;
    }
    tow_mutex_fini(&state->lock);
    pthread_cond_destroy(&state->changed);
}

static void hostfn_init(struct tows_session *session, void *opaque)
{
    struct state *state = opaque;
    tow_mutex_init(&state->lock, SERVER_HOSTFNS);
    pthread_cond_init(&state->changed, NULL);
}

static struct state *state_of(struct tows_session *session, bool make)
{
    static const struct tows_family_ops ops = {TOW_SESSION_HOSTFN, sizeof(struct state),
                                               hostfn_init, hostfn_fini};
    return make ? tows_session_make_state(session, &ops)
                : tows_session_state(session, TOW_SESSION_HOSTFN);
}

int tows_hostfn_tell(struct tows_session *session, uint64_t id, CUresult status)
{
    uint8_t head[TOW_CALLBACK_HEAD];
    tow_callback_head(&(struct tow_callback){id, (uint32_t)status}, head);
    return tows_session_send(session, TOW_CONTROL_CALLBACK, 0, 0, 0, head, sizeof head);
}

/* The oldest that the client was not told of. */
static struct waiter *next_unsent(struct state *state)
{
    struct waiter *found = NULL;
    for (struct waiter *w = state->waiters; w != NULL; w = w->next) {
        if (!w->sent) {
            found = w;
        }
    }
    return found;
}

/* Tells the client whose turn it is. A thread of its own: the function may look at everything that
 * the stream did before, which is brought over first. It calls no driver, which may stand still
 * until the function has ended. */
static void *courier_thread(void *arg)
{
    struct tows_session *session = arg;
    struct state *state = state_of(session, false);
    tow_mutex_lock(&state->lock);
    while (!state->ended) {
        struct waiter *w = next_unsent(state);
        if (w == NULL) {
            tow_mutex_wait(&state->lock, &state->changed);
            continue;
        }
        w->sent = true;
        uint64_t id = w->id;
        CUresult status = w->status;
        tow_mutex_unlock(&state->lock);
        tows_copy_flush(session);
        tows_mirror_pull(session);
        int error = tows_hostfn_tell(session, id, status);
        tow_mutex_lock(&state->lock);
        if (error < 0) {
            state->ended = true;
        }
    }
    state->courier = false;
    pthread_cond_broadcast(&state->changed);
    tow_mutex_unlock(&state->lock);
    return NULL;
}

/* With the lock held. */
static bool start_courier(struct tows_session *session, struct state *state)
{
    pthread_t thread;
    if (!state->courier &&
        tow_thread_start("towline-courier", courier_thread, session, &thread) == 0) {
        pthread_detach(thread);
        state->courier = true;
    }
    return state->courier;
}

/* With the lock held. */
static void await_client(struct state *state, struct waiter *waiter)
{
    waiter->next = state->waiters;
    state->waiters = waiter;
    pthread_cond_broadcast(&state->changed);
    while (!waiter->done && !state->ended) {
        tow_mutex_wait(&state->lock, &state->changed);
    }
    for (struct waiter **at = &state->waiters; *at != NULL; at = &(*at)->next) {
        if (*at == waiter) {
            *at = waiter->next;
            break;
        }
    }
}

static void hostfn_unlist(struct tows_hostfn_turn *turn)
{
    struct state *state = state_of(turn->session, false);
    if (!turn->repeats) {
        tows_session_unclaim_command(turn->session);
    }
    tow_mutex_lock(&state->lock);
    if (turn->prev != NULL) {
        turn->prev->next = turn->next;
    } else {
        state->turns = turn->next;
    }
    if (turn->next != NULL) {
        turn->next->prev = turn->prev;
    }
    tow_mutex_unlock(&state->lock);
    free(turn);
}

/* With the lock held, which is given meanwhile: what is behind the function must not run without
 * it, and a driver's thread may not tell the client itself. */
static void hostfn_give_up(struct tows_session *session, struct state *state)
{
    tow_mutex_unlock(&state->lock);
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
            "no thread to run a host function with: the session ends");
    tows_session_end(session, -EAGAIN);
    tow_mutex_lock(&state->lock);
}

/* On the driver's thread: has the client run the function and waits until it has. */
static void call_client(struct tows_hostfn_turn *turn, CUresult status)
{
    struct tows_session *session = turn->session;
    struct state *state = state_of(session, false);
    struct waiter waiter = {.id = turn->id, .status = status};
    bool repeats = turn->repeats;
    if (!repeats) {
        hostfn_unlist(turn);
    }
    tow_mutex_lock(&state->lock);
    /* The end of the session finds no state if this one is its first. */
    if (!state->ended && tows_session_goes_on(session)) {
        if (start_courier(session, state)) {
            await_client(state, &waiter);
        } else {
            hostfn_give_up(session, state);
        }
    }
    if (!repeats) {
        tows_carry_allow(session); /* with the lock: behind it the session may end */
    }
    tow_mutex_unlock(&state->lock);
}

void tows_hostfn_run(void *opaque)
{
    call_client(opaque, CUDA_SUCCESS);
}

static void run_callback(CUstream stream, CUresult status, void *opaque)
{
    (void)stream;
    call_client(opaque, status);
}

void tows_hostfn_done(struct tows_session *session, uint64_t id)
{
    struct state *state = state_of(session, false);
    if (state == NULL) {
        return;
    }
    tow_mutex_lock(&state->lock);
    for (struct waiter *w = state->waiters; w != NULL; w = w->next) {
        if (w->id == id && !w->done) {
            w->done = true;
            pthread_cond_broadcast(&state->changed);
            break;
        }
    }
    tow_mutex_unlock(&state->lock);
}

bool tows_hostfn_runs(struct tows_session *session)
{
    struct state *state = state_of(session, false);
    if (state == NULL) {
        return false;
    }
    tow_mutex_lock(&state->lock);
    bool runs = state->waiters != NULL;
    tow_mutex_unlock(&state->lock);
    return runs;
}

void tows_hostfn_end(struct tows_session *session)
{
    struct state *state = state_of(session, false);
    if (state != NULL) {
        tow_mutex_lock(&state->lock);
        state->ended = true;
        pthread_cond_broadcast(&state->changed);
        while (state->courier) {
            tow_mutex_wait(&state->lock, &state->changed);
        }
        tow_mutex_unlock(&state->lock);
    }
}

struct tows_hostfn_turn *tows_hostfn_make(struct tows_session *session, uint64_t id, int repeats)
{
    struct state *state = state_of(session, true);
    struct tows_hostfn_turn *turn = state != NULL ? malloc(sizeof *turn) : NULL;
    /* In a graph it waits for no turn of its own. */
    bool claimed = turn != NULL && (repeats || tows_session_claim_command(session));
    if (!claimed || !tows_carry_forbid(session)) {
        if (claimed && !repeats) {
            tows_session_unclaim_command(session);
        }
        free(turn);
        return NULL;
    }
    *turn = (struct tows_hostfn_turn){.session = session, .id = id, .repeats = repeats != 0};
    tow_mutex_lock(&state->lock);
    turn->next = state->turns;
    if (turn->next != NULL) {
        turn->next->prev = turn;
    }
    state->turns = turn;
    tow_mutex_unlock(&state->lock);
    return turn;
}

void tows_hostfn_drop(struct tows_hostfn_turn *turn)
{
    if (turn != NULL) {
        struct tows_session *session = turn->session;
        hostfn_unlist(turn);
        tows_carry_allow(session);
    }
}

uint64_t tows_hostfn_id(const struct tows_hostfn_turn *turn)
{
    return turn->id;
}

static struct tows_hostfn_turn *hostfn_take(struct tows_serve *call, CUstream *ret_stream)
{
    *ret_stream = tows_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    uint64_t id = tow_dec_u64(&call->in);
    if (!tows_serve_ready(call)) {
        return NULL;
    }
    /* Into a graph: it runs at every launch of it, and of its copies, and nobody says when the last
     * of them is gone. */
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    tow_drive(call->driver, cuStreamIsCapturing)(*ret_stream, &capture);
    struct tows_hostfn_turn *turn =
        tows_hostfn_make(call->session, id, capture != CU_STREAM_CAPTURE_STATUS_NONE);
    if (turn == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return turn;
}

void tows_serve_cuLaunchHostFunc(struct tows_serve *call)
{
    CUstream stream = NULL;
    struct tows_hostfn_turn *turn = hostfn_take(call, &stream);
    if (turn == NULL) {
        return;
    }
    call->status = tow_drive(call->driver, cuLaunchHostFunc)(stream, tows_hostfn_run, turn);
    if (call->status != CUDA_SUCCESS) {
        tows_hostfn_drop(turn);
    }
}

void tows_serve_cuStreamAddCallback(struct tows_serve *call)
{
    CUstream stream = NULL;
    struct tows_hostfn_turn *turn = hostfn_take(call, &stream);
    if (turn == NULL) {
        return;
    }
    call->status = tow_drive(call->driver, cuStreamAddCallback)(stream, run_callback, turn, 0);
    if (call->status != CUDA_SUCCESS) {
        tows_hostfn_drop(turn);
    }
}
