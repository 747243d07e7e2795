/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills of every shape. All become one form: rows of bytes in slices of both operands.
 *
 * What waits follows CUDA: synchronous copies that touch host memory return when done, device to
 * device and fills return at once, an asynchronous copy from pageable memory has read its source
 * when it returns, one to pageable memory is done when it returns.
 */
#include "backend/soft/copy/copy.h"
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/arena.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/array.h"
#include "base/mutex.h"
#include "gen/copy.h"

#include <stdlib.h>
#include <string.h>

enum operand_kind {
    OPERAND_HOST,
    OPERAND_DEVICE,
    OPERAND_ARRAY,
    OPERAND_UNIFIED,
};

/* One operand of a copy as the caller gave it. */
struct operand {
    enum operand_kind kind;
    uint64_t base;
    struct tow_soft_array *array;
    size_t x, y, z, pitch, height;
};

static enum operand_kind kind_of(CUmemorytype type)
{
    switch (type) {
    case CU_MEMORYTYPE_DEVICE:
        return OPERAND_DEVICE;
    case CU_MEMORYTYPE_ARRAY:
        return OPERAND_ARRAY;
    case CU_MEMORYTYPE_UNIFIED:
        return OPERAND_UNIFIED;
    default:
        return OPERAND_HOST;
    }
}

/* Where a side begins, its strides, and whether it is device memory. Work for a graph may also name
 * memory that a node of a graph will allocate. */
static CUresult copy_resolve(const struct operand *operand, size_t width, size_t height,
                             size_t depth, bool write, bool for_graph, uint8_t **ret_at,
                             size_t *ret_pitch, size_t *ret_slice, bool *ret_device)
{
    if (operand->kind == OPERAND_ARRAY) {
        const struct tow_soft_array *array = operand->array;
        size_t row = (size_t)array->texel * array->desc.Width;
        if (operand->x > row || width > row - operand->x || operand->y > array->rows ||
            height > array->rows - operand->y || operand->z > array->slices ||
            depth > array->slices - operand->z || operand->x % array->texel != 0 ||
            width % array->texel != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *ret_at = array->data + operand->z * array->slice_pitch + operand->y * array->row_pitch +
                  operand->x;
        *ret_pitch = array->row_pitch;
        *ret_slice = array->slice_pitch;
        *ret_device = false;
        return CUDA_SUCCESS;
    }
    size_t pitch = operand->pitch != 0 ? operand->pitch : width;
    size_t rows = operand->height != 0 ? operand->height : height;
    size_t slice, skip, extent, t;
    if (operand->pitch != 0 && (operand->pitch < width || operand->x > operand->pitch - width) &&
        height * depth > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (operand->height != 0 && operand->height < height && depth > 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (__builtin_mul_overflow(pitch, rows, &slice) ||
        __builtin_mul_overflow(slice, operand->z, &skip) ||
        __builtin_mul_overflow(pitch, operand->y, &t) || __builtin_add_overflow(skip, t, &skip) ||
        __builtin_add_overflow(skip, operand->x, &skip) ||
        __builtin_mul_overflow(slice, depth - 1, &extent) ||
        __builtin_mul_overflow(pitch, height - 1, &t) ||
        __builtin_add_overflow(extent, t, &extent) ||
        __builtin_add_overflow(extent, width, &extent)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t at;
    if (__builtin_add_overflow(operand->base, skip, &at)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool known = tow_soft_range_known(at);
    /* A host pointer may be anything; a device pointer must be live memory throughout. Memory
     * inside our reservation is never the host's own. */
    bool device = operand->kind == OPERAND_DEVICE || known || tow_soft_arena_holds(at, 1);
    if (device && !(for_graph ? tow_soft_graph_range_ok(at, extent, write)
                              : tow_soft_range_ok(NULL, at, extent, write))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!device && at == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_at = (uint8_t *)(uintptr_t)at;
    *ret_pitch = pitch;
    *ret_slice = slice;
    *ret_device = device;
    return CUDA_SUCCESS;
}

/* Memory that a later reader or writer may touch without asking: device, managed, pinned. */
static bool is_pageable(const struct operand *operand, bool device)
{
    return operand->kind != OPERAND_ARRAY && !device;
}

static bool is_host_operand(const struct operand *operand, uint64_t at)
{
    if (operand->kind == OPERAND_ARRAY) {
        return false;
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(at);
    return alloc == NULL || alloc->kind == TOW_SOFT_MEM_HOST ||
           alloc->kind == TOW_SOFT_MEM_REGISTERED;
}

static CUresult copy_build(const struct operand *dst, const struct operand *src, size_t width,
                           size_t height, size_t depth, bool for_graph,
                           struct tow_soft_work *ret_work)
{
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_COPY};
    struct tow_soft_copy_work *copy = &work.copy;
    copy->width = width;
    copy->height = height;
    copy->depth = depth;
    uint8_t *from;
    CUresult result = copy_resolve(dst, width, height, depth, true, for_graph, &copy->dst,
                                   &copy->dst_pitch, &copy->dst_slice, &copy->dst_device);
    if (result == CUDA_SUCCESS) {
        result = copy_resolve(src, width, height, depth, false, for_graph, &from, &copy->src_pitch,
                              &copy->src_slice, &copy->src_device);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    copy->src = from;
    copy->dst_host = is_host_operand(dst, (uintptr_t)copy->dst);
    copy->src_host = is_host_operand(src, (uintptr_t)copy->src);
    copy->dst_array = tow_soft_array_ref(dst->array);
    copy->src_array = tow_soft_array_ref(src->array);
    *ret_work = work;
    return CUDA_SUCCESS;
}

/* Reads the source into a buffer of the op's own. */
static CUresult copy_stage(struct tow_soft_copy_work *copy)
{
    size_t size = copy->width * copy->height * copy->depth;
    uint8_t *staged = malloc(size);
    if (staged == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t z = 0; z < copy->depth; z++) {
        for (size_t y = 0; y < copy->height; y++) {
            memcpy(staged + (z * copy->height + y) * copy->width,
                   copy->src + z * copy->src_slice + y * copy->src_pitch, copy->width);
        }
    }
    copy->staged = staged;
    copy->src = staged;
    copy->src_pitch = copy->width;
    copy->src_slice = copy->width * copy->height;
    return CUDA_SUCCESS;
}

static void copy_describe(const struct operand *operand, CUmemorytype *type, void **host,
                          CUdeviceptr *device, CUarray *array)
{
    *host = NULL;
    *device = 0;
    *array = NULL;
    switch (operand->kind) {
    case OPERAND_ARRAY:
        *type = CU_MEMORYTYPE_ARRAY;
        *array = TOW_SOFT_POINTER(operand->array->object.handle);
        break;
    case OPERAND_HOST:
        *type = CU_MEMORYTYPE_HOST;
        *host = (void *)(uintptr_t)operand->base;
        break;
    default:
        *type = operand->kind == OPERAND_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
        *device = operand->base;
        break;
    }
}

/* What a graph node that was captured from this answers when asked. */
static void fill_desc(const struct operand *dst, const struct operand *src,
                      struct tow_soft_copy_work *copy)
{
    CUDA_MEMCPY3D *desc = &copy->desc;
    memset(desc, 0, sizeof *desc);
    void *host;
    copy_describe(src, &desc->srcMemoryType, &host, &desc->srcDevice, &desc->srcArray);
    desc->srcHost = host;
    copy_describe(dst, &desc->dstMemoryType, &desc->dstHost, &desc->dstDevice, &desc->dstArray);
    desc->srcXInBytes = src->x;
    desc->srcY = src->y;
    desc->srcZ = src->z;
    desc->srcPitch = src->pitch;
    desc->srcHeight = src->height;
    desc->dstXInBytes = dst->x;
    desc->dstY = dst->y;
    desc->dstZ = dst->z;
    desc->dstPitch = dst->pitch;
    desc->dstHeight = dst->height;
    desc->WidthInBytes = copy->width;
    desc->Height = copy->height;
    desc->Depth = copy->depth;
}

/* With --soft-strict: larger copies of pageable memory wait for their stream, as NVIDIA's do. */
enum { STAGED = 64 << 10 };

enum copy_mode {
    COPY_SYNC,
    COPY_ASYNC,
};

/* Of a copy that the caller waits for. */
static CUresult submit_held(struct tow_soft_stream *stream, struct tow_soft_work *work)
{
    uint64_t handle = stream->object.handle;
    tow_soft_hold();
    stream = tow_soft_lookup(TOW_SOFT_STREAM, handle);
    CUresult result =
        stream != NULL ? tow_soft_submit_wait(stream, work) : CUDA_ERROR_INVALID_HANDLE;
    if (stream == NULL) {
        tow_soft_work_fini(work);
    }
    tow_soft_let_go();
    return result;
}

/* Locked; the common end of all copies. */
static CUresult copy_run(struct tow_soft_ctx *ctx, struct tow_soft_stream *stream,
                         const struct operand *dst, const struct operand *src, size_t width,
                         size_t height, size_t depth, enum copy_mode mode)
{
    (void)ctx;
    if (width == 0 || height == 0 || depth == 0) {
        return CUDA_SUCCESS;
    }
    struct tow_soft_work work;
    CUresult result = copy_build(dst, src, width, height, depth, stream->capture != NULL, &work);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    bool pageable_src = is_pageable(src, work.copy.src_device);
    bool pageable_dst = is_pageable(dst, work.copy.dst_device);
    if (stream->capture != NULL) {
        fill_desc(dst, src, &work.copy);
        return tow_soft_submit(stream, &work);
    }
    if (mode == COPY_SYNC) {
        /* Device to device does not hold up the host. */
        bool host_involved = is_host_operand(dst, (uintptr_t)work.copy.dst) ||
                             is_host_operand(src, (uintptr_t)work.copy.src);
        return host_involved ? submit_held(stream, &work) : tow_soft_submit(stream, &work);
    }
    if (pageable_dst) {
        return submit_held(stream, &work);
    }
    if (pageable_src) {
        if (tow_soft_stream_idle(stream) || (tow_soft.strict && width * height * depth > STAGED)) {
            return submit_held(stream, &work);
        }
        result = copy_stage(&work.copy);
        if (result != CUDA_SUCCESS) {
            tow_soft_work_fini(&work);
            return result;
        }
    }
    return tow_soft_submit(stream, &work);
}

/* Locked on success. `hStream` is not looked at for synchronous copies. */
static CUresult enter_copy(CUstream hStream, enum copy_mode mode, struct tow_soft_ctx **ret_ctx,
                           struct tow_soft_stream **ret_stream)
{
    CUresult result = tow_soft_enter(ret_ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (mode == COPY_SYNC) {
        result = tow_soft_capture_forbid_implicit(*ret_ctx);
        *ret_stream = (*ret_ctx)->legacy;
    } else {
        result = tow_soft_stream_of(*ret_ctx, hStream, ret_stream);
        if (result == CUDA_SUCCESS && (*ret_stream)->legacy) {
            result = tow_soft_capture_forbid_implicit(*ret_ctx);
        }
    }
    return result == CUDA_SUCCESS ? result : tow_soft_leave(result);
}

/* Unlocks; synchronous calls also bring out what kernels printed. The context may be gone by now.
 */
static CUresult leave_copy(uint64_t ctx_handle, enum copy_mode mode, CUresult result)
{
    return mode == COPY_SYNC ? tow_soft_leave_printed(ctx_handle, result) : tow_soft_leave(result);
}

static CUresult copy_linear(enum operand_kind dst_kind, uint64_t dst, enum operand_kind src_kind,
                            uint64_t src, size_t n, CUstream hStream, enum copy_mode mode)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = enter_copy(hStream, mode, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t handle = ctx->object.handle;
    struct operand to = {.kind = dst_kind, .base = dst}, from = {.kind = src_kind, .base = src};
    result = copy_run(ctx, stream, &to, &from, n, 1, 1, mode);
    return leave_copy(handle, mode, result);
}

static CUresult soft_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy_linear(OPERAND_DEVICE, dstDevice, OPERAND_HOST, (uintptr_t)srcHost, ByteCount, NULL,
                       COPY_SYNC);
}

static CUresult soft_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_linear(OPERAND_HOST, (uintptr_t)dstHost, OPERAND_DEVICE, srcDevice, ByteCount, NULL,
                       COPY_SYNC);
}

static CUresult soft_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy_linear(OPERAND_DEVICE, dstDevice, OPERAND_DEVICE, srcDevice, ByteCount, NULL,
                       COPY_SYNC);
}

static CUresult soft_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost,
                                          size_t ByteCount, CUstream hStream)
{
    return copy_linear(OPERAND_DEVICE, dstDevice, OPERAND_HOST, (uintptr_t)srcHost, ByteCount,
                       hStream, COPY_ASYNC);
}

static CUresult soft_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                          CUstream hStream)
{
    return copy_linear(OPERAND_HOST, (uintptr_t)dstHost, OPERAND_DEVICE, srcDevice, ByteCount,
                       hStream, COPY_ASYNC);
}

static CUresult soft_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
                                          size_t ByteCount, CUstream hStream)
{
    return copy_linear(OPERAND_DEVICE, dstDevice, OPERAND_DEVICE, srcDevice, ByteCount, hStream,
                       COPY_ASYNC);
}

static CUresult soft_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_linear(OPERAND_UNIFIED, dst, OPERAND_UNIFIED, src, ByteCount, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
                                   CUstream hStream)
{
    return copy_linear(OPERAND_UNIFIED, dst, OPERAND_UNIFIED, src, ByteCount, hStream, COPY_ASYNC);
}

static CUresult contexts_ok(CUcontext a, CUcontext b)
{
    tow_soft_enter_anyway();
    bool ok = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(a)) != NULL &&
              tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(b)) != NULL;
    return tow_soft_leave(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
}

static CUresult soft_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext,
                                  CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount)
{
    CUresult result = contexts_ok(dstContext, srcContext);
    return result == CUDA_SUCCESS ? soft_cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount) : result;
}

static CUresult soft_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext,
                                       CUdeviceptr srcDevice, CUcontext srcContext,
                                       size_t ByteCount, CUstream hStream)
{
    CUresult result = contexts_ok(dstContext, srcContext);
    return result == CUDA_SUCCESS
               ? soft_cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream)
               : result;
}

/* ---- arrays as bytes
 * ------------------------------------------------------------------------------------ */

/* A linear range of a one-dimensional array (rows follow one another for others). */
static CUresult array_linear(CUarray handle, size_t offset, size_t n, struct operand *ret_operand)
{
    struct tow_soft_array *array = tow_soft_lookup(TOW_SOFT_ARRAY, TOW_SOFT_HANDLE(handle));
    if (array == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    size_t row = (size_t)array->texel * array->desc.Width;
    size_t y = offset / row;
    if (offset % row + n > row) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_operand =
        (struct operand){.kind = OPERAND_ARRAY, .array = array, .x = offset % row, .y = y};
    return CUDA_SUCCESS;
}

static CUresult copy_array(CUarray dst_array, size_t dst_offset, enum operand_kind dst_kind,
                           uint64_t dst, CUarray src_array, size_t src_offset,
                           enum operand_kind src_kind, uint64_t src, size_t n, CUstream hStream,
                           enum copy_mode mode)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = enter_copy(hStream, mode, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t handle = ctx->object.handle;
    struct operand to = {.kind = dst_kind, .base = dst}, from = {.kind = src_kind, .base = src};
    if (dst_kind == OPERAND_ARRAY) {
        result = array_linear(dst_array, dst_offset, n, &to);
    }
    if (result == CUDA_SUCCESS && src_kind == OPERAND_ARRAY) {
        result = array_linear(src_array, src_offset, n, &from);
    }
    if (result == CUDA_SUCCESS) {
        result = copy_run(ctx, stream, &to, &from, n, 1, 1, mode);
    }
    return leave_copy(handle, mode, result);
}

static CUresult soft_cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                                     size_t ByteCount)
{
    return copy_array(dstArray, dstOffset, OPERAND_ARRAY, 0, NULL, 0, OPERAND_DEVICE, srcDevice,
                      ByteCount, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                                     size_t ByteCount)
{
    return copy_array(NULL, 0, OPERAND_DEVICE, dstDevice, srcArray, srcOffset, OPERAND_ARRAY, 0,
                      ByteCount, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                                     size_t ByteCount)
{
    return copy_array(dstArray, dstOffset, OPERAND_ARRAY, 0, NULL, 0, OPERAND_HOST,
                      (uintptr_t)srcHost, ByteCount, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
                                     size_t ByteCount)
{
    return copy_array(NULL, 0, OPERAND_HOST, (uintptr_t)dstHost, srcArray, srcOffset, OPERAND_ARRAY,
                      0, ByteCount, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray,
                                     size_t srcOffset, size_t ByteCount)
{
    return copy_array(dstArray, dstOffset, OPERAND_ARRAY, 0, srcArray, srcOffset, OPERAND_ARRAY, 0,
                      ByteCount, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                                          size_t ByteCount, CUstream hStream)
{
    return copy_array(dstArray, dstOffset, OPERAND_ARRAY, 0, NULL, 0, OPERAND_HOST,
                      (uintptr_t)srcHost, ByteCount, hStream, COPY_ASYNC);
}

static CUresult soft_cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
                                          size_t ByteCount, CUstream hStream)
{
    return copy_array(NULL, 0, OPERAND_HOST, (uintptr_t)dstHost, srcArray, srcOffset, OPERAND_ARRAY,
                      0, ByteCount, hStream, COPY_ASYNC);
}

/* ---- 2D and 3D
 * -------------------------------------------------------------------------------------------- */

static CUresult operand_of(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array,
                           size_t x, size_t y, size_t z, size_t pitch, size_t height,
                           struct operand *ret_operand)
{
    if ((int)type < CU_MEMORYTYPE_HOST || type > CU_MEMORYTYPE_UNIFIED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct operand operand = {
        .kind = kind_of(type), .x = x, .y = y, .z = z, .pitch = pitch, .height = height};
    if (operand.kind == OPERAND_ARRAY) {
        operand.array = tow_soft_lookup(TOW_SOFT_ARRAY, TOW_SOFT_HANDLE(array));
        if (operand.array == NULL) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
    } else {
        operand.base = operand.kind == OPERAND_HOST ? (uintptr_t)host : device;
    }
    *ret_operand = operand;
    return CUDA_SUCCESS;
}

static CUresult operands_of(const CUDA_MEMCPY3D *d, struct operand *ret_dst,
                            struct operand *ret_src)
{
    if (d->srcLOD != 0 || d->dstLOD != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result =
        operand_of(d->dstMemoryType, d->dstHost, d->dstDevice, d->dstArray, d->dstXInBytes, d->dstY,
                   d->dstZ, d->dstPitch, d->dstHeight, ret_dst);
    if (result == CUDA_SUCCESS) {
        result = operand_of(d->srcMemoryType, d->srcHost, d->srcDevice, d->srcArray, d->srcXInBytes,
                            d->srcY, d->srcZ, d->srcPitch, d->srcHeight, ret_src);
    }
    return result;
}

CUresult tow_soft_copy_build(const CUDA_MEMCPY3D *desc, struct tow_soft_work *ret_work)
{
    struct operand dst, src;
    CUresult result = operands_of(desc, &dst, &src);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (desc->WidthInBytes == 0 || desc->Height == 0 || desc->Depth == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = copy_build(&dst, &src, desc->WidthInBytes, desc->Height, desc->Depth, true, ret_work);
    if (result == CUDA_SUCCESS) {
        ret_work->copy.desc = *desc;
    }
    return result;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *desc, CUstream hStream, enum copy_mode mode)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = enter_copy(hStream, mode, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t handle = ctx->object.handle;
    struct operand dst, src;
    result = operands_of(desc, &dst, &src);
    if (result == CUDA_SUCCESS) {
        result =
            copy_run(ctx, stream, &dst, &src, desc->WidthInBytes, desc->Height, desc->Depth, mode);
    }
    return leave_copy(handle, mode, result);
}

static void copy_widen(const CUDA_MEMCPY2D *from, CUDA_MEMCPY3D *to)
{
    memset(to, 0, sizeof *to);
    to->srcXInBytes = from->srcXInBytes;
    to->srcY = from->srcY;
    to->srcMemoryType = from->srcMemoryType;
    to->srcHost = from->srcHost;
    to->srcDevice = from->srcDevice;
    to->srcArray = from->srcArray;
    to->srcPitch = from->srcPitch;
    to->dstXInBytes = from->dstXInBytes;
    to->dstY = from->dstY;
    to->dstMemoryType = from->dstMemoryType;
    to->dstHost = from->dstHost;
    to->dstDevice = from->dstDevice;
    to->dstArray = from->dstArray;
    to->dstPitch = from->dstPitch;
    to->WidthInBytes = from->WidthInBytes;
    to->Height = from->Height;
    to->Depth = 1;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *pCopy, CUstream hStream, enum copy_mode mode)
{
    if (pCopy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D desc;
    copy_widen(pCopy, &desc);
    return copy_3d(&desc, hStream, mode);
}

static CUresult soft_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, COPY_ASYNC);
}

static CUresult soft_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return pCopy == NULL ? CUDA_ERROR_INVALID_VALUE : copy_3d(pCopy, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return pCopy == NULL ? CUDA_ERROR_INVALID_VALUE : copy_3d(pCopy, hStream, COPY_ASYNC);
}

/* The peer struct only differs in that contexts stand where the plain one has reserved words. */
static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream, enum copy_mode mode)
{
    _Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D), "same layout");
    if (pCopy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D desc;
    memcpy(&desc, pCopy, sizeof desc);
    desc.reserved0 = NULL;
    desc.reserved1 = NULL;
    return copy_3d(&desc, hStream, mode);
}

static CUresult soft_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    return copy_3d_peer(pCopy, NULL, COPY_SYNC);
}

static CUresult soft_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return copy_3d_peer(pCopy, hStream, COPY_ASYNC);
}

/* ---- batches
 * ---------------------------------------------------------------------------------------------- */

static CUresult copy_batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                           CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                           size_t *failIdx, CUstream hStream)
{
    if (failIdx != NULL) {
        *failIdx = SIZE_MAX;
    }
    if (dsts == NULL || srcs == NULL || sizes == NULL || count == 0 || attrs == NULL ||
        attrsIdxs == NULL || numAttrs == 0 || numAttrs > count || TOW_SOFT_HANDLE(hStream) <= 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; i++) {
        CUresult result = soft_cuMemcpyAsync(dsts[i], srcs[i], sizes[i], hStream);
        if (result != CUDA_SUCCESS) {
            if (failIdx != NULL) {
                *failIdx = i;
            }
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                        size_t count, CUmemcpyAttributes *attrs, size_t *attrsIdxs,
                                        size_t numAttrs, size_t *failIdx, CUstream hStream)
{
    return copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}

static CUresult soft_cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                           size_t count, CUmemcpyAttributes *attrs,
                                           size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
    return copy_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}

/* Batch extents count elements: of an array its texels, else bytes. */
static CUresult batch_operand(const CUmemcpy3DOperand *operand, struct operand *ret_operand,
                              size_t *ret_texel)
{
    if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        struct tow_soft_array *array =
            tow_soft_lookup(TOW_SOFT_ARRAY, TOW_SOFT_HANDLE(operand->op.array.array));
        if (array == NULL) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        *ret_texel = array->texel;
        *ret_operand = (struct operand){.kind = OPERAND_ARRAY,
                                        .array = array,
                                        .x = operand->op.array.offset.x * array->texel,
                                        .y = operand->op.array.offset.y,
                                        .z = operand->op.array.offset.z};
        return CUDA_SUCCESS;
    }
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_POINTER) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_operand = (struct operand){.kind = OPERAND_UNIFIED,
                                    .base = operand->op.ptr.ptr,
                                    .pitch = operand->op.ptr.rowLength,
                                    .height = operand->op.ptr.layerHeight};
    return CUDA_SUCCESS;
}

static CUresult copy_3d_batch(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                              unsigned long long flags, CUstream hStream)
{
    if (failIdx != NULL) {
        *failIdx = SIZE_MAX;
    }
    if (numOps == 0 || opList == NULL || flags != 0 || TOW_SOFT_HANDLE(hStream) <= 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < numOps; i++) {
        struct tow_soft_ctx *ctx;
        struct tow_soft_stream *stream;
        CUresult result = enter_copy(hStream, COPY_ASYNC, &ctx, &stream);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        struct operand dst, src;
        size_t texel = 1;
        result = batch_operand(&opList[i].dst, &dst, &texel);
        if (result == CUDA_SUCCESS) {
            result = batch_operand(&opList[i].src, &src, &texel);
        }
        if (result == CUDA_SUCCESS) {
            dst.pitch *= texel;
            src.pitch *= texel;
            result = copy_run(ctx, stream, &dst, &src, opList[i].extent.width * texel,
                              opList[i].extent.height, opList[i].extent.depth, COPY_ASYNC);
        }
        tow_soft_leave(result);
        if (result != CUDA_SUCCESS) {
            if (failIdx != NULL) {
                *failIdx = i;
            }
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                          size_t *failIdx, unsigned long long flags,
                                          CUstream hStream)
{
    return copy_3d_batch(numOps, opList, failIdx, flags, hStream);
}

static CUresult soft_cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                             unsigned long long flags, CUstream hStream)
{
    return copy_3d_batch(numOps, opList, NULL, flags, hStream);
}

/* ---- fills
 * ------------------------------------------------------------------------------------------------
 */

static bool set_range_ok(uint64_t at, size_t size, enum tow_soft_build how)
{
    switch (how) {
    case TOW_SOFT_BUILD_CAPTURED:
        return true;
    case TOW_SOFT_BUILD_NODE:
        return tow_soft_graph_range_ok(at, size, true);
    default:
        return tow_soft_range_ok(NULL, at, size, true);
    }
}

CUresult tow_soft_set_build(const CUDA_MEMSET_NODE_PARAMS *p, enum tow_soft_build how,
                            struct tow_soft_work *ret_work)
{
    size_t row, extent;
    if ((p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) ||
        p->dst % p->elementSize != 0 || __builtin_mul_overflow(p->width, p->elementSize, &row) ||
        (p->height > 1 && (p->pitch < row || p->pitch % p->elementSize != 0))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (p->width != 0 && p->height != 0) {
        if (__builtin_mul_overflow(p->pitch, p->height - 1, &extent) ||
            __builtin_add_overflow(extent, row, &extent) ||
            !set_range_ok(p->dst, p->height > 1 ? extent : row, how)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    *ret_work = (struct tow_soft_work){.kind = TOW_SOFT_WORK_SET,
                                       .set = {.dst = p->dst,
                                               .pitch = p->pitch,
                                               .width = p->width,
                                               .height = p->height,
                                               .value = p->value,
                                               .element = p->elementSize}};
    return CUDA_SUCCESS;
}

static CUresult copy_set(CUdeviceptr dst, size_t pitch, unsigned value, unsigned element,
                         size_t width, size_t height, CUstream hStream, enum copy_mode mode)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = enter_copy(hStream, mode, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUDA_MEMSET_NODE_PARAMS params = {.dst = dst,
                                      .pitch = pitch,
                                      .value = value,
                                      .elementSize = element,
                                      .width = width,
                                      .height = height};
    struct tow_soft_work work;
    result = tow_soft_set_build(
        &params, stream->capture != NULL ? TOW_SOFT_BUILD_CAPTURED : TOW_SOFT_BUILD_NOW, &work);
    if (result == CUDA_SUCCESS && width != 0 && height != 0) {
        result = tow_soft_submit(stream, &work);
    }
    return tow_soft_leave(result);
}

#define FILLS(bits, type)                                                                          \
    static CUresult soft_cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t n)               \
    {                                                                                              \
        return copy_set(dst, n * (bits / 8), value, bits / 8, n, 1, NULL, COPY_SYNC);              \
    }                                                                                              \
    static CUresult soft_cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t n, CUstream s) \
    {                                                                                              \
        return copy_set(dst, n * (bits / 8), value, bits / 8, n, 1, s, COPY_ASYNC);                \
    }                                                                                              \
    static CUresult soft_cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value,         \
                                                size_t w, size_t h)                                \
    {                                                                                              \
        return copy_set(dst, pitch, value, bits / 8, w, h, NULL, COPY_SYNC);                       \
    }                                                                                              \
    static CUresult soft_cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value,       \
                                                  size_t w, size_t h, CUstream s)                  \
    {                                                                                              \
        return copy_set(dst, pitch, value, bits / 8, w, h, s, COPY_ASYNC);                         \
    }
FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned int)

void tow_soft_fill_copy(struct tow_driver *driver)
{
    tow_driver_set(driver, cuMemcpyHtoD_v2, soft_cuMemcpyHtoD_v2);
    tow_driver_set(driver, cuMemcpyDtoH_v2, soft_cuMemcpyDtoH_v2);
    tow_driver_set(driver, cuMemcpyDtoD_v2, soft_cuMemcpyDtoD_v2);
    tow_driver_set(driver, cuMemcpyHtoDAsync_v2, soft_cuMemcpyHtoDAsync_v2);
    tow_driver_set(driver, cuMemcpyDtoHAsync_v2, soft_cuMemcpyDtoHAsync_v2);
    tow_driver_set(driver, cuMemcpyDtoDAsync_v2, soft_cuMemcpyDtoDAsync_v2);
    tow_driver_set(driver, cuMemcpy, soft_cuMemcpy);
    tow_driver_set(driver, cuMemcpyAsync, soft_cuMemcpyAsync);
    tow_driver_set(driver, cuMemcpyPeer, soft_cuMemcpyPeer);
    tow_driver_set(driver, cuMemcpyPeerAsync, soft_cuMemcpyPeerAsync);
    tow_driver_set(driver, cuMemcpyDtoA_v2, soft_cuMemcpyDtoA_v2);
    tow_driver_set(driver, cuMemcpyAtoD_v2, soft_cuMemcpyAtoD_v2);
    tow_driver_set(driver, cuMemcpyHtoA_v2, soft_cuMemcpyHtoA_v2);
    tow_driver_set(driver, cuMemcpyAtoH_v2, soft_cuMemcpyAtoH_v2);
    tow_driver_set(driver, cuMemcpyAtoA_v2, soft_cuMemcpyAtoA_v2);
    tow_driver_set(driver, cuMemcpyHtoAAsync_v2, soft_cuMemcpyHtoAAsync_v2);
    tow_driver_set(driver, cuMemcpyAtoHAsync_v2, soft_cuMemcpyAtoHAsync_v2);
    tow_driver_set(driver, cuMemcpy2D_v2, soft_cuMemcpy2D_v2);
    tow_driver_set(driver, cuMemcpy2DUnaligned_v2, soft_cuMemcpy2D_v2);
    tow_driver_set(driver, cuMemcpy2DAsync_v2, soft_cuMemcpy2DAsync_v2);
    tow_driver_set(driver, cuMemcpy3D_v2, soft_cuMemcpy3D_v2);
    tow_driver_set(driver, cuMemcpy3DAsync_v2, soft_cuMemcpy3DAsync_v2);
    tow_driver_set(driver, cuMemcpy3DPeer, soft_cuMemcpy3DPeer);
    tow_driver_set(driver, cuMemcpy3DPeerAsync, soft_cuMemcpy3DPeerAsync);
    tow_driver_set(driver, cuMemcpyBatchAsync, soft_cuMemcpyBatchAsync);
    tow_driver_set(driver, cuMemcpyBatchAsync_v2, soft_cuMemcpyBatchAsync_v2);
    tow_driver_set(driver, cuMemcpy3DBatchAsync, soft_cuMemcpy3DBatchAsync);
    tow_driver_set(driver, cuMemcpy3DBatchAsync_v2, soft_cuMemcpy3DBatchAsync_v2);
    tow_driver_set(driver, cuMemsetD8_v2, soft_cuMemsetD8_v2);
    tow_driver_set(driver, cuMemsetD16_v2, soft_cuMemsetD16_v2);
    tow_driver_set(driver, cuMemsetD32_v2, soft_cuMemsetD32_v2);
    tow_driver_set(driver, cuMemsetD2D8_v2, soft_cuMemsetD2D8_v2);
    tow_driver_set(driver, cuMemsetD2D16_v2, soft_cuMemsetD2D16_v2);
    tow_driver_set(driver, cuMemsetD2D32_v2, soft_cuMemsetD2D32_v2);
    tow_driver_set(driver, cuMemsetD8Async, soft_cuMemsetD8Async);
    tow_driver_set(driver, cuMemsetD16Async, soft_cuMemsetD16Async);
    tow_driver_set(driver, cuMemsetD32Async, soft_cuMemsetD32Async);
    tow_driver_set(driver, cuMemsetD2D8Async, soft_cuMemsetD2D8Async);
    tow_driver_set(driver, cuMemsetD2D16Async, soft_cuMemsetD2D16Async);
    tow_driver_set(driver, cuMemsetD2D32Async, soft_cuMemsetD2D32Async);
}
