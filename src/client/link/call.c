/* SPDX-License-Identifier: Apache-2.0 */
/* Begins, sends, awaits and ends one call; errors of a lost server are made here. */
#include "client/link/call.h"

#include <stdatomic.h>

#include "base/log.h"
#include "client/link/current.h"

CUresult tow_call_begin(struct tow_call *call, unsigned fn, size_t bytes, unsigned flags)
{
    CUresult state = tow_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    const struct tow_thread *self = tow_thread_here; /* NULL: it has no context */
    if (self != NULL && self->in_hostfn) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    struct tow_context *context =
        self != NULL && self->depth > 0 ? self->stack[self->depth - 1] : NULL;
    if (context == NULL || !atomic_load_explicit(&context->alive, memory_order_relaxed)) {
        if (flags & TOW_CALL_CONTEXT) {
            return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        struct tow_link *link = context != NULL ? context->link : tow_client_link(-1);
        return link == NULL ? CUDA_ERROR_NO_DEVICE
                            : tow_call_begin_on(call, link, 0, fn, bytes, flags);
    }
    int sticky = atomic_load_explicit(&context->sticky, memory_order_relaxed);
    if (sticky != CUDA_SUCCESS && (flags & TOW_CALL_CONTEXT)) {
        return (CUresult)sticky;
    }
    return tow_call_begin_on(call, context->link, context->number, fn, bytes, flags);
}

CUresult tow_call_begin_for(struct tow_call *call, struct tow_link *link, unsigned fn, size_t bytes,
                            unsigned flags)
{
    CUresult state = tow_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct tow_context *context = tow_context_current();
    if (link == NULL || (context != NULL && context->link == link)) {
        return tow_call_begin(call, fn, bytes, flags);
    }
    if (tow_thread_in_hostfn()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (flags & TOW_CALL_CONTEXT) {
        return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_DEVICE;
    }
    return tow_call_begin_on(call, link, 0, fn, bytes, flags);
}

CUresult tow_refuse(unsigned fn)
{
    /* Process-wide: one line for each function is enough. */
    static atomic_uchar said[TOW_FN_LIMIT];
    if (atomic_exchange_explicit(&said[fn], 1, memory_order_relaxed) == 0) {
        const struct tow_fn_info *info = tow_fn_info(fn);
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN, "%s is not supported; docs/api-status.md says why",
                info->name);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

void tow_per_thread_enter(void)
{
    struct tow_thread *self = tow_thread_self();
    if (self != NULL) {
        self->per_thread++;
    }
}

void tow_per_thread_leave(void)
{
    struct tow_thread *self = tow_thread_self();
    if (self != NULL) {
        self->per_thread--;
    }
}

CUstream tow_default_stream(void)
{
    struct tow_thread *self = tow_thread_self();
    return self != NULL && self->per_thread > 0 ? CU_STREAM_PER_THREAD : NULL;
}
