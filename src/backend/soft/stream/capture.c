/* Stream capture: work given to a capturing stream becomes nodes of a graph.
 *
 * A capture begins on one stream and spreads to others through events. It ends on the first stream,
 * where everything that spread must have come back. What would wait for captured work is an error
 * and spoils the capture; cuStreamEndCapture then says so.
 */
#include "backend/soft/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "gen/graph.h"

struct tow_soft_capture {
    struct tow_soft_capture *next;
    uint64_t id;
    struct tow_soft_graph *graph; /* owned unless `to_graph` */
    bool to_graph;
    uint64_t origin; /* handle of the stream where it began */
    struct tow_soft_ctx *ctx;
    CUstreamCaptureMode mode;
    int thread; /* where it began */
    bool spoiled;
    uint64_t *left; /* owned: what streams that were destroyed captured last; is to be joined too */
    size_t left_count;
};

static struct tow_soft_capture *captures; /* guarded by tow_soft.lock */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* ---- dependencies of a stream
 * ------------------------------------------------------------------------------ */

static CUresult deps_set(uint64_t **deps, size_t *count, const uint64_t *from, size_t n)
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

static CUresult deps_join(uint64_t **deps, size_t *dep_count, const uint64_t *more, size_t n)
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

static void leave_capture(struct tow_soft_stream *stream)
{
    stream->capture = NULL;
    free(stream->capture_deps);
    stream->capture_deps = NULL;
    stream->capture_dep_count = 0;
}

/* Ends it; the graph stays with the caller when `keep_graph`. */
static void capture_end(struct tow_soft_capture *capture, bool keep_graph)
{
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        if (s->capture == capture) {
            leave_capture(s);
        }
    }
    struct tow_soft_capture **at = &captures;
    while (*at != capture) {
        at = &(*at)->next;
    }
    *at = capture->next;
    if (!keep_graph && !capture->to_graph) {
        tow_soft_graph_free(capture->graph);
    }
    free(capture->left);
    free(capture);
}

void tow_soft_captures_drop(struct tow_soft_ctx *ctx)
{
    for (struct tow_soft_capture *c = captures, *next; c != NULL; c = next) {
        next = c->next;
        if (c->ctx == ctx) {
            capture_end(c, false);
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
        capture_end(capture, false);
    } else {
        capture->spoiled |= deps_join(&capture->left, &capture->left_count, stream->capture_deps,
                                      stream->capture_dep_count) != CUDA_SUCCESS;
        leave_capture(stream);
    }
}

void tow_soft_capture_graph_gone(struct tow_soft_graph *graph)
{
    for (struct tow_soft_capture *c = captures, *next; c != NULL; c = next) {
        next = c->next;
        if (c->graph == graph) {
            capture_end(c, true);
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
    if (captures == NULL || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_SUCCESS;
    }
    int thread = tow_thread_id();
    CUresult result = CUDA_SUCCESS;
    for (struct tow_soft_capture *c = captures; c != NULL; c = c->next) {
        bool mine = c->thread == thread && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool global = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      thread_mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        if (mine || global) {
            c->spoiled = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* ---- capturing
 * -------------------------------------------------------------------------------------------------
 */

CUresult tow_soft_capture_add(struct tow_soft_stream *stream, struct tow_soft_work *work)
{
    struct tow_soft_capture *capture = stream->capture;
    if (capture->spoiled) {
        tow_soft_work_fini(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    struct tow_soft_node *node;
    CUresult result =
        tow_soft_graph_add(capture->graph, (const CUgraphNode *)stream->capture_deps, NULL,
                           stream->capture_dep_count, tow_soft_node_type_of(work), work, &node);
    if (result != CUDA_SUCCESS) {
        capture->spoiled = true;
        return result;
    }
    return deps_set(&stream->capture_deps, &stream->capture_dep_count, &node->object.handle, 1);
}

CUresult tow_soft_capture_alloc(struct tow_soft_stream *stream, uint64_t size, int device,
                                CUdeviceptr *ret_ptr)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    params.alloc.bytesize = size;
    params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.alloc.poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
    struct tow_soft_work work;
    CUresult result = tow_soft_node_build(stream->object.ctx, &params, &work);
    if (result == CUDA_SUCCESS) {
        uint64_t base = work.alloc.va->base;
        result = tow_soft_capture_add(stream, &work);
        if (result == CUDA_SUCCESS) {
            *ret_ptr = base;
        }
    }
    return result;
}

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
        return tow_soft_capture_add(stream, &work);
    }
    event->capture_id = stream->capture->id;
    return deps_set(&event->capture_deps, &event->capture_dep_count, stream->capture_deps,
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
            return tow_soft_capture_add(stream, &work);
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
        return deps_set(&stream->capture_deps, &stream->capture_dep_count, event->capture_deps,
                        event->capture_dep_count);
    }
    if (stream->capture != from) {
        stream->capture->spoiled = true;
        from->spoiled = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    return deps_join(&stream->capture_deps, &stream->capture_dep_count, event->capture_deps,
                     event->capture_dep_count);
}

/* ---- entry points
 * --------------------------------------------------------------------------------------------------
 */

static CUresult begin(CUstream hStream, CUstreamCaptureMode mode, bool to_graph, CUgraph hGraph,
                      const CUgraphNode *deps, size_t count)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    if ((int)mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (stream->legacy) {
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if (stream->capture != NULL) {
        return tow_soft_leave(CUDA_ERROR_ILLEGAL_STATE);
    }
    struct tow_soft_capture *capture = calloc(1, sizeof *capture);
    if (capture == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    capture->graph = to_graph ? tow_soft_graph_lookup(hGraph) : tow_soft_graph_create(false);
    for (size_t i = 0; i < count && capture->graph != NULL; i++) {
        struct tow_soft_node *node = deps != NULL ? tow_soft_node_lookup(deps[i]) : NULL;
        if (node == NULL || node->graph != capture->graph) {
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (capture->graph == NULL || result != CUDA_SUCCESS ||
        deps_set(&stream->capture_deps, &stream->capture_dep_count, (const uint64_t *)deps,
                 count) != CUDA_SUCCESS) {
        if (!to_graph) {
            tow_soft_graph_free(capture->graph);
        }
        free(capture);
        return tow_soft_leave(to_graph ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY);
    }
    capture->id = ++tow_soft.next_id;
    capture->to_graph = to_graph;
    capture->origin = stream->object.handle;
    capture->ctx = stream->object.ctx;
    capture->mode = mode;
    capture->thread = tow_thread_id();
    capture->next = captures;
    captures = capture;
    stream->capture = capture;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    return begin(hStream, mode, false, NULL, NULL, 0);
}

static CUresult soft_cuStreamBeginCapture(CUstream hStream)
{
    return begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, false, NULL, NULL, 0);
}

static CUresult soft_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                                 const CUgraphNode *dependencies,
                                                 const CUgraphEdgeData *dependencyData,
                                                 size_t numDependencies, CUstreamCaptureMode mode)
{
    (void)dependencyData;
    return begin(hStream, mode, true, hGraph, dependencies, numDependencies);
}

/* Marks everything that marked nodes follow. Edges nearly always lead back in order of creation. */
static void mark_before(struct tow_soft_graph *graph)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = graph->count; i-- > 0;) {
            struct tow_soft_node *node = graph->nodes[i];
            for (size_t e = 0; node->pending == 1 && e < node->edge_count; e++) {
                changed |= node->edges[e].from->pending == 0;
                node->edges[e].from->pending = 1;
            }
        }
    }
}

/* After mark_before. */
static bool are_marked(const uint64_t *deps, size_t count)
{
    bool marked = true;
    for (size_t i = 0; i < count; i++) {
        const struct tow_soft_node *node = tow_soft_lookup(TOW_SOFT_NODE, deps[i]);
        marked = marked && (node == NULL || node->pending != 0);
    }
    return marked;
}

/* Whether all that other streams captured is behind what this stream captured last. */
static bool is_joined(struct tow_soft_capture *capture, struct tow_soft_stream *stream)
{
    for (size_t i = 0; i < capture->graph->count; i++) {
        capture->graph->nodes[i]->pending = 0;
    }
    for (size_t i = 0; i < stream->capture_dep_count; i++) {
        struct tow_soft_node *node = tow_soft_lookup(TOW_SOFT_NODE, stream->capture_deps[i]);
        if (node != NULL) {
            node->pending = 1;
        }
    }
    mark_before(capture->graph);
    bool joined = are_marked(capture->left, capture->left_count);
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        joined =
            joined && (s->capture != capture || are_marked(s->capture_deps, s->capture_dep_count));
    }
    return joined;
}

static CUresult soft_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct tow_soft_capture *capture = stream->capture;
    CUgraph ignored;
    if (phGraph == NULL && capture != NULL && capture->to_graph) {
        phGraph = &ignored; /* the caller knows it */
    }
    if (phGraph == NULL || capture == NULL) {
        return tow_soft_leave(phGraph == NULL ? CUDA_ERROR_INVALID_VALUE
                                              : CUDA_ERROR_ILLEGAL_STATE);
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != tow_thread_id()) {
        capture_end(capture, false);
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    if (capture->origin != stream->object.handle) {
        capture->spoiled = true;
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    *phGraph = NULL;
    if (capture->spoiled) {
        capture_end(capture, false);
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    if (!is_joined(capture, stream)) {
        capture_end(capture, false);
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    *phGraph = TOW_SOFT_POINTER(capture->graph->object.handle);
    capture_end(capture, true);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult capture_info(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
                             CUgraph *graph, const CUgraphNode **deps,
                             const CUgraphEdgeData **edges, size_t *count)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result == CUDA_SUCCESS && status == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && stream->legacy) {
        for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
            if (s->object.ctx == ctx && s->capture != NULL &&
                (s->flags & CU_STREAM_NON_BLOCKING) == 0) {
                result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            }
        }
    }
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct tow_soft_capture *capture = stream->capture;
    *status = capture == NULL    ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->spoiled ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        return tow_soft_leave(CUDA_SUCCESS);
    }
    if (id != NULL) {
        *id = capture->id;
    }
    if (graph != NULL) {
        *graph = TOW_SOFT_POINTER(capture->graph->object.handle);
    }
    if (deps != NULL) {
        *deps = (const CUgraphNode *)stream->capture_deps;
    }
    if (edges != NULL) {
        free(stream->capture_edges);
        stream->capture_edges =
            calloc(stream->capture_dep_count + 1, sizeof *stream->capture_edges);
        *edges = stream->capture_edges;
    }
    if (count != NULL) {
        *count = stream->capture_dep_count;
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return capture_info(hStream, captureStatus, NULL, NULL, NULL, NULL, NULL);
}

static CUresult soft_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *status,
                                            cuuint64_t *id)
{
    return capture_info(hStream, status, id, NULL, NULL, NULL, NULL);
}

static CUresult soft_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *status,
                                               cuuint64_t *id, CUgraph *graph,
                                               const CUgraphNode **dependencies, size_t *count)
{
    return capture_info(hStream, status, id, graph, dependencies, NULL, count);
}

static CUresult soft_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *status,
                                               cuuint64_t *id, CUgraph *graph,
                                               const CUgraphNode **dependencies,
                                               const CUgraphEdgeData **edges, size_t *count)
{
    return capture_info(hStream, status, id, graph, dependencies, edges, count);
}

static CUresult soft_cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                                       size_t numDependencies, unsigned int flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    if (stream->capture == NULL || stream->capture->spoiled) {
        return tow_soft_leave(stream->capture == NULL ? CUDA_ERROR_ILLEGAL_STATE
                                                      : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    for (size_t i = 0; i < numDependencies; i++) {
        struct tow_soft_node *node =
            dependencies != NULL ? tow_soft_node_lookup(dependencies[i]) : NULL;
        if (node == NULL || node->graph != stream->capture->graph) {
            return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
        }
    }
    switch (flags) {
    case CU_STREAM_ADD_CAPTURE_DEPENDENCIES:
        return tow_soft_leave(deps_join(&stream->capture_deps, &stream->capture_dep_count,
                                        (const uint64_t *)dependencies, numDependencies));
    case CU_STREAM_SET_CAPTURE_DEPENDENCIES:
        return tow_soft_leave(deps_set(&stream->capture_deps, &stream->capture_dep_count,
                                       (const uint64_t *)dependencies, numDependencies));
    default:
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
}

static CUresult soft_cuStreamUpdateCaptureDependencies_v2(CUstream hStream,
                                                          CUgraphNode *dependencies,
                                                          const CUgraphEdgeData *dependencyData,
                                                          size_t numDependencies,
                                                          unsigned int flags)
{
    (void)dependencyData;
    return soft_cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies, flags);
}

static CUresult soft_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (mode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

void tow_soft_fill_capture(struct tow_driver *driver)
{
    tow_driver_set(driver, cuStreamBeginCapture, soft_cuStreamBeginCapture);
    tow_driver_set(driver, cuStreamBeginCapture_v2, soft_cuStreamBeginCapture_v2);
    tow_driver_set(driver, cuStreamBeginCaptureToGraph, soft_cuStreamBeginCaptureToGraph);
    tow_driver_set(driver, cuStreamEndCapture, soft_cuStreamEndCapture);
    tow_driver_set(driver, cuStreamIsCapturing, soft_cuStreamIsCapturing);
    tow_driver_set(driver, cuStreamGetCaptureInfo, soft_cuStreamGetCaptureInfo);
    tow_driver_set(driver, cuStreamGetCaptureInfo_v2, soft_cuStreamGetCaptureInfo_v2);
    tow_driver_set(driver, cuStreamGetCaptureInfo_v3, soft_cuStreamGetCaptureInfo_v3);
    tow_driver_set(driver, cuStreamUpdateCaptureDependencies,
                   soft_cuStreamUpdateCaptureDependencies);
    tow_driver_set(driver, cuStreamUpdateCaptureDependencies_v2,
                   soft_cuStreamUpdateCaptureDependencies_v2);
    tow_driver_set(driver, cuThreadExchangeStreamCaptureMode,
                   soft_cuThreadExchangeStreamCaptureMode);
}
