/* SPDX-License-Identifier: Apache-2.0 */
/* Tells workers to suspend their sessions, and hears what became of it. */
#include "server/pool/suspend.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/pool/worker_pool.h"
#include "server/worker/worker_msg.h"

/* A worker says what it likes: sums must not overflow. */
#define MEMORY_MAX (UINT64_C(1) << 48)

bool tows_suspend_is_away(const struct tows_worker *worker)
{
    return worker->suspend.phase == TOW_SUSPENSION_AWAY;
}

bool tows_suspend_moves(const struct tows_worker *worker)
{
    return worker->suspend.phase == TOW_SUSPENSION_BEGINS ||
           worker->suspend.phase == TOW_SUSPENSION_ENDS;
}

bool tows_suspend_is_idle(const struct tows_worker *worker)
{
    return worker->suspend.swapped && !worker->suspend.recalled &&
           atomic_load(&worker->stats->called) == 0;
}

uint64_t tows_suspend_keeps(const struct tows_worker *worker)
{
    uint64_t memory = worker->stats->memory;
    if (worker->suspend.phase == TOW_SUSPENSION_NONE) {
        return 0;
    }
    return TOW_SUSPENSION_MORE + (memory < MEMORY_MAX ? memory : MEMORY_MAX);
}

const char *tows_suspend_text(const struct tows_worker *worker)
{
    static const char *const texts[] = {
        [TOW_SUSPENSION_NONE] = "running",
        [TOW_SUSPENSION_BEGINS] = "suspending",
        [TOW_SUSPENSION_AWAY] = "suspended",
        [TOW_SUSPENSION_ENDS] = "resuming",
    };
    return texts[worker->suspend.phase];
}

static void set_phase(struct tows_worker *worker, enum tows_suspension phase)
{
    worker->suspend.phase = phase;
    worker->suspend.since_ns = tow_time_now_ns();
}

/* A worker that does not take orders must not hold the listener up. */
static int suspend_send(struct tows_worker *worker, uint32_t what, const char *by,
                        uint32_t limit_ms)
{
    struct tows_worker_msg msg = {.what = what, .limit_ms = limit_ms};
    snprintf(msg.peer, sizeof msg.peer, "%s", by);
    if (worker->control < 0 || worker->end_ns != 0) {
        return -EPIPE;
    }
    if (send(worker->control, &msg, sizeof msg, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof msg) {
        return errno == EPIPE || errno == ECONNRESET ? -EPIPE : -EAGAIN;
    }
    worker->suspend.orders++;
    return 0;
}

static void suspend_log(const struct tows_worker *worker, enum tow_log_level level,
                        const char *what, const char *more)
{
    char tenant[TOW_WHO_TEXT_MAX];
    const struct tow_log_about about = {.session = worker->session,
                                        .peer = worker->peer,
                                        .tenant = tows_who_text(&worker->who, tenant)};
    tow_log_about(TOW_AREA_SERVER, level, &about, "session %llu (%s) %s: %s",
                  (unsigned long long)worker->session, worker->peer, what, more);
}

int tows_suspend_begin(struct tows_worker *worker, const char *by, uint32_t limit_ms)
{
    int error = suspend_send(worker, TOW_WORKER_MSG_SUSPEND, by, limit_ms);
    if (error == 0) {
        worker->suspend.recalled = false;
        snprintf(worker->suspend.by, sizeof worker->suspend.by, "%s", by);
        set_phase(worker, TOW_SUSPENSION_BEGINS);
        suspend_log(worker, TOW_LOG_INFO, "is to be suspended", by);
    }
    return error;
}

int tows_suspend_return(struct tows_worker *worker, const char *by)
{
    int error = suspend_send(worker, TOW_WORKER_MSG_GO_ON, by, 0);
    if (error == 0) {
        set_phase(worker, TOW_SUSPENSION_ENDS);
        suspend_log(worker, TOW_LOG_INFO, "is to be resumed", by);
    }
    return error;
}

/* It may be in the hands of its client: an answer without an order is none. */
void tows_suspend_hear(struct tows_worker *worker, bool failed, const char *text, size_t size)
{
    bool out = worker->suspend.phase == TOW_SUSPENSION_BEGINS;
    if (!tows_suspend_moves(worker)) {
        return;
    }
    worker->suspend.failed = failed;
    snprintf(worker->suspend.why, sizeof worker->suspend.why, "%.*s",
             (int)(size < sizeof worker->suspend.why ? size : sizeof worker->suspend.why - 1),
             text);
    for (char *c = worker->suspend.why; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
    }
    if (failed) {
        suspend_log(worker, TOW_LOG_WARN, out ? "is not suspended" : "cannot be resumed",
                    worker->suspend.why);
    }
    if (!tows_suspend_is_idle(worker)) {
        worker->usage.moved_ns = tow_time_now_ns(); /* idle from now on, if it is */
    }
    set_phase(worker, out && !failed ? TOW_SUSPENSION_AWAY : TOW_SUSPENSION_NONE);
    worker->suspend.swapped &= out && !failed;
    worker->usage.look_ns = 0;
}
