/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix instructions: mma, wmma, ldmatrix, stmatrix, movmatrix. What they compute is in mma.c;
 * here are their words, their operands and their memory. */
#include "ptx/decode/decode.h"
#include "ptx/decode/address.h"
#include "ptx/num/mma.h"
#include "ptx/num/num.h"

#include <stdio.h>
#include <string.h>

#define FRAGMENT_MAX 8u /* registers */

struct fragment_refs {
    uint32_t ref[FRAGMENT_MAX];
    unsigned count;
};

/* All lanes have to come; false: parked. */
static bool exec_mma_together(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    return tow_ptx_gather(w, o, FULL);
}

static enum tow_mma_type type_of(const char *mod)
{
    static const struct {
        const char *name;
        enum tow_mma_type type;
    } names[] = {
        {"f16", TOW_MMA_F16},   {"bf16", TOW_MMA_BF16}, {"tf32", TOW_MMA_TF32},
        {"f32", TOW_MMA_F32},   {"f64", TOW_MMA_F64},   {"s32", TOW_MMA_S32},
        {"s8", TOW_MMA_S8},     {"u8", TOW_MMA_U8},     {"s4", TOW_MMA_S4},
        {"u4", TOW_MMA_U4},     {"b1", TOW_MMA_B1},     {"e4m3", TOW_MMA_E4M3},
        {"e5m2", TOW_MMA_E5M2},
    };
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(mod, names[i].name) == 0) {
            return names[i].type;
        }
    }
    return TOW_MMA_NONE;
}

static bool shape_of(const char *mod, struct tow_mma_desc *desc)
{
    unsigned m, n, k;
    char rest;
    if (sscanf(mod, "m%3un%3uk%3u%c", &m, &n, &k, &rest) != 3) {
        return false;
    }
    desc->m = (uint16_t)m;
    desc->n = (uint16_t)n;
    desc->k = (uint16_t)k;
    return true;
}

/* The registers of a fragment, in braces or, when it is one, bare. */
static int exec_mma_fragment(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                             bool dest, unsigned count, char kind, struct fragment_refs *ret_refs)
{
    bool vector = operand->kind == OPD_VECTOR;
    if ((vector ? operand->count : 1u) != count || count > FRAGMENT_MAX) {
        return tow_ptx_bad(dec, "a fragment has %u registers here", count);
    }
    ret_refs->count = count;
    for (unsigned i = 0; i < count; i++) {
        const struct tow_ptx_operand *one = vector ? &operand->children[i] : operand;
        int error = dest ? tow_ptx_dest(dec, one, kind, &ret_refs->ref[i])
                         : tow_ptx_source(dec, one, kind, &ret_refs->ref[i]);
        if (error) {
            return error;
        }
    }
    return 0;
}

static char register_kind(enum tow_mma_type type)
{
    return type == TOW_MMA_F64 ? 'd' : type == TOW_MMA_F32 ? 'f' : 'w';
}

/* ---- mma ------------------------------------------------------------------------------ */

struct mma_form {
    struct tow_mma_op op;
    struct fragment_refs d, a, b, c;
};

/* Rows to write into: the registers themselves when all lanes take part, else rows that are blended
 * in afterwards. */
struct results {
    uint64_t rows[FRAGMENT_MAX][LANES];
    void *at[FRAGMENT_MAX];
    bool blend;
};

static void results_begin(struct tow_ptx_warp *w, const struct fragment_refs *refs,
                          struct results *r)
{
    r->blend = !w->whole;
    for (unsigned i = 0; i < refs->count; i++) {
        r->at[i] = r->blend ? (void *)r->rows[i] : tow_ptx_row(w, refs->ref[i]);
    }
}

static void results_end(struct tow_ptx_warp *w, const struct fragment_refs *refs, bool wide,
                        struct results *r)
{
    for (unsigned i = 0; r->blend && i < refs->count; i++) {
        void *d = tow_ptx_row(w, refs->ref[i]);
        if (wide) {
            tow_ptx_blend64(w, d, r->rows[i]);
        } else {
            tow_ptx_blend32(w, d, (const uint32_t *)r->rows[i]);
        }
    }
}

static void exec_mma_sources(struct tow_ptx_warp *w, const struct fragment_refs *refs,
                             const void **rows)
{
    for (unsigned i = 0; i < refs->count; i++) {
        rows[i] = tow_ptx_row(w, refs->ref[i]);
    }
}

OP(run_mma)
{
    const struct mma_form *form = o->ext;
    if (!exec_mma_together(w, o)) {
        return HALT;
    }
    const void *a[FRAGMENT_MAX], *b[FRAGMENT_MAX], *c[FRAGMENT_MAX];
    struct results r;
    exec_mma_sources(w, &form->a, a);
    exec_mma_sources(w, &form->b, b);
    exec_mma_sources(w, &form->c, c);
    results_begin(w, &form->d, &r);
    form->op.run(&form->op, r.at, a, b, c, NULL);
    results_end(w, &form->d, form->op.desc.d == TOW_MMA_F64, &r);
    return o + 1;
}

static int emit_mma(struct tow_ptx_decoder *dec, const struct tow_mma_desc *desc)
{
    const struct tow_ptx_operand *operands = dec->insn->operands;
    struct mma_form *form = tow_ptx_keep(dec, sizeof *form);
    int error = tow_ptx_want_operands(dec, 4, 4);
    if (error) {
        return error;
    }
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    if (tow_mma_find(desc, &form->op)) {
        return tow_ptx_unsupported(dec);
    }
    if ((error = exec_mma_fragment(dec, &operands[0], true, form->op.d_regs, register_kind(desc->d),
                                   &form->d)) ||
        (error = exec_mma_fragment(dec, &operands[1], false, form->op.a_regs,
                                   register_kind(desc->a), &form->a)) ||
        (error = exec_mma_fragment(dec, &operands[2], false, form->op.b_regs,
                                   register_kind(desc->b), &form->b)) ||
        (error = exec_mma_fragment(dec, &operands[3], false, form->op.c_regs,
                                   register_kind(desc->c), &form->c))) {
        return error;
    }
    struct tow_ptx_op op = {.run = run_mma, .ext = form};
    dec->control = true;
    return tow_ptx_emit(dec, &op);
}

/* Of f64 alone; 0: another word. */
static uint8_t rounding_of(const char *mod)
{
    static const struct {
        const char *name;
        enum tow_num_round round;
    } rounds[] = {{"rn", TOW_NUM_RN}, {"rz", TOW_NUM_RZ}, {"rm", TOW_NUM_RM}, {"rp", TOW_NUM_RP}};
    for (unsigned i = 0; i < sizeof rounds / sizeof rounds[0]; i++) {
        if (strcmp(mod, rounds[i].name) == 0) {
            return (uint8_t)rounds[i].round;
        }
    }
    return 0;
}

/* The words that mma and wmma.mma have in common; false on one that neither has. */
static bool mma_words(struct tow_ptx_decoder *dec, struct tow_mma_desc *desc,
                      enum tow_mma_type types[4], unsigned *ret_types)
{
    const struct tow_ptx_insn *insn = dec->insn;
    unsigned layouts = 0, count = 0;
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        enum tow_mma_type type = type_of(mod);
        if (type != TOW_MMA_NONE) {
            if (count == 4) {
                return false;
            }
            types[count++] = type;
        } else if (strcmp(mod, "row") == 0 || strcmp(mod, "col") == 0) {
            if (layouts == 0) {
                desc->a_col = *mod == 'c';
            } else {
                desc->b_row = *mod == 'r';
            }
            layouts++;
        } else if (strcmp(mod, "satfinite") == 0) {
            desc->satfinite = true;
        } else if (rounding_of(mod)) {
            desc->round = rounding_of(mod);
        } else if (strcmp(mod, "xor") == 0) {
            desc->bitop = TOW_MMA_XOR_POPC;
        } else if (strcmp(mod, "and") == 0) {
            desc->bitop = TOW_MMA_AND_POPC;
        } else if (strcmp(mod, "sync") != 0 && strcmp(mod, "aligned") != 0 &&
                   strcmp(mod, "popc") != 0 && strcmp(mod, "mma") != 0 &&
                   strcmp(mod, "kind::f8f6f4") != 0 && !shape_of(mod, desc)) {
            return false;
        }
    }
    *ret_types = count;
    return layouts == 2 && !(desc->round && (!count || types[0] != TOW_MMA_F64));
}

/* mma.sync.aligned.shape.alayout.blayout{.satfinite}.dtype.atype.btype.ctype d, a, b, c */
static int decode_mma(struct tow_ptx_decoder *dec)
{
    struct tow_mma_desc desc = {0};
    enum tow_mma_type types[4];
    unsigned count;
    if (!mma_words(dec, &desc, types, &count) || count != 4) {
        return tow_ptx_unsupported(dec);
    }
    desc.d = types[0];
    desc.a = types[1];
    desc.b = types[2];
    desc.c = types[3];
    return emit_mma(dec, &desc);
}

/* wmma.mma{.op.popc}.sync.aligned.alayout.blayout.shape.dtype{.atype.btype}.ctype{.satfinite} */
static int decode_wmma_mma(struct tow_ptx_decoder *dec)
{
    struct tow_mma_desc desc = {.wmma = true};
    enum tow_mma_type types[4];
    unsigned count;
    if (!mma_words(dec, &desc, types, &count) || (count != 2 && count != 4)) {
        return tow_ptx_unsupported(dec);
    }
    desc.d = types[0];
    desc.c = types[count - 1];
    desc.a = count == 4 ? types[1] : TOW_MMA_F16;
    desc.b = count == 4 ? types[2] : TOW_MMA_F16;
    desc.a_col = desc.b_row = false; /* our fragments hold elements, whatever order they came in */
    return emit_mma(dec, &desc);
}

/* ---- wmma.load, wmma.store ------------------------------------------------------------ */

struct wmma_form {
    struct tow_wmma_fragment fragment;
    struct fragment_refs refs;
    uint32_t stride;             /* row, or PTX_NO_SLOT */
    bool column, shared, narrow; /* narrow: a 32-bit address */
    uint16_t bits;               /* moved at once: of sub-byte types a word */
};

static uint64_t lane_address(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                             const struct wmma_form *form, unsigned lane)
{
    const void *row = tow_ptx_row(w, o->a);
    if (form->narrow) { /* shared memory alone has such addresses */
        return WINDOW_SHARED + (((const uint32_t *)row)[lane] + (uint32_t)o->imm);
    }
    uint64_t address = ((const uint64_t *)row)[lane] + (uint64_t)o->imm;
    /* a shared address beyond 32 bits stays as it is: it lies in no memory */
    return form->shared && address < WINDOW_SHARED_BYTES ? WINDOW_SHARED + address : address;
}

/* Bit offsets of element e and of the last element of the matrix. */
static uint64_t element_offset(const struct wmma_form *form, uint64_t stride, unsigned lane,
                               unsigned e)
{
    uint16_t row, col;
    tow_wmma_element(&form->fragment, lane, e, &row, &col);
    uint64_t index = form->column ? col * stride + row : row * stride + col;
    return index * form->fragment.element_bits;
}

static uint64_t matrix_bits(const struct wmma_form *form, uint64_t stride)
{
    uint64_t rows = form->fragment.rows, cols = form->fragment.cols;
    uint64_t index = form->column ? (cols - 1) * stride + rows : (rows - 1) * stride + cols;
    return index * form->fragment.element_bits;
}

static void move_element(const struct wmma_form *form, uint8_t *at, void *row, unsigned lane,
                         unsigned bit, bool store)
{
    unsigned bits = form->bits;
    if (bits == 64) {
        uint64_t *r = row;
        memcpy(store ? (void *)at : &r[lane], store ? (void *)&r[lane] : at, 8);
        return;
    }
    uint32_t *r = row, value = 0;
    uint32_t mask = bits == 32 ? FULL : (1u << bits) - 1;
    if (store) {
        value = r[lane] >> bit & mask;
        memcpy(at, &value, bits / 8);
    } else {
        memcpy(&value, at, bits / 8);
        r[lane] = (r[lane] & ~(mask << bit)) | value << bit;
    }
}

static bool has_runs(const struct wmma_form *form)
{
    const struct tow_wmma_fragment *f = &form->fragment;
    unsigned line = f->matrix == TOW_MMA_B ? f->rows : f->cols;
    return (form->bits == 16 || form->bits == 32) && form->bits == f->element_bits &&
           line % f->elements == 0;
}

/* Whether all lanes name the same matrix. */
static bool one_place(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                      const struct wmma_form *form, const uint32_t *strides)
{
    uint64_t first = lane_address(w, o, form, 0), different = 0;
    for (unsigned l = 1; l < LANES; l++) {
        different |= lane_address(w, o, form, l) ^ first;
        different |= strides ? strides[l] ^ strides[0] : 0;
    }
    return !different;
}

/* Elements of 16 and 32 bits, of which each lane has a run along one row or column of the matrix:
 * every `step` elements. Words of 32 bits go to registers as they lie. */
static void move_runs(const struct tow_ptx_warp *w, const struct wmma_form *form, uint8_t *base,
                      uint64_t stride, bool store)
{
    const struct tow_wmma_fragment *f = &form->fragment;
    bool along = form->column == (f->matrix == TOW_MMA_B); /* of a row, or of a column of B */
    uint64_t bytes = form->bits / 8, step = (along ? 1 : stride) * bytes;
    for (unsigned l = 0; l < LANES; l++) {
        uint16_t row, col;
        tow_wmma_element(f, l, 0, &row, &col);
        uint8_t *at = base + (form->column ? col * stride + row : row * stride + col) * bytes;
        for (unsigned e = 0; e < f->elements; e += 4 / (unsigned)bytes) {
            uint32_t *r = (uint32_t *)tow_ptx_row(w, form->refs.ref[e * bytes / 4]) + l;
            if (bytes == 4 || along) {
                memcpy(store ? (void *)at : r, store ? (void *)r : at, 4);
            } else if (store) {
                memcpy(at, r, 2);
                memcpy(at + step, (uint8_t *)r + 2, 2);
            } else {
                memcpy(r, at, 2);
                memcpy((uint8_t *)r + 2, at + step, 2);
            }
            at += bytes == 4 ? step : 2 * step;
        }
    }
}

/* All are together. */
static const struct tow_ptx_op *move_fragment(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                              bool store)
{
    const struct wmma_form *form = o->ext;
    const uint32_t *strides = form->stride == PTX_NO_SLOT ? NULL : tow_ptx_row(w, form->stride);
    unsigned minor = form->column ? form->fragment.rows : form->fragment.cols;
    unsigned step = form->bits / form->fragment.element_bits; /* elements moved at once */
    uint64_t known = 0, known_stride = 0;
    uint8_t *base = NULL;
    if (w->exec == FULL && has_runs(form) && one_place(w, o, form, strides)) {
        uint64_t stride = strides ? strides[0] : minor, address = lane_address(w, o, form, 0);
        base = tow_ptx_at_lane(w, o, 0, address, (matrix_bits(form, stride) + 7) / 8,
                               store ? ACCESS_WRITE : ACCESS_READ);
        if (base) {
            move_runs(w, form, base, stride, store);
        }
        return base ? o + 1 : HALT;
    }
    FOR_LANES(l, w->exec)
    {
        uint64_t stride = strides ? strides[l] : minor;
        uint64_t address = lane_address(w, o, form, l);
        if (!base || address != known || stride != known_stride) {
            if (stride * form->fragment.element_bits % form->bits) {
                return tow_ptx_fault(w, o, TOW_PTX_FAULT_MISALIGNED, l, address,
                                     "a stride of %llu elements splits a word of the matrix",
                                     (unsigned long long)stride);
            }
            uint64_t bytes = (matrix_bits(form, stride) + 7) / 8;
            base = tow_ptx_at_lane(w, o, l, address, bytes, store ? ACCESS_WRITE : ACCESS_READ);
            if (!base) {
                return HALT;
            }
            known = address;
            known_stride = stride;
        }
        for (unsigned e = 0; e < form->fragment.elements; e += step) {
            uint64_t offset = element_offset(form, stride, l, e);
            unsigned bit = form->bits == 64 ? e * 64 : e * form->fragment.element_bits;
            unsigned per = form->bits == 64 ? 64 : 32;
            move_element(form, base + offset / 8, tow_ptx_row(w, form->refs.ref[bit / per]), l,
                         bit % per, store);
        }
    }
    return o + 1;
}

OP(run_wmma_load)
{
    return exec_mma_together(w, o) ? move_fragment(w, o, false) : HALT;
}

OP(run_wmma_store)
{
    return exec_mma_together(w, o) ? move_fragment(w, o, true) : HALT;
}

/* In modules that are loaded to be checked: each lane's own elements, since there may be anything
 * between the rows of a matrix. */
static const struct tow_ptx_op *look_fragment(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                              bool store)
{
    const struct wmma_form *form = o->ext;
    unsigned minor = form->column ? form->fragment.rows : form->fragment.cols;
    unsigned step = form->bits / form->fragment.element_bits;
    if (!exec_mma_together(w, o)) {
        return HALT;
    }
    FOR_LANES(l, w->exec)
    {
        uint64_t stride =
            form->stride == PTX_NO_SLOT ? minor : ((uint32_t *)tow_ptx_row(w, form->stride))[l];
        for (unsigned e = 0; e < form->fragment.elements; e += step) {
            uint64_t at = lane_address(w, o, form, l) + element_offset(form, stride, l, e) / 8;
            tow_ptx_look_lane(w, o, l, at, form->bits / 8, store ? ACCESS_WRITE : ACCESS_READ,
                              MANNER_PLAIN);
        }
    }
    return move_fragment(w, o, store);
}

OP(look_wmma_load)
{
    return look_fragment(w, o, false);
}

OP(look_wmma_store)
{
    return look_fragment(w, o, true);
}

/* wmma.load.{a,b,c}.sync.aligned.layout.shape{.ss}.type r, [p]{, stride}
 * wmma.store.d.sync.aligned.layout.shape{.ss}.type [p], r{, stride} */
static int decode_wmma_access(struct tow_ptx_decoder *dec, bool store)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_mma_desc desc = {0};
    enum tow_mma_type type = TOW_MMA_NONE;
    enum tow_mma_matrix matrix = TOW_MMA_C;
    enum tow_ptx_statespace space = SP_NONE;
    bool layout = false;
    struct wmma_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    for (unsigned i = 1; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        if (type_of(mod) != TOW_MMA_NONE) {
            type = type_of(mod);
        } else if (i == 1 && strlen(mod) == 1 && strchr(store ? "d" : "abc", *mod)) {
            matrix = *mod == 'a' ? TOW_MMA_A : *mod == 'b' ? TOW_MMA_B : TOW_MMA_C;
        } else if (strcmp(mod, "row") == 0 || strcmp(mod, "col") == 0) {
            form->column = *mod == 'c';
            layout = true;
        } else if (tow_ptx_mod_space(mod) != SP_NONE) {
            space = tow_ptx_mod_space(mod);
        } else if (strcmp(mod, "sync") != 0 && strcmp(mod, "aligned") != 0 &&
                   !shape_of(mod, &desc)) {
            return tow_ptx_unsupported(dec);
        }
    }
    if (!layout || (space != SP_NONE && space != SP_GLOBAL && space != SP_SHARED) ||
        tow_wmma_fragment_find(desc.m, desc.n, desc.k, matrix, type, &form->fragment)) {
        return tow_ptx_unsupported(dec);
    }
    /* sub-byte elements lie together along k, which only these layouts give */
    bool words = form->fragment.element_bits < 8;
    if (words && form->column != (matrix == TOW_MMA_B)) {
        return tow_ptx_unsupported(dec);
    }
    form->bits = words ? 32 : form->fragment.element_bits;
    int error = tow_ptx_want_operands(dec, 2, 3);
    if (error) {
        return error;
    }
    struct tow_ptx_op op = {.run = store ? run_wmma_store : run_wmma_load, .ext = form};
    if (dec->checks & (TOW_PTX_CHECK_INIT | TOW_PTX_CHECK_RACE)) {
        op.run = store ? look_wmma_store : look_wmma_load;
    }
    char kind;
    if ((error =
             tow_ptx_address(dec, &insn->operands[store ? 0 : 1], &space, &op.a, &kind, &op.imm)) ||
        (error = exec_mma_fragment(dec, &insn->operands[store ? 1 : 0], !store,
                                   form->fragment.registers, register_kind(type), &form->refs))) {
        return error;
    }
    form->stride = PTX_NO_SLOT;
    if (insn->operand_count == 3 &&
        (error = tow_ptx_source(dec, &insn->operands[2], 'w', &form->stride))) {
        return error;
    }
    form->shared = space == SP_SHARED;
    form->narrow = kind == 'w';
    if (form->narrow && !form->shared) {
        return tow_ptx_bad(dec, "the address needs a 64-bit register");
    }
    dec->control = true;
    return tow_ptx_emit(dec, &op);
}

static int decode_wmma(struct tow_ptx_decoder *dec)
{
    const char *what = dec->insn->mod_count ? dec->insn->mods[0] : "";
    if (strcmp(what, "mma") == 0) {
        return decode_wmma_mma(dec);
    }
    if (strcmp(what, "load") == 0 || strcmp(what, "store") == 0) {
        return decode_wmma_access(dec, *what == 's');
    }
    return tow_ptx_unsupported(dec);
}

/* ---- ldmatrix, stmatrix, movmatrix ---------------------------------------------------- */

struct matrix_form {
    struct tow_matrix_form form;
    struct tow_matrix_layout layout;
    struct fragment_refs refs;
    tow_ptx_at_fn *at;
};

/* Pointers to the matrix rows, of the lanes that give one. */
static bool row_pointers(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                         const struct matrix_form *form, enum tow_ptx_access access)
{
    uint32_t exec = w->exec;
    uint32_t givers = form->layout.addresses == LANES ? FULL : (1u << form->layout.addresses) - 1;
    if (exec & givers) {
        tow_ptx_set_exec(w, exec & givers);
        bool good = form->at(w, o, form->layout.row_bytes, access);
        tow_ptx_set_exec(w, exec);
        return good;
    }
    return true;
}

OP(run_ldmatrix)
{
    const struct matrix_form *form = o->ext;
    uint8_t rows[LANES][16];
    if (!exec_mma_together(w, o) || !row_pointers(w, o, form, ACCESS_READ)) {
        return HALT;
    }
    memset(rows, 0, sizeof rows);
    FOR_LANES(l, w->exec)
    {
        if (l < form->layout.addresses) {
            memcpy(rows[l], w->ptr[l], form->layout.row_bytes);
        }
    }
    struct results r;
    results_begin(w, &form->refs, &r);
    tow_matrix_load(&form->form, (const uint8_t(*)[16])rows, r.at);
    results_end(w, &form->refs, false, &r);
    return o + 1;
}

OP(run_stmatrix)
{
    const struct matrix_form *form = o->ext;
    uint8_t rows[LANES][16] = {{0}};
    const void *a[FRAGMENT_MAX];
    if (!exec_mma_together(w, o) || !row_pointers(w, o, form, ACCESS_WRITE)) {
        return HALT;
    }
    exec_mma_sources(w, &form->refs, a);
    tow_matrix_store(&form->form, a, rows);
    FOR_LANES(l, w->exec)
    {
        if (l < form->layout.addresses) {
            memcpy(w->ptr[l], rows[l], form->layout.row_bytes);
        }
    }
    return o + 1;
}

OP(run_movmatrix)
{
    if (!exec_mma_together(w, o)) {
        return HALT;
    }
    uint32_t r[LANES];
    tow_matrix_move(r, tow_ptx_row(w, o->a));
    tow_ptx_blend32(w, tow_ptx_row(w, o->d), r);
    return o + 1;
}

/* ldmatrix.sync.aligned.shape.num{.trans}{.ss}.type r, [p]   stmatrix: [p], r */
static int decode_matrix_access(struct tow_ptx_decoder *dec, bool store)
{
    const struct tow_ptx_insn *insn = dec->insn;
    enum tow_ptx_statespace space = SP_NONE;
    struct matrix_form *form = tow_ptx_keep(dec, sizeof *form);
    bool b16 = false, b8 = false, m8n8 = false, m16n16 = false;
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        if (strcmp(mod, "x1") == 0 || strcmp(mod, "x2") == 0 || strcmp(mod, "x4") == 0) {
            form->form.count = (uint8_t)(mod[1] - '0');
        } else if (strcmp(mod, "trans") == 0) {
            form->form.trans = true;
        } else if (strcmp(mod, "b16") == 0) {
            b16 = true;
        } else if (strcmp(mod, "b8") == 0) {
            b8 = true;
        } else if (strcmp(mod, "m8n8") == 0) {
            m8n8 = true;
        } else if (strcmp(mod, "m16n16") == 0) {
            m16n16 = true;
        } else if (tow_ptx_mod_space(mod) == SP_SHARED) {
            space = SP_SHARED;
        } else if (strcmp(mod, "sync") != 0 && strcmp(mod, "aligned") != 0) {
            return tow_ptx_unsupported(dec);
        }
    }
    form->form.shape = m16n16 ? TOW_MATRIX_M16N16_B8 : TOW_MATRIX_M8N8_B16;
    if (m8n8 == m16n16 || b16 != m8n8 || b8 != m16n16 ||
        tow_matrix_find(&form->form, store, &form->layout)) {
        return tow_ptx_unsupported(dec);
    }
    struct tow_ptx_op op = {.run = store ? run_stmatrix : run_ldmatrix, .ext = form};
    char kind;
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error ||
        (error =
             tow_ptx_address(dec, &insn->operands[store ? 0 : 1], &space, &op.a, &kind, &op.imm)) ||
        (error = exec_mma_fragment(dec, &insn->operands[store ? 1 : 0], !store,
                                   form->layout.registers, 'w', &form->refs))) {
        return error;
    }
    form->at = tow_ptx_at_for(dec, space, kind, MANNER_PLAIN);
    if (!form->at) {
        return tow_ptx_bad(dec, "the address needs a 64-bit register");
    }
    dec->control = true;
    return tow_ptx_emit(dec, &op);
}

static int decode_ldmatrix(struct tow_ptx_decoder *dec)
{
    return decode_matrix_access(dec, false);
}

static int decode_stmatrix(struct tow_ptx_decoder *dec)
{
    return decode_matrix_access(dec, true);
}

static int decode_movmatrix(struct tow_ptx_decoder *dec)
{
    if (strcmp(dec->insn->key, "movmatrix.sync.aligned.m8n8.trans.b16") != 0) {
        return tow_ptx_unsupported(dec);
    }
    dec->control = true;
    return tow_ptx_by_signature(dec, "ww", run_movmatrix, NULL);
}

const struct tow_ptx_special tow_ptx_specials_mma[] = {
    {"mma", decode_mma},           {"wmma", decode_wmma},           {"ldmatrix", decode_ldmatrix},
    {"stmatrix", decode_stmatrix}, {"movmatrix", decode_movmatrix}, {NULL, NULL},
};
