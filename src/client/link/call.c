/* SPDX-License-Identifier: Apache-2.0 */
/* Begins, sends, awaits and ends one call; errors of a lost server are made here. */
#include "client/link/call.h"

#include <stdatomic.h>

#include "base/log.h"
#include "client/link/current.h"

CUresult towc_call_begin(struct towc_call *call, unsigned fn, size_t bytes, unsigned flags)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    const struct towc_thread *self = towc_thread_here; /* NULL: it has no context */
    if (self != NULL && self->in_hostfn) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    struct towc_context *context =
        self != NULL && self->depth > 0 ? self->stack[self->depth - 1] : NULL;
    if (context == NULL || !atomic_load_explicit(&context->alive, memory_order_relaxed)) {
        if (flags & TOW_CALL_CONTEXT) {
            return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
        }
        struct towc_link *link = context != NULL ? context->link : towc_client_link(-1);
        return link == NULL ? CUDA_ERROR_NO_DEVICE
                            : towc_call_begin_on(call, link, 0, fn, bytes, flags);
    }
    int sticky = atomic_load_explicit(&context->sticky, memory_order_relaxed);
    if (sticky != CUDA_SUCCESS && (flags & TOW_CALL_CONTEXT)) {
        return (CUresult)sticky;
    }
    return towc_call_begin_on(call, context->link, context->number, fn, bytes, flags);
}

CUresult towc_call_begin_for(struct towc_call *call, struct towc_link *link, unsigned fn,
                             size_t bytes, unsigned flags)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_context *context = towc_context_current();
    if (link == NULL || (context != NULL && context->link == link)) {
        return towc_call_begin(call, fn, bytes, flags);
    }
    if (towc_thread_in_hostfn()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (flags & TOW_CALL_CONTEXT) {
        return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_DEVICE;
    }
    return towc_call_begin_on(call, link, 0, fn, bytes, flags);
}

CUresult towc_refuse(unsigned fn)
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

void towc_per_thread_enter(void)
{
    struct towc_thread *self = towc_thread_self();
    if (self != NULL) {
        self->per_thread++;
    }
}

void towc_per_thread_leave(void)
{
    struct towc_thread *self = towc_thread_self();
    if (self != NULL) {
        self->per_thread--;
    }
}

CUstream towc_default_stream(void)
{
    struct towc_thread *self = towc_thread_self();
    return self != NULL && self->per_thread > 0 ? CU_STREAM_PER_THREAD : NULL;
}
