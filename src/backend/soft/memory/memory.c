/* SPDX-License-Identifier: Apache-2.0 */
/* Linear memory: allocation, host memory, managed memory, what a pointer is. */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/pool.h"
#include "backend/soft/memory/vmm.h"
#include "gen/memory.h"

#include <stdlib.h>
#include <string.h>

static CUresult soft_cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (free_bytes == NULL || total == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *free_bytes = ctx->device->total - *ctx->device->used;
    *total = ctx->device->total;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult memory_allocate(CUdeviceptr *dptr, size_t size, enum tow_soft_alloc_kind kind,
                                unsigned flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (dptr == NULL || size == 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = tow_soft_capture_unsafe(ctx);
    struct tow_soft_alloc *alloc;
    if (result == CUDA_SUCCESS) {
        result = tow_soft_alloc_make(ctx, ctx->device->ordinal, kind, size, flags, &alloc);
    }
    if (result == CUDA_SUCCESS) {
        *dptr = alloc->base;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    return memory_allocate(dptr, bytesize, TOW_SOFT_MEM_DEVICE, 0);
}

static CUresult soft_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                        size_t Height, unsigned int ElementSizeBytes)
{
    size_t size;
    if (dptr == NULL || pPitch == NULL || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
        struct tow_soft_ctx *ctx;
        CUresult entered = tow_soft_enter(&ctx);
        return entered == CUDA_SUCCESS ? tow_soft_leave(CUDA_ERROR_INVALID_VALUE) : entered;
    }
    size_t pitch = tow_soft_round_up(WidthInBytes, TOW_SOFT_UNIT);
    if (WidthInBytes > 2147483647 || __builtin_mul_overflow(pitch, Height, &size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = memory_allocate(dptr, size, TOW_SOFT_MEM_DEVICE, 0);
    if (result == CUDA_SUCCESS) {
        *pPitch = pitch;
    }
    return result;
}

/* Memory of a graph, which a launch that still waits may be about to allocate. Called with the lock
 * held. */
static CUresult free_of_graph(struct tow_soft_ctx *ctx, CUdeviceptr dptr)
{
    struct tow_soft_graph_va *va = tow_soft_graph_va_at(dptr);
    if (va == NULL || !va->held) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = tow_soft_capture_unsafe(ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    va->held = false; /* nobody else frees it now */
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(dptr);
    struct tow_soft_ctx *owner = alloc != NULL && alloc->ctx != NULL ? alloc->ctx : ctx;
    tow_soft_hold();
    result = tow_soft_ctx_wait(owner);
    tow_soft_let_go();
    alloc = tow_soft_alloc_at(dptr);
    if (result == CUDA_SUCCESS && alloc != NULL && alloc->base == dptr &&
        alloc->kind == TOW_SOFT_MEM_GRAPH) {
        tow_soft_alloc_drop(alloc);
    }
    return result;
}

static CUresult soft_cuMemFree_v2(CUdeviceptr dptr)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (dptr == 0) {
        return tow_soft_leave(CUDA_SUCCESS);
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(dptr);
    if (alloc == NULL || alloc->kind == TOW_SOFT_MEM_GRAPH) {
        result = free_of_graph(ctx, dptr);
        if (result == CUDA_ERROR_INVALID_VALUE) {
            tow_soft_check_bad_free(dptr, "cuMemFree", false);
        }
        return tow_soft_leave(result);
    }
    if (alloc->base != dptr || alloc->variable ||
        (alloc->kind != TOW_SOFT_MEM_DEVICE && alloc->kind != TOW_SOFT_MEM_MANAGED &&
         alloc->kind != TOW_SOFT_MEM_POOL)) {
        tow_soft_check_bad_free(dptr, "cuMemFree", false);
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = tow_soft_capture_unsafe(ctx);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct tow_soft_ctx *owner = alloc->ctx != NULL ? alloc->ctx : ctx;
    uint64_t id = alloc->id;
    /* Freeing waits for everything that may still use it. */
    tow_soft_hold();
    result = tow_soft_ctx_wait(owner);
    tow_soft_let_go();
    alloc = tow_soft_alloc_at(dptr);
    if (result == CUDA_SUCCESS && (alloc == NULL || alloc->id != id)) {
        result = CUDA_ERROR_INVALID_VALUE; /* somebody else was faster */
    }
    if (result == CUDA_SUCCESS) {
        tow_soft_alloc_drop(alloc);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(dptr);
    if (alloc == NULL || alloc->kind == TOW_SOFT_MEM_ARRAY) {
        return tow_soft_leave(CUDA_ERROR_NOT_FOUND);
    }
    if (pbase != NULL) {
        *pbase = alloc->base;
    }
    if (psize != NULL) {
        *psize = alloc->size;
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

/* ---- host memory
 * ------------------------------------------------------------------------------------ */

static CUresult soft_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (pp == NULL || (Flags & ~known) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = tow_soft_capture_unsafe(ctx);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    if (bytesize == 0) {
        *pp = NULL;
        return tow_soft_leave(CUDA_SUCCESS);
    }
    struct tow_soft_alloc *alloc;
    result = tow_soft_alloc_make(ctx, ctx->device->ordinal, TOW_SOFT_MEM_HOST, bytesize,
                                 Flags | CU_MEMHOSTALLOC_DEVICEMAP, &alloc);
    if (result == CUDA_SUCCESS) {
        *pp = (void *)(uintptr_t)alloc->base;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return soft_cuMemHostAlloc(pp, bytesize, 0);
}

/* As with NVIDIA's driver this needs no current context, and it waits for all work in the memory's.
 */
static CUresult soft_cuMemFreeHost(void *p)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (p == NULL) {
        return tow_soft_leave(CUDA_SUCCESS);
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at((uintptr_t)p);
    if (alloc == NULL || alloc->base != (uintptr_t)p || alloc->kind != TOW_SOFT_MEM_HOST) {
        tow_soft_check_bad_free((uintptr_t)p, "cuMemFreeHost", false);
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_ctx *ctx = alloc->ctx != NULL ? alloc->ctx : tow_soft_current();
    uint64_t id = alloc->id;
    if (ctx != NULL) {
        result = tow_soft_capture_unsafe(ctx);
        if (result == CUDA_SUCCESS) {
            tow_soft_hold();
            result = tow_soft_ctx_wait(ctx);
            tow_soft_let_go();
        }
        alloc = tow_soft_alloc_at((uintptr_t)p);
    }
    if (result == CUDA_SUCCESS && alloc != NULL && alloc->id == id) {
        tow_soft_alloc_drop(alloc);
    }
    return tow_soft_leave(result);
}

static bool is_host_kind(enum tow_soft_alloc_kind kind)
{
    return kind == TOW_SOFT_MEM_HOST || kind == TOW_SOFT_MEM_REGISTERED;
}

static CUresult soft_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at((uintptr_t)p);
    if (pdptr == NULL || Flags != 0 || alloc == NULL || !is_host_kind(alloc->kind)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pdptr = (uintptr_t)p;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at((uintptr_t)p);
    if (pFlags == NULL || alloc == NULL || !is_host_kind(alloc->kind)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pFlags = alloc->flags;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
        struct tow_soft_ctx *ctx;
        CUresult entered = tow_soft_enter(&ctx);
        return entered == CUDA_SUCCESS ? tow_soft_leave(CUDA_ERROR_INVALID_VALUE) : entered;
    }
    return memory_allocate(dptr, bytesize, TOW_SOFT_MEM_MANAGED, flags);
}

static CUresult soft_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                     CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    uint64_t end;
    if (p == NULL || bytesize == 0 || (Flags & ~known) != 0 ||
        __builtin_add_overflow((uint64_t)(uintptr_t)p, bytesize, &end)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (Flags & CU_MEMHOSTREGISTER_IOMEMORY) {
        return tow_soft_leave(CUDA_ERROR_NOT_PERMITTED);
    }
    if (tow_soft_index_overlaps((uintptr_t)p, bytesize)) {
        return tow_soft_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    struct tow_soft_alloc *alloc = calloc(1, sizeof *alloc);
    if (alloc == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    alloc->base = (uintptr_t)p;
    alloc->size = bytesize;
    alloc->kind = TOW_SOFT_MEM_REGISTERED;
    alloc->ctx = ctx;
    alloc->device = ctx->device->ordinal;
    alloc->flags = Flags;
    if (tow_soft_alloc_enter(alloc) != 0) {
        free(alloc);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

/* Locked: the caller unmaps the memory next. Kernels and copies of whichever context that began
 * before it was dropped may have looked it up: they end first. Of a context that has failed by a
 * kernel of one stream those of the others are stopped. */
static void end_uses(struct tow_soft_ctx *owner, uint64_t dropped)
{
    struct tow_soft_ctx *of[] = {owner, tow_soft_current()};
    for (unsigned i = 0; i < 2; i++) {
        if (of[i] != NULL && of[i]->error != CUDA_SUCCESS) {
            atomic_store(&of[i]->stop, true);
        }
    }
    tow_soft_quiesce_device(dropped);
}

/* Locked. The memory that was registered at `p`; NULL if there is none. */
static struct tow_soft_alloc *registered_at(const void *p)
{
    struct tow_soft_alloc *alloc = p != NULL ? tow_soft_alloc_at((uintptr_t)p) : NULL;
    return alloc != NULL && alloc->kind == TOW_SOFT_MEM_REGISTERED ? alloc : NULL;
}

static CUresult soft_cuMemHostUnregister(void *p)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx), any;
    if (result != CUDA_SUCCESS && (any = tow_soft_enter_any()) != CUDA_SUCCESS) {
        return any;
    }
    struct tow_soft_alloc *alloc = registered_at(p);
    if (alloc == NULL || alloc->base != (uintptr_t)p) {
        /* It may have been a context's that is gone, and whoever asks unmaps it in any case. */
        end_uses(NULL, tow_soft.registered_gone);
        return tow_soft_leave(result != CUDA_SUCCESS       ? result
                              : p == NULL || alloc != NULL ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    }
    uint64_t id = alloc->id;
    if (result == CUDA_SUCCESS) {
        tow_soft_hold();
        result = tow_soft_ctx_wait(alloc->ctx);
        tow_soft_let_go();
        alloc = registered_at(p);
    }
    /* Also if the context has failed. What another thread registered there meanwhile is not ours.
     */
    struct tow_soft_ctx *owner = NULL;
    if (alloc != NULL && alloc->id == id) {
        owner = alloc->ctx;
        tow_soft_alloc_drop(alloc);
    }
    end_uses(owner, ++tow_soft.seq);
    return tow_soft_leave(result);
}

/* ---- what a pointer is
 * ------------------------------------------------------------------------------- */

static size_t attribute_size(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return 4;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 1;
    default:
        return 8;
    }
}

static CUresult pointer_get(CUpointer_attribute attribute, const struct tow_soft_alloc *alloc,
                            uint64_t ptr, uint64_t *ret_value)
{
    bool host = is_host_kind(alloc->kind);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *ret_value = alloc->ctx != NULL ? alloc->ctx->object.handle : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *ret_value = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *ret_value = ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *ret_value = ptr;
        return host || alloc->kind == TOW_SOFT_MEM_MANAGED ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *ret_value = alloc->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *ret_value = alloc->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *ret_value = alloc->kind == TOW_SOFT_MEM_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *ret_value = (uint32_t)alloc->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: {
        uint64_t base = alloc->base, size = alloc->size;
        if (alloc->kind == TOW_SOFT_MEM_VMM) {
            tow_soft_reservation_around(base, &base, &size);
        }
        *ret_value = attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? size : base;
        return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *ret_value = alloc->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *ret_value = alloc->size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *ret_value = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *ret_value = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *ret_value = alloc->pool != NULL ? tow_soft_pool_handle(alloc->pool) : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *ret_value = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static struct tow_soft_alloc *pointer_alloc(CUdeviceptr ptr)
{
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(ptr);
    return alloc != NULL && alloc->kind != TOW_SOFT_MEM_ARRAY ? alloc : NULL;
}

static CUresult soft_cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                           CUdeviceptr ptr)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct tow_soft_alloc *alloc = pointer_alloc(ptr);
    if (data == NULL || alloc == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    uint64_t value;
    result = pointer_get(attribute, alloc, ptr, &value);
    if (result == CUDA_SUCCESS) {
        memcpy(data, &value, attribute_size(attribute)); /* little-endian, as all our hosts */
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuPointerGetAttributes(unsigned int numAttributes,
                                            CUpointer_attribute *attributes, void **data,
                                            CUdeviceptr ptr)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (numAttributes == 0 || attributes == NULL || data == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    const struct tow_soft_alloc *alloc = pointer_alloc(ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        uint64_t value = 0;
        if (data[i] == NULL || (int)attributes[i] < 1 ||
            attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
            return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
        }
        if (alloc == NULL && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            value = (uint32_t)-2; /* what the driver says of memory that it does not know */
        }
        if (alloc != NULL && pointer_get(attributes[i], alloc, ptr, &value) != CUDA_SUCCESS) {
            value = 0;
        }
        memcpy(data[i], &value, attribute_size(attributes[i]));
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                           CUdeviceptr ptr)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_alloc *alloc = pointer_alloc(ptr);
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || alloc == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    alloc->sync_memops = *(const uint8_t *)value != 0;
    return tow_soft_leave(CUDA_SUCCESS);
}

/* ---- advice: it is all one memory here, so it is only remembered
 * ---------------------------------------- */

static bool location_ok(CUmemLocation location)
{
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return tow_soft_device_of(location.id) != NULL;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return true;
    default:
        return false;
    }
}

static CUresult managed_at(CUdeviceptr ptr, size_t count, struct tow_soft_alloc **ret_alloc)
{
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(ptr);
    if (count == 0 || alloc == NULL || alloc->kind != TOW_SOFT_MEM_MANAGED ||
        !tow_soft_range_ok(NULL, ptr, count, false)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_alloc = alloc;
    return CUDA_SUCCESS;
}

static CUresult soft_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                                    CUmemLocation location)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_alloc *alloc;
    result = managed_at(devPtr, count, &alloc);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    bool needs_location = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                          advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                          advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (needs_location && !location_ok(location)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_DEVICE);
    }
    uint32_t bit =
        location.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << (location.id & 15) : UINT32_C(1) << 31;
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        alloc->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        alloc->preferred = location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        alloc->preferred = (CUmemLocation){CU_MEM_LOCATION_TYPE_INVALID, 0};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        alloc->accessed_by |= bit;
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        alloc->accessed_by &= ~bit;
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
        break;
    }
    return tow_soft_leave(result);
}

static CUmemLocation location_of(CUdevice device)
{
    return device == -1 ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
                        : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

static CUresult soft_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                                 CUdevice device)
{
    return soft_cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

static CUresult soft_cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                           unsigned int flags, CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    struct tow_soft_alloc *alloc;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result == CUDA_SUCCESS) {
        result = managed_at(devPtr, count, &alloc);
    }
    if (result == CUDA_SUCCESS && (flags != 0 || !location_ok(location))) {
        result = flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    }
    if (result == CUDA_SUCCESS) {
        alloc->prefetched = location;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                        CUstream hStream)
{
    return soft_cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

static int location_number(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE    ? location.id
           : location.type == CU_MEM_LOCATION_TYPE_INVALID ? -2
                                                           : -1;
}

static CUresult range_get(void *data, size_t size, CUmem_range_attribute attribute,
                          const struct tow_soft_alloc *alloc)
{
    if (data == NULL || size < 4 || size % 4 != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    int32_t *out = data;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        out[0] = alloc->read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        out[0] = location_number(alloc->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        out[0] = location_number(alloc->prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
        size_t n = 0;
        for (int device = 0; device < TOW_SOFT_DEVICES_MAX && n < size / 4; device++) {
            if (alloc->accessed_by & 1u << device) {
                out[n++] = device;
            }
        }
        if (alloc->accessed_by >> 31 && n < size / 4) {
            out[n++] = -1;
        }
        while (n < size / 4) {
            out[n++] = -2;
        }
        return CUDA_SUCCESS;
    }
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        out[0] = alloc->preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        out[0] = alloc->preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        out[0] = alloc->prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        out[0] = alloc->prefetched.id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult soft_cuMemRangeGetAttributes(void **data, size_t *dataSizes,
                                             CUmem_range_attribute *attributes,
                                             size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_alloc *alloc;
    result = managed_at(devPtr, count, &alloc);
    if (data == NULL || dataSizes == NULL || attributes == NULL || numAttributes == 0) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; i++) {
        result = range_get(data[i], dataSizes[i], attributes[i], alloc);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemRangeGetAttribute(void *data, size_t dataSize,
                                            CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                            size_t count)
{
    return soft_cuMemRangeGetAttributes(&data, &dataSize, &attribute, 1, devPtr, count);
}

static CUresult memory_batch(const CUdeviceptr *dptrs, const size_t *sizes, size_t count,
                             const CUmemLocation *locations, const size_t *first,
                             size_t location_count, unsigned long long flags, CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (dptrs == NULL || sizes == NULL || count == 0 || flags != 0 ||
        (locations != NULL && (first == NULL || location_count == 0 || location_count > count))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    size_t at = 0;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct tow_soft_alloc *alloc;
        result = managed_at(dptrs[i], sizes[i], &alloc);
        if (result == CUDA_SUCCESS && locations != NULL) {
            while (at + 1 < location_count && first[at + 1] <= i) {
                at++;
            }
            if (!location_ok(locations[at])) {
                result = CUDA_ERROR_INVALID_VALUE;
            } else {
                alloc->prefetched = locations[at];
            }
        }
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                             CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                             size_t numPrefetchLocs, unsigned long long flags,
                                             CUstream hStream)
{
    if (prefetchLocs == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return memory_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                        hStream);
}

static CUresult soft_cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                            unsigned long long flags, CUstream hStream)
{
    return memory_batch(dptrs, sizes, count, NULL, NULL, 0, flags, hStream);
}

void tow_soft_fill_memory(struct tow_driver *driver)
{
    tow_driver_set(driver, cuMemGetInfo_v2, soft_cuMemGetInfo_v2);
    tow_driver_set(driver, cuMemAlloc_v2, soft_cuMemAlloc_v2);
    tow_driver_set(driver, cuMemAllocPitch_v2, soft_cuMemAllocPitch_v2);
    tow_driver_set(driver, cuMemFree_v2, soft_cuMemFree_v2);
    tow_driver_set(driver, cuMemGetAddressRange_v2, soft_cuMemGetAddressRange_v2);
    tow_driver_set(driver, cuMemAllocHost_v2, soft_cuMemAllocHost_v2);
    tow_driver_set(driver, cuMemFreeHost, soft_cuMemFreeHost);
    tow_driver_set(driver, cuMemHostAlloc, soft_cuMemHostAlloc);
    tow_driver_set(driver, cuMemHostGetDevicePointer_v2, soft_cuMemHostGetDevicePointer_v2);
    tow_driver_set(driver, cuMemHostGetFlags, soft_cuMemHostGetFlags);
    tow_driver_set(driver, cuMemAllocManaged, soft_cuMemAllocManaged);
    tow_driver_set(driver, cuMemHostRegister_v2, soft_cuMemHostRegister_v2);
    tow_driver_set(driver, cuMemHostRegister, soft_cuMemHostRegister_v2);
    tow_driver_set(driver, cuMemHostUnregister, soft_cuMemHostUnregister);
    tow_driver_set(driver, cuPointerGetAttribute, soft_cuPointerGetAttribute);
    tow_driver_set(driver, cuPointerGetAttributes, soft_cuPointerGetAttributes);
    tow_driver_set(driver, cuPointerSetAttribute, soft_cuPointerSetAttribute);
    tow_driver_set(driver, cuMemAdvise, soft_cuMemAdvise);
    tow_driver_set(driver, cuMemAdvise_v2, soft_cuMemAdvise_v2);
    tow_driver_set(driver, cuMemPrefetchAsync, soft_cuMemPrefetchAsync);
    tow_driver_set(driver, cuMemPrefetchAsync_v2, soft_cuMemPrefetchAsync_v2);
    tow_driver_set(driver, cuMemRangeGetAttribute, soft_cuMemRangeGetAttribute);
    tow_driver_set(driver, cuMemRangeGetAttributes, soft_cuMemRangeGetAttributes);
    tow_driver_set(driver, cuMemPrefetchBatchAsync, soft_cuMemPrefetchBatchAsync);
    tow_driver_set(driver, cuMemDiscardBatchAsync, soft_cuMemDiscardBatchAsync);
    tow_driver_set(driver, cuMemDiscardAndPrefetchBatchAsync, soft_cuMemPrefetchBatchAsync);
}
