/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture as graphs see it: work given to a capturing stream becomes nodes. What streams and
 * events know of a capture is in engine/capture.c. */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/graph/graph.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "gen/graph.h"

/* ---- capturing
 * -------------------------------------------------------------------------------------------------
 */

static CUresult capture_add(struct tow_soft_stream *stream, struct tow_soft_work *work)
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
    return tow_soft_deps_set(&stream->capture_deps, &stream->capture_dep_count,
                             &node->object.handle, 1);
}

static CUresult capture_alloc(struct tow_soft_stream *stream, uint64_t size, int device,
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
        result = capture_add(stream, &work);
        if (result == CUDA_SUCCESS) {
            *ret_ptr = base;
        }
    }
    return result;
}

static const struct tow_soft_capture_ops ops = {
    .add = capture_add,
    .alloc = capture_alloc,
    .graph_free = tow_soft_graph_free,
};

/* ---- entry points
 * --------------------------------------------------------------------------------------------------
 */

static CUresult graph_capture_begin(CUstream hStream, CUstreamCaptureMode mode, bool to_graph,
                                    CUgraph hGraph, const CUgraphNode *deps, size_t count)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
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
        tow_soft_deps_set(&stream->capture_deps, &stream->capture_dep_count, (const uint64_t *)deps,
                          count) != CUDA_SUCCESS) {
        if (!to_graph) {
            tow_soft_graph_free(capture->graph);
        }
        free(capture);
        return tow_soft_leave(to_graph ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY);
    }
    capture->ops = &ops;
    capture->to_graph = to_graph;
    capture->mode = mode;
    tow_soft_capture_begin(capture, stream);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    return graph_capture_begin(hStream, mode, false, NULL, NULL, 0);
}

static CUresult soft_cuStreamBeginCapture(CUstream hStream)
{
    return graph_capture_begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, false, NULL, NULL, 0);
}

static CUresult soft_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                                 const CUgraphNode *dependencies,
                                                 const CUgraphEdgeData *dependencyData,
                                                 size_t numDependencies, CUstreamCaptureMode mode)
{
    (void)dependencyData;
    return graph_capture_begin(hStream, mode, true, hGraph, dependencies, numDependencies);
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
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
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
        tow_soft_capture_end(capture, false);
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    }
    if (capture->origin != stream->object.handle) {
        capture->spoiled = true;
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    *phGraph = NULL;
    if (capture->spoiled) {
        tow_soft_capture_end(capture, false);
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    if (!is_joined(capture, stream)) {
        tow_soft_capture_end(capture, false);
        return tow_soft_leave(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    *phGraph = TOW_SOFT_POINTER(capture->graph->object.handle);
    tow_soft_capture_end(capture, true);
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
    struct tow_soft_stream *stream;
    CUresult result = tow_soft_enter_stream(hStream, &ctx, &stream);
    if (result != CUDA_SUCCESS) {
        return result;
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
        return tow_soft_leave(tow_soft_deps_join(&stream->capture_deps, &stream->capture_dep_count,
                                                 (const uint64_t *)dependencies, numDependencies));
    case CU_STREAM_SET_CAPTURE_DEPENDENCIES:
        return tow_soft_leave(tow_soft_deps_set(&stream->capture_deps, &stream->capture_dep_count,
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
    CUstreamCaptureMode before = tow_soft_capture_mode;
    tow_soft_capture_mode = *mode;
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
