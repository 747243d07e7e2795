/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps. Their 128 bytes are the driver's secret, so the server's driver encodes them.
 *
 * Matrix libraries encode the same shapes again and again at changing addresses, once per launch.
 * So answers are kept. Where the server has seen that its driver keeps the address as it is in the
 * first eight bytes, an answer for one address serves for all. */
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "client/stream/context.h"
#include "gen/texture_client.h"
#include "wire/tensor.h"

enum { KEPT = 512 }; /* shapes; a power of two */

struct kept {
    struct towc_link *link; /* borrowed: whose driver said so; NULL: empty */
    struct tow_tensor_tiled shape;
    uint8_t map[TOW_TENSOR_MAP_SIZE];
    bool plain; /* the address is the first eight bytes */
};

/* Process-wide: a cache; entries name their link. */
static struct {
    struct tow_mutex lock; /* guards the next and what it points at */
    struct kept *table;    /* owned, never freed */
} maps = {.lock = TOW_MUTEX(CLIENT_TENSORS)};

/* Of everything but the address. */
static size_t place_of(const struct tow_tensor_tiled *shape)
{
    const uint8_t *bytes = (const uint8_t *)shape;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = sizeof shape->address; i < sizeof *shape; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return (hash ^ hash >> 32) & (KEPT - 1);
}

static bool same_shape(const struct tow_tensor_tiled *a, const struct tow_tensor_tiled *b)
{
    size_t skip = sizeof a->address;
    return memcmp((const uint8_t *)a + skip, (const uint8_t *)b + skip, sizeof *a - skip) == 0;
}

static bool tensor_recall(struct towc_link *link, const struct tow_tensor_tiled *shape,
                          CUtensorMap *map)
{
    bool found = false;
    uint64_t mask = shape->interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 31 : 15;
    tow_mutex_lock(&maps.lock);
    const struct kept *kept = maps.table != NULL ? &maps.table[place_of(shape)] : NULL;
    if (kept != NULL && kept->link == link && same_shape(&kept->shape, shape) &&
        (kept->shape.address == shape->address ||
         (kept->plain && (shape->address & mask) == 0 && shape->address != 0))) {
        memcpy(map, kept->map, sizeof kept->map);
        if (kept->plain) {
            memcpy(map, &shape->address, sizeof shape->address);
        }
        found = true;
    }
    tow_mutex_unlock(&maps.lock);
    return found;
}

static void tensor_keep(struct towc_link *link, const struct tow_tensor_tiled *shape,
                        const CUtensorMap *map, bool plain)
{
    tow_mutex_lock(&maps.lock);
    if (maps.table == NULL) {
        maps.table = calloc(KEPT, sizeof *maps.table);
    }
    if (maps.table != NULL) {
        struct kept *kept = &maps.table[place_of(shape)];
        kept->link = link;
        kept->shape = *shape;
        kept->plain = plain;
        memcpy(kept->map, map, sizeof kept->map);
    }
    tow_mutex_unlock(&maps.lock);
}

static CUresult tensor_check(const void *map, uint32_t rank, const void *dim, const void *stride,
                             const void *step)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    return map == NULL || rank == 0 || rank > TOW_TENSOR_RANK_MAX || dim == NULL || step == NULL ||
                   (stride == NULL && rank > 1)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

CUresult towc_cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                     cuuint32_t tensorRank, void *globalAddress,
                                     const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                     const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
                                     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                     CUtensorMapL2promotion l2Promotion,
                                     CUtensorMapFloatOOBfill oobFill)
{
    CUresult status = tensor_check(tensorMap, tensorRank, globalDim, globalStrides, elementStrides);
    if (status != CUDA_SUCCESS || boxDim == NULL) {
        return status != CUDA_SUCCESS ? status : CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_tensor_tiled shape = {.address = (uint64_t)(uintptr_t)globalAddress,
                                     .type = (uint32_t)tensorDataType,
                                     .rank = tensorRank,
                                     .interleave = (uint32_t)interleave,
                                     .swizzle = (uint32_t)swizzle,
                                     .promotion = (uint32_t)l2Promotion,
                                     .fill = (uint32_t)oobFill};
    for (uint32_t i = 0; i < tensorRank; i++) {
        shape.dim[i] = globalDim[i];
        shape.stride[i] = i + 1 < tensorRank ? globalStrides[i] : 0;
        shape.box[i] = boxDim[i];
        shape.step[i] = elementStrides[i];
    }
    struct towc_context *context = towc_context_current();
    struct towc_link *link = context != NULL ? context->link : towc_client_link(-1);
    if (tensor_recall(link, &shape, tensorMap)) {
        return CUDA_SUCCESS;
    }
    struct towc_call call;
    status =
        towc_call_begin(&call, TOW_FN_cuTensorMapEncodeTiled, TOW_TENSOR_WIRE_SIZE, TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_tensor_put(&call.enc, &shape);
    status = towc_call_wait(&call);
    bool plain = false;
    if (status == CUDA_SUCCESS) {
        plain = tow_dec_u64(&call.dec) != 0;
        towc_call_get_bytes(&call, tensorMap, TOW_TENSOR_MAP_SIZE);
    }
    status = towc_call_end(&call, status);
    if (status == CUDA_SUCCESS) {
        tensor_keep(link, &shape, tensorMap, plain);
    }
    return status;
}

CUresult towc_cuTensorMapEncodeIm2col(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    const int *pixelBoxLowerCorner, const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    CUresult status = tensor_check(tensorMap, tensorRank, globalDim, globalStrides, elementStrides);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (tensorRank < 3 || pixelBoxLowerCorner == NULL || pixelBoxUpperCorner == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return towc_send_cuTensorMapEncodeIm2col(
        tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
        pixelBoxLowerCorner, pixelBoxUpperCorner, channelsPerPixel, pixelsPerColumn, elementStrides,
        interleave, swizzle, l2Promotion, oobFill);
}

CUresult towc_cuTensorMapEncodeIm2colWide(
    CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void *globalAddress, const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
    int pixelBoxLowerCornerWidth, int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill)
{
    CUresult status = tensor_check(tensorMap, tensorRank, globalDim, globalStrides, elementStrides);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    return towc_send_cuTensorMapEncodeIm2colWide(
        tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
        pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth, channelsPerPixel, pixelsPerColumn,
        elementStrides, interleave, mode, swizzle, l2Promotion, oobFill);
}
