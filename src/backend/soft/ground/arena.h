/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: a big reservation from which all memory comes. */
#ifndef TOW_SOFT_GROUND_ARENA_H
#define TOW_SOFT_GROUND_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int tow_soft_arena_open(uint64_t base, char *why, size_t why_size);
void tow_soft_arena_close(void);
int tow_soft_arena_take(uint64_t size, uint64_t align, uint64_t at, uint64_t *ret_base);
void tow_soft_arena_give(uint64_t base, uint64_t size); /* into quarantine first */
int tow_soft_arena_commit(uint64_t base, uint64_t size, int fd, uint64_t offset);
void tow_soft_arena_decommit(uint64_t base, uint64_t size);
bool tow_soft_arena_holds(uint64_t address, uint64_t size);

#endif
