/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of copies: the single copies in their order, which every rule about batches allows. */
#include "client/stream/context.h"
#include "client/copy/copy.h"
#include "client/hostmem/mirror.h"
#include "gen/copy_client.h"
#include "gen/device_client.h"
#include "gen/memory_client.h"
#include "gen/texture_client.h"

/* The driver refuses batches on the legacy default stream. */
static CUresult check_stream(CUstream stream)
{
    struct towc_link *link;
    return stream == NULL || stream == CU_STREAM_LEGACY ? CUDA_ERROR_INVALID_VALUE
                                                        : towc_context_link(&link);
}

static bool order_known(CUmemcpySrcAccessOrder order)
{
    return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
           order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
}

static CUresult check_attributes(const CUmemcpyAttributes *attrs, const size_t *first, size_t count,
                                 size_t copies)
{
    if (attrs == NULL || first == NULL || count == 0 || count > copies || first[0] != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        if (!order_known(attrs[i].srcAccessOrder) || first[i] >= copies ||
            (i > 0 && first[i] <= first[i - 1])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                                 CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                                 size_t *failIdx, CUstream hStream)
{
    CUresult status = check_stream(hStream);
    if (status == CUDA_SUCCESS && failIdx != NULL) {
        *failIdx = SIZE_MAX; /* not one copy in particular */
    }
    if (status == CUDA_SUCCESS && (dsts == NULL || srcs == NULL || sizes == NULL || count == 0)) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        status = check_attributes(attrs, attrsIdxs, numAttrs, count);
    }
    for (size_t i = 0; i < count && status == CUDA_SUCCESS; i++) {
        status = towc_cuMemcpyAsync(dsts[i], srcs[i], sizes[i], hStream);
        if (status != CUDA_SUCCESS && failIdx != NULL) {
            *failIdx = i;
        }
    }
    return status;
}

CUresult towc_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                    size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs,
                                    size_t numAttrs, CUstream hStream)
{
    if (dsts == NULL || srcs == NULL || sizes == NULL || count == 0) {
        return CUDA_ERROR_INVALID_VALUE; /* before cuInit, too */
    }
    return towc_cuMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL,
                                   hStream);
}

/* ---- boxes ---- */

/* Bytes of an array's element; 0 for formats whose elements are blocks or planes. */
static size_t element_size(const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    switch ((unsigned)array->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return array->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return (size_t)array->NumChannels * 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return (size_t)array->NumChannels * 4;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
        return 1;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
        return 2;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2:
        return 4;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
        return 8;
    default:
        return 0;
    }
}

/* Lengths are in elements of the array that takes part; without one, in bytes. */
static CUresult operand_element(const CUmemcpy3DOperand *operand, size_t *element)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
        return CUDA_SUCCESS;
    }
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_ARRAY3D_DESCRIPTOR array;
    CUresult status = towc_cuArray3DGetDescriptor_v2(&array, operand->op.array.array);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    size_t size = element_size(&array);
    if (size == 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (*element != 0 && *element != size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *element = size;
    return CUDA_SUCCESS;
}

static CUresult copy_box(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream)
{
    size_t element = 0;
    bool empty = op->extent.width == 0 || op->extent.height == 0 || op->extent.depth == 0;
    CUresult status = order_known(op->srcAccessOrder) && !empty
                          ? operand_element(&op->src, &element)
                          : CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        status = operand_element(&op->dst, &element);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    element = element == 0 ? 1 : element;
    CUDA_MEMCPY3D copy = {.WidthInBytes = op->extent.width * element,
                          .Height = op->extent.height,
                          .Depth = op->extent.depth};
    if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = op->src.op.array.array;
        copy.srcXInBytes = op->src.op.array.offset.x * element;
        copy.srcY = op->src.op.array.offset.y;
        copy.srcZ = op->src.op.array.offset.z;
    } else {
        size_t row = op->src.op.ptr.rowLength, layer = op->src.op.ptr.layerHeight;
        copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy.srcDevice = op->src.op.ptr.ptr;
        copy.srcPitch = (row != 0 ? row : op->extent.width) * element;
        copy.srcHeight = layer != 0 ? layer : op->extent.height;
    }
    if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = op->dst.op.array.array;
        copy.dstXInBytes = op->dst.op.array.offset.x * element;
        copy.dstY = op->dst.op.array.offset.y;
        copy.dstZ = op->dst.op.array.offset.z;
    } else {
        size_t row = op->dst.op.ptr.rowLength, layer = op->dst.op.ptr.layerHeight;
        copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        copy.dstDevice = op->dst.op.ptr.ptr;
        copy.dstPitch = (row != 0 ? row : op->extent.width) * element;
        copy.dstHeight = layer != 0 ? layer : op->extent.height;
    }
    return towc_cuMemcpy3DAsync_v2(&copy, stream);
}

static bool is_nowhere(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER && operand->op.ptr.ptr == 0;
}

CUresult towc_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                                   unsigned long long flags, CUstream hStream)
{
    CUresult status = check_stream(hStream);
    if (status == CUDA_SUCCESS && failIdx != NULL) {
        *failIdx = SIZE_MAX;
    }
    if (status == CUDA_SUCCESS && (opList == NULL || numOps == 0 || flags != 0)) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < numOps && status == CUDA_SUCCESS; i++) {
        const CUextent3D *extent = &opList[i].extent;
        if (extent->width != 0 && extent->height != 0 && extent->depth != 0 &&
            (is_nowhere(&opList[i].src) || is_nowhere(&opList[i].dst))) {
            status = CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (size_t i = 0; i < numOps && status == CUDA_SUCCESS; i++) {
        status = copy_box(&opList[i], hStream);
        if (status != CUDA_SUCCESS && failIdx != NULL) {
            *failIdx = i;
        }
    }
    return status;
}

CUresult towc_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                      unsigned long long flags, CUstream hStream)
{
    if (opList == NULL || numOps == 0) {
        return CUDA_ERROR_INVALID_VALUE; /* before cuInit, too */
    }
    return towc_cuMemcpy3DBatchAsync(numOps, opList, NULL, flags, hStream);
}

/* ---- managed memory ---- */

static CUresult check_ranges(const CUdeviceptr *ranges, const size_t *sizes, size_t count,
                             CUstream stream)
{
    CUresult status = check_stream(stream);
    return status == CUDA_SUCCESS && (ranges == NULL || sizes == NULL || count == 0)
               ? CUDA_ERROR_INVALID_VALUE
               : status;
}

static CUresult check_prefetch(const CUdeviceptr *ranges, const size_t *sizes, size_t count,
                               const CUmemLocation *places, const size_t *first, size_t place_count,
                               CUstream stream)
{
    CUresult status = check_ranges(ranges, sizes, count, stream);
    return status == CUDA_SUCCESS && (places == NULL || first == NULL || place_count == 0)
               ? CUDA_ERROR_INVALID_VALUE
               : status;
}

CUresult towc_cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                      size_t numPrefetchLocs, unsigned long long flags,
                                      CUstream hStream)
{
    CUresult status = check_prefetch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                                     numPrefetchLocs, hStream);
    return status != CUDA_SUCCESS
               ? status
               : towc_send_cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs,
                                                   prefetchLocIdxs, numPrefetchLocs, flags,
                                                   hStream);
}

CUresult towc_cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                     unsigned long long flags, CUstream hStream)
{
    CUresult status = check_ranges(dptrs, sizes, count, hStream);
    return status != CUDA_SUCCESS
               ? status
               : towc_send_cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream);
}

CUresult towc_cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                                CUmemLocation *prefetchLocs,
                                                size_t *prefetchLocIdxs, size_t numPrefetchLocs,
                                                unsigned long long flags, CUstream hStream)
{
    CUresult status = check_prefetch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                                     numPrefetchLocs, hStream);
    return status != CUDA_SUCCESS
               ? status
               : towc_send_cuMemDiscardAndPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs,
                                                             prefetchLocIdxs, numPrefetchLocs,
                                                             flags, hStream);
}

/* ---- decompression ---- */

CUresult towc_cuMemBatchDecompressAsync(CUmemDecompressParams *paramsArray, size_t count,
                                        unsigned int flags, size_t *errorIndex, CUstream stream)
{
    const struct towc_context *context = towc_context_current();
    int algorithms = 0;
    if (context != NULL) {
        /* That the device has no engine is said before anything else. */
        CUresult status = towc_cuDeviceGetAttribute(
            &algorithms, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, context->device);
        if (status != CUDA_SUCCESS || algorithms == 0) {
            return status != CUDA_SUCCESS ? status : CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    if (paramsArray == NULL && count > 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult pushed = context != NULL ? towc_mirror_push(context->link) : CUDA_SUCCESS;
    return pushed != CUDA_SUCCESS
               ? pushed
               : towc_send_cuMemBatchDecompressAsync(paramsArray, count, flags, errorIndex, stream);
}
