/* SPDX-License-Identifier: Apache-2.0 */
/* What every kind of line promises. Run once per kind: the argument names it. */
#include "lines.h"

#include "base/clock.h"
#include "base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tow_line *client, *server;

static int setup(void **state)
{
    lines_pair(&client, &server);
    return 0;
}

static int teardown(void **state)
{
    tow_line_close(client);
    tow_line_close(server);
    client = server = NULL;
    return 0;
}

static void send_bytes(struct tow_line *line, const void *bytes, size_t n)
{
    uint8_t *at;
    assert_int_equal(tow_line_reserve(line, n, &at), 0);
    memcpy(at, bytes, n);
    tow_line_commit(line, n);
}

static int peek_ms(struct tow_line *line, size_t min, int64_t ms, const uint8_t **ret_at)
{
    size_t available;
    int error = tow_line_peek(line, min, tow_time_deadline(ms * TOW_TIME_MS), ret_at, &available);
    if (error == 0) {
        assert_true(available >= min);
    }
    return error;
}

static pthread_t start(void *(*run)(void *arg), void *arg)
{
    pthread_t thread;
    assert_int_equal(tow_thread_start("test", run, arg, &thread), 0);
    return thread;
}

static intptr_t finish(pthread_t thread)
{
    void *result;
    pthread_join(thread, &result);
    return (intptr_t)result;
}

/* ---- order ---- */

#define SMALL_FRAMES 60000u

static uint32_t small_size(uint32_t number)
{
    return 16 + number * 2654435761u % 23 * 8;
}

static void *small_producer(void *arg)
{
    struct tow_line *line = arg;
    for (uint32_t i = 0; i < SMALL_FRAMES; i++) {
        uint32_t size = small_size(i);
        uint8_t *at;
        int error = tow_line_reserve(line, size, &at);
        if (error < 0) {
            return (void *)(intptr_t)error;
        }
        memcpy(at, &size, 4);
        memcpy(at + 4, &i, 4);
        memset(at + 8, (int)(i & 255), size - 8);
        if (i % 1000 == 999) {
            tow_line_commit_now(line, size);
        } else {
            tow_line_commit(line, size);
        }
    }
    return NULL;
}

static void *small_consumer(void *arg)
{
    struct tow_line *line = arg;
    for (uint32_t i = 0; i < SMALL_FRAMES; i++) {
        const uint8_t *at;
        size_t available;
        uint32_t size, number;
        int error = tow_line_peek(line, 16, TOW_TIME_FOREVER, &at, &available);
        if (error < 0) {
            return (void *)(intptr_t)error;
        }
        memcpy(&size, at, 4);
        memcpy(&number, at + 4, 4);
        if (number != i || size != small_size(i) || (uintptr_t)at % 8 != 0) {
            return (void *)(intptr_t)-EBADMSG;
        }
        error = tow_line_peek(line, size, TOW_TIME_FOREVER, &at, &available);
        if (error < 0) {
            return (void *)(intptr_t)error;
        }
        for (uint32_t k = 8; k < size; k++) {
            if (at[k] != (i & 255)) {
                return (void *)(intptr_t)-EBADMSG;
            }
        }
        tow_line_consume(line, size);
    }
    return NULL;
}

static void many_small_frames_arrive_in_order_both_ways(void **state)
{
    pthread_t there = start(small_producer, client), here = start(small_producer, server);
    pthread_t there_end = start(small_consumer, server), here_end = start(small_consumer, client);
    assert_int_equal(finish(there), 0);
    assert_int_equal(finish(here), 0);
    assert_int_equal(finish(there_end), 0);
    assert_int_equal(finish(here_end), 0);
    struct tow_line_stats stats;
    tow_line_get_stats(client, &stats);
    assert_true(stats.frames_out >= SMALL_FRAMES);
    assert_true(stats.bytes_out == stats.bytes_in || stats.bytes_out == stats.bytes_in + 8);
}

/* ---- bulk ---- */

#define BULK_CHUNK ((1u << 20) - 40u)
#define BULK_COUNT 24u

struct bulk {
    struct tow_line *line;
    uint8_t *bytes;
    size_t size;
    bool lends;
};

static void *bulk_producer(void *arg)
{
    struct bulk *bulk = arg;
    for (uint32_t i = 0; i < BULK_COUNT; i++) {
        /* A small frame before, so that order between the two ways is seen. */
        uint8_t *at;
        int error = tow_line_reserve(bulk->line, 8, &at);
        if (error < 0) {
            return (void *)(intptr_t)error;
        }
        uint64_t word = i;
        memcpy(at, &word, 8);
        tow_line_commit(bulk->line, 8);
        struct iovec iov[3] = {
            {.iov_base = &word, .iov_len = 8},
            {.iov_base = bulk->bytes + i * 64, .iov_len = BULK_CHUNK / 2},
            {.iov_base = bulk->bytes + i * 64 + BULK_CHUNK / 2,
             .iov_len = BULK_CHUNK - BULK_CHUNK / 2},
        };
        error = (bulk->lends ? tow_line_lend : tow_line_send_direct)(bulk->line, iov, 3);
        if (error < 0) {
            return (void *)(intptr_t)error;
        }
    }
    if (bulk->lends) {
        int error = tow_line_take_back(bulk->line);
        memset(bulk->bytes, 0xee, bulk->size); /* it may be used for something else */
        return (void *)(intptr_t)error;
    }
    return NULL;
}

static void bulk_goes_in_order(bool lends)
{
    size_t size = BULK_CHUNK + BULK_COUNT * 64;
    uint8_t *bytes = test_malloc(size), *copy = test_malloc(BULK_CHUNK);
    uint8_t *expected = test_malloc(size);
    lines_bytes(7, 0, bytes, size);
    memcpy(expected, bytes, size);
    struct bulk bulk = {client, bytes, size, lends};
    pthread_t producer = start(bulk_producer, &bulk);
    for (uint32_t i = 0; i < BULK_COUNT; i++) {
        const uint8_t *at;
        uint64_t words[2];
        assert_int_equal(peek_ms(server, 16, 20000, &at), 0);
        memcpy(words, at, 16);
        assert_int_equal(words[0], i);
        assert_int_equal(words[1], i);
        tow_line_consume(server, 16);
        assert_int_equal(tow_line_recv_into(server, copy, BULK_CHUNK), 0);
        assert_memory_equal(copy, expected + i * 64, BULK_CHUNK);
    }
    assert_int_equal(finish(producer), 0);
    test_free(bytes);
    test_free(copy);
    test_free(expected);
}

static void bulk_goes_from_memory_to_memory_in_order(void **state)
{
    bulk_goes_in_order(false);
}

static void memory_that_is_lent_is_given_back(void **state)
{
    bulk_goes_in_order(true);
}

static void small_direct_sends_keep_their_place(void **state)
{
    char three[3] = "abc";
    struct iovec iov[2] = {{.iov_base = three, .iov_len = 3}, {.iov_base = three, .iov_len = 0}};
    for (int i = 0; i < 100; i++) {
        send_bytes(client, "12345", 5);
        assert_int_equal(tow_line_send_direct(client, iov, 2), 0);
    }
    for (int i = 0; i < 100; i++) {
        char got[8];
        assert_int_equal(tow_line_recv_into(server, got, 8), 0);
        assert_memory_equal(got, "12345abc", 8);
    }
    assert_int_equal(tow_line_send_direct(client, iov, TOW_LINE_IOV_MAX + 1), -EINVAL);
}

static void *largest_producer(void *arg)
{
    struct tow_line *line = arg;
    for (int i = 0; i < 6; i++) {
        uint8_t *at;
        int error = tow_line_reserve(line, TOW_LINE_FRAME_MAX, &at);
        if (error < 0) {
            return (void *)(intptr_t)error;
        }
        lines_bytes((uint64_t)i, 0, at, TOW_LINE_FRAME_MAX);
        tow_line_commit(line, TOW_LINE_FRAME_MAX);
        error = tow_line_reserve(line, 24, &at);
        if (error < 0) {
            return (void *)(intptr_t)error;
        }
        memset(at, 0, 24);
        tow_line_commit(line, 24);
    }
    return NULL;
}

static void the_largest_frame_is_contiguous_wherever_it_falls(void **state)
{
    pthread_t producer = start(largest_producer, client);
    uint8_t *expected = test_malloc(TOW_LINE_FRAME_MAX);
    for (int i = 0; i < 6; i++) {
        const uint8_t *at;
        assert_int_equal(peek_ms(server, TOW_LINE_FRAME_MAX, 20000, &at), 0);
        assert_int_equal((uintptr_t)at % 8, 0);
        lines_bytes((uint64_t)i, 0, expected, TOW_LINE_FRAME_MAX);
        assert_memory_equal(at, expected, TOW_LINE_FRAME_MAX);
        tow_line_consume(server, TOW_LINE_FRAME_MAX);
        assert_int_equal(peek_ms(server, 24, 20000, &at), 0);
        tow_line_consume(server, 24);
    }
    assert_int_equal(finish(producer), 0);
    test_free(expected);
    uint8_t *at;
    const uint8_t *in;
    assert_int_equal(tow_line_reserve(client, TOW_LINE_RING_SIZE + 1, &at), -EMSGSIZE);
    assert_int_equal(peek_ms(server, TOW_LINE_RING_SIZE + 1, 1, &in), -EMSGSIZE);
}

/* ---- windows ---- */

struct flood {
    struct tow_line *line;
    _Atomic uint64_t committed;
    uint64_t total;
};

static void *flood_run(void *arg)
{
    struct flood *flood = arg;
    while (atomic_load(&flood->committed) < flood->total) {
        uint8_t *at;
        int error = tow_line_reserve(flood->line, 4096, &at);
        if (error < 0) {
            return (void *)(intptr_t)error;
        }
        lines_bytes(3, atomic_load(&flood->committed), at, 4096);
        tow_line_commit(flood->line, 4096);
        atomic_fetch_add(&flood->committed, 4096);
    }
    return NULL;
}

/* Waits until the flood has stopped growing: its window, half a ring at least, is full. */
static uint64_t wait_until_blocked(struct flood *flood)
{
    uint64_t before = 0;
    for (int quiet = 0; quiet < 20;) {
        tow_time_sleep(25 * TOW_TIME_MS);
        uint64_t now = atomic_load(&flood->committed);
        quiet = now == before && now >= TOW_LINE_RING_SIZE / 2 ? quiet + 1 : 0;
        before = now;
    }
    return before;
}

static void a_full_window_blocks_and_resumes(void **state)
{
    /* More than any window, hook's queue and kernel's buffers included. */
    struct flood flood = {.line = client, .total = 160u << 20};
    bool hooked = strncmp(lines_kind, "hook-", 5) == 0;
    if (!hooked) {
        flood.total = 48u << 20;
    }
    pthread_t thread = start(flood_run, &flood);
    uint64_t blocked_at = wait_until_blocked(&flood);
    assert_true(blocked_at < flood.total);
    uint64_t got = 0;
    uint8_t expected[4096];
    while (got < flood.total) {
        const uint8_t *at;
        assert_int_equal(peek_ms(server, 4096, 20000, &at), 0);
        lines_bytes(3, got, expected, 64);
        assert_memory_equal(at, expected, 64);
        tow_line_consume(server, 4096);
        got += 4096;
    }
    assert_int_equal(finish(thread), 0);
    struct tow_line_stats stats;
    tow_line_get_stats(client, &stats);
    /* Through the hook it may be the socket behind it that blocks, and not the ring. */
    assert_true(hooked || stats.full_waits > 0);
}

/* ---- ends ---- */

static void *blocked_reader(void *arg)
{
    const uint8_t *at;
    size_t available;
    return (void *)(intptr_t)tow_line_peek(arg, 16, TOW_TIME_FOREVER, &at, &available);
}

static void a_reader_learns_that_the_peer_closed(void **state)
{
    pthread_t thread = start(blocked_reader, server);
    tow_time_sleep(20 * TOW_TIME_MS);
    tow_line_close(client);
    client = NULL;
    assert_int_equal(finish(thread), -ECONNRESET);
}

static void a_writer_learns_that_the_peer_closed(void **state)
{
    struct flood flood = {.line = client, .total = UINT64_MAX};
    pthread_t thread = start(flood_run, &flood);
    wait_until_blocked(&flood);
    tow_line_close(server);
    server = NULL;
    intptr_t error = finish(thread);
    assert_true(error == -EPIPE || error == -ECONNRESET);
    uint8_t *at;
    assert_true(tow_line_reserve(client, 8, &at) < 0);
}

static void what_was_drained_before_a_close_still_arrives(void **state)
{
    uint8_t word[8];
    for (int i = 0; i < 1000; i++) {
        memset(word, i & 255, sizeof word);
        send_bytes(client, word, sizeof word);
    }
    assert_int_equal(tow_line_drain(client, tow_time_deadline(5 * TOW_TIME_S)), 0);
    tow_line_close(client);
    client = NULL;
    const uint8_t *at;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(peek_ms(server, 8, 5000, &at), 0);
        assert_int_equal(at[0], i & 255);
        tow_line_consume(server, 8);
    }
    assert_int_equal(peek_ms(server, 1, 5000, &at), -ECONNRESET);
}

/* What came before is not read for it. A peer in this process is not waited for. */
static void the_peers_end_is_awaited(void **state)
{
    static const uint8_t word[8] = {7};
    const uint8_t *at;
    send_bytes(server, word, sizeof word);
    if (!tow_line_is_in_process(client)) {
        assert_int_equal(tow_line_await_end(client, tow_time_deadline(TOW_TIME_MS)), -ETIMEDOUT);
    }
    assert_int_equal(tow_line_drain(server, tow_time_deadline(5 * TOW_TIME_S)), 0);
    tow_line_close(server);
    server = NULL;
    assert_int_equal(tow_line_await_end(client, TOW_TIME_FOREVER), 0);
    assert_int_equal(peek_ms(client, 8, 5000, &at), 0);
    assert_int_equal(at[0], 7);
}

static void shutdown_wakes_our_own_reader(void **state)
{
    pthread_t thread = start(blocked_reader, server);
    tow_time_sleep(20 * TOW_TIME_MS);
    tow_line_shutdown(server);
    assert_int_equal(finish(thread), -ESHUTDOWN);
    const uint8_t *at;
    assert_int_equal(peek_ms(server, 1, 100, &at), -ESHUTDOWN);
}

static void shutdown_wakes_our_own_writer(void **state)
{
    struct flood flood = {.line = client, .total = UINT64_MAX};
    pthread_t thread = start(flood_run, &flood);
    wait_until_blocked(&flood);
    tow_line_shutdown(client);
    assert_int_equal(finish(thread), -ESHUTDOWN);
}

static void *direct_run(void *arg)
{
    struct bulk *bulk = arg;
    int error = 0;
    while (error == 0) {
        struct iovec iov = {.iov_base = bulk->bytes, .iov_len = 8u << 20};
        error = tow_line_send_direct(bulk->line, &iov, 1);
    }
    return (void *)(intptr_t)error;
}

static void shutdown_wakes_a_direct_send(void **state)
{
    struct bulk bulk = {client, test_calloc(1, 8u << 20)};
    pthread_t thread = start(direct_run, &bulk);
    tow_time_sleep(300 * TOW_TIME_MS);
    tow_line_shutdown(client);
    intptr_t error = finish(thread);
    assert_true(error == -ESHUTDOWN || error == -EPIPE);
    test_free(bulk.bytes);
}

static void *recv_into_run(void *arg)
{
    uint8_t bytes[64];
    return (void *)(intptr_t)tow_line_recv_into(arg, bytes, sizeof bytes);
}

static void recv_into_ends_with_the_line(void **state)
{
    send_bytes(client, "12345678", 8);
    pthread_t thread = start(recv_into_run, server);
    tow_time_sleep(20 * TOW_TIME_MS);
    tow_line_shutdown(client);
    assert_int_equal(finish(thread), -ECONNRESET);
}

/* ---- waiting ---- */

static void a_deadline_ends_a_peek(void **state)
{
    const uint8_t *at;
    send_bytes(client, "12345678", 8);
    assert_int_equal(peek_ms(server, 8, 5000, &at), 0);
    int64_t began = tow_time_now_ns();
    assert_int_equal(peek_ms(server, 16, 60, &at), -ETIMEDOUT);
    int64_t took = tow_time_now_ns() - began;
    assert_true(took >= 59 * TOW_TIME_MS);
    assert_true(took < 5 * TOW_TIME_S);
    /* Nothing is lost by it. */
    send_bytes(client, "abcdefgh", 8);
    assert_int_equal(peek_ms(server, 16, 5000, &at), 0);
    assert_memory_equal(at, "12345678abcdefgh", 16);
    assert_int_equal(peek_ms(server, 16, 0, &at), 0);
    tow_line_consume(server, 16);
    assert_int_equal(peek_ms(server, 1, 0, &at), -ETIMEDOUT);
}

static void *readable_run(void *arg)
{
    return (void *)(intptr_t)tow_line_wait_readable(arg, tow_time_deadline(60 * TOW_TIME_S));
}

static void others_may_wait_until_it_is_readable(void **state)
{
    assert_int_equal(tow_line_wait_readable(server, tow_time_deadline(30 * TOW_TIME_MS)),
                     -ETIMEDOUT);
    pthread_t thread = start(readable_run, server);
    tow_time_sleep(30 * TOW_TIME_MS);
    int64_t began = tow_time_now_ns();
    send_bytes(client, "12345678", 8);
    assert_int_equal(finish(thread), 0);
    assert_true(tow_time_now_ns() - began < 20 * TOW_TIME_S);
    const uint8_t *at;
    assert_int_equal(peek_ms(server, 8, 5000, &at), 0);
    assert_int_equal(tow_line_wait_readable(server, 0), 0);
    tow_line_consume(server, 8);
    thread = start(readable_run, server);
    tow_time_sleep(20 * TOW_TIME_MS);
    tow_line_shutdown(client);
    assert_int_equal(finish(thread), 0);
}

static _Atomic bool watching;

static void *watch_run(void *arg)
{
    intptr_t errors = 0;
    while (atomic_load(&watching)) {
        int error = tow_line_wait_readable(arg, tow_time_deadline(20 * TOW_TIME_MS));
        errors += error != 0 && error != -ETIMEDOUT;
    }
    return (void *)errors;
}

static void watching_does_not_disturb_a_busy_consumer(void **state)
{
    atomic_store(&watching, true);
    pthread_t watcher = start(watch_run, server);
    for (int round = 0; round < 2; round++) {
        pthread_t producer = start(small_producer, client);
        pthread_t consumer = start(small_consumer, server);
        assert_int_equal(finish(producer), 0);
        assert_int_equal(finish(consumer), 0);
    }
    atomic_store(&watching, false);
    assert_int_equal(finish(watcher), 0);
}

static void *echo_run(void *arg)
{
    for (;;) {
        const uint8_t *at;
        size_t available;
        if (tow_line_peek(arg, 16, TOW_TIME_FOREVER, &at, &available) < 0) {
            return NULL;
        }
        uint8_t *to;
        if (tow_line_reserve(arg, 16, &to) < 0) {
            return NULL;
        }
        memcpy(to, at, 16);
        tow_line_consume(arg, 16);
        tow_line_commit_now(arg, 16);
    }
}

static void questions_are_answered_one_by_one(void **state)
{
    pthread_t thread = start(echo_run, server);
    int64_t began = tow_time_now_ns();
    const int rounds = 500;
    for (int i = 0; i < rounds; i++) {
        uint64_t words[2] = {(uint64_t)i, ~(uint64_t)i};
        const uint8_t *at;
        uint8_t *to;
        assert_int_equal(tow_line_reserve(client, 16, &to), 0);
        memcpy(to, words, 16);
        tow_line_commit_now(client, 16);
        assert_int_equal(peek_ms(client, 16, 5000, &at), 0);
        assert_memory_equal(at, words, 16);
        tow_line_consume(client, 16);
    }
    print_message("%s: %.1f us a round trip\n", lines_kind,
                  (double)(tow_time_now_ns() - began) / 1e3 / rounds);
    tow_line_shutdown(client);
    finish(thread);
}

static void nothing_stays_behind_for_company(void **state)
{
    /* A single frame, nobody flushes, nothing follows: it must arrive. */
    const uint8_t *at;
    for (int i = 0; i < 20; i++) {
        tow_time_sleep(2 * TOW_TIME_MS);
        send_bytes(client, "12345678", 8);
        assert_int_equal(peek_ms(server, 8, 2000, &at), 0);
        tow_line_consume(server, 8);
    }
}

/* ---- guests ---- */

static void descriptors_are_closed_on_exec_and_none_is_left(void **state)
{
    for (int fd = 3; fd < 64; fd++) {
        int flags = fcntl(fd, F_GETFD);
        char path[64], target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (flags < 0 || length < 0) {
            continue;
        }
        target[length] = '\0';
        if (strncmp(target, "socket:", 7) == 0 || strstr(target, "memfd") != NULL) {
            assert_true((flags & FD_CLOEXEC) != 0);
        }
    }
    teardown(state);
    int before = lines_open_fds();
    for (int i = 0; i < 5; i++) {
        setup(state);
        send_bytes(client, "x", 1);
        teardown(state);
    }
    assert_int_equal(lines_open_fds(), before);
    setup(state);
}

/* No setup: forks before there are threads. */
static void a_killed_peer_is_noticed(void **state)
{
    if (strstr(lines_kind, "self") != NULL) {
        skip_because("both ends are in one process, none can be killed alone");
    }
    char address[TOW_ADDRESS_MAX];
    struct tow_listener *listener = lines_listen(address);
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            close(listener->fd);
            struct tow_line *line = lines_connect(address);
            struct flood flood = {.line = line, .total = 1u << 20};
            flood_run(&flood);
            pause();
            _exit(0);
        }
        struct tow_line *line = lines_adopt(listener);
        const uint8_t *at;
        assert_int_equal(peek_ms(line, 4096, 5000, &at), 0);
        int64_t began;
        int error = 0;
        if (round == 0) {
            /* While we read; what it sent before is still there. */
            for (unsigned got = 0; got < 1u << 20; got += 4096) {
                assert_int_equal(peek_ms(line, 4096, 5000, &at), 0);
                tow_line_consume(line, 4096);
            }
            kill(child, SIGKILL);
            began = tow_time_now_ns();
            error = peek_ms(line, 1, 60000, &at);
            assert_int_equal(error, -ECONNRESET);
        } else {
            /* While we write. */
            struct flood flood = {.line = line, .total = UINT64_MAX};
            pthread_t thread = start(flood_run, &flood);
            wait_until_blocked(&flood);
            kill(child, SIGKILL);
            began = tow_time_now_ns();
            error = (int)finish(thread);
            assert_true(error == -EPIPE || error == -ECONNRESET);
        }
        assert_true(tow_time_now_ns() - began < 20 * TOW_TIME_S);
        waitpid(child, NULL, 0);
        tow_line_close(line);
    }
    tow_listener_close(listener);
}

/* Whoever asks need not know the kinds. */
static void a_line_says_what_it_is_like(void **state)
{
    const bool hooked = strncmp(lines_kind, "hook-", 5) == 0;
    const char *inner = lines_inner_kind();
    struct tow_line *ends[] = {client, server};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tow_line_is_in_process(ends[i]), strcmp(inner, "self") == 0);
        assert_int_equal(tow_line_can_break(ends[i]), strcmp(inner, "tcp") == 0 ||
                                                          strcmp(inner, "tls") == 0 ||
                                                          (hooked && ends[i] == client));
    }
    /* What it says of memory is what it does. */
    bool shares = tow_line_can_share(client);
    assert_int_equal(shares, strcmp(lines_kind, "shm") == 0);
    assert_int_equal(tow_line_send_fd(client, STDIN_FILENO, 1), shares ? 0 : -ENOTSUP);
}

static void *connect_run(void *arg)
{
    return lines_connect(arg);
}

/* No setup. A further line is another one to the same listener, whatever kind the first is of. */
static void a_further_line_reaches_the_same_server(void **state)
{
    char address[TOW_ADDRESS_MAX], further[TOW_ADDRESS_MAX], faster[TOW_ADDRESS_MAX];
    const char *rest;
    if (strstr(lines_kind, "self") != NULL) {
        assert_int_equal(tow_transport_further("self:soft", further), -ENOTSUP);
        assert_int_equal(tow_transport_faster("self:soft", faster), -ENOTSUP);
        assert_true(tow_transport_is_in_process("self:soft", &rest));
        assert_string_equal(rest, "soft");
        assert_false(tow_transport_spreads("self:soft"));
        return;
    }
    struct tow_listener *listener = lines_listen(address);
    assert_false(tow_transport_is_in_process(address, &rest));
    const char *inner = lines_inner_kind();
    const bool hooked = strncmp(address, "hook:", 5) == 0;
    assert_int_equal(tow_transport_spreads(address),
                     !hooked && (strcmp(inner, "tcp") == 0 || strcmp(inner, "tls") == 0));
    assert_int_equal(tow_transport_faster(address, faster),
                     strcmp(lines_kind, "unix") == 0 ? 0 : -ENOTSUP);
    int error = tow_transport_further(address, further);
    /* One behind a hook would not be behind it. */
    assert_int_equal(error, hooked ? -ENOTSUP : 0);
    for (int i = 0; error == 0 && i < 2; i++) {
        pthread_t thread = start(connect_run, i == 0 ? address : further);
        struct tow_line *theirs = lines_adopt(listener);
        void *ours = NULL;
        pthread_join(thread, &ours);
        tow_line_close(ours);
        tow_line_close(theirs);
    }
    tow_listener_close(listener);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
    if (argc > 1) {
        lines_kind = argv[1];
    }
    if (lines_missing()) {
        return LINES_SKIP;
    }
    if (argc > 2 && strcmp(argv[2], "spin") == 0) {
        tow_line_set_spin(-1, 30 * TOW_TIME_US);
    } else if (argc > 2) {
        cmocka_set_test_filter(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_is_noticed),
        cmocka_unit_test(a_further_line_reaches_the_same_server),
        CASE(many_small_frames_arrive_in_order_both_ways),
        CASE(bulk_goes_from_memory_to_memory_in_order),
        CASE(memory_that_is_lent_is_given_back),
        CASE(small_direct_sends_keep_their_place),
        CASE(the_largest_frame_is_contiguous_wherever_it_falls),
        CASE(a_full_window_blocks_and_resumes),
        CASE(a_reader_learns_that_the_peer_closed),
        CASE(a_writer_learns_that_the_peer_closed),
        CASE(what_was_drained_before_a_close_still_arrives),
        CASE(the_peers_end_is_awaited),
        CASE(shutdown_wakes_our_own_reader),
        CASE(shutdown_wakes_our_own_writer),
        CASE(shutdown_wakes_a_direct_send),
        CASE(recv_into_ends_with_the_line),
        CASE(a_deadline_ends_a_peek),
        CASE(others_may_wait_until_it_is_readable),
        CASE(watching_does_not_disturb_a_busy_consumer),
        CASE(questions_are_answered_one_by_one),
        CASE(nothing_stays_behind_for_company),
        CASE(a_line_says_what_it_is_like),
        CASE(descriptors_are_closed_on_exec_and_none_is_left),
    };
    int failed = cmocka_run_group_tests_name(lines_kind, tests, NULL, NULL);
    lines_cleanup();
    return failed;
}
