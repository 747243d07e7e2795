/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of memory pools: 4 or 8 bytes wide, 8 on the wire. */
#include "gen/pool_server.h"
#include "server/session/serve.h"

void tows_serve_cuMemPoolSetAttribute(struct tows_serve *call)
{
    CUmemoryPool pool = tows_serve_handle(call, TOW_H_MEMORYPOOL, tow_dec_u64(&call->in));
    uint64_t value = tow_dec_u64(&call->in);
    CUmemPool_attribute attr = (CUmemPool_attribute)tow_dec_u32(&call->in);
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuMemPoolSetAttribute)(pool, attr, &value);
    }
}

void tows_serve_cuMemPoolGetAttribute(struct tows_serve *call)
{
    CUmemoryPool pool = tows_serve_handle(call, TOW_H_MEMORYPOOL, tow_dec_u64(&call->in));
    CUmemPool_attribute attr = (CUmemPool_attribute)tow_dec_u32(&call->in);
    uint64_t value = 0;
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuMemPoolGetAttribute)(pool, attr, &value);
        tow_enc_u64(&call->out, value);
    }
}
