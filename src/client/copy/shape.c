/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of two and three dimensions, and of arrays.
 *
 * Of host memory that the worker does not have the rows travel packed (wire/copy.h). Uploads need
 * no reply, and downloads into page-locked memory neither, as those of one dimension do
 * (client/copy/copy.c).
 */
#include "client/copy/shape.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "client/link/box.h"
#include "client/stream/context.h"
#include "client/copy/copy.h"
#include "client/copy/download.h"
#include "client/stream/capture.h"
#include "client/callback/hostfn.h"
#include "client/link/lane.h"
#include "client/hostmem/mirror.h"
#include "client/copy/part.h"
#include "client/copy/peer.h"
#include "client/hostmem/region.h"
#include "client/copy/stage.h"
#include "client/stream/stream.h"
#include "gen/copy_client.h"
#include "gen/stream_client.h"
#include "wire/copy.h"

/* A copy as the program describes it, its sides not resolved. */
static struct tow_copy_shape shape_of(const CUDA_MEMCPY3D_PEER *p, bool peer)
{
    return (struct tow_copy_shape){
        .from = {.pitch = p->srcPitch,
                 .height = p->srcHeight,
                 .x = p->srcXInBytes,
                 .y = p->srcY,
                 .z = p->srcZ,
                 .level = (uint32_t)p->srcLOD,
                 .context = (uint64_t)(uintptr_t)p->srcContext},
        .to = {.pitch = p->dstPitch,
               .height = p->dstHeight,
               .x = p->dstXInBytes,
               .y = p->dstY,
               .z = p->dstZ,
               .level = (uint32_t)p->dstLOD,
               .context = (uint64_t)(uintptr_t)p->dstContext},
        .width = p->WidthInBytes,
        .rows = p->Height,
        .planes = p->Depth,
        .flags = peer ? TOW_SHAPE_PEER : 0,
    };
}

/* One side of a copy. Host memory is `ret_host`, and packed on its way. */
static CUresult resolve(const struct tow_copy_shape *shape, struct tow_copy_side *side,
                        CUmemorytype type, const void *host, CUdeviceptr device, CUarray array,
                        CUstream stream, struct tow_box *ret_host)
{
    uint64_t width = shape->width, rows = shape->rows;
    if (type == CU_MEMORYTYPE_UNIFIED) {
        type = tow_copy_is_device(device, stream) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        host = (const void *)(uintptr_t)device;
    }
    if (side->pitch == 0) {
        side->pitch = side->x + width;
    }
    if (side->height == 0) {
        side->height = side->y + rows;
    }
    if (type != CU_MEMORYTYPE_ARRAY &&
        (side->pitch < side->x + width || side->height < side->y + rows)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        if (host == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        side->kind = TOW_AT_HOST;
        *ret_host = (struct tow_box){.width = width,
                                     .rows = rows,
                                     .planes = shape->planes,
                                     .pitch = side->pitch,
                                     .plane = side->pitch * side->height};
        ret_host->first = (uint8_t *)(uintptr_t)host + side->z * ret_host->plane +
                          side->y * side->pitch + side->x;
        side->address = side->x = side->y = side->z = 0;
        side->pitch = width;
        side->height = rows;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
        side->kind = TOW_AT_DEVICE;
        side->address = device;
        return tow_mirror_check_work(stream, device, 1);
    case CU_MEMORYTYPE_ARRAY:
        side->kind = TOW_AT_ARRAY;
        side->address = (uint64_t)(uintptr_t)array;
        side->pitch = side->height = 0;
        if (array == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return tow_handle_valid(TOW_H_ARRAY, side->address) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_HANDLE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- commands ---- */

/* Between sides that the server has. */
static CUresult send_shape(const struct tow_copy_shape *shape)
{
    struct tow_call call;
    CUresult status =
        tow_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2, sizeof *shape, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_bytes(&call.enc, shape, sizeof *shape);
    return tow_call_send(&call);
}

/* The frames have room for one of each line. */
static CUresult send_up(struct tow_link *link, const struct tow_copy_shape *shape,
                        const struct tow_frames *frames, unsigned lanes, bool settle)
{
    bool inside = shape->bytes <= TOW_COPY_INLINE_MAX;
    const uint8_t *bytes = inside ? tow_frames_bytes(frames, 0, shape->bytes) : NULL;
    struct tow_call call;
    CUresult status = tow_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2,
                                     sizeof *shape + (inside ? shape->bytes : 0), TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_copy_shape sent = *shape;
    sent.transfer = inside ? 0 : link->next_transfer++;
    sent.flags |= (lanes > 0 ? TOW_SHAPE_SPREAD : 0) | (settle && !inside ? TOW_SHAPE_SETTLE : 0);
    tow_enc_bytes(&call.enc, &sent, sizeof sent);
    if (inside) {
        tow_enc_bytes(&call.enc, bytes, shape->bytes);
    }
    status = tow_call_send(&call);
    return status == CUDA_SUCCESS && !inside ? tow_lane_upload(link, sent.transfer, frames, lanes)
                                             : status;
}

/* `settle`: the program's call is synchronous, and nobody waits for the device. */
static CUresult upload(struct tow_link *link, const struct tow_copy_shape *shape,
                       const struct tow_box *from, bool settle)
{
    unsigned lanes = tow_lane_use(link, shape->bytes);
    struct tow_frames frames = tow_frames_of(from, TOW_DATA_MAX);
    uint8_t *room = tow_box_is_flat(from) ? NULL : malloc(frames.each * (lanes + 1));
    if (room == NULL && !tow_box_is_flat(from)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    frames.room = room;
    CUresult status = send_up(link, shape, &frames, lanes, settle);
    free(room);
    return status;
}

/* If it is answered these bytes have come, and all before them of its stream. */
static CUresult send_down(struct tow_link *link, const struct tow_copy_shape *part,
                          const struct tow_box *into, bool answered)
{
    bool spread = (part->flags & TOW_SHAPE_SPREAD) != 0;
    struct tow_copy_shape sent = *part;
    struct tow_call call;
    CUresult status = tow_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2, sizeof sent,
                                     TOW_CALL_CONTEXT | (answered ? TOW_CALL_REPLY : 0));
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (tow_link_expect(link, into, call.context, (CUstream)(uintptr_t)part->stream,
                        spread ? TOW_TRANSFER_CLOSED : TOW_TRANSFER_ORDERED, &sent.transfer) < 0) {
        tow_call_cancel(&call);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tow_enc_bytes(&call.enc, &sent, sizeof sent);
    status = tow_call_send(&call);
    if (status != CUDA_SUCCESS) {
        tow_link_forget(link, sent.transfer);
    }
    return status;
}

/* The bytes of device memory from the first to the last. */
static uint64_t device_span(const struct tow_copy_side *side, const struct tow_copy_shape *shape,
                            uint64_t *ret_first)
{
    uint64_t plane = side->pitch * side->height;
    *ret_first = side->address + side->z * plane + side->y * side->pitch + side->x;
    return (shape->planes - 1) * plane + (shape->rows - 1) * side->pitch + shape->width;
}

/* False: the driver will refuse it. What an array has is not known here, nor a variable's size. */
static bool may_be_read(const struct tow_copy_side *side, const struct tow_copy_shape *shape)
{
    uint64_t first, size = device_span(side, shape, &first);
    return side->kind == TOW_AT_ARRAY || tow_region_check_device(first, size) == CUDA_SUCCESS;
}

/* True: the driver will take it. */
static bool is_sure(const struct tow_copy_side *side, const struct tow_copy_shape *shape)
{
    uint64_t first, size = device_span(side, shape, &first);
    return side->kind == TOW_AT_DEVICE && tow_region_holds(first, size);
}

/* Without `wait` the bytes come with the next synchronisation; then the memory is page-locked, and
 * there is room for them. */
static CUresult download(struct tow_link *link, const struct tow_copy_shape *shape,
                         const struct tow_box *to, bool wait)
{
    /* The first part that the driver refuses is the last: no other is to be told of later. */
    bool each = !is_sure(&shape->from, shape);
    bool spread = tow_download_is_spread(link, to);
    struct tow_cut cut = tow_cut_make(to, TOW_COPY_ASYNC_MAX);
    CUresult status = CUDA_SUCCESS;
    for (size_t i = 0; status == CUDA_SUCCESS && i < cut.count; i++) {
        struct tow_part at = tow_cut_part(&cut, i);
        struct tow_box into = tow_box_part(to, &at);
        struct tow_copy_shape part = tow_shape_part(shape, &at);
        part.flags |= spread ? TOW_SHAPE_SPREAD : 0;
        bool here = each || i + 1 == cut.count || !tow_download_has_room(link, part.bytes);
        status = send_down(link, &part, &into, wait && here);
    }
    if (status != CUDA_SUCCESS && wait) {
        /* Of the parts before the one that failed nothing may come any more. */
        tow_copy_settle_source(link, to->first, tow_box_span(to));
    }
    return status;
}

/* ---- the program's copies ---- */

/* How many bytes from the first address on a side of host memory takes. */
static size_t span(const struct tow_copy_side *side, const struct tow_copy_shape *shape)
{
    uint64_t pitch = side->pitch != 0 ? side->pitch : side->x + shape->width;
    uint64_t height = side->height != 0 ? side->height : side->y + shape->rows;
    return pitch * height * (side->z + shape->planes - 1) + pitch * (side->y + shape->rows - 1) +
           side->x + shape->width;
}

/* A host side that a graph will use at every launch travels as its address. */
static CUresult keep_address(struct tow_copy_side *side, const struct tow_copy_shape *shape,
                             CUmemorytype type, const void *host, CUdeviceptr device)
{
    if (type == CU_MEMORYTYPE_UNIFIED) {
        host = (const void *)(uintptr_t)device;
    }
    side->kind = TOW_AT_ADDRESS;
    side->address = (uint64_t)(uintptr_t)host;
    return tow_mirror_host_here(host, span(side, shape));
}

/* Sends a copy whose host side stays where it is: the worker has that memory at the same address.
 */
static CUresult send_addresses(const struct tow_copy_shape *shape, const CUDA_MEMCPY3D_PEER *p,
                               CUstream stream)
{
    struct tow_copy_shape named = shape_of(p, (shape->flags & TOW_SHAPE_PEER) != 0);
    named.stream = (uint64_t)(uintptr_t)stream;
    named.from.kind = shape->from.kind;
    named.from.address = shape->from.address;
    named.to.kind = shape->to.kind;
    named.to.address = shape->to.address;
    CUresult status = CUDA_SUCCESS;
    if (named.from.kind == TOW_AT_HOST) {
        status = keep_address(&named.from, &named, p->srcMemoryType, p->srcHost, p->srcDevice);
    }
    if (status == CUDA_SUCCESS && named.to.kind == TOW_AT_HOST) {
        status = keep_address(&named.to, &named, p->dstMemoryType, p->dstHost, p->dstDevice);
    }
    return status == CUDA_SUCCESS ? send_shape(&named) : status;
}

/* Memory that the worker does not have. The source has been read, or the target written, when this
 * returns; `waits`: and somebody waits for the device. */
static CUresult unshared(struct tow_link *link, const struct tow_copy_shape *shape,
                         const struct tow_box *host, bool wait, bool *waits)
{
    bool up = shape->from.kind == TOW_AT_HOST;
    CUstream stream = (CUstream)(uintptr_t)shape->stream;
    struct tow_staged staged = {.host = *host, .up = up, .stream = stream, .shape = shape};
    CUresult status =
        up ? tow_copy_settle_source(link, host->first, tow_box_span(host)) : CUDA_SUCCESS;
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (up ? tow_stage_up(link, &staged, wait && !*waits, &status)
           : tow_stage_down(link, &staged, &status)) {
        return status;
    }
    *waits = *waits || (up && wait && tow_copy_is_long(link, shape->bytes, stream));
    return up ? upload(link, shape, host, wait && !*waits) : download(link, shape, host, true);
}

/* Between the device and host memory. */
static CUresult with_host(struct tow_link *link, const CUDA_MEMCPY3D_PEER *p,
                          const struct tow_copy_shape *shape, const struct tow_box *host, bool wait)
{
    CUstream stream = (CUstream)(uintptr_t)shape->stream;
    bool up = shape->from.kind == TOW_AT_HOST;
    size_t room = tow_box_span(host);
    bool named =
        tow_region_shares(link, host->first, room) || tow_mirror_has(link, host->first, room);
    bool pinned = tow_region_is_pinned(host->first, room);
    CUresult status = CUDA_SUCCESS;
    if (named && tow_region_alike(link, host->first, room) < room) {
        status = tow_mirror_host(link, (uint64_t)(uintptr_t)host->first, room);
        status = status == CUDA_SUCCESS ? tow_mirror_push(link) : status;
    }
    /* It is told later if the driver refuses it after all. */
    bool later = !up && !wait && !named && pinned && may_be_read(&shape->from, shape) &&
                 tow_download_has_room(link, shape->bytes);
    if (!wait && !named && !later && pinned) {
        status = tow_copy_take_turn(link, host->first, room, stream, up, &named);
        status = status == CUDA_SUCCESS && named ? tow_mirror_push(link) : status;
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool waits = wait && (named || (up && (pinned || tow_mirror_sees(shape->to.address))));
    if (named) {
        status = send_addresses(shape, p, stream);
    } else if (!later) {
        status = unshared(link, shape, host, wait, &waits);
    } else {
        status = download(link, shape, host, false);
    }
    return status == CUDA_SUCCESS && waits ? tow_copy_await(link, stream) : status;
}

CUresult tow_shape_copy(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool wait, bool peer)
{
    struct tow_copy_shape shape = shape_of(p, peer);
    struct tow_box from = {0}, to = {0};
    struct tow_link *link = NULL;
    CUresult status = tow_context_link(&link);
    if (status != CUDA_SUCCESS || p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0) {
        return status;
    }
    shape.stream = (uint64_t)(uintptr_t)stream;
    status = resolve(&shape, &shape.from, p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray,
                     stream, &from);
    if (status == CUDA_SUCCESS) {
        status = resolve(&shape, &shape.to, p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray,
                         stream, &to);
    }
    if (status == CUDA_SUCCESS && tow_peer_elsewhere_3d(p)) {
        return tow_peer_copy_3d(p, stream);
    }
    if (status == CUDA_SUCCESS) {
        status = tow_mirror_push(link);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool up = shape.from.kind == TOW_AT_HOST, down = shape.to.kind == TOW_AT_HOST;
    if ((up || down) && !wait && tow_capture_on(stream)) {
        return send_addresses(&shape, p, stream);
    }
    if (up && down) {
        status = tow_send_cuStreamSynchronize(stream);
        for (uint64_t z = 0; status == CUDA_SUCCESS && z < shape.planes; z++) {
            for (uint64_t y = 0; y < shape.rows; y++) {
                memmove(to.first + z * to.plane + y * to.pitch,
                        from.first + z * from.plane + y * from.pitch, shape.width);
            }
        }
        return status;
    }
    if (!up && !down) {
        status = send_shape(&shape);
        return status == CUDA_SUCCESS && wait && tow_mirror_sees(shape.to.address)
                   ? tow_send_cuStreamSynchronize(stream)
                   : status;
    }
    if (__builtin_mul_overflow(shape.width, shape.rows, &shape.bytes) ||
        __builtin_mul_overflow(shape.bytes, shape.planes, &shape.bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return with_host(link, p, &shape, up ? &from : &to, wait);
}

static CUDA_MEMCPY3D_PEER peer_of_3d(const CUDA_MEMCPY3D *c)
{
    return (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcZ = c->srcZ,
        .srcLOD = c->srcLOD,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .srcHeight = c->srcHeight,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstZ = c->dstZ,
        .dstLOD = c->dstLOD,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .dstHeight = c->dstHeight,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = c->Depth,
    };
}

static CUDA_MEMCPY3D_PEER peer_of_2d(const CUDA_MEMCPY2D *c)
{
    return (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = 1,
    };
}

/* A copy that is not described: that there is a context is looked at first. */
static CUresult no_copy(void)
{
    struct tow_link *link;
    CUresult status = tow_context_link(&link);
    return status != CUDA_SUCCESS ? status : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool wait)
{
    if (copy == NULL) {
        return no_copy();
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_2d(copy);
    return tow_shape_copy(&peer, stream, wait, false);
}

CUresult tow_cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, tow_default_stream(), true);
}

CUresult tow_cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, tow_default_stream(), true);
}

CUresult tow_cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, false);
}

CUresult tow_cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    if (pCopy == NULL) {
        return no_copy();
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_3d(pCopy);
    return tow_shape_copy(&peer, hStream, false, false);
}

CUresult tow_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    if (pCopy == NULL) {
        return no_copy();
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_3d(pCopy);
    return tow_shape_copy(&peer, tow_default_stream(), true, false);
}

CUresult tow_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return pCopy == NULL ? no_copy() : tow_shape_copy(pCopy, hStream, false, true);
}

CUresult tow_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    if (pCopy == NULL) {
        return no_copy();
    }
    CUstream stream = tow_default_stream();
    bool others = false;
    CUresult status = tow_copy_wait_for_others(pCopy->dstContext, pCopy->srcContext, &others);
    if (status == CUDA_SUCCESS) {
        status = tow_shape_copy(pCopy, stream, true, true);
    }
    return status == CUDA_SUCCESS && others ? tow_send_cuStreamSynchronize(stream) : status;
}

/* A row of bytes; of each side only what its type names counts. `up`: to the array. */
static CUresult copy_row(CUarray array, size_t offset, const void *host, size_t size, bool up,
                         CUstream stream, bool wait)
{
    CUDA_MEMCPY3D_PEER p = {.srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY,
                            .dstMemoryType = up ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST,
                            .srcHost = host,
                            .dstHost = (void *)(uintptr_t)host,
                            .srcArray = array,
                            .dstArray = array,
                            .srcXInBytes = up ? 0 : offset,
                            .dstXInBytes = up ? offset : 0,
                            .WidthInBytes = size,
                            .Height = 1,
                            .Depth = 1};
    return tow_shape_copy(&p, stream, wait, false);
}

CUresult tow_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                             size_t ByteCount)
{
    return copy_row(dstArray, dstOffset, srcHost, ByteCount, true, tow_default_stream(), true);
}

CUresult tow_cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy_row(srcArray, srcOffset, dstHost, ByteCount, false, tow_default_stream(), true);
}

CUresult tow_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                                  size_t ByteCount, CUstream hStream)
{
    return copy_row(dstArray, dstOffset, srcHost, ByteCount, true, hStream, false);
}

CUresult tow_cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
                                  size_t ByteCount, CUstream hStream)
{
    return copy_row(srcArray, srcOffset, dstHost, ByteCount, false, hStream, false);
}

/* ---- between arrays and device memory ---- */

/* CUDA_SUCCESS with *ret_empty: nothing is to be copied. `device`: the side that is no array, or 0.
 * What the host wrote there, if it can, comes first. */
static CUresult check_arrays(bool have, CUdeviceptr device, size_t size, bool *ret_empty)
{
    struct tow_link *link;
    CUresult status = tow_context_link(&link);
    *ret_empty = size == 0;
    if (status == CUDA_SUCCESS && size > 0) {
        status = have ? tow_mirror_reach(device) : CUDA_ERROR_INVALID_VALUE;
    }
    return status == CUDA_SUCCESS && size > 0 ? tow_mirror_push(link) : status;
}

CUresult tow_cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                             size_t ByteCount)
{
    bool empty;
    CUresult status = check_arrays(dstArray != NULL, srcDevice, ByteCount, &empty);
    return status != CUDA_SUCCESS || empty
               ? status
               : tow_send_cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
}

CUresult tow_cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                             size_t ByteCount)
{
    bool empty;
    CUresult status = check_arrays(srcArray != NULL, dstDevice, ByteCount, &empty);
    return status != CUDA_SUCCESS || empty
               ? status
               : tow_send_cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
}

CUresult tow_cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                             size_t ByteCount)
{
    bool empty;
    CUresult status = check_arrays(dstArray != NULL && srcArray != NULL, 0, ByteCount, &empty);
    return status != CUDA_SUCCESS || empty
               ? status
               : tow_send_cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}
