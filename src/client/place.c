/* Records that name a place (CUmemLocation): the program's device numbers become the server's, and
 * back. The generated code calls these hooks; `translate` in api/types.api names the records. */
#include "client/call.h"
#include "gen/client_api.h"

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
