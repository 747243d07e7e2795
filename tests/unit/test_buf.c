/* SPDX-License-Identifier: Apache-2.0 */
/* The growing buffer: growth, maximum, failure. */
#include "cmocka_all.h"

#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void appended_bytes_stay_in_order(void **state)
{
    struct tow_buf buf;
    tow_buf_init(&buf, 1 << 20);
    for (int i = 0; i < 5000; i++) {
        uint8_t bytes[7];
        memset(bytes, i & 255, sizeof bytes);
        assert_int_equal(tow_buf_append(&buf, bytes, sizeof bytes), 0);
    }
    assert_int_equal(buf.size, 35000);
    for (int i = 0; i < 35000; i++) {
        assert_int_equal(buf.data[i], (i / 7) & 255);
    }
    tow_buf_fini(&buf);
}

static void nothing_grows_beyond_the_maximum(void **state)
{
    struct tow_buf buf;
    uint8_t *at = NULL;
    tow_buf_init(&buf, 100);
    assert_int_equal(tow_buf_append(&buf, "0123456789", 10), 0);
    assert_int_equal(tow_buf_extend(&buf, 90, &at), 0);
    assert_ptr_equal(at, buf.data + 10);
    assert_true(buf.capacity <= 100);
    assert_int_equal(tow_buf_append(&buf, "x", 1), -E2BIG);
    assert_int_equal(tow_buf_reserve(&buf, SIZE_MAX), -E2BIG);
    assert_int_equal(buf.size, 100);
    tow_buf_drop_front(&buf, 99);
    assert_int_equal(buf.size, 1);
    assert_int_equal(tow_buf_append(&buf, NULL, 0), 0);
    tow_buf_fini(&buf);
    assert_null(buf.data);
}

static void text_is_terminated_but_its_end_is_not_counted(void **state)
{
    struct tow_buf buf;
    tow_buf_init(&buf, 16);
    assert_int_equal(tow_buf_printf(&buf, "%d-%s", 12, "abc"), 0);
    assert_int_equal(tow_buf_printf(&buf, "!"), 0);
    assert_string_equal((char *)buf.data, "12-abc!");
    assert_int_equal(buf.size, 7);
    assert_int_equal(tow_buf_printf(&buf, "%s", "123456789"), -E2BIG);
    assert_int_equal(buf.size, 7);
    uint8_t *stolen = tow_buf_steal(&buf);
    assert_int_equal(buf.size, 0);
    assert_null(buf.data);
    free(stolen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appended_bytes_stay_in_order),
        cmocka_unit_test(nothing_grows_beyond_the_maximum),
        cmocka_unit_test(text_is_terminated_but_its_end_is_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
