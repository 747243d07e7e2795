/* SPDX-License-Identifier: Apache-2.0 */
/* Counts questions that workers leave without an answer, and looks that find one whose program has
 * gone. */
#include "server/pool/watchdog.h"

#include <poll.h>
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
    worker->stands = true;
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

static bool client_has_gone(const struct tows_worker *worker)
{
    struct pollfd client = {.fd = worker->client, .events = POLLRDHUP};
    return worker->client >= 0 && poll(&client, 1, 0) == 1 &&
           (client.revents & (POLLRDHUP | POLLHUP)) != 0;
}

/* It should have seen that itself, and ended. One that is in its client's hands may go on as if
 * nothing were, and answer all questions. */
static void watchdog_follow(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    if (worker->state != TOW_WORKER_BUSY || worker->end_ns != 0 || !client_has_gone(worker)) {
        return;
    }
    struct tows_machine_process process = {.state = '?'};
    /* Where the line lasts, its program may come again. */
    bool lasts = worker->lasting && atomic_load(&worker->stats->lasts) != 0;
    if (worker->lingers++ < pool->config->linger + (lasts ? worker->limits.reconnect : 0)) {
        return;
    }
    tows_machine_look(worker->pid, &process);
    if (!process.traced) {
        char why[sizeof worker->why];
        snprintf(why, sizeof why,
                 "its program has gone, and its worker %d was still there %u s later (linger)",
                 (int)worker->pid, worker->lingers - 1);
        watchdog_kill(pool, worker, why);
    }
}

void tows_watchdog_look(struct tows_worker_pool *pool)
{
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (pool->config->watchdog != 0) {
            watchdog_ask(pool, worker, pool->config->watchdog);
        }
        watchdog_follow(pool, worker);
    }
}
