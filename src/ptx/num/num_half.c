/* SPDX-License-Identifier: Apache-2.0 */
/* f16 and bf16 arithmetic, single and packed in pairs. All of it is correctly rounded: sums in f32
 * or, for fma, in double rounded to odd, which leave nothing for the last rounding to get wrong.
 * Any NaN result is 0x7fff. */
#include "ptx/num/num_bits.h"

struct half {
    bool bf;
    bool ftz, sat, relu, oob, nan, xorsign_abs;
};

TOW_INLINE struct half half_of(const struct tow_num_form *form, bool bf)
{
    struct half h = {.bf = bf,
                     .ftz = form->ftz,
                     .sat = form->sat,
                     .relu = form->relu,
                     .oob = form->oob,
                     .nan = form->nan,
                     .xorsign_abs = form->xorsign_abs};
    return h;
}

static bool num_half_modified(struct half h)
{
    return h.ftz || h.sat || h.relu || h.oob || h.nan || h.xorsign_abs;
}

TOW_INLINE uint32_t exp_mask(bool bf)
{
    return bf ? 0x7f80u : 0x7c00u;
}

TOW_INLINE uint32_t num_half_flush(uint32_t a, struct half h)
{
    uint32_t flushed = tow_pick32((a & exp_mask(h.bf)) == 0, a & 0x8000u, a);
    return tow_pick32(h.ftz, flushed, a);
}

TOW_INLINE float num_half_widen(uint32_t a, struct half h)
{
    a = num_half_flush(a & 0xffffu, h);
    return h.bf ? tow_bf2f(a) : tow_h2f(a);
}

TOW_INLINE uint32_t num_half_narrow(float f, struct half h)
{
    return h.bf ? tow_f2bf(f) : tow_f2h(f);
}

/* ftz, sat and relu of a result. */
TOW_INLINE uint32_t num_half_finish(uint32_t r, struct half h)
{
    uint32_t one = h.bf ? 0x3f80u : 0x3c00u;
    bool nan = (r & 0x7fffu) > exp_mask(h.bf);
    bool negative = (r & 0x8000u) != 0 && !nan;
    r = num_half_flush(r, h);
    uint32_t relu = tow_pick32(negative, 0, r);
    r = tow_pick32(h.relu, relu, r);
    uint32_t sat = tow_pick32(negative || nan, 0, tow_pick32(r > one, one, r));
    return tow_pick32(h.sat, sat, r);
}

TOW_INLINE uint32_t num_half_outside(uint32_t r, uint32_t a, uint32_t b, struct half h)
{
    bool oob = ((a & 0xffffu) == 0xffffu) | ((b & 0xffffu) == 0xffffu);
    return tow_pick32(h.oob & oob, 0, r);
}

TOW_INLINE uint32_t half_add(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    return num_half_outside(
        num_half_finish(num_half_narrow(num_half_widen(a, h) + num_half_widen(b, h), h), h), a, b,
        h);
}

TOW_INLINE uint32_t half_sub(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    return num_half_outside(
        num_half_finish(num_half_narrow(num_half_widen(a, h) - num_half_widen(b, h), h), h), a, b,
        h);
}

TOW_INLINE uint32_t half_mul(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    /* of bf16 the product may be subnormal in f32 */
    float p = h.bf ? tow_d2f_odd((double)num_half_widen(a, h) * num_half_widen(b, h))
                   : num_half_widen(a, h) * num_half_widen(b, h);
    /* what is flushed is known before rounding */
    p = h.ftz & !h.bf & (__builtin_fabsf(p) < 0x1p-14f) ? __builtin_copysignf(0.0f, p) : p;
    return num_half_outside(num_half_finish(num_half_narrow(p, h), h), a, b, h);
}

TOW_INLINE uint32_t half_fma(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    float s;
    if (h.bf) {
        s = tow_d2f_odd(
            tow_sum_odd((double)num_half_widen(a, h) * num_half_widen(b, h), num_half_widen(c, h)));
    } else { /* the product of two f16 is exact in f32 */
        s = tow_sum_odd_f32(num_half_widen(a, h) * num_half_widen(b, h), num_half_widen(c, h));
    }
    return num_half_outside(num_half_finish(num_half_narrow(s, h), h), a, b, h);
}

TOW_INLINE uint32_t half_neg(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    a = num_half_flush(a & 0xffffu, h);
    return tow_pick32((a & 0x7fffu) > exp_mask(h.bf), TOW_NUM_NAN_F16, a ^ 0x8000u);
}

TOW_INLINE uint32_t half_abs(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    a = num_half_flush(a & 0xffffu, h);
    return tow_pick32((a & 0x7fffu) > exp_mask(h.bf), TOW_NUM_NAN_F16, a & 0x7fffu);
}

TOW_INLINE int32_t num_half_order(uint32_t a)
{
    return (a & 0x8000u) ? -(int32_t)(a & 0x7fffu) - 1 : (int32_t)a;
}

TOW_INLINE uint32_t num_half_pick(uint32_t a, uint32_t b, bool max, struct half h)
{
    bool a_nan = (a & 0x7fffu) > exp_mask(h.bf), b_nan = (b & 0x7fffu) > exp_mask(h.bf);
    bool take_a =
        max ? num_half_order(a) > num_half_order(b) : num_half_order(a) < num_half_order(b);
    take_a = (take_a & !a_nan) | b_nan;
    bool none = h.nan ? a_nan | b_nan : a_nan & b_nan;
    return tow_pick32(none, TOW_NUM_NAN_F16, tow_pick32(take_a, a, b));
}

TOW_INLINE uint32_t num_half_minmax(uint32_t a, uint32_t b, bool max, struct half h)
{
    a = num_half_flush(a & 0xffffu, h);
    b = num_half_flush(b & 0xffffu, h);
    uint32_t mask = h.xorsign_abs ? 0x7fffu : 0xffffu;
    uint32_t r = num_half_pick(a & mask, b & mask, max, h);
    bool nan = (r & 0x7fffu) > exp_mask(h.bf);
    return h.xorsign_abs && !nan ? r | ((a ^ b) & 0x8000u) : r;
}

TOW_INLINE uint32_t half_min(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    return num_half_minmax(a, b, false, h);
}

TOW_INLINE uint32_t half_max(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    return num_half_minmax(a, b, true, h);
}

TOW_INLINE uint32_t half_ex2(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    return num_half_finish(num_half_narrow(tow_approx_ex2(num_half_widen(a, h)), h), h);
}

TOW_INLINE uint32_t half_tanh(uint32_t a, uint32_t b, uint32_t c, struct half h)
{
    return num_half_finish(num_half_narrow(tow_approx_tanh(num_half_widen(a, h)), h), h);
}

/* Four functions per op: f16, f16x2, bf16, bf16x2. Rows that an op does not have stand in as `a`.
 */
#define HALF_LOOP(core, pair, h)                                                                   \
    TOW_EACH_LANE                                                                                  \
    {                                                                                              \
        uint32_t r = core(ra[l], rb[l], rc[l], h);                                                 \
        if (pair) {                                                                                \
            r |= core(ra[l] >> 16, rb[l] >> 16, rc[l] >> 16, h) << 16;                             \
        }                                                                                          \
        rd[l] = r;                                                                                 \
    }
#define HALF_FN(name, core, sources, bf, pair)                                                     \
    TOW_HOT static void name(const struct tow_num_form *form, void *d, const void *a,              \
                             const void *b, const void *c)                                         \
    {                                                                                              \
        uint32_t *rd = d;                                                                          \
        const struct half h = half_of(form, bf), plain = {bf};                                     \
        const uint32_t *ra = a, *rb = sources > 1 ? b : a;                                         \
        const uint32_t *rc = sources > 2 ? c : a;                                                  \
        if (num_half_modified(h)) {                                                                \
            HALF_LOOP(core, pair, h)                                                               \
        } else {                                                                                   \
            HALF_LOOP(core, pair, plain)                                                           \
        }                                                                                          \
    }
#define HALF_FNS(op, sources)                                                                      \
    HALF_FN(f16_##op, half_##op, sources, false, false)                                            \
    HALF_FN(f16x2_##op, half_##op, sources, false, true)                                           \
    HALF_FN(bf16_##op, half_##op, sources, true, false)                                            \
    HALF_FN(bf16x2_##op, half_##op, sources, true, true)

HALF_FNS(add, 2)
HALF_FNS(sub, 2)
HALF_FNS(mul, 2)
HALF_FNS(fma, 3)
HALF_FNS(neg, 1)
HALF_FNS(abs, 1)
HALF_FNS(min, 2)
HALF_FNS(max, 2)
HALF_FNS(ex2, 1)
HALF_FNS(tanh, 1)

#define HALF_ROW(op)                                                                               \
    {                                                                                              \
        f16_##op, f16x2_##op, bf16_##op, bf16x2_##op                                               \
    }

tow_num_fn *tow_num_find_half(const struct tow_num_form *form)
{
    static tow_num_fn *const table[][4] = {
        [TOW_NUM_ADD] = HALF_ROW(add), [TOW_NUM_SUB] = HALF_ROW(sub),
        [TOW_NUM_MUL] = HALF_ROW(mul), [TOW_NUM_FMA] = HALF_ROW(fma),
        [TOW_NUM_NEG] = HALF_ROW(neg), [TOW_NUM_ABS] = HALF_ROW(abs),
        [TOW_NUM_MIN] = HALF_ROW(min), [TOW_NUM_MAX] = HALF_ROW(max),
        [TOW_NUM_EX2] = HALF_ROW(ex2), [TOW_NUM_TANH] = HALF_ROW(tanh),
    };
    int column = form->type == TOW_NUM_F16      ? 0
                 : form->type == TOW_NUM_F16X2  ? 1
                 : form->type == TOW_NUM_BF16   ? 2
                 : form->type == TOW_NUM_BF16X2 ? 3
                                                : -1;
    enum tow_num_op op = form->op;
    bool bf = column >= 2;
    bool sum = op == TOW_NUM_ADD || op == TOW_NUM_SUB || op == TOW_NUM_MUL || op == TOW_NUM_FMA;
    if (column < 0 || op >= sizeof table / sizeof table[0] || !table[op][0] ||
        (form->src != TOW_NUM_NONE && form->src != form->type) || form->full || form->satfinite) {
        return NULL;
    }
    if (form->round != TOW_NUM_ROUND_NONE && !(sum && form->round == TOW_NUM_RN)) {
        return NULL;
    }
    if (form->approx != (op == TOW_NUM_EX2 || op == TOW_NUM_TANH)) {
        return NULL;
    }
    if ((form->sat && (!sum || bf)) || (form->relu && op != TOW_NUM_FMA) || (form->oob && !sum) ||
        (form->relu && form->sat)) {
        return NULL;
    }
    bool pick = op == TOW_NUM_MIN || op == TOW_NUM_MAX;
    /* three sources are for f32 alone */
    if (((form->nan || form->xorsign_abs) && !pick) || form->three || form->abs) {
        return NULL;
    }
    if (form->ftz && (op == TOW_NUM_TANH || (bf && op != TOW_NUM_EX2))) {
        return NULL;
    }
    return table[op][column];
}

uint32_t tow_f16_to_f32(uint32_t a)
{
    return tow_f32_bits(tow_h2f(a & 0xffffu));
}

uint32_t tow_f32_to_f16(uint32_t a)
{
    return tow_f2h(tow_f32(a));
}

uint32_t tow_f32_to_bf16(uint32_t a)
{
    return tow_f2bf(tow_f32(a));
}

static const struct half plain_f16 = {.bf = false}, plain_bf16 = {.bf = true};

uint32_t tow_f16_add(uint32_t a, uint32_t b)
{
    return half_add(a, b, 0, plain_f16);
}

uint32_t tow_bf16_add(uint32_t a, uint32_t b)
{
    return half_add(a, b, 0, plain_bf16);
}

uint32_t tow_f16_min(uint32_t a, uint32_t b)
{
    return half_min(a, b, 0, plain_f16);
}

uint32_t tow_f16_max(uint32_t a, uint32_t b)
{
    return half_max(a, b, 0, plain_f16);
}

uint32_t tow_bf16_min(uint32_t a, uint32_t b)
{
    return half_min(a, b, 0, plain_bf16);
}

uint32_t tow_bf16_max(uint32_t a, uint32_t b)
{
    return half_max(a, b, 0, plain_bf16);
}
