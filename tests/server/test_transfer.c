/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk data as a worker takes it off the line: to where it belongs, or refused. */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "server/session/session.h"
#include "server/session/transfer.h"
#include "transport/line.h"
#include "wire/control.h"

enum { SIZE = 300000, ROOM = 4096 };

static struct tow_line *client;
static struct tows_session session;

/* A sink that gives room in pieces, or takes chunks. */
struct taken {
    uint8_t bytes[SIZE];
    uint64_t next; /* offset that must come next */
    size_t room;   /* most that place gives; 0: throws away */
    int done, ok, placed, filled;
};
static struct taken taken;

static void *place(void *user, uint64_t offset, size_t *size, void **ret_token)
{
    struct taken *t = user;
    assert_int_equal(offset, t->next);
    t->placed++;
    if (t->room == 0) {
        t->next += *size;
        return NULL;
    }
    *size = *size < t->room ? *size : t->room;
    *ret_token = t;
    return t->bytes + offset;
}

static void filled(void *user, uint64_t offset, size_t size, void *token)
{
    struct taken *t = user;
    assert_ptr_equal(token, t);
    assert_int_equal(offset, t->next);
    t->next += size;
    t->filled++;
}

static void chunk(void *user, uint64_t offset, const void *bytes, size_t size)
{
    struct taken *t = user;
    assert_int_equal(offset, t->next);
    memcpy(t->bytes + offset, bytes, size);
    t->next += size;
}

static void done(void *user, bool ok)
{
    struct taken *t = user;
    t->done++;
    t->ok = ok;
}

static const struct tows_transfer_sink into_room = {
    .place = place, .filled = filled, .done = done, .user = &taken};
static const struct tows_transfer_sink by_chunk = {.chunk = chunk, .done = done, .user = &taken};

static int setup(void **state)
{
    memset(&session, 0, sizeof session);
    memset(&taken, 0, sizeof taken);
    taken.room = ROOM;
    tow_mutex_init(&session.transfers.lock, SERVER_TRANSFERS);
    tow_cond_init(&session.transfers.changed);
    return tow_line_pair(&client, &session.line);
}

static int teardown(void **state)
{
    tows_transfer_end_all(&session);
    tow_line_close(client);
    tow_line_close(session.line);
    tow_mutex_fini(&session.transfers.lock);
    pthread_cond_destroy(&session.transfers.changed);
    return 0;
}

static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(offset * 7 + offset / 251);
}

static void send_data(uint32_t transfer, uint64_t offset, uint32_t size, uint32_t flags)
{
    static const uint8_t zeros[8];
    struct tow_data data = {.transfer = transfer, .flags = flags, .offset = offset, .size = size};
    uint8_t head[TOW_DATA_HEAD], *bytes = malloc(size + 1);
    uint32_t pad = 0;
    assert_int_equal(tow_data_head_encode(&data, 0, 0, head, &pad), 0);
    for (uint32_t i = 0; i < size; i++) {
        bytes[i] = byte_at(offset + i);
    }
    struct iovec parts[3] = {{head, sizeof head}, {bytes, size}, {(void *)(uintptr_t)zeros, pad}};
    assert_int_equal(tow_line_send_direct(client, parts, 3), 0);
    free(bytes);
}

/* What the session's leader does with a DATA frame. */
static int take(void)
{
    const uint8_t *at;
    size_t available;
    struct tow_frame frame;
    int error = tow_line_peek(session.line, TOW_FRAME_HEADER, TOW_TIME_FOREVER, &at, &available);
    if (error == 0) {
        error = tow_frame_read(at, &frame);
    }
    return error == 0 ? tows_transfer_take(&session, &frame) : error;
}

static void nothing_is_left(void)
{
    const uint8_t *at;
    size_t available;
    assert_int_equal(tow_line_peek(session.line, 1, 0, &at, &available), -ETIMEDOUT);
}

static void check_bytes(void)
{
    for (int i = 0; i < SIZE; i++) {
        if (taken.bytes[i] != byte_at((uint64_t)i)) {
            fail_msg("byte %d is wrong", i);
        }
    }
}

static void three_frames(const struct tows_transfer_sink *sink)
{
    assert_int_equal(tows_transfer_expect(&session, 5, SIZE, sink), 0);
    send_data(5, 0, 100001, 0);
    assert_int_equal(take(), 0);
    send_data(5, 100001, 99999, 0);
    assert_int_equal(take(), 0);
    assert_int_equal(taken.done, 0);
    send_data(5, 200000, 100000, TOW_DATA_LAST);
    assert_int_equal(take(), 0);
    assert_int_equal(taken.done, 1);
    assert_int_equal(taken.ok, 1);
    nothing_is_left();
}

static void bytes_go_where_they_are_placed(void **state)
{
    three_frames(&into_room);
    assert_int_equal(taken.next, SIZE);
    assert_int_equal(taken.placed, taken.filled);
    assert_true(taken.filled >= SIZE / ROOM);
    check_bytes();
}

static void bytes_come_in_chunks(void **state)
{
    three_frames(&by_chunk);
    assert_int_equal(taken.next, SIZE);
    check_bytes();
}

static void bytes_without_a_place_are_thrown_away(void **state)
{
    taken.room = 0;
    three_frames(&into_room);
    assert_int_equal(taken.filled, 0);
    assert_int_equal(taken.placed, 3);
}

static void a_client_may_give_up(void **state)
{
    assert_int_equal(tows_transfer_expect(&session, 5, SIZE, &into_room), 0);
    send_data(5, 0, 5000, 0);
    assert_int_equal(take(), 0);
    send_data(5, 5000, 0, TOW_DATA_LAST | TOW_DATA_FAILED);
    assert_int_equal(take(), 0);
    assert_int_equal(taken.done, 1);
    assert_int_equal(taken.ok, 0);
    nothing_is_left();
    /* Its number is free again; and a failure that carries bytes all the same does no harm. */
    assert_int_equal(tows_transfer_expect(&session, 5, SIZE, &by_chunk), 0);
    send_data(5, 0, 5000, TOW_DATA_FAILED);
    assert_int_equal(take(), 0);
    assert_int_equal(taken.done, 2);
    nothing_is_left();
}

static void what_fits_no_transfer_is_refused(void **state)
{
    static const struct {
        uint32_t transfer;
        uint64_t offset;
        uint32_t size;
    } wrong[] = {
        {6, 0, 100},                 /* never announced */
        {5, 8, 100},                 /* not where it goes on */
        {5, 0, SIZE + 1},            /* too much */
        {5, UINT64_C(1) << 63, 100}, /* far away */
        {0, 0, 100},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        teardown(NULL);
        setup(NULL);
        assert_int_equal(tows_transfer_expect(&session, 5, SIZE, &into_room), 0);
        send_data(wrong[i].transfer, wrong[i].offset, wrong[i].size, 0);
        assert_int_equal(take(), -EPROTO);
        assert_int_equal(taken.placed, 0);
    }
    assert_int_equal(tows_transfer_expect(&session, 5, SIZE, &into_room), -EEXIST);
}

static void only_so_many_are_under_way(void **state)
{
    uint32_t count = 0;
    int error = 0;
    while (error == 0 && count < 100000) {
        error = tows_transfer_expect(&session, ++count, SIZE, &into_room);
    }
    assert_int_equal(error, -ENOSPC);
    assert_in_range(count, 1024, 65536);
}

static void a_frame_without_its_head_is_refused(void **state)
{
    /* Refused at once: its missing bytes are not waited for. */
    struct tow_frame frame = {.length = TOW_FRAME_HEADER, .kind = TOW_CONTROL_DATA};
    uint8_t *at;
    assert_int_equal(tow_line_reserve(client, TOW_FRAME_HEADER, &at), 0);
    tow_frame_write(at, &frame);
    tow_line_commit(client, TOW_FRAME_HEADER);
    assert_int_equal(take(), -EPROTO);
}

static void *cut(void *arg)
{
    tow_time_sleep(20 * TOW_TIME_MS);
    tow_line_close(arg);
    return NULL;
}

static void a_line_that_ends_in_mid_frame_ends_the_transfer(void **state)
{
    struct tow_data data = {.transfer = 5, .size = SIZE};
    uint8_t *at;
    uint32_t pad = 0;
    assert_int_equal(tows_transfer_expect(&session, 5, SIZE, &into_room), 0);
    assert_int_equal(tow_line_reserve(client, 10000, &at), 0);
    memset(at, 0, 10000);
    assert_int_equal(tow_data_head_encode(&data, 0, 0, at, &pad), 0);
    tow_line_commit(client, 10000);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cut, client), 0);
    assert_true(take() < 0);
    pthread_join(thread, NULL);
    client = NULL;
    assert_int_equal(taken.done, 0);
    tows_transfer_end_all(&session);
    assert_int_equal(taken.done, 1);
    assert_int_equal(taken.ok, 0);
}

/* ---- spread over several lines ---- */

static atomic_int spread_placed;

static void *place_anywhere(void *user, uint64_t offset, size_t *size, void **ret_token)
{
    struct taken *t = user;
    *size = *size < t->room ? *size : t->room;
    *ret_token = t;
    atomic_fetch_add(&spread_placed, 1);
    return t->bytes + offset;
}

static void filled_anywhere(void *user, uint64_t offset, size_t size, void *token)
{
    atomic_fetch_sub(&spread_placed, 1);
}

static const struct tows_transfer_sink anywhere = {.place = place_anywhere,
                                                   .filled = filled_anywhere,
                                                   .done = done,
                                                   .user = &taken,
                                                   .spread = true};

struct lane_side {
    struct tow_line *out, *in;
    uint64_t offset;
    uint32_t size;
    int result;
};

/* A lane: its frame may come before the command that announces the transfer. */
static void *lane_run(void *arg)
{
    struct lane_side *side = arg;
    struct tow_data data = {.transfer = 5, .offset = side->offset, .size = side->size};
    side->result = tows_transfer_take_lane(&session, side->in, &data);
    return NULL;
}

static void send_raw(struct tow_line *line, uint64_t offset, uint32_t size)
{
    for (uint32_t at = 0; at < size;) {
        uint32_t n = size - at < 4096 ? size - at : 4096;
        uint8_t *to;
        assert_int_equal(tow_line_reserve(line, n, &to), 0);
        for (uint32_t i = 0; i < n; i++) {
            to[i] = byte_at(offset + at + i);
        }
        tow_line_commit(line, n);
        at += n;
    }
}

static void a_spread_transfer_is_whole_when_all_lines_have_brought_theirs(void **state)
{
    struct lane_side sides[2] = {{.offset = 200000, .size = 100000}, {.offset = 0, .size = 100000}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tow_line_pair(&sides[i].out, &sides[i].in), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, lane_run, &sides[i]), 0);
    }
    send_raw(sides[0].out, 200000, 100000);
    tow_time_sleep(20 * TOW_TIME_MS);
    assert_int_equal(tows_transfer_expect(&session, 5, SIZE, &anywhere), 0);
    send_data(5, 100000, 100000, TOW_DATA_LAST);
    send_raw(sides[1].out, 0, 100000);
    assert_int_equal(take(), 0); /* waits for both */
    assert_int_equal(taken.done, 1);
    assert_int_equal(taken.ok, 1);
    assert_int_equal(spread_placed, 0);
    check_bytes();
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(sides[i].result, 0);
        tow_line_close(sides[i].out);
        tow_line_close(sides[i].in);
    }
    nothing_is_left();
}

static void lanes_may_not_bring_what_was_not_asked_of_them(void **state)
{
    static const struct tow_data wrong[] = {
        {.transfer = 5, .offset = SIZE, .size = 1},
        {.transfer = 5, .offset = 1, .size = SIZE},
        {.transfer = 5, .offset = UINT64_MAX, .size = 100},
        {.transfer = 5, .offset = 0, .size = 0},
        {.transfer = 6, .offset = 0, .size = 100}, /* not a spread one */
    };
    taken.room = SIZE;
    assert_int_equal(tows_transfer_expect(&session, 5, SIZE, &anywhere), 0);
    assert_int_equal(tows_transfer_expect(&session, 6, SIZE, &into_room), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(tows_transfer_take_lane(&session, session.line, &wrong[i]), -EPROTO);
    }
    /* More bytes in all than there are, each frame within. */
    struct tow_data most = {.transfer = 5, .offset = 0, .size = SIZE - 10};
    struct tow_data more = {.transfer = 5, .offset = 0, .size = 11};
    send_raw(client, 0, SIZE - 10);
    assert_int_equal(tows_transfer_take_lane(&session, session.line, &most), 0);
    assert_int_equal(tows_transfer_take_lane(&session, session.line, &more), -EPROTO);
    /* An end of the session ends the waiting for a transfer that never comes. */
    session.lead.phase = TOW_SESSION_ENDS;
    struct tow_data never = {.transfer = 99, .offset = 0, .size = 10};
    assert_int_equal(tows_transfer_take_lane(&session, session.line, &never), -ESHUTDOWN);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(bytes_go_where_they_are_placed),
        CASE(bytes_come_in_chunks),
        CASE(bytes_without_a_place_are_thrown_away),
        CASE(a_client_may_give_up),
        CASE(what_fits_no_transfer_is_refused),
        CASE(a_frame_without_its_head_is_refused),
        CASE(a_line_that_ends_in_mid_frame_ends_the_transfer),
        CASE(a_spread_transfer_is_whole_when_all_lines_have_brought_theirs),
        CASE(lanes_may_not_bring_what_was_not_asked_of_them),
        CASE(only_so_many_are_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
