#include "server/copy/shape.h"

#include "base/number.h"
#include "gen/copy_server.h"
#include "gen/stream.h"
#include "server/copy/copy.h"
#include "server/copy/mirror.h"
#include "server/session/session.h"
#include "server/copy/share.h"
#include "server/copy/upload.h"
#include "wire/copy.h"

static CUmemorytype memory_type(uint32_t kind)
{
    return kind == TOW_AT_HOST || kind == TOW_AT_ADDRESS ? CU_MEMORYTYPE_HOST
           : kind == TOW_AT_DEVICE                       ? CU_MEMORYTYPE_DEVICE
                                                         : CU_MEMORYTYPE_ARRAY;
}

struct tow_shaped tow_shaped_describe(struct tow_serve *call, const struct tow_copy_shape *s)
{
    if ((s->from.kind == TOW_AT_ADDRESS && !tow_mirror_reaches_side(call, &s->from, s)) ||
        (s->to.kind == TOW_AT_ADDRESS && !tow_mirror_reaches_side(call, &s->to, s))) {
        call->status = call->status == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : call->status;
    }
    CUDA_MEMCPY3D_PEER p = {
        .srcXInBytes = s->from.x,
        .srcY = s->from.y,
        .srcZ = s->from.z,
        .srcLOD = s->from.level,
        .srcMemoryType = memory_type(s->from.kind),
        .srcPitch = s->from.pitch,
        .srcHeight = s->from.height,
        .dstXInBytes = s->to.x,
        .dstY = s->to.y,
        .dstZ = s->to.z,
        .dstLOD = s->to.level,
        .dstMemoryType = memory_type(s->to.kind),
        .dstPitch = s->to.pitch,
        .dstHeight = s->to.height,
        .WidthInBytes = s->width,
        .Height = s->rows,
        .Depth = s->planes,
    };
    switch (s->from.kind) {
    case TOW_AT_HOST:
        break; /* see tow_shaped_run */
    case TOW_AT_ADDRESS:
        p.srcHost = (const void *)(uintptr_t)s->from.address;
        break;
    case TOW_AT_DEVICE:
        p.srcDevice = s->from.address;
        break;
    default:
        p.srcArray = tow_serve_handle(call, TOW_H_ARRAY, s->from.address);
        break;
    }
    switch (s->to.kind) {
    case TOW_AT_HOST:
        break;
    case TOW_AT_ADDRESS:
        p.dstHost = (void *)(uintptr_t)s->to.address;
        break;
    case TOW_AT_DEVICE:
        p.dstDevice = s->to.address;
        break;
    default:
        p.dstArray = tow_serve_handle(call, TOW_H_ARRAY, s->to.address);
        break;
    }
    if (s->flags & TOW_SHAPE_PEER) {
        p.srcContext = tow_serve_handle(call, TOW_H_CONTEXT, s->from.context);
        p.dstContext = tow_serve_handle(call, TOW_H_CONTEXT, s->to.context);
    }
    return (struct tow_shaped){.copy = p,
                               .peer = (s->flags & TOW_SHAPE_PEER) != 0,
                               .packed = s->from.kind == TOW_AT_HOST ? TOW_PACKED_SOURCE
                                         : s->to.kind == TOW_AT_HOST ? TOW_PACKED_TARGET
                                                                     : TOW_PACKED_NEITHER};
}

size_t tow_shaped_part(const struct tow_shaped *whole, uint64_t offset, size_t size,
                       struct tow_shaped *ret_part)
{
    struct tow_shaped part = *whole;
    CUDA_MEMCPY3D_PEER *p = &part.copy;
    size_t width = p->WidthInBytes, rows = p->Height;
    size_t x = (size_t)(offset % width), row = (size_t)(offset / width), y = row % rows;
    p->dstXInBytes += x;
    p->dstY += y;
    p->dstZ += row / rows;
    p->Height = p->Depth = 1;
    if (x > 0 || size < width) {
        p->WidthInBytes = (size_t)tow_min_u64(size, width - x);
    } else if (y > 0 || size / width < rows) {
        p->Height = (size_t)tow_min_u64(size / width, rows - y);
    } else {
        p->Height = rows;
        p->Depth = size / width / rows;
    }
    *ret_part = part;
    return p->WidthInBytes * p->Height * p->Depth;
}

CUresult tow_shaped_run(const struct tow_shaped *shaped, const struct tow_driver *driver,
                        void *host, CUstream stream)
{
    CUDA_MEMCPY3D_PEER with_host = shaped->copy;
    const CUDA_MEMCPY3D_PEER *p = &with_host;
    if (shaped->packed == TOW_PACKED_SOURCE) {
        with_host.srcHost = host;
        with_host.srcXInBytes = with_host.srcY = with_host.srcZ = 0;
        with_host.srcPitch = p->WidthInBytes;
        with_host.srcHeight = p->Height;
    } else if (shaped->packed == TOW_PACKED_TARGET) {
        with_host.dstHost = host;
        with_host.dstXInBytes = with_host.dstY = with_host.dstZ = 0;
        with_host.dstPitch = p->WidthInBytes;
        with_host.dstHeight = p->Height;
    }
    if (shaped->peer) {
        return tow_drive(driver, cuMemcpy3DPeerAsync)(p, stream);
    }
    CUDA_MEMCPY3D c = {
        .srcXInBytes = p->srcXInBytes,
        .srcY = p->srcY,
        .srcZ = p->srcZ,
        .srcLOD = p->srcLOD,
        .srcMemoryType = p->srcMemoryType,
        .srcHost = p->srcHost,
        .srcDevice = p->srcDevice,
        .srcArray = p->srcArray,
        .srcPitch = p->srcPitch,
        .srcHeight = p->srcHeight,
        .dstXInBytes = p->dstXInBytes,
        .dstY = p->dstY,
        .dstZ = p->dstZ,
        .dstLOD = p->dstLOD,
        .dstMemoryType = p->dstMemoryType,
        .dstHost = p->dstHost,
        .dstDevice = p->dstDevice,
        .dstArray = p->dstArray,
        .dstPitch = p->dstPitch,
        .dstHeight = p->dstHeight,
        .WidthInBytes = p->WidthInBytes,
        .Height = p->Height,
        .Depth = p->Depth,
    };
    return tow_drive(driver, cuMemcpy3DAsync_v2)(&c, stream);
}

static bool shape_makes_sense(const struct tow_copy_shape *s)
{
    uint64_t bytes = 0;
    bool up = s->from.kind == TOW_AT_HOST, down = s->to.kind == TOW_AT_HOST;
    if ((up && down) || s->from.kind > TOW_AT_ADDRESS || s->to.kind > TOW_AT_ADDRESS) {
        return false;
    }
    if (!up && !down) {
        return s->bytes == 0;
    }
    /* An address was looked up now, and what is there may be gone when the bytes come. */
    if ((down && s->transfer == 0) || s->from.kind == TOW_AT_ADDRESS ||
        s->to.kind == TOW_AT_ADDRESS) {
        return false;
    }
    return !__builtin_mul_overflow(s->width, s->rows, &bytes) &&
           !__builtin_mul_overflow(bytes, s->planes, &bytes) && bytes == s->bytes && bytes > 0 &&
           (up || bytes <= TOW_COPY_ASYNC_MAX);
}

/* If the client waits it has these bytes, and all that the stream brings before, with the reply
 * (tow_copy_flush); and if this one failed, no more of those before it comes. */
static void download(struct tow_serve *call, const struct tow_copy_shape *shape,
                     const struct tow_shaped *shaped, CUstream stream)
{
    if (!tow_serve_ready(call)) {
        if (!call->malformed) {
            tow_copy_tell_none_comes(call, shape->transfer);
        }
        return;
    }
    struct tow_later_copy want = {.transfer = shape->transfer,
                                  .size = shape->bytes,
                                  .spread = (shape->flags & TOW_SHAPE_SPREAD) != 0,
                                  .stream_id = shape->stream,
                                  .stream = stream,
                                  .shaped = shaped};
    tow_copy_later(call, &want);
    if (call->frame.seq != 0) {
        tow_copy_send_stream(call, shape->stream, stream);
        CUresult status = tow_drive(call->driver, cuStreamSynchronize)(stream);
        call->status = call->status == CUDA_SUCCESS ? status : call->status;
    }
}

/* Between the device and the client's staging. */
static void in_shared_memory(struct tow_serve *call, const struct tow_copy_shape *shape,
                             CUstream stream)
{
    uint32_t value = 0;
    struct tow_share_note *note = tow_share_take_note(call, &value);
    bool up = shape->from.kind == TOW_AT_ADDRESS;
    const struct tow_copy_side *host = up ? &shape->from : &shape->to;
    if (note == NULL || host->kind != TOW_AT_ADDRESS) {
        call->malformed = true;
        return;
    }
    struct tow_shaped shaped = tow_shaped_describe(call, shape);
    if (!tow_share_holds(call, host->address, 1) && call->status == CUDA_SUCCESS) {
        call->status = CUDA_ERROR_INVALID_VALUE;
    }
    if (tow_serve_ready(call)) {
        call->status = tow_shaped_run(&shaped, call->driver, NULL, stream);
    }
    tow_share_noted(call, note, value, up, shape->width * shape->rows * shape->planes, stream);
}

void tow_serve_cuMemcpy3DAsync_v2(struct tow_serve *call)
{
    struct tow_copy_shape shape;
    tow_dec_copy(&call->in, &shape, sizeof shape);
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, shape.stream);
    if (call->in.bad || !shape_makes_sense(&shape)) {
        call->malformed = true;
        return;
    }
    if (shape.flags & TOW_SHAPE_NOTED) {
        in_shared_memory(call, &shape, stream);
        return;
    }
    struct tow_shaped shaped = tow_shaped_describe(call, &shape);
    if (shaped.packed == TOW_PACKED_SOURCE && shape.transfer != 0) {
        tow_upload_shape(call, &shape);
        return;
    }
    if (shaped.packed == TOW_PACKED_TARGET) {
        download(call, &shape, &shaped, stream);
        return;
    }
    void *bytes = (void *)(uintptr_t)tow_dec_bytes(&call->in, (size_t)shape.bytes);
    if (tow_serve_ready(call)) {
        /* Pageable for the driver, and small: it has been read when this returns. */
        call->status = tow_shaped_run(&shaped, call->driver, bytes, stream);
    }
}
