/* SPDX-License-Identifier: Apache-2.0 */
/* Who is taken for gone, from what TCP_INFO shows. */
#include "lines.h"

#include "base/clock.h"
#include "transport/silence.h"

#define LIMIT (20 * TOW_TIME_S)

struct row {
    int64_t at_s; /* of the look */
    struct tow_silence_seen seen;
};

/* The look, from 1, that finds the peer gone; 0: none does. */
static int gone_at(const struct row *rows, int count, int64_t limit_ns)
{
    struct tow_silence silence = {0};
    for (int i = 0; i < count; i++) {
        if (tow_silence_step(&silence, &rows[i].seen, limit_ns, rows[i].at_s * TOW_TIME_S)) {
            return i + 1;
        }
    }
    return 0;
}

#define GONE_AT(rows, limit) gone_at(rows, (int)(sizeof(rows) / sizeof *(rows)), limit)

/* Rows as they were measured: a program is stopped, its window is closed, the kernel's probes are
 * further and further apart, and each is answered. */
static void a_peer_that_takes_nothing_lives(void **state)
{
    static const struct row rows[] = {
        {39, {.probes = 0, .last_ack_ms = 12000, .last_data_ms = 44000}},
        {44, {.probes = 0, .last_ack_ms = 17032, .last_data_ms = 44000}},
        {49, {.probes = 0, .last_ack_ms = 22032, .last_data_ms = 49000}},
        {54, {.probes = 0, .last_ack_ms = 600, .last_data_ms = 54000}},
        {82, {.probes = 0, .last_ack_ms = 27404, .last_data_ms = 82000}},
        {87, {.probes = 0, .last_ack_ms = 32404, .last_data_ms = 87000}},
        {92, {.probes = 0, .last_ack_ms = 37404, .last_data_ms = 92000}},
        {97, {.probes = 0, .last_ack_ms = 42404, .last_data_ms = 97000}},
    };
    assert_int_equal(GONE_AT(rows, LIMIT), 0);
}

/* The answer to one probe was lost, and the next is a minute away. */
static void one_lost_probe_is_no_silence(void **state)
{
    struct row rows[12];
    for (int i = 0; i < 12; i++) {
        rows[i] = (struct row){100 + 5 * i,
                               {.probes = 1,
                                .last_ack_ms = 60000 + 5000 * (uint32_t)i,
                                .last_data_ms = 200000 + 5000 * (uint32_t)i}};
    }
    assert_int_equal(GONE_AT(rows, LIMIT), 0);
    for (int i = 0; i < 12; i++) {
        rows[i].seen.probes = 2; /* nor was the second answered */
    }
    assert_int_equal(GONE_AT(rows, LIMIT), 3);
}

static void a_machine_that_is_gone_is_given_up_in_time(void **state)
{
    static const struct row rows[] = {
        {5, {.unacked = 2, .retransmits = 4, .last_ack_ms = 4900, .last_data_ms = 4900}},
        {10, {.unacked = 2, .retransmits = 5, .last_ack_ms = 9900, .last_data_ms = 9900}},
        {15, {.unacked = 2, .retransmits = 6, .last_ack_ms = 14900, .last_data_ms = 14900}},
        {20, {.unacked = 2, .retransmits = 6, .last_ack_ms = 19900, .last_data_ms = 19900}},
        {25, {.unacked = 2, .retransmits = 6, .last_ack_ms = 24900, .last_data_ms = 24900}},
    };
    assert_int_equal(GONE_AT(rows, LIMIT), 4);
    assert_int_equal(GONE_AT(rows, 0), 0);
    assert_int_equal(GONE_AT(rows, 300 * TOW_TIME_S), 0);
}

/* Signals break a wait off again and again: such looks do not count more than others. */
static void signals_do_not_hurry(void **state)
{
    struct row rows[20];
    for (int i = 0; i < 20; i++) {
        rows[i] = (struct row){
            100 + i, {.unacked = 1, .retransmits = 6, .last_ack_ms = 15000, .last_data_ms = 15000}};
    }
    /* At 100, 104 and 108 s. */
    assert_int_equal(GONE_AT(rows, LIMIT), 9);
}

/* A machine was paused for a minute: its clock jumps, and the next answer is there soon. */
static void a_clock_that_jumps_is_one_look(void **state)
{
    static const struct row rows[] = {
        {5, {.unacked = 1, .retransmits = 3, .last_ack_ms = 4900, .last_data_ms = 4900}},
        {70, {.unacked = 1, .retransmits = 4, .last_ack_ms = 69900, .last_data_ms = 69900}},
        {75, {.last_ack_ms = 3000, .last_data_ms = 3000}},
        {80, {.last_ack_ms = 8000, .last_data_ms = 8000}},
        {85, {.last_ack_ms = 13000, .last_data_ms = 13000}},
    };
    assert_int_equal(GONE_AT(rows, LIMIT), 0);
}

/* Data that comes carries no new acknowledgement while we have sent nothing that was taken. */
static void a_peer_that_sends_lives(void **state)
{
    static const struct row rows[] = {
        {5, {.unacked = 1, .retransmits = 3, .last_ack_ms = 20000, .last_data_ms = 10}},
        {10, {.unacked = 1, .retransmits = 4, .last_ack_ms = 25000, .last_data_ms = 4000}},
        {15, {.unacked = 1, .retransmits = 5, .last_ack_ms = 30000, .last_data_ms = 10}},
        {20, {.unacked = 1, .retransmits = 6, .last_ack_ms = 35000, .last_data_ms = 10}},
    };
    assert_int_equal(GONE_AT(rows, LIMIT), 0);
}

/* A slow line: what we sent is on its way for long, and nothing had to be sent again. */
static void a_slow_line_is_no_silence(void **state)
{
    static const struct row rows[] = {
        {5, {.unacked = 40, .last_ack_ms = 16000, .last_data_ms = 90000}},
        {10, {.unacked = 40, .last_ack_ms = 21000, .last_data_ms = 95000}},
        {15, {.unacked = 40, .retransmits = 1, .last_ack_ms = 26000, .last_data_ms = 99000}},
        {20, {.unacked = 40, .retransmits = 1, .last_ack_ms = 31000, .last_data_ms = 99000}},
    };
    assert_int_equal(GONE_AT(rows, LIMIT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_takes_nothing_lives),
        cmocka_unit_test(one_lost_probe_is_no_silence),
        cmocka_unit_test(a_machine_that_is_gone_is_given_up_in_time),
        cmocka_unit_test(signals_do_not_hurry),
        cmocka_unit_test(a_clock_that_jumps_is_one_look),
        cmocka_unit_test(a_peer_that_sends_lives),
        cmocka_unit_test(a_slow_line_is_no_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
