/* SPDX-License-Identifier: Apache-2.0 */
/* Where device memory lives: one big reservation of addresses that ordinary programs and sanitizers
 * leave alone; pages are put behind them on demand. */
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define GIB (UINT64_C(1) << 30)
#define QUARANTINE 256       /* freed ranges that are not handed out again yet, */
#define QUARANTINE_ALL 16384 /* and when checking */

static struct tow_soft_space space; /* guarded by tow_soft.lock, as all of this */
static struct tow_soft_hole quarantine[QUARANTINE_ALL];
static unsigned quarantine_next;
static unsigned quarantine_used; /* so many of them were ever; the rest is untouched */

static void *arena_reserve(uint64_t base, uint64_t size)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (base != 0) {
        flags |= MAP_FIXED_NOREPLACE;
    }
    void *at = mmap((void *)(uintptr_t)base, size, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED) {
        return NULL;
    }
    if (base != 0 && at != (void *)(uintptr_t)base) { /* a kernel that does not know the flag */
        munmap(at, size);
        return NULL;
    }
    return at;
}

int tow_soft_arena_open(uint64_t base, char *why, size_t why_size)
{
#ifndef __SANITIZE_THREAD__
    /* x86-64: programs are at 0x55..., 0x7f..., ASan's heap at 0x50... and 0x60...; arm64: programs
     * at 0xaaaa..., 0xffff..., ASan below 0x2010_0000_0000. The last ones are for 39-bit kernels.
     */
    static const uint64_t bases[] = {0x210000000000, 0x300000000000, 0x400000000000, 0x480000000000,
                                     0x110000000000, 0x2000000000,   0x1000000000};
#endif
    static const uint64_t sizes[] = {1024 * GIB, 256 * GIB, 64 * GIB, 16 * GIB};
    void *at = NULL;
    uint64_t size = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes && at == NULL; s++) {
        size = sizes[s];
        if (base != 0) {
            at = arena_reserve(base, size);
            continue;
        }
#ifdef __SANITIZE_THREAD__
        /* TSan only has shadow memory for where the kernel puts mappings by itself. */
        at = arena_reserve(0, size <= 256 * GIB ? size : 256 * GIB);
        size = size <= 256 * GIB ? size : 256 * GIB;
#else
        for (size_t b = 0; b < sizeof bases / sizeof *bases && at == NULL; b++) {
            at = arena_reserve(bases[b], size);
        }
        if (at == NULL) {
            at = arena_reserve(0, size);
        }
#endif
    }
    if (at == NULL) {
        snprintf(why, why_size,
                 "The software GPU found no free range of addresses for its memory; is a limit on "
                 "virtual memory set (ulimit -v)?");
        return -ENOMEM;
    }
    /* Kept aligned to a block, so that blocks are. */
    uint64_t low = tow_soft_round_up((uint64_t)(uintptr_t)at, TOW_SOFT_BLOCK);
    tow_soft.arena_base = (uint64_t)(uintptr_t)at;
    tow_soft.arena_size = size;
    memset(quarantine, 0, quarantine_used * sizeof *quarantine);
    int rc = tow_soft_space_init(&space, low,
                                 ((uint64_t)(uintptr_t)at + size - low) & ~(TOW_SOFT_BLOCK - 1));
    if (rc != 0) {
        tow_soft_arena_close();
        snprintf(why, why_size, "The software GPU ran out of host memory.");
    }
    return rc;
}

void tow_soft_arena_close(void)
{
    if (tow_soft.arena_size != 0) {
        munmap((void *)(uintptr_t)tow_soft.arena_base, tow_soft.arena_size);
        tow_soft.arena_size = 0;
    }
    tow_soft_space_fini(&space);
}

static void quarantine_flush(void)
{
    for (unsigned i = 0; i < quarantine_used; i++) {
        if (quarantine[i].size != 0) {
            tow_soft_space_give(&space, quarantine[i].base, quarantine[i].size);
            quarantine[i].size = 0;
        }
    }
}

int tow_soft_arena_take(uint64_t size, uint64_t align, uint64_t at, uint64_t *ret_base)
{
    int rc = tow_soft_space_take(&space, size, align, at, ret_base);
    if (rc != 0) {
        quarantine_flush();
        rc = tow_soft_space_take(&space, size, align, at, ret_base);
    }
    return rc;
}

void tow_soft_arena_give(uint64_t base, uint64_t size)
{
    unsigned room = tow_soft_checks_memory() ? QUARANTINE_ALL : QUARANTINE;
    unsigned at = quarantine_next++ % room;
    struct tow_soft_hole *slot = &quarantine[at];
    quarantine_used = at < quarantine_used ? quarantine_used : at + 1;
    if (slot->size != 0) {
        /* On -ENOMEM the range is lost, which only costs addresses. */
        tow_soft_space_give(&space, slot->base, slot->size);
    }
    *slot = (struct tow_soft_hole){base, size};
}

int tow_soft_arena_commit(uint64_t base, uint64_t size, int fd, uint64_t offset)
{
    int flags = MAP_FIXED | MAP_NORESERVE | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    void *at =
        mmap((void *)(uintptr_t)base, size, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
    return at == MAP_FAILED ? -ENOMEM : 0;
}

void tow_soft_arena_decommit(uint64_t base, uint64_t size)
{
    void *at = mmap((void *)(uintptr_t)base, size, PROT_NONE,
                    MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        tow_log(TOW_AREA_SOFT, TOW_LOG_WARN, "cannot give back %llu bytes of memory: %s",
                (unsigned long long)size, strerror(errno));
        madvise((void *)(uintptr_t)base, size, MADV_DONTNEED);
    }
}

bool tow_soft_arena_holds(uint64_t address, uint64_t size)
{
    return address >= tow_soft.arena_base && address - tow_soft.arena_base <= tow_soft.arena_size &&
           tow_soft.arena_size - (address - tow_soft.arena_base) >= size;
}
