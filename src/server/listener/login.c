/* SPDX-License-Identifier: Apache-2.0 */
/* Checks proofs of tokens, slows down those that are wrong, and keeps the file of tokens in view.
 * Certificates were checked in the handshake, and say here whose they are. */
#include "server/listener/login.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/config/config.h"
#include "wire/control.h"

/* A wrong proof is answered so late, and twice as late with each further one of the same peer.
 * A client gives a server up that says nothing for 4 s. */
#define SLOW_MIN_NS (100 * TOW_TIME_MS)
#define SLOW_MAX_NS (2 * TOW_TIME_S)
/* After so long without one all is forgotten. */
#define FORGET_NS (60 * TOW_TIME_S)

/* One for all: unknown, wrong, expired and revoked look alike. */
#define NOT_VALID                                                                                  \
    "the token is not valid here; ask the server's administrator for another (towlined token "     \
    "create)"
#define NEEDED                                                                                     \
    "a token is needed; ask the server's administrator for one (towlined token create), and put "  \
    "it into ~/.config/towline/token or into a file that TOWLINE_TOKEN_FILE names"

#define NEEDED_CERTIFICATE                                                                         \
    "a certificate is needed; ask the server's administrator for one, and put it, with its key, "  \
    "into ~/.config/towline/client.pem or into files that TOWLINE_TLS_CERT and TOWLINE_TLS_KEY "   \
    "name"
#define NO_CERTIFICATES                                                                            \
    "certificates of clients do not count here any more; ask the server's administrator"

#define NEW_AUTHORITIES "the server's authorities for clients are others by now; try again"

/* What the owner of a certificate that is not taken is told. */
static const char *const certificate_refusals[] = {
    [TOW_TLS_CERT_NOT_YET] =
        "your certificate is not valid yet; look at the clocks of both machines",
    [TOW_TLS_CERT_EXPIRED] =
        "your certificate has expired; ask the server's administrator for another",
    [TOW_TLS_CERT_NOT_FOR_CLIENTS] =
        "your certificate is not for clients (clientAuth); ask the server's "
        "administrator for one that is",
    [TOW_TLS_CERT_FOREIGN] = "your certificate is none of this server's authorities; ask its "
                             "administrator for one, or show none (TOWLINE_TLS_CERT=none)",
};
#define NO_NAME                                                                                    \
    "your certificate names no user: its subject needs one common name of 1 to 32 letters, "       \
    "digits and ._@-; ask the server's administrator for another"

/* ---- the file ---- */

/* The file, open, or -Exxx; and what it is. One that cannot be opened differs from one that is not
 * there. */
static int login_open(const struct tows_login *login, char path[PATH_MAX], struct stat *ret_seen)
{
    int fds[TOW_PARENT_FDS_MAX] = {-1, -1}, fd;
    *ret_seen = (struct stat){0};
    if (login->line != NULL) {
        const struct tows_parent_msg msg = {.ask = TOW_PARENT_TOKENS};
        struct tows_parent_news answer = {.error = 0};
        int error = tows_parent_line_ask(login->line, &msg, NULL, 0, &answer, fds);
        snprintf(path, PATH_MAX, "%s", answer.text);
        fd = error < 0 ? error : fds[0] >= 0 ? fds[0] : -EMFILE;
    } else {
        fd = tows_tokens_open(path);
    }
    if (fd >= 0 && fstat(fd, ret_seen) != 0) {
        close(fd);
        fd = -EIO;
    }
    if (fd < 0 && fd != -ENOENT) {
        ret_seen->st_ino = 1;
        ret_seen->st_size = fd;
    }
    return fd;
}

static bool is_same_file(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino &&
           one->st_size == other->st_size && one->st_mode == other->st_mode &&
           one->st_uid == other->st_uid && one->st_mtim.tv_sec == other->st_mtim.tv_sec &&
           one->st_mtim.tv_nsec == other->st_mtim.tv_nsec &&
           one->st_ctim.tv_sec == other->st_ctim.tv_sec &&
           one->st_ctim.tv_nsec == other->st_ctim.tv_nsec;
}

int tows_login_read(const struct tows_config *config, struct tows_login *login, char *why,
                    size_t why_size)
{
    static struct tows_policy policy; /* too large for the stack */
    struct tows_allow allow;
    struct tows_tokens tokens = {0};
    struct stat seen = {0};
    char path[PATH_MAX] = "";
    bool required = config->require_token != 0 && config->private_dir[0] == '\0';
    bool kept = required || (config->http[0] != '\0' && config->private_dir[0] == '\0');
    int error = tows_allow_read(config, &allow, why, why_size);
    if (error == 0) {
        error = tows_policy_read(config, &policy, why, why_size);
    }
    /* Else the parent knows the place; what is wrong with a name that is set is said here. */
    if (error == 0 && kept && (login->line == NULL || config->token_file[0] != '\0')) {
        error = tows_tokens_path(config, path, sizeof path, why, why_size);
    }
    if (error == 0 && kept) {
        /* Looked at before it is read: what changes meanwhile is seen. */
        int fd = login_open(login, path, &seen);
        error = tows_tokens_take(fd, path, login->owner, &tokens, why, why_size);
    }
    if (error < 0) {
        return error;
    }
    login->allow = allow;
    login->policy = policy;
    login->required = required;
    login->certificates = config->tls_client_ca[0] != '\0' && config->private_dir[0] == '\0';
    login->places = config->places_per_peer;
    login->changed = true;
    login->latest_s = 0; /* so a clock that went wrong is forgotten */
    if (kept) {
        /* Else the old ones stay: somebody may be about to log in. */
        tows_tokens_fini(&login->tokens);
        login->tokens = tokens;
        login->seen = seen;
        login->broken = false;
        snprintf(login->path, sizeof login->path, "%s", path);
    }
    return 0;
}

void tows_login_fini(struct tows_login *login)
{
    tows_tokens_fini(&login->tokens);
}

void tows_login_refresh(struct tows_login *login)
{
    char why[512] = "";
    if (login->path[0] == '\0') {
        return;
    }
    struct stat now;
    int fd = login_open(login, login->path, &now);
    if (is_same_file(&now, &login->seen)) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    struct tows_tokens tokens = {0};
    int error = tows_tokens_take(fd, login->path, login->owner, &tokens, why, sizeof why);
    if (error == 0 && now.st_ino == 0) {
        snprintf(why, sizeof why, "%s is gone", login->path);
        error = -EINVAL;
    }
    login->broken = error < 0;
    login->changed = true;
    if (error == 0 || error == -EINVAL || error == -EPERM || error == -ELOOP) {
        login->seen = now; /* what else went wrong may pass: it is tried again */
    }
    if (error < 0) {
        tows_tokens_fini(&tokens);
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "nobody can log in, and programs that run go on: %s",
                why);
        return;
    }
    tows_tokens_fini(&login->tokens);
    login->tokens = tokens;
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "the tokens were read again: %u", tokens.count);
}

bool tows_login_knows(const struct tows_login *login, const struct tows_who *who)
{
    return !login->required || who->kind != TOW_WHO_TOKEN || who->certificate ||
           tows_tokens_find(&login->tokens, who->token) != NULL;
}

/* ---- failures ---- */

int64_t tows_login_count_failure(struct tows_login *login, const struct tows_who *who)
{
    struct tows_login_failure *place = &login->failures[0];
    int64_t now = tow_time_now_ns();
    for (size_t i = 0; i < TOW_LOGIN_FAILURES_MAX; i++) {
        struct tows_login_failure *failure = &login->failures[i];
        if (failure->count > 0 && tows_who_same(&failure->who, who)) {
            place = failure;
            break;
        }
        place = failure->last_ns < place->last_ns ? failure : place;
    }
    if (!tows_who_same(&place->who, who) || now - place->last_ns > FORGET_NS) {
        *place = (struct tows_login_failure){.who = *who};
    }
    int64_t delay = SLOW_MIN_NS << (place->count < 8 ? place->count : 8);
    place->count++;
    place->last_ns = now;
    return delay < SLOW_MAX_NS ? delay : SLOW_MAX_NS;
}

/* ---- connections ---- */

static void login_say(const struct tows_pending_conn *conn, const char *what)
{
    char tenant[TOW_WHO_TEXT_MAX];
    struct tow_log_about about = {.peer = conn->peer, .tenant = tows_who_text(&conn->who, tenant)};
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about, "%s: %s", conn->peer, what);
}

static void login_tell(const struct tows_pending_conn *conn, const char *why)
{
    char tenant[TOW_WHO_TEXT_MAX];
    struct tow_log_about about = {.peer = conn->peer, .tenant = tows_who_text(&conn->who, tenant)};
    tow_log_about(TOW_AREA_SERVER, TOW_LOG_WARN, &about, "%s was refused: %s", conn->peer, why);
}

void tows_login_meet(const struct tows_login *login, struct tows_pending_conn *conn)
{
    conn->by_network = tows_who_is_by_network(conn->fd);
    conn->demands_token = login->required && conn->by_network;
}

/* The token that a proof is of, or NULL and why not, which only the log is told. */
static const struct tows_token *
find_proved(struct tows_login *login, const struct tows_pending_conn *conn, const char **ret_why)
{
    const struct tows_token *token =
        login->broken ? NULL : tows_tokens_find(&login->tokens, conn->said.id);
    static const struct tow_login_keys nobody;
    int64_t now_s = time(NULL);
    login->latest_s = now_s > login->latest_s ? now_s : login->latest_s;
    /* Whether there is one cannot be told by the time it takes. */
    bool proved = tow_login_check(token == NULL ? &nobody : &token->keys, &conn->said, conn->proof);
    if (token == NULL) {
        *ret_why = login->broken ? "the file of tokens cannot be read"
                                 : "there is no such token, or it was revoked";
        return NULL;
    }
    if (!proved) {
        *ret_why = "its secret is another";
        return NULL;
    }
    if (token->expires_s != 0 && token->expires_s <= login->latest_s) {
        *ret_why = "it has expired";
        return NULL;
    }
    return token;
}

static void take_proof(struct tows_login *login, struct tows_door *door,
                       struct tows_pending_conn *conn)
{
    const char *why = "";
    uint8_t answer[TOW_LOGIN_SIZE];
    tows_login_refresh(login);
    const struct tows_token *token = find_proved(login, conn, &why);
    if (token == NULL) {
        char said[160];
        snprintf(said, sizeof said, "with token %016" PRIx64 ": %s", conn->said.id, why);
        login_tell(conn, said);
        tows_pending_conn_deny(conn, NOT_VALID, tows_login_count_failure(login, &conn->who));
        return;
    }
    struct tows_who who = {.kind = TOW_WHO_TOKEN, .token = token->id};
    snprintf(who.name, sizeof who.name, "%s", token->user);
    snprintf(who.class, sizeof who.class, "%s", token->class);
    tow_login_answer(&token->keys, &conn->said, answer);
    tow_login_leave(&token->keys, &conn->said, conn->login_left);
    if (tows_door_rename(door, conn, &who, login->places) < 0) {
        conn->state = TOW_CONN_GONE;
    } else if (conn->state == TOW_CONN_PROOF) {
        tows_pending_conn_prove(conn, answer);
    }
}

/* One that is good is a login. One that is not is none, whatever else its owner has: it is refused,
 * and he learns what to do. */
static void take_certificate(const struct tows_login *login, struct tows_door *door,
                             struct tows_pending_conn *conn)
{
    const struct tow_tls_client_cert *cert = &conn->shaken.cert;
    const size_t count = sizeof certificate_refusals / sizeof *certificate_refusals;
    const bool named = tows_tokens_name_is_right(cert->name);
    const char *refusal = cert->state != TOW_TLS_CERT_GOOD
                              ? cert->state < count ? certificate_refusals[cert->state]
                                                    : certificate_refusals[TOW_TLS_CERT_FOREIGN]
                          : !named ? NO_NAME
                                   : NULL;
    if (refusal != NULL) {
        char said[256];
        snprintf(said, sizeof said, "with a certificate %s%s%s%s", named ? "of " : "",
                 named ? cert->name : "that names no user", cert->doubt[0] != '\0' ? ": " : "",
                 cert->doubt);
        login_tell(conn, said);
        tows_pending_conn_go_on(conn, refusal);
        return;
    }
    struct tows_who who = {.kind = TOW_WHO_TOKEN, .certificate = true};
    snprintf(who.name, sizeof who.name, "%.*s", TOW_WHO_NAME_MAX, cert->name);
    if (tows_door_rename(door, conn, &who, login->places) < 0) {
        conn->state = TOW_CONN_GONE;
    } else if (conn->state == TOW_CONN_SHOWN) {
        tows_pending_conn_go_on(conn, NULL);
    }
}

/* Whether what it wants needs no token: nothing is said about the server, or a session's secret
 * will be asked for. */
static bool needs_none(const struct tows_pending_conn *conn)
{
    return conn->state == TOW_CONN_LANE ||
           (conn->state == TOW_CONN_ASKED && conn->present && conn->orders == 0);
}

/* Who was vouched for before the settings were read again is so by those who are named now, or has
 * to shake hands once more: his program does so by itself. */
static void guard_certificate(const struct tows_login *login, struct tows_pending_conn *conn)
{
    conn->allowed =
        login->certificates && tow_hash_equal(conn->shaken.authorities, login->authorities);
    if (!conn->allowed) {
        const char *sentence = login->certificates ? NEW_AUTHORITIES : NO_CERTIFICATES;
        login_tell(conn, sentence);
        tows_pending_conn_refuse(conn, login->certificates ? TOW_REFUSE_BUSY : TOW_REFUSE_TOKEN,
                                 sentence);
    }
}

static bool is_in_groups(void *user, const uint32_t *groups, unsigned count)
{
    return tows_allow_in_groups(*(const int *)user, groups, count);
}

/* Whoever may use this server is of some class. What a token says is its own until there are
 * classes. */
static void login_classify(const struct tows_login *login, struct tows_pending_conn *conn)
{
    struct tows_who *who = &conn->who;
    const struct tows_token *token = who->kind == TOW_WHO_TOKEN && !who->certificate
                                         ? tows_tokens_find(&login->tokens, who->token)
                                         : NULL;
    if (token != NULL) {
        snprintf(who->class, sizeof who->class, "%s", token->class);
    }
    if (login->policy.count == 0) {
        return;
    }
    const struct tows_policy_class *class =
        tows_policy_class_of(&login->policy, who, is_in_groups, &conn->fd);
    if (conn->state == TOW_CONN_PROGRAM && token != NULL && token->class[0] != '\0' &&
        (class == NULL || strcmp(class->name, token->class) != 0)) {
        char said[160];
        snprintf(said, sizeof said, "its token's class %s is not in the settings: class %s holds",
                 token->class, class == NULL ? "none" : class->name);
        login_say(conn, said);
    }
    snprintf(who->class, sizeof who->class, "%s", class == NULL ? "" : class->name);
}

/* By HTTP: without a token what everybody may know, and with one what its owner may. */
static void guard_web(const struct tows_login *login, struct tows_pending_conn *conn)
{
    const bool token = conn->who.kind == TOW_WHO_TOKEN;
    if (conn->state != TOW_CONN_ASKED) {
        login_tell(conn, "the process for HTTP may ask, and nothing else");
        conn->state = TOW_CONN_GONE;
        return;
    }
    conn->allowed = token ? !login->broken && tows_tokens_find(&login->tokens, conn->who.token)
                          : !conn->demands_token && conn->orders == 0;
    if (!conn->allowed) {
        login_tell(conn, NOT_VALID);
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN, NOT_VALID);
    }
}

void tows_login_guard(struct tows_login *login, struct tows_door *door,
                      struct tows_pending_conn *conn, uid_t owner)
{
    char sentence[TOW_WHO_TEXT_MAX + 256];
    if (conn->state == TOW_CONN_PROOF && !conn->resumes) {
        take_proof(login, door, conn);
        return;
    }
    if (conn->state == TOW_CONN_SHOWN) {
        take_certificate(login, door, conn);
        return;
    }
    if (conn->allowed || (conn->state != TOW_CONN_PROGRAM && conn->state != TOW_CONN_ASKED &&
                          conn->state != TOW_CONN_LANE)) {
        return;
    }
    if (conn->refusal != NULL) {
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN, conn->refusal); /* the log has it */
        return;
    }
    if (conn->web) {
        guard_web(login, conn);
        if (conn->allowed) {
            login_classify(login, conn);
        }
        return;
    }
    bool token = login->required && conn->by_network;
    if (conn->who.certificate) {
        guard_certificate(login, conn);
        if (conn->allowed) {
            login_classify(login, conn);
        }
        return;
    }
    if (token && conn->who.kind == TOW_WHO_TOKEN) {
        conn->allowed = !login->broken && tows_login_knows(login, &conn->who);
        snprintf(sentence, sizeof sentence, "%s", NOT_VALID);
    } else if (token) {
        conn->allowed = needs_none(conn);
        snprintf(sentence, sizeof sentence, "%s", NEEDED);
    } else if (login->certificates && conn->bound && !login->allow.anyone) {
        conn->allowed = needs_none(conn);
        snprintf(sentence, sizeof sentence, "%s", NEEDED_CERTIFICATE);
    } else {
        conn->allowed = tows_allow_lets_in(&login->allow, conn->fd, &conn->who, owner);
        tows_allow_explain(&conn->who, sentence, sizeof sentence);
    }
    if (!conn->allowed) {
        login_tell(conn, sentence);
        tows_pending_conn_refuse(conn, TOW_REFUSE_TOKEN, sentence);
    } else {
        login_classify(login, conn);
    }
}
