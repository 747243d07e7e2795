/* SPDX-License-Identifier: Apache-2.0 */
/* Integer instructions: each over special and random inputs, against plain C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "machine.h"

typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef uint16_t u16;
typedef int16_t s16;
typedef unsigned __int128 u128;
typedef __int128 s128;

#define N 1024u

static u32 bits_of(u32 x)
{
    u32 n = 0;
    for (; x; x >>= 1) {
        n += x & 1;
    }
    return n;
}
static u32 leading(u64 x, unsigned width)
{
    u32 n = 0;
    while (n < width && !(x >> (width - 1 - n) & 1)) {
        n++;
    }
    return n;
}
static u64 mirror(u64 x, unsigned width)
{
    u64 r = 0;
    for (unsigned i = 0; i < width; i++) {
        r |= (x >> i & 1) << (width - 1 - i);
    }
    return r;
}
/* bfe bit by bit, as the manual words it */
static u64 field(u64 x, u32 pos, u32 len, unsigned width, bool is_signed)
{
    pos = width == 32 ? pos & 255 : pos > 255 ? 255 : pos; /* of 64 bits all of it counts */
    len = width == 32 ? len & 255 : len > 255 ? 255 : len;
    u64 sign = 0, r = 0;
    if (is_signed && len) {
        u32 at = pos + len - 1 < width - 1 ? pos + len - 1 : width - 1;
        sign = x >> at & 1;
    }
    for (unsigned i = 0; i < width; i++) {
        u64 bit = i < len && pos + i < width ? x >> (pos + i) & 1 : sign;
        r |= bit << i;
    }
    return r;
}
static u64 insert(u64 from, u64 into, u32 pos, u32 len, unsigned width)
{
    pos = width == 32 ? pos & 255 : pos > 255 ? 255 : pos;
    len = width == 32 ? len & 255 : len > 255 ? 255 : len;
    for (unsigned i = 0; i < len && pos + i < width; i++) {
        into = (into & ~(1ull << (pos + i))) | (from >> i & 1) << (pos + i);
    }
    return into;
}
static u32 pick_bytes(u32 a, u32 b, u32 sel)
{
    u32 r = 0;
    for (unsigned i = 0; i < 4; i++) {
        u32 n = sel >> (4 * i) & 15;
        u32 byte = (n & 7) < 4 ? a >> (8 * (n & 7)) & 255 : b >> (8 * ((n & 7) - 4)) & 255;
        r |= (n & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
    }
    return r;
}
static u32 logic3(u32 a, u32 b, u32 c, u32 lut)
{
    u32 r = 0;
    for (unsigned i = 0; i < 32; i++) {
        r |= (lut >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i;
    }
    return r;
}
static u32 dot4(u32 a, u32 b, u32 c, bool sa, bool sb)
{
    for (unsigned i = 0; i < 32; i += 8) {
        s32 x = sa ? (s32)(signed char)(a >> i) : (s32)(a >> i & 255);
        s32 y = sb ? (s32)(signed char)(b >> i) : (s32)(b >> i & 255);
        c += (u32)(x * y);
    }
    return c;
}
static u32 nth(u32 mask, u32 base, s32 n)
{
    base &= 31;
    if (n == 0) {
        return mask >> base & 1 ? base : ~0u;
    }
    for (int i = (int)base; i >= 0 && i<32; i += n> 0 ? 1 : -1) {
        if (mask >> i & 1) {
            n += n > 0 ? -1 : 1;
            if (n == 0) {
                return (u32)i;
            }
        }
    }
    return ~0u;
}
static u32 sad4(u32 a, u32 b, u32 c)
{
    for (unsigned i = 0; i < 32; i += 8) {
        u32 x = a >> i & 255, y = b >> i & 255;
        c += x > y ? x - y : y - x;
    }
    return c;
}
static u32 average4(u32 a, u32 b)
{
    u32 r = 0;
    for (unsigned i = 0; i < 32; i += 8) {
        r |= ((a >> i & 255) + (b >> i & 255) + 1) / 2 << i;
    }
    return r;
}
static s64 clamp32(s64 x)
{
    return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x;
}
static s32 s24(u64 x)
{
    return (s32)((u32)x << 8) >> 8;
}

/* X(name, result kind, instruction, what C says of a, b, c). Registers: %h %r %d 0 to 3 of 16, 32
 * and 64 bits; 1 to 3 are a, b, c; %p0, %p1 are predicates. */
#define LIST(X)                                                                                    \
    X(add16, 'h', "add.s16 %h0, %h1, %h2;", (u16)(a + b))                                          \
    X(add32, 'w', "add.s32 %r0, %r1, %r2;", (u32)(a + b))                                          \
    X(add64, 'l', "add.u64 %d0, %d1, %d2;", a + b)                                                 \
    X(add_sat, 'w', "add.sat.s32 %r0, %r1, %r2;", (u32)clamp32((s64)(s32)a + (s32)b))              \
    X(sub_sat, 'w', "sub.sat.s32 %r0, %r1, %r2;", (u32)clamp32((s64)(s32)a - (s32)b))              \
    X(add_imm, 'w', "add.s32 %r0, %r1, -7;", (u32)(a - 7))                                         \
    X(add16x2, 'w', "add.u16x2 %r0, %r1, %r2;",                                                    \
      (u16)(a + b) | (u32)(u16)((u32)a / 65536 + (u32)b / 65536) << 16)                            \
    X(sub16, 'h', "sub.u16 %h0, %h1, %h2;", (u16)(a - b))                                          \
    X(sub32, 'w', "sub.u32 %r0, %r1, %r2;", (u32)(a - b))                                          \
    X(sub64, 'l', "sub.s64 %d0, %d1, %d2;", a - b)                                                 \
    X(carry32, 'w', "add.cc.u32 %r0, %r1, %r2; addc.u32 %r0, %r3, 0;",                             \
      (u32)(c + (((u64)(u32)a + (u32)b) >> 32)))                                                   \
    X(carry_chain, 'w', "add.cc.u32 %r0,%r1,%r2; addc.cc.u32 %r0,%r2,%r3; addc.u32 %r0,%r1,%r3;",  \
      (u32)(a + c + (((u64)(u32)b + (u32)c + (((u64)(u32)a + (u32)b) >> 32)) >> 32)))              \
    X(borrow, 'w', "sub.cc.u32 %r0, %r1, %r2; subc.u32 %r0, %r3, 0;",                              \
      (u32)(c - ((u32)a < (u32)b)))                                                                \
    X(carry64, 'l', "add.cc.u64 %d0, %d1, %d2; addc.u64 %d0, %d3, 0;",                             \
      c + (u64)(((u128)a + b) >> 64))                                                              \
    X(mad_cc, 'w', "mad.lo.cc.u32 %r0,%r1,%r2,%r3; madc.hi.u32 %r0,%r1,%r2,%r3;",                  \
      (u32)((((u64)(u32)a * (u32)b) >> 32) + c + (((u64)(u32)(a * b) + (u32)c) >> 32)))            \
    X(mul_lo16, 'h', "mul.lo.s16 %h0, %h1, %h2;", (u16)(a * b))                                    \
    X(mul_lo32, 'w', "mul.lo.s32 %r0, %r1, %r2;", (u32)(a * b))                                    \
    X(mul_lo64, 'l', "mul.lo.u64 %d0, %d1, %d2;", a *b)                                            \
    X(mul_hi_u16, 'h', "mul.hi.u16 %h0, %h1, %h2;", (u16)((u32)(u16)a * (u16)b >> 16))             \
    X(mul_hi_s16, 'h', "mul.hi.s16 %h0, %h1, %h2;", (u16)((s16)a * (s16)b >> 16))                  \
    X(mul_hi_u32, 'w', "mul.hi.u32 %r0, %r1, %r2;", (u64)(u32)a *(u32)b >> 32)                     \
    X(mul_hi_s32, 'w', "mul.hi.s32 %r0, %r1, %r2;", (u32)((s64)(s32)a * (s32)b >> 32))             \
    X(mul_hi_u64, 'l', "mul.hi.u64 %d0, %d1, %d2;", (u64)((u128)a * b >> 64))                      \
    X(mul_hi_s64, 'l', "mul.hi.s64 %d0, %d1, %d2;", (u64)((s128)(s64)a * (s64)b >> 64))            \
    X(mul_wide_u16, 'w', "mul.wide.u16 %r0, %h1, %h2;", (u32)(u16)a *(u16)b)                       \
    X(mul_wide_s16, 'w', "mul.wide.s16 %r0, %h1, %h2;", (u32)((s16)a * (s16)b))                    \
    X(mul_wide_u32, 'l', "mul.wide.u32 %d0, %r1, %r2;", (u64)(u32)a *(u32)b)                       \
    X(mul_wide_s32, 'l', "mul.wide.s32 %d0, %r1, %r2;", (s64)(s32)a *(s32)b)                       \
    X(mad_lo32, 'w', "mad.lo.s32 %r0, %r1, %r2, %r3;", (u32)(a * b + c))                           \
    X(mad_lo64, 'l', "mad.lo.s64 %d0, %d1, %d2, %d3;", a *b + c)                                   \
    X(mad_lo16, 'h', "mad.lo.u16 %h0, %h1, %h2, %h3;", (u16)(a * b + c))                           \
    X(mad_hi_s32, 'w', "mad.hi.s32 %r0, %r1, %r2, %r3;",                                           \
      (u32)(((s64)(s32)a * (s32)b >> 32) + (s64)c))                                                \
    X(mad_hi_sat, 'w', "mad.hi.sat.s32 %r0, %r1, %r2, %r3;",                                       \
      (u32)clamp32(((s64)(s32)a * (s32)b >> 32) + (s32)c))                                         \
    X(mad_wide_u32, 'l', "mad.wide.u32 %d0, %r1, %r2, %d3;", (u64)(u32)a *(u32)b + c)              \
    X(mad_wide_s32, 'l', "mad.wide.s32 %d0, %r1, %r2, %d3;", (u64)((s64)(s32)a * (s32)b) + c)      \
    X(mad_wide_s16, 'w', "mad.wide.s16 %r0, %h1, %h2, %r3;", (u32)((s16)a * (s16)b) + (u32)c)      \
    X(mul24_lo_u, 'w', "mul24.lo.u32 %r0, %r1, %r2;", (u32)((a & 0xffffff) * (b & 0xffffff)))      \
    X(mul24_hi_u, 'w', "mul24.hi.u32 %r0, %r1, %r2;",                                              \
      (u32)(((a & 0xffffff) * (b & 0xffffff)) >> 16))                                              \
    X(mul24_lo_s, 'w', "mul24.lo.s32 %r0, %r1, %r2;", (u32)((s64)s24(a) * s24(b)))                 \
    X(mul24_hi_s, 'w', "mul24.hi.s32 %r0, %r1, %r2;", (u32)(((s64)s24(a) * s24(b)) >> 16))         \
    X(mad24_lo_s, 'w', "mad24.lo.s32 %r0, %r1, %r2, %r3;", (u32)((s64)s24(a) * s24(b) + (s64)c))   \
    X(mad24_hi_u, 'w', "mad24.hi.u32 %r0, %r1, %r2, %r3;",                                         \
      (u32)((((a & 0xffffff) * (b & 0xffffff)) >> 16) + c))                                        \
    X(div_u16, 'h', "div.u16 %h0, %h1, %h2;", (u16)b ? (u16)a / (u16)b : 0xffff)                   \
    X(div_s16, 'h', "div.s16 %h0, %h1, %h2;", (s16)b ? (u16)((s16)a / (s16)b) : 0xffff)            \
    X(div_u32, 'w', "div.u32 %r0, %r1, %r2;", (u32)b ? (u32)a / (u32)b : ~0u)                      \
    X(div_s32, 'w', "div.s32 %r0, %r1, %r2;", (s32)b ? (u32)((s64)(s32)a / (s32)b) : ~0u)          \
    X(div_u64, 'l', "div.u64 %d0, %d1, %d2;", b ? a / b : ~0ull)                                   \
    X(div_s64, 'l', "div.s64 %d0, %d1, %d2;", b ? (u64)((s128)(s64)a / (s64)b) : ~0ull)            \
    X(rem_u32, 'w', "rem.u32 %r0, %r1, %r2;", (u32)b ? (u32)a % (u32)b : ~0u)                      \
    X(rem_s32, 'w', "rem.s32 %r0, %r1, %r2;", (s32)b ? (u32)((s64)(s32)a % (s32)b) : ~0u)          \
    X(rem_u64, 'l', "rem.u64 %d0, %d1, %d2;", b ? a % b : ~0ull)                                   \
    X(rem_s64, 'l', "rem.s64 %d0, %d1, %d2;", b ? (u64)((s128)(s64)a % (s64)b) : ~0ull)            \
    X(abs16, 'h', "abs.s16 %h0, %h1;", (u16)((s16)a < 0 ? -(s16)a : (s16)a))                       \
    X(abs32, 'w', "abs.s32 %r0, %r1;", (u32)((s32)a < 0 ? -(s64)(s32)a : (s32)a))                  \
    X(abs64, 'l', "abs.s64 %d0, %d1;", (s64)a < 0 ? 0 - a : a)                                     \
    X(neg16, 'h', "neg.s16 %h0, %h1;", (u16)(0 - a))                                               \
    X(neg32, 'w', "neg.s32 %r0, %r1;", (u32)(0 - a))                                               \
    X(neg64, 'l', "neg.s64 %d0, %d1;", 0 - a)                                                      \
    X(min_u16, 'h', "min.u16 %h0, %h1, %h2;", (u16)a < (u16)b ? (u16)a : (u16)b)                   \
    X(min_s16, 'h', "min.s16 %h0, %h1, %h2;", (u16)((s16)a < (s16)b ? a : b))                      \
    X(min_u32, 'w', "min.u32 %r0, %r1, %r2;", (u32)a < (u32)b ? (u32)a : (u32)b)                   \
    X(min_s32, 'w', "min.s32 %r0, %r1, %r2;", (u32)((s32)a < (s32)b ? a : b))                      \
    X(min_u64, 'l', "min.u64 %d0, %d1, %d2;", a < b ? a : b)                                       \
    X(min_s64, 'l', "min.s64 %d0, %d1, %d2;", (s64)a < (s64)b ? a : b)                             \
    X(max_u16, 'h', "max.u16 %h0, %h1, %h2;", (u16)a > (u16)b ? (u16)a : (u16)b)                   \
    X(max_s32, 'w', "max.s32 %r0, %r1, %r2;", (u32)((s32)a > (s32)b ? a : b))                      \
    X(max_u64, 'l', "max.u64 %d0, %d1, %d2;", a > b ? a : b)                                       \
    X(max_s64, 'l', "max.s64 %d0, %d1, %d2;", (s64)a > (s64)b ? a : b)                             \
    X(max_relu, 'w', "max.relu.s32 %r0, %r1, %r2;",                                                \
      (u32)((s32)a > (s32)b ? ((s32)a < 0 ? 0 : a) : ((s32)b < 0 ? 0 : b)))                        \
    X(min_s16x2, 'w', "min.s16x2 %r0, %r1, %r2;",                                                  \
      (u16)((s16)a < (s16)b ? a : b) |                                                             \
          (u32)(u16)((s16)(a >> 16) < (s16)(b >> 16) ? a >> 16 : b >> 16) << 16)                   \
    X(sad_u32, 'w', "sad.u32 %r0, %r1, %r2, %r3;",                                                 \
      (u32)(c + ((u32)a < (u32)b ? (u32)(b - a) : (u32)(a - b))))                                  \
    X(sad_s32, 'w', "sad.s32 %r0, %r1, %r2, %r3;",                                                 \
      (u32)(c + ((s32)a < (s32)b ? (u32)(b - a) : (u32)(a - b))))                                  \
    X(and32, 'w', "and.b32 %r0, %r1, %r2;", (u32)(a & b))                                          \
    X(or64, 'l', "or.b64 %d0, %d1, %d2;", a | b)                                                   \
    X(xor16, 'h', "xor.b16 %h0, %h1, %h2;", (u16)(a ^ b))                                          \
    X(not16, 'h', "not.b16 %h0, %h1;", (u16)~a)                                                    \
    X(not64, 'l', "not.b64 %d0, %d1;", ~a)                                                         \
    X(cnot32, 'w', "cnot.b32 %r0, %r1;", (u32)a == 0)                                              \
    X(shl16, 'h', "shl.b16 %h0, %h1, %r2;", (u32)b > 15 ? 0 : (u16)(a << (u32)b))                  \
    X(shl32, 'w', "shl.b32 %r0, %r1, %r2;", (u32)b > 31 ? 0 : (u32)(a << (u32)b))                  \
    X(shl64, 'l', "shl.b64 %d0, %d1, %r2;", (u32)b > 63 ? 0 : a << (u32)b)                         \
    X(shr_u16, 'h', "shr.u16 %h0, %h1, %r2;", (u32)b > 15 ? 0 : (u16)a >> (u32)b)                  \
    X(shr_s16, 'h', "shr.s16 %h0, %h1, %r2;", (u16)((s16)a >> ((u32)b > 15 ? 15 : (u32)b)))        \
    X(shr_u32, 'w', "shr.u32 %r0, %r1, %r2;", (u32)b > 31 ? 0 : (u32)a >> (u32)b)                  \
    X(shr_s32, 'w', "shr.s32 %r0, %r1, %r2;", (u32)((s32)a >> ((u32)b > 31 ? 31 : (u32)b)))        \
    X(shr_u64, 'l', "shr.u64 %d0, %d1, %r2;", (u32)b > 63 ? 0 : a >> (u32)b)                       \
    X(shr_s64, 'l', "shr.s64 %d0, %d1, %r2;", (u64)((s64)a >> ((u32)b > 63 ? 63 : (u32)b)))        \
    X(shf_l_wrap, 'w', "shf.l.wrap.b32 %r0, %r1, %r2, %r3;",                                       \
      (u32)(((u64)(u32)b << 32 | (u32)a) << (c & 31) >> 32))                                       \
    X(shf_r_wrap, 'w', "shf.r.wrap.b32 %r0, %r1, %r2, %r3;",                                       \
      (u32)(((u64)(u32)b << 32 | (u32)a) >> (c & 31)))                                             \
    X(shf_l_clamp, 'w', "shf.l.clamp.b32 %r0, %r1, %r2, %r3;",                                     \
      (u32)c >= 32 ? (u32)a : (u32)(((u64)(u32)b << 32 | (u32)a) << (u32)c >> 32))                 \
    X(shf_r_clamp, 'w', "shf.r.clamp.b32 %r0, %r1, %r2, %r3;",                                     \
      (u32)c >= 32 ? (u32)b : (u32)(((u64)(u32)b << 32 | (u32)a) >> (u32)c))                       \
    X(lop3, 'w', "lop3.b32 %r0, %r1, %r2, %r3, 0xd8;", logic3((u32)a, (u32)b, (u32)c, 0xd8))       \
    X(lop3_b, 'w', "lop3.b32 %r0, %r1, %r2, %r3, 0x96;", (u32)(a ^ b ^ c))                         \
    X(popc32, 'w', "popc.b32 %r0, %r1;", bits_of((u32)a))                                          \
    X(popc64, 'w', "popc.b64 %r0, %d1;", bits_of((u32)a) + bits_of((u32)(a >> 32)))                \
    X(clz32, 'w', "clz.b32 %r0, %r1;", leading((u32)a, 32))                                        \
    X(clz64, 'w', "clz.b64 %r0, %d1;", leading(a, 64))                                             \
    X(brev32, 'w', "brev.b32 %r0, %r1;", mirror((u32)a, 32))                                       \
    X(brev64, 'l', "brev.b64 %d0, %d1;", mirror(a, 64))                                            \
    X(bfind_u32, 'w', "bfind.u32 %r0, %r1;", (u32)a ? 31 - leading((u32)a, 32) : ~0u)              \
    X(bfind_s32, 'w', "bfind.s32 %r0, %r1;",                                                       \
      (u32)((s32)a < 0 ? ~a : a) ? 31 - leading((u32)((s32)a < 0 ? ~a : a), 32) : ~0u)             \
    X(bfind_u64, 'w', "bfind.u64 %r0, %d1;", a ? 63 - leading(a, 64) : ~0u)                        \
    X(bfind_shift, 'w', "bfind.shiftamt.u32 %r0, %r1;", (u32)a ? leading((u32)a, 32) : ~0u)        \
    X(bfe_u32, 'w', "bfe.u32 %r0, %r1, %r2, %r3;", field((u32)a, (u32)b, (u32)c, 32, false))       \
    X(bfe_s32, 'w', "bfe.s32 %r0, %r1, %r2, %r3;", field((u32)a, (u32)b, (u32)c, 32, true))        \
    X(bfe_u64, 'l', "bfe.u64 %d0, %d1, %r2, %r3;", field(a, (u32)b, (u32)c, 64, false))            \
    X(bfe_s64, 'l', "bfe.s64 %d0, %d1, %r2, %r3;", field(a, (u32)b, (u32)c, 64, true))             \
    X(bfi32, 'w', "bfi.b32 %r0, %r1, %r2, %r3, 5;", (u32)insert(a, (u32)b, (u32)c, 5, 32))         \
    X(bfi32_len, 'w', "bfi.b32 %r0, %r1, %r2, 3, %r3;", (u32)insert(a, (u32)b, 3, (u32)c, 32))     \
    X(bfi64, 'l', "bfi.b64 %d0, %d1, %d2, 32, 32;", (a << 32) | (u32)b)                            \
    X(bfi64_v, 'l', "bfi.b64 %d0, %d1, %d2, %r3, 17;", insert(a, b, (u32)c, 17, 64))               \
    X(bmsk_clamp, 'w', "bmsk.clamp.b32 %r0, %r1, %r2;",                                            \
      (u32)a > 31 ? 0 : (u32)(((u32)b > 31 ? ~0ull : (1ull << (u32)b) - 1) << (u32)a))             \
    X(bmsk_wrap, 'w', "bmsk.wrap.b32 %r0, %r1, %r2;", (u32)(((1ull << (b & 31)) - 1) << (a & 31))) \
    X(fns, 'w', "and.b32 %r2, %r2, 31; fns.b32 %r0, %r1, %r2, 2;", nth((u32)a, (u32)b, 2))         \
    X(fns_down, 'w', "and.b32 %r2, %r2, 31; fns.b32 %r0, %r1, %r2, -3;", nth((u32)a, (u32)b, -3))  \
    X(prmt, 'w', "prmt.b32 %r0, %r1, %r2, %r3;", pick_bytes((u32)a, (u32)b, (u32)c))               \
    X(prmt_imm, 'w', "prmt.b32 %r0, %r1, %r2, 0x7054;", pick_bytes((u32)a, (u32)b, 0x7054))        \
    X(prmt_f4e, 'w', "prmt.b32.f4e %r0, %r1, %r2, %r3;",                                           \
      (u32)(((u64)(u32)b << 32 | (u32)a) >> (8 * (c & 3))))                                        \
    X(prmt_rc8, 'w', "prmt.b32.rc8 %r0, %r1, %r2, %r3;",                                           \
      ((u32)a >> (8 * (c & 3)) & 255) * 0x01010101u)                                               \
    X(dp4a_ss, 'w', "dp4a.s32.s32 %r0, %r1, %r2, %r3;", dot4((u32)a, (u32)b, (u32)c, true, true))  \
    X(dp4a_us, 'w', "dp4a.u32.s32 %r0, %r1, %r2, %r3;", dot4((u32)a, (u32)b, (u32)c, false, true)) \
    X(dp2a_lo, 'w', "dp2a.lo.s32.u32 %r0, %r1, %r2, %r3;",                                         \
      (u32)(c + (u64)((s64)(s16)a * (s64)(b & 255)) +                                              \
            (u64)((s64)(s16)(a >> 16) * (s64)(b >> 8 & 255))))                                     \
    X(dp2a_hi, 'w', "dp2a.hi.u32.u32 %r0, %r1, %r2, %r3;",                                         \
      (u32)(c + (u64)(u16)a * (b >> 16 & 255) + (u64)(u16)(a >> 16) * (b >> 24 & 255)))            \
    X(szext_s, 'w', "and.b32 %r2, %r2, 31; szext.clamp.s32 %r0, %r1, %r2;",                        \
      (b & 31) ? (u32)((s32)((u32)a << (32 - (b & 31))) >> (32 - (b & 31))) : 0)                   \
    X(setp_lt, 'p', "setp.lt.s32 %p0, %r1, %r2;", (s32)a < (s32)b)                                 \
    X(setp_hi, 'p', "setp.hi.u32 %p0, %r1, %r2;", (u32)a > (u32)b)                                 \
    X(setp_ge64, 'p', "setp.ge.s64 %p0, %d1, %d2;", (s64)a >= (s64)b)                              \
    X(setp_ne16, 'p', "setp.ne.s16 %p0, %h1, %h2;", (u16)a != (u16)b)                              \
    X(setp_lt_u16, 'p', "setp.lt.u16 %p0, %h1, %h2;", (u16)a < (u16)b)                             \
    X(setp_and, 'p', "setp.gt.s32 %p1, %r3, 0; setp.le.and.u32 %p0, %r1, %r2, %p1;",               \
      (u32)a <= (u32)b && (s32)c > 0)                                                              \
    X(setp_second, 'p', "setp.gt.s32 %p1, %r3, 0; setp.le.or.u32 %p2|%p0, %r1, %r2, !%p1;",        \
      !((u32)a <= (u32)b) || !((s32)c > 0))                                                        \
    X(set_u32, 'w', "set.ge.u32.s32 %r0, %r1, %r2;", (s32)a >= (s32)b ? ~0u : 0)                   \
    X(set_f32, 'w', "set.lt.f32.u32 %r0, %r1, %r2;", (u32)a < (u32)b ? 0x3f800000u : 0)            \
    X(selp32, 'w', "setp.lt.s32 %p0, %r3, 0; selp.b32 %r0, %r1, %r2, %p0;",                        \
      (s32)c < 0 ? (u32)a : (u32)b)                                                                \
    X(selp64, 'l', "setp.lt.s32 %p0, %r3, 0; selp.b64 %d0, %d1, %d2, %p0;", (s32)c < 0 ? a : b)    \
    X(slct, 'w', "slct.u32.s32 %r0, %r1, %r2, %r3;", (s32)c >= 0 ? (u32)a : (u32)b)                \
    X(cvt_u64_u32, 'l', "cvt.u64.u32 %d0, %r1;", (u32)a)                                           \
    X(cvt_s64_s32, 'l', "cvt.s64.s32 %d0, %r1;", (s64)(s32)a)                                      \
    X(cvt_s64_s8, 'l', "cvt.s64.s8 %d0, %r1;", (s64)(signed char)a)                                \
    X(cvt_u32_u64, 'w', "cvt.u32.u64 %r0, %d1;", (u32)a)                                           \
    X(cvt_u16_u32, 'h', "cvt.u16.u32 %h0, %r1;", (u16)a)                                           \
    X(cvt_s32_s16, 'w', "cvt.s32.s16 %r0, %h1;", (u32)(s16)a)                                      \
    X(cvt_u32_u16, 'w', "cvt.u32.u16 %r0, %h1;", (u16)a)                                           \
    X(cvt_s32_s8, 'w', "cvt.s32.s8 %r0, %r1;", (u32)(signed char)a)                                \
    X(cvt_s8_s32, 'w', "cvt.s8.s32 %r0, %r1;", (u32)(signed char)a)                                \
    X(cvt_u8_u32, 'w', "cvt.u8.u32 %r0, %r1;", a & 255)                                            \
    X(cvt_u8_u64, 'w', "cvt.u8.u64 %r0, %d1;", a & 255)                                            \
    X(cvt_s16_s8, 'h', "cvt.s16.s8 %h0, %r1;", (u16)(signed char)a)                                \
    X(cvt_sat_u8, 'w', "cvt.sat.u8.s32 %r0, %r1;", (s32)a<0 ? 0 : (s32)a> 255 ? 255 : (u32)a)      \
    X(cvt_sat_s16, 'w', "cvt.sat.s16.s32 %r0, %r1;",                                               \
      (u32)((s32)a < -32768  ? -32768                                                              \
            : (s32)a > 32767 ? 32767                                                               \
                             : (s32)a))                                                            \
    X(pack32, 'l', "mov.b64 %d0, {%r1, %r2};", (u64)(u32)b << 32 | (u32)a)                         \
    X(unpack64, 'w', "mov.b64 {_, %r0}, %d1;", (u32)(a >> 32))                                     \
    X(pack16, 'w', "mov.b32 %r0, {%h1, %h2};", (u32)(u16)b << 16 | (u16)a)                         \
    X(unpack32, 'h', "mov.b32 {_, %h0}, %r1;", (u16)((u32)a >> 16))                                \
    X(pack16x4, 'l', "mov.b64 %d0, {%h1, %h2, %h3, %h1};",                                         \
      (u16)a | (u64)(u16)b << 16 | (u64)(u16)c << 32 | (u64)(u16)a << 48)                          \
    X(via128, 'l', "mov.b128 %q0, {%d1, %d2}; mov.b128 {_, %d0}, %q0;", b)                         \
    X(lop3_and, 'p', "setp.gt.s32 %p1, %r3, 0; lop3.and.b32 %r0|%p0, %r1, %r2, %r3, 0x80, %p1;",   \
      ((u32)a & (u32)b & (u32)c) != 0 && (s32)c > 0)                                               \
    X(vadd_sat, 'w', "vadd.s32.u32.s32.sat %r0, %r1.b1, %r2.h0;",                                  \
      (u32)((s64)(a >> 8 & 255) + (s16)b))                                                         \
    X(vsub_merge, 'w', "vsub.u32.u32.u32.sat %r0.b2, %r1.b0, %r2.b0, %r3;",                        \
      ((u32)c & 0xff00ffffu) | (u32)((a & 255) > (b & 255) ? (a & 255) - (b & 255) : 0) << 16)     \
    X(vmax_add, 'w', "vmax.s32.s32.s32.add %r0, %r1, %r2, %r3;",                                   \
      (u32)(((s32)a > (s32)b ? a : b) + c))                                                        \
    X(vmad, 'w', "vmad.s32.s32.s32.shr7 %r0, %r1.h0, %r2.h1, %r3;",                                \
      (u32)(((s64)(s16)a * (s16)((u32)b >> 16) + (s32)c) >> 7))                                    \
    X(vabsdiff4, 'w', "vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3;",                             \
      sad4((u32)a, (u32)b, (u32)c))                                                                \
    X(vavrg4, 'w', "vavrg4.u32.u32.u32 %r0, %r1, %r2, %r3;", average4((u32)a, (u32)b))             \
    X(guard, 'w', "setp.lt.s32 %p0, %r1, %r2; mov.u32 %r0, %r3; @%p0 add.s32 %r0, %r1, %r2;",      \
      (u32)((s32)a < (s32)b ? a + b : c))                                                          \
    X(guard_not, 'l', "setp.lt.s32 %p0,%r1,%r2; mov.u64 %d0, %d3; @!%p0 mul.lo.u64 %d0,%d1,%d2;",  \
      (s32)a < (s32)b ? c : a * b)                                                                 \
    X(pred_logic, 'p',                                                                             \
      "setp.lt.s32 %p1,%r1,%r2; setp.eq.u32 %p2,%r2,%r3; xor.pred %p0,%p1,%p2; not.pred %p0,%p0;", \
      !(((s32)a < (s32)b) ^ ((u32)b == (u32)c)))

#define FUNCTION(name, kind, text, expr)                                                           \
    static u64 c_##name(u64 a, u64 b, u64 c)                                                       \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        (void)c;                                                                                   \
        return (u64)(expr);                                                                        \
    }
LIST(FUNCTION)

static const struct {
    const char *name, *text;
    char kind;
    u64 (*expected)(u64, u64, u64);
} cases[] = {
#define ENTRY(name, kind, text, expr) {#name, text, kind, c_##name},
    LIST(ENTRY)};
#define CASES (sizeof cases / sizeof cases[0])

static u64 random64(u64 *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    u64 x = *seed ^ *seed >> 29;
    return x * 0xbf58476d1ce4e5b9ull ^ x >> 32;
}

static void integer_instructions_agree_with_c(void **state)
{
    (void)state;
    static const u64 special[] = {0,
                                  1,
                                  2,
                                  31,
                                  32,
                                  33,
                                  0x7f,
                                  0x80,
                                  0xffff,
                                  0x8000,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x7fffffffffffffff,
                                  0x8000000000000000,
                                  ~0ull,
                                  0x100000000};
    const unsigned specials = sizeof special / sizeof special[0];
    size_t room = 400 + CASES * 1400;
    char *text = malloc(room), *at = text;
    at += sprintf(at, PTX_HEAD);
    for (size_t i = 0; i < CASES; i++) {
        const char *store = cases[i].kind == 'l'   ? ""
                            : cases[i].kind == 'w' ? "cvt.u64.u32 %d0, %r0;"
                            : cases[i].kind == 'h' ? "cvt.u64.u16 %d0, %h0;"
                                                   : "selp.u64 %d0, 1, 0, %p0;";
        at += sprintf(at,
                      ".visible .entry %s(.param .u64 out, .param .u64 in) {\n"
                      ".reg .pred %%p<4>; .reg .b16 %%h<4>; .reg .b32 %%r<4>; .reg .b64 %%d<9>;"
                      ".reg .b128 %%q0; .reg .b32 %%t<3>;\n"
                      "ld.param.u64 %%d4, [out]; ld.param.u64 %%d5, [in];\n"
                      "mov.u32 %%t0, %%tid.x; mov.u32 %%t1, %%ctaid.x; mov.u32 %%t2, %%ntid.x;\n"
                      "mad.lo.s32 %%t0, %%t1, %%t2, %%t0; mul.wide.u32 %%d6, %%t0, 8;\n"
                      "mad.wide.u32 %%d7, %%t0, 24, %%d5; add.u64 %%d6, %%d4, %%d6;\n"
                      "ld.global.u64 %%d1, [%%d7]; ld.global.u64 %%d2, [%%d7+8];\n"
                      "ld.global.u64 %%d3, [%%d7+16];\n"
                      "cvt.u32.u64 %%r1, %%d1; cvt.u32.u64 %%r2, %%d2; cvt.u32.u64 %%r3, %%d3;\n"
                      "cvt.u16.u64 %%h1, %%d1; cvt.u16.u64 %%h2, %%d2; cvt.u16.u64 %%h3, %%d3;\n"
                      "%s\n%s\nst.global.u64 [%%d6], %%d0;\nret;\n}\n",
                      cases[i].name, cases[i].text, store);
    }
    assert_true((size_t)(at - text) < room);
    static struct machine m;
    machine_load(&m, text, true);
    u64 *out = machine_alloc(&m, N * 8), *in = machine_alloc(&m, N * 24), seed = 1;
    for (unsigned i = 0; i < N * 3; i++) {
        u64 r = random64(&seed);
        /* small numbers are where shifts and fields live */
        in[i] = r % 4 == 0 ? special[r / 4 % specials] : r % 4 == 1 ? r / 4 % 70 : random64(&seed);
    }
    for (size_t i = 0; i < CASES; i++) {
        u64 args[2] = {ARG(out), ARG(in)};
        memset(out, 0xee, N * 8);
        int error = machine_run1(&m, cases[i].name, N / 128, 128, args, 2);
        if (error) {
            fail_msg("%s: %s", cases[i].name, m.fault.message);
        }
        for (unsigned k = 0; k < N; k++) {
            u64 want = cases[i].expected(in[3 * k], in[3 * k + 1], in[3 * k + 2]);
            if (out[k] != want) {
                fail_msg("%s (%s) of %llx, %llx, %llx: %llx, expected %llx", cases[i].name,
                         cases[i].text, (unsigned long long)in[3 * k],
                         (unsigned long long)in[3 * k + 1], (unsigned long long)in[3 * k + 2],
                         (unsigned long long)out[k], (unsigned long long)want);
            }
        }
    }
    machine_unload(&m);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(integer_instructions_agree_with_c)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
