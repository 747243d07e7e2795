/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_VISIBLE_DEVICES: numbers, UUIDs, mistakes. */
#include "cmocka_all.h"

#include <string.h>

#include "client/link/device.h"

static const uint8_t uuids[4][16] = {
    {0x11, 0x22, 0x33, 0x44, 0x55}, {0x11, 0x22, 0x99}, {0xab, 0xcd, 0xef}, {0xfe, 0xdc}};

/* The devices that a value of CUDA_VISIBLE_DEVICES leaves, as digits. */
static const char *chosen(const char *visible)
{
    static char text[8];
    unsigned devices[4];
    unsigned count = towc_devices_choose(visible, uuids, 4, devices);
    assert_true(count <= 4);
    for (unsigned i = 0; i < count; i++) {
        text[i] = (char)('0' + devices[i]);
    }
    text[count] = '\0';
    return text;
}

static void numbers_choose_and_order(void **state)
{
    assert_string_equal(chosen(NULL), "0123");
    assert_string_equal(chosen(""), "");
    assert_string_equal(chosen("0"), "0");
    assert_string_equal(chosen("3,1"), "31");
    assert_string_equal(chosen(" 2 , 0"), "20");
    assert_string_equal(chosen("0,1,2,3"), "0123");
}

static void the_list_ends_at_what_names_nothing(void **state)
{
    assert_string_equal(chosen("-1"), "");
    assert_string_equal(chosen("1,-1,0"), "1");
    assert_string_equal(chosen("1,9,0"), "1");
    assert_string_equal(chosen("none"), "");
    assert_string_equal(chosen("NoDevFiles"), "");
    assert_string_equal(chosen("0,,1"), "0");
    assert_string_equal(chosen("2,2,1"), "2");
    assert_string_equal(chosen("99999999999999999999"), "");
}

static void uuids_choose_by_a_beginning_that_is_unique(void **state)
{
    assert_string_equal(chosen("GPU-11223344-5500-0000-0000-000000000000"), "0");
    assert_string_equal(chosen("GPU-1122"), "");
    assert_string_equal(chosen("GPU-112299,GPU-ABCD"), "12");
    assert_string_equal(chosen("gpu-fedc,0"), "30");
    assert_string_equal(chosen("GPU-"), "");
    assert_string_equal(chosen("GPU-xyz"), "");
    assert_string_equal(chosen("GPU-abce"), "");
    assert_string_equal(chosen("GPU-a"), "2");
    assert_string_equal(chosen("GPU-11223344-5"), "0");
    assert_string_equal(chosen("MIG-GPU-abcd"), "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_choose_and_order),
        cmocka_unit_test(the_list_ends_at_what_names_nothing),
        cmocka_unit_test(uuids_choose_by_a_beginning_that_is_unique),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
