/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: what is queued on one end comes out at the other, and an end is an end for all. */
#include "lines.h"

#include "base/clock.h"
#include "transport/lanes.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 3, SIZE = 9 * 1024 * 1024 + 13 };

struct side {
    struct tow_lanes *lanes;
    uint8_t *bytes; /* what came, by offset */
    atomic_size_t came;
    atomic_int ended, refuse;
};
static struct side one, other;

static int take(void *user, struct tow_line *line, const struct tow_data *data)
{
    struct side *side = user;
    if (atomic_load(&side->refuse) || data->transfer != 7 || data->offset + data->size > SIZE) {
        return -EPROTO;
    }
    int error = tow_line_recv_into(line, side->bytes + data->offset, data->size);
    atomic_fetch_add(&side->came, data->size);
    return error;
}

static void ended(void *user, int error)
{
    struct side *side = user;
    atomic_fetch_add(&side->ended, 1);
}

static int setup(void **state)
{
    struct side *sides[] = {&one, &other};
    for (int i = 0; i < 2; i++) {
        memset(sides[i], 0, sizeof *sides[i]);
        const struct tow_lanes_user user = {take, ended, sides[i]};
        sides[i]->lanes = tow_lanes_create(&user);
        sides[i]->bytes = calloc(1, SIZE);
    }
    for (int i = 0; i < LANES; i++) {
        struct tow_line *client, *server;
        lines_pair(&client, &server);
        assert_int_equal(tow_lanes_add(one.lanes, client), 0);
        assert_int_equal(tow_lanes_add(other.lanes, server), 0);
    }
    return 0;
}

static int teardown(void **state)
{
    tow_lanes_destroy(one.lanes);
    tow_lanes_destroy(other.lanes);
    free(one.bytes);
    free(other.bytes);
    return 0;
}

static void wait_for(atomic_size_t *value, size_t wanted)
{
    for (int i = 0; i < 10000 && atomic_load(value) < wanted; i++) {
        tow_time_sleep(TOW_TIME_MS);
    }
    assert_int_equal(atomic_load(value), wanted);
}

static void send_all(struct side *from, const uint8_t *bytes)
{
    enum { JOBS = 7 };
    struct tow_lane_job jobs[JOBS];
    size_t at = 0;
    for (unsigned i = 0; i < JOBS; i++) {
        size_t n = i + 1 < JOBS ? SIZE / JOBS : SIZE - at;
        jobs[i] =
            (struct tow_lane_job){.bytes = bytes + at, .size = n, .offset = at, .transfer = 7};
        tow_lanes_send(from->lanes, i % LANES, &jobs[i]);
        at += n;
    }
    for (unsigned i = 0; i < JOBS; i++) {
        assert_int_equal(tow_lanes_wait(from->lanes, &jobs[i]), 0);
    }
}

struct source {
    const uint8_t *bytes;
    uint8_t *room;
    size_t most; /* asked for at once */
};

static const uint8_t *fetch(const void *user, uint64_t offset, size_t size)
{
    const struct source *source = user;
    assert_in_range(size, 1, source->most);
    return memcpy(source->room, source->bytes + offset, size);
}

/* What is not there in one piece is fetched frame by frame, on all lanes at a time. */
static void jobs_fetch_their_bytes(void **state)
{
    uint8_t *bytes = malloc(SIZE);
    struct source sources[LANES];
    struct tow_lane_job jobs[LANES];
    size_t at = 0;
    lines_bytes(5, 0, bytes, SIZE);
    for (unsigned i = 0; i < LANES; i++) {
        size_t n = i + 1 < LANES ? SIZE / LANES : SIZE - at;
        sources[i] = (struct source){bytes, malloc(99999), 99999};
        jobs[i] = (struct tow_lane_job){.fetch = fetch,
                                        .user = &sources[i],
                                        .each = 99999,
                                        .size = n,
                                        .offset = at,
                                        .transfer = 7};
        tow_lanes_send(one.lanes, i, &jobs[i]);
        at += n;
    }
    for (unsigned i = 0; i < LANES; i++) {
        assert_int_equal(tow_lanes_wait(one.lanes, &jobs[i]), 0);
        free(sources[i].room);
    }
    wait_for(&other.came, SIZE);
    assert_memory_equal(other.bytes, bytes, SIZE);
    free(bytes);
}

static void bytes_arrive_on_all_lanes_both_ways(void **state)
{
    uint8_t *bytes = malloc(SIZE);
    lines_bytes(3, 0, bytes, SIZE);
    assert_int_equal(tow_lanes_count(one.lanes), LANES);
    send_all(&one, bytes);
    send_all(&other, bytes);
    wait_for(&other.came, SIZE);
    wait_for(&one.came, SIZE);
    assert_memory_equal(other.bytes, bytes, SIZE);
    assert_memory_equal(one.bytes, bytes, SIZE);
    assert_int_equal(one.ended + other.ended, 0);
    free(bytes);
}

static void the_end_of_one_is_the_end_of_all(void **state)
{
    uint8_t *bytes = calloc(1, SIZE);
    atomic_store(&other.refuse, 1);
    struct tow_lane_job jobs[LANES];
    for (unsigned i = 0; i < LANES; i++) {
        jobs[i] = (struct tow_lane_job){.bytes = bytes, .size = SIZE, .transfer = 7};
        tow_lanes_send(one.lanes, i, &jobs[i]);
    }
    /* Nobody is left waiting: the jobs end, with an error. */
    for (unsigned i = 0; i < LANES; i++) {
        assert_true(tow_lanes_wait(one.lanes, &jobs[i]) <= 0);
    }
    for (int i = 0; i < 5000 && (atomic_load(&one.ended) == 0 || atomic_load(&other.ended) == 0);
         i++) {
        tow_time_sleep(TOW_TIME_MS);
    }
    assert_int_equal(one.ended, 1);
    assert_int_equal(other.ended, 1);
    assert_int_equal(tow_lanes_count(one.lanes), 0);
    assert_int_equal(tow_lanes_count(other.lanes), 0);
    /* And what is queued now is over at once. */
    tow_lanes_send(one.lanes, 0, &jobs[0]);
    assert_true(tow_lanes_wait(one.lanes, &jobs[0]) < 0);
    struct tow_line *client, *server;
    lines_pair(&client, &server);
    assert_int_equal(tow_lanes_add(one.lanes, client), -ESHUTDOWN);
    tow_line_close(server);
    free(bytes);
}

static void anything_but_data_ends_them(void **state)
{
    /* A lane that gets a command. */
    struct tow_line *client, *server;
    lines_pair(&client, &server);
    assert_int_equal(tow_lanes_add(other.lanes, server), 0);
    uint8_t *at;
    struct tow_frame frame = {.length = 64, .kind = 43};
    assert_int_equal(tow_line_reserve(client, 64, &at), 0);
    memset(at, 0, 64);
    tow_frame_write(at, &frame);
    tow_line_commit(client, 64);
    for (int i = 0; i < 5000 && atomic_load(&other.ended) == 0; i++) {
        tow_time_sleep(TOW_TIME_MS);
    }
    assert_int_equal(other.ended, 1);
    tow_line_close(client);
}

int main(void)
{
    lines_kind = "tcp";
#define CASE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(bytes_arrive_on_all_lanes_both_ways),
        CASE(jobs_fetch_their_bytes),
        CASE(the_end_of_one_is_the_end_of_all),
        CASE(anything_but_data_ends_them),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lines_cleanup();
    return failed;
}
