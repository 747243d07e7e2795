/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of a server's report: what it reads, and that nothing a server sends can hurt it. */
#include "cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_read.h"

static const char text[] = "{\"a\": [1, -2.5, {\"b\": \"x\\\"y\\u0041\\n\"}], \"t\": true, \"n\": "
                           "null, \"e\": {}, \"s\": \"\"}";

static void values_are_found(void **state)
{
    struct tow_json_doc doc;
    assert_int_equal(tow_json_doc_parse(text, strlen(text), &doc), 0);
    const struct tow_json_value *a = tow_json_member(&doc, doc.values, "a");
    const struct tow_json_value *item = tow_json_next(&doc, a, NULL);
    assert_true(item->number == 1);
    item = tow_json_next(&doc, a, item);
    assert_true(item->number == -2.5);
    item = tow_json_next(&doc, a, item);
    assert_string_equal(tow_json_text(&doc, item, "b"), "x\"yA ");
    assert_null(tow_json_next(&doc, a, item));
    assert_true(tow_json_number(&doc, doc.values, "t") == 1);
    assert_null(tow_json_next(&doc, tow_json_member(&doc, doc.values, "e"), NULL));
    assert_string_equal(tow_json_text(&doc, doc.values, "missing"), "");
    assert_null(tow_json_member(&doc, a, "a"));
    assert_null(tow_json_member(&doc, NULL, "a"));
    tow_json_doc_fini(&doc);
}

static void no_control_character_gets_through(void **state)
{
    struct tow_json_doc doc;
    const char evil[] = "[\"\\u001b[2Jx\x1b\x07\"]";
    assert_int_equal(tow_json_doc_parse(evil, strlen(evil), &doc), 0);
    for (const char *at = doc.values[1].text; *at != '\0'; at++) {
        assert_true((unsigned char)*at >= 0x20);
    }
    tow_json_doc_fini(&doc);
}

static void numbers_beyond_all_bounds_are_the_nearest(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {
        {"7.9", 7},
        {"-7.9", -7},
        {"1e300", INT64_MAX},
        {"-1e300", INT64_MIN},
        {"1e999", INT64_MAX},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854774784", 9223372036854774784},
        {"-9223372036854775808", INT64_MIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tow_json_doc doc;
        assert_int_equal(tow_json_doc_parse(cases[i].text, strlen(cases[i].text), &doc), 0);
        assert_int_equal(tow_json_whole(&doc.values[0]), cases[i].value);
        tow_json_doc_fini(&doc);
    }
    assert_int_equal(tow_json_whole(NULL), 0);
}

static void every_truncation_is_refused(void **state)
{
    for (size_t n = 0; n < strlen(text); n++) {
        struct tow_json_doc doc;
        /* Exactly as long as it says, so that a sanitizer sees a byte too much. */
        char *part = malloc(n == 0 ? 1 : n);
        memcpy(part, text, n);
        assert_true(tow_json_doc_parse(part, n, &doc) < 0);
        free(part);
    }
}

static void every_corruption_ends(void **state)
{
    for (size_t at = 0; at < strlen(text); at++) {
        for (unsigned value = 0; value < 256; value++) {
            char copy[sizeof text];
            memcpy(copy, text, sizeof text);
            copy[at] = (char)value;
            struct tow_json_doc doc;
            if (tow_json_doc_parse(copy, strlen(text), &doc) == 0) {
                tow_json_doc_fini(&doc);
            }
        }
    }
}

static void nesting_has_an_end(void **state)
{
    char deep[4096];
    memset(deep, '[', sizeof deep);
    struct tow_json_doc doc;
    assert_int_equal(tow_json_doc_parse(deep, sizeof deep, &doc), -E2BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_found),
        cmocka_unit_test(no_control_character_gets_through),
        cmocka_unit_test(numbers_beyond_all_bounds_are_the_nearest),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_corruption_ends),
        cmocka_unit_test(nesting_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
