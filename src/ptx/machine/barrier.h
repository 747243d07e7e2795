/* SPDX-License-Identifier: Apache-2.0 */
/* Barrier operations; the decoder picks among them. */
#ifndef TOW_PTX_BARRIER_H
#define TOW_PTX_BARRIER_H

#include "ptx/machine/lanes.h"

enum {
    BAR_NONE,
    BAR_POPC,
    BAR_AND,
    BAR_OR,
};
#define BAR_ARRIVE 1u

tow_ptx_fn tow_ptx_bar, tow_ptx_bar_warp, tow_ptx_bar_warp_fixed, tow_ptx_cluster_arrive,
    tow_ptx_cluster_wait;

#endif
