/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of copies: which way each goes. Those of one dimension that have a host operand are
 * upload.c's and download.c's. */
#include "server/copy/copy.h"

#include "gen/copy_server.h"
#include "gen/stream.h"
#include "server/copy/carry.h"
#include "server/copy/download.h"
#include "server/copy/deferred_upload.h"
#include "server/copy/mirror.h"
#include "server/copy/copy_3d.h"
#include "server/copy/share.h"
#include "server/copy/upload.h"
#include "server/session/session.h"
#include "wire/copy.h"
#include "wire/share.h"

bool tows_copy_drop_context(struct tows_session *session, uint32_t context, uint32_t heir)
{
    /* No command takes memory of the context any more: those that have some come to an end. */
    unsigned seen = tows_ending_enter(session);
    bool goes_on = true;
    while (goes_on && (!tows_upload_drop_context(session, context, heir) ||
                       !tows_deferred_upload_drop_context(session, context, heir) ||
                       !tows_carry_drop_context(session, context, heir) ||
                       !tows_copy_drop_downloads(session, context, heir))) {
        goes_on = tows_ending_await(session, &seen);
    }
    tows_ending_leave(session);
    return goes_on;
}

/* ---- between any addresses ---- */

void tows_serve_cuMemcpyAsync(struct tows_serve *call)
{
    CUdeviceptr to = tow_dec_u64(&call->in);
    CUdeviceptr from = tow_dec_u64(&call->in);
    uint64_t size = tow_dec_u64(&call->in);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    if (!tows_serve_ready(call)) {
        return;
    }
    /* cuMemcpyAsync takes an address that the driver does not know for memory of this process. So
     * it gets those that are the client's and nothing else; what is not is the device's, or the
     * other functions refuse it. */
    bool to_host = tows_mirror_reaches(call, to, size),
         from_host = tows_mirror_reaches(call, from, size);
    if (to_host && from_host) {
        call->status = tow_drive(call->driver, cuMemcpyAsync)(to, from, size, stream);
    } else if (from_host) {
        call->status = tow_drive(call->driver, cuMemcpyHtoDAsync_v2)(to, (void *)(uintptr_t)from,
                                                                     size, stream);
    } else if (to_host) {
        call->status = tow_drive(call->driver, cuMemcpyDtoHAsync_v2)((void *)(uintptr_t)to, from,
                                                                     size, stream);
    } else {
        call->status = tow_drive(call->driver, cuMemcpyDtoDAsync_v2)(to, from, size, stream);
    }
}

/* ---- two and three dimensions ---- */

static bool is_sensible_3d(const struct tow_copy_3d *s)
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
 * (tows_copy_flush); and if this one failed, no more of those before it comes. */
static void download_3d(struct tows_serve *call, const struct tow_copy_3d *copy_3d,
                        const struct tows_driver_copy *driver_copy, CUstream stream)
{
    if (!tows_serve_ready(call)) {
        if (!call->malformed) {
            tows_copy_tell_none_comes(call, copy_3d->transfer);
        }
        return;
    }
    struct tows_async_download want = {.transfer = copy_3d->transfer,
                                       .size = copy_3d->bytes,
                                       .spread = (copy_3d->flags & TOW_COPY_3D_SPREAD) != 0,
                                       .stream_id = copy_3d->stream,
                                       .stream = stream,
                                       .driver_copy = driver_copy};
    tows_copy_download_async(call, &want);
    if (call->frame.seq != 0) {
        tows_copy_send_stream(call, copy_3d->stream, stream);
        CUresult status = tow_drive(call->driver, cuStreamSynchronize)(stream);
        call->status = call->status == CUDA_SUCCESS ? status : call->status;
    }
}

/* Between the device and the client's staging. */
static void in_shared_memory(struct tows_serve *call, const struct tow_copy_3d *copy_3d,
                             CUstream stream)
{
    uint32_t value = 0;
    struct tow_fence_word *word = tows_fence_word_decode(call, &value);
    bool up = copy_3d->from.kind == TOW_AT_ADDRESS;
    const struct tow_copy_operand *host = up ? &copy_3d->from : &copy_3d->to;
    if (word == NULL || host->kind != TOW_AT_ADDRESS) {
        call->malformed = true;
        return;
    }
    struct tows_driver_copy driver_copy = tows_driver_copy_describe(call, copy_3d);
    if (!tows_share_holds(call, host->address, 1) && call->status == CUDA_SUCCESS) {
        call->status = CUDA_ERROR_INVALID_VALUE;
    }
    tows_fence_word_refuse_owing(call, up);
    if (tows_serve_ready(call)) {
        call->status = tows_driver_copy_run(&driver_copy, call->driver, NULL, stream);
    }
    tows_fence_word_put_copy(call, word, value, up,
                             copy_3d->width * copy_3d->rows * copy_3d->planes, stream);
}

void tows_serve_cuMemcpy3DAsync_v2(struct tows_serve *call)
{
    struct tow_copy_3d copy_3d;
    tow_dec_copy(&call->in, &copy_3d, sizeof copy_3d);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, copy_3d.stream);
    if (call->in.bad || !is_sensible_3d(&copy_3d)) {
        call->malformed = true;
        return;
    }
    if (copy_3d.flags & TOW_COPY_3D_FENCE_WORD) {
        in_shared_memory(call, &copy_3d, stream);
        return;
    }
    struct tows_driver_copy driver_copy = tows_driver_copy_describe(call, &copy_3d);
    if (driver_copy.packed == TOW_PACKED_SOURCE && copy_3d.transfer != 0) {
        tows_upload_3d(call, &copy_3d);
        return;
    }
    if (driver_copy.packed == TOW_PACKED_TARGET) {
        download_3d(call, &copy_3d, &driver_copy, stream);
        return;
    }
    void *bytes = (void *)(uintptr_t)tow_dec_bytes(&call->in, (size_t)copy_3d.bytes);
    if (tows_serve_ready(call)) {
        /* Pageable for the driver, and small: it has been read when this returns. */
        call->status = tows_driver_copy_run(&driver_copy, call->driver, bytes, stream);
    }
}
