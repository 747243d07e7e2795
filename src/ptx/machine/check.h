/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that look at how threads meet; see check.c. */
#ifndef TOW_PTX_CHECK_H
#define TOW_PTX_CHECK_H

#include "ptx/machine/machine.h"

tow_ptx_fn tow_ptx_check_mask, tow_ptx_check_bar, tow_ptx_check_end;

static inline bool tow_ptx_checks_sync(const struct tow_ptx_warp *w)
{
    return w->launch->found && w->launch->checks & TOW_PTX_CHECK_SYNC;
}

#endif
