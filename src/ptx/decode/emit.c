/* SPDX-License-Identifier: Apache-2.0 */
/* What every decoder uses to put operations together: diagnostics, constants, places in the frame,
 * the list of operations. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/decode/decode.h"

#define CONST_BYTES_MAX (1u << 30)
#define FIXED_BYTES (6u * 128u) /* rows that differ by lane, before all others */

struct tow_ptx_const {
    uint64_t value;
    uint32_t ref; /* 0: empty (the first rows are the fixed ones) */
    bool wide;
};

/* ---- diagnostics ---- */

int tow_ptx_bad(struct tow_ptx_decoder *dec, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tow_ptx_fail(dec->diag, -EINVAL, dec->insn ? dec->insn->line : 0, "%s: %s",
                        dec->insn ? dec->insn->key : dec->func->name, text);
}

int tow_ptx_unsupported(struct tow_ptx_decoder *dec)
{
    return tow_ptx_refuse(dec->diag, dec->insn->key, dec->insn->line);
}

int tow_ptx_refuse(struct tow_ptx_diag *diag, const char *instruction, unsigned line)
{
    return tow_ptx_fail(diag, -ENOTSUP, line,
                        "the instruction '%.120s' is not supported by the software GPU (line %u)",
                        instruction, line);
}

int tow_ptx_dec_no_memory(struct tow_ptx_decoder *dec)
{
    return tow_ptx_fail(dec->diag, -ENOMEM, 0, "out of memory while decoding the program");
}

void *tow_ptx_keep(struct tow_ptx_decoder *dec, size_t bytes)
{
    return tow_ptx_arena_alloc(&dec->module->arena, bytes);
}

/* ---- constants ---- */

static int const_space(struct tow_ptx_decoder *dec, uint32_t bytes, uint32_t *ret_offset)
{
    if (dec->const_bytes + bytes > dec->const_capacity) {
        uint64_t capacity = (uint64_t)dec->const_capacity * 2 + 65536;
        uint8_t *more;
        if (capacity > CONST_BYTES_MAX || !(more = realloc(dec->consts, capacity))) {
            return tow_ptx_dec_no_memory(dec);
        }
        dec->consts = more;
        dec->const_capacity = (uint32_t)capacity;
    }
    *ret_offset = dec->const_bytes;
    dec->const_bytes += bytes;
    return 0;
}

static int const_row(struct tow_ptx_decoder *dec, uint64_t value, bool wide, uint32_t *ret_ref)
{
    if (dec->const_count * 2 >= dec->const_slots) {
        uint32_t slots = dec->const_slots ? dec->const_slots * 2 : 1024;
        struct tow_ptx_const *table = calloc(slots, sizeof *table);
        if (!table) {
            return tow_ptx_dec_no_memory(dec);
        }
        for (uint32_t i = 0; i < dec->const_slots; i++) {
            struct tow_ptx_const *old = &dec->const_table[i];
            if (old->ref) {
                uint32_t at = (uint32_t)((old->value * 0x9e3779b97f4a7c15ull) >> 32) + old->wide;
                while (table[at & (slots - 1)].ref) {
                    at++;
                }
                table[at & (slots - 1)] = *old;
            }
        }
        free(dec->const_table);
        dec->const_table = table;
        dec->const_slots = slots;
    }
    uint32_t at = (uint32_t)((value * 0x9e3779b97f4a7c15ull) >> 32) + wide;
    struct tow_ptx_const *entry;
    while ((entry = &dec->const_table[at & (dec->const_slots - 1)])->ref) {
        if (entry->value == value && entry->wide == wide) {
            *ret_ref = entry->ref;
            return 0;
        }
        at++;
    }
    uint32_t offset = 0;
    int error = const_space(dec, wide ? 256 : 128, &offset);
    if (error) {
        return error;
    }
    for (unsigned l = 0; l < LANES; l++) {
        if (wide) {
            ((uint64_t *)(dec->consts + offset))[l] = value;
        } else {
            ((uint32_t *)(dec->consts + offset))[l] = (uint32_t)value;
        }
    }
    *entry = (struct tow_ptx_const){.value = value, .ref = REF(BASE_CONST, offset), .wide = wide};
    dec->const_count++;
    *ret_ref = entry->ref;
    return 0;
}

int tow_ptx_const32(struct tow_ptx_decoder *dec, uint32_t value, uint32_t *ret_ref)
{
    return const_row(dec, value, false, ret_ref);
}

int tow_ptx_const64(struct tow_ptx_decoder *dec, uint64_t value, uint32_t *ret_ref)
{
    return const_row(dec, value, true, ret_ref);
}

bool tow_ptx_const_known(const struct tow_ptx_decoder *dec, uint32_t ref, uint32_t *ret_value)
{
    uint32_t offset = ref & ~3u;
    if (ref == PTX_NO_SLOT || (ref & 3u) != BASE_CONST || offset < FIXED_BYTES) {
        return false;
    }
    memcpy(ret_value, dec->consts + offset, sizeof *ret_value);
    return true;
}

int tow_ptx_fixed_rows(struct tow_ptx_decoder *dec)
{
    uint32_t offset = 0;
    int error = const_space(dec, FIXED_BYTES, &offset);
    if (error) {
        return error;
    }
    uint32_t *rows = (uint32_t *)(dec->consts + offset);
    for (unsigned l = 0; l < LANES; l++) {
        rows[l] = l;
        rows[32 + l] = 1u << l;
        rows[64 + l] = (2u << l) - 1u;
        rows[96 + l] = (1u << l) - 1u;
        rows[128 + l] = ~((1u << l) - 1u);
        rows[160 + l] = ~((2u << l) - 1u);
    }
    return 0;
}

/* ---- operations ---- */

int tow_ptx_emit(struct tow_ptx_decoder *dec, const struct tow_ptx_op *op)
{
    if (dec->op_count == dec->op_capacity) {
        uint32_t capacity = dec->op_capacity * 2 + 256;
        struct tow_ptx_op *more =
            capacity > PTX_INSNS_MAX ? NULL : realloc(dec->ops, capacity * sizeof *more);
        if (!more) {
            return tow_ptx_dec_no_memory(dec);
        }
        dec->ops = more;
        dec->op_capacity = capacity;
    }
    struct tow_ptx_op *at = &dec->ops[dec->op_count++];
    *at = *op;
    at->body = op->run;
    if (dec->insn) {
        at->line = dec->insn->line;
        if (dec->insn->guard != PTX_NO_SLOT && op->run != tow_ptx_bra_if) {
            at->guard = tow_ptx_register_ref(dec, dec->insn->guard) | 2u |
                        (dec->insn->guard_negated ? 1u : 0u);
            at->run = dec->control ? tow_ptx_guarded_control : tow_ptx_guarded;
        }
    }
    return 0;
}

char tow_ptx_type_kind(enum tow_ptx_type type)
{
    switch (type) {
    case PT_PRED:
        return 'p';
    case PT_F32:
        return 'f';
    case PT_F64:
        return 'd';
    default:
        switch (tow_ptx_type_bytes(type)) {
        case 16:
            return 'q';
        case 8:
            return 'l';
        case 2:
        case 1:
            return 'h';
        default:
            return 'w';
        }
    }
}

enum tow_ptx_type tow_ptx_mod_type(const char *mod)
{
    char name[16];
    int length = snprintf(name, sizeof name, ".%s", mod);
    return length > 0 && length < (int)sizeof name ? tow_ptx_type_parse(name, (size_t)length)
                                                   : PT_NONE;
}

char tow_ptx_register_kind(const struct tow_ptx_decoder *dec, uint32_t reg)
{
    char kind = tow_ptx_type_kind(dec->func->regs[reg].type);
    return kind == 'd' ? 'l' : kind == 'f' || kind == 'h' ? 'w' : kind;
}

uint32_t tow_ptx_frame_place(struct tow_ptx_decoder *dec, char kind)
{
    struct tow_ptx_func *func = dec->func;
    uint32_t at = func->frame_bytes;
    if (kind == 'p') { /* 32 of them share a row */
        if (!(dec->pred_next % 128)) {
            dec->pred_next = at;
            func->frame_bytes += 128;
        }
        at = dec->pred_next;
        dec->pred_next += 4;
        return REF(BASE_FRAME, at);
    }
    func->frame_bytes += kind == 'q' ? 512 : kind == 'l' ? 256 : 128;
    return REF(BASE_FRAME, at);
}

uint32_t tow_ptx_register_ref(struct tow_ptx_decoder *dec, uint32_t reg)
{
    struct tow_ptx_reg *entry = &dec->func->regs[reg];
    if (entry->slot == PTX_NO_SLOT) {
        entry->slot = tow_ptx_frame_place(dec, tow_ptx_register_kind(dec, reg));
    }
    return entry->slot;
}

uint32_t tow_ptx_temp(struct tow_ptx_decoder *dec, char kind)
{
    bool wide = kind == 'l' || kind == 'd';
    uint32_t *temps = wide ? dec->wide_temps : dec->temps;
    uint32_t *next = wide ? &dec->wide_next : &dec->temp_next;
    if (kind == 'p' || kind == 'q') {
        return tow_ptx_frame_place(dec, kind);
    }
    uint32_t *temp = &temps[(*next)++ % 4];
    if (*temp == PTX_NO_SLOT) {
        *temp = tow_ptx_frame_place(dec, wide ? 'l' : 'w');
    }
    return *temp;
}
