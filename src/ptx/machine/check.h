/* SPDX-License-Identifier: Apache-2.0 */
/* What looks on in modules that were loaded to be checked: at how threads meet (check.c), at which
 * memory was written (check_init.c), at races (check_race.c). */
#ifndef TOW_PTX_CHECK_H
#define TOW_PTX_CHECK_H

#include "ptx/machine/machine.h"

tow_ptx_fn tow_ptx_check_mask, tow_ptx_check_bar, tow_ptx_check_end;

static inline bool tow_ptx_checks_sync(const struct tow_ptx_warp *w)
{
    return w->launch->found && w->launch->checks & TOW_PTX_CHECK_SYNC;
}

static inline bool tow_ptx_checks_init(const struct tow_ptx_warp *w)
{
    return w->launch->found && w->launch->checks & TOW_PTX_CHECK_INIT;
}

/* How a thread accesses memory. */
enum tow_ptx_manner {
    MANNER_PLAIN,
    MANNER_TOLD,           /* a race was looked for before */
    MANNER_STRONG,         /* volatile, relaxed */
    MANNER_ORDERED,        /* acquire, release; mbarriers */
    MANNER_ATOMIC,         /* reads what it writes */
    MANNER_ATOMIC_ORDERED, /* both */
};

/* What an access does with memory. */
enum tow_ptx_look {
    LOOK_READ,
    LOOK_WRITE,
    LOOK_UPDATE, /* reads, then writes */
};
/* In the place of a function of memory.c: they look, too. */
tow_ptx_at_fn *tow_ptx_looking_at(tow_ptx_at_fn *at, enum tow_ptx_manner manner);
tow_ptx_lane_fn *tow_ptx_looking_lane(enum tow_ptx_manner manner);
/* Looks and does nothing else: at the bytes of `lanes` from w->ptr on; at one lane's, at a generic
 * address that may be anything. */
void tow_ptx_look_rows(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t lanes,
                       uint64_t bytes, enum tow_ptx_access access, enum tow_ptx_manner manner);
void tow_ptx_look_lane(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                       uint64_t address, uint64_t bytes, enum tow_ptx_access access,
                       enum tow_ptx_manner manner);

/* ---- races ---- */

/* Behind a barrier's arrival, in front of it, and so on; see there. */
tow_ptx_fn tow_ptx_race_arrive, tow_ptx_race_cluster, tow_ptx_race_leave,
    tow_ptx_race_leave_cluster, tow_ptx_race_end, tow_ptx_race_together, tow_ptx_race_warp,
    tow_ptx_race_fence, tow_ptx_race_guard;

enum { RACE_BYTES = 32 }; /* of the largest access */
/* Lanes access shared memory from w->ptr on. `values`: what they write; NULL: not known. */
void tow_ptx_race_rows(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t lanes,
                       uint64_t bytes, enum tow_ptx_look look, enum tow_ptx_manner manner,
                       const uint8_t (*values)[RACE_BYTES]);
/* false: there is no memory for it, and nothing is found. */
bool tow_ptx_races_begin(struct tow_ptx_block *block);
void tow_ptx_races_free(struct tow_ptx_races *races); /* accepts NULL */

#endif
