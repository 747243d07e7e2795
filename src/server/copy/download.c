/* SPDX-License-Identifier: Apache-2.0 */
/* Copies from the device to the client: sent as the device brings them, over all of the session's
 * lines. */
#include "server/copy/download.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "gen/copy_server.h"
#include "gen/event.h"
#include "gen/stream.h"
#include "server/copy/pinned.h"
#include "server/session/ending.h"
#include "server/session/session.h"
#include "server/copy/copy_3d.h"
#include "server/copy/share.h"
#include "transport/lanes.h"
#include "wire/copy.h"
#include "wire/share.h"

enum {
    STAGE = 1 << 20,         /* one buffer of a large download: a DATA frame */
    STAGE_SMALL = 256 << 10, /* of one that is not so large: the first bytes leave sooner */
    STAGES = 4,              /* buffers of one download on their way at once */
    STAGES_KEPT = 3,         /* and so many more that a line may keep behind them */
    PENDING_JOBS = TOW_COPY_ASYNC_MAX / STAGE,
};

/* How often a thread that waits for an event looks for downloads that are done: soon after the last
 * one, ever less often behind a long kernel. */
#define NAP_MIN_NS (20 * TOW_TIME_US)
#define NAP_MAX_NS (500 * TOW_TIME_US)

_Static_assert((int)STAGE <= (int)TOW_PINNED_MAX && (int)TOW_COPY_ASYNC_MAX <= (int)TOW_PINNED_MAX,
               "buffers hold them");

/* An asynchronous download: on its way into the buffer, then to the client. */
struct pending_download {
    uint32_t transfer;
    uint64_t size;
    struct tows_pinned_buffer *buffer; /* owned until it is given back */
    bool spread;        /* may leave over the lanes; a frame on the own line closes it */
    uint64_t number;    /* in the order of their commands */
    uint64_t stream_id; /* of the copy: the client's, and the driver's */
    CUstream stream;
    unsigned awaited; /* threads that wait for the buffer's event: it stays until they are out */
    bool finished;    /* but for those it would be gone */
    unsigned job_count;
    struct tow_lane_job jobs[PENDING_JOBS]; /* the lanes' until they are done */
    struct pending_download *next;
};

struct copy_state {
    struct tows_pinned pinned;
    struct tow_mutex sending; /* guards the two below; held while bytes are sent, so that whoever
                                has it and finds none may rely on their being on the line */
    struct pending_download *open, **open_end; /* sent over the lanes and not closed */
    unsigned turn;         /* whose a buffer of spread ones is: each line's in turn */
    struct tow_mutex lock; /* guards the two below, and who waits for a buffer; taken last, and
                             never for long: the leading thread adds to the list */
    struct pending_download *pending, **pending_end;
    uint64_t number;           /* of the newest */
    atomic_uint pending_count; /* of both lists, and what is on its way from one to the other */
};

static void free_pending(struct pending_download *download)
{
    while (download != NULL) {
        struct pending_download *next = download->next;
        free(download->buffer);
        free(download);
        download = next;
    }
}

/* The session's lanes have ended before. */
static void copies_fini(struct tows_session *session, void *state)
{
    struct copy_state *copies = state;
    (void)session;
    free_pending(copies->pending);
    free_pending(copies->open);
    tows_pinned_fini(&copies->pinned);
    tow_mutex_fini(&copies->sending);
    tow_mutex_fini(&copies->lock);
}

static void copies_init(struct tows_session *session, void *opaque)
{
    struct copy_state *state = opaque;
    tows_pinned_init(&state->pinned, session);
    tow_mutex_init(&state->sending, SERVER_DOWNLOAD_SEND);
    tow_mutex_init(&state->lock, SERVER_DOWNLOADS);
    state->pending_end = &state->pending;
    state->open_end = &state->open;
}

static struct copy_state *state_of(struct tows_session *session)
{
    static const struct tows_family_ops ops = {TOW_SESSION_COPY, sizeof(struct copy_state),
                                               copies_init, copies_fini};
    return tows_session_make_state(session, &ops);
}

/* ---- downloads ---- */

/* After a failure: the buffers are free again when the device is through with them. False: that
 * cannot be known, or the client has gone and nobody waits. */
static bool is_through(const struct tow_driver *driver, CUstream stream, CUresult status)
{
    return status != CUDA_ERROR_UNKNOWN &&
           tow_drive(driver, cuStreamSynchronize)(stream) == CUDA_SUCCESS;
}

struct stage {
    struct tows_pinned_buffer *buffer; /* owned until it is given back; NULL: not needed yet */
    uint64_t place;                    /* the session's line may read it up to there */
};

/* A buffer that may be filled: an old one, once the line does not need it any more. */
static CUresult stage_next(struct tows_serve *call, struct copy_state *copies, struct stage *stage,
                           size_t size)
{
    if (stage->buffer == NULL) {
        return tows_pinned_take(&copies->pinned, call->session, call->frame.context, size,
                                &stage->buffer);
    }
    int error = tow_line_take_back_until(call->session->line, stage->place);
    return error < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS; /* the client is gone */
}

/* Buffer by buffer: while one is sent, the device fills the next ones. */
static CUresult download_large(struct tows_serve *call, CUdeviceptr from, uint64_t size,
                               CUstream stream, uint32_t transfer)
{
    const struct tow_driver *driver = call->driver;
    struct copy_state *copies = state_of(call->session);
    struct tow_line *line = call->session->line;
    size_t buffer_size = size <= STAGES * STAGE ? STAGE_SMALL : STAGE;
    struct stage stages[STAGES + STAGES_KEPT] = {{0}};
    unsigned depth = tow_line_keeps(line) ? STAGES + STAGES_KEPT : STAGES;
    CUresult status = copies != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t asked = 0, sent = 0, place = 0; /* behind all that was lent */
    unsigned fill = 0, send = 0;
    while (status == CUDA_SUCCESS && sent < size) {
        while (status == CUDA_SUCCESS && asked < size && fill - send < STAGES) {
            size_t n = (size_t)tow_min_u64(buffer_size, size - asked);
            struct stage *stage = &stages[fill % depth];
            status = stage_next(call, copies, stage, buffer_size);
            if (status == CUDA_ERROR_OUT_OF_MEMORY && fill >= STAGES && stage->buffer == NULL) {
                depth = fill; /* those that there are do */
                status = CUDA_SUCCESS;
                continue;
            }
            if (status == CUDA_SUCCESS) {
                status = tow_drive(driver, cuMemcpyDtoHAsync_v2)(stage->buffer->bytes, from + asked,
                                                                 n, stream);
            }
            if (status == CUDA_SUCCESS) {
                fill++;
                status = tow_drive(driver, cuEventRecord)(stage->buffer->filled, stream);
            }
            asked += n;
        }
        struct stage *stage = &stages[send % depth];
        if (status == CUDA_SUCCESS) {
            status = tow_drive(driver, cuEventSynchronize)(stage->buffer->filled);
        }
        if (status == CUDA_SUCCESS && sent == 0) {
            /* Into the same memory, perhaps: those before it come first. */
            tows_copy_flush(call->session);
            status = tows_session_enter(call->session, call->frame.context);
        }
        size_t n = (size_t)tow_min_u64(buffer_size, size - sent);
        if (status == CUDA_SUCCESS &&
            tows_session_lend_data(call->session, transfer, sent, stage->buffer->bytes, n,
                                   sent + n == size ? TOW_DATA_LAST : 0, &stage->place) < 0) {
            status = CUDA_ERROR_UNKNOWN; /* the client is gone */
        }
        place = stage->place > place ? stage->place : place;
        sent += n;
        send += status == CUDA_SUCCESS;
    }
    if (tow_line_take_back_until(line, place) < 0 && status == CUDA_SUCCESS) {
        status = CUDA_ERROR_UNKNOWN;
    }
    bool through = fill == send || is_through(driver, stream, status);
    for (unsigned i = 0; i < depth && stages[i].buffer != NULL; i++) {
        if (through) {
            tows_pinned_give(&copies->pinned, stages[i].buffer);
        } else {
            tows_pinned_lose(&copies->pinned, stages[i].buffer);
        }
    }
    return status;
}

/* One buffer of a download over several lines: under way to the device's end, then to a lane's. */
struct outgoing {
    struct tows_pinned_buffer *buffer; /* owned until it is given back; NULL: not needed yet */
    struct tow_lane_job job;
    bool queued;    /* the lane may still read the buffer */
    uint64_t place; /* the session's own line may read it up to there */
};

/* The same over the session's own line and its lanes in turn. For every line one buffer is filled
 * by the device, one is sent, and one waits to be: a buffer is asked for only after its bytes of
 * two turns ago went out, so that no line waits for another. */
static CUresult download_spread(struct tows_serve *call, CUdeviceptr from, uint64_t size,
                                CUstream stream, uint32_t transfer, unsigned lanes)
{
    const struct tow_driver *driver = call->driver;
    struct tow_lanes *all = call->session->lanes;
    struct copy_state *copies = state_of(call->session);
    struct outgoing buffers[3 * (TOW_LANES_MAX + 1)] = {{0}};
    unsigned lines = lanes + 1, depth = 3 * lines, fill = 0, send = 0;
    uint64_t asked = 0, sent = 0, place = 0; /* behind all that was lent */
    CUresult status = copies != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    while (status == CUDA_SUCCESS && sent < size) {
        while (status == CUDA_SUCCESS && asked < size && fill - send < lines) {
            struct outgoing *o = &buffers[fill % depth];
            size_t n = (size_t)tow_min_u64(STAGE, size - asked);
            if (o->buffer == NULL) {
                status = tows_pinned_take(&copies->pinned, call->session, call->frame.context,
                                          STAGE, &o->buffer);
            } else {
                int error = o->queued ? tow_lanes_wait(all, &o->job)
                                      : tow_line_take_back_until(call->session->line, o->place);
                status = error < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
                o->queued = false;
            }
            if (status == CUDA_SUCCESS) {
                status = tow_drive(driver, cuMemcpyDtoHAsync_v2)(o->buffer->bytes, from + asked, n,
                                                                 stream);
            }
            if (status == CUDA_SUCCESS) {
                fill++;
                status = tow_drive(driver, cuEventRecord)(o->buffer->filled, stream);
            }
            asked += n;
        }
        struct outgoing *o = &buffers[send % depth];
        size_t n = (size_t)tow_min_u64(STAGE, size - sent);
        if (status == CUDA_SUCCESS) {
            status = tow_drive(driver, cuEventSynchronize)(o->buffer->filled);
        }
        if (status == CUDA_SUCCESS && send % lines < lanes) {
            o->job = (struct tow_lane_job){.bytes = o->buffer->bytes,
                                           .size = n,
                                           .offset = sent,
                                           .transfer = transfer,
                                           .lent = true};
            o->queued = true;
            tow_lanes_send(all, send % lines, &o->job);
        } else if (status == CUDA_SUCCESS &&
                   tows_session_lend_data(call->session, transfer, sent, o->buffer->bytes, n, 0,
                                          &o->place) < 0) {
            status = CUDA_ERROR_UNKNOWN; /* the client is gone */
        }
        place = o->place > place ? o->place : place;
        sent += n;
        send += status == CUDA_SUCCESS;
    }
    if (tow_line_take_back_until(call->session->line, place) < 0) {
        status = CUDA_ERROR_UNKNOWN;
    }
    bool through = fill == send || is_through(driver, stream, status);
    for (unsigned i = 0; i < depth && buffers[i].buffer != NULL; i++) {
        if (buffers[i].queued && tow_lanes_wait(all, &buffers[i].job) < 0) {
            status = CUDA_ERROR_UNKNOWN;
        }
        if (through) {
            tows_pinned_give(&copies->pinned, buffers[i].buffer);
        } else {
            tows_pinned_lose(&copies->pinned, buffers[i].buffer);
        }
    }
    return status;
}

CUresult tows_copy_download(struct tows_serve *call, CUdeviceptr from, uint64_t size,
                            CUstream stream, uint32_t transfer, bool spread)
{
    unsigned lanes = spread ? tow_lanes_count(call->session->lanes) : 0;
    return lanes > 0 ? download_spread(call, from, size, stream, transfer, lanes)
                     : download_large(call, from, size, stream, transfer);
}

void tows_copy_tell_none_comes(struct tows_serve *call, uint32_t transfer)
{
    tows_session_send_data(call->session, transfer, 0, NULL, 0, TOW_DATA_LAST | TOW_DATA_FAILED);
}

void tows_copy_download_async(struct tows_serve *call, const struct tows_async_download *want)
{
    const struct tow_driver *driver = call->driver;
    struct copy_state *copies = state_of(call->session);
    struct pending_download *download = malloc(sizeof *download);
    struct tows_pinned_buffer *buffer = NULL;
    if (copies == NULL || download == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        call->status = tows_pinned_take(&copies->pinned, call->session, call->frame.context,
                                        (size_t)want->size, &buffer);
    }
    if (call->status == CUDA_SUCCESS) {
        *download = (struct pending_download){.transfer = want->transfer,
                                              .size = want->size,
                                              .buffer = buffer,
                                              .spread = want->spread,
                                              .stream_id = want->stream_id,
                                              .stream = want->stream};
        call->status =
            want->driver_copy != NULL
                ? tows_driver_copy_run(want->driver_copy, driver, buffer->bytes, want->stream)
                : tow_drive(driver, cuMemcpyDtoHAsync_v2)(buffer->bytes, want->from,
                                                          (size_t)want->size, want->stream);
        bool begun = call->status == CUDA_SUCCESS;
        if (begun) {
            call->status = tows_pinned_mark(buffer, driver, want->stream);
        }
        if (!begun) {
            tows_pinned_give(&copies->pinned, buffer);
        } else if (call->status != CUDA_SUCCESS) {
            tows_pinned_lose(&copies->pinned, buffer); /* nobody will know when it is done */
        }
    }
    if (call->status != CUDA_SUCCESS) {
        free(download);
        tows_copy_tell_none_comes(call, want->transfer);
        return;
    }
    tow_mutex_lock(&copies->lock);
    download->number = ++copies->number;
    *copies->pending_end = download;
    copies->pending_end = &download->next;
    atomic_fetch_add(&copies->pending_count, 1);
    tow_mutex_unlock(&copies->lock);
    /* The end of its context may have looked before it was in the list, and takes it from there. */
    tows_ending_tell(call->session);
}

static struct copy_state *copies_under_way(struct tows_session *session)
{
    struct copy_state *copies = tows_session_state(session, TOW_SESSION_COPY);
    return copies != NULL && atomic_load(&copies->pending_count) != 0 ? copies : NULL;
}

/* With the lock held: nobody sends it or waits for it any more. */
static void download_release(struct copy_state *copies, struct pending_download *download)
{
    tows_pinned_give(&copies->pinned, download->buffer);
    free(download);
}

/* While sending: all its bytes were sent. */
static void finish_pending(struct copy_state *copies, struct pending_download *download)
{
    atomic_fetch_sub(&copies->pending_count, 1);
    tow_mutex_lock(&copies->lock);
    download->finished = true;
    if (download->awaited == 0) {
        download_release(copies, download);
    }
    tow_mutex_unlock(&copies->lock);
}

/* While sending: what follows on the own line comes behind all bytes that the lanes were
 * given. */
static void close_open(struct tows_session *session, struct copy_state *copies)
{
    for (struct pending_download *download = copies->open; download != NULL;
         download = download->next) {
        tows_session_send_data(session, download->transfer, download->size, NULL, 0, TOW_DATA_LAST);
    }
    while (copies->open != NULL) {
        struct pending_download *download = copies->open;
        copies->open = download->next;
        for (unsigned i = 0; i < download->job_count; i++) {
            tow_lanes_wait(session->lanes, &download->jobs[i]); /* or the session ends */
        }
        finish_pending(copies, download);
    }
    copies->open_end = &copies->open;
}

/* While sending: the bytes of a download that is done, or failed with its context, and that is
 * out of the list. */
static void send_pending(struct tows_session *session, struct copy_state *copies,
                         struct pending_download *download)
{
    unsigned lanes = download->spread ? tow_lanes_count(session->lanes) : 0;
    if (lanes == 0) {
        /* It may be for memory that open ones fill, too. A failed copy's bytes are as undefined as
         * on the spot; the error itself is the context's. */
        close_open(session, copies);
        copies->turn++;
        tows_session_send_data(session, download->transfer, 0, download->buffer->bytes,
                               (size_t)download->size, TOW_DATA_LAST);
        finish_pending(copies, download);
        return;
    }
    for (uint64_t at = 0; at < download->size; at += STAGE) {
        size_t n = (size_t)tow_min_u64(STAGE, download->size - at);
        unsigned line = copies->turn++ % (lanes + 1);
        if (line < lanes) {
            struct tow_lane_job *job = &download->jobs[download->job_count++];
            *job = (struct tow_lane_job){.bytes = download->buffer->bytes + at,
                                         .size = n,
                                         .offset = at,
                                         .transfer = download->transfer};
            tow_lanes_send(session->lanes, line, job);
        } else {
            tows_session_send_data(session, download->transfer, at, download->buffer->bytes + at, n,
                                   0);
        }
    }
    download->next = NULL;
    *copies->open_end = download;
    copies->open_end = &download->next;
}

/* While sending, with the lock held, which is given back where the driver must be asked: only who
 * sends takes something out of the list. */
static bool is_done(struct tows_session *session, struct copy_state *copies,
                    const struct pending_download *download)
{
    if (download->buffer->marked) {
        return tows_pinned_is_marked(download->buffer, session->driver);
    }
    tow_mutex_unlock(&copies->lock);
    tows_session_enter(session, download->buffer->context); /* the courier's thread has none */
    bool done = tows_pinned_is_marked(download->buffer, session->driver);
    tow_mutex_lock(&copies->lock);
    return done;
}

/* While sending: in the order of their commands, those that are done. */
static void send_done(struct tows_session *session, struct copy_state *copies)
{
    struct pending_download *done = NULL, **done_end = &done;
    tow_mutex_lock(&copies->lock);
    struct pending_download **at = &copies->pending;
    while (*at != NULL) {
        struct pending_download *download = *at;
        if (!is_done(session, copies, download)) {
            at = &download->next;
            continue;
        }
        *at = download->next;
        if (copies->pending_end == &download->next) {
            copies->pending_end = at;
        }
        *done_end = download;
        done_end = &download->next;
    }
    tow_mutex_unlock(&copies->lock);
    *done_end = NULL;
    while (done != NULL) {
        struct pending_download *download = done;
        done = download->next;
        send_pending(session, copies, download);
    }
}

void tows_copy_flush(struct tows_session *session)
{
    struct copy_state *copies = copies_under_way(session);
    if (copies != NULL) {
        tow_mutex_lock(&copies->sending);
        send_done(session, copies);
        close_open(session, copies);
        tow_mutex_unlock(&copies->sending);
    }
}

/* With the lock held: the first large one up to number `last` of a stream, or of its context. */
static struct pending_download *first_large(const struct copy_state *copies, uint32_t context,
                                            bool all, uint64_t stream_id, CUstream stream,
                                            uint64_t last)
{
    struct pending_download *download = copies->pending;
    while (download != NULL && download->number <= last &&
           (download->size < STAGE || download->buffer->context != context ||
            (!all && (download->stream_id != stream_id || download->stream != stream)))) {
        download = download->next;
    }
    return download != NULL && download->number <= last ? download : NULL;
}

/* The client waits for this call's reply, so it reads the line: while one buffer is sent, the
 * device fills the next ones. */
static void send_as_they_come(struct tows_serve *call, bool all, uint64_t stream_id,
                              CUstream stream)
{
    struct tows_session *session = call->session;
    struct copy_state *copies = copies_under_way(session);
    struct pending_download *download = NULL;
    CUresult status = CUDA_SUCCESS;
    if (copies == NULL) {
        return;
    }
    tow_mutex_lock(&copies->lock);
    uint64_t last = copies->number;
    while (status == CUDA_SUCCESS && (download = first_large(copies, call->frame.context, all,
                                                             stream_id, stream, last)) != NULL) {
        download->awaited++;
        tow_mutex_unlock(&copies->lock);
        status = tow_drive(call->driver, cuEventSynchronize)(download->buffer->filled);
        tow_mutex_lock(&copies->lock);
        download->awaited--;
        if (download->finished && download->awaited == 0) {
            download_release(copies, download); /* another thread sent it */
        }
        tow_mutex_unlock(&copies->lock);
        tow_mutex_lock(&copies->sending);
        send_done(session, copies);
        tow_mutex_unlock(&copies->sending);
        tows_session_enter(session, call->frame.context);
        tow_mutex_lock(&copies->lock);
    }
    tow_mutex_unlock(&copies->lock);
}

void tows_copy_send_stream(struct tows_serve *call, uint64_t id, CUstream stream)
{
    send_as_they_come(call, false, id, stream);
}

void tows_copy_send_context(struct tows_serve *call)
{
    send_as_they_come(call, true, 0, NULL);
}

void tows_copy_send_until(struct tows_serve *call, CUevent event)
{
    struct tows_session *session = call->session;
    struct copy_state *copies = copies_under_way(session);
    int64_t nap = NAP_MIN_NS;
    bool large = copies != NULL;
    while (large && tow_drive(call->driver, cuEventQuery)(event) == CUDA_ERROR_NOT_READY) {
        tow_mutex_lock(&copies->sending);
        unsigned before = copies->turn;
        send_done(session, copies);
        nap = copies->turn != before ? NAP_MIN_NS : nap < NAP_MAX_NS ? 2 * nap : nap;
        tow_mutex_unlock(&copies->sending);
        tows_session_enter(session, call->frame.context);
        tow_mutex_lock(&copies->lock);
        large = first_large(copies, call->frame.context, true, 0, NULL, copies->number) != NULL;
        tow_mutex_unlock(&copies->lock);
        if (large) {
            tow_time_sleep(nap);
        }
    }
}

bool tows_copy_drop_downloads(struct tows_session *session, uint32_t context, uint32_t heir)
{
    struct copy_state *copies = tows_session_state(session, TOW_SESSION_COPY);
    if (copies == NULL) {
        return true;
    }
    struct pending_download *dropped = NULL, **dropped_end = &dropped;
    tow_mutex_lock(&copies->sending);
    close_open(session, copies); /* the lanes read the context's memory */
    tow_mutex_lock(&copies->lock);
    struct pending_download **at = &copies->pending;
    while (*at != NULL) {
        struct pending_download *download = *at;
        if (download->buffer->context != context) {
            at = &download->next;
            continue;
        }
        *at = download->next;
        download->next = NULL;
        *dropped_end = download;
        dropped_end = &download->next;
    }
    copies->pending_end = at;
    tow_mutex_unlock(&copies->lock);
    tow_mutex_unlock(&copies->sending);
    while (dropped != NULL) {
        struct pending_download *download = dropped;
        dropped = download->next;
        /* Without the lock: the device may wait for a host function, which takes it. */
        tow_drive(session->driver, cuEventSynchronize)(download->buffer->filled);
        tow_mutex_lock(&copies->sending);
        download->spread = false;
        send_pending(session, copies, download);
        tow_mutex_unlock(&copies->sending);
    }
    return tows_pinned_drop_context(&copies->pinned, session, context, heir);
}

/* ---- the command ---- */

void tows_serve_cuMemcpyDtoHAsync_v2(struct tows_serve *call)
{
    CUdeviceptr from = tow_dec_u64(&call->in);
    uint64_t size = tow_dec_u64(&call->in);
    uint64_t stream_id = tow_dec_u64(&call->in);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, stream_id);
    uint32_t transfer = tow_dec_u32(&call->in);
    uint32_t form = tow_dec_u32(&call->in);
    if (form != TOW_COPY_BYTES && form != TOW_COPY_SPREAD) {
        tows_share_copy(call, false, from, size, stream, form);
        return;
    }
    bool spread = form == TOW_COPY_SPREAD;
    bool waits = call->frame.seq != 0;
    if (!tows_serve_ready(call)) {
        if (!call->malformed && !waits) {
            tows_copy_tell_none_comes(call, transfer);
        }
        return;
    }
    if (!waits) {
        if (transfer == 0 || size == 0 || size > TOW_COPY_ASYNC_MAX) {
            call->malformed = true;
            return;
        }
        struct tows_async_download want = {.transfer = transfer,
                                           .size = size,
                                           .spread = spread,
                                           .stream_id = stream_id,
                                           .stream = stream,
                                           .from = from};
        tows_copy_download_async(call, &want);
        return;
    }
    if (transfer != 0) {
        call->status = tows_copy_download(call, from, size, stream, transfer, spread);
        return;
    }
    if (size > TOW_COPY_INLINE_MAX) {
        call->malformed = true;
        return;
    }
    tows_serve_reserve(call, (size_t)size + 8);
    if (call->status == CUDA_SUCCESS) {
        call->status =
            tow_drive(call->driver, cuMemcpyDtoHAsync_v2)(call->out.at, from, (size_t)size, stream);
    }
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuStreamSynchronize)(stream);
    }
    if (call->status == CUDA_SUCCESS) {
        tow_enc_block(&call->out, (size_t)size);
        tow_enc_align(&call->out, 8);
    }
}
