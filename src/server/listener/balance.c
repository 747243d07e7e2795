/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets which worker: whose turn it is, and how many workers start. */
#include "server/listener/balance.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/listener/status.h"
#include "server/door/pending_conn.h"
#include "server/login/policy.h"
#include "server/pool/usage.h"
#include "wire/control.h"

/* Who has a part of a GPU's processors needs a worker of that part. */
static void balance_cap(const struct tows_server *server, struct tows_pending_conn *conn)
{
    struct tows_limits limits = tows_queue_limits(&server->config, &server->login.policy, conn);
    size_t used = strlen(conn->key);
    if (limits.compute != 0 && strstr(conn->key, TOW_PENDING_CONN_PERCENT) == NULL) {
        char line[sizeof TOW_PENDING_CONN_PERCENT + 16], rest[sizeof conn->key];
        int length = snprintf(line, sizeof line, TOW_PENDING_CONN_PERCENT "%u\n", limits.compute);
        if (used + (size_t)length < sizeof conn->key) {
            memcpy(rest, conn->key, used + 1); /* a slot stands at the end */
            memcpy(conn->key, line, (size_t)length);
            memcpy(conn->key + length, rest, used + 1);
        }
    }
}

/* Looks at who waits: all of them know whether they may have a worker, when it has ended. */
static void balance_sort_out(struct tows_server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        if (conn->state != TOW_CONN_PROGRAM) {
            continue;
        }
        if (strcmp(pool->backend, "soft") == 0 && strncmp(conn->key, "slot=", 5) != 0 &&
            strncmp(conn->key, TOW_PENDING_CONN_PERCENT, sizeof TOW_PENDING_CONN_PERCENT - 1) !=
                0) {
            /* No variable of the driver means anything to the software GPU: any worker will do. */
            char *slot = strstr(conn->key, "\nslot=");
            memmove(conn->key, slot == NULL ? "" : slot + 1,
                    slot == NULL ? 1 : strlen(slot + 1) + 1);
        }
        if (server->config.scheduler == TOW_CONFIG_MPS) {
            balance_cap(server, conn);
        }
        if (server->draining) {
            tows_pending_conn_refuse(
                conn, TOW_REFUSE_FAILED,
                server->ending_ns != 0
                    ? "the server is being shut down: it serves no new programs; name another "
                      "server"
                    : "the server is being drained: it serves no new programs and ends "
                      "with its last session; name another server");
        }
    }
    tows_queue_decide(&server->queue, &server->config, &server->login.policy, pool, &server->door);
}

/* Whose turn it is: a program of the peer that has fewest sessions, then of the one that was served
 * longest ago, then the one that came first. */
static bool balance_comes_before(const struct tows_pending_conn *one,
                                 const struct tows_pending_conn *other)
{
    const struct tows_caller *a = one->caller, *b = other->caller;
    return a->sessions != b->sessions ? a->sessions < b->sessions : a->served_ns < b->served_ns;
}

/* Gives a program a worker: the connection itself, or over TLS what leads to it. */
static int balance_hand_over(struct tows_server *server, struct tows_worker *worker,
                             struct tows_pending_conn *conn)
{
    struct tows_worker_pool *pool = &server->pool;
    worker->waited_ns = tow_time_now_ns() - conn->came_ns;
    worker->limits = tows_queue_limits(&server->config, &server->login.policy, conn);
    memcpy(worker->left, conn->login_left, sizeof worker->left);
    if (conn->bound) {
        return tows_shaker_grant(pool, worker, conn);
    }
    int error = tows_worker_pool_assign(pool, worker, conn->fd, conn->kind, conn->peer, &conn->who,
                                        &conn->origin);
    conn->state = error < 0 ? conn->state : TOW_CONN_GONE;
    return error;
}

/* Whoever waits gets a worker that is ready for it. */
static void balance_assign(struct tows_server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    while (tows_worker_pool_count(pool, TOW_WORKER_IDLE, NULL) > 0) {
        struct tows_pending_conn *next = NULL;
        for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
            if (conn->state == TOW_CONN_PROGRAM && conn->admitted &&
                (next == NULL || balance_comes_before(conn, next)) &&
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
        } else if (balance_hand_over(server, worker, next) == 0) {
            tows_usage_allow_threads(pool);
            next->caller->served_ns = tow_time_now_ns();
            next->caller->sessions++;
        }
    }
}

void tows_balance_refuse(struct tows_server *server, const char *key)
{
    char sentence[TOW_SENTENCE_MAX];
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        if (conn->state == TOW_CONN_PROGRAM && strcmp(conn->key, key) == 0) {
            /* As in a report: it names paths of this machine. */
            snprintf(sentence, sizeof sentence, "the server could not start a worker: %s",
                     tows_server_is_ruled_by(server, &conn->who) ? server->pool.failure
                                                                 : TOW_STATUS_FAILURE_HIDDEN);
            tows_pending_conn_refuse(conn, TOW_REFUSE_FAILED, sentence);
        }
    }
}

/* Workers for those who still wait: however many ask, only so many start at once, half of them for
 * one peer, so that each is soon ready and nobody waits for all of another's. */
static void balance_start(struct tows_server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    uint64_t most = server->config.max_sessions + server->config.idle_workers;
    unsigned starting = tows_worker_pool_count(pool, TOW_WORKER_STARTING, NULL);
    for (struct tows_pending_conn *conn = server->door.conns; conn != NULL; conn = conn->next) {
        if (conn->state != TOW_CONN_PROGRAM || !conn->admitted) {
            continue;
        }
        if (starting >= server->starts || tows_worker_pool_size(pool) >= most) {
            return;
        }
        if (tows_worker_pool_count(pool, TOW_WORKER_STARTING, conn->key) >=
                tows_server_count_waiting(server, conn->key, false) ||
            tows_worker_pool_count_for(pool, TOW_WORKER_STARTING, &conn->who) >=
                server->starts / 2) {
            continue;
        }
        int error = tows_worker_pool_start(pool, conn->key, &conn->who);
        if (error < 0) {
            snprintf(pool->failure, sizeof pool->failure, "%s", strerror(-error));
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a worker cannot be started: %s", pool->failure);
            tows_balance_refuse(server, conn->key);
        } else {
            starting++;
        }
    }
}

/* Workers for programs to come. */
static void balance_start_ahead(struct tows_server *server)
{
    struct tows_worker_pool *pool = &server->pool;
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
}

/* Workers that were started for programs that wait no longer. */
static void balance_end_unneeded(struct tows_server *server)
{
    struct tows_worker_pool *pool = &server->pool;
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if ((worker->state == TOW_WORKER_IDLE || worker->state == TOW_WORKER_STARTING) &&
            worker->key[0] != '\0' && tows_server_count_waiting(server, worker->key, true) == 0) {
            tows_worker_pool_end(pool, worker);
        }
    }
}

void tows_balance(struct tows_server *server)
{
    if (tows_server_count_waiting(server, NULL, true) > 0) {
        balance_sort_out(server);
        balance_assign(server);
        balance_start(server);
    }
    balance_start_ahead(server);
    balance_end_unneeded(server);
}
