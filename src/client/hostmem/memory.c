/* SPDX-License-Identifier: Apache-2.0 */
/* Device and host memory: allocating, freeing, asking what an address is. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/stream/context.h"
#include "client/hostmem/fault.h"
#include "client/stream/capture.h"
#include "client/hostmem/lend.h"
#include "client/hostmem/memory.h"
#include "client/hostmem/mirror.h"
#include "client/hostmem/region.h"
#include "client/link/share.h"
#include "gen/context_client.h"
#include "gen/memory_client.h"
#include "gen/pool_client.h"
#include "gen/vmm_client.h"

/* What every call that needs a context answers without one, or with a broken one. */
static CUresult context_here(void)
{
    CUresult state = towc_client_state();
    struct towc_context *context = state == CUDA_SUCCESS ? towc_context_current() : NULL;
    if (state != CUDA_SUCCESS || context == NULL) {
        return state != CUDA_SUCCESS     ? state
               : towc_thread_in_hostfn() ? CUDA_ERROR_NOT_PERMITTED
                                         : CUDA_ERROR_INVALID_CONTEXT;
    }
    return atomic_load(&context->alive) ? (CUresult)atomic_load(&context->sticky)
                                        : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult towc_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    size_t left = 0, all = 0;
    CUresult status = towc_send_cuMemGetInfo_v2(&left, &all);
    if (status == CUDA_SUCCESS && free != NULL) {
        *free = left;
    }
    if (status == CUDA_SUCCESS && total != NULL) {
        *total = all;
    }
    return status;
}

CUresult towc_cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    if (dptr == NULL || bytesize == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_capture_unsafe();
    if (status == CUDA_SUCCESS) {
        status = towc_send_cuMemAlloc_v2(dptr, bytesize);
    }
    if (status == CUDA_SUCCESS) {
        struct towc_region region = towc_region_here(*dptr, bytesize, TOW_REGION_DEVICE, 0);
        if (towc_region_add(&region) < 0) {
            towc_send_cuMemFree_v2(*dptr);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return status;
}

CUresult towc_cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                 size_t Height, unsigned int ElementSizeBytes)
{
    if (dptr == NULL || pPitch == NULL || WidthInBytes == 0 || Height == 0 ||
        (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_capture_unsafe();
    if (status == CUDA_SUCCESS) {
        status = towc_send_cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
    }
    if (status == CUDA_SUCCESS) {
        struct towc_region region = towc_region_here(*dptr, *pPitch * Height, TOW_REGION_DEVICE, 0);
        if (towc_region_add(&region) < 0) {
            towc_send_cuMemFree_v2(*dptr);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return status;
}

CUresult towc_cuMemFree_v2(CUdeviceptr dptr)
{
    struct towc_region region;
    CUresult state = context_here();
    if (dptr == 0 && state == CUDA_ERROR_INVALID_CONTEXT) {
        return CUDA_SUCCESS; /* nothing is freed without a context, too */
    }
    if (state != CUDA_SUCCESS || dptr == 0) {
        return state;
    }
    state = towc_capture_unsafe();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    unsigned kinds = 1u << TOW_REGION_DEVICE | 1u << TOW_REGION_POOL | 1u << TOW_REGION_MANAGED;
    bool found = towc_region_find(dptr, &region);
    if (found && region.graph) {
        return towc_send_cuMemFree_v2(dptr);
    }
    if (found && region.variable) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!found) {
        return towc_send_cuMemFree_v2(dptr); /* a mistake, which `towline check` tells */
    }
    if (!towc_region_remove(dptr, kinds, &region)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (region.kind == TOW_REGION_MANAGED) {
        towc_mirror_remove(region.base, region.size);
    }
    /* Waited for: others, NVML among them, find the memory free when this returns. */
    bool visited = region.link != towc_context_current()->link &&
                   towc_context_visit(region.context != NULL ? towc_context_find(region.context)
                                                             : towc_context_primary(region.device));
    CUresult status = towc_send_cuMemFree_v2(dptr);
    towc_context_back(visited);
    if (status == CUDA_ERROR_INVALID_CONTEXT) {
        towc_region_add(&region);
    }
    return status;
}

/* The region of an address; a module's variable is known to the server only. */
static bool find_any(CUdeviceptr ptr, struct towc_region *ret_region)
{
    if (towc_region_find(ptr, ret_region)) {
        return true;
    }
    CUdeviceptr base = 0;
    size_t size = 0;
    if (!towc_region_is_device(ptr) || towc_context_current() == NULL ||
        towc_send_cuMemGetAddressRange_v2(&base, &size, ptr) != CUDA_SUCCESS) {
        return false;
    }
    *ret_region = towc_region_here(base, size, TOW_REGION_DEVICE, 0);
    return true;
}

CUresult towc_cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct towc_region region;
    CUresult state = context_here();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (!find_any(dptr, &region) || region.kind == TOW_REGION_RESERVED) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (pbase != NULL) {
        *pbase = region.base;
    }
    if (psize != NULL) {
        *psize = region.size;
    }
    return CUDA_SUCCESS;
}

/* ---- host memory ---- */

/* Gives memory of ours back. */
static CUresult memory_release(const struct towc_region *region)
{
    void *at = (void *)(uintptr_t)region->base;
    if (towc_region_is_shared(region)) {
        return towc_share_free(region->link, at, region->size);
    }
    munmap(at, region->size);
    return CUDA_SUCCESS;
}

CUresult towc_cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    CUresult state = context_here();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (pp == NULL || (Flags & ~known)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytesize == 0) {
        *pp = NULL;
        return CUDA_SUCCESS;
    }
    void *at = NULL;
    state = towc_capture_unsafe();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    bool shared = towc_share_alloc(towc_context_current()->link, bytesize, &state, &at);
    if (!shared) {
        at = mmap(NULL, bytesize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        state = at != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_region region =
        towc_region_here((uint64_t)(uintptr_t)at, bytesize, TOW_REGION_HOST, Flags);
    if (shared) {
        region.shared_low = region.base;
        region.shared_high = region.base + region.size;
    }
    if (towc_region_add(&region) < 0) {
        memory_release(&region);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (towc_mirror_is_candidate(&region)) {
        atomic_fetch_add(&towc_mirror_candidates, 1);
    }
    *pp = at;
    return CUDA_SUCCESS;
}

CUresult towc_cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return towc_cuMemHostAlloc(pp, bytesize, 0);
}

/* Process-wide: addresses are the process's. NULL while nobody has registered. */
static const struct towc_memory_ops *_Atomic reader;

void towc_memory_register(const struct towc_memory_ops *ops)
{
    atomic_store(&reader, ops);
}

/* True while copies to it or from it are still to come, whichever server makes them. */
static bool is_expected(const struct towc_region *region)
{
    const void *at = (const void *)(uintptr_t)region->base;
    const struct towc_memory_ops *ops = atomic_load(&reader);
    bool expected = ops != NULL && ops->is_still_to_read(at, region->size);
    for (unsigned i = 0; i < towc_client_link_count() && !expected; i++) {
        expected = towc_link_expecting(towc_client_link_at(i), at, region->size);
    }
    return expected;
}

/* No copy writes to it any more, whatever a server still sends. */
static void memory_abandon(const struct towc_region *region)
{
    for (unsigned i = 0; i < towc_client_link_count(); i++) {
        towc_link_abandon(towc_client_link_at(i), (const void *)(uintptr_t)region->base,
                          region->size);
    }
}

/* Asynchronous copies of host memory end before it may go away, and the GPU loses sight of it.
 * They are the current context's most likely, else those of the context that it was made in. */
static CUresult memory_end_copies(const struct towc_region *region)
{
    atomic_fetch_sub(&towc_mirror_candidates, 1);
    towc_mirror_remove(region->base, region->size);
    CUresult status = CUDA_SUCCESS;
    for (unsigned i = 0; i < towc_client_link_count() && status == CUDA_SUCCESS; i++) {
        status = towc_link_wait_download(towc_client_link_at(i),
                                         (const void *)(uintptr_t)region->base, region->size);
    }
    if (is_expected(region) && towc_context_current() != NULL) {
        status = towc_cuCtxSynchronize_v2(NULL);
    }
    if (is_expected(region)) {
        CUresult own = towc_cuCtxSynchronize_v2(region->context);
        status = status == CUDA_SUCCESS ? own : status;
    }
    return status;
}

CUresult towc_cuMemFreeHost(void *p)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_region region;
    if (p == NULL) {
        return CUDA_SUCCESS;
    }
    state = towc_capture_unsafe();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (!towc_region_remove((uint64_t)(uintptr_t)p, 1u << TOW_REGION_HOST, &region)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_mirror_sync_device();
    if (!towc_mirror_is_candidate(&region)) {
        CUresult released = memory_release(&region);
        return status == CUDA_SUCCESS ? released : status;
    }
    CUresult ended = memory_end_copies(&region);
    status = status == CUDA_SUCCESS ? ended : status;
    /* What is still to be filled or read stays mapped: those bytes would come down on something
     * else. */
    bool lost = atomic_load(&region.link->lost) != 0;
    if (lost) {
        memory_abandon(&region);
    }
    if (lost || !is_expected(&region)) {
        CUresult released = memory_release(&region);
        status = status == CUDA_SUCCESS ? released : status;
    }
    return status;
}

CUresult towc_cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    uint64_t base = (uint64_t)(uintptr_t)p;
    if (p == NULL || bytesize == 0 || bytesize > UINT64_MAX - base || (Flags & ~known)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (towc_context_current() == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (Flags & CU_MEMHOSTREGISTER_IOMEMORY) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct towc_region region;
    if (towc_region_find(base, &region) && region.kind == TOW_REGION_HOST) {
        return CUDA_ERROR_INVALID_VALUE; /* made page-locked by CUDA itself */
    }
    if (towc_region_overlaps(base, bytesize)) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    region = towc_region_here(base, bytesize, TOW_REGION_REGISTERED, Flags);
    bool lent =
        towc_mirror_lend(region.link, base, bytesize, &region.shared_low, &region.shared_high);
    if (towc_region_add(&region) < 0) {
        if (lent) {
            towc_lend_end(region.link, region.shared_low);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (towc_mirror_is_candidate(&region)) {
        atomic_fetch_add(&towc_mirror_candidates, 1);
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuMemHostUnregister(void *p)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_region region;
    if (p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!towc_region_remove((uint64_t)(uintptr_t)p, 1u << TOW_REGION_REGISTERED, &region)) {
        return towc_region_find((uint64_t)(uintptr_t)p, &region)
                   ? CUDA_ERROR_INVALID_VALUE /* inside of something */
                   : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    CUresult status = towc_mirror_sync_device();
    CUresult ended = towc_mirror_is_candidate(&region) ? memory_end_copies(&region) : CUDA_SUCCESS;
    status = status == CUDA_SUCCESS ? ended : status;
    memory_abandon(&region); /* the program may free it now */
    if (region.shared_high != 0) {
        CUresult unlent = towc_lend_end(region.link, region.shared_low);
        status = status == CUDA_SUCCESS ? unlent : status;
    }
    return status;
}

CUresult towc_cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_region region;
    uint64_t address = (uint64_t)(uintptr_t)p;
    if (pdptr == NULL || Flags != 0 || !towc_region_find(address, &region) ||
        !towc_region_is_host(&region)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct towc_context *context = towc_context_current();
    CUresult status = towc_mirror_host(context != NULL ? context->link : region.link, address, 1);
    if (status == CUDA_SUCCESS) {
        *pdptr = address; /* unified addressing: the same on both sides */
    }
    return status;
}

static CUresult alloc_managed(CUdeviceptr *dptr, size_t bytesize, unsigned int flags, bool paged)
{
    struct towc_call call;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t size = paged ? (bytesize + page - 1) & ~(page - 1) : bytesize;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuMemAllocManaged, 16, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, size);
    tow_enc_u32(&call.enc, flags);
    tow_enc_u32(&call.enc, paged ? TOW_MANAGED_FETCHED : TOW_MANAGED_SENT);
    status = towc_call_wait(&call);
    uint64_t address = status == CUDA_SUCCESS ? tow_dec_u64(&call.dec) : 0;
    status = towc_call_end(&call, status);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_region region = towc_region_here(address, bytesize, TOW_REGION_MANAGED, flags);
    status = towc_mirror_managed(region.link, address, size, paged ? TOW_MANAGED_PAGED : 0);
    if (status == CUDA_SUCCESS && towc_region_add(&region) < 0) {
        towc_mirror_remove(address, size);
        status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (status != CUDA_SUCCESS) {
        towc_send_cuMemFree_v2(address);
        return status;
    }
    *dptr = address;
    return CUDA_SUCCESS;
}

CUresult towc_cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    if (dptr == NULL || bytesize == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_capture_unsafe();
    if (status != CUDA_SUCCESS) {
        return status;
    }
    const struct towc_context *context = towc_context_current();
    if (context_here() == CUDA_SUCCESS && towc_fault_wanted(context->link, bytesize)) {
        status = alloc_managed(dptr, bytesize, flags, true);
        if (status != CUDA_ERROR_NOT_SUPPORTED) {
            return status;
        }
    }
    return alloc_managed(dptr, bytesize, flags, false);
}

CUresult towc_cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_region region;
    if (pFlags == NULL || !towc_region_find((uint64_t)(uintptr_t)p, &region) ||
        !towc_region_is_host(&region)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* With unified addressing all of it is mapped. */
    *pFlags = region.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

/* ---- what is at an address ---- */

/* What the driver calls the range of an address: of a mapping, all that was reserved around it. */
static struct towc_region range_of(const struct towc_region *region)
{
    struct towc_region around;
    return region->kind == TOW_REGION_VMM && towc_region_find_reserved(region->base, &around)
               ? around
               : *region;
}

/* As what the memory behind a mapping may be exported. */
static uint64_t handle_types(CUdeviceptr ptr)
{
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp prop = {.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE};
    if (towc_send_cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)ptr) == CUDA_SUCCESS) {
        towc_send_cuMemGetAllocationPropertiesFromHandle(&prop, memory);
        towc_send_cuMemRelease(memory);
    }
    return (uint64_t)prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

static CUresult attribute_of(const struct towc_region *region, CUpointer_attribute attribute,
                             CUdeviceptr ptr, void *data)
{
    bool host = towc_region_is_host(region);
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        if (region->context == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(CUcontext *)data = region->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host && region->kind != TOW_REGION_MANAGED) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *(void **)data = (void *)(uintptr_t)ptr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)data = region->sync_memops;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)data = region->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = region->kind == TOW_REGION_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = region->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = region->kind == TOW_REGION_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = range_of(region).base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range_of(region).size;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = region->kind != TOW_REGION_RESERVED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = region->kind == TOW_REGION_VMM ? handle_types(ptr) : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = region->pool;
        if (region->kind == TOW_REGION_POOL && region->pool == NULL && !region->graph) {
            /* cuMemAllocAsync took it from the device's pool. */
            return towc_send_cuDeviceGetMemPool(data, region->device);
        }
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(int *)data = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* How many bytes an attribute's value takes; 0 for one that is not known. */
static size_t attribute_size(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return 4;
    default:
        return 0;
    }
}

CUresult towc_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_region region;
    if (data == NULL || ptr == 0 || attribute_size(attribute) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!find_any(ptr, &region)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return attribute_of(&region, attribute, ptr, data);
}

CUresult towc_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                     void **data, CUdeviceptr ptr)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (attributes == NULL || data == NULL || numAttributes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_region region;
    bool found = find_any(ptr, &region);
    for (unsigned i = 0; i < numAttributes; i++) {
        size_t size = attribute_size(attributes[i]);
        if (size == 0 || data[i] == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        memset(data[i], 0, size);
        if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            *(int *)data[i] = -2; /* CU_DEVICE_INVALID */
        }
        if (!found && attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
            *(CUdeviceptr *)data[i] = ptr; /* what CUDA does not know is the host's */
        }
        if (found) {
            attribute_of(&region, attributes[i], ptr, data[i]);
        }
    }
    return CUDA_SUCCESS;
}

static void set_sync_memops(struct towc_region *region, void *user)
{
    region->sync_memops = *(const int *)user != 0;
}

CUresult towc_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                    CUdeviceptr ptr)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    int wanted = 0;
    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&wanted, value, sizeof wanted);
    return towc_region_edit(ptr, set_sync_memops, &wanted) ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
}
