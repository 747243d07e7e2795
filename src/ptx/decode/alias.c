/* SPDX-License-Identifier: Apache-2.0 */
/* Registers that are another name for what never changes while a block runs: constants, special
 * registers, parameters of the kernel, and copies of these. They become that row, and the
 * instruction that set them goes. Short kernels spend a third of their time with such instructions.
 *
 * A register counts when one instruction of the function writes it, and that is without a guard:
 * who reads it before reads what no program may rely on. */
#include "ptx/decode/decode.h"

#include <stdlib.h>
#include <string.h>

#include "ptx/decode/address.h"

struct aliases {
    struct tow_ptx_decoder *dec;
    uint8_t *writes; /* of each register, up to 2 */
};

static void alias_count(struct aliases *a, const struct tow_ptx_operand *operand)
{
    const struct tow_ptx_func *func = a->dec->func;
    for (uint32_t k = 0; operand->kind == OPD_REG && k < func->regs[operand->index].lanes; k++) {
        uint8_t *writes = &a->writes[operand->index + k];
        *writes += *writes < 2;
    }
    if (operand->second) {
        alias_count(a, operand->second);
    }
    for (uint32_t i = 0; i < operand->count; i++) {
        alias_count(a, &operand->children[i]);
    }
}

/* Whoever is not known to write only its first operand may write all of them. */
static void alias_count_insn(struct aliases *a, const struct tow_ptx_insn *insn)
{
    bool waits = strcmp(insn->name, "bar") == 0; /* bar.red has a result */
    for (uint32_t i = 0; i < insn->mod_count && waits; i++) {
        waits = strcmp(insn->mods[i], "red") != 0;
    }
    bool reads_all = strcmp(insn->name, "st") == 0 || strcmp(insn->name, "red") == 0 ||
                     strcmp(insn->name, "bra") == 0 || waits;
    bool first = tow_ptx_writes_first(insn->name);
    if (reads_all || (first && insn->operand_count && insn->operands[0].kind == OPD_ADDRESS)) {
        return;
    }
    for (uint32_t i = 0; i < (first ? 1u : insn->operand_count) && i < insn->operand_count; i++) {
        alias_count(a, &insn->operands[i]);
    }
}

/* A new row for so many bytes of the parameters, or the one that they have; PTX_NO_SLOT: none left.
 */
static uint32_t alias_param_row(struct tow_ptx_decoder *dec, uint32_t offset, bool wide)
{
    struct tow_ptx_func *func = dec->func;
    for (uint32_t i = 0; i < func->param_row_count; i++) {
        if (func->param_rows[i].offset == offset && func->param_rows[i].wide == wide) {
            return REF(BASE_BLOCK, func->param_rows[i].row * 128u);
        }
    }
    uint32_t row = BROW_COUNT, units = wide ? 2 : 1;
    if (func->param_row_count) {
        const struct tow_ptx_param_row *last = &func->param_rows[func->param_row_count - 1];
        row = last->row + (last->wide ? 2u : 1u);
    } else {
        func->param_rows = tow_ptx_keep(dec, PARAM_ROWS_MAX * sizeof *func->param_rows);
    }
    if (!func->param_rows || row + units > BROW_COUNT + PARAM_ROWS_MAX) {
        return PTX_NO_SLOT;
    }
    func->param_rows[func->param_row_count++] =
        (struct tow_ptx_param_row){.offset = offset, .row = row, .wide = wide};
    return REF(BASE_BLOCK, row * 128u);
}

/* ld.param.u64 d, [p + 8] of a kernel, of a type that is as wide as the register */
static uint32_t alias_of_param(struct tow_ptx_decoder *dec, const struct tow_ptx_insn *insn,
                               unsigned bytes)
{
    const struct tow_ptx_operand *address = &insn->operands[1];
    if (!dec->func->entry || insn->mod_count != 2 || strcmp(insn->mods[0], "param") != 0 ||
        tow_ptx_type_bytes(tow_ptx_mod_type(insn->mods[1])) != bytes ||
        address->kind != OPD_ADDRESS || address->count != 1 ||
        address->children[0].kind != OPD_SYMBOL) {
        return PTX_NO_SLOT;
    }
    struct tow_ptx_symbol *symbol = tow_ptx_resolve(address->children[0].symbol);
    if (!symbol || symbol->kind != SYM_VAR || symbol->var->space != SP_PARAM) {
        return PTX_NO_SLOT;
    }
    uint64_t at = symbol->var->offset + address->children[0].bits, all = dec->func->param_bytes;
    if (at > all || bytes > all - at || at % bytes) {
        return PTX_NO_SLOT; /* a mistake, which the decoder tells */
    }
    return alias_param_row(dec, (uint32_t)at, bytes == 8);
}

/* mov.u32 d, 5   mov.f64 d, 0d... */
static uint32_t alias_of_constant(struct tow_ptx_decoder *dec, const struct tow_ptx_insn *insn)
{
    uint32_t ref;
    dec->insn = insn; /* whom a mistake is about; the decoder will tell it */
    int error = tow_ptx_source(dec, &insn->operands[1],
                               tow_ptx_type_kind(tow_ptx_mod_type(insn->mods[0])), &ref);
    dec->insn = NULL;
    return error == 0 && (ref & 3u) == BASE_CONST ? ref : PTX_NO_SLOT;
}

/* mov.u32 d, symbol: of shared memory whose place is known */
static uint32_t alias_of_shared(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *from)
{
    const struct tow_ptx_symbol *symbol = tow_ptx_resolve(from->symbol);
    uint32_t ref;
    bool known = symbol && symbol->kind == SYM_VAR && symbol->var->space == SP_SHARED &&
                 !symbol->var->unsized &&
                 tow_ptx_const32(dec, (uint32_t)(symbol->var->offset + from->bits), &ref) == 0;
    return known ? ref : PTX_NO_SLOT;
}

/* mov.u32 d, %tid.x   mov.b64 d, a   cvta.to.global.u64 d, a */
static uint32_t alias_of_copy(struct tow_ptx_decoder *dec, const struct tow_ptx_insn *insn,
                              unsigned bytes)
{
    const struct tow_ptx_operand *from = &insn->operands[1];
    if (strcmp(insn->name, "mov") == 0) {
        if (insn->mod_count != 1 || tow_ptx_type_bytes(tow_ptx_mod_type(insn->mods[0])) != bytes) {
            return PTX_NO_SLOT;
        }
        if (from->kind == OPD_SREG) {
            return bytes == 4 ? tow_ptx_sreg_row(from->index) : PTX_NO_SLOT;
        }
        if (from->kind == OPD_INT || from->kind == OPD_FLOAT || from->kind == OPD_FLOAT32) {
            return alias_of_constant(dec, insn);
        }
        if (from->kind == OPD_SYMBOL && bytes == 4) {
            return alias_of_shared(dec, from);
        }
    } else {
        bool to = insn->mod_count == 3 && strcmp(insn->mods[0], "to") == 0;
        if ((!to && insn->mod_count != 2) || bytes != 8 ||
            (strcmp(insn->mods[to], "global") != 0 && strcmp(insn->mods[to], "const") != 0) ||
            strcmp(insn->mods[to + 1], "u64") != 0) {
            return PTX_NO_SLOT;
        }
    }
    if (from->kind != OPD_REG || from->minus || from->selector || from->negated) {
        return PTX_NO_SLOT;
    }
    const struct tow_ptx_reg *reg = &dec->func->regs[from->index];
    bool stays = reg->slot != PTX_NO_SLOT && (reg->slot & 3u) != BASE_FRAME;
    return stays && tow_ptx_type_bytes(reg->type) == bytes ? reg->slot : PTX_NO_SLOT;
}

void tow_ptx_alias_registers(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_func *func = dec->func;
    struct aliases a = {.dec = dec, .writes = calloc(func->reg_count + 1, 1)};
    if (!a.writes) {
        return; /* it runs just as well without */
    }
    for (uint32_t i = 0; i < func->insn_count; i++) {
        alias_count_insn(&a, func->insns[i]);
    }
    for (uint32_t i = 0; i < func->insn_count; i++) {
        struct tow_ptx_insn *insn = func->insns[i];
        bool load = strcmp(insn->name, "ld") == 0;
        if (insn->guard != PTX_NO_SLOT || insn->operand_count != 2 ||
            insn->operands[0].kind != OPD_REG || insn->operands[0].second ||
            (!load && strcmp(insn->name, "mov") != 0 && strcmp(insn->name, "cvta") != 0)) {
            continue;
        }
        struct tow_ptx_reg *d = &func->regs[insn->operands[0].index];
        unsigned bytes = tow_ptx_type_bytes(d->type);
        if (a.writes[insn->operands[0].index] != 1 || d->slot != PTX_NO_SLOT || d->lanes != 1 ||
            d->type == PT_PRED || (bytes != 4 && bytes != 8)) {
            continue;
        }
        uint32_t ref = load ? alias_of_param(dec, insn, bytes) : alias_of_copy(dec, insn, bytes);
        if (ref != PTX_NO_SLOT) {
            d->slot = ref;
            insn->dropped = true;
        }
    }
    free(a.writes);
}
