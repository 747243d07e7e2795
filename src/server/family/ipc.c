/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and events of another session's worker. The driver's handles never leave the server's
 * machine: the client gets a token in its place, and the listener gives the handle back to sessions
 * of the same peer only (server/pool/handle_registry.h). NVIDIA's driver would open it for anybody.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "gen/interop_server.h"
#include "server/session/session.h"

#define MAGIC "towlhdl1"

/* What the 64 bytes of a client's CUipcMemHandle or CUipcEventHandle are. */
struct wire_handle {
    char magic[8];
    struct tow_token token;
    uint8_t zero[40];
};
_Static_assert(sizeof(struct wire_handle) == sizeof(CUipcMemHandle), "a handle has 64 bytes");
_Static_assert(sizeof(struct wire_handle) == sizeof(CUipcEventHandle), "a handle has 64 bytes");

/* A server inside a program keeps none: its driver's handles go out as they are. */
static bool keeps_handles(const struct tows_serve *call)
{
    const struct tows_export_ops *exports = call->session->options->exports;
    return exports != NULL && exports->keep_handle != NULL;
}

/* Gives the driver's handle away and the client a token for it. */
static void ipc_give(struct tows_serve *call, enum tows_ipc_kind kind,
                     const char driver[TOW_IPC_HANDLE_SIZE])
{
    struct tows_ipc_handle handle = {.kind = kind};
    struct wire_handle wire = {.magic = MAGIC};
    memcpy(handle.bytes, driver, sizeof handle.bytes);
    if (!keeps_handles(call)) {
        tow_enc_bytes(&call->out, handle.bytes, sizeof handle.bytes);
        return;
    }
    int error = call->session->options->exports->keep_handle(&handle, &wire.token);
    if (error < 0) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "a handle of cuIpc cannot be kept: %s",
                strerror(-error));
        call->status = CUDA_ERROR_OPERATING_SYSTEM;
        return;
    }
    tow_enc_bytes(&call->out, &wire, sizeof wire);
}

/* The driver's handle for what the client gave; false with call->status set. */
static bool ipc_take(struct tows_serve *call, enum tows_ipc_kind kind,
                     char handle[TOW_IPC_HANDLE_SIZE])
{
    struct tows_ipc_handle kept;
    struct wire_handle wire;
    if (!keeps_handles(call)) {
        return true;
    }
    memcpy(&wire, handle, sizeof wire);
    if (memcmp(wire.magic, MAGIC, sizeof wire.magic) != 0) {
        call->status = CUDA_ERROR_INVALID_VALUE;
        return false;
    }
    int error = call->session->options->exports->get_handle(&wire.token, &kept);
    if (error == -ENOENT) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_INFO,
                "a handle of cuIpc was not opened: its program has ended, or is another user's, "
                "another address's or another server's");
    }
    if (error < 0) {
        call->status = error == -ENOENT ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_OPERATING_SYSTEM;
    } else if (kept.kind != kind) {
        call->status = CUDA_ERROR_INVALID_VALUE;
    } else {
        memcpy(handle, kept.bytes, sizeof kept.bytes);
    }
    return call->status == CUDA_SUCCESS;
}

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
        ipc_give(call, TOW_IPC_EVENT, handle.reserved);
    }
}

void tows_serve_cuIpcOpenEventHandle(struct tows_serve *call)
{
    CUipcEventHandle handle;
    tows_serve_record(call, &handle, sizeof handle);
    CUevent event = NULL;
    if (!tows_serve_ready(call) || !ipc_take(call, TOW_IPC_EVENT, handle.reserved)) {
        return;
    }
    call->status = tow_drive(call->driver, cuIpcOpenEventHandle)(&event, handle);
    if (call->status == CUDA_SUCCESS) {
        atomic_store(&call->session->shares_events, true);
        tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_EVENT, event));
    }
}

void tows_serve_cuIpcGetMemHandle(struct tows_serve *call)
{
    CUdeviceptr address = tow_dec_u64(&call->in);
    CUipcMemHandle handle;
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuIpcGetMemHandle)(&handle, address);
    if (call->status == CUDA_SUCCESS) {
        ipc_give(call, TOW_IPC_MEMORY, handle.reserved);
    }
}

/* The client is told how large the memory is, for pointer queries. */

void tows_serve_cuIpcOpenMemHandle_v2(struct tows_serve *call)
{
    CUipcMemHandle handle;
    tows_serve_record(call, &handle, sizeof handle);
    unsigned flags = tow_dec_u32(&call->in);
    if (!tows_serve_ready(call) || !ipc_take(call, TOW_IPC_MEMORY, handle.reserved)) {
        return;
    }
    CUdeviceptr address = 0;
    call->status = tow_drive(call->driver, cuIpcOpenMemHandle_v2)(&address, handle, flags);
    if (call->status == CUDA_SUCCESS) {
        tows_serve_put_range(call, address);
    }
}
