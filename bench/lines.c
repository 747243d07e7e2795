/* SPDX-License-Identifier: Apache-2.0 */
/* What a lasting line costs: the same bytes over a plain line and over one that outlives its
 * connection (src/transport/keep.h), between two processes over loopback, turn by turn.
 *
 *     lines [ROUNDS]        JSON lines: the best of ROUNDS (default 7) for each line and payload
 *
 * Also how much processor time both processes take for it, which tells more where others work, too.
 */
#include "base/clock.h"
#include "transport/keep.h"
#include "transport/sock.h"
#include "transport/tls.h"
#include "transport/transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEAD = 32, STREAM = 512 << 20, TRIPS = 5000, KINDS = 4, BEHIND = 3 };
static const struct {
    const char *name;
    bool tls, keeps;
} kinds[KINDS] = {{"tcp", false, false},
                  {"tcp, lasting", false, true},
                  {"tls", true, false},
                  {"tls, lasting", true, true}};

/* Of a payload at most so much is in one frame. It is taken back at its end, as an upload is; or
 * frame by frame, so many of them behind, as a download's buffers are. */
static const struct {
    const char *name;
    size_t size, piece;
    unsigned behind;
} payloads[] = {{"16 MiB", 16 << 20, 16 << 20},
                {"16 MiB in frames of 1 MiB", 16 << 20, 1 << 20},
                {"1 MiB, seven in turn", 7 << 20, 1 << 20, BEHIND},
                {"1 MiB", 1 << 20, 1 << 20},
                {"64 KiB", 64 << 10, 64 << 10},
                {"frames of 64 bytes", 1 << 20, 64}};
enum { PAYLOADS = sizeof payloads / sizeof *payloads };

static const struct tow_grant grant = {"a session's id", "a secret of thirty-two bytes...."};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int good(int error)
{
    if (error < 0) {
        fprintf(stderr, "lines: %s\n", strerror(-error));
        exit(1);
    }
    return error;
}

static struct tow_line *make_line(int fd, int kind, bool server)
{
    char why[TOW_WHY_MAX];
    struct tow_line *line;
    good(kinds[kind].tls ? tow_tls_line(fd, server, &grant, tow_time_deadline(20 * TOW_TIME_S), why,
                                        sizeof why, &line)
                         : tow_sock_line(fd, true, &line));
    const struct tow_keep_setup setup = {.limit_ns = TOW_TIME_S};
    if (kinds[kind].keeps) {
        good(tow_keep_line(line, &setup, &line));
    }
    return line;
}

/* Of this process, in the program and in the kernel. */
static int64_t cpu_now_ns(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return ((int64_t)used.ru_utime.tv_sec + used.ru_stime.tv_sec) * TOW_TIME_S +
           ((int64_t)used.ru_utime.tv_usec + used.ru_stime.tv_usec) * TOW_TIME_US;
}

static void answer(struct tow_line *line)
{
    uint8_t *to;
    int64_t used = cpu_now_ns();
    good(tow_line_reserve(line, HEAD, &to));
    memset(to, 0, HEAD);
    memcpy(to, &used, sizeof used);
    tow_line_commit_now(line, HEAD);
}

static bool take(struct tow_line *line, size_t n)
{
    const uint8_t *at;
    size_t available;
    if (tow_line_peek(line, n, TOW_TIME_FOREVER, &at, &available) < 0) {
        return false;
    }
    tow_line_consume(line, n);
    return true;
}

/* The server takes what it is told of, and answers when all of it came. */
static void serve(struct tow_line *line)
{
    uint8_t *bytes = malloc(16 << 20);
    const uint8_t *at;
    size_t available;
    memset(bytes, 1, 16 << 20);
    while (tow_line_peek(line, HEAD, TOW_TIME_FOREVER, &at, &available) == 0) {
        uint64_t words[4];
        memcpy(words, at, sizeof words);
        tow_line_consume(line, HEAD);
        for (uint64_t left = words[0]; left > 0; left -= words[1]) {
            bool came = words[1] <= 64
                            ? take(line, words[1])
                            : take(line, HEAD) && tow_line_recv_into(line, bytes, words[1]) == 0;
            if (!came) {
                exit(1);
            }
        }
        answer(line);
    }
    free(bytes);
}

static void say(struct tow_line *line, const void *bytes, size_t n, bool now)
{
    uint8_t *to;
    good(tow_line_reserve(line, n, &to));
    memcpy(to, bytes, n);
    if (now) {
        tow_line_commit_now(line, n);
    } else {
        tow_line_commit(line, n);
    }
}

/* The processor time of both. */
static int64_t used_ns(struct tow_line *line)
{
    const uint64_t nothing[4] = {0, 0};
    const uint8_t *at;
    size_t available;
    int64_t theirs;
    say(line, nothing, sizeof nothing, true);
    good(tow_line_peek(line, HEAD, TOW_TIME_FOREVER, &at, &available));
    memcpy(&theirs, at, sizeof theirs);
    tow_line_consume(line, HEAD);
    return theirs + cpu_now_ns();
}

static double stream(struct tow_line *line, uint8_t *bytes, int i, double *ret_cpu)
{
    size_t size = payloads[i].size, piece = payloads[i].piece;
    uint64_t places[BEHIND] = {0};
    int64_t used = used_ns(line);
    uint64_t total = piece <= 64 ? STREAM / 32 : STREAM;
    const uint64_t words[4] = {total, piece};
    int64_t began = tow_time_now_ns();
    say(line, words, sizeof words, false);
    for (uint64_t done = 0; done < total; done += piece) {
        uint8_t *from = bytes + done % size;
        if (piece <= 64) {
            say(line, from, piece, false);
        } else {
            struct iovec parts[2] = {{(void *)(uintptr_t)words, HEAD}, {from, piece}};
            good(tow_line_lend(line, parts, 2));
            if (payloads[i].behind > 0) {
                uint64_t *place = &places[done / piece % BEHIND];
                good(tow_line_take_back_until(line, *place));
                *place = tow_line_place(line);
            } else if ((done + piece) % size == 0) {
                good(tow_line_take_back(line));
            }
        }
    }
    good(tow_line_take_back(line));
    take(line, HEAD);
    double rate = (double)total / (double)(tow_time_now_ns() - began);
    *ret_cpu = (double)(used_ns(line) - used) / ((double)total / 1024);
    return rate;
}

static double trips(struct tow_line *line)
{
    const uint64_t nothing[4] = {0, 0};
    int64_t began = tow_time_now_ns();
    for (int i = 0; i < TRIPS; i++) {
        say(line, nothing, sizeof nothing, true);
        take(line, HEAD);
    }
    return (double)(tow_time_now_ns() - began) / 1e3 / TRIPS;
}

static struct tow_line *open_line(int kind, pid_t *ret_child)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof to;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&to, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&to, &size) != 0) {
        fail("listen");
    }
    fflush(stdout);
    *ret_child = fork();
    if (*ret_child == 0) {
        serve(make_line(accept(listener, NULL, NULL), kind, true));
        _exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, size) != 0) {
        fail("connect");
    }
    close(listener);
    return make_line(fd, kind, false);
}

int main(int argc, char **argv)
{
    static double best[KINDS][PAYLOADS + 1], cpu[KINDS][PAYLOADS];
    int rounds = argc > 1 ? atoi(argv[1]) : 7;
    uint8_t *bytes = malloc(16 << 20);
    memset(bytes, 1, 16 << 20);
    for (int round = 0; round < rounds; round++) {
        for (int kind = 0; kind < KINDS; kind++) {
            pid_t child;
            struct tow_line *line = open_line(kind, &child);
            for (int i = 0; i < PAYLOADS; i++) {
                double ns, *less = &cpu[kind][i];
                double rate = stream(line, bytes, i, &ns);
                *less = *less == 0 || ns < *less ? ns : *less;
                best[kind][i] = rate > best[kind][i] ? rate : best[kind][i];
            }
            double us = trips(line);
            double *least = &best[kind][PAYLOADS];
            *least = *least == 0 || us < *least ? us : *least;
            tow_line_close(line);
            waitpid(child, NULL, 0);
        }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < PAYLOADS; i++) {
            printf("{\"line\":\"%s\",\"payload\":\"%s\",\"gbps\":%.4g,\"of_plain\":%.3f,"
                   "\"cpu_ns_per_kib\":%.4g,\"cpu_of_plain\":%.3f}\n",
                   kinds[kind].name, payloads[i].name, best[kind][i],
                   best[kind][i] / best[kind & ~1][i], cpu[kind][i],
                   cpu[kind][i] / cpu[kind & ~1][i]);
        }
        printf("{\"line\":\"%s\",\"round_trip_us\":%.4g}\n", kinds[kind].name,
               best[kind][PAYLOADS]);
    }
    free(bytes);
    return 0;
}
