/* Copies and fills.
 *
 * Uploads need no reply: the source has been read when the call returns, which is what CUDA
 * promises for pageable memory. Page-locked memory in a synchronous call is waited for, as
 * natively. Downloads are waited for, except asynchronous ones into page-locked memory: their bytes
 * come with the next synchronisation (client/download.c).
 */
#include "client/copy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/calm.h"
#include "client/context.h"
#include "client/download.h"
#include "client/graph.h"
#include "client/hostfn.h"
#include "client/lane.h"
#include "client/late.h"
#include "client/lend.h"
#include "client/mirror.h"
#include "client/peer.h"
#include "client/region.h"
#include "client/share.h"
#include "client/stream.h"
#include "gen/client_api.h"
#include "wire/copy.h"
#include "wire/share.h"

/* How long a copy that is large or has a shape waits for host functions that were queued before. */
#define FUNCTIONS_NS (100 * TOW_TIME_MS)

static bool is_pinned(const void *address)
{
    struct tow_region region;
    return tow_region_find((uint64_t)(uintptr_t)address, &region) && tow_region_is_host(&region);
}

/* Page-locked memory that the worker of this link has too: copies, and this is one, name its
 * address. */
static bool is_shared(const struct tow_link *link, const void *address, size_t size)
{
    struct tow_region region;
    uint64_t at = (uint64_t)(uintptr_t)address;
    bool shared = link->share != NULL && tow_region_find(at, &region) && region.link == link &&
                  at >= region.shared_low && at < region.shared_high &&
                  size <= region.shared_high - at;
    if (shared) {
        tow_lend_count(region.shared_low, size);
    }
    return shared;
}

/* An upload must not read memory that an earlier download is still to fill. */
static CUresult settle_source(struct tow_link *link, const void *from, size_t size)
{
    CUresult status = CUDA_SUCCESS;
    for (int i = 0; i < 4 && status == CUDA_SUCCESS && tow_link_expecting(link, from, size); i++) {
        status = tow_link_settle(link, from, size);
    }
    /* The stream was destroyed, or is another thread's own: then all of them. */
    return tow_link_expecting(link, from, size)
               ? tow_cuCtxSynchronize_v2(tow_context_current()->handle)
               : status;
}

static CUresult link_here(struct tow_link **ret_link)
{
    CUresult state = tow_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct tow_context *context = tow_context_current();
    if (context == NULL || tow_thread_in_hostfn()) {
        return tow_thread_in_hostfn() ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_CONTEXT;
    }
    *ret_link = context->link;
    return (CUresult)atomic_load_explicit(&context->sticky, memory_order_relaxed);
}

/* ---- one dimension ---- */

CUresult tow_copy_upload(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                         bool settle)
{
    struct tow_link *link = NULL;
    CUresult status = link_here(&link);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool inside = size <= TOW_COPY_INLINE_MAX;
    unsigned lanes = tow_lane_use(link, size);
    struct tow_call call;
    status = tow_call_begin(&call, TOW_FN_cuMemcpyHtoDAsync_v2, 40 + (inside ? size : 0),
                            TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    uint32_t transfer = inside ? 0 : call.link->next_transfer++;
    tow_enc_u64(&call.enc, to);
    tow_enc_u64(&call.enc, size);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    tow_enc_u32(&call.enc, transfer);
    tow_enc_u32(&call.enc, (lanes > 0 ? TOW_COPY_SPREAD : TOW_COPY_BYTES) |
                               (settle && !inside ? TOW_COPY_SETTLE : 0));
    if (inside) {
        tow_enc_bytes(&call.enc, from, size);
    }
    status = tow_call_send(&call);
    if (status != CUDA_SUCCESS || inside) {
        return status;
    }
    return lanes > 0 ? tow_lane_upload(link, transfer, from, size, lanes)
                     : tow_link_upload(link, transfer, from, size);
}

static CUresult upload(CUdeviceptr to, const void *from, size_t size, CUstream stream, bool settle)
{
    CUresult status =
        size <= TOW_COPY_INLINE_MAX
            ? CUDA_ERROR_NOT_SUPPORTED
            : tow_share_stage_up(tow_context_current()->link, to, from, size, stream, settle);
    return status == CUDA_ERROR_NOT_SUPPORTED ? tow_copy_upload(to, from, size, stream, settle)
                                              : status;
}

static CUresult copy_3d(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool wait, bool peer);

/* A copy that a graph will repeat: it reads or writes the program's memory at every launch. */
static CUresult copy_captured(CUdeviceptr to, CUdeviceptr from, const void *host, size_t size,
                              CUstream stream)
{
    bool up = (CUdeviceptr)(uintptr_t)host == from;
    if (tow_region_check_device(up ? to : from, size) != CUDA_SUCCESS) {
        /* The driver cannot see from the address that it is meant as the device's. */
        CUDA_MEMCPY3D_PEER p = {.srcMemoryType = up ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                                .srcHost = up ? host : NULL,
                                .srcDevice = up ? 0 : from,
                                .dstMemoryType = up ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                                .dstHost = up ? NULL : (void *)(uintptr_t)to,
                                .dstDevice = up ? to : 0,
                                .WidthInBytes = size,
                                .Height = 1,
                                .Depth = 1};
        return copy_3d(&p, stream, false, false);
    }
    CUresult status = tow_graph_reach(host, size);
    return status == CUDA_SUCCESS ? tow_send_cuMemcpyAsync(to, from, size, stream) : status;
}

/* A copy from or to host memory that the worker has too: kernels that come before it in its stream
 * may be writing there, and those behind it read there. So the worker's memory takes part in it,
 * and the program's is made equal as always. */
static CUresult copy_named(struct tow_link *link, CUdeviceptr to, CUdeviceptr from, size_t size,
                           CUstream stream, bool wait)
{
    CUresult status = tow_mirror_push(link);
    if (status == CUDA_SUCCESS) {
        status = tow_send_cuMemcpyAsync(to, from, size, stream);
    }
    return status == CUDA_SUCCESS && wait ? tow_send_cuStreamSynchronize(stream) : status;
}

/* Behind host functions that write its source, or that the program is still to let go, a copy takes
 * place in its turn: `ret_named`, between the device and the worker's memory, which is mirrored
 * from then on. That costs every launch, so the functions are given a moment first: when they have
 * run it is a copy like any other. Where the worker cannot have a mirror an upload waits for its
 * stream. */
static CUresult take_turn(struct tow_link *link, const void *host, size_t size, CUstream stream,
                          bool up, bool *ret_named)
{
    atomic_uint *functions = up ? &tow_hostfn_writers : &tow_hostfn_turns;
    bool behind = atomic_load_explicit(functions, memory_order_relaxed) != 0 &&
                  !tow_hostfn_settle(FUNCTIONS_NS);
    *ret_named = behind && tow_mirror_host(link, (uint64_t)(uintptr_t)host, size) == CUDA_SUCCESS;
    return behind && up && !*ret_named ? tow_send_cuStreamSynchronize(stream) : CUDA_SUCCESS;
}

/* A small one is read by a function of ours; a large one takes its turn. */
static CUresult upload_behind_functions(struct tow_link *link, CUdeviceptr to, const void *from,
                                        size_t size, CUstream stream)
{
    CUresult status = tow_late_upload(to, from, size, stream);
    if (status != CUDA_ERROR_NOT_SUPPORTED) {
        return status;
    }
    bool named = false;
    status = take_turn(link, from, size, stream, true, &named);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    return named ? copy_named(link, to, (CUdeviceptr)(uintptr_t)from, size, stream, false)
                 : upload(to, from, size, stream, false);
}

/* True if the device may have much to do before a copy in a default stream. */
static bool is_busy(const struct tow_link *link, CUstream stream)
{
    const struct tow_context *context = tow_context_current();
    uint64_t worked = atomic_load_explicit(&link->worked, memory_order_relaxed);
    return atomic_load_explicit(&tow_hostfn_turns, memory_order_relaxed) != 0 ||
           (worked > atomic_load_explicit(&context->done, memory_order_relaxed) &&
            (stream == CU_STREAM_PER_THREAD ||
             worked > atomic_load_explicit(&context->default_done, memory_order_relaxed)));
}

/* Over a network a synchronous copy of pageable memory has been read when it is sent, and the
 * server lets nothing overtake it while that takes the device a moment (TOW_COPY_SETTLE). Behind
 * launches it may take long: then it is waited for, as natively, unless a capture forbids it. */
static bool is_long(const struct tow_link *link, size_t size, CUstream stream)
{
    return link->share == NULL && size > TOW_COPY_INLINE_MAX &&
           atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0 && is_busy(link, stream);
}

static CUresult host_to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                               bool wait)
{
    struct tow_link *link = NULL;
    CUresult status = link_here(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (tow_peer_elsewhere(to)) {
        return tow_peer_copy(to, (CUdeviceptr)(uintptr_t)from, size, stream);
    }
    if (from == NULL || tow_capture_check_device(stream, to, size) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!wait && tow_capture_on(stream)) {
        return copy_captured(to, (CUdeviceptr)(uintptr_t)from, from, size, stream);
    }
    bool shared = is_shared(link, from, size);
    size_t first = shared ? size : tow_region_alike(link, from, size);
    if (first < size) {
        /* What is not shared has been read. */
        status = host_to_device(to, from, first, stream, wait && is_shared(link, from, first));
        return status == CUDA_SUCCESS ? host_to_device(to + first, (const uint8_t *)from + first,
                                                       size - first, stream, wait)
                                      : status;
    }
    bool seen = tow_mirror_sees(to);
    status = seen ? tow_mirror_push(link) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS && shared) {
        return tow_share_upload(link, to, from, size, stream, wait);
    }
    bool waits = wait && (seen || is_pinned(from) || is_long(link, size, stream));
    if (status == CUDA_SUCCESS) {
        status = settle_source(link, from, size);
    }
    if (status == CUDA_SUCCESS && tow_mirror_has(link, from, size)) {
        return copy_named(link, to, (CUdeviceptr)(uintptr_t)from, size, stream, wait);
    }
    if (status == CUDA_SUCCESS) {
        /* A host function that was queued before may still write there: it is read in turn. */
        bool late = !wait && atomic_load_explicit(&tow_hostfn_writers, memory_order_relaxed) != 0 &&
                    is_pinned(from);
        status = late ? upload_behind_functions(link, to, from, size, stream)
                      : upload(to, from, size, stream, wait && !waits);
    }
    if (status == CUDA_SUCCESS && waits) {
        uint64_t number = tow_link_sent(link);
        status = tow_send_cuStreamSynchronize(stream);
        if (status == CUDA_SUCCESS) {
            tow_stream_finished(stream, tow_context_current(), number);
        }
    }
    return status;
}

static CUresult device_to_host(void *to, CUdeviceptr from, size_t size, CUstream stream, bool wait)
{
    struct tow_link *link = NULL;
    CUresult status = link_here(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (tow_peer_elsewhere(from)) {
        return tow_peer_copy((CUdeviceptr)(uintptr_t)to, from, size, stream);
    }
    if (to == NULL || tow_capture_check_device(stream, from, size) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!wait && tow_capture_on(stream)) {
        return copy_captured((CUdeviceptr)(uintptr_t)to, from, to, size, stream);
    }
    bool shared = is_shared(link, to, size);
    size_t first = shared ? size : tow_region_alike(link, to, size);
    if (first < size) {
        /* A part that is shared comes first, and is done when the other one is. */
        uint8_t *rest = (uint8_t *)to + first;
        bool swapped = is_shared(link, rest, size - first);
        bool waits = wait && !swapped && !is_shared(link, to, first);
        status = swapped ? device_to_host(rest, from + first, size - first, stream, false)
                         : device_to_host(to, from, first, stream, waits);
        if (status == CUDA_SUCCESS) {
            status = swapped ? device_to_host(to, from, first, stream, wait)
                             : device_to_host(rest, from + first, size - first, stream, wait);
        }
        return status;
    }
    status = tow_mirror_sees(from) ? tow_mirror_push(link) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS && shared) {
        return tow_share_download(link, to, from, size, stream, wait);
    }
    bool named = tow_mirror_has(link, to, size);
    bool later = !named && !wait && is_pinned(to);
    size_t sent = 0;
    if (status == CUDA_SUCCESS && later) {
        status = tow_download_later(link, to, from, size, stream, &sent);
    }
    if (status == CUDA_SUCCESS && later && size - sent > TOW_COPY_ASYNC_MAX) {
        status = take_turn(link, (uint8_t *)to + sent, size - sent, stream, false, &named);
    }
    if (status != CUDA_SUCCESS || sent == size) {
        return status;
    }
    uint8_t *rest = (uint8_t *)to + sent;
    return named ? copy_named(link, (CUdeviceptr)(uintptr_t)rest, from + sent, size - sent, stream,
                              wait)
                 : tow_download(link, rest, from + sent, size - sent, stream);
}

static CUresult fetch(void *to, CUdeviceptr from, size_t size, CUstream stream, bool wait)
{
    struct tow_calm before = tow_calm_before(wait ? tow_context_current() : NULL);
    return tow_calm_fetched(&before, stream, device_to_host(to, from, size, stream, wait));
}

/* A capture refuses a copy of what is no memory, so that is waited for. */
static CUresult send_device_to_device(CUdeviceptr to, CUdeviceptr from, size_t size,
                                      CUstream stream)
{
    unsigned captured = tow_capture_flag(stream);
    if (captured != 0 && (tow_mirror_check_device(to, size) != CUDA_SUCCESS ||
                          tow_mirror_check_device(from, size) != CUDA_SUCCESS)) {
        captured = 0;
    }
    struct tow_call call;
    CUresult status =
        tow_call_begin(&call, TOW_FN_cuMemcpyDtoDAsync_v2, 32, TOW_CALL_CONTEXT | captured);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, to);
    tow_enc_u64(&call.enc, from);
    tow_enc_u64(&call.enc, size);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    return tow_call_send(&call);
}

static CUresult device_to_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream,
                                 bool wait)
{
    struct tow_link *link = NULL;
    CUresult status = link_here(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (tow_peer_elsewhere(to) || tow_peer_elsewhere(from)) {
        return tow_peer_copy(to, from, size, stream);
    }
    if (tow_capture_check_device(stream, to, size) != CUDA_SUCCESS ||
        tow_capture_check_device(stream, from, size) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool seen = tow_mirror_sees(to) || tow_mirror_sees(from);
    status = seen ? tow_mirror_push(link) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        status = send_device_to_device(to, from, size, stream);
    }
    return status == CUDA_SUCCESS && seen && wait ? tow_send_cuStreamSynchronize(stream) : status;
}

static CUresult host_to_host(void *to, const void *from, size_t size, CUstream stream)
{
    CUresult status = tow_send_cuStreamSynchronize(stream);
    if (status == CUDA_SUCCESS) {
        memmove(to, from, size);
    }
    return status;
}

/* Which side an address is on. While its stream captures it may be no address at all; then it is
 * taken for the device's, since the host's would have to be looked at. */
static bool is_device(CUdeviceptr address, CUstream stream)
{
    unsigned char resident = 0;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return tow_region_is_device(address) ||
           (tow_capture_on(stream) &&
            mincore((void *)(uintptr_t)(address & ~(page - 1)), 1, &resident) != 0);
}

static CUresult copy_unified(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream stream,
                             bool wait)
{
    struct tow_link *link = NULL;
    CUresult status = link_here(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (dst == 0 || src == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool to_device = is_device(dst, stream), from_device = is_device(src, stream);
    if (to_device && from_device) {
        return device_to_device(dst, src, size, stream, wait);
    }
    if (to_device) {
        return host_to_device(dst, (const void *)(uintptr_t)src, size, stream, wait);
    }
    if (from_device) {
        return fetch((void *)(uintptr_t)dst, src, size, stream, wait);
    }
    return host_to_host((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size, stream);
}

CUresult tow_cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return host_to_device(dstDevice, srcHost, ByteCount, tow_default_stream(), true);
}

CUresult tow_cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                                  CUstream hStream)
{
    return host_to_device(dstDevice, srcHost, ByteCount, hStream, false);
}

CUresult tow_cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return fetch(dstHost, srcDevice, ByteCount, tow_default_stream(), true);
}

CUresult tow_cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream)
{
    return device_to_host(dstHost, srcDevice, ByteCount, hStream, false);
}

CUresult tow_cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return device_to_device(dstDevice, srcDevice, ByteCount, tow_default_stream(), true);
}

CUresult tow_cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                  CUstream hStream)
{
    return device_to_device(dstDevice, srcDevice, ByteCount, hStream, false);
}

CUresult tow_cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy_unified(dst, src, ByteCount, tow_default_stream(), true);
}

CUresult tow_cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy_unified(dst, src, ByteCount, hStream, false);
}

CUresult tow_cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                               CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    if (tow_context_find(dstContext) == NULL || tow_context_find(srcContext) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (ByteCount == 0) {
        return CUDA_SUCCESS;
    }
    if (tow_capture_check_device(hStream, dstDevice, ByteCount) != CUDA_SUCCESS ||
        tow_capture_check_device(hStream, srcDevice, ByteCount) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_link *link = NULL;
    CUresult status = link_here(&link);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (tow_context_find(dstContext)->link != link || tow_context_find(srcContext)->link != link) {
        return tow_peer_copy(dstDevice, srcDevice, ByteCount, hStream);
    }
    bool seen = tow_mirror_sees(dstDevice) || tow_mirror_sees(srcDevice);
    status = seen ? tow_mirror_push(link) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        status = tow_send_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount,
                                            hStream);
    }
    return status;
}

/* A copy between contexts that names no stream comes behind the work of both, and before what they
 * are given next. The default stream of the current one says nothing of another: the program waits
 * for that before the copy, and for the copy. */
static CUresult wait_for_other(CUcontext handle, bool *ret_other)
{
    const struct tow_context *context = tow_context_find(handle);
    if (context == NULL || context == tow_context_current()) {
        return CUDA_SUCCESS;
    }
    *ret_other = true;
    return tow_cuCtxSynchronize_v2(handle);
}

static CUresult wait_for_others(CUcontext dst, CUcontext src, bool *ret_others)
{
    CUresult status = wait_for_other(dst, ret_others);
    return status == CUDA_SUCCESS ? wait_for_other(src, ret_others) : status;
}

CUresult tow_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                          CUcontext srcContext, size_t ByteCount)
{
    CUstream stream = tow_default_stream();
    bool others = false;
    CUresult status = wait_for_others(dstContext, srcContext, &others);
    if (status == CUDA_SUCCESS) {
        status =
            tow_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, stream);
    }
    return status == CUDA_SUCCESS && ByteCount > 0 && (others || tow_mirror_sees(dstDevice))
               ? tow_send_cuStreamSynchronize(stream)
               : status;
}

/* ---- two and three dimensions, arrays ---- */

/* A host side of a copy: where its first byte is and how far its rows and planes are apart. */
struct host_side {
    uint8_t *first;
    size_t pitch, plane;
};

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
        .peer = peer,
    };
}

static CUresult resolve(struct tow_copy_side *side, CUmemorytype type, const void *host,
                        CUdeviceptr device, CUarray array, size_t width, size_t rows,
                        CUstream stream, struct host_side *ret_host)
{
    if (type == CU_MEMORYTYPE_UNIFIED) {
        type = is_device(device, stream) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
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
        ret_host->pitch = side->pitch;
        ret_host->plane = side->pitch * side->height;
        ret_host->first = (uint8_t *)(uintptr_t)host + side->z * ret_host->plane +
                          side->y * side->pitch + side->x;
        side->address = side->x = side->y = side->z = 0;
        side->pitch = width;
        side->height = rows;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
        side->kind = TOW_AT_DEVICE;
        side->address = device;
        return tow_capture_check_device(stream, device, 1);
    case CU_MEMORYTYPE_ARRAY:
        side->kind = TOW_AT_ARRAY;
        side->address = (uint64_t)(uintptr_t)array;
        side->pitch = side->height = 0;
        return tow_handle_valid(TOW_H_ARRAY, side->address) ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_HANDLE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static void pack(uint8_t *packed, const struct host_side *host, const struct tow_copy_shape *shape,
                 bool from_host)
{
    for (uint64_t z = 0; z < shape->planes; z++) {
        for (uint64_t y = 0; y < shape->rows; y++) {
            uint8_t *row = host->first + z * host->plane + y * host->pitch;
            if (from_host) {
                memcpy(packed, row, shape->width);
            } else {
                memcpy(row, packed, shape->width);
            }
            packed += shape->width;
        }
    }
}

static CUresult send_shape(const struct tow_copy_shape *shape, const struct host_side *from,
                           const struct host_side *to, CUstream stream)
{
    bool up = shape->from.kind == TOW_AT_HOST, down = shape->to.kind == TOW_AT_HOST;
    bool inside = up && shape->bytes <= TOW_COPY_INLINE_MAX;
    uint8_t *packed = NULL;
    if (up || down) {
        packed = malloc(shape->bytes);
        if (packed == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    struct tow_link *link = NULL;
    CUresult status = link_here(&link);
    if (status == CUDA_SUCCESS && up) {
        status = settle_source(link, from->first,
                               (shape->planes - 1) * from->plane + (shape->rows - 1) * from->pitch +
                                   shape->width);
        pack(packed, from, shape, true);
    }
    struct tow_call call;
    if (status == CUDA_SUCCESS) {
        status = tow_call_begin(&call, TOW_FN_cuMemcpy3DAsync_v2,
                                sizeof *shape + (inside ? shape->bytes : 0),
                                TOW_CALL_CONTEXT | (down ? TOW_CALL_REPLY : 0));
    }
    if (status != CUDA_SUCCESS) {
        free(packed);
        return status;
    }
    struct tow_copy_shape sent = *shape;
    sent.stream = (uint64_t)(uintptr_t)stream;
    if (up && !inside) {
        sent.transfer = link->next_transfer++;
    } else if (down && tow_link_expect(link, packed, shape->bytes, call.context, stream,
                                       TOW_TRANSFER_ORDERED, &sent.transfer) < 0) {
        tow_call_cancel(&call);
        free(packed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tow_enc_bytes(&call.enc, &sent, sizeof sent);
    if (inside) {
        tow_enc_bytes(&call.enc, packed, shape->bytes);
    }
    if (down) {
        status = tow_call_wait(&call);
        if (status == CUDA_SUCCESS) {
            pack(packed, to, shape, false);
        } else {
            tow_link_forget(link, sent.transfer);
        }
        status = tow_call_end(&call, status);
    } else {
        status = tow_call_send(&call);
        if (status == CUDA_SUCCESS && up && !inside) {
            status = tow_link_upload(link, sent.transfer, packed, shape->bytes);
        }
    }
    free(packed);
    return status;
}

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
    return tow_graph_reach(host, span(side, shape));
}

/* Sends a copy whose host side stays where it is: the worker has that memory at the same address.
 */
static CUresult send_addresses(const struct tow_copy_shape *shape, const CUDA_MEMCPY3D_PEER *p,
                               CUstream stream)
{
    struct tow_copy_shape named = shape_of(p, shape->peer);
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
    return status == CUDA_SUCCESS ? send_shape(&named, NULL, NULL, stream) : status;
}

static CUresult copy_3d(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool wait, bool peer)
{
    if (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0) {
        return CUDA_SUCCESS;
    }
    struct tow_copy_shape shape = shape_of(p, peer);
    struct host_side from = {0}, to = {0};
    if (tow_context_current() == NULL || tow_thread_in_hostfn()) {
        return tow_thread_in_hostfn() ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult status = resolve(&shape.from, p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray,
                              shape.width, shape.rows, stream, &from);
    if (status == CUDA_SUCCESS) {
        status = resolve(&shape.to, p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray,
                         shape.width, shape.rows, stream, &to);
    }
    if (status == CUDA_SUCCESS && tow_peer_elsewhere_3d(p)) {
        return tow_peer_copy_3d(p, stream);
    }
    if (status == CUDA_SUCCESS) {
        status = tow_mirror_push(tow_context_current()->link);
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
    if (up || down) {
        if (__builtin_mul_overflow(shape.width, shape.rows, &shape.bytes) ||
            __builtin_mul_overflow(shape.bytes, shape.planes, &shape.bytes)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    const struct host_side *host = up ? &from : &to;
    struct tow_link *link = tow_context_current()->link;
    size_t room = (shape.planes - 1) * host->plane + (shape.rows - 1) * host->pitch + shape.width;
    bool shared = (up || down) &&
                  (is_shared(link, host->first, room) || tow_mirror_has(link, host->first, room));
    if (shared && tow_region_alike(link, host->first, room) < room) {
        status = tow_mirror_host(link, (uint64_t)(uintptr_t)host->first, room);
        status = status == CUDA_SUCCESS ? tow_mirror_push(link) : status;
    }
    if (!wait && !shared && (up || down) && is_pinned(host->first)) {
        status = take_turn(link, host->first, room, stream, up, &shared);
        status = status == CUDA_SUCCESS && shared ? tow_mirror_push(link) : status;
    }
    if (status == CUDA_SUCCESS) {
        status =
            shared ? send_addresses(&shape, p, stream) : send_shape(&shape, &from, &to, stream);
    }
    if (status == CUDA_SUCCESS && wait &&
        (shared || (up && is_pinned(from.first)) || tow_mirror_sees(shape.to.address))) {
        status = tow_send_cuStreamSynchronize(stream);
    }
    return status;
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

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool wait)
{
    if (copy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_2d(copy);
    return copy_3d(&peer, stream, wait, false);
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
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_3d(pCopy);
    return copy_3d(&peer, hStream, false, false);
}

CUresult tow_cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    if (pCopy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_MEMCPY3D_PEER peer = peer_of_3d(pCopy);
    return copy_3d(&peer, tow_default_stream(), true, false);
}

CUresult tow_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return pCopy == NULL ? CUDA_ERROR_INVALID_VALUE : copy_3d(pCopy, hStream, false, true);
}

CUresult tow_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    if (pCopy == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstream stream = tow_default_stream();
    bool others = false;
    CUresult status = wait_for_others(pCopy->dstContext, pCopy->srcContext, &others);
    if (status == CUDA_SUCCESS) {
        status = copy_3d(pCopy, stream, true, true);
    }
    return status == CUDA_SUCCESS && others ? tow_send_cuStreamSynchronize(stream) : status;
}

static CUresult host_array(CUarray array, size_t offset, const void *from, void *to, size_t size,
                           CUstream stream, bool wait)
{
    CUDA_MEMCPY3D_PEER p = {.WidthInBytes = size, .Height = 1, .Depth = 1};
    if (from != NULL) {
        p.srcMemoryType = CU_MEMORYTYPE_HOST;
        p.srcHost = from;
        p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        p.dstArray = array;
        p.dstXInBytes = offset;
    } else {
        p.dstMemoryType = CU_MEMORYTYPE_HOST;
        p.dstHost = to;
        p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        p.srcArray = array;
        p.srcXInBytes = offset;
    }
    return from == NULL && to == NULL ? CUDA_ERROR_INVALID_VALUE : copy_3d(&p, stream, wait, false);
}

CUresult tow_cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                             size_t ByteCount)
{
    return host_array(dstArray, dstOffset, srcHost, NULL, ByteCount, tow_default_stream(), true);
}

CUresult tow_cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return host_array(srcArray, srcOffset, NULL, dstHost, ByteCount, tow_default_stream(), true);
}

CUresult tow_cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                                  size_t ByteCount, CUstream hStream)
{
    return host_array(dstArray, dstOffset, srcHost, NULL, ByteCount, hStream, false);
}

CUresult tow_cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset,
                                  size_t ByteCount, CUstream hStream)
{
    return host_array(srcArray, srcOffset, NULL, dstHost, ByteCount, hStream, false);
}
