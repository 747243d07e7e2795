/* SPDX-License-Identifier: Apache-2.0 */
/* Floating point and conversions: forms are looked up in num.h, the common ones are inlined here.
 */
#include "ptx/decode/decode.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "ptx/num/num.h"

/* ---- the fast ones
 * ----------------------------------------------------------------------------------------- */

static inline uint32_t decode_num_canon(float r)
{
    uint32_t bits = tow_f32_bits(r);
    return r == r ? bits : TOW_NUM_NAN_F32;
}
OP2(add_f32, uint32_t, float, float, decode_num_canon(a + b))
OP2(sub_f32, uint32_t, float, float, decode_num_canon(a - b))
OP2(mul_f32, uint32_t, float, float, decode_num_canon(a *b))
OP3(fma_f32, uint32_t, float, float, float, decode_num_canon(__builtin_fmaf(a, b, c)))
static inline uint32_t decode_num_flush(float r)
{
    return tow_f32_ftz(decode_num_canon(r));
}
#define Z(x) tow_f32(tow_f32_ftz(x))
OP2(add_ftz_f32, uint32_t, uint32_t, uint32_t, decode_num_flush(Z(a) + Z(b)))
OP2(sub_ftz_f32, uint32_t, uint32_t, uint32_t, decode_num_flush(Z(a) - Z(b)))
/* What is flushed is known before rounding: the product of two f32 is exact in double. */
static inline uint32_t flush_product(float a, float b)
{
    uint32_t r = decode_num_canon(a * b);
    return __builtin_fabs((double)a * b) < 0x1p-126 ? r & 0x80000000u : r;
}
OP2(mul_ftz_f32, uint32_t, uint32_t, uint32_t, flush_product(Z(a), Z(b)))
OP3(fma_ftz_f32, uint32_t, uint32_t, uint32_t, uint32_t,
    decode_num_flush(__builtin_fmaf(Z(a), Z(b), Z(c))))

const struct tow_ptx_entry tow_ptx_ops_float[] = {
    {"add.f32 add.rn.f32", "fff", add_f32},
    {"sub.f32 sub.rn.f32", "fff", sub_f32},
    {"mul.f32 mul.rn.f32", "fff", mul_f32},
    {"fma.rn.f32 mad.f32 mad.rn.f32", "ffff", fma_f32},
    {"fma.rn.ftz.f32 mad.ftz.f32 mad.rn.ftz.f32", "ffff", fma_ftz_f32},
    {"add.ftz.f32 add.rn.ftz.f32", "fff", add_ftz_f32},
    {"sub.ftz.f32 sub.rn.ftz.f32", "fff", sub_ftz_f32},
    {"mul.ftz.f32 mul.rn.ftz.f32", "fff", mul_ftz_f32},
    {NULL, NULL, NULL},
};

/* ---- any form
 * ---------------------------------------------------------------------------------------------------
 */

struct num_ext {
    struct tow_num_form form;
    tow_num_fn *fn;
};

OP(decode_num_num32)
{
    const struct num_ext *ext = o->ext;
    uint32_t *d = tow_ptx_row(w, o->d);
    const void *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b), *c = tow_ptx_row(w, o->c);
    if (w->whole) {
        ext->fn(&ext->form, d, a, b, c);
    } else {
        uint32_t r[LANES];
        ext->fn(&ext->form, r, a, b, c);
        tow_ptx_blend32(w, d, r);
    }
    return o + 1;
}

OP(decode_num_num64)
{
    const struct num_ext *ext = o->ext;
    uint64_t *d = tow_ptx_row(w, o->d);
    const void *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b), *c = tow_ptx_row(w, o->c);
    if (w->whole) {
        ext->fn(&ext->form, d, a, b, c);
    } else {
        uint64_t r[LANES];
        ext->fn(&ext->form, r, a, b, c);
        tow_ptx_blend64(w, d, r);
    }
    return o + 1;
}

static const struct {
    const char *name;
    enum tow_num_type type;
} num_types[] = {
    {"u8", TOW_NUM_U8},           {"s8", TOW_NUM_S8},         {"u16", TOW_NUM_U16},
    {"s16", TOW_NUM_S16},         {"u32", TOW_NUM_U32},       {"s32", TOW_NUM_S32},
    {"u64", TOW_NUM_U64},         {"s64", TOW_NUM_S64},       {"f16", TOW_NUM_F16},
    {"bf16", TOW_NUM_BF16},       {"f32", TOW_NUM_F32},       {"f64", TOW_NUM_F64},
    {"f16x2", TOW_NUM_F16X2},     {"bf16x2", TOW_NUM_BF16X2}, {"f32x2", TOW_NUM_F32X2},
    {"tf32", TOW_NUM_TF32},       {"e4m3x2", TOW_NUM_E4M3X2}, {"e5m2x2", TOW_NUM_E5M2X2},
    {"e2m1x2", TOW_NUM_E2M1X2},   {"e2m3x2", TOW_NUM_E2M3X2}, {"e3m2x2", TOW_NUM_E3M2X2},
    {"ue8m0x2", TOW_NUM_UE8M0X2}, {"e4m3x4", TOW_NUM_E4M3X4}, {"e5m2x4", TOW_NUM_E5M2X4},
    {"e2m1x4", TOW_NUM_E2M1X4},   {"e2m3x4", TOW_NUM_E2M3X4}, {"e3m2x4", TOW_NUM_E3M2X4},
    {"u4", TOW_NUM_U4},           {"s4", TOW_NUM_S4},         {"u2", TOW_NUM_U2},
    {"s2", TOW_NUM_S2},
};

static enum tow_num_type num_type(const char *mod)
{
    for (unsigned i = 0; i < sizeof num_types / sizeof num_types[0]; i++) {
        if (strcmp(num_types[i].name, mod) == 0) {
            return num_types[i].type;
        }
    }
    return TOW_NUM_NONE;
}

static const struct {
    const char *name;
    enum tow_num_op op;
    uint8_t sources;
} num_ops[] = {
    {"add", TOW_NUM_ADD, 2},           {"sub", TOW_NUM_SUB, 2}, {"mul", TOW_NUM_MUL, 2},
    {"fma", TOW_NUM_FMA, 3},           {"mad", TOW_NUM_FMA, 3}, {"div", TOW_NUM_DIV, 2},
    {"neg", TOW_NUM_NEG, 1},           {"abs", TOW_NUM_ABS, 1}, {"min", TOW_NUM_MIN, 2},
    {"max", TOW_NUM_MAX, 2},           {"rcp", TOW_NUM_RCP, 1}, {"sqrt", TOW_NUM_SQRT, 1},
    {"rsqrt", TOW_NUM_RSQRT, 1},       {"sin", TOW_NUM_SIN, 1}, {"cos", TOW_NUM_COS, 1},
    {"lg2", TOW_NUM_LG2, 1},           {"ex2", TOW_NUM_EX2, 1}, {"tanh", TOW_NUM_TANH, 1},
    {"copysign", TOW_NUM_COPYSIGN, 2}, {"cvt", TOW_NUM_CVT, 1},
};

/* Modifiers into the form; types in the order written. False: an unknown word. */
static bool read_form(struct tow_ptx_decoder *dec, struct tow_num_form *form,
                      enum tow_num_type *ret_types, unsigned *ret_count)
{
    static const struct {
        const char *name;
        enum tow_num_round round;
    } rounds[] = {{"rn", TOW_NUM_RN},   {"rz", TOW_NUM_RZ},   {"rm", TOW_NUM_RM},
                  {"rp", TOW_NUM_RP},   {"rna", TOW_NUM_RNA}, {"rs", TOW_NUM_RS},
                  {"rni", TOW_NUM_RNI}, {"rzi", TOW_NUM_RZI}, {"rmi", TOW_NUM_RMI},
                  {"rpi", TOW_NUM_RPI}};
    static const struct {
        const char *name;
        size_t offset;
    } flags[] = {{"ftz", offsetof(struct tow_num_form, ftz)},
                 {"sat", offsetof(struct tow_num_form, sat)},
                 {"approx", offsetof(struct tow_num_form, approx)},
                 {"full", offsetof(struct tow_num_form, full)},
                 {"NaN", offsetof(struct tow_num_form, nan)},
                 {"xorsign", offsetof(struct tow_num_form, xorsign_abs)},
                 {"abs", offsetof(struct tow_num_form, abs)},
                 {"relu", offsetof(struct tow_num_form, relu)},
                 {"satfinite", offsetof(struct tow_num_form, satfinite)},
                 {"oob", offsetof(struct tow_num_form, oob)}};
    *ret_count = 0;
    for (unsigned i = 0; i < dec->insn->mod_count; i++) {
        const char *mod = dec->insn->mods[i];
        enum tow_num_type type = num_type(mod);
        bool known = false;
        if (type) {
            if (*ret_count == 3) {
                return false;
            }
            ret_types[(*ret_count)++] = type;
            continue;
        }
        for (unsigned k = 0; k < sizeof rounds / sizeof rounds[0]; k++) {
            if (strcmp(mod, rounds[k].name) == 0) {
                form->round = rounds[k].round;
                known = true;
            }
        }
        for (unsigned k = 0; k < sizeof flags / sizeof flags[0]; k++) {
            if (strcmp(mod, flags[k].name) == 0) {
                *(bool *)((char *)form + flags[k].offset) = true;
                known = true;
            }
        }
        if (!known) {
            return false;
        }
    }
    return true;
}

static char num_kind(enum tow_num_type type)
{
    if (type == TOW_NUM_F32) {
        return 'f';
    }
    if (type == TOW_NUM_F64) {
        return 'd';
    }
    return tow_num_row_bytes(type) == 8 ? 'l' : 'w';
}

static int emit_num(struct tow_ptx_decoder *dec, struct tow_ptx_op *op,
                    const struct tow_num_form *form)
{
    tow_num_fn *fn = tow_num_find(form);
    if (!fn) {
        return tow_ptx_unsupported(dec);
    }
    struct num_ext *ext = tow_ptx_keep(dec, sizeof *ext);
    if (!ext) {
        return tow_ptx_dec_no_memory(dec);
    }
    ext->form = *form;
    ext->fn = fn;
    op->ext = ext;
    op->run = tow_num_row_bytes(form->type) == 8 ? decode_num_num64 : decode_num_num32;
    return tow_ptx_emit(dec, op);
}

static int decode_num(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_num_form form = {0};
    enum tow_num_type types[3];
    unsigned type_count, sources = 0;
    if (!read_form(dec, &form, types, &type_count) || !type_count) {
        return tow_ptx_unsupported(dec);
    }
    for (unsigned i = 0; i < sizeof num_ops / sizeof num_ops[0]; i++) {
        if (strcmp(insn->name, num_ops[i].name) == 0) {
            form.op = num_ops[i].op;
            sources = num_ops[i].sources;
        }
    }
    form.type = types[0];
    form.src = type_count > 1 ? types[1] : TOW_NUM_NONE;
    if (form.xorsign_abs) { /* .xorsign.abs is one word */
        if (!form.abs) {
            return tow_ptx_unsupported(dec);
        }
        form.abs = false;
    }
    if ((form.op == TOW_NUM_MIN || form.op == TOW_NUM_MAX) && insn->operand_count == 4) {
        form.three = true;
        sources = 3;
    }
    if (!tow_num_find(&form)) {
        return tow_ptx_unsupported(dec);
    }
    int error = tow_ptx_want_operands(dec, 1 + sources, 1 + sources);
    struct tow_ptx_op op = {0};
    uint32_t *places[3] = {&op.a, &op.b, &op.c};
    if (error == 0) {
        error = tow_ptx_dest(dec, &insn->operands[0], num_kind(form.type), &op.d);
    }
    for (unsigned i = 0; i < sources && error == 0; i++) {
        /* Mixed precision: add takes a of the narrow type, fma a and b. */
        bool narrow = form.src && (form.op == TOW_NUM_FMA ? i < 2 : i == 0);
        error = tow_ptx_source(dec, &insn->operands[1 + i], num_kind(narrow ? form.src : form.type),
                               places[i]);
    }
    return error ? error : emit_num(dec, &op, &form);
}

/* ---- cvt
 * ----------------------------------------------------------------------------------------------------------
 */

OP1(widen_u32, uint64_t, uint32_t, a)
OP1(widen_s32, uint64_t, int32_t, (int64_t)a)
OP1(narrow_64, uint32_t, uint64_t, a)
OP1(copy_32, uint32_t, uint32_t, a)
OP1(copy_64, uint64_t, uint64_t, a)
OP1(low_u16, uint32_t, uint32_t, a & 0xffffu)
OP1(low_s16, uint32_t, uint32_t, (int16_t)a)
OP1(low_u8, uint32_t, uint32_t, a & 0xffu)
OP1(low_s8, uint32_t, uint32_t, (int8_t)a)
OP1(wide_u16, uint64_t, uint32_t, a & 0xffffu)
OP1(wide_s16, uint64_t, uint32_t, (int64_t)(int16_t)a)
OP1(wide_u8, uint64_t, uint32_t, a & 0xffu)
OP1(wide_s8, uint64_t, uint32_t, (int64_t)(int8_t)a)
OP1(narrow_u16, uint32_t, uint64_t, a & 0xffffu)
OP1(narrow_s16, uint32_t, uint64_t, (int16_t)a)
OP1(narrow_u8, uint32_t, uint64_t, a & 0xffu)
OP1(narrow_s8, uint32_t, uint64_t, (int8_t)a)

static bool is_integer(enum tow_num_type type)
{
    return type >= TOW_NUM_U8 && type <= TOW_NUM_S64;
}

static unsigned integer_bits(enum tow_num_type type)
{
    return 8u << ((type - TOW_NUM_U8) / 2);
}

/* One extension of the low `bits` of a row into another row. */
static tow_ptx_fn *decode_num_extension(unsigned bits, bool is_signed, bool from_wide, bool to_wide)
{
    switch (bits) {
    case 8:
        return to_wide     ? (from_wide   ? NULL
                              : is_signed ? wide_s8
                                          : wide_u8)
               : from_wide ? (is_signed ? narrow_s8 : narrow_u8)
                           : (is_signed ? low_s8 : low_u8);
    case 16:
        return to_wide     ? (from_wide   ? NULL
                              : is_signed ? wide_s16
                                          : wide_u16)
               : from_wide ? (is_signed ? narrow_s16 : narrow_u16)
                           : (is_signed ? low_s16 : low_u16);
    case 32:
        return to_wide     ? (from_wide   ? NULL
                              : is_signed ? widen_s32
                                          : widen_u32)
               : from_wide ? narrow_64
                           : copy_32;
    default:
        return from_wide && to_wide ? copy_64 : from_wide ? narrow_64 : NULL;
    }
}

/* Integer to integer without saturation: read the source as its type, cut to the destination's. The
 * registers may be wider than the types. */
static int decode_cvt_integer(struct tow_ptx_decoder *dec, enum tow_num_type to,
                              enum tow_num_type from)
{
    const struct tow_ptx_insn *insn = dec->insn;
    unsigned from_bits = integer_bits(from), to_bits = integer_bits(to);
    bool from_signed = from % 2 == 0, to_signed = to % 2 == 0;
    struct tow_ptx_op op = {0};
    char from_kind, to_kind;
    int error =
        tow_ptx_any_source(dec, &insn->operands[1], from_bits == 64 ? 'l' : 'w', &op.a, &from_kind);
    if (error) {
        return error;
    }
    to_kind = insn->operands[0].kind == OPD_REG
                  ? tow_ptx_register_kind(dec, insn->operands[0].index)
              : to_bits == 64 ? 'l'
                              : 'w';
    if ((from_kind != 'w' && from_kind != 'l') || (from_bits == 64 && from_kind != 'l') ||
        (to_bits == 64 && to_kind != 'l')) {
        return tow_ptx_bad(dec, "a register does not fit the type");
    }
    if ((error = tow_ptx_dest(dec, &insn->operands[0], to_kind, &op.d))) {
        return error;
    }
    bool from_wide = from_kind == 'l', to_wide = to_kind == 'l';
    /* The narrower type decides; on a tie the destination's sign extends it into its register. */
    unsigned bits = from_bits < to_bits ? from_bits : to_bits;
    bool is_signed = from_bits < to_bits ? from_signed : to_signed;
    if (from_bits < to_bits && to_bits < 32 && from_signed) {
        /* s8 to u16: sign-extended to 16 bits, then as the destination's register wants it */
        struct tow_ptx_op first = op;
        first.run = decode_num_extension(from_bits, true, from_wide, false);
        first.d = tow_ptx_temp(dec, 'w');
        if ((error = tow_ptx_emit(dec, &first))) {
            return error;
        }
        op.a = first.d;
        from_wide = false;
        bits = to_bits;
        is_signed = to_signed;
    } else if (from_bits < to_bits && to_bits == 32 && to_wide) {
        struct tow_ptx_op first = op;
        first.run = decode_num_extension(from_bits, from_signed, from_wide, false);
        first.d = tow_ptx_temp(dec, 'w');
        if ((error = tow_ptx_emit(dec, &first))) {
            return error;
        }
        op.a = first.d;
        from_wide = false;
        bits = 32;
        is_signed = to_signed;
    }
    op.run = decode_num_extension(bits, is_signed, from_wide, to_wide);
    if (!op.run) { /* low bits of a wide row into a wide row: through a 32-bit one */
        struct tow_ptx_op first = op;
        first.run = decode_num_extension(bits, is_signed, true, false);
        first.d = tow_ptx_temp(dec, 'w');
        if ((error = tow_ptx_emit(dec, &first))) {
            return error;
        }
        op.a = first.d;
        op.run = decode_num_extension(bits, is_signed, false, true);
    }
    return tow_ptx_emit(dec, &op);
}

/* A narrow register behind a wide one and the other way round, for conversions with floats. */
static int fit_source(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                      enum tow_num_type type, uint32_t *ret_ref)
{
    char kind;
    int error = tow_ptx_any_source(dec, operand, num_kind(type), ret_ref, &kind);
    if (error == 0 && kind != 'w' && kind != 'l') {
        return tow_ptx_bad(dec, "a register does not fit the type");
    }
    if (error == 0 && kind == 'l' && tow_num_row_bytes(type) == 4) {
        struct tow_ptx_op op = {.run = narrow_64, .a = *ret_ref, .d = tow_ptx_temp(dec, 'w')};
        *ret_ref = op.d;
        error = tow_ptx_emit(dec, &op);
    } else if (error == 0 && (kind == 'l' ? 8u : 4u) != tow_num_row_bytes(type)) {
        error = tow_ptx_bad(dec, "a register does not fit the type");
    }
    return error;
}

/* cvt.rs...e4m3x4.f32 d, {a, b, e, f}, rbits: the four rows are brought together for num.h. */
struct num_x4 {
    struct num_ext num;
    uint32_t refs[4];
};

OP(num_four)
{
    const struct num_x4 *ext = o->ext;
    uint32_t rows[4][LANES], r[LANES];
    for (unsigned i = 0; i < 4; i++) {
        memcpy(rows[i], tow_ptx_row(w, ext->refs[i]), sizeof rows[i]);
    }
    ext->num.fn(&ext->num.form, r, rows, tow_ptx_row(w, o->b), NULL);
    tow_ptx_blend32(w, tow_ptx_row(w, o->d), r);
    return o + 1;
}

static int decode_cvt_x4(struct tow_ptx_decoder *dec, const struct tow_num_form *form)
{
    const struct tow_ptx_insn *insn = dec->insn;
    const struct tow_ptx_operand *vector = &insn->operands[1];
    struct num_x4 *ext = tow_ptx_keep(dec, sizeof *ext);
    struct tow_ptx_op op = {.run = num_four, .ext = ext};
    if (!ext) {
        return tow_ptx_dec_no_memory(dec);
    }
    ext->num.form = *form;
    ext->num.fn = tow_num_find(form);
    if (form->type < TOW_NUM_E4M3X4 || form->type > TOW_NUM_E3M2X4 || !ext->num.fn) {
        return tow_ptx_unsupported(dec);
    }
    int error = tow_ptx_want_operands(dec, 3, 3);
    if (error == 0 && vector->count != 4) {
        return tow_ptx_bad(dec, "four sources are expected");
    }
    for (unsigned i = 0; i < 4 && error == 0; i++) {
        error = tow_ptx_source(dec, &vector->children[i], 'f', &ext->refs[i]);
    }
    if (error || (error = tow_ptx_source(dec, &insn->operands[2], 'w', &op.b)) ||
        (error = tow_ptx_dest(dec, &insn->operands[0], 'w', &op.d))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

/* cvt.pack.sat.u8.s32.b32 d, a, b, c */
static int decode_cvt_pack(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_num_form form = {.op = TOW_NUM_CVT_PACK, .sat = true};
    bool third = insn->mod_count == 5;
    if ((insn->mod_count != 4 && !third) || strcmp(insn->mods[1], "sat") != 0) {
        return tow_ptx_unsupported(dec);
    }
    form.type = num_type(insn->mods[2]);
    form.src = num_type(insn->mods[3]);
    struct tow_ptx_op op = {0};
    int error = tow_ptx_want_operands(dec, third ? 4 : 3, third ? 4 : 3);
    if (error || (error = tow_ptx_dest(dec, &insn->operands[0], 'w', &op.d)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], 'w', &op.a)) ||
        (error = tow_ptx_source(dec, &insn->operands[2], 'w', &op.b)) ||
        (error = third ? tow_ptx_source(dec, &insn->operands[3], 'w', &op.c)
                       : tow_ptx_const32(dec, 0, &op.c))) {
        return error;
    }
    return emit_num(dec, &op, &form);
}

static int decode_cvt(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_num_form form = {.op = TOW_NUM_CVT};
    enum tow_num_type types[3];
    unsigned count;
    if (insn->mod_count && strcmp(insn->mods[0], "pack") == 0) {
        return decode_cvt_pack(dec);
    }
    if (!read_form(dec, &form, types, &count) || count != 2) {
        return tow_ptx_unsupported(dec);
    }
    form.type = types[0];
    form.src = types[1];
    int error = tow_ptx_want_operands(dec, 2, 4);
    if (error) {
        return error;
    }
    if (is_integer(form.type) && is_integer(form.src) && !form.sat && !form.round &&
        insn->operand_count == 2) {
        return decode_cvt_integer(dec, form.type, form.src);
    }
    if (!tow_num_find(&form)) {
        return tow_ptx_unsupported(dec);
    }
    struct tow_ptx_op op = {0};
    uint32_t *places[2] = {&op.a, &op.b};
    if (insn->operands[1].kind == OPD_VECTOR) {
        return decode_cvt_x4(dec, &form);
    }
    if (form.type >= TOW_NUM_E4M3X4 && form.type <= TOW_NUM_E3M2X4) {
        return tow_ptx_bad(dec, "four sources are expected");
    }
    /* Two f32 become one packed value. */
    bool two = form.src == TOW_NUM_F32 && form.type >= TOW_NUM_F16X2 && form.type != TOW_NUM_TF32;
    error = tow_ptx_want_operands(dec, two ? 3 : 2, two ? 3 : 2);
    for (unsigned i = 1; i < insn->operand_count && error == 0; i++) {
        error = fit_source(dec, &insn->operands[i], form.src, places[i - 1]);
    }
    if (error) {
        return error;
    }
    char to = num_kind(form.type);
    to = to == 'd' ? 'l' : to == 'f' ? 'w' : to;
    bool widen = insn->operands[0].kind == OPD_REG && to == 'w' &&
                 tow_ptx_register_kind(dec, insn->operands[0].index) == 'l';
    if ((error = tow_ptx_dest(dec, &insn->operands[0], widen ? 'l' : to, &op.d))) {
        return error;
    }
    if (widen) { /* result of a narrow integer type in a 64-bit register */
        struct tow_ptx_op last = {.run = is_integer(form.type) && form.type % 2 == 0 ? widen_s32
                                                                                     : widen_u32,
                                  .d = op.d,
                                  .a = tow_ptx_temp(dec, 'w')};
        op.d = last.a;
        error = emit_num(dec, &op, &form);
        return error ? error : tow_ptx_emit(dec, &last);
    }
    return emit_num(dec, &op, &form);
}

/* ---- testp
 * --------------------------------------------------------------------------------------------------------
 */

OP(decode_num_testp32)
{
    const uint32_t *a = tow_ptx_row(w, o->a);
    uint32_t m = 0;
    for (unsigned l = 0; l < LANES; l++) {
        m |= (uint32_t)tow_f32_testp((enum tow_num_testp)o->imm, a[l]) << l;
    }
    tow_ptx_set_pred(w, o->d, m);
    return o + 1;
}
OP(decode_num_testp64)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    uint32_t m = 0;
    for (unsigned l = 0; l < LANES; l++) {
        m |= (uint32_t)tow_f64_testp((enum tow_num_testp)o->imm, a[l]) << l;
    }
    tow_ptx_set_pred(w, o->d, m);
    return o + 1;
}

static int decode_testp(struct tow_ptx_decoder *dec)
{
    static const char *const names[] = {"finite",     "infinite", "number",
                                        "notanumber", "normal",   "subnormal"};
    const struct tow_ptx_insn *insn = dec->insn;
    enum tow_ptx_type type = insn->mod_count == 2 ? tow_ptx_mod_type(insn->mods[1]) : PT_NONE;
    struct tow_ptx_op op = {.imm = -1};
    for (unsigned i = 0; i < 6 && type; i++) {
        op.imm = strcmp(insn->mods[0], names[i]) == 0 ? (int64_t)i : op.imm;
    }
    if (op.imm < 0 || (type != PT_F32 && type != PT_F64)) {
        return tow_ptx_unsupported(dec);
    }
    op.run = type == PT_F32 ? decode_num_testp32 : decode_num_testp64;
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error || (error = tow_ptx_dest(dec, &insn->operands[0], 'p', &op.d)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], tow_ptx_type_kind(type), &op.a))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

const struct tow_ptx_special tow_ptx_specials_num[] = {
    {"add", decode_num},     {"sub", decode_num},  {"mul", decode_num},      {"fma", decode_num},
    {"mad", decode_num},     {"div", decode_num},  {"neg", decode_num},      {"abs", decode_num},
    {"min", decode_num},     {"max", decode_num},  {"rcp", decode_num},      {"sqrt", decode_num},
    {"rsqrt", decode_num},   {"sin", decode_num},  {"cos", decode_num},      {"lg2", decode_num},
    {"ex2", decode_num},     {"tanh", decode_num}, {"copysign", decode_num}, {"cvt", decode_cvt},
    {"testp", decode_testp}, {NULL, NULL},
};
