/* The process that reads NVIDIA's management library, against one that makes its numbers up. */
#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/gauge.h"

static char *report(const struct tow_gauge *gauge)
{
    struct tow_buf buf;
    struct tow_json json;
    tow_buf_init(&buf, 1 << 16);
    tow_json_init(&json, &buf);
    tow_json_object(&json, NULL);
    tow_gauge_write(gauge, &json);
    tow_json_end(&json);
    assert_int_equal(tow_json_finish(&json), 0);
    assert_int_equal(tow_buf_append(&buf, "", 1), 0);
    char *text = strdup((const char *)buf.data);
    tow_buf_fini(&buf);
    return text;
}

/* Asks until the report has this text; fails after 5 s. */
static void until(struct tow_gauge *gauge, const char *wanted)
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
    struct tow_gauge gauge;
    assert_int_equal(tow_gauge_start(&gauge, getenv("FAKE_NVML")), 0);
    until(&gauge, "\"driver\":\"123.45\"");
    until(&gauge, "\"uuid\":\"GPU-1\"");
    until(&gauge, "\"memory_total\":1000,\"memory_free\":600,\"memory_used\":400");
    until(&gauge, "\"temperature\":55");
    char *text = report(&gauge);
    assert_null(strstr(text, "\"power\"")); /* the library has no such function */
    free(text);
    tow_gauge_stop(&gauge);
}

static void asking_brings_new_numbers(void **state)
{
    (void)state;
    struct tow_gauge gauge;
    assert_int_equal(tow_gauge_start(&gauge, getenv("FAKE_NVML")), 0);
    until(&gauge, "\"util_gpu\":1,");
    tow_gauge_refresh(&gauge);
    until(&gauge, "\"util_gpu\":2,");
    tow_gauge_stop(&gauge);
}

static void without_gauges_the_report_says_so(void **state)
{
    (void)state;
    struct tow_gauge gauge = {0};
    tow_gauge_refresh(&gauge);
    until(&gauge, "{\"gauges\":{\"running\":false}}");
    tow_gauge_stop(&gauge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_library),
        cmocka_unit_test(asking_brings_new_numbers),
        cmocka_unit_test(without_gauges_the_report_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
