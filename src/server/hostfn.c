#include "server/hostfn.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "gen/server_api.h"
#include "server/session.h"
#include "wire/frame.h"

/* One function in a stream or graph. The driver calls tow_hostfn_run or run_callback with it. */
struct tow_hostfn_turn {
    struct tow_session *session; /* borrowed: outlives its streams */
    uint64_t id;
    bool kept;
};

/* A driver thread that waits for the client. Lives on its stack. */
struct waiter {
    struct waiter *next;
    uint64_t id;
    bool done;
};

struct state {
    pthread_mutex_t lock;   /* guards the two below */
    pthread_cond_t changed; /* some waiter is done, or the session ends */
    struct waiter *waiters;
    bool ended;
};

static void free_state(struct tow_session *session, void *opaque)
{
    (void)session;
    struct state *state = opaque;
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->changed);
    free(state);
}

static struct state *state_of(struct tow_session *session, bool make)
{
    pthread_mutex_lock(&session->thread_lock);
    struct state *state = session->families[TOW_SESSION_HOSTFN].state;
    if (state == NULL && make) {
        state = calloc(1, sizeof *state);
        if (state != NULL) {
            pthread_mutex_init(&state->lock, NULL);
            pthread_cond_init(&state->changed, NULL);
            session->families[TOW_SESSION_HOSTFN].state = state;
            session->families[TOW_SESSION_HOSTFN].free = free_state;
        }
    }
    pthread_mutex_unlock(&session->thread_lock);
    return state;
}

/* On the driver's thread: has the client run the function and waits until it has. */
static void call_client(struct tow_hostfn_turn *turn, CUresult status)
{
    struct tow_session *session = turn->session;
    struct state *state = state_of(session, false);
    struct waiter waiter = {.id = turn->id};
    pthread_mutex_lock(&state->lock);
    bool ended = state->ended;
    if (!ended) {
        waiter.next = state->waiters;
        state->waiters = &waiter;
    }
    pthread_mutex_unlock(&state->lock);
    if (!turn->kept) {
        free(turn);
    }
    if (ended) {
        return;
    }
    struct {
        uint64_t id;
        uint32_t status, zero;
    } body = {waiter.id, (uint32_t)status, 0};
    int error = tow_session_send(session, TOW_CONTROL_CALLBACK, 0, 0, 0, &body, sizeof body);
    pthread_mutex_lock(&state->lock);
    while (error >= 0 && !waiter.done && !state->ended) {
        pthread_cond_wait(&state->changed, &state->lock);
    }
    for (struct waiter **at = &state->waiters; *at != NULL; at = &(*at)->next) {
        if (*at == &waiter) {
            *at = waiter.next;
            break;
        }
    }
    pthread_mutex_unlock(&state->lock);
}

void tow_hostfn_run(void *opaque)
{
    call_client(opaque, CUDA_SUCCESS);
}

static void run_callback(CUstream stream, CUresult status, void *opaque)
{
    (void)stream;
    call_client(opaque, status);
}

void tow_hostfn_done(struct tow_session *session, uint64_t id)
{
    struct state *state = state_of(session, false);
    if (state == NULL) {
        return;
    }
    pthread_mutex_lock(&state->lock);
    for (struct waiter *w = state->waiters; w != NULL; w = w->next) {
        if (w->id == id && !w->done) {
            w->done = true;
            pthread_cond_broadcast(&state->changed);
            break;
        }
    }
    pthread_mutex_unlock(&state->lock);
}

void tow_hostfn_end(struct tow_session *session)
{
    struct state *state = state_of(session, false);
    if (state != NULL) {
        pthread_mutex_lock(&state->lock);
        state->ended = true;
        pthread_cond_broadcast(&state->changed);
        pthread_mutex_unlock(&state->lock);
    }
}

struct tow_hostfn_turn *tow_hostfn_make(struct tow_session *session, uint64_t id, int kept)
{
    struct tow_hostfn_turn *turn = state_of(session, true) != NULL ? malloc(sizeof *turn) : NULL;
    if (turn != NULL) {
        *turn = (struct tow_hostfn_turn){session, id, kept != 0};
    }
    return turn;
}

void tow_hostfn_drop(struct tow_hostfn_turn *turn)
{
    free(turn);
}

static struct tow_hostfn_turn *take(struct tow_serve *call, CUstream *ret_stream)
{
    *ret_stream = tow_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    uint64_t id = tow_dec_u64(&call->in);
    if (!tow_serve_ready(call)) {
        return NULL;
    }
    struct tow_hostfn_turn *turn = tow_hostfn_make(call->session, id, 0);
    if (turn == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return turn;
}

void tow_serve_cuLaunchHostFunc(struct tow_serve *call)
{
    CUstream stream = NULL;
    struct tow_hostfn_turn *turn = take(call, &stream);
    if (turn == NULL) {
        return;
    }
    call->status = call->driver->cuLaunchHostFunc(stream, tow_hostfn_run, turn);
    if (call->status != CUDA_SUCCESS) {
        free(turn);
    }
}

void tow_serve_cuStreamAddCallback(struct tow_serve *call)
{
    CUstream stream = NULL;
    struct tow_hostfn_turn *turn = take(call, &stream);
    if (turn == NULL) {
        return;
    }
    call->status = call->driver->cuStreamAddCallback(stream, run_callback, turn, 0);
    if (call->status != CUDA_SUCCESS) {
        free(turn);
    }
}
