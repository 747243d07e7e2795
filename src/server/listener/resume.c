/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the proofs of those who say that a session is theirs. */
#include "server/listener/resume.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/login/allow.h"

/* One for all: which sessions there are is nobody's business who has none of them. */
#define NO_SESSION                                                                                 \
    "it has no such session (any more): the session has ended, or the server was started again"

static void resume_log(const struct tows_pending_conn *conn, const char *what)
{
    char tenant[TOW_WHO_TEXT_MAX];
    struct tow_log_about about = {
        .session = conn->session, .peer = conn->peer, .tenant = tows_who_text(&conn->who, tenant)};
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about,
                  "%s wanted to go on with session %llu and was refused: %s", conn->peer,
                  (unsigned long long)conn->session, what);
}

/* Why not; NULL: it may. Whether there is such a session cannot be told by the time it takes. */
static const char *resume_refusal(const struct tows_login *login, const struct tows_worker *worker,
                                  const struct tows_pending_conn *conn, uid_t owner)
{
    static const struct tow_login_keys nobody;
    bool right =
        tow_login_check(worker == NULL ? &nobody : &worker->secret, &conn->said, conn->proof);
    if (worker == NULL) {
        return "there is no such session, or it ends with its connection";
    }
    if (!right || conn->said.id != conn->session) {
        return "its secret is another";
    }
    /* Where it comes from may have changed, and so may have the settings. */
    bool lets = login->required || worker->granted ||
                tows_allow_lets_in(&login->allow, conn->fd, &conn->who, owner);
    return lets ? NULL : "its address is none from which this server may be used";
}

void tows_resume_take(struct tows_login *login, struct tows_worker_pool *pool,
                      struct tows_pending_conn *conn, uid_t owner)
{
    struct tows_worker *worker = tows_worker_pool_lasting(pool, conn->session);
    if (worker != NULL && worker->granted != conn->bound) {
        worker = NULL; /* what was encrypted stays so */
    }
    const char *why = resume_refusal(login, worker, conn, owner);
    uint8_t answer[TOW_LOGIN_SIZE];
    if (why != NULL) {
        resume_log(conn, why);
        tows_pending_conn_deny(conn, NO_SESSION, tows_login_count_failure(login, &conn->who));
        return;
    }
    tow_login_answer(&worker->secret, &conn->said, answer);
    if (conn->bound) {
        /* This is none of the session's connections; but now they may come from there. */
        worker->origin = conn->origin;
        tows_meeting_renew(pool, worker);
        tows_pending_conn_part(conn, answer);
        return;
    }
    if (tows_pending_conn_welcome_back(conn, answer)) {
        tows_worker_pool_resume(pool, worker, conn->line, conn->fd, conn->kind, conn->peer,
                                &conn->origin);
    }
    conn->state = TOW_CONN_GONE; /* the worker has its own descriptor, or the client comes again */
}
