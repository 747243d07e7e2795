#include "gen/server_api.h"
#include "server/session.h"
#include "server/watch.h"

/* A client that is told "not ready" may want to hear when that changes. */
void tow_serve_cuStreamQuery(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, id);
    if (!tow_serve_ready(call)) {
        return;
    }
    call->status = call->driver->cuStreamQuery(stream);
    if (call->status == CUDA_ERROR_NOT_READY && tow_dec_left(&call->in) > 0) {
        tow_watch_stream(call, id, stream);
    }
}

void tow_serve_cuStreamDestroy_v2(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, id);
    if (!tow_serve_ready(call)) {
        return;
    }
    tow_watch_drop(call->session, stream);
    call->status = call->driver->cuStreamDestroy_v2(stream);
    if (call->status == CUDA_SUCCESS) {
        tow_serve_unbind(call, TOW_H_STREAM, id);
    }
}

/* ---- capturing ---- */

void tow_serve_cuStreamBeginCapture_v2(struct tow_serve *call)
{
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    CUstreamCaptureMode mode = (CUstreamCaptureMode)tow_dec_u32(&call->in);
    if (tow_serve_ready(call)) {
        tow_watch_refuse(call->session);
        call->status = call->driver->cuStreamBeginCapture_v2(stream, mode);
    }
}

void tow_serve_cuStreamBeginCaptureToGraph(struct tow_serve *call)
{
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    CUgraph graph = tow_serve_handle(call, TOW_H_GRAPH, tow_dec_u64(&call->in));
    uint64_t count = tow_dec_u64(&call->in);
    CUstreamCaptureMode mode = (CUstreamCaptureMode)tow_dec_u32(&call->in);
    uint32_t present = tow_dec_u32(&call->in);
    CUgraphNode *nodes =
        (present & 1u) != 0 ? tow_serve_array(call, count, sizeof(CUgraphNode)) : NULL;
    tow_serve_handles(call, TOW_H_GRAPHNODE, nodes, nodes != NULL ? count : 0);
    tow_dec_align(&call->in, 8);
    CUgraphEdgeData *edges =
        (present & 2u) != 0 ? tow_serve_array(call, count, sizeof(CUgraphEdgeData)) : NULL;
    if (tow_serve_ready(call)) {
        tow_watch_refuse(call->session);
        call->status =
            call->driver->cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode);
    }
}
