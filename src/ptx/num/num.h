/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of PTX, a warp at a time: floating point in every width, conversions, approximate
 * functions.
 *
 * A register is a row of 32 lanes. Types of up to 32 bits (16-bit ones and packed pairs included)
 * are rows of uint32_t; types of 64 bits (f64, u64, s64, f32x2) are rows of uint64_t. Of narrow
 * types only the low bits of a source count, whatever lies above; a result of a narrow unsigned or
 * bit type (f16, bf16, fp8 ...) is zero-extended to the row's width, of a signed type
 * sign-extended.
 *
 * At decode time tow_num_find() turns a form into a function; at run time the function computes all
 * 32 lanes (inactive lanes may hold anything: no input makes it fault). The executor writes back
 * the active ones. `d` may be exactly the same row as a source; rows never overlap partly.
 *
 * Everything assumes round-to-nearest without flush-to-zero, the state in which a C program
 * starts, and leaves it so (rz, rm and rp switch the rounding mode for one call).
 */
#ifndef TOW_PTX_NUM_H
#define TOW_PTX_NUM_H

#include <stdbool.h>
#include <stdint.h>

#define TOW_NUM_LANES 32

enum tow_num_type {
    TOW_NUM_NONE,
    TOW_NUM_U8,
    TOW_NUM_S8,
    TOW_NUM_U16,
    TOW_NUM_S16,
    TOW_NUM_U32,
    TOW_NUM_S32,
    TOW_NUM_U64,
    TOW_NUM_S64,
    TOW_NUM_F16,
    TOW_NUM_BF16,
    TOW_NUM_F32,
    TOW_NUM_F64,
    TOW_NUM_F16X2,
    TOW_NUM_BF16X2,
    TOW_NUM_F32X2,
    TOW_NUM_TF32,
    TOW_NUM_E4M3X2,
    TOW_NUM_E5M2X2,
    TOW_NUM_E2M1X2,
    TOW_NUM_E2M3X2,
    TOW_NUM_E3M2X2,
    TOW_NUM_UE8M0X2,
    TOW_NUM_E4M3X4, /* the x4 kinds are results of cvt.rs alone, which no finder offers yet */
    TOW_NUM_E5M2X4,
    TOW_NUM_E2M1X4,
    TOW_NUM_E2M3X4,
    TOW_NUM_E3M2X4,
    TOW_NUM_U4, /* u4, s4, u2, s2: only as results of cvt.pack */
    TOW_NUM_S4,
    TOW_NUM_U2,
    TOW_NUM_S2,
    TOW_NUM_TYPE_COUNT
};

enum tow_num_round {
    TOW_NUM_ROUND_NONE, /* none written: rn for arithmetic; for cvt whatever is exact */
    TOW_NUM_RN,
    TOW_NUM_RZ,
    TOW_NUM_RM,
    TOW_NUM_RP,
    TOW_NUM_RNA,
    TOW_NUM_RS, /* stochastic; no finder offers it yet */
    TOW_NUM_RNI,
    TOW_NUM_RZI,
    TOW_NUM_RMI,
    TOW_NUM_RPI,
};

/* What `d = op(a, b, c)` is. Sources that an op lacks are not read (pass NULL or anything). */
enum tow_num_op {
    TOW_NUM_OP_NONE,
    TOW_NUM_ADD, /* f16 bf16 f32 f64 f16x2 bf16x2 f32x2; mixed: type f32, src f16/bf16 (a only) */
    TOW_NUM_SUB, /* likewise */
    TOW_NUM_MUL, /* likewise, without the mixed form */
    TOW_NUM_FMA, /* likewise; also mad.f32/f64; mixed: src is the type of a and b, c is f32 */
    TOW_NUM_DIV, /* f32 (rn rz rm rp, approx, full), f64 */
    TOW_NUM_NEG, /* f16 bf16 f32 f64 f16x2 bf16x2 */
    TOW_NUM_ABS, /* likewise */
    TOW_NUM_MIN, /* likewise; nan and xorsign_abs as written; three sources when `three` */
    TOW_NUM_MAX,
    TOW_NUM_RCP,      /* f32 (rn rz rm rp approx), f64 (rn.. and approx.ftz) */
    TOW_NUM_SQRT,     /* likewise, without approx.f64 */
    TOW_NUM_RSQRT,    /* f32 approx, f64 approx */
    TOW_NUM_SIN,      /* f32 approx */
    TOW_NUM_COS,      /* f32 approx */
    TOW_NUM_LG2,      /* f32 approx */
    TOW_NUM_EX2,      /* f32 approx; f16, f16x2; bf16, bf16x2 (ftz) */
    TOW_NUM_TANH,     /* f32 approx; f16, f16x2, bf16, bf16x2 */
    TOW_NUM_COPYSIGN, /* f32 f64: sign of a, the rest of b */
    TOW_NUM_CVT,      /* `type` from `src`; see num_cvt.c for which go together */
    TOW_NUM_CVT_PACK, /* cvt.pack.sat.`type`.s32 d, a, b[, c]; packed to 32 bits, c a b32 or absent
                       */
};

struct tow_num_form {
    enum tow_num_op op;
    enum tow_num_type type; /* of the result */
    enum tow_num_type src;  /* of the source(s) where it differs; NONE means as `type` */
    enum tow_num_round round;
    bool ftz, sat;
    bool approx, full;          /* div.full; sqrt.approx and so on */
    bool nan, xorsign_abs, abs; /* min, max; abs alone: of three sources, their magnitudes */
    bool three;                 /* min, max: c is a source too */
    bool relu, satfinite, oob;  /* oob: fma.rn.oob, add.rz.oob ... of f16/bf16 */
};

/* All 32 lanes. A packed cvt (f16x2.f32, e4m3x2.f32 ...) takes a into the upper half, b into the
 * lower. */
typedef void tow_num_fn(const struct tow_num_form *form, void *d, const void *a, const void *b,
                        const void *c);

/* The function for a form, or NULL if PTX has no such form (refuse the instruction at load time).
 */
tow_num_fn *tow_num_find(const struct tow_num_form *form);

/* Bytes of one lane of a row of this type: 4 or 8. */
static inline unsigned tow_num_row_bytes(enum tow_num_type type)
{
    return type == TOW_NUM_U64 || type == TOW_NUM_S64 || type == TOW_NUM_F64 ||
                   type == TOW_NUM_F32X2
               ? 8
               : 4;
}

/* ---- single values, for set/setp, atomics, slct, constants and the like --------------- */

#define TOW_NUM_NAN_F16 0x7fffu
#define TOW_NUM_NAN_F32 0x7fffffffu
#define TOW_NUM_NAN_F64 0xfff8000000000000ull

static inline float tow_f32(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = bits};
    return v.f;
}
static inline uint32_t tow_f32_bits(float value)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = value};
    return v.u;
}
static inline double tow_f64(uint64_t bits)
{
    union {
        uint64_t u;
        double f;
    } v = {.u = bits};
    return v.f;
}
static inline uint64_t tow_f64_bits(double value)
{
    union {
        double f;
        uint64_t u;
    } v = {.f = value};
    return v.u;
}

/* Subnormal to zero of the same sign. */
static inline uint32_t tow_f32_ftz(uint32_t a)
{
    uint32_t keep = (a & 0x7f800000u) ? 0xffffffffu : 0x80000000u;
    return a & keep;
}
/* Any NaN becomes the one that f32 arithmetic returns. */
static inline uint32_t tow_f32_canon(uint32_t a)
{
    return (a & 0x7fffffffu) > 0x7f800000u ? TOW_NUM_NAN_F32 : a;
}
static inline bool tow_f32_isnan(uint32_t a)
{
    return (a & 0x7fffffffu) > 0x7f800000u;
}
static inline bool tow_f64_isnan(uint64_t a)
{
    return (a & 0x7fffffffffffffffull) > 0x7ff0000000000000ull;
}
static inline bool tow_f16_isnan(uint32_t a)
{
    return (a & 0x7fffu) > 0x7c00u;
}
static inline bool tow_bf16_isnan(uint32_t a)
{
    return (a & 0x7fffu) > 0x7f80u;
}

/* Exact widenings (a NaN keeps its sign and payload bits). */
uint32_t tow_f16_to_f32(uint32_t a);
static inline uint32_t tow_bf16_to_f32(uint32_t a)
{
    return a << 16;
}
/* Round to nearest even; NaN gives 0x7fff. */
uint32_t tow_f32_to_f16(uint32_t a);
uint32_t tow_f32_to_bf16(uint32_t a);

/* Atomic and reduction arithmetic, bit patterns in and out, round to nearest. f32 atomics in global
 * memory flush subnormals in hardware, in shared memory they do not: pass `ftz`. */
uint32_t tow_f32_add(uint32_t a, uint32_t b, bool ftz);
uint64_t tow_f64_add(uint64_t a, uint64_t b);
uint32_t tow_f16_add(uint32_t a, uint32_t b);
uint32_t tow_bf16_add(uint32_t a, uint32_t b);
uint32_t tow_f16_min(uint32_t a, uint32_t b);
uint32_t tow_f16_max(uint32_t a, uint32_t b);
uint32_t tow_bf16_min(uint32_t a, uint32_t b);
uint32_t tow_bf16_max(uint32_t a, uint32_t b);
uint32_t tow_f32_min(uint32_t a, uint32_t b);
uint32_t tow_f32_max(uint32_t a, uint32_t b);

/* testp: what kind of number a is. */
enum tow_num_testp {
    TOW_NUM_TEST_FINITE,
    TOW_NUM_TEST_INFINITE,
    TOW_NUM_TEST_NUMBER,
    TOW_NUM_TEST_NOTANUMBER,
    TOW_NUM_TEST_NORMAL,
    TOW_NUM_TEST_SUBNORMAL,
};
bool tow_f32_testp(enum tow_num_testp test, uint32_t a);
bool tow_f64_testp(enum tow_num_testp test, uint64_t a);

#endif
