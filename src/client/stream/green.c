/* SPDX-License-Identifier: Apache-2.0 */
/* Green contexts: a share of a device's processors, and the context that makes it current. */
#include <stdlib.h>

#include "base/mutex.h"
#include "client/stream/context.h"
#include "client/link/device.h"
#include "client/session/handle.h"
#include "client/stream/stream.h"
#include "gen/context_client.h"
#include "gen/green_client.h"

/* Never freed: another thread may be looking at it. */
struct green {
    CUgreenCtx handle;
    CUdevice device;
    struct towc_link *link; /* borrowed */
    struct green *next;     /* in `ended` */

    struct tow_mutex lock;        /* guards the next */
    struct towc_context *context; /* shared; NULL until it was asked for */
};

/* Process-wide: any thread may still look at one. */
static struct {
    struct tow_mutex lock; /* guards the list */
    struct green *list;    /* what was destroyed, kept */
} ended = {.lock = TOW_MUTEX(CLIENT_GREEN_ENDED)};

static struct green *green_find(CUgreenCtx handle)
{
    return towc_handle_object(TOW_H_GREENCTX, (uint64_t)(uintptr_t)handle);
}

CUresult towc_cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
                               unsigned int flags)
{
    struct towc_link *link = NULL;
    CUresult status = towc_device_route(dev, &link);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (phCtx == NULL) { /* no description: all of the device, as the driver takes it */
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct green *green = calloc(1, sizeof *green);
    uint64_t id = 0;
    if (green == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    status = towc_handle_mint_object(TOW_H_GREENCTX, green, &id);
    if (status != CUDA_SUCCESS) {
        free(green);
        return status;
    }
    green->handle = (CUgreenCtx)(uintptr_t)id;
    green->device = dev;
    green->link = link;
    tow_mutex_init(&green->lock, CLIENT_GREEN);
    /* A green context keeps its device's primary context alive. */
    CUcontext primary = NULL;
    status = towc_cuDevicePrimaryCtxRetain(&primary, dev);
    if (status == CUDA_SUCCESS) {
        status = towc_send_cuGreenCtxCreate(green->handle, desc, dev, flags);
        if (status != CUDA_SUCCESS) {
            towc_cuDevicePrimaryCtxRelease_v2(dev);
        }
    }
    if (status != CUDA_SUCCESS) {
        towc_handle_retire(id);
        tow_mutex_fini(&green->lock);
        free(green);
        return status;
    }
    *phCtx = green->handle;
    return CUDA_SUCCESS;
}

/* With the green context's lock held. */
static CUresult make_context(struct green *green)
{
    struct towc_context *context = towc_context_make(green->device, false);
    if (context == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct towc_call call;
    CUresult status =
        towc_call_begin_on(&call, green->link, 0, TOW_FN_cuCtxFromGreenCtx, 16, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)context->handle);
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)green->handle);
        status = towc_call_wait(&call);
        if (status == CUDA_SUCCESS) {
            towc_context_take_facts(context, &call.dec);
        }
        status = towc_call_end(&call, status);
    }
    if (status != CUDA_SUCCESS) {
        towc_context_discard(context);
        return status;
    }
    context->green = green->handle;
    atomic_fetch_add(&context->link->work.contexts, 1);
    atomic_store(&context->alive, true);
    green->context = context;
    return CUDA_SUCCESS;
}

static CUresult context_of(CUgreenCtx handle, struct towc_context **ret_context)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct green *green = green_find(handle);
    if (green == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    tow_mutex_lock(&green->lock);
    CUresult status = green->context == NULL ? make_context(green) : CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) {
        *ret_context = green->context;
    }
    tow_mutex_unlock(&green->lock);
    return status;
}

CUresult towc_cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    struct towc_context *context;
    if (pContext == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = context_of(hCtx, &context);
    if (status == CUDA_SUCCESS) {
        *pContext = context->handle;
    }
    return status;
}

CUresult towc_cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct green *green = green_find(hCtx);
    if (green == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (towc_handle_retire((uint64_t)(uintptr_t)hCtx) != green) {
        return CUDA_ERROR_INVALID_CONTEXT; /* another thread was faster */
    }
    tow_mutex_lock(&ended.lock);
    green->next = ended.list;
    ended.list = green;
    tow_mutex_unlock(&ended.lock);
    tow_mutex_lock(&green->lock);
    struct towc_context *context = green->context;
    tow_mutex_unlock(&green->lock);
    if (context != NULL) {
        /* The handle stays: the driver lets it become current still, though nothing works there. */
        towc_context_end(context);
    }
    struct towc_call call;
    CUresult status =
        towc_call_begin_on(&call, green->link, 0, TOW_FN_cuGreenCtxDestroy, 16, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)hCtx);
        tow_enc_u64(&call.enc, context != NULL ? (uint64_t)(uintptr_t)context->handle : 0);
        status = towc_call_end(&call, towc_call_wait(&call));
        towc_cuDevicePrimaryCtxRelease_v2(green->device);
    }
    if (context != NULL) {
        towc_context_ended(context);
    }
    return status;
}

CUresult towc_cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
                                     int priority)
{
    struct towc_context *context;
    if (phStream == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = context_of(greenCtx, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    CUstream stream = NULL;
    status = towc_stream_mint(context, flags, priority, &stream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    status = towc_send_cuGreenCtxStreamCreate(stream, greenCtx, flags, priority);
    if (status != CUDA_SUCCESS) {
        towc_stream_retire(stream);
        return status;
    }
    *phStream = stream;
    return CUDA_SUCCESS;
}

CUresult towc_cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    return towc_event_record_all(TOW_FN_cuGreenCtxRecordEvent, hCtx, hEvent);
}

CUresult towc_cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    const struct green *green = green_find(hCtx);
    return towc_event_wait_all(TOW_FN_cuGreenCtxWaitEvent, hCtx, green != NULL ? green->link : NULL,
                               hEvent);
}
