/* SPDX-License-Identifier: Apache-2.0 */
/* Two clocks, held against each other: simulated servers whose clocks are elsewhere and run at
 * another speed, over lines that are slower one way than the other. */
#include "cmocka_all.h"

#include <stdint.h>
#include <stdlib.h>

#include "client/timeline/align.h"

#define US INT64_C(1000)
#define MS INT64_C(1000000)

static uint32_t seed = 1;

static int64_t below(int64_t limit)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)((uint64_t)(seed >> 8) * (uint64_t)limit >> 24);
}

/* What the server's clock says at a moment of ours. */
struct server {
    int64_t ahead, ppb, up, down; /* of the line: at least so long each way */
};

static int64_t theirs_at(const struct server *server, int64_t ours)
{
    return ours + server->ahead + (int64_t)((double)ours * (double)server->ppb / 1e9);
}

/* Returns when the answer is there. */
static int64_t round_trip(struct towc_align *align, const struct server *server, int64_t now)
{
    int64_t there = now + server->up + below(server->up);
    int64_t back = there + server->down + below(server->down);
    towc_align_take(align, now, theirs_at(server, there), back);
    return back;
}

static int64_t many_round_trips(struct towc_align *align, const struct server *server, int64_t now)
{
    towc_align_begin(align);
    for (int i = 0; i < 8; i++) {
        now = round_trip(align, server, now) + 10;
    }
    towc_align_end(align);
    return now;
}

static int64_t distance(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

static const struct server servers[] = {
    {0, 0, 2 * US, 2 * US},
    {INT64_C(5000000000000), 20000, 50 * US, 50 * US},
    {INT64_C(-7000000000000), -80000, 30 * US, 300 * US},
    {INT64_C(123456789), 300000, 15 * MS, 2 * MS},
    {INT64_C(-1000), 300000, US, US}, /* faster by more than a round trip between two questions */
};
#define SERVERS (sizeof servers / sizeof *servers)

static void a_clock_is_known_as_well_as_it_is_said(void **state)
{
    (void)state;
    for (size_t i = 0; i < SERVERS; i++) {
        struct towc_align align = {.known = false};
        int64_t now = many_round_trips(&align, &servers[i], 1000 * MS);
        int64_t error = towc_align_error(&align);
        /* Of eight the closest bounds: half of a round trip that was hardly held up. */
        assert_in_range(error, 0, 13 * (servers[i].up + servers[i].down) / 20);
        assert_in_range(distance(towc_align_ours(&align, theirs_at(&servers[i], now)), now), 0,
                        error);
    }
}

/* A question now and then; what the GPU did comes with the next one, in its order. */
static void a_long_time_is_one_axis(void **state)
{
    (void)state;
    for (size_t i = 0; i < SERVERS; i++) {
        const struct server *server = &servers[i];
        struct towc_align align = {.known = false};
        int64_t began = 1000 * MS, now = many_round_trips(&align, server, began), last = 0;
        int64_t worst = 0;
        for (int turn = 0; turn < 20000; turn++) {
            int64_t asked = now + 50 * MS;
            towc_align_begin(&align);
            int64_t answered = round_trip(&align, server, asked);
            towc_align_end(&align);
            for (int event = 0; event <= 5; event++) {
                /* Just behind the last answer, and just before this question: nothing goes back. */
                int64_t truth = event == 0   ? now + 1
                                : event == 5 ? asked - 1
                                             : now + (asked - now) / 5 * event - below(MS);
                int64_t ours = towc_align_ours(&align, theirs_at(server, truth));
                assert_true(ours >= last);
                last = ours;
                worst = distance(ours, truth) > worst ? distance(ours, truth) : worst;
            }
            now = answered;
        }
        now = many_round_trips(&align, server, now);
        /* The line's round trip, and how far the clocks drift between two questions. */
        int64_t drift = distance(server->ppb, 0) * 80 * MS / 1000000000;
        assert_in_range(worst, 0, 2 * (server->up + server->down) + drift);
        assert_in_range(towc_align_error(&align), 0, 2 * (server->up + server->down) + drift);
        int64_t error, ppb = towc_align_drift(&align, &error);
        assert_in_range(distance(ppb, server->ppb), 0, error + 1);
        assert_in_range(error, 0, 2 * (server->up + server->down) * 1000000000 / (now - began) + 1);
    }
}

static void a_clock_that_is_set_is_followed(void **state)
{
    (void)state;
    struct server server = servers[1];
    struct towc_align align = {.known = false};
    int64_t now = many_round_trips(&align, &server, 1000 * MS);
    server.ahead += 3600 * 1000 * MS;
    now = many_round_trips(&align, &server, now + 50 * MS);
    assert_in_range(distance(towc_align_ours(&align, theirs_at(&server, now)), now), 0,
                    towc_align_error(&align));
    /* Within one set of questions, too. */
    towc_align_begin(&align);
    now = round_trip(&align, &server, now);
    server.ahead -= 1000 * MS;
    now = round_trip(&align, &server, now);
    towc_align_end(&align);
    assert_in_range(distance(towc_align_ours(&align, theirs_at(&server, now)), now), 0,
                    2 * (server.up + server.down));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_is_known_as_well_as_it_is_said),
        cmocka_unit_test(a_long_time_is_one_axis),
        cmocka_unit_test(a_clock_that_is_set_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
