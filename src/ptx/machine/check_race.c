/* SPDX-License-Identifier: Apache-2.0 */
/* Races in a block's shared memory, looked for in modules that were loaded so.
 *
 * Each warp has a clock, which goes on whenever a thread of it lets others know what it has done.
 * An access is named by its thread and what the clock of its warp showed. A thread knows, of each
 * lane of its own warp and of each other warp, up to which time it has heard: at barriers, where a
 * warp acts together, and by atomics and volatile accesses of what others have put behind a fence.
 * It is taken to know too much rather than too little, so what is told is a race. */
#include <stdlib.h>
#include <string.h>

#include "ptx/machine/check.h"

#define WARPS 32u
#define MEETINGS (BARRIERS + 1) /* the last one is the cluster's barrier */
#define MEET_CLUSTER BARRIERS
#define PHASES 4u   /* of a meeting that are kept: threads may leave it late */
#define PLACES 256u /* a power of two: where atomics and volatile accesses were, of a block */

/* Up to which time something is known of each warp. */
struct known {
    uint32_t warps[WARPS];
};

struct mind {
    struct known known;
    uint32_t lanes[LANES]; /* of its own warp */
    struct known fenced;   /* what it knew at its last fence */
    uint32_t phase;        /* of the meeting that it is in, */
    uint32_t cluster;      /* and of the cluster's, which may be another one */
    uint8_t meeting;
};

/* One access of a byte; `op` NULL: there was none. */
struct deed {
    const struct tow_ptx_op *op;
    uint32_t time;
    uint16_t thread;
    bool strong; /* atomic, volatile */
};

struct cell {
    struct deed writes[2]; /* the latest that is not strong, and that is */
    struct deed reads[2];  /* of two threads */
    bool told, valued;
    uint8_t value; /* valued: what was written */
};

struct place {
    uintptr_t memory; /* RACE_BYTES from here on; 0: none */
    struct known known;
};

struct tow_ptx_races {
    uint64_t bytes; /* of all of it */
    uint32_t capacity_minds, capacity_cells;
    struct mind *minds; /* owned: of each thread */
    struct cell *cells; /* owned: of each byte */
    uint32_t now[WARPS];
    uint32_t phases[MEETINGS];
    struct known meetings[MEETINGS][PHASES];
    struct known ended; /* what threads knew that have ended */
    struct place places[PLACES], rest;
};

static uint32_t time_later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static struct tow_ptx_races *races_of(const struct tow_ptx_warp *w)
{
    return w->launch->found && w->launch->checks & TOW_PTX_CHECK_RACE ? w->block->races : NULL;
}

/* ---- who knows what ---- */

static void known_add(struct known *known, const struct known *more)
{
    for (unsigned i = 0; i < WARPS; i++) {
        known->warps[i] = time_later(known->warps[i], more->warps[i]);
    }
}

/* What a thread can tell now. */
static struct known mind_says(const struct tow_ptx_races *races, const struct tow_ptx_warp *w,
                              const struct mind *mind)
{
    struct known known = mind->known;
    known.warps[w->index] = races->now[w->index];
    return known;
}

static void mind_hears(const struct tow_ptx_warp *w, struct mind *mind, const struct known *known)
{
    known_add(&mind->known, known);
    for (unsigned k = 0; k < LANES; k++) {
        mind->lanes[k] = time_later(mind->lanes[k], known->warps[w->index]);
    }
}

static struct mind *mind_of(struct tow_ptx_races *races, const struct tow_ptx_warp *w,
                            unsigned lane)
{
    return &races->minds[w->index * LANES + lane];
}

/* What lanes know now is what their atomics tell; the clock goes on. */
static void lanes_fence(struct tow_ptx_races *races, const struct tow_ptx_warp *w, uint32_t lanes)
{
    FOR_LANES(l, lanes)
    {
        struct mind *mind = mind_of(races, w, l);
        mind->fenced = mind_says(races, w, mind);
    }
    races->now[w->index]++;
}

/* Lanes `hearers` hear of what lanes `members` know and did. */
static void warp_meets(struct tow_ptx_races *races, struct tow_ptx_warp *w, uint32_t hearers,
                       uint32_t members)
{
    struct known known = {{0}};
    uint32_t lanes[LANES] = {0};
    FOR_LANES(l, members)
    {
        const struct mind *mind = mind_of(races, w, l);
        known_add(&known, &mind->known);
        for (unsigned k = 0; k < LANES; k++) {
            lanes[k] = time_later(lanes[k], mind->lanes[k]);
        }
    }
    FOR_LANES(l, members)
    {
        lanes[l] = races->now[w->index];
    }
    FOR_LANES(l, hearers)
    {
        struct mind *mind = mind_of(races, w, l);
        known_add(&mind->known, &known);
        for (unsigned k = 0; k < LANES; k++) {
            mind->lanes[k] = time_later(mind->lanes[k], lanes[k]);
        }
    }
    lanes_fence(races, w, hearers);
}

/* Behind an instruction that a warp does together. */
const struct tow_ptx_op *tow_ptx_race_together(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_races *races = races_of(w);
    if (races) {
        warp_meets(races, w, w->exec, w->exec);
    }
    return o + 1;
}

/* Behind bar.warp.sync; row a: the mask. */
const struct tow_ptx_op *tow_ptx_race_warp(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_races *races = races_of(w);
    const uint32_t *masks = tow_ptx_row(w, o->a);
    for (uint32_t left = races ? w->exec : 0; left;) {
        uint32_t mask = masks[__builtin_ctz(left)], same = 0;
        FOR_LANES(l, left)
        {
            same |= (uint32_t)(masks[l] == mask) << l;
        }
        warp_meets(races, w, same, same | mask);
        left &= ~same;
    }
    return o + 1;
}

static void meeting_join(struct tow_ptx_races *races, struct tow_ptx_warp *w, unsigned meeting)
{
    struct known *known = &races->meetings[meeting][races->phases[meeting] % PHASES];
    FOR_LANES(l, w->exec)
    {
        struct mind *mind = mind_of(races, w, l);
        struct known says = mind_says(races, w, mind);
        known_add(known, &says);
        if (meeting == MEET_CLUSTER) {
            mind->cluster = races->phases[meeting];
            continue;
        }
        mind->meeting = (uint8_t)meeting;
        mind->phase = races->phases[meeting];
    }
    races->now[w->index]++;
}

static void meeting_begin(struct tow_ptx_races *races, unsigned meeting, uint32_t phase)
{
    races->phases[meeting] = phase;
    races->meetings[meeting][phase % PHASES] = races->ended;
}

/* In front of a barrier; row a: its number. */
const struct tow_ptx_op *tow_ptx_race_arrive(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_races *races = races_of(w);
    uint32_t number = ((const uint32_t *)tow_ptx_row(w, o->a))[__builtin_ctz(w->exec)];
    if (!races || number >= BARRIERS) {
        return o + 1;
    }
    if (!(w->block->barriers_used >> number & 1u)) {
        meeting_begin(races, number, races->phases[number] + 1);
    }
    meeting_join(races, w, number);
    return o + 1;
}

/* In front of barrier.cluster.arrive. */
const struct tow_ptx_op *tow_ptx_race_cluster(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_races *races = races_of(w);
    uint32_t phase = w->block->cluster ? w->block->cluster->phase + 1 : 0;
    if (!races || !phase) {
        return o + 1;
    }
    if (races->phases[MEET_CLUSTER] != phase) {
        meeting_begin(races, MEET_CLUSTER, phase);
    }
    meeting_join(races, w, MEET_CLUSTER);
    return o + 1;
}

static void meeting_leave(struct tow_ptx_races *races, struct tow_ptx_warp *w, bool cluster)
{
    struct known all = {{0}};
    memcpy(all.warps, races->now, sizeof all.warps);
    FOR_LANES(l, w->exec)
    {
        struct mind *mind = mind_of(races, w, l);
        unsigned meeting = cluster ? MEET_CLUSTER : mind->meeting;
        uint32_t phase = cluster ? mind->cluster : mind->phase;
        bool kept = races->phases[meeting] - phase < PHASES;
        mind_hears(w, mind, kept ? &races->meetings[meeting][phase % PHASES] : &all);
    }
    lanes_fence(races, w, w->exec);
}

/* In front of a thread's end: it has come to all barriers that are not complete. */
const struct tow_ptx_op *tow_ptx_race_end(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_races *races = races_of(w);
    if (!races) {
        return o + 1;
    }
    FOR_LANES(l, w->exec)
    {
        struct known says = mind_says(races, w, mind_of(races, w, l));
        known_add(&races->ended, &says);
    }
    FOR_LANES(meeting, w->block->barriers_used | 1u << MEET_CLUSTER)
    {
        known_add(&races->meetings[meeting][races->phases[meeting] % PHASES], &races->ended);
    }
    races->now[w->index]++;
    return o + 1;
}

/* Behind a barrier that its threads waited at. */
const struct tow_ptx_op *tow_ptx_race_leave(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_races *races = races_of(w);
    if (races) {
        meeting_leave(races, w, false);
    }
    return o + 1;
}

/* Behind barrier.cluster.wait. */
const struct tow_ptx_op *tow_ptx_race_leave_cluster(struct tow_ptx_warp *w,
                                                    const struct tow_ptx_op *o)
{
    struct tow_ptx_races *races = races_of(w);
    if (races) {
        meeting_leave(races, w, true);
    }
    return o + 1;
}

/* In front of an instruction with a guard, row a, into which it may write: it is kept in row d. */
const struct tow_ptx_op *tow_ptx_race_guard(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    tow_ptx_set_pred(w, o->d, tow_ptx_pred(w, o->a));
    return o + 1;
}

/* A fence. */
const struct tow_ptx_op *tow_ptx_race_fence(struct tow_ptx_warp *w, const struct tow_ptx_op *o)
{
    struct tow_ptx_races *races = races_of(w);
    if (races) {
        lanes_fence(races, w, w->exec);
    }
    return o + 1;
}

/* What went through a place of atomics and volatile accesses: all that one access may be of, so
 * that who uses a part of it hears of who used another. */
static struct known *known_through(struct tow_ptx_races *races, const void *access)
{
    uintptr_t memory = (uintptr_t)access & ~(uintptr_t)(RACE_BYTES - 1);
    uint64_t hash = (uint64_t)memory * UINT64_C(0x9e3779b97f4a7c15);
    for (unsigned i = 0; i < 8; i++) {
        struct place *place = &races->places[((hash >> 40) + i) & (PLACES - 1)];
        if (!place->memory || place->memory == memory) {
            place->memory = memory;
            return &place->known;
        }
    }
    return &races->rest.known; /* all others together */
}

/* Another block of the cluster whose shared memory it is; NULL: nobody's. */
static const struct tow_ptx_block *block_beside(const struct tow_ptx_warp *w, const void *access)
{
    const struct tow_ptx_cluster *cluster = w->block->cluster;
    for (uint32_t i = 0; cluster && i < cluster->count; i++) {
        const struct tow_ptx_block *block = cluster->blocks[i];
        uintptr_t at = (uintptr_t)access - (uintptr_t)block->shared;
        if (block != w->block && at < block->shared_bytes) {
            return block;
        }
    }
    return NULL;
}

/* What threads know of other blocks is not kept. So whoever hears from another block of the cluster
 * is taken to hear all that its own has done: what another one writes here may tell of that, and so
 * may what is read there. All of a cluster runs on one thread of the host. */
static void mind_speaks(struct tow_ptx_races *races, struct tow_ptx_warp *w, unsigned lane,
                        enum tow_ptx_look look)
{
    struct known *known = known_through(races, w->ptr[lane]), all;
    struct mind *mind = mind_of(races, w, lane);
    const struct tow_ptx_block *beside = block_beside(w, w->ptr[lane]);
    mind_hears(w, mind, known);
    if (look != LOOK_READ) {
        known_add(known, &mind->fenced);
    }
    if (beside && look != LOOK_WRITE) {
        memcpy(all.warps, races->now, sizeof all.warps);
        mind_hears(w, mind, &all);
    }
    if (beside && beside->races && look != LOOK_READ) {
        memcpy(all.warps, beside->races->now, sizeof all.warps);
        known_add(known_through(beside->races, w->ptr[lane]), &all);
    }
}

/* ---- who touches what ---- */

static bool mind_knows(const struct tow_ptx_warp *w, const struct mind *mind, unsigned lane,
                       const struct deed *deed)
{
    uint32_t warp = deed->thread / LANES, of = deed->thread % LANES;
    if (warp != w->index) {
        return mind->known.warps[warp] >= deed->time;
    }
    return of == lane || mind->lanes[of] >= deed->time;
}

static bool races_with(const struct tow_ptx_warp *w, const struct mind *mind, unsigned lane,
                       bool strong, const struct deed *deed)
{
    return deed->op && !(strong && deed->strong) && !mind_knows(w, mind, lane, deed);
}

/* Reads that another one knows of tell nothing more than it does. */
static void cell_keep_read(const struct tow_ptx_warp *w, const struct mind *mind, unsigned lane,
                           struct cell *cell, const struct deed *own)
{
    unsigned at = 0;
    for (; at < 1 && cell->reads[at].op; at++) {
        const struct deed *read = &cell->reads[at];
        if ((read->strong || !own->strong) && mind_knows(w, mind, lane, read)) {
            break;
        }
    }
    cell->reads[at] = *own;
}

/* One byte; `same`: what is written is there already. Returns whom it races with. */
static const struct deed *cell_touch(const struct tow_ptx_warp *w, const struct mind *mind,
                                     unsigned lane, struct cell *cell, enum tow_ptx_look look,
                                     bool same, const struct deed *own)
{
    const struct deed *other = NULL;
    for (unsigned i = 0; i < 2 && !other && !(same && look == LOOK_WRITE); i++) {
        other = races_with(w, mind, lane, own->strong, &cell->writes[i]) ? &cell->writes[i] : NULL;
    }
    for (unsigned i = 0; i < 2 && !other && look != LOOK_READ; i++) {
        other = races_with(w, mind, lane, own->strong, &cell->reads[i]) ? &cell->reads[i] : NULL;
    }
    return other;
}

/* Who reads by an atomic or volatile access has seen the atomic and volatile writes before it: what
 * he does then is in order behind them. They are forgotten, for others, too, who still race with
 * who read. An atomic is kept as a write alone: what races with its read does so with that. */
static void cell_keep(const struct tow_ptx_warp *w, const struct mind *mind, unsigned lane,
                      struct cell *cell, enum tow_ptx_look look, const uint8_t *value,
                      const struct deed *own)
{
    if (look == LOOK_READ) {
        cell_keep_read(w, mind, lane, cell, own);
    }
    if (look == LOOK_READ && own->strong) {
        cell->writes[true].op = NULL;
    }
    if (look != LOOK_READ) {
        cell->writes[own->strong] = *own;
        cell->valued = value != NULL;
        cell->value = value ? *value : 0;
    }
}

static void race_tell(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                      uint64_t at, uint64_t bytes, enum tow_ptx_look look, const struct cell *cell,
                      const struct deed *other)
{
    const struct tow_ptx_deed_of own = {look == LOOK_READ ? TOW_PTX_DEED_READ : TOW_PTX_DEED_WRITE,
                                        TOW_PTX_PLACE_SHARED, bytes, false};
    enum tow_ptx_deed deed = other < cell->writes + 2 ? TOW_PTX_DEED_WRITE : TOW_PTX_DEED_READ;
    tow_ptx_tell_race(w, o, lane, at, &own, other->op, other->thread, deed);
}

void tow_ptx_race_rows(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t lanes,
                       uint64_t bytes, enum tow_ptx_look look, enum tow_ptx_manner manner,
                       const uint8_t (*values)[RACE_BYTES])
{
    struct tow_ptx_races *races = races_of(w);
    if (!races || manner == MANNER_TOLD) {
        return;
    }
    if (manner == MANNER_ORDERED || manner == MANNER_ATOMIC_ORDERED) {
        lanes_fence(races, w, lanes);
    }
    bool strong = manner != MANNER_PLAIN;
    FOR_LANES(l, lanes)
    {
        if (strong) {
            mind_speaks(races, w, l, look);
        }
        uint64_t at = (uint64_t)(uintptr_t)w->ptr[l] - (uint64_t)(uintptr_t)w->block->shared;
        if (at >= w->block->shared_bytes || bytes > w->block->shared_bytes - at) {
            continue;
        }
        const struct mind *mind = mind_of(races, w, l);
        const struct deed own = {.op = o,
                                 .time = races->now[w->index],
                                 .thread = (uint16_t)(w->index * LANES + l),
                                 .strong = strong};
        bool told = false;
        for (uint64_t i = 0; i < bytes; i++) {
            struct cell *cell = &races->cells[at + i];
            const uint8_t *value = values ? &values[l][i] : NULL;
            bool same = value && cell->valued && *value == cell->value;
            const struct deed *other =
                cell->told ? NULL : cell_touch(w, mind, l, cell, look, same, &own);
            if (other && !told) {
                race_tell(w, o, l, at, bytes, look, cell, other);
                told = true;
            }
            cell->told |= other != NULL;
            cell_keep(w, mind, l, cell, look, value, &own);
        }
    }
}

/* ---- a block begins ---- */

static _Atomic uint64_t taken, limit = UINT64_C(4) << 30; /* bytes: by all blocks, and at most */

void tow_ptx_race_limit(uint64_t bytes)
{
    atomic_store(&limit, bytes);
}

void tow_ptx_races_free(struct tow_ptx_races *races)
{
    if (races) {
        atomic_fetch_sub(&taken, races->bytes);
        free(races->minds);
        free(races->cells);
        free(races);
    }
}

/* NULL: it is too much. */
static struct tow_ptx_races *races_make(uint32_t minds, uint32_t cells)
{
    struct tow_ptx_races *races = calloc(1, sizeof *races);
    if (!races) {
        return NULL;
    }
    races->capacity_minds = minds;
    races->capacity_cells = cells;
    races->bytes = sizeof *races + (uint64_t)minds * sizeof *races->minds +
                   (uint64_t)(cells + 1) * sizeof *races->cells;
    if (atomic_fetch_add(&taken, races->bytes) + races->bytes <= atomic_load(&limit)) {
        races->minds = malloc(minds * sizeof *races->minds);
        races->cells = malloc((cells + 1) * sizeof *races->cells);
    }
    if (!races->minds || !races->cells) {
        tow_ptx_races_free(races);
        return NULL;
    }
    return races;
}

/* Nobody has done anything, and nobody knows anything. */
bool tow_ptx_races_begin(struct tow_ptx_block *block)
{
    uint32_t minds = block->warp_count * LANES, cells = block->shared_bytes;
    struct tow_ptx_races *races = block->races;
    if (!races || races->capacity_minds < minds || races->capacity_cells < cells) {
        tow_ptx_races_free(races);
        block->races = races = races_make(minds, cells);
    }
    if (!races) {
        return false;
    }
    memset(races->minds, 0, minds * sizeof *races->minds);
    memset(races->cells, 0, cells * sizeof *races->cells);
    memset(races->meetings, 0, sizeof races->meetings);
    memset(races->places, 0, sizeof races->places);
    memset(&races->rest, 0, sizeof races->rest);
    memset(races->phases, 0, sizeof races->phases);
    memset(&races->ended, 0, sizeof races->ended);
    for (uint32_t i = 0; i < WARPS; i++) {
        races->now[i] = 1;
    }
    return true;
}
