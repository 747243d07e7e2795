/* SPDX-License-Identifier: Apache-2.0 */
/* Whose GPU memory is there: no worker, no GPU, and a clock that is a number. */
#include "cmocka_all.h"

#include <string.h>

#include "base/clock.h"
#include "server/login/room.h"

enum { SESSIONS_MAX = 16 };

static struct tows_room room;
static struct tows_room_claim sessions[SESSIONS_MAX]; /* as they are; `owner` is their number */
static unsigned count;
static int64_t now_ns;

static void begin(uint64_t card, uint64_t host)
{
    memset(sessions, 0, sizeof sessions);
    room = (struct tows_room){.card = card, .quantum_ns = 10 * TOW_TIME_S, .host = host};
    count = 0;
    now_ns = 1000 * TOW_TIME_S;
}

static struct tows_room_claim *add(uint64_t has, enum tows_room_state state)
{
    struct tows_room_claim *session = &sessions[count];
    *session = (struct tows_room_claim){.owner = (void *)(uintptr_t)(count + 1),
                                        .state = state,
                                        .has = {has},
                                        .kept = has,
                                        .moved_ns = now_ns,
                                        .came_ns = now_ns};
    count++;
    return session;
}

/* It works from now on. */
static void works(struct tows_room_claim *session)
{
    session->moved_ns = now_ns;
}

static void asks(struct tows_room_claim *session, uint64_t more)
{
    session->more = more;
    session->asked_ns = now_ns;
}

static void calls(struct tows_room_claim *session)
{
    session->back = true;
    session->asked_ns = now_ns;
}

/* What is decided, in the order of the sessions. */
static void decide(void)
{
    struct tows_room_claim claims[SESSIONS_MAX];
    memcpy(claims, sessions, sizeof claims);
    tows_room_decide(&room, claims, count, now_ns);
    for (unsigned i = 0; i < count; i++) {
        sessions[(uintptr_t)claims[i].owner - 1].verdict = claims[i].verdict;
    }
}

/* It is done at once. */
static void carry_out(void)
{
    for (unsigned i = 0; i < count; i++) {
        struct tows_room_claim *session = &sessions[i];
        if (session->verdict == TOW_ROOM_GOES_OUT) {
            session->state = TOW_ROOM_OUT;
        } else if (session->verdict == TOW_ROOM_COMES_BACK) {
            session->state = TOW_ROOM_IN;
            session->back = false;
            session->came_ns = session->moved_ns = now_ns;
        } else if (session->verdict == TOW_ROOM_GETS) {
            session->has[session->gpu] += session->more;
            session->kept += session->more;
            session->more = 0;
        }
    }
}

static void pass(int64_t seconds)
{
    now_ns += seconds * TOW_TIME_S;
}

static void what_is_free_is_given(void **state)
{
    (void)state;
    begin(100, 1000);
    struct tows_room_claim *one = add(60, TOW_ROOM_IN), *other = add(0, TOW_ROOM_IN);
    assert_false(tows_room_is_wanted(sessions, count));
    asks(other, 40);
    assert_true(tows_room_is_wanted(sessions, count));
    decide();
    assert_int_equal(other->verdict, TOW_ROOM_GETS);
    assert_int_equal(one->verdict, TOW_ROOM_STAYS);
    carry_out();
    asks(other, 1);
    decide();
    assert_int_equal(other->verdict, TOW_ROOM_STAYS); /* nobody is idle yet */
}

static void the_idle_go_longest_first_and_detached_before(void **state)
{
    (void)state;
    begin(100, 1000);
    struct tows_room_claim *first = add(30, TOW_ROOM_IN);
    pass(2);
    struct tows_room_claim *second = add(30, TOW_ROOM_IN);
    pass(2);
    struct tows_room_claim *third = add(30, TOW_ROOM_IN);
    third->detached = true;
    struct tows_room_claim *wants = add(0, TOW_ROOM_IN);
    asks(wants, 30);
    decide();
    assert_int_equal(third->verdict, TOW_ROOM_GOES_OUT);
    assert_int_equal(first->verdict, TOW_ROOM_STAYS);
    wants->more = 60;
    decide();
    assert_int_equal(first->verdict, TOW_ROOM_GOES_OUT);
    assert_int_equal(third->verdict, TOW_ROOM_GOES_OUT);
    assert_int_equal(second->verdict, TOW_ROOM_STAYS);
    assert_int_equal(wants->verdict, TOW_ROOM_STAYS);
    carry_out();
    decide();
    assert_int_equal(wants->verdict, TOW_ROOM_GETS);
    assert_int_equal(second->verdict, TOW_ROOM_STAYS);
}

static void an_idle_one_goes_before_one_whose_quantum_is_over(void **state)
{
    (void)state;
    begin(100, 1000);
    struct tows_room_claim *idle = add(50, TOW_ROOM_IN), *works_long = add(50, TOW_ROOM_IN);
    struct tows_room_claim *wants = add(0, TOW_ROOM_IN);
    works_long->came_ns -= 5 * TOW_TIME_S;
    pass(11);
    works(works_long);
    asks(wants, 40);
    decide();
    assert_int_equal(idle->verdict, TOW_ROOM_GOES_OUT);
    assert_int_equal(works_long->verdict, TOW_ROOM_STAYS);
    works(idle);
    decide();
    assert_int_equal(idle->verdict, TOW_ROOM_STAYS);
    assert_int_equal(works_long->verdict, TOW_ROOM_GOES_OUT);
}

static void no_more_go_than_must(void **state)
{
    (void)state;
    begin(100, 1000);
    struct tows_room_claim *small = add(10, TOW_ROOM_IN);
    pass(1);
    struct tows_room_claim *large = add(80, TOW_ROOM_IN);
    struct tows_room_claim *wants = add(5, TOW_ROOM_IN);
    pass(5);
    asks(wants, 60);
    decide();
    assert_int_equal(large->verdict, TOW_ROOM_GOES_OUT);
    assert_int_equal(small->verdict, TOW_ROOM_STAYS);
    assert_int_equal(wants->verdict, TOW_ROOM_STAYS);
}

static void those_that_leave_are_waited_for(void **state)
{
    (void)state;
    begin(100, 1000);
    add(60, TOW_ROOM_LEAVES);
    struct tows_room_claim *idle = add(40, TOW_ROOM_IN);
    struct tows_room_claim *wants = add(0, TOW_ROOM_IN), *later = add(0, TOW_ROOM_IN);
    idle->moved_ns = 0;
    asks(wants, 50);
    pass(1);
    asks(later, 10);
    decide();
    assert_int_equal(idle->verdict, TOW_ROOM_STAYS);
    assert_int_equal(wants->verdict, TOW_ROOM_STAYS);
    assert_int_equal(later->verdict, TOW_ROOM_STAYS);
    sessions[0].state = TOW_ROOM_OUT;
    decide();
    assert_int_equal(wants->verdict, TOW_ROOM_GETS);
    assert_int_equal(later->verdict, TOW_ROOM_GETS);
}

/* Both work all the time; the one that is out waits from the moment at which it was put out. */
static void two_that_work_have_a_quantum_each(void **state)
{
    (void)state;
    begin(100, 60);
    struct tows_room_claim *in = add(60, TOW_ROOM_IN), *out = add(60, TOW_ROOM_OUT);
    calls(out);
    unsigned exchanges = 0;
    for (unsigned ms = 0; ms < 100000; ms += 20) {
        now_ns += 20 * TOW_TIME_MS;
        works(in);
        decide();
        bool goes = in->verdict == TOW_ROOM_GOES_OUT;
        carry_out();
        if (goes) {
            exchanges++;
            calls(in);
            decide();
            assert_int_equal(out->verdict, TOW_ROOM_COMES_BACK);
            carry_out();
            struct tows_room_claim *other = in;
            in = out;
            out = other;
        }
    }
    assert_in_range(exchanges, 9, 10);
}

/* Three keep it busy, each a while after the other; one needs nearly all of it. */
static void who_needs_much_is_not_passed_over_for_ever(void **state)
{
    (void)state;
    begin(100, 1000);
    struct tows_room_claim *small[4];
    for (unsigned i = 0; i < 3; i++) {
        small[i] = add(30, TOW_ROOM_IN);
        pass(3);
    }
    small[3] = add(30, TOW_ROOM_OUT);
    calls(small[3]);
    struct tows_room_claim *large = add(90, TOW_ROOM_OUT);
    pass(1);
    calls(large);
    int64_t since_ns = now_ns;
    while (large->state == TOW_ROOM_OUT && now_ns - since_ns < 100 * TOW_TIME_S) {
        now_ns += 20 * TOW_TIME_MS;
        for (unsigned i = 0; i < 4; i++) {
            works(small[i]);
        }
        decide();
        carry_out();
        for (unsigned i = 0; i < 4; i++) {
            if (small[i]->state == TOW_ROOM_OUT && !small[i]->back) {
                calls(small[i]);
            }
        }
    }
    assert_in_range((now_ns - since_ns) / TOW_TIME_S, 5, 31);
}

static void growth_that_fits_passes_those_who_wait(void **state)
{
    (void)state;
    begin(100, 1000);
    struct tows_room_claim *in = add(60, TOW_ROOM_IN), *out = add(80, TOW_ROOM_OUT);
    calls(out);
    pass(1);
    works(in);
    asks(in, 10);
    decide();
    assert_int_equal(in->verdict, TOW_ROOM_GETS);
    assert_int_equal(out->verdict, TOW_ROOM_STAYS);
}

static void host_memory_is_not_exceeded(void **state)
{
    (void)state;
    begin(100, 50);
    struct tows_room_claim *large = add(60, TOW_ROOM_IN), *small = add(30, TOW_ROOM_IN);
    struct tows_room_claim *wants = add(0, TOW_ROOM_IN);
    pass(20);
    works(wants);
    asks(wants, 30);
    decide();
    /* The large one came first, but there is nowhere to put it. */
    assert_int_equal(large->verdict, TOW_ROOM_STAYS);
    assert_int_equal(small->verdict, TOW_ROOM_STAYS);
    small->moved_ns = large->moved_ns - 1;
    decide();
    assert_int_equal(small->verdict, TOW_ROOM_GOES_OUT);
    carry_out();
    decide();
    assert_int_equal(wants->verdict, TOW_ROOM_GETS);
    carry_out();
    /* 30 are kept: what needs the large one to go as well can never be. */
    asks(wants, 30);
    decide();
    assert_int_equal(wants->verdict, TOW_ROOM_REFUSED);
    wants->more = 0;
    /* An exchange may be over it for its moment. */
    room.host = 30;
    calls(small);
    large->fixed = true;
    wants->moved_ns = 0;
    decide();
    assert_int_equal(wants->verdict, TOW_ROOM_GOES_OUT);
}

static void what_can_never_be_is_refused(void **state)
{
    (void)state;
    begin(100, 1000);
    struct tows_room_claim *stuck = add(50, TOW_ROOM_IN), *other = add(40, TOW_ROOM_IN);
    asks(other, 61);
    decide();
    assert_int_equal(other->verdict, TOW_ROOM_REFUSED);
    asks(other, 20);
    stuck->fixed = true;
    decide();
    assert_int_equal(other->verdict, TOW_ROOM_STAYS); /* it may end */
    stuck->stuck = true;
    decide();
    assert_int_equal(other->verdict, TOW_ROOM_REFUSED);
    other->more = UINT64_C(1) << 62;
    decide();
    assert_int_equal(other->verdict, TOW_ROOM_REFUSED);
}

static void each_gpu_counts_by_itself(void **state)
{
    (void)state;
    begin(100, 1000);
    struct tows_room_claim *one = add(80, TOW_ROOM_IN), *other = add(0, TOW_ROOM_IN);
    struct tows_room_claim *wants = add(0, TOW_ROOM_IN);
    other->has[3] = other->kept = 80;
    pass(5);
    asks(wants, 50);
    wants->gpu = 3;
    decide();
    assert_int_equal(one->verdict, TOW_ROOM_STAYS);
    assert_int_equal(other->verdict, TOW_ROOM_GOES_OUT);
    wants->gpu = 5;
    decide();
    assert_int_equal(wants->verdict, TOW_ROOM_GETS);
}

static void all_have_room_where_nothing_is_known(void **state)
{
    (void)state;
    begin(0, 0);
    struct tows_room_claim *one = add(80, TOW_ROOM_IN);
    asks(one, UINT64_C(1) << 40);
    decide();
    assert_int_equal(one->verdict, TOW_ROOM_GETS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_free_is_given),
        cmocka_unit_test(the_idle_go_longest_first_and_detached_before),
        cmocka_unit_test(an_idle_one_goes_before_one_whose_quantum_is_over),
        cmocka_unit_test(no_more_go_than_must),
        cmocka_unit_test(those_that_leave_are_waited_for),
        cmocka_unit_test(two_that_work_have_a_quantum_each),
        cmocka_unit_test(who_needs_much_is_not_passed_over_for_ever),
        cmocka_unit_test(growth_that_fits_passes_those_who_wait),
        cmocka_unit_test(host_memory_is_not_exceeded),
        cmocka_unit_test(what_can_never_be_is_refused),
        cmocka_unit_test(each_gpu_counts_by_itself),
        cmocka_unit_test(all_have_room_where_nothing_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
