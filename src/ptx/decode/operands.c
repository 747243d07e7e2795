/* SPDX-License-Identifier: Apache-2.0 */
/* Operands to rows: registers, immediates, special registers, addresses of symbols. */
#include <string.h>

#include "ptx/decode/decode.h"

static char row_kind(char kind)
{
    return kind == 'h' || kind == 'f' ? 'w' : kind == 'd' ? 'l' : kind;
}

static const char *kind_name(char kind)
{
    switch (row_kind(kind)) {
    case 'w':
        return "a register of up to 32 bits";
    case 'l':
        return "a 64-bit register";
    case 'q':
        return "a 128-bit register";
    default:
        return "a predicate";
    }
}

/* ---- addresses of symbols ---- */

/* Where the extern array of shared memory begins. */
static uint32_t dynamic_base(const struct tow_ptx_warp *w)
{
    return *(const uint32_t *)tow_ptx_row(w, REF(BASE_BLOCK, BROW_DYNAMIC_BASE * 128u));
}

OP(address_variable)
{
    uint64_t value = w->launch->instance->addresses[o->e] + (uint64_t)o->imm;
    LANE_BODY(uint64_t, , value)
}
OP(address_local64)
{
    uint64_t value = w->groups[w->current].frame->local_base + (uint64_t)o->imm;
    LANE_BODY(uint64_t, , value)
}
OP(address_local32)
{
    uint32_t value = w->groups[w->current].frame->local_base + (uint32_t)o->imm;
    LANE_BODY(uint32_t, , value)
}
OP(address_param)
{
    uint64_t value = (uint64_t)(uintptr_t)w->runner->params + (uint64_t)o->imm;
    LANE_BODY(uint64_t, , value)
}
OP(address_dynamic32)
{
    uint32_t value = dynamic_base(w) + (uint32_t)o->imm;
    LANE_BODY(uint32_t, , value)
}
OP(address_dynamic64)
{
    uint64_t value = dynamic_base(w) + (uint64_t)o->imm;
    LANE_BODY(uint64_t, , value)
}
OP(operands_fill32)
{
    uint32_t value = (uint32_t)o->imm;
    LANE_BODY(uint32_t, , value)
}
OP(operands_fill64)
{
    uint64_t value = (uint64_t)o->imm;
    LANE_BODY(uint64_t, , value)
}

int tow_ptx_symbol_row(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                       char kind, uint32_t d)
{
    struct tow_ptx_symbol *symbol = tow_ptx_resolve(operand->symbol);
    bool wide = row_kind(kind) == 'l';
    struct tow_ptx_op op = {.d = d, .imm = (int64_t)operand->bits};
    if (symbol && symbol->kind == SYM_FUNC) {
        if (!symbol->func->defined) {
            tow_ptx_want(dec->program, symbol->func, dec->insn->line);
        }
        op.imm += (int64_t)(WINDOW_FUNCTION + (uint64_t)symbol->func->index * FUNCTION_STRIDE);
        op.run = operands_fill64;
    } else if (symbol && symbol->kind == SYM_VAR) {
        const struct tow_ptx_var *var = symbol->var;
        switch (var->space) {
        case SP_GLOBAL:
        case SP_CONST:
            op.run = address_variable;
            op.e = var->index;
            break;
        case SP_LOCAL:
        case SP_FPARAM:
            op.imm += (int64_t)var->offset;
            op.run = wide ? address_local64 : address_local32;
            break;
        case SP_PARAM:
            op.imm += (int64_t)var->offset;
            op.run = address_param;
            break;
        case SP_SHARED:
            if (var->unsized) {
                op.run = wide ? address_dynamic64 : address_dynamic32;
            } else {
                op.imm += (int64_t)var->offset;
                op.run = wide ? operands_fill64 : operands_fill32;
            }
            break;
        default:
            return tow_ptx_bad(dec, "'%s' has no address", var->name);
        }
    } else {
        return tow_ptx_bad(dec, "a label has no address");
    }
    if (!wide && op.run != address_local32 && op.run != address_dynamic32 &&
        op.run != operands_fill32) {
        return tow_ptx_bad(dec, "the address needs a 64-bit register");
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- special registers ---- */

static uint64_t clock_now(const struct tow_ptx_warp *w)
{
    return w->launch->env->time(w->launch->env_user);
}
OP(read_clock32)
{
    uint32_t value = (uint32_t)(clock_now(w) >> o->imm);
    LANE_BODY(uint32_t, , value)
}
OP(read_clock64)
{
    uint64_t value = clock_now(w);
    LANE_BODY(uint64_t, , value)
}
OP(read_explicit_cluster)
{
    const struct tow_ptx_launch *launch = w->launch;
    bool set = (uint64_t)launch->cluster[0] * launch->cluster[1] * launch->cluster[2] > 1 ||
               launch->kernel->info.reqcluster[0];
    tow_ptx_set_pred(w, o->d, set ? FULL : 0);
    return o + 1;
}
OP(operands_widen)
{
    const uint32_t *a = tow_ptx_row(w, o->a);
    LANE_BODY(uint64_t, , a[l])
}

uint32_t tow_ptx_sreg_row(uint32_t number)
{
    if (number >= SREG_LANEID) {
        return number < SREG_ZERO ? REF(BASE_CONST, (number - SREG_LANEID) * 128) : PTX_NO_SLOT;
    }
    return number >= SREG_BLOCK_ROWS ? REF(BASE_BLOCK, (number - SREG_BLOCK_ROWS) * 128)
                                     : REF(BASE_WARP, number * 128);
}

static int sreg_source(struct tow_ptx_decoder *dec, uint32_t number, char kind, uint32_t *ret_ref)
{
    struct tow_ptx_op op = {0};
    char is = 'w';
    uint32_t ref = 0;
    int error = 0;
    if (number >= SREG_CLOCK) {
        is = number == SREG_CLOCK64 || number == SREG_GLOBALTIMER ? 'l' : 'w';
        op.run = is == 'l' ? read_clock64 : read_clock32;
        op.imm = number == SREG_CLOCK_HI || number == SREG_GLOBALTIMER_HI ? 32 : 0;
        if (is == 'w' && row_kind(kind) == 'l') { /* %clock read as 64 bits is %clock64 */
            op.run = read_clock64;
            is = 'l';
        }
        op.d = ref = tow_ptx_temp(dec, is);
        error = tow_ptx_emit(dec, &op);
    } else if (number == SREG_IS_EXPLICIT_CLUSTER) {
        is = 'p';
        op.run = read_explicit_cluster;
        op.d = ref = tow_ptx_temp(dec, is);
        error = tow_ptx_emit(dec, &op);
    } else if (number == SREG_ZERO64) {
        is = 'l';
        error = tow_ptx_const64(dec, 0, &ref);
    } else if (number == SREG_ZERO) {
        error = tow_ptx_const32(dec, 0, &ref);
    } else {
        ref = tow_ptx_sreg_row(number);
    }
    if (error == 0 && is == 'w' && row_kind(kind) == 'l') {
        op = (struct tow_ptx_op){.run = operands_widen, .a = ref, .d = tow_ptx_temp(dec, 'l')};
        ref = op.d;
        is = 'l';
        error = tow_ptx_emit(dec, &op);
    }
    if (error == 0 && is != row_kind(kind)) {
        return tow_ptx_bad(dec, "the special register does not fit the operand");
    }
    *ret_ref = ref;
    return error;
}

/* ---- operands ---- */

static uint64_t immediate_bits(const struct tow_ptx_operand *operand, char kind)
{
    if (operand->kind == OPD_FLOAT && kind != 'd' && kind != 'l') {
        double value;
        float narrow;
        uint32_t bits;
        memcpy(&value, &operand->bits, 8);
        narrow = (float)value;
        memcpy(&bits, &narrow, 4);
        return bits;
    }
    if (operand->kind == OPD_FLOAT32 && kind == 'd') {
        float narrow;
        uint32_t low = (uint32_t)operand->bits;
        memcpy(&narrow, &low, 4);
        double value = narrow;
        uint64_t bits;
        memcpy(&bits, &value, 8);
        return bits;
    }
    if (operand->kind == OPD_INT && kind == 'f') {
        float value = (float)(int64_t)operand->bits;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        return bits;
    }
    if (operand->kind == OPD_INT && kind == 'd') {
        double value = (double)(int64_t)operand->bits;
        uint64_t bits;
        memcpy(&bits, &value, 8);
        return bits;
    }
    return operand->bits;
}

OP(not_pred)
{
    tow_ptx_set_pred(w, o->d, ~tow_ptx_pred(w, o->a));
    return o + 1;
}

int tow_ptx_source(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand, char kind,
                   uint32_t *ret_ref)
{
    switch (operand->kind) {
    case OPD_REG: {
        char is = tow_ptx_register_kind(dec, operand->index);
        if ((operand->minus || operand->selector) && dec->insn->name[0] != 'v') {
            return tow_ptx_bad(dec, "only video instructions take parts of a register");
        }
        if (is != row_kind(kind)) {
            return tow_ptx_bad(dec, "an operand must be %s", kind_name(kind));
        }
        *ret_ref = tow_ptx_register_ref(dec, operand->index);
        if (operand->negated) {
            if (is != 'p') {
                return tow_ptx_bad(dec, "only a predicate can be negated");
            }
            struct tow_ptx_op op = {.run = not_pred, .a = *ret_ref, .d = tow_ptx_temp(dec, 'p')};
            *ret_ref = op.d;
            bool control = dec->control;
            dec->control = false;
            int error = tow_ptx_emit(dec, &op);
            dec->control = control;
            return error;
        }
        return 0;
    }
    case OPD_INT:
    case OPD_FLOAT:
    case OPD_FLOAT32:
        if (kind == 'p') {
            bool set = (operand->bits != 0) != operand->negated;
            return tow_ptx_const32(dec, set ? FULL : 0, ret_ref);
        }
        if (row_kind(kind) == 'w') {
            uint32_t value = (uint32_t)immediate_bits(operand, kind);
            return tow_ptx_const32(dec, value, ret_ref);
        }
        if (row_kind(kind) == 'l') {
            return tow_ptx_const64(dec, immediate_bits(operand, kind), ret_ref);
        }
        return tow_ptx_bad(dec, "an operand must be %s", kind_name(kind));
    case OPD_SREG:
        return sreg_source(dec, operand->index, kind, ret_ref);
    case OPD_SYMBOL: {
        if (row_kind(kind) != 'w' && row_kind(kind) != 'l') {
            return tow_ptx_bad(dec, "an address does not fit the operand");
        }
        uint32_t temp = tow_ptx_temp(dec, row_kind(kind));
        *ret_ref = temp;
        return tow_ptx_symbol_row(dec, operand, kind, temp);
    }
    default:
        return tow_ptx_bad(dec, "an operand must be %s", kind_name(kind));
    }
}

int tow_ptx_any_source(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand,
                       char wanted, uint32_t *ret_ref, char *ret_kind)
{
    char kind = row_kind(wanted);
    if (operand->kind == OPD_REG) {
        kind = tow_ptx_register_kind(dec, operand->index);
        wanted = kind;
    }
    *ret_kind = kind;
    return tow_ptx_source(dec, operand, wanted, ret_ref);
}

int tow_ptx_dest(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *operand, char kind,
                 uint32_t *ret_ref)
{
    char row = row_kind(kind);
    if (operand->kind == OPD_SINK) {
        unsigned which = row == 'w' ? 0 : row == 'l' ? 1 : row == 'q' ? 2 : 3;
        if (dec->sinks[which] == PTX_NO_SLOT) {
            dec->sinks[which] = tow_ptx_frame_place(dec, row);
        }
        *ret_ref = dec->sinks[which];
        return 0;
    }
    if (operand->kind != OPD_REG || tow_ptx_register_kind(dec, operand->index) != row) {
        return tow_ptx_bad(dec, "the destination must be %s", kind_name(kind));
    }
    *ret_ref = tow_ptx_register_ref(dec, operand->index);
    return 0;
}

int tow_ptx_want_operands(struct tow_ptx_decoder *dec, unsigned low, unsigned high)
{
    unsigned count = dec->insn->operand_count;
    if (count < low || count > high) {
        return tow_ptx_bad(dec, "%u operands, expected %u", count, low);
    }
    return 0;
}

bool tow_ptx_has_mod(const struct tow_ptx_decoder *dec, const char *mod)
{
    for (unsigned i = 0; i < dec->insn->mod_count; i++) {
        if (strcmp(dec->insn->mods[i], mod) == 0) {
            return true;
        }
    }
    return false;
}

int tow_ptx_by_signature(struct tow_ptx_decoder *dec, const char *sig, tow_ptx_fn *fn,
                         const void *ext)
{
    unsigned count = (unsigned)strcspn(sig, "C");
    struct tow_ptx_op op = {.run = fn, .ext = ext};
    uint32_t *places[6] = {&op.d, &op.a, &op.b, &op.c, &op.e, &op.f};
    int error = tow_ptx_want_operands(dec, count, count);
    for (unsigned i = 0; i < count && error == 0; i++) {
        const struct tow_ptx_operand *operand = &dec->insn->operands[i];
        if (sig[i] == 'i') {
            if (operand->kind != OPD_INT) {
                return tow_ptx_bad(dec, "operand %u must be an immediate", i + 1);
            }
            op.imm = (int64_t)operand->bits;
        } else if (i == 0) {
            error = tow_ptx_dest(dec, operand, sig[i], places[i]);
        } else {
            error = tow_ptx_source(dec, operand, sig[i], places[i]);
        }
    }
    if (sig[count] == 'C') { /* the condition code: one predicate a function */
        if (dec->carry == PTX_NO_SLOT) {
            dec->carry = tow_ptx_frame_place(dec, 'p');
        }
        op.e = dec->carry;
    }
    return error ? error : tow_ptx_emit(dec, &op);
}
