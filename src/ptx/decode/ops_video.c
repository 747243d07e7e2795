/* SPDX-License-Identifier: Apache-2.0 */
/* The video instructions: scalar v*, and packed v*2 and v*4. Compilers no longer emit them,
 * programs with inline PTX do; so they are complete rather than fast. On GPUs of today they are
 * sequences of other instructions; where those depart from the manual, so do we. */
#include "ptx/decode/decode.h"

#include <string.h>

enum video_op {
    V_NONE,
    V_ADD,
    V_SUB,
    V_ABSDIFF,
    V_MIN,
    V_MAX,
    V_AVRG,
    V_SET,
    V_SHL,
    V_SHR,
    V_MAD,
};

enum video_cmp {
    C_EQ,
    C_NE,
    C_LT,
    C_LE,
    C_GT,
    C_GE,
};

struct video_form {
    enum video_op op;
    enum video_cmp cmp;
    bool d_signed, a_signed, b_signed, saturate, wrap, plus_one;
    uint8_t parts;     /* 1, 2 or 4 */
    uint8_t shift;     /* vmad: 0, 7, 15 */
    char second;       /* 0, 'a'dd, 'm'in, 'M'ax with c; 'i': merge into c */
    uint8_t select[3]; /* of d, a, b: 0 all, 1..4 byte 0..3, 5..6 half 0..1 */
    bool negate[3];    /* vmad: a, b, c */
};

static int64_t part_of(uint32_t value, uint8_t select, bool is_signed)
{
    if (select >= 1 && select <= 4) {
        uint32_t byte = value >> ((select - 1) * 8) & 255;
        return is_signed ? (int64_t)(int8_t)byte : (int64_t)byte;
    }
    if (select >= 5) {
        uint32_t half = value >> ((select - 5) * 16) & 0xffff;
        return is_signed ? (int64_t)(int16_t)half : (int64_t)half;
    }
    return is_signed ? (int64_t)(int32_t)value : (int64_t)value;
}

static int64_t ops_video_clamp(int64_t value, unsigned bits, bool is_signed)
{
    int64_t high = is_signed ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1;
    int64_t low = is_signed ? -(1ll << (bits - 1)) : 0;
    return value > high ? high : value < low ? low : value;
}

static bool ops_video_compare(enum video_cmp cmp, int64_t a, int64_t b)
{
    switch (cmp) {
    case C_EQ:
        return a == b;
    case C_NE:
        return a != b;
    case C_LT:
        return a < b;
    case C_LE:
        return a <= b;
    case C_GT:
        return a > b;
    default:
        return a >= b;
    }
}

static int64_t ops_video_compute(const struct video_form *form, int64_t a, int64_t b)
{
    switch (form->op) {
    case V_ADD:
        return a + b;
    case V_SUB:
        return a - b;
    case V_ABSDIFF:
        return a > b ? a - b : b - a;
    case V_MIN:
        return a < b ? a : b;
    case V_MAX:
        return a > b ? a : b;
    case V_AVRG:
        return (a + b + (a + b >= 0)) >> 1;
    case V_SET:
        return ops_video_compare(form->cmp, a, b);
    case V_SHL: {
        uint32_t n = (uint32_t)b;
        n = form->wrap ? n & 31 : n > 32 ? 32 : n;
        return (int64_t)((uint64_t)a << n);
    }
    case V_SHR: {
        uint32_t n = (uint32_t)b;
        n = form->wrap ? n & 31 : n > 32 ? 32 : n;
        return a >> n;
    }
    default:
        return 0;
    }
}

/* .sat of a whole register: intermediate results have 34 bits. Sums and differences too large for
 * an unsigned register wrap. */
static int64_t saturate_word(const struct video_form *form, int64_t value)
{
    value = (int64_t)((uint64_t)value << 30) >> 30;
    if (!form->d_signed && form->op != V_SHL) {
        return value < 0 ? 0 : (int64_t)(uint32_t)value;
    }
    return ops_video_clamp(value, 32, form->d_signed);
}

/* Into one byte or half of c. */
static uint32_t ops_video_merge(const struct video_form *form, int64_t value, uint32_t c)
{
    uint8_t into = form->select[0];
    bool byte = into <= 4;
    int64_t top = (1ll << ((byte ? 8 : 16) - (form->d_signed ? 1 : 0))) - 1;
    if (form->saturate) {
        bool is_signed = form->a_signed || form->b_signed;
        /* of signed sources what is below is above */
        value = value > top || (value < 0 && is_signed) ? top : value < 0 ? 0 : value;
    }
    if (into == 6) { /* the upper half takes the upper half, which saturation has cleared */
        return (c & 0xffffu) | (form->saturate ? 0 : (uint32_t)value & 0xffff0000u);
    }
    unsigned at = byte ? (into - 1u) * 8 : 0;
    uint32_t mask = (byte ? 255u : 0xffffu) << at;
    return (c & ~mask) | ((uint32_t)value << at & mask);
}

/* Whether the result is less than c. Sums and differences are cut to 32 bits first; among unsigned
 * numbers a negative one is the largest. */
static bool ops_video_below(const struct video_form *form, int64_t value, uint32_t c)
{
    if (form->op == V_ADD || form->op == V_SUB) {
        value = (int32_t)(uint32_t)value;
    }
    bool is_signed = form->op == V_SET ? form->a_signed : form->d_signed;
    return is_signed ? value < (int64_t)(int32_t)c : (uint64_t)value < (uint64_t)c;
}

/* Whole registers and c are always signed; the types of the sources decide how the result
 * saturates. */
static uint32_t multiply_add(const struct video_form *form, uint32_t ra, uint32_t rb, uint32_t c)
{
    bool is_signed =
        form->a_signed || form->b_signed || form->negate[0] || form->negate[1] || form->negate[2];
    int64_t a = part_of(ra, form->select[1], form->a_signed || !form->select[1]);
    int64_t b = part_of(rb, form->select[2], form->b_signed || !form->select[2]);
    __int128 sum = (__int128)(form->negate[0] ? -a : a) * (form->negate[1] ? -b : b);
    sum += form->negate[2] ? -(int64_t)(int32_t)c : (int64_t)(int32_t)c;
    sum += form->plus_one;
    if (!form->saturate) {
        return (uint32_t)(sum >> form->shift);
    }
    if (!is_signed && form->shift &&
        sum < 0) { /* unsigned: shifted without its sign, it is large */
        return 0xffffffffu;
    }
    return (uint32_t)ops_video_clamp((int64_t)(sum >> form->shift), 32, is_signed);
}

static uint32_t ops_video_scalar(const struct video_form *form, uint32_t ra, uint32_t rb,
                                 uint32_t c)
{
    int64_t a = part_of(ra, form->select[1], form->a_signed);
    int64_t b = part_of(rb, form->select[2], form->b_signed);
    int64_t value;
    if (form->op == V_MAD) {
        return multiply_add(form, ra, rb, c);
    }
    value = ops_video_compute(form, a, b);
    if (form->select[0] && !form->second) {
        return ops_video_merge(form, value, c);
    }
    if (form->saturate) {
        value = saturate_word(form, value);
    }
    switch (form->second) {
    case 'a':
        return (uint32_t)value + c;
    case 'm':
    case 'M':
        return ops_video_below(form, value, c) == (form->second == 'm') ? (uint32_t)value : c;
    default:
        break;
    }
    return (uint32_t)value;
}

static uint32_t ops_video_packed(const struct video_form *form, uint32_t ra, uint32_t rb,
                                 uint32_t c)
{
    unsigned bits = 32u / form->parts;
    uint32_t result = 0, sum = c, mask = bits == 8 ? 255u : 0xffffu;
    for (unsigned i = 0; i < form->parts; i++) {
        uint8_t select = (uint8_t)(bits == 8 ? 1 + i : 5 + i);
        int64_t value = ops_video_compute(form, part_of(ra, select, form->a_signed),
                                          part_of(rb, select, form->b_signed));
        if (form->saturate) {
            value = ops_video_clamp(value, bits, form->d_signed);
        }
        result |= ((uint32_t)value & mask) << (i * bits);
        sum += (uint32_t)value; /* whole, not cut to its part */
    }
    return form->second == 'a' ? sum : result;
}

OP(ops_video_video)
{
    const struct video_form *form = o->ext;
    const uint32_t *a = tow_ptx_row(w, o->a), *b = tow_ptx_row(w, o->b), *c = tow_ptx_row(w, o->c);
    uint32_t *d = tow_ptx_row(w, o->d);
    FOR_LANES(l, w->exec)
    {
        d[l] = form->parts > 1 ? ops_video_packed(form, a[l], b[l], c[l])
                               : ops_video_scalar(form, a[l], b[l], c[l]);
    }
    return o + 1;
}

/* "vadd4" -> V_ADD, 4 */
static enum video_op op_of(const char *name, uint8_t *ret_parts)
{
    static const struct {
        const char *name;
        enum video_op op;
        bool packs;
    } ops[] = {{"vadd", V_ADD, true}, {"vsub", V_SUB, true},  {"vabsdiff", V_ABSDIFF, true},
               {"vmin", V_MIN, true}, {"vmax", V_MAX, true},  {"vavrg", V_AVRG, true},
               {"vset", V_SET, true}, {"vshl", V_SHL, false}, {"vshr", V_SHR, false},
               {"vmad", V_MAD, false}};
    for (unsigned i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        size_t length = strlen(ops[i].name);
        if (strncmp(name, ops[i].name, length) != 0) {
            continue;
        }
        const char *rest = name + length;
        *ret_parts = *rest == '2' ? 2 : *rest == '4' ? 4 : 1;
        if (*rest == 0 ? ops[i].op != V_AVRG : ops[i].packs && rest[1] == 0 && *ret_parts > 1) {
            return ops[i].op;
        }
    }
    return V_NONE;
}

/* A modifier that is no type. False: it is none of these instructions'. */
static bool video_word(struct video_form *form, const char *mod, bool *ret_compared)
{
    static const char *const compares[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    if (strcmp(mod, "sat") == 0) {
        form->saturate = true;
    } else if (strcmp(mod, "add") == 0) {
        form->second = 'a';
    } else if (strcmp(mod, "min") == 0) {
        form->second = 'm';
    } else if (strcmp(mod, "max") == 0) {
        form->second = 'M';
    } else if (strcmp(mod, "wrap") == 0 || strcmp(mod, "clamp") == 0) {
        form->wrap = *mod == 'w';
    } else if (strcmp(mod, "shr7") == 0 || strcmp(mod, "shr15") == 0) {
        form->shift = mod[3] == '7' ? 7 : 15;
    } else if (strcmp(mod, "po") == 0) {
        form->plus_one = true;
    } else {
        for (unsigned k = 0; k < 6; k++) {
            if (strcmp(mod, compares[k]) == 0) {
                form->cmp = (enum video_cmp)k;
                *ret_compared = true;
                return true;
            }
        }
        return false;
    }
    return true;
}

static int decode_video(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct video_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    form->op = op_of(insn->name, &form->parts);
    enum tow_ptx_type types[3] = {PT_NONE};
    unsigned count = 0;
    bool compared = false;
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        enum tow_ptx_type type = tow_ptx_mod_type(mod);
        if ((type == PT_U32 || type == PT_S32) && count < 3) {
            types[count++] = type;
        } else if (!video_word(form, mod, &compared)) {
            return tow_ptx_unsupported(dec);
        }
    }
    bool set = form->op == V_SET;
    if (form->op == V_NONE || count != (set ? 2u : 3u) || set != compared) {
        return tow_ptx_unsupported(dec);
    }
    form->d_signed = !set && types[0] == PT_S32;
    form->a_signed = types[set ? 0 : 1] == PT_S32;
    form->b_signed = types[set ? 1 : 2] == PT_S32;
    struct tow_ptx_op op = {.run = ops_video_video, .ext = form};
    int error = tow_ptx_want_operands(dec, 3, 4);
    for (unsigned i = 0; i < insn->operand_count && i < 3 && error == 0; i++) {
        form->select[i] = insn->operands[i].selector;
        if (form->parts > 1 && form->select[i]) {
            return tow_ptx_unsupported(dec); /* other lanes than the usual ones */
        }
    }
    bool third = insn->operand_count == 4;
    if (error == 0 && !third && (form->second || form->select[0] || form->op == V_MAD)) {
        return tow_ptx_bad(dec, "a fourth operand is expected");
    }
    for (unsigned i = 0; i < 3 && i + 1 < insn->operand_count && error == 0; i++) {
        form->negate[i] = insn->operands[i + 1].minus;
        if (form->negate[i] && form->op != V_MAD) {
            return tow_ptx_bad(dec, "only vmad takes a negated register");
        }
    }
    if (error || (error = tow_ptx_dest(dec, &insn->operands[0], 'w', &op.d)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], 'w', &op.a)) ||
        (error = tow_ptx_source(dec, &insn->operands[2], 'w', &op.b)) ||
        (error = third ? tow_ptx_source(dec, &insn->operands[3], 'w', &op.c)
                       : tow_ptx_const32(dec, 0, &op.c))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

const struct tow_ptx_special tow_ptx_specials_video[] = {
    {"vadd", decode_video},      {"vsub", decode_video},   {"vabsdiff", decode_video},
    {"vmin", decode_video},      {"vmax", decode_video},   {"vset", decode_video},
    {"vshl", decode_video},      {"vshr", decode_video},   {"vmad", decode_video},
    {"vadd2", decode_video},     {"vsub2", decode_video},  {"vabsdiff2", decode_video},
    {"vmin2", decode_video},     {"vmax2", decode_video},  {"vset2", decode_video},
    {"vavrg2", decode_video},    {"vadd4", decode_video},  {"vsub4", decode_video},
    {"vabsdiff4", decode_video}, {"vmin4", decode_video},  {"vmax4", decode_video},
    {"vset4", decode_video},     {"vavrg4", decode_video}, {NULL, NULL},
};
