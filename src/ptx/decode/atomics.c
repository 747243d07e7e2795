/* SPDX-License-Identifier: Apache-2.0 */
/* atom and red: one real atomic a lane, lanes in order. */
#include "base/mutex.h"
#include "ptx/decode/address.h"

#include <string.h>

#include "ptx/num/num.h"

enum atomic_op {
    AT_NONE,
    AT_ADD,
    AT_MIN,
    AT_MAX,
    AT_AND,
    AT_OR,
    AT_XOR,
    AT_EXCH,
    AT_CAS,
    AT_INC,
    AT_DEC,
};

struct atomic_form {
    tow_ptx_at_fn *at;
    enum atomic_op op;
    enum tow_ptx_type type;
    uint32_t d[8], b[8], c;
    uint32_t element, count;
    bool ordered, wide, result, ftz;
    bool raw_nan; /* f64 in global memory: a NaN operand comes out as it is, b's first */
};

/* ---- 128 bits ---- */

static struct {
    struct tow_mutex lock; /* guards every 128-bit access: what it guards is the kernels' memory */
} wide_memory = {.lock = TOW_MUTEX(PTX_WIDE)};

__uint128_t tow_ptx_load128(void *at)
{
    __uint128_t value;
    tow_mutex_lock(&wide_memory.lock);
    memcpy(&value, at, sizeof value);
    tow_mutex_unlock(&wide_memory.lock);
    return value;
}

void tow_ptx_store128(void *at, __uint128_t value)
{
    tow_mutex_lock(&wide_memory.lock);
    memcpy(at, &value, sizeof value);
    tow_mutex_unlock(&wide_memory.lock);
}

__uint128_t tow_ptx_cas128(void *at, __uint128_t expected, __uint128_t value)
{
    __uint128_t old;
    tow_mutex_lock(&wide_memory.lock);
    memcpy(&old, at, sizeof old);
    if (old == expected) {
        memcpy(at, &value, sizeof value);
    }
    tow_mutex_unlock(&wide_memory.lock);
    return old;
}

/* ---- one lane ---- */

static uint64_t atomics_compute64(const struct atomic_form *form, uint64_t old, uint64_t b)
{
    switch (form->op) {
    case AT_ADD:
        if (form->raw_nan && (tow_f64_isnan(b) || tow_f64_isnan(old))) {
            return tow_f64_isnan(b) ? b : old;
        }
        return form->type == PT_F64 ? tow_f64_add(old, b) : old + b;
    case AT_MIN:
        return form->type == PT_S64 ? ((int64_t)old < (int64_t)b ? old : b) : (old < b ? old : b);
    case AT_MAX:
        return form->type == PT_S64 ? ((int64_t)old > (int64_t)b ? old : b) : (old > b ? old : b);
    default:
        return b;
    }
}

static uint32_t compute_half(const struct atomic_form *form, bool brain, uint32_t old, uint32_t b)
{
    switch (form->op) {
    case AT_ADD:
        return brain ? tow_bf16_add(old, b) : tow_f16_add(old, b);
    case AT_MIN:
        return brain ? tow_bf16_min(old, b) : tow_f16_min(old, b);
    default:
        return brain ? tow_bf16_max(old, b) : tow_f16_max(old, b);
    }
}

static uint32_t atomics_compute32(const struct atomic_form *form, uint32_t old, uint32_t b)
{
    switch (form->type) {
    case PT_F32:
        return form->op == AT_ADD   ? tow_f32_add(old, b, form->ftz)
               : form->op == AT_MIN ? tow_f32_min(old, b)
                                    : tow_f32_max(old, b);
    case PT_F16:
    case PT_BF16:
        return compute_half(form, form->type == PT_BF16, old & 0xffffu, b & 0xffffu);
    case PT_F16X2:
    case PT_BF16X2: {
        bool brain = form->type == PT_BF16X2;
        return (compute_half(form, brain, old & 0xffffu, b & 0xffffu) & 0xffffu) |
               compute_half(form, brain, old >> 16, b >> 16) << 16;
    }
    default:
        break;
    }
    switch (form->op) {
    case AT_MIN:
        return form->type == PT_S32 ? ((int32_t)old < (int32_t)b ? old : b) : (old < b ? old : b);
    case AT_MAX:
        return form->type == PT_S32 ? ((int32_t)old > (int32_t)b ? old : b) : (old > b ? old : b);
    case AT_INC:
        return old >= b ? 0 : old + 1;
    case AT_DEC:
        return old == 0 || old > b ? b : old - 1;
    default:
        return b;
    }
}

#define SIMPLE(T, at, b)                                                                           \
    switch (form->op) {                                                                            \
    case AT_AND:                                                                                   \
        return __atomic_fetch_and((T *)(at), (T)(b), __ATOMIC_RELAXED);                            \
    case AT_OR:                                                                                    \
        return __atomic_fetch_or((T *)(at), (T)(b), __ATOMIC_RELAXED);                             \
    case AT_XOR:                                                                                   \
        return __atomic_fetch_xor((T *)(at), (T)(b), __ATOMIC_RELAXED);                            \
    case AT_EXCH:                                                                                  \
        return __atomic_exchange_n((T *)(at), (T)(b), __ATOMIC_RELAXED);                           \
    case AT_CAS: {                                                                                 \
        T expected = (T)(b);                                                                       \
        __atomic_compare_exchange_n((T *)(at), &expected, (T)c, false, __ATOMIC_RELAXED,           \
                                    __ATOMIC_RELAXED);                                             \
        return expected;                                                                           \
    }                                                                                              \
    default:                                                                                       \
        break;                                                                                     \
    }
#define LOOP(T, compute)                                                                           \
    {                                                                                              \
        T old = __atomic_load_n((T *)at, __ATOMIC_RELAXED);                                        \
        while (!__atomic_compare_exchange_n((T *)at, &old, (T)compute(form, old, (T)b), true,      \
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {                 \
        }                                                                                          \
        return old;                                                                                \
    }

static uint64_t atomic_lane(const struct atomic_form *form, uint8_t *at, uint64_t b, uint64_t c)
{
    if (form->element == 4) {
        if (form->op == AT_ADD && form->type <= PT_S64) {
            return __atomic_fetch_add((uint32_t *)at, (uint32_t)b, __ATOMIC_RELAXED);
        }
        SIMPLE(uint32_t, at, b)
        LOOP(uint32_t, atomics_compute32)
    }
    if (form->element == 8) {
        if (form->op == AT_ADD && form->type <= PT_S64) {
            return __atomic_fetch_add((uint64_t *)at, b, __ATOMIC_RELAXED);
        }
        SIMPLE(uint64_t, at, b)
        LOOP(uint64_t, atomics_compute64)
    }
    SIMPLE(uint16_t, at, b)
    LOOP(uint16_t, atomics_compute32)
}

OP(atomics_atomic)
{
    const struct atomic_form *form = o->ext;
    if (!form->at(w, o, form->element * form->count, ACCESS_WRITE)) {
        return HALT;
    }
    if (form->ordered) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    if (form->op == AT_CAS || form->op == AT_EXCH) {
        w->budget -= POLL_COST; /* who takes locks should let the holder run */
    }
    for (unsigned i = 0; i < form->count; i++) {
        const void *rb = tow_ptx_row(w, form->b[i]);
        const void *rc = form->op == AT_CAS ? tow_ptx_row(w, form->c) : rb;
        void *rd = form->result ? tow_ptx_row(w, form->d[i]) : NULL;
        FOR_LANES(l, w->exec)
        {
            uint64_t b = form->wide ? ((const uint64_t *)rb)[l] : ((const uint32_t *)rb)[l];
            uint64_t c = form->wide ? ((const uint64_t *)rc)[l] : ((const uint32_t *)rc)[l];
            uint64_t old = atomic_lane(form, w->ptr[l] + i * form->element, b, c);
            if (!rd) {
                continue;
            }
            if (form->wide) {
                ((uint64_t *)rd)[l] = old;
            } else {
                ((uint32_t *)rd)[l] = (uint32_t)old;
            }
        }
    }
    if (form->ordered) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    return o + 1;
}

/* add on words of shared memory: a block and its cluster run on one host thread, so that nobody is
 * there to be kept out. */
OP(atomics_shared_add)
{
    const struct atomic_form *form = o->ext;
    if (!form->at(w, o, 4, ACCESS_WRITE)) {
        return HALT;
    }
    const uint32_t *b = tow_ptx_row(w, form->b[0]);
    if (!form->result) {
        FOR_LANES(l, w->exec)
        {
            *(uint32_t *)w->ptr[l] += b[l];
        }
        return o + 1;
    }
    uint32_t *d = tow_ptx_row(w, form->d[0]);
    FOR_LANES(l, w->exec)
    {
        uint32_t old = *(uint32_t *)w->ptr[l];
        *(uint32_t *)w->ptr[l] = old + b[l];
        d[l] = old;
    }
    return o + 1;
}

OP(atomics_atomic128)
{
    const struct atomic_form *form = o->ext;
    if (!form->at(w, o, 16, ACCESS_WRITE)) {
        return HALT;
    }
    uint64_t *b = tow_ptx_row(w, form->b[0]);
    uint64_t *c = form->op == AT_CAS ? tow_ptx_row(w, form->c) : b;
    uint64_t *d = form->result ? tow_ptx_row(w, form->d[0]) : NULL;
    FOR_LANES(l, w->exec)
    {
        __uint128_t vb = (__uint128_t)b[LANES + l] << 64 | b[l];
        __uint128_t vc = (__uint128_t)c[LANES + l] << 64 | c[l];
        __uint128_t old;
        if (form->op == AT_CAS) {
            old = tow_ptx_cas128(w->ptr[l], vb, vc);
        } else {
            do {
                old = tow_ptx_load128(w->ptr[l]);
            } while (tow_ptx_cas128(w->ptr[l], old, vb) != old);
        }
        if (d) {
            d[l] = (uint64_t)old;
            d[LANES + l] = (uint64_t)(old >> 64);
        }
    }
    return o + 1;
}

/* ---- decoding ---- */

static enum atomic_op op_of(const char *mod)
{
    static const char *const names[] = {"",    "add",  "min", "max", "and", "or",
                                        "xor", "exch", "cas", "inc", "dec"};
    for (unsigned i = 1; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(mod, names[i]) == 0) {
            return (enum atomic_op)i;
        }
    }
    return AT_NONE;
}

static bool atomics_allowed(const struct atomic_form *form)
{
    bool half = form->type == PT_F16 || form->type == PT_BF16 || form->type == PT_F16X2 ||
                form->type == PT_BF16X2;
    switch (form->op) {
    case AT_ADD:
        return form->type == PT_U32 || form->type == PT_S32 || form->type == PT_U64 ||
               form->type == PT_S64 || form->type == PT_F32 || form->type == PT_F64 || half;
    case AT_MIN:
    case AT_MAX:
        return form->type == PT_U32 || form->type == PT_S32 || form->type == PT_U64 ||
               form->type == PT_S64 || half || (form->type == PT_F32 && form->count > 1);
    case AT_AND:
    case AT_OR:
    case AT_XOR:
        return form->type == PT_B32 || form->type == PT_B64;
    case AT_EXCH:
        return form->type == PT_B32 || form->type == PT_B64 || form->type == PT_B128;
    case AT_CAS:
        return form->type == PT_B16 || form->type == PT_B32 || form->type == PT_B64 ||
               form->type == PT_B128;
    case AT_INC:
    case AT_DEC:
        return form->type == PT_U32;
    default:
        return false;
    }
}

/* What the words behind the dots say. */
static int atomics_modifiers(struct tow_ptx_decoder *dec, struct atomic_form *form,
                             enum tow_ptx_statespace *space)
{
    const struct tow_ptx_insn *insn = dec->insn;
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        enum tow_ptx_statespace in = tow_ptx_mod_space(mod);
        enum tow_ptx_type type = tow_ptx_mod_type(mod);
        if (op_of(mod)) {
            form->op = op_of(mod);
        } else if (in != SP_NONE) {
            *space = in;
        } else if (type) {
            form->type = type;
        } else if (strcmp(mod, "v2") == 0 || strcmp(mod, "v4") == 0 || strcmp(mod, "v8") == 0) {
            form->count = (uint32_t)(mod[1] - '0');
        } else if (strcmp(mod, "acquire") == 0 || strcmp(mod, "release") == 0 ||
                   strcmp(mod, "acq_rel") == 0) {
            form->ordered = true;
        } else if (!tow_ptx_mod_ignored(mod)) {
            return tow_ptx_unsupported(dec);
        }
    }
    form->element = tow_ptx_type_bytes(form->type);
    form->wide = form->element == 8;
    return !atomics_allowed(form) || form->element * form->count > 16 ? tow_ptx_unsupported(dec)
                                                                      : 0;
}

/* What it takes and where its result goes; `at`: the address's place among the operands. */
static int atomics_operands(struct tow_ptx_decoder *dec, struct atomic_form *form, unsigned at)
{
    const struct tow_ptx_operand *b = &dec->insn->operands[at + 1], *d = &dec->insn->operands[0];
    char kind = tow_ptx_type_kind(form->type);
    int error = 0;
    if (form->count > 1 && (b->kind != OPD_VECTOR || b->count != form->count ||
                            (form->result && (d->kind != OPD_VECTOR || d->count != form->count)))) {
        return tow_ptx_bad(dec, "the operand has not as many elements as the instruction says");
    }
    for (uint32_t i = 0; i < form->count && error == 0; i++) {
        error = tow_ptx_source(dec, form->count > 1 ? &b->children[i] : b, kind, &form->b[i]);
        if (error == 0 && form->result) {
            error = tow_ptx_dest(dec, form->count > 1 ? &d->children[i] : d, kind, &form->d[i]);
        }
    }
    if (error == 0 && form->op == AT_CAS) {
        error = tow_ptx_source(dec, &dec->insn->operands[at + 2], kind, &form->c);
    }
    return error;
}

int tow_ptx_decode_atom(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    enum tow_ptx_statespace space = SP_NONE;
    if (tow_ptx_has_mod(dec, "async")) {
        return tow_ptx_decode_remote(dec);
    }
    struct atomic_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    form->count = 1;
    form->result = strcmp(insn->name, "atom") == 0;
    int error = atomics_modifiers(dec, form, &space);
    if (error) {
        return error;
    }
    unsigned at = form->result ? 1 : 0, sources = form->op == AT_CAS ? 2 : 1;
    struct tow_ptx_op op = {.run = form->element == 16 && form->count == 1 ? atomics_atomic128
                                                                           : atomics_atomic,
                            .ext = form};
    char address_kind;
    if ((error = tow_ptx_want_operands(dec, at + 1 + sources, at + 2 + sources)) ||
        (error = atomics_operands(dec, form, at)) ||
        (error =
             tow_ptx_address(dec, &insn->operands[at], &space, &op.a, &address_kind, &op.imm))) {
        return error;
    }
    if (space != SP_NONE && space != SP_GLOBAL && space != SP_SHARED) {
        return tow_ptx_bad(dec, "atomics work on global and shared memory");
    }
    form->at = tow_ptx_at_for(dec, space, address_kind,
                              form->op == AT_EXCH ? (form->ordered ? MANNER_ORDERED : MANNER_STRONG)
                              : form->ordered     ? MANNER_ATOMIC_ORDERED
                                                  : MANNER_ATOMIC);
    form->ftz = space != SP_SHARED && form->type == PT_F32;
    form->raw_nan = space != SP_SHARED && form->type == PT_F64;
    if (!form->at) {
        return tow_ptx_bad(dec, "an address in this state space must be a 64-bit register");
    }
    if (space == SP_SHARED && form->op == AT_ADD && form->count == 1 && !form->ordered &&
        (form->type == PT_U32 || form->type == PT_S32)) {
        op.run = atomics_shared_add;
    }
    return tow_ptx_emit(dec, &op);
}
