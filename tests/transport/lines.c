/* SPDX-License-Identifier: Apache-2.0 */
/* Makes connected pairs of lines of each kind. */
#include "lines.h"

#include "base/clock.h"
#include "base/thread.h"
#include "transport/keep.h"
#include "transport/sock.h"
#include "transport/tls.h"
#include "transport/tls_lib.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char *lines_kind = "self";

/* What both ends of a line over tls have. */
static const struct tow_grant grant = {"a session's id", "a secret of thirty-two bytes...."};

static char folder[64];

const char *lines_folder(void)
{
    if (folder[0] == '\0') {
        snprintf(folder, sizeof folder, "/tmp/towline-test-XXXXXX");
        if (mkdtemp(folder) == NULL) {
            fail_msg("mkdtemp: %s", strerror(errno));
        }
    }
    return folder;
}

void lines_cleanup(void)
{
    if (folder[0] == '\0') {
        return;
    }
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(folder);
    folder[0] = '\0';
}

static bool is_hooked(void)
{
    return strncmp(lines_kind, "hook-", 5) == 0;
}

static bool is_kept(void)
{
    return strstr(lines_kind, "keep-") != NULL;
}

const char *lines_inner_kind(void)
{
    const char *kind = lines_kind + (is_hooked() ? 5 : 0);
    return kind + (is_kept() ? 5 : 0);
}

/* Nobody mends it here: so it ends soon. */
static int keep(struct tow_line **line)
{
    const struct tow_keep_setup setup = {.limit_ns = 300 * TOW_TIME_MS};
    return tow_keep_line(*line, &setup, line);
}

bool lines_missing(void)
{
    const struct tow_tls_lib *lib;
    char why[TOW_WHY_MAX] = "";
    if (strcmp(lines_inner_kind(), "tls") != 0 || tow_tls_lib(&lib, why, sizeof why) == 0) {
        return false;
    }
    printf("%s\n", why);
    return true;
}

struct tow_listener *lines_listen(char ret_connect[TOW_ADDRESS_MAX])
{
    static int number;
    char address[TOW_ADDRESS_MAX], why[TOW_WHY_MAX] = "";
    const char *kind = lines_inner_kind();
    if (strcmp(kind, "tcp") == 0 || strcmp(kind, "tls") == 0) {
        snprintf(address, sizeof address, "tcp://127.0.0.1:0");
    } else {
        snprintf(address, sizeof address, "%s://%s/s%d", kind, lines_folder(), number++);
    }
    struct tow_listener *listener;
    if (tow_listener_open(address, 0600, why, sizeof why, &listener) < 0) {
        fail_msg("%s", why);
    }
    snprintf(ret_connect, TOW_ADDRESS_MAX, "%s%.400s",
             is_hooked() && !is_kept() ? "hook:delay=100us:" : "", listener->address);
    return listener;
}

/* Over tls it takes a grant, which nobody gives here. */
static int connect_tls(const char *address, int64_t deadline_ns, char *ret_why, size_t size,
                       struct tow_line **ret_line)
{
    const char *port = strrchr(address, ':');
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(port + 1)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = tow_sock_connect(fd, (struct sockaddr *)&to, sizeof to, deadline_ns);
    if (error < 0) {
        close(fd);
        snprintf(ret_why, size, "%s", strerror(-error));
        return error;
    }
    error = tow_tls_line(fd, false, &grant, deadline_ns, ret_why, size, ret_line);
    return error == 0 && is_hooked() && !is_kept()
               ? tow_line_hook(*ret_line, "delay=100us", ret_why, size, ret_line)
               : error;
}

struct tow_line *lines_connect(const char *address)
{
    struct tow_line *line;
    char why[TOW_WHY_MAX] = "";
    /* For whoever listens, if at all: nothing of it comes out of the line. */
    static const uint8_t bytes[777] = "preface";
    const struct tow_preface preface = {bytes, sizeof bytes};
    struct tow_patience patience = tow_patience_none(tow_time_deadline(TOW_CONNECT_TIMEOUT_NS));
    int error =
        strcmp(lines_inner_kind(), "tls") == 0
            ? connect_tls(address, patience.deadline_ns, why, sizeof why, &line)
            : tow_transport_connect_by(address, &preface, &patience, why, sizeof why, &line);
    if (error == 0 && is_kept()) {
        error = keep(&line);
    }
    if (error == 0 && is_kept() && is_hooked()) {
        error = tow_line_hook(line, "delay=100us", why, sizeof why, &line);
    }
    if (error < 0) {
        fprintf(stderr, "connect %s: %s\n", address, why);
        abort();
    }
    uint8_t *at;
    if (tow_line_reserve(line, 8, &at) < 0) {
        abort();
    }
    memcpy(at, "greeting", 8);
    tow_line_commit(line, 8);
    return line;
}

struct tow_line *lines_adopt(struct tow_listener *listener)
{
    int fd;
    char peer[TOW_ADDRESS_MAX], why[TOW_WHY_MAX] = "";
    struct pollfd poll_fd = {.fd = listener->fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 5000), 1);
    assert_int_equal(tow_listener_accept(listener, &fd, peer), 0);
    struct tow_line *line;
    int64_t deadline_ns = tow_time_deadline(5 * TOW_TIME_S);
    int error = strcmp(lines_inner_kind(), "tls") == 0
                    ? tow_tls_line(fd, true, &grant, deadline_ns, why, sizeof why, &line)
                    : tow_line_from_fd(fd, listener->kind, deadline_ns, why, sizeof why, &line);
    if (error == 0 && is_kept()) {
        error = keep(&line);
    }
    if (error < 0) {
        fail_msg("%s", why);
    }
    const uint8_t *at;
    size_t available;
    assert_int_equal(tow_line_peek(line, 8, tow_time_deadline(5 * TOW_TIME_S), &at, &available), 0);
    assert_memory_equal(at, "greeting", 8);
    tow_line_consume(line, 8);
    return line;
}

static void *connect_run(void *arg)
{
    return lines_connect(arg);
}

void lines_pair(struct tow_line **ret_client, struct tow_line **ret_server)
{
    if (strcmp(lines_inner_kind(), "self") == 0) {
        assert_int_equal(tow_line_pair(ret_client, ret_server), 0);
        if (is_hooked()) {
            char why[TOW_WHY_MAX];
            assert_int_equal(tow_line_hook(*ret_client, "delay=100us", why, sizeof why, ret_client),
                             0);
        }
        return;
    }
    char address[TOW_ADDRESS_MAX];
    struct tow_listener *listener = lines_listen(address);
    pthread_t thread;
    assert_int_equal(tow_thread_start("connect", connect_run, address, &thread), 0);
    *ret_server = lines_adopt(listener);
    void *client;
    pthread_join(thread, &client);
    *ret_client = client;
    tow_listener_close(listener);
}

void lines_bytes(uint64_t seed, uint64_t at, uint8_t *ret_bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ret_bytes[i] = lines_byte(seed, at + i);
    }
}

int lines_open_fds(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

const struct tow_tls_lib *lines_tls_lib(void)
{
    const struct tow_tls_lib *lib;
    char why[TOW_WHY_MAX] = "";
    if (tow_tls_lib(&lib, why, sizeof why) < 0) {
        fail_msg("%s", why);
    }
    return lib;
}
