/* SPDX-License-Identifier: Apache-2.0 */
/* A bit for each byte of the arena, in a mapping of which only what is used takes memory. */
#include "backend/soft/ground/written.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"
#include "base/bits.h"
#include "ptx/ptx.h"

#define LARGE (UINT64_C(8) << 20) /* bytes of memory: pages of its bits are given back */

static struct tow_ptx_written written; /* bits: owned; NULL unless it was asked for */

/* Kinds of memory whose bits mean something. Of the others only what is copied or filled has any:
 * it is written by ways that are not seen, and may be much that nobody uses. */
static bool is_kind_kept(enum tow_soft_alloc_kind kind)
{
    return kind == TOW_SOFT_MEM_DEVICE || kind == TOW_SOFT_MEM_POOL || kind == TOW_SOFT_MEM_HEAP ||
           kind == TOW_SOFT_MEM_GLOBAL;
}

static bool means_anything(uint64_t address)
{
    struct tow_soft_entry entry;
    return tow_soft_index_reach(address, &entry) && is_kind_kept(tow_soft_meta_kind(entry.meta));
}

static uint64_t written_size(void)
{
    return TOW_BITS_WORDS(tow_soft.arena_size) * sizeof(tow_bits);
}

int tow_soft_written_open(char *why, size_t why_size)
{
    if (!(tow_soft_checks() & TOW_PTX_CHECK_INIT)) {
        return 0;
    }
    void *at = mmap(NULL, written_size(), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        snprintf(why, why_size,
                 "The software GPU found no addresses for what initcheck keeps; is a limit on "
                 "virtual memory set (ulimit -v)?");
        return -ENOMEM;
    }
    written = (struct tow_ptx_written){.low = tow_soft.arena_base,
                                       .bytes = tow_soft.arena_size,
                                       .bits = at,
                                       .means = means_anything};
    return 0;
}

void tow_soft_written_close(void)
{
    if (written.bits != NULL) {
        munmap(written.bits, written_size());
    }
    memset(&written, 0, sizeof written);
}

const struct tow_ptx_written *tow_soft_written(void)
{
    return written.bits != NULL ? &written : NULL;
}

/* Others write the rest by ways that are not seen: the host, other processes, the driver. */
static bool is_followed(const struct tow_soft_alloc *alloc)
{
    return alloc->kind == TOW_SOFT_MEM_DEVICE ||
           (alloc->kind == TOW_SOFT_MEM_POOL && !alloc->in_file);
}

void tow_soft_written_begin(struct tow_soft_alloc *alloc, uint64_t reach)
{
    uint64_t high = alloc->base + alloc->size;
    if (written.bits == NULL || !is_kind_kept(alloc->kind)) {
        return;
    }
    alloc->followed = is_followed(alloc);
    if (alloc->followed) {
        tow_soft_written_none(alloc->base, alloc->size);
    } else {
        tow_soft_written_all(alloc->base, alloc->size);
    }
    tow_soft_written_all(high, reach - high);
}

static bool is_kept(uint64_t address, uint64_t bytes)
{
    return written.bits != NULL && tow_soft_arena_holds(address, bytes);
}

void tow_soft_written_none(uint64_t address, uint64_t bytes)
{
    if (!is_kept(address, bytes)) {
        return;
    }
    /* Whole pages of bits become zeroes that take no memory; the kernel says how large they are. */
    uint64_t at = address - written.low, base = (uintptr_t)written.bits;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t first = tow_soft_round_up(base + (at + 7) / 8, page);
    uint64_t end = (base + (at + bytes) / 8) & ~(page - 1);
    if (bytes < LARGE || end <= first ||
        madvise((uint8_t *)written.bits + (first - base), end - first, MADV_DONTNEED) != 0) {
        tow_bits_clear(written.bits, at, bytes);
        return;
    }
    tow_bits_clear(written.bits, at, (first - base) * 8 - at);
    tow_bits_clear(written.bits, (end - base) * 8, at + bytes - (end - base) * 8);
}

void tow_soft_written_all(uint64_t address, uint64_t bytes)
{
    if (is_kept(address, bytes)) {
        tow_bits_set(written.bits, address - written.low, bytes);
    }
}

void tow_soft_written_copy(uint64_t to, uint64_t from, uint64_t bytes, bool followed)
{
    if (followed && is_kept(to, bytes) && is_kept(from, bytes) && means_anything(from)) {
        tow_bits_copy(written.bits, to - written.low, from - written.low, bytes);
    } else {
        tow_soft_written_all(to, bytes);
    }
}
