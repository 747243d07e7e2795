#include "client/gang.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/thread.h"

enum { GANG_MAX = 4 }; /* with the caller; more gain little (docs/performance.md) */

/* How long a thread looks for more work before it sleeps: copies come in rows. */
#define LINGER_NS (100 * TOW_TIME_US)

struct job {
    void (*piece)(void *user, size_t index);
    void *user;
    size_t count;
    atomic_size_t next;
    unsigned inside; /* threads of the gang at work; guarded by lock */
};

static pthread_mutex_t caller_lock = PTHREAD_MUTEX_INITIALIZER; /* held by the gang's user */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* guards job and its inside */
static struct job *job;                                         /* on its caller's stack */
static _Atomic uint32_t turn;                                   /* futex: counts jobs */
static _Atomic uint32_t left; /* futex: counts threads that left a job */
static unsigned members;      /* guarded by caller_lock */
static unsigned told_size;    /* 0: nobody said */
static bool tried;            /* guarded by caller_lock */

static void work(struct job *on)
{
    for (;;) {
        size_t index = atomic_fetch_add_explicit(&on->next, 1, memory_order_relaxed);
        if (index >= on->count) {
            return;
        }
        on->piece(on->user, index);
    }
}

static void await_turn(uint32_t seen)
{
    int64_t until = tow_time_now_ns() + LINGER_NS;
    for (unsigned round = 1; atomic_load_explicit(&turn, memory_order_acquire) == seen; round++) {
        tow_thread_pause();
        if (round % 64 == 0 && tow_time_now_ns() > until) {
            tow_futex_wait(&turn, seen, TOW_TIME_FOREVER, false);
        }
    }
}

static void *member(void *arg)
{
    uint32_t seen = (uint32_t)(uintptr_t)arg;
    for (;;) {
        await_turn(seen);
        seen = atomic_load(&turn);
        pthread_mutex_lock(&lock);
        struct job *on = job;
        if (on != NULL) {
            on->inside++;
        }
        pthread_mutex_unlock(&lock);
        if (on == NULL) {
            continue;
        }
        work(on);
        pthread_mutex_lock(&lock);
        on->inside--;
        pthread_mutex_unlock(&lock);
        atomic_fetch_add(&left, 1);
        tow_futex_wake(&left, 1, false);
    }
    return NULL;
}

/* With the caller's lock: the gang, as large as this machine allows. */
static void gather(void)
{
    tried = true;
    unsigned cpus = tow_cpu_count();
    unsigned wanted = told_size > 0         ? told_size
                      : cpus <= 2           ? 1
                      : cpus / 2 < GANG_MAX ? cpus / 2
                                            : GANG_MAX;
    while (members + 1 < wanted) {
        pthread_t thread;
        if (tow_thread_start("towline-copy", member, (void *)(uintptr_t)atomic_load(&turn),
                             &thread) < 0) {
            return;
        }
        pthread_detach(thread);
        members++;
    }
}

void tow_gang_set_size(unsigned size)
{
    told_size = size;
}

void tow_gang_run(size_t count, void (*piece)(void *user, size_t index), void *user)
{
    struct job mine = {.piece = piece, .user = user, .count = count};
    bool alone = count < 2 || pthread_mutex_trylock(&caller_lock) != 0;
    if (!alone && !tried) {
        gather();
    }
    if (!alone && members > 0) {
        pthread_mutex_lock(&lock);
        job = &mine;
        pthread_mutex_unlock(&lock);
        atomic_fetch_add(&turn, 1);
        tow_futex_wake(&turn, (int)members, false);
    }
    work(&mine);
    if (alone) {
        return;
    }
    pthread_mutex_lock(&lock);
    job = NULL;
    while (mine.inside > 0) {
        uint32_t seen = atomic_load(&left);
        pthread_mutex_unlock(&lock);
        for (unsigned i = 0; i < 4096 && atomic_load(&left) == seen; i++) {
            tow_thread_pause();
        }
        tow_futex_wait(&left, seen, TOW_TIME_FOREVER, false);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&caller_lock);
}
