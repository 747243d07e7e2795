/* SPDX-License-Identifier: Apache-2.0 */
/* Records that name a place (CUmemLocation): the program's device numbers become the server's, and
 * back. The generated code calls these hooks; `translate` in api/types.api names the records. */
#include <stdlib.h>

#include "client/link/call.h"
#include "client/link/current.h"
#include "gen/client_api.h"
#include "gen/vmm_client.h"

CUresult towc_pack_CUmemLocation(CUmemLocation *record, struct towc_link **link)
{
    if (record->type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_SUCCESS; /* the host, or a part of it: the server's machine stands for ours */
    }
    CUresult status = towc_device_route(record->id, link);
    if (status == CUDA_SUCCESS) {
        record->id = towc_device_to_server(record->id);
    }
    return status;
}

void towc_unpack_CUmemLocation(struct towc_link *link, CUmemLocation *record)
{
    if (record->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        record->id = towc_device_on(link, record->id);
    }
}

CUresult towc_pack_CUmemAllocationProp(CUmemAllocationProp *record, struct towc_link **link)
{
    record->win32HandleMetaData = NULL;
    return towc_pack_CUmemLocation(&record->location, link);
}

void towc_unpack_CUmemAllocationProp(struct towc_link *link, CUmemAllocationProp *record)
{
    record->win32HandleMetaData = NULL;
    towc_unpack_CUmemLocation(link, &record->location);
}

CUresult towc_pack_CUmemAccessDesc(CUmemAccessDesc *record, struct towc_link **link)
{
    return towc_pack_CUmemLocation(&record->location, link);
}

void towc_unpack_CUmemAccessDesc(struct towc_link *link, CUmemAccessDesc *record)
{
    towc_unpack_CUmemLocation(link, &record->location);
}

CUresult towc_pack_CUmemPoolProps(CUmemPoolProps *record, struct towc_link **link)
{
    record->win32SecurityAttributes = NULL;
    return towc_pack_CUmemLocation(&record->location, link);
}

void towc_unpack_CUmemPoolProps(struct towc_link *link, CUmemPoolProps *record)
{
    towc_unpack_CUmemLocation(link, &record->location);
}

/* A set of devices, one bit each. */
static CUresult pack_devices(unsigned *mask, struct towc_link **link)
{
    unsigned sent = 0;
    for (int i = 0; i < 32; i++) {
        if ((*mask & 1u << i) == 0) {
            continue;
        }
        CUresult status = towc_device_route(i, link);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        sent |= 1u << towc_device_to_server(i);
    }
    *mask = sent;
    return CUDA_SUCCESS;
}

CUresult towc_cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
    struct towc_context *context = towc_context_current();
    struct towc_link *link = context != NULL ? context->link : NULL;
    if (mapInfoList == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUarrayMapInfo *sent = calloc(count + (size_t)1, sizeof *sent);
    CUresult status = sent != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < count && status == CUDA_SUCCESS; i++) {
        sent[i] = mapInfoList[i];
        status = pack_devices(&sent[i].deviceBitMask, &link);
    }
    if (status == CUDA_SUCCESS) {
        status = towc_send_cuMemMapArrayAsync(sent, count, hStream);
    }
    free(sent);
    return status;
}
