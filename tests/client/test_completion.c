/* SPDX-License-Identifier: Apache-2.0 */
/* What the server tells of an event or a stream: never taken for more than it says. */
#include "cmocka_all.h"

#include <string.h>

#include "base/mutex.h"
#include "client/completion/completion.h"
#include "transport/line.h"

static struct towc_link link_to;
static struct tow_line *server;
static struct towc_completion thing;

static int setup(void **state)
{
    memset(&link_to, 0, sizeof link_to);
    memset(&thing, 0, sizeof thing);
    link_to.send.next_transfer = 1;
    tow_mutex_init(&link_to.wait.lock, CLIENT_WAIT);
    tow_mutex_init(&thing.lock, CLIENT_EVENT);
    link_to.completions = towc_completions_make();
    assert_non_null(link_to.completions);
    return tow_line_pair(&server, &link_to.line);
}

static int teardown(void **state)
{
    towc_completions_destroy(link_to.completions);
    tow_line_close(link_to.line);
    tow_line_close(server);
    tow_mutex_fini(&thing.lock);
    tow_mutex_fini(&link_to.wait.lock);
    return 0;
}

static uint32_t follow(void)
{
    struct towc_completion_mark mark = {0};
    assert_true(towc_completion_follow(&thing, &link_to, &mark));
    assert_int_not_equal(mark.value, 0);
    return mark.value;
}

static void await(uint32_t value)
{
    tow_mutex_lock(&thing.lock);
    towc_completion_await(&thing, value);
    tow_mutex_unlock(&thing.lock);
}

/* The only thing's watch number is the first. */
static void tell(uint32_t value, bool refused)
{
    static struct tow_done done;
    done.count = 1;
    done.entries[0].watch_id = 0;
    done.entries[0].value = value;
    done.entries[0].refused = refused;
    assert_int_equal(towc_completion_take(&link_to, &done), 0);
}

static enum towc_completion_outcome query(void)
{
    return towc_completion_query(&thing, &link_to, NULL);
}

static void what_was_told_is_done_and_nothing_else(void **state)
{
    assert_int_equal(query(), TOW_COMPLETION_REFUSED); /* nobody would tell */
    uint32_t first = follow();
    assert_int_equal(query(), TOW_COMPLETION_REFUSED); /* it has not gone out */
    await(first);
    assert_int_not_equal(query(), TOW_COMPLETION_DONE);
    tell(first, false);
    assert_int_equal(query(), TOW_COMPLETION_DONE);
    assert_int_equal(towc_completion_wait(&thing, &link_to), TOW_COMPLETION_DONE);
    uint32_t second = follow();
    await(second);
    assert_int_not_equal(query(), TOW_COMPLETION_DONE);
    tell(first, false); /* again, and late */
    assert_int_not_equal(query(), TOW_COMPLETION_DONE);
    tell(second, false);
    tell(first, false);
    assert_int_equal(query(), TOW_COMPLETION_DONE);
}

static void what_was_given_out_before_a_record_is_not_believed(void **state)
{
    uint32_t before = follow();
    towc_completion_void(&thing);
    await(before);
    tell(before, false);
    assert_int_equal(query(), TOW_COMPLETION_REFUSED);
    /* Of two that go out at the same time nobody knows which is the last. */
    uint32_t one = follow(), other = follow();
    await(one);
    await(other);
    tell(one, false);
    tell(other, false);
    assert_int_equal(query(), TOW_COMPLETION_REFUSED);
}

static void what_is_refused_is_asked_for(void **state)
{
    uint32_t value = follow();
    await(value);
    tell(value, true);
    assert_int_equal(query(), TOW_COMPLETION_REFUSED);
}

static void what_the_program_may_know_from_elsewhere_is_asked_for(void **state)
{
    await(follow());
    towc_completion_hear(&link_to);
    assert_int_equal(query(), TOW_COMPLETION_REFUSED);
    uint32_t value = follow(); /* the newest question counts */
    await(value);
    tell(value, false);
    towc_completion_hear(&link_to);
    assert_int_equal(query(), TOW_COMPLETION_DONE);
}

static void what_a_reply_brings_is_waited_for(void **state)
{
    uint8_t memory[8];
    struct towc_host_rect into = towc_host_rect_flat(memory, sizeof memory);
    uint32_t transfer = 0, value = follow();
    await(value);
    tell(value, false);
    assert_int_equal(towc_link_expect(&link_to, &into, 1, NULL, TOW_TRANSFER_ORDERED, 0, &transfer),
                     0);
    assert_int_equal(query(), TOW_COMPLETION_REFUSED);
    towc_link_forget(&link_to, transfer);
    assert_int_equal(query(), TOW_COMPLETION_DONE);
}

static void no_value_is_0(void **state)
{
    thing.given = UINT32_MAX - 1;
    assert_int_equal(follow(), UINT32_MAX);
    uint32_t value = follow();
    await(value);
    tell(value, false);
    assert_int_equal(query(), TOW_COMPLETION_DONE);
}

static void a_word_of_another_server_says_nothing(void **state)
{
    static struct towc_link other;
    uint32_t value = follow();
    await(value);
    tell(value, false);
    assert_int_equal(towc_completion_query(&thing, &other, NULL), TOW_COMPLETION_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_told_is_done_and_nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_given_out_before_a_record_is_not_believed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_refused_is_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_program_may_know_from_elsewhere_is_asked_for,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_reply_brings_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(no_value_is_0, setup, teardown),
        cmocka_unit_test_setup_teardown(a_word_of_another_server_says_nothing, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
