/* SPDX-License-Identifier: Apache-2.0 */
/* The process that reads NVIDIA's management library, against one that makes its numbers up. */
#include "cmocka_all.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/beside/gauge.h"

static char *report(const struct tows_gauge *gauge)
{
    struct tow_buf buf;
    struct tow_json json;
    tow_buf_init(&buf, 1 << 16);
    tow_json_init(&json, &buf);
    tow_json_object(&json, NULL);
    tows_gauge_write(gauge, &json);
    tow_json_end(&json);
    assert_int_equal(tow_json_finish(&json), 0);
    assert_int_equal(tow_buf_append(&buf, "", 1), 0);
    char *text = strdup((const char *)buf.data);
    tow_buf_fini(&buf);
    return text;
}

/* Asks until the report has this text; fails after 5 s. */
static void until(struct tows_gauge *gauge, const char *wanted)
{
    int64_t deadline = tow_time_deadline(5 * TOW_TIME_S);
    for (;;) {
        char *text = report(gauge);
        bool found = strstr(text, wanted) != NULL;
        if (!found && tow_time_passed(deadline)) {
            fail_msg("%s is not in %s", wanted, text);
        }
        free(text);
        if (found) {
            return;
        }
        tow_time_sleep(10 * TOW_TIME_MS);
    }
}

static void numbers_are_those_of_the_library(void **state)
{
    (void)state;
    struct tows_gauge gauge;
    assert_int_equal(tows_gauge_start(&gauge, getenv("FAKE_NVML")), 0);
    until(&gauge, "\"driver\":\"123.45\"");
    until(&gauge, "\"uuid\":\"GPU-1\"");
    until(&gauge, "\"memory_total\":1000,\"memory_free\":600,\"memory_used\":400");
    until(&gauge, "\"temperature\":55");
    char *text = report(&gauge);
    assert_null(strstr(text, "\"power\"")); /* the library has no such function */
    assert_null(strstr(text, "fan_speed")); /* it failed */
    assert_non_null(strstr(text, "\"ecc_current\":1,\"ecc_pending\":0,"));
    assert_non_null(strstr(text, "\"ecc_corrected\":101,\"ecc_corrected_ever\":102,"));
    assert_non_null(strstr(text, "\"ecc_uncorrected\":201,\"ecc_uncorrected_ever\":202"));
    assert_non_null(strstr(text, "\"virtualization\":1,\"inforom\":14"));
    free(text);
    tows_gauge_stop(&gauge);
}

/* Waits for the numbers of a ticket, as the listener does; fails after 5 s. */
static void wait_for(struct tows_gauge *gauge, uint64_t ticket)
{
    int64_t deadline = tow_time_deadline(5 * TOW_TIME_S);
    while (!tows_gauge_has(gauge, ticket)) {
        struct pollfd news = {.fd = tows_gauge_fd(gauge), .events = POLLIN};
        assert_int_equal(poll(&news, 1, 5000), 1);
        assert_false(tow_time_passed(deadline));
        tows_gauge_hear(gauge);
    }
}

/* How many rounds the library was asked in: it counts them. */
static int rounds(const struct tows_gauge *gauge)
{
    char *text = report(gauge), *at = strstr(text, "\"util_gpu\":");
    assert_non_null(at);
    int count = atoi(at + strlen("\"util_gpu\":"));
    free(text);
    return count;
}

static void asking_brings_numbers_of_later(void **state)
{
    (void)state;
    struct tows_gauge gauge;
    assert_int_equal(tows_gauge_start(&gauge, getenv("FAKE_NVML")), 0);
    until(&gauge, "\"util_gpu\":1,");
    for (int i = 2; i < 10; i++) {
        uint64_t ticket = tows_gauge_ask(&gauge);
        assert_int_not_equal(ticket, 0);
        wait_for(&gauge, ticket);
        assert_int_equal(rounds(&gauge), i);
    }
    tows_gauge_stop(&gauge);
}

/* Reading the infoROM takes long: not for every round, nor with the facts of each second. */
static void the_inforom_is_read_seldom(void **state)
{
    (void)state;
    struct tows_gauge gauge;
    assert_int_equal(tows_gauge_start(&gauge, getenv("FAKE_NVML")), 0);
    until(&gauge, "\"inforom\":14");
    tow_time_sleep(1100 * TOW_TIME_MS);
    wait_for(&gauge, tows_gauge_ask(&gauge));
    assert_int_equal(rounds(&gauge), 2);
    until(&gauge, "\"inforom\":14");
    tows_gauge_stop(&gauge);
}

static void many_questions_are_few_rounds(void **state)
{
    (void)state;
    struct tows_gauge gauge;
    assert_int_equal(tows_gauge_start(&gauge, getenv("FAKE_NVML")), 0);
    until(&gauge, "\"util_gpu\":1,");
    int64_t began = tow_time_now_ns();
    uint64_t last = 0;
    for (int i = 0; i < 200; i++) {
        last = tows_gauge_ask(&gauge);
        tow_time_sleep(TOW_TIME_MS / 4);
    }
    wait_for(&gauge, last);
    int64_t took = tow_time_now_ns() - began;
    int most = (int)(took / (8 * TOW_TIME_MS)) + 3;
    assert_in_range(rounds(&gauge), 2, most);
    /* And nobody asks while nobody wants to know. */
    int before = rounds(&gauge);
    tow_time_sleep(50 * TOW_TIME_MS);
    assert_int_equal(rounds(&gauge), before);
    tows_gauge_stop(&gauge);
}

static void a_process_that_has_ended_is_not_waited_for(void **state)
{
    (void)state;
    struct tows_gauge gauge;
    assert_int_equal(tows_gauge_start(&gauge, getenv("FAKE_NVML")), 0);
    until(&gauge, "\"util_gpu\":1,");
    kill(gauge.pid, SIGKILL);
    uint64_t ticket = tows_gauge_ask(&gauge);
    if (ticket != 0) {
        wait_for(&gauge, ticket);
    }
    waitpid(gauge.pid, NULL, 0);
    tows_gauge_hear(&gauge);
    assert_int_equal(tows_gauge_fd(&gauge), -1);
    assert_int_equal(tows_gauge_ask(&gauge), 0);
    until(&gauge, "\"running\":false");
    tows_gauge_stop(&gauge);
}

static void without_gauges_the_report_says_so(void **state)
{
    (void)state;
    struct tows_gauge gauge = {0};
    assert_int_equal(tows_gauge_ask(&gauge), 0);
    assert_int_equal(tows_gauge_fd(&gauge), -1);
    assert_true(tows_gauge_has(&gauge, 1));
    until(&gauge, "{\"gauges\":{\"running\":false}}");
    tows_gauge_stop(&gauge);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in the listener */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_library),
        cmocka_unit_test(asking_brings_numbers_of_later),
        cmocka_unit_test(the_inforom_is_read_seldom),
        cmocka_unit_test(many_questions_are_few_rounds),
        cmocka_unit_test(a_process_that_has_ended_is_not_waited_for),
        cmocka_unit_test(without_gauges_the_report_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
