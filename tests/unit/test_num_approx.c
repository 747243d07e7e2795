/* SPDX-License-Identifier: Apache-2.0 */
/* Approximate functions: measured error against libm in double, and special values. */
#include "num_lib.h"

#include <math.h>

static tow_num_fn *find(struct tow_num_form *form)
{
    tow_num_fn *fn = tow_num_find(form);
    assert_non_null(fn);
    return fn;
}

typedef double reference(double);

/* Largest error over floats from low to high (bit patterns), relative or absolute. */
static double worst(enum tow_num_op op, bool ftz, float low, float high, reference *ref,
                    bool relative)
{
    struct tow_num_form form = {.op = op, .type = TOW_NUM_F32, .approx = true, .ftz = ftz};
    tow_num_fn *fn = find(&form);
    uint32_t first = tow_f32_bits(low), last = tow_f32_bits(high);
    uint32_t step = (last - first) / 400000 + 1;
    double most = 0;
    for (uint64_t i = first; i <= last; i += (uint64_t)step * 32) {
        uint32_t a[32], d[32];
        for (uint32_t l = 0; l < 32; l++) {
            uint64_t x = i + (uint64_t)step * l;
            a[l] = x > last ? last : (uint32_t)x;
        }
        fn(&form, d, a, NULL, NULL);
        for (int l = 0; l < 32; l++) {
            double want = ref(tow_f32(a[l]));
            double e = fabs(tow_f32(d[l]) - want);
            e = relative ? e / fabs(want) : e;
            if (e > most) {
                most = e;
            }
        }
    }
    print_message("op %d ftz %d: error 2^%.2f\n", op, ftz, log2(most));
    return most;
}

static double ref_rcp(double x)
{
    return 1 / x;
}

static double ref_rsqrt(double x)
{
    return 1 / sqrt(x);
}

static void errors_are_within_the_stated_bounds(void **state)
{
    for (int ftz = 0; ftz < 2; ftz++) {
        assert_true(worst(TOW_NUM_RCP, ftz, 0x1p-125f, 0x1p125f, ref_rcp, true) <= 0x1p-23);
        assert_true(worst(TOW_NUM_SQRT, ftz, 0x1p-126f, 0x1.fffffep127f, sqrt, true) <= 0x1p-23);
        assert_true(worst(TOW_NUM_RSQRT, ftz, 0x1p-126f, 0x1.fffffep127f, ref_rsqrt, true) <=
                    exp2(-22.9));
        assert_true(worst(TOW_NUM_LG2, ftz, 0.5f, 2.0f, log2, false) <= 0x1p-22);
        assert_true(worst(TOW_NUM_LG2, ftz, 2.0f, 0x1.fffffep127f, log2, true) <= 0x1p-22);
        assert_true(worst(TOW_NUM_LG2, ftz, 0x1p-126f, 0.5f, log2, true) <= 0x1p-22);
        assert_true(worst(TOW_NUM_EX2, ftz, 0x1p-30f, 127.99f, exp2, true) <= 0x1p-22);
        assert_true(worst(TOW_NUM_EX2, ftz, -0x1p-30f, -125.9f, exp2, true) <= 0x1p-22);
        assert_true(worst(TOW_NUM_SIN, ftz, 0x1p-20f, 6.2831853f, sin, false) <= exp2(-20.5));
        assert_true(worst(TOW_NUM_SIN, ftz, -0x1p-20f, -6.2831853f, sin, false) <= exp2(-20.5));
        assert_true(worst(TOW_NUM_COS, ftz, 0x1p-20f, 6.2831853f, cos, false) <= exp2(-20.5));
        assert_true(worst(TOW_NUM_SIN, ftz, 6.28f, 314.15f, sin, false) <= exp2(-14.7));
        assert_true(worst(TOW_NUM_COS, ftz, 6.28f, 314.15f, cos, false) <= exp2(-14.7));
    }
    assert_true(worst(TOW_NUM_TANH, false, 0x1p-126f, 50.0f, tanh, true) <= 0x1p-11);
    assert_true(worst(TOW_NUM_TANH, false, -0x1p-126f, -50.0f, tanh, true) <= 0x1p-11);
    assert_true(worst(TOW_NUM_LG2, false, 0x1p-149f, 0x1p-126f, log2, true) <= 0x1p-22);
}

static uint32_t one(enum tow_num_op op, bool ftz, uint32_t a)
{
    struct tow_num_form form = {.op = op, .type = TOW_NUM_F32, .approx = true, .ftz = ftz};
    return (uint32_t)test_run(&form, 4, a, 0, 0);
}

static void special_values_are_as_tabled(void **state)
{
    const uint32_t inf = 0x7f800000, minf = 0xff800000, nan = 0x7fffffff, zero = 0,
                   mzero = 0x80000000;
    const uint32_t tiny = 1, mtiny = 0x80000001;
    struct {
        enum tow_num_op op;
        bool ftz;
        uint32_t a, want;
    } table[] = {
        {TOW_NUM_RCP, true, inf, zero},          {TOW_NUM_RCP, true, minf, mzero},
        {TOW_NUM_RCP, true, zero, inf},          {TOW_NUM_RCP, true, mzero, minf},
        {TOW_NUM_RCP, true, tiny, inf},          {TOW_NUM_RCP, true, mtiny, minf},
        {TOW_NUM_RCP, false, 0x7fc00001, nan},   {TOW_NUM_SQRT, true, tiny, zero},
        {TOW_NUM_SQRT, true, mtiny, mzero},      {TOW_NUM_SQRT, false, mzero, mzero},
        {TOW_NUM_SQRT, false, 0xbf800000, nan},  {TOW_NUM_SQRT, false, minf, nan},
        {TOW_NUM_SQRT, false, inf, inf},         {TOW_NUM_RSQRT, false, zero, inf},
        {TOW_NUM_RSQRT, false, mzero, minf},     {TOW_NUM_RSQRT, true, tiny, inf},
        {TOW_NUM_RSQRT, true, mtiny, minf},      {TOW_NUM_RSQRT, false, inf, zero},
        {TOW_NUM_RSQRT, false, 0xbf800000, nan}, {TOW_NUM_SIN, false, inf, nan},
        {TOW_NUM_SIN, false, minf, nan},         {TOW_NUM_SIN, true, zero, zero},
        {TOW_NUM_SIN, true, mzero, mzero},       {TOW_NUM_SIN, true, tiny, zero},
        {TOW_NUM_SIN, true, mtiny, mzero},       {TOW_NUM_COS, true, zero, 0x3f800000},
        {TOW_NUM_COS, true, mtiny, 0x3f800000},  {TOW_NUM_COS, false, inf, nan},
        {TOW_NUM_COS, false, nan, nan},          {TOW_NUM_LG2, false, zero, minf},
        {TOW_NUM_LG2, false, mzero, minf},       {TOW_NUM_LG2, true, tiny, minf},
        {TOW_NUM_LG2, true, mtiny, minf},        {TOW_NUM_LG2, false, inf, inf},
        {TOW_NUM_LG2, false, minf, nan},         {TOW_NUM_LG2, false, 0x3f800000, 0},
        {TOW_NUM_LG2, false, 0xbf800000, nan},   {TOW_NUM_EX2, false, inf, inf},
        {TOW_NUM_EX2, false, minf, zero},        {TOW_NUM_EX2, true, tiny, 0x3f800000},
        {TOW_NUM_EX2, true, mzero, 0x3f800000},  {TOW_NUM_EX2, false, 0x43000000, inf},
        {TOW_NUM_EX2, false, 0xc3150000, 1},     {TOW_NUM_EX2, true, 0xc3150000, 0},
        {TOW_NUM_EX2, false, nan, nan},          {TOW_NUM_TANH, false, inf, 0x3f800000},
        {TOW_NUM_TANH, false, minf, 0xbf800000}, {TOW_NUM_TANH, false, mzero, mzero},
        {TOW_NUM_TANH, false, tiny, tiny},       {TOW_NUM_TANH, false, nan, nan},
    };
    for (size_t i = 0; i < TEST_COUNT(table); i++) {
        if (table[i].op == TOW_NUM_TANH && table[i].ftz) {
            continue;
        }
        uint32_t r = one(table[i].op, table[i].ftz, table[i].a);
        if (r != table[i].want) {
            fail_msg("op %d ftz %d of %08x gives %08x, want %08x", table[i].op, table[i].ftz,
                     table[i].a, r, table[i].want);
        }
    }
}

static void division_by_the_huge_is_zero(void **state)
{
    struct tow_num_form div = {.op = TOW_NUM_DIV, .type = TOW_NUM_F32, .approx = true};
    assert_int_equal(test_run(&div, 4, 0x40c00000, 0x40000000, 0), 0x40400000);
    assert_int_equal(test_run(&div, 4, 0x7e800000, 0x7f000000, 0), 0);
    assert_int_equal(test_run(&div, 4, 0x7e800000, 0xff000000, 0), 0x80000000);
    assert_int_equal(test_run(&div, 4, 0x7f800000, 0x7f000000, 0), 0x7fffffff);
    div.approx = false;
    div.full = true;
    assert_int_equal(test_run(&div, 4, 0x7e800000, 0x7f000000, 0), 0x3f000000);
}

static void f64_approximations_use_the_upper_word(void **state)
{
    struct tow_num_form rcp = {.op = TOW_NUM_RCP, .type = TOW_NUM_F64, .approx = true, .ftz = true};
    uint64_t r = test_run(&rcp, 8, tow_f64_bits(3.0) | 0xffffffff, 0, 0);
    assert_int_equal((uint32_t)r, 0);
    assert_true(fabs(tow_f64(r) * 3.0 - 1) < 0x1p-19);
    assert_int_equal(test_run(&rcp, 8, 0x7ff8000000000000, 0, 0), 0x7fffffff00000000);
    assert_int_equal(test_run(&rcp, 8, 0x8000000000000001, 0, 0), 0xfff0000000000000);
    struct tow_num_form rsqrt = rcp;
    rsqrt.op = TOW_NUM_RSQRT;
    assert_int_equal(test_run(&rsqrt, 8, tow_f64_bits(4.0), 0, 0), tow_f64_bits(0.5));
    rsqrt.ftz = false;
    assert_true(fabs(tow_f64(test_run(&rsqrt, 8, tow_f64_bits(2.0), 0, 0)) - sqrt(0.5)) < 1e-15);
}

static void half_functions_are_within_bounds(void **state)
{
    struct tow_num_form ex2 = {.op = TOW_NUM_EX2, .type = TOW_NUM_F16, .approx = true};
    struct tow_num_form tanh16 = {.op = TOW_NUM_TANH, .type = TOW_NUM_F16, .approx = true};
    for (uint32_t h = 0; h < 0x10000; h += 7) {
        double x = tow_f32(tow_f16_to_f32(h));
        if (isnan(x)) {
            assert_int_equal(test_run(&ex2, 4, h, 0, 0), 0x7fff);
            continue;
        }
        double e = tow_f32(tow_f16_to_f32((uint32_t)test_run(&ex2, 4, h, 0, 0)));
        double t = tow_f32(tow_f16_to_f32((uint32_t)test_run(&tanh16, 4, h, 0, 0)));
        if (x > -14 && x < 15.99) {
            assert_true(fabs(e - exp2(x)) <= exp2(x) * exp2(-9.9));
        }
        assert_true(fabs(t - tanh(x)) <= exp2(-10.987));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_within_the_stated_bounds),
        cmocka_unit_test(special_values_are_as_tabled),
        cmocka_unit_test(division_by_the_huge_is_zero),
        cmocka_unit_test(f64_approximations_use_the_upper_word),
        cmocka_unit_test(half_functions_are_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
