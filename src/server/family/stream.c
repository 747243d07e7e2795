/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of streams that are not generated. */
#include "gen/stream_server.h"
#include "server/session/session.h"
#include "server/session/completion.h"

/* A client that is told "not ready" may want to hear when that changes. */
void tows_serve_cuStreamQuery(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, id);
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuStreamQuery)(stream);
    if (call->status == CUDA_ERROR_NOT_READY && tow_dec_left(&call->in) > 0) {
        tows_completion_await_stream(call, id, stream);
    }
}
