/* SPDX-License-Identifier: Apache-2.0 */
/* Registers that are not alive at the same time share a place in the frame.
 *
 * Compilers give every value its own register; a large kernel has thousands, and a row is 128 or
 * 256 bytes for each warp. Sharing keeps a warp's frame in the cache. Liveness is that of one
 * thread, which is enough: lanes have their own column of each row, and rows of different width
 * never share memory, so what one lane's value is replaced by never touches another lane.
 *
 * All operands of one instruction keep different places, so an operation may write its result
 * before it has read everything. An instruction that is not known to write its first operand
 * completely counts as reading it: that only makes lives longer. */
#include "ptx/decode/decode.h"

#include <stdlib.h>
#include <string.h>

#define SETS_BYTES_MAX (256u << 20) /* past this, registers simply do not share */

struct allocator {
    struct tow_ptx_decoder *dec;
    uint32_t *dense;      /* register to candidate, PTX_NO_SLOT if none */
    uint32_t *candidates; /* and back */
    uint32_t count;
    uint32_t *block_of;     /* instruction to block */
    uint32_t *first, *last; /* instructions of each block */
    uint32_t blocks;
    size_t words;                    /* of a set */
    uint64_t *in, *out, *use, *kill; /* sets of all blocks, one after the other */
    uint32_t *from, *to;             /* life of each candidate */
};

bool tow_ptx_writes_first(const char *name)
{
    static const char *const names[] = {
        "abs",       "activemask", "add",      "addc",  "alloca",   "and",   "atom",     "bfe",
        "bfi",       "bfind",      "bmsk",     "brev",  "clz",      "cnot",  "copysign", "cos",
        "cvt",       "cvta",       "div",      "dp2a",  "dp4a",     "elect", "ex2",      "fma",
        "fns",       "getctarank", "isspacep", "ld",    "ldmatrix", "ldu",   "lg2",      "lop3",
        "mad",       "mad24",      "madc",     "mapa",  "match",    "max",   "min",      "mma",
        "mov",       "movmatrix",  "mul",      "mul24", "neg",      "not",   "or",       "popc",
        "prmt",      "rcp",        "redux",    "rem",   "rsqrt",    "sad",   "selp",     "set",
        "setp",      "shf",        "shfl",     "shl",   "shr",      "sin",   "slct",     "sqrt",
        "stacksave", "sub",        "subc",     "suld",  "suq",      "szext", "tanh",     "testp",
        "tex",       "tld4",       "txq",      "vote",  "wmma",     "xor"};
    unsigned low = 0, high = sizeof names / sizeof names[0];
    while (low < high) {
        unsigned middle = (low + high) / 2;
        int order = strcmp(name, names[middle]);
        if (order == 0) {
            return true;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return false;
}

static bool ends_block(const struct tow_ptx_insn *insn)
{
    return strcmp(insn->name, "bra") == 0 || strcmp(insn->name, "brx") == 0 ||
           strcmp(insn->name, "ret") == 0 || strcmp(insn->name, "exit") == 0 ||
           strcmp(insn->name, "trap") == 0;
}

/* Labels that an instruction may go to: one, or a table. */
static struct tow_ptx_symbol **targets_of(const struct tow_ptx_insn *insn,
                                          struct tow_ptx_symbol **one, uint32_t *ret_count)
{
    *ret_count = 0;
    if (strcmp(insn->name, "bra") == 0 && insn->operand_count == 1 &&
        insn->operands[0].kind == OPD_SYMBOL && insn->operands[0].symbol &&
        insn->operands[0].symbol->kind == SYM_LABEL) {
        *one = insn->operands[0].symbol;
        *ret_count = 1;
        return one;
    }
    if (strcmp(insn->name, "brx") == 0 && insn->operand_count == 2 &&
        insn->operands[1].kind == OPD_SYMBOL && insn->operands[1].symbol &&
        insn->operands[1].symbol->kind == SYM_TARGETS) {
        *ret_count = insn->operands[1].symbol->count;
        return insn->operands[1].symbol->labels;
    }
    return one;
}

typedef void visit_fn(struct allocator *a, uint32_t candidate, bool written, uint32_t at);

static void visit_operand(struct allocator *a, const struct tow_ptx_operand *operand, bool written,
                          uint32_t at, visit_fn *visit)
{
    if (operand->kind == OPD_REG && a->dense[operand->index] != PTX_NO_SLOT) {
        visit(a, a->dense[operand->index], written, at);
    }
    if (operand->second) {
        visit_operand(a, operand->second, written, at, visit);
    }
    for (uint32_t i = 0; i < operand->count; i++) {
        visit_operand(a, &operand->children[i], written, at, visit);
    }
}

/* Sources first, then what is written: in the order in which they happen. */
static void visit_insn(struct allocator *a, uint32_t at, visit_fn *visit)
{
    const struct tow_ptx_insn *insn = a->dec->func->insns[at];
    if (insn->dropped) {
        return;
    }
    bool written = insn->operand_count && insn->guard == PTX_NO_SLOT &&
                   insn->operands[0].kind != OPD_ADDRESS && tow_ptx_writes_first(insn->name);
    for (uint32_t i = written ? 1 : 0; i < insn->operand_count; i++) {
        visit_operand(a, &insn->operands[i], false, at, visit);
    }
    if (written) {
        visit_operand(a, &insn->operands[0], true, at, visit);
    }
}

static void record_use(struct allocator *a, uint32_t candidate, bool written, uint32_t at)
{
    uint64_t *use = a->use + a->block_of[at] * a->words;
    uint64_t *kill = a->kill + a->block_of[at] * a->words;
    uint64_t bit = 1ull << (candidate % 64);
    if (written) {
        kill[candidate / 64] |= bit;
    } else if (!(kill[candidate / 64] & bit)) {
        use[candidate / 64] |= bit;
    }
}

static void record_life(struct allocator *a, uint32_t candidate, bool written, uint32_t at)
{
    (void)written;
    a->from[candidate] = at < a->from[candidate] ? at : a->from[candidate];
    a->to[candidate] = at > a->to[candidate] ? at : a->to[candidate];
}

static void count_use(struct allocator *a, const struct tow_ptx_operand *operand)
{
    if (operand->kind == OPD_REG && operand->index < a->dec->func->reg_count &&
        a->dense[operand->index] == PTX_NO_SLOT &&
        a->dec->func->regs[operand->index].slot == PTX_NO_SLOT) {
        char kind = tow_ptx_register_kind(a->dec, operand->index);
        if (kind == 'w' || kind == 'l') {
            a->dense[operand->index] = a->count;
            a->candidates[a->count++] = operand->index;
        }
    }
    if (operand->second) {
        count_use(a, operand->second);
    }
    for (uint32_t i = 0; i < operand->count; i++) {
        count_use(a, &operand->children[i]);
    }
}

static bool find_blocks(struct allocator *a)
{
    const struct tow_ptx_func *func = a->dec->func;
    uint8_t *leads = calloc(func->insn_count + 1, 1);
    if (!leads) {
        return false;
    }
    leads[0] = 1;
    for (uint32_t i = 0; i < func->insn_count; i++) {
        struct tow_ptx_symbol *one = NULL, **labels;
        uint32_t count;
        labels = targets_of(func->insns[i], &one, &count);
        for (uint32_t k = 0; k < count; k++) {
            if (labels[k] && labels[k]->kind == SYM_LABEL) {
                leads[labels[k]->index] = 1;
            }
        }
        if (ends_block(func->insns[i])) {
            leads[i + 1] = 1;
        }
    }
    for (uint32_t i = 0; i < func->insn_count; i++) {
        if (leads[i]) {
            a->first[a->blocks++] = i;
        }
        a->block_of[i] = a->blocks - 1;
        a->last[a->blocks - 1] = i;
    }
    free(leads);
    return true;
}

/* out = union of the successors' in; in = use | (out & ~kill). Returns whether `in` grew. */
static bool regalloc_flow(struct allocator *a, uint32_t block)
{
    const struct tow_ptx_func *func = a->dec->func;
    const struct tow_ptx_insn *end = func->insns[a->last[block]];
    uint64_t *out = a->out + block * a->words, *in = a->in + block * a->words;
    struct tow_ptx_symbol *one = NULL, **labels;
    uint32_t count;
    labels = targets_of(end, &one, &count);
    for (uint32_t k = 0; k < count; k++) {
        if (!labels[k] || labels[k]->kind != SYM_LABEL || labels[k]->index >= func->insn_count) {
            continue;
        }
        const uint64_t *next = a->in + a->block_of[labels[k]->index] * a->words;
        for (size_t i = 0; i < a->words; i++) {
            out[i] |= next[i];
        }
    }
    bool falls = !ends_block(end) || end->guard != PTX_NO_SLOT;
    if (falls && block + 1 < a->blocks) {
        const uint64_t *next = a->in + (block + 1) * a->words;
        for (size_t i = 0; i < a->words; i++) {
            out[i] |= next[i];
        }
    }
    bool grew = false;
    const uint64_t *use = a->use + block * a->words, *kill = a->kill + block * a->words;
    for (size_t i = 0; i < a->words; i++) {
        uint64_t now = use[i] | (out[i] & ~kill[i]);
        grew |= now != in[i];
        in[i] = now;
    }
    return grew;
}

static void find_lives(struct allocator *a)
{
    const struct tow_ptx_func *func = a->dec->func;
    for (uint32_t i = 0; i < func->insn_count; i++) {
        visit_insn(a, i, record_use);
    }
    bool grew;
    do {
        grew = false;
        for (uint32_t b = a->blocks; b-- > 0;) {
            grew |= regalloc_flow(a, b);
        }
    } while (grew);
    for (uint32_t i = 0; i < func->insn_count; i++) {
        visit_insn(a, i, record_life);
    }
    for (uint32_t b = 0; b < a->blocks; b++) {
        const uint64_t *in = a->in + b * a->words, *out = a->out + b * a->words;
        for (size_t i = 0; i < a->words; i++) {
            for (uint64_t left = in[i]; left; left &= left - 1) {
                record_life(a, (uint32_t)(i * 64 + (size_t)__builtin_ctzll(left)), false,
                            a->first[b]);
            }
            for (uint64_t left = out[i]; left; left &= left - 1) {
                record_life(a, (uint32_t)(i * 64 + (size_t)__builtin_ctzll(left)), false,
                            a->last[b]);
            }
        }
    }
}

/* Hands out places in the order in which lives begin; a place is free again after a life's end. */
static bool regalloc_assign(struct allocator *a)
{
    struct tow_ptx_func *func = a->dec->func;
    uint32_t n = func->insn_count;
    /* Candidates chained by the instruction where their life begins and ends. */
    uint32_t *begins = malloc((n + 1) * sizeof *begins), *ends = malloc((n + 1) * sizeof *ends);
    uint32_t *next_begin = malloc((a->count + 1) * sizeof *next_begin);
    uint32_t *next_end = malloc((a->count + 1) * sizeof *next_end);
    uint32_t *free_slots[2] = {malloc((a->count + 1) * sizeof(uint32_t)),
                               malloc((a->count + 1) * sizeof(uint32_t))};
    uint32_t free_count[2] = {0, 0};
    bool ok = begins && ends && next_begin && next_end && free_slots[0] && free_slots[1];
    if (ok) {
        memset(begins, 0xff, (n + 1) * sizeof *begins);
        memset(ends, 0xff, (n + 1) * sizeof *ends);
        for (uint32_t c = a->count; c-- > 0;) {
            next_begin[c] = begins[a->from[c]];
            begins[a->from[c]] = c;
            next_end[c] = ends[a->to[c]];
            ends[a->to[c]] = c;
        }
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t c = begins[i]; c != PTX_NO_SLOT; c = next_begin[c]) {
                uint32_t reg = a->candidates[c];
                unsigned wide = tow_ptx_register_kind(a->dec, reg) == 'l';
                if (free_count[wide]) {
                    func->regs[reg].slot = free_slots[wide][--free_count[wide]];
                } else {
                    tow_ptx_register_ref(a->dec, reg); /* a new place */
                }
            }
            for (uint32_t c = ends[i]; c != PTX_NO_SLOT; c = next_end[c]) {
                uint32_t reg = a->candidates[c];
                unsigned wide = tow_ptx_register_kind(a->dec, reg) == 'l';
                free_slots[wide][free_count[wide]++] = func->regs[reg].slot;
            }
        }
    }
    free(begins);
    free(ends);
    free(next_begin);
    free(next_end);
    free(free_slots[0]);
    free(free_slots[1]);
    return ok;
}

void tow_ptx_share_registers(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_func *func = dec->func;
    uint32_t n = func->insn_count;
    struct allocator a = {.dec = dec};
    bool ok = n > 0;
    if (ok) {
        a.dense = malloc((func->reg_count + 1) * sizeof *a.dense);
        a.candidates = malloc((func->reg_count + 1) * sizeof *a.candidates);
        a.block_of = malloc(n * sizeof *a.block_of);
        a.first = malloc(n * sizeof *a.first);
        a.last = malloc(n * sizeof *a.last);
        ok = a.dense && a.candidates && a.block_of && a.first && a.last;
    }
    if (ok) {
        memset(a.dense, 0xff, (func->reg_count + 1) * sizeof *a.dense);
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < func->insns[i]->operand_count; k++) {
                count_use(&a, &func->insns[i]->operands[k]);
            }
        }
        ok = a.count > 0 && find_blocks(&a);
    }
    if (ok) {
        a.words = (a.count + 63) / 64;
        size_t set = a.words * sizeof(uint64_t) * a.blocks;
        ok = set * 4 <= SETS_BYTES_MAX;
        if (ok) {
            a.in = calloc(4, set);
            a.from = malloc(a.count * sizeof *a.from);
            a.to = calloc(a.count, sizeof *a.to);
            ok = a.in && a.from && a.to;
        }
    }
    if (ok) {
        size_t step = a.words * a.blocks;
        a.out = a.in + step;
        a.use = a.out + step;
        a.kill = a.use + step;
        memset(a.from, 0xff, a.count * sizeof *a.from);
        find_lives(&a);
        ok = regalloc_assign(&a);
    }
    /* Without memory for it the program runs just as well, in a larger frame. */
    free(a.dense);
    free(a.candidates);
    free(a.block_of);
    free(a.first);
    free(a.last);
    free(a.in);
    free(a.from);
    free(a.to);
}
