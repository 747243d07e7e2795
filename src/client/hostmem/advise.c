/* SPDX-License-Identifier: Apache-2.0 */
/* Where managed memory should be: advice, prefetching, and what was said before. */
#include <string.h>

#include "client/stream/context.h"
#include "gen/memory_client.h"

enum { ACCESSED_BY_MAX = 1024 }; /* devices that one question may name */

static CUmemLocation location_of(CUdevice device)
{
    return device == CU_DEVICE_CPU
               ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
               : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

CUresult towc_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                             CUmemLocation location)
{
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        /* Whatever it is, it has no meaning here and may name no device. */
        location = location_of(CU_DEVICE_CPU);
        break;
    default:
        break;
    }
    return towc_send_cuMemAdvise_v2(devPtr, count, advice, location);
}

CUresult towc_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    return towc_cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

CUresult towc_cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                                 CUstream hStream)
{
    return towc_cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}

static CUresult advise_ask(void *data, size_t size, CUmem_range_attribute attribute,
                           CUdeviceptr address, size_t count, struct towc_link **ret_link)
{
    struct towc_call call;
    CUresult status = towc_call_begin(&call, TOW_FN_cuMemRangeGetAttribute, 32,
                                      TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, address);
    tow_enc_u64(&call.enc, count);
    tow_enc_u32(&call.enc, (uint32_t)size);
    tow_enc_u32(&call.enc, (uint32_t)attribute);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        towc_call_get_bytes(&call, data, size);
        *ret_link = call.link;
    }
    return towc_call_end(&call, status);
}

/* Places that are no device (the host, none) are negative and stay as they are. */
static void advise_localise(const struct towc_link *link, int *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (devices[i] >= 0) {
            devices[i] = towc_device_on(link, devices[i]);
        }
    }
}

CUresult towc_cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                     CUdeviceptr devPtr, size_t count)
{
    if (data == NULL || dataSize == 0 || dataSize % sizeof(int) != 0 ||
        dataSize > ACCESSED_BY_MAX * sizeof(int) || devPtr == 0 || count == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_link *link = NULL;
    CUresult status = advise_ask(data, dataSize, attribute, devPtr, count, &link);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    int type = 0;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        advise_localise(link, data, dataSize / sizeof(int));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        status = advise_ask(&type, sizeof type, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
                            devPtr, count, &link);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        status = advise_ask(&type, sizeof type, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
                            devPtr, count, &link);
        break;
    default:
        return CUDA_SUCCESS;
    }
    if (status == CUDA_SUCCESS && type == CU_MEM_LOCATION_TYPE_DEVICE) {
        advise_localise(link, data, 1);
    }
    return status;
}

CUresult towc_cuMemRangeGetAttributes(void **data, size_t *dataSizes,
                                      CUmem_range_attribute *attributes, size_t numAttributes,
                                      CUdeviceptr devPtr, size_t count)
{
    if (data == NULL || dataSizes == NULL || attributes == NULL || numAttributes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; i < numAttributes && status == CUDA_SUCCESS; i++) {
        status = towc_cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    }
    return status;
}
