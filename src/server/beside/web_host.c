/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the process for HTTP, and believes it only who it says it asks for. */
#include "server/beside/web_host.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/beside/process.h"
#include "server/login/allow.h"
#include "server/web/asker.h"
#include "server/web/web.h"
#include "transport/address.h"

#define AGAIN_NS TOW_TIME_S /* it is not started more often */

_Static_assert((int)TOW_WEB_CONTROL == (int)TOW_PROCESS_CONTROL, "where it looks for the listener");

const char *tows_web_host_place(const struct tow_listener *listener)
{
    const char *scheme = strstr(listener->address, "//");
    return scheme == NULL ? listener->address : scheme + 2;
}

static int no_port(const struct tows_config *config, char *why, size_t why_size)
{
    snprintf(why, why_size, "http: \"%s\" is no port; write PORT or HOST:PORT", config->http);
    return -EINVAL;
}

int tows_web_host_listen(const struct tows_config *config, struct tow_listener **ret_listener,
                         char *why, size_t why_size)
{
    char named[TOW_CONFIG_TEXT_MAX + 32], port[16], address[TOW_ADDRESS_MAX];
    const char *where = config->http;
    *ret_listener = NULL;
    if (where[0] == '\0' || config->private_dir[0] != '\0') {
        return 0;
    }
    where = strncmp(where, "http://", 7) == 0 ? where + 7 : where;
    where = where[0] == ':' ? where + 1 : where;
    if (strstr(where, "://") != NULL) {
        return no_port(config, why, why_size);
    }
    bool port_only = where[0] != '\0' && where[strspn(where, "0123456789")] == '\0';
    const char *host_end = where[0] == '[' ? strchr(where, ']') : where;
    bool has_port = host_end != NULL && strchr(host_end, ':') != NULL;
    snprintf(port, sizeof port, ":%d", TOW_WEB_PORT);
    snprintf(named, sizeof named, "%s%s%s", port_only ? "127.0.0.1:" : "", where,
             port_only || has_port ? "" : port);
    int error = tow_address_read(named, address, why, why_size);
    error = error < 0 ? error : tow_listener_open(address, 0, why, why_size, ret_listener);
    if (error == 0 &&
        ((*ret_listener)->path[0] != '\0' || tow_transport_encrypts((*ret_listener)->kind))) {
        tow_listener_close(*ret_listener);
        *ret_listener = NULL;
        error = no_port(config, why, why_size);
    }
    if (error == 0 && tows_allow_is_open((*ret_listener)->fd)) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "other machines reach http://%s, where nothing is encrypted: whoever can read the "
                "network learns the tokens that are used there; have a proxy with TLS before it",
                tows_web_host_place(*ret_listener));
    }
    return error;
}

int tows_web_host_fork(const struct tows_config *config, uint32_t user, int *ret_control,
                       pid_t *ret_pid)
{
    char names[TOW_CONFIG_WORDS_MAX + 32];
    const char *flags[TOW_PROCESS_FLAGS_MAX] = {"--web", names,
                                                config->http_dcgm != 0 ? "--http-dcgm" : NULL};
    snprintf(names, sizeof names, "--http-name=%s", config->http_name);
    return tows_process_fork(config, flags, user, ret_control, ret_pid);
}

static int host_start(struct tows_web_host *host, const struct tows_config *config)
{
    struct tows_starter *starter = host->starter;
    pid_t pid = -1;
    int control = -1;
    int error = starter->line != NULL ? tows_starter_web(starter, &control, &host->number)
                                      : tows_web_host_fork(config, 0, &control, &pid);
    if (error < 0) {
        return error;
    }
    error = starter->line == NULL ? tows_starter_adopt(starter, pid, &host->number) : 0;
    error = error < 0 ? error : tow_fds_try_send(control, "", 1, &host->listener->fd, 1);
    if (error < 0) {
        close(control); /* by which it ends */
    } else {
        host->control = control;
    }
    return error;
}

void tows_web_host_tend(struct tows_web_host *host, const struct tows_config *config)
{
    if (host->listener == NULL || host->control > 0 || !tow_time_passed(host->again_ns)) {
        return;
    }
    host->again_ns = tow_time_deadline(AGAIN_NS);
    int error = host_start(host, config);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "the process for HTTP cannot be started: %s; it is tried again", strerror(-error));
    }
}

int64_t tows_web_host_moment(const struct tows_web_host *host)
{
    return host->listener == NULL || host->control > 0 ? TOW_TIME_FOREVER : host->again_ns;
}

void tows_web_host_stop(struct tows_web_host *host)
{
    if (host->control > 0) {
        close(host->control); /* it ends; whoever reaps workers reaps it */
    }
    host->control = 0;
}

int tows_web_host_fd(const struct tows_web_host *host)
{
    return host->control > 0 ? host->control : -1;
}

struct tows_pending_conn *tows_web_host_take(struct tows_web_host *host)
{
    struct tows_web_ask ask;
    int fds[1] = {-1}, count = 0;
    if (host->control <= 0) {
        return NULL;
    }
    int error = tow_fds_recv(host->control, &ask, sizeof ask, tow_time_now_ns(), fds, 1, &count);
    if (error == -ETIMEDOUT) {
        return NULL;
    }
    if (error < 0 || count != 1) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "the process for HTTP %s: another is started",
                error == -ECONNRESET ? "has ended" : "breaks its word");
        tows_starter_signal(host->starter, host->number, SIGKILL);
        tows_web_host_stop(host);
        return NULL;
    }
    ask.peer[sizeof ask.peer - 1] = '\0';
    struct tows_pending_conn *conn = tows_pending_conn_create(
        fds[0], host->listener->kind, ask.peer[0] != '\0' ? ask.peer : "http");
    if (conn != NULL) {
        /* Whoever has the token; the process itself is nobody's, and sees what nobody may not. */
        conn->web = true;
        conn->by_network = true;
        conn->demands_token = ask.has_token != 0;
        conn->who = (struct tows_who){.kind = TOW_WHO_WEB};
        if (ask.has_token != 0) {
            conn->who = tows_who_at(&ask.from.any);
        }
        conn->origin = conn->who;
    }
    return conn;
}

bool tows_web_host_is_ruled_by(const struct tows_config *config,
                               const struct tows_pending_conn *conn)
{
    const char *names = config->http_admins;
    if (!conn->web || conn->who.kind != TOW_WHO_TOKEN || conn->who.certificate) {
        return false;
    }
    while (*names != '\0') {
        size_t length = strcspn(names, ",");
        if (strlen(conn->who.name) == length && memcmp(names, conn->who.name, length) == 0) {
            return true;
        }
        names += length + (names[length] == ',');
    }
    return false;
}
