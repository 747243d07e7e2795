/* SPDX-License-Identifier: Apache-2.0 */
/* cvt between integers, f16, bf16, f32, f64, tf32, and f32 pairs to f16x2 and bf16x2.
 *
 * The common conversions have loops of their own. The rest goes in two steps through a row of
 * doubles, which hold every f16, bf16 and f32 and every 32-bit integer exactly; 64-bit integers
 * arrive there rounded to odd, so that the second rounding is the only one that counts. */
#include "ptx/num/num_bits.h"

/* ---- integer to integer --------------------------------------------------------------- */

#define ROW_uint8_t uint32_t
#define ROW_int8_t uint32_t
#define ROW_uint16_t uint32_t
#define ROW_int16_t uint32_t
#define ROW_uint32_t uint32_t
#define ROW_int32_t uint32_t
#define ROW_uint64_t uint64_t
#define ROW_int64_t uint64_t

#define INT_FN(dst, src)                                                                           \
    static void int_##dst##_##src(const struct tow_num_form *form, void *d, const void *a,         \
                                  const void *b, const void *c)                                    \
    {                                                                                              \
        ROW_##dst *rd = d;                                                                         \
        const ROW_##src *ra = a;                                                                   \
        TOW_EACH_LANE                                                                              \
        {                                                                                          \
            rd[l] = (ROW_##dst)(dst)(src)ra[l];                                                    \
        }                                                                                          \
    }
#define INT_FNS(dst)                                                                               \
    INT_FN(dst, uint8_t)                                                                           \
    INT_FN(dst, int8_t)                                                                            \
    INT_FN(dst, uint16_t)                                                                          \
    INT_FN(dst, int16_t)                                                                           \
    INT_FN(dst, uint32_t)                                                                          \
    INT_FN(dst, int32_t)                                                                           \
    INT_FN(dst, uint64_t)                                                                          \
    INT_FN(dst, int64_t)
#define INT_ROW(dst)                                                                               \
    {                                                                                              \
        int_##dst##_uint8_t, int_##dst##_int8_t, int_##dst##_uint16_t, int_##dst##_int16_t,        \
            int_##dst##_uint32_t, int_##dst##_int32_t, int_##dst##_uint64_t, int_##dst##_int64_t   \
    }

INT_FNS(uint8_t)
INT_FNS(int8_t)
INT_FNS(uint16_t)
INT_FNS(int16_t)
INT_FNS(uint32_t)
INT_FNS(int32_t)
INT_FNS(uint64_t)
INT_FNS(int64_t)

static bool is_int(enum tow_num_type t)
{
    return t >= TOW_NUM_U8 && t <= TOW_NUM_S64;
}

static bool is_float(enum tow_num_type t)
{
    return t >= TOW_NUM_F16 && t <= TOW_NUM_F64;
}

static bool is_signed(enum tow_num_type t)
{
    return t == TOW_NUM_S8 || t == TOW_NUM_S16 || t == TOW_NUM_S32 || t == TOW_NUM_S64;
}

static unsigned int_bits(enum tow_num_type t)
{
    return 8u << ((t - TOW_NUM_U8) / 2);
}

/* Lane l of an integer row, extended to 64 bits as its type says. */
static uint64_t int_load(enum tow_num_type t, const void *row, int l)
{
    const uint32_t *narrow = row;
    const uint64_t *wide = row;
    switch (t) {
    case TOW_NUM_U8:
        return (uint8_t)narrow[l];
    case TOW_NUM_S8:
        return (uint64_t)(int64_t)(int8_t)narrow[l];
    case TOW_NUM_U16:
        return (uint16_t)narrow[l];
    case TOW_NUM_S16:
        return (uint64_t)(int64_t)(int16_t)narrow[l];
    case TOW_NUM_U32:
        return narrow[l];
    case TOW_NUM_S32:
        return (uint64_t)(int64_t)(int32_t)narrow[l];
    default:
        return wide[l];
    }
}

static void int_store(enum tow_num_type t, void *row, int l, uint64_t v)
{
    if (tow_num_row_bytes(t) == 8) {
        ((uint64_t *)row)[l] = v;
    } else {
        ((uint32_t *)row)[l] = (uint32_t)v;
    }
}

static void int_sat(const struct tow_num_form *form, void *d, const void *a, const void *b,
                    const void *c)
{
    unsigned bits = int_bits(form->type);
    bool to_signed = is_signed(form->type), from_signed = is_signed(form->src);
    uint64_t top = to_signed ? ((uint64_t)1 << (bits - 1)) - 1 : UINT64_MAX >> (64 - bits);
    int64_t bottom = to_signed ? -(int64_t)top - 1 : 0;
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        uint64_t v = int_load(form->src, a, l);
        if (from_signed && (int64_t)v < 0) {
            v = (int64_t)v < bottom ? (uint64_t)bottom : v;
        } else {
            v = v > top ? top : v;
        }
        int_store(form->type, d, l, v);
    }
}

/* ---- float to integer ----------------------------------------------------------------- */

/* Sources as doubles. Of f16 and bf16 every NaN is alike; of f32 and f64 the payload stays. */
static void load_doubles(enum tow_num_type t, bool ftz, const void *row, double *v)
{
    const uint32_t *narrow = row;
    const uint64_t *wide = row;
    switch (t) {
    case TOW_NUM_F16:
        TOW_EACH_LANE
        {
            v[l] = tow_f32(tow_f32_canon(tow_f32_bits(tow_h2f(narrow[l] & 0xffffu))));
        }
        break;
    case TOW_NUM_BF16:
        TOW_EACH_LANE
        {
            v[l] = tow_bf2f(narrow[l]);
        }
        break;
    case TOW_NUM_F32:
        if (ftz) {
            TOW_EACH_LANE
            {
                v[l] = tow_f32(tow_f32_canon(tow_f32_ftz(narrow[l])));
            }
        } else {
            TOW_EACH_LANE
            {
                v[l] = tow_f32(narrow[l]);
            }
        }
        break;
    default:
        TOW_EACH_LANE
        {
            v[l] = tow_f64(wide[l]);
        }
        break;
    }
}

static void round_doubles(enum tow_num_round round, double *v)
{
    switch (round) {
    case TOW_NUM_RNI:
        TOW_EACH_LANE
        {
            v[l] = __builtin_rint(v[l]);
        }
        break;
    case TOW_NUM_RZI:
        TOW_EACH_LANE
        {
            v[l] = __builtin_trunc(v[l]);
        }
        break;
    case TOW_NUM_RMI:
        TOW_EACH_LANE
        {
            v[l] = __builtin_floor(v[l]);
        }
        break;
    case TOW_NUM_RPI:
        TOW_EACH_LANE
        {
            v[l] = __builtin_ceil(v[l]);
        }
        break;
    default:
        break;
    }
}

TOW_HOT static void float_to_int(const struct tow_num_form *form, void *d, const void *a,
                                 const void *b, const void *c)
{
    double v[TOW_NUM_LANES];
    load_doubles(form->src, form->ftz, a, v);
    round_doubles(form->round, v);
    unsigned bits = int_bits(form->type);
    bool to_signed = is_signed(form->type);
    /* NaN is 0, but where 64-bit values take part the sign bit alone */
    bool zero = form->src != TOW_NUM_F64 && bits < 64;
    uint64_t nan = zero ? 0 : (uint64_t)1 << (bits - 1);
    if (bits == 64) {
        uint64_t *rd = d;
        for (int l = 0; l < TOW_NUM_LANES; l++) {
            double x = v[l];
            uint64_t r;
            if (x != x) {
                r = nan;
            } else if (to_signed) {
                r = x >= 0x1p63   ? (uint64_t)INT64_MAX
                    : x < -0x1p63 ? (uint64_t)INT64_MIN
                                  : (uint64_t)(int64_t)x;
            } else {
                r = x >= 0x1p64 ? UINT64_MAX : x <= 0 ? 0 : (uint64_t)x;
            }
            rd[l] = r;
        }
        return;
    }
    uint32_t *rd = d;
    double top =
        to_signed ? (double)(((uint64_t)1 << (bits - 1)) - 1) : (double)(((uint64_t)1 << bits) - 1);
    double bottom = to_signed ? -top - 1 : 0;
    uint32_t nan32 = (uint32_t)(to_signed ? (uint64_t)(int64_t) - (int64_t)nan : nan);
    TOW_EACH_LANE
    {
        double x = v[l];
        double y = x > top ? top : x;
        y = y < bottom ? bottom : y;
        y = x == x ? y : 0.0;
        uint32_t r = (uint32_t)(int64_t)y;
        rd[l] = x == x ? r : nan32;
    }
}

/* cvt.rzi.s32.f32 and u32: truncation in 32 bits alone. */
TOW_HOT static void f32_to_s32_rzi(const struct tow_num_form *form, void *d, const void *a,
                                   const void *b, const void *c)
{
    int32_t *rd = d;
    const uint32_t *ra = a;
    TOW_EACH_LANE
    {
        float x = tow_f32(ra[l]);
        bool high = x >= 0x1p31f, low = x < -0x1p31f;
        float y = high || low || x != x ? 0.0f : x;
        int32_t r = (int32_t)y;
        r = high ? INT32_MAX : r;
        rd[l] = low ? INT32_MIN : r;
    }
}

/* ---- to float ------------------------------------------------------------------------- */

/* A 64-bit magnitude as a double that is exact or, beyond 53 bits, rounded to odd. */
static double odd_double(uint64_t m)
{
    if (m < (uint64_t)1 << 53) {
        return (double)m;
    }
    int shift = 11 - __builtin_clzll(m) + 1;
    uint64_t kept = m >> shift;
    bool lost = (kept << shift) != m;
    return (double)(kept | lost) * (double)((uint64_t)1 << shift);
}

static void load_ints(enum tow_num_type t, const void *row, double *v)
{
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        uint64_t x = int_load(t, row, l);
        bool negative = is_signed(t) && (int64_t)x < 0;
        double m = odd_double(negative ? -x : x);
        v[l] = negative ? -m : m;
    }
}

/* From the nearest value of a narrow format to the one a direction asks for. `back` is what `r`
 * (with its sign in bit `sign`) means, `f` the exact or odd-rounded source. */
static uint32_t num_cvt_steer(uint32_t r, uint32_t sign, float back, float f,
                              enum tow_num_round round)
{
    bool negative = (r & sign) != 0;
    bool down = (round == TOW_NUM_RM || (round == TOW_NUM_RZ && !negative)) && back > f;
    bool up = (round == TOW_NUM_RP || (round == TOW_NUM_RZ && negative)) && back < f;
    if (down) {
        return negative ? r + 1 : r - 1;
    }
    if (up) {
        return negative ? r - 1 : r + 1;
    }
    return r;
}

struct ending {
    enum tow_num_round round;
    bool ftz, sat, relu, satfinite;
    bool keep_nan; /* of f64: its sign and the upper bits of its payload stay */
};

static uint32_t to_half(double v, bool bf, struct ending e)
{
    uint32_t inf = bf ? 0x7f80u : 0x7c00u, one = bf ? 0x3f80u : 0x3c00u;
    float f = tow_d2f_odd(v);
    uint32_t r = bf ? tow_f2bf(f) : tow_f2h(f);
    if (f == f) {
        r = num_cvt_steer(r, 0x8000u, bf ? tow_bf2f(r) : tow_h2f(r), f, e.round);
        if (e.satfinite && (r & 0x7fffu) == inf) {
            r--;
        }
        if ((e.relu || e.sat) && (r & 0x8000u)) {
            r = 0;
        }
        if (e.sat && r > one) {
            r = one;
        }
    } else if (e.sat) {
        r = 0;
    } else if (e.keep_nan) {
        uint64_t bits = tow_f64_bits(v);
        uint32_t payload = (uint32_t)(bits >> (bf ? 45 : 42)) & (bf ? 0x7fu : 0x3ffu);
        r = (uint32_t)(bits >> 48 & 0x8000u) | inf | (bf ? 0x40u : 0x200u) | payload;
    }
    return r;
}

static uint32_t to_f32(double v, struct ending e)
{
    uint32_t r =
        tow_d2f_directed(v, e.round == TOW_NUM_RZ, e.round == TOW_NUM_RM, e.round == TOW_NUM_RP);
    if (v != v && e.keep_nan && !e.sat) {
        uint64_t bits = tow_f64_bits(v);
        return (uint32_t)(bits >> 32 & 0x80000000u) | 0x7fc00000u |
               ((uint32_t)(bits >> 29) & 0x7fffffu);
    }
    r = e.sat ? tow_f32_sat(r) : tow_f32_canon(r);
    return e.ftz ? tow_f32_ftz(r) : r;
}

/* tf32 is f32 with the last 13 bits zero. */
static uint32_t to_tf32(uint32_t a, struct ending e)
{
    uint32_t x = a & 0x7fffffffu, sign = a & 0x80000000u;
    if (x > 0x7f800000u && e.round != TOW_NUM_RNA) {
        return TOW_NUM_NAN_F32 & ~0x1fffu;
    }
    if (x > 0x7f800000u) { /* rna is done by integer instructions, which leave a NaN what it is */
        x &= ~0x1fffu;
        x -= e.satfinite ? 0x2000u : 0;
        return sign | x;
    }
    if (x < 0x7f800000u) {
        if (e.round == TOW_NUM_RNA) {
            x += 0x1000u;
        } else if (e.round == TOW_NUM_RN) {
            x += 0xfffu + ((x >> 13) & 1);
        }
        x &= ~0x1fffu;
    }
    if (e.satfinite && x == 0x7f800000u) {
        x = 0x7f7fe000u;
    }
    return e.relu && sign ? 0 : sign | x;
}

static struct ending ending_of(const struct tow_num_form *form)
{
    struct ending e = {.round = form->round,
                       .ftz = form->ftz,
                       .sat = form->sat,
                       .relu = form->relu,
                       .satfinite = form->satfinite,
                       .keep_nan = form->src == TOW_NUM_F64};
    return e;
}

static void store_doubles(const struct tow_num_form *form, void *d, const double *v)
{
    uint32_t *narrow = d;
    uint64_t *wide = d;
    const struct ending e = ending_of(form);
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        switch (form->type) {
        case TOW_NUM_F16:
            narrow[l] = to_half(v[l], false, e);
            break;
        case TOW_NUM_BF16:
            narrow[l] = to_half(v[l], true, e);
            break;
        case TOW_NUM_F32:
            narrow[l] = to_f32(v[l], e);
            break;
        default: {
            uint64_t r = tow_f64_bits(v[l]);
            wide[l] = e.sat ? tow_f64_sat(r) : tow_f64_pick_nan(r, r, r, r);
            break;
        }
        }
    }
}

static void float_to_float(const struct tow_num_form *form, void *d, const void *a, const void *b,
                           const void *c)
{
    double v[TOW_NUM_LANES];
    if (form->src == TOW_NUM_F16 && form->type == TOW_NUM_F64) { /* here a NaN keeps its payload */
        const uint32_t *ra = a;
        TOW_EACH_LANE
        {
            v[l] = tow_h2f(ra[l] & 0xffffu);
        }
    } else { /* to f16, .ftz does not touch the source */
        load_doubles(form->src, form->ftz && form->type != TOW_NUM_F16, a, v);
    }
    round_doubles(form->round, v);
    store_doubles(form, d, v);
}

static void int_to_float(const struct tow_num_form *form, void *d, const void *a, const void *b,
                         const void *c)
{
    double v[TOW_NUM_LANES];
    load_ints(form->src, a, v);
    store_doubles(form, d, v);
}

/* 64 bits do not fit a double: the two halves are added with the rounding that is asked for. */
static void int_to_f64(const struct tow_num_form *form, void *d, const void *a, const void *b,
                       const void *c)
{
    const struct tow_num_form add = {.op = TOW_NUM_ADD, .type = TOW_NUM_F64, .round = form->round};
    double high[TOW_NUM_LANES], low[TOW_NUM_LANES];
    uint64_t *rd = d;
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        uint64_t x = int_load(form->src, a, l);
        double upper = is_signed(form->src) ? (double)(int32_t)(x >> 32) : (double)(x >> 32);
        high[l] = upper * 0x1p32;
        low[l] = (double)(uint32_t)x;
    }
    tow_num_find_f64 (&add)(&add, d, high, low, NULL);
    for (int l = 0; form->sat && l < TOW_NUM_LANES; l++) {
        rd[l] = tow_f64_sat(rd[l]);
    }
}

#define SIMPLE_FN(name, row_d, row_a, expr)                                                        \
    TOW_HOT static void name(const struct tow_num_form *form, void *d, const void *a,              \
                             const void *b, const void *c)                                         \
    {                                                                                              \
        row_d *rd = d;                                                                             \
        const row_a *ra = a;                                                                       \
        TOW_EACH_LANE                                                                              \
        {                                                                                          \
            row_a x = ra[l];                                                                       \
            rd[l] = expr;                                                                          \
        }                                                                                          \
    }

SIMPLE_FN(s32_to_f32, uint32_t, uint32_t, tow_f32_bits((float)(int32_t)x))
SIMPLE_FN(u32_to_f32, uint32_t, uint32_t, tow_f32_bits((float)x))
SIMPLE_FN(s64_to_f32, uint32_t, uint64_t, tow_f32_bits((float)(int64_t)x))
SIMPLE_FN(u64_to_f32, uint32_t, uint64_t, tow_f32_bits((float)x))
SIMPLE_FN(s32_to_f64, uint64_t, uint32_t, tow_f64_bits((double)(int32_t)x))
SIMPLE_FN(u32_to_f64, uint64_t, uint32_t, tow_f64_bits((double)x))
SIMPLE_FN(s64_to_f64, uint64_t, uint64_t, tow_f64_bits((double)(int64_t)x))
SIMPLE_FN(u64_to_f64, uint64_t, uint64_t, tow_f64_bits((double)x))
SIMPLE_FN(f32_to_f64, uint64_t, uint32_t, tow_f64_bits((double)tow_f32(x)))
/* a NaN keeps its sign and the upper bits of its payload, as processors do it, too */
SIMPLE_FN(f64_to_f32, uint32_t, uint64_t, tow_f32_bits((float)tow_f64(x)))
SIMPLE_FN(f16_to_f32, uint32_t, uint32_t, tow_f32_canon(tow_f32_bits(tow_h2f(x & 0xffffu))))
SIMPLE_FN(bf16_to_f32, uint32_t, uint32_t, x << 16)
SIMPLE_FN(f32_to_f16, uint32_t, uint32_t, tow_f2h(tow_f32(x)))
SIMPLE_FN(f32_to_bf16, uint32_t, uint32_t, tow_f2bf(tow_f32(x)))
SIMPLE_FN(f32_to_f32, uint32_t, uint32_t, x)
SIMPLE_FN(f32_saturate, uint32_t, uint32_t, tow_f32_sat(x))
SIMPLE_FN(f32_rni, uint32_t, uint32_t, tow_f32_canon(tow_f32_bits(__builtin_rintf(tow_f32(x)))))
SIMPLE_FN(f32_rzi, uint32_t, uint32_t, tow_f32_canon(tow_f32_bits(__builtin_truncf(tow_f32(x)))))
SIMPLE_FN(f32_rmi, uint32_t, uint32_t, tow_f32_canon(tow_f32_bits(__builtin_floorf(tow_f32(x)))))
SIMPLE_FN(f32_rpi, uint32_t, uint32_t, tow_f32_canon(tow_f32_bits(__builtin_ceilf(tow_f32(x)))))
SIMPLE_FN(f64_to_f64, uint64_t, uint64_t, x)

static void f32_to_tf32(const struct tow_num_form *form, void *d, const void *a, const void *b,
                        const void *c)
{
    uint32_t *rd = d;
    const uint32_t *ra = a;
    const struct ending e = ending_of(form);
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        rd[l] = to_tf32(ra[l], e);
    }
}

static void f32_to_pair(const struct tow_num_form *form, void *d, const void *a, const void *b,
                        const void *c)
{
    uint32_t *rd = d;
    const uint32_t *ra = a, *rb = b;
    const struct ending e = ending_of(form);
    bool bf = form->type == TOW_NUM_BF16X2;
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        rd[l] = to_half(tow_f32(ra[l]), bf, e) << 16 | to_half(tow_f32(rb[l]), bf, e);
    }
}

/* ---- which form is which -------------------------------------------------------------- */

static bool num_cvt_frnd(enum tow_num_round r)
{
    return r >= TOW_NUM_RN && r <= TOW_NUM_RP;
}

static bool num_cvt_irnd(enum tow_num_round r)
{
    return r >= TOW_NUM_RNI && r <= TOW_NUM_RPI;
}

static tow_num_fn *find_int_to_float(const struct tow_num_form *form)
{
    bool simple = form->round == TOW_NUM_RN && !form->sat;
    if (!num_cvt_frnd(form->round)) {
        return NULL;
    }
    if (simple && form->type == TOW_NUM_F32) {
        switch (form->src) {
        case TOW_NUM_S32:
            return s32_to_f32;
        case TOW_NUM_U32:
            return u32_to_f32;
        case TOW_NUM_S64:
            return s64_to_f32;
        case TOW_NUM_U64:
            return u64_to_f32;
        default:
            break;
        }
    }
    if (simple && form->type == TOW_NUM_F64) {
        switch (form->src) {
        case TOW_NUM_S32:
            return s32_to_f64;
        case TOW_NUM_U32:
            return u32_to_f64;
        case TOW_NUM_S64:
            return s64_to_f64;
        case TOW_NUM_U64:
            return u64_to_f64;
        default:
            break;
        }
    }
    return form->type == TOW_NUM_F64 ? int_to_f64 : int_to_float;
}

static unsigned num_cvt_precision(enum tow_num_type t)
{
    return t == TOW_NUM_F16 ? 11 : t == TOW_NUM_BF16 ? 8 : t == TOW_NUM_F32 ? 24 : 53;
}

static tow_num_fn *find_float_to_float(const struct tow_num_form *form)
{
    enum tow_num_type to = form->type, from = form->src;
    bool bare = !form->ftz && !form->sat && !form->relu && !form->satfinite;
    bool half = to == TOW_NUM_F16 || to == TOW_NUM_BF16;
    if ((form->relu || form->satfinite) && (!half || from == to)) {
        return NULL;
    }
    if (to == from) {
        if (form->round != TOW_NUM_ROUND_NONE && !num_cvt_irnd(form->round)) {
            return NULL;
        }
        if (bare && form->round == TOW_NUM_ROUND_NONE && !half) {
            return to == TOW_NUM_F64 ? f64_to_f64 : f32_to_f32; /* a plain move */
        }
        if (to == TOW_NUM_F32 && form->sat && !form->ftz && form->round == TOW_NUM_ROUND_NONE) {
            return f32_saturate;
        }
        if (to == TOW_NUM_F32 && bare) {
            return form->round == TOW_NUM_RNI   ? f32_rni
                   : form->round == TOW_NUM_RZI ? f32_rzi
                   : form->round == TOW_NUM_RMI ? f32_rmi
                                                : f32_rpi;
        }
        return float_to_float;
    }
    bool f16_and_bf16 = half && (from == TOW_NUM_F16 || from == TOW_NUM_BF16);
    if (f16_and_bf16) { /* the assembler takes these without a rounding, too: nearest */
        if (form->round != TOW_NUM_ROUND_NONE && !num_cvt_frnd(form->round)) {
            return NULL;
        }
    } else if (num_cvt_precision(to) < num_cvt_precision(from)) {
        if (!num_cvt_frnd(form->round)) {
            return NULL;
        }
    } else if (form->round != TOW_NUM_ROUND_NONE &&
               !(from == TOW_NUM_BF16 && num_cvt_frnd(form->round))) { /* there without effect */
        return NULL;
    }
    if (bare && to == TOW_NUM_F32 && from == TOW_NUM_BF16) {
        return bf16_to_f32;
    }
    if (bare && (form->round == TOW_NUM_ROUND_NONE || form->round == TOW_NUM_RN)) {
        if (to == TOW_NUM_F64 && from == TOW_NUM_F32) {
            return f32_to_f64;
        }
        if (to == TOW_NUM_F32 && from == TOW_NUM_F64) {
            return f64_to_f32;
        }
        if (to == TOW_NUM_F32 && from == TOW_NUM_F16) {
            return f16_to_f32;
        }
        if (from == TOW_NUM_F32) {
            return to == TOW_NUM_F16 ? f32_to_f16 : f32_to_bf16;
        }
    }
    return float_to_float;
}

tow_num_fn *tow_num_find_cvt(const struct tow_num_form *form)
{
    static tow_num_fn *const ints[8][8] = {
        INT_ROW(uint8_t),  INT_ROW(int8_t),  INT_ROW(uint16_t), INT_ROW(int16_t),
        INT_ROW(uint32_t), INT_ROW(int32_t), INT_ROW(uint64_t), INT_ROW(int64_t),
    };
    enum tow_num_type to = form->type, from = form->src;
    if (form->op != TOW_NUM_CVT || form->approx || form->full || form->nan || form->xorsign_abs ||
        form->three || form->oob) {
        return NULL;
    }
    if (is_int(to) && is_int(from)) {
        if (form->ftz || form->relu || form->satfinite || form->round != TOW_NUM_ROUND_NONE) {
            return NULL;
        }
        return form->sat ? int_sat : ints[to - TOW_NUM_U8][from - TOW_NUM_U8];
    }
    if (is_int(to) && is_float(from)) {
        if (!num_cvt_irnd(form->round) || form->relu || form->satfinite) {
            return NULL;
        }
        /* a flushed subnormal truncates to 0 as well */
        bool fast = to == TOW_NUM_S32 && from == TOW_NUM_F32 && form->round == TOW_NUM_RZI;
        return fast ? f32_to_s32_rzi : float_to_int;
    }
    if (is_float(to) && is_int(from)) {
        return form->relu || form->satfinite ? NULL : find_int_to_float(form);
    }
    if (is_float(to) && is_float(from)) {
        return find_float_to_float(form);
    }
    if (to == TOW_NUM_TF32 && from == TOW_NUM_F32 && !form->sat && !form->ftz) {
        bool known =
            form->round == TOW_NUM_RNA || form->round == TOW_NUM_RN || form->round == TOW_NUM_RZ;
        return known && !(form->relu && form->round == TOW_NUM_RNA) ? f32_to_tf32 : NULL;
    }
    if ((to == TOW_NUM_F16X2 || to == TOW_NUM_BF16X2) && from == TOW_NUM_F32 && !form->sat &&
        !form->ftz) {
        return form->round == TOW_NUM_RN || form->round == TOW_NUM_RZ ? f32_to_pair : NULL;
    }
    return NULL;
}
