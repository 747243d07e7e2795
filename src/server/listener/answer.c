/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to connections that want no session: reports, and orders to end or drain. */
#include "server/listener/answer.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/listener/status.h"
#include "server/pool/usage.h"
#include "server/door/pending_conn.h"
#include "wire/control.h"

enum {
    STATUS_MAX = 1 << 20,
    LIMIT_S = 3600,   /* how long what runs may take to end, at most */
    ORDER_S = 600,    /* how long a session's memory may take on its way */
    NUMBERS_MS = 200, /* how long a report may wait for new numbers of the GPUs */
};

/* A report waits, for a moment, for numbers that were taken after the question. */
static bool answer_has_numbers(struct tows_server *server, struct tows_pending_conn *conn)
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

static bool answer_to_ruler(const struct tows_server *server, const struct tows_pending_conn *conn)
{
    return tows_server_is_ruled_by(server, &conn->who) ||
           tows_web_host_is_ruled_by(&server->config, conn);
}

static const char *order_name(const struct tows_pending_conn *conn)
{
    return (conn->orders & TOW_STATUS_END) != 0       ? "end"
           : (conn->orders & TOW_STATUS_SUSPEND) != 0 ? "suspend"
                                                      : "resume";
}

/* The session that an order is for, for whoever may give it; else it is refused. Nobody learns
 * which numbers others have. */
static struct tows_worker *answer_find(struct tows_server *server, struct tows_pending_conn *conn)
{
    struct tows_worker *worker = tows_worker_pool_find(&server->pool, conn->session);
    const char *order = order_name(conn);
    char sentence[200];
    if (!tows_who_is_user(&conn->who)) {
        snprintf(sentence, sizeof sentence,
                 "sessions are %s%s on its machine, through its unix socket; run towline %s there",
                 order, (conn->orders & TOW_STATUS_RESUME) != 0 ? "d" : "ed", order);
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN, sentence);
        return NULL;
    }
    if (worker == NULL || (!answer_to_ruler(server, conn) &&
                           !tows_who_may_end(&conn->who, &worker->who, server->owner))) {
        snprintf(sentence, sizeof sentence,
                 "you have no session %llu; towline status shows those that you may %s",
                 (unsigned long long)conn->session, order);
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN, sentence);
        return NULL;
    }
    return worker;
}

static void answer_done(struct tows_pending_conn *conn)
{
    char text[64];
    int length = snprintf(text, sizeof text, "{\"%s\":%llu}", order_name(conn),
                          (unsigned long long)conn->session);
    tows_pending_conn_report(conn, text, (size_t)length);
}

static void answer_end(struct tows_server *server, struct tows_pending_conn *conn)
{
    struct tows_worker *worker = answer_find(server, conn);
    char text[TOW_WHO_TEXT_MAX], sentence[160];
    if (worker == NULL) {
        return;
    }
    snprintf(sentence, sizeof sentence, "%s asked for it (%s)", tows_who_text(&conn->who, text),
             conn->web ? "http" : "towline end");
    tows_worker_pool_dismiss(&server->pool, worker, sentence);
    answer_done(conn);
}

/* ---- orders that take long ---- */

static void refuse_order(struct tows_pending_conn *conn, const char *why)
{
    char sentence[400];
    snprintf(sentence, sizeof sentence, "session %llu is not %s%s: %s",
             (unsigned long long)conn->session, order_name(conn),
             (conn->orders & TOW_STATUS_RESUME) != 0 ? "d" : "ed", why);
    tows_pending_conn_refuse(conn, TOW_REFUSE_FAILED, sentence);
}

/* Others may have the memory by now. A driver that does not get it ends the session. */
static bool has_room(struct tows_server *server, const struct tows_worker *worker, char *why,
                     size_t size)
{
    uint64_t needs = tows_usage_returns(worker), free = tows_gauge_free(&server->gauge);
    if (needs > free) {
        snprintf(why, size,
                 "it needs %.1f GiB of GPU memory, of which %.1f GiB are free; it stays suspended",
                 (double)needs / (1 << 30), (double)free / (1 << 30));
    }
    return needs <= free;
}

static uint32_t limit_ms(const struct tows_pending_conn *conn)
{
    return conn->limit_ms < LIMIT_S * 1000 ? conn->limit_ms : LIMIT_S * 1000;
}

/* Tells the worker. -EALREADY: refused. */
static int order_begin(struct tows_server *server, struct tows_pending_conn *conn,
                       struct tows_worker *worker)
{
    bool out = (conn->orders & TOW_STATUS_SUSPEND) != 0, away = tows_suspend_is_away(worker);
    char text[TOW_WHO_TEXT_MAX], by[TOW_WHO_TEXT_MAX + 64], why[256];
    bool swapped = away && worker->suspend.swapped;
    int error = -EALREADY;
    snprintf(by, sizeof by, "%s asked for it (towline %s)", tows_who_text(&conn->who, text),
             order_name(conn));
    if (worker->join_ns != 0) {
        refuse_order(conn, "its worker has not answered this server yet; try again");
    } else if (tows_suspend_moves(worker)) {
        refuse_order(conn, "it is being suspended or resumed just now; try again");
    } else if (out && server->config.scheduler == TOW_CONFIG_MPS) {
        refuse_order(conn, "behind NVIDIA's MPS that cannot be done (scheduler = mps)");
    } else if (out && swapped) {
        tows_swap_keep(&server->pool, worker, by);
        answer_done(conn);
    } else if (out == away) {
        refuse_order(conn, out ? "it is suspended already" : "it is not suspended");
    } else if (!out && !swapped &&
               tows_queue_return(&server->queue, &server->config, &server->login.policy,
                                 &server->pool, &server->door, worker, why, sizeof why) < 0) {
        refuse_order(conn, why);
    } else if (out ? !tows_usage_has_room(&server->pool, worker, why, sizeof why)
                   : !worker->limits.swaps && !has_room(server, worker, why, sizeof why)) {
        refuse_order(conn, why);
    } else if (!out && worker->limits.swaps) {
        tows_swap_recall(&server->pool, worker);
        error = 0;
    } else {
        /* Its record first: the next server believes nobody else that he is suspended. */
        worker->suspend.wanted = true;
        tows_meeting_renew(&server->pool, worker);
        error =
            out ? tows_suspend_begin(worker, by, limit_ms(conn)) : tows_suspend_return(worker, by);
        tows_worker_pool_limit(&server->pool, worker);
        worker->suspend.wanted = error == 0 || away;
        tows_meeting_renew(&server->pool, worker); /* it says who asked */
        if (error < 0) {
            refuse_order(conn, error == -EPIPE ? "it is about to end"
                                               : "its worker takes no orders just now; try again");
        }
    }
    return error;
}

/* Whoever asked is answered when the worker has answered. */
static void answer_order(struct tows_server *server, struct tows_pending_conn *conn)
{
    struct tows_worker *worker = tows_worker_pool_find(&server->pool, conn->session);
    if (!conn->begun) {
        if ((conn->orders & TOW_STATUS_RESUME) != 0 && !answer_has_numbers(server, conn)) {
            return;
        }
        worker = answer_find(server, conn);
        if (worker != NULL && order_begin(server, conn, worker) == 0) {
            conn->begun = true;
            conn->ticket = worker->suspend.orders + worker->suspend.recalled;
            tows_pending_conn_await(
                conn, tow_time_deadline(limit_ms(conn) * TOW_TIME_MS + ORDER_S * TOW_TIME_S));
        }
    } else if (worker == NULL) {
        refuse_order(conn, "it has ended");
    } else if (worker->suspend.orders < conn->ticket ||
               (worker->suspend.orders == conn->ticket && tows_suspend_moves(worker))) {
        return;
    } else if (worker->suspend.orders == conn->ticket && worker->suspend.failed) {
        refuse_order(conn, worker->suspend.why);
    } else {
        answer_done(conn);
    }
}

static void answer_drain(struct tows_server *server, struct tows_pending_conn *conn)
{
    char text[64];
    if (!tows_server_is_ruled_by(server, &conn->who)) {
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN,
                                 "only root, the user who runs the server and its admin-users may "
                                 "drain it, on its machine and through its unix socket");
        return;
    }
    tows_server_drain(server);
    int length = snprintf(text, sizeof text, "{\"drain\":%u}",
                          tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL));
    tows_pending_conn_report(conn, text, (size_t)length);
}

static void answer_status(struct tows_server *server, struct tows_pending_conn *conn)
{
    if (conn->present) {
        tows_pending_conn_report(conn, "{}", 2);
        return;
    }
    if (tow_time_now_ns() - server->looked_ns > TOW_SERVER_LOOK_MS * TOW_TIME_MS) {
        tows_server_look(server); /* and not for each of many who ask */
    }
    struct tows_status_source source = {
        .pool = &server->pool,
        .gauge = &server->gauge,
        .config = &server->config,
        .listeners = server->listeners,
        .listener_count = server->listener_count,
        .waiting = tows_server_count_waiting(server, NULL, true),
        .door = &server->door,
        .policy = &server->login.policy,
        .who = conn->who,
        .rate = tows_door_rate(conn->caller, server->config.connections_per_second),
        .class = tows_policy_find(&server->login.policy, conn->who.class),
        .places = server->door.count,
        .own_places = conn->caller->places,
        .draining = server->draining,
        .pid = tows_server_has_parent(server) ? getppid() : getpid(),
        .all = answer_to_ruler(server, conn),
        .none = conn->who.kind == TOW_WHO_WEB,
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

void tows_answer(struct tows_server *server, struct tows_pending_conn *conn)
{
    if ((conn->orders & TOW_STATUS_END) != 0) {
        answer_end(server, conn);
    } else if ((conn->orders & (TOW_STATUS_SUSPEND | TOW_STATUS_RESUME)) != 0) {
        answer_order(server, conn);
    } else if (conn->orders != 0) {
        answer_drain(server, conn);
    } else if (answer_has_numbers(server, conn)) {
        answer_status(server, conn);
    }
}
