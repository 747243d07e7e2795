/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of one dimension.
 *
 * Uploads need no reply: the source has been read when the call returns, which is what CUDA
 * promises for pageable memory. Page-locked memory in a synchronous call is waited for, as
 * natively. Downloads are waited for, except asynchronous ones into page-locked memory: their bytes
 * come with the next synchronisation (client/copy/download.c).
 */
#include "client/copy/copy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/stream/context.h"
#include "client/copy/download.h"
#include "client/stream/capture.h"
#include "client/callback/hostfn.h"
#include "client/link/lane.h"
#include "client/callback/late.h"
#include "client/hostmem/mirror.h"
#include "client/copy/peer.h"
#include "client/hostmem/region.h"
#include "client/copy/shape.h"
#include "client/copy/shared.h"
#include "client/copy/stage.h"
#include "client/stream/stream.h"
#include "gen/context_client.h"
#include "gen/copy_client.h"
#include "gen/stream_client.h"
#include "wire/copy.h"
#include "wire/share.h"

/* How long a copy that is large or has a shape waits for host functions that were queued before. */
#define FUNCTIONS_NS (100 * TOW_TIME_MS)

/* Smaller uploads ride in their commands: to page-lock what few bytes go through costs more. */
enum { STAGED_MIN = 8 << 10 };

CUresult tow_copy_settle_source(struct tow_link *link, const void *from, size_t size)
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

/* ---- one dimension ---- */

CUresult tow_copy_upload(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                         bool settle)
{
    struct tow_link *link = NULL;
    CUresult status = tow_context_link(&link);
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
    struct tow_box box = tow_box_flat((void *)(uintptr_t)from, size);
    struct tow_frames frames = tow_frames_of(&box, TOW_DATA_MAX);
    return tow_lane_upload(link, transfer, &frames, lanes);
}

static CUresult upload(CUdeviceptr to, const void *from, size_t size, CUstream stream, bool settle)
{
    struct tow_staged staged = {.host = tow_box_flat((void *)(uintptr_t)from, size),
                                .up = true,
                                .stream = stream,
                                .device = to};
    /* A small one may still be under way when the call returns, as natively. */
    CUresult status = CUDA_SUCCESS;
    bool done = size >= STAGED_MIN && tow_stage_up(tow_context_current()->link, &staged,
                                                   settle && size > TOW_COPY_INLINE_MAX, &status);
    return done ? status : tow_copy_upload(to, from, size, stream, settle);
}

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
        return tow_shape_copy(&p, stream, false, false);
    }
    CUresult status = tow_mirror_host_here(host, size);
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

CUresult tow_copy_take_turn(struct tow_link *link, const void *host, size_t size, CUstream stream,
                            bool up, bool *ret_named)
{
    atomic_uint *functions = up ? &link->hostfns.writers : &link->hostfns.turns;
    bool behind = atomic_load_explicit(functions, memory_order_relaxed) != 0 &&
                  !tow_hostfn_settle(link, FUNCTIONS_NS);
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
    status = tow_copy_take_turn(link, from, size, stream, true, &named);
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
    return atomic_load_explicit(&link->hostfns.turns, memory_order_relaxed) != 0 ||
           (worked > atomic_load_explicit(&context->done, memory_order_relaxed) &&
            (stream == CU_STREAM_PER_THREAD ||
             worked > atomic_load_explicit(&context->default_done, memory_order_relaxed)));
}

bool tow_copy_is_long(const struct tow_link *link, size_t size, CUstream stream)
{
    return size > TOW_COPY_INLINE_MAX &&
           atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0 && is_busy(link, stream);
}

CUresult tow_copy_await(struct tow_link *link, CUstream stream)
{
    uint64_t number = tow_link_sent(link);
    CUresult status = tow_send_cuStreamSynchronize(stream);
    if (status == CUDA_SUCCESS) {
        tow_stream_finished(stream, tow_context_current(), number);
    }
    return status;
}

static CUresult host_to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                               bool wait)
{
    struct tow_link *link = NULL;
    CUresult status = tow_context_link(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (tow_peer_elsewhere(to)) {
        return tow_peer_copy(to, (CUdeviceptr)(uintptr_t)from, size, stream);
    }
    if (from == NULL || tow_mirror_check_work(stream, to, size) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!wait && tow_capture_on(stream)) {
        return copy_captured(to, (CUdeviceptr)(uintptr_t)from, from, size, stream);
    }
    bool shared = tow_region_shares(link, from, size);
    size_t first = shared ? size : tow_region_alike(link, from, size);
    if (first < size) {
        /* What is not shared has been read. */
        status =
            host_to_device(to, from, first, stream, wait && tow_region_shares(link, from, first));
        return status == CUDA_SUCCESS ? host_to_device(to + first, (const uint8_t *)from + first,
                                                       size - first, stream, wait)
                                      : status;
    }
    bool seen = tow_mirror_sees(to);
    status = seen ? tow_mirror_push(link) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS && shared) {
        return tow_shared_upload(link, to, from, size, stream, wait);
    }
    bool waits = wait && (seen || tow_region_is_pinned(from, size) ||
                          (link->share == NULL && tow_copy_is_long(link, size, stream)));
    if (status == CUDA_SUCCESS) {
        status = tow_copy_settle_source(link, from, size);
    }
    if (status == CUDA_SUCCESS && tow_mirror_has(link, from, size)) {
        return copy_named(link, to, (CUdeviceptr)(uintptr_t)from, size, stream, wait);
    }
    if (status == CUDA_SUCCESS) {
        /* A host function that was queued before may still write there: it is read in turn. */
        bool late = !wait &&
                    atomic_load_explicit(&link->hostfns.writers, memory_order_relaxed) != 0 &&
                    tow_region_is_pinned(from, size);
        status = late ? upload_behind_functions(link, to, from, size, stream)
                      : upload(to, from, size, stream, wait && !waits);
    }
    return status == CUDA_SUCCESS && waits ? tow_copy_await(link, stream) : status;
}

static CUresult device_to_host(void *to, CUdeviceptr from, size_t size, CUstream stream, bool wait)
{
    struct tow_link *link = NULL;
    CUresult status = tow_context_link(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (tow_peer_elsewhere(from)) {
        return tow_peer_copy((CUdeviceptr)(uintptr_t)to, from, size, stream);
    }
    if (to == NULL || tow_mirror_check_work(stream, from, size) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!wait && tow_capture_on(stream)) {
        return copy_captured((CUdeviceptr)(uintptr_t)to, from, to, size, stream);
    }
    bool shared = tow_region_shares(link, to, size);
    size_t head = shared ? size : tow_region_alike(link, to, size);
    if (head < size) {
        /* A part that is shared comes first, and is done when the other one is. */
        uint8_t *at = to;
        bool swap = tow_region_shares(link, at + head, size - head);
        size_t first = swap ? head : 0, second = swap ? 0 : head;
        size_t first_size = swap ? size - head : head;
        status = device_to_host(at + first, from + first, first_size, stream,
                                wait && !tow_region_shares(link, at + first, first_size));
        return status == CUDA_SUCCESS
                   ? device_to_host(at + second, from + second, size - first_size, stream, wait)
                   : status;
    }
    status = tow_mirror_sees(from) ? tow_mirror_push(link) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS && shared) {
        return tow_shared_download(link, to, from, size, stream, wait);
    }
    bool named = tow_mirror_has(link, to, size);
    bool later = !named && !wait && tow_region_is_pinned(to, size);
    size_t sent = 0;
    if (status == CUDA_SUCCESS && later) {
        status = tow_download_later(link, to, from, size, stream, &sent);
    }
    if (status == CUDA_SUCCESS && later && size - sent > TOW_COPY_ASYNC_MAX) {
        status = tow_copy_take_turn(link, (uint8_t *)to + sent, size - sent, stream, false, &named);
    }
    if (status != CUDA_SUCCESS || sent == size) {
        return status;
    }
    uint8_t *rest = (uint8_t *)to + sent;
    return named ? copy_named(link, (CUdeviceptr)(uintptr_t)rest, from + sent, size - sent, stream,
                              wait)
                 : tow_download(link, rest, from + sent, size - sent, stream);
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
    CUresult status = tow_context_link(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (tow_peer_elsewhere(to) || tow_peer_elsewhere(from)) {
        return tow_peer_copy(to, from, size, stream);
    }
    if (tow_mirror_check_work(stream, to, size) != CUDA_SUCCESS ||
        tow_mirror_check_work(stream, from, size) != CUDA_SUCCESS) {
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

bool tow_copy_is_device(CUdeviceptr address, CUstream stream)
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
    CUresult status = tow_context_link(&link);
    if (status != CUDA_SUCCESS || size == 0) {
        return status;
    }
    if (dst == 0 || src == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool to_device = tow_copy_is_device(dst, stream), from_device = tow_copy_is_device(src, stream);
    if (to_device && from_device) {
        return device_to_device(dst, src, size, stream, wait);
    }
    if (to_device) {
        return host_to_device(dst, (const void *)(uintptr_t)src, size, stream, wait);
    }
    if (from_device) {
        return device_to_host((void *)(uintptr_t)dst, src, size, stream, wait);
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
    return device_to_host(dstHost, srcDevice, ByteCount, tow_default_stream(), true);
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
    struct tow_link *link = NULL;
    CUresult status = tow_context_link(&link);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUcontext here = tow_context_current()->handle;
    dstContext = dstContext != NULL ? dstContext : here;
    srcContext = srcContext != NULL ? srcContext : here;
    if (tow_context_find(dstContext) == NULL || tow_context_find(srcContext) == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (ByteCount == 0) {
        return CUDA_SUCCESS;
    }
    if (tow_mirror_check_work(hStream, dstDevice, ByteCount) != CUDA_SUCCESS ||
        tow_mirror_check_work(hStream, srcDevice, ByteCount) != CUDA_SUCCESS) {
        return CUDA_ERROR_INVALID_VALUE;
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

static CUresult wait_for_other(CUcontext handle, bool *ret_other)
{
    const struct tow_context *context = tow_context_find(handle);
    if (context == NULL || context == tow_context_current()) {
        return CUDA_SUCCESS;
    }
    *ret_other = true;
    return tow_cuCtxSynchronize_v2(handle);
}

CUresult tow_copy_wait_for_others(CUcontext dst, CUcontext src, bool *ret_others)
{
    CUresult status = wait_for_other(dst, ret_others);
    return status == CUDA_SUCCESS ? wait_for_other(src, ret_others) : status;
}

CUresult tow_cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                          CUcontext srcContext, size_t ByteCount)
{
    CUstream stream = tow_default_stream();
    bool others = false;
    CUresult status = tow_copy_wait_for_others(dstContext, srcContext, &others);
    if (status == CUDA_SUCCESS) {
        status =
            tow_cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, stream);
    }
    return status == CUDA_SUCCESS && ByteCount > 0 && (others || tow_mirror_sees(dstDevice))
               ? tow_send_cuStreamSynchronize(stream)
               : status;
}
