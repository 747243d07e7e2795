/* SPDX-License-Identifier: Apache-2.0 */
/* Words in shared memory that the GPU writes in place of a reply. */
#include "server/session/completion.h"

#include "gen/graph.h"
#include "gen/stream.h"
#include "server/session/serve.h"
#include "server/session/session.h"
#include "wire/share.h"

CUresult tows_completion_ask(const struct tow_driver *driver, CUstream stream)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult status = tow_drive(driver, cuStreamIsCapturing)(stream, &capture);
    if (status == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE) {
        status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return status == CUDA_SUCCESS ? tow_drive(driver, cuStreamQuery)(stream) : status;
}

void tows_completion_put(struct tows_serve *call, struct tow_fence_word *word, uint32_t value,
                         CUstream stream)
{
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuStreamWriteValue32_v2)(
            stream, (CUdeviceptr)(uintptr_t)&word->done, value, 0);
    }
    if (call->status != CUDA_SUCCESS) {
        atomic_store_explicit(&word->refused, value, memory_order_release);
    }
}

/* The ordinary way delivers an error, or what kernels printed. */
static void word_refuse_owing(struct tows_serve *call)
{
    if (call->status == CUDA_SUCCESS && tows_session_owes(call->session, call->frame.thread)) {
        call->status = CUDA_ERROR_NOT_READY;
    }
}

void tows_completion_put_stream(struct tows_serve *call, struct tow_fence_word *word,
                                uint32_t value, CUstream stream)
{
    CUresult before = call->status;
    word_refuse_owing(call);
    tows_completion_put(call, word, value, stream);
    call->status = before;
}

void tows_completion_put_context(struct tows_serve *call, struct tow_fence_word *word,
                                 uint32_t value, bool may_be_idle)
{
    CUresult before = call->status;
    CUstream stream = NULL;
    word_refuse_owing(call);
    bool idle = call->status == CUDA_SUCCESS && may_be_idle && tows_completion_idle(call);
    if (call->status == CUDA_SUCCESS && !idle && !tows_completion_last(call, &stream, &idle)) {
        call->status = CUDA_ERROR_NOT_READY;
    }
    if (call->status == CUDA_SUCCESS && idle) {
        atomic_store_explicit(&word->done, value, memory_order_release);
    } else {
        tows_completion_put(call, word, value, stream);
    }
    call->status = before;
}
