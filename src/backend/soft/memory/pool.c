/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools and stream-ordered allocation.
 *
 * The address is given out and usable at once, as CUDA allows (a later op in the stream uses it); a
 * free takes effect when its stream reaches it. Released memory goes back to the device at once, so
 * a pool reserves what it uses and no more.
 *
 * A pool that can be exported is a memory file as large as the device (sparse); its allocations are
 * parts of the file, in whole blocks. A worker that imports the pool maps the parts it is told of.
 */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/pool.h"
#include "backend/soft/memory/shareable.h"
#include "gen/pool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT_MAGIC "towlptr1"

/* What the 64 bytes of a CUmemPoolPtrExportData are. */
struct export_data {
    char magic[8];
    uint64_t key[2]; /* the pool's */
    uint64_t offset, size;
    uint64_t zero[3];
};
_Static_assert(sizeof(struct export_data) == sizeof(CUmemPoolPtrExportData), "it has 64 bytes");

struct tow_soft_pool {
    struct tow_soft_object object;
    struct tow_soft_pool *next;
    int device;
    bool is_default;
    bool destroyed; /* freed when the last allocation goes */
    CUmemPoolProps props;
    uint64_t used, used_high, threshold;
    uint64_t reserved, reserved_high; /* as a driver would that keeps up to the threshold */
    uint64_t max_size;                /* 0: no limit of its own */
    uint32_t access;                  /* devices */
    unsigned live;
    int reuse[3];
    int fd; /* owned; -1 for a pool that is no file */
    struct tow_soft_file file;
    struct tow_soft_space parts; /* free ones of the file */
    bool imported;               /* nothing can be allocated */
    bool given;                  /* others may have its file */
};

static struct tow_soft_pool *pools; /* all of them; guarded by tow_soft.lock */

struct tow_soft_pool *tow_soft_pool_create(int device, bool is_default)
{
    struct tow_soft_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL || tow_soft_object_add(&pool->object, TOW_SOFT_POOL, NULL) != 0) {
        free(pool);
        return NULL;
    }
    pool->fd = -1;
    pool->device = device;
    pool->is_default = is_default;
    pool->access = 1u << device;
    pool->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool->props.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
    pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
    pool->next = pools;
    pools = pool;
    return pool;
}

uint64_t tow_soft_pool_handle(const struct tow_soft_pool *pool)
{
    return pool->object.handle;
}

static void pool_free(struct tow_soft_pool *pool)
{
    struct tow_soft_pool **at = &pools;
    while (*at != pool) {
        at = &(*at)->next;
    }
    *at = pool->next;
    tow_soft_object_remove(&pool->object);
    if (pool->fd >= 0) {
        close(pool->fd);
    }
    tow_soft_space_fini(&pool->parts);
    free(pool);
}

/* What is not in use goes back, down to `keep` bytes. */
static void pool_release(struct tow_soft_pool *pool, uint64_t keep)
{
    uint64_t least = pool->used > keep ? pool->used : keep;
    pool->reserved = pool->reserved < least ? pool->reserved : least;
}

/* One of its allocations goes, and a pool that was destroyed goes with its last. */
static void pool_released(struct tow_soft_alloc *alloc)
{
    struct tow_soft_pool *pool = alloc->pool;
    if (pool->fd >= 0 && !pool->imported) {
        fallocate(pool->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)alloc->file_offset,
                  (off_t)alloc->reserved);
        tow_soft_space_give(&pool->parts, alloc->file_offset, alloc->reserved);
    }
    pool->used -= alloc->reserved;
    pool_release(pool, pool->threshold);
    pool->live--;
    if (pool->destroyed && pool->live == 0) {
        pool_free(pool);
    }
}

void tow_soft_pools_fini(void)
{
    while (pools != NULL) {
        pool_free(pools);
    }
}

static struct tow_soft_pool *pool_lookup(CUmemoryPool handle)
{
    return tow_soft_lookup(TOW_SOFT_POOL, TOW_SOFT_HANDLE(handle));
}

static CUresult enter_pool(CUmemoryPool handle, struct tow_soft_pool **ret_pool)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_pool = pool_lookup(handle);
    return *ret_pool != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult enter_device(CUdevice dev, struct tow_soft_device **ret_device)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_device = tow_soft_device_of(dev);
    return *ret_device != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_DEVICE);
}

static CUresult soft_cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    struct tow_soft_device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pool_out == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pool_out = TOW_SOFT_POINTER(device->default_pool->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    struct tow_soft_device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pool == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pool = TOW_SOFT_POINTER(device->pool->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle)
{
    struct tow_soft_device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_pool *pool = pool_lookup(handle);
    if (pool == NULL || pool->device != device->ordinal || pool->imported) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    device->pool = pool;
    return tow_soft_leave(CUDA_SUCCESS);
}

static bool location_is_device(const CUmemLocation *location)
{
    return location != NULL && location->type == CU_MEM_LOCATION_TYPE_DEVICE;
}

static CUresult soft_cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                            CUmemAllocationType type)
{
    if (!location_is_device(location) || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return location == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    }
    return soft_cuDeviceGetDefaultMemPool(pool_out, location->id);
}

static CUresult soft_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                     CUmemAllocationType type)
{
    if (!location_is_device(location) || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return location == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    }
    return soft_cuDeviceGetMemPool(pool, location->id);
}

static CUresult soft_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                     CUmemoryPool pool)
{
    if (!location_is_device(location) || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return location == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    }
    return soft_cuDeviceSetMemPool(location->id, pool);
}

static CUresult soft_cuMemPoolCreate(CUmemoryPool *ret_pool, const CUmemPoolProps *poolProps)
{
    if (ret_pool == NULL || poolProps == NULL ||
        poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (poolProps->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct tow_soft_device *device;
    CUresult result = enter_device(poolProps->location.id, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_pool *pool = tow_soft_pool_create(device->ordinal, false);
    if (pool == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    pool->props = *poolProps;
    pool->max_size = poolProps->maxSize;
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        uint64_t size = device->total & ~(TOW_SOFT_BLOCK - 1);
        pool->fd = tow_soft_file_make(TOW_SOFT_FILE_POOL, device->ordinal, size, &pool->file);
        if (pool->fd < 0 || tow_soft_space_init(&pool->parts, 0, size) != 0) {
            pool_free(pool);
            return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    *ret_pool = TOW_SOFT_POINTER(pool->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemPoolDestroy(CUmemoryPool handle)
{
    struct tow_soft_pool *pool;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_device *device = &tow_soft.devices[pool->device];
    if (pool->is_default) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (device->pool == pool) {
        device->pool = device->default_pool;
    }
    tow_soft_object_remove(&pool->object);
    pool->destroyed = true;
    if (pool->live == 0) {
        pool_free(pool);
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemPoolTrimTo(CUmemoryPool handle, size_t minBytesToKeep)
{
    struct tow_soft_pool *pool;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pool_release(pool, minBytesToKeep);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr,
                                           void *value)
{
    struct tow_soft_pool *pool;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (value == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    uint64_t number;
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        memcpy(&pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], value,
               sizeof(int));
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        memcpy(&pool->threshold, value, sizeof pool->threshold);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        memcpy(&number, value, sizeof number);
        if (number != 0) {
            result = CUDA_ERROR_INVALID_VALUE; /* only a reset is possible */
        } else if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
            pool->used_high = pool->used;
        } else {
            pool->reserved_high = pool->reserved;
        }
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
        break;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr,
                                           void *value)
{
    struct tow_soft_pool *pool;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (value == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        memcpy(value, &pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES],
               sizeof(int));
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        memcpy(value, &pool->threshold, sizeof pool->threshold);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        memcpy(value, &pool->reserved, sizeof pool->reserved);
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        memcpy(value, &pool->used, sizeof pool->used);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        memcpy(value, &pool->reserved_high, sizeof pool->reserved_high);
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        memcpy(value, &pool->used_high, sizeof pool->used_high);
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
        break;
    }
    return tow_soft_leave(result);
}

static void apply_access(struct tow_soft_pool *pool)
{
    for (struct tow_soft_ctx *ctx = tow_soft.contexts; ctx != NULL; ctx = ctx->next) {
        for (struct tow_soft_alloc *a = ctx->allocs; a != NULL; a = a->next) {
            if (a->pool == pool) {
                tow_soft_index_set_meta(a->base,
                                        tow_soft_meta(a->kind, pool->access, pool->access));
            }
        }
    }
    for (unsigned i = 0; i < tow_soft.device_count; i++) {
        for (struct tow_soft_alloc *a = tow_soft.devices[i].primary->allocs; a != NULL;
             a = a->next) {
            if (a->pool == pool) {
                tow_soft_index_set_meta(a->base,
                                        tow_soft_meta(a->kind, pool->access, pool->access));
            }
        }
    }
}

static CUresult soft_cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *map,
                                        size_t count)
{
    struct tow_soft_pool *pool;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (size_t i = 0; i < count; i++) {
        if (map == NULL || map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            tow_soft_device_of(map[i].location.id) == NULL) {
            return tow_soft_leave(map == NULL ? CUDA_ERROR_INVALID_VALUE
                                              : CUDA_ERROR_INVALID_DEVICE);
        }
        uint32_t bit = 1u << map[i].location.id;
        if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
            pool->access |= bit;
        } else if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE &&
                   map[i].location.id != pool->device) {
            pool->access &= ~bit;
        } else {
            return tow_soft_leave(CUDA_ERROR_INVALID_DEVICE);
        }
    }
    apply_access(pool);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle,
                                        CUmemLocation *location)
{
    struct tow_soft_pool *pool;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags == NULL || !location_is_device(location) ||
        tow_soft_device_of(location->id) == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = pool->access & 1u << location->id ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return tow_soft_leave(CUDA_SUCCESS);
}

/* ---- all of it ---- */

bool tow_soft_pools_shared(void)
{
    for (const struct tow_soft_pool *pool = pools; pool != NULL; pool = pool->next) {
        if (pool->imported || pool->given) {
            return true;
        }
    }
    return false;
}

void tow_soft_pool_files_each(tow_soft_area_fn *visit, void *user)
{
    struct tow_soft_entry entry = {.low = 0};
    for (uint64_t at = 0; tow_soft_index_next(at, &entry); at = entry.low + 1) {
        const struct tow_soft_alloc *alloc = entry.alloc;
        if (alloc != NULL && alloc->in_file && !alloc->imported) {
            const struct tow_soft_area area = {.device = alloc->device,
                                               .base = alloc->file_offset,
                                               .size = alloc->reserved,
                                               .fd = alloc->pool->fd};
            visit(user, &area);
        }
    }
}

/* ---- stream-ordered allocation
 * ----------------------------------------------------------------------------- */

/* Puts a part of the pool's file behind addresses and enters it. */
static CUresult part_map(struct tow_soft_ctx *ctx, struct tow_soft_pool *pool, uint64_t offset,
                         uint64_t size, struct tow_soft_alloc **ret_alloc)
{
    uint64_t reserved = tow_soft_round_up(size, TOW_SOFT_BLOCK);
    struct tow_soft_alloc *alloc = calloc(1, sizeof *alloc);
    uint64_t base;
    if (alloc == NULL || tow_soft_arena_take(reserved, TOW_SOFT_BLOCK, 0, &base) != 0) {
        free(alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *alloc = (struct tow_soft_alloc){.base = base,
                                     .size = size,
                                     .reserved = reserved,
                                     .kind = TOW_SOFT_MEM_POOL,
                                     .ctx = ctx,
                                     .device = pool->device,
                                     .in_file = true,
                                     .file_offset = offset,
                                     .imported = pool->imported};
    if (tow_soft_arena_commit(base, reserved, pool->fd, offset) != 0 ||
        tow_soft_alloc_enter(alloc) != 0) {
        tow_soft_arena_decommit(base, reserved);
        tow_soft_arena_give(base, reserved);
        free(alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_alloc = alloc;
    return CUDA_SUCCESS;
}

static CUresult part_alloc(struct tow_soft_ctx *ctx, struct tow_soft_pool *pool, uint64_t size,
                           struct tow_soft_alloc **ret_alloc)
{
    struct tow_soft_device *device = &tow_soft.devices[pool->device];
    uint64_t reserved = size <= device->total ? tow_soft_round_up(size, TOW_SOFT_BLOCK) : size;
    uint64_t offset;
    if (reserved > device->total || *device->used > device->total - reserved ||
        tow_soft_space_take(&pool->parts, reserved, TOW_SOFT_BLOCK, 0, &offset) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = part_map(ctx, pool, offset, size, ret_alloc);
    if (result != CUDA_SUCCESS) {
        tow_soft_space_give(&pool->parts, offset, reserved);
        return result;
    }
    *device->used += reserved;
    return CUDA_SUCCESS;
}

/* The pool has one more allocation. */
static void pool_count(struct tow_soft_pool *pool, struct tow_soft_alloc *alloc)
{
    alloc->pool = pool;
    alloc->gone = pool_released;
    pool->live++;
    pool->used += alloc->reserved;
    pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    pool->reserved = pool->used > pool->reserved ? pool->used : pool->reserved;
    pool->reserved_high =
        pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
    if (pool->access != 1u << pool->device) {
        tow_soft_index_set_meta(alloc->base,
                                tow_soft_meta(alloc->kind, pool->access, pool->access));
    }
}

static CUresult pool_alloc(struct tow_soft_ctx *ctx, struct tow_soft_pool *pool, size_t size,
                           CUdeviceptr *dptr)
{
    if (pool->max_size != 0 && (size > pool->max_size || pool->used > pool->max_size - size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct tow_soft_alloc *alloc;
    CUresult result =
        pool->fd >= 0 ? part_alloc(ctx, pool, size, &alloc)
                      : tow_soft_alloc_make(ctx, pool->device, TOW_SOFT_MEM_POOL, size, 0, &alloc);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pool_count(pool, alloc);
    *dptr = alloc->base;
    return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytesize, bool named, CUmemoryPool handle,
                            CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result == CUDA_SUCCESS && dptr == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_soft_pool *pool = NULL;
    if (result == CUDA_SUCCESS) {
        pool = named ? pool_lookup(handle) : stream->object.ctx->device->pool;
        result = pool == NULL || pool->imported ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && stream->capture != NULL) {
        return tow_soft_leave(stream->capture->ops->alloc(stream, bytesize, pool->device, dptr));
    }
    if (result == CUDA_SUCCESS && bytesize == 0) {
        *dptr = 0;
        return tow_soft_leave(CUDA_SUCCESS);
    }
    if (result == CUDA_SUCCESS) {
        result = pool_alloc(stream->object.ctx, pool, bytesize, dptr);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && stream->head != NULL) {
            /* Frees that are still queued may make room, as CUDA lets them. */
            result = tow_soft_stream_wait(stream->object.ctx, stream);
            if (result == CUDA_SUCCESS) {
                result = pool_alloc(ctx, pool, bytesize, dptr);
            }
        }
        if (result != CUDA_SUCCESS) {
            *dptr = 0;
        }
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return alloc_async(dptr, bytesize, false, NULL, hStream);
}

static CUresult soft_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                             CUstream hStream)
{
    return alloc_async(dptr, bytesize, true, pool, hStream);
}

static bool may_be_freed_in_order(const struct tow_soft_alloc *alloc, uint64_t address)
{
    return alloc != NULL && alloc->base == address &&
           (alloc->kind == TOW_SOFT_MEM_POOL || alloc->kind == TOW_SOFT_MEM_DEVICE ||
            alloc->kind == TOW_SOFT_MEM_GRAPH);
}

CUresult tow_soft_free_async_run(uint64_t address)
{
    /* What was there when it was asked for, or captured, may be gone, and something else in its
     * place that somebody holds. */
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(address);
    if (!may_be_freed_in_order(alloc, address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tow_soft_alloc_drop(alloc);
    return CUDA_SUCCESS;
}

/* Takes no time: it runs with the lock held. */
static CUresult free_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    (void)ctx;
    return tow_soft_free_async_run(work->release.address);
}

const struct tow_soft_work_ops tow_soft_free_ops = {free_run, tow_soft_work_no_fini,
                                                    tow_soft_work_plain_clone};

static CUresult soft_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (dptr == 0) {
        return tow_soft_leave(CUDA_SUCCESS);
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(dptr);
    /* A graph's memory: the launch that allocates it may still be waiting. */
    struct tow_soft_graph_va *va =
        alloc == NULL || alloc->kind == TOW_SOFT_MEM_GRAPH ? tow_soft_graph_va_at(dptr) : NULL;
    if (stream->capture == NULL && va != NULL) {
        if (!va->held) {
            return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
        }
        va->held = false;
    } else if (stream->capture == NULL) {
        if (!may_be_freed_in_order(alloc, dptr) || alloc->freeing) {
            tow_soft_check_bad_free(dptr, "cuMemFreeAsync", alloc != NULL && alloc->freeing);
            bool managed = alloc != NULL && alloc->base == dptr && !alloc->variable &&
                           alloc->kind == TOW_SOFT_MEM_MANAGED;
            return tow_soft_leave(managed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
        }
        alloc->freeing = true;
    }
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_FREE, .release = {.address = dptr}};
    return tow_soft_leave(tow_soft_submit(stream, &work));
}

/* ---- pools of other workers
 * ----------------------------------------------------------------------------- */

static CUresult soft_cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool handle,
                                                      CUmemAllocationHandleType handleType,
                                                      unsigned long long flags)
{
    struct tow_soft_pool *pool;
    CUresult result = enter_pool(handle, &pool);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_file_export_ok(handle_out, handleType, flags);
    if (result == CUDA_SUCCESS && (pool->fd < 0 || pool->imported)) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = tow_soft_file_give(pool->fd, handle_out);
        pool->given |= result == CUDA_SUCCESS;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                                        CUmemAllocationHandleType handleType,
                                                        unsigned long long flags)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    int fd = (int)(intptr_t)handle;
    struct tow_soft_file file;
    result = tow_soft_file_export_ok(pool_out, handleType, flags);
    if (result == CUDA_SUCCESS) {
        result = tow_soft_file_read(fd, TOW_SOFT_FILE_POOL, &file);
    }
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct tow_soft_pool *pool = tow_soft_pool_create(file.device, false);
    if (pool == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    pool->imported = true;
    pool->file = file;
    pool->props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    pool->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (pool->fd < 0) {
        pool_free(pool);
        return tow_soft_leave(CUDA_ERROR_OPERATING_SYSTEM);
    }
    *pool_out = TOW_SOFT_POINTER(pool->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct tow_soft_alloc *alloc = tow_soft_alloc_at(ptr);
    if (shareData_out == NULL || alloc == NULL || alloc->base != ptr || alloc->pool == NULL ||
        alloc->pool->fd < 0 || alloc->imported) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct export_data data = {
        .magic = EXPORT_MAGIC, .offset = alloc->file_offset, .size = alloc->size};
    memcpy(data.key, alloc->pool->file.key, sizeof data.key);
    memcpy(shareData_out, &data, sizeof data);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool handle,
                                            CUmemPoolPtrExportData *shareData)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_pool *pool = pool_lookup(handle);
    struct export_data data;
    if (ptr_out == NULL || pool == NULL || !pool->imported || shareData == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    memcpy(&data, shareData, sizeof data);
    if (memcmp(data.magic, EXPORT_MAGIC, sizeof data.magic) != 0 ||
        memcmp(data.key, pool->file.key, sizeof data.key) != 0 || data.size == 0 ||
        data.size > pool->file.size || data.offset > pool->file.size - data.size ||
        data.offset % TOW_SOFT_BLOCK != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_alloc *alloc;
    result = part_map(ctx, pool, data.offset, data.size, &alloc);
    if (result == CUDA_SUCCESS) {
        pool_count(pool, alloc);
        *ptr_out = alloc->base;
    }
    return tow_soft_leave(result);
}

void tow_soft_fill_pool(struct tow_driver *driver)
{
    tow_driver_set(driver, cuDeviceGetDefaultMemPool, soft_cuDeviceGetDefaultMemPool);
    tow_driver_set(driver, cuDeviceGetMemPool, soft_cuDeviceGetMemPool);
    tow_driver_set(driver, cuDeviceSetMemPool, soft_cuDeviceSetMemPool);
    tow_driver_set(driver, cuMemGetDefaultMemPool, soft_cuMemGetDefaultMemPool);
    tow_driver_set(driver, cuMemGetMemPool, soft_cuMemGetMemPool);
    tow_driver_set(driver, cuMemSetMemPool, soft_cuMemSetMemPool);
    tow_driver_set(driver, cuMemPoolCreate, soft_cuMemPoolCreate);
    tow_driver_set(driver, cuMemPoolDestroy, soft_cuMemPoolDestroy);
    tow_driver_set(driver, cuMemPoolTrimTo, soft_cuMemPoolTrimTo);
    tow_driver_set(driver, cuMemPoolSetAttribute, soft_cuMemPoolSetAttribute);
    tow_driver_set(driver, cuMemPoolGetAttribute, soft_cuMemPoolGetAttribute);
    tow_driver_set(driver, cuMemPoolSetAccess, soft_cuMemPoolSetAccess);
    tow_driver_set(driver, cuMemPoolGetAccess, soft_cuMemPoolGetAccess);
    tow_driver_set(driver, cuMemAllocAsync, soft_cuMemAllocAsync);
    tow_driver_set(driver, cuMemAllocFromPoolAsync, soft_cuMemAllocFromPoolAsync);
    tow_driver_set(driver, cuMemFreeAsync, soft_cuMemFreeAsync);
    tow_driver_set(driver, cuMemPoolExportToShareableHandle, soft_cuMemPoolExportToShareableHandle);
    tow_driver_set(driver, cuMemPoolImportFromShareableHandle,
                   soft_cuMemPoolImportFromShareableHandle);
    tow_driver_set(driver, cuMemPoolExportPointer, soft_cuMemPoolExportPointer);
    tow_driver_set(driver, cuMemPoolImportPointer, soft_cuMemPoolImportPointer);
}
