/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools, stream-ordered allocation, and address space that the program maps itself. */
#include "client/stream/capture.h"
#include "client/stream/context.h"
#include "client/hostmem/region.h"
#include "client/completion/completion.h"
#include "client/hostmem/shareable.h"
#include "client/stream/stream.h"
#include "gen/pool_client.h"
#include "gen/vmm_client.h"

#include <string.h>

static CUresult keep_pool_memory(CUdeviceptr address, size_t size, CUmemoryPool pool,
                                 CUstream stream, CUdeviceptr *ret_address)
{
    struct towc_region region = towc_region_of_pool(address, size, pool), known;
    region.graph = towc_capture_on(stream); /* each launch of the graph allocates it */
    bool there = region.graph && towc_region_find(address, &known) && known.graph &&
                 known.base == address && known.size >= size;
    if (!there && towc_region_add(&region) < 0) {
        towc_send_cuMemFreeAsync(address, stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_address = address;
    return CUDA_SUCCESS;
}

CUresult towc_cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    if (dptr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytesize == 0) {
        CUresult here = towc_stream_check(hStream);
        *dptr = here == CUDA_SUCCESS ? 0 : *dptr;
        return here;
    }
    CUdeviceptr address = 0;
    CUresult status = towc_send_cuMemAllocAsync(&address, bytesize, hStream);
    *dptr = 0; /* also when it fails, as NVIDIA's driver does */
    return status == CUDA_SUCCESS ? keep_pool_memory(address, bytesize, NULL, hStream, dptr)
                                  : status;
}

CUresult towc_cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream)
{
    if (dptr == NULL || bytesize == 0 || pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUdeviceptr address = 0;
    CUresult status = towc_send_cuMemAllocFromPoolAsync(&address, bytesize, pool, hStream);
    *dptr = 0;
    return status == CUDA_SUCCESS ? keep_pool_memory(address, bytesize, pool, hStream, dptr)
                                  : status;
}

CUresult towc_cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    unsigned kinds = 1u << TOW_REGION_POOL | 1u << TOW_REGION_DEVICE;
    struct towc_region region;
    CUresult status = towc_stream_check(hStream);
    if (status != CUDA_SUCCESS || dptr == 0) { /* cuSPARSE frees what it never allocated */
        return status;
    }
    if (towc_region_find(dptr, &region) && region.graph) {
        return towc_send_cuMemFreeAsync(dptr, hStream);
    }
    if (!towc_region_remove(dptr, kinds, &region)) {
        bool managed = towc_region_find(dptr, &region) && region.kind == TOW_REGION_MANAGED &&
                       region.base == dptr && !towc_capture_on(hStream);
        return managed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    status = towc_send_cuMemFreeAsync(dptr, hStream);
    if (status != CUDA_SUCCESS) {
        towc_region_add(&region); /* it is still there */
    } else {
        towc_completion_owe(region.link, hStream);
    }
    return status;
}

CUresult towc_cuMemPoolDestroy(CUmemoryPool pool)
{
    towc_shareable_sweep();
    CUresult status = towc_send_cuMemPoolDestroy(pool);
    if (status == CUDA_SUCCESS) {
        towc_handle_retire((uint64_t)(uintptr_t)pool);
    }
    return status;
}

/* ---- attributes: 4 or 8 bytes, as the attribute says ---- */

static size_t pool_attribute_size(CUmemPool_attribute attr)
{
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return 4;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return 8;
    default:
        return 0;
    }
}

CUresult towc_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    size_t size = pool_attribute_size(attr);
    uint64_t wide = 0;
    if (value == NULL || size == 0 || pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&wide, value, size);
    struct towc_call call;
    CUresult status = towc_call_begin(&call, TOW_FN_cuMemPoolSetAttribute, 24, TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)pool);
    tow_enc_u64(&call.enc, wide);
    tow_enc_u32(&call.enc, (uint32_t)attr);
    return towc_call_end(&call, towc_call_wait(&call));
}

CUresult towc_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    size_t size = pool_attribute_size(attr);
    if (value == NULL || size == 0 || pool == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_call call;
    CUresult status = towc_call_begin(&call, TOW_FN_cuMemPoolGetAttribute, 16, TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)pool);
    tow_enc_u32(&call.enc, (uint32_t)attr);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        uint64_t wide = tow_dec_u64(&call.dec);
        memcpy(value, &wide, size);
    }
    return towc_call_end(&call, status);
}

/* ---- address space ---- */

CUresult towc_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                  unsigned long long flags)
{
    if (ptr == NULL || size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_send_cuMemAddressReserve(ptr, size, alignment, addr, flags);
    if (status == CUDA_SUCCESS) {
        struct towc_region region = {
            .base = *ptr, .size = size, .kind = TOW_REGION_RESERVED, .device = -2};
        if (towc_region_add(&region) < 0) {
            towc_send_cuMemAddressFree(*ptr, size);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return status;
}

CUresult towc_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult status = towc_send_cuMemAddressFree(ptr, size);
    if (status == CUDA_SUCCESS) {
        towc_region_remove(ptr, 1u << TOW_REGION_RESERVED, NULL);
    }
    return status;
}

CUresult towc_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                          const CUmemAllocationProp *prop, unsigned long long flags)
{
    if (handle == NULL || prop == NULL) {
        return towc_client_state() != CUDA_SUCCESS ? towc_client_state() : CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.type >= CU_MEM_LOCATION_TYPE_HOST &&
        prop->location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
        /* It would be the worker's. NCCL tries, and does without if it is refused. */
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        /* It could not be exported. PyTorch tries fabric handles, and takes descriptors then. */
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    towc_shareable_sweep();
    return towc_send_cuMemCreate(handle, size, prop, flags);
}

CUresult towc_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    towc_shareable_sweep();
    return towc_send_cuMemRelease(handle);
}

CUresult towc_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                       CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult status = towc_send_cuMemMap(ptr, size, offset, handle, flags);
    if (status == CUDA_SUCCESS) {
        struct towc_context *context = towc_context_current();
        struct towc_region region = {.base = ptr, .size = size, .kind = TOW_REGION_VMM};
        if (context != NULL) {
            region.device = context->device;
            region.link = context->link;
        }
        if (towc_region_add(&region) < 0) {
            towc_send_cuMemUnmap(ptr, size);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return status;
}

CUresult towc_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    towc_shareable_sweep();
    CUresult status = towc_send_cuMemUnmap(ptr, size);
    if (status == CUDA_SUCCESS) {
        towc_region_remove_mappings(ptr, size);
    }
    return status;
}
