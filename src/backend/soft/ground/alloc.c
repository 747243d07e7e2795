/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations: small ones cut from 2 MiB blocks, large ones with pages of their own. */
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/hooks.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/ground/written.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"

#define QUARANTINE 64  /* freed pieces of a block that are not handed out again yet, */
#define QUARANTINE_ALL /* and when checking: all that a block can have */                          \
    (TOW_SOFT_BLOCK / TOW_SOFT_UNIT)
#define HOST_UNIT 65536 /* page-locked memory shares no page with anything else */

struct tow_soft_block {
    struct tow_soft_block *next;
    uint64_t base;
    bool counted; /* holds device memory, which is limited */
    struct tow_soft_space space;
    unsigned live;
    unsigned quarantine_next, quarantine_room;
    struct tow_soft_hole quarantine[]; /* `quarantine_room` */
};

struct tow_soft_retired {
    struct tow_soft_retired *next;
    uint64_t seq;
    void (*run)(void *object, uint64_t a, uint64_t b);
    void *object;
    uint64_t a, b;
};

void tow_soft_retire(void (*run)(void *object, uint64_t a, uint64_t b), void *object, uint64_t a,
                     uint64_t b)
{
    if (tow_soft.running == NULL) {
        run(object, a, b);
        return;
    }
    struct tow_soft_retired *retired = malloc(sizeof *retired);
    if (retired == NULL) {
        tow_log(TOW_AREA_SOFT, TOW_LOG_WARN, "out of host memory: some device memory is lost");
        return;
    }
    *retired = (struct tow_soft_retired){tow_soft.retired, ++tow_soft.seq, run, object, a, b};
    tow_soft.retired = retired;
}

void tow_soft_retire_poll(uint64_t oldest)
{
    struct tow_soft_retired **at = &tow_soft.retired;
    while (*at != NULL) {
        struct tow_soft_retired *retired = *at;
        if (retired->seq < oldest) {
            *at = retired->next;
            retired->run(retired->object, retired->a, retired->b);
            free(retired);
        } else {
            at = &retired->next;
        }
    }
}

static void release_pages(void *object, uint64_t base, uint64_t size)
{
    (void)object;
    tow_soft.hooks->pages_gone(base);
    tow_soft_arena_decommit(base, size);
    tow_soft_arena_give(base, size);
}

static bool is_counted(enum tow_soft_alloc_kind kind)
{
    return kind != TOW_SOFT_MEM_HOST && kind != TOW_SOFT_MEM_MANAGED;
}

static int pages_make(struct tow_soft_device *device, uint64_t size, bool counted,
                      uint64_t *ret_base)
{
    if (counted && (size > device->total || *device->used > device->total - size)) {
        return -ENOMEM;
    }
    uint64_t base;
    int rc = tow_soft_arena_take(size, TOW_SOFT_BLOCK, 0, &base);
    if (rc != 0) {
        return rc;
    }
    rc = tow_soft_arena_commit(base, size, -1, 0);
    if (rc != 0) {
        tow_soft_arena_give(base, size);
        return rc;
    }
    if (counted) {
        *device->used += size;
    }
    *ret_base = base;
    return 0;
}

static void pages_drop(struct tow_soft_device *device, uint64_t base, uint64_t size, bool counted)
{
    if (counted) {
        *device->used -= size;
    }
    tow_soft_retire(release_pages, NULL, base, size);
}

static struct tow_soft_block *alloc_from_blocks(struct tow_soft_device *device, uint64_t size,
                                                uint64_t unit, bool counted, uint64_t *ret_base)
{
    for (struct tow_soft_block *b = device->blocks; b != NULL; b = b->next) {
        if (b->counted == counted && tow_soft_space_take(&b->space, size, unit, 0, ret_base) == 0) {
            return b;
        }
    }
    return NULL;
}

static struct tow_soft_block *alloc_make(struct tow_soft_device *device, uint64_t size,
                                         uint64_t unit, bool counted, uint64_t *ret_base)
{
    struct tow_soft_block *block = alloc_from_blocks(device, size, unit, counted, ret_base);
    if (block != NULL) {
        return block;
    }
    bool flushed = false;
    /* When checking, freed memory stays unused while half of the memory is free. */
    bool keep = tow_soft_checks_memory() && *device->used <= device->total / 2;
    for (struct tow_soft_block *b = keep ? NULL : device->blocks; b != NULL; b = b->next) {
        for (unsigned i = 0; i < b->quarantine_room; i++) {
            if (b->quarantine[i].size != 0) {
                tow_soft_space_give(&b->space, b->quarantine[i].base, b->quarantine[i].size);
                b->quarantine[i].size = 0;
                flushed = true;
            }
        }
    }
    block = flushed ? alloc_from_blocks(device, size, unit, counted, ret_base) : NULL;
    if (block != NULL) {
        return block;
    }
    unsigned room = tow_soft_checks_memory() ? QUARANTINE_ALL : QUARANTINE;
    block = calloc(1, sizeof *block + room * sizeof *block->quarantine);
    if (block == NULL) {
        return NULL;
    }
    block->quarantine_room = room;
    if (pages_make(device, TOW_SOFT_BLOCK, counted, &block->base) != 0) {
        free(block);
        return NULL;
    }
    block->counted = counted;
    if (tow_soft_space_init(&block->space, block->base, TOW_SOFT_BLOCK) != 0 ||
        tow_soft_space_take(&block->space, size, unit, 0, ret_base) != 0) {
        tow_soft_space_fini(&block->space);
        pages_drop(device, block->base, TOW_SOFT_BLOCK, counted);
        free(block);
        return NULL;
    }
    block->next = device->blocks;
    device->blocks = block;
    return block;
}

static void alloc_drop(struct tow_soft_device *device, struct tow_soft_block *block, uint64_t base,
                       uint64_t size)
{
    if (--block->live == 0) {
        struct tow_soft_block **at = &device->blocks;
        while (*at != block) {
            at = &(*at)->next;
        }
        *at = block->next;
        tow_soft_space_fini(&block->space);
        pages_drop(device, block->base, TOW_SOFT_BLOCK, block->counted);
        free(block);
        return;
    }
    struct tow_soft_hole *slot =
        &block->quarantine[block->quarantine_next++ % block->quarantine_room];
    if (slot->size != 0) {
        tow_soft_space_give(&block->space, slot->base, slot->size);
    }
    *slot = (struct tow_soft_hole){base, size};
}

static uint64_t meta_of(const struct tow_soft_alloc *alloc)
{
    switch (alloc->kind) {
    case TOW_SOFT_MEM_HOST:
    case TOW_SOFT_MEM_MANAGED:
        return tow_soft_meta(alloc->kind, 0xffff, 0xffff);
    case TOW_SOFT_MEM_REGISTERED:
        return tow_soft_meta(alloc->kind, 0xffff,
                             alloc->flags & CU_MEMHOSTREGISTER_READ_ONLY ? 0 : 0xffff);
    default:
        return tow_soft_meta(alloc->kind, 1u << alloc->device, 1u << alloc->device);
    }
}

/* Kernels reach the rest of the last unit, as on hardware, so far as it is this allocation's.
 * Memory that somebody else provides has no rest. */
static int index_enter(struct tow_soft_alloc *alloc)
{
    uint64_t high = alloc->base + alloc->size;
    uint64_t end = alloc->base - alloc->lead + alloc->reserved;
    uint64_t reach = tow_soft_round_up(high, TOW_SOFT_UNIT);
    reach = tow_soft_checks_memory() ? high : reach < end ? reach : end;
    struct tow_soft_entry entry = {alloc->base, high, reach > high ? reach : high, meta_of(alloc),
                                   alloc};
    tow_soft_written_begin(alloc, entry.reach);
    return tow_soft_index_add(&entry);
}

int tow_soft_alloc_enter(struct tow_soft_alloc *alloc)
{
    int rc = index_enter(alloc);
    if (rc != 0) {
        return rc;
    }
    alloc->id = ++tow_soft.next_id;
    alloc->number = ++tow_soft.alloc_count;
    alloc->prev = NULL;
    alloc->next = NULL;
    if (alloc->ctx != NULL) {
        alloc->next = alloc->ctx->allocs;
        if (alloc->next != NULL) {
            alloc->next->prev = alloc;
        }
        alloc->ctx->allocs = alloc;
    }
    return 0;
}

CUresult tow_soft_alloc_make(struct tow_soft_ctx *ctx, int device, enum tow_soft_alloc_kind kind,
                             uint64_t size, unsigned flags, struct tow_soft_alloc **ret_alloc)
{
    struct tow_soft_device *owner = &tow_soft.devices[device];
    if (size == 0 || size > tow_soft.arena_size) {
        return size == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct tow_soft_alloc *alloc = calloc(1, sizeof *alloc);
    if (alloc == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alloc->size = size;
    alloc->kind = kind;
    alloc->ctx = ctx;
    alloc->device = device;
    alloc->flags = flags;
    bool counted = is_counted(kind);
    uint64_t unit = kind == TOW_SOFT_MEM_HOST ? HOST_UNIT : TOW_SOFT_UNIT;
    /* When checking, nothing is directly behind an allocation. */
    uint64_t gap = tow_soft_checks_memory() ? TOW_SOFT_UNIT : 0;
    int rc = 0;
    if (size <= TOW_SOFT_BLOCK / 2) {
        alloc->reserved = tow_soft_round_up(size + gap, unit);
        alloc->block = alloc_make(owner, alloc->reserved, unit, counted, &alloc->base);
        if (alloc->block == NULL) {
            rc = -ENOMEM;
        } else {
            alloc->block->live++;
        }
    } else {
        alloc->reserved = tow_soft_round_up(size + gap, TOW_SOFT_BLOCK);
        rc = pages_make(owner, alloc->reserved, counted, &alloc->base);
        if (rc != 0 && gap != 0) { /* a program that wants all of it gets all */
            alloc->reserved = tow_soft_round_up(size, TOW_SOFT_BLOCK);
            rc = pages_make(owner, alloc->reserved, counted, &alloc->base);
        }
    }
    if (rc != 0) {
        free(alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (tow_soft_alloc_enter(alloc) != 0) {
        if (alloc->block != NULL) {
            alloc_drop(owner, alloc->block, alloc->base, alloc->reserved);
        } else {
            pages_drop(owner, alloc->base, alloc->reserved, counted);
        }
        free(alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_alloc = alloc;
    return CUDA_SUCCESS;
}

CUresult tow_soft_alloc_shift(struct tow_soft_alloc *alloc, uint64_t lead)
{
    tow_soft_index_remove(alloc->base, NULL);
    alloc->base += lead;
    alloc->size -= lead;
    alloc->lead = lead;
    return index_enter(alloc) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void tow_soft_alloc_disown(struct tow_soft_alloc *alloc)
{
    if (alloc->ctx != NULL) {
        if (alloc->prev != NULL) {
            alloc->prev->next = alloc->next;
        } else {
            alloc->ctx->allocs = alloc->next;
        }
        if (alloc->next != NULL) {
            alloc->next->prev = alloc->prev;
        }
    }
    alloc->ctx = NULL;
}

void tow_soft_alloc_drop(struct tow_soft_alloc *alloc)
{
    tow_soft_check_freed(alloc);
    tow_soft_index_remove(alloc->base, NULL);
    tow_soft_alloc_disown(alloc);
    struct tow_soft_device *owner = &tow_soft.devices[alloc->device];
    switch (alloc->kind) {
    case TOW_SOFT_MEM_REGISTERED:
    case TOW_SOFT_MEM_VMM: /* the pages belong to whoever entered it */
        break;
    case TOW_SOFT_MEM_IPC:
        alloc->gone(alloc);
        break;
    case TOW_SOFT_MEM_GRAPH:
        owner->graph_used -= alloc->reserved;
        tow_soft_graph_va_unref(alloc->va);
        break;
    default:
        if (alloc->pool != NULL) {
            alloc->gone(alloc);
        }
        if (alloc->block != NULL) {
            alloc_drop(owner, alloc->block, alloc->base, alloc->reserved);
        } else {
            pages_drop(owner, alloc->base - alloc->lead, alloc->reserved,
                       is_counted(alloc->kind) && !alloc->imported);
        }
        break;
    }
    free(alloc);
}

struct tow_soft_alloc *tow_soft_alloc_at(uint64_t address)
{
    struct tow_soft_entry entry;
    return tow_soft_index_find(address, &entry) ? entry.alloc : NULL;
}

bool tow_soft_range_ok(const struct tow_soft_ctx *ctx, uint64_t address, uint64_t size, bool write)
{
    (void)ctx;
    uint64_t end;
    if (__builtin_add_overflow(address, size, &end)) {
        return false;
    }
    while (address < end) {
        struct tow_soft_entry entry;
        if (!tow_soft_index_find(address, &entry)) {
            return false;
        }
        enum tow_soft_alloc_kind kind = tow_soft_meta_kind(entry.meta);
        if (kind == TOW_SOFT_MEM_HEAP || kind == TOW_SOFT_MEM_ARRAY ||
            (write ? entry.meta >> 16 & 0xffff : entry.meta & 0xffff) == 0) {
            return false;
        }
        if (entry.high < end && kind != TOW_SOFT_MEM_VMM) {
            return false;
        }
        address = entry.high;
    }
    return true;
}

bool tow_soft_range_known(uint64_t address)
{
    struct tow_soft_entry entry;
    return tow_soft_index_find(address, &entry);
}

/* ---- memory of graphs
 * ------------------------------------------------------------------------------ */

/* Borrowed: the addresses of allocation nodes while there are references to them. Guarded by the
 * software GPU's lock. */
static struct tow_soft_graph_va *graph_vas;

struct tow_soft_graph_va *tow_soft_graph_va_create(int device, uint64_t size)
{
    struct tow_soft_graph_va *va = calloc(1, sizeof *va);
    if (va == NULL) {
        return NULL;
    }
    va->refs = 1;
    va->device = device;
    va->size = tow_soft_round_up(size, TOW_SOFT_BLOCK);
    if (va->size < size || tow_soft_arena_take(va->size, TOW_SOFT_BLOCK, 0, &va->base) != 0) {
        free(va);
        return NULL;
    }
    va->next = graph_vas;
    graph_vas = va;
    return va;
}

struct tow_soft_graph_va *tow_soft_graph_va_ref(struct tow_soft_graph_va *va)
{
    va->refs++;
    return va;
}

void tow_soft_graph_va_unref(struct tow_soft_graph_va *va)
{
    if (va == NULL || --va->refs != 0) {
        return;
    }
    struct tow_soft_graph_va **at = &graph_vas;
    while (*at != va) {
        at = &(*at)->next;
    }
    *at = va->next;
    if (va->committed) {
        pages_drop(&tow_soft.devices[va->device], va->base, va->size, true);
    } else {
        tow_soft_arena_give(va->base, va->size);
    }
    free(va);
}

struct tow_soft_graph_va *tow_soft_graph_va_at(uint64_t base)
{
    struct tow_soft_graph_va *va = graph_vas;
    while (va != NULL && va->base != base) {
        va = va->next;
    }
    return va;
}

bool tow_soft_graph_range_ok(uint64_t address, uint64_t size, bool write)
{
    if (tow_soft_range_ok(NULL, address, size, write)) {
        return true;
    }
    for (const struct tow_soft_graph_va *va = graph_vas; va != NULL; va = va->next) {
        if (address >= va->base && address - va->base < va->size &&
            size <= va->size - (address - va->base)) {
            return true;
        }
    }
    return false;
}

CUresult tow_soft_graph_va_commit(struct tow_soft_graph_va *va)
{
    struct tow_soft_device *device = &tow_soft.devices[va->device];
    if (va->committed) {
        return CUDA_SUCCESS;
    }
    if (va->size > device->total || *device->used > device->total - va->size ||
        tow_soft_arena_commit(va->base, va->size, -1, 0) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *device->used += va->size;
    va->committed = true;
    return CUDA_SUCCESS;
}

/* ---- all of it ---- */

/* Of those that have pages of their own: blocks and addresses of graphs come apart. */
static bool has_pages(const struct tow_soft_alloc *alloc)
{
    switch (alloc->kind) {
    case TOW_SOFT_MEM_DEVICE:
    case TOW_SOFT_MEM_GLOBAL:
    case TOW_SOFT_MEM_POOL:
    case TOW_SOFT_MEM_ARRAY:
        return alloc->block == NULL && !alloc->in_file;
    default:
        return false;
    }
}

static void visit_pages(tow_soft_area_fn *visit, void *user, int device, uint64_t base,
                        uint64_t size)
{
    const struct tow_soft_area area = {.device = device, .base = base, .size = size, .fd = -1};
    visit(user, &area);
}

static void visit_heap(tow_soft_area_fn *visit, void *user, const struct tow_soft_ctx *ctx)
{
    if (ctx != NULL && ctx->heap_base != 0) {
        visit_pages(visit, user, ctx->device->ordinal, ctx->heap_base, ctx->heap_size);
    }
}

void tow_soft_pages_each(tow_soft_area_fn *visit, void *user)
{
    struct tow_soft_entry entry = {.low = 0};
    for (unsigned i = 0; i < tow_soft.device_count; i++) {
        visit_heap(visit, user, tow_soft.devices[i].primary);
        for (const struct tow_soft_block *b = tow_soft.devices[i].blocks; b != NULL; b = b->next) {
            if (b->counted) {
                visit_pages(visit, user, (int)i, b->base, TOW_SOFT_BLOCK);
            }
        }
    }
    for (const struct tow_soft_ctx *ctx = tow_soft.contexts; ctx != NULL; ctx = ctx->next) {
        visit_heap(visit, user, ctx);
    }
    for (const struct tow_soft_graph_va *va = graph_vas; va != NULL; va = va->next) {
        if (va->committed) {
            visit_pages(visit, user, va->device, va->base, va->size);
        }
    }
    for (uint64_t at = 0; tow_soft_index_next(at, &entry); at = entry.low + 1) {
        const struct tow_soft_alloc *alloc = entry.alloc;
        if (alloc != NULL && has_pages(alloc)) {
            visit_pages(visit, user, alloc->device, alloc->base - alloc->lead, alloc->reserved);
        }
    }
}

/* ---- device malloc
 * ------------------------------------------------------------------------------- */

uint64_t tow_soft_heap_alloc(struct tow_soft_ctx *ctx, uint64_t bytes)
{
    if (bytes == 0 || bytes > (UINT64_C(1) << 40)) {
        return 0;
    }
    tow_mutex_lock(&ctx->heap_lock);
    if (ctx->heap_base == 0) {
        /* The arena is guarded by the big lock, which comes before this one. */
        tow_mutex_unlock(&ctx->heap_lock);
        tow_mutex_lock(&tow_soft.lock);
        uint64_t size = tow_soft_round_up(ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE], TOW_SOFT_BLOCK);
        uint64_t base = 0;
        int rc = pages_make(ctx->device, size, true, &base);
        tow_mutex_lock(&ctx->heap_lock);
        if (rc == 0 && ctx->heap_base == 0 && tow_soft_space_init(&ctx->heap, base, size) == 0) {
            ctx->heap_base = base;
            ctx->heap_size = size;
        } else if (rc == 0) {
            pages_drop(ctx->device, base, size, true);
        }
        tow_mutex_unlock(&tow_soft.lock);
        if (ctx->heap_base == 0) {
            tow_mutex_unlock(&ctx->heap_lock);
            return 0;
        }
    }
    uint64_t base = 0;
    if (tow_soft_space_take(&ctx->heap, tow_soft_round_up(bytes, 16), 16, 0, &base) == 0) {
        uint32_t bit = 1u << ctx->device->ordinal;
        struct tow_soft_entry entry = {base, base + bytes, base + tow_soft_round_up(bytes, 16),
                                       tow_soft_meta(TOW_SOFT_MEM_HEAP, bit, bit), NULL};
        tow_soft_written_none(base, bytes);
        tow_soft_written_all(entry.high, entry.reach - entry.high);
        if (tow_soft_index_add(&entry) != 0) {
            tow_soft_space_give(&ctx->heap, base, tow_soft_round_up(bytes, 16));
            base = 0;
        }
    }
    tow_mutex_unlock(&ctx->heap_lock);
    return base;
}

int tow_soft_heap_free(struct tow_soft_ctx *ctx, uint64_t address)
{
    if (address == 0) {
        return 0;
    }
    int rc = -EINVAL;
    tow_mutex_lock(&ctx->heap_lock);
    if (address >= ctx->heap_base && address - ctx->heap_base < ctx->heap_size) {
        struct tow_soft_entry entry;
        if (tow_soft_index_remove(address, &entry)) {
            tow_soft_space_give(&ctx->heap, address, tow_soft_round_up(entry.high - entry.low, 16));
            rc = 0;
        }
    }
    tow_mutex_unlock(&ctx->heap_lock);
    return rc;
}

void tow_soft_heap_fini(struct tow_soft_ctx *ctx)
{
    if (ctx->heap_base == 0) {
        return;
    }
    struct tow_soft_entry entry;
    /* What kernels never freed goes with the context. */
    for (uint64_t at = ctx->heap_base; at < ctx->heap_base + ctx->heap_size;) {
        if (tow_soft_index_find(at, &entry)) {
            tow_soft_index_remove(entry.low, NULL);
            at = tow_soft_round_up(entry.high, 16);
            continue;
        }
        /* Skip the hole that begins here. */
        uint64_t next = at + 16;
        for (size_t i = 0; i < ctx->heap.count; i++) {
            if (ctx->heap.holes[i].base <= at &&
                at < ctx->heap.holes[i].base + ctx->heap.holes[i].size) {
                next = ctx->heap.holes[i].base + ctx->heap.holes[i].size;
                break;
            }
        }
        at = next;
    }
    tow_soft_space_fini(&ctx->heap);
    pages_drop(ctx->device, ctx->heap_base, ctx->heap_size, true);
    ctx->heap_base = 0;
}
