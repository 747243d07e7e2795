/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of bits against one byte for each. */
#include "cmocka_all.h"

#include "base/bits.h"

#include <stdlib.h>
#include <string.h>

enum { BITS = 1000, ROUNDS = 20000 };

static struct {
    tow_bits bits[TOW_BITS_WORDS(BITS)];
    uint8_t bytes[BITS];
} both;

static bool bit(uint64_t at)
{
    return tow_bits_all(both.bits, at, 1);
}

static void compare(void)
{
    for (uint64_t i = 0; i < BITS; i++) {
        assert_int_equal(bit(i), both.bytes[i]);
    }
}

static void ranges_are_as_bytes_would_be(void **state)
{
    (void)state;
    srand(1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t at = (uint64_t)rand() % BITS, count = (uint64_t)rand() % (BITS + 1 - at);
        uint64_t from = (uint64_t)rand() % (BITS + 1 - count);
        count = round % 2 ? count % 70 : count;
        switch (rand() % 4) {
        case 0:
            tow_bits_set(both.bits, at, count);
            memset(both.bytes + at, 1, count);
            break;
        case 1:
            tow_bits_clear(both.bits, at, count);
            memset(both.bytes + at, 0, count);
            break;
        case 2:
            tow_bits_copy(both.bits, at, from, count);
            memmove(both.bytes + at, both.bytes + from, count);
            break;
        default:
            assert_int_equal(tow_bits_all(both.bits, at, count),
                             memchr(both.bytes + at, 0, count) == NULL);
        }
        if (round % 16 == 0) {
            compare();
        }
    }
    compare();
}

static void an_empty_range_is_all_set_and_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t at = 60; at < 70; at++) {
        assert_true(tow_bits_all(both.bits, at, 0));
        tow_bits_set(both.bits, at, 0);
        tow_bits_clear(both.bits, at, 0);
        tow_bits_copy(both.bits, at, 3, 0);
    }
    compare();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_as_bytes_would_be),
        cmocka_unit_test(an_empty_range_is_all_set_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
