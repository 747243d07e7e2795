/* Whether streams capture into graphs. Libraries ask before nearly every launch, and nearly always
 * nothing does. */
#include "client/call.h"
#include "client/stream.h"
#include "gen/client_api.h"

atomic_int tow_captures;

CUresult tow_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult state = tow_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct tow_thread *self = tow_thread_self();
    if (mode == NULL || self == NULL || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode old = self->capture_mode;
    self->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

CUresult tow_cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    CUresult status = tow_stream_check(hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (captureStatus == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (atomic_load_explicit(&tow_captures, memory_order_relaxed) == 0) {
        *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS;
    }
    return tow_send_cuStreamIsCapturing(hStream, captureStatus);
}

/* All versions of the question, while nothing captures. */
static CUresult not_capturing(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    CUresult status = tow_stream_check(stream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (ret_status == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (atomic_load_explicit(&tow_captures, memory_order_relaxed) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *ret_status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult tow_cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                    cuuint64_t *id_out)
{
    (void)id_out;
    return not_capturing(hStream, captureStatus_out);
}

CUresult tow_cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                       cuuint64_t *id_out, CUgraph *graph_out,
                                       const CUgraphNode **dependencies_out,
                                       size_t *numDependencies_out)
{
    (void)id_out;
    (void)graph_out;
    (void)dependencies_out;
    (void)numDependencies_out;
    return not_capturing(hStream, captureStatus_out);
}

CUresult tow_cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                       cuuint64_t *id_out, CUgraph *graph_out,
                                       const CUgraphNode **dependencies_out,
                                       const CUgraphEdgeData **edgeData_out,
                                       size_t *numDependencies_out)
{
    (void)id_out;
    (void)graph_out;
    (void)dependencies_out;
    (void)edgeData_out;
    (void)numDependencies_out;
    return not_capturing(hStream, captureStatus_out);
}
