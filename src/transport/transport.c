/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the transport of an address and calls its table. */
#include "transport/transport.h"

#include "transport/address.h"
#include "transport/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct tow_transport_ops *const transports[TOW_TRANSPORT_COUNT] = {
    [TOW_TRANSPORT_SELF] = &tow_transport_self, [TOW_TRANSPORT_UNIX] = &tow_transport_unix,
    [TOW_TRANSPORT_TCP] = &tow_transport_tcp,   [TOW_TRANSPORT_SHM] = &tow_transport_shm,
    [TOW_TRANSPORT_SSH] = &tow_transport_ssh,   [TOW_TRANSPORT_HOOK] = &tow_transport_hook,
    [TOW_TRANSPORT_TLS] = &tow_transport_tls,
};

static int self_check(const char *rest, char *ret_why, size_t size)
{
    return 0; /* whoever makes it reads its settings */
}

static int self_no_connect(const char *rest, const struct tow_preface *preface,
                           struct tow_patience *patience, char *ret_why, size_t size,
                           struct tow_line **ret_line)
{
    snprintf(ret_why, size, "self: has no server to connect to: it is made inside the program");
    return -EOPNOTSUPP;
}

static int self_no_listen(const char *rest, mode_t mode, char *ret_why, size_t size, int *ret_fd,
                          char *ret_address)
{
    snprintf(ret_why, size,
             "self: cannot be listened on; use unix:///PATH, tcp://HOST:PORT or shm:///PATH");
    return -EOPNOTSUPP;
}

static int self_no_adopt(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                         struct tow_line **ret_line)
{
    close(fd);
    snprintf(ret_why, size, "self: is not made of a connection");
    return -EOPNOTSUPP;
}

const struct tow_transport_ops tow_transport_self = {
    .name = "self",
    .prefix = "self:",
    .in_process = true,
    .check = self_check,
    .connect = self_no_connect,
    .listen = self_no_listen,
    .adopt = self_no_adopt,
};

int tow_transport_find(const char *address, const char **ret_rest)
{
    for (int i = 0; i < TOW_TRANSPORT_COUNT; i++) {
        size_t length = strlen(transports[i]->prefix);
        if (strncmp(address, transports[i]->prefix, length) == 0) {
            *ret_rest = address + length;
            return i;
        }
    }
    return -EINVAL;
}

/* NULL for what has no scheme that is known. */
static const struct tow_transport_ops *transport_of(const char *address, const char **ret_rest)
{
    int kind = tow_transport_find(address, ret_rest);
    return kind < 0 ? NULL : transports[kind];
}

bool tow_transport_is_in_process(const char *address, const char **ret_rest)
{
    const struct tow_transport_ops *ops = transport_of(address, ret_rest);
    return ops != NULL && ops->in_process;
}

bool tow_transport_spreads(const char *address)
{
    const char *rest;
    const struct tow_transport_ops *ops = transport_of(address, &rest);
    return ops != NULL && ops->spreads;
}

bool tow_transport_lasts(const char *address)
{
    const char *rest;
    const struct tow_transport_ops *ops = transport_of(address, &rest);
    return ops != NULL && ops->lasts;
}

static int write_address(const struct tow_transport_ops *ops, const char *rest, char *ret_address)
{
    if (ops == NULL) {
        return -ENOTSUP;
    }
    int length = snprintf(ret_address, TOW_ADDRESS_MAX, "%s%s", ops->prefix, rest);
    return length < TOW_ADDRESS_MAX ? 0 : -ENOTSUP;
}

int tow_transport_further(const char *address, char *ret_address)
{
    const char *rest = "";
    const struct tow_transport_ops *ops = transport_of(address, &rest);
    return write_address(ops != NULL ? ops->further : NULL, rest, ret_address);
}

int tow_transport_faster(const char *address, char *ret_address)
{
    const char *rest = "";
    const struct tow_transport_ops *ops = transport_of(address, &rest);
    return write_address(ops != NULL ? ops->faster : NULL, rest, ret_address);
}

bool tow_transport_explain(const char *address, int64_t since_ns, char *ret_why, size_t size)
{
    const char *rest;
    const struct tow_transport_ops *ops = transport_of(tow_transport_behind_hook(address), &rest);
    return ops != NULL && ops->explain != NULL && ops->explain(rest, since_ns, ret_why, size);
}

int tow_transport_check(const char *address, char *ret_why, size_t size)
{
    const char *rest;
    int kind = tow_transport_find(address, &rest);
    if (kind < 0) {
        snprintf(ret_why, size, "%s has no scheme", address);
        return kind;
    }
    return transports[kind]->check(rest, ret_why, size);
}

/* The transport of an address in any form, and what is behind its scheme; `full` has
 * TOW_ADDRESS_MAX bytes. */
static int find_written(const char *address, char *full, const char **ret_rest, char *ret_why,
                        size_t size)
{
    int error = tow_address_read(address, full, ret_why, size);
    return error < 0 ? error : tow_transport_find(full, ret_rest);
}

int tow_transport_connect(const char *address, int64_t deadline_ns, char *ret_why, size_t size,
                          struct tow_line **ret_line)
{
    struct tow_patience patience = tow_patience_none(deadline_ns);
    return tow_transport_connect_by(address, NULL, &patience, ret_why, size, ret_line);
}

int tow_transport_connect_by(const char *address, const struct tow_preface *preface,
                             struct tow_patience *patience, char *ret_why, size_t size,
                             struct tow_line **ret_line)
{
    char full[TOW_ADDRESS_MAX];
    const char *rest;
    int kind = find_written(address, full, &rest, ret_why, size);
    if (kind < 0) {
        return kind;
    }
    const struct tow_transport_ops *ops = transports[kind];
    if (ops->wrap == NULL) {
        return ops->connect(rest, preface, patience, ret_why, size, ret_line);
    }
    struct tow_line *inner;
    const char *behind = strchr(rest, ':') + 1; /* without one it could not be read */
    int error = tow_transport_connect_by(behind, preface, patience, ret_why, size, &inner);
    return error < 0 ? error : ops->wrap(rest, inner, ret_why, size, ret_line);
}

int tow_transport_connect_beside(const char *address, const struct tow_grant *grant,
                                 int64_t deadline_ns, char *ret_why, size_t size,
                                 struct tow_line **ret_line)
{
    char full[TOW_ADDRESS_MAX];
    const char *rest;
    if (grant == NULL) {
        return tow_transport_connect(address, deadline_ns, ret_why, size, ret_line);
    }
    int kind = find_written(tow_transport_behind_hook(address), full, &rest, ret_why, size);
    if (kind < 0) {
        return kind;
    }
    if (transports[kind]->beside == NULL) {
        snprintf(ret_why, size, "%s has no lines that belong to others", address);
        return -ENOTSUP;
    }
    return transports[kind]->beside(rest, grant, deadline_ns, ret_why, size, ret_line);
}

bool tow_transport_encrypts(enum tow_transport_kind kind)
{
    return (unsigned)kind < TOW_TRANSPORT_COUNT && transports[kind]->encrypts;
}

bool tow_transport_kind_lasts(enum tow_transport_kind kind)
{
    return (unsigned)kind < TOW_TRANSPORT_COUNT && transports[kind]->lasts;
}

int tow_line_from_fd(int fd, enum tow_transport_kind kind, int64_t deadline_ns, char *ret_why,
                     size_t size, struct tow_line **ret_line)
{
    if ((unsigned)kind >= TOW_TRANSPORT_COUNT) {
        close(fd);
        snprintf(ret_why, size, "%u is not a kind of transport", (unsigned)kind);
        return -EINVAL;
    }
    return transports[kind]->adopt(fd, deadline_ns, ret_why, size, ret_line);
}

int tow_listener_open(const char *address, mode_t mode, char *ret_why, size_t size,
                      struct tow_listener **ret_listener)
{
    char full[TOW_ADDRESS_MAX];
    const char *rest;
    int kind = find_written(address, full, &rest, ret_why, size);
    if (kind < 0) {
        return kind;
    }
    struct tow_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        snprintf(ret_why, size, "out of memory");
        return -ENOMEM;
    }
    listener->kind = (enum tow_transport_kind)kind;
    int error =
        transports[kind]->listen(rest, mode, ret_why, size, &listener->fd, listener->address);
    if (error < 0) {
        free(listener);
        return error;
    }
    if ((kind == TOW_TRANSPORT_UNIX || kind == TOW_TRANSPORT_SHM) && rest[0] == '/') {
        snprintf(listener->path, sizeof listener->path, "%s", rest);
    }
    *ret_listener = listener;
    return 0;
}

int tow_listener_adopt(int fd, struct tow_listener **ret_listener)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) {
        return -EINVAL;
    }
    struct tow_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL) {
        return -ENOMEM;
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    listener->fd = fd;
    listener->kind = domain == AF_UNIX ? TOW_TRANSPORT_UNIX : TOW_TRANSPORT_TCP;
    snprintf(listener->address, sizeof listener->address, "%s (inherited descriptor %d)",
             transports[listener->kind]->name, fd);
    *ret_listener = listener;
    return 0;
}

void tow_transport_peer(int fd, char *ret_peer)
{
    tow_sock_describe(fd, ret_peer, TOW_ADDRESS_MAX);
}

int tow_listener_accept(struct tow_listener *listener, int *ret_fd, char *ret_peer)
{
    int fd;
    do {
        fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0) {
        return -errno;
    }
    if (listener->kind != TOW_TRANSPORT_TCP && listener->kind != TOW_TRANSPORT_TLS) {
        tow_sock_widen(fd); /* whoever serves it may not have the right to */
    }
    tow_transport_peer(fd, ret_peer);
    *ret_fd = fd;
    return 0;
}

void tow_listener_close(struct tow_listener *listener)
{
    if (listener == NULL) {
        return;
    }
    if (listener->path[0] != '\0') {
        unlink(listener->path);
    }
    close(listener->fd);
    free(listener);
}
