/* SPDX-License-Identifier: Apache-2.0 */
/* Integer and bit operations. One line an operation; the table at the end names them. */
#include <string.h>

#include "ptx/decode/decode.h"

typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
#define H(x) ((uint16_t)(x))
#define SH(x) ((int16_t)(x))

/* ---- add, sub, mul, mad ---- */

OP2(ops_int_add16, u32, u32, u32, H(a + b))
OP2(ops_int_add32, u32, u32, u32, a + b)
OP2(ops_int_add64, u64, u64, u64, a + b)
OP2(ops_int_sub16, u32, u32, u32, H(a - b))
OP2(ops_int_sub32, u32, u32, u32, a - b)
OP2(ops_int_sub64, u64, u64, u64, a - b)
OP2(ops_int_mul16, u32, u32, u32, H(a *b))
OP2(ops_int_mul32, u32, u32, u32, a *b)
OP2(ops_int_mul64, u64, u64, u64, a *b)
OP3(ops_int_mad16, u32, u32, u32, u32, H(a *b + c))
OP3(ops_int_mad32, u32, u32, u32, u32, a *b + c)
OP3(ops_int_mad64, u64, u64, u64, u64, a *b + c)

static inline u32 clamp_s32(s64 x)
{
    return x > INT32_MAX ? (u32)INT32_MAX : x < INT32_MIN ? (u32)INT32_MIN : (u32)x;
}
OP2(add_sat, u32, s32, s32, clamp_s32((s64)a + b))
OP2(sub_sat, u32, s32, s32, clamp_s32((s64)a - b))
OP3(mad_hi_sat, u32, s32, s32, s32, clamp_s32((((s64)a * b) >> 32) + c))

#define PAIR(expr_lo, expr_hi) (H(expr_lo) | (u32)H(expr_hi) << 16)
OP2(ops_int_add16x2, u32, u32, u32, PAIR(a + b, (a >> 16) + (b >> 16)))
OP2(min_u16x2, u32, u32, u32,
    PAIR(H(a) < H(b) ? a : b, H(a >> 16) < H(b >> 16) ? a >> 16 : b >> 16))
OP2(max_u16x2, u32, u32, u32,
    PAIR(H(a) > H(b) ? a : b, H(a >> 16) > H(b >> 16) ? a >> 16 : b >> 16))
OP2(min_s16x2, u32, u32, u32,
    PAIR(SH(a) < SH(b) ? a : b, SH(a >> 16) < SH(b >> 16) ? a >> 16 : b >> 16))
OP2(max_s16x2, u32, u32, u32,
    PAIR(SH(a) > SH(b) ? a : b, SH(a >> 16) > SH(b >> 16) ? a >> 16 : b >> 16))
static inline u32 ops_int_relu16(s32 x)
{
    return x < 0 ? 0 : (u32)x;
}
OP2(min_relu_s16x2, u32, u32, u32,
    PAIR(ops_int_relu16(SH(a) < SH(b) ? SH(a) : SH(b)),
         ops_int_relu16(SH(a >> 16) < SH(b >> 16) ? SH(a >> 16) : SH(b >> 16))))
OP2(max_relu_s16x2, u32, u32, u32,
    PAIR(ops_int_relu16(SH(a) > SH(b) ? SH(a) : SH(b)),
         ops_int_relu16(SH(a >> 16) > SH(b >> 16) ? SH(a >> 16) : SH(b >> 16))))
OP2(min_relu_s32, u32, s32, s32, (a < b ? a : b) < 0 ? 0 : (a < b ? a : b))
OP2(max_relu_s32, u32, s32, s32, (a > b ? a : b) < 0 ? 0 : (a > b ? a : b))

OP2(mul_hi_u16, u32, u32, u32, H(((u32)H(a) * H(b)) >> 16))
OP2(mul_hi_s16, u32, u32, u32, H((SH(a) * SH(b)) >> 16))
OP2(mul_hi_u32, u32, u32, u32, ((u64)a * b) >> 32)
OP2(mul_hi_s32, u32, s32, s32, ((s64)a * b) >> 32)
OP2(mul_hi_u64, u64, u64, u64, ((unsigned __int128)a * b) >> 64)
OP2(mul_hi_s64, u64, s64, s64, ((__int128)a * b) >> 64)
OP2(mul_wide_u16, u32, u32, u32, (u32)H(a) * H(b))
OP2(mul_wide_s16, u32, u32, u32, SH(a) * SH(b))
OP2(mul_wide_u32, u64, u32, u32, (u64)a *b)
OP2(mul_wide_s32, u64, s32, s32, (s64)a *b)
/* by 2^imm: sizes of elements */
OP1(shl_wide_u32, u64, u32, (u64)a << o->imm)
OP1(shl_wide_s32, u64, s32, (u64)(s64)a << o->imm)
OP3(mad_hi_u16, u32, u32, u32, u32, H((((u32)H(a) * H(b)) >> 16) + c))
OP3(mad_hi_s16, u32, u32, u32, u32, H(((SH(a) * SH(b)) >> 16) + c))
OP3(mad_hi_u32, u32, u32, u32, u32, (((u64)a * b) >> 32) + c)
OP3(mad_hi_s32, u32, s32, s32, u32, (u32)(((s64)a * b) >> 32) + c)
OP3(mad_hi_u64, u64, u64, u64, u64, (u64)(((unsigned __int128)a * b) >> 64) + c)
OP3(mad_hi_s64, u64, s64, s64, u64, (u64)(((__int128)a * b) >> 64) + c)
OP3(mad_wide_u16, u32, u32, u32, u32, (u32)H(a) * H(b) + c)
OP3(mad_wide_s16, u32, u32, u32, u32, (u32)(SH(a) * SH(b)) + c)
OP3(mad_wide_u32, u64, u32, u32, u64, (u64)a *b + c)
OP3(mad_wide_s32, u64, s32, s32, u64, (u64)((s64)a *b) + c)

static inline s32 ops_int_low24(s32 x)
{
    return (s32)((u32)x << 8) >> 8;
}
OP2(mul24_lo_u32, u32, u32, u32, (a & 0xffffffu) * (b & 0xffffffu))
OP2(mul24_lo_s32, u32, s32, s32, (u32)((s64)ops_int_low24(a) * ops_int_low24(b)))
OP2(mul24_hi_u32, u32, u32, u32, ((u64)(a & 0xffffffu) * (b & 0xffffffu)) >> 16)
OP2(mul24_hi_s32, u32, s32, s32, ((s64)ops_int_low24(a) * ops_int_low24(b)) >> 16)
OP3(mad24_lo_u32, u32, u32, u32, u32, (a & 0xffffffu) * (b & 0xffffffu) + c)
OP3(mad24_lo_s32, u32, s32, s32, u32, (u32)((s64)ops_int_low24(a) * ops_int_low24(b)) + c)
OP3(mad24_hi_u32, u32, u32, u32, u32, (u32)(((u64)(a & 0xffffffu) * (b & 0xffffffu)) >> 16) + c)
OP3(mad24_hi_s32, u32, s32, s32, u32, (u32)(((s64)ops_int_low24(a) * ops_int_low24(b)) >> 16) + c)
OP3(mad24_hi_sat, u32, s32, s32, s32,
    clamp_s32((((s64)ops_int_low24(a) * ops_int_low24(b)) >> 16) + c))

/* ---- carry: a bit a lane, in a predicate row of the frame that the decoder names in e ---- */

#define CARRY_OP(fn, T, USES, SETS, SUM, CARRY)                                                    \
    OP(fn)                                                                                         \
    {                                                                                              \
        const T *pa = tow_ptx_row(w, o->a), *pb = tow_ptx_row(w, o->b);                            \
        const T *pc = tow_ptx_row(w, o->c);                                                        \
        T *d = tow_ptx_row(w, o->d);                                                               \
        u32 in = USES ? tow_ptx_pred(w, o->e) : 0, out = 0;                                        \
        FOR_LANES(l, w->exec)                                                                      \
        {                                                                                          \
            T a = pa[l], b = pb[l], c = pc[l], carry = (in >> l) & 1u;                             \
            (void)c;                                                                               \
            (void)carry;                                                                           \
            T sum = (T)(SUM);                                                                      \
            if (SETS) {                                                                            \
                out |= (u32)((CARRY) ? 1u : 0u) << l;                                              \
            }                                                                                      \
            d[l] = sum;                                                                            \
        }                                                                                          \
        if (SETS) {                                                                                \
            tow_ptx_set_pred(w, o->e, out);                                                        \
        }                                                                                          \
        return o + 1;                                                                              \
    }
/* The flag of a subtraction is the carry of a + ~b + 1: set when nothing is borrowed. */
#define CARRY_FAMILY(n, T, W, SW)                                                                  \
    CARRY_OP(add_cc##n, T, false, true, a + b, sum < a)                                            \
    CARRY_OP(addc##n, T, true, false, a + b + carry, false)                                        \
    CARRY_OP(addc_cc##n, T, true, true, a + b + carry, (W)a + b + carry >> n)                      \
    CARRY_OP(sub_cc##n, T, false, true, a - b, a >= b)                                             \
    CARRY_OP(subc##n, T, true, false, a + (T)~b + carry, false)                                    \
    CARRY_OP(subc_cc##n, T, true, true, a + (T)~b + carry, (W)a + (T)~b + carry >> n)              \
    CARRY_OP(mad_lo_cc##n, T, false, true, a *b + c, sum < c)                                      \
    CARRY_OP(madc_lo##n, T, true, false, a *b + c + carry, false)                                  \
    CARRY_OP(madc_lo_cc##n, T, true, true, a *b + c + carry, (W)(T)(a * b) + c + carry >> n)       \
    CARRY_OP(mad_hi_cc_u##n, T, false, true, (T)((W)a * b >> n) + c, sum < c)                      \
    CARRY_OP(madc_hi_u##n, T, true, false, (T)((W)a * b >> n) + c + carry, false)                  \
    CARRY_OP(madc_hi_cc_u##n, T, true, true, (T)((W)a * b >> n) + c + carry,                       \
             (W)(T)((W)a * b >> n) + c + carry >> n)                                               \
    CARRY_OP(mad_hi_cc_s##n, T, false, true, (T)((SW)(S##n)a * (S##n)b >> n) + c, sum < c)         \
    CARRY_OP(madc_hi_s##n, T, true, false, (T)((SW)(S##n)a * (S##n)b >> n) + c + carry, false)     \
    CARRY_OP(madc_hi_cc_s##n, T, true, true, (T)((SW)(S##n)a * (S##n)b >> n) + c + carry,          \
             (W)(T)((SW)(S##n)a * (S##n)b >> n) + c + carry >> n)
typedef s32 S32;
typedef s64 S64;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wparentheses"
CARRY_FAMILY(32, u32, u64, s64)
CARRY_FAMILY(64, u64, unsigned __int128, __int128)
#pragma GCC diagnostic pop

/* ---- division: by zero gives all ones, as the hardware does; nothing traps ---- */

static inline u32 div_u16(u32 a, u32 b)
{
    return H(b) ? H(a) / H(b) : 0xffffu;
}
static inline u32 rem_u16(u32 a, u32 b)
{
    return H(b) ? H(a) % H(b) : 0xffffu;
}
static inline u32 div_s16(u32 a, u32 b)
{
    return SH(b) ? H(SH(a) / SH(b)) : 0xffffu;
}
static inline u32 rem_s16(u32 a, u32 b)
{
    return SH(b) ? H(SH(a) % SH(b)) : 0xffffu;
}
static inline u32 div_s32(s32 a, s32 b)
{
    return b ? (u32)((s64)a / b) : FULL;
}
static inline u32 rem_s32(s32 a, s32 b)
{
    return b ? (u32)((s64)a % b) : FULL;
}
static inline u64 div_s64(s64 a, s64 b)
{
    return b == -1 ? 0 - (u64)a : b ? (u64)(a / b) : ~0ull;
}
static inline u64 rem_s64(s64 a, s64 b)
{
    return b == -1 ? 0 : b ? (u64)(a % b) : ~0ull;
}
OP2(ops_int_div16u, u32, u32, u32, div_u16(a, b))
OP2(ops_int_div16s, u32, u32, u32, div_s16(a, b))
OP2(ops_int_div32u, u32, u32, u32, b ? a / b : FULL)
OP2(ops_int_div32s, u32, s32, s32, div_s32(a, b))
OP2(ops_int_div64u, u64, u64, u64, b ? a / b : ~0ull)
OP2(ops_int_div64s, u64, s64, s64, div_s64(a, b))
OP2(ops_int_rem16u, u32, u32, u32, rem_u16(a, b))
OP2(ops_int_rem16s, u32, u32, u32, rem_s16(a, b))
OP2(ops_int_rem32u, u32, u32, u32, b ? a % b : FULL)
OP2(ops_int_rem32s, u32, s32, s32, rem_s32(a, b))
OP2(ops_int_rem64u, u64, u64, u64, b ? a % b : ~0ull)
OP2(ops_int_rem64s, u64, s64, s64, rem_s64(a, b))

/* ---- abs, neg, min, max, sad ---- */

OP1(ops_int_abs16, u32, u32, H(SH(a) < 0 ? -SH(a) : SH(a)))
OP1(ops_int_abs32, u32, s32, a < 0 ? 0u - (u32)a : (u32)a)
OP1(ops_int_abs64, u64, s64, a < 0 ? 0ull - (u64)a : (u64)a)
OP1(ops_int_neg16, u32, u32, H(0u - a))
OP1(ops_int_neg32, u32, u32, 0u - a)
OP1(ops_int_neg64, u64, u64, 0ull - a)
OP2(ops_int_min16u, u32, u32, u32, H(a) < H(b) ? H(a) : H(b))
OP2(ops_int_min16s, u32, u32, u32, H(SH(a) < SH(b) ? a : b))
OP2(ops_int_min32u, u32, u32, u32, a < b ? a : b)
OP2(ops_int_min32s, u32, s32, s32, a < b ? a : b)
OP2(ops_int_min64u, u64, u64, u64, a < b ? a : b)
OP2(ops_int_min64s, u64, s64, s64, a < b ? a : b)
OP2(ops_int_max16u, u32, u32, u32, H(a) > H(b) ? H(a) : H(b))
OP2(ops_int_max16s, u32, u32, u32, H(SH(a) > SH(b) ? a : b))
OP2(ops_int_max32u, u32, u32, u32, a > b ? a : b)
OP2(ops_int_max32s, u32, s32, s32, a > b ? a : b)
OP2(ops_int_max64u, u64, u64, u64, a > b ? a : b)
OP2(ops_int_max64s, u64, s64, s64, a > b ? a : b)
OP3(ops_int_sad16u, u32, u32, u32, u32, H(c + (H(a) < H(b) ? b - a : a - b)))
OP3(ops_int_sad16s, u32, u32, u32, u32, H(c + (u32)(SH(a) < SH(b) ? SH(b) - SH(a) : SH(a) - SH(b))))
OP3(ops_int_sad32u, u32, u32, u32, u32, c + (a < b ? b - a : a - b))
OP3(ops_int_sad32s, u32, s32, s32, u32, c + (a < b ? (u32)b - (u32)a : (u32)a - (u32)b))
OP3(ops_int_sad64u, u64, u64, u64, u64, c + (a < b ? b - a : a - b))
OP3(ops_int_sad64s, u64, s64, s64, u64, c + (a < b ? (u64)b - (u64)a : (u64)a - (u64)b))

/* ---- logic, shifts ---- */

OP2(ops_int_and32, u32, u32, u32, a &b)
OP2(ops_int_or32, u32, u32, u32, a | b)
OP2(ops_int_xor32, u32, u32, u32, a ^ b)
OP2(ops_int_and64, u64, u64, u64, a &b)
OP2(ops_int_or64, u64, u64, u64, a | b)
OP2(ops_int_xor64, u64, u64, u64, a ^ b)
OP1(ops_int_not16, u32, u32, H(~a))
OP1(ops_int_not32, u32, u32, ~a)
OP1(ops_int_not64, u64, u64, ~a)
OP1(ops_int_cnot16, u32, u32, H(a) ? 0u : 1u)
OP1(ops_int_cnot32, u32, u32, a ? 0u : 1u)
OP1(ops_int_cnot64, u64, u64, a ? 0ull : 1ull)
#define PRED_OP(fn, EXPR)                                                                          \
    OP(fn)                                                                                         \
    {                                                                                              \
        u32 a = tow_ptx_pred(w, o->a), b = tow_ptx_pred(w, o->b);                                  \
        tow_ptx_set_pred(w, o->d, EXPR);                                                           \
        return o + 1;                                                                              \
    }
PRED_OP(and_pred, a &b)
PRED_OP(or_pred, a | b)
PRED_OP(xor_pred, a ^ b)
OP(not_pred)
{
    tow_ptx_set_pred(w, o->d, ~tow_ptx_pred(w, o->a));
    return o + 1;
}
OP2(ops_int_shl16, u32, u32, u32, b > 15 ? 0u : H(a << b))
OP2(ops_int_shl32, u32, u32, u32, b > 31 ? 0u : a << (b & 31))
OP2(ops_int_shl64, u64, u64, u32, b > 63 ? 0ull : a << (b & 63))
OP2(ops_int_shr16u, u32, u32, u32, b > 15 ? 0u : (u32)H(a) >> b)
OP2(ops_int_shr16s, u32, u32, u32, H(SH(a) >> (b > 15 ? 15 : b)))
OP2(ops_int_shr32u, u32, u32, u32, b > 31 ? 0u : a >> (b & 31))
OP2(ops_int_shr32s, u32, s32, u32, a >> (b > 31 ? 31 : b))
OP2(ops_int_shr64u, u64, u64, u32, b > 63 ? 0ull : a >> (b & 63))
OP2(ops_int_shr64s, u64, s64, u32, a >> (b > 63 ? 63 : b))
static inline u32 ops_int_funnel(u32 low, u32 high, u32 shift, bool left, bool clamp)
{
    u64 both = (u64)high << 32 | low;
    u32 n = clamp ? (shift > 32 ? 32 : shift) : shift & 31;
    return left ? (u32)(both << n >> 32) : (u32)(both >> n);
}
OP3(shf_l_clamp, u32, u32, u32, u32, ops_int_funnel(a, b, c, true, true))
OP3(shf_l_wrap, u32, u32, u32, u32, ops_int_funnel(a, b, c, true, false))
OP3(shf_r_clamp, u32, u32, u32, u32, ops_int_funnel(a, b, c, false, true))
OP3(shf_r_wrap, u32, u32, u32, u32, ops_int_funnel(a, b, c, false, false))

OP(ops_int_lop3)
{
    const u32 *pa = tow_ptx_row(w, o->a), *pb = tow_ptx_row(w, o->b), *pc = tow_ptx_row(w, o->c);
    u32 t[8];
    for (unsigned i = 0; i < 8; i++) {
        t[i] = (o->imm >> i) & 1 ? FULL : 0;
    }
    LANE_BODY(u32, u32 a = pa[l]; u32 b = pb[l]; u32 c = pc[l];
              , (~a & ~b & ~c & t[0]) | (~a & ~b & c & t[1]) | (~a & b & ~c & t[2]) |
                    (~a & b & c & t[3]) | (a & ~b & ~c & t[4]) | (a & ~b & c & t[5]) |
                    (a & b & ~c & t[6]) | (a & b & c & t[7]))
}

/* ---- bit fields ---- */

/* In a form that vectorises everywhere, and that GCC does not take for a call of popcount. */
static inline u32 ops_int_count32(u32 x)
{
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0fu;
    x += x >> 8;
    return (x + (x >> 16)) & 63u;
}
OP1(ops_int_popc32, u32, u32, ops_int_count32(a))
OP1(ops_int_popc64, u32, u64, __builtin_popcountll(a))
OP1(ops_int_clz32, u32, u32, a ? __builtin_clz(a) : 32)
OP1(ops_int_clz64, u32, u64, a ? __builtin_clzll(a) : 64)
static inline u32 ops_int_reverse32(u32 x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
OP1(ops_int_brev32, u32, u32, ops_int_reverse32(a))
OP1(ops_int_brev64, u64, u64,
    (u64)ops_int_reverse32((u32)a) << 32 | ops_int_reverse32((u32)(a >> 32)))
static inline u32 find_high(u64 a, unsigned bits, bool shift)
{
    if (!a) {
        return FULL;
    }
    u32 at = 63u - (u32)__builtin_clzll(a);
    return shift ? bits - 1 - at : at;
}
OP1(bfind_u32, u32, u32, find_high(a, 32, false))
OP1(bfind_s32, u32, s32, find_high((u32)(a < 0 ? ~a : a), 32, false))
OP1(bfind_u64, u32, u64, find_high(a, 64, false))
OP1(bfind_s64, u32, s64, find_high((u64)(a < 0 ? ~a : a), 64, false))
OP1(bfind_shift_u32, u32, u32, find_high(a, 32, true))
OP1(bfind_shift_s32, u32, s32, find_high((u32)(a < 0 ? ~a : a), 32, true))
OP1(bfind_shift_u64, u32, u64, find_high(a, 64, true))
OP1(bfind_shift_s64, u32, s64, find_high((u64)(a < 0 ? ~a : a), 64, true))

static inline u64 ops_int_extract(u64 a, u32 pos, u32 length, unsigned bits, bool is_signed)
{
    if (bits == 32) { /* of 32 bits the hardware reads a byte; of 64 the whole of both counts */
        pos &= 255;
        length &= 255;
    }
    pos = pos > 255 ? 255 : pos;
    length = length > 255 ? 255 : length;
    u64 all = bits == 64 ? ~0ull : (1ull << bits) - 1;
    u64 sign = 0;
    if (is_signed && length) {
        u32 at = pos + length - 1 < bits - 1 ? pos + length - 1 : bits - 1;
        sign = (a >> at) & 1 ? all : 0;
    }
    u64 field = pos < bits ? a >> pos : sign; /* bits past the end read as the sign */
    if (pos < bits && pos + length > bits && sign) {
        field |= pos ? all << (bits - pos) : 0;
    }
    u64 keep = length >= 64 ? ~0ull : (1ull << length) - 1;
    return ((field & keep) | (sign & ~keep)) & all;
}
OP3(bfe_u32, u32, u32, u32, u32, ops_int_extract(a, b, c, 32, false))
OP3(bfe_s32, u32, u32, u32, u32, ops_int_extract(a, b, c, 32, true))
OP3(bfe_u64, u64, u64, u32, u32, ops_int_extract(a, b, c, 64, false))
OP3(bfe_s64, u64, u64, u32, u32, ops_int_extract(a, b, c, 64, true))
static inline u64 field_mask(u32 pos, u32 length, unsigned bits)
{
    u64 keep = length >= 64 ? ~0ull : (1ull << length) - 1;
    return pos >= bits ? 0 : keep << pos;
}
#define BFI(fn, T, bits)                                                                           \
    OP(fn)                                                                                         \
    {                                                                                              \
        const T *pa = tow_ptx_row(w, o->a), *pb = tow_ptx_row(w, o->b);                            \
        const u32 *pc = tow_ptx_row(w, o->c), *pe = tow_ptx_row(w, o->e);                          \
        LANE_BODY(T, u32 pos = bits == 32 ? pc[l] & 255 : pc[l];                                   \
                  T m = (T)field_mask(pos, bits == 32 ? pe[l] & 255 : pe[l], bits);                \
                  T moved = pos < bits ? (T)(pa[l] << (pos & (bits - 1))) : 0;                     \
                  , (pb[l] & ~m) | (moved & m))                                                    \
    }
BFI(ops_int_bfi32, u32, 32)
BFI(ops_int_bfi64, u64, 64)
OP2(bmsk_clamp, u32, u32, u32, a > 31 ? 0 : (b > 31 ? FULL : (1u << (b & 31)) - 1u) << (a & 31))
OP2(bmsk_wrap, u32, u32, u32, ((1u << (b & 31)) - 1u) << (a & 31))
static inline u32 ops_int_extend(u32 a, u32 bits, bool is_signed, bool wrap)
{
    u32 n = wrap ? bits & 31 : bits;
    if (!wrap && n >= 32) {
        return a;
    }
    if (n == 0) {
        return 0;
    }
    return is_signed ? (u32)((s32)(a << (32 - n)) >> (32 - n)) : a & ((1u << n) - 1u);
}
OP2(szext_clamp_u, u32, u32, u32, ops_int_extend(a, b, false, false))
OP2(szext_clamp_s, u32, u32, u32, ops_int_extend(a, b, true, false))
OP2(szext_wrap_u, u32, u32, u32, ops_int_extend(a, b, false, true))
OP2(szext_wrap_s, u32, u32, u32, ops_int_extend(a, b, true, true))

/* fns: position of the n-th set bit from `base` upwards (n > 0) or downwards (n < 0) */
static u32 find_nth(u32 mask, u32 base, s32 offset)
{
    if (base > 31) {
        return FULL;
    }
    if (offset == 0) {
        return mask >> base & 1 ? base : FULL;
    }
    s32 left = offset > 0 ? offset : offset == INT32_MIN ? INT32_MAX : -offset;
    for (s32 at = (s32)base; at >= 0 && at<32; at += offset> 0 ? 1 : -1) {
        if (mask >> at & 1 && --left == 0) {
            return (u32)at;
        }
    }
    return FULL;
}
OP3(ops_int_fns, u32, u32, u32, s32, find_nth(a, b, c))

static u32 ops_int_permute(u32 a, u32 b, u32 select)
{
    u64 both = (u64)b << 32 | a;
    u32 result = 0;
    for (unsigned i = 0; i < 4; i++) {
        u32 pick = select >> (i * 4) & 15, byte = (u32)(both >> ((pick & 7) * 8)) & 255;
        if (pick & 8) {
            byte = byte & 0x80 ? 255 : 0;
        }
        result |= byte << (i * 8);
    }
    return result;
}
/* The modes as selectors, by the low two bits of c. */
static u32 permute_mode(u32 a, u32 b, u32 c, unsigned mode)
{
    static const uint16_t selectors[6][4] = {
        {0x3210, 0x4321, 0x5432, 0x6543}, /* f4e */
        {0x5670, 0x6701, 0x7012, 0x0123}, /* b4e */
        {0x0000, 0x1111, 0x2222, 0x3333}, /* rc8 */
        {0x3210, 0x3211, 0x3222, 0x3333}, /* ecl */
        {0x0000, 0x1110, 0x2210, 0x3210}, /* ecr */
        {0x1010, 0x3232, 0x1010, 0x3232}, /* rc16 */
    };
    return ops_int_permute(a, b, selectors[mode][c & 3]);
}
OP3(ops_int_prmt, u32, u32, u32, u32, ops_int_permute(a, b, c))
OP3(prmt_f4e, u32, u32, u32, u32, permute_mode(a, b, c, 0))
OP3(prmt_b4e, u32, u32, u32, u32, permute_mode(a, b, c, 1))
OP3(prmt_rc8, u32, u32, u32, u32, permute_mode(a, b, c, 2))
OP3(prmt_ecl, u32, u32, u32, u32, permute_mode(a, b, c, 3))
OP3(prmt_ecr, u32, u32, u32, u32, permute_mode(a, b, c, 4))
OP3(prmt_rc16, u32, u32, u32, u32, permute_mode(a, b, c, 5))

/* ---- dot products ---- */

static inline s32 byte_of(u32 x, unsigned i, bool is_signed)
{
    return is_signed ? (s32)(int8_t)(x >> (i * 8)) : (s32)(x >> (i * 8) & 255);
}
static inline u32 ops_int_dot4(u32 a, u32 b, u32 c, bool sa, bool sb)
{
    for (unsigned i = 0; i < 4; i++) {
        c += (u32)(byte_of(a, i, sa) * byte_of(b, i, sb));
    }
    return c;
}
static inline u32 ops_int_dot2(u32 a, u32 b, u32 c, bool sa, bool sb, unsigned first)
{
    for (unsigned i = 0; i < 2; i++) {
        s32 half = sa ? (s32)(int16_t)(a >> (i * 16)) : (s32)(a >> (i * 16) & 0xffff);
        c += (u32)half * (u32)byte_of(b, first + i, sb);
    }
    return c;
}
OP3(dp4a_uu, u32, u32, u32, u32, ops_int_dot4(a, b, c, false, false))
OP3(dp4a_us, u32, u32, u32, u32, ops_int_dot4(a, b, c, false, true))
OP3(dp4a_su, u32, u32, u32, u32, ops_int_dot4(a, b, c, true, false))
OP3(dp4a_ss, u32, u32, u32, u32, ops_int_dot4(a, b, c, true, true))
OP3(dp2a_lo_uu, u32, u32, u32, u32, ops_int_dot2(a, b, c, false, false, 0))
OP3(dp2a_lo_us, u32, u32, u32, u32, ops_int_dot2(a, b, c, false, true, 0))
OP3(dp2a_lo_su, u32, u32, u32, u32, ops_int_dot2(a, b, c, true, false, 0))
OP3(dp2a_lo_ss, u32, u32, u32, u32, ops_int_dot2(a, b, c, true, true, 0))
OP3(dp2a_hi_uu, u32, u32, u32, u32, ops_int_dot2(a, b, c, false, false, 2))
OP3(dp2a_hi_us, u32, u32, u32, u32, ops_int_dot2(a, b, c, false, true, 2))
OP3(dp2a_hi_su, u32, u32, u32, u32, ops_int_dot2(a, b, c, true, false, 2))
OP3(dp2a_hi_ss, u32, u32, u32, u32, ops_int_dot2(a, b, c, true, true, 2))

/* A carry instruction's signature ends in 'C': the decoder appends the frame's carry row in e. */
#define CARRY_KEYS(n, k)                                                                           \
    {"add.cc.u" #n " add.cc.s" #n, k k k "C", add_cc##n},                                          \
        {"addc.u" #n " addc.s" #n, k k k "C", addc##n},                                            \
        {"addc.cc.u" #n " addc.cc.s" #n, k k k "C", addc_cc##n},                                   \
        {"sub.cc.u" #n " sub.cc.s" #n, k k k "C", sub_cc##n},                                      \
        {"subc.u" #n " subc.s" #n, k k k "C", subc##n},                                            \
        {"subc.cc.u" #n " subc.cc.s" #n, k k k "C", subc_cc##n},                                   \
        {"mad.lo.cc.u" #n " mad.lo.cc.s" #n, k k k k "C", mad_lo_cc##n},                           \
        {"madc.lo.u" #n " madc.lo.s" #n, k k k k "C", madc_lo##n},                                 \
        {"madc.lo.cc.u" #n " madc.lo.cc.s" #n, k k k k "C", madc_lo_cc##n},                        \
        {"mad.hi.cc.u" #n, k k k k "C", mad_hi_cc_u##n},                                           \
        {"madc.hi.u" #n, k k k k "C", madc_hi_u##n},                                               \
        {"madc.hi.cc.u" #n, k k k k "C", madc_hi_cc_u##n},                                         \
        {"mad.hi.cc.s" #n, k k k k "C", mad_hi_cc_s##n},                                           \
        {"madc.hi.s" #n, k k k k "C", madc_hi_s##n},                                               \
    {                                                                                              \
        "madc.hi.cc.s" #n, k k k k "C", madc_hi_cc_s##n                                            \
    }

const struct tow_ptx_entry tow_ptx_ops_int[] = {
    {"add.u16 add.s16", "hhh", ops_int_add16},
    {"add.u32 add.s32", "www", ops_int_add32},
    {"add.u64 add.s64", "lll", ops_int_add64},
    {"add.sat.s32", "www", add_sat},
    {"add.u16x2 add.s16x2", "www", ops_int_add16x2},
    {"sub.u16 sub.s16", "hhh", ops_int_sub16},
    {"sub.u32 sub.s32", "www", ops_int_sub32},
    {"sub.u64 sub.s64", "lll", ops_int_sub64},
    {"sub.sat.s32", "www", sub_sat},
    {"mul.lo.u16 mul.lo.s16", "hhh", ops_int_mul16},
    {"mul.lo.u32 mul.lo.s32", "www", ops_int_mul32},
    {"mul.lo.u64 mul.lo.s64", "lll", ops_int_mul64},
    {"mul.hi.u16", "hhh", mul_hi_u16},
    {"mul.hi.s16", "hhh", mul_hi_s16},
    {"mul.hi.u32", "www", mul_hi_u32},
    {"mul.hi.s32", "www", mul_hi_s32},
    {"mul.hi.u64", "lll", mul_hi_u64},
    {"mul.hi.s64", "lll", mul_hi_s64},
    {"mul.wide.u16", "whh", mul_wide_u16},
    {"mul.wide.s16", "whh", mul_wide_s16},
    {"mad.lo.u16 mad.lo.s16", "hhhh", ops_int_mad16},
    {"mad.lo.u32 mad.lo.s32", "wwww", ops_int_mad32},
    {"mad.lo.u64 mad.lo.s64", "llll", ops_int_mad64},
    {"mad.hi.u16", "hhhh", mad_hi_u16},
    {"mad.hi.s16", "hhhh", mad_hi_s16},
    {"mad.hi.u32", "wwww", mad_hi_u32},
    {"mad.hi.s32", "wwww", mad_hi_s32},
    {"mad.hi.u64", "llll", mad_hi_u64},
    {"mad.hi.s64", "llll", mad_hi_s64},
    {"mad.hi.sat.s32", "wwww", mad_hi_sat},
    {"mad.wide.u16", "whhw", mad_wide_u16},
    {"mad.wide.s16", "whhw", mad_wide_s16},
    {"mad.wide.u32", "lwwl", mad_wide_u32},
    {"mad.wide.s32", "lwwl", mad_wide_s32},
    {"mul24.lo.u32", "www", mul24_lo_u32},
    {"mul24.lo.s32", "www", mul24_lo_s32},
    {"mul24.hi.u32", "www", mul24_hi_u32},
    {"mul24.hi.s32", "www", mul24_hi_s32},
    {"mad24.lo.u32", "wwww", mad24_lo_u32},
    {"mad24.lo.s32", "wwww", mad24_lo_s32},
    {"mad24.hi.u32", "wwww", mad24_hi_u32},
    {"mad24.hi.s32", "wwww", mad24_hi_s32},
    {"mad24.hi.sat.s32", "wwww", mad24_hi_sat},
    CARRY_KEYS(32, "w"),
    CARRY_KEYS(64, "l"),
    {"div.u16", "hhh", ops_int_div16u},
    {"div.s16", "hhh", ops_int_div16s},
    {"div.u32", "www", ops_int_div32u},
    {"div.s32", "www", ops_int_div32s},
    {"div.u64", "lll", ops_int_div64u},
    {"div.s64", "lll", ops_int_div64s},
    {"rem.u16", "hhh", ops_int_rem16u},
    {"rem.s16", "hhh", ops_int_rem16s},
    {"rem.u32", "www", ops_int_rem32u},
    {"rem.s32", "www", ops_int_rem32s},
    {"rem.u64", "lll", ops_int_rem64u},
    {"rem.s64", "lll", ops_int_rem64s},
    {"abs.s16", "hh", ops_int_abs16},
    {"abs.s32", "ww", ops_int_abs32},
    {"abs.s64", "ll", ops_int_abs64},
    {"neg.s16", "hh", ops_int_neg16},
    {"neg.s32", "ww", ops_int_neg32},
    {"neg.s64", "ll", ops_int_neg64},
    {"min.u16", "hhh", ops_int_min16u},
    {"min.s16", "hhh", ops_int_min16s},
    {"min.u32", "www", ops_int_min32u},
    {"min.s32", "www", ops_int_min32s},
    {"min.u64", "lll", ops_int_min64u},
    {"min.s64", "lll", ops_int_min64s},
    {"max.u16", "hhh", ops_int_max16u},
    {"max.s16", "hhh", ops_int_max16s},
    {"max.u32", "www", ops_int_max32u},
    {"max.s32", "www", ops_int_max32s},
    {"max.u64", "lll", ops_int_max64u},
    {"max.s64", "lll", ops_int_max64s},
    {"min.u16x2", "www", min_u16x2},
    {"max.u16x2", "www", max_u16x2},
    {"min.s16x2", "www", min_s16x2},
    {"max.s16x2", "www", max_s16x2},
    {"min.relu.s16x2 min.s16x2.relu", "www", min_relu_s16x2},
    {"max.relu.s16x2 max.s16x2.relu", "www", max_relu_s16x2},
    {"min.relu.s32 min.s32.relu", "www", min_relu_s32},
    {"max.relu.s32 max.s32.relu", "www", max_relu_s32},
    {"sad.u16", "hhhh", ops_int_sad16u},
    {"sad.s16", "hhhh", ops_int_sad16s},
    {"sad.u32", "wwww", ops_int_sad32u},
    {"sad.s32", "wwww", ops_int_sad32s},
    {"sad.u64", "llll", ops_int_sad64u},
    {"sad.s64", "llll", ops_int_sad64s},
    {"and.b16", "hhh", ops_int_and32},
    {"or.b16", "hhh", ops_int_or32},
    {"xor.b16", "hhh", ops_int_xor32},
    {"and.b32", "www", ops_int_and32},
    {"or.b32", "www", ops_int_or32},
    {"xor.b32", "www", ops_int_xor32},
    {"and.b64", "lll", ops_int_and64},
    {"or.b64", "lll", ops_int_or64},
    {"xor.b64", "lll", ops_int_xor64},
    {"and.pred", "ppp", and_pred},
    {"or.pred", "ppp", or_pred},
    {"xor.pred", "ppp", xor_pred},
    {"not.pred", "pp", not_pred},
    {"not.b16", "hh", ops_int_not16},
    {"not.b32", "ww", ops_int_not32},
    {"not.b64", "ll", ops_int_not64},
    {"cnot.b16", "hh", ops_int_cnot16},
    {"cnot.b32", "ww", ops_int_cnot32},
    {"cnot.b64", "ll", ops_int_cnot64},
    {"shl.b16", "hhw", ops_int_shl16},
    {"shl.b32", "www", ops_int_shl32},
    {"shl.b64", "llw", ops_int_shl64},
    {"shr.u16 shr.b16", "hhw", ops_int_shr16u},
    {"shr.s16", "hhw", ops_int_shr16s},
    {"shr.u32 shr.b32", "www", ops_int_shr32u},
    {"shr.s32", "www", ops_int_shr32s},
    {"shr.u64 shr.b64", "llw", ops_int_shr64u},
    {"shr.s64", "llw", ops_int_shr64s},
    {"shf.l.clamp.b32", "wwww", shf_l_clamp},
    {"shf.l.wrap.b32", "wwww", shf_l_wrap},
    {"shf.r.clamp.b32", "wwww", shf_r_clamp},
    {"shf.r.wrap.b32", "wwww", shf_r_wrap},
    {"lop3.b32", "wwwwi", ops_int_lop3},
    {"popc.b32", "ww", ops_int_popc32},
    {"popc.b64", "wl", ops_int_popc64},
    {"clz.b32", "ww", ops_int_clz32},
    {"clz.b64", "wl", ops_int_clz64},
    {"brev.b32", "ww", ops_int_brev32},
    {"brev.b64", "ll", ops_int_brev64},
    {"bfind.u32", "ww", bfind_u32},
    {"bfind.s32", "ww", bfind_s32},
    {"bfind.u64", "wl", bfind_u64},
    {"bfind.s64", "wl", bfind_s64},
    {"bfind.shiftamt.u32", "ww", bfind_shift_u32},
    {"bfind.shiftamt.s32", "ww", bfind_shift_s32},
    {"bfind.shiftamt.u64", "wl", bfind_shift_u64},
    {"bfind.shiftamt.s64", "wl", bfind_shift_s64},
    {"bfe.u32", "wwww", bfe_u32},
    {"bfe.s32", "wwww", bfe_s32},
    {"bfe.u64", "llww", bfe_u64},
    {"bfe.s64", "llww", bfe_s64},
    {"bfi.b32", "wwwww", ops_int_bfi32},
    {"bfi.b64", "lllww", ops_int_bfi64},
    {"bmsk.clamp.b32", "www", bmsk_clamp},
    {"bmsk.wrap.b32", "www", bmsk_wrap},
    {"szext.clamp.u32", "www", szext_clamp_u},
    {"szext.clamp.s32", "www", szext_clamp_s},
    {"szext.wrap.u32", "www", szext_wrap_u},
    {"szext.wrap.s32", "www", szext_wrap_s},
    {"fns.b32", "wwww", ops_int_fns},
    {"prmt.b32", "wwww", ops_int_prmt},
    {"prmt.b32.f4e", "wwww", prmt_f4e},
    {"prmt.b32.b4e", "wwww", prmt_b4e},
    {"prmt.b32.rc8", "wwww", prmt_rc8},
    {"prmt.b32.ecl", "wwww", prmt_ecl},
    {"prmt.b32.ecr", "wwww", prmt_ecr},
    {"prmt.b32.rc16", "wwww", prmt_rc16},
    {"dp4a.u32.u32", "wwww", dp4a_uu},
    {"dp4a.u32.s32", "wwww", dp4a_us},
    {"dp4a.s32.u32", "wwww", dp4a_su},
    {"dp4a.s32.s32", "wwww", dp4a_ss},
    {"dp2a.lo.u32.u32", "wwww", dp2a_lo_uu},
    {"dp2a.lo.u32.s32", "wwww", dp2a_lo_us},
    {"dp2a.lo.s32.u32", "wwww", dp2a_lo_su},
    {"dp2a.lo.s32.s32", "wwww", dp2a_lo_ss},
    {"dp2a.hi.u32.u32", "wwww", dp2a_hi_uu},
    {"dp2a.hi.u32.s32", "wwww", dp2a_hi_us},
    {"dp2a.hi.s32.u32", "wwww", dp2a_hi_su},
    {"dp2a.hi.s32.s32", "wwww", dp2a_hi_ss},
    {NULL, NULL, NULL},
};

/* mul.wide.u32 d, a, b and mul.wide.s32 */
static int decode_mul_wide(struct tow_ptx_decoder *dec)
{
    bool is_signed = strcmp(dec->insn->key, "mul.wide.s32") == 0;
    struct tow_ptx_op op = {.run = is_signed ? mul_wide_s32 : mul_wide_u32};
    int error = tow_ptx_want_operands(dec, 3, 3);
    if (error || (error = tow_ptx_dest(dec, &dec->insn->operands[0], 'l', &op.d)) ||
        (error = tow_ptx_source(dec, &dec->insn->operands[1], 'w', &op.a)) ||
        (error = tow_ptx_source(dec, &dec->insn->operands[2], 'w', &op.b))) {
        return error;
    }
    u32 by;
    if (tow_ptx_const_known(dec, op.b, &by) && by && !(by & (by - 1)) && by < 1u << 31) {
        op.run = is_signed ? shl_wide_s32 : shl_wide_u32;
        op.imm = __builtin_ctz(by);
    }
    return tow_ptx_emit(dec, &op);
}

const struct tow_ptx_special tow_ptx_specials_int[] = {
    {"mul.wide.u32", decode_mul_wide},
    {"mul.wide.s32", decode_mul_wide},
    {NULL, NULL},
};
