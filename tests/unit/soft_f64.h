/* SPDX-License-Identifier: Apache-2.0 */
/* f64 arithmetic with any rounding, in integers: an exact reference for the tests of num_float.c.
 */
#ifndef TOW_TEST_SOFT_F64_H
#define TOW_TEST_SOFT_F64_H

#include "ptx/num/num.h"

typedef unsigned __int128 u128;

#define QUIET 0x0008000000000000ull
#define INFINITE 0x7ff0000000000000ull
#define LARGEST 0x7fefffffffffffffull
#define SIGN 0x8000000000000000ull

/* A finite nonzero number is mant * 2^exp. */
struct parts {
    bool negative;
    int exp;
    uint64_t mant;
};

static bool is_inf(uint64_t a)
{
    return (a & ~SIGN) == INFINITE;
}

static bool is_zero(uint64_t a)
{
    return (a & ~SIGN) == 0;
}

/* The mantissa of a nonzero number comes out with bit 52 set. */
static struct parts take_apart(uint64_t a)
{
    struct parts p = {.negative = a >> 63};
    uint64_t frac = a & 0x000fffffffffffffull;
    int exp = (int)((a >> 52) & 0x7ff);
    if (exp == 0) {
        int shift = __builtin_clzll(frac) - 11;
        p.mant = frac << shift;
        p.exp = -1074 - shift;
    } else {
        p.mant = frac | 0x0010000000000000ull;
        p.exp = exp - 1075;
    }
    return p;
}

static int top_bit(u128 m)
{
    uint64_t high = (uint64_t)(m >> 64);
    return high ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll((uint64_t)m);
}

static bool away_from_zero(enum tow_num_round round, bool negative)
{
    return (round == TOW_NUM_RM && negative) || (round == TOW_NUM_RP && !negative);
}

/* Rounds (m + something in (0, 1) if sticky) * 2^exp; m is not zero. With sticky set, m has at
 * least 55 bits, so the bits lost here are all known. */
static uint64_t round_to_f64(bool negative, u128 m, int exp, bool sticky, enum tow_num_round round)
{
    uint64_t sign = negative ? SIGN : 0;
    int top = top_bit(m);
    int last = top + exp - 52; /* weight of the result's last bit */
    if (last < -1074) {
        last = -1074;
    }
    int shift = last - exp;
    uint64_t kept;
    bool half = false, below = sticky;
    if (shift <= 0) {
        kept = (uint64_t)(m << -shift);
    } else if (shift > 127) {
        kept = 0;
        below = true;
        half = shift == 128 && (m >> 127);
    } else {
        kept = (uint64_t)(m >> shift);
        half = (m >> (shift - 1)) & 1;
        below = below || (m & (((u128)1 << (shift - 1)) - 1)) != 0;
    }
    if (half || below) {
        bool up;
        if (round == TOW_NUM_RN || round == TOW_NUM_ROUND_NONE) {
            up = half && (below || (kept & 1));
        } else {
            up = away_from_zero(round, negative);
        }
        kept += up;
    }
    /* kept in [0, 2^53]: adding it onto the exponent field carries by itself */
    int64_t biased = (int64_t)last + 1074;
    if (biased > 2045 || (biased == 2045 && kept >> 53)) {
        bool largest = round == TOW_NUM_RZ || (round != TOW_NUM_RN && round != TOW_NUM_ROUND_NONE &&
                                               !away_from_zero(round, negative));
        return sign | (largest ? LARGEST : INFINITE);
    }
    return sign | (((uint64_t)biased << 52) + kept);
}

/* Sum of two nonzero numbers x and y, each m * 2^exp with the top bit of m at 125. */
static uint64_t add_aligned(bool xneg, u128 xm, int xexp, bool yneg, u128 ym, int yexp,
                            enum tow_num_round round)
{
    if (yexp > xexp || (yexp == xexp && ym > xm)) {
        bool n = xneg;
        u128 m = xm;
        int e = xexp;
        xneg = yneg, xm = ym, xexp = yexp;
        yneg = n, ym = m, yexp = e;
    }
    int shift = xexp - yexp;
    bool sticky;
    if (shift > 127) {
        ym = 0;
        sticky = true;
    } else {
        sticky = shift > 0 && (ym & (((u128)1 << shift) - 1)) != 0;
        ym >>= shift;
    }
    if (xneg == yneg) {
        return round_to_f64(xneg, xm + ym, xexp, sticky, round);
    }
    u128 m = xm - ym - (sticky ? 1 : 0);
    if (m == 0 && !sticky) {
        return round == TOW_NUM_RM ? SIGN : 0;
    }
    return round_to_f64(xneg, m, xexp, sticky, round);
}

static uint64_t nan_of(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t nan = tow_f64_isnan(a) ? a : tow_f64_isnan(b) ? b : c;
    return nan | QUIET;
}

static uint64_t soft_fma(uint64_t a, uint64_t b, uint64_t c, enum tow_num_round round)
{
    if (tow_f64_isnan(a) || tow_f64_isnan(b) || tow_f64_isnan(c)) {
        return nan_of(a, b, c);
    }
    uint64_t sign = (a ^ b) & SIGN;
    if (is_inf(a) || is_inf(b)) {
        if (is_zero(a) || is_zero(b) || (is_inf(c) && (c & SIGN) != sign)) {
            return TOW_NUM_NAN_F64;
        }
        return sign | INFINITE;
    }
    if (is_inf(c)) {
        return c;
    }
    if (is_zero(a) || is_zero(b)) {
        if (!is_zero(c)) {
            return c;
        }
        if ((c & SIGN) == sign) {
            return c;
        }
        return round == TOW_NUM_RM ? SIGN : 0;
    }
    struct parts x = take_apart(a), y = take_apart(b);
    u128 m = (u128)x.mant * y.mant;
    int exp = x.exp + y.exp;
    if (is_zero(c)) {
        return round_to_f64(sign != 0, m, exp, false, round);
    }
    struct parts z = take_apart(c);
    int up = 125 - top_bit(m);
    return add_aligned(sign != 0, m << up, exp - up, z.negative, (u128)z.mant << 73, z.exp - 73,
                       round);
}

static uint64_t soft_add(uint64_t a, uint64_t b, enum tow_num_round round)
{
    const uint64_t one = 0x3ff0000000000000ull;
    if (tow_f64_isnan(a) || tow_f64_isnan(b)) {
        return nan_of(a, b, b);
    }
    return soft_fma(a, one, b, round);
}

static uint64_t soft_mul(uint64_t a, uint64_t b, enum tow_num_round round)
{
    uint64_t sign = (a ^ b) & SIGN;
    if (tow_f64_isnan(a) || tow_f64_isnan(b)) {
        return nan_of(a, b, b);
    }
    if (is_inf(a) || is_inf(b)) {
        return is_zero(a) || is_zero(b) ? TOW_NUM_NAN_F64 : sign | INFINITE;
    }
    if (is_zero(a) || is_zero(b)) {
        return sign;
    }
    struct parts x = take_apart(a), y = take_apart(b);
    return round_to_f64(sign != 0, (u128)x.mant * y.mant, x.exp + y.exp, false, round);
}

static uint64_t soft_div(uint64_t a, uint64_t b, enum tow_num_round round)
{
    uint64_t sign = (a ^ b) & SIGN;
    if (tow_f64_isnan(a) || tow_f64_isnan(b)) {
        return nan_of(a, b, b);
    }
    if (is_inf(a)) {
        return is_inf(b) ? TOW_NUM_NAN_F64 : sign | INFINITE;
    }
    if (is_zero(b)) {
        return is_zero(a) ? TOW_NUM_NAN_F64 : sign | INFINITE;
    }
    if (is_zero(a) || is_inf(b)) {
        return sign;
    }
    struct parts x = take_apart(a), y = take_apart(b);
    u128 n = (u128)x.mant << 74;
    u128 q = n / y.mant; /* at least 74 bits */
    return round_to_f64(sign != 0, q, x.exp - y.exp - 74, q * y.mant != n, round);
}

static uint64_t soft_sqrt(uint64_t a, enum tow_num_round round)
{
    if (tow_f64_isnan(a)) {
        return nan_of(a, a, a);
    }
    if (is_zero(a) || a == INFINITE) {
        return a;
    }
    if (a & SIGN) {
        return TOW_NUM_NAN_F64;
    }
    struct parts x = take_apart(a);
    int up = 72;
    if ((x.exp - up) & 1) {
        up++;
    }
    u128 n = (u128)x.mant << up; /* 125 or 126 bits, so the root has 63 */
    u128 root = 0;
    for (int bit = 63; bit >= 0; bit--) {
        u128 next = root | ((u128)1 << bit);
        if (next * next <= n) {
            root = next;
        }
    }
    return round_to_f64(false, root, (x.exp - up) / 2, root * root != n, round);
}

/* One operation of num.h. */
static uint64_t soft_f64(enum tow_num_op op, enum tow_num_round round, uint64_t a, uint64_t b,
                         uint64_t c)
{
    switch (op) {
    case TOW_NUM_ADD:
        return soft_add(a, b, round);
    case TOW_NUM_SUB:
        return soft_add(a, tow_f64_isnan(b) ? b : b ^ SIGN, round);
    case TOW_NUM_MUL:
        return soft_mul(a, b, round);
    case TOW_NUM_FMA:
        return soft_fma(a, b, c, round);
    case TOW_NUM_DIV:
        return soft_div(a, b, round);
    case TOW_NUM_RCP:
        return soft_div(0x3ff0000000000000ull, a, round);
    default:
        return soft_sqrt(a, round);
    }
}

#endif
