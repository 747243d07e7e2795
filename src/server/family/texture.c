/* SPDX-License-Identifier: Apache-2.0 */
/* Records of arrays and textures that hold handles: ids on the wire, the driver's own here. */
#include "gen/server_api.h"
#include "server/session/serve.h"
#include "server/session/serve.h"

void tows_serve_unpack_CUDA_RESOURCE_DESC(struct tows_serve *call, CUDA_RESOURCE_DESC *record)
{
    if (record->resType == CU_RESOURCE_TYPE_ARRAY) {
        record->res.array.hArray =
            tows_serve_handle(call, TOW_H_ARRAY, (uint64_t)(uintptr_t)record->res.array.hArray);
    } else if (record->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        record->res.mipmap.hMipmappedArray = tows_serve_handle(
            call, TOW_H_MIPMAPPEDARRAY, (uint64_t)(uintptr_t)record->res.mipmap.hMipmappedArray);
    }
}

void tows_serve_pack_CUDA_RESOURCE_DESC(struct tows_serve *call, CUDA_RESOURCE_DESC *record)
{
    if (record->resType == CU_RESOURCE_TYPE_ARRAY) {
        record->res.array.hArray =
            (CUarray)(uintptr_t)tows_serve_export(call, TOW_H_ARRAY, record->res.array.hArray);
    } else if (record->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        record->res.mipmap.hMipmappedArray = (CUmipmappedArray)(uintptr_t)tows_serve_export(
            call, TOW_H_MIPMAPPEDARRAY, record->res.mipmap.hMipmappedArray);
    }
}

void tows_serve_unpack_CUarrayMapInfo(struct tows_serve *call, CUarrayMapInfo *record)
{
    if (record->resourceType == CU_RESOURCE_TYPE_ARRAY) {
        record->resource.array =
            tows_serve_handle(call, TOW_H_ARRAY, (uint64_t)(uintptr_t)record->resource.array);
    } else if (record->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        record->resource.mipmap = tows_serve_handle(call, TOW_H_MIPMAPPEDARRAY,
                                                    (uint64_t)(uintptr_t)record->resource.mipmap);
    }
}

void tows_serve_pack_CUarrayMapInfo(struct tows_serve *call, CUarrayMapInfo *record)
{
    /* No function hands one out. */
    (void)call;
    record->resource.array = NULL;
}
