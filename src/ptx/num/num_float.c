/* SPDX-License-Identifier: Apache-2.0 */
/* f32 and f64 arithmetic.
 *
 * It is the host's own, one row at a time. For rz, rm and rp the host's rounding mode is switched
 * around the call of the function for a whole row; that call goes through a pointer, so the
 * compiler cannot move arithmetic out of it. f32 results: a NaN is always 0x7fffffff. f64 keeps
 * payloads. */
#include "ptx/num/num_bits.h"

#include <fenv.h>

/* ---- f32, round to nearest: one function per op and per {ftz, sat} -------------------- */

TOW_INLINE uint32_t num_float_in32(uint32_t a, bool ftz)
{
    return ftz ? tow_f32_ftz(a) : a;
}

TOW_INLINE uint32_t num_float_out32(float f, bool ftz, bool sat)
{
    uint32_t r = tow_f32_bits(f);
    if (sat) {
        r = tow_f32_sat(r);
    } else {
        r = f == f ? r : TOW_NUM_NAN_F32;
    }
    return ftz ? tow_f32_ftz(r) : r;
}

#define F32_FN(name, ftz, sat, sources, expr)                                                      \
    TOW_HOT static void name(const struct tow_num_form *form, void *d, const void *a,              \
                             const void *b, const void *c)                                         \
    {                                                                                              \
        uint32_t *rd = d;                                                                          \
        const uint32_t *ra = a, *rb = sources > 1 ? b : a, *rc = sources > 2 ? c : a;              \
        TOW_EACH_LANE                                                                              \
        {                                                                                          \
            float x = tow_f32(num_float_in32(ra[l], ftz));                                         \
            float y = tow_f32(num_float_in32(rb[l], ftz));                                         \
            float z = tow_f32(num_float_in32(rc[l], ftz));                                         \
            (void)y;                                                                               \
            (void)z;                                                                               \
            rd[l] = num_float_out32(expr, ftz, sat);                                               \
        }                                                                                          \
    }
#define F32_FNS(name, sources, expr)                                                               \
    F32_FN(name, false, false, sources, expr)                                                      \
    F32_FN(name##_ftz, true, false, sources, expr)                                                 \
    F32_FN(name##_sat, false, true, sources, expr)                                                 \
    F32_FN(name##_ftz_sat, true, true, sources, expr)

F32_FNS(f32_add, 2, x + y)
F32_FNS(f32_sub, 2, x - y)
/* What is flushed is known before rounding: the product of two f32 is exact in double. */
TOW_INLINE float flushed_product(float x, float y)
{
    float r = x * y;
    return __builtin_fabs((double)x * y) < 0x1p-126 ? __builtin_copysignf(0.0f, r) : r;
}
F32_FN(f32_mul, false, false, 2, x *y)
F32_FN(f32_mul_ftz, true, false, 2, flushed_product(x, y))
F32_FN(f32_mul_sat, false, true, 2, x *y)
F32_FN(f32_mul_ftz_sat, true, true, 2, flushed_product(x, y))
F32_FNS(f32_fma, 3, __builtin_fmaf(x, y, z))
F32_FNS(f32_div, 2, x / y)
F32_FNS(f32_rcp, 1, 1.0f / x)
F32_FNS(f32_sqrt, 1, __builtin_sqrtf(x))
F32_FNS(f32_neg, 1, -x)
F32_FNS(f32_abs, 1, __builtin_fabsf(x))

#define F32_ROW(name)                                                                              \
    {                                                                                              \
        name, name##_ftz, name##_sat, name##_ftz_sat                                               \
    }

static tow_num_fn *const f32_table[][4] = {
    [TOW_NUM_ADD] = F32_ROW(f32_add),   [TOW_NUM_SUB] = F32_ROW(f32_sub),
    [TOW_NUM_MUL] = F32_ROW(f32_mul),   [TOW_NUM_FMA] = F32_ROW(f32_fma),
    [TOW_NUM_DIV] = F32_ROW(f32_div),   [TOW_NUM_RCP] = F32_ROW(f32_rcp),
    [TOW_NUM_SQRT] = F32_ROW(f32_sqrt), [TOW_NUM_NEG] = F32_ROW(f32_neg),
    [TOW_NUM_ABS] = F32_ROW(f32_abs),
};

static tow_num_fn *f32_nearest(const struct tow_num_form *form)
{
    return f32_table[form->op][(form->ftz ? 1 : 0) + (form->sat ? 2 : 0)];
}

/* ---- other roundings ------------------------------------------------------------------ */

static void round_as(tow_num_fn *fn, const struct tow_num_form *form, void *d, const void *a,
                     const void *b, const void *c)
{
    fesetround(form->round == TOW_NUM_RZ   ? FE_TOWARDZERO
               : form->round == TOW_NUM_RM ? FE_DOWNWARD
                                           : FE_UPWARD);
    fn(form, d, a, b, c);
    fesetround(FE_TONEAREST);
}

static void f32_directed(const struct tow_num_form *form, void *d, const void *a, const void *b,
                         const void *c)
{
    round_as(f32_nearest(form), form, d, a, b, c);
}

/* ---- min and max ---------------------------------------------------------------------- */

/* As a total order in which -0 < +0. */
TOW_INLINE int32_t num_float_order32(uint32_t a)
{
    return (int32_t)(a ^ ((uint32_t)((int32_t)a >> 31) >> 1));
}

TOW_INLINE uint32_t num_float_minmax32(uint32_t a, uint32_t b, bool max, bool nan)
{
    bool pick_a = max ? num_float_order32(a) > num_float_order32(b)
                      : num_float_order32(a) < num_float_order32(b);
    uint32_t r = tow_pick32(pick_a, a, b);
    bool a_nan = tow_f32_isnan(a), b_nan = tow_f32_isnan(b);
    r = tow_pick32(a_nan, b, r);
    r = tow_pick32(b_nan && !a_nan, a, r);
    bool none = nan ? (a_nan | b_nan) : (a_nan & b_nan);
    return tow_pick32(none, TOW_NUM_NAN_F32, r);
}

TOW_INLINE uint32_t minmax32_form(uint32_t a, uint32_t b, bool max, const struct tow_num_form *form)
{
    if (form->ftz) {
        a = tow_f32_ftz(a);
        b = tow_f32_ftz(b);
    }
    if (form->abs) {
        a &= 0x7fffffffu;
        b &= 0x7fffffffu;
    }
    if (form->xorsign_abs) {
        uint32_t sign = (a ^ b) & 0x80000000u;
        uint32_t r = num_float_minmax32(a & 0x7fffffffu, b & 0x7fffffffu, max, form->nan);
        return tow_f32_isnan(r) ? r : r | sign;
    }
    return num_float_minmax32(a, b, max, form->nan);
}

#define F32_MINMAX(name, max)                                                                      \
    TOW_HOT static void name(const struct tow_num_form *form, void *d, const void *a,              \
                             const void *b, const void *c)                                         \
    {                                                                                              \
        uint32_t *rd = d;                                                                          \
        const uint32_t *ra = a, *rb = b;                                                           \
        TOW_EACH_LANE                                                                              \
        {                                                                                          \
            rd[l] = num_float_minmax32(ra[l], rb[l], max, false);                                  \
        }                                                                                          \
    }                                                                                              \
    static void name##_form(const struct tow_num_form *form, void *d, const void *a,               \
                            const void *b, const void *c)                                          \
    {                                                                                              \
        uint32_t *rd = d;                                                                          \
        const uint32_t *ra = a, *rb = b, *rc = c;                                                  \
        const struct tow_num_form f = *form;                                                       \
        for (int l = 0; l < TOW_NUM_LANES; l++) {                                                  \
            uint32_t z = f.three ? rc[l] : 0;                                                      \
            uint32_t r = minmax32_form(ra[l], rb[l], max, &f);                                     \
            rd[l] = f.three ? minmax32_form(r, z, max, &f) : r;                                    \
        }                                                                                          \
    }

F32_MINMAX(f32_min, false)
F32_MINMAX(f32_max, true)

TOW_INLINE int64_t num_float_order64(uint64_t a)
{
    return (int64_t)(a ^ ((uint64_t)((int64_t)a >> 63) >> 1));
}

TOW_INLINE uint64_t num_float_minmax64(uint64_t a, uint64_t b, bool max)
{
    bool pick_a = max ? num_float_order64(a) > num_float_order64(b)
                      : num_float_order64(a) < num_float_order64(b);
    uint64_t r = pick_a ? a : b;
    bool a_nan = tow_f64_isnan(a), b_nan = tow_f64_isnan(b);
    r = a_nan ? b : r;
    r = b_nan && !a_nan ? a : r;
    return a_nan && b_nan ? b | 0x0008000000000000ull : r;
}

static void f32_copysign(const struct tow_num_form *form, void *d, const void *a, const void *b,
                         const void *c)
{
    uint32_t *rd = d;
    const uint32_t *ra = a, *rb = b;
    TOW_EACH_LANE
    {
        rd[l] = (ra[l] & 0x80000000u) | (rb[l] & 0x7fffffffu);
    }
}

/* ---- f32x2: two f32 in one 64-bit register -------------------------------------------- */

static void f32x2_run(const struct tow_num_form *form, void *d, const void *a, const void *b,
                      const void *c)
{
    struct tow_num_form single = *form;
    single.type = TOW_NUM_F32;
    single.src = TOW_NUM_NONE;
    tow_num_fn *fn = tow_num_find_f32(&single);
    unsigned sources = form->op == TOW_NUM_FMA ? 3 : 2;
    const uint64_t *from[3] = {a, b, c};
    uint32_t in[3][TOW_NUM_LANES], low[TOW_NUM_LANES], high[TOW_NUM_LANES];
    for (int half = 0; half < 2; half++) {
        for (unsigned s = 0; s < sources; s++) {
            for (int l = 0; l < TOW_NUM_LANES; l++) {
                in[s][l] = (uint32_t)(from[s][l] >> (32 * half));
            }
        }
        fn(&single, half ? high : low, in[0], in[1], in[2]);
    }
    uint64_t *rd = d;
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        rd[l] = (uint64_t)high[l] << 32 | low[l];
    }
}

/* ---- f32 with narrow sources (add.f32.f16 and so on) ---------------------------------- */

static void widen_row(uint32_t *to, const uint32_t *from, enum tow_num_type type)
{
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        uint32_t h = from[l] & 0xffffu;
        to[l] = type == TOW_NUM_F16 ? tow_f32_bits(tow_h2f(h)) : h << 16;
    }
}

static void f32_mixed(const struct tow_num_form *form, void *d, const void *a, const void *b,
                      const void *c)
{
    struct tow_num_form wide = *form;
    wide.src = TOW_NUM_NONE;
    tow_num_fn *fn = tow_num_find_f32(&wide);
    uint32_t x[TOW_NUM_LANES], y[TOW_NUM_LANES];
    widen_row(x, a, form->src);
    if (form->op == TOW_NUM_FMA) {
        widen_row(y, b, form->src);
        b = y;
    }
    fn(&wide, d, x, b, c);
}

tow_num_fn *tow_num_find_f32(const struct tow_num_form *form)
{
    enum tow_num_op op = form->op;
    bool arithmetic =
        op == TOW_NUM_ADD || op == TOW_NUM_SUB || op == TOW_NUM_MUL || op == TOW_NUM_FMA;
    if (form->approx || form->full || form->relu || form->satfinite || form->oob ||
        ((form->nan || form->xorsign_abs || form->abs || form->three) && op != TOW_NUM_MIN &&
         op != TOW_NUM_MAX)) {
        return NULL;
    }
    if (form->type == TOW_NUM_F32X2) {
        return arithmetic && !form->sat && form->round <= TOW_NUM_RP ? f32x2_run : NULL;
    }
    if (form->src != TOW_NUM_NONE && form->src != TOW_NUM_F32) {
        bool narrow = form->src == TOW_NUM_F16 || form->src == TOW_NUM_BF16;
        bool has = op == TOW_NUM_ADD || op == TOW_NUM_SUB || op == TOW_NUM_FMA;
        return narrow && has && form->round <= TOW_NUM_RP && !form->ftz ? f32_mixed : NULL;
    }
    if (op == TOW_NUM_MIN || op == TOW_NUM_MAX) {
        bool plain = !form->ftz && !form->nan && !form->xorsign_abs && !form->three;
        if (form->sat || form->round != TOW_NUM_ROUND_NONE || (form->abs && !form->three) ||
            (form->xorsign_abs && form->three)) {
            return NULL;
        }
        if (op == TOW_NUM_MIN) {
            return plain ? f32_min : f32_min_form;
        }
        return plain ? f32_max : f32_max_form;
    }
    if (op == TOW_NUM_COPYSIGN) {
        return f32_copysign;
    }
    if (op >= sizeof f32_table / sizeof f32_table[0] || !f32_table[op][0] ||
        (form->sat && !arithmetic)) {
        return NULL;
    }
    if (form->round == TOW_NUM_ROUND_NONE || form->round == TOW_NUM_RN) {
        return f32_nearest(form);
    }
    bool sign = op == TOW_NUM_NEG || op == TOW_NUM_ABS;
    return form->round > TOW_NUM_RP || sign ? NULL : f32_directed;
}

/* ---- f64 ------------------------------------------------------------------------------ */

/* n1, n2, n3: whose NaN comes first. One instruction prefers b, then c; division is a sequence. */
#define F64_FN(name, sources, expr, n1, n2, n3)                                                    \
    TOW_HOT static void name(const struct tow_num_form *form, void *d, const void *a,              \
                             const void *b, const void *c)                                         \
    {                                                                                              \
        uint64_t *rd = d;                                                                          \
        const uint64_t *ra = a, *rb = sources > 1 ? b : a, *rc = sources > 2 ? c : a;              \
        TOW_EACH_LANE                                                                              \
        {                                                                                          \
            double x = tow_f64(ra[l]), y = tow_f64(rb[l]), z = tow_f64(rc[l]);                     \
            (void)y;                                                                               \
            (void)z;                                                                               \
            rd[l] = tow_f64_pick_nan(tow_f64_bits(expr), n1[l], n2[l], n3[l]);                     \
        }                                                                                          \
    }

F64_FN(f64_add, 2, x + y, rb, rc, ra)
F64_FN(f64_sub, 2, x - y, rb, rc, ra)
F64_FN(f64_mul, 2, x *y, rb, rc, ra)
F64_FN(f64_fma, 3, __builtin_fma(x, y, z), rb, rc, ra)
F64_FN(f64_div, 2, x / y, ra, rb, rc)
F64_FN(f64_rcp, 1, 1.0 / x, ra, rb, rc)
F64_FN(f64_sqrt, 1, __builtin_sqrt(x), ra, rb, rc)

static tow_num_fn *const f64_table[] = {
    [TOW_NUM_ADD] = f64_add,   [TOW_NUM_SUB] = f64_sub, [TOW_NUM_MUL] = f64_mul,
    [TOW_NUM_FMA] = f64_fma,   [TOW_NUM_DIV] = f64_div, [TOW_NUM_RCP] = f64_rcp,
    [TOW_NUM_SQRT] = f64_sqrt,
};

static void f64_directed(const struct tow_num_form *form, void *d, const void *a, const void *b,
                         const void *c)
{
    round_as(f64_table[form->op], form, d, a, b, c);
}

#define F64_SIGN 0x8000000000000000ull

#define F64_BITS(name, sources, expr)                                                              \
    static void name(const struct tow_num_form *form, void *d, const void *a, const void *b,       \
                     const void *c)                                                                \
    {                                                                                              \
        uint64_t *rd = d;                                                                          \
        const uint64_t *ra = a, *rb = sources > 1 ? b : a;                                         \
        TOW_EACH_LANE                                                                              \
        {                                                                                          \
            uint64_t x = ra[l], y = rb[l];                                                         \
            (void)y;                                                                               \
            rd[l] = expr;                                                                          \
        }                                                                                          \
    }

/* neg and abs are additions of -0 to the hardware: a NaN comes out quiet, its sign as it was. */
F64_BITS(f64_neg, 1, tow_f64_pick_nan(x ^ F64_SIGN, x, x, x))
F64_BITS(f64_abs, 1, tow_f64_pick_nan(x & ~F64_SIGN, x, x, x))
F64_BITS(f64_min, 2, num_float_minmax64(x, y, false))
F64_BITS(f64_max, 2, num_float_minmax64(x, y, true))
F64_BITS(f64_copysign, 2, (x & F64_SIGN) | (y & ~F64_SIGN))

tow_num_fn *tow_num_find_f64(const struct tow_num_form *form)
{
    bool bare = form->round == TOW_NUM_ROUND_NONE;
    if (form->approx || form->full || form->relu || form->satfinite || form->oob || form->ftz ||
        form->sat || form->nan || form->xorsign_abs || form->abs || form->three ||
        (form->src != TOW_NUM_NONE && form->src != TOW_NUM_F64) || form->round > TOW_NUM_RP) {
        return NULL;
    }
    switch (form->op) {
    case TOW_NUM_NEG:
        return bare ? f64_neg : NULL;
    case TOW_NUM_ABS:
        return bare ? f64_abs : NULL;
    case TOW_NUM_MIN:
        return bare ? f64_min : NULL;
    case TOW_NUM_MAX:
        return bare ? f64_max : NULL;
    case TOW_NUM_COPYSIGN:
        return bare ? f64_copysign : NULL;
    case TOW_NUM_ADD:
    case TOW_NUM_SUB:
    case TOW_NUM_MUL:
    case TOW_NUM_FMA:
    case TOW_NUM_DIV:
    case TOW_NUM_RCP:
    case TOW_NUM_SQRT:
        return form->round <= TOW_NUM_RN ? f64_table[form->op] : f64_directed;
    default:
        return NULL;
    }
}

/* ---- single values -------------------------------------------------------------------- */

uint32_t tow_f32_add(uint32_t a, uint32_t b, bool ftz)
{
    return ftz ? num_float_out32(tow_f32(tow_f32_ftz(a)) + tow_f32(tow_f32_ftz(b)), true, false)
               : num_float_out32(tow_f32(a) + tow_f32(b), false, false);
}

uint64_t tow_f64_add(uint64_t a, uint64_t b)
{
    return tow_f64_pick_nan(tow_f64_bits(tow_f64(a) + tow_f64(b)), a, b, b);
}

uint32_t tow_f32_min(uint32_t a, uint32_t b)
{
    return num_float_minmax32(a, b, false, false);
}

uint32_t tow_f32_max(uint32_t a, uint32_t b)
{
    return num_float_minmax32(a, b, true, false);
}

/* Of the bits of a number without its sign, those of infinity, and those of the least normal one:
 * they are ordered as the numbers are. */
static inline bool num_float_testp(enum tow_num_testp test, uint64_t m, uint64_t inf,
                                   uint64_t least)
{
    switch (test) {
    case TOW_NUM_TEST_FINITE:
        return m < inf;
    case TOW_NUM_TEST_INFINITE:
        return m == inf;
    case TOW_NUM_TEST_NUMBER:
        return m <= inf;
    case TOW_NUM_TEST_NOTANUMBER:
        return m > inf;
    case TOW_NUM_TEST_NORMAL: /* zero counts as one */
        return m == 0 || (m >= least && m < inf);
    case TOW_NUM_TEST_SUBNORMAL:
        return m != 0 && m < least;
    }
    return false;
}

bool tow_f64_testp(enum tow_num_testp test, uint64_t a)
{
    return num_float_testp(test, a & ~F64_SIGN, 0x7ff0000000000000ull, 0x0010000000000000ull);
}

bool tow_f32_testp(enum tow_num_testp test, uint32_t a)
{
    return num_float_testp(test, a & 0x7fffffffu, 0x7f800000u, 0x00800000u);
}
