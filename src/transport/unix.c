/* SPDX-License-Identifier: Apache-2.0 */
/* unix: stream sockets on one machine. The same listening socket serves shm. */
#include "transport/unix.h"

#include "base/clock.h"
#include "transport/shm.h"
#include "transport/sock.h"
#include "transport/transport.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int unix_parse(const char *scheme, const char *rest, struct sockaddr_un *ret_address,
                      socklen_t *ret_length, char *ret_why, size_t size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(rest);
    if ((rest[0] != '/' && rest[0] != '@') || length < 2) {
        snprintf(ret_why, size, "%s://%s is not an address; write %s:///PATH or %s://@NAME", scheme,
                 rest, scheme, scheme);
        return -EINVAL;
    }
    if (length >= sizeof address.sun_path) {
        snprintf(ret_why, size, "%s://%s is too long: a socket's path has at most %zu characters",
                 scheme, rest, sizeof address.sun_path - 1);
        return -ENAMETOOLONG;
    }
    memcpy(address.sun_path, rest, length);
    *ret_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
    if (rest[0] == '@') {
        address.sun_path[0] = '\0';
        *ret_length -= 1;
    }
    *ret_address = address;
    return 0;
}

int tow_unix_check(const char *scheme, const char *rest, char *ret_why, size_t size)
{
    struct sockaddr_un address;
    socklen_t length;
    return unix_parse(scheme, rest, &address, &length, ret_why, size);
}

int tow_unix_connect_fd(const char *scheme, const char *rest, int64_t deadline_ns, char *ret_why,
                        size_t size, int *ret_fd)
{
    struct sockaddr_un address;
    socklen_t length;
    int error = unix_parse(scheme, rest, &address, &length, ret_why, size);
    if (error < 0) {
        return error;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        error = -errno;
        snprintf(ret_why, size, "cannot make a socket: %s", strerror(-error));
        return error;
    }
    error = tow_sock_connect(fd, (struct sockaddr *)&address, length, deadline_ns);
    if (error == 0) {
        *ret_fd = fd;
        return 0;
    }
    close(fd);
    switch (-error) {
    case ENOENT:
        snprintf(ret_why, size,
                 "%s://%s does not exist; start towlined with -l %s://%s, or name another server",
                 scheme, rest, scheme, rest);
        break;
    case ECONNREFUSED:
        snprintf(
            ret_why, size,
            "nobody listens on %s://%s; start towlined with -l %s://%s, or name another server",
            scheme, rest, scheme, rest);
        break;
    case EACCES:
    case EPERM:
        snprintf(ret_why, size,
                 "this user may not connect to %s://%s; ask for access to that socket file", scheme,
                 rest);
        break;
    case ETIMEDOUT:
        snprintf(ret_why, size, "%s://%s did not accept the connection in time", scheme, rest);
        break;
    default:
        snprintf(ret_why, size, "cannot connect to %s://%s: %s", scheme, rest, strerror(-error));
        break;
    }
    return error;
}

/* A socket file that nobody listens on is left over from a server that was killed. */
static bool is_stale(const struct sockaddr_un *address, socklen_t length)
{
    struct stat status;
    if (lstat(address->sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return false;
    }
    bool stale =
        connect(fd, (const struct sockaddr *)address, length) != 0 && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

int tow_unix_listen_fd(const char *scheme, const char *rest, mode_t mode, char *ret_why,
                       size_t size, int *ret_fd, char *ret_address)
{
    struct sockaddr_un address;
    socklen_t length;
    int error = unix_parse(scheme, rest, &address, &length, ret_why, size);
    if (error < 0) {
        return error;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        error = -errno;
        snprintf(ret_why, size, "cannot make a socket: %s", strerror(-error));
        return error;
    }
    /* The file gets the socket's mode when it is bound: there is no moment with a wider one. */
    fchmod(fd, mode);
    int bound = bind(fd, (struct sockaddr *)&address, length);
    if (bound != 0 && errno == EADDRINUSE && rest[0] == '/' && is_stale(&address, length)) {
        unlink(rest);
        bound = bind(fd, (struct sockaddr *)&address, length);
    }
    if (bound == 0 && rest[0] == '/') {
        chmod(rest, mode);
    }
    if (bound != 0 || listen(fd, SOMAXCONN) != 0) {
        error = -errno;
        close(fd);
        if (error == -EADDRINUSE) {
            snprintf(ret_why, size, "another server already listens on %s://%s", scheme, rest);
        } else if (error == -ENOENT) {
            snprintf(ret_why, size, "cannot listen on %s://%s: its folder does not exist", scheme,
                     rest);
        } else {
            snprintf(ret_why, size, "cannot listen on %s://%s: %s", scheme, rest, strerror(-error));
        }
        return error;
    }
    snprintf(ret_address, TOW_ADDRESS_MAX, "%s://%s", scheme, rest);
    *ret_fd = fd;
    return 0;
}

static int unix_check(const char *rest, char *ret_why, size_t size)
{
    return tow_unix_check("unix", rest, ret_why, size);
}

static int unix_connect(const char *rest, const struct tow_preface *preface,
                        struct tow_patience *patience, char *ret_why, size_t size,
                        struct tow_line **ret_line)
{
    int fd;
    int error = tow_unix_connect_fd("unix", rest, patience->deadline_ns, ret_why, size, &fd);
    if (error < 0) {
        return error;
    }
    error = tow_sock_line(fd, false, ret_line);
    if (error < 0) {
        snprintf(ret_why, size, "cannot set up the connection to unix://%s: %s", rest,
                 strerror(-error));
    }
    return error;
}

static int unix_listen(const char *rest, mode_t mode, char *ret_why, size_t size, int *ret_fd,
                       char *ret_address)
{
    return tow_unix_listen_fd("unix", rest, mode, ret_why, size, ret_fd, ret_address);
}

int tow_unix_adopt(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                   struct tow_line **ret_line)
{
    /* The client's first bytes say which kind it wants. They may come one by one. */
    uint8_t first[TOW_SHM_MAGIC_SIZE];
    for (;;) {
        int error = tow_sock_poll(fd, POLLIN, deadline_ns);
        ssize_t got = error < 0 ? error : recv(fd, first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
        if (got < 0 && error == 0) {
            if (errno == EINTR || errno == EAGAIN) {
                continue;
            }
            error = -errno;
        }
        if (got == 0) {
            error = -ECONNRESET;
        }
        if (error < 0) {
            close(fd);
            snprintf(ret_why, size, "the client said nothing: %s", strerror(-error));
            return error;
        }
        if (memcmp(first, TOW_SHM_MAGIC, (size_t)got) != 0) {
            break;
        }
        if (got == sizeof first) {
            return tow_shm_serve(fd, deadline_ns, ret_why, size, ret_line);
        }
        if (tow_time_passed(deadline_ns)) {
            close(fd);
            snprintf(ret_why, size, "the client said too little");
            return -ETIMEDOUT;
        }
        tow_time_sleep(TOW_TIME_MS);
    }
    int error = tow_sock_line(fd, false, ret_line);
    if (error < 0) {
        snprintf(ret_why, size, "cannot set up the connection: %s", strerror(-error));
    }
    return error;
}

const struct tow_transport_ops tow_transport_unix = {
    .name = "unix",
    .prefix = "unix://",
    .further = &tow_transport_unix,
    .faster = &tow_transport_shm,
    .check = unix_check,
    .connect = unix_connect,
    .listen = unix_listen,
    .adopt = tow_unix_adopt,
};
