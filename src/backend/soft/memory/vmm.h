/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory: reservations and what is mapped there. */
#ifndef TOW_SOFT_MEMORY_VMM_H
#define TOW_SOFT_MEMORY_VMM_H

#include <stdint.h>

/* If an address is reserved, the extent of the whole reservation; else they stay as they are. */
void tow_soft_reservation_around(uint64_t address, uint64_t *base, uint64_t *size);
void tow_soft_vmm_fini(void);

#endif
