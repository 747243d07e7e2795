/* SPDX-License-Identifier: Apache-2.0 */
/* tcp: any machine that can be reached. What is over tcp uses the same addresses. */
#include "transport/tcp.h"

#include "base/clock.h"
#include "transport/sock.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TCP "tcp://"

/* A server may listen for both. */
static int default_port(const char *scheme)
{
    return strcmp(scheme, TCP) == 0 ? TOW_DEFAULT_PORT : TOW_DEFAULT_TLS_PORT;
}

int tow_tcp_parse(const char *scheme, const char *rest, struct tow_tcp_address *ret_address,
                  char *ret_why, size_t size)
{
    struct tow_tcp_address address = {0};
    const char *host = rest, *host_end, *port;
    if (rest[0] == '[') {
        host = rest + 1;
        host_end = strchr(host, ']');
        port = host_end == NULL ? NULL : host_end + 1;
    } else {
        host_end = rest + strcspn(rest, ":");
        port = host_end;
    }
    long number = default_port(scheme);
    bool good = host_end != NULL && (size_t)(host_end - host) < sizeof address.host;
    if (good && *port == ':') {
        char *end;
        errno = 0;
        number = strtol(port + 1, &end, 10);
        good = errno == 0 && *end == '\0' && end != port + 1 && number >= 0 && number <= 65535;
    } else if (good) {
        good = *port == '\0';
    }
    if (!good || host == host_end) {
        snprintf(ret_why, size,
                 "%s%s is not an address; write %sHOST:PORT, for example "
                 "%sgpuhost:%d or %s[::1]:%d",
                 scheme, rest, scheme, scheme, default_port(scheme), scheme, default_port(scheme));
        return -EINVAL;
    }
    memcpy(address.host, host, (size_t)(host_end - host));
    if (strcmp(address.host, "*") == 0) {
        address.host[0] = '\0';
    }
    snprintf(address.port, sizeof address.port, "%ld", number);
    *ret_address = address;
    return 0;
}

static int tcp_check(const char *rest, char *ret_why, size_t size)
{
    struct tow_tcp_address ignored;
    return tow_tcp_parse(TCP, rest, &ignored, ret_why, size);
}

static int tcp_resolve(const char *scheme, const char *rest, const struct tow_tcp_address *address,
                       bool passive, struct addrinfo **ret_list, char *ret_why, size_t size)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0),
    };
    int error = getaddrinfo(address->host[0] == '\0' ? NULL : address->host, address->port, &hints,
                            ret_list);
    if (error == 0) {
        return 0;
    }
    if (error == EAI_SYSTEM) {
        error = -errno;
        snprintf(ret_why, size, "cannot resolve the host name in %s%s: %s", scheme, rest,
                 strerror(-error));
        return error < 0 ? error : -EHOSTUNREACH;
    }
    snprintf(ret_why, size, "cannot resolve the host name in %s%s: %s; check its spelling", scheme,
             rest, gai_strerror(error));
    return -EHOSTUNREACH;
}

static void explain_connect(const char *scheme, const char *rest,
                            const struct tow_tcp_address *address, int error, char *ret_why,
                            size_t size)
{
    switch (-error) {
    case ECONNREFUSED:
        snprintf(ret_why, size,
                 "%s%s refused the connection; start towlined there with -l %s0.0.0.0:%s, or "
                 "check the port",
                 scheme, rest, scheme, address->port);
        break;
    case ETIMEDOUT:
        snprintf(ret_why, size,
                 "%s%s did not answer in time; check the host, and that no firewall blocks "
                 "port %s",
                 scheme, rest, address->port);
        break;
    case ENETUNREACH:
    case EHOSTUNREACH:
        snprintf(ret_why, size, "%s%s cannot be reached from this machine: %s", scheme, rest,
                 strerror(-error));
        break;
    default:
        snprintf(ret_why, size, "cannot connect to %s%s: %s", scheme, rest, strerror(-error));
        break;
    }
}

int tow_tcp_dial(const char *scheme, const char *rest, int64_t deadline_ns, char *ret_why,
                 size_t size, int *ret_fd)
{
    struct tow_tcp_address address;
    int error = tow_tcp_parse(scheme, rest, &address, ret_why, size);
    if (error < 0) {
        return error;
    }
    if (address.host[0] == '\0' || strcmp(address.port, "0") == 0) {
        snprintf(ret_why, size, "%s%s is for listening; name a host and a port to connect to",
                 scheme, rest);
        return -EINVAL;
    }
    struct addrinfo *list;
    error = tcp_resolve(scheme, rest, &address, false, &list, ret_why, size);
    if (error < 0) {
        return error;
    }
    int fd = -1;
    error = -EHOSTUNREACH;
    for (struct addrinfo *info = list; info != NULL && fd < 0; info = info->ai_next) {
        fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            error = -errno;
            continue;
        }
        /* A share of the time for each address, so that a dead first one leaves some for the
         * next. */
        int64_t left = tow_time_left(deadline_ns);
        int64_t until = info->ai_next == NULL || left == TOW_TIME_FOREVER
                            ? deadline_ns
                            : tow_time_deadline(left / 2);
        error = tow_sock_connect(fd, info->ai_addr, info->ai_addrlen, until);
        if (error < 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        explain_connect(scheme, rest, &address, error, ret_why, size);
        return error;
    }
    *ret_fd = fd;
    return 0;
}

static int tcp_connect(const char *rest, const struct tow_preface *preface,
                       struct tow_patience *patience, char *ret_why, size_t size,
                       struct tow_line **ret_line)
{
    int fd = -1;
    int error = tow_tcp_dial(TCP, rest, patience->deadline_ns, ret_why, size, &fd);
    if (error < 0) {
        return error;
    }
    error = tow_sock_line(fd, true, ret_line);
    if (error < 0) {
        snprintf(ret_why, size, "cannot set up the connection to tcp://%s: %s", rest,
                 strerror(-error));
    }
    return error;
}

/* The address with the port that the kernel chose. */
static void write_address(const char *scheme, int fd, const struct tow_tcp_address *address,
                          char *ret_address)
{
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    memset(&bound, 0, sizeof bound);
    unsigned port = 0;
    if (getsockname(fd, (struct sockaddr *)&bound, &length) == 0) {
        port = bound.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&bound)->sin6_port)
                                           : ntohs(((struct sockaddr_in *)&bound)->sin_port);
    }
    const char *host = address->host[0] == '\0' ? "*" : address->host;
    bool brackets = strchr(host, ':') != NULL;
    snprintf(ret_address, TOW_ADDRESS_MAX, "%s%s%s%s:%u", scheme, brackets ? "[" : "", host,
             brackets ? "]" : "", port);
}

int tow_tcp_listen(const char *scheme, const char *rest, char *ret_why, size_t size, int *ret_fd,
                   char *ret_address)
{
    struct tow_tcp_address address;
    int error = tow_tcp_parse(scheme, rest, &address, ret_why, size);
    if (error < 0) {
        return error;
    }
    struct addrinfo *list;
    error = tcp_resolve(scheme, rest, &address, true, &list, ret_why, size);
    if (error < 0) {
        return error;
    }
    int fd = -1;
    error = -EADDRNOTAVAIL;
    /* "*" means both families: an IPv6 socket takes IPv4 connections too. */
    for (int pass = 0; pass < 2 && fd < 0; pass++) {
        for (struct addrinfo *info = list; info != NULL && fd < 0; info = info->ai_next) {
            if (address.host[0] == '\0' && (info->ai_family == AF_INET6) != (pass == 0)) {
                continue;
            }
            fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            if (fd < 0) {
                error = -errno;
                continue;
            }
            int on = 1, off = 0;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            if (info->ai_family == AF_INET6) {
                const int *only = address.host[0] == '\0' ? &off : &on;
                setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, only, sizeof *only);
            }
            if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
                error = -errno;
                close(fd);
                fd = -1;
            }
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        if (error == -EADDRINUSE) {
            snprintf(ret_why, size, "another program already listens on %s%s; choose another port",
                     scheme, rest);
        } else if (error == -EADDRNOTAVAIL) {
            snprintf(ret_why, size, "cannot listen on %s%s: that is not an address of this machine",
                     scheme, rest);
        } else {
            snprintf(ret_why, size, "cannot listen on %s%s: %s", scheme, rest, strerror(-error));
        }
        return error;
    }
    write_address(scheme, fd, &address, ret_address);
    *ret_fd = fd;
    return 0;
}

static int tcp_listen(const char *rest, mode_t mode, char *ret_why, size_t size, int *ret_fd,
                      char *ret_address)
{
    return tow_tcp_listen(TCP, rest, ret_why, size, ret_fd, ret_address);
}

static int tcp_adopt(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                     struct tow_line **ret_line)
{
    int error = tow_sock_line(fd, true, ret_line);
    if (error < 0) {
        snprintf(ret_why, size, "cannot set up the connection: %s", strerror(-error));
    }
    return error;
}

const struct tow_transport_ops tow_transport_tcp = {
    .name = "tcp",
    .prefix = "tcp://",
    .spreads = true,
    .lasts = true,
    .further = &tow_transport_tcp,
    .check = tcp_check,
    .connect = tcp_connect,
    .listen = tcp_listen,
    .adopt = tcp_adopt,
};
