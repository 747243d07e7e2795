/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory: reservations and what is mapped there. */
#ifndef TOW_SOFT_MEMORY_VMM_H
#define TOW_SOFT_MEMORY_VMM_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/soft/ground/alloc.h"

/* If an address is reserved, the extent of the whole reservation; else they stay as they are. */
void tow_soft_reservation_around(uint64_t address, uint64_t *base, uint64_t *size);
void tow_soft_vmm_fini(void);
/* Whether some was given to other processes, or comes from one. */
bool tow_soft_memories_shared(void);
/* Calls `visit` for all memory objects, mapped or not. */
void tow_soft_memories_each(tow_soft_area_fn *visit, void *user);

#endif
