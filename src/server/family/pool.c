/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of memory pools: 4 or 8 bytes wide, 8 on the wire. */
#include "gen/pool_server.h"
#include "server/session/serve.h"

void tow_serve_cuMemPoolSetAttribute(struct tow_serve *call)
{
    CUmemoryPool pool = tow_serve_handle(call, TOW_H_MEMORYPOOL, tow_dec_u64(&call->in));
    uint64_t value = tow_dec_u64(&call->in);
    CUmemPool_attribute attr = (CUmemPool_attribute)tow_dec_u32(&call->in);
    if (tow_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuMemPoolSetAttribute)(pool, attr, &value);
    }
}

void tow_serve_cuMemPoolGetAttribute(struct tow_serve *call)
{
    CUmemoryPool pool = tow_serve_handle(call, TOW_H_MEMORYPOOL, tow_dec_u64(&call->in));
    CUmemPool_attribute attr = (CUmemPool_attribute)tow_dec_u32(&call->in);
    uint64_t value = 0;
    if (tow_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuMemPoolGetAttribute)(pool, attr, &value);
        tow_enc_u64(&call->out, value);
    }
}
