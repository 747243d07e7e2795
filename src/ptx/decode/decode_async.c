/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous copies, mbarriers and cluster addresses.
 *
 * Copies are done at once, so whatever waits for them finds them complete; only the mbarriers keep
 * their counts. An mbarrier belongs to a block of a cluster, and a cluster runs on one host thread,
 * so its word needs no atomics. */
#include "ptx/decode/address.h"

#include <string.h>

#include "ptx/num/num.h"

/* ---- the mbarrier word ---- */

#define MB_COUNT_MASK 0xfffffull /* pending arrivals, bits 0..19; expected ones, bits 20..39 */
#define MB_EXPECTED_SHIFT 20
#define MB_TX_SHIFT 40
#define MB_TX_MASK 0x1fffffull /* bytes still to come, two's complement, bits 40..60 */
#define MB_PHASE (1ull << 63)
#define MB_COUNT_MAX 0xfffffu

static int64_t mb_tx(uint64_t word)
{
    return (int64_t)(word << (64 - 21 - MB_TX_SHIFT)) >> (64 - 21);
}

static uint64_t mb_make(uint64_t phase, uint64_t expected, uint64_t pending, int64_t tx)
{
    return phase | (expected & MB_COUNT_MASK) << MB_EXPECTED_SHIFT | (pending & MB_COUNT_MASK) |
           ((uint64_t)tx & MB_TX_MASK) << MB_TX_SHIFT;
}

/* Arrivals and bytes; false when more arrive than are pending. `drop` lowers later phases too. */
static bool mb_update(uint64_t *at, uint64_t arrivals, int64_t tx, bool drop)
{
    uint64_t word = *at, phase = word & MB_PHASE;
    uint64_t expected = word >> MB_EXPECTED_SHIFT & MB_COUNT_MASK, pending = word & MB_COUNT_MASK;
    int64_t bytes = mb_tx(word) + tx;
    if (arrivals > pending || (drop && arrivals > expected)) {
        return false;
    }
    pending -= arrivals;
    expected -= drop ? arrivals : 0;
    if (pending == 0 && bytes == 0) {
        *at = mb_make(phase ^ MB_PHASE, expected, expected, 0);
    } else {
        *at = mb_make(phase, expected, pending, bytes);
    }
    return true;
}

enum mb_op {
    MB_INIT,
    MB_INVAL,
    MB_EXPECT,
    MB_COMPLETE,
    MB_ARRIVE,
    MB_ARRIVE_EXPECT,
    MB_TEST,
    MB_NOINC,
};

struct mb_form {
    tow_ptx_at_fn *at;
    enum mb_op op;
    uint32_t d, count, state; /* rows; PTX_NO_SLOT without */
    bool drop, parity, patient;
};

static const struct tow_ptx_op *mb_overflow(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                            unsigned lane)
{
    return tow_ptx_fault(w, o, TOW_PTX_FAULT_INSTRUCTION, lane, 0,
                         "more threads arrive at an mbarrier than it was made for");
}

OP(decode_async_mbarrier)
{
    const struct mb_form *form = o->ext;
    if (!form->at(w, o, 8, ACCESS_WRITE)) {
        return HALT;
    }
    const uint32_t *count = form->count != PTX_NO_SLOT ? tow_ptx_row(w, form->count) : NULL;
    const void *state = form->state != PTX_NO_SLOT ? tow_ptx_row(w, form->state) : NULL;
    uint64_t *d = form->d != PTX_NO_SLOT ? tow_ptx_row(w, form->d) : NULL;
    uint32_t complete = 0;
    FOR_LANES(l, w->exec)
    {
        uint64_t *at = (uint64_t *)w->ptr[l], before = *at;
        bool ok = true;
        switch (form->op) {
        case MB_INIT:
            ok = count[l] >= 1 && count[l] <= MB_COUNT_MAX;
            *at = mb_make(0, count[l], count[l], 0);
            break;
        case MB_INVAL:
            *at = 0;
            break;
        case MB_EXPECT:
            ok = mb_update(at, 0, count[l], false);
            break;
        case MB_COMPLETE:
            ok = mb_update(at, 0, -(int64_t)count[l], false);
            break;
        case MB_ARRIVE:
            ok = mb_update(at, count ? count[l] : 1, 0, form->drop);
            break;
        case MB_ARRIVE_EXPECT:
            *at = mb_make(before & MB_PHASE, before >> MB_EXPECTED_SHIFT, before,
                          mb_tx(before) + count[l]);
            ok = mb_update(at, 1, 0, form->drop);
            break;
        case MB_NOINC:
            ok = mb_update(at, 1, 0, false);
            break;
        case MB_TEST: {
            bool now = before & MB_PHASE, was;
            if (form->parity) {
                was = ((const uint32_t *)state)[l] & 1;
            } else {
                was = ((const uint64_t *)state)[l] & MB_PHASE;
            }
            complete |= (uint32_t)(now != was) << l;
            break;
        }
        }
        if (!ok) {
            return mb_overflow(w, o, l);
        }
        if (d && form->op != MB_TEST) {
            d[l] = before;
        }
    }
    if (form->op == MB_TEST) {
        tow_ptx_set_pred(w, o->d, complete);
        if ((complete & w->exec) != w->exec && w->budget > 1) {
            w->budget = 1; /* it will loop: let others run then */
        }
    }
    return o + 1;
}

OP1(mb_pending, uint32_t, uint64_t, a &MB_COUNT_MASK)

/* What mbarrier.WHAT does; false: there is no such instruction. */
static bool mbarrier_verb(struct tow_ptx_decoder *dec, const char *what, struct mb_form *form)
{
    if (strcmp(what, "init") == 0) {
        form->op = MB_INIT;
    } else if (strcmp(what, "inval") == 0) {
        form->op = MB_INVAL;
    } else if (strcmp(what, "expect_tx") == 0) {
        form->op = MB_EXPECT;
    } else if (strcmp(what, "complete_tx") == 0) {
        form->op = MB_COMPLETE;
    } else if (strcmp(what, "arrive") == 0 || strcmp(what, "arrive_drop") == 0) {
        form->op = tow_ptx_has_mod(dec, "expect_tx") ? MB_ARRIVE_EXPECT : MB_ARRIVE;
        form->drop = what[6] == '_';
    } else if (strcmp(what, "test_wait") == 0 || strcmp(what, "try_wait") == 0) {
        form->op = MB_TEST;
        form->parity = tow_ptx_has_mod(dec, "parity");
    } else {
        return false;
    }
    return true;
}

/* mbarrier.OP{...}.b64 */
static int decode_mbarrier(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    if (!insn->mod_count) {
        return tow_ptx_unsupported(dec);
    }
    const char *what = insn->mods[0];
    if (strcmp(what, "pending_count") == 0) {
        return tow_ptx_by_signature(dec, "wl", mb_pending, NULL);
    }
    struct mb_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    form->d = form->count = form->state = PTX_NO_SLOT;
    enum tow_ptx_statespace space = SP_NONE;
    for (unsigned i = 1; i < insn->mod_count; i++) {
        enum tow_ptx_statespace in = tow_ptx_mod_space(insn->mods[i]);
        space = in != SP_NONE ? in : space;
    }
    if (!mbarrier_verb(dec, what, form)) {
        return tow_ptx_unsupported(dec);
    }
    bool wait = form->op == MB_TEST;
    bool arrive = form->op == MB_ARRIVE || form->op == MB_ARRIVE_EXPECT;
    struct tow_ptx_op op = {.run = decode_async_mbarrier, .ext = form};
    unsigned at = 0;
    int error = 0;
    if (insn->operand_count < 1u) {
        return tow_ptx_bad(dec, "an address is expected");
    }
    if (wait) {
        error = tow_ptx_dest(dec, &insn->operands[at++], 'p', &op.d);
    } else if (arrive && insn->operands[0].kind != OPD_ADDRESS) {
        if (insn->operands[0].kind != OPD_SINK) {
            error = tow_ptx_dest(dec, &insn->operands[0], 'l', &form->d);
        }
        at++;
    }
    if (error) {
        return error;
    }
    if (at >= insn->operand_count) {
        return tow_ptx_bad(dec, "an address is expected");
    }
    const struct tow_ptx_operand *address = &insn->operands[at++];
    if (wait) {
        if (at >= insn->operand_count || insn->operand_count > 4) {
            return tow_ptx_bad(dec, "a state or parity is expected");
        }
        error = tow_ptx_source(dec, &insn->operands[at++], form->parity ? 'w' : 'l', &form->state);
        uint32_t hint; /* how long to wait: we never do */
        if (error == 0 && at < insn->operand_count) {
            error = tow_ptx_source(dec, &insn->operands[at], 'w', &hint);
        }
    } else if (at < insn->operand_count) {
        error = tow_ptx_source(dec, &insn->operands[at], 'w', &form->count);
    } else if (form->op != MB_INVAL && form->op != MB_ARRIVE) {
        return tow_ptx_bad(dec, "a count is expected");
    }
    char kind;
    if (error || (error = tow_ptx_address(dec, address, &space, &op.a, &kind, &op.imm))) {
        return error;
    }
    if (!(form->at = tow_ptx_at_for(dec, space, kind, MANNER_ORDERED))) {
        return tow_ptx_bad(dec, "an address in this state space must be a 64-bit register");
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- cp.async ---- */

struct copy_form {
    tow_ptx_at_fn *to, *from;
    uint32_t bytes;
    uint32_t from_ref, source_bytes, ignore; /* rows; PTX_NO_SLOT without */
    int64_t from_offset;
};

OP(copy_async)
{
    const struct copy_form *form = o->ext;
    uint8_t *to[LANES];
    if (!form->to(w, o, form->bytes, ACCESS_WRITE)) {
        return HALT;
    }
    memcpy(to, w->ptr, sizeof to);
    uint32_t reads = w->exec, keep = w->exec;
    const uint32_t *limit =
        form->source_bytes != PTX_NO_SLOT ? tow_ptx_row(w, form->source_bytes) : NULL;
    FOR_LANES(l, keep)
    {
        if (limit && limit[l] == 0) {
            reads &= ~(1u << l);
        }
    }
    if (form->ignore != PTX_NO_SLOT) {
        reads &= ~tow_ptx_pred(w, form->ignore);
    }
    /* The source is only touched where something is read. */
    if (reads) {
        struct tow_ptx_op source = *o;
        source.a = form->from_ref;
        source.imm = form->from_offset;
        w->exec = reads;
        bool ok = form->from(w, &source, form->bytes, ACCESS_READ);
        w->exec = keep;
        if (!ok) {
            return HALT;
        }
    }
    FOR_LANES(l, keep)
    {
        uint32_t bytes = reads >> l & 1 ? form->bytes : 0;
        if (bytes && limit && limit[l] < bytes) {
            bytes = limit[l];
        }
        memcpy(to[l], w->ptr[l], bytes);
        memset(to[l] + bytes, 0, form->bytes - bytes);
    }
    return o + 1;
}

/* Where less is read than is written: in front of the copy, which then finds all of it well. */
OP(copy_async_look)
{
    const struct copy_form *form = o->ext;
    const uint64_t *from = tow_ptx_row(w, form->from_ref);
    const uint32_t *limit = tow_ptx_row(w, form->source_bytes);
    FOR_LANES(l, w->exec)
    {
        tow_ptx_look_lane(w, o, l, from[l] + (uint64_t)form->from_offset,
                          limit[l] < form->bytes ? limit[l] : form->bytes, ACCESS_READ,
                          MANNER_PLAIN);
    }
    return o + 1;
}

OP(done_already)
{
    (void)w;
    return o + 1;
}

static int decode_copy(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    enum tow_ptx_statespace to_space = SP_SHARED, from_space = SP_GLOBAL;
    struct copy_form *form = tow_ptx_keep(dec, sizeof *form);
    struct tow_ptx_op op = {.run = copy_async, .ext = form};
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    form->source_bytes = form->ignore = PTX_NO_SLOT;
    int error = tow_ptx_want_operands(dec, 3, 6);
    if (error) {
        return error;
    }
    const struct tow_ptx_operand *size = &insn->operands[2];
    if (size->kind != OPD_INT || (size->bits != 4 && size->bits != 8 && size->bits != 16)) {
        return tow_ptx_bad(dec, "the size must be 4, 8 or 16");
    }
    form->bytes = (uint32_t)size->bits;
    if (insn->operand_count > 3) {
        const struct tow_ptx_operand *more = &insn->operands[3];
        bool pred = more->kind == OPD_REG && tow_ptx_register_kind(dec, more->index) == 'p';
        bool policy = more->kind == OPD_REG && tow_ptx_register_kind(dec, more->index) == 'l';
        if (pred) {
            error = tow_ptx_source(dec, more, 'p', &form->ignore);
        } else if (!policy) {
            error = tow_ptx_source(dec, more, 'w', &form->source_bytes);
        }
    }
    char to_kind, from_kind;
    if (error ||
        (error = tow_ptx_address(dec, &insn->operands[0], &to_space, &op.a, &to_kind, &op.imm)) ||
        (error = tow_ptx_address(dec, &insn->operands[1], &from_space, &form->from_ref, &from_kind,
                                 &form->from_offset))) {
        return error;
    }
    form->to = tow_ptx_at_for(dec, to_space, to_kind, MANNER_PLAIN);
    form->from = tow_ptx_at_for(dec, from_space, from_kind, MANNER_PLAIN);
    if (!form->to || !form->from) {
        return tow_ptx_bad(dec, "a global address must be a 64-bit register");
    }
    if (form->from != tow_ptx_at_global && form->source_bytes != PTX_NO_SLOT) {
        struct tow_ptx_op look = {.run = copy_async_look, .ext = form};
        form->from = tow_ptx_at_global;
        if ((error = tow_ptx_emit(dec, &look))) {
            return error;
        }
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- cp.async.bulk, cp.reduce.async.bulk ---- */

struct bulk_form {
    enum tow_ptx_statespace to_space, from_space;
    uint32_t to, from, size, barrier, mask; /* rows; PTX_NO_SLOT without */
    char to_kind, from_kind, barrier_kind;
    int64_t to_offset, from_offset, barrier_offset;
    tow_ptx_lane_fn *to_at, *from_at, *barrier_at;
    char reduce; /* 0, or + m M & | ^ i d */
    enum tow_ptx_type type;
};

static uint64_t row_value(const struct tow_ptx_warp *w, uint32_t ref, char kind, unsigned lane)
{
    const void *row = tow_ptx_row(w, ref);
    return kind == 'l' ? ((const uint64_t *)row)[lane] : ((const uint32_t *)row)[lane];
}

static uint64_t as_generic(enum tow_ptx_statespace space, uint64_t address)
{
    return space == SP_SHARED ? (address & 0xffffffffu) + WINDOW_SHARED : address;
}

static uint64_t decode_async_reduce64(const struct bulk_form *form, uint64_t x, uint64_t y)
{
    bool is_signed = form->type == PT_S64;
    switch (form->reduce) {
    case '+':
        return form->type == PT_F64 ? tow_f64_add(x, y) : x + y;
    case 'm':
        return is_signed ? ((int64_t)x < (int64_t)y ? x : y) : (x < y ? x : y);
    case 'M':
        return is_signed ? ((int64_t)x > (int64_t)y ? x : y) : (x > y ? x : y);
    case '&':
        return x & y;
    case '|':
        return x | y;
    default:
        return x ^ y;
    }
}

static uint32_t decode_async_reduce32(const struct bulk_form *form, uint32_t x, uint32_t y)
{
    bool is_signed = form->type == PT_S32;
    bool half = form->type == PT_F16, brain = form->type == PT_BF16;
    switch (form->reduce) {
    case '+':
        return form->type == PT_F32 ? tow_f32_add(x, y, false)
               : half               ? tow_f16_add(x, y)
               : brain              ? tow_bf16_add(x, y)
                                    : x + y;
    case 'm':
        return half        ? tow_f16_min(x, y)
               : brain     ? tow_bf16_min(x, y)
               : is_signed ? ((int32_t)x < (int32_t)y ? x : y)
                           : (x < y ? x : y);
    case 'M':
        return half        ? tow_f16_max(x, y)
               : brain     ? tow_bf16_max(x, y)
               : is_signed ? ((int32_t)x > (int32_t)y ? x : y)
                           : (x > y ? x : y);
    case '&':
        return x & y;
    case '|':
        return x | y;
    case '^':
        return x ^ y;
    case 'i':
        return x >= y ? 0 : x + 1;
    default:
        return x == 0 || x > y ? y : x - 1;
    }
}

static void decode_async_reduce(const struct bulk_form *form, uint8_t *to, const uint8_t *from,
                                uint64_t bytes)
{
    unsigned element = tow_ptx_type_bytes(form->type);
    for (uint64_t i = 0; i + element <= bytes; i += element) {
        if (element == 8) {
            uint64_t *at = (uint64_t *)(to + i), old = __atomic_load_n(at, __ATOMIC_RELAXED), y;
            memcpy(&y, from + i, 8);
            while (!__atomic_compare_exchange_n(at, &old, decode_async_reduce64(form, old, y), true,
                                                __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            }
        } else if (element == 4) {
            uint32_t *at = (uint32_t *)(to + i), old = __atomic_load_n(at, __ATOMIC_RELAXED), y;
            memcpy(&y, from + i, 4);
            while (!__atomic_compare_exchange_n(at, &old, decode_async_reduce32(form, old, y), true,
                                                __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            }
        } else {
            uint16_t *at = (uint16_t *)(to + i), old = __atomic_load_n(at, __ATOMIC_RELAXED), y;
            memcpy(&y, from + i, 2);
            while (!__atomic_compare_exchange_n(at, &old,
                                                (uint16_t)decode_async_reduce32(form, old, y), true,
                                                __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            }
        }
    }
}

/* One destination: data, then the bytes are reported to the barrier. */
static bool bulk_one(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                     const struct bulk_form *form, unsigned lane, uint64_t to, const uint8_t *from,
                     uint64_t bytes, uint64_t barrier)
{
    uint8_t *at = form->to_at(w, o, lane, to, bytes, ACCESS_WRITE);
    if (!at) {
        return false;
    }
    if (form->reduce) {
        decode_async_reduce(form, at, from, bytes);
    } else {
        memmove(at, from, bytes);
    }
    if (form->barrier != PTX_NO_SLOT) {
        uint64_t *word = (uint64_t *)form->barrier_at(w, o, lane, barrier, 8, ACCESS_WRITE);
        if (!word) {
            return false;
        }
        if ((uintptr_t)word & 7) {
            tow_ptx_fault(w, o, TOW_PTX_FAULT_MISALIGNED, lane, barrier,
                          "an mbarrier at a misaligned address");
            return false;
        }
        mb_update(word, 0, -(int64_t)bytes, false);
    }
    return true;
}

OP(decode_async_bulk)
{
    const struct bulk_form *form = o->ext;
    FOR_LANES(l, w->exec)
    {
        uint64_t to = as_generic(form->to_space, row_value(w, form->to, form->to_kind, l) +
                                                     (uint64_t)form->to_offset);
        uint64_t from = as_generic(form->from_space, row_value(w, form->from, form->from_kind, l) +
                                                         (uint64_t)form->from_offset);
        uint64_t bytes = ((const uint32_t *)tow_ptx_row(w, form->size))[l], barrier = 0;
        if ((to | from | bytes) & 15) {
            return tow_ptx_fault(w, o, TOW_PTX_FAULT_MISALIGNED, l, (to & 15) ? to : from,
                                 "a bulk copy of %llu bytes is not aligned to 16",
                                 (unsigned long long)bytes);
        }
        if (form->barrier != PTX_NO_SLOT) {
            barrier = as_generic(SP_SHARED, row_value(w, form->barrier, form->barrier_kind, l) +
                                                (uint64_t)form->barrier_offset);
        }
        const uint8_t *source = form->from_at(w, o, l, from, bytes, ACCESS_READ);
        if (!source) {
            return HALT;
        }
        if (form->mask == PTX_NO_SLOT) {
            if (!bulk_one(w, o, form, l, to, source, bytes, barrier)) {
                return HALT;
            }
            continue;
        }
        uint32_t mask = ((const uint32_t *)tow_ptx_row(w, form->mask))[l] & 0xffffu;
        uint64_t inside = (1ull << SHARED_RANK_SHIFT) - 1;
        FOR_LANES(rank, mask)
        {
            uint64_t base = WINDOW_SHARED + ((uint64_t)(rank + 1) << SHARED_RANK_SHIFT);
            if (!bulk_one(w, o, form, l, base + (to & inside), source, bytes,
                          base + (barrier & inside))) {
                return HALT;
            }
        }
    }
    return o + 1;
}

static char reduction_of(const char *mod)
{
    static const struct {
        const char *name;
        char op;
    } names[] = {{"add", '+'}, {"min", 'm'}, {"max", 'M'}, {"and", '&'},
                 {"or", '|'},  {"xor", '^'}, {"inc", 'i'}, {"dec", 'd'}};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(mod, names[i].name) == 0) {
            return names[i].op;
        }
    }
    return 0;
}

/* cp{.reduce}.async.bulk.to.from.completion{...} [to], [from], size{, [mbar]}{, ctaMask}{, policy}
 */
static int decode_bulk(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct bulk_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    unsigned spaces = 0;
    bool multicast = tow_ptx_has_mod(dec, "multicast::cluster"), tracked = false;
    form->barrier = form->mask = PTX_NO_SLOT;
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        enum tow_ptx_statespace in = tow_ptx_mod_space(mod);
        enum tow_ptx_type type = tow_ptx_mod_type(mod);
        if (in != SP_NONE && spaces < 2) {
            *(spaces++ ? &form->from_space : &form->to_space) = in;
        } else if (type) {
            form->type = type;
        } else if (reduction_of(mod)) {
            form->reduce = reduction_of(mod);
        } else if (strcmp(mod, "mbarrier::complete_tx::bytes") == 0) {
            tracked = true;
        } else if (strcmp(mod, "async") != 0 && strcmp(mod, "bulk") != 0 &&
                   strcmp(mod, "reduce") != 0 && strcmp(mod, "bulk_group") != 0 &&
                   strcmp(mod, "multicast::cluster") != 0 && !tow_ptx_mod_ignored(mod)) {
            return tow_ptx_unsupported(dec);
        }
    }
    if (spaces != 2 || (form->reduce && !tow_ptx_type_bytes(form->type)) ||
        (tow_ptx_has_mod(dec, "reduce") && !form->reduce)) {
        return tow_ptx_unsupported(dec);
    }
    if (form->reduce &&
        (form->type == PT_F16X2 || form->type == PT_BF16X2 || tow_ptx_type_bytes(form->type) > 8 ||
         tow_ptx_type_bytes(form->type) < 2)) {
        return tow_ptx_unsupported(dec);
    }
    int error = tow_ptx_want_operands(dec, tracked ? 4 : 3, 6);
    if (error ||
        (error = tow_ptx_address(dec, &insn->operands[0], &form->to_space, &form->to,
                                 &form->to_kind, &form->to_offset)) ||
        (error = tow_ptx_address(dec, &insn->operands[1], &form->from_space, &form->from,
                                 &form->from_kind, &form->from_offset)) ||
        (error = tow_ptx_source(dec, &insn->operands[2], 'w', &form->size))) {
        return error;
    }
    if (tracked) {
        enum tow_ptx_statespace space = SP_SHARED;
        if ((error = tow_ptx_address(dec, &insn->operands[3], &space, &form->barrier,
                                     &form->barrier_kind, &form->barrier_offset))) {
            return error;
        }
        if (multicast) {
            if (insn->operand_count < 5) {
                return tow_ptx_bad(dec, "a mask of blocks is expected");
            }
            if ((error = tow_ptx_source(dec, &insn->operands[4], 'w', &form->mask))) {
                return error;
            }
        }
    }
    form->to_at = tow_ptx_lane_for(dec, form->reduce ? MANNER_ATOMIC : MANNER_PLAIN);
    form->from_at = tow_ptx_lane_for(dec, MANNER_PLAIN);
    form->barrier_at = tow_ptx_lane_for(dec, MANNER_ORDERED);
    struct tow_ptx_op op = {.run = decode_async_bulk, .ext = form};
    return tow_ptx_emit(dec, &op);
}

static int decode_cp(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct tow_ptx_op nothing = {.run = done_already};
    if (tow_ptx_has_mod(dec, "tensor")) {
        return tow_ptx_unsupported(dec);
    }
    if (tow_ptx_has_mod(dec, "commit_group") || tow_ptx_has_mod(dec, "wait_group") ||
        tow_ptx_has_mod(dec, "wait_all") || tow_ptx_has_mod(dec, "prefetch")) {
        return tow_ptx_emit(dec, &nothing);
    }
    if (tow_ptx_has_mod(dec, "mbarrier")) { /* cp.async.mbarrier.arrive{.noinc}.b64 [mbar] */
        if (!tow_ptx_has_mod(dec, "noinc")) {
            return tow_ptx_emit(dec, &nothing); /* one more pending, and it arrives at once */
        }
        struct mb_form *form = tow_ptx_keep(dec, sizeof *form);
        struct tow_ptx_op op = {.run = decode_async_mbarrier, .ext = form};
        enum tow_ptx_statespace space =
            insn->mod_count > 3 && strncmp(insn->key, "cp.async.mbarrier", 17) == 0 &&
                    (tow_ptx_has_mod(dec, "shared") || tow_ptx_has_mod(dec, "shared::cta"))
                ? SP_SHARED
                : SP_NONE;
        char kind;
        if (!form) {
            return tow_ptx_dec_no_memory(dec);
        }
        form->op = MB_NOINC;
        form->d = form->count = form->state = PTX_NO_SLOT;
        int error = tow_ptx_want_operands(dec, 1, 1);
        if (error ||
            (error = tow_ptx_address(dec, &insn->operands[0], &space, &op.a, &kind, &op.imm))) {
            return error;
        }
        if (!(form->at = tow_ptx_at_for(dec, space, kind, MANNER_ORDERED))) {
            return tow_ptx_bad(dec, "an address in this state space must be a 64-bit register");
        }
        return tow_ptx_emit(dec, &op);
    }
    if (tow_ptx_has_mod(dec, "bulk")) {
        return decode_bulk(dec);
    }
    return insn->mod_count && strcmp(insn->mods[0], "async") == 0 ? decode_copy(dec)
                                                                  : tow_ptx_unsupported(dec);
}

/* ---- st.async, red.async: into another block's memory, reported to its mbarrier ---- */

struct remote_form {
    struct bulk_form bulk; /* to, barrier, reduction; `type` of an element */
    uint32_t refs[4];
    uint8_t count;
    bool wide;
};

OP(decode_async_remote)
{
    const struct remote_form *form = o->ext;
    unsigned element = tow_ptx_type_bytes(form->bulk.type);
    FOR_LANES(l, w->exec)
    {
        uint8_t bytes[32];
        for (unsigned i = 0; i < form->count; i++) {
            uint64_t value = row_value(w, form->refs[i], form->wide ? 'l' : 'w', l);
            memcpy(bytes + i * element, &value, element);
        }
        uint64_t to = as_generic(SP_SHARED, row_value(w, form->bulk.to, form->bulk.to_kind, l) +
                                                (uint64_t)form->bulk.to_offset);
        uint64_t barrier =
            as_generic(SP_SHARED, row_value(w, form->bulk.barrier, form->bulk.barrier_kind, l) +
                                      (uint64_t)form->bulk.barrier_offset);
        if (to % (element * form->count)) {
            return tow_ptx_fault(w, o, TOW_PTX_FAULT_MISALIGNED, l, to,
                                 "access of %u bytes at a misaligned address",
                                 element * form->count);
        }
        if (!bulk_one(w, o, &form->bulk, l, to, bytes, (uint64_t)element * form->count, barrier)) {
            return HALT;
        }
    }
    return o + 1;
}

/* st.async{...}{.vec}.type [a], b, [mbar]   red.async{...}.op.type [a], b, [mbar] */
int tow_ptx_decode_remote(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct remote_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    bool tracked = false;
    form->count = 1;
    form->bulk.mask = PTX_NO_SLOT;
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        enum tow_ptx_type type = tow_ptx_mod_type(mod);
        if (type) {
            form->bulk.type = type;
        } else if (reduction_of(mod)) {
            form->bulk.reduce = reduction_of(mod);
        } else if (strcmp(mod, "v2") == 0 || strcmp(mod, "v4") == 0) {
            form->count = (uint8_t)(mod[1] - '0');
        } else if (strcmp(mod, "mbarrier::complete_tx::bytes") == 0) {
            tracked = true;
        } else if (strcmp(mod, "async") != 0 && strcmp(mod, "shared::cluster") != 0 &&
                   !tow_ptx_mod_ignored(mod)) {
            return tow_ptx_unsupported(dec);
        }
    }
    unsigned element = tow_ptx_type_bytes(form->bulk.type);
    if (!tracked || (element != 4 && element != 8) || element * form->count > 16 ||
        (insn->name[0] == 'r') != (form->bulk.reduce != 0)) {
        return tow_ptx_unsupported(dec);
    }
    form->wide = element == 8;
    int error = tow_ptx_want_operands(dec, 3, 3);
    if (error) {
        return error;
    }
    const struct tow_ptx_operand *b = &insn->operands[1];
    if (form->count > 1 && (b->kind != OPD_VECTOR || b->count != form->count)) {
        return tow_ptx_bad(dec, "the operand has not as many elements as the instruction says");
    }
    for (unsigned i = 0; i < form->count && error == 0; i++) {
        error = tow_ptx_source(dec, form->count > 1 ? &b->children[i] : b,
                               tow_ptx_type_kind(form->bulk.type), &form->refs[i]);
    }
    enum tow_ptx_statespace to = SP_SHARED, barrier = SP_SHARED;
    if (error ||
        (error = tow_ptx_address(dec, &insn->operands[0], &to, &form->bulk.to, &form->bulk.to_kind,
                                 &form->bulk.to_offset)) ||
        (error = tow_ptx_address(dec, &insn->operands[2], &barrier, &form->bulk.barrier,
                                 &form->bulk.barrier_kind, &form->bulk.barrier_offset))) {
        return error;
    }
    form->bulk.barrier_at = tow_ptx_lane_for(dec, MANNER_ORDERED);
    form->bulk.to_at = tow_ptx_lane_for(dec, form->bulk.reduce ? MANNER_ATOMIC : MANNER_PLAIN);
    struct tow_ptx_op op = {.run = decode_async_remote, .ext = form};
    return tow_ptx_emit(dec, &op);
}

/* ---- clusterlaunchcontrol: a block asks for the work of one that has not begun ---- */

/* All blocks are on their way, so that no cluster is ever cancelled. An answer of zeroes says so.
 */
OP(decode_async_try_cancel)
{
    static const uint8_t no[16];
    const struct bulk_form *form = o->ext;
    uint32_t blocks = o->imm && w->block->cluster ? w->block->cluster->count : 0;
    FOR_LANES(l, w->exec)
    {
        uint64_t to = as_generic(form->to_space, row_value(w, form->to, form->to_kind, l) +
                                                     (uint64_t)form->to_offset);
        uint64_t barrier =
            as_generic(form->to_space, row_value(w, form->barrier, form->barrier_kind, l) +
                                           (uint64_t)form->barrier_offset);
        if (to & 15) {
            return tow_ptx_fault(w, o, TOW_PTX_FAULT_MISALIGNED, l, to,
                                 "an answer of 16 bytes at a misaligned address");
        }
        uint64_t inside = (1ull << SHARED_RANK_SHIFT) - 1;
        for (uint32_t rank = 0; rank < blocks; rank++) {
            uint64_t base = WINDOW_SHARED + ((uint64_t)(rank + 1) << SHARED_RANK_SHIFT);
            if (!bulk_one(w, o, form, l, base + (to & inside), no, sizeof no,
                          base + (barrier & inside))) {
                return HALT;
            }
        }
        if (blocks == 0 && !bulk_one(w, o, form, l, to, no, sizeof no, barrier)) {
            return HALT;
        }
    }
    return o + 1;
}

OP(decode_async_cancelled)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    uint32_t m = 0;
    for (unsigned l = 0; l < LANES; l++) {
        m |= (uint32_t)(a[l] & 1u) << l;
    }
    tow_ptx_set_pred(w, o->d, m);
    return o + 1;
}

OP1(decode_async_first_block, uint32_t, uint64_t, a >> 32) /* of none: 0 */

/* clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, answer
 * clusterlaunchcontrol.query_cancel.get_first_ctaid{::x|y|z}.b32.b128 d, answer; .v4 {x, y, z, _}
 */
static int decode_query_cancel(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    bool asks = tow_ptx_has_mod(dec, "is_canceled");
    if (!asks && strncmp(insn->mods[1], "get_first_ctaid", 15) != 0) {
        return tow_ptx_unsupported(dec);
    }
    struct tow_ptx_op op = {.run = asks ? decode_async_cancelled : decode_async_first_block};
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error || (error = tow_ptx_source(dec, &insn->operands[1], 'q', &op.a))) {
        return error;
    }
    const struct tow_ptx_operand *d = &insn->operands[0];
    bool vector = tow_ptx_has_mod(dec, "v4");
    if (vector && (d->kind != OPD_VECTOR || d->count != 4)) {
        return tow_ptx_bad(dec, "the destination must have four elements");
    }
    for (unsigned i = 0; i < (vector ? 4u : 1u); i++) {
        if ((error = tow_ptx_dest(dec, vector ? &d->children[i] : d, asks ? 'p' : 'w', &op.d)) ||
            (error = tow_ptx_emit(dec, &op))) {
            return error;
        }
    }
    return 0;
}

/* clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes
 *     {.multicast::cluster::all}.b128 [answer], [mbar] */
static int decode_cancel(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    if (insn->mod_count < 2 || strcmp(insn->mods[0], "try_cancel") != 0) {
        return insn->mod_count > 1 && strcmp(insn->mods[0], "query_cancel") == 0
                   ? decode_query_cancel(dec)
                   : tow_ptx_unsupported(dec);
    }
    struct bulk_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    struct tow_ptx_op op = {.run = decode_async_try_cancel, .ext = form};
    op.imm = tow_ptx_has_mod(dec, "multicast::cluster::all");
    form->mask = PTX_NO_SLOT;
    form->to_space = tow_ptx_has_mod(dec, "shared::cta") ? SP_SHARED : SP_NONE;
    form->to_at = tow_ptx_lane_for(dec, MANNER_PLAIN);
    form->barrier_at = tow_ptx_lane_for(dec, MANNER_ORDERED);
    enum tow_ptx_statespace barrier = form->to_space;
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error ||
        (error = tow_ptx_address(dec, &insn->operands[0], &form->to_space, &form->to,
                                 &form->to_kind, &form->to_offset)) ||
        (error = tow_ptx_address(dec, &insn->operands[1], &barrier, &form->barrier,
                                 &form->barrier_kind, &form->barrier_offset))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- cluster addresses ---- */

#define INSIDE ((1u << SHARED_RANK_SHIFT) - 1u)
OP2(decode_async_mapa32, uint32_t, uint32_t, uint32_t, (a & INSIDE) | (b + 1) << SHARED_RANK_SHIFT)
OP2(decode_async_mapa64, uint64_t, uint64_t, uint32_t,
    (a & INSIDE) | (uint64_t)(b + 1) << SHARED_RANK_SHIFT)
OP2(mapa_generic, uint64_t, uint64_t, uint32_t,
    WINDOW_SHARED + ((a & INSIDE) | (uint64_t)(b + 1) << SHARED_RANK_SHIFT))
static inline uint32_t rank_of(uint32_t address, uint32_t own)
{
    uint32_t rank = address >> SHARED_RANK_SHIFT;
    return rank ? rank - 1 : own;
}
OP(decode_async_ctarank32)
{
    const uint32_t *a = tow_ptx_row(w, o->a);
    uint32_t own = w->block->rank;
    LANE_BODY(uint32_t, , rank_of(a[l], own))
}
OP(decode_async_ctarank64)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    uint32_t own = w->block->rank;
    LANE_BODY(uint32_t, , rank_of((uint32_t)a[l], own))
}

/* mapa{.shared::cluster}.u32/.u64 d, a, rank */
static int decode_mapa(struct tow_ptx_decoder *dec)
{
    bool shared = tow_ptx_has_mod(dec, "shared::cluster"), wide = tow_ptx_has_mod(dec, "u64");
    if (!wide && !tow_ptx_has_mod(dec, "u32")) {
        return tow_ptx_unsupported(dec);
    }
    if (!shared && !wide) {
        return tow_ptx_bad(dec, "generic addresses have 64 bits");
    }
    return tow_ptx_by_signature(
        dec, wide ? "llw" : "www",
        shared ? (wide ? decode_async_mapa64 : decode_async_mapa32) : mapa_generic, NULL);
}

static int decode_getctarank(struct tow_ptx_decoder *dec)
{
    bool wide = tow_ptx_has_mod(dec, "u64");
    return tow_ptx_by_signature(dec, wide ? "wl" : "ww",
                                wide ? decode_async_ctarank64 : decode_async_ctarank32, NULL);
}

const struct tow_ptx_special tow_ptx_specials_async[] = {
    {"mbarrier", decode_mbarrier},
    {"cp", decode_cp},
    {"mapa", decode_mapa},
    {"getctarank", decode_getctarank},
    {"clusterlaunchcontrol", decode_cancel},
    {NULL, NULL},
};
