/* SPDX-License-Identifier: Apache-2.0 */
/* The listener's loop: sockets, signals, connections, workers. */
#include "server/listener/listener.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/pool/gates.h"
#include "server/pool/watchdog.h"
#include "server/pool/worker_pool.h"
#include "server/door/door.h"
#include "server/door/pending_conn.h"
#include "server/listener/answer.h"
#include "server/listener/balance.h"
#include "server/listener/listen.h"
#include "server/listener/login.h"
#include "server/listener/reload.h"
#include "server/listener/resume.h"
#include "server/listener/server.h"
#include "server/beside/mps.h"
#include "server/beside/shaker.h"
#include "server/beside/systemd.h"
#include "server/walls/walls.h"
#include "wire/control.h"

#define MEMORY_PAUSE_NS (100 * TOW_TIME_MS)

enum {
    MONITOR_MS = 500, /* how often a monitored process is asked for where there are no pidfds */
};

/* Whose event a poll entry is. */
struct tows_server_source {
    struct tow_listener *listener;  /* borrowed */
    struct tows_worker *worker;     /* borrowed: its control socket */
    struct tows_worker *refused;    /* borrowed: its refused system calls */
    struct tows_pending_conn *conn; /* borrowed */
    bool shaker;                    /* the process with the key */
    bool ended;                     /* workers that another server has started */
    bool web;                       /* the one that answers over HTTP */
};

/* ---- connections ---- */

static void admit_conn(struct tows_server *server, struct tows_pending_conn *conn)
{
    uint64_t places = server->config.places > 0 ? server->config.places : 1;
    if (tows_door_admit(&server->door, conn, places, server->config.places_per_peer) == 0) {
        tows_door_pace(conn, server->config.connections_per_second);
    }
}

static void accept_all(struct tows_server *server, struct tow_listener *listener)
{
    /* Bounded, so that a flood on one socket does not starve the rest. */
    for (int i = 0; i < 64; i++) {
        int fd;
        char peer[TOW_ADDRESS_MAX];
        int error = tow_listener_accept(listener, &fd, peer);
        if (error == -EAGAIN) {
            return;
        }
        if (error < 0) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "%s: accept: %s", listener->address,
                    strerror(-error));
            if ((error == -EMFILE || error == -ENFILE) && !tows_door_make_room(&server->door)) {
                tow_time_sleep(10 * TOW_TIME_MS);
            }
            return;
        }
        struct tows_pending_conn *conn = tows_pending_conn_create(fd, listener->kind, peer);
        if (conn != NULL) {
            tows_login_meet(&server->login, conn);
            admit_conn(server, conn);
        }
    }
}

/* Each connection whose words are known gets its answer, or is led on. */
static void listener_answer(struct tows_server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        tows_login_guard(&server->login, &server->door, conn, server->owner);
        if (conn->state == TOW_CONN_ASKED) {
            tows_answer(server, conn);
        } else if (conn->state == TOW_CONN_LANE) {
            /* The worker looks at its key. */
            tows_worker_pool_lane(pool, conn->session, conn->fd, conn->kind, &conn->origin);
            conn->state = TOW_CONN_GONE;
        } else if (conn->state == TOW_CONN_PROOF) {
            tows_resume_take(&server->login, pool, conn, server->owner);
        } else if (conn->state == TOW_CONN_GRANTED) {
            tows_shaker_lead(pool, conn);
        }
    }
    tows_shaker_meet(&server->shaker, &server->config, &server->door);
}

/* ---- news from workers ---- */

static void listener_fail(struct tows_server *server, const char *why)
{
    if (server->config.ready_fd == 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "%s", why);
    }
    tows_listen_tell(&server->config, "failed", why);
    server->failed = true;
    server->stop = true;
}

static void listener_announce(struct tows_server *server)
{
    const struct tows_worker_pool *pool = &server->pool;
    char why[TOW_WHY_MAX];
    if (server->announced || !pool->opened) {
        return;
    }
    server->announced = true;
    if (tows_policy_check_swap(&server->config, pool->backend, why, sizeof why) < 0) {
        listener_fail(server, why);
        return;
    }
    if (strcmp(pool->backend, "cuda") == 0 &&
        tows_gauge_start(&server->gauge, server->config.device) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the GPUs' state cannot be watched");
    }
    if (server->groups_said[0] != '\0') {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "%s", server->groups_said);
    }
    if (tows_server_has_parent(server)) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "clients are heard by process %d, with user %u and no rights; process %d starts "
                "workers",
                (int)getpid(), (unsigned)geteuid(), (int)getppid());
    }
    tows_walls_tell(&server->config, server->owner);
    for (unsigned i = 0; i < server->listener_count; i++) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "listens on %s", server->listeners[i]->address);
    }
    if (server->http != NULL) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "shows itself on http://%s",
                tows_web_host_place(server->http));
    }
    if (pool->pageable) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "the GPU can reach pageable memory (HMM or ATS): kernels of a client can read and "
                "write all memory of their worker; load nvidia-uvm with uvm_disable_hmm=1, unless "
                "you trust whoever may connect");
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "serves %s: %s", pool->backend, pool->description);
    char text[sizeof pool->backend + sizeof pool->description + 8];
    snprintf(text, sizeof text, "%s %s", pool->backend, pool->description);
    tows_listen_tell(&server->config, "ready", text);
    char state[sizeof text + 32];
    snprintf(state, sizeof state, "READY=1\nSTATUS=Serving %s", text);
    tows_systemd_notify(state);
}

static void worker_failed(struct tows_server *server, const char *key)
{
    tows_balance_refuse(server, key);
    /* Sessions of the server before need no other worker. */
    if (server->pool.opened || tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL) > 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a worker could not start: %s",
                server->pool.failure);
        return;
    }
    /* It has never worked: whoever started this server should know now. */
    listener_fail(server, server->pool.failure);
}

/* ---- signals ---- */

static void take_signal(struct tows_server *server, unsigned number)
{
    char key[TOW_WORKER_KEY_MAX];
    switch (number) {
    case SIGTERM:
        tows_server_end(server);
        break;
    case SIGINT:
        server->stop = true;
        break;
    case SIGHUP:
        tows_reload_settings(server);
        break;
    case SIGUSR1:
        /* Batch systems send it to whole jobs; a private server ends with its program. */
        if (server->config.private_dir[0] == '\0') {
            tows_server_drain(server);
        }
        break;
    case SIGUSR2:
        if (server->config.private_dir[0] == '\0') {
            tows_server_leave(server);
        }
        break;
    default:
        while (tows_worker_pool_reap(&server->pool, key) > 0) {
            worker_failed(server, key);
        }
    }
}

static void take_signals(struct tows_server *server)
{
    struct signalfd_siginfo info;
    while (read(server->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        take_signal(server, info.ssi_signo);
    }
    if (tows_server_has_parent(server)) {
        tows_parent_line_hear(&server->line);
        uint32_t signals = tows_parent_line_signals(&server->line);
        for (unsigned number = 1; number < 32; number++) {
            if ((signals >> number & 1) != 0) {
                take_signal(server, number);
            }
        }
        take_signal(server, SIGCHLD); /* it tells of workers, too */
    }
}

/* ---- the loop ---- */

/* Room for all that fill_polls will add. */
static int listener_make_room(struct tows_server *server)
{
    unsigned needed =
        7 + server->listener_count + 2 * tows_worker_pool_size(&server->pool) + server->door.count;
    if (needed <= server->poll_room) {
        return 0;
    }
    unsigned room = needed + needed / 2;
    struct pollfd *polls = realloc(server->polls, room * sizeof *polls);
    server->polls = polls != NULL ? polls : server->polls;
    struct tows_server_source *sources = realloc(server->sources, room * sizeof *sources);
    server->sources = sources != NULL ? sources : server->sources;
    if (polls == NULL || sources == NULL) {
        return -ENOMEM;
    }
    server->poll_room = room;
    return 0;
}

static unsigned add_poll(struct tows_server *server, unsigned count, int fd, short events,
                         struct tows_server_source source)
{
    if (count == server->poll_room || fd < 0) {
        return count;
    }
    server->polls[count] = (struct pollfd){.fd = fd, .events = events};
    server->sources[count] = source;
    return count + 1;
}

static unsigned fill_polls(struct tows_server *server, int *ret_timeout_ms)
{
    unsigned count = add_poll(server, 0, server->signals, POLLIN, (struct tows_server_source){0});
    int64_t wake_ns = TOW_TIME_FOREVER;
    count = add_poll(server, count, server->monitored, POLLIN, (struct tows_server_source){0});
    if (tows_server_has_parent(server)) {
        count = add_poll(server, count, server->line.fd, POLLIN, (struct tows_server_source){0});
    }
    count = add_poll(server, count, tows_gauge_fd(&server->gauge), POLLIN,
                     (struct tows_server_source){0});
    /* Before the connections: what it has comes before what it says of them. */
    int64_t full_ns = tows_shaker_full(&server->shaker, &server->door);
    count = add_poll(server, count, tows_shaker_fd(&server->shaker),
                     full_ns == TOW_TIME_FOREVER ? POLLIN : POLLIN | POLLOUT,
                     (struct tows_server_source){.shaker = true});
    wake_ns = full_ns < wake_ns ? full_ns : wake_ns;
    count = add_poll(server, count, tows_web_host_fd(&server->web), POLLIN,
                     (struct tows_server_source){.web = true});
    count = add_poll(server, count, server->pool.starter.watch, POLLIN,
                     (struct tows_server_source){.ended = true});
    for (struct tows_worker *worker = server->pool.workers; worker != NULL; worker = worker->next) {
        count = add_poll(server, count, worker->control, POLLIN,
                         (struct tows_server_source){.worker = worker});
        count = add_poll(server, count, worker->refused, POLLIN,
                         (struct tows_server_source){.refused = worker});
    }
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        count = add_poll(server, count, conn->fd, tows_pending_conn_events(conn),
                         (struct tows_server_source){.conn = conn});
        int64_t moment = conn->held_ns != 0                               ? conn->held_ns
                         : conn->partial && tows_pending_conn_reads(conn) ? conn->look_ns
                         : conn->state == TOW_CONN_ASKED                  ? conn->until_ns
                                                                          : conn->deadline_ns;
        wake_ns = moment < wake_ns ? moment : wake_ns;
    }
    /* Behind the connections: whoever is accepted may take the place of one of them. */
    for (unsigned i = 0; i < server->listener_count; i++) {
        count = add_poll(server, count, server->listeners[i]->fd, POLLIN,
                         (struct tows_server_source){.listener = server->listeners[i]});
    }
    if (server->pool.workers != NULL) {
        int64_t moment = server->tick_ns < server->look_ns ? server->tick_ns : server->look_ns;
        wake_ns = moment < wake_ns ? moment : wake_ns;
    }
    if (tows_gates_next(&server->pool) < wake_ns) {
        wake_ns = tows_gates_next(&server->pool);
    }
    if (tows_swap_next(&server->pool) < wake_ns) {
        wake_ns = tows_swap_next(&server->pool);
    }
    if (server->ending_ns != 0 && server->ending_ns < wake_ns) {
        wake_ns = server->ending_ns;
    }
    if (server->watchdog_every_ns != 0 && server->watchdog_ns < wake_ns) {
        wake_ns = server->watchdog_ns;
    }
    if (tows_web_host_moment(&server->web) < wake_ns) {
        wake_ns = tows_web_host_moment(&server->web);
    }
    if (server->pool.retry_ns != 0 && server->pool.retry_ns < wake_ns) {
        wake_ns = server->pool.retry_ns;
    }
    if (server->config.watch_pid != 0 && server->monitored < 0) {
        int64_t moment = tow_time_deadline(MONITOR_MS * TOW_TIME_MS);
        wake_ns = moment < wake_ns ? moment : wake_ns;
    }
    if (tows_server_has_parent(server) && tows_parent_line_has_news(&server->line)) {
        wake_ns = tow_time_now_ns(); /* heard while something was asked */
    }
    int64_t left = tow_time_left(wake_ns);
    *ret_timeout_ms = left == TOW_TIME_FOREVER   ? -1
                      : left > 3600 * TOW_TIME_S ? 3600 * 1000
                                                 : (int)((left + TOW_TIME_MS - 1) / TOW_TIME_MS);
    return count;
}

/* The program whose private server this is has ended. */
static bool monitored_has_ended(struct tows_server *server)
{
    if (server->config.watch_pid == 0) {
        return false;
    }
    if (server->monitored >= 0) {
        struct pollfd monitored = {.fd = server->monitored, .events = POLLIN};
        return poll(&monitored, 1, 0) == 1;
    }
    return kill((pid_t)server->config.watch_pid, 0) != 0 && errno == ESRCH;
}

/* What is looked after every second. */
static void listener_tick(struct tows_server *server)
{
    if (server->watchdog_every_ns != 0 && tow_time_passed(server->watchdog_ns)) {
        server->watchdog_ns = tow_time_deadline(server->watchdog_every_ns);
        tows_systemd_notify("WATCHDOG=1");
    }
    if (!tow_time_passed(server->tick_ns)) {
        return;
    }
    server->tick_ns = tow_time_deadline(TOW_TIME_S);
    tows_login_refresh(&server->login);
    if (server->login.changed) {
        tows_reload_look_again(server);
    }
    tows_worker_pool_give_lines(&server->pool);
    tows_watchdog_look(&server->pool);
    tows_worker_pool_press(&server->pool);
    if (!server->stop && tows_mps_has_ended()) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR,
                "NVIDIA's MPS daemon has ended, and no program can use the GPU: the server ends; "
                "start it again");
        server->stop = server->failed = true;
    }
    tow_log_flush(false);
}

static void hear_web(struct tows_server *server)
{
    struct tows_pending_conn *conn;
    for (int i = 0; i < 64 && (conn = tows_web_host_take(&server->web)) != NULL; i++) {
        admit_conn(server, conn);
    }
}

void tows_listener_run(struct tows_server *server)
{
    while (!server->stop) {
        listener_tick(server);
        tows_web_host_tend(&server->web, &server->config);
        if (tow_time_passed(server->look_ns)) {
            tows_server_look(server);
        }
        listener_answer(server);
        tows_balance(server);
        tows_gates_drive(&server->pool);
        struct tows_swap_card card =
            tows_queue_card(&server->queue, &server->config, &server->pool);
        tows_swap_drive(&server->pool, &card);
        tows_door_sweep(&server->door);
        if (listener_make_room(server) < 0) {
            /* Whoever does not fit is looked at when memory is to be had again. */
            tows_door_make_room(&server->door);
        }
        int timeout_ms;
        unsigned count = fill_polls(server, &timeout_ms);
        int ready = poll(server->polls, count, timeout_ms);
        if (ready < 0 && errno == ENOMEM) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "poll: %s; trying again", strerror(errno));
            tow_time_sleep(MEMORY_PAUSE_NS);
        } else if (ready < 0 && errno != EINTR) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "poll: %s", strerror(errno));
            server->failed = true;
            return;
        }
        /* Signals come last: reaping frees workers that are in the list. */
        bool ended = false;
        for (unsigned i = 1; i < count; i++) {
            short events = ready > 0 ? server->polls[i].revents : 0;
            const struct tows_server_source *source = &server->sources[i];
            if (source->conn != NULL) {
                tows_pending_conn_step(source->conn, events);
            } else if (source->shaker && (events != 0 || server->shaker.starting)) {
                tows_shaker_hear(&server->shaker);
            } else if (events != 0 && source->ended) {
                ended = true;
            } else if (events != 0 && source->web) {
                hear_web(server);
            } else if (events != 0 && source->worker != NULL) {
                if (tows_worker_pool_hear(&server->pool, source->worker) > 0) {
                    worker_failed(server, source->worker->key);
                }
            } else if (events != 0 && source->refused != NULL) {
                tows_refusals_hear(&server->pool, source->refused);
            } else if (events != 0 && source->listener != NULL) {
                accept_all(server, source->listener);
            }
        }
        tows_gauge_hear(&server->gauge);
        take_signals(server);
        if (ended) {
            take_signal(server, SIGCHLD);
        }
        listener_announce(server);
        if (monitored_has_ended(server) || (server->draining && tows_server_is_dry(server)) ||
            (server->ending_ns != 0 && tow_time_passed(server->ending_ns))) {
            server->stop = true;
        }
    }
}
