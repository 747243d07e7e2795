/* Memory of another session's worker. The client is told how large it is, for pointer queries. */
#include "gen/server_api.h"

void tow_serve_cuIpcOpenMemHandle_v2(struct tow_serve *call)
{
    CUipcMemHandle handle;
    tow_serve_record(call, &handle, sizeof handle);
    unsigned flags = tow_dec_u32(&call->in);
    if (!tow_serve_ready(call)) {
        return;
    }
    CUdeviceptr address = 0, base = 0;
    size_t size = 0;
    call->status = call->driver->cuIpcOpenMemHandle_v2(&address, handle, flags);
    if (call->status != CUDA_SUCCESS) {
        return;
    }
    if (call->driver->cuMemGetAddressRange_v2(&base, &size, address) == CUDA_SUCCESS) {
        size -= address - base;
    } else {
        size = 1;
    }
    tow_enc_u64(&call->out, address);
    tow_enc_u64(&call->out, size);
}
