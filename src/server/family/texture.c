/* SPDX-License-Identifier: Apache-2.0 */
/* Records of arrays and textures that hold handles: ids on the wire, the driver's own here. */
#include "gen/server_api.h"
#include "server/session/serve.h"
#include "server/session/serve.h"

void tow_serve_unpack_CUDA_RESOURCE_DESC(struct tow_serve *call, CUDA_RESOURCE_DESC *record)
{
    if (record->resType == CU_RESOURCE_TYPE_ARRAY) {
        record->res.array.hArray =
            tow_serve_handle(call, TOW_H_ARRAY, (uint64_t)(uintptr_t)record->res.array.hArray);
    } else if (record->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        record->res.mipmap.hMipmappedArray = tow_serve_handle(
            call, TOW_H_MIPMAPPEDARRAY, (uint64_t)(uintptr_t)record->res.mipmap.hMipmappedArray);
    }
}

void tow_serve_pack_CUDA_RESOURCE_DESC(struct tow_serve *call, CUDA_RESOURCE_DESC *record)
{
    if (record->resType == CU_RESOURCE_TYPE_ARRAY) {
        record->res.array.hArray =
            (CUarray)(uintptr_t)tow_serve_export(call, TOW_H_ARRAY, record->res.array.hArray);
    } else if (record->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        record->res.mipmap.hMipmappedArray = (CUmipmappedArray)(uintptr_t)tow_serve_export(
            call, TOW_H_MIPMAPPEDARRAY, record->res.mipmap.hMipmappedArray);
    }
}

void tow_serve_unpack_CUarrayMapInfo(struct tow_serve *call, CUarrayMapInfo *record)
{
    if (record->resourceType == CU_RESOURCE_TYPE_ARRAY) {
        record->resource.array =
            tow_serve_handle(call, TOW_H_ARRAY, (uint64_t)(uintptr_t)record->resource.array);
    } else if (record->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
        record->resource.mipmap = tow_serve_handle(call, TOW_H_MIPMAPPEDARRAY,
                                                   (uint64_t)(uintptr_t)record->resource.mipmap);
    }
}

void tow_serve_pack_CUarrayMapInfo(struct tow_serve *call, CUarrayMapInfo *record)
{
    /* No function hands one out. */
    (void)call;
    record->resource.array = NULL;
}
