/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: making them, waiting, host functions, memory operations, attributes. */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/stream/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "gen/launch.h"
#include "gen/stream.h"

#define MEMOPS_MAX 4096

static CUresult soft_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags,
                                                int priority)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (phStream == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_stream *stream = tow_soft_stream_create(ctx, flags, priority);
    if (stream == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *phStream = TOW_SOFT_POINTER(stream->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return soft_cuStreamCreateWithPriority(phStream, Flags, 0);
}

static CUresult soft_cuStreamDestroy(CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream = tow_soft_lookup(TOW_SOFT_STREAM, TOW_SOFT_HANDLE(hStream));
    if (stream == NULL || stream->legacy || stream->thread != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    tow_soft_capture_stream_gone(stream);
    struct tow_soft_ctx *owner = stream->object.ctx;
    tow_soft_object_remove(&stream->object);
    stream->object.ctx = owner;
    stream->destroyed = true;
    if (stream->head == NULL && !stream->running) {
        tow_soft_stream_free(stream);
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (priority == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *priority = stream->priority;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (streamId == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *streamId = stream->id;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = stream->flags;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *device = stream->object.ctx->device->ordinal;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pCtx == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pCtx = TOW_SOFT_POINTER(stream->object.ctx->object.handle);
    if (pGreenCtx != NULL) {
        *pGreenCtx = NULL;
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    return soft_cuStreamGetCtx_v2(hStream, pctx, NULL);
}

static CUresult soft_cuStreamQuery(CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_capture_forbid(ctx, stream);
    if (result == CUDA_SUCCESS) {
        if (stream->head != NULL) {
            tow_soft_engine_kick(); /* a wait for a value may have become true */
        }
        result = tow_soft_stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuStreamSynchronize(CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_capture_forbid(ctx, stream);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    ctx = stream->object.ctx;
    uint64_t handle = ctx->object.handle;
    return tow_soft_leave_printed(handle, tow_soft_stream_wait(ctx, stream));
}

/* ---- host functions
 * ---------------------------------------------------------------------------------- */

static CUresult soft_cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (fn == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_HOST, .host = {.fn = fn, .user = userData}};
    return tow_soft_leave(tow_soft_submit(stream, &work));
}

static CUresult soft_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback,
                                         void *userData, unsigned int flags)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (callback == NULL || flags != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    result = tow_soft_capture_forbid(ctx, stream);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct tow_soft_work work = {
        .kind = TOW_SOFT_WORK_HOST,
        .host = {.callback = callback, .stream = hStream, .user = userData}};
    return tow_soft_leave(tow_soft_submit(stream, &work));
}

/* ---- memory operations
 * -------------------------------------------------------------------------------- */

CUresult tow_soft_memops_check(const CUstreamBatchMemOpParams *ops, unsigned count)
{
    if (count > MEMOPS_MAX || (count != 0 && ops == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        uint64_t size = 4;
        switch (ops[i].operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            size = 8;
            /* fall through */
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
            if ((ops[i].waitValue.flags & ~(unsigned)(3 | CU_STREAM_WAIT_VALUE_FLUSH)) != 0) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (ops[i].waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) {
                return CUDA_ERROR_NOT_SUPPORTED;
            }
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            size = 8;
            /* fall through */
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
            if ((ops[i].writeValue.flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) !=
                0) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            break;
        case CU_STREAM_MEM_OP_BARRIER:
            continue;
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (ops[i].waitValue.address % size != 0 ||
            !tow_soft_range_ok(NULL, ops[i].waitValue.address, size, false)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuStreamBatchMemOp(CUstream hStream, unsigned int count,
                                        CUstreamBatchMemOpParams *paramArray, unsigned int flags)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = flags != 0 ? CUDA_ERROR_INVALID_VALUE : tow_soft_memops_check(paramArray, count);
    if (result != CUDA_SUCCESS || count == 0) {
        return tow_soft_leave(result);
    }
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_MEMOPS, .memops = {.count = count}};
    work.memops.ops = malloc(count * sizeof *work.memops.ops);
    if (work.memops.ops == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    memcpy(work.memops.ops, paramArray, count * sizeof *work.memops.ops);
    return tow_soft_leave(tow_soft_submit(stream, &work));
}

static CUresult one_memop(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr addr,
                          cuuint64_t value, unsigned flags)
{
    CUstreamBatchMemOpParams op;
    memset(&op, 0, sizeof op);
    op.waitValue.operation = operation;
    op.waitValue.address = addr;
    op.waitValue.value64 = value;
    op.waitValue.flags = flags;
    return soft_cuStreamBatchMemOp(stream, 1, &op, 0);
}

static CUresult soft_cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                          unsigned int flags)
{
    return one_memop(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}

static CUresult soft_cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                         unsigned int flags)
{
    return one_memop(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}

static CUresult soft_cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                          unsigned int flags)
{
    return one_memop(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}

static CUresult soft_cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                         unsigned int flags)
{
    return one_memop(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}

/* ---- attributes
 * ---------------------------------------------------------------------------------------- */

static CUstreamAttrValue *attribute_of(struct tow_soft_stream *stream, CUstreamAttrID attr)
{
    switch (attr) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return &stream->access_policy;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return &stream->sync_policy;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return &stream->mem_sync_map;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return &stream->mem_sync;
    default:
        return NULL;
    }
}

static CUresult soft_cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr,
                                          CUstreamAttrValue *value)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUstreamAttrValue *kept = attribute_of(stream, attr);
    if (value == NULL || (kept == NULL && attr != CU_LAUNCH_ATTRIBUTE_PRIORITY)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (kept != NULL) {
        *value = *kept;
    } else {
        memset(value, 0, sizeof *value);
        value->priority = stream->priority;
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                                          const CUstreamAttrValue *param)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    CUstreamAttrValue *kept = attribute_of(stream, attr);
    if (param == NULL || kept == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *kept = *param;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *dst, *src;
    CUresult result = tow_soft_enter_stream(dstStream, &ctx, &dst);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_stream_of(ctx, srcStream, &src);
    if (result == CUDA_SUCCESS) {
        dst->access_policy = src->access_policy;
        dst->sync_policy = src->sync_policy;
        dst->mem_sync_map = src->mem_sync_map;
        dst->mem_sync = src->mem_sync;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                            unsigned int flags)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_alloc *alloc = tow_soft_alloc_at(dptr);
    bool flags_good = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                      (flags == CU_MEM_ATTACH_SINGLE && !stream->legacy);
    if (alloc == NULL || alloc->kind != TOW_SOFT_MEM_MANAGED || alloc->base != dptr ||
        !flags_good || (length != 0 && length != alloc->size)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    alloc->flags = flags;
    return tow_soft_leave(CUDA_SUCCESS);
}

void tow_soft_fill_stream(struct tow_driver *driver)
{
    tow_driver_set(driver, cuStreamCreate, soft_cuStreamCreate);
    tow_driver_set(driver, cuStreamCreateWithPriority, soft_cuStreamCreateWithPriority);
    tow_driver_set(driver, cuStreamDestroy, soft_cuStreamDestroy);
    tow_driver_set(driver, cuStreamDestroy_v2, soft_cuStreamDestroy);
    tow_driver_set(driver, cuStreamGetPriority, soft_cuStreamGetPriority);
    tow_driver_set(driver, cuStreamGetId, soft_cuStreamGetId);
    tow_driver_set(driver, cuStreamGetFlags, soft_cuStreamGetFlags);
    tow_driver_set(driver, cuStreamGetDevice, soft_cuStreamGetDevice);
    tow_driver_set(driver, cuStreamGetCtx, soft_cuStreamGetCtx);
    tow_driver_set(driver, cuStreamGetCtx_v2, soft_cuStreamGetCtx_v2);
    tow_driver_set(driver, cuStreamQuery, soft_cuStreamQuery);
    tow_driver_set(driver, cuStreamSynchronize, soft_cuStreamSynchronize);
    tow_driver_set(driver, cuLaunchHostFunc, soft_cuLaunchHostFunc);
    tow_driver_set(driver, cuStreamAddCallback, soft_cuStreamAddCallback);
    tow_driver_set(driver, cuStreamBatchMemOp, soft_cuStreamBatchMemOp);
    tow_driver_set(driver, cuStreamBatchMemOp_v2, soft_cuStreamBatchMemOp);
    tow_driver_set(driver, cuStreamWriteValue32, soft_cuStreamWriteValue32);
    tow_driver_set(driver, cuStreamWriteValue32_v2, soft_cuStreamWriteValue32);
    tow_driver_set(driver, cuStreamWaitValue32, soft_cuStreamWaitValue32);
    tow_driver_set(driver, cuStreamWaitValue32_v2, soft_cuStreamWaitValue32);
    tow_driver_set(driver, cuStreamWriteValue64, soft_cuStreamWriteValue64);
    tow_driver_set(driver, cuStreamWriteValue64_v2, soft_cuStreamWriteValue64);
    tow_driver_set(driver, cuStreamWaitValue64, soft_cuStreamWaitValue64);
    tow_driver_set(driver, cuStreamWaitValue64_v2, soft_cuStreamWaitValue64);
    tow_driver_set(driver, cuStreamGetAttribute, soft_cuStreamGetAttribute);
    tow_driver_set(driver, cuStreamSetAttribute, soft_cuStreamSetAttribute);
    tow_driver_set(driver, cuStreamCopyAttributes, soft_cuStreamCopyAttributes);
    tow_driver_set(driver, cuStreamAttachMemAsync, soft_cuStreamAttachMemAsync);
}
