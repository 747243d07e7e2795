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

/* Sorted by base; no two of a table overlap. */
struct table {
    struct towc_region *at; /* owned */
    size_t count, room;
};

/* Process-wide: addresses are the process's; each region names its context. */
static struct {
    struct tow_rwlock lock; /* guards all below */
    struct table live;
    struct table reserved; /* they hold live ones */
    uint64_t next_id;
} map = {.lock = TOW_RWLOCK(CLIENT_REGIONS), .next_id = 1};
atomic_uint towc_region_visible;

/* Process-wide: addresses that servers use. Written only while a server is attached, before any of
 * its addresses can be known. */
static struct tow_range ranges[RANGES_MAX];
static bool reserved_here[RANGES_MAX];   /* the range of this number, by us */
static unsigned range_links[RANGES_MAX]; /* the number of the server that uses it */
static atomic_uint range_count;

/* A second attempt to connect, after one that failed late, finds its ranges reserved by the first.
 */
static bool is_attached(const struct tow_range *range, unsigned link)
{
    for (unsigned i = 0; i < atomic_load(&range_count); i++) {
        if (ranges[i].base == range->base && ranges[i].size == range->size) {
            range_links[i] = link;
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
        if (n == RANGES_MAX || range->size == 0 || is_attached(range, link->index)) {
            continue;
        }
        ranges[n] = *range;
        reserved_here[n] = false;
        range_links[n] = link->index;
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

bool towc_region_is_reserved_here(const struct towc_link *link, uint64_t base, uint64_t size)
{
    unsigned n = atomic_load_explicit(&range_count, memory_order_acquire);
    for (unsigned i = 0; i < n; i++) {
        uint64_t offset = base - ranges[i].base;
        if (offset < ranges[i].size) {
            return reserved_here[i] && range_links[i] == link->index &&
                   size <= ranges[i].size - offset;
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
static ptrdiff_t find_index(const struct table *table, uint64_t address)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table->at[middle].base <= address) {
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
    tow_rwlock_write(&map.lock);
    struct table *table = region->kind == TOW_REGION_RESERVED ? &map.reserved : &map.live;
    if (table->count == table->room) {
        size_t more = table->room == 0 ? 64 : table->room * 2;
        struct towc_region *grown = realloc(table->at, more * sizeof *grown);
        if (grown == NULL) {
            error = -ENOMEM;
        } else {
            table->at = grown;
            table->room = more;
        }
    }
    if (error == 0) {
        size_t index = (size_t)(find_index(table, region->base) + 1);
        struct towc_region *at = table->at + index;
        memmove(at + 1, at, (table->count - index) * sizeof *at);
        *at = *region;
        at->id = map.next_id++;
        table->count++;
        atomic_fetch_add(&towc_region_visible, is_visible(region));
    }
    tow_rwlock_unlock(&map.lock);
    return error;
}

static struct towc_region *region_holder(const struct table *table, uint64_t address)
{
    ptrdiff_t i = find_index(table, address);
    return i >= 0 && address - table->at[i].base < table->at[i].size ? &table->at[i] : NULL;
}

static struct towc_region *region_lookup(uint64_t address)
{
    struct towc_region *found = region_holder(&map.live, address);
    return found != NULL ? found : region_holder(&map.reserved, address);
}

bool towc_region_find(uint64_t address, struct towc_region *ret_region)
{
    tow_rwlock_read(&map.lock);
    struct towc_region *found = region_lookup(address);
    if (found != NULL) {
        *ret_region = *found;
    }
    tow_rwlock_unlock(&map.lock);
    return found != NULL;
}

bool towc_region_find_reserved(uint64_t address, struct towc_region *ret_region)
{
    tow_rwlock_read(&map.lock);
    struct towc_region *found = region_holder(&map.reserved, address);
    if (found != NULL) {
        *ret_region = *found;
    }
    tow_rwlock_unlock(&map.lock);
    return found != NULL;
}

static bool region_touches(const struct table *table, uint64_t base, uint64_t size)
{
    ptrdiff_t i = find_index(table, base + size - 1);
    return i >= 0 && (table->at[i].base >= base || base - table->at[i].base < table->at[i].size);
}

bool towc_region_overlaps(uint64_t base, uint64_t size)
{
    tow_rwlock_read(&map.lock);
    bool found = region_touches(&map.live, base, size) || region_touches(&map.reserved, base, size);
    tow_rwlock_unlock(&map.lock);
    return found;
}

/* With the lock held. */
static void region_erase(struct table *table, size_t index)
{
    struct towc_region *at = table->at + index;
    atomic_fetch_sub(&towc_region_visible, is_visible(at));
    memmove(at, at + 1, (table->count - index - 1) * sizeof *at);
    table->count--;
}

static bool region_take(struct table *table, uint64_t base, unsigned kinds,
                        struct towc_region *ret_region)
{
    ptrdiff_t i = find_index(table, base);
    if (i < 0 || table->at[i].base != base || !(kinds & 1u << table->at[i].kind)) {
        return false;
    }
    if (ret_region != NULL) {
        *ret_region = table->at[i];
    }
    region_erase(table, (size_t)i);
    return true;
}

bool towc_region_remove(uint64_t base, unsigned kinds, struct towc_region *ret_region)
{
    tow_rwlock_write(&map.lock);
    bool found = region_take(&map.live, base, kinds, ret_region) ||
                 region_take(&map.reserved, base, kinds, ret_region);
    tow_rwlock_unlock(&map.lock);
    return found;
}

void towc_region_remove_mappings(uint64_t base, uint64_t size)
{
    tow_rwlock_write(&map.lock);
    size_t kept = 0;
    for (size_t i = 0; i < map.live.count; i++) {
        if (map.live.at[i].kind != TOW_REGION_VMM || map.live.at[i].base - base >= size) {
            map.live.at[kept++] = map.live.at[i];
        }
    }
    map.live.count = kept;
    tow_rwlock_unlock(&map.lock);
}

bool towc_region_edit(uint64_t base, void (*edit)(struct towc_region *region, void *user),
                      void *user)
{
    tow_rwlock_write(&map.lock);
    struct towc_region *found = region_lookup(base);
    if (found != NULL) {
        edit(found, user);
    }
    tow_rwlock_unlock(&map.lock);
    return found != NULL;
}

bool towc_region_take_managed(CUcontext context, struct towc_region *ret_region)
{
    bool found = false;
    tow_rwlock_write(&map.lock);
    for (size_t i = 0; i < map.live.count && !found; i++) {
        if (map.live.at[i].context == context && map.live.at[i].kind == TOW_REGION_MANAGED) {
            *ret_region = map.live.at[i];
            region_erase(&map.live, i);
            found = true;
        }
    }
    tow_rwlock_unlock(&map.lock);
    return found;
}

bool towc_region_unshare(CUcontext context, struct towc_region *ret_region)
{
    bool found = false;
    tow_rwlock_write(&map.lock);
    for (size_t i = 0; i < map.live.count && !found; i++) {
        struct towc_region *r = &map.live.at[i];
        if (r->context == context && r->kind == TOW_REGION_REGISTERED && r->shared_high != 0) {
            *ret_region = *r;
            r->shared_low = r->shared_high = 0;
            found = true;
        }
    }
    tow_rwlock_unlock(&map.lock);
    return found;
}

void towc_region_drop_context(CUcontext context)
{
    const unsigned kinds =
        1u << TOW_REGION_DEVICE | 1u << TOW_REGION_MANAGED | 1u << TOW_REGION_IPC;
    tow_rwlock_write(&map.lock);
    size_t kept = 0;
    for (size_t i = 0; i < map.live.count; i++) {
        if (map.live.at[i].context != context || !(kinds & 1u << map.live.at[i].kind)) {
            map.live.at[kept++] = map.live.at[i];
        } else {
            atomic_fetch_sub(&towc_region_visible, is_visible(&map.live.at[i]));
        }
    }
    map.live.count = kept;
    tow_rwlock_unlock(&map.lock);
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
    tow_rwlock_read(&map.lock);
    const struct towc_region *at = region_holder(&map.live, address);
    while (at != NULL) {
        uint64_t here = at->size - (address - at->base);
        held = size <= here;
        const struct towc_region *next = at + 1;
        bool goes_on = !held && next < map.live.at + map.live.count && at->kind == TOW_REGION_VMM &&
                       next->kind == TOW_REGION_VMM && next->base == address + here;
        at = goes_on ? next : NULL;
        address += here;
        size -= here;
    }
    tow_rwlock_unlock(&map.lock);
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
