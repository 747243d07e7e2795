/* SPDX-License-Identifier: Apache-2.0 */
/* How long to spin, learned from the waits of programs as they are. */
#include "lines.h"

#include <string.h>

#include "base/clock.h"
#include "transport/ring.h"

/* Waits as the spinning sees them: a wait beyond the budget is a sleep. Returns the sleeps. */
static int live_through(struct tow_spin *spin, const int64_t *waits_us, int count, int times)
{
    int sleeps = 0;
    for (int i = 0; i < times; i++) {
        for (int k = 0; k < count; k++) {
            int64_t waited = waits_us[k] * TOW_TIME_US;
            bool slept = waited > tow_spin_until(spin, 0);
            sleeps += slept;
            tow_spin_learn(spin, 0,
                           waited + (slept ? 50 * TOW_TIME_US : 0)); /* waking takes time */
        }
    }
    return sleeps;
}

static struct tow_spin spin_new(void)
{
    return (struct tow_spin){
        .budget_ns = 300 * TOW_TIME_US, .min_ns = 2 * TOW_TIME_US, .max_ns = 300 * TOW_TIME_US};
}

/* An interpreter between its launches: mostly a few microseconds, now and then a hundred. Each
 * sleep would cost its next launch a wake-up. */
static void uneven_work_finds_the_other_side_awake(void **state)
{
    static const int64_t waits[] = {12, 9, 15, 11, 14, 8,  110, 10, 13, 12, 9,  16, 40, 12,
                                    11, 9, 15, 10, 13, 12, 8,   14, 90, 11, 12, 9,  10, 15};
    struct tow_spin spin = spin_new();
    assert_int_equal(live_through(&spin, waits, sizeof waits / sizeof *waits, 100), 0);
}

/* The same with a synchronisation of two milliseconds in each round: one sleep for that, no other.
 */
static void a_long_wait_costs_its_own_sleep_only(void **state)
{
    static const int64_t waits[] = {12, 9, 15, 11, 60, 8, 14, 10, 13, 12, 9, 16, 40, 2000};
    struct tow_spin spin = spin_new();
    assert_in_range(live_through(&spin, waits, sizeof waits / sizeof *waits, 100), 100, 110);
}

/* Who waits long every time stops spinning; who then waits briefly again spins at once. */
static void idle_programs_do_not_spin(void **state)
{
    static const int64_t rare[] = {5000}, brisk[] = {20};
    struct tow_spin spin = spin_new();
    live_through(&spin, rare, 1, 20);
    assert_int_equal(tow_spin_until(&spin, 0), 2 * TOW_TIME_US);
    assert_int_equal(live_through(&spin, brisk, 1, 100), 1);
}

/* Short waits for a long time: the budget comes down to what they need. */
static void short_waits_shorten_the_spinning(void **state)
{
    static const int64_t brisk[] = {5};
    struct tow_spin spin = spin_new();
    live_through(&spin, brisk, 1, 1000);
    assert_in_range(tow_spin_until(&spin, 0), 10 * TOW_TIME_US, 12 * TOW_TIME_US);
}

/* A program that copies and looks when it is done: nobody sleeps while the copy takes as long as
 * it should, and what other waits have taught stays. */
static void what_is_expected_is_spun_for(void **state)
{
    struct tow_spin spin = spin_new();
    for (int i = 0; i < 100; i++) {
        tow_spin_expect(&spin, 3000 * TOW_TIME_US);
        assert_int_equal(tow_spin_until(&spin, 0), 3000 * TOW_TIME_US);
        tow_spin_learn(&spin, 0, 2000 * TOW_TIME_US);
        assert_int_equal(tow_spin_until(&spin, 0), 300 * TOW_TIME_US); /* for one wait only */
    }
}

/* One that copies now and then: the worker soon stops to spin for what does not come. */
static void expectations_in_vain_are_given_up(void **state)
{
    struct tow_spin spin = spin_new();
    int believed = 0;
    for (int i = 0; i < 1000; i++) {
        tow_spin_expect(&spin, 3000 * TOW_TIME_US);
        believed += tow_spin_until(&spin, 0) == 3000 * TOW_TIME_US;
        tow_spin_learn(&spin, 0, 20000 * TOW_TIME_US);
    }
    assert_in_range(believed, 10, 30);
    assert_int_equal(tow_spin_until(&spin, 0), 2 * TOW_TIME_US); /* long waits teach as ever */
    /* One that comes true again is believed at once the next time. */
    int tries = 0;
    do {
        assert_true(tries++ < 64);
        tow_spin_expect(&spin, 3000 * TOW_TIME_US);
    } while (tow_spin_until(&spin, 0) != 3000 * TOW_TIME_US);
    tow_spin_learn(&spin, 0, 2000 * TOW_TIME_US);
    tow_spin_expect(&spin, 3000 * TOW_TIME_US);
    assert_int_equal(tow_spin_until(&spin, 0), 3000 * TOW_TIME_US);
}

static void who_must_not_spin_expects_nothing(void **state)
{
    struct tow_spin spin = {0};
    tow_spin_expect(&spin, 3000 * TOW_TIME_US);
    assert_int_equal(tow_spin_until(&spin, 0), 0);
}

/* On one or two processors spinning takes the peer's away: then nobody looks before the call that
 * sleeps, however the bytes lie. */
static void a_line_that_must_not_spin_never_does(void **state)
{
    static const char *const kinds[] = {"unix", "tcp", "shm"};
    tow_line_set_spin(0, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct tow_line *client, *server;
        struct tow_line_stats stats;
        size_t available;
        uint8_t *to;
        const uint8_t *at;
        lines_kind = kinds[i];
        lines_pair(&client, &server);
        for (int k = 0; k < 100; k++) {
            assert_int_equal(tow_line_reserve(client, 8, &to), 0);
            memcpy(to, "12345678", 8);
            tow_line_commit_now(client, 8);
            assert_int_equal(
                tow_line_peek(server, 8, tow_time_deadline(20000 * TOW_TIME_MS), &at, &available),
                0);
            tow_line_consume(server, 8);
        }
        tow_line_get_stats(server, &stats);
        assert_int_equal(stats.spins, 0);
        tow_line_close(client);
        tow_line_close(server);
    }
    lines_cleanup();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_work_finds_the_other_side_awake),
        cmocka_unit_test(a_long_wait_costs_its_own_sleep_only),
        cmocka_unit_test(idle_programs_do_not_spin),
        cmocka_unit_test(short_waits_shorten_the_spinning),
        cmocka_unit_test(what_is_expected_is_spun_for),
        cmocka_unit_test(expectations_in_vain_are_given_up),
        cmocka_unit_test(who_must_not_spin_expects_nothing),
        cmocka_unit_test(a_line_that_must_not_spin_never_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
