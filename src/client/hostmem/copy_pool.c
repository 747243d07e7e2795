/* SPDX-License-Identifier: Apache-2.0 */
/* The helper threads of large copies: started once, asleep between copies. */
#include "client/hostmem/copy_pool.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

enum { POOL_MAX = 6 }; /* with the caller; 4 carry 21 GB/s up, 6 carry 32, the link 55 */

/* How long a thread looks for more work before it sleeps: copies come in rows. */
#define LINGER_NS (100 * TOW_TIME_US)

/* A count that grows while threads wait for it. */
struct tally {
    _Atomic uint32_t count; /* futex */
    atomic_uint sleepers;   /* threads that have to be woken */
};

struct job {
    void (*stripe)(void *user, size_t index);
    void *user;
    size_t count;
    atomic_size_t next;
    unsigned inside; /* threads of the pool at work; guarded by work.lock */
    bool alone;      /* the pool is not at it */
};

/* Process-wide: the machine's processors are what is shared; one job at a time has them. */
static struct {
    struct tow_mutex lock; /* held by the pool's user; guards all below */
    unsigned members;
    bool tried;
} pool = {.lock = TOW_MUTEX(CLIENT_COPY_POOL_USER)};
static struct {
    struct tow_mutex lock; /* guards the job and its inside */
    struct job *job;       /* on its caller's stack */
    struct tally turn;     /* jobs */
    _Atomic uint32_t left; /* futex: counts threads that left a job */
} work = {.lock = TOW_MUTEX(CLIENT_COPY_POOL)};
static unsigned told_size; /* 0: nobody said */

static void pool_work(struct job *on)
{
    for (;;) {
        size_t index = atomic_fetch_add_explicit(&on->next, 1, memory_order_relaxed);
        if (index >= on->count) {
            return;
        }
        on->stripe(on->user, index);
    }
}

/* Until it has passed what was seen of it. */
static void pool_await(struct tally *tally, uint32_t seen)
{
    int64_t until = 0;
    for (unsigned round = 1;; round++) {
        uint32_t count = atomic_load_explicit(&tally->count, memory_order_acquire);
        if ((int32_t)(count - seen) > 0) {
            return;
        }
        tow_thread_pause();
        if (round % 64 != 0) {
            continue;
        }
        int64_t now = tow_time_now_ns();
        if (until == 0) {
            until = now + LINGER_NS;
        } else if (now > until) {
            atomic_fetch_add(&tally->sleepers, 1);
            tow_futex_wait(&tally->count, count, TOW_TIME_FOREVER, false);
            atomic_fetch_sub(&tally->sleepers, 1);
        }
    }
}

static void raise_to(struct tally *tally, uint32_t count)
{
    atomic_store(&tally->count, count);
    if (atomic_load(&tally->sleepers) > 0) {
        tow_futex_wake(&tally->count, INT_MAX, false);
    }
}

static void *pool_member(void *arg)
{
    uint32_t seen = (uint32_t)(uintptr_t)arg;
    for (;;) {
        pool_await(&work.turn, seen);
        seen = atomic_load(&work.turn.count);
        tow_mutex_lock(&work.lock);
        struct job *on = work.job;
        if (on != NULL) {
            on->inside++;
        }
        tow_mutex_unlock(&work.lock);
        if (on == NULL) {
            continue;
        }
        pool_work(on);
        tow_mutex_lock(&work.lock);
        on->inside--;
        tow_mutex_unlock(&work.lock);
        atomic_fetch_add(&work.left, 1);
        tow_futex_wake(&work.left, 1, false);
    }
    return NULL;
}

/* With the caller's lock: the pool, as large as this machine allows. */
static void pool_gather(void)
{
    pool.tried = true;
    unsigned cpus = tow_cpu_count();
    unsigned wanted = told_size > 0         ? told_size
                      : cpus <= 2           ? 1
                      : cpus / 2 < POOL_MAX ? cpus / 2
                                            : POOL_MAX;
    while (pool.members + 1 < wanted) {
        pthread_t thread;
        if (tow_thread_start("towline-copy", pool_member,
                             (void *)(uintptr_t)atomic_load(&work.turn.count), &thread) < 0) {
            return;
        }
        pthread_detach(thread);
        pool.members++;
    }
}

void towc_copy_pool_set_size(unsigned size)
{
    told_size = size;
}

/* True if it is free, and the caller's until pool.lock is unlocked. */
static bool take_pool(void)
{
    if (!tow_mutex_try(&pool.lock)) {
        return false;
    }
    if (!pool.tried) {
        pool_gather();
    }
    return true;
}

/* Puts the pool to a job, if it is free: not if `alone`. */
static void pool_begin(struct job *mine, bool alone)
{
    mine->alone = alone || !take_pool();
    if (!mine->alone && pool.members > 0) {
        tow_mutex_lock(&work.lock);
        work.job = mine;
        tow_mutex_unlock(&work.lock);
        raise_to(&work.turn, atomic_load(&work.turn.count) + 1);
    }
}

/* Until nobody is at the job any more; its stripes are all taken. */
static void pool_end(struct job *mine)
{
    if (mine->alone) {
        return;
    }
    tow_mutex_lock(&work.lock);
    work.job = NULL;
    while (mine->inside > 0) {
        uint32_t seen = atomic_load(&work.left);
        tow_mutex_unlock(&work.lock);
        for (unsigned i = 0; i < 4096 && atomic_load(&work.left) == seen; i++) {
            tow_thread_pause();
        }
        tow_futex_wait(&work.left, seen, TOW_TIME_FOREVER, false);
        tow_mutex_lock(&work.lock);
    }
    tow_mutex_unlock(&work.lock);
    tow_mutex_unlock(&pool.lock);
}

void towc_copy_pool_run(size_t count, void (*stripe)(void *user, size_t index), void *user)
{
    struct job mine = {.stripe = stripe, .user = user, .count = count};
    pool_begin(&mine, count < 2);
    pool_work(&mine);
    pool_end(&mine);
}

/* ---- chunks ---- */

struct pipeline {
    const struct towc_copy_pipeline *plan;
    struct tally opened; /* chunks */
    atomic_bool failed;
    atomic_size_t filled[TOW_PIPELINE_SLOTS]; /* stripes in the chunk that a slot has now */
};

static void fill_stripe(void *user, size_t index)
{
    struct pipeline *pipeline = user;
    size_t chunk = index / pipeline->plan->each;
    pool_await(&pipeline->opened, (uint32_t)chunk);
    if (!atomic_load_explicit(&pipeline->failed, memory_order_relaxed)) {
        pipeline->plan->stripe(pipeline->plan->user, index);
    }
    atomic_fetch_add_explicit(&pipeline->filled[chunk % TOW_PIPELINE_SLOTS], 1,
                              memory_order_release);
}

static bool is_full(struct pipeline *pipeline, size_t chunk)
{
    size_t left_over = pipeline->plan->stripes - chunk * pipeline->plan->each;
    size_t stripes = left_over < pipeline->plan->each ? left_over : pipeline->plan->each;
    return atomic_load_explicit(&pipeline->filled[chunk % TOW_PIPELINE_SLOTS],
                                memory_order_acquire) == stripes;
}

static int open_chunk(struct pipeline *pipeline, size_t chunk, bool wait)
{
    int error = pipeline->plan->open(pipeline->plan->user, chunk, wait);
    if (error == 0) {
        atomic_store_explicit(&pipeline->filled[chunk % TOW_PIPELINE_SLOTS], 0,
                              memory_order_relaxed);
        raise_to(&pipeline->opened, (uint32_t)(chunk + 1));
    }
    return error;
}

/* Takes a stripe of an open chunk: the caller cannot wait for what only it opens. */
static bool take_open(struct job *mine, size_t end_of_open, size_t *ret_index)
{
    size_t next = atomic_load_explicit(&mine->next, memory_order_relaxed);
    while (next < end_of_open && next < mine->count) {
        if (atomic_compare_exchange_weak_explicit(&mine->next, &next, next + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *ret_index = next;
            return true;
        }
    }
    return false;
}

/* While nothing can be opened or sent. */
static void help_fill(struct job *mine, size_t end_of_open, unsigned *idle)
{
    size_t index = 0;
    if (take_open(mine, end_of_open, &index)) {
        mine->stripe(mine->user, index);
    } else if (++*idle % 4096 == 0) {
        sched_yield(); /* who has the missing stripes may need this processor */
    } else {
        tow_thread_pause();
    }
}

int towc_copy_pool_pipeline(const struct towc_copy_pipeline *plan)
{
    const size_t chunks = (plan->stripes + plan->each - 1) / plan->each;
    struct pipeline pipeline = {.plan = plan};
    struct job mine = {.stripe = fill_stripe, .user = &pipeline, .count = plan->stripes};
    size_t sent = 0, opened = 0;
    unsigned idle = 0;
    int error = 0;
    pool_begin(&mine, plan->stripes < 3);
    while (error == 0 && sent < chunks) {
        if (sent < opened && is_full(&pipeline, sent)) {
            error = plan->send(plan->user, sent++);
            continue;
        }
        bool room = opened < chunks && opened - sent < TOW_PIPELINE_SLOTS;
        int answer = room ? open_chunk(&pipeline, opened, opened == sent) : -EAGAIN;
        if (answer == 0) {
            opened++;
        } else if (answer == -EAGAIN) {
            help_fill(&mine, opened * plan->each, &idle);
        } else {
            error = answer;
        }
    }
    atomic_store(&pipeline.failed, error != 0);
    raise_to(&pipeline.opened, (uint32_t)chunks);
    pool_work(&mine); /* what is left after a failure: nothing is done for it */
    pool_end(&mine);
    return error;
}
