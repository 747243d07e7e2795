/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that look at how threads meet, see check.c; what looks at which memory was written,
 * see check_init.c. */
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

/* The first operation of a kernel. */
tow_ptx_fn tow_ptx_check_begin;

/* What an access does with memory. */
enum tow_ptx_look {
    LOOK_READ,
    LOOK_WRITE,
    LOOK_UPDATE, /* reads, then writes */
};
/* In the place of a function of memory.c: they look, too. `updates`: what writes also reads. */
tow_ptx_at_fn *tow_ptx_looking_at(tow_ptx_at_fn *at, bool updates);
tow_ptx_lane_fn *tow_ptx_looking_lane(bool updates);
/* Looks and does nothing else: at the bytes of `lanes` from w->ptr on; at one lane's, at a generic
 * address that may be anything. */
void tow_ptx_look_rows(struct tow_ptx_warp *w, const struct tow_ptx_op *o, uint32_t lanes,
                       uint64_t bytes, enum tow_ptx_look look);
void tow_ptx_look_lane(struct tow_ptx_warp *w, const struct tow_ptx_op *o, unsigned lane,
                       uint64_t address, uint64_t bytes, enum tow_ptx_look look);

#endif
