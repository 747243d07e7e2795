/* SPDX-License-Identifier: Apache-2.0 */
/* For `towline check --tool initcheck`: which bytes of device memory somebody has written, a bit
 * each. Nothing here does anything unless that is asked for. Unlocked, but for what opens, closes
 * and begins. */
#ifndef TOW_SOFT_GROUND_WRITTEN_H
#define TOW_SOFT_GROUND_WRITTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tow_ptx_written;
struct tow_soft_alloc;

/* Behind the arena: an eighth of its addresses, of which only what is used takes memory. */
int tow_soft_written_open(char *why, size_t why_size);
void tow_soft_written_close(void);
/* For launches; NULL where nobody asked. */
const struct tow_ptx_written *tow_soft_written(void);

/* Memory is made: what others than kernels, copies and fills write counts as written, and so does
 * what is behind it up to `reach`. */
void tow_soft_written_begin(struct tow_soft_alloc *alloc, uint64_t reach);
/* The same for a piece that a kernel has allocated: nobody wrote it. */
void tow_soft_written_none(uint64_t address, uint64_t bytes);
/* It is written. */
void tow_soft_written_all(uint64_t address, uint64_t bytes);
/* It becomes a copy, of memory of any kind; `followed`: its allocation is. */
void tow_soft_written_copy(uint64_t to, uint64_t from, uint64_t bytes, bool followed);

#endif
