/* SPDX-License-Identifier: Apache-2.0 */
/* The index of live memory: what an address belongs to. */
#ifndef TOW_SOFT_GROUND_INDEX_H
#define TOW_SOFT_GROUND_INDEX_H

#include <stdbool.h>
#include <stdint.h>

struct tow_soft_alloc;

enum tow_soft_alloc_kind {
    TOW_SOFT_MEM_DEVICE,     /* cuMemAlloc */
    TOW_SOFT_MEM_GLOBAL,     /* a module's variable */
    TOW_SOFT_MEM_MANAGED,    /* cuMemAllocManaged, __managed__ */
    TOW_SOFT_MEM_HOST,       /* cuMemHostAlloc */
    TOW_SOFT_MEM_REGISTERED, /* cuMemHostRegister */
    TOW_SOFT_MEM_POOL,       /* stream-ordered */
    TOW_SOFT_MEM_GRAPH,      /* a graph's allocation node */
    TOW_SOFT_MEM_VMM,        /* cuMemMap */
    TOW_SOFT_MEM_ARRAY,      /* behind a CUarray: kernels reach it through textures only */
    TOW_SOFT_MEM_HEAP,       /* device malloc */
    TOW_SOFT_MEM_IPC,        /* another process's */
};

/* What an address belongs to. */
struct tow_soft_entry {
    uint64_t low, high;
    uint64_t reach; /* kernels may go so far: `high` or more, and nothing of another's */
    uint64_t meta;  /* read mask 0-15, write mask 16-31 (bits are devices), alloc kind 32-39 */
    struct tow_soft_alloc *alloc; /* NULL for device malloc */
};

/* The index of live memory: readers (kernels) take no lock. Unlocked, all of them. */
int tow_soft_index_init(void);
void tow_soft_index_fini(void);
int tow_soft_index_add(const struct tow_soft_entry *entry);
/* Removes the entry that begins at `low`; false if there is none. */
bool tow_soft_index_remove(uint64_t low, struct tow_soft_entry *ret_entry);
bool tow_soft_index_find(uint64_t address, struct tow_soft_entry *ret_entry);
/* The same for a kernel's access, which may also be in the padding behind. */
bool tow_soft_index_reach(uint64_t address, struct tow_soft_entry *ret_entry);
/* The last entry that ends at `address` or below. */
bool tow_soft_index_before(uint64_t address, struct tow_soft_entry *ret_entry);
/* The first entry that begins at `from` or above. */
bool tow_soft_index_next(uint64_t from, struct tow_soft_entry *ret_entry);
/* Changes the masks of the entry at `low`. */
void tow_soft_index_set_meta(uint64_t low, uint64_t meta);
/* True if any entry overlaps [base, base + size). */
bool tow_soft_index_overlaps(uint64_t base, uint64_t size);

static inline uint64_t tow_soft_meta(enum tow_soft_alloc_kind kind, uint32_t read, uint32_t write)
{
    return (read & 0xffff) | (uint64_t)(write & 0xffff) << 16 | (uint64_t)kind << 32;
}

static inline enum tow_soft_alloc_kind tow_soft_meta_kind(uint64_t meta)
{
    return (enum tow_soft_alloc_kind)(meta >> 32 & 0xff);
}

#endif
