/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a capture, which makes a graph. */
#include "client/link/call.h"
#include "client/session/thread.h"
#include "client/stream/capture.h"
#include "client/stream/stream.h"
#include "gen/graph_client.h"
#include "gen/stream_client.h"

/* `ret_owed`: what work of the capture that nobody waited for failed with. */
static CUresult send_end(CUstream stream, CUgraph *ret_graph, CUresult *ret_owed)
{
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuStreamEndCapture, 8, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        *ret_graph = (CUgraph)(uintptr_t)tow_dec_u64(&call.dec);
        *ret_owed = (CUresult)tow_dec_u32(&call.dec);
    }
    return towc_call_end(&call, status);
}

CUresult towc_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    CUresult status = towc_stream_check(hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    const struct towc_thread *self = towc_thread_self();
    if (self == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct towc_capture_facts capture = {0};
    towc_capture_find(hStream, &capture);
    /* Who captured into a graph of his own need not be told which one. */
    if (phGraph == NULL && !capture.to_graph) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraph graph = NULL;
    CUresult owed = CUDA_SUCCESS;
    status = send_end(hStream, &graph, &owed);
    if (status == CUDA_SUCCESS && owed != CUDA_SUCCESS) {
        if (!capture.to_graph) {
            towc_cuGraphDestroy(graph);
        }
        status = owed;
    } else if (capture.wrong_thread) {
        /* It ends all the same, and its graph is lost: with NVIDIA's driver also one that was there
         * before. */
        if (status == CUDA_SUCCESS) {
            towc_cuGraphDestroy(graph);
        }
        status = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    if (phGraph != NULL) {
        *phGraph = status == CUDA_SUCCESS ? graph : NULL;
    }
    if (status != CUDA_ERROR_STREAM_CAPTURE_UNMATCHED) {
        towc_capture_drop(hStream, self->number);
    }
    return status;
}
