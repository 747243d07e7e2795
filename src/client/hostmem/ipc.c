/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of another program of the same server. The server makes the handle: it works between
 * programs of one user on the server's machine, of one address, or of one user of tokens. */
#include "client/stream/context.h"
#include "client/hostmem/region.h"
#include "gen/interop_client.h"

static void count_up(struct towc_region *region, void *user)
{
    (void)user;
    region->flags++;
}

/* An opened region's flags count how often it was opened. */
static CUresult ipc_keep(CUdeviceptr address, size_t size)
{
    struct towc_region region;
    if (towc_region_find(address, &region) && region.kind == TOW_REGION_IPC &&
        region.base == address) {
        towc_region_edit(address, count_up, NULL);
        return CUDA_SUCCESS;
    }
    region = towc_region_here(address, size, TOW_REGION_IPC, 1);
    return towc_region_add(&region) < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult towc_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    return pHandle == NULL ? CUDA_ERROR_INVALID_VALUE : towc_send_cuIpcGetMemHandle(pHandle, dptr);
}

CUresult towc_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    if (pdptr == NULL || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_call call;
    CUresult status = towc_call_begin(&call, TOW_FN_cuIpcOpenMemHandle_v2, sizeof handle + 8,
                                      TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_bytes(&call.enc, &handle, sizeof handle);
    tow_enc_u32(&call.enc, Flags);
    status = towc_call_wait(&call);
    uint64_t address = 0, size = 0;
    if (status == CUDA_SUCCESS) {
        address = tow_dec_u64(&call.dec);
        size = tow_dec_u64(&call.dec);
    }
    status = towc_call_end(&call, status);
    if (status == CUDA_SUCCESS) {
        status = ipc_keep(address, size);
        if (status != CUDA_SUCCESS) {
            towc_send_cuIpcCloseMemHandle(address);
            return status;
        }
        *pdptr = address;
    }
    return status;
}

CUresult towc_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    struct towc_region region;
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (!towc_region_remove(dptr, 1u << TOW_REGION_IPC, &region)) {
        return towc_context_current() != NULL ? CUDA_ERROR_INVALID_VALUE
                                              : CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult status = towc_send_cuIpcCloseMemHandle(dptr);
    if (status != CUDA_SUCCESS || region.flags > 1) {
        region.flags -= status == CUDA_SUCCESS;
        towc_region_add(&region);
    }
    return status;
}
