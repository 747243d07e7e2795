#include "gen/server_api.h"
#include "server/session.h"
#include "server/share.h"

/* An event that the program looks at has a note besides, which the stream writes behind it. */
void tow_serve_cuEventRecord(struct tow_serve *call)
{
    CUevent event = tow_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    CUstream stream = tow_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    bool noted = tow_dec_left(&call->in) > 0;
    if (tow_serve_ready(call)) {
        call->status = call->driver->cuEventRecord(event, stream);
    }
    if (noted) {
        tow_share_note(call, stream);
    }
}

void tow_serve_cuEventElapsedTime_v2(struct tow_serve *call)
{
    CUevent start = tow_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    CUevent end = tow_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    float milliseconds = 0;
    if (!tow_serve_ready(call)) {
        return;
    }
    call->status = call->driver->cuEventElapsedTime_v2(&milliseconds, start, end);
    if (call->status == CUDA_ERROR_NOT_SUPPORTED) {
        /* Drivers before 12.8 have only the first version. */
        call->status = call->driver->cuEventElapsedTime(&milliseconds, start, end);
    }
    if (call->status == CUDA_SUCCESS) {
        tow_enc_f32(&call->out, milliseconds);
    }
}
