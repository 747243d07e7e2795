/* SPDX-License-Identifier: Apache-2.0 */
/* The listener's loop: sockets, signals, connections, workers. */
#include "server/daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
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
#include "server/pool/watchdog.h"
#include "server/pool/worker_pool.h"
#include "server/door/door.h"
#include "server/door/pending_conn.h"
#include "server/daemon/listen.h"
#include "server/daemon/logging.h"
#include "server/daemon/login.h"
#include "server/daemon/settings.h"
#include "server/daemon/shaker.h"
#include "server/daemon/split.h"
#include "server/daemon/status.h"
#include "server/daemon/systemd.h"
#include "server/walls/devices.h"
#include "server/walls/walls.h"
#include "wire/control.h"

#define MEMORY_PAUSE_NS (100 * TOW_TIME_MS)

enum {
    STATUS_MAX = 1 << 20,
    NUMBERS_MS = 200, /* how long a report may wait for new numbers of the GPUs */
    LOOK_MS = 100,    /* how often sessions that grow are looked at */
    STARTS_MIN = 4,   /* workers that may start at once; more where there are more cores */
    MONITOR_MS = 500, /* how often a monitored process is asked for where there are no pidfds */
};

/* Whose event a poll entry is. */
struct source {
    struct tow_listener *listener;  /* borrowed */
    struct tows_worker *worker;     /* borrowed: its control socket */
    struct tows_worker *refused;    /* borrowed: its refused system calls */
    struct tows_pending_conn *conn; /* borrowed */
    bool shaker;                    /* the process with the key */
};

struct server {
    struct tows_config config;
    struct tows_login login;
    struct tows_parent_line line;                   /* to the parent, if there is one */
    int argc;                                       /* for SIGHUP */
    char **argv;                                    /* borrowed */
    struct tow_listener *listeners[TOW_LISTEN_MAX]; /* owned */
    unsigned listener_count;
    struct tows_worker_pool pool;
    char groups_said[512]; /* of its control groups; "": nothing */
    struct tows_door door;
    unsigned round;  /* of listener_balance */
    unsigned starts; /* how many workers may start at once */
    uid_t owner;     /* who runs this server */
    struct tows_gauge gauge;
    struct tows_shaker shaker; /* where an address is of TLS */
    int signals;               /* owned: a signalfd */
    int monitored;             /* owned: a pidfd; -1: none */
    bool announced;            /* READY was said */
    bool failed;               /* the first worker could not start: end with an error */
    bool stop;
    bool draining;     /* no new sessions; ends with the last */
    int64_t ending_ns; /* was told to end: when the sessions that are left end; 0: was not */
    int64_t started_ns;
    int64_t watchdog_every_ns; /* how often systemd is to hear that the loop runs; 0: never */
    int64_t watchdog_ns;       /* when it hears that again */
    int64_t tick_ns;           /* when listener_tick has something to do again */
    int64_t look_ns;           /* when sessions are looked at again */
    int64_t looked_ns;         /* when they were */
    struct pollfd *polls;      /* owned, as are the sources */
    struct source *sources;
    unsigned poll_room;
};

static bool has_parent(const struct server *server)
{
    return server->pool.starter.line != NULL;
}

/* ---- connections ---- */

static void accept_all(struct server *server, struct tow_listener *listener)
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
            uint64_t places = server->config.places > 0 ? server->config.places : 1;
            if (tows_door_admit(&server->door, conn, places, server->config.places_per_peer) == 0) {
                tows_door_pace(conn, server->config.connections_per_second);
            }
        }
    }
}

static unsigned count_waiting(const struct server *server, const char *key)
{
    unsigned count = 0;
    for (const struct tows_pending_conn *conn = server->door.conns; conn != NULL;
         conn = conn->next) {
        count += conn->state == TOW_CONN_PROGRAM && (key == NULL || strcmp(conn->key, key) == 0);
    }
    return count;
}

/* A report waits, for a moment, for numbers that were taken after the question. */
static bool has_numbers(struct server *server, struct tows_pending_conn *conn)
{
    if (conn->at_hand || conn->present) {
        return true;
    }
    if (conn->ticket == 0) {
        conn->ticket = tows_gauge_ask(&server->gauge);
        conn->until_ns = tow_time_deadline(NUMBERS_MS * TOW_TIME_MS);
    }
    return conn->ticket == 0 || tows_gauge_has(&server->gauge, conn->ticket) ||
           tow_time_passed(conn->until_ns);
}

static void listener_drain(struct server *server);

static bool listener_is_ruled_by(const struct server *server, const struct tows_who *who)
{
    return tows_allow_rules(&server->login.allow, who, server->owner);
}

/* Ends a session for whoever may. Nobody learns which numbers others have. */
static void order_end(struct server *server, struct tows_pending_conn *conn)
{
    struct tows_worker *worker = tows_worker_pool_find(&server->pool, conn->session);
    char text[TOW_WHO_TEXT_MAX], sentence[160];
    if (!tows_who_is_user(&conn->who)) {
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN,
                                 "sessions are ended on its machine, through its unix socket; run "
                                 "towline end there");
        return;
    }
    if (worker == NULL || (!listener_is_ruled_by(server, &conn->who) &&
                           !tows_who_may_end(&conn->who, &worker->who, server->owner))) {
        snprintf(sentence, sizeof sentence,
                 "you have no session %llu; towline status shows those that you may end",
                 (unsigned long long)conn->session);
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN, sentence);
        return;
    }
    snprintf(sentence, sizeof sentence, "%s asked for it (towline end)",
             tows_who_text(&conn->who, text));
    tows_worker_pool_dismiss(&server->pool, worker, sentence);
    int length =
        snprintf(sentence, sizeof sentence, "{\"end\":%llu}", (unsigned long long)conn->session);
    tows_pending_conn_report(conn, sentence, (size_t)length);
}

static void order_drain(struct server *server, struct tows_pending_conn *conn)
{
    char text[64];
    if (!listener_is_ruled_by(server, &conn->who)) {
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN,
                                 "only root, the user who runs the server and its admin-users may "
                                 "drain it, on its machine and through its unix socket");
        return;
    }
    listener_drain(server);
    int length = snprintf(text, sizeof text, "{\"drain\":%u}",
                          tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL));
    tows_pending_conn_report(conn, text, (size_t)length);
}

static void take_order(struct server *server, struct tows_pending_conn *conn)
{
    if ((conn->orders & TOW_STATUS_END) != 0) {
        order_end(server, conn);
    } else {
        order_drain(server, conn);
    }
}

/* What sessions hold is looked at every second, and more often while some grow. */
static void listener_look(struct server *server)
{
    bool grows = tows_usage_look(&server->pool);
    server->looked_ns = tow_time_now_ns();
    server->look_ns = tow_time_deadline(grows ? LOOK_MS * TOW_TIME_MS : TOW_TIME_S);
}

static void answer_status(struct server *server, struct tows_pending_conn *conn)
{
    if (conn->present) {
        tows_pending_conn_report(conn, "{}", 2);
        return;
    }
    if (tow_time_now_ns() - server->looked_ns > LOOK_MS * TOW_TIME_MS) {
        listener_look(server); /* and not for each of many who ask */
    }
    struct tows_status_source source = {
        .pool = &server->pool,
        .gauge = &server->gauge,
        .config = &server->config,
        .listeners = server->listeners,
        .listener_count = server->listener_count,
        .waiting = count_waiting(server, NULL),
        .who = conn->who,
        .rate = tows_door_rate(conn->caller, server->config.connections_per_second),
        .class = tows_policy_find(&server->login.policy, conn->who.class),
        .places = server->door.count,
        .own_places = conn->caller->places,
        .draining = server->draining,
        .pid = has_parent(server) ? getppid() : getpid(),
        .all = listener_is_ruled_by(server, &conn->who),
        .started_ns = server->started_ns,
    };
    struct tow_buf json;
    tow_buf_init(&json, STATUS_MAX);
    if (tows_status_write(&source, &json) == 0) {
        tows_pending_conn_report(conn, (const char *)json.data, json.size);
    } else {
        tows_pending_conn_refuse(conn, TOW_REFUSE_FAILED, "the report does not fit into a frame");
    }
    tow_buf_fini(&json);
}

/* A program that this server has no session left for is told so, and so is one whose peer has all
 * places that may be used for waiting: there is room for whoever says its first words. False: it
 * may wait. */
static bool listener_turns_away(struct server *server, struct tows_pending_conn *conn,
                                unsigned busy, unsigned waiting)
{
    const struct tows_policy_class *class =
        tows_policy_find(&server->login.policy, conn->who.class);
    const struct tows_caller *caller = conn->caller;
    struct tows_policy_load load = {
        .sessions = busy,
        .of_peer = caller->sessions,
        .of_class = class == NULL ? 0 : tows_worker_pool_count_class(&server->pool, class->name),
        .waiting = waiting,
        .waiting_of_peer = caller->waiting,
    };
    char sentence[TOW_POLICY_WHY_MAX];
    if (tows_policy_lets_start(&server->config, class, &conn->who, &load, sentence)) {
        return false;
    }
    tows_pending_conn_refuse(conn, TOW_REFUSE_BUSY, sentence);
    return true;
}

/* Looks at who waits: all of them know how many sessions their peers have, when it has ended. */
static void listener_sort_out(struct server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    unsigned busy = tows_worker_pool_count(pool, TOW_WORKER_BUSY, NULL), waiting = 0;
    server->round++;
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        struct tows_caller *caller = conn->caller;
        if (conn->state != TOW_CONN_PROGRAM) {
            continue;
        }
        if (caller->round != server->round) {
            caller->round = server->round;
            caller->sessions = tows_worker_pool_count_for(pool, TOW_WORKER_BUSY, &caller->who);
            caller->waiting = 0;
        }
        if (strcmp(pool->backend, "soft") == 0 && strncmp(conn->key, "slot=", 5) != 0) {
            /* No variable of the driver means anything to the software GPU: any worker will do. */
            char *slot = strstr(conn->key, "\nslot=");
            memmove(conn->key, slot == NULL ? "" : slot + 1,
                    slot == NULL ? 1 : strlen(slot + 1) + 1);
        }
        if (server->draining) {
            tows_pending_conn_refuse(
                conn, TOW_REFUSE_FAILED,
                server->ending_ns != 0
                    ? "the server is being shut down: it serves no new programs; name another "
                      "server"
                    : "the server is being drained: it serves no new programs and ends "
                      "with its last session; name another server");
            continue;
        }
        caller->waiting++;
        waiting++;
        if (listener_turns_away(server, conn, busy, waiting)) {
            caller->waiting--;
            waiting--;
        }
    }
}

/* Whose turn it is: a program of the peer that has fewest sessions, then of the one that was served
 * longest ago, then the one that came first. */
static bool comes_before(const struct tows_pending_conn *one, const struct tows_pending_conn *other)
{
    const struct tows_caller *a = one->caller, *b = other->caller;
    return a->sessions != b->sessions ? a->sessions < b->sessions : a->served_ns < b->served_ns;
}

/* Gives a program a worker: the connection itself, or over TLS what leads to it. */
static int hand_over(struct server *server, struct tows_worker *worker,
                     struct tows_pending_conn *conn)
{
    struct tows_worker_pool *pool = &server->pool;
    worker->limits = tows_policy_limits(&server->config,
                                        tows_policy_find(&server->login.policy, conn->who.class),
                                        conn->gpu_memory);
    if (conn->bound) {
        return tows_shaker_grant(pool, worker, conn);
    }
    int error = tows_worker_pool_assign(pool, worker, conn->fd, conn->kind, conn->peer, &conn->who,
                                        &conn->origin);
    conn->state = error < 0 ? conn->state : TOW_CONN_GONE;
    return error;
}

/* Whoever waits gets a worker that is ready for it. */
static void listener_assign(struct server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    unsigned busy = tows_worker_pool_count(pool, TOW_WORKER_BUSY, NULL);
    while (tows_worker_pool_count(pool, TOW_WORKER_IDLE, NULL) > 0) {
        struct tows_pending_conn *next = NULL;
        for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
            if (conn->state == TOW_CONN_PROGRAM && (next == NULL || comes_before(conn, next)) &&
                tows_worker_pool_idle(pool, conn->key) != NULL) {
                next = conn;
            }
        }
        if (next == NULL) {
            return;
        }
        struct tows_worker *worker = tows_worker_pool_idle(pool, next->key);
        if (tows_pending_conn_has_gone(next)) {
            next->state = TOW_CONN_GONE;
        } else if (!listener_turns_away(server, next, busy, 0) &&
                   hand_over(server, worker, next) == 0) {
            tows_usage_allow_threads(pool);
            next->caller->served_ns = tow_time_now_ns();
            next->caller->sessions++;
            busy++;
        }
    }
}

static void refuse_waiting(struct server *server, const char *key)
{
    char sentence[TOW_SENTENCE_MAX];
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        if (conn->state == TOW_CONN_PROGRAM && strcmp(conn->key, key) == 0) {
            /* As in a report: it names paths of this machine. */
            snprintf(sentence, sizeof sentence, "the server could not start a worker: %s",
                     listener_is_ruled_by(server, &conn->who) ? server->pool.failure
                                                              : TOW_STATUS_FAILURE_HIDDEN);
            tows_pending_conn_refuse(conn, TOW_REFUSE_FAILED, sentence);
        }
    }
}

/* Workers for those who still wait: however many ask, only so many start at once, half of them for
 * one peer, so that each is soon ready and nobody waits for all of another's. */
static void listener_start(struct server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    uint64_t most = server->config.max_sessions + server->config.idle_workers;
    unsigned starting = tows_worker_pool_count(pool, TOW_WORKER_STARTING, NULL);
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        if (conn->state != TOW_CONN_PROGRAM) {
            continue;
        }
        if (starting >= server->starts || tows_worker_pool_size(pool) >= most) {
            return;
        }
        if (tows_worker_pool_count(pool, TOW_WORKER_STARTING, conn->key) >=
                count_waiting(server, conn->key) ||
            tows_worker_pool_count_for(pool, TOW_WORKER_STARTING, &conn->who) >=
                server->starts / 2) {
            continue;
        }
        int error = tows_worker_pool_start(pool, conn->key, &conn->who);
        if (error < 0) {
            snprintf(pool->failure, sizeof pool->failure, "%s", strerror(-error));
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a worker cannot be started: %s", pool->failure);
            refuse_waiting(server, conn->key);
        } else {
            starting++;
        }
    }
}

/* Whoever waits gets a worker; workers are started for the others and ahead; what nobody needs is
 * ended. */
static void listener_balance(struct server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        tows_login_guard(&server->login, &server->door, conn, server->owner);
        if (conn->state == TOW_CONN_ASKED && conn->orders != 0) {
            take_order(server, conn);
        } else if (conn->state == TOW_CONN_ASKED) {
            if (has_numbers(server, conn)) {
                answer_status(server, conn);
            }
        } else if (conn->state == TOW_CONN_LANE) {
            /* The worker looks at its key. */
            tows_worker_pool_lane(pool, conn->session, conn->fd, conn->kind, &conn->origin);
            conn->state = TOW_CONN_GONE;
        } else if (conn->state == TOW_CONN_SHAKE || conn->state == TOW_CONN_GRANTED) {
            tows_shaker_meet(&server->shaker, &server->config, pool, conn);
        }
    }
    if (count_waiting(server, NULL) > 0) {
        listener_sort_out(server);
        listener_assign(server);
        listener_start(server);
    }
    /* One worker at least is tried at the start: it tells which GPUs there are. */
    uint64_t ahead = server->draining ? 0 : server->config.idle_workers;
    if (ahead == 0 && !pool->opened) {
        ahead = 1;
    }
    unsigned have = tows_worker_pool_count(pool, TOW_WORKER_STARTING, "") +
                    tows_worker_pool_count(pool, TOW_WORKER_IDLE, "");
    while (have < ahead && tow_time_now_ns() >= pool->retry_ns) {
        int error = tows_worker_pool_start(pool, "", NULL);
        if (error < 0) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a worker cannot be started: %s",
                    strerror(-error));
            pool->retry_ns = tow_time_deadline(5 * TOW_TIME_S);
            break;
        }
        have++;
    }
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if ((worker->state == TOW_WORKER_IDLE || worker->state == TOW_WORKER_STARTING) &&
            worker->key[0] != '\0' && count_waiting(server, worker->key) == 0) {
            tows_worker_pool_end(pool, worker);
        }
    }
}

/* ---- news from workers ---- */

static void listener_announce(struct server *server)
{
    const struct tows_worker_pool *pool = &server->pool;
    if (server->announced || !pool->opened) {
        return;
    }
    server->announced = true;
    if (strcmp(pool->backend, "cuda") == 0 &&
        tows_gauge_start(&server->gauge, server->config.device) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the GPUs' state cannot be watched");
    }
    if (server->groups_said[0] != '\0') {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "%s", server->groups_said);
    }
    if (has_parent(server)) {
        tows_split_tell();
    }
    tows_walls_tell(&server->config, server->owner);
    for (unsigned i = 0; i < server->listener_count; i++) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "listens on %s", server->listeners[i]->address);
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

static void worker_failed(struct server *server, const char *key)
{
    refuse_waiting(server, key);
    if (server->pool.opened) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a worker could not start: %s",
                server->pool.failure);
        return;
    }
    /* It has never worked: whoever started this server should know now. */
    if (server->config.ready_fd == 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "%s", server->pool.failure);
    }
    tows_listen_tell(&server->config, "failed", server->pool.failure);
    server->failed = true;
    server->stop = true;
}

/* ---- signals ---- */

/* Who may has changed: those who wait are asked once more, and programs whose tokens were revoked
 * end. */
static void listener_look_again(struct server *server)
{
    server->login.changed = false;
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        conn->allowed = false;
    }
    struct tows_worker *worker = server->login.broken ? NULL : server->pool.workers;
    for (; worker != NULL; worker = worker->next) {
        if (worker->state == TOW_WORKER_BUSY && worker->end_ns == 0 &&
            !tows_login_knows(&server->login, &worker->who)) {
            tows_worker_pool_dismiss(&server->pool, worker, "its token was revoked");
        }
    }
}

/* Nothing takes effect before all was understood: what is read last changes nothing if it fails. */
static void listener_reload(struct server *server)
{
    struct tows_config config;
    struct tows_shaker shaker = {.starter = &server->pool.starter};
    char why[TOW_WHY_MAX];
    int folder;
    tows_systemd_notify("RELOADING=1");
    int error = tows_settings_read(server->login.line, server->argc, server->argv, &config, &folder,
                                   why, sizeof why);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the settings stay as they were: %s", why);
    } else if (tows_listen_check(&config, server->listeners, server->listener_count, why,
                                 sizeof why) < 0 ||
               tows_logging_read(&config, why, sizeof why) < 0 ||
               tows_shaker_begin(&shaker, &config, server->listeners, server->listener_count, false,
                                 why, sizeof why) < 0 ||
               tows_login_read(&config, &server->login, why, sizeof why) < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the settings stay as they were: %s", why);
        tows_shaker_stop(&shaker);
        tows_settings_decide(server->login.line, &server->pool.writer, false, folder);
    } else {
        tows_shaker_stop(&server->shaker);
        server->shaker = shaker;
        tows_settings_decide(server->login.line, &server->pool.writer, true, folder);
        if (tows_config_keep(&config, &server->config)) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                    "other addresses, other permissions of sockets, another user and other walls "
                    "need a restart: these stay");
        }
        tows_usage_defaults(&config);
        server->config = config;
        listener_look_again(server);
        tows_logging_apply(&config);
        /* Workers that were started ahead have the old settings. */
        for (struct tows_worker *worker = server->pool.workers; worker != NULL;
             worker = worker->next) {
            if (worker->state != TOW_WORKER_BUSY) {
                tows_worker_pool_end(&server->pool, worker);
            }
        }
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "the settings were read again");
    }
    tows_systemd_notify("READY=1");
}

static void listener_drain(struct server *server)
{
    if (!server->draining) {
        server->draining = true;
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "is being drained: serves no new programs and ends with the last of %u sessions",
                tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL));
        tows_systemd_notify("STATUS=Being drained");
    }
}

/* SIGTERM: programs that end soon may; the second time, or where nobody waits, it ends at once. */
static void listener_end(struct server *server)
{
    uint64_t grace = server->config.private_dir[0] == '\0' ? server->config.grace : 0;
    unsigned busy = tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL);
    if (server->ending_ns != 0 || grace == 0 || busy == 0) {
        server->stop = true;
        return;
    }
    server->draining = true;
    server->ending_ns = tow_time_deadline((int64_t)grace * TOW_TIME_S);
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
            "is being shut down: serves no new programs, and ends what is left of %u sessions in "
            "%llu s",
            busy, (unsigned long long)grace);
    tows_systemd_notify("STOPPING=1\nSTATUS=Being shut down");
}

/* Whether all sessions have ended, and all refusals are out. */
static bool listener_is_dry(const struct server *server)
{
    for (const struct tows_pending_conn *conn = server->door.conns; conn != NULL;
         conn = conn->next) {
        if (conn->state == TOW_CONN_PROGRAM || conn->state == TOW_CONN_ANSWERED) {
            return false;
        }
    }
    return tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL) == 0;
}

static void take_signal(struct server *server, unsigned number)
{
    char key[TOW_WORKER_KEY_MAX];
    switch (number) {
    case SIGTERM:
        listener_end(server);
        break;
    case SIGINT:
        server->stop = true;
        break;
    case SIGHUP:
        listener_reload(server);
        break;
    case SIGUSR1:
        /* Batch systems send it to whole jobs; a private server ends with its program. */
        if (server->config.private_dir[0] == '\0') {
            listener_drain(server);
        }
        break;
    default:
        while (tows_worker_pool_reap(&server->pool, key) > 0) {
            worker_failed(server, key);
        }
    }
}

static void take_signals(struct server *server)
{
    struct signalfd_siginfo info;
    while (read(server->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        take_signal(server, info.ssi_signo);
    }
    if (has_parent(server)) {
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

static int open_signals(struct server *server)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return -errno;
    }
    signal(SIGPIPE, SIG_IGN);
    server->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return server->signals < 0 ? -errno : 0;
}

/* ---- the loop ---- */

/* Room for all that fill_polls will add. */
static int listener_make_room(struct server *server)
{
    unsigned needed =
        5 + server->listener_count + 2 * tows_worker_pool_size(&server->pool) + server->door.count;
    if (needed <= server->poll_room) {
        return 0;
    }
    unsigned room = needed + needed / 2;
    struct pollfd *polls = realloc(server->polls, room * sizeof *polls);
    server->polls = polls != NULL ? polls : server->polls;
    struct source *sources = realloc(server->sources, room * sizeof *sources);
    server->sources = sources != NULL ? sources : server->sources;
    if (polls == NULL || sources == NULL) {
        return -ENOMEM;
    }
    server->poll_room = room;
    return 0;
}

static unsigned add_poll(struct server *server, unsigned count, int fd, short events,
                         struct source source)
{
    if (count == server->poll_room || fd < 0) {
        return count;
    }
    server->polls[count] = (struct pollfd){.fd = fd, .events = events};
    server->sources[count] = source;
    return count + 1;
}

static unsigned fill_polls(struct server *server, int *ret_timeout_ms)
{
    unsigned count = add_poll(server, 0, server->signals, POLLIN, (struct source){0});
    int64_t wake_ns = TOW_TIME_FOREVER;
    count = add_poll(server, count, server->monitored, POLLIN, (struct source){0});
    if (has_parent(server)) {
        count = add_poll(server, count, server->line.fd, POLLIN, (struct source){0});
    }
    count = add_poll(server, count, tows_gauge_fd(&server->gauge), POLLIN, (struct source){0});
    /* Before the connections: what it has comes before what it says of them. */
    count = add_poll(server, count, tows_shaker_fd(&server->shaker), POLLIN,
                     (struct source){.shaker = true});
    for (struct tows_worker *worker = server->pool.workers; worker != NULL; worker = worker->next) {
        count = add_poll(server, count, worker->control, POLLIN, (struct source){.worker = worker});
        count =
            add_poll(server, count, worker->refused, POLLIN, (struct source){.refused = worker});
    }
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        count = add_poll(server, count, conn->fd, tows_pending_conn_events(conn),
                         (struct source){.conn = conn});
        int64_t moment = conn->held_ns != 0                               ? conn->held_ns
                         : conn->partial && tows_pending_conn_reads(conn) ? conn->look_ns
                         : conn->state == TOW_CONN_ASKED                  ? conn->until_ns
                                                                          : conn->deadline_ns;
        wake_ns = moment < wake_ns ? moment : wake_ns;
    }
    /* Behind the connections: whoever is accepted may take the place of one of them. */
    for (unsigned i = 0; i < server->listener_count; i++) {
        count = add_poll(server, count, server->listeners[i]->fd, POLLIN,
                         (struct source){.listener = server->listeners[i]});
    }
    if (server->pool.workers != NULL) {
        int64_t moment = server->tick_ns < server->look_ns ? server->tick_ns : server->look_ns;
        wake_ns = moment < wake_ns ? moment : wake_ns;
    }
    if (server->ending_ns != 0 && server->ending_ns < wake_ns) {
        wake_ns = server->ending_ns;
    }
    if (server->watchdog_every_ns != 0 && server->watchdog_ns < wake_ns) {
        wake_ns = server->watchdog_ns;
    }
    if (server->pool.retry_ns != 0 && server->pool.retry_ns < wake_ns) {
        wake_ns = server->pool.retry_ns;
    }
    if (server->config.watch_pid != 0 && server->monitored < 0) {
        int64_t moment = tow_time_deadline(MONITOR_MS * TOW_TIME_MS);
        wake_ns = moment < wake_ns ? moment : wake_ns;
    }
    if (has_parent(server) && tows_parent_line_has_news(&server->line)) {
        wake_ns = tow_time_now_ns(); /* heard while something was asked */
    }
    int64_t left = tow_time_left(wake_ns);
    *ret_timeout_ms = left == TOW_TIME_FOREVER   ? -1
                      : left > 3600 * TOW_TIME_S ? 3600 * 1000
                                                 : (int)((left + TOW_TIME_MS - 1) / TOW_TIME_MS);
    return count;
}

/* The program whose private server this is has ended. */
static bool monitored_has_ended(struct server *server)
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
static void listener_tick(struct server *server)
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
        listener_look_again(server);
    }
    tows_worker_pool_give_lines(&server->pool);
    tows_watchdog_look(&server->pool);
    tows_worker_pool_press(&server->pool);
    tow_log_flush(false);
}

static void listener_run(struct server *server)
{
    while (!server->stop) {
        listener_tick(server);
        if (tow_time_passed(server->look_ns)) {
            listener_look(server);
        }
        listener_balance(server);
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
        for (unsigned i = 1; i < count; i++) {
            short events = ready > 0 ? server->polls[i].revents : 0;
            const struct source *source = &server->sources[i];
            if (source->conn != NULL) {
                tows_pending_conn_step(source->conn, events);
            } else if (source->shaker && (events != 0 || server->shaker.starting)) {
                tows_shaker_hear(&server->shaker);
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
        listener_announce(server);
        if (monitored_has_ended(server) || (server->draining && listener_is_dry(server)) ||
            (server->ending_ns != 0 && tow_time_passed(server->ending_ns))) {
            server->stop = true;
        }
    }
}

/* What needs rights: the server's sockets, the groups of workers. Then it is split, where it can
 * be. 1: this was the parent, and all is over, with the program's exit code. */
static int server_begin(struct server *server, int *ret_code, char *why, size_t why_size)
{
    static struct tows_parent parent;
    struct tows_config *config = &server->config;
    struct tows_cgroups groups = {.on = false};
    struct tows_split split = {.on = false};
    int line = -1, folder = -1;
    int error = tows_split_choose(config, &split, why, why_size);
    if (error == 0) {
        tows_walls_choose_users(config);
        tows_cgroups_open(&groups, config, server->groups_said, sizeof server->groups_said);
        error = tows_listen_start(config, server->listeners, &server->listener_count);
    }
    error = error < 0 ? error
                      : tows_listen_check(config, server->listeners, server->listener_count, why,
                                          why_size);
    if (error == 0 && split.on) {
        tows_parent_init(&parent, config, -1);
        parent.starter.groups = groups;
        parent.argc = server->argc;
        parent.argv = server->argv;
        error = tows_split_do(&split, &parent, config, server->listeners, server->listener_count,
                              server->signals, &line, &folder, ret_code, why, why_size);
    }
    if (error > 0) {
        return error;
    }
    tows_worker_pool_init(&server->pool, config);
    if (line < 0) {
        server->pool.starter.groups = groups;
        return error;
    }
    if (groups.on) {
        close(groups.folder); /* the parent's */
    }
    tows_parent_line_init(&server->line, line);
    server->pool.starter.line = server->login.line = &server->line;
    tows_cache_writer_move(&server->pool.writer, folder);
    tows_systemd_relay(&server->line);
    return 0;
}

int tows_listener_main(const struct tows_config *config, int argc, char **argv)
{
    static struct server server;
    char why[TOW_WHY_MAX] = "";
    server.config = *config;
    tows_usage_defaults(&server.config);
    server.argc = argc;
    server.argv = argv;
    server.monitored = -1;
    server.started_ns = tow_time_now_ns();
    server.watchdog_every_ns = tows_systemd_watchdog();
    int error = open_signals(&server);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "signals cannot be received: %s", strerror(-error));
        return 1;
    }
    if (config->watch_pid != 0) {
        server.monitored = (int)syscall(SYS_pidfd_open, (pid_t)config->watch_pid, 0);
    }
    server.owner = geteuid();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    server.starts = cores > STARTS_MIN / 2 ? 2 * (unsigned)cores : STARTS_MIN;
    tows_door_init(&server.door);
    tows_devices_make(config);
    if (config->walls != 0) {
        tows_walls_hide();
    }
    int code = 0;
    error = server_begin(&server, &code, why, sizeof why);
    if (error > 0) {
        return code;
    }
    if (error == 0) {
        server.login.authorities = server.shaker.authorities;
        server.login.owner = server.owner;
        server.shaker.starter = &server.pool.starter;
        error = tows_login_read(&server.config, &server.login, why, sizeof why);
        error = error < 0 ? error
                          : tows_shaker_begin(&server.shaker, &server.config, server.listeners,
                                              server.listener_count, true, why, sizeof why);
    }
    if (error < 0 && why[0] != '\0') {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "%s", why);
    }
    if (error < 0) {
        tows_listen_tell(&server.config, "failed", "it cannot listen");
    } else {
        listener_run(&server);
    }
    tows_systemd_notify("STOPPING=1");
    /* First the sockets, so that nobody new comes; then the sessions. */
    for (unsigned i = 0; i < server.listener_count; i++) {
        tow_listener_close(server.listeners[i]);
    }
    tows_door_fini(&server.door);
    tows_worker_pool_fini(&server.pool, "it is being shut down");
    tows_gauge_stop(&server.gauge);
    tows_shaker_stop(&server.shaker);
    tows_cgroups_close(&server.pool.starter.groups);
    if (config->private_dir[0] != '\0') {
        rmdir(config->private_dir);
    }
    tows_login_fini(&server.login);
    tow_log_flush(true);
    free(server.polls);
    free(server.sources);
    close(server.signals);
    if (server.monitored >= 0) {
        close(server.monitored);
    }
    return error < 0 || server.failed ? 1 : 0;
}
