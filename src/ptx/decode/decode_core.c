/* SPDX-License-Identifier: Apache-2.0 */
/* mov, compare and select, branches, calls, barriers. */
#include "ptx/decode/decode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/machine/barrier.h"
#include "ptx/num/num.h"

/* ---- mov ---- */

OP1(decode_core_mov32, uint32_t, uint32_t, a)
OP1(decode_core_mov64, uint64_t, uint64_t, a)
OP(decode_core_mov128)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    uint64_t *d = tow_ptx_row(w, o->d);
    FOR_LANES(l, w->exec)
    {
        d[l] = a[l];
        d[LANES + l] = a[LANES + l];
    }
    return o + 1;
}
OP(mov_pred)
{
    tow_ptx_set_pred(w, o->d, tow_ptx_pred(w, o->a));
    return o + 1;
}
OP2(decode_core_pack16x2, uint32_t, uint32_t, uint32_t, (a & 0xffffu) | b << 16)
OP2(decode_core_pack32x2, uint64_t, uint32_t, uint32_t, a | (uint64_t)b << 32)
OP(decode_core_pack8x4)
{
    const uint32_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b), *c = tow_ptx_row(w, o->c),
                   *e = tow_ptx_row(w, o->e);
    LANE_BODY(uint32_t, ,
              (a[l] & 255u) | (b[l] & 255u) << 8 | (c[l] & 255u) << 16 | (e[l] & 255u) << 24)
}
OP(decode_core_pack16x4)
{
    const uint32_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b), *c = tow_ptx_row(w, o->c),
                   *e = tow_ptx_row(w, o->e);
    LANE_BODY(uint64_t, ,
              (a[l] & 0xffffu) | (uint64_t)(b[l] & 0xffffu) << 16 |
                  (uint64_t)(c[l] & 0xffffu) << 32 | (uint64_t)(e[l] & 0xffffu) << 48)
}
OP(decode_core_pack64x2)
{
    const uint64_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b);
    uint64_t *d = tow_ptx_row(w, o->d);
    FOR_LANES(l, w->exec)
    {
        uint64_t low = a[l], high = b[l];
        d[l] = low;
        d[LANES + l] = high;
    }
    return o + 1;
}
OP(decode_core_pack32x4)
{
    const uint32_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b), *c = tow_ptx_row(w, o->c),
                   *e = tow_ptx_row(w, o->e);
    uint64_t *d = tow_ptx_row(w, o->d);
    FOR_LANES(l, w->exec)
    {
        d[l] = a[l] | (uint64_t)b[l] << 32;
        d[LANES + l] = c[l] | (uint64_t)e[l] << 32;
    }
    return o + 1;
}
OP1(decode_core_unpack8, uint32_t, uint32_t, (a >> o->imm) & 255u)
OP1(decode_core_unpack16, uint32_t, uint32_t, (a >> o->imm) & 0xffffu)
OP1(decode_core_unpack16w, uint32_t, uint64_t, (a >> o->imm) & 0xffffu)
OP1(decode_core_unpack32w, uint32_t, uint64_t, a >> o->imm)

/* mov.b64 {a, b}, c and mov.b64 c, {a, b}: the vector has 2 or 4 parts of a 32-, 64- or 128-bit row
 */
static int decode_unpack(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *vector,
                         const struct tow_ptx_operand *from, enum tow_ptx_type type)
{
    char kind = tow_ptx_type_kind(type);
    uint32_t source;
    int error = tow_ptx_source(dec, from, kind, &source);
    unsigned bits = tow_ptx_type_bytes(type) * 8 / (vector->count ? vector->count : 1);
    for (uint32_t i = 0; i < vector->count && error == 0; i++) {
        struct tow_ptx_op op = {.a = source, .imm = (int64_t)(bits * i)};
        char part = bits == 64 ? 'l' : 'w';
        if (vector->children[i].kind == OPD_SINK) {
            continue;
        }
        if (kind == 'q') { /* two 64-bit rows, one behind the other */
            op.a = source + (bits * i / 64) * 256;
            op.imm = bits * i % 64;
            op.run = bits == 64 ? decode_core_mov64 : decode_core_unpack32w;
        } else if (kind == 'l' || kind == 'd') {
            op.run = bits == 32 ? decode_core_unpack32w : decode_core_unpack16w;
        } else {
            op.run = bits == 16 ? decode_core_unpack16 : decode_core_unpack8;
        }
        if ((error = tow_ptx_dest(dec, &vector->children[i], part, &op.d)) == 0) {
            error = tow_ptx_emit(dec, &op);
        }
    }
    return error;
}

static int decode_pack(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *vector,
                       const struct tow_ptx_operand *to, enum tow_ptx_type type)
{
    char kind = tow_ptx_type_kind(type);
    struct tow_ptx_op op = {0};
    uint32_t *places[4] = {&op.a, &op.b, &op.c, &op.e};
    unsigned bits = tow_ptx_type_bytes(type) * 8 / (vector->count ? vector->count : 1);
    int error = tow_ptx_dest(dec, to, kind, &op.d);
    for (uint32_t i = 0; i < vector->count && error == 0; i++) {
        error = tow_ptx_source(dec, &vector->children[i], bits == 64 ? 'l' : 'w', places[i]);
    }
    if (kind == 'q') {
        op.run = bits == 64 ? decode_core_pack64x2 : decode_core_pack32x4;
    } else if (kind == 'l' || kind == 'd') {
        op.run = bits == 32 ? decode_core_pack32x2 : decode_core_pack16x4;
    } else {
        op.run = bits == 16 ? decode_core_pack16x2 : decode_core_pack8x4;
    }
    return error ? error : tow_ptx_emit(dec, &op);
}

static int decode_mov(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error) {
        return error;
    }
    enum tow_ptx_type type =
        insn->mod_count ? tow_ptx_mod_type(insn->mods[insn->mod_count - 1]) : PT_NONE;
    const struct tow_ptx_operand *d = &insn->operands[0], *a = &insn->operands[1];
    if (!type) {
        return tow_ptx_unsupported(dec);
    }
    bool whole_vector = tow_ptx_has_mod(dec, "v2") || tow_ptx_has_mod(dec, "v4");
    char kind = tow_ptx_type_kind(type);
    if (whole_vector) { /* mov.v4.f32 a, b */
        if (d->kind != OPD_VECTOR || a->kind != OPD_VECTOR || d->count != a->count) {
            return tow_ptx_bad(dec, "both operands must be vectors");
        }
        for (uint32_t i = 0; i < d->count && error == 0; i++) {
            struct tow_ptx_op op = {.run = kind == 'l' || kind == 'd' ? decode_core_mov64
                                                                      : decode_core_mov32};
            if ((error = tow_ptx_dest(dec, &d->children[i], kind, &op.d)) == 0 &&
                (error = tow_ptx_source(dec, &a->children[i], kind, &op.a)) == 0) {
                error = tow_ptx_emit(dec, &op);
            }
        }
        return error;
    }
    if (d->kind == OPD_VECTOR || a->kind == OPD_VECTOR) {
        const struct tow_ptx_operand *vector = d->kind == OPD_VECTOR ? d : a;
        unsigned bytes = tow_ptx_type_bytes(type);
        if ((vector->count != 2 && vector->count != 4) || bytes < 2 ||
            (bytes == 4 && vector->count > 4) || bytes / vector->count == 0) {
            return tow_ptx_bad(dec, "the vector does not fit the type");
        }
        if (d->kind == OPD_VECTOR && a->kind == OPD_VECTOR) {
            return tow_ptx_bad(dec, "both operands are vectors");
        }
        return d->kind == OPD_VECTOR ? decode_unpack(dec, d, a, type)
                                     : decode_pack(dec, a, d, type);
    }
    struct tow_ptx_op op = {0};
    if ((error = tow_ptx_dest(dec, d, kind, &op.d))) {
        return error;
    }
    if (a->kind == OPD_SYMBOL) {
        return tow_ptx_symbol_row(dec, a, kind, op.d);
    }
    op.run = kind == 'p'                  ? mov_pred
             : kind == 'q'                ? decode_core_mov128
             : kind == 'l' || kind == 'd' ? decode_core_mov64
                                          : decode_core_mov32;
    if ((error = tow_ptx_source(dec, a, kind, &op.a)) == 0) {
        error = tow_ptx_emit(dec, &op);
    }
    return error;
}

/* ---- compare and select ---- */

typedef uint32_t compare_fn(const void *a, const void *b);

#define COMPARE_LANES(name, T, ROW, LOAD, COND)                                                    \
    TOW_INLINE uint32_t name##_lanes(const void *pa, const void *pb)                               \
    {                                                                                              \
        const ROW *ra = pa, *rb = pb;                                                              \
        uint32_t m = 0;                                                                            \
        for (unsigned l = 0; l < LANES; l++) {                                                     \
            T a = LOAD(ra[l]), b = LOAD(rb[l]);                                                    \
            m |= (COND) ? tow_ptx_lane_bit[l] : 0u;                                                \
        }                                                                                          \
        return m;                                                                                  \
    }
/* For who wants the bits, and setp as an operation of its own. */
#define COMPARE(name, T, ROW, LOAD, COND)                                                          \
    COMPARE_LANES(name, T, ROW, LOAD, COND)                                                        \
    TOW_HOT static uint32_t name(const void *pa, const void *pb)                                   \
    {                                                                                              \
        return name##_lanes(pa, pb);                                                               \
    }                                                                                              \
    OP(setp_##name)                                                                                \
    {                                                                                              \
        tow_ptx_set_pred(w, o->d, name##_lanes(tow_ptx_row(w, o->a), tow_ptx_row(w, o->b)));       \
        return o + 1;                                                                              \
    }
#define AS_IS(x) (x)
#define AS_F32(x) tow_f32(x)
#define AS_F32_FTZ(x) tow_f32(tow_f32_ftz(x))
#define AS_F64(x) tow_f64(x)
#define AS_F16(x) tow_f32(tow_f16_to_f32((x)&0xffffu))
/* subnormals of f16 are zero */
#define AS_F16_FTZ(x) AS_F16((x)&0x7c00u ? (x) : (x)&0x8000u)
#define AS_BF16(x) tow_f32(tow_bf16_to_f32((x)&0xffffu))
#define AS_U16(x) (uint16_t)(x)
#define AS_S16(x) (int16_t)(x)

#define INT_COMPARES(t, T, ROW, LOAD)                                                              \
    COMPARE(eq_##t, T, ROW, LOAD, a == b)                                                          \
    COMPARE(ne_##t, T, ROW, LOAD, a != b)                                                          \
    COMPARE(lt_##t, T, ROW, LOAD, a < b)                                                           \
    COMPARE(le_##t, T, ROW, LOAD, a <= b)                                                          \
    COMPARE(gt_##t, T, ROW, LOAD, a > b)                                                           \
    COMPARE(ge_##t, T, ROW, LOAD, a >= b)
#define FLOAT_COMPARES(t, T, ROW, LOAD)                                                            \
    COMPARE(eq_##t, T, ROW, LOAD, a == b)                                                          \
    COMPARE(ne_##t, T, ROW, LOAD, (a < b) | (a > b))                                               \
    COMPARE(lt_##t, T, ROW, LOAD, a < b)                                                           \
    COMPARE(le_##t, T, ROW, LOAD, a <= b)                                                          \
    COMPARE(gt_##t, T, ROW, LOAD, a > b)                                                           \
    COMPARE(ge_##t, T, ROW, LOAD, a >= b)                                                          \
    COMPARE(equ_##t, T, ROW, LOAD, !((a < b) | (a > b)))                                           \
    COMPARE(neu_##t, T, ROW, LOAD, !(a == b))                                                      \
    COMPARE(ltu_##t, T, ROW, LOAD, !(a >= b))                                                      \
    COMPARE(leu_##t, T, ROW, LOAD, !(a > b))                                                       \
    COMPARE(gtu_##t, T, ROW, LOAD, !(a <= b))                                                      \
    COMPARE(geu_##t, T, ROW, LOAD, !(a < b))                                                       \
    COMPARE(num_##t, T, ROW, LOAD, (a == a) & (b == b))                                            \
    COMPARE(nan_##t, T, ROW, LOAD, (a != a) | (b != b))

INT_COMPARES(u16, uint16_t, uint32_t, AS_U16)
INT_COMPARES(s16, int16_t, uint32_t, AS_S16)
INT_COMPARES(u32, uint32_t, uint32_t, AS_IS)
INT_COMPARES(s32, int32_t, int32_t, AS_IS)
INT_COMPARES(u64, uint64_t, uint64_t, AS_IS)
INT_COMPARES(s64, int64_t, int64_t, AS_IS)
FLOAT_COMPARES(f32, float, uint32_t, AS_F32)
FLOAT_COMPARES(f32z, float, uint32_t, AS_F32_FTZ)
FLOAT_COMPARES(f64, double, uint64_t, AS_F64)
FLOAT_COMPARES(f16, float, uint32_t, AS_F16)
FLOAT_COMPARES(f16z, float, uint32_t, AS_F16_FTZ)
FLOAT_COMPARES(bf16, float, uint32_t, AS_BF16)

struct comparison {
    compare_fn *fn;
    tow_ptx_fn *setp;
};
#define BOTH(name)                                                                                 \
    {                                                                                              \
        name, setp_##name                                                                          \
    }
#define INT_ROW(t)                                                                                 \
    {                                                                                              \
        BOTH(eq_##t), BOTH(ne_##t), BOTH(lt_##t), BOTH(le_##t), BOTH(gt_##t), BOTH(ge_##t)         \
    }
#define FLOAT_ROW(t)                                                                               \
    {                                                                                              \
        BOTH(eq_##t), BOTH(ne_##t), BOTH(lt_##t), BOTH(le_##t), BOTH(gt_##t), BOTH(ge_##t),        \
            BOTH(equ_##t), BOTH(neu_##t), BOTH(ltu_##t), BOTH(leu_##t), BOTH(gtu_##t),             \
            BOTH(geu_##t), BOTH(num_##t), BOTH(nan_##t)                                            \
    }
enum {
    CMP_U16,
    CMP_S16,
    CMP_U32,
    CMP_S32,
    CMP_U64,
    CMP_S64,
    CMP_F32,
    CMP_F32Z,
    CMP_F64,
    CMP_F16,
    CMP_F16Z,
    CMP_BF16,
};
static const struct comparison compares[][14] = {
    [CMP_U16] = INT_ROW(u16),   [CMP_S16] = INT_ROW(s16),     [CMP_U32] = INT_ROW(u32),
    [CMP_S32] = INT_ROW(s32),   [CMP_U64] = INT_ROW(u64),     [CMP_S64] = INT_ROW(s64),
    [CMP_F32] = FLOAT_ROW(f32), [CMP_F32Z] = FLOAT_ROW(f32z), [CMP_F64] = FLOAT_ROW(f64),
    [CMP_F16] = FLOAT_ROW(f16), [CMP_F16Z] = FLOAT_ROW(f16z), [CMP_BF16] = FLOAT_ROW(bf16),
};
static const char *const compare_names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                            "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

struct compare {
    compare_fn *fn;
    char boolean;  /* 0, 'a'nd, 'o'r, 'x'or with predicate c */
    bool pair;     /* f16x2: both halves */
    uint32_t one;  /* set: what true is */
    bool set_pair; /* set.f16x2-like: halves of the result */
};

static inline uint32_t decode_core_combine(const struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                           const struct compare *how, uint32_t m)
{
    if (!how->boolean) {
        return m;
    }
    uint32_t c = tow_ptx_pred(w, o->c);
    return how->boolean == 'a' ? m & c : how->boolean == 'o' ? m | c : m ^ c;
}

static void upper_halves(uint32_t *to, const uint32_t *from)
{
    for (unsigned l = 0; l < LANES; l++) {
        to[l] = from[l] >> 16;
    }
}

/* d, second destination e, with a boolean operation or packed halves */
OP(setp_full)
{
    const struct compare *how = o->ext;
    const void *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b);
    uint32_t m = how->fn(a, b), other = ~m;
    if (how->pair) {
        uint32_t ha[LANES], hb[LANES];
        upper_halves(ha, a);
        upper_halves(hb, b);
        other = how->fn(ha, hb);
    }
    uint32_t first = decode_core_combine(w, o, how, m),
             second = decode_core_combine(w, o, how, other);
    tow_ptx_set_pred(w, o->d, first);
    if (o->e != PTX_NO_SLOT) {
        tow_ptx_set_pred(w, o->e, second);
    }
    return o + 1;
}

OP(decode_core_set32)
{
    const struct compare *how = o->ext;
    const void *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b);
    uint32_t m = decode_core_combine(w, o, how, how->fn(a, b)), high = 0;
    if (how->pair) {
        uint32_t ha[LANES], hb[LANES];
        upper_halves(ha, a);
        upper_halves(hb, b);
        high = decode_core_combine(w, o, how, how->fn(ha, hb));
    }
    uint32_t one = how->one;
    LANE_BODY(uint32_t, , ((m >> l) & 1u ? one : 0u) | ((high >> l) & 1u ? one << 16 : 0u))
}

static int compare_class(enum tow_ptx_type type, bool ftz, bool *ret_unsigned)
{
    *ret_unsigned = false;
    switch (type) {
    case PT_B16:
    case PT_U16:
        *ret_unsigned = true;
        return CMP_U16;
    case PT_S16:
        return CMP_S16;
    case PT_B32:
    case PT_U32:
        *ret_unsigned = true;
        return CMP_U32;
    case PT_S32:
        return CMP_S32;
    case PT_B64:
    case PT_U64:
        *ret_unsigned = true;
        return CMP_U64;
    case PT_S64:
        return CMP_S64;
    case PT_F32:
        return ftz ? CMP_F32Z : CMP_F32;
    case PT_F64:
        return CMP_F64;
    case PT_F16:
    case PT_F16X2:
        return ftz ? CMP_F16Z : CMP_F16;
    case PT_BF16:
    case PT_BF16X2:
        return CMP_BF16;
    default:
        return -1;
    }
}

/* What the modifiers of a comparison say. */
struct set_words {
    enum tow_ptx_type type;   /* of what is compared */
    enum tow_ptx_type result; /* of set */
    char boolean;             /* of and, or, xor; 0: none */
    const struct comparison *as;
};

/* Of older names, for unsigned numbers, the newer ones. */
static const struct comparison *compare_find(const char *name, int class, bool is_unsigned)
{
    static const char *const old_names[][2] = {
        {"lo", "lt"}, {"ls", "le"}, {"hi", "gt"}, {"hs", "ge"}};
    for (unsigned i = 0; i < 4; i++) {
        name = !strcmp(name, old_names[i][0]) && is_unsigned ? old_names[i][1] : name;
    }
    const struct comparison *as = NULL;
    for (unsigned i = 0; i < 14; i++) {
        as = strcmp(name, compare_names[i]) == 0 ? &compares[class][i] : as;
    }
    return as && as->fn ? as : NULL;
}

static int set_words_read(struct tow_ptx_decoder *dec, bool to_pred, struct set_words *ret_words)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct set_words words = {.type = PT_NONE, .result = PT_NONE};
    enum tow_ptx_type types[2] = {PT_NONE, PT_NONE};
    unsigned type_count = 0;
    for (unsigned i = 1; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        enum tow_ptx_type type = tow_ptx_mod_type(mod);
        if (type && type_count < 2) {
            types[type_count++] = type;
        } else if (!strcmp(mod, "and") || !strcmp(mod, "or") || !strcmp(mod, "xor")) {
            words.boolean = *mod;
        } else if (strcmp(mod, "ftz") != 0) {
            return tow_ptx_unsupported(dec);
        }
    }
    if (!insn->mod_count || type_count != (to_pred ? 1u : 2u)) {
        return tow_ptx_unsupported(dec);
    }
    words.type = types[type_count - 1];
    words.result = types[0];
    bool is_unsigned;
    int class = compare_class(words.type, tow_ptx_has_mod(dec, "ftz"), &is_unsigned);
    words.as = class >= 0 ? compare_find(insn->mods[0], class, is_unsigned) : NULL;
    if (!words.as) {
        return tow_ptx_unsupported(dec);
    }
    *ret_words = words;
    return 0;
}

/* What set writes for "true" into a result of this type; 0: it has none. */
static uint32_t set_one(enum tow_ptx_type result, bool pair)
{
    switch (result) {
    case PT_U32:
    case PT_S32:
    case PT_B32:
        return pair ? 0xffffu : FULL;
    case PT_U16:
    case PT_S16:
        return 0xffffu;
    case PT_F32:
        return 0x3f800000u;
    case PT_F16:
    case PT_F16X2:
        return 0x3c00u;
    case PT_BF16:
    case PT_BF16X2:
        return 0x3f80u;
    default:
        return 0;
    }
}

/* setp.CmpOp{.BoolOp}{.ftz}.type p|q, a, b{, c}   set.CmpOp{.BoolOp}{.ftz}.dtype.stype d, a, b{, c}
 */
static int decode_set(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    bool to_pred = insn->name[3] == 'p';
    struct set_words words = {0};
    int error = set_words_read(dec, to_pred, &words);
    if (error) {
        return error;
    }
    unsigned operands = words.boolean ? 4 : 3;
    if ((error = tow_ptx_want_operands(dec, operands, operands))) {
        return error;
    }
    char kind = tow_ptx_type_kind(words.type);
    bool pair = words.type == PT_F16X2 || words.type == PT_BF16X2;
    struct tow_ptx_op op = {.e = PTX_NO_SLOT};
    if ((error = tow_ptx_source(dec, &insn->operands[1], kind, &op.a)) ||
        (error = tow_ptx_source(dec, &insn->operands[2], kind, &op.b)) ||
        (words.boolean && (error = tow_ptx_source(dec, &insn->operands[3], 'p', &op.c)))) {
        return error;
    }
    const struct tow_ptx_operand *d = &insn->operands[0];
    if (to_pred && !words.boolean && !pair && !d->second) {
        op.run = words.as->setp;
        error = tow_ptx_dest(dec, d, 'p', &op.d);
        return error ? error : tow_ptx_emit(dec, &op);
    }
    struct compare *how = tow_ptx_keep(dec, sizeof *how);
    if (!how) {
        return tow_ptx_dec_no_memory(dec);
    }
    *how = (struct compare){.fn = words.as->fn, .boolean = words.boolean, .pair = pair};
    op.ext = how;
    if (to_pred) {
        op.run = setp_full;
        error = tow_ptx_dest(dec, d, 'p', &op.d);
        if (error == 0 && d->second) {
            error = tow_ptx_dest(dec, d->second, 'p', &op.e);
        }
    } else {
        op.run = decode_core_set32;
        how->one = set_one(words.result, pair);
        error = how->one ? tow_ptx_dest(dec, d, 'w', &op.d) : tow_ptx_unsupported(dec);
    }
    return error ? error : tow_ptx_emit(dec, &op);
}

OP(decode_core_selp32)
{
    const uint32_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b);
    uint32_t p = tow_ptx_pred(w, o->c);
    LANE_BODY(uint32_t, , (p >> l) & 1u ? a[l] : b[l])
}
OP(decode_core_selp64)
{
    const uint64_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b);
    uint64_t p = tow_ptx_pred(w, o->c);
    LANE_BODY(uint64_t, , (p >> l) & 1u ? a[l] : b[l])
}
OP3(slct32_s32, uint32_t, uint32_t, uint32_t, int32_t, c >= 0 ? a : b)
OP3(slct64_s32, uint64_t, uint64_t, uint64_t, int32_t, c >= 0 ? a : b)
OP3(slct32_f32, uint32_t, uint32_t, uint32_t, float, c >= 0 ? a : b)
OP3(slct64_f32, uint64_t, uint64_t, uint64_t, float, c >= 0 ? a : b)
OP3(slct32_f32z, uint32_t, uint32_t, uint32_t, uint32_t, tow_f32(tow_f32_ftz(c)) >= 0 ? a : b)
OP3(slct64_f32z, uint64_t, uint64_t, uint64_t, uint32_t, tow_f32(tow_f32_ftz(c)) >= 0 ? a : b)

static int decode_selp(struct tow_ptx_decoder *dec)
{
    enum tow_ptx_type type =
        dec->insn->mod_count == 1 ? tow_ptx_mod_type(dec->insn->mods[0]) : PT_NONE;
    char kind = tow_ptx_type_kind(type);
    if (!type || kind == 'p' || kind == 'q') {
        return tow_ptx_unsupported(dec);
    }
    char sig[5] = {kind, kind, kind, 'p', 0};
    return tow_ptx_by_signature(
        dec, sig, kind == 'l' || kind == 'd' ? decode_core_selp64 : decode_core_selp32, NULL);
}

static int decode_slct(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    bool ftz = tow_ptx_has_mod(dec, "ftz");
    if (insn->mod_count != (ftz ? 3 : 2)) {
        return tow_ptx_unsupported(dec);
    }
    enum tow_ptx_type type = tow_ptx_mod_type(insn->mods[insn->mod_count - 2]);
    enum tow_ptx_type by = tow_ptx_mod_type(insn->mods[insn->mod_count - 1]);
    char kind = tow_ptx_type_kind(type);
    if (!type || kind == 'p' || kind == 'q' || (by != PT_S32 && by != PT_F32)) {
        return tow_ptx_unsupported(dec);
    }
    bool wide = kind == 'l' || kind == 'd';
    char sig[5] = {kind, kind, kind, by == PT_F32 ? 'f' : 'w', 0};
    tow_ptx_fn *fn = by == PT_S32 ? (wide ? slct64_s32 : slct32_s32)
                     : ftz        ? (wide ? slct64_f32z : slct32_f32z)
                                  : (wide ? slct64_f32 : slct32_f32);
    return tow_ptx_by_signature(dec, sig, fn, NULL);
}

/* lop3.BoolOp.b32 d|p, a, b, c, lut, q: p = (d != 0) BoolOp q. The plain form is in ops_int.c. */
OP(lop3_pred)
{
    const uint32_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b), *c = tow_ptx_row(w, o->c);
    uint32_t r[LANES], m = 0, q = tow_ptx_pred(w, o->e);
    for (unsigned l = 0; l < LANES; l++) {
        r[l] = 0;
        for (unsigned i = 0; i < 8; i++) {
            uint32_t term =
                (i & 4 ? a[l] : ~a[l]) & (i & 2 ? b[l] : ~b[l]) & (i & 1 ? c[l] : ~c[l]);
            r[l] |= (o->imm >> i) & 1 ? term : 0;
        }
        m |= r[l] ? tow_ptx_lane_bit[l] : 0;
    }
    bool conjunction = o->ext != NULL;
    tow_ptx_blend32(w, tow_ptx_row(w, o->d), r);
    tow_ptx_set_pred(w, o->f, conjunction ? m & q : m | q);
    return o + 1;
}

static int decode_lop3(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    static const char yes = 1;
    struct tow_ptx_op op = {.run = lop3_pred};
    bool conjunction = tow_ptx_has_mod(dec, "and");
    if (insn->mod_count != 2 || !tow_ptx_has_mod(dec, "b32") ||
        (!conjunction && !tow_ptx_has_mod(dec, "or"))) {
        return tow_ptx_unsupported(dec);
    }
    op.ext = conjunction ? &yes : NULL;
    int error = tow_ptx_want_operands(dec, 6, 6);
    if (error) {
        return error;
    }
    if (!insn->operands[0].second || insn->operands[4].kind != OPD_INT) {
        return tow_ptx_bad(dec, "d|p and an immediate table are expected");
    }
    op.imm = (int64_t)insn->operands[4].bits;
    if ((error = tow_ptx_dest(dec, &insn->operands[0], 'w', &op.d)) ||
        (error = tow_ptx_dest(dec, insn->operands[0].second, 'p', &op.f)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], 'w', &op.a)) ||
        (error = tow_ptx_source(dec, &insn->operands[2], 'w', &op.b)) ||
        (error = tow_ptx_source(dec, &insn->operands[3], 'w', &op.c)) ||
        (error = tow_ptx_source(dec, &insn->operands[5], 'p', &op.e))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- control ---- */

static int decode_bra(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    int error = tow_ptx_want_operands(dec, 1, 1);
    if (error) {
        return error;
    }
    const struct tow_ptx_symbol *label = insn->operands[0].symbol;
    if (insn->operands[0].kind != OPD_SYMBOL || !label || label->kind != SYM_LABEL) {
        return tow_ptx_bad(dec, "the target must be a label");
    }
    struct tow_ptx_op op = {.run = tow_ptx_bra, .imm = label->index};
    if (insn->guard != PTX_NO_SLOT) {
        op.run = tow_ptx_bra_if;
        op.guard = tow_ptx_register_ref(dec, insn->guard) | 2u | (insn->guard_negated ? 1u : 0u);
    }
    return tow_ptx_emit(dec, &op);
}

static int decode_brx(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error) {
        return error;
    }
    struct tow_ptx_symbol *list = insn->operands[1].symbol;
    if (insn->operands[1].kind != OPD_SYMBOL || !list || list->kind != SYM_TARGETS) {
        return tow_ptx_bad(dec, "the second operand must be a list of labels");
    }
    struct tow_ptx_op op = {.run = tow_ptx_brx, .imm = list->count};
    if ((error = tow_ptx_source(dec, &insn->operands[0], 'w', &op.a))) {
        return error;
    }
    const struct tow_ptx_op **targets = tow_ptx_keep(dec, list->count * sizeof *targets);
    if (!targets) {
        return tow_ptx_dec_no_memory(dec);
    }
    if (dec->fixup_count == dec->fixup_capacity) {
        uint32_t capacity = dec->fixup_capacity * 2 + 16;
        struct tow_ptx_fixup *more = realloc(dec->fixups, capacity * sizeof *more);
        if (!more) {
            return tow_ptx_dec_no_memory(dec);
        }
        dec->fixups = more;
        dec->fixup_capacity = capacity;
    }
    dec->fixups[dec->fixup_count++] =
        (struct tow_ptx_fixup){.table = targets, .labels = list->labels, .count = list->count};
    op.ext = targets;
    dec->control = true;
    return tow_ptx_emit(dec, &op);
}

static int decode_arguments(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *list,
                            bool returned, struct tow_ptx_arg **ret_args)
{
    struct tow_ptx_arg *args = tow_ptx_keep(dec, (list->count + 1) * sizeof *args);
    if (!args) {
        return tow_ptx_dec_no_memory(dec);
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const struct tow_ptx_operand *operand = &list->children[i];
        struct tow_ptx_symbol *symbol = operand->symbol;
        struct tow_ptx_arg *arg = &args[i];
        arg->ref = PTX_NO_SLOT;
        if (operand->kind == OPD_SYMBOL && symbol && symbol->kind == SYM_VAR &&
            symbol->var->space == SP_FPARAM && !operand->bits) {
            arg->offset = (uint32_t)symbol->var->offset;
            arg->bytes = (uint32_t)symbol->var->size;
        } else if (operand->kind == OPD_REG) {
            char kind = tow_ptx_register_kind(dec, operand->index);
            if (kind != 'w' && kind != 'l') {
                return tow_ptx_bad(dec, "an argument must be a .param variable or a register");
            }
            arg->ref = tow_ptx_register_ref(dec, operand->index);
            arg->wide = kind == 'l';
            arg->bytes = arg->wide ? 8 : 4;
        } else if (!returned && (operand->kind == OPD_INT || operand->kind == OPD_FLOAT ||
                                 operand->kind == OPD_FLOAT32)) {
            arg->is_imm = true;
            arg->bits = operand->bits;
            arg->bytes = 8;
        } else {
            return tow_ptx_bad(dec, "an argument must be a .param variable or a register");
        }
    }
    *ret_args = args;
    return 0;
}

/* call{.uni} {(ret),} target{, (args)}{, prototype} */
static int decode_call(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_ptx_call *call = tow_ptx_keep(dec, sizeof *call);
    struct tow_ptx_operand none = {0};
    const struct tow_ptx_operand *returns = &none, *args = &none, *target;
    unsigned at = 0;
    if (!call) {
        return tow_ptx_dec_no_memory(dec);
    }
    if (at < insn->operand_count && insn->operands[at].kind == OPD_LIST) {
        returns = &insn->operands[at++];
    }
    if (at >= insn->operand_count) {
        return tow_ptx_bad(dec, "nothing to call");
    }
    target = &insn->operands[at++];
    if (at < insn->operand_count && insn->operands[at].kind == OPD_LIST) {
        args = &insn->operands[at++];
    }
    int error = decode_arguments(dec, returns, true, &call->returns);
    if (error || (error = decode_arguments(dec, args, false, &call->args))) {
        return error;
    }
    call->arg_count = args->count;
    call->return_count = returns->count;
    struct tow_ptx_op op = {.run = tow_ptx_call_op, .ext = call};
    if (target->kind == OPD_SYMBOL) {
        struct tow_ptx_symbol *symbol = tow_ptx_resolve(target->symbol);
        if (!symbol || symbol->kind != SYM_FUNC) {
            return tow_ptx_bad(dec, "the target is not a function");
        }
        call->func = symbol->func;
        if (!call->func->defined) {
            const struct tow_ptx_syscall *own = tow_ptx_syscall_find(call->func->name);
            if (own && call->arg_count != own->arg_count) {
                return tow_ptx_bad(dec, "'%.100s' has %u parameters", own->name, own->arg_count);
            }
            if (!own) {
                tow_ptx_want(dec->program, symbol->func, insn->line);
            }
            call->syscall = own ? own->run : tow_ptx_call_undefined;
            op.run = tow_ptx_syscall_op;
        }
        if (call->func->entry || call->func->param_count != call->arg_count ||
            call->func->return_count < call->return_count) {
            return tow_ptx_bad(dec, "'%.100s' takes other parameters", call->func->name);
        }
    } else if ((error = tow_ptx_source(dec, target, 'l', &call->target))) {
        return error;
    }
    dec->control = op.run == tow_ptx_call_op;
    return tow_ptx_emit(dec, &op);
}

static int decode_simple(struct tow_ptx_decoder *dec, tow_ptx_fn *fn, int64_t imm)
{
    struct tow_ptx_op op = {.run = fn, .imm = imm};
    dec->control = true;
    return tow_ptx_emit(dec, &op);
}
static int decode_ret(struct tow_ptx_decoder *dec)
{
    return decode_simple(dec, tow_ptx_ret_op, 0);
}
static int decode_exit(struct tow_ptx_decoder *dec)
{
    return decode_simple(dec, tow_ptx_exit_op, 0);
}
static int decode_trap(struct tow_ptx_decoder *dec)
{
    return decode_simple(dec, tow_ptx_trap, 0);
}
static int decode_brkpt(struct tow_ptx_decoder *dec)
{
    return decode_simple(dec, tow_ptx_trap, 1);
}

/* ---- barriers ---- */

/* bar{.cta}.sync a{, b}   .arrive a, b   .red.popc.u32 d, a{, b}, p   .red.and.pred   .warp.sync m
 * barrier{.cta}.sync{.aligned} ...   barrier.cluster.arrive/wait */
static int decode_bar(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_ptx_op op = {.run = tow_ptx_bar, .b = PTX_NO_SLOT};
    int error = 0;
    unsigned at = 0, count = insn->operand_count;
    bool arrive = tow_ptx_has_mod(dec, "arrive"), red = tow_ptx_has_mod(dec, "red");
    if (tow_ptx_has_mod(dec, "warp")) {
        if ((error = tow_ptx_want_operands(dec, 1, 1)) == 0 &&
            (error = tow_ptx_source(dec, &insn->operands[0], 'w', &op.a)) == 0) {
            op.run =
                tow_ptx_const_known(dec, op.a, &op.b) ? tow_ptx_bar_warp_fixed : tow_ptx_bar_warp;
            dec->control = true;
            error = tow_ptx_emit(dec, &op);
        }
        return error;
    }
    if (tow_ptx_has_mod(dec, "cluster")) {
        if ((error = tow_ptx_want_operands(dec, 0, 0))) {
            return error;
        }
        op.run = arrive ? tow_ptx_cluster_arrive : tow_ptx_cluster_wait;
        dec->control = !arrive;
        return tow_ptx_emit(dec, &op);
    }
    if (!arrive && !red && !tow_ptx_has_mod(dec, "sync")) {
        return tow_ptx_unsupported(dec);
    }
    if (red) {
        op.e = tow_ptx_has_mod(dec, "popc")  ? BAR_POPC
               : tow_ptx_has_mod(dec, "and") ? BAR_AND
                                             : BAR_OR;
        if ((error = tow_ptx_want_operands(dec, 3, 4)) ||
            (error =
                 tow_ptx_dest(dec, &insn->operands[at++], op.e == BAR_POPC ? 'w' : 'p', &op.d)) ||
            (error = tow_ptx_source(dec, &insn->operands[--count], 'p', &op.c))) {
            return error;
        }
    }
    if (at >= count || count - at > 2) {
        return tow_ptx_bad(dec, "a barrier number is expected");
    }
    if ((error = tow_ptx_source(dec, &insn->operands[at++], 'w', &op.a)) ||
        (at < count && (error = tow_ptx_source(dec, &insn->operands[at], 'w', &op.b)))) {
        return error;
    }
    op.f = arrive ? BAR_ARRIVE : 0;
    dec->control = !arrive;
    return tow_ptx_emit(dec, &op);
}

const struct tow_ptx_special tow_ptx_specials_core[] = {
    {"mov", decode_mov},     {"setp", decode_set},  {"set", decode_set},     {"selp", decode_selp},
    {"slct", decode_slct},   {"lop3", decode_lop3}, {"bra", decode_bra},     {"brx", decode_brx},
    {"call", decode_call},   {"ret", decode_ret},   {"exit", decode_exit},   {"trap", decode_trap},
    {"brkpt", decode_brkpt}, {"bar", decode_bar},   {"barrier", decode_bar}, {NULL, NULL},
};
