/* SPDX-License-Identifier: Apache-2.0 */
/* Tiled tensor maps: the driver encodes, and we look whether its encoding has the address as it is,
 * so that the client need not ask again for another address. */
#include "gen/texture_server.h"
#include "server/session/serve.h"

#include <string.h>

#include "wire/tensor.h"

static bool address_is_plain(const struct tow_driver *driver, const CUtensorMap *map,
                             uint64_t address)
{
    /* Moves by a multiple of every alignment that tensor maps ask for. */
    uint64_t other = address ^ UINT64_C(0x15554000);
    CUtensorMap moved = *map;
    return map->opaque[0] == address &&
           tow_drive(driver, cuTensorMapReplaceAddress)(&moved, (void *)(uintptr_t)other) ==
               CUDA_SUCCESS &&
           moved.opaque[0] == other &&
           memcmp(&moved.opaque[1], &map->opaque[1], sizeof *map - sizeof map->opaque[0]) == 0;
}

void tows_serve_cuTensorMapEncodeTiled(struct tows_serve *call)
{
    struct tow_tensor_tiled t;
    tow_tensor_get(&call->in, &t);
    if (t.rank == 0 || t.rank > TOW_TENSOR_RANK_MAX) {
        call->malformed = true;
    }
    if (!tows_serve_ready(call)) {
        return;
    }
    CUtensorMap map;
    memset(&map, 0, sizeof map);
    call->status = tow_drive(call->driver, cuTensorMapEncodeTiled)(
        &map, (CUtensorMapDataType)t.type, t.rank, (void *)(uintptr_t)t.address,
        (const cuuint64_t *)t.dim, (const cuuint64_t *)t.stride, t.box, t.step,
        (CUtensorMapInterleave)t.interleave, (CUtensorMapSwizzle)t.swizzle,
        (CUtensorMapL2promotion)t.promotion, (CUtensorMapFloatOOBfill)t.fill);
    if (call->status != CUDA_SUCCESS) {
        return;
    }
    tows_serve_reserve(call, 16 + sizeof map);
    tow_enc_u64(&call->out, address_is_plain(call->driver, &map, t.address));
    tow_enc_bytes(&call->out, &map, sizeof map);
}
