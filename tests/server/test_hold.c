/* SPDX-License-Identifier: Apache-2.0 */
/* Who takes something away waits for those who were inside before, and for no others. */
#include "cmocka_all.h"

#include <stdlib.h>

#include "base/clock.h"
#include "server/session/hold.h"
#include "server/session/session.h"

static struct tows_session *session;

static int begin(void **state)
{
    (void)state;
    session = calloc(1, sizeof *session);
    session->stats = &session->own_stats;
    tows_hold_init(&session->hold);
    tows_ending_init(&session->ending);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tows_hold_fini(&session->hold);
    tows_ending_fini(&session->ending);
    free(session);
    return 0;
}

static void nobody_inside_is_not_waited_for(void **state)
{
    (void)state;
    assert_true(tows_hold_wait(session));
    assert_true(tows_hold_wait(session));
    unsigned held = tows_hold_enter_session(session);
    tows_hold_leave_session(session, held);
    assert_true(tows_hold_wait(session));
}

static void a_call_enters_once(void **state)
{
    (void)state;
    struct tows_serve call = {.session = session};
    tows_hold_enter(&call);
    tows_hold_enter(&call);
    assert_false(tows_hold_wait(session));
    tows_hold_leave(&call);
    tows_hold_leave(&call);
    assert_true(tows_hold_wait(session));
}

static void those_who_come_later_are_not_waited_for(void **state)
{
    (void)state;
    unsigned first = tows_hold_enter_session(session);
    assert_false(tows_hold_wait(session)); /* from now on is later */
    unsigned second = tows_hold_enter_session(session);
    assert_int_not_equal(first, second);
    tows_hold_leave_session(session, first);
    assert_int_equal(atomic_load(&session->hold.inside[first - 1]), 0);
    /* But whoever waits now waits for it. */
    assert_false(tows_hold_wait(session));
    tows_hold_leave_session(session, second);
    assert_true(tows_hold_wait(session));
}

struct thing {
    struct tows_hold_ending ending;
    unsigned in_flight; /* when it ended */
    atomic_bool ended;
};

static void end_thing(struct tows_session *s, struct tows_hold_ending *ending)
{
    struct thing *thing = (struct thing *)ending;
    thing->in_flight = atomic_load(&s->stats->in_flight);
    atomic_store(&thing->ended, true);
}

static void what_is_deferred_ends_when_the_last_has_left(void **state)
{
    (void)state;
    struct thing things[3] = {
        {.ending.end = end_thing}, {.ending.end = end_thing}, {.ending.end = end_thing}};
    unsigned held = tows_hold_enter_session(session);
    for (unsigned i = 0; i < 3; i++) {
        assert_false(tows_hold_wait(session));
        tows_hold_defer(session, &things[i].ending);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_false(atomic_load(&things[i].ended));
    }
    tows_hold_leave_session(session, held);
    int64_t until = tow_time_deadline(20 * TOW_TIME_S);
    for (unsigned i = 0; i < 3; i++) {
        while (!atomic_load(&things[i].ended) && !tow_time_passed(until)) {
            tow_time_sleep(TOW_TIME_MS);
        }
        assert_true(atomic_load(&things[i].ended));
        /* The driver may wait there: the leader does not call it meanwhile. */
        assert_int_equal(things[i].in_flight, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_inside_is_not_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(a_call_enters_once, begin, end),
        cmocka_unit_test_setup_teardown(those_who_come_later_are_not_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(what_is_deferred_ends_when_the_last_has_left, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
