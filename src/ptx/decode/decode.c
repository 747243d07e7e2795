/* The decoder's core: operands, constants, the instruction tables, functions. */
#include "ptx/decode/decode.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONST_BYTES_MAX (1u << 30)
#define FRAME_BYTES_MAX (1u << 25)
#define RESOLVE_MAX 64u

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
    return tow_ptx_fail(dec->diag, -ENOTSUP, dec->insn->line,
                        "the instruction '%.120s' is not supported by the software GPU (line %u)",
                        dec->insn->key, dec->insn->line);
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

/* The rows that %laneid and its masks read. */
static int fixed_rows(struct tow_ptx_decoder *dec)
{
    uint32_t offset = 0;
    int error = const_space(dec, 6 * 128, &offset);
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

static uint32_t frame_place(struct tow_ptx_decoder *dec, char kind)
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
        entry->slot = frame_place(dec, tow_ptx_register_kind(dec, reg));
    }
    return entry->slot;
}

uint32_t tow_ptx_temp(struct tow_ptx_decoder *dec, char kind)
{
    bool wide = kind == 'l' || kind == 'd';
    uint32_t *temps = wide ? dec->wide_temps : dec->temps;
    uint32_t *next = wide ? &dec->wide_next : &dec->temp_next;
    if (kind == 'p' || kind == 'q') {
        return frame_place(dec, kind);
    }
    uint32_t *temp = &temps[(*next)++ % 4];
    if (*temp == PTX_NO_SLOT) {
        *temp = frame_place(dec, wide ? 'l' : 'w');
    }
    return *temp;
}

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

struct tow_ptx_symbol *tow_ptx_resolve(struct tow_ptx_symbol *symbol)
{
    for (unsigned i = 0; symbol && symbol->resolved && i < RESOLVE_MAX; i++) {
        symbol = symbol->resolved;
    }
    return symbol;
}

/* ---- addresses of symbols ---- */

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
    uint32_t value =
        ((uint32_t *)w->base[BASE_BLOCK])[BROW_DYNAMIC_BASE * LANES] + (uint32_t)o->imm;
    LANE_BODY(uint32_t, , value)
}
OP(address_dynamic64)
{
    uint64_t value =
        ((uint32_t *)w->base[BASE_BLOCK])[BROW_DYNAMIC_BASE * LANES] + (uint64_t)o->imm;
    LANE_BODY(uint64_t, , value)
}
OP(fill32)
{
    uint32_t value = (uint32_t)o->imm;
    LANE_BODY(uint32_t, , value)
}
OP(fill64)
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
        op.run = fill64;
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
                op.run = wide ? fill64 : fill32;
            }
            break;
        default:
            return tow_ptx_bad(dec, "'%s' has no address", var->name);
        }
    } else {
        return tow_ptx_bad(dec, "a label has no address");
    }
    if (!wide && op.run != address_local32 && op.run != address_dynamic32 && op.run != fill32) {
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
OP(widen)
{
    const uint32_t *a = tow_ptx_row(w, o->a);
    LANE_BODY(uint64_t, , a[l])
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
    } else if (number >= SREG_LANEID) {
        ref = REF(BASE_CONST, (number - SREG_LANEID) * 128);
    } else if (number >= SREG_BLOCK_ROWS) {
        ref = REF(BASE_BLOCK, (number - SREG_BLOCK_ROWS) * 128);
    } else {
        ref = REF(BASE_WARP, number * 128);
    }
    if (error == 0 && is == 'w' && row_kind(kind) == 'l') {
        op = (struct tow_ptx_op){.run = widen, .a = ref, .d = tow_ptx_temp(dec, 'l')};
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
            dec->sinks[which] = frame_place(dec, row);
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
            dec->carry = frame_place(dec, 'p');
        }
        op.e = dec->carry;
    }
    return error ? error : tow_ptx_emit(dec, &op);
}

/* ---- the instruction table ---- */

struct bucket {
    const char *key;
    size_t length;
    const struct tow_ptx_entry *entry;
    const struct tow_ptx_special *special;
};
#define TABLE_SLOTS 16384u
static struct bucket table[TABLE_SLOTS];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static struct bucket *table_at(const char *key, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t)key[i]) * 16777619u;
    }
    for (;; hash++) {
        struct bucket *bucket = &table[hash % TABLE_SLOTS];
        if (!bucket->key || (bucket->length == length && memcmp(bucket->key, key, length) == 0)) {
            return bucket;
        }
    }
}

static void table_fill(void)
{
    const struct tow_ptx_entry *groups[] = {tow_ptx_ops_int, tow_ptx_ops_float, tow_ptx_ops_warp};
    const struct tow_ptx_special *specials[] = {tow_ptx_specials_core,    tow_ptx_specials_memory,
                                                tow_ptx_specials_num,     tow_ptx_specials_warp,
                                                tow_ptx_specials_async,   tow_ptx_specials_mma,
                                                tow_ptx_specials_texture, tow_ptx_specials_video};
    for (unsigned g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        for (const struct tow_ptx_entry *entry = groups[g]; entry->keys; entry++) {
            for (const char *at = entry->keys; *at;) {
                size_t length = strcspn(at, " ");
                struct bucket *bucket = table_at(at, length);
                bucket->key = at;
                bucket->length = length;
                bucket->entry = entry;
                at += length + strspn(at + length, " ");
            }
        }
    }
    for (unsigned g = 0; g < sizeof specials / sizeof specials[0]; g++) {
        for (const struct tow_ptx_special *special = specials[g]; special->name; special++) {
            struct bucket *bucket = table_at(special->name, strlen(special->name));
            bucket->key = special->name;
            bucket->length = strlen(special->name);
            bucket->special = special;
        }
    }
}

static int decode_instruction(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    dec->control = false;
    struct bucket *bucket = table_at(insn->key, strlen(insn->key));
    if (bucket->entry) {
        return tow_ptx_by_signature(dec, bucket->entry->sig, bucket->entry->fn, NULL);
    }
    if (!bucket->special) {
        bucket = table_at(insn->name, strlen(insn->name));
    }
    return bucket->special ? bucket->special->decode(dec) : tow_ptx_unsupported(dec);
}

/* ---- functions ---- */

static int resolve_targets(struct tow_ptx_decoder *dec, struct tow_ptx_op *code)
{
    for (uint32_t i = 0; i < dec->op_count; i++) {
        if (code[i].run == tow_ptx_bra || code[i].body == tow_ptx_bra ||
            code[i].run == tow_ptx_bra_if) {
            code[i].target = &code[dec->starts[code[i].imm]];
        }
    }
    for (uint32_t i = 0; i < dec->fixup_count; i++) {
        struct tow_ptx_fixup *fixup = &dec->fixups[i];
        for (uint32_t k = 0; k < fixup->count; k++) {
            if (fixup->labels[k]->kind != SYM_LABEL) {
                return tow_ptx_bad(dec, "a branch target is not a label");
            }
            fixup->table[k] = &code[dec->starts[fixup->labels[k]->index]];
        }
    }
    return 0;
}

static int decode_function(struct tow_ptx_decoder *dec, struct tow_ptx_func *func)
{
    dec->func = func;
    dec->insn = NULL;
    dec->op_count = 0;
    dec->fixup_count = 0;
    dec->pred_next = 0;
    dec->carry = PTX_NO_SLOT;
    dec->temp_next = dec->wide_next = 0;
    func->frame_bytes = 0;
    for (unsigned i = 0; i < 4; i++) {
        dec->temps[i] = dec->wide_temps[i] = dec->sinks[i] = PTX_NO_SLOT;
    }
    if (func->local_bytes > LOCAL_MAX) {
        return tow_ptx_fail(dec->diag, -EINVAL, func->line,
                            "'%s' uses %u bytes of local memory; a thread has %u", func->name,
                            func->local_bytes, LOCAL_MAX);
    }
    free(dec->starts);
    dec->starts = malloc((func->insn_count + 1) * sizeof *dec->starts);
    if (!dec->starts) {
        return tow_ptx_dec_no_memory(dec);
    }
    for (uint32_t i = 0; i < func->param_count + func->return_count; i++) {
        struct tow_ptx_var *var =
            i < func->param_count ? func->params[i] : func->returns[i - func->param_count];
        if (var->space == SP_REG) {
            if (var->type == PT_PRED || var->type == PT_B128) {
                return tow_ptx_fail(dec->diag, -ENOTSUP, var->line,
                                    "register parameters of this type are not supported");
            }
            var->size = tow_ptx_type_bytes(var->type);
            var->reg = tow_ptx_register_ref(dec, var->reg); /* from now on the row */
        }
    }
    tow_ptx_share_registers(dec);
    int error;
    for (uint32_t i = 0; i < func->insn_count; i++) {
        dec->insn = func->insns[i];
        dec->starts[i] = dec->op_count;
        if ((error = decode_instruction(dec))) {
            return error;
        }
        if (func->frame_bytes > FRAME_BYTES_MAX) {
            return tow_ptx_bad(dec, "the function uses too many registers");
        }
    }
    dec->starts[func->insn_count] = dec->op_count;
    /* Code may end without ret: in a kernel or function alike that is a return. */
    dec->insn = NULL;
    struct tow_ptx_op end = {.run = func->noreturn ? tow_ptx_fell_off : tow_ptx_ret_op};
    if ((error = tow_ptx_emit(dec, &end))) {
        return error;
    }
    struct tow_ptx_op *code = tow_ptx_keep(dec, dec->op_count * sizeof *code);
    if (!code) {
        return tow_ptx_dec_no_memory(dec);
    }
    memcpy(code, dec->ops, dec->op_count * sizeof *code);
    if ((error = resolve_targets(dec, code))) {
        return error;
    }
    func->code = code;
    func->op_count = dec->op_count;
    return 0;
}

/* ---- shared memory ---- */

static void place_shared(struct tow_ptx_var *var, uint64_t *used, uint32_t mark)
{
    if (var->space == SP_SHARED && !var->unsized && var->index != mark) {
        uint64_t align = var->align ? var->align : 1;
        *used = (*used + align - 1) & ~(align - 1);
        var->offset = *used;
        var->index = mark;
        *used += var->size;
    }
}

static void place_operands(const struct tow_ptx_operand *operands, uint32_t count, uint64_t *used,
                           uint32_t mark, uint32_t common)
{
    for (uint32_t i = 0; i < count; i++) {
        struct tow_ptx_symbol *symbol =
            operands[i].kind == OPD_SYMBOL ? tow_ptx_resolve(operands[i].symbol) : NULL;
        if (symbol && symbol->kind == SYM_VAR && symbol->var->index != common) {
            place_shared(symbol->var, used, mark);
        }
        place_operands(operands[i].children, operands[i].count, used, mark, common);
    }
}

/* Shared variables that device functions name have one place in all kernels, at the start; those
 * that only a kernel names are placed per kernel behind them. */
static int layout_shared(struct tow_ptx_decoder *dec, struct tow_ptx_func *func, uint32_t common,
                         uint64_t common_bytes)
{
    bool calls = false;
    for (uint32_t i = 0; i < func->insn_count && !calls; i++) {
        calls = strcmp(func->insns[i]->name, "call") == 0;
    }
    uint64_t used = common_bytes;
    bool named = false;
    for (uint32_t i = 0; i < func->insn_count; i++) {
        uint64_t before = used;
        place_operands(func->insns[i]->operands, func->insns[i]->operand_count, &used,
                       common + 1 + func->index, common);
        named |= used != before;
    }
    func->shared_bytes = calls || named ? used : 0;
    if (func->shared_bytes == 0 && common_bytes) {
        /* A kernel may name a common variable itself. */
        func->shared_bytes = common_bytes;
    }
    if (used > PTX_SHARED_MAX) {
        return tow_ptx_fail(dec->diag, -EINVAL, func->line,
                            "'%s' uses more shared memory than a block can have", func->name);
    }
    return 0;
}

int tow_ptx_decode(struct tow_ptx_program *program, struct tow_ptx_module *module,
                   struct tow_ptx_diag *diag)
{
    pthread_once(&table_once, table_fill);
    struct tow_ptx_decoder dec = {.program = program, .module = module, .diag = diag};
    int error = fixed_rows(&dec);
    uint64_t common = 0;
    const uint32_t mark = 0x40000000u;
    for (unsigned pass = 0; pass < 2 && error == 0; pass++) {
        for (uint32_t i = 0; i < program->func_count && error == 0; i++) {
            struct tow_ptx_func *func = program->funcs[i];
            if (!func->defined || func->entry != (pass == 1)) {
                continue;
            }
            if (pass == 0) {
                for (uint32_t k = 0; k < func->insn_count; k++) {
                    place_operands(func->insns[k]->operands, func->insns[k]->operand_count, &common,
                                   mark, mark);
                }
            }
        }
    }
    if (error == 0 && common > PTX_SHARED_MAX) {
        error = tow_ptx_fail(diag, -EINVAL, 0, "device functions use too much shared memory");
    }
    for (uint32_t i = 0; i < program->func_count && error == 0; i++) {
        struct tow_ptx_func *func = program->funcs[i];
        if (!func->defined) {
            continue;
        }
        if (func->entry) {
            error = layout_shared(&dec, func, mark, common);
        }
        if (error == 0) {
            error = decode_function(&dec, func);
        }
        program->text = func->text; /* whom an error is about */
    }
    if (error == 0) {
        uint8_t *consts = aligned_alloc(128, (dec.const_bytes + 127u) & ~127u);
        if (consts) {
            memcpy(consts, dec.consts, dec.const_bytes);
            module->consts = consts;
            module->const_bytes = dec.const_bytes;
        } else {
            error = tow_ptx_dec_no_memory(&dec);
        }
    }
    free(dec.ops);
    free(dec.starts);
    free(dec.fixups);
    free(dec.consts);
    free(dec.const_table);
    return error;
}
