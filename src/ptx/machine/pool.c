/* SPDX-License-Identifier: Apache-2.0 */
/* The helper threads that run blocks of a launch. */
#include "ptx/machine/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "ptx/ptx.h"

#define HELPERS_MAX 256u

struct ticket {
    void (*work)(void *user);
    void *user;
    unsigned wanted, running; /* helpers still asked for; inside work() now */
    struct ticket *next;
};

/* `lock` guards everything here and the counts of every ticket. */
static struct {
    struct tow_mutex lock;
    pthread_cond_t wake, done;
    struct ticket *first;
    unsigned helpers, idle;
    clockid_t clocks[HELPERS_MAX]; /* of the helpers' processor time */
    unsigned clock_count;
} pool = {.lock = TOW_MUTEX(PTX_POOL),
          .wake = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static void *pool_helper(void *unused)
{
    (void)unused;
    tow_mutex_lock(&pool.lock);
    for (;;) {
        struct ticket *ticket = pool.first;
        while (ticket && !ticket->wanted) {
            ticket = ticket->next;
        }
        if (!ticket) {
            pool.idle++;
            tow_mutex_wait(&pool.lock, &pool.wake);
            pool.idle--;
            continue;
        }
        ticket->wanted--;
        ticket->running++;
        tow_mutex_unlock(&pool.lock);
        ticket->work(ticket->user);
        tow_mutex_lock(&pool.lock);
        if (--ticket->running == 0) {
            pthread_cond_broadcast(&pool.done);
        }
    }
    return NULL;
}

static bool start_helper(void)
{
    pthread_t thread;
    if (tow_thread_start("tow-ptx", pool_helper, NULL, &thread) < 0) {
        return false;
    }
    pool.clock_count += pthread_getcpuclockid(thread, &pool.clocks[pool.clock_count]) == 0;
    pthread_detach(thread);
    return true;
}

uint64_t tow_ptx_helpers_ns(void)
{
    uint64_t sum = 0;
    tow_mutex_lock(&pool.lock);
    for (unsigned i = 0; i < pool.clock_count; i++) {
        sum += tow_time_of(pool.clocks[i]);
    }
    tow_mutex_unlock(&pool.lock);
    return sum;
}

void tow_ptx_pool_run(void (*work)(void *user), void *user, unsigned threads)
{
    struct ticket ticket = {.work = work, .user = user, .wanted = threads - 1};
    if (threads > 1) {
        tow_mutex_lock(&pool.lock);
        ticket.next = pool.first;
        pool.first = &ticket;
        for (unsigned i = pool.idle; i < threads - 1 && pool.helpers < HELPERS_MAX; i++) {
            if (!start_helper()) {
                break;
            }
            pool.helpers++;
        }
        pthread_cond_broadcast(&pool.wake);
        tow_mutex_unlock(&pool.lock);
    }
    work(user);
    if (threads > 1) {
        tow_mutex_lock(&pool.lock);
        ticket.wanted = 0;
        while (ticket.running) {
            tow_mutex_wait(&pool.lock, &pool.done);
        }
        struct ticket **link = &pool.first;
        while (*link != &ticket) {
            link = &(*link)->next;
        }
        *link = ticket.next;
        tow_mutex_unlock(&pool.lock);
    }
}
