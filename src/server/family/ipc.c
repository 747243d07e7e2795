/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and events of another session's worker. */
#include "gen/interop_server.h"
#include "server/session/session.h"

/* Whoever waits for an event that this session recorded is let go by the record alone: see
 * tows_session_run for what that means when the session ends. */
void tows_serve_cuIpcGetEventHandle(struct tows_serve *call)
{
    CUevent event = tows_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
    CUipcEventHandle handle;
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuIpcGetEventHandle)(&handle, event);
    if (call->status == CUDA_SUCCESS) {
        atomic_store(&call->session->shares_events, true);
        tow_enc_bytes(&call->out, &handle, sizeof handle);
    }
}

void tows_serve_cuIpcOpenEventHandle(struct tows_serve *call)
{
    CUipcEventHandle handle;
    tows_serve_record(call, &handle, sizeof handle);
    CUevent event = NULL;
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuIpcOpenEventHandle)(&event, handle);
    if (call->status == CUDA_SUCCESS) {
        atomic_store(&call->session->shares_events, true);
        tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_EVENT, event));
    }
}

/* The client is told how large the memory is, for pointer queries. */

void tows_serve_cuIpcOpenMemHandle_v2(struct tows_serve *call)
{
    CUipcMemHandle handle;
    tows_serve_record(call, &handle, sizeof handle);
    unsigned flags = tow_dec_u32(&call->in);
    if (!tows_serve_ready(call)) {
        return;
    }
    CUdeviceptr address = 0;
    call->status = tow_drive(call->driver, cuIpcOpenMemHandle_v2)(&address, handle, flags);
    if (call->status == CUDA_SUCCESS) {
        tows_serve_put_range(call, address);
    }
}
