/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores, addresses, fences. Atomics are in atomics.c. */
#include "ptx/decode/decode.h"

#include <errno.h>
#include <string.h>

#include "ptx/decode/address.h"
#include "ptx/machine/row.h"

/* ---- loads and stores ---- */

/* A whole warp at even steps, `i` the element. */
#define LOAD_LINE(D, E)                                                                            \
    for (unsigned i = 0; i < form->count; i++) {                                                   \
        D *d = tow_ptx_row(w, form->refs[i]);                                                      \
        const E *h0 = (const E *)line.half[0] + i, *h1 = (const E *)line.half[1] + i;              \
        if (line.step == sizeof(E) && sizeof(D) == sizeof(E)) {                                    \
            memcpy(d, h0, 16 * sizeof(E));                                                         \
            memcpy(d + 16, h1, 16 * sizeof(E));                                                    \
        } else if (line.step == sizeof(E)) {                                                       \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                d[l] = (D)h0[l];                                                                   \
            }                                                                                      \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                d[16 + l] = (D)h1[l];                                                              \
            }                                                                                      \
        } else if (line.step == 0) {                                                               \
            D v0 = (D)*h0, v1 = (D)*h1;                                                            \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                d[l] = v0;                                                                         \
                d[16 + l] = v1;                                                                    \
            }                                                                                      \
        } else {                                                                                   \
            const uint8_t *p0 = (const uint8_t *)h0, *p1 = (const uint8_t *)h1;                    \
            for (unsigned l = 0; l < 16; l++, p0 += line.step, p1 += line.step) {                  \
                d[l] = (D) * (const E *)p0;                                                        \
                d[16 + l] = (D) * (const E *)p1;                                                   \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    return o + 1;

/* Lanes one by one. */
#define LOAD_ROWS(D, E)                                                                            \
    if (!form->at(w, o, form->bytes, ACCESS_READ)) {                                               \
        return HALT;                                                                               \
    }                                                                                              \
    for (unsigned i = 0; i < form->count; i++) {                                                   \
        D *d = tow_ptx_row(w, form->refs[i]);                                                      \
        if (w->exec == FULL) {                                                                     \
            for (unsigned l = 0; l < LANES; l++) {                                                 \
                d[l] = (D)((const E *)w->ptr[l])[i];                                               \
            }                                                                                      \
        } else {                                                                                   \
            FOR_LANES(l, w->exec)                                                                  \
            {                                                                                      \
                d[l] = (D)((const E *)w->ptr[l])[i];                                               \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    return o + 1;

#define LOAD(name, D, E)                                                                           \
    OP(name)                                                                                       \
    {                                                                                              \
        const struct tow_ptx_access_form *form = o->ext;                                           \
        struct tow_ptx_line line;                                                                  \
        if (w->exec == FULL && form->line && form->line(w, o, form->bytes, ACCESS_READ, &line)) {  \
            LOAD_LINE(D, E)                                                                        \
        }                                                                                          \
        LOAD_ROWS(D, E)                                                                            \
    }
LOAD(load_u8, uint32_t, uint8_t)
LOAD(load_s8, uint32_t, int8_t)
LOAD(load_u16, uint32_t, uint16_t)
LOAD(load_s16, uint32_t, int16_t)
LOAD(load_32, uint32_t, uint32_t)
LOAD(load_u8w, uint64_t, uint8_t)
LOAD(load_s8w, uint64_t, int8_t)
LOAD(load_u16w, uint64_t, uint16_t)
LOAD(load_s16w, uint64_t, int16_t)
LOAD(load_u32w, uint64_t, uint32_t)
LOAD(load_s32w, uint64_t, int32_t)
LOAD(load_64, uint64_t, uint64_t)

/* The commonest: one element of a lane, in global memory, or in shared memory by 32-bit addresses.
 * What is checked is in line; `name` does the rest. Where all lanes are anywhere, a lane's address
 * is read before its result is written, which may be to the same row. */
#define PLACE_GLOBAL(A, l) ((uint8_t *)(uintptr_t)((A)[l] + offset))
#define PLACE_SHARED(A, l) (shared + (uint32_t)((A)[l] + offset))

#define LOAD_ONE(name, D, E, kind, A, SHAPE, ROW, PLACE)                                           \
    __attribute__((noinline)) OP(name##_##kind##_any)                                              \
    {                                                                                              \
        const struct tow_ptx_access_form *form = o->ext;                                           \
        if (!ROW(w, o, sizeof(E), ACCESS_READ)) {                                                  \
            return name(w, o);                                                                     \
        }                                                                                          \
        const A *a = tow_ptx_row(w, o->a);                                                         \
        const A offset = (A)o->imm;                                                                \
        uint8_t *const shared = w->block->shared;                                                  \
        D *d = tow_ptx_row(w, form->refs[0]);                                                      \
        (void)shared;                                                                              \
        if (w->exec != FULL) {                                                                     \
            FOR_LANES(l, w->exec)                                                                  \
            {                                                                                      \
                d[l] = (D) * (const E *)PLACE(a, l);                                               \
            }                                                                                      \
            return o + 1;                                                                          \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (unsigned l = 0; l < LANES; l++)                               \
        {                                                                                          \
            d[l] = (D) * (const E *)PLACE(a, l);                                                   \
        }                                                                                          \
        return o + 1;                                                                              \
    }                                                                                              \
    OP(name##_##kind)                                                                              \
    {                                                                                              \
        uint8_t *half[2];                                                                          \
        enum tow_ptx_shape shape =                                                                 \
            w->exec == FULL ? SHAPE(w, o, sizeof(E), ACCESS_READ, half) : SHAPE_OTHER;             \
        if (shape == SHAPE_OTHER) {                                                                \
            return name##_##kind##_any(w, o);                                                      \
        }                                                                                          \
        D *d = tow_ptx_row(w, o->d);                                                               \
        const E *first = (const E *)half[0], *second = (const E *)half[1];                         \
        if (shape == SHAPE_SAME) {                                                                 \
            D low = (D)*first, high = (D)*second;                                                  \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                d[l] = low;                                                                        \
                d[16 + l] = high;                                                                  \
            }                                                                                      \
        } else if (sizeof(D) == sizeof(E)) {                                                       \
            memcpy(d, first, 16 * sizeof(E));                                                      \
            memcpy(d + 16, second, 16 * sizeof(E));                                                \
        } else {                                                                                   \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                d[l] = (D)first[l];                                                                \
            }                                                                                      \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                d[16 + l] = (D)second[l];                                                          \
            }                                                                                      \
        }                                                                                          \
        return o + 1;                                                                              \
    }
#define LOAD_BOTH(name, D, E)                                                                      \
    LOAD_ONE(name, D, E, global, uint64_t, tow_ptx_shape_global, tow_ptx_try_row_global,           \
             PLACE_GLOBAL)                                                                         \
    LOAD_ONE(name, D, E, shared, uint32_t, tow_ptx_shape_shared, tow_ptx_try_row_shared32,         \
             PLACE_SHARED)
LOAD_BOTH(load_u8, uint32_t, uint8_t)
LOAD_BOTH(load_s8, uint32_t, int8_t)
LOAD_BOTH(load_u16, uint32_t, uint16_t)
LOAD_BOTH(load_s16, uint32_t, int16_t)
LOAD_BOTH(load_32, uint32_t, uint32_t)
LOAD_BOTH(load_64, uint64_t, uint64_t)

OP(load_128)
{
    const struct tow_ptx_access_form *form = o->ext;
    if (!form->at(w, o, form->bytes, ACCESS_READ)) {
        return HALT;
    }
    for (unsigned i = 0; i < form->count; i++) {
        uint64_t *d = tow_ptx_row(w, form->refs[i]);
        FOR_LANES(l, w->exec)
        {
            d[l] = ((const uint64_t *)w->ptr[l])[2 * i];
            d[LANES + l] = ((const uint64_t *)w->ptr[l])[2 * i + 1];
        }
    }
    return o + 1;
}

/* Lanes in order: where several write to one place the last one's stays. */
#define STORE_LINE(S, E)                                                                           \
    for (unsigned i = 0; i < form->count; i++) {                                                   \
        const S *s = tow_ptx_row(w, form->refs[i]);                                                \
        E *h0 = (E *)line.half[0] + i, *h1 = (E *)line.half[1] + i;                                \
        if (line.step == sizeof(E) && sizeof(S) == sizeof(E)) {                                    \
            memcpy(h0, s, 16 * sizeof(E));                                                         \
            memcpy(h1, s + 16, 16 * sizeof(E));                                                    \
        } else if (line.step == sizeof(E)) {                                                       \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                h0[l] = (E)s[l];                                                                   \
            }                                                                                      \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                h1[l] = (E)s[16 + l];                                                              \
            }                                                                                      \
        } else {                                                                                   \
            uint8_t *p0 = (uint8_t *)h0, *p1 = (uint8_t *)h1;                                      \
            for (unsigned l = 0; l < 16; l++, p0 += line.step) {                                   \
                *(E *)p0 = (E)s[l];                                                                \
            }                                                                                      \
            for (unsigned l = 0; l < 16; l++, p1 += line.step) {                                   \
                *(E *)p1 = (E)s[16 + l];                                                           \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    return o + 1;

#define STORE_ROWS(S, E)                                                                           \
    if (!form->at(w, o, form->bytes, ACCESS_WRITE)) {                                              \
        return HALT;                                                                               \
    }                                                                                              \
    for (unsigned i = 0; i < form->count; i++) {                                                   \
        const S *s = tow_ptx_row(w, form->refs[i]);                                                \
        if (w->exec == FULL) {                                                                     \
            for (unsigned l = 0; l < LANES; l++) {                                                 \
                ((E *)w->ptr[l])[i] = (E)s[l];                                                     \
            }                                                                                      \
        } else {                                                                                   \
            FOR_LANES(l, w->exec)                                                                  \
            {                                                                                      \
                ((E *)w->ptr[l])[i] = (E)s[l];                                                     \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    return o + 1;

#define STORE(name, S, E)                                                                          \
    OP(name)                                                                                       \
    {                                                                                              \
        const struct tow_ptx_access_form *form = o->ext;                                           \
        struct tow_ptx_line line;                                                                  \
        if (w->exec == FULL && form->line && form->line(w, o, form->bytes, ACCESS_WRITE, &line)) { \
            STORE_LINE(S, E)                                                                       \
        }                                                                                          \
        STORE_ROWS(S, E)                                                                           \
    }
STORE(store_8, uint32_t, uint8_t)
STORE(store_16, uint32_t, uint16_t)
STORE(store_32, uint32_t, uint32_t)
STORE(store_8w, uint64_t, uint8_t)
STORE(store_16w, uint64_t, uint16_t)
STORE(store_32w, uint64_t, uint32_t)
STORE(store_64, uint64_t, uint64_t)

#define STORE_ONE(name, S, E, kind, A, SHAPE, ROW, PLACE)                                          \
    __attribute__((noinline)) OP(name##_##kind##_any)                                              \
    {                                                                                              \
        const struct tow_ptx_access_form *form = o->ext;                                           \
        if (!ROW(w, o, sizeof(E), ACCESS_WRITE)) {                                                 \
            return name(w, o);                                                                     \
        }                                                                                          \
        const A *a = tow_ptx_row(w, o->a);                                                         \
        const A offset = (A)o->imm;                                                                \
        uint8_t *const shared = w->block->shared;                                                  \
        const S *s = tow_ptx_row(w, form->refs[0]);                                                \
        (void)shared;                                                                              \
        if (w->exec != FULL) {                                                                     \
            FOR_LANES(l, w->exec)                                                                  \
            {                                                                                      \
                *(E *)PLACE(a, l) = (E)s[l];                                                       \
            }                                                                                      \
            return o + 1;                                                                          \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (unsigned l = 0; l < LANES; l++)                               \
        {                                                                                          \
            *(E *)PLACE(a, l) = (E)s[l];                                                           \
        }                                                                                          \
        return o + 1;                                                                              \
    }                                                                                              \
    OP(name##_##kind)                                                                              \
    {                                                                                              \
        uint8_t *half[2];                                                                          \
        enum tow_ptx_shape shape =                                                                 \
            w->exec == FULL ? SHAPE(w, o, sizeof(E), ACCESS_WRITE, half) : SHAPE_OTHER;            \
        if (shape == SHAPE_OTHER) {                                                                \
            return name##_##kind##_any(w, o);                                                      \
        }                                                                                          \
        const S *s = tow_ptx_row(w, o->d);                                                         \
        E *first = (E *)half[0], *second = (E *)half[1];                                           \
        if (shape == SHAPE_SAME) {                                                                 \
            *first = (E)s[15];                                                                     \
            *second = (E)s[31];                                                                    \
        } else if (sizeof(S) == sizeof(E)) {                                                       \
            memcpy(first, s, 16 * sizeof(E));                                                      \
            memcpy(second, s + 16, 16 * sizeof(E));                                                \
        } else {                                                                                   \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                first[l] = (E)s[l];                                                                \
            }                                                                                      \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                second[l] = (E)s[16 + l];                                                          \
            }                                                                                      \
        }                                                                                          \
        return o + 1;                                                                              \
    }
#define STORE_BOTH(name, S, E)                                                                     \
    STORE_ONE(name, S, E, global, uint64_t, tow_ptx_shape_global, tow_ptx_try_row_global,          \
              PLACE_GLOBAL)                                                                        \
    STORE_ONE(name, S, E, shared, uint32_t, tow_ptx_shape_shared, tow_ptx_try_row_shared32,        \
              PLACE_SHARED)
STORE_BOTH(store_8, uint32_t, uint8_t)
STORE_BOTH(store_16, uint32_t, uint16_t)
STORE_BOTH(store_32, uint32_t, uint32_t)
STORE_BOTH(store_64, uint64_t, uint64_t)

OP(store_128)
{
    const struct tow_ptx_access_form *form = o->ext;
    if (!form->at(w, o, form->bytes, ACCESS_WRITE)) {
        return HALT;
    }
    for (unsigned i = 0; i < form->count; i++) {
        const uint64_t *s = tow_ptx_row(w, form->refs[i]);
        FOR_LANES(l, w->exec)
        {
            ((uint64_t *)w->ptr[l])[2 * i] = s[l];
            ((uint64_t *)w->ptr[l])[2 * i + 1] = s[LANES + l];
        }
    }
    return o + 1;
}

/* Strong accesses (volatile, relaxed, acquire, release ...): one atomic access a lane. Whoever
 * polls memory in a loop should soon let others run. */
static uint64_t strong_read(const uint8_t *at, unsigned bytes)
{
    switch (bytes) {
    case 1:
        return __atomic_load_n(at, __ATOMIC_RELAXED);
    case 2:
        return __atomic_load_n((const uint16_t *)at, __ATOMIC_RELAXED);
    case 4:
        return __atomic_load_n((const uint32_t *)at, __ATOMIC_RELAXED);
    default:
        return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
    }
}

static void strong_write(uint8_t *at, unsigned bytes, uint64_t value)
{
    switch (bytes) {
    case 1:
        __atomic_store_n(at, (uint8_t)value, __ATOMIC_RELAXED);
        break;
    case 2:
        __atomic_store_n((uint16_t *)at, (uint16_t)value, __ATOMIC_RELAXED);
        break;
    case 4:
        __atomic_store_n((uint32_t *)at, (uint32_t)value, __ATOMIC_RELAXED);
        break;
    default:
        __atomic_store_n((uint64_t *)at, value, __ATOMIC_RELAXED);
        break;
    }
}

OP(load_strong)
{
    const struct tow_ptx_access_form *form = o->ext;
    if (!form->at(w, o, form->bytes, ACCESS_READ)) {
        return HALT;
    }
    w->budget -= POLL_COST;
    for (unsigned i = 0; i < form->count; i++) {
        uint8_t *row = tow_ptx_row(w, form->refs[i]);
        FOR_LANES(l, w->exec)
        {
            const uint8_t *at = w->ptr[l] + i * form->element;
            if (form->element == 16) {
                __uint128_t value = tow_ptx_load128((void *)at);
                ((uint64_t *)row)[l] = (uint64_t)value;
                ((uint64_t *)row)[LANES + l] = (uint64_t)(value >> 64);
                continue;
            }
            uint64_t value = strong_read(at, form->element);
            if (form->is_signed) {
                unsigned shift = 64 - form->element * 8;
                value = (uint64_t)((int64_t)(value << shift) >> shift);
            }
            if (form->wide) {
                ((uint64_t *)row)[l] = value;
            } else {
                ((uint32_t *)row)[l] = (uint32_t)value;
            }
        }
    }
    if (form->ordered) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    return o + 1;
}

OP(store_strong)
{
    const struct tow_ptx_access_form *form = o->ext;
    if (!form->at(w, o, form->bytes, ACCESS_WRITE)) {
        return HALT;
    }
    if (form->ordered) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    for (unsigned i = 0; i < form->count; i++) {
        const uint8_t *row = tow_ptx_row(w, form->refs[i]);
        FOR_LANES(l, w->exec)
        {
            uint8_t *at = w->ptr[l] + i * form->element;
            if (form->element == 16) {
                __uint128_t value = ((const uint64_t *)row)[LANES + l];
                value = value << 64 | ((const uint64_t *)row)[l];
                tow_ptx_store128(at, value);
                continue;
            }
            strong_write(at, form->element,
                         form->wide ? ((const uint64_t *)row)[l] : ((const uint32_t *)row)[l]);
        }
    }
    return o + 1;
}

/* ld.param of a kernel at a fixed place: the same for all lanes. */
#define LOAD_PARAM(name, D, E)                                                                     \
    OP(name)                                                                                       \
    {                                                                                              \
        E value;                                                                                   \
        memcpy(&value, w->runner->params + o->imm, sizeof value);                                  \
        LANE_BODY(D, , value)                                                                      \
    }
LOAD_PARAM(param_u8, uint32_t, uint8_t)
LOAD_PARAM(param_s8, uint32_t, int8_t)
LOAD_PARAM(param_u16, uint32_t, uint16_t)
LOAD_PARAM(param_s16, uint32_t, int16_t)
LOAD_PARAM(param_32, uint32_t, uint32_t)
LOAD_PARAM(param_u8w, uint64_t, uint8_t)
LOAD_PARAM(param_s8w, uint64_t, int8_t)
LOAD_PARAM(param_u16w, uint64_t, uint16_t)
LOAD_PARAM(param_s16w, uint64_t, int16_t)
LOAD_PARAM(param_u32w, uint64_t, uint32_t)
LOAD_PARAM(param_s32w, uint64_t, int32_t)
LOAD_PARAM(param_64, uint64_t, uint64_t)

OP(param_128)
{
    uint64_t value[2], *d = tow_ptx_row(w, o->d);
    memcpy(value, w->runner->params + o->imm, sizeof value);
    FOR_LANES(l, w->exec)
    {
        d[l] = value[0];
        d[LANES + l] = value[1];
    }
    return o + 1;
}

/* By log2 of the element's bytes, [signed][wide]. */
static tow_ptx_fn *const loads[5][2][2] = {
    {{load_u8, load_u8w}, {load_s8, load_s8w}},
    {{load_u16, load_u16w}, {load_s16, load_s16w}},
    {{load_32, load_u32w}, {load_32, load_s32w}},
    {{NULL, load_64}, {NULL, load_64}},
    {{NULL, NULL}, {NULL, NULL}},
};
static tow_ptx_fn *const params[5][2][2] = {
    {{param_u8, param_u8w}, {param_s8, param_s8w}},
    {{param_u16, param_u16w}, {param_s16, param_s16w}},
    {{param_32, param_u32w}, {param_32, param_s32w}},
    {{NULL, param_64}, {NULL, param_64}},
    {{NULL, NULL}, {NULL, NULL}},
};
static tow_ptx_fn *const stores[5][2] = {{store_8, store_8w},
                                         {store_16, store_16w},
                                         {store_32, store_32w},
                                         {NULL, store_64},
                                         {NULL, NULL}};
/* One element in global memory, and in shared memory by 32-bit addresses; only results that are as
 * wide as the element or in a 32-bit row. (Clones are not compared: each file has its own pointer.)
 */
static tow_ptx_fn *const one_loads[4][2][2] = {
    {{load_u8_global, load_s8_global}, {load_u8_shared, load_s8_shared}},
    {{load_u16_global, load_s16_global}, {load_u16_shared, load_s16_shared}},
    {{load_32_global, load_32_global}, {load_32_shared, load_32_shared}},
    {{load_64_global, load_64_global}, {load_64_shared, load_64_shared}},
};
static tow_ptx_fn *const one_stores[4][2] = {
    {store_8_global, store_8_shared},
    {store_16_global, store_16_shared},
    {store_32_global, store_32_shared},
    {store_64_global, store_64_shared},
};

static unsigned log2_of(unsigned value)
{
    return (unsigned)__builtin_ctz(value ? value : 1);
}

/* What the modifiers of a load or store say. */
struct access_words {
    enum tow_ptx_statespace space;
    enum tow_ptx_type type;
    unsigned count; /* of elements */
    bool strong, ordered;
};

static int access_words_read(struct tow_ptx_decoder *dec, struct access_words *ret_words)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct access_words words = {.space = SP_NONE, .type = PT_NONE, .count = 1};
    for (unsigned i = 0; i < insn->mod_count; i++) {
        const char *mod = insn->mods[i];
        enum tow_ptx_statespace in = tow_ptx_mod_space(mod);
        enum tow_ptx_type is = tow_ptx_mod_type(mod);
        words.strong |=
            strcmp(mod, "volatile") == 0 || strcmp(mod, "relaxed") == 0 || strcmp(mod, "mmio") == 0;
        if (in != SP_NONE) {
            words.space = in;
        } else if (is) {
            words.type = is;
        } else if (strcmp(mod, "v2") == 0 || strcmp(mod, "v4") == 0 || strcmp(mod, "v8") == 0) {
            words.count = (unsigned)(mod[1] - '0');
        } else if (strcmp(mod, "acquire") == 0 || strcmp(mod, "release") == 0) {
            words.ordered = words.strong = true;
        } else if (strcmp(mod, "volatile") != 0 && !tow_ptx_mod_ignored(mod)) {
            return tow_ptx_unsupported(dec);
        }
    }
    unsigned element = tow_ptx_type_bytes(words.type);
    if (!element || words.type >= PT_TEXREF || element * words.count > 32) {
        return tow_ptx_unsupported(dec);
    }
    if (words.space == SP_PARAM && !dec->func->entry) {
        words.space = SP_FPARAM;
    }
    *ret_words = words;
    return 0;
}

/* The row of element `i`. Elements are of a kind: all in 32-bit or all in 64-bit rows (or 128). */
static int access_row(struct tow_ptx_decoder *dec, const struct tow_ptx_operand *one,
                      enum tow_ptx_type type, bool store, unsigned i,
                      struct tow_ptx_access_form *form)
{
    char is = tow_ptx_type_kind(type);
    if (one->kind == OPD_REG) {
        is = tow_ptx_register_kind(dec, one->index);
    }
    is = is == 'f' || is == 'h' ? 'w' : is == 'd' ? 'l' : is;
    bool wide = is == 'l';
    if ((form->element == 8 && is != 'l') || (form->element == 16 && is != 'q') ||
        (form->element < 8 && is != 'w' && is != 'l')) {
        return tow_ptx_bad(dec, "a register does not fit the type");
    }
    if (i > 0 && wide != form->wide && one->kind != OPD_SINK) {
        return tow_ptx_bad(dec, "the registers of a vector must be of one size");
    }
    if (i == 0 || one->kind == OPD_REG) {
        form->wide = wide;
    }
    char row = is == 'q' ? 'q' : form->wide ? 'l' : 'w';
    return store ? tow_ptx_source(dec, one, one->kind == OPD_REG ? row : tow_ptx_type_kind(type),
                                  &form->refs[i])
                 : tow_ptx_dest(dec, one, row, &form->refs[i]);
}

static int access_form_make(struct tow_ptx_decoder *dec, const struct access_words *words,
                            const struct tow_ptx_operand *data, bool store,
                            struct tow_ptx_access_form **ret_form)
{
    struct tow_ptx_access_form *form = tow_ptx_keep(dec, sizeof *form);
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    if (data->kind == OPD_VECTOR ? data->count != words->count : words->count != 1) {
        return tow_ptx_bad(dec, "the operand has not as many elements as the instruction says");
    }
    form->element = (uint8_t)tow_ptx_type_bytes(words->type);
    form->count = (uint8_t)words->count;
    form->bytes = (uint32_t)form->element * words->count;
    form->is_signed = words->type >= PT_S8 && words->type <= PT_S64;
    form->ordered = words->ordered;
    int error = 0;
    for (unsigned i = 0; i < words->count && error == 0; i++) {
        const struct tow_ptx_operand *one = data->kind == OPD_VECTOR ? &data->children[i] : data;
        error = access_row(dec, one, words->type, store, i, form);
    }
    *ret_form = form;
    return error;
}

/* The kernel's own parameter that an address names, or NULL. */
static const struct tow_ptx_var *parameter_of(const struct tow_ptx_operand *address)
{
    if (address->kind != OPD_ADDRESS || !address->count ||
        address->children[0].kind != OPD_SYMBOL) {
        return NULL;
    }
    struct tow_ptx_symbol *symbol = tow_ptx_resolve(address->children[0].symbol);
    return symbol && symbol->kind == SYM_VAR && symbol->var->space == SP_PARAM ? symbol->var : NULL;
}

/* Its place is known: no address is computed. */
static int load_parameter(struct tow_ptx_decoder *dec, enum tow_ptx_statespace space, uint64_t at,
                          const struct tow_ptx_access_form *form)
{
    if ((space != SP_PARAM && space != SP_NONE) || at > dec->func->param_bytes ||
        form->bytes > dec->func->param_bytes - at || at % form->element) {
        return tow_ptx_bad(dec, "the access is not within the kernel's parameters");
    }
    int error = 0;
    for (unsigned i = 0; i < form->count && error == 0; i++) {
        struct tow_ptx_op op = {.d = form->refs[i], .imm = (int64_t)(at + i * form->element)};
        op.run = form->element == 16 ? param_128
                                     : params[log2_of(form->element)][form->is_signed][form->wide];
        error = tow_ptx_emit(dec, &op);
    }
    return error;
}

/* What carries the access out. */
static tow_ptx_fn *access_run(const struct tow_ptx_access_form *form, bool store, bool strong,
                              enum tow_ptx_statespace space, char kind)
{
    if (strong) {
        return store ? store_strong : load_strong;
    }
    if (form->element == 16) {
        return store ? store_128 : load_128;
    }
    unsigned log = log2_of(form->element);
    bool global = kind == 'l' && (space == SP_GLOBAL || space == SP_CONST || space == SP_PARAM);
    bool shared = kind == 'w' && (space == SP_SHARED || space == SP_SHARED_CLUSTER);
    if (form->line && form->count == 1 && (global || shared) &&
        form->wide == (form->element == 8)) {
        return store ? one_stores[log][shared] : one_loads[log][shared][form->is_signed];
    }
    return store ? stores[log][form->wide] : loads[log][form->is_signed][form->wide];
}

/* Where races are looked for: two threads may write the same. */
OP(store_look)
{
    const struct tow_ptx_access_form *form = o->ext;
    uint8_t values[LANES][RACE_BYTES];
    if (!form->at(w, o, form->bytes, ACCESS_WRITE)) {
        return HALT;
    }
    for (unsigned i = 0; i < form->count; i++) {
        const uint8_t *row = tow_ptx_row(w, form->refs[i]);
        FOR_LANES(l, w->exec)
        {
            uint8_t *value = values[l] + i * form->element;
            if (form->element == 16) {
                memcpy(value, row + l * 8, 8);
                memcpy(value + 8, row + (LANES + l) * 8, 8);
            } else {
                memcpy(value, row + l * (form->wide ? 8 : 4), form->element);
            }
        }
    }
    tow_ptx_race_rows(w, o, w->exec, form->bytes, LOOK_WRITE, MANNER_PLAIN, values);
    return o + 1;
}

/* In front of the store `op`. */
static int emit_store_look(struct tow_ptx_decoder *dec, const struct tow_ptx_op *op,
                           enum tow_ptx_statespace space, char kind)
{
    struct tow_ptx_access_form *form = tow_ptx_keep(dec, sizeof *form);
    struct tow_ptx_op look = *op;
    if (!form) {
        return tow_ptx_dec_no_memory(dec);
    }
    *form = *(const struct tow_ptx_access_form *)op->ext;
    form->at = tow_ptx_plain_at_for(space, kind);
    look.ext = form;
    look.run = store_look;
    return tow_ptx_emit(dec, &look);
}

static int decode_access(struct tow_ptx_decoder *dec, bool store)
{
    const struct tow_ptx_insn *insn = dec->insn;
    struct access_words words = {0};
    int error = access_words_read(dec, &words);
    if (error || (error = tow_ptx_want_operands(dec, 2, 3))) {
        return error;
    }
    const struct tow_ptx_operand *address = &insn->operands[store ? 0 : 1];
    const struct tow_ptx_operand *data = &insn->operands[store ? 1 : 0];
    struct tow_ptx_access_form *form = NULL;
    if ((error = access_form_make(dec, &words, data, store, &form))) {
        return error;
    }
    const struct tow_ptx_var *parameter = parameter_of(address);
    if (parameter && store) {
        return tow_ptx_bad(dec, "the access is not within the kernel's parameters");
    }
    if (parameter) {
        return load_parameter(dec, words.space, parameter->offset + address->children[0].bits,
                              form);
    }
    struct tow_ptx_op op = {.ext = form};
    char kind;
    if ((error = tow_ptx_address(dec, address, &words.space, &op.a, &kind, &op.imm))) {
        return error;
    }
    bool looked = store && !words.strong && dec->checks & TOW_PTX_CHECK_RACE;
    form->at = tow_ptx_at_for(dec, words.space, kind,
                              words.ordered  ? MANNER_ORDERED
                              : words.strong ? MANNER_STRONG
                              : looked       ? MANNER_TOLD
                                             : MANNER_PLAIN);
    if (!form->at) {
        return tow_ptx_bad(dec, "an address in this state space must be a 64-bit register");
    }
    if (store && (words.space == SP_CONST || words.space == SP_PARAM)) {
        return tow_ptx_bad(dec, "this state space cannot be written");
    }
    form->line = tow_ptx_line_for(form->at);
    op.run = access_run(form, store, words.strong, words.space, kind);
    op.d = form->refs[0];
    return looked && (error = emit_store_look(dec, &op, words.space, kind))
               ? error
               : tow_ptx_emit(dec, &op);
}

static int decode_ld(struct tow_ptx_decoder *dec)
{
    return decode_access(dec, false);
}
static int decode_st(struct tow_ptx_decoder *dec)
{
    if (tow_ptx_has_mod(dec, "async")) {
        return tow_ptx_decode_remote(dec);
    }
    return decode_access(dec, true);
}

/* ---- address arithmetic between state spaces ---- */

OP1(decode_mem_copy64, uint64_t, uint64_t, a)
OP1(decode_mem_copy32, uint32_t, uint32_t, a)
OP1(to_generic_shared, uint64_t, uint64_t, a + WINDOW_SHARED)
OP1(to_generic_local, uint64_t, uint64_t, a + WINDOW_LOCAL)
OP1(to_generic_shared32, uint64_t, uint32_t, a + WINDOW_SHARED)
OP1(to_generic_local32, uint64_t, uint32_t, a + WINDOW_LOCAL)
OP1(from_generic_shared, uint64_t, uint64_t, a - WINDOW_SHARED)
OP1(from_generic_local, uint64_t, uint64_t, a - WINDOW_LOCAL)

/* cvta.space.u64 d, a   cvta.to.space.u64 d, a */
static int decode_cvta(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    bool to = insn->mod_count > 0 && strcmp(insn->mods[0], "to") == 0;
    if (insn->mod_count < 2) {
        return tow_ptx_unsupported(dec);
    }
    enum tow_ptx_statespace space = tow_ptx_mod_space(insn->mods[to ? 1 : 0]);
    enum tow_ptx_type type = tow_ptx_mod_type(insn->mods[insn->mod_count - 1]);
    if (space == SP_NONE || (type != PT_U64 && type != PT_U32)) {
        return tow_ptx_unsupported(dec);
    }
    if (type == PT_U32) {
        return tow_ptx_bad(dec, "generic addresses have 64 bits");
    }
    tow_ptx_fn *fn = decode_mem_copy64;
    if (space == SP_SHARED) {
        fn = to ? from_generic_shared : to_generic_shared;
    } else if (space == SP_LOCAL || space == SP_FPARAM ||
               (space == SP_PARAM && !dec->func->entry)) {
        fn = to ? from_generic_local : to_generic_local;
    }
    (void)decode_mem_copy32;
    (void)to_generic_shared32;
    (void)to_generic_local32;
    return tow_ptx_by_signature(dec, "ll", fn, NULL);
}

static bool in_const(const struct tow_ptx_warp *w, uint64_t address)
{
    const struct tow_ptx_instance *instance = w->launch->instance;
    bool is = false;
    for (size_t v = 0; v < instance->module->variable_count && !is; v++) {
        const struct tow_ptx_variable *var = &instance->module->variables[v];
        is = var->space == TOW_PTX_CONST && address - instance->addresses[v] < var->size;
    }
    return is;
}

OP(in_window)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    uint32_t m = 0;
    for (unsigned l = 0; l < LANES; l++) {
        bool shared = a[l] - WINDOW_SHARED < WINDOW_SHARED_BYTES;
        bool local = a[l] - WINDOW_LOCAL < WINDOW_LOCAL_BYTES;
        bool is;
        switch ((enum tow_ptx_statespace)o->imm) {
        case SP_SHARED:
            is = shared && (o->e || a[l] - WINDOW_SHARED < 1u << SHARED_RANK_SHIFT);
            break;
        case SP_LOCAL:
            is = local;
            break;
        case SP_PARAM:
            is = a[l] - (uint64_t)(uintptr_t)w->runner->params < w->runner->param_bytes;
            break;
        case SP_CONST:
            is = in_const(w, a[l]);
            break;
        default:
            is = !shared && !local && !in_const(w, a[l]);
            break;
        }
        m |= (uint32_t)is << l;
    }
    tow_ptx_set_pred(w, o->d, m);
    return o + 1;
}

/* isspacep.space p, a */
static int decode_isspacep(struct tow_ptx_decoder *dec)
{
    const struct tow_ptx_insn *insn = dec->insn;
    enum tow_ptx_statespace space =
        insn->mod_count == 1 ? tow_ptx_mod_space(insn->mods[0]) : SP_NONE;
    int error = tow_ptx_want_operands(dec, 2, 2);
    if (error) {
        return error;
    }
    if (space == SP_NONE) {
        return tow_ptx_unsupported(dec);
    }
    struct tow_ptx_op op = {.run = in_window, .imm = space};
    op.e = tow_ptx_has_mod(dec, "shared::cluster");
    if ((error = tow_ptx_dest(dec, &insn->operands[0], 'p', &op.d)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], 'l', &op.a))) {
        return error;
    }
    return tow_ptx_emit(dec, &op);
}

/* ---- multicast memory, of which there is none ---- */

OP(decode_mem_no_multicast)
{
    return tow_ptx_fault(
        w, o, TOW_PTX_FAULT_ADDRESS, (unsigned)__builtin_ctz(w->exec), 0,
        "a multimem instruction wants multicast memory, which this device does not "
        "have");
}

/* multimem.*: code for many devices has it beside what it does on one. Its operands are not looked
 * at: a device without multicast objects has no address that it could be used with. */
static int decode_multimem(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_op op = {.run = decode_mem_no_multicast};
    dec->control = true;
    return tow_ptx_emit(dec, &op);
}

/* ---- fences, and what only speaks to caches ---- */

OP(decode_mem_fence)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return o + 1;
}
OP(decode_mem_nothing)
{
    (void)w;
    return o + 1;
}
OP(yield_op)
{
    w->budget = 0;
    return tow_ptx_yield(w, o + 1);
}

static int decode_fence(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_op op = {.run = decode_mem_fence}, look = {.run = tow_ptx_race_fence};
    int error = dec->checks & TOW_PTX_CHECK_RACE ? tow_ptx_emit(dec, &look) : 0;
    return error ? error : tow_ptx_emit(dec, &op);
}
static int decode_nothing(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_op op = {.run = decode_mem_nothing};
    return tow_ptx_emit(dec, &op);
}
static int decode_nanosleep(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_op op = {.run = yield_op};
    uint32_t ref;
    int error = tow_ptx_want_operands(dec, 1, 1);
    if (error == 0 && (error = tow_ptx_source(dec, &dec->insn->operands[0], 'w', &ref)) == 0) {
        dec->control = true;
        error = tow_ptx_emit(dec, &op);
    }
    return error;
}
/* createpolicy makes a cache policy: any value will do, since we ignore them. */
OP(decode_mem_policy)
{
    LANE_BODY(uint64_t, , 0x12f0000000000000ull)
}
static int decode_createpolicy(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_op op = {.run = decode_mem_policy};
    if (dec->insn->operand_count < 1) {
        return tow_ptx_bad(dec, "a destination is expected");
    }
    int error = tow_ptx_dest(dec, &dec->insn->operands[0], 'l', &op.d);
    return error ? error : tow_ptx_emit(dec, &op);
}

/* stacksave, stackrestore, alloca: the frame's top of local memory */
OP(stack_save)
{
    uint64_t value = w->groups[w->current].frame->local_top;
    LANE_BODY(uint64_t, , value)
}
OP(stack_restore)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    struct tow_ptx_frame *frame = w->groups[w->current].frame;
    uint64_t value = a[__builtin_ctz(w->exec)];
    if (value >= frame->local_base && value <= frame->local_top) {
        frame->local_top = (uint32_t)value;
    }
    return o + 1;
}
/* d = local address of `a` bytes; all lanes of the frame get room for the largest request */
OP(alloca_op)
{
    const uint64_t *a = tow_ptx_row(w, o->a);
    struct tow_ptx_frame *frame = w->groups[w->current].frame;
    uint64_t align = (uint64_t)(o->imm < 16 ? 16 : o->imm), most = 0;
    FOR_LANES(l, w->exec)
    {
        most = a[l] > most ? a[l] : most;
    }
    uint64_t at = (frame->local_top + align - 1) & ~(align - 1);
    if (most > w->local_stride || at + most > w->local_stride) {
        return tow_ptx_fault(w, o, TOW_PTX_FAULT_STACK, (unsigned)__builtin_ctz(w->exec), 0,
                             "alloca of %llu bytes; the stack of a thread has %u",
                             (unsigned long long)most, w->local_stride);
    }
    frame->local_top = (uint32_t)((at + most + 15) & ~15ull);
    LANE_BODY(uint64_t, , at)
}
static int decode_stacksave(struct tow_ptx_decoder *dec)
{
    return tow_ptx_by_signature(dec, "l", stack_save, NULL);
}
static int decode_stackrestore(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_op op = {.run = stack_restore};
    int error = tow_ptx_want_operands(dec, 1, 1);
    if (error == 0 && (error = tow_ptx_source(dec, &dec->insn->operands[0], 'l', &op.a)) == 0) {
        error = tow_ptx_emit(dec, &op);
    }
    return error;
}
static int decode_alloca(struct tow_ptx_decoder *dec)
{
    struct tow_ptx_op op = {.run = alloca_op, .imm = 16};
    const struct tow_ptx_insn *insn = dec->insn;
    int error = tow_ptx_want_operands(dec, 2, 3);
    if (error || (error = tow_ptx_dest(dec, &insn->operands[0], 'l', &op.d)) ||
        (error = tow_ptx_source(dec, &insn->operands[1], 'l', &op.a))) {
        return error;
    }
    if (insn->operand_count == 3) {
        uint64_t align = insn->operands[2].bits;
        if (insn->operands[2].kind != OPD_INT || !align || align & (align - 1) || align > 65536) {
            return tow_ptx_bad(dec, "the alignment must be a power of two");
        }
        op.imm = (int64_t)align;
    }
    return tow_ptx_emit(dec, &op);
}

const struct tow_ptx_special tow_ptx_specials_memory[] = {
    {"ld", decode_ld},
    {"ldu", decode_ld},
    {"st", decode_st},
    {"cvta", decode_cvta},
    {"isspacep", decode_isspacep},
    {"multimem", decode_multimem},
    {"membar", decode_fence},
    {"fence", decode_fence},
    {"prefetch", decode_nothing},
    {"prefetchu", decode_nothing},
    {"discard", decode_nothing},
    {"applypriority", decode_nothing},
    {"pmevent", decode_nothing},
    {"setmaxnreg", decode_nothing},
    {"griddepcontrol", decode_nothing},
    {"nanosleep", decode_nanosleep},
    {"createpolicy", decode_createpolicy},
    {"stacksave", decode_stacksave},
    {"stackrestore", decode_stackrestore},
    {"alloca", decode_alloca},
    {"atom", tow_ptx_decode_atom},
    {"red", tow_ptx_decode_atom},
    {NULL, NULL},
};
