#include <pthread.h>
#include <stdlib.h>

#include "client/call.h"
#include "client/handle.h"
#include "client/graph.h"
#include "client/stream.h"
#include "gen/client_api.h"

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next */
static struct tow_event *free_events;

struct tow_event *tow_event_find(CUevent event)
{
    struct tow_event *e = tow_handle_object(TOW_H_EVENT, (uint64_t)(uintptr_t)event);
    if (e != NULL && e->epoch != atomic_load_explicit(&e->context->epoch, memory_order_relaxed)) {
        return NULL; /* went with its context */
    }
    return e;
}

/* For every call on an event. Events that a server made (opened from another process) have no
 * object. */
static CUresult check(CUevent event)
{
    CUresult state = tow_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    uint64_t id = (uint64_t)(uintptr_t)event;
    if (TOW_ID_OF_SERVER(id) ? tow_handle_valid(TOW_H_EVENT, id) : tow_event_find(event) != NULL) {
        return CUDA_SUCCESS;
    }
    return tow_handle_missing(TOW_H_EVENT, id);
}

static bool visit(CUevent event)
{
    const struct tow_event *e = tow_event_find(event);
    return e != NULL && tow_context_visit(e->context);
}

/* Objects are used again, never freed: another thread may be looking at one that was just
 * destroyed. */
static void put_back(struct tow_event *e)
{
    pthread_mutex_lock(&free_lock);
    e->next_free = free_events;
    free_events = e;
    pthread_mutex_unlock(&free_lock);
}

static void retire(CUevent event)
{
    struct tow_event *e = tow_handle_retire((uint64_t)(uintptr_t)event);
    if (e != NULL) {
        put_back(e);
    }
}

CUresult tow_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    CUresult state = tow_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (phEvent == NULL || (Flags & ~known) != 0 ||
        ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_context *context = tow_context_current();
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    pthread_mutex_lock(&free_lock);
    struct tow_event *e = free_events;
    if (e != NULL) {
        free_events = e->next_free;
    }
    pthread_mutex_unlock(&free_lock);
    if (e == NULL) {
        e = calloc(1, sizeof *e);
        if (e == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    e->context = context;
    e->epoch = atomic_load(&context->epoch);
    e->flags = Flags;
    uint64_t id = 0;
    CUresult status = tow_handle_mint_object(TOW_H_EVENT, e, &id);
    if (status != CUDA_SUCCESS) {
        put_back(e);
        return status;
    }
    CUevent event = (CUevent)(uintptr_t)id;
    status = tow_send_cuEventCreate(event, Flags);
    if (status != CUDA_SUCCESS) {
        retire(event);
        return status;
    }
    *phEvent = event;
    return CUDA_SUCCESS;
}

CUresult tow_cuEventDestroy_v2(CUevent hEvent)
{
    CUresult status = tow_client_state();
    if (status != CUDA_SUCCESS) {
        return status; /* a forked child takes no lock: a thread of its parent may have held it */
    }
    status = check(hEvent);
    if (status != CUDA_SUCCESS) {
        retire(hEvent); /* one whose context is gone */
        return status;
    }
    bool visited = visit(hEvent);
    status = tow_send_cuEventDestroy_v2(hEvent);
    tow_context_back(visited);
    if (status == CUDA_SUCCESS) {
        retire(hEvent);
    }
    return status;
}

CUresult tow_cuEventDestroy(CUevent hEvent)
{
    return tow_cuEventDestroy_v2(hEvent);
}

/* Calls on an event go to its server. */
static CUresult ask(CUevent event, CUresult (*send)(CUevent event))
{
    CUresult status = check(event);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = visit(event);
    status = send(event);
    tow_context_back(visited);
    return status;
}

CUresult tow_cuEventQuery(CUevent hEvent)
{
    CUresult unsafe = tow_capture_unsafe();
    return unsafe != CUDA_SUCCESS ? unsafe : ask(hEvent, tow_send_cuEventQuery);
}

CUresult tow_cuEventSynchronize(CUevent hEvent)
{
    CUresult unsafe = tow_capture_unsafe();
    return unsafe != CUDA_SUCCESS ? unsafe : ask(hEvent, tow_send_cuEventSynchronize);
}

/* A stream and an event that meet in a record must be of one context. */
static CUresult check_record(CUevent event, CUstream stream)
{
    CUresult status = check(event);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_context *context;
    status = tow_stream_context(stream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_event *e = tow_event_find(event);
    return e != NULL && e->context != context ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult tow_cuEventRecord(CUevent hEvent, CUstream hStream)
{
    CUresult status = check_record(hEvent, hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = visit(hEvent);
    status = tow_send_cuEventRecord(hEvent, hStream);
    tow_context_back(visited);
    return status;
}

CUresult tow_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    if ((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = check_record(hEvent, hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = visit(hEvent);
    status = tow_send_cuEventRecordWithFlags(hEvent, hStream, flags);
    tow_context_back(visited);
    return status;
}

static CUresult check_elapsed(const float *ret_milliseconds, CUevent start, CUevent end)
{
    CUresult status = check(start);
    if (status == CUDA_SUCCESS) {
        status = check(end);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (ret_milliseconds == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct tow_event *a = tow_event_find(start), *b = tow_event_find(end);
    if ((a != NULL && (a->flags & CU_EVENT_DISABLE_TIMING)) ||
        (b != NULL && (b->flags & CU_EVENT_DISABLE_TIMING)) ||
        (a != NULL && b != NULL && a->context != b->context)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_SUCCESS;
}

CUresult tow_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    CUresult status = check_elapsed(pMilliseconds, hStart, hEnd);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = visit(hStart);
    status = tow_send_cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
    tow_context_back(visited);
    return status;
}

CUresult tow_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    CUresult status = check_elapsed(pMilliseconds, hStart, hEnd);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = visit(hStart);
    status = tow_send_cuEventElapsedTime(pMilliseconds, hStart, hEnd);
    tow_context_back(visited);
    return status;
}
