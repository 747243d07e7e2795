/* SPDX-License-Identifier: Apache-2.0 */
/* cvt of the 8-, 6- and 4-bit floats, always in pairs, and cvt.pack. */
#include "ptx/num/num_bits.h"

struct small {
    uint8_t exp_bits, man_bits, bias;
    uint8_t largest; /* code of the largest finite value */
    uint8_t nan;     /* code that a NaN becomes */
};

static const struct small *small_of(enum tow_num_type type)
{
    static const struct small e4m3 = {4, 3, 7, 0x7e, 0x7f}, e5m2 = {5, 2, 15, 0x7b, 0x7f},
                              e2m1 = {2, 1, 1, 0x07, 0x07}, e2m3 = {2, 3, 1, 0x1f, 0x1f},
                              e3m2 = {3, 2, 3, 0x1f, 0x1f};
    switch (type) {
    case TOW_NUM_E4M3X2:
        return &e4m3;
    case TOW_NUM_E5M2X2:
        return &e5m2;
    case TOW_NUM_E2M1X2:
        return &e2m1;
    case TOW_NUM_E2M3X2:
        return &e2m3;
    case TOW_NUM_E3M2X2:
        return &e3m2;
    default:
        return NULL;
    }
}

/* Nearest even, largest finite value where it overflows. */
static uint32_t num_cvt_small_encode(const struct small *s, uint32_t f32, bool relu)
{
    uint32_t x = f32 & 0x7fffffffu;
    uint32_t sign = (f32 >> 31) << (s->exp_bits + s->man_bits);
    if (x > 0x7f800000u) {
        return s->nan;
    }
    if (relu && sign) {
        return 0;
    }
    int exp = (int)(x >> 23) - 127;
    uint32_t code;
    if (exp > 64) {
        code = s->largest;
    } else if (exp < -64) {
        code = 0;
    } else {
        /* The value in units of the format's last place at that exponent. Rounding up may carry
         * into the next exponent, which is the next code as well. */
        int least = 1 - s->bias;
        int scale = exp < least ? least : exp;
        uint32_t mant = (x & 0x007fffffu) | 0x00800000u;
        int drop = 23 - s->man_bits + (scale - exp);
        uint32_t kept = 0, rest = mant, half = 0;
        if (drop < 32) {
            kept = mant >> drop;
            rest = mant & (((uint32_t)1 << drop) - 1);
            half = (uint32_t)1 << (drop - 1);
        }
        if (half && (rest > half || (rest == half && (kept & 1)))) {
            kept++;
        }
        code = kept + (exp < least ? 0 : (uint32_t)(exp - least) << s->man_bits);
        code = code > s->largest ? s->largest : code;
    }
    return sign | code;
}

/* Every value of these formats is a float exactly. */
static float num_cvt_small_decode(enum tow_num_type type, uint32_t code)
{
    const struct small *s = small_of(type);
    uint32_t man = code & ((1u << s->man_bits) - 1);
    uint32_t exp = (code >> s->man_bits) & ((1u << s->exp_bits) - 1);
    bool negative = (code >> (s->man_bits + s->exp_bits)) & 1;
    uint32_t body = code & ((1u << (s->man_bits + s->exp_bits)) - 1);
    float v;
    if (type == TOW_NUM_E4M3X2 && body == 0x7f) {
        return NAN;
    }
    if (type == TOW_NUM_E5M2X2 && exp == 31) {
        v = man ? NAN : INFINITY;
    } else if (exp == 0) {
        v = __builtin_ldexpf((float)man, 1 - s->bias - s->man_bits);
    } else {
        v = __builtin_ldexpf((float)(man + (1u << s->man_bits)), (int)exp - s->bias - s->man_bits);
    }
    return negative ? -v : v;
}

static float half_source(enum tow_num_type type, uint32_t h)
{
    return type == TOW_NUM_F16X2 ? tow_h2f(h & 0xffffu) : tow_bf2f(h & 0xffffu);
}

static unsigned slot_bits(enum tow_num_type type)
{
    return type == TOW_NUM_E2M1X2 ? 4 : 8;
}

static void to_small(const struct tow_num_form *form, void *d, const void *a, const void *b,
                     const void *c)
{
    uint32_t *rd = d;
    const uint32_t *ra = a, *rb = b;
    const struct small *s = small_of(form->type);
    unsigned slot = slot_bits(form->type);
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        uint32_t high, low;
        if (form->src == TOW_NUM_F32) {
            high = ra[l];
            low = rb[l];
        } else {
            high = tow_f32_bits(half_source(form->src, ra[l] >> 16));
            low = tow_f32_bits(half_source(form->src, ra[l]));
        }
        rd[l] = num_cvt_small_encode(s, high, form->relu) << slot |
                num_cvt_small_encode(s, low, form->relu);
    }
}

static void from_small(const struct tow_num_form *form, void *d, const void *a, const void *b,
                       const void *c)
{
    uint32_t *rd = d;
    const uint32_t *ra = a;
    unsigned slot = slot_bits(form->src);
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        uint32_t r = 0;
        for (unsigned i = 0; i < 2; i++) {
            float f = num_cvt_small_decode(form->src, ra[l] >> (slot * i));
            uint32_t h = form->type == TOW_NUM_F16X2 ? tow_f2h(f) : tow_f2bf(f);
            if (form->relu && f == f && (h & 0x8000u)) {
                h = 0;
            }
            r |= h << (16 * i);
        }
        rd[l] = r;
    }
}

/* ue8m0 is a biased power of two; a sign is ignored. */
static uint32_t to_scale(uint32_t f32, bool up, bool satfinite)
{
    uint32_t x = f32 & 0x7fffffffu;
    if (x > 0x7f800000u) {
        return 0xff;
    }
    uint32_t r = x >> 23;
    if (r == 0) {
        r = up && x > 0x00400000u ? 1 : 0;
    } else if (up && (x & 0x007fffffu)) {
        r++;
    }
    return satfinite && r == 0xff ? 0xfe : r;
}

static void to_ue8m0(const struct tow_num_form *form, void *d, const void *a, const void *b,
                     const void *c)
{
    uint32_t *rd = d;
    const uint32_t *ra = a, *rb = b;
    bool up = form->round == TOW_NUM_RP;
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        bool pair = form->src == TOW_NUM_BF16X2;
        uint32_t high = pair ? ra[l] & 0xffff0000u : ra[l];
        uint32_t low = pair ? ra[l] << 16 : rb[l];
        rd[l] = to_scale(high, up, form->satfinite) << 8 | to_scale(low, up, form->satfinite);
    }
}

static uint32_t scale_to_bf16(uint32_t x)
{
    return x == 0xff ? TOW_NUM_NAN_F16 : x == 0 ? 0x0040u : x << 7;
}

static void from_ue8m0(const struct tow_num_form *form, void *d, const void *a, const void *b,
                       const void *c)
{
    uint32_t *rd = d;
    const uint32_t *ra = a;
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        rd[l] = scale_to_bf16((ra[l] >> 8) & 0xff) << 16 | scale_to_bf16(ra[l] & 0xff);
    }
}

/* ---- cvt.pack ------------------------------------------------------------------------- */

struct pack {
    uint8_t bits;
    int32_t low, high;
};

static struct pack pack_of(enum tow_num_type type)
{
    switch (type) {
    case TOW_NUM_U16:
        return (struct pack){16, 0, 65535};
    case TOW_NUM_S16:
        return (struct pack){16, -32768, 32767};
    case TOW_NUM_U8:
        return (struct pack){8, 0, 255};
    case TOW_NUM_S8:
        return (struct pack){8, -128, 127};
    case TOW_NUM_U4:
        return (struct pack){4, 0, 15};
    case TOW_NUM_S4:
        return (struct pack){4, -8, 7};
    case TOW_NUM_U2:
        return (struct pack){2, 0, 3};
    case TOW_NUM_S2:
        return (struct pack){2, -2, 1};
    default:
        return (struct pack){0, 0, 0};
    }
}

static uint32_t num_cvt_small_clamp(int32_t v, struct pack p)
{
    v = v < p.low ? p.low : v > p.high ? p.high : v;
    return (uint32_t)v & (((uint32_t)1 << p.bits) - 1);
}

static void run_pack(const struct tow_num_form *form, void *d, const void *a, const void *b,
                     const void *c)
{
    uint32_t *rd = d;
    const int32_t *ra = a, *rb = b;
    const uint32_t *rc = c;
    const struct pack p = pack_of(form->type);
    for (int l = 0; l < TOW_NUM_LANES; l++) {
        uint32_t r = num_cvt_small_clamp(ra[l], p) << p.bits | num_cvt_small_clamp(rb[l], p);
        if (p.bits < 16 && rc) {
            r |= rc[l] << (2 * p.bits);
        }
        rd[l] = r;
    }
}

tow_num_fn *tow_num_find_cvt_small(const struct tow_num_form *form)
{
    if (form->op == TOW_NUM_CVT_PACK) {
        return form->sat && form->src == TOW_NUM_S32 && pack_of(form->type).bits ? run_pack : NULL;
    }
    if (form->op != TOW_NUM_CVT || form->sat || form->ftz || form->oob || form->nan) {
        return NULL;
    }
    bool half = form->src == TOW_NUM_F16X2 || form->src == TOW_NUM_BF16X2;
    if (small_of(form->type)) {
        return (half || form->src == TOW_NUM_F32) && form->round == TOW_NUM_RN && form->satfinite
                   ? to_small
                   : NULL;
    }
    if (small_of(form->src)) {
        bool to_half = form->type == TOW_NUM_F16X2 || form->type == TOW_NUM_BF16X2;
        return to_half && form->round == TOW_NUM_RN && !form->satfinite ? from_small : NULL;
    }
    if (form->type == TOW_NUM_UE8M0X2 && !form->relu) {
        bool known = form->round == TOW_NUM_RZ || form->round == TOW_NUM_RP;
        return known && (form->src == TOW_NUM_F32 || form->src == TOW_NUM_BF16X2) ? to_ue8m0 : NULL;
    }
    if (form->src == TOW_NUM_UE8M0X2 && form->type == TOW_NUM_BF16X2 && !form->relu) {
        return form->round == TOW_NUM_RN ? from_ue8m0 : NULL;
    }
    return NULL;
}
