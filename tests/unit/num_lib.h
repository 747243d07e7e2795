/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of src/ptx/num*.c: random and special operands, one value through a form. */
#ifndef TOW_TEST_NUM_LIB_H
#define TOW_TEST_NUM_LIB_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "ptx/num/num.h"

static uint64_t test_state = 0x9e3779b97f4a7c15ull;

static inline uint64_t test_random(void)
{
    test_state ^= test_state << 13;
    test_state ^= test_state >> 7;
    test_state ^= test_state << 17;
    return test_state * 0x2545f4914f6cdd1dull;
}

static const uint32_t test_special32[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000,
    0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
    0x7fc00000, 0x7f800001, 0xffc12345, 0x7fffffff, 0x4b000000, 0x4b000001, 0xcb000001, 0x4f000000,
    0x4effffff, 0xcf000000, 0x4f800000, 0x5f000000, 0x5f800000, 0x33800000, 0x3f000000, 0x3fc00000,
    0x40200000, 0x40490fdb, 0xbf000000, 0x477fe000, 0x477ff000, 0x38800000, 0x387fffff, 0x33000000,
};
static const uint64_t test_special64[] = {
    0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001,
    0x000fffffffffffff, 0x0010000000000000, 0x8010000000000000, 0x3ff0000000000000,
    0xbff0000000000000, 0x3fefffffffffffff, 0x3ff0000000000001, 0x7fefffffffffffff,
    0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000,
    0x7ff0000000000001, 0xfff8000000001234, 0x4330000000000001, 0x43e0000000000000,
    0x41dfffffffc00000, 0x41efffffffe00000, 0x3fe0000000000000, 0x4008000000000000,
};
#define TEST_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Half of the operands special, the rest any bits or close to one another in exponent. */
static inline uint32_t test_operand32(void)
{
    uint64_t r = test_random();
    if ((r & 3) == 0) {
        return test_special32[(r >> 8) % TEST_COUNT(test_special32)];
    }
    if ((r & 3) == 1) {
        return (uint32_t)(r >> 16);
    }
    return (uint32_t)((r >> 16) & 0x807fffffu) | (uint32_t)(115 + (r >> 50) % 24) << 23;
}

static inline uint64_t test_operand64(void)
{
    uint64_t r = test_random();
    uint64_t kind = test_random();
    if ((kind & 3) == 0) {
        return test_special64[(kind >> 8) % TEST_COUNT(test_special64)];
    }
    if ((kind & 3) == 1) {
        return r;
    }
    return (r & 0x800fffffffffffffull) | (uint64_t)(990 + (kind >> 8) % 66) << 52;
}

/* One value in all lanes; all of them must give the same. */
static inline uint64_t test_run(const struct tow_num_form *form, unsigned source_bytes, uint64_t a,
                                uint64_t b, uint64_t c)
{
    tow_num_fn *fn = tow_num_find(form);
    assert_non_null(fn);
    uint64_t in[3] = {a, b, c};
    uint64_t wide[3][TOW_NUM_LANES], out[TOW_NUM_LANES];
    uint32_t narrow[3][TOW_NUM_LANES];
    const void *rows[3];
    for (int s = 0; s < 3; s++) {
        for (int l = 0; l < TOW_NUM_LANES; l++) {
            wide[s][l] = in[s];
            narrow[s][l] = (uint32_t)in[s];
        }
        rows[s] = source_bytes == 8 ? (const void *)wide[s] : (const void *)narrow[s];
    }
    memset(out, 0xee, sizeof out);
    fn(form, out, rows[0], rows[1], rows[2]);
    if (tow_num_row_bytes(form->type) == 8) {
        for (int l = 1; l < TOW_NUM_LANES; l++) {
            assert_int_equal(out[0], out[l]);
        }
        return out[0];
    }
    const uint32_t *r = (const uint32_t *)out;
    for (int l = 1; l < TOW_NUM_LANES; l++) {
        assert_int_equal(r[0], r[l]);
    }
    return r[0];
}

#endif
