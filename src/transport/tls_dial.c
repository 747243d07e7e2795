/* SPDX-License-Identifier: Apache-2.0 */
/* tls: tcp with TLS 1.3 on it.
 *
 * A first connection is to whoever has the server's key: the client checks that it is the right
 * one, says its hello, logs in, and is given a grant. The session's lines are further connections,
 * to its worker, which has the grant and not the key. Questions are answered on the first one.
 */
#include "transport/tls_dial.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/known_servers.h"
#include "transport/login.h"
#include "transport/tcp.h"
#include "transport/tls.h"
#include "transport/tls_shake.h"
#include "wire/control.h"

#define TLS "tls://"
/* The worker of a grant is ready, and waits as long. */
#define WORKER_NS (10 * TOW_TIME_S)

/* Whom it is to be. */
struct tls_server {
    char host[256];
    char name[TOW_ADDRESS_MAX]; /* HOST:PORT, as known servers are named */
    struct tow_tls_print pin;
    struct tow_tls_trust trust;
    struct tow_tls_own own; /* what this client shows, where it is asked for it */
    bool shows;
};

/* ---- which server it must be ---- */

static int tls_name(const char *rest, struct tls_server *server, char *ret_why, size_t size)
{
    struct tow_tcp_address address;
    int error = tow_tcp_parse(TLS, rest, &address, ret_why, size);
    if (error < 0) {
        return error;
    }
    bool brackets = strchr(address.host, ':') != NULL;
    snprintf(server->host, sizeof server->host, "%s", address.host);
    snprintf(server->name, sizeof server->name, "%s%s%s:%s", brackets ? "[" : "", address.host,
             brackets ? "]" : "", address.port);
    return 0;
}

static int tls_look(struct tls_server *server, char *ret_path, char *ret_why, size_t size)
{
    int error = tow_known_servers_look(server->name, &server->pin, ret_path, ret_why, size);
    if (error == -ENOENT) {
        snprintf(ret_why, size,
                 "the key of " TLS "%s is not known here; run towline trust " TLS
                 "%s, and compare what it shows with the server's log",
                 server->name, server->name);
    }
    return error;
}

/* By TOWLINE_TLS_CA if that is set, else by the files of known servers. */
static int tls_decide(const char *rest, struct tls_server *server, char *ret_why, size_t size)
{
    const char *authorities = getenv("TOWLINE_TLS_CA");
    int error = tls_name(rest, server, ret_why, size);
    if (error < 0) {
        return error;
    }
    if (authorities != NULL && authorities[0] != '\0') {
        server->trust.authorities = authorities;
        return 0;
    }
    error = tls_look(server, NULL, ret_why, size);
    server->trust.pin = &server->pin;
    return error < 0 ? -EPERM : 0; /* nothing to try again */
}

static void tls_explain(const struct tls_server *server, int error, const char *reason,
                        char *ret_why, size_t size)
{
    char seen[TOW_TLS_PRINT_TEXT + 1];
    const struct tow_tls_trust *trust = &server->trust;
    if (server->own.why[0] != '\0') {
        snprintf(ret_why, size, TLS "%s asks for a certificate: %s", server->name, server->own.why);
    } else if (error == -EACCES && trust->met && trust->authorities != NULL &&
               trust->doubt != NULL) {
        snprintf(ret_why, size,
                 TLS "%s has a certificate that %s does not vouch for, and is not used: %s",
                 server->name, trust->authorities, trust->doubt);
    } else if (error == -EACCES && trust->met && trust->pin != NULL &&
               !tow_hash_equal(trust->pin->bytes, trust->seen.bytes)) {
        tow_tls_print_write(&trust->seen, seen);
        snprintf(ret_why, size,
                 TLS "%s has another key than the one that is known here, and is not used: %s; if "
                     "its administrator says that this is right, run towline trust --replace " TLS
                     "%s %s",
                 server->name, seen, server->name, seen);
    } else if (error == -ECONNRESET || error == -EPIPE) {
        snprintf(ret_why, size,
                 TLS "%s closed the connection within the TLS handshake; its log says why: it has "
                     "no room now, or is no towlined -l tls://HOST:PORT",
                 server->name);
    } else if (error == -EPROTONOSUPPORT) {
        snprintf(ret_why, size,
                 TLS "%s does not answer with TLS; is it a towlined -l tls://HOST:PORT, or is "
                     "tcp:// meant?",
                 server->name);
    } else if (error == -ETIMEDOUT) {
        snprintf(ret_why, size, TLS "%s did not finish the TLS handshake in time", server->name);
    } else {
        snprintf(ret_why, size, TLS "%s: the TLS handshake failed: %s", server->name,
                 reason != NULL ? reason : strerror(-error));
    }
}

/* ---- the first connection ---- */

static int tls_meet(const char *rest, struct tls_server *server, int64_t deadline_ns, char *ret_why,
                    size_t size, struct tow_line **ret_line)
{
    const struct tow_tls_lib *lib;
    SSL_CTX *context = NULL;
    struct tow_tls_shaken shaken = {.early_size = 0};
    const char *reason = NULL;
    int fd = -1;
    int error = tow_tls_lib(&lib, ret_why, size);
    if (error == 0) {
        error = tow_tls_cert_trust(lib, &server->trust, ret_why, size, &context);
    }
    if (error < 0) {
        return error;
    }
    if (server->shows) {
        tow_tls_own_show(lib, context, &server->own);
    }
    error = tow_tcp_dial(TLS, rest, deadline_ns, ret_why, size, &fd);
    if (error < 0) {
        lib->SSL_CTX_free(context);
        return error;
    }
    const struct tow_tls_shake_by by = {
        .context = context, .host = server->trust.authorities != NULL ? server->host : NULL};
    error = tow_tls_shake(lib, fd, &by, deadline_ns, &reason, &shaken);
    lib->SSL_CTX_free(context);
    if (error < 0) {
        close(fd);
        tls_explain(server, error, reason, ret_why, size);
        /* The wrong server, or none of TLS: another try finds the same. */
        error = error == -EACCES || error == -EPROTONOSUPPORT ? -EPERM : error;
    } else {
        error = tow_tls_line_of(lib, fd, false, &shaken, ret_line);
        if (error < 0) {
            snprintf(ret_why, size, "cannot set up the connection to " TLS "%s: %s", rest,
                     strerror(-error));
        }
    }
    explicit_bzero(&shaken, sizeof shaken);
    return error;
}

/* Waits for a whole frame, as patiently as for a welcome. */
static int tls_hear(struct tow_line *line, struct tow_patience *patience, const uint8_t **ret_at,
                    struct tow_frame *ret_frame)
{
    size_t available = 0, wanted = TOW_FRAME_HEADER;
    for (;;) {
        int error = tow_line_peek(line, wanted, tow_patience_next(patience), ret_at, &available);
        if (error == -ETIMEDOUT && tow_patience_goes_on(patience)) {
            continue;
        }
        if (error == 0) {
            error = tow_frame_read(*ret_at, ret_frame);
        }
        if (error < 0 || available >= ret_frame->length) {
            return error;
        }
        wanted = ret_frame->length;
    }
}

static int tls_refused(const char *address, const uint8_t *at, const struct tow_frame *frame,
                       char *ret_why, size_t size)
{
    struct tow_refuse refuse;
    if (tow_refuse_decode(at, frame, &refuse) < 0) {
        snprintf(ret_why, size,
                 "%s answers with something that is no grant; use the same version of Towline on "
                 "both sides",
                 address);
        return -EPROTO;
    }
    snprintf(ret_why, size, "%s refuses: %s", address, refuse.sentence);
    return refuse.code == TOW_REFUSE_BUSY ? -EUSERS : -ECONNREFUSED;
}

/* From the hello to the grant. */
static int tls_earn(struct tow_line *line, const char *address, const struct tow_preface *hello,
                    struct tow_patience *patience, char *ret_why, size_t size,
                    struct tow_grant *ret_grant)
{
    uint8_t *out = NULL;
    int error = tow_line_reserve(line, hello->size, &out);
    if (error == 0) {
        memcpy(out, hello->bytes, hello->size);
        tow_line_commit_now(line, hello->size);
    }
    while (error == 0) {
        const uint8_t *at = NULL;
        struct tow_frame frame = {0};
        error = tls_hear(line, patience, &at, &frame);
        if (error < 0) {
            break;
        }
        tow_patience_heard(patience);
        if (frame.kind == TOW_CONTROL_CHALLENGE) {
            error = tow_login_do(line, address, hello, patience->deadline_ns, ret_why, size, NULL);
            tow_patience_heard(patience);
            if (error < 0) {
                return error;
            }
        } else if (frame.kind == TOW_CONTROL_NOTICE) {
            struct tow_notice notice;
            if (tow_notice_decode(at, &frame, &notice) == 0 &&
                notice.topic == TOW_NOTICE_PATIENCE) {
                tow_patience_place(patience, notice.values[0], notice.values[1]);
            }
            tow_line_consume(line, frame.length);
        } else if (frame.kind == TOW_CONTROL_GRANT) {
            error = tow_grant_decode(at, &frame, ret_grant);
            return error < 0 ? tls_refused(address, at, &frame, ret_why, size) : 0;
        } else {
            return tls_refused(address, at, &frame, ret_why, size);
        }
    }
    if (error < 0) {
        snprintf(ret_why, size,
                 "%s closed the connection before it gave a session, or was silent; what does its "
                 "log say?",
                 address);
    }
    return error;
}

/* ---- the session's ---- */

static int tls_beside(const char *rest, const struct tow_grant *grant, int64_t deadline_ns,
                      char *ret_why, size_t size, struct tow_line **ret_line)
{
    int fd = -1;
    int error = tow_tcp_dial(TLS, rest, deadline_ns, ret_why, size, &fd);
    return error < 0 ? error : tow_tls_line(fd, false, grant, deadline_ns, ret_why, size, ret_line);
}

static int tls_connect(const char *rest, const struct tow_preface *preface,
                       struct tow_patience *patience, char *ret_why, size_t size,
                       struct tow_line **ret_line)
{
    struct tls_server server = {.shows = true};
    struct tow_line *line = NULL;
    struct tow_grant grant = {.id = {0}};
    char address[TOW_ADDRESS_MAX];
    int error = tls_decide(rest, &server, ret_why, size);
    if (error == 0) {
        error = tls_meet(rest, &server, patience->deadline_ns, ret_why, size, &line);
    }
    if (error < 0 || preface == NULL) {
        *ret_line = error < 0 ? *ret_line : line;
        return error;
    }
    snprintf(address, sizeof address, TLS "%.*s", TOW_ADDRESS_MAX - 8, rest);
    error = tls_earn(line, address, preface, patience, ret_why, size, &grant);
    tow_line_close(line);
    if (error == 0) {
        error = tls_beside(rest, &grant, tow_time_deadline(WORKER_NS), ret_why, size, ret_line);
    }
    explicit_bzero(&grant, sizeof grant);
    return error;
}

/* ---- the rest ---- */

static int tls_check(const char *rest, char *ret_why, size_t size)
{
    struct tow_tcp_address ignored;
    return tow_tcp_parse(TLS, rest, &ignored, ret_why, size);
}

static int tls_listen(const char *rest, mode_t mode, char *ret_why, size_t size, int *ret_fd,
                      char *ret_address)
{
    return tow_tcp_listen(TLS, rest, ret_why, size, ret_fd, ret_address);
}

static int tls_no_adopt(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                        struct tow_line **ret_line)
{
    close(fd);
    snprintf(ret_why, size, "a connection of " TLS " needs its session's secret");
    return -EOPNOTSUPP;
}

const struct tow_transport_ops tow_transport_tls = {
    .name = "tls",
    .prefix = TLS,
    .spreads = true,
    .encrypts = true,
    .lasts = true,
    .further = &tow_transport_tls,
    .check = tls_check,
    .connect = tls_connect,
    .beside = tls_beside,
    .listen = tls_listen,
    .adopt = tls_no_adopt,
};

int tow_tls_known(const char *address, char *ret_path, char *ret_why, size_t size)
{
    struct tls_server server = {.shows = false};
    size_t length = strlen(TLS);
    if (strncmp(address, TLS, length) != 0) {
        snprintf(ret_why, size, "%s has no key", address);
        return -EINVAL;
    }
    int error = tls_name(address + length, &server, ret_why, size);
    if (error == 0) {
        error = tls_look(&server, ret_path, ret_why, size);
    }
    struct tow_tls_print other;
    char unused[TOW_WHY_MAX];
    if (error == 0 &&
        tow_known_servers_find(TOW_KNOWN_SERVERS_MACHINE, server.name, &other, unused,
                               sizeof unused) == 0 &&
        memcmp(&other, &server.pin, sizeof other) == 0) {
        memcpy(ret_path, TOW_KNOWN_SERVERS_MACHINE, sizeof TOW_KNOWN_SERVERS_MACHINE);
    }
    return error;
}

int tow_tls_ask_print(const char *address, int64_t deadline_ns, char *ret_why, size_t size,
                      char *ret_name, struct tow_tls_print *ret_print)
{
    struct tls_server server = {.host = ""};
    struct tow_line *line = NULL;
    size_t length = strlen(TLS);
    if (strncmp(address, TLS, length) != 0) {
        snprintf(ret_why, size, "%s has no key to trust; only addresses of " TLS " have", address);
        return -EINVAL;
    }
    int error = tls_name(address + length, &server, ret_why, size);
    if (error == 0) {
        error = tls_meet(address + length, &server, deadline_ns, ret_why, size, &line);
    }
    if (error == 0) {
        tow_line_close(line);
        snprintf(ret_name, TOW_ADDRESS_MAX, "%s", server.name);
        *ret_print = server.trust.seen;
    }
    return error;
}
