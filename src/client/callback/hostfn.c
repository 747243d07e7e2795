/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the program's host functions by number and runs them on one thread when the server says
 * so. */
#include "client/callback/hostfn.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "client/link/call.h"
#include "client/stream/capture.h"
#include "client/link/link.h"
#include "client/hostmem/mirror.h"
#include "client/link/side.h"
#include "client/stream/stream.h"
#include "gen/copy.h"
#include "gen/launch_client.h"
#include "gen/stream_client.h"
#include "wire/control.h"
#include "wire/share.h"

/* One function that waits for its turn, or runs. */
struct turn {
    struct turn *next;
    struct towc_link *link; /* borrowed */
    uint64_t id;
    CUresult status;
};

/* A function that has not ended; one that is not kept counts as outstanding while it is listed. */
struct entry {
    struct entry *next;
    uint64_t id;
    const struct towc_context *context; /* shared: contexts are never freed */
    bool due;                           /* its turn has come: it goes when it has ended */
    uint64_t launches, turns;           /* of graphs on its link before it; its own so far */
    struct towc_hostfn function;
};

enum {
    BUCKETS = 256,
    DOUBLED_MAX = 32, /* beyond that a launch may run a function as often as it likes */
};

/* Process-wide: one thread runs all functions, one after the other, as with NVIDIA's driver. An
 * entry names its context; what is outstanding is counted at the link. */
static struct {
    struct tow_mutex lock;  /* guards all here */
    pthread_cond_t changed; /* a turn was added */
    struct entry *entries[BUCKETS];
    struct entry *dropped; /* with their contexts: the server may have sent a turn all the same */
    uint64_t last_id;
    unsigned doubled; /* how often a graph may have come to run its functions twice as often */
    struct turn *first_turn, *last_turn;
    bool running; /* the thread was started; it lives as long as the process */
} hostfns = {.lock = TOW_MUTEX(CLIENT_HOSTFNS), .changed = PTHREAD_COND_INITIALIZER};

/* With the lock held: where the entry of an id hangs; *result is NULL if there is none. */
static struct entry **hostfn_find(uint64_t id)
{
    struct entry **at = &hostfns.entries[id % BUCKETS];
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

/* With the lock held. */
static void hostfn_enlist(struct entry *entry)
{
    struct towc_link_hostfns *count = &entry->context->link->hostfns;
    if (entry->function.repeats) {
        atomic_fetch_add(&count->graphs, 1);
    } else if (atomic_fetch_add(&count->turns, 1) == 0) {
        atomic_store_explicit(&count->behind, 0, memory_order_relaxed);
    }
    if (!entry->function.repeats && !entry->function.own) {
        atomic_fetch_add(&count->writers, 1);
    }
    entry->launches = atomic_load(&count->launches);
    entry->id = ++hostfns.last_id;
    entry->next = hostfns.entries[entry->id % BUCKETS];
    hostfns.entries[entry->id % BUCKETS] = entry;
}

/* With the lock held; the caller frees the entry. */
static struct entry *hostfn_unlist(struct entry **at)
{
    struct entry *entry = *at;
    struct towc_link_hostfns *count = &entry->context->link->hostfns;
    *at = entry->next;
    if (entry->function.repeats) {
        atomic_fetch_sub(&count->graphs, 1);
    } else {
        atomic_fetch_sub(&count->turns, 1);
    }
    if (!entry->function.repeats && !entry->function.own) {
        atomic_fetch_sub(&count->writers, 1);
    }
    pthread_cond_broadcast(&count->ended);
    return entry;
}

bool towc_hostfn_find(uint64_t id, struct towc_hostfn *ret_function)
{
    tow_mutex_lock(&hostfns.lock);
    struct entry *entry = *hostfn_find(id);
    if (entry != NULL) {
        *ret_function = entry->function;
    }
    tow_mutex_unlock(&hostfns.lock);
    return entry != NULL;
}

static void say_done(struct towc_link *link, uint64_t id)
{
    towc_mirror_push_function(link); /* what it wrote is there when the stream goes on */
    struct tow_line_stats stats;
    tow_line_get_stats(link->line, &stats);
    uint8_t head[TOW_CALLBACK_DONE_HEAD];
    tow_callback_done_head(&(struct tow_callback_done){id, stats.bytes_out}, head);
    towc_side_send(link, TOW_CONTROL_CALLBACK_DONE, head, sizeof head, NULL, 0);
}

/* A function that runs once has run. */
static void hostfn_end(uint64_t id)
{
    tow_mutex_lock(&hostfns.lock);
    struct entry **at = hostfn_find(id);
    struct entry *entry = *at != NULL ? hostfn_unlist(at) : NULL;
    tow_mutex_unlock(&hostfns.lock);
    free(entry);
}

/* Runs turns one after the other, in the order in which the server gave them. */
static void *run_thread(void *arg)
{
    (void)arg;
    for (;;) {
        tow_mutex_lock(&hostfns.lock);
        while (hostfns.first_turn == NULL) {
            tow_mutex_wait(&hostfns.lock, &hostfns.changed);
        }
        struct turn *turn = hostfns.first_turn;
        hostfns.first_turn = turn->next;
        if (hostfns.first_turn == NULL) {
            hostfns.last_turn = NULL;
        }
        struct entry *entry = *hostfn_find(turn->id);
        struct towc_hostfn function = {0};
        if (entry != NULL) {
            function = entry->function;
        }
        tow_mutex_unlock(&hostfns.lock);
        struct towc_thread *self = towc_thread_self();
        if (self != NULL) {
            self->in_hostfn = true;
        }
        towc_mirror_stale(turn->link);
        if (function.run != NULL && (turn->status == CUDA_SUCCESS || function.own)) {
            function.run(function.user);
        } else if (function.callback != NULL) {
            function.callback(function.stream, turn->status, function.user);
        }
        if (self != NULL) {
            self->in_hostfn = false;
        }
        say_done(turn->link, turn->id);
        if (!function.repeats) {
            hostfn_end(turn->id);
        }
        free(turn);
    }
    return NULL;
}

/* With the lock held. */
static bool start_thread(void)
{
    pthread_t thread;
    if (!hostfns.running && tow_thread_start("towline-hostfn", run_thread, NULL, &thread) == 0) {
        pthread_detach(thread);
        hostfns.running = true;
    }
    return hostfns.running;
}

CUresult towc_hostfn_add(struct towc_context *context, const struct towc_hostfn *function,
                         uint64_t *ret_id)
{
    struct entry *entry = malloc(sizeof *entry);
    if (entry == NULL || towc_link_listen(context->link) < 0) {
        free(entry);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    towc_side_open(context->link);
    *entry = (struct entry){.context = context, .function = *function};
    tow_mutex_lock(&hostfns.lock);
    bool runs = start_thread();
    if (runs) {
        hostfn_enlist(entry);
        *ret_id = entry->id;
    }
    tow_mutex_unlock(&hostfns.lock);
    if (!runs) {
        free(entry);
    }
    return runs ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void hostfn_drop(const struct entry *entry)
{
    if (entry->function.drop != NULL) {
        entry->function.drop(entry->function.user);
    }
}

/* The function did not get into its stream. */
static void hostfn_discard(uint64_t id)
{
    struct entry *entry = NULL;
    tow_mutex_lock(&hostfns.lock);
    struct entry **at = hostfn_find(id);
    if (*at != NULL && !(*at)->due) {
        entry = hostfn_unlist(at);
    }
    tow_mutex_unlock(&hostfns.lock);
    if (entry != NULL) {
        hostfn_drop(entry);
        free(entry);
    }
}

/* Of a list that was taken out: only that they were there is kept. */
static void drop_all(struct entry *gone)
{
    struct entry **end = &gone;
    for (; *end != NULL; end = &(*end)->next) {
        hostfn_drop(*end);
    }
    tow_mutex_lock(&hostfns.lock);
    *end = hostfns.dropped;
    hostfns.dropped = gone;
    tow_mutex_unlock(&hostfns.lock);
}

void towc_hostfn_drop_context(struct towc_context *context)
{
    struct entry *gone = NULL;
    tow_mutex_lock(&hostfns.lock);
    for (unsigned i = 0; i < BUCKETS; i++) {
        for (struct entry **at = &hostfns.entries[i]; *at != NULL;) {
            if ((*at)->context == context && !(*at)->due && !(*at)->function.repeats) {
                struct entry *entry = hostfn_unlist(at);
                entry->next = gone;
                gone = entry;
            } else {
                at = &(*at)->next;
            }
        }
    }
    tow_mutex_unlock(&hostfns.lock);
    drop_all(gone);
}

/* With the lock held: true if a function of the program up to an id has not ended. */
static bool is_outstanding(const struct towc_link *link, uint64_t up_to)
{
    bool found = false;
    for (unsigned i = 0; i < BUCKETS && !found; i++) {
        for (const struct entry *e = hostfns.entries[i]; e != NULL && !found; e = e->next) {
            found = e->id <= up_to && e->context->link == link && !e->function.repeats &&
                    !e->function.own;
        }
    }
    return found;
}

bool towc_hostfn_wait_all(struct towc_link *link, int64_t limit_ns)
{
    int64_t until = tow_time_deadline(limit_ns);
    int error = 0;
    tow_mutex_lock(&hostfns.lock);
    uint64_t up_to = hostfns.last_id;
    while (is_outstanding(link, up_to) && error != -ETIMEDOUT) {
        error = tow_mutex_wait_until(&hostfns.lock, &link->hostfns.ended, until);
    }
    bool all_ran = !is_outstanding(link, up_to);
    tow_mutex_unlock(&hostfns.lock);
    return all_ran;
}

void towc_hostfn_launched(struct towc_link *link)
{
    atomic_fetch_add(&link->hostfns.launches, 1);
}

void towc_hostfn_doubled(void)
{
    tow_mutex_lock(&hostfns.lock);
    hostfns.doubled += hostfns.doubled <= DOUBLED_MAX;
    tow_mutex_unlock(&hostfns.lock);
}

/* With the lock held: whether a function may have another turn. Which graphs hold it is not known
 * here; no launch runs it more often than graphs were put into others. */
static bool is_due_again(const struct entry *entry)
{
    uint64_t launches = atomic_load(&entry->context->link->hostfns.launches) - entry->launches;
    return hostfns.doubled > DOUBLED_MAX ? launches > 0
                                         : entry->turns >> hostfns.doubled < launches;
}

/* With the lock held: takes a turn from those that the function has left; false: it has none. */
static bool take_turn(const struct towc_link *link, uint64_t id)
{
    struct entry *entry = *hostfn_find(id);
    if (entry != NULL) {
        bool may = entry->context->link == link &&
                   (entry->function.repeats ? is_due_again(entry) : !entry->due);
        entry->due |= may;
        entry->turns += may;
        return may;
    }
    struct entry **at = &hostfns.dropped;
    while (*at != NULL && ((*at)->id != id || (*at)->context->link != link)) {
        at = &(*at)->next;
    }
    entry = *at;
    if (entry != NULL) {
        *at = entry->next;
        free(entry);
    }
    return entry != NULL;
}

int towc_hostfn_call(struct towc_link *link, uint64_t id, CUresult status)
{
    struct turn *turn = malloc(sizeof *turn);
    if (turn == NULL) {
        return -ENOMEM;
    }
    *turn = (struct turn){.link = link, .id = id, .status = status};
    tow_mutex_lock(&hostfns.lock);
    bool may = take_turn(link, id);
    if (may) {
        *(hostfns.last_turn != NULL ? &hostfns.last_turn->next : &hostfns.first_turn) = turn;
        hostfns.last_turn = turn;
        pthread_cond_signal(&hostfns.changed);
    }
    tow_mutex_unlock(&hostfns.lock);
    if (!may) {
        free(turn);
        return -EIDRM;
    }
    return 0;
}

/* Sends the command that puts a function into a stream, alone or (`upload` not NULL) with the copy
 * behind it. */
static CUresult send_put(unsigned fn, struct towc_context *context, CUstream stream, uint64_t id,
                         const struct towc_hostfn_upload *upload)
{
    struct towc_call call;
    bool visited = towc_context_visit(context);
    CUresult status = towc_call_begin(&call, fn, 48, TOW_CALL_CONTEXT);
    towc_context_back(visited);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (upload == NULL) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
        tow_enc_u64(&call.enc, id);
        return towc_call_send(&call);
    }
    /* Three entries of the driver's queue: the function, the copy, an event. */
    atomic_fetch_add_explicit(&call.link->hostfns.behind, 2, memory_order_relaxed);
    tow_enc_u64(&call.enc, upload->to);
    tow_enc_u64(&call.enc, upload->size);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    tow_enc_u32(&call.enc, 0);
    tow_enc_u32(&call.enc, TOW_COPY_DEFERRED);
    tow_enc_u64(&call.enc, id);
    tow_enc_u64(&call.enc, upload->number);
    return towc_call_send(&call);
}

/* The function is run or dropped, whatever this answers. */
static CUresult hostfn_put(unsigned fn, CUstream stream, const struct towc_hostfn *function,
                           const struct towc_hostfn_upload *upload)
{
    struct towc_context *context;
    uint64_t id = 0;
    CUresult status = towc_stream_context(stream, &context);
    if (status == CUDA_SUCCESS) {
        status = towc_hostfn_add(context, function, &id);
    }
    if (status != CUDA_SUCCESS) {
        if (function->drop != NULL) {
            function->drop(function->user);
        }
        return status;
    }
    /* A context that ended before the function was listed has not dropped it. */
    status = towc_stream_context(stream, &context);
    if (status == CUDA_SUCCESS) {
        status = send_put(fn, context, stream, id, upload);
    }
    if (status != CUDA_SUCCESS) {
        hostfn_discard(id); /* refused, or the server is gone: its turn never comes */
    }
    return status;
}

CUresult towc_hostfn_put_upload(CUstream stream, const struct towc_hostfn *function,
                                const struct towc_hostfn_upload *upload)
{
    return hostfn_put(TOW_FN_cuMemcpyHtoDAsync_v2, stream, function, upload);
}

CUresult towc_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    if (fn == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Into a graph: it runs at every launch of it. */
    struct towc_hostfn function = {
        .run = fn, .user = userData, .repeats = towc_capture_on(hStream)};
    return hostfn_put(TOW_FN_cuLaunchHostFunc, hStream, &function, NULL);
}

CUresult towc_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                                  unsigned int flags)
{
    if (callback == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_hostfn function = {.callback = callback, .stream = hStream, .user = userData};
    return hostfn_put(TOW_FN_cuStreamAddCallback, hStream, &function, NULL);
}
