/* SPDX-License-Identifier: Apache-2.0 */
/* f16 and bf16: conversions exhaustively, arithmetic against exact integers. */
#include "num_lib.h"

#include <math.h>

/* The sanitizers are slow, and find what they look for in a few. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PASSES = 4000 };
#else
enum { PASSES = 20000 };
#endif

/* The nearest even value of a format with `bits` of precision and least exponent `least`; an own
 * way: scale, round to an integer, scale back. */
static double nearest(double v, int bits, int least, double limit)
{
    if (!isfinite(v) || v == 0) {
        return v;
    }
    int exp;
    frexp(v, &exp);
    exp--;
    exp = exp < least ? least : exp;
    double unit = ldexp(1, exp - bits + 1);
    double r = rint(v / unit) * unit;
    return fabs(r) > limit ? copysign(INFINITY, v) : r;
}

static double f16_value(uint32_t h)
{
    int exp = (h >> 10) & 31;
    double man = h & 1023;
    double v = exp == 0    ? ldexp(man, -24)
               : exp == 31 ? (man ? NAN : INFINITY)
                           : ldexp(man + 1024, exp - 25);
    return h & 0x8000 ? -v : v;
}

static double bf16_value(uint32_t h)
{
    int exp = (h >> 7) & 255;
    double man = h & 127;
    double v = exp == 0     ? ldexp(man, -133)
               : exp == 255 ? (man ? NAN : INFINITY)
                            : ldexp(man + 128, exp - 134);
    return h & 0x8000 ? -v : v;
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void f16_widens_exactly(void **state)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint32_t f = tow_f16_to_f32(h);
        assert_true(same(tow_f32(f), f16_value(h)));
        if (!isnan(f16_value(h))) {
            assert_int_equal(tow_f32_to_f16(f), h);
        } else {
            assert_int_equal(tow_f32_to_f16(f), 0x7fff);
        }
        assert_true(same(tow_f32(tow_bf16_to_f32(h)), bf16_value(h)));
    }
}

static void f32_narrows_to_nearest(void **state)
{
    for (uint64_t i = 0; i < 0x100000000ull; i += 9973) {
        uint32_t a = (uint32_t)i;
        uint32_t h = tow_f32_to_f16(a), b = tow_f32_to_bf16(a);
        double v = tow_f32(a);
        assert_true(same(f16_value(h), nearest(v, 11, -14, 65504)));
        assert_true(same(bf16_value(b), nearest(v, 8, -126, 0x1.fep127)));
    }
    /* each midpoint between two f16 values, and its neighbours */
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = f16_value(h), high = h == 0x7bff ? 65536 : f16_value(h + 1);
        uint32_t mid = tow_f32_bits((float)((low + high) / 2));
        uint32_t even = (h & 1) ? h + 1 : h;
        assert_int_equal(tow_f32_to_f16(mid), even);
        assert_int_equal(tow_f32_to_f16(mid - 1), h);
        assert_int_equal(tow_f32_to_f16(mid + 1), h + 1);
    }
}

/* Exact f16 fma: everything is an integer multiple of 2^-48. */
static double f16_fma_exact(uint32_t a, uint32_t b, uint32_t c)
{
    __int128 x = (__int128)ldexp(f16_value(a), 24), y = (__int128)ldexp(f16_value(b), 24);
    __int128 z = (__int128)ldexp(f16_value(c), 24);
    __int128 s = x * y + z * ((__int128)1 << 24);
    bool negative = s < 0;
    unsigned __int128 m = (unsigned __int128)(negative ? -s : s);
    int top = 0;
    for (unsigned __int128 t = m; t > 1; t >>= 1) {
        top++;
    }
    int unit = top - 10 < 24 ? 24 : top - 10; /* 2^24 here is 2^-24 */
    unsigned __int128 kept = m >> unit, rest = m - (kept << unit);
    unsigned __int128 half = (unsigned __int128)1 << (unit - 1);
    kept += rest > half || (rest == half && (kept & 1));
    double v = ldexp((double)(uint64_t)kept, unit - 48);
    v = v > 65504 ? INFINITY : v;
    return negative ? -v : v;
}

static uint32_t f16_random(void)
{
    uint32_t r = (uint32_t)test_random();
    static const uint32_t special[] = {0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x7bff,
                                       0xfbff, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x7c01};
    if ((r & 7) == 0) {
        return special[(r >> 8) % TEST_COUNT(special)];
    }
    return (r >> 16) & 0xffff;
}

static void f16_fma_is_exact(void **state)
{
    struct tow_num_form form = {.op = TOW_NUM_FMA, .type = TOW_NUM_F16X2, .round = TOW_NUM_RN};
    tow_num_fn *fn = tow_num_find(&form);
    for (int pass = 0; pass < PASSES; pass++) {
        uint32_t v[3][32], d[32];
        for (int l = 0; l < 32; l++) {
            for (int s = 0; s < 3; s++) {
                v[s][l] = f16_random() << 16 | f16_random();
            }
        }
        fn(&form, d, v[0], v[1], v[2]);
        for (int l = 0; l < 64; l++) {
            int shift = l & 1 ? 16 : 0;
            uint32_t a = v[0][l / 2] >> shift & 0xffff, b = v[1][l / 2] >> shift & 0xffff;
            uint32_t c = v[2][l / 2] >> shift & 0xffff, r = d[l / 2] >> shift & 0xffff;
            double x = f16_value(a), y = f16_value(b), z = f16_value(c);
            double want;
            if (!isfinite(x) || !isfinite(y) || !isfinite(z)) {
                want = x * y + z;
            } else {
                want = f16_fma_exact(a, b, c);
                if (want == 0) {
                    want = x * y == 0 && z == 0 ? x * y + z : x * y + z == 0 ? 0 : want;
                    /* a sum that vanishes only by rounding keeps its sign */
                    want = want == 0 && x * y + z < 0 ? -0.0 : want;
                }
            }
            if (isnan(want)) {
                assert_int_equal(r, 0x7fff);
            } else if (!same(f16_value(r), want)) {
                fail_msg("fma.f16 %04x %04x %04x gives %04x, want %g", a, b, c, r, want);
            }
        }
    }
}

static void half_sums_and_products_are_nearest(void **state)
{
    const enum tow_num_op ops[] = {TOW_NUM_ADD, TOW_NUM_SUB, TOW_NUM_MUL};
    for (int o = 0; o < 3; o++) {
        for (int bf = 0; bf < 2; bf++) {
            struct tow_num_form form = {
                .op = ops[o], .type = bf ? TOW_NUM_BF16 : TOW_NUM_F16, .round = TOW_NUM_RN};
            tow_num_fn *fn = tow_num_find(&form);
            for (int pass = 0; pass < PASSES / 2; pass++) {
                uint32_t a[32], b[32], d[32];
                for (int l = 0; l < 32; l++) {
                    a[l] = bf ? (uint32_t)test_random() & 0xffff : f16_random();
                    b[l] = bf ? (uint32_t)test_random() & 0xffff : f16_random();
                    if (bf && (pass & 1)) { /* of comparable size */
                        b[l] = (b[l] & 0x83ff) | (a[l] & 0x7c00);
                    }
                }
                fn(&form, d, a, b, NULL);
                for (int l = 0; l < 32; l++) {
                    double x = bf ? bf16_value(a[l]) : f16_value(a[l]);
                    double y = bf ? bf16_value(b[l]) : f16_value(b[l]);
                    double v = o == 0 ? x + y : o == 1 ? x - y : x * y;
                    if (bf && o < 2 && fabs(x) + fabs(y) > 0 &&
                        fabs(log2(fabs(x) + 1e-300) - log2(fabs(y) + 1e-300)) > 40) {
                        continue; /* not exact in double */
                    }
                    double want = bf ? nearest(v, 8, -126, 0x1.fep127) : nearest(v, 11, -14, 65504);
                    double got = bf ? bf16_value(d[l]) : f16_value(d[l]);
                    if (!same(got, want)) {
                        fail_msg("op %d bf %d: %04x %04x gives %04x, want %g", o, bf, a[l], b[l],
                                 d[l], want);
                    }
                }
            }
        }
    }
}

static uint32_t run16(struct tow_num_form form, uint32_t a, uint32_t b, uint32_t c)
{
    return (uint32_t)test_run(&form, 4, a, b, c);
}

static void bf16_fma_rounds_once(void **state)
{
    struct tow_num_form fma = {.op = TOW_NUM_FMA, .type = TOW_NUM_BF16, .round = TOW_NUM_RN};
    /* 1.0078125^2 = 1.01568..., plus a tiny term that decides a tie */
    assert_int_equal(run16(fma, 0x3f81, 0x3f81, 0x0000), 0x3f82);
    /* 1.5 * 1.0078125 = 1.51171875, halfway between 0x3fc1 and 0x3fc2 */
    assert_int_equal(run16(fma, 0x3fc0, 0x3f81, 0x0000), 0x3fc2);
    assert_int_equal(run16(fma, 0x3fc0, 0x3f81, 0x8001), 0x3fc1);
    assert_int_equal(run16(fma, 0x3fc0, 0x3f81, 0x0001), 0x3fc2);
    fma.relu = true;
    assert_int_equal(run16(fma, 0x3f80, 0xbf80, 0x0000), 0x0000);
    assert_int_equal(run16(fma, 0x7fc0, 0xbf80, 0x0000), 0x7fff);
    fma.relu = false;
    fma.oob = true;
    assert_int_equal(run16(fma, 0xffff, 0x3f80, 0x3f80), 0x0000);
}

static void half_modifiers(void **state)
{
    struct tow_num_form add = {.op = TOW_NUM_ADD, .type = TOW_NUM_F16, .round = TOW_NUM_RN};
    assert_int_equal(run16(add, 0x0001, 0x0001, 0), 0x0002);
    add.ftz = true;
    assert_int_equal(run16(add, 0x0001, 0x8001, 0), 0x0000);
    assert_int_equal(run16(add, 0x8001, 0x8001, 0), 0x8000);
    add.ftz = false;
    add.sat = true;
    assert_int_equal(run16(add, 0x3c00, 0x3c00, 0), 0x3c00);
    assert_int_equal(run16(add, 0xbc00, 0x0000, 0), 0x0000);
    assert_int_equal(run16(add, 0x7e00, 0x0000, 0), 0x0000);
    /* whatever lies above the low half of a source is ignored, and the result's is zero */
    add.sat = false;
    assert_int_equal(run16(add, 0xdead3c00, 0xbeef3c00, 0), 0x4000);
    struct tow_num_form min = {.op = TOW_NUM_MIN, .type = TOW_NUM_F16X2};
    assert_int_equal(run16(min, 0x3c007e00, 0x40003c00, 0), 0x3c003c00);
    assert_int_equal(run16(min, 0x00008000, 0x80000000, 0), 0x80008000);
    min.nan = true;
    assert_int_equal(run16(min, 0x3c007e00, 0x40003c00, 0), 0x3c007fff);
    struct tow_num_form max = {.op = TOW_NUM_MAX, .type = TOW_NUM_BF16, .xorsign_abs = true};
    assert_int_equal(run16(max, 0xc000, 0x3f80, 0), 0xc000);
    struct tow_num_form neg = {.op = TOW_NUM_NEG, .type = TOW_NUM_F16X2};
    assert_int_equal(run16(neg, 0x3c000000, 0, 0), 0xbc008000);
    struct tow_num_form mixed = {
        .op = TOW_NUM_FMA, .type = TOW_NUM_F32, .src = TOW_NUM_F16, .round = TOW_NUM_RN};
    assert_int_equal(run16(mixed, 0x4000, 0x4200, 0x3f800000), 0x40e00000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_widens_exactly),
        cmocka_unit_test(f32_narrows_to_nearest),
        cmocka_unit_test(f16_fma_is_exact),
        cmocka_unit_test(half_sums_and_products_are_nearest),
        cmocka_unit_test(bf16_fma_rounds_once),
        cmocka_unit_test(half_modifiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
