/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture as streams and events see it: who captures, and what is forbidden meanwhile.
 *
 * A capture begins on one stream and spreads to others through events. It ends on the first stream,
 * where everything that spread must have come back. What would wait for captured work is an error
 * and spoils the capture; cuStreamEndCapture then says so. Its nodes are made by who began it
 * (tow_soft_capture_ops).
 */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"

static struct tow_soft_capture *captures; /* guarded by tow_soft.lock */
_Thread_local CUstreamCaptureMode tow_soft_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- dependencies of a stream
 * ------------------------------------------------------------------------------ */

CUresult tow_soft_deps_set(uint64_t **deps, size_t *count, const uint64_t *from, size_t n)
{
    uint64_t *copy = malloc((n + 1) * sizeof *copy);
    if (copy == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (n != 0) {
        memcpy(copy, from, n * sizeof *copy);
    }
    free(*deps);
    *deps = copy;
    *count = n;
    return CUDA_SUCCESS;
}

CUresult tow_soft_deps_join(uint64_t **deps, size_t *dep_count, const uint64_t *more, size_t n)
{
    uint64_t *joined = malloc((*dep_count + n + 1) * sizeof *joined);
    if (joined == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    size_t count = 0;
    for (size_t i = 0; i < *dep_count; i++) {
        joined[count++] = (*deps)[i];
    }
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        for (size_t k = 0; k < count; k++) {
            known |= joined[k] == more[i];
        }
        if (!known) {
            joined[count++] = more[i];
        }
    }
    free(*deps);
    *deps = joined;
    *dep_count = count;
    return CUDA_SUCCESS;
}

static struct tow_soft_capture *capture_of(uint64_t id)
{
    for (struct tow_soft_capture *c = captures; c != NULL; c = c->next) {
        if (c->id == id) {
            return c;
        }
    }
    return NULL;
}

static void capture_leave(struct tow_soft_stream *stream)
{
    stream->capture = NULL;
    free(stream->capture_deps);
    stream->capture_deps = NULL;
    stream->capture_dep_count = 0;
}

void tow_soft_capture_begin(struct tow_soft_capture *capture, struct tow_soft_stream *stream)
{
    capture->id = ++tow_soft.next_id;
    capture->origin = stream->object.handle;
    capture->ctx = stream->object.ctx;
    capture->thread = tow_thread_id();
    capture->next = captures;
    captures = capture;
    stream->capture = capture;
}

void tow_soft_capture_end(struct tow_soft_capture *capture, bool keep_graph)
{
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        if (s->capture == capture) {
            capture_leave(s);
        }
    }
    struct tow_soft_capture **at = &captures;
    while (*at != capture) {
        at = &(*at)->next;
    }
    *at = capture->next;
    if (!keep_graph && !capture->to_graph) {
        capture->ops->graph_free(capture->graph);
    }
    free(capture->left);
    free(capture);
}

void tow_soft_captures_drop(struct tow_soft_ctx *ctx)
{
    for (struct tow_soft_capture *c = captures, *next; c != NULL; c = next) {
        next = c->next;
        if (c->ctx == ctx) {
            tow_soft_capture_end(c, false);
        }
    }
}

void tow_soft_capture_stream_gone(struct tow_soft_stream *stream)
{
    if (stream->capture == NULL) {
        return;
    }
    struct tow_soft_capture *capture = stream->capture;
    if (capture->origin == stream->object.handle) {
        tow_soft_capture_end(capture, false);
    } else {
        capture->spoiled |=
            tow_soft_deps_join(&capture->left, &capture->left_count, stream->capture_deps,
                               stream->capture_dep_count) != CUDA_SUCCESS;
        capture_leave(stream);
    }
}

void tow_soft_capture_graph_gone(struct tow_soft_graph *graph)
{
    for (struct tow_soft_capture *c = captures, *next; c != NULL; c = next) {
        next = c->next;
        if (c->graph == graph) {
            tow_soft_capture_end(c, true);
        }
    }
}

/* ---- what is forbidden meanwhile
 * ---------------------------------------------------------------------------- */

CUresult tow_soft_capture_forbid_implicit(struct tow_soft_ctx *ctx)
{
    CUresult result = CUDA_SUCCESS;
    for (struct tow_soft_stream *s = tow_soft.streams; captures != NULL && s != NULL; s = s->next) {
        if (s->object.ctx == ctx && s->capture != NULL &&
            (s->flags & CU_STREAM_NON_BLOCKING) == 0) {
            s->capture->spoiled = true;
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    return result;
}

/* Whatever its mode, a capture does not survive waiting for the whole context. */
CUresult tow_soft_capture_forbid_all(struct tow_soft_ctx *ctx)
{
    CUresult result = CUDA_SUCCESS;
    for (struct tow_soft_stream *s = tow_soft.streams; captures != NULL && s != NULL; s = s->next) {
        if (s->object.ctx == ctx && s->capture != NULL) {
            s->capture->spoiled = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

void tow_soft_capture_spoil(struct tow_soft_stream *stream)
{
    if (stream->capture != NULL) {
        stream->capture->spoiled = true;
    }
}

/* The host asks for an event that a capture recorded: the first time that is told and ends the
 * capture. From then on, and when the capture has ended, the event is good for nothing until it is
 * recorded anew. */
CUresult tow_soft_capture_asked(struct tow_soft_event *event)
{
    if (event->capture_id == 0) {
        return CUDA_SUCCESS;
    }
    struct tow_soft_capture *capture = capture_of(event->capture_id);
    if (capture == NULL || capture->spoiled) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    capture->spoiled = true;
    event->capture_id = UINT64_MAX; /* no capture's */
    return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult tow_soft_capture_forbid(struct tow_soft_ctx *ctx, struct tow_soft_stream *stream)
{
    if (stream->capture != NULL) {
        stream->capture->spoiled = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream->legacy ? tow_soft_capture_forbid_implicit(ctx) : CUDA_SUCCESS;
}

CUresult tow_soft_capture_unsafe(struct tow_soft_ctx *ctx)
{
    (void)ctx;
    if (captures == NULL || tow_soft_capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    int thread = tow_thread_id();
    CUresult result = CUDA_SUCCESS;
    for (struct tow_soft_capture *c = captures; c != NULL; c = c->next) {
        bool mine = c->thread == thread && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool global = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      tow_soft_capture_mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        if (mine || global) {
            c->spoiled = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* ---- events in a capture ---- */

CUresult tow_soft_capture_record(struct tow_soft_stream *stream, struct tow_soft_event *event,
                                 bool external, bool *ret_done)
{
    *ret_done = stream->capture != NULL;
    if (stream->capture == NULL && external) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (stream->capture == NULL) {
        return stream->legacy ? tow_soft_capture_forbid_implicit(stream->object.ctx) : CUDA_SUCCESS;
    }
    if (stream->capture->spoiled) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (external) {
        struct tow_soft_work work = {.kind = TOW_SOFT_WORK_RECORD,
                                     .event = {.event = event->object.handle}};
        return stream->capture->ops->add(stream, &work);
    }
    event->capture_id = stream->capture->id;
    return tow_soft_deps_set(&event->capture_deps, &event->capture_dep_count, stream->capture_deps,
                             stream->capture_dep_count);
}

CUresult tow_soft_capture_wait(struct tow_soft_stream *stream, struct tow_soft_event *event,
                               bool external, bool *ret_done)
{
    *ret_done = false;
    struct tow_soft_capture *from = event->capture_id != 0 ? capture_of(event->capture_id) : NULL;
    if (stream->capture == NULL && external) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (stream->capture == NULL && event->capture_id == 0) {
        return stream->legacy ? tow_soft_capture_forbid_implicit(stream->object.ctx) : CUDA_SUCCESS;
    }
    *ret_done = true;
    if (event->capture_id != 0 && from == NULL) {
        return CUDA_ERROR_CAPTURED_EVENT; /* that capture is over */
    }
    if (stream->capture != NULL && stream->capture->spoiled) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (from == NULL) {
        if (external) {
            struct tow_soft_work work = {.kind = TOW_SOFT_WORK_WAIT,
                                         .event = {.event = event->object.handle}};
            return stream->capture->ops->add(stream, &work);
        }
        if (event->mark == NULL) {
            return CUDA_SUCCESS; /* never recorded: there is nothing to wait for */
        }
        stream->capture->spoiled = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* recorded outside */
    }
    if (from->spoiled) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream->legacy) {
        from->spoiled = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture == NULL) {
        stream->capture = from;
        return tow_soft_deps_set(&stream->capture_deps, &stream->capture_dep_count,
                                 event->capture_deps, event->capture_dep_count);
    }
    if (stream->capture != from) {
        stream->capture->spoiled = true;
        from->spoiled = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    return tow_soft_deps_join(&stream->capture_deps, &stream->capture_dep_count,
                              event->capture_deps, event->capture_dep_count);
}
