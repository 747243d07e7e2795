/* SPDX-License-Identifier: Apache-2.0 */
/* The approximate functions. Bounds as the PTX ISA states them; tests measure them:
 *   rcp 1 ulp, div 2 ulp, sqrt 2^-23 and rsqrt 2^-22.9 relative, lg2 2^-22 (absolute inside (0.5,
 * 2), else relative), ex2 2^-22 relative, sin and cos 2^-20.5 absolute in [-2 pi, 2 pi], tanh 2^-11
 *   relative. sin and cos reduce their argument as the hardware does, by one multiplication with
 *   1/(2 pi) rounded towards zero, so that large arguments go wrong in the same way.
 * Loops have no calls and no branches. */
#include "ptx/num/num_bits.h"

TOW_INLINE float num_approx_in(uint32_t a, bool ftz)
{
    return tow_f32(ftz ? tow_f32_ftz(a) : a);
}

TOW_INLINE uint32_t num_approx_out(float f, bool ftz)
{
    uint32_t r = f == f ? tow_f32_bits(f) : TOW_NUM_NAN_F32;
    return ftz ? tow_f32_ftz(r) : r;
}

TOW_INLINE float num_approx_pick(bool which, float yes, float no)
{
    return which ? yes : no;
}

/* One instruction each on NEON; what becomes of a NaN is left open. */
TOW_INLINE float num_approx_smaller(float a, float b)
{
#ifdef __aarch64__
    return __builtin_fminf(a, b);
#else
    return a < b ? a : b;
#endif
}

TOW_INLINE float num_approx_larger(float a, float b)
{
#ifdef __aarch64__
    return __builtin_fmaxf(a, b);
#else
    return a > b ? a : b;
#endif
}

/* 2^n for n in [-126, 127] */
TOW_INLINE float num_approx_power2(int n)
{
    return tow_f32((uint32_t)(n + 127) << 23);
}

/* Nearest integer of |x| < 2^22. */
TOW_INLINE float num_approx_nearest(float x)
{
    const float magic = 0x1.8p23f;
    return (x + magic) - magic;
}

TOW_INLINE float num_approx_ex2(float x)
{
    /* beyond these the result is 0 or infinite; NaN counts as one of them until the end */
    float t = num_approx_smaller(x, 130.0f);
    t = num_approx_larger(t, -160.0f);
    /* the low bits of t + magic are the nearest integer */
    const float magic = 0x1.8p23f;
    float shifted = t + magic;
    float f = t - (shifted - magic); /* exact, in [-0.5, 0.5] */
    int n = (int)(tow_f32_bits(shifted) - 0x4b400000u);
    float p = 0x1.00a582p-16f;
    p = __builtin_fmaf(p, f, 0x1.444p-13f);
    p = __builtin_fmaf(p, f, 0x1.5d879ep-10f);
    p = __builtin_fmaf(p, f, 0x1.3b2a1cp-7f);
    p = __builtin_fmaf(p, f, 0x1.c6b08ep-5f);
    p = __builtin_fmaf(p, f, 0x1.ebfbep-3f);
    p = __builtin_fmaf(p, f, 0x1.62e43p-1f);
    p = __builtin_fmaf(p, f, 1.0f);
    int half = n >> 1;
    float r = p * num_approx_power2(half) * num_approx_power2(n - half);
    return num_approx_pick(x == x, r, x);
}

TOW_INLINE float num_approx_lg2(float x)
{
    uint32_t bits = tow_f32_bits(x);
    bool small = bits < 0x00800000u;
    float scaled = num_approx_pick(small, x * 0x1p24f, x);
    bits = tow_f32_bits(scaled);
    /* m in [0.707, 1.414), x = m * 2^e */
    uint32_t shifted = bits - 0x3f3504f3u;
    int e = (int32_t)shifted >> 23;
    float m = tow_f32((shifted & 0x007fffffu) + 0x3f3504f3u);
    float f = m - 1.0f; /* exact */
    float exponent = (float)e - num_approx_pick(small, 24.0f, 0.0f);
    /* log2(1 + f) = f * (1/ln 2 + f * q(f)) with 1/ln 2 in two pieces */
    float q = 0x1.03a1cap-3f;
    q = __builtin_fmaf(q, f, -0x1.a25dd4p-3f);
    q = __builtin_fmaf(q, f, 0x1.b6508p-3f);
    q = __builtin_fmaf(q, f, -0x1.ea214ap-3f);
    q = __builtin_fmaf(q, f, 0x1.270d1p-2f);
    q = __builtin_fmaf(q, f, -0x1.7158cep-2f);
    q = __builtin_fmaf(q, f, 0x1.ec71e4p-2f);
    q = __builtin_fmaf(q, f, -0x1.715474p-1f);
    float tail = __builtin_fmaf(f * f, q, f * 0x1.4ae0cp-26f);
    float r = __builtin_fmaf(f, 0x1.715476p+0f, tail) + exponent;
    r = num_approx_pick(x == INFINITY, x, r);
    r = num_approx_pick(x == 0.0f, -INFINITY, r);
    return num_approx_pick(x >= 0.0f, r, NAN); /* negative or NaN */
}

/* x / (2 pi) towards zero, less its nearest integer: in [-0.5, 0.5] */
TOW_INLINE float num_approx_turns(float x)
{
    double p = (double)x * 0x1.45f306p-3f;
    float t = (float)p;
    double back = t;
    bool over = __builtin_fabs(back) > __builtin_fabs(p);
    t = tow_f32(tow_f32_bits(t) - (over ? 1 : 0));
    /* at 2^22 and beyond, what is left of a fraction is a multiple of a quarter turn or nothing */
    float big = __builtin_fabsf(t) < 0x1p22f ? t : t - 0x1p0f * __builtin_truncf(t);
    return big - num_approx_nearest(big);
}

/* sin(2 pi t), t in [-0.25, 0.25] */
TOW_INLINE float sin_turns(float t)
{
    float s = t * t;
    float p = -0x1.d04ap+3f;
    p = __builtin_fmaf(p, s, 0x1.503704p+5f);
    p = __builtin_fmaf(p, s, -0x1.32d214p+6f);
    p = __builtin_fmaf(p, s, 0x1.466bc6p+6f);
    p = __builtin_fmaf(p, s, -0x1.4abbcep+5f);
    p = __builtin_fmaf(p * s, t, t * -0x1.777a5cp-23f);
    return __builtin_fmaf(0x1.921fb6p+2f, t, p);
}

TOW_INLINE float num_approx_sine(float x)
{
    float t = num_approx_turns(x);
    /* fold to a quarter: sin(pi - a) = sin a */
    float folded = num_approx_pick(t > 0.25f, 0.5f - t, num_approx_pick(t < -0.25f, -0.5f - t, t));
    float r = sin_turns(folded);
    return num_approx_pick(x == 0.0f, x, r);
}

TOW_INLINE float num_approx_cosine(float x)
{
    float t = __builtin_fabsf(num_approx_turns(x));
    return sin_turns(0.25f - t);
}

TOW_INLINE float num_approx_hyperbolic(float x)
{
    float a = __builtin_fabsf(x);
    float s = x * x;
    /* odd polynomial below 0.6, else 1 - 2 / (e^2a + 1) */
    float q = 0x1.0f9d2p-6f;
    q = __builtin_fmaf(q, s, -0x1.b0ee2p-5f);
    q = __builtin_fmaf(q, s, 0x1.10e7cap-3f);
    q = __builtin_fmaf(q, s, -0x1.55551ap-2f);
    float low = __builtin_fmaf(q * s, x, x);
    float high = 1.0f - 2.0f / (num_approx_ex2(a * 0x1.715476p+1f) + 1.0f);
    float r = num_approx_pick(a < 0.6f, low, high);
    r = tow_f32((tow_f32_bits(r) & 0x7fffffffu) | (tow_f32_bits(x) & 0x80000000u));
    return num_approx_pick(x == x, r, x);
}

float tow_approx_ex2(float x)
{
    return num_approx_ex2(x);
}

float tow_approx_tanh(float x)
{
    return num_approx_hyperbolic(x);
}

#define APPROX_FN(name, ftz, expr)                                                                 \
    TOW_HOT static void name(const struct tow_num_form *form, void *d, const void *a,              \
                             const void *b, const void *c)                                         \
    {                                                                                              \
        uint32_t *rd = d;                                                                          \
        const uint32_t *ra = a;                                                                    \
        TOW_EACH_LANE                                                                              \
        {                                                                                          \
            float x = num_approx_in(ra[l], ftz);                                                   \
            rd[l] = num_approx_out(expr, ftz);                                                     \
        }                                                                                          \
    }
#define APPROX_FNS(name, expr)                                                                     \
    APPROX_FN(name, false, expr)                                                                   \
    APPROX_FN(name##_ftz, true, expr)

APPROX_FNS(approx_rcp, 1.0f / x)
APPROX_FNS(approx_sqrt, __builtin_sqrtf(x))
APPROX_FNS(approx_rsqrt, 1.0f / __builtin_sqrtf(x))
APPROX_FNS(approx_sin, num_approx_sine(x))
APPROX_FNS(approx_cos, num_approx_cosine(x))
APPROX_FNS(approx_lg2, num_approx_lg2(x))
APPROX_FNS(approx_ex2, num_approx_ex2(x))
APPROX_FN(approx_tanh, false, num_approx_hyperbolic(x))

/* div.approx is a * (1/b): for |b| above 2^126 the reciprocal counts as zero. */
TOW_INLINE float num_approx_divide(float x, float y, bool full)
{
    bool huge = !full && __builtin_fabsf(y) > 0x1p126f;
    float zero = tow_f32(tow_f32_bits(y) & 0x80000000u);
    return huge ? x * zero : x / y;
}

#define DIVIDE_FN(name, ftz, full)                                                                 \
    TOW_HOT static void name(const struct tow_num_form *form, void *d, const void *a,              \
                             const void *b, const void *c)                                         \
    {                                                                                              \
        uint32_t *rd = d;                                                                          \
        const uint32_t *ra = a, *rb = b;                                                           \
        TOW_EACH_LANE                                                                              \
        {                                                                                          \
            rd[l] = num_approx_out(                                                                \
                num_approx_divide(num_approx_in(ra[l], ftz), num_approx_in(rb[l], ftz), full),     \
                ftz);                                                                              \
        }                                                                                          \
    }
DIVIDE_FN(divide_approx, false, false)
DIVIDE_FN(divide_approx_ftz, true, false)
DIVIDE_FN(divide_full, false, true)
DIVIDE_FN(divide_full_ftz, true, true)

/* ---- f64: only the upper 32 bits are read and, in the ftz forms, written -------------- */

#define NAN_HIGH 0x7fffffff00000000ull

TOW_INLINE double num_approx_flush64(double x)
{
    return __builtin_fabs(x) < 0x1p-1022 ? tow_f64(tow_f64_bits(x) & 0x8000000000000000ull) : x;
}

static uint64_t num_approx_coarse(double r)
{
    uint64_t bits = tow_f64_bits(num_approx_flush64(r));
    if (tow_f64_isnan(bits)) {
        return NAN_HIGH;
    }
    if ((bits & 0x7ff0000000000000ull) == 0x7ff0000000000000ull) {
        return bits;
    }
    return (bits + 0x80000000ull) & ~0xffffffffull;
}

static double num_approx_upper(uint64_t a)
{
    if (tow_f64_isnan(a)) {
        return NAN;
    }
    return num_approx_flush64(tow_f64(a & ~0xffffffffull));
}

static void num_approx_rcp64(const struct tow_num_form *form, void *d, const void *a, const void *b,
                             const void *c)
{
    uint64_t *rd = d;
    const uint64_t *ra = a;
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        rd[l] = num_approx_coarse(1.0 / num_approx_upper(ra[l]));
    }
}

static void num_approx_rsqrt64(const struct tow_num_form *form, void *d, const void *a,
                               const void *b, const void *c)
{
    uint64_t *rd = d;
    const uint64_t *ra = a;
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        if (form->ftz) {
            rd[l] = num_approx_coarse(1.0 / __builtin_sqrt(num_approx_upper(ra[l])));
        } else {
            uint64_t r = tow_f64_bits(1.0 / __builtin_sqrt(tow_f64(ra[l])));
            rd[l] = tow_f64_pick_nan(r, ra[l], ra[l], ra[l]);
        }
    }
}

tow_num_fn *tow_num_find_approx(const struct tow_num_form *form)
{
    bool ftz = form->ftz;
    if (form->sat || form->relu || form->satfinite || form->oob || form->nan || form->xorsign_abs ||
        form->three || form->round != TOW_NUM_ROUND_NONE ||
        (form->src != TOW_NUM_NONE && form->src != form->type)) {
        return NULL;
    }
    if (form->type == TOW_NUM_F32 && form->op == TOW_NUM_DIV && form->approx != form->full) {
        if (form->full) {
            return ftz ? divide_full_ftz : divide_full;
        }
        return ftz ? divide_approx_ftz : divide_approx;
    }
    if (!form->approx || form->full) {
        return NULL;
    }
    if (form->type == TOW_NUM_F64) {
        if (form->op == TOW_NUM_RCP && ftz) {
            return num_approx_rcp64;
        }
        return form->op == TOW_NUM_RSQRT ? num_approx_rsqrt64 : NULL;
    }
    if (form->type != TOW_NUM_F32) {
        return NULL;
    }
    switch (form->op) {
    case TOW_NUM_RCP:
        return ftz ? approx_rcp_ftz : approx_rcp;
    case TOW_NUM_SQRT:
        return ftz ? approx_sqrt_ftz : approx_sqrt;
    case TOW_NUM_RSQRT:
        return ftz ? approx_rsqrt_ftz : approx_rsqrt;
    case TOW_NUM_SIN:
        return ftz ? approx_sin_ftz : approx_sin;
    case TOW_NUM_COS:
        return ftz ? approx_cos_ftz : approx_cos;
    case TOW_NUM_LG2:
        return ftz ? approx_lg2_ftz : approx_lg2;
    case TOW_NUM_EX2:
        return ftz ? approx_ex2_ftz : approx_ex2;
    case TOW_NUM_TANH:
        return ftz ? NULL : approx_tanh;
    default:
        return NULL;
    }
}
