/* SPDX-License-Identifier: Apache-2.0 */
/* Counts questions that workers leave without an answer. */
#include "server/pool/watchdog.h"

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/thread.h"
#include "server/pool/machine.h"

static const char *state_text(char state)
{
    return state == 'T'   ? "it is stopped"
           : state == 'D' ? "it sleeps in the kernel, and ends when it wakes"
                          : "its process stands";
}

/* Asleep in the kernel it cannot tell its client anything. That sees its connection end, which the
 * worker still has in hand until it wakes. */
static void watchdog_kill(struct tows_worker_pool *pool, struct tows_worker *worker,
                          const char *why)
{
    char tenant[TOW_WHO_TEXT_MAX];
    struct tow_log_about about = tows_worker_about(worker, tenant);
    snprintf(worker->why, sizeof worker->why, "%s", why);
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about, "session %llu (%s) is ended: %s",
                  (unsigned long long)worker->session, worker->peer, why);
    worker->end_ns = TOW_TIME_FOREVER;
    tows_starter_signal(&pool->starter, worker->number, SIGKILL);
    if (worker->client >= 0) {
        shutdown(worker->client, SHUT_RDWR);
    }
}

/* One that is stopped goes on for a moment: only it knows where in its line a sentence may stand,
 * or has the memory that it shares with its client. */
static void watchdog_end(struct tows_worker_pool *pool, struct tows_worker *worker, char state,
                         unsigned seconds)
{
    char why[sizeof worker->why];
    if (worker->state != TOW_WORKER_BUSY) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "worker %d, which serves nobody, has not answered for %u s (%s): it is ended",
                (int)worker->pid, seconds, state_text(state));
        tows_worker_pool_end(pool, worker);
        return;
    }
    snprintf(why, sizeof why, "its worker %d has not answered for %u s (%s)", (int)worker->pid,
             seconds, state_text(state));
    worker->stands = true;
    if (state == 'T' && worker->end_ns == 0) {
        tows_worker_pool_wake(pool, worker, why);
    } else {
        watchdog_kill(pool, worker, why);
    }
}

static void watchdog_ask(struct tows_worker_pool *pool, struct tows_worker *worker, uint64_t most)
{
    struct tows_session_stats *stats = worker->stats;
    uint32_t answered = atomic_load(&stats->alive_answered);
    if (answered == 0 || worker->stands || worker->state == TOW_WORKER_ENDING) {
        return; /* it has not begun to answer, or was ended already */
    }
    if (answered == worker->asked || worker->asked == 0) {
        worker->unanswered = 0;
        worker->asked = answered == UINT32_MAX ? 1 : answered + 1;
        atomic_store(&stats->alive_asked, worker->asked);
        tow_futex_wake(&stats->alive_asked, 1, true);
        return;
    }
    struct tows_machine_process process = {.state = '?'};
    if (++worker->unanswered >= most) {
        tows_machine_look(worker->pid, &process);
        if (process.traced) {
            worker->unanswered = 0; /* whoever looks into it has time */
        } else {
            watchdog_end(pool, worker, process.state, worker->unanswered);
        }
    }
}

void tows_watchdog_look(struct tows_worker_pool *pool)
{
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (pool->config->watchdog != 0) {
            watchdog_ask(pool, worker, pool->config->watchdog);
        }
    }
}
