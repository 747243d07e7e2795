/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use the server, for the listener: the lists, the tokens, and what each connection that
 * says what it wants is told. Never waits for a peer. Only the listener's one thread uses this. */
#ifndef TOW_SERVER_LISTENER_LOGIN_H
#define TOW_SERVER_LISTENER_LOGIN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "server/door/door.h"
#include "server/login/allow.h"
#include "server/login/policy.h"
#include "server/login/tokens.h"
#include "server/pool/parent_line.h"

enum { TOW_LOGIN_FAILURES_MAX = 64 };

/* A peer whose logins failed lately. */
struct tows_login_failure {
    struct tows_who who;
    unsigned count;
    int64_t last_ns;
};

struct tows_login {
    struct tows_allow allow;
    struct tows_policy policy;  /* the classes */
    bool required;              /* over TCP nobody without a token, or a certificate over TLS */
    bool certificates;          /* over TLS clients are asked for certificates, which log in */
    bool changed;               /* who may was read anew: the listener has to look at all again */
    bool broken;                /* the file of tokens cannot be read: nobody logs in */
    const uint8_t *authorities; /* borrowed from the listener: which they are, by a hash */
    uint64_t places;            /* for each user, before a program is served */
    char path[PATH_MAX];
    struct tows_tokens tokens;     /* owned */
    struct stat seen;              /* the file when it was read; zeros: it was not there */
    struct tows_parent_line *line; /* borrowed: to who opens it; NULL: this process does */
    uid_t owner;                   /* whose server it is: the file is his or root's */
    int64_t latest_s; /* the latest time that was seen: a token that expired stays so */
    struct tows_login_failure failures[TOW_LOGIN_FAILURES_MAX];
};

/* Takes the settings over. An error with one sentence in `why`: all is as it was. */
int tows_login_read(const struct tows_config *config, struct tows_login *login, char *why,
                    size_t why_size);
void tows_login_fini(struct tows_login *login);

/* Reads the file of tokens again if it is another, and notes that in `changed`. Call it now and
 * then. */
void tows_login_refresh(struct tows_login *login);

/* Whether a peer may go on: its token is still known, or it needs none. */
bool tows_login_knows(const struct tows_login *login, const struct tows_who *who);

/* A connection of TCP must log in first, if it can. */
void tows_login_meet(const struct tows_login *login, struct tows_pending_conn *conn);

/* How long the answer to a peer that failed once more is held back. */
int64_t tows_login_count_failure(struct tows_login *login, const struct tows_who *who);

/* Looks at a connection, and finds its peer's class: refuses one that says what it wants and may
 * not, and checks the proof of one that logs in, or its certificate. */
void tows_login_guard(struct tows_login *login, struct tows_door *door,
                      struct tows_pending_conn *conn, uid_t owner);

#endif
