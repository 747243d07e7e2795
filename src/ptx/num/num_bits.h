/* SPDX-License-Identifier: Apache-2.0 */
/* What the number files share: conversions between formats and exact rounding steps, written
 * without branches so that a loop over 32 lanes vectorises. Internal to src/ptx/num*.c, mma.c,
 * texture.c. */
#ifndef TOW_PTX_NUM_BITS_H
#define TOW_PTX_NUM_BITS_H

#include "ptx/num/num.h"

#include <math.h>
#include <string.h>

#define TOW_INLINE static inline __attribute__((always_inline))

/* Lanes are independent even when d is a source row, which GCC cannot know. */
#define TOW_EACH_LANE _Pragma("GCC ivdep") for (int l = 0; l < TOW_NUM_LANES; l++)

/* On x86-64 the hot loops are built for several levels and chosen at load time: fma, and 8 or 16
 * lanes at once. "arch=haswell", all that older GCCs know, is that one processor and none that is
 * newer. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) &&       \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if __GNUC__ >= 12
#define TOW_HOT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TOW_HOT __attribute__((target_clones("arch=haswell", "default")))
#endif
#else
#define TOW_HOT
#endif

TOW_INLINE uint32_t tow_pick32(bool which, uint32_t yes, uint32_t no)
{
    return which ? yes : no;
}

TOW_INLINE float tow_h2f(uint32_t h)
{
    uint32_t m = (h & 0x7fffu) << 13;
    uint32_t sign = (h & 0x8000u) << 16;
    uint32_t exp = h & 0x7c00u;
    uint32_t normal = m + (112u << 23);
    uint32_t special = m + (224u << 23);
    uint32_t small = tow_f32_bits(tow_f32(m + (113u << 23)) - 0x1p-14f);
    uint32_t r = tow_pick32(exp == 0x7c00u, special, normal);
    r = tow_pick32(exp == 0, small, r);
    return tow_f32(r | sign);
}

/* Round to nearest even. */
TOW_INLINE uint32_t tow_f2h(float f)
{
    uint32_t bits = tow_f32_bits(f);
    uint32_t x = bits & 0x7fffffffu;
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t clamped = tow_pick32(x > 0x47800000u, 0x47800000u, x);
    uint32_t normal = (clamped - (112u << 23) + 0xfffu + ((clamped >> 13) & 1)) >> 13;
    uint32_t small = tow_f32_bits(tow_f32(x) + 0.5f) - 0x3f000000u;
    uint32_t r = tow_pick32(x < 0x38800000u, small, normal) | sign;
    return tow_pick32(x > 0x7f800000u, TOW_NUM_NAN_F16, r);
}

TOW_INLINE float tow_bf2f(uint32_t h)
{
    return tow_f32(h << 16);
}

TOW_INLINE uint32_t tow_f2bf(float f)
{
    uint32_t x = tow_f32_bits(f);
    uint32_t r = (x + 0x7fffu + ((x >> 16) & 1)) >> 16;
    return tow_pick32((x & 0x7fffffffu) > 0x7f800000u, TOW_NUM_NAN_F16, r);
}

/* sum = rn(p + c), with the last bit made odd when it is inexact: a later rounding to at most 51
 * bits then equals rounding p + c itself. */
TOW_INLINE double tow_sum_odd(double p, double c)
{
    double s = p + c;
    double v = s - p;
    double e = (p - (s - v)) + (c - v);
    uint64_t bits = tow_f64_bits(s);
    /* e is NaN when s is not finite */
    uint64_t inexact = (e < 0) | (e > 0);
    uint64_t outward = (e > 0) == (s > 0);
    return tow_f64(bits + (inexact & ~bits & 1) * (2 * outward - 1));
}

/* The same in float, for a later rounding to at most 22 bits; p and c within reach of f16. */
TOW_INLINE float tow_sum_odd_f32(float p, float c)
{
    float s = p + c;
    float v = s - p;
    float e = (p - (s - v)) + (c - v);
    uint32_t bits = tow_f32_bits(s);
    uint32_t inexact = (e < 0) | (e > 0);
    uint32_t outward = (e > 0) == (s > 0);
    return tow_f32(bits + (inexact & ~bits & 1) * (2 * outward - 1));
}

/* Round to odd: keeps what a following rounding to fewer bits needs. */
TOW_INLINE float tow_d2f_odd(double d)
{
    float f = (float)d;
    double back = f;
    uint32_t bits = tow_f32_bits(f);
    bool inexact = (back < d) | (back > d);
    bool outside = (back > d) == (d > 0);
    uint32_t r = (bits - (outside ? 1 : 0)) | 1;
    return tow_f32(inexact ? r : bits);
}

/* Directed rounding of a double (exact or rounded to odd) to float. `down` and `up`: step from the
 * nearest float towards minus (plus) infinity if it lies on the other side. rz is both, by sign. */
TOW_INLINE uint32_t tow_d2f_directed(double d, bool rz, bool down, bool up)
{
    float f = (float)d;
    double back = f;
    uint32_t bits = tow_f32_bits(f);
    bool negative = bits >> 31;
    bool go_down = (down | (rz & !negative)) & (back > d);
    bool go_up = (up | (rz & negative)) & (back < d);
    uint32_t inward = bits - 1, outward = bits + 1;
    uint32_t r = bits;
    r = tow_pick32(go_down, negative ? outward : inward, r);
    r = tow_pick32(go_up, negative ? inward : outward, r);
    return r;
}

TOW_INLINE uint32_t tow_f32_sat(uint32_t a)
{
    float f = tow_f32(a);
    uint32_t r = tow_pick32(f > 0.0f, a, 0); /* NaN compares false */
    return tow_pick32(f >= 1.0f, 0x3f800000u, r);
}

TOW_INLINE uint64_t tow_f64_sat(uint64_t a)
{
    double f = tow_f64(a);
    uint64_t r = f > 0.0 ? a : 0;
    return f >= 1.0 ? 0x3ff0000000000000ull : r;
}

/* The NaN that f64 arithmetic returns: the first NaN source, made quiet, else the default one. */
TOW_INLINE uint64_t tow_f64_pick_nan(uint64_t r, uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t quiet = 0x0008000000000000ull;
    uint64_t nan = TOW_NUM_NAN_F64;
    nan = tow_f64_isnan(c) ? c | quiet : nan;
    nan = tow_f64_isnan(b) ? b | quiet : nan;
    nan = tow_f64_isnan(a) ? a | quiet : nan;
    return tow_f64_isnan(r) ? nan : r;
}

/* Finders of each file; tow_num_find asks them in turn. */
tow_num_fn *tow_num_find_f32(const struct tow_num_form *form);
tow_num_fn *tow_num_find_f64(const struct tow_num_form *form);
tow_num_fn *tow_num_find_half(const struct tow_num_form *form);
tow_num_fn *tow_num_find_approx(const struct tow_num_form *form);
tow_num_fn *tow_num_find_cvt(const struct tow_num_form *form);
tow_num_fn *tow_num_find_cvt_small(const struct tow_num_form *form);

/* Approximate functions of one value, as the half-precision forms use them. */
float tow_approx_ex2(float x);
float tow_approx_tanh(float x);

#endif
