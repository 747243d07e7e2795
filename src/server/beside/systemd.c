/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets from systemd, and READY=1 to it. */
#include "server/beside/systemd.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    FIRST_FD = 3, /* SD_LISTEN_FDS_START */
    SOCKETS_MAX = 16,
};

static struct tows_parent_line *relay; /* process-wide, as NOTIFY_SOCKET is; NULL: none */

void tows_systemd_relay(struct tows_parent_line *line)
{
    relay = line;
}

bool tows_systemd_is_state(const char *state)
{
    static const char *const whole[] = {"READY=1", "RELOADING=1", "STOPPING=1", "WATCHDOG=1"};
    static const char text[] = "STATUS=";
    while (*state != '\0') {
        size_t length = strcspn(state, "\n");
        bool known = strncmp(state, text, sizeof text - 1) == 0;
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
            known |= strlen(whole[i]) == length && memcmp(state, whole[i], length) == 0;
        }
        for (size_t i = 0; i < length; i++) {
            known = known && (unsigned char)state[i] >= ' ' && (unsigned char)state[i] < 127;
        }
        if (!known) {
            return false;
        }
        state += length + (state[length] == '\n');
    }
    return true;
}

static void systemd_relay(const char *state)
{
    struct tows_parent_msg msg = {.ask = TOW_PARENT_NOTIFY};
    struct tows_parent_news answer;
    int none[TOW_PARENT_FDS_MAX];
    if (getenv("NOTIFY_SOCKET") != NULL) {
        snprintf(msg.text, sizeof msg.text, "%s", state);
        for (char *at = msg.text; *at != '\0'; at++) {
            /* The parent passes no other on; a driver's path may have some. */
            *at = (char)(*at != '\n' && ((unsigned char)*at < ' ' || (unsigned char)*at >= 127)
                             ? '?'
                             : *at);
        }
        tows_parent_line_ask(relay, &msg, NULL, 0, &answer, none);
    }
}

void tows_systemd_notify(const char *state)
{
    if (relay != NULL) {
        systemd_relay(state);
        return;
    }
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') ||
        strlen(path) >= sizeof address.sun_path) {
        return;
    }
    size_t length = strlen(path);
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') {
        address.sun_path[0] = '\0'; /* abstract */
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return;
    }
    sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(fd);
}

int64_t tows_systemd_watchdog(void)
{
    const char *pid = getenv("WATCHDOG_PID");
    const char *limit = getenv("WATCHDOG_USEC");
    int64_t us = 0;
    if (limit != NULL && (pid == NULL || strtol(pid, NULL, 10) == (long)getpid())) {
        us = strtoll(limit, NULL, 10);
    }
    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
    /* A day or more is as good as none; so is what is no number. */
    return us <= 0 || us > INT64_C(86400000000) ? 0 : us * 1000 / 2;
}

int tows_systemd_sockets(void)
{
    const char *pid = getenv("LISTEN_PID");
    const char *fds = getenv("LISTEN_FDS");
    int count = 0;
    if (pid != NULL && fds != NULL && strtol(pid, NULL, 10) == (long)getpid()) {
        long many = strtol(fds, NULL, 10);
        count = many < 0 || many > SOCKETS_MAX ? 0 : (int)many;
        for (int fd = FIRST_FD; fd < FIRST_FD + count; fd++) {
            fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return count;
}
