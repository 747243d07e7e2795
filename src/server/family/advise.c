/* SPDX-License-Identifier: Apache-2.0 */
/* What was said of managed memory: a value whose size the question gives. */
#include "gen/memory_server.h"
#include "server/session/serve.h"

enum { VALUE_MAX = 4096 }; /* as much as the client asks for */

void tows_serve_cuMemRangeGetAttribute(struct tows_serve *call)
{
    uint64_t address = tow_dec_u64(&call->in);
    uint64_t count = tow_dec_u64(&call->in);
    uint32_t size = tow_dec_u32(&call->in);
    CUmem_range_attribute attribute = (CUmem_range_attribute)tow_dec_u32(&call->in);
    if (size == 0 || size > VALUE_MAX) {
        call->malformed = true;
    }
    if (!tows_serve_ready(call)) {
        return;
    }
    void *value = tows_serve_room(call, size, 1);
    if (value == NULL) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY;
        return;
    }
    call->status = tow_drive(call->driver, cuMemRangeGetAttribute)(value, size, attribute,
                                                                   (CUdeviceptr)address, count);
    if (call->status == CUDA_SUCCESS) {
        tows_serve_reserve(call, size + 8);
        tow_enc_bytes(&call->out, value, size);
        tow_enc_align(&call->out, 8);
    }
}
