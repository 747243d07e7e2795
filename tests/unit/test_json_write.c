/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: commas, nesting, escapes. */
#include "cmocka_all.h"

#include "base/json_write.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void nesting_commas_and_escapes_are_right(void **state)
{
    struct tow_buf buf;
    struct tow_json json;
    tow_buf_init(&buf, 4096);
    tow_json_init(&json, &buf);
    tow_json_object(&json, NULL);
    tow_json_u64(&json, "big", UINT64_MAX);
    tow_json_i64(&json, "small", INT64_MIN);
    tow_json_str(&json, "te\"xt", "a\\b\n\x01\xc3\xa9");
    tow_json_str(&json, "none", NULL);
    tow_json_array(&json, "list");
    tow_json_bool(&json, NULL, true);
    tow_json_f64(&json, NULL, 1.5);
    tow_json_f64(&json, NULL, (double)NAN);
    tow_json_object(&json, NULL);
    tow_json_end(&json);
    tow_json_raw(&json, NULL, "[1]");
    tow_json_end(&json);
    tow_json_bool(&json, "last", false);
    tow_json_end(&json);
    assert_int_equal(tow_json_finish(&json), 0);
    const char *expected = "{\"big\":18446744073709551615,\"small\":-9223372036854775808,"
                           "\"te\\\"xt\":\"a\\\\b\\n\\u0001\xc3\xa9\",\"none\":null,"
                           "\"list\":[true,1.5,null,{},[1]],\"last\":false}";
    assert_int_equal(buf.size, strlen(expected));
    assert_memory_equal(buf.data, expected, buf.size);
    tow_buf_fini(&buf);
}

static void what_is_not_utf8_is_replaced(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"\xf0\x9f\x98\x80.\xe2\x82\xac", "[\"\xf0\x9f\x98\x80.\xe2\x82\xac\"]"},
        {"a\xff", "[\"a\xef\xbf\xbd\"]"},
        {"cut \xe2\x82", "[\"cut \xef\xbf\xbd\xef\xbf\xbd\"]"},
        {"\xc0\xaf", "[\"\xef\xbf\xbd\xef\xbf\xbd\"]"},                 /* too long */
        {"\xed\xa0\x80", "[\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"]"}, /* a surrogate */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tow_buf buf;
        struct tow_json json;
        tow_buf_init(&buf, 4096);
        tow_json_init(&json, &buf);
        tow_json_array(&json, NULL);
        tow_json_str(&json, NULL, cases[i].text);
        tow_json_end(&json);
        assert_int_equal(tow_json_finish(&json), 0);
        assert_int_equal(buf.size, strlen(cases[i].expected));
        assert_memory_equal(buf.data, cases[i].expected, buf.size);
        tow_buf_fini(&buf);
    }
}

static void a_full_buffer_is_reported_at_the_end(void **state)
{
    struct tow_buf buf;
    struct tow_json json;
    tow_buf_init(&buf, 10);
    tow_json_init(&json, &buf);
    tow_json_array(&json, NULL);
    for (int i = 0; i < 100; i++) {
        tow_json_u64(&json, NULL, 1);
    }
    tow_json_end(&json);
    assert_int_equal(tow_json_finish(&json), -E2BIG);
    tow_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nesting_commas_and_escapes_are_right),
        cmocka_unit_test(what_is_not_utf8_is_replaced),
        cmocka_unit_test(a_full_buffer_is_reported_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
