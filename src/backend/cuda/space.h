/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses the real driver uses for one session's server. A program may use several servers;
 * an address must then mean one thing, so each server has a slot of its own. */
#ifndef TOW_BACKEND_CUDA_SPACE_H
#define TOW_BACKEND_CUDA_SPACE_H

#include <stdint.h>

#include "backend/backend.h"

/* Before the driver starts: takes away all that slots below `slot` may use. The driver looks for
 * free space bottom-up, so its memory comes to lie in its slot. */
void tow_space_fill(uint64_t slot);
/* The ranges of a slot, as many as are known in this process's layout. */
unsigned tow_space_ranges(uint64_t slot, struct tow_backend_range ret_ranges[2]);

#endif
