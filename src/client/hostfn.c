#include "client/hostfn.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/call.h"
#include "client/graph.h"
#include "client/link.h"
#include "client/mirror.h"
#include "client/side.h"
#include "client/stream.h"
#include "gen/client_api.h"
#include "wire/control.h"
#include "wire/share.h"

/* One function that waits for its turn, or runs. */
struct turn {
    struct turn *next;
    struct tow_link *link; /* borrowed */
    uint64_t id;
    CUresult status;
};

struct entry {
    struct entry *next;
    uint64_t id;
    struct tow_hostfn function;
};

enum { BUCKETS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards all below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* a turn was added */
static struct entry *entries[BUCKETS];
static uint64_t last_id;
static struct turn *first_turn, *last_turn;
atomic_uint tow_hostfn_turns, tow_hostfn_writers, tow_hostfn_graphs;
static bool running; /* the thread was started; it lives as long as the process */

/* One less, unless the count was forgotten meanwhile. */
static void decrease(atomic_uint *count)
{
    unsigned old = atomic_load(count);
    while (old > 0 && !atomic_compare_exchange_weak(count, &old, old - 1)) {
    }
}

/* A function that is not kept is no longer outstanding. */
static void end_turn(const struct tow_hostfn *function)
{
    if (!function->own) {
        decrease(&tow_hostfn_writers);
    }
    decrease(&tow_hostfn_turns);
}

/* With the lock held: where the entry of an id hangs; *result is NULL if there is none. */
static struct entry **find(uint64_t id)
{
    struct entry **at = &entries[id % BUCKETS];
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

bool tow_hostfn_find(uint64_t id, struct tow_hostfn *ret_function)
{
    pthread_mutex_lock(&lock);
    struct entry *entry = *find(id);
    if (entry != NULL) {
        *ret_function = entry->function;
    }
    pthread_mutex_unlock(&lock);
    return entry != NULL;
}

static void say_done(struct tow_link *link, uint64_t id)
{
    tow_mirror_push_function(link); /* what it wrote is there when the stream goes on */
    struct tow_line_stats stats;
    tow_line_get_stats(link->line, &stats);
    uint8_t head[TOW_CALLBACK_DONE_HEAD];
    tow_callback_done_head(&(struct tow_callback_done){id, stats.bytes_out}, head);
    tow_side_send(link, TOW_CONTROL_CALLBACK_DONE, head, sizeof head, NULL, 0);
}

/* Runs turns one after the other, in the order in which the server gave them. */
static void *run_thread(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (first_turn == NULL) {
            pthread_cond_wait(&changed, &lock);
        }
        struct turn *turn = first_turn;
        first_turn = turn->next;
        if (first_turn == NULL) {
            last_turn = NULL;
        }
        struct entry *entry = *find(turn->id);
        struct tow_hostfn function = {0};
        if (entry != NULL) {
            function = entry->function;
        }
        pthread_mutex_unlock(&lock);
        struct tow_thread *self = tow_thread_self();
        if (self != NULL) {
            self->in_hostfn = true;
        }
        tow_mirror_stale(turn->link);
        if (function.run != NULL && (turn->status == CUDA_SUCCESS || function.own)) {
            function.run(function.user);
        } else if (function.callback != NULL) {
            function.callback(function.stream, turn->status, function.user);
        }
        if (self != NULL) {
            self->in_hostfn = false;
        }
        say_done(turn->link, turn->id);
        if (!function.kept) {
            tow_hostfn_remove(turn->id);
            end_turn(&function);
        }
        free(turn);
    }
    return NULL;
}

CUresult tow_hostfn_add(struct tow_link *link, const struct tow_hostfn *function, uint64_t *ret_id)
{
    struct entry *entry = malloc(sizeof *entry);
    if (entry == NULL || tow_link_listen(link) < 0) {
        free(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tow_side_open(link);
    entry->function = *function;
    pthread_mutex_lock(&lock);
    if (!running) {
        pthread_t thread;
        if (tow_thread_start("towline-hostfn", run_thread, NULL, &thread) < 0) {
            pthread_mutex_unlock(&lock);
            free(entry);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        pthread_detach(thread);
        running = true;
    }
    atomic_fetch_or(&tow_hostfn_graphs, function->kept);
    entry->id = ++last_id;
    entry->next = entries[entry->id % BUCKETS];
    entries[entry->id % BUCKETS] = entry;
    *ret_id = entry->id;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void tow_hostfn_remove(uint64_t id)
{
    pthread_mutex_lock(&lock);
    struct entry **at = find(id);
    struct entry *entry = *at;
    if (entry != NULL) {
        *at = entry->next;
    }
    pthread_mutex_unlock(&lock);
    free(entry);
}

/* True if a function of the program up to an id has not ended. */
static bool is_outstanding(uint64_t up_to)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS && !found; i++) {
        for (const struct entry *e = entries[i]; e != NULL && !found; e = e->next) {
            found = e->id <= up_to && !e->function.kept && !e->function.own;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool tow_hostfn_settle(int64_t limit_ns)
{
    int64_t until = tow_time_now_ns() + limit_ns;
    pthread_mutex_lock(&lock);
    uint64_t up_to = last_id;
    pthread_mutex_unlock(&lock);
    while (is_outstanding(up_to)) {
        if (tow_time_now_ns() > until) {
            return false;
        }
        tow_time_sleep(50 * TOW_TIME_US);
    }
    return true;
}

void tow_hostfn_call(struct tow_link *link, uint64_t id, CUresult status)
{
    struct turn *turn = malloc(sizeof *turn);
    if (turn == NULL) {
        tow_link_lose(link, "memory for a host function is used up");
        return;
    }
    *turn = (struct turn){.link = link, .id = id, .status = status};
    pthread_mutex_lock(&lock);
    if (last_turn != NULL) {
        last_turn->next = turn;
    } else {
        first_turn = turn;
    }
    last_turn = turn;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

/* Puts a function into a stream, alone or (`upload` not NULL) with the copy behind it. */
static CUresult put(unsigned fn, CUstream stream, const struct tow_hostfn *function,
                    const struct tow_hostfn_upload *upload)
{
    struct tow_context *context;
    CUresult status = tow_stream_context(stream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint64_t id = 0;
    status = tow_hostfn_add(context->link, function, &id);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_call call;
    bool visited = tow_context_visit(context);
    status = tow_call_begin(&call, fn, 48, TOW_CALL_CONTEXT);
    tow_context_back(visited);
    if (status != CUDA_SUCCESS) {
        tow_hostfn_remove(id);
        return status;
    }
    if (!function->kept && !function->own) {
        atomic_fetch_add(&tow_hostfn_writers, 1);
    }
    if (!function->kept && atomic_fetch_add(&tow_hostfn_turns, 1) == 0) {
        atomic_store_explicit(&call.link->behind, 0, memory_order_relaxed);
    }
    if (upload != NULL) {
        /* Three entries of the driver's queue: the function, the copy, an event. */
        atomic_fetch_add_explicit(&call.link->behind, 2, memory_order_relaxed);
        tow_enc_u64(&call.enc, upload->to);
        tow_enc_u64(&call.enc, upload->size);
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    if (upload != NULL) {
        tow_enc_u32(&call.enc, 0);
        tow_enc_u32(&call.enc, TOW_COPY_LATE);
    }
    tow_enc_u64(&call.enc, id);
    if (upload != NULL) {
        tow_enc_u64(&call.enc, upload->number);
    }
    status = tow_call_send(&call);
    if (status != CUDA_SUCCESS) {
        /* Refused, or the server is gone: its turn never comes. */
        tow_hostfn_remove(id);
        if (!function->kept) {
            end_turn(function);
        }
    }
    return status;
}

CUresult tow_hostfn_put_upload(CUstream stream, const struct tow_hostfn *function,
                               const struct tow_hostfn_upload *upload)
{
    return put(TOW_FN_cuMemcpyHtoDAsync_v2, stream, function, upload);
}

CUresult tow_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    if (fn == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Into a graph: it runs at every launch of it. */
    struct tow_hostfn function = {.run = fn, .user = userData, .kept = tow_capture_on(hStream)};
    return put(TOW_FN_cuLaunchHostFunc, hStream, &function, NULL);
}

CUresult tow_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                                 unsigned int flags)
{
    if (callback == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_hostfn function = {.callback = callback, .stream = hStream, .user = userData};
    return put(TOW_FN_cuStreamAddCallback, hStream, &function, NULL);
}
