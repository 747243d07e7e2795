/* SPDX-License-Identifier: Apache-2.0 */
/* Turns on a GPU that is simulated: sessions submit kernels while they may, and the GPU runs what
 * there is in equal parts. What it ran for whom is compared with the weights. */
#include "cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/login/turns.h"

#define STEP_NS (TOW_TIME_MS / 20)

enum { SESSIONS_MAX = 32 };

/* A session as it is, and as it says that it is. */
struct session {
    struct tows_turn turn;
    double kernel_ns; /* of one kernel */
    double ahead_ns;  /* how much it has submitted at most */
    double pause_ns;  /* between its bursts; 0: it always has work */
    double burst_ns;  /* of work, then */
    double left_ns;   /* of the burst */
    int64_t wakes_ns; /* when the next burst comes */
    double queued_ns; /* submitted and not run */
    double ran_ns;    /* by the GPU: the truth */
    bool deaf;        /* submits whatever it may */
    bool silent;      /* never says that it works */
    bool endless;     /* never says that it has finished */
    bool away;
};

static struct tows_turns turns;
static struct session sessions[SESSIONS_MAX];
static unsigned count;
static int64_t now_ns;
static double busy_ns;

static void begin(void)
{
    memset(&turns, 0, sizeof turns);
    memset(sessions, 0, sizeof sessions);
    count = 0;
    now_ns = TOW_TIME_S;
    busy_ns = 0;
}

static struct session *add(unsigned weight, double kernel_ms)
{
    struct session *session = &sessions[count++];
    session->turn = (struct tows_turn){.owner = session, .weight = weight};
    session->kernel_ns = kernel_ms * TOW_TIME_MS;
    session->ahead_ns = 5.0 * TOW_TIME_MS;
    session->left_ns = HUGE_VAL;
    assert_int_equal(tows_turns_add(&turns, &session->turn), 0);
    return session;
}

static void submit(struct session *session)
{
    bool may = session->turn.may || session->deaf;
    if (session->pause_ns > 0 && session->left_ns <= 0 && session->queued_ns <= 0 &&
        session->wakes_ns == 0) {
        session->wakes_ns = now_ns + (int64_t)session->pause_ns;
    }
    if (session->wakes_ns != 0 && now_ns >= session->wakes_ns) {
        session->wakes_ns = 0;
        session->left_ns = session->burst_ns;
    }
    while (
        may && !session->away && session->left_ns > 0 &&
        (session->queued_ns <= 0 || session->queued_ns + session->kernel_ns <= session->ahead_ns)) {
        session->queued_ns += session->kernel_ns;
        session->left_ns -= session->kernel_ns;
    }
    session->turn.wants = !session->away && session->left_ns > 0 && session->wakes_ns == 0;
    session->turn.works = (session->queued_ns > 0 && !session->silent) || session->endless;
}

/* The GPU rotates among those that have work. */
static void compute(void)
{
    unsigned on = 0;
    for (unsigned i = 0; i < count; i++) {
        on += sessions[i].queued_ns > 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (sessions[i].queued_ns > 0) {
            sessions[i].queued_ns -= (double)STEP_NS / on;
            sessions[i].ran_ns += (double)STEP_NS / on;
        }
    }
    busy_ns += on > 0 ? (double)STEP_NS : 0;
}

static void run_for(double seconds)
{
    int64_t until = now_ns + (int64_t)(seconds * TOW_TIME_S);
    while (now_ns < until) {
        for (unsigned i = 0; i < count; i++) {
            submit(&sessions[i]);
        }
        tows_turns_decide(&turns, now_ns);
        assert_true(tows_turns_next(&turns) > now_ns);
        compute();
        now_ns += STEP_NS;
    }
}

static void forget(void)
{
    busy_ns = 0;
    for (unsigned i = 0; i < count; i++) {
        sessions[i].ran_ns = 0;
    }
}

/* In points of what all had. */
static void assert_part(const struct session *session, double wanted, double within)
{
    double all = 0;
    for (unsigned i = 0; i < count; i++) {
        all += sessions[i].ran_ns;
    }
    double part = 100 * session->ran_ns / all;
    if (fabs(part - wanted) > within) {
        fail_msg("session %d had %.1f %%, not %.1f %%", (int)(session - sessions), part, wanted);
    }
}

static void assert_busy(double seconds, double least)
{
    double part = busy_ns / (seconds * TOW_TIME_S);
    if (part < least) {
        fail_msg("the GPU worked for %.3f of the time, not %.3f", part, least);
    }
}

/* ---- weights ---- */

static void check_weights(const unsigned *weights, unsigned n, const double *kernels_ms)
{
    unsigned all = 0;
    begin();
    for (unsigned i = 0; i < n; i++) {
        add(weights[i], kernels_ms[i]);
        all += weights[i];
    }
    run_for(10);
    for (unsigned i = 0; i < n; i++) {
        assert_part(&sessions[i], 100.0 * weights[i] / all, 3);
        double counted = (double)sessions[i].turn.used_ns, ran = sessions[i].ran_ns;
        assert_true(fabs(counted - ran) < 0.05 * 10 * TOW_TIME_S);
    }
    assert_busy(10, 0.95);
}

static void everybody_has_his_weight(void **state)
{
    (void)state;
    static const double short_ms[] = {0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05};
    static const double mixed_ms[] = {3, 0.1, 12, 0.5, 1, 4, 0.05, 2};
    static const double long_ms[] = {40, 0.1, 25, 30, 7, 0.5, 20, 45};
    static const double *const all[] = {short_ms, mixed_ms, long_ms};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check_weights((unsigned[]){1, 1}, 2, all[i]);
        check_weights((unsigned[]){1, 3}, 2, all[i]);
        check_weights((unsigned[]){3, 1}, 2, all[i]);
        check_weights((unsigned[]){1, 2, 5}, 3, all[i]);
        check_weights((unsigned[]){1, 1, 1, 1, 1, 1, 1, 1}, 8, all[i]);
        check_weights((unsigned[]){1, 2, 1, 2, 1, 2, 1, 2}, 8, all[i]);
    }
}

static void one_that_is_alone_is_never_held_back(void **state)
{
    (void)state;
    begin();
    struct session *one = add(1, 0.5);
    run_for(0.001);
    for (int i = 0; i < 1000; i++) {
        run_for(0.001);
        assert_true(one->turn.may);
        assert_true(tows_turns_next(&turns) == TOW_TIME_FOREVER);
    }
    assert_busy(1.001, 0.999);
    assert_true(one->turn.waited_ns == 0);
}

static void nobody_idles_while_the_gpu_could_work(void **state)
{
    (void)state;
    begin();
    struct session *bursts = add(3, 1), *heavy = add(1, 1);
    bursts->pause_ns = 30.0 * TOW_TIME_MS;
    bursts->burst_ns = 10.0 * TOW_TIME_MS;
    bursts->left_ns = 0;
    run_for(10);
    assert_busy(10, 0.97);
    /* It gets at once what it wants, and the other one the rest. */
    assert_true(bursts->ran_ns > 1.5 * TOW_TIME_S);
    assert_true(heavy->ran_ns > 6.0 * TOW_TIME_S);
}

/* ---- debts ---- */

static void who_was_away_has_saved_nothing(void **state)
{
    (void)state;
    begin();
    struct session *stays = add(1, 1), *comes = add(1, 1);
    comes->away = true;
    run_for(5);
    comes->away = false;
    forget();
    run_for(1);
    assert_part(stays, 50, 3);
    /* And one that comes as a new session has no more. */
    struct session *anew = add(1, 1);
    forget();
    run_for(3);
    assert_part(anew, 100.0 / 3, 3);
}

static void who_ran_too_long_waits_for_it(void **state)
{
    (void)state;
    begin();
    struct session *one = add(1, 400), *other = add(1, 1); /* far beyond slice and quantum */
    run_for(20);
    assert_part(one, 50, 3);
    assert_part(other, 50, 3);
}

static void a_debt_stays_while_it_is_away(void **state)
{
    (void)state;
    begin();
    struct session *one = add(1, 300), *other = add(1, 1);
    one->pause_ns = 1.0 * TOW_TIME_MS; /* pauses that would forgive it, if pauses did */
    one->burst_ns = 300.0 * TOW_TIME_MS;
    one->left_ns = 0;
    run_for(20);
    assert_part(other, 50, 4);
}

/* ---- percentages ---- */

static void a_percentage_holds_on_an_idle_card(void **state)
{
    (void)state;
    static const double kernels_ms[] = {0.05, 1, 10, 45};
    for (size_t i = 0; i < sizeof kernels_ms / sizeof *kernels_ms; i++) {
        begin();
        struct session *one = add(1, kernels_ms[i]);
        one->turn.percent = 30;
        run_for(10);
        double part = one->ran_ns / (10.0 * TOW_TIME_S);
        if (part < 0.27 || part > 0.33) {
            fail_msg("kernels of %.2f ms had %.3f", kernels_ms[i], part);
        }
    }
}

static void a_percentage_holds_beside_others(void **state)
{
    (void)state;
    begin();
    struct session *capped = add(5, 1), *free = add(1, 1);
    capped->turn.percent = 30;
    run_for(10);
    assert_part(capped, 30, 3);
    assert_part(free, 70, 3);
    assert_busy(10, 0.95);
}

/* ---- priority, and those that belong together ---- */

static void a_higher_priority_goes_first(void **state)
{
    (void)state;
    begin();
    struct session *small = add(1, 0.2), *heavy = add(1, 1);
    small->turn.priority = 2;
    small->pause_ns = 5.0 * TOW_TIME_MS;
    small->burst_ns = 1.0 * TOW_TIME_MS;
    small->left_ns = 0;
    run_for(5);
    /* It never waits for a slice: for what was submitted before it at most. */
    double bursts = small->ran_ns / small->burst_ns;
    assert_true(bursts > 0);
    assert_true((double)small->turn.waited_ns / bursts < 6.0 * TOW_TIME_MS);
    assert_busy(5, 0.95);
    assert_true(heavy->ran_ns > 3.0 * TOW_TIME_S);
}

static void nobody_starves_behind_a_higher_priority(void **state)
{
    (void)state;
    begin();
    struct session *high = add(1, 1), *low = add(1, 1);
    high->turn.priority = 2;
    run_for(10);
    assert_true(low->ran_ns > 0.05 * TOW_TIME_S);
    assert_true(high->ran_ns > 9.0 * TOW_TIME_S);
}

static void those_that_share_memory_share_a_turn(void **state)
{
    (void)state;
    begin();
    struct session *one = add(1, 1), *two = add(1, 1), *other = add(2, 1);
    one->turn.group = two->turn.group = 7;
    for (int i = 0; i < 2000; i++) {
        run_for(0.001);
        assert_int_equal(one->turn.may, two->turn.may);
        assert_false(one->turn.may && other->turn.may);
    }
    forget();
    run_for(10);
    assert_part(one, 25, 3);
    assert_part(two, 25, 3);
    assert_part(other, 50, 3);
}

/* ---- who does not keep to it ---- */

static void who_never_finishes_starves_nobody(void **state)
{
    (void)state;
    begin();
    struct session *hostile = add(1, 1), *other = add(1, 1);
    hostile->endless = true; /* it says that it works, always */
    run_for(10);
    assert_true(other->ran_ns > 4.0 * TOW_TIME_S);
}

static void who_submits_as_it_likes_gets_no_more_than_the_gpu_gives(void **state)
{
    (void)state;
    begin();
    struct session *hostile = add(1, 1), *other = add(1, 1), *third = add(1, 1);
    hostile->deaf = true;
    run_for(10);
    /* The GPU rotates between it and whose turn it is; it pays for that with its own turns. */
    assert_true(other->ran_ns > 2.0 * TOW_TIME_S);
    assert_true(third->ran_ns > 2.0 * TOW_TIME_S);
    begin();
    hostile = add(1, 1), other = add(1, 1);
    hostile->deaf = hostile->silent = true;
    run_for(10);
    /* One that lies, too, has half of the others' turns, as without any; the rest is theirs. */
    assert_true(other->ran_ns > 2.2 * TOW_TIME_S);
}

static void sessions_come_and_go(void **state)
{
    (void)state;
    begin();
    struct session *one = add(1, 1), *two = add(1, 1);
    run_for(1);
    tows_turns_remove(&turns, &two->turn);
    assert_int_equal(turns.count, 1);
    two->away = true;
    two->queued_ns = 0;
    forget();
    run_for(1);
    assert_part(one, 100, 1);
    assert_busy(1, 0.99);
    tows_turns_remove(&turns, &one->turn);
    tows_turns_decide(&turns, now_ns);
    assert_true(tows_turns_next(&turns) > now_ns);
    static struct tows_turn many[TOW_TURNS_MAX + 1];
    for (int i = 0; i < TOW_TURNS_MAX; i++) {
        assert_int_equal(tows_turns_add(&turns, &many[i]), 0);
    }
    assert_true(tows_turns_add(&turns, &many[TOW_TURNS_MAX]) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_has_his_weight),
        cmocka_unit_test(one_that_is_alone_is_never_held_back),
        cmocka_unit_test(nobody_idles_while_the_gpu_could_work),
        cmocka_unit_test(who_was_away_has_saved_nothing),
        cmocka_unit_test(who_ran_too_long_waits_for_it),
        cmocka_unit_test(a_debt_stays_while_it_is_away),
        cmocka_unit_test(a_percentage_holds_on_an_idle_card),
        cmocka_unit_test(a_percentage_holds_beside_others),
        cmocka_unit_test(a_higher_priority_goes_first),
        cmocka_unit_test(nobody_starves_behind_a_higher_priority),
        cmocka_unit_test(those_that_share_memory_share_a_turn),
        cmocka_unit_test(who_never_finishes_starves_nobody),
        cmocka_unit_test(who_submits_as_it_likes_gets_no_more_than_the_gpu_gives),
        cmocka_unit_test(sessions_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
