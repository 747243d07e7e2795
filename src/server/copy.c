#include "server/copy.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gen/server_api.h"
#include "server/late.h"
#include "server/mirror.h"
#include "server/pinned.h"
#include "server/session.h"
#include "server/share.h"
#include "server/transfer.h"
#include "server/upload.h"
#include "transport/lanes.h"
#include "wire/copy.h"
#include "wire/share.h"

enum {
    STAGE = 1 << 20,         /* one piece of a large download: a DATA frame */
    STAGE_SMALL = 256 << 10, /* of one that is not so large: the first bytes leave sooner */
    STAGES = 4,              /* pieces of one download on their way at once */
    LATER_JOBS = TOW_COPY_ASYNC_MAX / STAGE,
};

/* How often a thread that waits for an event looks for downloads that are done: soon after the last
 * one, ever less often behind a long kernel. */
#define NAP_MIN_NS (20 * TOW_TIME_US)
#define NAP_MAX_NS (500 * TOW_TIME_US)

_Static_assert((int)STAGE <= (int)TOW_PINNED_MAX && (int)TOW_COPY_ASYNC_MAX <= (int)TOW_PINNED_MAX,
               "pieces hold them");

/* An asynchronous download: on its way into the piece, then to the client. */
struct later {
    uint32_t transfer;
    uint64_t size;
    struct tow_piece *piece; /* owned until it is given back */
    bool spread;             /* may leave over the lanes; a frame on the own line closes it */
    uint64_t number;         /* in the order of their commands */
    uint64_t stream_id;      /* of the copy: the client's, and the driver's */
    CUstream stream;
    unsigned awaited; /* threads that wait for the piece's event: it stays until they are out */
    bool finished;    /* but for those it would be gone */
    bool dropped;     /* its context is gone, and the piece with it */
    unsigned job_count;
    struct tow_lane_job jobs[LATER_JOBS]; /* the lanes' until they are done */
    struct later *next;
};

struct copy_state {
    struct tow_pinned pinned;
    pthread_mutex_t sending; /* guards the two below; held while bytes are sent, so that whoever has
                                it and finds none may rely on their being on the line */
    struct later *open, **open_end; /* sent over the lanes and not closed */
    unsigned turn;                  /* whose a piece of spread ones is: each line's in turn */
    pthread_mutex_t lock; /* guards the two below, and who waits for a piece; taken last, and never
                             for long: the leading thread adds to the list */
    struct later *laters, **laters_end;
    uint64_t number;         /* of the newest */
    atomic_uint later_count; /* of both lists, and what is on its way from one to the other */
};

static void free_laters(struct later *later)
{
    while (later != NULL) {
        struct later *next = later->next;
        free(later->piece);
        free(later);
        later = next;
    }
}

/* The session's lanes have ended before. */
static void free_state(struct tow_session *session, void *state)
{
    struct copy_state *copies = state;
    (void)session;
    free_laters(copies->laters);
    free_laters(copies->open);
    tow_pinned_fini(&copies->pinned);
    pthread_mutex_destroy(&copies->sending);
    pthread_mutex_destroy(&copies->lock);
    free(copies);
}

static void init_state(struct tow_session *session, void *opaque)
{
    struct copy_state *state = opaque;
    tow_pinned_init(&state->pinned);
    pthread_mutex_init(&state->sending, NULL);
    pthread_mutex_init(&state->lock, NULL);
    state->laters_end = &state->laters;
    state->open_end = &state->open;
}

static struct copy_state *state_of(struct tow_session *session)
{
    return tow_session_make_state(session, TOW_SESSION_COPY, sizeof(struct copy_state), init_state,
                                  free_state);
}

/* ---- downloads ---- */

/* After a failure: the pieces are free again when the device is through with them. False: that
 * cannot be known, or the client has gone and nobody waits. */
static bool is_through(const struct tow_driver *driver, CUstream stream, CUresult status)
{
    return status != CUDA_ERROR_UNKNOWN && driver->cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

/* Piece by piece: while one is sent, the device fills the next ones. */
static CUresult download_large(struct tow_serve *call, CUdeviceptr from, uint64_t size,
                               CUstream stream, uint32_t transfer)
{
    const struct tow_driver *driver = call->driver;
    struct copy_state *copies = state_of(call->session);
    size_t piece_size = size <= STAGES * STAGE ? STAGE_SMALL : STAGE;
    struct tow_piece *stage[STAGES] = {NULL};
    CUresult status = copies != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t asked = 0, sent = 0;
    unsigned fill = 0, send = 0;
    while (status == CUDA_SUCCESS && sent < size) {
        while (status == CUDA_SUCCESS && asked < size && fill - send < STAGES) {
            size_t n = (size_t)tow_min_u64(piece_size, size - asked);
            struct tow_piece **piece = &stage[fill % STAGES];
            if (*piece == NULL) {
                status = tow_pinned_take(&copies->pinned, driver, call->frame.context, piece_size,
                                         piece);
            }
            if (status == CUDA_SUCCESS) {
                status = driver->cuMemcpyDtoHAsync_v2((*piece)->bytes, from + asked, n, stream);
            }
            if (status == CUDA_SUCCESS) {
                fill++;
                status = driver->cuEventRecord((*piece)->filled, stream);
            }
            asked += n;
        }
        if (status == CUDA_SUCCESS) {
            status = driver->cuEventSynchronize(stage[send % STAGES]->filled);
        }
        if (status == CUDA_SUCCESS && sent == 0) {
            /* Into the same memory, perhaps: those before it come first. */
            tow_copy_flush(call->session);
            status = tow_session_enter(call->session, call->frame.context);
        }
        size_t n = (size_t)tow_min_u64(piece_size, size - sent);
        if (status == CUDA_SUCCESS &&
            tow_session_send_data(call->session, transfer, sent, stage[send % STAGES]->bytes, n,
                                  sent + n == size ? TOW_DATA_LAST : 0) < 0) {
            status = CUDA_ERROR_UNKNOWN; /* the client is gone */
        }
        sent += n;
        send += status == CUDA_SUCCESS;
    }
    bool through = fill == send || is_through(driver, stream, status);
    for (int i = 0; i < STAGES && stage[i] != NULL; i++) {
        if (through) {
            tow_pinned_give(&copies->pinned, stage[i]);
        } else {
            free(stage[i]); /* the device may still write to it; its memory goes with the context */
        }
    }
    return status;
}

/* One piece of a download over several lines: under way to the device's end, then to a lane's. */
struct outgoing {
    struct tow_piece *piece; /* owned until it is given back; NULL: not needed yet */
    struct tow_lane_job job;
    bool queued; /* the lane may still read the piece */
};

/* The same over the session's own line and its lanes in turn. For every line one piece is filled by
 * the device, one is sent, and one waits to be: a piece is asked for only after its bytes of two
 * turns ago went out, so that no line waits for another. */
static CUresult download_spread(struct tow_serve *call, CUdeviceptr from, uint64_t size,
                                CUstream stream, uint32_t transfer, unsigned lanes)
{
    const struct tow_driver *driver = call->driver;
    struct tow_lanes *all = call->session->lanes;
    struct copy_state *copies = state_of(call->session);
    struct outgoing pieces[3 * (TOW_LANES_MAX + 1)] = {{0}};
    unsigned lines = lanes + 1, depth = 3 * lines, fill = 0, send = 0;
    uint64_t asked = 0, sent = 0;
    CUresult status = copies != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    while (status == CUDA_SUCCESS && sent < size) {
        while (status == CUDA_SUCCESS && asked < size && fill - send < lines) {
            struct outgoing *o = &pieces[fill % depth];
            size_t n = (size_t)tow_min_u64(STAGE, size - asked);
            if (o->queued) {
                status = tow_lanes_wait(all, &o->job) < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
                o->queued = false;
            } else if (o->piece == NULL) {
                status =
                    tow_pinned_take(&copies->pinned, driver, call->frame.context, STAGE, &o->piece);
            }
            if (status == CUDA_SUCCESS) {
                status = driver->cuMemcpyDtoHAsync_v2(o->piece->bytes, from + asked, n, stream);
            }
            if (status == CUDA_SUCCESS) {
                fill++;
                status = driver->cuEventRecord(o->piece->filled, stream);
            }
            asked += n;
        }
        struct outgoing *o = &pieces[send % depth];
        size_t n = (size_t)tow_min_u64(STAGE, size - sent);
        if (status == CUDA_SUCCESS) {
            status = driver->cuEventSynchronize(o->piece->filled);
        }
        if (status == CUDA_SUCCESS && send % lines < lanes) {
            o->job = (struct tow_lane_job){
                .bytes = o->piece->bytes, .size = n, .offset = sent, .transfer = transfer};
            o->queued = true;
            tow_lanes_send(all, send % lines, &o->job);
        } else if (status == CUDA_SUCCESS && tow_session_send_data(call->session, transfer, sent,
                                                                   o->piece->bytes, n, 0) < 0) {
            status = CUDA_ERROR_UNKNOWN; /* the client is gone */
        }
        sent += n;
        send += status == CUDA_SUCCESS;
    }
    bool through = fill == send || is_through(driver, stream, status);
    for (unsigned i = 0; i < depth && pieces[i].piece != NULL; i++) {
        if (pieces[i].queued && tow_lanes_wait(all, &pieces[i].job) < 0) {
            status = CUDA_ERROR_UNKNOWN;
        }
        if (through) {
            tow_pinned_give(&copies->pinned, pieces[i].piece);
        } else {
            free(pieces[i].piece); /* as above */
        }
    }
    return status;
}

static void download_later(struct tow_serve *call, CUdeviceptr from, uint64_t size, CUstream stream,
                           uint64_t stream_id, uint32_t transfer, bool spread)
{
    const struct tow_driver *driver = call->driver;
    struct copy_state *copies = state_of(call->session);
    struct later *later = calloc(1, sizeof *later);
    struct tow_piece *piece = NULL;
    if (copies == NULL || later == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        call->status =
            tow_pinned_take(&copies->pinned, driver, call->frame.context, (size_t)size, &piece);
    }
    if (call->status == CUDA_SUCCESS) {
        *later = (struct later){.transfer = transfer,
                                .size = size,
                                .piece = piece,
                                .spread = spread,
                                .stream_id = stream_id,
                                .stream = stream};
        call->status = driver->cuMemcpyDtoHAsync_v2(piece->bytes, from, (size_t)size, stream);
        bool begun = call->status == CUDA_SUCCESS;
        if (begun) {
            call->status = tow_pinned_mark(piece, driver, stream);
        }
        if (!begun) {
            tow_pinned_give(&copies->pinned, piece);
        } else if (call->status != CUDA_SUCCESS) {
            free(piece); /* nobody will know when the device has done with it */
        }
    }
    if (call->status != CUDA_SUCCESS) {
        free(later);
        /* The client expects the transfer: tell it that nothing comes. */
        tow_session_send_data(call->session, transfer, 0, NULL, 0, TOW_DATA_LAST | TOW_DATA_FAILED);
        return;
    }
    pthread_mutex_lock(&copies->lock);
    later->number = ++copies->number;
    *copies->laters_end = later;
    copies->laters_end = &later->next;
    atomic_fetch_add(&copies->later_count, 1);
    pthread_mutex_unlock(&copies->lock);
}

static struct copy_state *copies_under_way(struct tow_session *session)
{
    struct copy_state *copies = tow_session_state(session, TOW_SESSION_COPY);
    return copies != NULL && atomic_load(&copies->later_count) != 0 ? copies : NULL;
}

/* With the lock held: nobody sends it or waits for it any more. */
static void release(struct copy_state *copies, struct later *later)
{
    if (later->dropped) {
        free(later->piece);
    } else {
        tow_pinned_give(&copies->pinned, later->piece);
    }
    free(later);
}

/* While sending: all its bytes were sent. */
static void finish_later(struct copy_state *copies, struct later *later)
{
    atomic_fetch_sub(&copies->later_count, 1);
    pthread_mutex_lock(&copies->lock);
    later->finished = true;
    if (later->awaited == 0) {
        release(copies, later);
    }
    pthread_mutex_unlock(&copies->lock);
}

/* While sending: what follows on the own line comes behind all bytes that the lanes were
 * given. */
static void close_open(struct tow_session *session, struct copy_state *copies)
{
    for (struct later *later = copies->open; later != NULL; later = later->next) {
        tow_session_send_data(session, later->transfer, later->size, NULL, 0, TOW_DATA_LAST);
    }
    while (copies->open != NULL) {
        struct later *later = copies->open;
        copies->open = later->next;
        for (unsigned i = 0; i < later->job_count; i++) {
            tow_lanes_wait(session->lanes, &later->jobs[i]); /* or the session ends */
        }
        finish_later(copies, later);
    }
    copies->open_end = &copies->open;
}

/* While sending: the bytes of a download that is done, or failed with its context, and that is
 * out of the list. */
static void send_later(struct tow_session *session, struct copy_state *copies, struct later *later)
{
    unsigned lanes = later->spread ? tow_lanes_count(session->lanes) : 0;
    if (lanes == 0) {
        /* It may be for memory that open ones fill, too. A failed copy's bytes are as undefined as
         * on the spot; the error itself is the context's. */
        close_open(session, copies);
        copies->turn++;
        tow_session_send_data(session, later->transfer, 0, later->piece->bytes, (size_t)later->size,
                              TOW_DATA_LAST);
        finish_later(copies, later);
        return;
    }
    for (uint64_t at = 0; at < later->size; at += STAGE) {
        size_t n = (size_t)tow_min_u64(STAGE, later->size - at);
        unsigned line = copies->turn++ % (lanes + 1);
        if (line < lanes) {
            struct tow_lane_job *job = &later->jobs[later->job_count++];
            *job = (struct tow_lane_job){.bytes = later->piece->bytes + at,
                                         .size = n,
                                         .offset = at,
                                         .transfer = later->transfer};
            tow_lanes_send(session->lanes, line, job);
        } else {
            tow_session_send_data(session, later->transfer, at, later->piece->bytes + at, n, 0);
        }
    }
    later->next = NULL;
    *copies->open_end = later;
    copies->open_end = &later->next;
}

static bool is_done(struct tow_session *session, const struct later *later)
{
    if (!later->piece->marked) {
        tow_session_enter(session, later->piece->context); /* the courier's thread has none */
    }
    return tow_pinned_is_marked(later->piece, session->driver);
}

/* While sending: in the order of their commands, those that are done. */
static void send_done(struct tow_session *session, struct copy_state *copies)
{
    struct later *done = NULL, **done_end = &done;
    pthread_mutex_lock(&copies->lock);
    struct later **at = &copies->laters;
    while (*at != NULL) {
        struct later *later = *at;
        if (!is_done(session, later)) {
            at = &later->next;
            continue;
        }
        *at = later->next;
        *done_end = later;
        done_end = &later->next;
    }
    copies->laters_end = at;
    pthread_mutex_unlock(&copies->lock);
    *done_end = NULL;
    while (done != NULL) {
        struct later *later = done;
        done = later->next;
        send_later(session, copies, later);
    }
}

void tow_copy_flush(struct tow_session *session)
{
    struct copy_state *copies = copies_under_way(session);
    if (copies != NULL) {
        pthread_mutex_lock(&copies->sending);
        send_done(session, copies);
        close_open(session, copies);
        pthread_mutex_unlock(&copies->sending);
    }
}

/* With the lock held: the first large one up to number `last` of a stream, or of its context. */
static struct later *first_large(const struct copy_state *copies, uint32_t context, bool all,
                                 uint64_t stream_id, CUstream stream, uint64_t last)
{
    struct later *later = copies->laters;
    while (later != NULL && later->number <= last &&
           (later->size < STAGE || later->piece->context != context ||
            (!all && (later->stream_id != stream_id || later->stream != stream)))) {
        later = later->next;
    }
    return later != NULL && later->number <= last ? later : NULL;
}

/* The client waits for this call's reply, so it reads the line: while one piece is sent, the device
 * fills the next ones. */
static void send_as_they_come(struct tow_serve *call, bool all, uint64_t stream_id, CUstream stream)
{
    struct tow_session *session = call->session;
    struct copy_state *copies = copies_under_way(session);
    struct later *later = NULL;
    CUresult status = CUDA_SUCCESS;
    if (copies == NULL) {
        return;
    }
    pthread_mutex_lock(&copies->lock);
    uint64_t last = copies->number;
    while (status == CUDA_SUCCESS && (later = first_large(copies, call->frame.context, all,
                                                          stream_id, stream, last)) != NULL) {
        later->awaited++;
        pthread_mutex_unlock(&copies->lock);
        status = call->driver->cuEventSynchronize(later->piece->filled);
        pthread_mutex_lock(&copies->lock);
        later->awaited--;
        if (later->finished && later->awaited == 0) {
            release(copies, later); /* another thread sent it */
        }
        pthread_mutex_unlock(&copies->lock);
        pthread_mutex_lock(&copies->sending);
        send_done(session, copies);
        pthread_mutex_unlock(&copies->sending);
        tow_session_enter(session, call->frame.context);
        pthread_mutex_lock(&copies->lock);
    }
    pthread_mutex_unlock(&copies->lock);
}

void tow_copy_send_stream(struct tow_serve *call, uint64_t id, CUstream stream)
{
    send_as_they_come(call, false, id, stream);
}

void tow_copy_send_context(struct tow_serve *call)
{
    send_as_they_come(call, true, 0, NULL);
}

void tow_copy_send_until(struct tow_serve *call, CUevent event)
{
    struct tow_session *session = call->session;
    struct copy_state *copies = copies_under_way(session);
    int64_t nap = NAP_MIN_NS;
    bool large = copies != NULL;
    while (large && call->driver->cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
        pthread_mutex_lock(&copies->sending);
        unsigned before = copies->turn;
        send_done(session, copies);
        nap = copies->turn != before ? NAP_MIN_NS : nap < NAP_MAX_NS ? 2 * nap : nap;
        pthread_mutex_unlock(&copies->sending);
        tow_session_enter(session, call->frame.context);
        pthread_mutex_lock(&copies->lock);
        large = first_large(copies, call->frame.context, true, 0, NULL, copies->number) != NULL;
        pthread_mutex_unlock(&copies->lock);
        if (large) {
            tow_time_sleep(nap);
        }
    }
}

void tow_copy_drop_context(struct tow_session *session, uint32_t context)
{
    tow_upload_drop_context(session, context);
    tow_late_drop_context(session, context);
    struct copy_state *copies = tow_session_state(session, TOW_SESSION_COPY);
    if (copies == NULL) {
        return;
    }
    struct later *dropped = NULL, **dropped_end = &dropped;
    pthread_mutex_lock(&copies->sending);
    close_open(session, copies); /* the lanes read the context's memory */
    pthread_mutex_lock(&copies->lock);
    struct later **at = &copies->laters;
    while (*at != NULL) {
        struct later *later = *at;
        if (later->piece->context != context) {
            at = &later->next;
            continue;
        }
        *at = later->next;
        later->next = NULL;
        *dropped_end = later;
        dropped_end = &later->next;
    }
    copies->laters_end = at;
    pthread_mutex_unlock(&copies->lock);
    pthread_mutex_unlock(&copies->sending);
    while (dropped != NULL) {
        struct later *later = dropped;
        dropped = later->next;
        /* Without the lock: the device may wait for a host function, which takes it. */
        session->driver->cuEventSynchronize(later->piece->filled);
        pthread_mutex_lock(&copies->sending);
        later->spread = false;
        pthread_mutex_lock(&copies->lock);
        later->dropped = later->awaited > 0;
        pthread_mutex_unlock(&copies->lock);
        send_later(session, copies, later);
        pthread_mutex_unlock(&copies->sending);
    }
    tow_pinned_drop_context(&copies->pinned, context);
}

void tow_serve_cuMemcpyDtoHAsync_v2(struct tow_serve *call)
{
    CUdeviceptr from = tow_dec_u64(&call->in);
    uint64_t size = tow_dec_u64(&call->in);
    uint64_t stream_id = tow_dec_u64(&call->in);
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, stream_id);
    uint32_t transfer = tow_dec_u32(&call->in);
    uint32_t form = tow_dec_u32(&call->in);
    if (form != TOW_COPY_BYTES && form != TOW_COPY_SPREAD) {
        tow_share_copy(call, false, from, size, stream, form);
        return;
    }
    bool spread = form == TOW_COPY_SPREAD;
    bool waits = call->frame.seq != 0;
    if (!tow_serve_ready(call)) {
        if (!call->malformed && !waits) {
            tow_session_send_data(call->session, transfer, 0, NULL, 0,
                                  TOW_DATA_LAST | TOW_DATA_FAILED);
        }
        return;
    }
    if (!waits) {
        if (transfer == 0 || size == 0 || size > TOW_COPY_ASYNC_MAX) {
            call->malformed = true;
            return;
        }
        download_later(call, from, size, stream, stream_id, transfer, spread);
        return;
    }
    if (transfer != 0) {
        unsigned lanes = spread ? tow_lanes_count(call->session->lanes) : 0;
        call->status = lanes > 0 ? download_spread(call, from, size, stream, transfer, lanes)
                                 : download_large(call, from, size, stream, transfer);
        return;
    }
    if (size > TOW_COPY_INLINE_MAX) {
        call->malformed = true;
        return;
    }
    tow_serve_reserve(call, (size_t)size + 8);
    if (call->status == CUDA_SUCCESS) {
        call->status = call->driver->cuMemcpyDtoHAsync_v2(call->out.at, from, (size_t)size, stream);
    }
    if (call->status == CUDA_SUCCESS) {
        call->status = call->driver->cuStreamSynchronize(stream);
    }
    if (call->status == CUDA_SUCCESS) {
        tow_enc_block(&call->out, (size_t)size);
        tow_enc_align(&call->out, 8);
    }
}

/* ---- between any addresses ---- */

/* The driver takes any address that it does not know for memory of this process. */
static bool is_the_clients(struct tow_serve *call, CUdeviceptr address, uint64_t size)
{
    unsigned type = 0;
    return tow_mirror_reaches(call->session, address, size) ||
           (call->driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
                CUDA_SUCCESS &&
            type == CU_MEMORYTYPE_DEVICE);
}

void tow_serve_cuMemcpyAsync(struct tow_serve *call)
{
    CUdeviceptr to = tow_dec_u64(&call->in);
    CUdeviceptr from = tow_dec_u64(&call->in);
    uint64_t size = tow_dec_u64(&call->in);
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    if (!tow_serve_ready(call)) {
        return;
    }
    bool to_known = is_the_clients(call, to, size), from_known = is_the_clients(call, from, size);
    if (to_known && from_known) {
        call->status = call->driver->cuMemcpyAsync(to, from, size, stream);
    } else if (tow_mirror_reaches(call->session, from, size)) {
        /* Memory of a graph, say: the device's, or the driver refuses it. */
        call->status =
            call->driver->cuMemcpyHtoDAsync_v2(to, (void *)(uintptr_t)from, size, stream);
    } else if (tow_mirror_reaches(call->session, to, size)) {
        call->status =
            call->driver->cuMemcpyDtoHAsync_v2((void *)(uintptr_t)to, from, size, stream);
    } else {
        call->status = call->driver->cuMemcpyDtoDAsync_v2(to, from, size, stream);
    }
}

/* ---- two and three dimensions ---- */

static CUmemorytype memory_type(uint32_t kind)
{
    return kind == TOW_AT_HOST || kind == TOW_AT_ADDRESS ? CU_MEMORYTYPE_HOST
           : kind == TOW_AT_DEVICE                       ? CU_MEMORYTYPE_DEVICE
                                                         : CU_MEMORYTYPE_ARRAY;
}

/* The driver's description of a copy whose host side is packed at `packed`. */
static CUDA_MEMCPY3D_PEER describe(struct tow_serve *call, const struct tow_copy_shape *s,
                                   void *packed)
{
    if ((s->from.kind == TOW_AT_ADDRESS && !tow_mirror_reaches_side(call->session, &s->from, s)) ||
        (s->to.kind == TOW_AT_ADDRESS && !tow_mirror_reaches_side(call->session, &s->to, s))) {
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
        p.srcHost = packed;
        break;
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
        p.dstHost = packed;
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
    if (s->peer) {
        p.srcContext = tow_serve_handle(call, TOW_H_CONTEXT, s->from.context);
        p.dstContext = tow_serve_handle(call, TOW_H_CONTEXT, s->to.context);
    }
    return p;
}

static CUresult run_copy(const struct tow_driver *driver, const CUDA_MEMCPY3D_PEER *p, bool peer,
                         CUstream stream)
{
    if (peer) {
        return driver->cuMemcpy3DPeerAsync(p, stream);
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
    return driver->cuMemcpy3DAsync_v2(&c, stream);
}

struct shaped_upload {
    struct tow_session *session;
    CUDA_MEMCPY3D_PEER copy;
    bool peer;
    CUstream stream;
    uint32_t context;
    uint16_t thread;
    CUresult status;
    uint8_t bytes[];
};

static void *shaped_place(void *user, uint64_t offset, size_t *size, void **ret_token)
{
    struct shaped_upload *u = user;
    (void)size;
    (void)ret_token;
    return u->bytes + offset;
}

static void shaped_filled(void *user, uint64_t offset, size_t size, void *token)
{
    (void)token;
    (void)user;
    (void)offset;
    (void)size;
}

static void shaped_done(void *user, bool ok)
{
    struct shaped_upload *u = user;
    if (ok) {
        if (u->status == CUDA_SUCCESS) {
            u->status = tow_session_enter(u->session, u->context);
        }
        if (u->status == CUDA_SUCCESS) {
            u->status = run_copy(u->session->driver, &u->copy, u->peer, u->stream);
        }
        if (u->status != CUDA_SUCCESS) {
            char arguments[160];
            snprintf(arguments, sizeof arguments, "to 0x%llx pitch %zu, %zu x %zu x %zu",
                     (unsigned long long)u->copy.dstDevice, u->copy.dstPitch, u->copy.WidthInBytes,
                     u->copy.Height, u->copy.Depth);
            tow_session_defer(u->session, u->thread, TOW_FN_cuMemcpy3DAsync_v2, u->status,
                              arguments);
        }
    }
    free(u);
}

static void upload_shape(struct tow_serve *call, const struct tow_copy_shape *shape,
                         CUstream stream)
{
    struct shaped_upload *u = malloc(sizeof *u + (size_t)shape->bytes);
    if (u == NULL) {
        call->malformed = true;
        return;
    }
    *u = (struct shaped_upload){.session = call->session,
                                .copy = describe(call, shape, u->bytes),
                                .peer = shape->peer != 0,
                                .stream = stream,
                                .context = call->frame.context,
                                .thread = call->frame.thread};
    u->status = call->status;
    call->status = CUDA_SUCCESS;
    struct tow_transfer_sink sink = {
        .place = shaped_place, .filled = shaped_filled, .done = shaped_done, .user = u};
    if (tow_transfer_expect(call->session, shape->transfer, shape->bytes, &sink) < 0) {
        free(u);
        call->malformed = true;
    }
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
    return !__builtin_mul_overflow(s->width, s->rows, &bytes) &&
           !__builtin_mul_overflow(bytes, s->planes, &bytes) && bytes == s->bytes && bytes > 0 &&
           bytes <= UINT64_C(1) << 40;
}

void tow_serve_cuMemcpy3DAsync_v2(struct tow_serve *call)
{
    struct tow_copy_shape shape;
    tow_dec_copy(&call->in, &shape, sizeof shape);
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, shape.stream);
    bool up = shape.from.kind == TOW_AT_HOST, down = shape.to.kind == TOW_AT_HOST;
    if (call->in.bad || !shape_makes_sense(&shape) ||
        (down && (shape.transfer == 0 || call->frame.seq == 0))) {
        call->malformed = true;
        return;
    }
    if (up && shape.transfer != 0) {
        upload_shape(call, &shape, stream);
        return;
    }
    uint8_t *packed = NULL;
    if (up) {
        packed = (uint8_t *)(uintptr_t)tow_dec_bytes(&call->in, (size_t)shape.bytes);
    } else if (down) {
        packed = malloc((size_t)shape.bytes);
        if (packed == NULL) {
            call->status = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    CUDA_MEMCPY3D_PEER copy = describe(call, &shape, packed);
    if (tow_serve_ready(call)) {
        call->status = run_copy(call->driver, &copy, shape.peer != 0, stream);
        if (call->status == CUDA_SUCCESS && down) {
            call->status = call->driver->cuStreamSynchronize(stream);
        }
        if (call->status == CUDA_SUCCESS && down &&
            tow_session_send_data(call->session, shape.transfer, 0, packed, (size_t)shape.bytes,
                                  TOW_DATA_LAST) < 0) {
            call->status = CUDA_ERROR_UNKNOWN;
        }
    }
    if (down) {
        free(packed);
    }
}
