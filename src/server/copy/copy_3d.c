/* SPDX-License-Identifier: Apache-2.0 */
/* Turns copies of two and three dimensions into the driver's structures, checked. */
#include "server/copy/copy_3d.h"

#include "base/number.h"
#include "gen/copy.h"
#include "server/copy/mirror.h"
#include "server/session/session.h"
#include "wire/copy.h"

static CUmemorytype memory_type(uint32_t kind)
{
    return kind == TOW_AT_HOST || kind == TOW_AT_ADDRESS ? CU_MEMORYTYPE_HOST
           : kind == TOW_AT_DEVICE                       ? CU_MEMORYTYPE_DEVICE
                                                         : CU_MEMORYTYPE_ARRAY;
}

struct tows_driver_copy tows_driver_copy_describe(struct tows_serve *call,
                                                  const struct tow_copy_3d *s)
{
    if ((s->from.kind == TOW_AT_ADDRESS && !tows_mirror_reaches_operand(call, &s->from, s)) ||
        (s->to.kind == TOW_AT_ADDRESS && !tows_mirror_reaches_operand(call, &s->to, s))) {
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
        break; /* see tows_driver_copy_run */
    case TOW_AT_ADDRESS:
        p.srcHost = (const void *)(uintptr_t)s->from.address;
        break;
    case TOW_AT_DEVICE:
        p.srcDevice = s->from.address;
        break;
    default:
        p.srcArray = tows_serve_handle(call, TOW_H_ARRAY, s->from.address);
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
        p.dstArray = tows_serve_handle(call, TOW_H_ARRAY, s->to.address);
        break;
    }
    if (s->flags & TOW_COPY_3D_PEER) {
        p.srcContext = tows_serve_handle(call, TOW_H_CONTEXT, s->from.context);
        p.dstContext = tows_serve_handle(call, TOW_H_CONTEXT, s->to.context);
    }
    return (struct tows_driver_copy){.copy = p,
                                     .peer = (s->flags & TOW_COPY_3D_PEER) != 0,
                                     .packed = s->from.kind == TOW_AT_HOST ? TOW_PACKED_SOURCE
                                               : s->to.kind == TOW_AT_HOST ? TOW_PACKED_TARGET
                                                                           : TOW_PACKED_NEITHER};
}

size_t tows_driver_copy_part(const struct tows_driver_copy *whole, uint64_t offset, size_t size,
                             struct tows_driver_copy *ret_part)
{
    struct tows_driver_copy part = *whole;
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

CUresult tows_driver_copy_run(const struct tows_driver_copy *driver_copy,
                              const struct tow_driver *driver, void *host, CUstream stream)
{
    CUDA_MEMCPY3D_PEER with_host = driver_copy->copy;
    const CUDA_MEMCPY3D_PEER *p = &with_host;
    if (driver_copy->packed == TOW_PACKED_SOURCE) {
        with_host.srcHost = host;
        with_host.srcXInBytes = with_host.srcY = with_host.srcZ = 0;
        with_host.srcPitch = p->WidthInBytes;
        with_host.srcHeight = p->Height;
    } else if (driver_copy->packed == TOW_PACKED_TARGET) {
        with_host.dstHost = host;
        with_host.dstXInBytes = with_host.dstY = with_host.dstZ = 0;
        with_host.dstPitch = p->WidthInBytes;
        with_host.dstHeight = p->Height;
    }
    if (driver_copy->peer) {
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
