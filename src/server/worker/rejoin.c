/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for the listener's end, then for the next one. */
#include "server/worker/rejoin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/session/session.h"
#include "server/worker/rejoin_msg.h"
#include "server/worker/worker_msg.h"
#include "transport/transport.h"

/* How long one that has connected may take to say what it is. */
#define SAY_NS (2 * TOW_TIME_S)

static struct tows_rejoin_setup setup; /* before the thread */
static _Atomic uint32_t count;         /* twice that of listeners, odd while one comes; a futex */
static atomic_bool over;               /* no other one is waited for */
static _Atomic int client = -1;        /* owned: the client's connection */

/* ---- any thread ---- */

void tows_rejoin_client(int fd)
{
    int old = atomic_exchange(&client, dup(fd));
    if (old >= 0) {
        close(old);
    }
}

uint32_t tows_rejoin_count(void)
{
    return atomic_load(&count);
}

static bool has_ended(int control)
{
    struct pollfd end = {.fd = control, .events = POLLRDHUP};
    return poll(&end, 1, 0) > 0;
}

int tows_rejoin_await(uint32_t *seen)
{
    for (;;) {
        uint32_t now = atomic_load(&count);
        if (now == 0 || atomic_load(&over)) {
            return -EPIPE;
        }
        bool comes = now % 2 != 0;
        if (!comes && now != *seen) {
            *seen = now;
            return 0;
        }
        if (!comes && !has_ended(setup.control) && now == atomic_load(&count)) {
            return -EPIPE; /* it is there, and has refused */
        }
        tow_futex_wait(&count, now, tow_time_deadline(TOW_TIME_S), false);
    }
}

/* ---- the thread ---- */

/* Nobody else computes by turns meanwhile. */
static void open_gates(void)
{
    for (unsigned i = 0; i < TOW_STATS_GPUS_MAX; i++) {
        uint32_t word = atomic_load(&setup.stats->gate[i]);
        word = ((word & ~(TOW_GATE_STEP - 1)) + TOW_GATE_STEP) | TOW_GATE_OFF;
        atomic_store(&setup.stats->gate[i], word);
    }
    atomic_fetch_add(&setup.stats->gate_news, 1);
    tow_futex_wake(&setup.stats->gate_news, 1, true);
}

static bool is_the_server(int fd)
{
    struct ucred who;
    socklen_t size = sizeof who;
    bool is = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == setup.owner;
    if (!is) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "somebody who is not the server asked for this "
                "session and was refused");
    }
    return is;
}

/* What a listener shares with the worker, for one that has only its record. */
static int tell_here(void)
{
    struct tows_worker_msg msg = {.what = TOW_WORKER_MSG_HERE, .session = setup.session};
    /* Ours until it is sent: another thread may have a newer one, and closes what it finds. */
    int fds[2] = {setup.stats_fd, atomic_exchange(&client, -1)}, none = -1;
    msg.line = setup.phase();
    int error = tow_fds_send(setup.control, &msg, sizeof msg, fds, fds[1] >= 0 ? 2 : 1);
    if (fds[1] >= 0 && !atomic_compare_exchange_strong(&client, &none, fds[1])) {
        close(fds[1]);
    }
    return error;
}

/* 0: it is the session's listener now. -ECANCELED: the session is to end. Else it is none. */
static int meet_one(int fd)
{
    struct tows_rejoin_msg msg;
    int none = -1, fds = 0;
    if (!is_the_server(fd)) {
        return -EPERM;
    }
    int error = tow_fds_recv(fd, &msg, sizeof msg, tow_time_deadline(SAY_NS), &none, 0, &fds);
    if (error < 0 || msg.magic != TOW_REJOIN_MAGIC) {
        return error < 0 ? error : -EPROTO;
    }
    if (msg.version != TOW_REJOIN_VERSION || msg.layout != TOW_REJOIN_LAYOUT ||
        msg.what != TOW_REJOIN_JOIN || msg.session != setup.session) {
        return -ECANCELED;
    }
    atomic_fetch_add(&count, 1);
    error = dup3(fd, setup.control, O_CLOEXEC) < 0 ? -errno : 0;
    atomic_fetch_add(&count, 1);
    /* Behind the answer to an order that ends now, which is in it. */
    error = error < 0 ? error : tell_here();
    tow_futex_wake(&count, INT32_MAX, false);
    return error;
}

/* Takes the next listener. 0, or the session is to end, with its reason in `farewell`. */
static int meet_next(void)
{
    char *why = setup.stats->farewell;
    const size_t size = sizeof setup.stats->farewell;
    const int64_t deadline = tow_time_deadline(setup.limit_ns);
    int error = -ETIMEDOUT;
    while (!tow_time_passed(deadline)) {
        struct pollfd place = {.fd = setup.place, .events = POLLIN};
        int64_t left_ms = tow_time_left(deadline) / TOW_TIME_MS + 1;
        if (poll(&place, 1, (int)left_ms) <= 0) {
            continue;
        }
        int fd = accept4(setup.place, NULL, NULL, SOCK_CLOEXEC);
        error = fd < 0 ? -errno : meet_one(fd);
        if (fd >= 0) {
            close(fd);
        }
        if (error == 0 || error == -ECANCELED) {
            break;
        }
    }
    if (error == -ECANCELED) {
        snprintf(why, size,
                 "the server was started again and is of another version: it cannot "
                 "go on with sessions of the one before");
    } else if (error < 0) {
        snprintf(why, size, "the server has ended, and was not started again within %d s",
                 (int)(setup.limit_ns / TOW_TIME_S));
    }
    return error;
}

static void *rejoin_run(void *arg)
{
    for (;;) {
        struct pollfd control = {.fd = setup.control, .events = POLLRDHUP};
        if (poll(&control, 1, -1) <= 0 || control.revents == 0) {
            continue;
        }
        if (setup.stats->farewell[0] == '\0') {
            tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                    "the server has ended: this session waits %d s for the next one",
                    (int)(setup.limit_ns / TOW_TIME_S));
            open_gates();
            if (meet_next() == 0) {
                continue;
            }
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "this session ends: %s", setup.stats->farewell);
        }
        atomic_store(&over, true);
        tow_futex_wake(&count, INT32_MAX, false);
        setup.dismiss();
        tow_time_sleep(setup.grace_ns);
        setup.give_up(true);
    }
    return arg;
}

int tows_rejoin_start(const struct tows_rejoin_setup *wanted)
{
    pthread_t thread;
    setup = *wanted;
    int error = tow_thread_start("tow-rejoin", rejoin_run, NULL, &thread);
    if (error == 0) {
        atomic_store(&count, 2);
        pthread_detach(thread);
    }
    return error;
}
