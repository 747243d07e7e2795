/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: creation, order among them, waiting and capture state. */
#include "client/stream/stream.h"

#include <stdlib.h>

#include "base/mutex.h"
#include "client/link/call.h"
#include "client/stream/context.h"
#include "client/stream/capture.h"
#include "client/session/handle.h"
#include "client/link/link.h"
#include "client/completion/completion.h"
#include "gen/context_client.h"
#include "gen/event_client.h"
#include "gen/stream_client.h"

/* Process-wide: objects that no handle names, any context takes them; ids that are never reused. */
static struct {
    struct tow_mutex lock; /* guards the list */
    struct towc_stream *list;
} free_streams = {.lock = TOW_MUTEX(CLIENT_STREAMS_FREE)};
static _Atomic uint64_t uniques;

static bool is_default(CUstream stream)
{
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}

struct towc_stream *towc_stream_find(CUstream stream)
{
    struct towc_stream *s = towc_handle_object(TOW_H_STREAM, (uint64_t)(uintptr_t)stream);
    if (s != NULL && s->epoch != atomic_load_explicit(&s->context->epoch, memory_order_relaxed)) {
        return NULL; /* went with its context */
    }
    return s;
}

CUresult towc_stream_context(CUstream stream, struct towc_context **ret_context)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (is_default(stream)) {
        *ret_context = towc_context_current();
        return *ret_context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    }
    struct towc_stream *s = towc_stream_find(stream);
    if (s == NULL) {
        return towc_handle_missing(TOW_H_STREAM, (uint64_t)(uintptr_t)stream);
    }
    *ret_context = s->context;
    return CUDA_SUCCESS;
}

CUresult towc_stream_check(CUstream stream)
{
    struct towc_context *context;
    return towc_stream_context(stream, &context);
}

CUresult towc_stream_id(struct towc_context *context, CUstream stream, uint64_t *ret_id)
{
    if (!is_default(stream)) {
        struct towc_stream *s = towc_stream_find(stream);
        if (s == NULL) {
            return towc_handle_missing(TOW_H_STREAM, (uint64_t)(uintptr_t)stream);
        }
        *ret_id = s->unique;
        return CUDA_SUCCESS;
    }
    struct towc_thread *self = towc_thread_self();
    if (context == NULL || self == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    /* Default streams: one per context, or one per context and thread. */
    *ret_id = stream == CU_STREAM_PER_THREAD
                  ? UINT64_C(1) << 62 | self->unique << 24 | (context->unique & 0xffffff)
                  : UINT64_C(1) << 61 | context->unique;
    return CUDA_SUCCESS;
}

/* ---- making and ending ---- */

/* Objects are used again, never freed: another thread may be looking at one that was just
 * destroyed. */
static void put_back(struct towc_stream *s)
{
    tow_mutex_lock(&free_streams.lock);
    s->next_free = free_streams.list;
    free_streams.list = s;
    tow_mutex_unlock(&free_streams.lock);
}

CUresult towc_stream_mint(struct towc_context *context, unsigned flags, int priority,
                          CUstream *ret_stream)
{
    tow_mutex_lock(&free_streams.lock);
    struct towc_stream *s = free_streams.list;
    if (s != NULL) {
        free_streams.list = s->next_free;
    }
    tow_mutex_unlock(&free_streams.lock);
    if (s == NULL) {
        s = calloc(1, sizeof *s);
        if (s == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        tow_mutex_init(&s->completion.lock, CLIENT_STREAM_WATCH);
        s->completion.polled = true;
    }
    s->context = context;
    s->epoch = atomic_load(&context->epoch);
    s->flags = flags;
    s->priority = priority;
    /* In this order, see is_done in event.c. */
    atomic_store(&s->unique, atomic_fetch_add(&uniques, 1) + 1);
    atomic_store(&s->done, 0);
    towc_completion_void(&s->completion);
    towc_capture_reset(s);
    uint64_t id = 0;
    CUresult status = towc_handle_mint_object(TOW_H_STREAM, s, &id);
    if (status != CUDA_SUCCESS) {
        put_back(s);
        return status;
    }
    *ret_stream = (CUstream)(uintptr_t)id;
    return CUDA_SUCCESS;
}

void towc_stream_retire(CUstream stream)
{
    struct towc_stream *s = towc_handle_retire((uint64_t)(uintptr_t)stream);
    if (s != NULL) {
        put_back(s);
    }
}

static CUresult stream_create(CUstream *phStream, unsigned flags, int priority, bool with_priority)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (phStream == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = towc_context_current();
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    /* Lower numbers are higher priorities; what is out of range is brought into it, as the driver
     * does. */
    if (priority > context->least_priority) {
        priority = context->least_priority;
    }
    if (priority < context->greatest_priority) {
        priority = context->greatest_priority;
    }
    CUstream stream = NULL;
    CUresult status = towc_stream_mint(context, flags, with_priority ? priority : 0, &stream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    status = with_priority ? towc_send_cuStreamCreateWithPriority(stream, flags, priority)
                           : towc_send_cuStreamCreate(stream, flags);
    if (status != CUDA_SUCCESS) {
        towc_stream_retire(stream);
        return status;
    }
    *phStream = stream;
    return CUDA_SUCCESS;
}

CUresult towc_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return stream_create(phStream, Flags, 0, false);
}

CUresult towc_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    return stream_create(phStream, flags, priority, true);
}

CUresult towc_cuStreamDestroy_v2(CUstream hStream)
{
    if (is_default(hStream)) {
        return CUDA_ERROR_INVALID_HANDLE; /* before cuInit, too */
    }
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_stream *s = towc_handle_object(TOW_H_STREAM, (uint64_t)(uintptr_t)hStream);
    if (s == NULL) {
        return towc_handle_missing(TOW_H_STREAM, (uint64_t)(uintptr_t)hStream);
    }
    if (towc_stream_find(hStream) == NULL) {
        towc_stream_retire(hStream);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    bool visited = towc_context_visit(s->context);
    CUresult status = towc_send_cuStreamDestroy_v2(hStream);
    towc_context_back(visited);
    if (status == CUDA_SUCCESS) {
        towc_capture_drop(hStream, 0);
        towc_stream_retire(hStream);
    }
    return status;
}

/* ---- questions that the client answers ---- */

CUresult towc_cuStreamGetPriority(CUstream hStream, int *priority)
{
    CUresult status = towc_stream_check(hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (priority == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_stream *s = towc_stream_find(hStream);
    *priority = s != NULL ? s->priority : 0;
    return CUDA_SUCCESS;
}

CUresult towc_cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    CUresult status = towc_stream_check(hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (flags == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_stream *s = towc_stream_find(hStream);
    *flags = s != NULL ? s->flags : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
}

CUresult towc_cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct towc_context *context;
    CUresult status = towc_stream_context(hStream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (streamId == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t id = 0;
    status = towc_stream_id(context, hStream, &id);
    if (status == CUDA_SUCCESS) {
        *streamId = id;
    }
    return status;
}

CUresult towc_cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    struct towc_context *context;
    CUresult status = towc_stream_context(hStream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (device == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult towc_cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct towc_context *context;
    CUresult status = towc_stream_context(hStream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pctx = context->handle;
    return CUDA_SUCCESS;
}

CUresult towc_cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    struct towc_context *context;
    CUresult status = towc_stream_context(hStream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (pCtx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* A stream is of an ordinary context or of a green one, and only that is told. */
    if (pGreenCtx != NULL) {
        *pGreenCtx = context->green;
    }
    *pCtx = context->green != NULL && pGreenCtx != NULL ? NULL : context->handle;
    return CUDA_SUCCESS;
}

/* ---- waiting ---- */

CUresult towc_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct towc_context *context;
    CUresult status = towc_stream_context(hStream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (towc_event_find(hEvent) == NULL &&
        !towc_handle_valid(TOW_H_EVENT, (uint64_t)(uintptr_t)hEvent)) {
        return towc_handle_missing(TOW_H_EVENT, (uint64_t)(uintptr_t)hEvent);
    }
    if ((Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct towc_event *event = towc_event_find(hEvent);
    if (event != NULL && event->context->link != context->link) {
        /* Servers do not know each other's events: the program waits, so that the stream need not.
         */
        return towc_capture_on(hStream) ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION
                                        : towc_cuEventSynchronize(hEvent);
    }
    if ((Flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
        towc_event_in_graph(hEvent);
    }
    bool visited = towc_context_visit(context);
    status = towc_send_cuStreamWaitEvent(hStream, hEvent, Flags);
    towc_capture_waited(hStream);
    status = towc_event_flush_ipc(hEvent, hStream, status);
    towc_context_back(visited);
    return status;
}

void towc_stream_finished(CUstream stream, struct towc_context *context, uint64_t number)
{
    struct towc_stream *s = towc_stream_find(stream);
    if (stream != CU_STREAM_PER_THREAD && (s != NULL || is_default(stream))) {
        towc_link_raise(s != NULL ? &s->done : &context->default_done, number);
        towc_link_raise(&context->stream_done, number);
    }
}

/* Calls on a stream go to its server. After a success all that was sent before is done, and what
 * this thread sent to ask. */
static CUresult stream_ask(CUstream stream, CUresult (*send)(CUstream stream))
{
    struct towc_context *context;
    CUresult status = towc_stream_context(stream, &context);
    const struct towc_thread *self = towc_thread_self();
    if (status != CUDA_SUCCESS || self == NULL) {
        return status != CUDA_SUCCESS ? status : CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t number = towc_link_sent(context->link), own = self->sent;
    bool visited = towc_context_visit(context);
    status = send(stream);
    towc_context_back(visited);
    if (status == CUDA_SUCCESS) {
        own = self->sent - own;
        /* Unless others sent something meanwhile. */
        towc_stream_finished(stream, context,
                             towc_link_sent(context->link) == number + own ? number + own : number);
    }
    return status;
}

CUresult towc_stream_ask(struct towc_link *link, CUstream stream)
{
    CUresult status = stream_ask(stream, towc_send_cuStreamSynchronize);
    if (status == CUDA_SUCCESS) {
        towc_completion_hear(link);
    }
    return status;
}

void towc_stream_told(struct towc_link *link, CUstream stream, uint64_t number, bool owing)
{
    struct towc_context *context;
    towc_completion_hear(link);
    /* What a reply would bring is not there yet: nobody may take the stream to be through. */
    if (!owing && !towc_completion_brings_more(link) &&
        towc_stream_context(stream, &context) == CUDA_SUCCESS) {
        towc_stream_finished(stream, context, number);
    }
}

/* True if the stream was seen empty, and nothing was sent since to any. */
static bool is_idle(struct towc_context *context, CUstream stream)
{
    const struct towc_stream *s = towc_stream_find(stream);
    uint64_t done = atomic_load(&context->done);
    uint64_t here = atomic_load(s != NULL ? &s->done : &context->default_done);
    return towc_link_sent(context->link) == (done > here ? done : here) &&
           atomic_load(&context->link->lost) == 0 && !towc_link_expects(context->link);
}

static CUresult stream_query(CUstream stream)
{
    struct towc_context *context;
    CUresult status = towc_stream_context(stream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_stream *s = towc_stream_find(stream);
    struct towc_link *link = context->link;
    if (stream == CU_STREAM_PER_THREAD || atomic_load(&context->sticky) != 0 ||
        !towc_completion_possible()) {
        return towc_send_cuStreamQuery(stream);
    }
    if (is_idle(context, stream)) {
        return CUDA_SUCCESS;
    }
    struct towc_completion *own = s != NULL ? &s->completion : context->default_completion;
    uint64_t number = 0;
    enum towc_completion_outcome outcome = towc_completion_query(own, link, &number);
    if (outcome == TOW_COMPLETION_PENDING) {
        return CUDA_ERROR_NOT_READY;
    }
    return outcome == TOW_COMPLETION_DONE && towc_link_sent(link) == number
               ? CUDA_SUCCESS
               : towc_completion_ask(own, link, TOW_FN_cuStreamQuery, (uint64_t)(uintptr_t)stream);
}

/* NVIDIA's driver lets a host function ask for streams and wait for them, but not the runtime,
 * which asks for the current context first. Here it may wait for a stream that is done already: for
 * another it would hold up whatever comes behind it, itself perhaps. */
static CUresult ask_in_hostfn(CUstream stream, bool wait)
{
    if (is_default(stream)) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    struct towc_context *context;
    CUresult status = towc_stream_context(stream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    towc_thread_here->in_hostfn = false; /* this thread's own calls are permitted */
    status = towc_cuCtxPushCurrent_v2(context->handle);
    if (status == CUDA_SUCCESS) {
        status = towc_send_cuStreamQuery(stream);
        towc_cuCtxPopCurrent_v2(NULL);
    }
    towc_thread_here->in_hostfn = true;
    return wait && status == CUDA_ERROR_NOT_READY ? CUDA_ERROR_NOT_PERMITTED : status;
}

CUresult towc_cuStreamQuery(CUstream hStream)
{
    if (towc_thread_in_hostfn()) {
        return ask_in_hostfn(hStream, false);
    }
    CUresult unsafe = towc_capture_unsafe();
    return unsafe != CUDA_SUCCESS ? unsafe : stream_ask(hStream, stream_query);
}

static CUresult stream_synchronize(CUstream stream)
{
    struct towc_context *context;
    CUresult status = towc_stream_context(stream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool idle = stream != CU_STREAM_PER_THREAD && atomic_load(&context->sticky) == 0 &&
                towc_completion_possible() && is_idle(context, stream);
    return towc_completion_sync_stream(context->link, stream, idle);
}

CUresult towc_cuStreamSynchronize(CUstream hStream)
{
    if (towc_thread_in_hostfn()) {
        return ask_in_hostfn(hStream, true);
    }
    CUresult unsafe = towc_capture_unsafe();
    return unsafe != CUDA_SUCCESS ? unsafe : stream_ask(hStream, stream_synchronize);
}

/* ---- managed memory ---- */

CUresult towc_cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                     unsigned int flags)
{
    struct towc_link *link;
    CUresult status = towc_context_link(&link);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    /* NVIDIA's driver does not survive other flags. */
    bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                 flags == CU_MEM_ATTACH_SINGLE;
    return known ? towc_send_cuStreamAttachMemAsync(hStream, dptr, length, flags)
                 : CUDA_ERROR_INVALID_VALUE;
}

/* ---- attributes ---- */

CUresult towc_cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream)
{
    CUresult status = towc_stream_check(dstStream);
    if (status == CUDA_SUCCESS) {
        status = towc_stream_check(srcStream);
    }
    return status == CUDA_SUCCESS ? towc_send_cuStreamCopyAttributes(dstStream, srcStream) : status;
}
