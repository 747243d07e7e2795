/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts. The client has an object of its own for the context made from one. */
#include "gen/green_server.h"
#include "gen/context.h"
#include "server/family/context.h"
#include "server/session/session.h"

void tows_serve_cuCtxFromGreenCtx(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    uint64_t green_id = tow_dec_u64(&call->in);
    CUgreenCtx green = tows_serve_handle(call, TOW_H_GREENCTX, green_id);
    CUcontext context = NULL;
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuCtxFromGreenCtx)(&context, green);
    if (call->status != CUDA_SUCCESS) {
        return;
    }
    CUdevice device = 0;
    CUcontext popped = NULL;
    call->status = tow_drive(call->driver, cuCtxPushCurrent_v2)(context);
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuCtxGetDevice)(&device);
        tow_drive(call->driver, cuCtxPopCurrent_v2)(&popped);
    }
    if (call->status == CUDA_SUCCESS &&
        tows_context_bind(call, id, context, (uint32_t)device + 1) &&
        tows_handles_find(&call->session->handles, green_id) == NULL) {
        tows_handles_unbind(&call->session->handles, id); /* another thread has just ended it */
        call->status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
}

/* The id of the context that was made from it, 0 if none was: the driver has one for each. */
static uint64_t context_of(struct tows_serve *call, CUgreenCtx green)
{
    CUcontext context = NULL;
    return tow_drive(call->driver, cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS
               ? tows_handles_known(&call->session->handles, TOW_H_CONTEXT, context)
               : 0;
}

void tows_serve_cuGreenCtxDestroy(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    tow_dec_u64(&call->in); /* the context made from it: known here */
    CUgreenCtx green = tows_serve_handle(call, TOW_H_GREENCTX, id);
    if (!tows_serve_ready(call)) {
        return;
    }
    if (!tows_serve_claim(call, TOW_H_GREENCTX, id)) {
        return;
    }
    uint64_t context = context_of(call, green);
    if (context != 0) {
        call->status = tows_context_drop(call->session, context);
    }
    if (call->status == CUDA_ERROR_INVALID_CONTEXT) {
        /* Its device's primary context ends, and its context with that. */
        call->status =
            tows_context_await_drop(call->session, context) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    }
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuGreenCtxDestroy)(green);
    }
    if (call->status != CUDA_SUCCESS) {
        tows_serve_unclaim(call);
    }
}
