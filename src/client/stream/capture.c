/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that capture into graphs.
 *
 * The server captures in relaxed mode: one of its threads stands for many of the program's. The
 * modes are enforced here. While anything captures calls wait for their replies, so that errors
 * come at the call that made them; all but those that have been checked here and go into a stream
 * which is known to capture, since these are not refused (TOW_CALL_CAPTURED). Should one be all the
 * same, then the end of the capture fails.
 *
 * Libraries ask whether a stream captures before nearly every launch, and nearly always nothing
 * does. While something does the last answer is kept for each stream: it holds until a capture
 * begins or ends, a call fails, or the stream waits for an event.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "client/link/call.h"
#include "client/session/keep.h"
#include "client/stream/capture.h"
#include "client/stream/stream.h"
#include "gen/graph_client.h"
#include "gen/stream_client.h"

/* A capture that the program began and has not ended. */
struct capture {
    uint64_t stream; /* id, or 2 with the thread for a per-thread stream */
    uint16_t thread; /* that began it */
    CUstreamCaptureMode mode;
    bool to_graph; /* into a graph that was there before */
    struct capture *next;
};

/* Process-wide: a capture in global mode forbids calls of the whole program; streams are found by
 * ids, of which there is one kind for all servers. */
static struct {
    struct tow_mutex lock; /* guards all here, and streams' answers */
    struct capture *list;
    uint64_t affairs; /* counts what may change whether a stream captures; an answer holds while
                       * this is what it was */
} captures = {.lock = TOW_MUTEX(CLIENT_CAPTURES), .affairs = 1};

CUresult towc_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_thread *self = towc_thread_self();
    if (mode == NULL || self == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* NVIDIA's driver takes any number; what is none of the modes counts as the strictest here. */
    CUstreamCaptureMode old = self->capture_mode;
    self->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* `thread`: whose per-thread stream is meant, if it is one. */
static bool is_of(const struct capture *c, CUstream stream, unsigned thread)
{
    return c->stream == (uint64_t)(uintptr_t)stream &&
           (stream != CU_STREAM_PER_THREAD || c->thread == thread);
}

/* ---- beginning and ending ---- */

/* Made before the server begins: what it has begun can always be noted. */
static struct capture *capture_prepare(CUstream stream, CUstreamCaptureMode mode, bool to_graph)
{
    const struct towc_thread *self = towc_thread_self();
    struct capture *made = self != NULL ? malloc(sizeof *made) : NULL;
    if (made != NULL) {
        *made = (struct capture){.stream = (uint64_t)(uintptr_t)stream,
                                 .thread = self->number,
                                 .mode = mode,
                                 .to_graph = to_graph};
    }
    return made;
}

/* The server's answer to the beginning: `made` is noted, or freed. */
static CUresult record_begin(struct capture *made, CUresult status)
{
    if (status != CUDA_SUCCESS) {
        free(made);
        return status;
    }
    tow_mutex_lock(&captures.lock);
    made->next = captures.list;
    captures.list = made;
    captures.affairs++;
    tow_mutex_unlock(&captures.lock);
    atomic_fetch_add(&towc_captures, 1);
    atomic_fetch_add(&towc_wait_always, 1);
    return CUDA_SUCCESS;
}

static void capture_end(struct capture *ended)
{
    towc_capture_doubt();
    atomic_fetch_sub(&towc_captures, 1);
    atomic_fetch_sub(&towc_wait_always, 1);
    towc_keep_drop(ended->stream);
    free(ended);
}

void towc_capture_drop(CUstream stream, unsigned thread)
{
    if (atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0) {
        return;
    }
    tow_mutex_lock(&captures.lock);
    struct capture **at = &captures.list;
    while (*at != NULL && !is_of(*at, stream, thread)) {
        at = &(*at)->next;
    }
    struct capture *ended = *at;
    if (ended != NULL) {
        *at = ended->next;
    }
    tow_mutex_unlock(&captures.lock);
    if (ended != NULL) {
        capture_end(ended);
    }
}

void towc_capture_drop_context(struct towc_context *context)
{
    struct capture *gone = NULL;
    if (atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0) {
        return;
    }
    tow_mutex_lock(&captures.lock);
    for (struct capture **at = &captures.list; *at != NULL;) {
        struct capture *c = *at;
        const struct towc_stream *stream = towc_stream_find((CUstream)(uintptr_t)c->stream);
        if (stream != NULL && stream->context == context) {
            *at = c->next;
            c->next = gone;
            gone = c;
        } else {
            at = &c->next;
        }
    }
    tow_mutex_unlock(&captures.lock);
    while (gone != NULL) {
        struct capture *next = gone->next;
        capture_end(gone);
        gone = next;
    }
}

static CUresult check_begin(CUstream stream, CUstreamCaptureMode mode)
{
    CUresult status = towc_stream_check(stream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* The legacy default stream cannot be captured. */
    return stream == NULL || stream == CU_STREAM_LEGACY ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                        : CUDA_SUCCESS;
}

CUresult towc_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    CUresult status = check_begin(hStream, mode);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct capture *made = capture_prepare(hStream, mode, false);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return record_begin(made,
                        towc_send_cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

CUresult towc_cuStreamBeginCapture(CUstream hStream)
{
    return towc_cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult towc_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode)
{
    CUresult status = check_begin(hStream, mode);
    if (status == CUDA_SUCCESS &&
        (hGraph == NULL || (numDependencies > 0 && dependencies == NULL))) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct capture *made = capture_prepare(hStream, mode, true);
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return record_begin(made, towc_send_cuStreamBeginCaptureToGraph(
                                  hStream, hGraph, dependencies, dependencyData, numDependencies,
                                  CU_STREAM_CAPTURE_MODE_RELAXED));
}

bool towc_capture_find(CUstream stream, struct towc_capture_facts *ret_facts)
{
    const struct towc_thread *self = towc_thread_self();
    unsigned thread = self != NULL ? self->number : 0;
    tow_mutex_lock(&captures.lock);
    const struct capture *c = captures.list;
    while (c != NULL && !is_of(c, stream, thread)) {
        c = c->next;
    }
    if (c != NULL) {
        *ret_facts = (struct towc_capture_facts){
            .wrong_thread = c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != thread,
            .to_graph = c->to_graph};
    }
    tow_mutex_unlock(&captures.lock);
    return c != NULL;
}

/* ---- unsafe calls ---- */

/* Synchronising with a capturing stream is refused and invalidates its capture, which is what is
 * wanted. */
static void capture_spoil(CUstream stream)
{
    towc_send_cuStreamSynchronize(stream);
}

CUresult towc_capture_unsafe(void)
{
    if (atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0) {
        return CUDA_SUCCESS;
    }
    struct towc_thread *self = towc_thread_self();
    uint64_t stream = 0;
    if (self == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    tow_mutex_lock(&captures.lock);
    for (struct capture *c = captures.list; c != NULL && stream == 0; c = c->next) {
        bool own = c->thread == self->number;
        bool forbids = self->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED        ? false
                       : c->mode == CU_STREAM_CAPTURE_MODE_RELAXED                 ? false
                       : self->capture_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ? own
                       : c->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL            ? own
                                                                                   : true;
        if (forbids && c->stream != (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD) {
            stream = c->stream;
        } else if (forbids && own) {
            stream = c->stream;
        }
    }
    tow_mutex_unlock(&captures.lock);
    if (stream == 0) {
        return CUDA_SUCCESS;
    }
    capture_spoil((CUstream)(uintptr_t)stream);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult towc_capture_refused(CUstream stream, CUresult status)
{
    if (towc_capture_on(stream)) {
        capture_spoil(stream);
    }
    return status;
}

/* ---- asking ---- */

/* What was answered last for the stream, if that still holds. */
static bool capture_recall(CUstream stream, struct towc_stream_capture *ret_answer)
{
    const struct towc_stream *s = towc_stream_find(stream);
    if (s == NULL) {
        return false; /* default streams are always asked for */
    }
    tow_mutex_lock(&captures.lock);
    *ret_answer = s->capture;
    bool holds = s->capture.asked == captures.affairs;
    tow_mutex_unlock(&captures.lock);
    return holds;
}

/* Before a question: in which state of affairs it is asked. */
static struct towc_stream_capture prepare_answer(CUstream stream)
{
    struct towc_stream_capture answer = {0};
    const struct towc_stream *s = towc_stream_find(stream);
    tow_mutex_lock(&captures.lock);
    answer.asked = captures.affairs;
    answer.waits = s != NULL ? s->capture.waits : 0;
    tow_mutex_unlock(&captures.lock);
    return answer;
}

static void keep_answer(CUstream stream, struct towc_stream_capture answer)
{
    struct towc_stream *s = towc_stream_find(stream);
    if (s == NULL) {
        return;
    }
    tow_mutex_lock(&captures.lock);
    if (s->capture.waits == answer.waits) {
        s->capture = answer;
    }
    tow_mutex_unlock(&captures.lock);
}

void towc_capture_reset(struct towc_stream *s)
{
    tow_mutex_lock(&captures.lock);
    s->capture = (struct towc_stream_capture){.waits = s->capture.waits + 1};
    tow_mutex_unlock(&captures.lock);
}

void towc_capture_doubt(void)
{
    if (atomic_load_explicit(&towc_captures, memory_order_relaxed) != 0) {
        tow_mutex_lock(&captures.lock);
        captures.affairs++;
        tow_mutex_unlock(&captures.lock);
    }
}

void towc_capture_waited(CUstream stream)
{
    struct towc_stream *s = towc_stream_find(stream);
    if (atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0 || s == NULL) {
        return;
    }
    tow_mutex_lock(&captures.lock);
    s->capture.waits++;
    /* One that captures already stays with its capture: to be drawn into another is an error. */
    if (s->capture.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        s->capture.asked = 0;
    }
    tow_mutex_unlock(&captures.lock);
}

/* While something captures. */
static CUresult capture_ask(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    struct towc_stream_capture answer;
    if (capture_recall(stream, &answer)) {
        *ret_status = answer.status;
        return CUDA_SUCCESS;
    }
    answer = prepare_answer(stream);
    CUresult status = towc_send_cuStreamIsCapturing(stream, &answer.status);
    if (status == CUDA_SUCCESS) {
        keep_answer(stream, answer);
        *ret_status = answer.status;
    }
    return status;
}

CUresult towc_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    CUresult status = towc_stream_check(hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (captureStatus == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0) {
        *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    }
    return capture_ask(hStream, captureStatus);
}

bool towc_capture_on(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return atomic_load_explicit(&towc_captures, memory_order_relaxed) != 0 &&
           capture_ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

unsigned towc_capture_known(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool only = atomic_load_explicit(&towc_wait_always, memory_order_relaxed) ==
                atomic_load_explicit(&towc_captures, memory_order_relaxed);
    return only && towc_stream_find(stream) != NULL &&
                   capture_ask(stream, &status) == CUDA_SUCCESS &&
                   status == CU_STREAM_CAPTURE_STATUS_ACTIVE
               ? TOW_CALL_CAPTURED
               : 0;
}

CUresult towc_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                        cuuint64_t *id_out, CUgraph *graph_out,
                                        const CUgraphNode **dependencies_out,
                                        const CUgraphEdgeData **edgeData_out,
                                        size_t *numDependencies_out)
{
    CUresult status = towc_stream_check(hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (captureStatus_out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0) {
        *captureStatus_out = CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    }
    struct towc_stream_capture answer;
    bool more = graph_out != NULL || dependencies_out != NULL || edgeData_out != NULL ||
                numDependencies_out != NULL;
    if (!more && capture_recall(hStream, &answer) &&
        (answer.status == CU_STREAM_CAPTURE_STATUS_NONE || answer.id != 0)) {
        *captureStatus_out = answer.status;
        if (id_out != NULL && answer.status != CU_STREAM_CAPTURE_STATUS_NONE) {
            *id_out = answer.id;
        }
        return CUDA_SUCCESS;
    }
    answer = prepare_answer(hStream);
    struct towc_call call;
    status = towc_call_begin(&call, TOW_FN_cuStreamGetCaptureInfo_v3, 8,
                             TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)hStream);
    status = towc_call_wait(&call);
    if (status != CUDA_SUCCESS) {
        return towc_call_end(&call, status);
    }
    uint64_t id = tow_dec_u64(&call.dec), graph = tow_dec_u64(&call.dec);
    CUstreamCaptureStatus capturing = (CUstreamCaptureStatus)tow_dec_u32(&call.dec);
    uint32_t count = tow_dec_count(&call.dec, 1 << 16, 16);
    size_t each = sizeof(CUgraphNode) + sizeof(CUgraphEdgeData);
    uint8_t *kept = towc_keep_make((uint64_t)(uintptr_t)hStream, count * each + 1);
    if (kept == NULL) {
        return towc_call_end(&call, CUDA_ERROR_OUT_OF_MEMORY);
    }
    tow_dec_copy(&call.dec, kept, count * each);
    *captureStatus_out = capturing;
    answer.status = capturing;
    answer.id = id;
    keep_answer(hStream, answer);
    if (id_out != NULL) {
        *id_out = id;
    }
    if (graph_out != NULL) {
        *graph_out = (CUgraph)(uintptr_t)graph;
    }
    if (dependencies_out != NULL) {
        *dependencies_out = (const CUgraphNode *)kept;
    }
    if (edgeData_out != NULL) {
        *edgeData_out = (const CUgraphEdgeData *)(kept + count * sizeof(CUgraphNode));
    }
    if (numDependencies_out != NULL) {
        *numDependencies_out = count;
    }
    return towc_call_end(&call, CUDA_SUCCESS);
}

CUresult towc_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                        cuuint64_t *id_out, CUgraph *graph_out,
                                        const CUgraphNode **dependencies_out,
                                        size_t *numDependencies_out)
{
    return towc_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out,
                                          dependencies_out, NULL, numDependencies_out);
}

CUresult towc_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                     cuuint64_t *id_out)
{
    return towc_cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, NULL, NULL, NULL,
                                          NULL);
}
