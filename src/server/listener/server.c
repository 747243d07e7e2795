/* SPDX-License-Identifier: Apache-2.0 */
/* What the listener's files ask of the server's state, and how it ends. */
#include "server/listener/server.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/beside/systemd.h"
#include "server/door/pending_conn.h"
#include "server/login/allow.h"
#include "server/pool/usage.h"

bool tows_server_has_parent(const struct tows_server *server)
{
    return server->pool.starter.line != NULL;
}

bool tows_server_is_ruled_by(const struct tows_server *server, const struct tows_who *who)
{
    return tows_allow_rules(&server->login.allow, who, server->owner);
}

unsigned tows_server_count_waiting(const struct tows_server *server, const char *key, bool all)
{
    unsigned count = 0;
    for (const struct tows_pending_conn *conn = server->door.conns; conn != NULL;
         conn = conn->next) {
        count += conn->state == TOW_CONN_PROGRAM && (all || conn->admitted) &&
                 (key == NULL || strcmp(conn->key, key) == 0);
    }
    return count;
}

void tows_server_look(struct tows_server *server)
{
    bool grows = tows_usage_look(&server->pool);
    server->looked_ns = tow_time_now_ns();
    server->look_ns = tow_time_deadline(grows ? TOW_SERVER_LOOK_MS * TOW_TIME_MS : TOW_TIME_S);
}

void tows_server_drain(struct tows_server *server)
{
    if (!server->draining) {
        server->draining = true;
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "is being drained: serves no new programs and ends with the last of %u sessions",
                tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL));
        tows_systemd_notify("STATUS=Being drained");
    }
}

void tows_server_end(struct tows_server *server)
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

void tows_server_leave(struct tows_server *server)
{
    if (server->pool.meeting.folder < 0 || server->ending_ns != 0) {
        tows_server_end(server);
        return;
    }
    server->leaving = true;
    server->stop = true;
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "is to be started again: leaves %u sessions to the next",
            tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL));
}

bool tows_server_is_dry(const struct tows_server *server)
{
    for (const struct tows_pending_conn *conn = server->door.conns; conn != NULL;
         conn = conn->next) {
        if (conn->state == TOW_CONN_PROGRAM || conn->state == TOW_CONN_ANSWERED) {
            return false;
        }
    }
    return tows_worker_pool_count(&server->pool, TOW_WORKER_BUSY, NULL) == 0;
}
