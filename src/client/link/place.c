/* SPDX-License-Identifier: Apache-2.0 */
/* Records that name a place (CUmemLocation): the program's device numbers become the server's, and
 * back. The generated code calls these hooks; `translate` in api/types.api names the records. */
#include <stdlib.h>

#include "client/link/call.h"
#include "client/link/current.h"
#include "gen/client_api.h"
#include "gen/vmm_client.h"

CUresult tow_pack_CUmemLocation(CUmemLocation *record, struct tow_link **link)
{
    if (record->type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_SUCCESS; /* the host, or a part of it: the server's machine stands for ours */
    }
    CUresult status = tow_device_route(record->id, link);
    if (status == CUDA_SUCCESS) {
        record->id = tow_device_to_server(record->id);
    }
    return status;
}

void tow_unpack_CUmemLocation(struct tow_link *link, CUmemLocation *record)
{
    if (record->type == CU_MEM_LOCATION_TYPE_DEVICE) {
        record->id = tow_device_on(link, record->id);
    }
}

CUresult tow_pack_CUmemAllocationProp(CUmemAllocationProp *record, struct tow_link **link)
{
    record->win32HandleMetaData = NULL;
    return tow_pack_CUmemLocation(&record->location, link);
}

void tow_unpack_CUmemAllocationProp(struct tow_link *link, CUmemAllocationProp *record)
{
    record->win32HandleMetaData = NULL;
    tow_unpack_CUmemLocation(link, &record->location);
}

CUresult tow_pack_CUmemAccessDesc(CUmemAccessDesc *record, struct tow_link **link)
{
    return tow_pack_CUmemLocation(&record->location, link);
}

void tow_unpack_CUmemAccessDesc(struct tow_link *link, CUmemAccessDesc *record)
{
    tow_unpack_CUmemLocation(link, &record->location);
}

CUresult tow_pack_CUmemPoolProps(CUmemPoolProps *record, struct tow_link **link)
{
    record->win32SecurityAttributes = NULL;
    return tow_pack_CUmemLocation(&record->location, link);
}

void tow_unpack_CUmemPoolProps(struct tow_link *link, CUmemPoolProps *record)
{
    tow_unpack_CUmemLocation(link, &record->location);
}

/* A set of devices, one bit each. */
static CUresult pack_devices(unsigned *mask, struct tow_link **link)
{
    unsigned sent = 0;
    for (int i = 0; i < 32; i++) {
        if ((*mask & 1u << i) == 0) {
            continue;
        }
        CUresult status = tow_device_route(i, link);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        sent |= 1u << tow_device_to_server(i);
    }
    *mask = sent;
    return CUDA_SUCCESS;
}

CUresult tow_cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)
{
    struct tow_context *context = tow_context_current();
    struct tow_link *link = context != NULL ? context->link : NULL;
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
        status = tow_send_cuMemMapArrayAsync(sent, count, hStream);
    }
    free(sent);
    return status;
}
