/* SPDX-License-Identifier: Apache-2.0 */
/* f32 and f64 arithmetic against the host's own floating point in each rounding mode. */
#include "num_lib.h"
#include "soft_f64.h"

#include <fenv.h>
#include <math.h>

static const int modes[] = {
    [TOW_NUM_RN] = FE_TONEAREST,
    [TOW_NUM_RZ] = FE_TOWARDZERO,
    [TOW_NUM_RM] = FE_DOWNWARD,
    [TOW_NUM_RP] = FE_UPWARD,
};
static const enum tow_num_op ops[] = {TOW_NUM_ADD, TOW_NUM_SUB, TOW_NUM_MUL, TOW_NUM_FMA,
                                      TOW_NUM_DIV, TOW_NUM_RCP, TOW_NUM_SQRT};

static float host32(enum tow_num_op op, int mode, float x, float y, float z)
{
    volatile float a = x, b = y, c = z, r = 0;
    fesetround(mode);
    switch (op) {
    case TOW_NUM_ADD:
        r = a + b;
        break;
    case TOW_NUM_SUB:
        r = a - b;
        break;
    case TOW_NUM_MUL:
        r = a * b;
        break;
    case TOW_NUM_FMA:
        r = fmaf(a, b, c);
        break;
    case TOW_NUM_DIV:
        r = a / b;
        break;
    case TOW_NUM_RCP:
        r = 1.0f / a;
        break;
    default:
        r = sqrtf(a);
        break;
    }
    fesetround(FE_TONEAREST);
    return r;
}

static double host64(enum tow_num_op op, int mode, double x, double y, double z)
{
    volatile double a = x, b = y, c = z, r = 0;
    fesetround(mode);
    switch (op) {
    case TOW_NUM_ADD:
        r = a + b;
        break;
    case TOW_NUM_SUB:
        r = a - b;
        break;
    case TOW_NUM_MUL:
        r = a * b;
        break;
    case TOW_NUM_FMA:
        r = fma(a, b, c);
        break;
    case TOW_NUM_DIV:
        r = a / b;
        break;
    case TOW_NUM_RCP:
        r = 1.0 / a;
        break;
    default:
        r = sqrt(a);
        break;
    }
    fesetround(FE_TONEAREST);
    return r;
}

static uint32_t flush(uint32_t a, bool on)
{
    return on && (a & 0x7f800000u) == 0 ? a & 0x80000000u : a;
}

static uint32_t expect32(const struct tow_num_form *form, uint32_t a, uint32_t b, uint32_t c)
{
    float r = host32(form->op, modes[form->round], tow_f32(flush(a, form->ftz)),
                     tow_f32(flush(b, form->ftz)), tow_f32(flush(c, form->ftz)));
    if (form->op == TOW_NUM_MUL && form->ftz) { /* tiny before rounding is tiny */
        double exact = (double)tow_f32(flush(a, true)) * tow_f32(flush(b, true));
        r = fabs(exact) < 0x1p-126 ? copysignf(0.0f, r) : r;
    }
    if (form->sat) {
        r = !(r > 0) ? 0 : r > 1 ? 1 : r;
    }
    return flush(isnan(r) ? 0x7fffffffu : tow_f32_bits(r), form->ftz);
}

static void f32_arithmetic_equals_host(void **state)
{
    for (size_t o = 0; o < TEST_COUNT(ops); o++) {
        for (int round = TOW_NUM_RN; round <= TOW_NUM_RP; round++) {
            for (int flags = 0; flags < 4; flags++) {
                struct tow_num_form form = {.op = ops[o],
                                            .type = TOW_NUM_F32,
                                            .round = (enum tow_num_round)round,
                                            .ftz = flags & 1,
                                            .sat = (flags & 2) != 0};
                if (form.sat && ops[o] >= TOW_NUM_DIV) {
                    assert_null(tow_num_find(&form));
                    continue;
                }
                tow_num_fn *fn = tow_num_find(&form);
                assert_non_null(fn);
                for (int pass = 0; pass < 200; pass++) {
                    uint32_t a[32], b[32], c[32], d[32];
                    for (int l = 0; l < 32; l++) {
                        a[l] = test_operand32();
                        b[l] = test_operand32();
                        c[l] = test_operand32();
                    }
                    fn(&form, d, a, b, c);
                    for (int l = 0; l < 32; l++) {
                        uint32_t want = expect32(&form, a[l], b[l], c[l]);
                        if (d[l] != want) {
                            fail_msg(
                                "op %d round %d flags %d: %08x %08x %08x gives %08x, want %08x",
                                ops[o], round, flags, a[l], b[l], c[l], d[l], want);
                        }
                    }
                }
            }
        }
    }
}

static bool nan64(uint64_t a)
{
    return (a & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
}

static void f64_arithmetic_equals_host_and_integers(void **state)
{
    for (size_t o = 0; o < TEST_COUNT(ops); o++) {
        for (int round = TOW_NUM_RN; round <= TOW_NUM_RP; round++) {
            struct tow_num_form form = {
                .op = ops[o], .type = TOW_NUM_F64, .round = (enum tow_num_round)round};
            tow_num_fn *fn = tow_num_find(&form);
            assert_non_null(fn);
            unsigned sources = ops[o] == TOW_NUM_FMA                             ? 3
                               : ops[o] == TOW_NUM_RCP || ops[o] == TOW_NUM_SQRT ? 1
                                                                                 : 2;
            for (int pass = 0; pass < 400; pass++) {
                uint64_t v[3][32], d[32];
                for (int l = 0; l < 32; l++) {
                    v[0][l] = test_operand64();
                    v[1][l] = test_operand64();
                    v[2][l] = test_operand64();
                    if (pass & 1) { /* nearly cancelling sums */
                        double p = ops[o] == TOW_NUM_FMA ? tow_f64(v[0][l]) * tow_f64(v[1][l])
                                                         : tow_f64(v[0][l]);
                        unsigned which = ops[o] == TOW_NUM_FMA ? 2 : 1;
                        v[which][l] = (tow_f64_bits(p) ^ 0x8000000000000000ull) + test_random() % 3;
                    }
                }
                fn(&form, d, v[0], v[1], v[2]);
                for (int l = 0; l < 32; l++) {
                    double r = host64(ops[o], modes[round], tow_f64(v[0][l]), tow_f64(v[1][l]),
                                      tow_f64(v[2][l]));
                    uint64_t want = tow_f64_bits(r);
                    if (isnan(r)) {
                        want = 0xfff8000000000000ull;
                        /* the last of these that is a NaN; division prefers a, the rest b, then c
                         */
                        static const uint8_t orders[2][3] = {{0, 2, 1}, {2, 1, 0}};
                        for (unsigned k = 0; k < 3; k++) {
                            unsigned s = orders[ops[o] == TOW_NUM_DIV][k];
                            bool is = s < sources && nan64(v[s][l]);
                            want = is ? v[s][l] | 0x0008000000000000ull : want;
                        }
                    } else {
                        uint64_t exact =
                            soft_f64(ops[o], (enum tow_num_round)round, v[0][l], v[1][l], v[2][l]);
                        assert_int_equal(want, exact); /* two references agree */
                    }
                    if (d[l] != want) {
                        fail_msg(
                            "op %d round %d: %016llx %016llx %016llx gives %016llx, want %016llx",
                            ops[o], round, (unsigned long long)v[0][l], (unsigned long long)v[1][l],
                            (unsigned long long)v[2][l], (unsigned long long)d[l],
                            (unsigned long long)want);
                    }
                }
            }
        }
    }
}

static uint32_t one32(struct tow_num_form form, uint32_t a, uint32_t b, uint32_t c)
{
    return (uint32_t)test_run(&form, 4, a, b, c);
}

static void minmax_follows_nan_and_zero_rules(void **state)
{
    struct tow_num_form min = {.op = TOW_NUM_MIN, .type = TOW_NUM_F32};
    struct tow_num_form max = {.op = TOW_NUM_MAX, .type = TOW_NUM_F32};
    assert_int_equal(one32(min, 0x3f800000, 0x40000000, 0), 0x3f800000);
    assert_int_equal(one32(max, 0x3f800000, 0x40000000, 0), 0x40000000);
    assert_int_equal(one32(min, 0xbf800000, 0xc0000000, 0), 0xc0000000);
    assert_int_equal(one32(min, 0x00000000, 0x80000000, 0), 0x80000000);
    assert_int_equal(one32(max, 0x80000000, 0x00000000, 0), 0x00000000);
    assert_int_equal(one32(min, 0x7fc00000, 0x3f800000, 0), 0x3f800000);
    assert_int_equal(one32(max, 0x3f800000, 0xffc00001, 0), 0x3f800000);
    assert_int_equal(one32(max, 0xff800001, 0x7fc00000, 0), 0x7fffffff);
    min.nan = true;
    assert_int_equal(one32(min, 0x7fc00000, 0x3f800000, 0), 0x7fffffff);
    min.nan = false;
    min.xorsign_abs = true;
    assert_int_equal(one32(min, 0xc0000000, 0x3f800000, 0), 0xbf800000);
    assert_int_equal(one32(min, 0xc0000000, 0xbf800000, 0), 0x3f800000);
    min.xorsign_abs = false;
    min.ftz = true;
    assert_int_equal(one32(min, 0x80000001, 0x3f800000, 0), 0x80000000);
    min.ftz = false;
    min.three = true;
    assert_int_equal(one32(min, 0x40000000, 0x3f800000, 0xbf800000), 0xbf800000);
    min.abs = true;
    assert_int_equal(one32(min, 0xc0000000, 0x40400000, 0xbf800000), 0x3f800000);
}

static void negation_and_absolute_value(void **state)
{
    struct tow_num_form neg = {.op = TOW_NUM_NEG, .type = TOW_NUM_F32};
    struct tow_num_form abs = {.op = TOW_NUM_ABS, .type = TOW_NUM_F32};
    assert_int_equal(one32(neg, 0x3f800000, 0, 0), 0xbf800000);
    assert_int_equal(one32(neg, 0x00000000, 0, 0), 0x80000000);
    assert_int_equal(one32(abs, 0x80000001, 0, 0), 0x00000001);
    abs.ftz = true;
    assert_int_equal(one32(abs, 0x80000001, 0, 0), 0x00000000);
    struct tow_num_form neg64 = {.op = TOW_NUM_NEG, .type = TOW_NUM_F64};
    assert_int_equal(test_run(&neg64, 8, 0x3ff0000000000000, 0, 0), 0xbff0000000000000);
    assert_int_equal(test_run(&neg64, 8, 0x7ff0000000000001, 0, 0), 0x7ff8000000000001);
    struct tow_num_form sign = {.op = TOW_NUM_COPYSIGN, .type = TOW_NUM_F32};
    assert_int_equal(one32(sign, 0x80000000, 0x3f800000, 0), 0xbf800000);
}

static void packed_f32_works_on_both_halves(void **state)
{
    struct tow_num_form fma = {.op = TOW_NUM_FMA, .type = TOW_NUM_F32X2, .round = TOW_NUM_RN};
    uint64_t r = test_run(&fma, 8, 0x400000003f800000, 0x4040000040400000, 0x3f800000bf800000);
    assert_int_equal(r, 0x40e0000040000000); /* 2*3+1, 1*3-1 */
}

static void rows_may_be_the_same(void **state)
{
    struct tow_num_form add = {.op = TOW_NUM_ADD, .type = TOW_NUM_F32, .round = TOW_NUM_RN};
    uint32_t a[32];
    for (uint32_t l = 0; l < 32; l++) {
        a[l] = tow_f32_bits((float)l);
    }
    tow_num_find (&add)(&add, a, a, a, NULL);
    for (uint32_t l = 0; l < 32; l++) {
        assert_int_equal(a[l], tow_f32_bits((float)(2 * l)));
    }
}

static void forms_that_ptx_lacks_are_refused(void **state)
{
    const struct tow_num_form bad[] = {
        {.op = TOW_NUM_ADD, .type = TOW_NUM_F64, .ftz = true},
        {.op = TOW_NUM_ADD, .type = TOW_NUM_U32},
        {.op = TOW_NUM_SIN, .type = TOW_NUM_F64, .approx = true},
        {.op = TOW_NUM_SIN, .type = TOW_NUM_F32},
        {.op = TOW_NUM_MIN, .type = TOW_NUM_F32, .sat = true},
        {.op = TOW_NUM_ADD, .type = TOW_NUM_F16, .round = TOW_NUM_RZ},
        {.op = TOW_NUM_DIV, .type = TOW_NUM_F16},
        {.op = TOW_NUM_CVT, .type = TOW_NUM_S32, .src = TOW_NUM_F32},
        {.op = TOW_NUM_CVT, .type = TOW_NUM_F16, .src = TOW_NUM_F32},
        {.op = TOW_NUM_CVT, .type = TOW_NUM_E4M3X2, .src = TOW_NUM_F32, .round = TOW_NUM_RN},
    };
    for (size_t i = 0; i < TEST_COUNT(bad); i++) {
        assert_null(tow_num_find(&bad[i]));
    }
}

static void testp_sorts_numbers(void **state)
{
    assert_true(tow_f32_testp(TOW_NUM_TEST_FINITE, 0x7f7fffff));
    assert_false(tow_f32_testp(TOW_NUM_TEST_FINITE, 0xff800000));
    assert_true(tow_f32_testp(TOW_NUM_TEST_INFINITE, 0xff800000));
    assert_true(tow_f32_testp(TOW_NUM_TEST_NUMBER, 0x7f800000));
    assert_true(tow_f32_testp(TOW_NUM_TEST_NOTANUMBER, 0x7f800001));
    assert_true(tow_f32_testp(TOW_NUM_TEST_NORMAL, 0x00800000));
    assert_false(tow_f32_testp(TOW_NUM_TEST_NORMAL, 0x007fffff));
    assert_true(tow_f32_testp(TOW_NUM_TEST_NORMAL, 0x80000000));
    assert_false(tow_f32_testp(TOW_NUM_TEST_SUBNORMAL, 0));
    assert_true(tow_f64_testp(TOW_NUM_TEST_NORMAL, 0));
    assert_true(tow_f32_testp(TOW_NUM_TEST_SUBNORMAL, 0x007fffff));
    assert_true(tow_f64_testp(TOW_NUM_TEST_SUBNORMAL, 0x800fffffffffffffull));
    assert_true(tow_f64_testp(TOW_NUM_TEST_NOTANUMBER, 0xfff8000000000000ull));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_arithmetic_equals_host),
        cmocka_unit_test(f64_arithmetic_equals_host_and_integers),
        cmocka_unit_test(minmax_follows_nan_and_zero_rules),
        cmocka_unit_test(negation_and_absolute_value),
        cmocka_unit_test(packed_f32_works_on_both_halves),
        cmocka_unit_test(rows_may_be_the_same),
        cmocka_unit_test(forms_that_ptx_lacks_are_refused),
        cmocka_unit_test(testp_sorts_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
