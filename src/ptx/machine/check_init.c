/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of global and shared memory somebody has written: what is looked up and set in
 * modules that were loaded to be checked so. A load or store looks once it knows where its memory
 * is.
 *
 * Of memory that no map knows (parameters, local memory, the host's) everything counts as
 * written. */
#include "ptx/machine/check.h"

/* Where a byte of memory is kept. */
struct known {
    tow_bits *bits; /* NULL: nowhere */
    uint64_t at;
    enum tow_ptx_place place;
    uint64_t address; /* for messages */
};

static struct known known_shared(const struct tow_ptx_block *block, const uint8_t *memory)
{
    uint64_t at = (uint64_t)(uintptr_t)memory - (uint64_t)(uintptr_t)block->shared;
    if (at >= block->shared_bytes) {
        return (struct known){.bits = NULL};
    }
    return (struct known){
        .bits = block->written, .at = at, .place = TOW_PTX_PLACE_SHARED, .address = at};
}

static struct known known_at(const struct tow_ptx_warp *w, const uint8_t *memory)
{
    const struct tow_ptx_written *global = w->launch->written;
    uint64_t address = (uint64_t)(uintptr_t)memory;
    if (global && address - global->low < global->bytes) {
        return (struct known){.bits = global->bits,
                              .at = address - global->low,
                              .place = TOW_PTX_PLACE_GLOBAL,
                              .address = address};
    }
    struct known known = known_shared(w->block, memory);
    const struct tow_ptx_cluster *cluster = w->block->cluster;
    for (uint32_t i = 0; !known.bits && cluster && i < cluster->count; i++) {
        known = known_shared(cluster->blocks[i], memory);
    }
    return known;
}

static bool means_anything(const struct tow_ptx_warp *w, const struct known *known)
{
    return known->place != TOW_PTX_PLACE_GLOBAL || !w->launch->written->means ||
           w->launch->written->means(known->address);
}

/* One lane; whether it reads what nobody wrote. */
static bool look_at(const struct tow_ptx_warp *w, const struct known *known, uint64_t bytes,
                    enum tow_ptx_look look)
{
    bool wrong = known->bits && look != LOOK_WRITE &&
                 !tow_bits_all(known->bits, known->at, bytes) && means_anything(w, known);
    if (known->bits && look != LOOK_READ) {
        tow_bits_set(known->bits, known->at, bytes);
    }
    return wrong;
}

static void init_rows(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t lanes,
                      uint64_t bytes, enum tow_ptx_look look)
{
    uint32_t wrong = 0;
    struct known first = {.bits = NULL};
    FOR_LANES(l, lanes)
    {
        struct known known = known_at(w, w->ptr[l]);
        if (look_at(w, &known, bytes, look)) {
            first = wrong ? first : known;
            wrong |= 1u << l;
        }
    }
    if (wrong) {
        const struct tow_ptx_deed_of deed = {TOW_PTX_DEED_READ, first.place, bytes, false};
        tow_ptx_tell_access(w, o, TOW_PTX_FAULT_UNWRITTEN, wrong, first.address, &deed);
    }
}

void tow_ptx_look_rows(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t lanes,
                       uint64_t bytes, enum tow_ptx_access access, enum tow_ptx_manner manner)
{
    enum tow_ptx_look look = manner >= MANNER_ATOMIC ? LOOK_UPDATE
                             : access == ACCESS_READ ? LOOK_READ
                                                     : LOOK_WRITE;
    if (tow_ptx_checks_init(w)) {
        init_rows(w, o, lanes, bytes, look);
    }
    tow_ptx_race_rows(w, o, lanes, bytes, look, manner, NULL);
}

/* Shared memory may be that of any block of the cluster. NULL: not all of it is there. */
static uint8_t *lane_memory(struct tow_ptx_warp *w, unsigned lane, uint64_t address, uint64_t bytes)
{
    uint64_t room;
    if (address - WINDOW_SHARED < WINDOW_SHARED_BYTES) {
        return tow_ptx_shared_at(w, (uint32_t)(address - WINDOW_SHARED), bytes);
    }
    uint8_t *memory = tow_ptx_probe(w, lane, address, &room);
    return memory && room >= bytes ? memory : NULL;
}

void tow_ptx_look_lane(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                       uint64_t address, uint64_t bytes, enum tow_ptx_access access,
                       enum tow_ptx_manner manner)
{
    uint8_t *memory = w->launch->found ? lane_memory(w, lane, address, bytes) : NULL;
    if (memory) {
        w->ptr[lane] = memory;
        tow_ptx_look_rows(w, o, 1u << lane, bytes, access, manner);
    }
}

/* ---- in the place of functions that find memory ---- */

#define LOOKING_SO(name, manner)                                                                   \
    static bool name##_##manner(struct tow_ptx_warp *w, const struct tow_ptx_op *o,                \
                                uint32_t bytes, enum tow_ptx_access access)                        \
    {                                                                                              \
        if (!tow_ptx_at_##name(w, o, bytes, access)) {                                             \
            return false;                                                                          \
        }                                                                                          \
        tow_ptx_look_rows(w, o, w->exec, bytes, access, manner);                                   \
        return true;                                                                               \
    }
#define LOOKING(name)                                                                              \
    LOOKING_SO(name, MANNER_PLAIN)                                                                 \
    LOOKING_SO(name, MANNER_TOLD)                                                                  \
    LOOKING_SO(name, MANNER_STRONG)                                                                \
    LOOKING_SO(name, MANNER_ORDERED)                                                               \
    LOOKING_SO(name, MANNER_ATOMIC)                                                                \
    LOOKING_SO(name, MANNER_ATOMIC_ORDERED)                                                        \
    static tow_ptx_at_fn *const looking_##name[] = {                                               \
        name##_MANNER_PLAIN,   name##_MANNER_TOLD,   name##_MANNER_STRONG,                         \
        name##_MANNER_ORDERED, name##_MANNER_ATOMIC, name##_MANNER_ATOMIC_ORDERED};
LOOKING(global)
LOOKING(generic)
LOOKING(shared32)
LOOKING(shared64)

tow_ptx_at_fn *tow_ptx_looking_at(tow_ptx_at_fn *at, enum tow_ptx_manner manner)
{
    return at == tow_ptx_at_global     ? looking_global[manner]
           : at == tow_ptx_at_generic  ? looking_generic[manner]
           : at == tow_ptx_at_shared32 ? looking_shared32[manner]
           : at == tow_ptx_at_shared64 ? looking_shared64[manner]
                                       : at;
}

#define LOOKING_LANE(manner)                                                                       \
    static uint8_t *lane_##manner(struct tow_ptx_warp *w, const struct tow_ptx_op *o,              \
                                  unsigned lane, uint64_t address, uint64_t bytes,                 \
                                  enum tow_ptx_access access)                                      \
    {                                                                                              \
        tow_ptx_look_lane(w, o, lane, address, bytes, access, manner);                             \
        return tow_ptx_at_lane(w, o, lane, address, bytes, access);                                \
    }
LOOKING_LANE(MANNER_PLAIN)
LOOKING_LANE(MANNER_ORDERED)
LOOKING_LANE(MANNER_ATOMIC)

tow_ptx_lane_fn *tow_ptx_looking_lane(enum tow_ptx_manner manner)
{
    return manner == MANNER_ATOMIC    ? lane_MANNER_ATOMIC
           : manner == MANNER_ORDERED ? lane_MANNER_ORDERED
                                      : lane_MANNER_PLAIN;
}
