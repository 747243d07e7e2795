/* Green contexts. The client has an object of its own for the context made from one. */
#include "gen/server_api.h"
#include "server/context.h"

void tow_serve_cuCtxFromGreenCtx(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUgreenCtx green = tow_serve_handle(call, TOW_H_GREENCTX, tow_dec_u64(&call->in));
    CUcontext context = NULL;
    if (!tow_serve_ready(call)) {
        return;
    }
    call->status = call->driver->cuCtxFromGreenCtx(&context, green);
    if (call->status == CUDA_SUCCESS) {
        tow_serve_bind(call, TOW_H_CONTEXT, id, context);
        if (!call->malformed) {
            tow_context_put_facts(call, context);
        }
    }
}

void tow_serve_cuGreenCtxDestroy(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    uint64_t context_id = tow_dec_u64(&call->in);
    CUgreenCtx green = tow_serve_handle(call, TOW_H_GREENCTX, id);
    if (context_id != 0) {
        tow_serve_handle(call, TOW_H_CONTEXT, context_id);
    }
    if (!tow_serve_ready(call)) {
        return;
    }
    if (context_id != 0) {
        tow_context_drop(call->session, context_id);
    }
    call->status = call->driver->cuGreenCtxDestroy(green);
    tow_serve_unbind(call, TOW_H_GREENCTX, id);
}
