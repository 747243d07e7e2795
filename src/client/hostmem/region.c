/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of live allocations, by address and by server. */
#include "client/hostmem/region.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/mutex.h"

enum {
    RANGES_MAX = 256, /* ranges of all servers together */
};

/* Process-wide: addresses are the process's; each region names its context. Sorted by base; regions
 * never overlap, except that reserved ones hold others. */
static struct towc_region *regions, *reserved; /* owned; guarded by lock */
static size_t region_count, region_room, reserved_count, reserved_room;
static uint64_t next_id = 1;
atomic_uint towc_region_visible;
static struct tow_rwlock lock = TOW_RWLOCK(CLIENT_REGIONS);

/* Process-wide: addresses that servers use. Written only while a server is attached, before any of
 * its addresses can be known. */
static struct tow_range ranges[RANGES_MAX];
static bool reserved_here[RANGES_MAX]; /* the range of this number, by us */
static atomic_uint range_count;

/* A second attempt to connect, after one that failed late, finds its ranges reserved by the first.
 */
static bool is_attached(const struct tow_range *range)
{
    for (unsigned i = 0; i < atomic_load(&range_count); i++) {
        if (ranges[i].base == range->base && ranges[i].size == range->size) {
            return true;
        }
    }
    return false;
}

void towc_region_attach(struct towc_link *link)
{
    for (uint32_t i = 0; i < link->welcome.range_count; i++) {
        const struct tow_range *range = &link->welcome.ranges[i];
        unsigned n = atomic_load(&range_count);
        if (n == RANGES_MAX || range->size == 0 || is_attached(range)) {
            continue;
        }
        ranges[n] = *range;
        reserved_here[n] = false;
        if (tow_line_is_in_process(link->line)) {
            atomic_store_explicit(&range_count, n + 1, memory_order_release);
            continue; /* the memory is this process's own */
        }
        void *at = mmap((void *)(uintptr_t)range->base, range->size, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == MAP_FAILED || (uint64_t)(uintptr_t)at != range->base) {
            if (at != MAP_FAILED) {
                munmap(at, range->size);
            }
            tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
                    "addresses 0x%llx to 0x%llx are partly in use here; the program's own memory "
                    "may get there",
                    (unsigned long long)range->base,
                    (unsigned long long)(range->base + range->size));
        } else {
            madvise(at, range->size, MADV_DONTDUMP);
            reserved_here[n] = true;
        }
        atomic_store_explicit(&range_count, n + 1, memory_order_release);
    }
}

bool towc_region_is_reserved_here(uint64_t address)
{
    unsigned n = atomic_load_explicit(&range_count, memory_order_acquire);
    for (unsigned i = 0; i < n; i++) {
        if (address - ranges[i].base < ranges[i].size) {
            return reserved_here[i];
        }
    }
    return false;
}

static bool is_visible(const struct towc_region *region)
{
    return region->kind == TOW_REGION_MANAGED || region->kind == TOW_REGION_HOST ||
           region->kind == TOW_REGION_REGISTERED;
}

static bool in_ranges(uint64_t address)
{
    unsigned n = atomic_load_explicit(&range_count, memory_order_acquire);
    for (unsigned i = 0; i < n; i++) {
        if (address - ranges[i].base < ranges[i].size) {
            return true;
        }
    }
    return false;
}

/* Index of the last region that begins at or before `address`, or -1. */
static ptrdiff_t find_index(const struct towc_region *table, size_t count, uint64_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (ptrdiff_t)low - 1;
}

int towc_region_add(const struct towc_region *region)
{
    int error = 0;
    tow_rwlock_write(&lock);
    bool reserves = region->kind == TOW_REGION_RESERVED;
    struct towc_region **table = reserves ? &reserved : &regions;
    size_t *count = reserves ? &reserved_count : &region_count;
    size_t *space = reserves ? &reserved_room : &region_room;
    if (*count == *space) {
        size_t more = *space == 0 ? 64 : *space * 2;
        struct towc_region *grown = realloc(*table, more * sizeof *grown);
        if (grown == NULL) {
            error = -ENOMEM;
        } else {
            *table = grown;
            *space = more;
        }
    }
    if (error == 0) {
        size_t at = (size_t)(find_index(*table, *count, region->base) + 1);
        memmove(*table + at + 1, *table + at, (*count - at) * sizeof **table);
        (*table)[at] = *region;
        (*table)[at].id = next_id++;
        (*count)++;
        atomic_fetch_add(&towc_region_visible, is_visible(region));
    }
    tow_rwlock_unlock(&lock);
    return error;
}

static struct towc_region *region_holder(struct towc_region *table, size_t count, uint64_t address)
{
    ptrdiff_t at = find_index(table, count, address);
    return at >= 0 && address - table[at].base < table[at].size ? &table[at] : NULL;
}

static struct towc_region *region_lookup(uint64_t address)
{
    struct towc_region *found = region_holder(regions, region_count, address);
    return found != NULL ? found : region_holder(reserved, reserved_count, address);
}

bool towc_region_find(uint64_t address, struct towc_region *ret_region)
{
    tow_rwlock_read(&lock);
    struct towc_region *found = region_lookup(address);
    if (found != NULL) {
        *ret_region = *found;
    }
    tow_rwlock_unlock(&lock);
    return found != NULL;
}

bool towc_region_find_reserved(uint64_t address, struct towc_region *ret_region)
{
    tow_rwlock_read(&lock);
    struct towc_region *found = region_holder(reserved, reserved_count, address);
    if (found != NULL) {
        *ret_region = *found;
    }
    tow_rwlock_unlock(&lock);
    return found != NULL;
}

static bool region_touches(const struct towc_region *table, size_t count, uint64_t base,
                           uint64_t size)
{
    ptrdiff_t at = find_index(table, count, base + size - 1);
    return at >= 0 && (table[at].base >= base || base - table[at].base < table[at].size);
}

bool towc_region_overlaps(uint64_t base, uint64_t size)
{
    tow_rwlock_read(&lock);
    bool found = region_touches(regions, region_count, base, size) ||
                 region_touches(reserved, reserved_count, base, size);
    tow_rwlock_unlock(&lock);
    return found;
}

static bool region_take(struct towc_region *table, size_t *count, uint64_t base, unsigned kinds,
                        struct towc_region *ret_region)
{
    ptrdiff_t at = find_index(table, *count, base);
    if (at < 0 || table[at].base != base || !(kinds & 1u << table[at].kind)) {
        return false;
    }
    if (ret_region != NULL) {
        *ret_region = table[at];
    }
    atomic_fetch_sub(&towc_region_visible, is_visible(&table[at]));
    memmove(table + at, table + at + 1, (*count - (size_t)at - 1) * sizeof *table);
    (*count)--;
    return true;
}

bool towc_region_remove(uint64_t base, unsigned kinds, struct towc_region *ret_region)
{
    tow_rwlock_write(&lock);
    bool found = region_take(regions, &region_count, base, kinds, ret_region) ||
                 region_take(reserved, &reserved_count, base, kinds, ret_region);
    tow_rwlock_unlock(&lock);
    return found;
}

void towc_region_remove_mappings(uint64_t base, uint64_t size)
{
    tow_rwlock_write(&lock);
    size_t kept = 0;
    for (size_t i = 0; i < region_count; i++) {
        if (regions[i].kind != TOW_REGION_VMM || regions[i].base - base >= size) {
            regions[kept++] = regions[i];
        }
    }
    region_count = kept;
    tow_rwlock_unlock(&lock);
}

bool towc_region_edit(uint64_t base, void (*edit)(struct towc_region *region, void *user),
                      void *user)
{
    tow_rwlock_write(&lock);
    struct towc_region *found = region_lookup(base);
    if (found != NULL) {
        edit(found, user);
    }
    tow_rwlock_unlock(&lock);
    return found != NULL;
}

bool towc_region_take_managed(CUcontext context, struct towc_region *ret_region)
{
    bool found = false;
    tow_rwlock_write(&lock);
    for (size_t i = 0; i < region_count && !found; i++) {
        if (regions[i].context == context && regions[i].kind == TOW_REGION_MANAGED) {
            *ret_region = regions[i];
            memmove(&regions[i], &regions[i + 1], (region_count - i - 1) * sizeof *regions);
            region_count--;
            atomic_fetch_sub(&towc_region_visible, 1);
            found = true;
        }
    }
    tow_rwlock_unlock(&lock);
    return found;
}

bool towc_region_unshare(CUcontext context, struct towc_region *ret_region)
{
    bool found = false;
    tow_rwlock_write(&lock);
    for (size_t i = 0; i < region_count && !found; i++) {
        struct towc_region *r = &regions[i];
        if (r->context == context && r->kind == TOW_REGION_REGISTERED && r->shared_high != 0) {
            *ret_region = *r;
            r->shared_low = r->shared_high = 0;
            found = true;
        }
    }
    tow_rwlock_unlock(&lock);
    return found;
}

void towc_region_drop_context(CUcontext context)
{
    const unsigned kinds =
        1u << TOW_REGION_DEVICE | 1u << TOW_REGION_MANAGED | 1u << TOW_REGION_IPC;
    tow_rwlock_write(&lock);
    size_t kept = 0;
    for (size_t i = 0; i < region_count; i++) {
        if (regions[i].context != context || !(kinds & 1u << regions[i].kind)) {
            regions[kept++] = regions[i];
        } else {
            atomic_fetch_sub(&towc_region_visible, is_visible(&regions[i]));
        }
    }
    region_count = kept;
    tow_rwlock_unlock(&lock);
}

bool towc_region_is_device(uint64_t address)
{
    struct towc_region region;
    if (towc_region_find(address, &region)) {
        return !towc_region_is_host(&region);
    }
    return in_ranges(address);
}

/* Whether it may be device memory all through; `region`: that of its first byte, or NULL. */
static bool may_be_device(const struct towc_region *region, uint64_t address, uint64_t size)
{
    if (region == NULL) {
        return in_ranges(address); /* a module's variable: the server knows */
    }
    /* Neighbouring mappings may hold the rest. */
    return region->kind != TOW_REGION_RESERVED &&
           (region->kind == TOW_REGION_VMM || size <= region->size - (address - region->base));
}

CUresult towc_region_check_device(uint64_t address, uint64_t size)
{
    struct towc_region region;
    bool found = towc_region_find(address, &region);
    return may_be_device(found ? &region : NULL, address, size) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

bool towc_region_holds(uint64_t address, uint64_t size)
{
    bool held = false;
    tow_rwlock_read(&lock);
    const struct towc_region *at = region_holder(regions, region_count, address);
    while (at != NULL) {
        uint64_t here = at->size - (address - at->base);
        held = size <= here;
        const struct towc_region *next = at + 1;
        bool goes_on = !held && next < regions + region_count && at->kind == TOW_REGION_VMM &&
                       next->kind == TOW_REGION_VMM && next->base == address + here;
        at = goes_on ? next : NULL;
        address += here;
        size -= here;
    }
    tow_rwlock_unlock(&lock);
    return held;
}

/* How many bytes from `address` on are shared, or are not, as the first is. */
static uint64_t region_alike(const struct towc_region *region, uint64_t address)
{
    uint64_t end = address < region->shared_low    ? region->shared_low
                   : address < region->shared_high ? region->shared_high
                                                   : UINT64_MAX;
    return end - address;
}

void towc_region_look(const struct towc_link *link, uint64_t address, uint64_t size,
                      struct towc_region_view *ret_view)
{
    struct towc_region *region = &ret_view->region;
    bool found = towc_region_find(address, region);
    if (!found) {
        *ret_view = (struct towc_region_view){.device = in_ranges(address), .alike = size};
        return;
    }
    ret_view->device = may_be_device(region, address, size);
    ret_view->visible = is_visible(region);
    ret_view->whole = size <= region->size - (address - region->base);
    ret_view->pinned = ret_view->whole && ret_view->visible && region->kind != TOW_REGION_MANAGED;
    bool lent = link->share != NULL && region->link == link && region->shared_high != 0;
    uint64_t same = lent ? region_alike(region, address) : size;
    ret_view->alike = size < same ? size : same;
    ret_view->shared =
        lent && address >= region->shared_low && address < region->shared_high && size <= same;
}
