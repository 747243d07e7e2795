/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts connections: a thread for each, one request each, all of them within limits. */
#include "server/web/web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/walls/user.h"
#include "server/walls/walls.h"
#include "server/web/places.h"
#include "server/web/site.h"
#include "transport/transport.h"

enum {
    CLIENTS_EACH_MAX = 32, /* of TOW_WEB_PLACES_MAX at once, of one address */
    DRAIN_MAX = 64 << 10,  /* read of what a client sends on */
    ANSWER_MAX = 5 << 20,
};
#define START_NS (10 * TOW_TIME_S)  /* the listener has sent the socket */
#define HEAD_NS (5 * TOW_TIME_S)    /* a request's head must have come */
#define ANSWER_NS (10 * TOW_TIME_S) /* the answer must have gone */
#define DRAIN_NS TOW_TIME_S
#define PAUSE_NS (100 * TOW_TIME_MS)

struct web_client {
    int fd;              /* owned */
    struct tows_who who; /* whose place it has */
    struct tows_web_ask ask;
};

static int web_socket = -1; /* it accepts from there */
static struct tows_site site;
static struct tows_places places = {
    .most = TOW_WEB_PLACES_MAX, .each = CLIENTS_EACH_MAX, .lock = TOW_MUTEX(SERVER_WEB_PLACES)};

/* ---- a connection ---- */

static int client_wait(const struct web_client *client, short events, int64_t deadline_ns)
{
    struct pollfd fd = {.fd = client->fd, .events = events};
    int ready = poll(&fd, 1, (int)(tow_time_left(deadline_ns) / TOW_TIME_MS));
    return ready > 0 ? 0 : ready == 0 ? -ETIMEDOUT : errno == EINTR ? 0 : -errno;
}

/* As tows_http_read; 408: it did not come in time; -Exxx: the client has gone. */
static int client_read(const struct web_client *client, struct tows_http_request *ret_request)
{
    char bytes[TOW_HTTP_HEAD_MAX];
    size_t n = 0;
    int status = -EAGAIN;
    int64_t deadline_ns = tow_time_deadline(HEAD_NS);
    while (status == -EAGAIN) {
        int error = client_wait(client, POLLIN, deadline_ns);
        if (error < 0) {
            status = error == -ETIMEDOUT && n > 0 ? 408 : error;
            break;
        }
        ssize_t got = recv(client->fd, bytes + n, sizeof bytes - n, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            continue;
        }
        if (got <= 0) {
            status = got == 0 && n > 0 ? 400 : -EPIPE;
            break;
        }
        n += (size_t)got;
        status = tows_http_read(bytes, n, ret_request);
    }
    explicit_bzero(bytes, n); /* a token */
    return status;
}

static int client_write(const struct web_client *client, const struct tow_buf *out)
{
    int64_t deadline_ns = tow_time_deadline(ANSWER_NS);
    size_t sent = 0;
    while (sent < out->size) {
        ssize_t n =
            send(client->fd, out->data + sent, out->size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
            continue;
        }
        int error =
            errno == EAGAIN || errno == EINTR ? client_wait(client, POLLOUT, deadline_ns) : -errno;
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

/* Closing with bytes unread would make TCP throw away what was sent. */
static void client_drain(const struct web_client *client)
{
    char bytes[4096];
    int64_t deadline_ns = tow_time_deadline(DRAIN_NS);
    shutdown(client->fd, SHUT_WR);
    for (size_t n = 0; n < DRAIN_MAX && client_wait(client, POLLIN, deadline_ns) == 0;) {
        ssize_t got = recv(client->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            return;
        }
        n += got > 0 ? (size_t)got : 0;
    }
}

/* False: another has its place by now. */
static bool client_serve(struct web_client *client)
{
    struct tows_http_request request;
    struct tow_buf out;
    tow_buf_init(&out, ANSWER_MAX);
    int status = client_read(client, &request);
    bool placed = tows_places_heard(&places, client->fd);
    if (placed && status >= 0) {
        int error = status == 0 ? tows_site_answer(&site, &request, &client->ask, &out)
                                : tows_site_refuse(status, &out);
        if (error < 0) {
            tow_buf_clear(&out);
            error = tows_site_refuse(500, &out);
        }
        if (error == 0 && client_write(client, &out) == 0) {
            client_drain(client);
        }
    }
    explicit_bzero(&request, sizeof request);
    tow_buf_fini(&out);
    return placed;
}

static void *client_run(void *arg)
{
    struct web_client *client = arg;
    bool placed = client_serve(client);
    close(client->fd);
    if (placed) {
        tows_places_give(&places, &client->who);
    }
    free(client);
    return NULL;
}

/* Says so, if the socket takes it at once. */
static void client_turn_away(const struct web_client *client)
{
    struct tow_buf out;
    tow_buf_init(&out, 4096);
    if (tows_site_refuse(503, &out) == 0) {
        send(client->fd, out.data, out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    tow_buf_fini(&out);
}

static void client_describe(struct web_client *client)
{
    char host[INET6_ADDRSTRLEN] = "?";
    const struct tows_web_ask *ask = &client->ask;
    bool six = ask->from.any.sa_family == AF_INET6;
    inet_ntop(ask->from.any.sa_family,
              six ? (const void *)&ask->from.six.sin6_addr : (const void *)&ask->from.four.sin_addr,
              host, sizeof host);
    snprintf(client->ask.peer, sizeof client->ask.peer, "http://%s%s%s:%u", six ? "[" : "", host,
             six ? "]" : "", ntohs(six ? ask->from.six.sin6_port : ask->from.four.sin_port));
}

static void client_accept(void)
{
    pthread_t thread;
    struct web_client *client = calloc(1, sizeof *client);
    socklen_t size = sizeof client->ask.from;
    if (client == NULL) {
        tow_time_sleep(PAUSE_NS);
        return;
    }
    client->fd = accept4(web_socket, &client->ask.from.any, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client->fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            tow_time_sleep(PAUSE_NS); /* no descriptor is left: others go on */
        }
        free(client);
        return;
    }
    client_describe(client);
    client->who = tows_places_who(&client->ask.from.any);
    bool placed = tows_places_enter(&places, &client->who, client->fd);
    if (placed && tow_thread_start("towline-http", client_run, client, &thread) == 0) {
        pthread_detach(thread);
        return;
    }
    client_turn_away(client);
    if (placed) {
        tows_places_leave(&places, client->fd);
    }
    close(client->fd);
    free(client);
}

/* ---- the process ---- */

static int web_begin(const struct tows_config *config)
{
    struct rlimit none = {0, 0};
    prctl(PR_SET_NAME, "towline-web");
    setrlimit(RLIMIT_CORE, &none); /* it hears tokens */
    mallopt(M_ARENA_MAX, 2);
    tows_walls_hide();
    int error = tows_site_init(&site, config, TOW_WEB_CONTROL);
    if (error == 0 && config->become != 0) {
        error = tows_user_become((uint32_t)config->become);
        tows_walls_hide(); /* a new user's process may be dumpable */
    }
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_ERROR, "the process for HTTP cannot begin: %s",
                strerror(-error));
        return error;
    }
    char byte;
    int count = 0;
    error = tow_fds_recv(TOW_WEB_CONTROL, &byte, sizeof byte, tow_time_deadline(START_NS),
                         &web_socket, 1, &count);
    if (error < 0 || count != 1) {
        return -EPIPE; /* the listener has gone */
    }
    tows_walls_raise_bare(config);
    int refused = tows_walls_finish(config, true);
    if (refused >= 0) {
        close(refused); /* nobody is asked about calls that are not in the list: they fail */
    }
    return 0;
}

int tows_web_main(const struct tows_config *config)
{
    pthread_t sampler;
    struct pollfd fds[] = {{.fd = TOW_WEB_CONTROL, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    int error = web_begin(config);
    fds[1].fd = web_socket;
    error =
        error < 0 ? error : tow_thread_start("towline-sample", tows_site_sample, &site, &sampler);
    if (error < 0) {
        return 1;
    }
    /* The listener says nothing there: it ends. */
    for (;;) {
        if (poll(fds, 2, -1) < 0) {
            continue;
        }
        if (fds[0].revents != 0) {
            _exit(0);
        }
        if (fds[1].revents != 0) {
            client_accept();
        }
    }
}
