/* SPDX-License-Identifier: Apache-2.0 */
/* The top of the decoder: the table of all instructions, functions, layout of shared memory. */
#include "ptx/decode/decode.h"
#include "ptx/machine/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES_MAX (1u << 25)

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
    const struct tow_ptx_special *specials[] = {
        tow_ptx_specials_int, tow_ptx_specials_core,    tow_ptx_specials_memory,
        tow_ptx_specials_num, tow_ptx_specials_warp,    tow_ptx_specials_async,
        tow_ptx_specials_mma, tow_ptx_specials_texture, tow_ptx_specials_video};
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

/* One that we do not run takes its function along, and who can reach that; not the whole text. */
static int decode_refused(struct tow_ptx_decoder *dec, uint32_t first_op)
{
    struct tow_ptx_func *func = dec->func;
    size_t size = strlen(dec->insn->key) + 1;
    char *name = tow_ptx_keep(dec, size);
    if (!name) {
        return tow_ptx_dec_no_memory(dec);
    }
    memcpy(name, dec->insn->key, size);
    if (!func->refused) {
        func->refused = name;
        func->refused_line = dec->insn->line;
        dec->program->refused++;
    }
    dec->op_count = first_op; /* what it had begun with */
    dec->control = true;
    struct tow_ptx_op op = {.run = tow_ptx_not_run, .ext = name};
    return tow_ptx_emit(dec, &op);
}

/* ---- what looks on (machine/check.c, check_init.c) ---- */

static atomic_uint checks_loaded;

void tow_ptx_check_loads(unsigned checks)
{
    atomic_store(&checks_loaded, checks);
}

/* Which operand is the mask of a .sync instruction; -1: it has none. */
static int mask_operand(const struct tow_ptx_decoder *dec)
{
    static const struct {
        const char *name;
        int at;
    } masks[] = {{"shfl", 4}, {"vote", 2}, {"match", 2}, {"redux", 2}, {"elect", 1}};
    for (unsigned i = 0; i < sizeof masks / sizeof *masks; i++) {
        if (strcmp(dec->insn->name, masks[i].name) == 0 && tow_ptx_has_mod(dec, "sync")) {
            return masks[i].at;
        }
    }
    bool warp = strcmp(dec->insn->name, "bar") == 0 && tow_ptx_has_mod(dec, "warp");
    return warp ? 0 : -1;
}

/* bar.sync 0   bar.red.and.pred p, 0, q   barrier.sync.aligned 0: the number's operand; -1: none */
static int aligned_operand(const struct tow_ptx_decoder *dec)
{
    bool aligned = strcmp(dec->insn->name, "bar") == 0 ||
                   (strcmp(dec->insn->name, "barrier") == 0 && tow_ptx_has_mod(dec, "aligned"));
    if (!aligned || tow_ptx_has_mod(dec, "warp") || tow_ptx_has_mod(dec, "cluster") ||
        tow_ptx_has_mod(dec, "arrive")) {
        return -1;
    }
    return tow_ptx_has_mod(dec, "red") ? 1 : 0;
}

/* In front of the instruction that comes. */
static int decode_check(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_ptx_op op = {.run = tow_ptx_check_end};
    bool ends = strcmp(insn->name, "exit") == 0 || strcmp(insn->name, "ret") == 0;
    int mask = mask_operand(dec), number = aligned_operand(dec), error = 0;
    int at = mask >= 0 ? mask : number;
    if (at >= 0 && at < insn->operand_count) {
        op.run = mask >= 0 ? tow_ptx_check_mask : tow_ptx_check_bar;
        error = tow_ptx_source(dec, &insn->operands[at], 'w', &op.a);
    } else if (!ends || !dec->func->entry) {
        return 0;
    }
    dec->control = false;
    return error ? error : tow_ptx_emit(dec, &op);
}

static bool ends_thread(const struct tow_ptx_decoder *dec)
{
    return strcmp(dec->insn->name, "exit") == 0 ||
           (strcmp(dec->insn->name, "ret") == 0 && dec->func->entry);
}

/* The guard is as it was in front of the instruction, which may have written its result there. */
static int keep_guard(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    dec->guard_kept = tow_ptx_temp(dec, 'p');
    struct tow_ptx_op op = {.run = tow_ptx_race_guard,
                            .a = tow_ptx_register_ref(dec, insn->guard),
                            .d = dec->guard_kept,
                            .line = insn->line};
    dec->insn = NULL; /* whose guard is not for this one */
    int error = tow_ptx_emit(dec, &op);
    dec->insn = insn;
    return error;
}

/* What looks for races: in front of barriers and behind them, behind what a warp does together.
 * NULL: nothing. Its row a is operand `ret_at`, if that is not -1. */
static tow_ptx_fn *race_look(const struct tow_ptx_decoder *dec, bool behind, int *ret_at)
{
    const struct tow_ptx_insn *insn = dec->insn;
    bool barrier = strcmp(insn->name, "bar") == 0 || strcmp(insn->name, "barrier") == 0;
    bool warp = barrier && tow_ptx_has_mod(dec, "warp"), red = tow_ptx_has_mod(dec, "red");
    bool arrive = tow_ptx_has_mod(dec, "arrive");
    *ret_at = -1;
    if (barrier && tow_ptx_has_mod(dec, "cluster")) {
        return behind ? (arrive ? NULL : tow_ptx_race_leave_cluster)
                      : (arrive ? tow_ptx_race_cluster : NULL);
    }
    if (warp) {
        *ret_at = 0;
        return behind ? tow_ptx_race_warp : NULL;
    }
    if (barrier) {
        *ret_at = behind ? -1 : red;
        return !behind ? tow_ptx_race_arrive : arrive ? NULL : tow_ptx_race_leave;
    }
    if (!behind) {
        return ends_thread(dec) ? tow_ptx_race_end : NULL;
    }
    bool together = mask_operand(dec) >= 0 || tow_ptx_has_mod(dec, "sync");
    return together ? tow_ptx_race_together : NULL;
}

static int decode_race(struct tow_ptx_decoder *dec, bool behind)
{
    const struct tow_ptx_insn *insn = dec->insn;
    int at, at_behind, error = 0;
    bool guarded = insn->guard != PTX_NO_SLOT;
    struct tow_ptx_op op = {.run = race_look(dec, behind, &at)};
    if (guarded && !behind && race_look(dec, true, &at_behind)) {
        error = keep_guard(dec);
    }
    if (error || !op.run || at >= insn->operand_count) {
        return error;
    }
    dec->control = false;
    error = at < 0 ? 0 : tow_ptx_source(dec, &insn->operands[at], 'w', &op.a);
    error = error ? error : tow_ptx_emit(dec, &op);
    if (guarded && behind && error == 0) {
        struct tow_ptx_op *last = &dec->ops[dec->op_count - 1];
        last->guard = dec->guard_kept | (last->guard & 3u);
    }
    return error;
}

/* In front of the instruction that comes, and behind it. What looks at barriers is directly in
 * front of them; what looks at ends is where branches go. */
static int decode_look(struct tow_ptx_decoder *dec, bool behind)
{
    if (!dec->checks) {
        return 0;
    }
    bool races = dec->checks & TOW_PTX_CHECK_RACE, ends = ends_thread(dec);
    bool sync = dec->checks & TOW_PTX_CHECK_SYNC && !behind;
    int error = races && !ends ? decode_race(dec, behind) : 0;
    error = error == 0 && sync ? decode_check(dec) : error;
    return error == 0 && races && ends ? decode_race(dec, behind) : error;
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
    tow_ptx_alias_registers(dec);
    tow_ptx_share_registers(dec);
    int error = 0;
    for (uint32_t i = 0; i < func->insn_count; i++) {
        dec->insn = func->insns[i];
        dec->starts[i] = dec->op_count;
        if (dec->insn->dropped) {
            continue;
        }
        if ((error = decode_look(dec, false))) {
            return error;
        }
        if ((error = decode_instruction(dec)) == -ENOTSUP) {
            error = decode_refused(dec, dec->starts[i]);
        }
        error = error ? error : decode_look(dec, true);
        if (error) {
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
    struct tow_ptx_op look = {.run = tow_ptx_race_end};
    if ((dec->checks & TOW_PTX_CHECK_RACE && func->entry && (error = tow_ptx_emit(dec, &look))) ||
        (error = tow_ptx_emit(dec, &end))) {
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
    struct tow_ptx_decoder dec = {
        .program = program, .module = module, .diag = diag, .checks = atomic_load(&checks_loaded)};
    int error = tow_ptx_fixed_rows(&dec);
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
