/* SPDX-License-Identifier: Apache-2.0 */
/* Reads ssh:// addresses, connects through the socket that ssh forwards, and says what ssh says of
 * a connection that came to nothing. */
#include "transport/ssh.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "transport/sock.h"
#include "transport/transport.h"
#include "transport/unix.h"

#define SSH "ssh://"
#define VIA "?via="
/* A file's time may be as much behind: the kernel takes that of its last tick. */
#define TICK_NS (20 * TOW_TIME_MS)

enum { LAST_BYTES = 2048 };

/* ---- addresses ---- */

static int ssh_wrong(const char *rest, const char *what, char *ret_why, size_t size)
{
    snprintf(ret_why, size,
             SSH "%s is not an address%s; write " SSH "[USER@]HOST[:PORT][/PATH], for example " SSH
                 "gpuhost or " SSH "me@gpuhost:22%s",
             rest, what, TOW_FILE_MACHINE_SOCKET);
    return -EINVAL;
}

static bool ssh_take(const char *from, size_t length, char *to, size_t size)
{
    if (length >= size) {
        return false;
    }
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

static bool is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    long number = 0;
    for (size_t i = 0; i < digits && i < 6; i++) {
        number = number * 10 + (text[i] - '0');
    }
    return digits > 0 && digits < 6 && text[digits] == '\0' && number > 0 && number <= 65535;
}

/* [USER@]HOST[:PORT]; NULL, or what is wrong with it. */
static const char *read_place(const char *text, struct tow_ssh_target *target)
{
    const char *host = strrchr(text, '@'), *end, *port;
    if (host != NULL && (host == text || !ssh_take(text, (size_t)(host - text), target->user,
                                                   sizeof target->user))) {
        return " (its user is missing or too long)";
    }
    host = host == NULL ? text : host + 1;
    if (host[0] == '[') {
        host++;
        end = strchr(host, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':')) {
            return " (its bracket is not closed)";
        }
        port = end + 1;
    } else {
        end = port = host + strcspn(host, ":");
        if (strchr(host, ':') != strrchr(host, ':')) {
            return " (one of IPv6 stands in brackets: " SSH "[::1])";
        }
    }
    if (end == host || !ssh_take(host, (size_t)(end - host), target->host, sizeof target->host)) {
        return " (its host is missing or too long)";
    }
    for (const char *at = target->host; *at != '\0'; at++) {
        if (isspace((unsigned char)*at) || iscntrl((unsigned char)*at)) {
            return " (a host has no blanks)";
        }
    }
    if (*port == ':' &&
        (!is_port(port + 1) || !ssh_take(port + 1, strlen(port + 1), target->port, 8))) {
        return " (its port is no number from 1 to 65535)";
    }
    return NULL;
}

int tow_ssh_read(const char *rest, struct tow_ssh_target *ret_target, char *ret_why, size_t size)
{
    struct tow_ssh_target target = {0};
    char place[sizeof target.user + sizeof target.host + sizeof target.port];
    const char *via = strstr(rest, VIA);
    const char *end = via == NULL ? rest + strlen(rest) : via;
    size_t length = strcspn(rest, "/?");
    if (!ssh_take(rest, length, place, sizeof place)) {
        return ssh_wrong(rest, " (it is too long)", ret_why, size);
    }
    const char *what = read_place(place, &target), *path = rest + length;
    if (what != NULL) {
        return ssh_wrong(rest, what, ret_why, size);
    }
    if (path[0] == '?' && path != via) {
        return ssh_wrong(rest, " (a question mark stands in paths only)", ret_why, size);
    }
    if (end - path <= 1) { /* none, or "/" */
        snprintf(target.path, sizeof target.path, "%s", TOW_FILE_MACHINE_SOCKET);
    } else if (!ssh_take(path, (size_t)(end - path), target.path, sizeof target.path)) {
        snprintf(ret_why, size, SSH "%s is too long: a socket's path has at most %d characters",
                 rest, TOW_SSH_PATH_MAX - 1);
        return -ENAMETOOLONG;
    }
    if (via != NULL &&
        !ssh_take(via + strlen(VIA), strlen(via) - strlen(VIA), target.via, sizeof target.via)) {
        return ssh_wrong(rest, " (it is too long)", ret_why, size);
    }
    if (strstr(target.path, "${") != NULL) {
        return ssh_wrong(rest, " (ssh would put a variable in the place of ${)", ret_why, size);
    }
    if (via != NULL && target.via[0] != '/') {
        return ssh_wrong(rest, " (" VIA " names a socket here, by its whole path)", ret_why, size);
    }
    *ret_target = target;
    return 0;
}

static int ssh_check(const char *rest, char *ret_why, size_t size)
{
    struct tow_ssh_target ignored;
    return tow_ssh_read(rest, &ignored, ret_why, size);
}

/* ---- what ssh says ---- */

/* Of what the lines end with, the last one that says why. */
static bool says_why(const char *line)
{
    static const char *const empty[] = {"Could not request local forwarding",
                                        "Connection closed by UNKNOWN port 65535",
                                        "Warning: Permanently added "};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        if (strncmp(line, empty[i], strlen(empty[i])) == 0) {
            return false;
        }
    }
    return line[strspn(line, "@ \t\r")] != '\0';
}

void tow_ssh_last_words(const char *said_path, char *ret_words, size_t size)
{
    char text[LAST_BYTES];
    ret_words[0] = '\0';
    int fd = open(said_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    off_t whole = lseek(fd, 0, SEEK_END);
    off_t from = whole > LAST_BYTES - 1 ? whole - (LAST_BYTES - 1) : 0;
    ssize_t got = pread(fd, text, sizeof text - 1, from);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        for (char *at = line; *at != '\0'; at++) {
            *at = iscntrl((unsigned char)*at) ? ' ' : *at;
        }
        size_t length = strlen(line);
        while (length > 0 && strchr(" .", line[length - 1]) != NULL) {
            line[--length] = '\0';
        }
        if (says_why(line)) {
            snprintf(ret_words, size, "%s", line);
        }
    }
}

static void said_beside(const char *via, char ret_path[TOW_SSH_PATH_MAX + 8])
{
    const char *slash = strrchr(via, '/');
    snprintf(ret_path, TOW_SSH_PATH_MAX + 8, "%.*s/" TOW_SSH_SAID, (int)(slash - via), via);
}

/* A connection to the far socket that sshd could not make, from the words behind "open failed: ".
 */
static void explain_refused(const struct tow_ssh_target *target, const char *words, char *ret_why,
                            size_t size)
{
    if (strncmp(words, "administratively prohibited", 27) == 0) {
        snprintf(ret_why, size,
                 "sshd of %s does not forward unix sockets (%s); its sshd_config needs "
                 "AllowStreamLocalForwarding",
                 target->host, words);
        return;
    }
    snprintf(ret_why, size,
             "%s has no server at %s that you may use (ssh: %s); start towlined there, look at "
             "the permissions of its socket, or name another: " SSH "%s/PATH",
             target->host, target->path, words, target->host);
}

static bool ssh_explain(const char *rest, int64_t since_ns, char *ret_why, size_t size)
{
    struct tow_ssh_target target;
    char said[TOW_SSH_PATH_MAX + 8], words[256];
    struct stat status;
    struct timespec now;
    if (tow_ssh_read(rest, &target, words, sizeof words) < 0 || target.via[0] == '\0') {
        return false;
    }
    said_beside(target.via, said);
    if (stat(said, &status) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return false;
    }
    /* Older words are of something else. */
    int64_t age = (int64_t)(now.tv_sec - status.st_mtim.tv_sec) * TOW_TIME_S +
                  (now.tv_nsec - status.st_mtim.tv_nsec);
    if (age > tow_time_now_ns() - since_ns + TICK_NS) {
        return false;
    }
    tow_ssh_last_words(said, words, sizeof words);
    const char *refused = strstr(words, "open failed: ");
    if (refused != NULL) {
        explain_refused(&target, refused + strlen("open failed: "), ret_why, size);
    } else if (words[0] != '\0') {
        snprintf(ret_why, size, "ssh to %s: %s", target.host, words);
    }
    return words[0] != '\0';
}

/* ---- connecting ---- */

static int ssh_connect(const char *rest, const struct tow_preface *preface,
                       struct tow_patience *patience, char *ret_why, size_t size,
                       struct tow_line **ret_line)
{
    struct tow_ssh_target target;
    int fd, error = tow_ssh_read(rest, &target, ret_why, size);
    if (error < 0) {
        return error;
    }
    if (target.via[0] == '\0') {
        snprintf(ret_why, size,
                 SSH "%s is reached through ssh, which towline starts; start the program with: "
                     "towline run -s " SSH "%s -- PROGRAM",
                 rest, rest);
        return -EOPNOTSUPP;
    }
    error = tow_unix_connect_fd("ssh", target.via, patience->deadline_ns, ret_why, size, &fd);
    if (error == -ENOENT || error == -ECONNREFUSED) {
        char said[TOW_SSH_PATH_MAX + 8], words[256];
        said_beside(target.via, said);
        tow_ssh_last_words(said, words, sizeof words);
        snprintf(ret_why, size,
                 "the ssh to %s has ended%s%s; start the program again with: towline run -s " SSH
                 "%.*s -- PROGRAM",
                 target.host, words[0] == '\0' ? "" : ": ", words, (int)(strstr(rest, VIA) - rest),
                 rest);
    }
    if (error < 0) {
        return error;
    }
    error = tow_sock_line(fd, false, ret_line);
    if (error < 0) {
        snprintf(ret_why, size, "cannot set up the connection to " SSH "%s: %s", rest,
                 strerror(-error));
    }
    return error;
}

static int ssh_no_listen(const char *rest, mode_t mode, char *ret_why, size_t size, int *ret_fd,
                         char *ret_address)
{
    snprintf(ret_why, size,
             SSH "%s cannot be listened on: sshd does that; listen on unix://%s, which people "
                 "reach with towline run -s " SSH "HOST",
             rest, TOW_FILE_MACHINE_SOCKET);
    return -EOPNOTSUPP;
}

static int ssh_no_adopt(int fd, int64_t deadline_ns, char *ret_why, size_t size,
                        struct tow_line **ret_line)
{
    close(fd);
    snprintf(ret_why, size, SSH " is not listened on");
    return -EOPNOTSUPP;
}

static bool ssh_is_ours(const char *address)
{
    return strncmp(address, SSH, strlen(SSH)) == 0;
}

bool tow_transport_wants_ssh(const char *address, struct tow_ssh_target *ret_target)
{
    char ignored[TOW_WHY_MAX];
    return ssh_is_ours(address) &&
           tow_ssh_read(address + strlen(SSH), ret_target, ignored, sizeof ignored) == 0 &&
           ret_target->via[0] == '\0';
}

int tow_transport_through(const char *address, const char *socket, char *ret_address)
{
    int length = snprintf(ret_address, TOW_ADDRESS_MAX, "%s" VIA "%s", address, socket);
    return length < TOW_ADDRESS_MAX ? 0 : -ENAMETOOLONG;
}

void tow_transport_as_written(const char *address, char *ret_address)
{
    const char *behind = tow_transport_behind_hook(address);
    const char *via = ssh_is_ours(behind) ? strstr(behind, VIA) : NULL;
    snprintf(ret_address, TOW_ADDRESS_MAX, "%.*s",
             via == NULL ? TOW_ADDRESS_MAX : (int)(via - address), address);
}

const struct tow_transport_ops tow_transport_ssh = {
    .name = "ssh",
    .prefix = SSH,
    .further = &tow_transport_ssh,
    .check = ssh_check,
    .connect = ssh_connect,
    .listen = ssh_no_listen,
    .adopt = ssh_no_adopt,
    .explain = ssh_explain,
};
