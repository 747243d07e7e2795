/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions: integers against plain C, floats against exact values, small floats exhaustively. */
#include "num_lib.h"

#include <fenv.h>
#include <math.h>

static uint64_t cvt(enum tow_num_type to, enum tow_num_type from, enum tow_num_round round,
                    uint64_t a)
{
    struct tow_num_form form = {.op = TOW_NUM_CVT, .type = to, .src = from, .round = round};
    return test_run(&form, tow_num_row_bytes(from), a, 0, 0);
}

static uint64_t cvt_sat(enum tow_num_type to, enum tow_num_type from, enum tow_num_round round,
                        uint64_t a)
{
    struct tow_num_form form = {
        .op = TOW_NUM_CVT, .type = to, .src = from, .round = round, .sat = true};
    return test_run(&form, tow_num_row_bytes(from), a, 0, 0);
}

static const struct {
    enum tow_num_type type;
    unsigned bits;
    bool is_signed;
} ints[] = {
    {TOW_NUM_U8, 8, false},   {TOW_NUM_S8, 8, true},    {TOW_NUM_U16, 16, false},
    {TOW_NUM_S16, 16, true},  {TOW_NUM_U32, 32, false}, {TOW_NUM_S32, 32, true},
    {TOW_NUM_U64, 64, false}, {TOW_NUM_S64, 64, true},
};

/* A value of up to 64 bits as a wide integer, and back into a row. */
static __int128 read_int(unsigned bits, bool is_signed, uint64_t a)
{
    unsigned __int128 m = bits == 64 ? a : a & (((uint64_t)1 << bits) - 1);
    if (is_signed && (m >> (bits - 1)) & 1) {
        return (__int128)m - ((__int128)1 << bits);
    }
    return (__int128)m;
}

static uint64_t to_row(unsigned bits, bool is_signed, __int128 v)
{
    v = read_int(bits, is_signed, (uint64_t)v);
    return bits == 64 ? (uint64_t)v : (uint32_t)v;
}

static __int128 limit(unsigned bits, bool is_signed, bool top)
{
    if (top) {
        return ((__int128)1 << (is_signed ? bits - 1 : bits)) - 1;
    }
    return is_signed ? -((__int128)1 << (bits - 1)) : 0;
}

static void integers_truncate_extend_and_saturate(void **state)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     0x7f,
                                     0x80,
                                     0xff,
                                     0x100,
                                     0x7fff,
                                     0x8000,
                                     0xffff,
                                     0x10000,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     0x100000000ull,
                                     0x7fffffffffffffffull,
                                     0x8000000000000000ull,
                                     UINT64_MAX,
                                     0xffffffffffffff80ull,
                                     0xffffffff80000000ull};
    for (int t = 0; t < 8; t++) {
        for (int f = 0; f < 8; f++) {
            for (size_t i = 0; i < TEST_COUNT(edges) + 50; i++) {
                uint64_t a = i < TEST_COUNT(edges) ? edges[i] : test_random();
                __int128 v = read_int(ints[f].bits, ints[f].is_signed, a);
                uint64_t want = to_row(ints[t].bits, ints[t].is_signed, v);
                assert_int_equal(cvt(ints[t].type, ints[f].type, TOW_NUM_ROUND_NONE, a), want);
                __int128 top = limit(ints[t].bits, ints[t].is_signed, true);
                __int128 low = limit(ints[t].bits, ints[t].is_signed, false);
                v = v > top ? top : v < low ? low : v;
                want = to_row(ints[t].bits, ints[t].is_signed, v);
                assert_int_equal(cvt_sat(ints[t].type, ints[f].type, TOW_NUM_ROUND_NONE, a), want);
            }
        }
    }
}

static double round_to_integer(double v, enum tow_num_round round)
{
    return round == TOW_NUM_RNI   ? nearbyint(v)
           : round == TOW_NUM_RZI ? trunc(v)
           : round == TOW_NUM_RMI ? floor(v)
                                  : ceil(v);
}

static double source_value(enum tow_num_type type, uint64_t a)
{
    switch (type) {
    case TOW_NUM_F16:
        return tow_f32(tow_f16_to_f32((uint32_t)a));
    case TOW_NUM_BF16:
        return tow_f32(tow_bf16_to_f32((uint32_t)a & 0xffff));
    case TOW_NUM_F32:
        return tow_f32((uint32_t)a);
    default:
        return tow_f64(a);
    }
}

static void floats_become_integers(void **state)
{
    const enum tow_num_type floats[] = {TOW_NUM_F16, TOW_NUM_BF16, TOW_NUM_F32, TOW_NUM_F64};
    for (size_t f = 0; f < 4; f++) {
        for (int t = 0; t < 8; t++) {
            for (int round = TOW_NUM_RNI; round <= TOW_NUM_RPI; round++) {
                for (int i = 0; i < 300; i++) {
                    uint64_t a = floats[f] == TOW_NUM_F64   ? test_operand64()
                                 : floats[f] == TOW_NUM_F32 ? test_operand32()
                                                            : test_random() & 0xffff;
                    double v = source_value(floats[f], a);
                    unsigned bits = ints[t].bits;
                    __int128 want;
                    if (isnan(v)) {
                        bool zero = floats[f] != TOW_NUM_F64 && bits != 64;
                        want = zero ? 0 : (__int128)1 << (bits - 1);
                    } else {
                        double r = round_to_integer(v, (enum tow_num_round)round);
                        __int128 top = limit(bits, ints[t].is_signed, true);
                        __int128 low = limit(bits, ints[t].is_signed, false);
                        want = r >= 0x1p70 ? top : r <= -0x1p70 ? low : (__int128)r;
                        want = want > top ? top : want < low ? low : want;
                    }
                    uint64_t row = to_row(bits, ints[t].is_signed, want);
                    uint64_t got = cvt(ints[t].type, floats[f], (enum tow_num_round)round, a);
                    if (got != row) {
                        fail_msg("cvt %d to %d round %d: %016llx gives %016llx, want %016llx",
                                 floats[f], ints[t].type, round, (unsigned long long)a,
                                 (unsigned long long)got, (unsigned long long)row);
                    }
                }
            }
        }
    }
    /* .ftz matters to the rounding away from zero */
    struct tow_num_form up = {
        .op = TOW_NUM_CVT, .type = TOW_NUM_S32, .src = TOW_NUM_F32, .round = TOW_NUM_RPI};
    assert_int_equal(test_run(&up, 4, 1, 0, 0), 1);
    up.ftz = true;
    assert_int_equal(test_run(&up, 4, 1, 0, 0), 0);
}

static const int modes[] = {
    [TOW_NUM_RN] = FE_TONEAREST,
    [TOW_NUM_RZ] = FE_TOWARDZERO,
    [TOW_NUM_RM] = FE_DOWNWARD,
    [TOW_NUM_RP] = FE_UPWARD,
};

static void integers_become_floats(void **state)
{
    for (int f = 0; f < 8; f++) {
        for (int round = TOW_NUM_RN; round <= TOW_NUM_RP; round++) {
            for (int i = 0; i < 500; i++) {
                uint64_t a = test_random() >> (test_random() % 64);
                if (i % 3 == 0) { /* ties of f32 and f64 and their neighbours */
                    a = (a | 1) << 40;
                    a += test_random() % 3 - 1;
                }
                a = i == 0 ? 0 : i == 1 ? UINT64_MAX : i == 2 ? 0x8000000000000000ull : a;
                __int128 v = read_int(ints[f].bits, ints[f].is_signed, a);
                fesetround(modes[round]);
                volatile double d;
                volatile float s;
                if (ints[f].is_signed) {
                    volatile int64_t x = (int64_t)v;
                    d = (double)x;
                    s = (float)x;
                } else {
                    volatile uint64_t x = (uint64_t)v;
                    d = (double)x;
                    s = (float)x;
                }
                fesetround(FE_TONEAREST);
                if (v == 0) {
                    d = 0;
                    s = 0;
                }
                assert_int_equal(cvt(TOW_NUM_F64, ints[f].type, (enum tow_num_round)round, a),
                                 tow_f64_bits(d));
                assert_int_equal(cvt(TOW_NUM_F32, ints[f].type, (enum tow_num_round)round, a),
                                 tow_f32_bits(s));
            }
        }
    }
    assert_int_equal(cvt(TOW_NUM_F16, TOW_NUM_U32, TOW_NUM_RN, 2049), 0x6800);
    assert_int_equal(cvt(TOW_NUM_F16, TOW_NUM_U32, TOW_NUM_RP, 2049), 0x6801);
    assert_int_equal(cvt(TOW_NUM_F16, TOW_NUM_S32, TOW_NUM_RM, (uint32_t)-2049), 0xe801);
    assert_int_equal(cvt(TOW_NUM_F16, TOW_NUM_U32, TOW_NUM_RN, 65519), 0x7bff);
    assert_int_equal(cvt(TOW_NUM_F16, TOW_NUM_U32, TOW_NUM_RN, 65520), 0x7c00);
    assert_int_equal(cvt(TOW_NUM_F16, TOW_NUM_U64, TOW_NUM_RZ, UINT64_MAX), 0x7bff);
    assert_int_equal(cvt(TOW_NUM_BF16, TOW_NUM_S32, TOW_NUM_RN, 257), 0x4380);
    assert_int_equal(cvt(TOW_NUM_BF16, TOW_NUM_S32, TOW_NUM_RP, 257), 0x4381);
}

static void floats_become_floats(void **state)
{
    for (int round = TOW_NUM_RN; round <= TOW_NUM_RP; round++) {
        for (int i = 0; i < 5000; i++) {
            uint64_t a = test_operand64();
            if (i & 1) { /* within reach of f32, near its ties */
                a = (a & 0x800fffffe0000000ull) | (uint64_t)(870 + test_random() % 290) << 52;
                a += test_random() % 2 ? 0x10000000 : test_random() % 3;
            }
            volatile double v = tow_f64(a);
            fesetround(modes[round]);
            volatile float r = (float)v;
            fesetround(FE_TONEAREST);
            uint32_t want = tow_f32_bits(r);
            if (isnan(r)) { /* the upper bits of the payload stay */
                want = (uint32_t)(a >> 32 & 0x80000000u) | 0x7fc00000u | (a >> 29 & 0x7fffffu);
            }
            assert_int_equal(cvt(TOW_NUM_F32, TOW_NUM_F64, (enum tow_num_round)round, a), want);
        }
    }
    const struct {
        enum tow_num_type to, from;
        enum tow_num_round round;
        uint64_t a, want;
    } table[] = {
        {TOW_NUM_F64, TOW_NUM_F32, TOW_NUM_ROUND_NONE, 0x3f800001, 0x3ff0000020000000},
        {TOW_NUM_F64, TOW_NUM_F32, TOW_NUM_ROUND_NONE, 0x00000001, 0x36a0000000000000},
        {TOW_NUM_F64, TOW_NUM_F16, TOW_NUM_ROUND_NONE, 0x0001, 0x3e70000000000000},
        {TOW_NUM_F32, TOW_NUM_F16, TOW_NUM_ROUND_NONE, 0x7e01, 0x7fffffff},
        {TOW_NUM_F32, TOW_NUM_BF16, TOW_NUM_ROUND_NONE, 0x3f81, 0x3f810000},
        {TOW_NUM_F16, TOW_NUM_F32, TOW_NUM_RZ, 0x477fffff, 0x7bff},
        {TOW_NUM_F16, TOW_NUM_F32, TOW_NUM_RP, 0x477fe001, 0x7c00},
        {TOW_NUM_F16, TOW_NUM_F32, TOW_NUM_RM, 0xc77fe001, 0xfc00},
        {TOW_NUM_F16, TOW_NUM_F32, TOW_NUM_RP, 0x00000001, 0x0001},
        {TOW_NUM_F16, TOW_NUM_F32, TOW_NUM_RM, 0x80000001, 0x8001},
        {TOW_NUM_F16, TOW_NUM_F32, TOW_NUM_RM, 0x00000001, 0x0000},
        /* a tie of f16 that f32 would hide: 1 + 2^-11 + 2^-50 */
        {TOW_NUM_F16, TOW_NUM_F64, TOW_NUM_RN, 0x3ff0020000000004, 0x3c01},
        {TOW_NUM_F16, TOW_NUM_F64, TOW_NUM_RN, 0x3ff0020000000000, 0x3c00},
        {TOW_NUM_BF16, TOW_NUM_F32, TOW_NUM_RN, 0x3f808000, 0x3f80},
        {TOW_NUM_BF16, TOW_NUM_F32, TOW_NUM_RN, 0x3f818000, 0x3f82},
        {TOW_NUM_BF16, TOW_NUM_F32, TOW_NUM_RZ, 0x3f81ffff, 0x3f81},
        {TOW_NUM_BF16, TOW_NUM_F32, TOW_NUM_RN, 0x7f7fffff, 0x7f80},
        {TOW_NUM_F32, TOW_NUM_F32, TOW_NUM_RNI, 0x40200000, 0x40000000},
        {TOW_NUM_F32, TOW_NUM_F32, TOW_NUM_RPI, 0xbf000000, 0x80000000},
        {TOW_NUM_F32, TOW_NUM_F32, TOW_NUM_RMI, 0xbf000000, 0xbf800000},
        {TOW_NUM_F64, TOW_NUM_F64, TOW_NUM_RZI, 0xc004000000000000, 0xc000000000000000},
        {TOW_NUM_F16, TOW_NUM_F16, TOW_NUM_RNI, 0x4100, 0x4000},
        {TOW_NUM_TF32, TOW_NUM_F32, TOW_NUM_RNA, 0x3f801000, 0x3f802000},
        {TOW_NUM_TF32, TOW_NUM_F32, TOW_NUM_RN, 0x3f801000, 0x3f800000},
        {TOW_NUM_TF32, TOW_NUM_F32, TOW_NUM_RN, 0x3f803000, 0x3f804000},
        {TOW_NUM_TF32, TOW_NUM_F32, TOW_NUM_RZ, 0x3f801fff, 0x3f800000},
        {TOW_NUM_TF32, TOW_NUM_F32, TOW_NUM_RNA, 0x7f7fffff, 0x7f800000},
        {TOW_NUM_TF32, TOW_NUM_F32, TOW_NUM_RNA, 0xffc01234, 0xffc00000},
        {TOW_NUM_TF32, TOW_NUM_F32, TOW_NUM_RN, 0xff800001, 0x7fffe000},
        {TOW_NUM_F16, TOW_NUM_F16, TOW_NUM_ROUND_NONE, 0xdead7c01, 0x7fff},
        {TOW_NUM_BF16, TOW_NUM_BF16, TOW_NUM_ROUND_NONE, 0xdead0001, 0x0001},
        {TOW_NUM_F32, TOW_NUM_F32, TOW_NUM_ROUND_NONE, 0x7f800001, 0x7f800001},
    };
    for (size_t i = 0; i < TEST_COUNT(table); i++) {
        uint64_t r = cvt(table[i].to, table[i].from, table[i].round, table[i].a);
        if (r != table[i].want) {
            fail_msg("line %zu: %llx gives %llx, want %llx", i, (unsigned long long)table[i].a,
                     (unsigned long long)r, (unsigned long long)table[i].want);
        }
    }
    assert_int_equal(cvt_sat(TOW_NUM_F32, TOW_NUM_F32, TOW_NUM_ROUND_NONE, 0x40000000), 0x3f800000);
    assert_int_equal(cvt_sat(TOW_NUM_F32, TOW_NUM_F32, TOW_NUM_ROUND_NONE, 0x7fc00000), 0);
    assert_int_equal(cvt_sat(TOW_NUM_F16, TOW_NUM_F32, TOW_NUM_RN, 0xbf800000), 0);
}

static void pairs_have_the_first_source_on_top(void **state)
{
    struct tow_num_form form = {
        .op = TOW_NUM_CVT, .type = TOW_NUM_F16X2, .src = TOW_NUM_F32, .round = TOW_NUM_RN};
    assert_int_equal(test_run(&form, 4, 0x3f800000, 0xc0000000, 0), 0x3c00c000);
    form.relu = true;
    assert_int_equal(test_run(&form, 4, 0x3f800000, 0xc0000000, 0), 0x3c000000);
    form.relu = false;
    form.satfinite = true;
    assert_int_equal(test_run(&form, 4, 0x7f800000, 0xff7fffff, 0), 0x7bfffbff);
    form.type = TOW_NUM_BF16X2;
    assert_int_equal(test_run(&form, 4, 0x7fc00000, 0xff7fffff, 0), 0x7fffff7f);
}

/* ---- small floats: every code, and every f16 into them -------------------------------- */

struct small {
    enum tow_num_type type;
    int exp_bits, man_bits, bias;
    double largest;
    uint32_t nan_code;
    unsigned slot;
};
static const struct small smalls[] = {
    {TOW_NUM_E4M3X2, 4, 3, 7, 448, 0x7f, 8}, {TOW_NUM_E5M2X2, 5, 2, 15, 57344, 0x7f, 8},
    {TOW_NUM_E2M1X2, 2, 1, 1, 6, 0x7, 4},    {TOW_NUM_E2M3X2, 2, 3, 1, 7.5, 0x1f, 8},
    {TOW_NUM_E3M2X2, 3, 2, 3, 28, 0x1f, 8},
};

static double small_value(const struct small *s, uint32_t code)
{
    int width = s->exp_bits + s->man_bits;
    int exp = (int)(code >> s->man_bits) & ((1 << s->exp_bits) - 1);
    int man = (int)code & ((1 << s->man_bits) - 1);
    double v = exp ? ldexp(1.0 + ldexp(man, -s->man_bits), exp - s->bias)
                   : ldexp(man, 1 - s->bias - s->man_bits);
    if (s->type == TOW_NUM_E4M3X2 && (code & 0x7f) == 0x7f) {
        v = NAN;
    }
    if (s->type == TOW_NUM_E5M2X2 && exp == 31) {
        v = man ? NAN : INFINITY;
    }
    return (code >> width) & 1 ? -v : v;
}

static void small_floats_widen_exactly(void **state)
{
    for (size_t i = 0; i < TEST_COUNT(smalls); i++) {
        const struct small *s = &smalls[i];
        struct tow_num_form form = {
            .op = TOW_NUM_CVT, .type = TOW_NUM_F16X2, .src = s->type, .round = TOW_NUM_RN};
        for (uint32_t code = 0; code < (2u << (s->exp_bits + s->man_bits)); code++) {
            uint32_t r = (uint32_t)test_run(&form, 4, code << s->slot | 1, 0, 0);
            double v = small_value(s, code);
            if (isnan(v)) {
                assert_int_equal(r >> 16, 0x7fff);
            } else {
                assert_true(tow_f32(tow_f16_to_f32(r >> 16)) == v);
                assert_int_equal(r >> 31, signbit(v) ? 1 : 0);
            }
            assert_true(tow_f32(tow_f16_to_f32(r & 0xffff)) == small_value(s, 1));
        }
    }
}

/* The code whose value is nearest, ties to the even code, found by looking at all of them. */
static uint32_t small_nearest(const struct small *s, double v)
{
    if (isnan(v)) {
        return s->nan_code;
    }
    uint32_t sign = signbit(v) ? 1u << (s->exp_bits + s->man_bits) : 0;
    double m = fabs(v), best = INFINITY;
    uint32_t found = 0;
    for (uint32_t code = 0; code < (1u << (s->exp_bits + s->man_bits)); code++) {
        double w = small_value(s, code);
        if (!isfinite(w)) {
            continue;
        }
        double distance = m == INFINITY ? s->largest - w : fabs(m - w);
        if (distance < best || (distance == best && !(code & 1))) {
            best = distance;
            found = code;
        }
    }
    return sign | found;
}

static void floats_become_small_floats(void **state)
{
    for (size_t i = 0; i < TEST_COUNT(smalls); i++) {
        const struct small *s = &smalls[i];
        struct tow_num_form half = {.op = TOW_NUM_CVT,
                                    .type = s->type,
                                    .src = TOW_NUM_F16X2,
                                    .round = TOW_NUM_RN,
                                    .satfinite = true};
        struct tow_num_form full = half;
        full.src = TOW_NUM_F32;
        for (uint32_t h = 0; h < 0x10000; h += i < 2 ? 3 : 5) {
            uint32_t f = tow_f16_to_f32(h);
            uint32_t want = small_nearest(s, tow_f32(f));
            uint32_t got = (uint32_t)test_run(&half, 4, h << 16 | 0x3c00, 0, 0);
            assert_int_equal(got >> s->slot, want);
            assert_int_equal(got & ((1u << s->slot) - 1), small_nearest(s, 1.0));
            assert_int_equal(test_run(&full, 4, f, 0x3f800000, 0), got);
            /* a hair off the f16 value decides ties */
            if (f > 0x00800000 && f < 0x7f000000) {
                got = (uint32_t)test_run(&full, 4, 0, f + 1, 0);
                assert_int_equal(got, small_nearest(s, tow_f32(f + 1)));
            }
        }
        assert_int_equal(test_run(&full, 4, 0, 1, 0), 0);
        assert_int_equal(test_run(&full, 4, 0, 0x7f7fffff, 0), small_nearest(s, INFINITY));
        full.relu = true;
        assert_int_equal(test_run(&full, 4, 0, 0xbf800000, 0), 0);
    }
}

static void scales_are_powers_of_two(void **state)
{
    struct tow_num_form form = {
        .op = TOW_NUM_CVT, .type = TOW_NUM_UE8M0X2, .src = TOW_NUM_F32, .round = TOW_NUM_RZ};
    assert_int_equal(test_run(&form, 4, 0x3fffffff, 0xbf800000, 0), 0x7f7f);
    assert_int_equal(test_run(&form, 4, 0x7f800000, 0x7fc00000, 0), 0xffff);
    form.round = TOW_NUM_RP;
    assert_int_equal(test_run(&form, 4, 0x3f800001, 0x3f800000, 0), 0x807f);
    assert_int_equal(test_run(&form, 4, 0x00400000, 0x00400001, 0), 0x0001);
    form.satfinite = true;
    assert_int_equal(test_run(&form, 4, 0x7f7fffff, 0x7f800000, 0), 0xfefe);
    struct tow_num_form back = {
        .op = TOW_NUM_CVT, .type = TOW_NUM_BF16X2, .src = TOW_NUM_UE8M0X2, .round = TOW_NUM_RN};
    assert_int_equal(test_run(&back, 4, 0x7f00, 0, 0), 0x3f800040);
    assert_int_equal(test_run(&back, 4, 0xff01, 0, 0), 0x7fff0080);
}

static void pack_saturates_and_shifts(void **state)
{
    struct tow_num_form form = {
        .op = TOW_NUM_CVT_PACK, .type = TOW_NUM_S16, .src = TOW_NUM_S32, .sat = true};
    assert_int_equal(test_run(&form, 4, 40000, (uint32_t)-40000, 0), 0x7fff8000);
    form.type = TOW_NUM_U8;
    assert_int_equal(test_run(&form, 4, 300, (uint32_t)-5, 0x12345678), 0x5678ff00);
    form.type = TOW_NUM_S4;
    assert_int_equal(test_run(&form, 4, 7, (uint32_t)-9, 0x12345678), 0x34567878);
    form.type = TOW_NUM_U2;
    assert_int_equal(test_run(&form, 4, 3, 1, 1), 0x1d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_truncate_extend_and_saturate),
        cmocka_unit_test(floats_become_integers),
        cmocka_unit_test(integers_become_floats),
        cmocka_unit_test(floats_become_floats),
        cmocka_unit_test(pairs_have_the_first_source_on_top),
        cmocka_unit_test(small_floats_widen_exactly),
        cmocka_unit_test(floats_become_small_floats),
        cmocka_unit_test(scales_are_powers_of_two),
        cmocka_unit_test(pack_saturates_and_shifts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
