/* SPDX-License-Identifier: Apache-2.0 */
/* Events: recording, asking, waiting and timing, with as few replies as CUDA's rules allow. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/link/call.h"
#include "client/session/handle.h"
#include "client/stream/capture.h"
#include "client/link/link.h"
#include "client/stream/stream.h"
#include "client/completion/completion.h"
#include "gen/context_client.h"
#include "gen/event_client.h"
#include "gen/green_client.h"

/* Process-wide: objects that no handle names; any context takes them. */
static struct {
    struct tow_mutex lock; /* guards the list */
    struct towc_event *list;
} free_events = {.lock = TOW_MUTEX(CLIENT_EVENTS_FREE)};

/* Process-wide: events opened from other processes name no context. Once true, everything is asked
 * for or waited for, which is right everywhere. */
static atomic_bool elsewhere;     /* not all records are seen here */
static atomic_bool shared_graphs; /* graphs use events that other processes know */

/* Of `recorded`: it cannot be told from here. */
#define UNKNOWN UINT64_MAX

/* An event that was recorded so often without being looked at gets no more marks. */
#define UNSEEN_MAX 16

struct towc_event *towc_event_find(CUevent event)
{
    struct towc_event *e = towc_handle_object(TOW_H_EVENT, (uint64_t)(uintptr_t)event);
    if (e != NULL && e->epoch != atomic_load_explicit(&e->context->epoch, memory_order_relaxed)) {
        return NULL; /* went with its context */
    }
    return e;
}

/* Whether other processes know it. */
static bool is_shared(CUevent event)
{
    const struct towc_event *e = towc_event_find(event);
    return e != NULL ? (e->flags & CU_EVENT_INTERPROCESS) != 0
                     : TOW_ID_OF_SERVER((uint64_t)(uintptr_t)event);
}

void towc_event_in_graph(CUevent event)
{
    if (is_shared(event)) {
        atomic_store(&shared_graphs, true);
    }
}

bool towc_event_graphs_wait(void)
{
    return atomic_load_explicit(&shared_graphs, memory_order_relaxed);
}

void towc_event_elsewhere(CUevent event)
{
    atomic_store(&elsewhere, true);
    towc_event_in_graph(event);
}

/* For every call on an event. Events that a server made (opened from another process) have no
 * object. */
static CUresult event_check(CUevent event)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    uint64_t id = (uint64_t)(uintptr_t)event;
    if (TOW_ID_OF_SERVER(id) ? towc_handle_valid(TOW_H_EVENT, id)
                             : towc_event_find(event) != NULL) {
        return CUDA_SUCCESS;
    }
    return towc_handle_missing(TOW_H_EVENT, id);
}

static bool event_visit(CUevent event)
{
    const struct towc_event *e = towc_event_find(event);
    return e != NULL && towc_context_visit(e->context);
}

/* Objects are used again, never freed: another thread may be looking at one that was just
 * destroyed. */
static void put_back(struct towc_event *e)
{
    tow_mutex_lock(&free_events.lock);
    e->next_free = free_events.list;
    free_events.list = e;
    tow_mutex_unlock(&free_events.lock);
}

static void event_retire(CUevent event)
{
    struct towc_event *e = towc_handle_retire((uint64_t)(uintptr_t)event);
    if (e != NULL) {
        put_back(e);
    }
}

CUresult towc_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (phEvent == NULL || (Flags & ~known) != 0 ||
        ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = towc_context_current();
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    tow_mutex_lock(&free_events.lock);
    struct towc_event *e = free_events.list;
    if (e != NULL) {
        free_events.list = e->next_free;
    }
    tow_mutex_unlock(&free_events.lock);
    if (e == NULL) {
        e = calloc(1, sizeof *e);
        if (e == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        tow_mutex_init(&e->completion.lock, CLIENT_EVENT);
    }
    e->context = context;
    e->epoch = atomic_load(&context->epoch);
    e->flags = Flags;
    tow_mutex_lock(&e->completion.lock);
    e->records++;
    e->recorded = 0;
    towc_completion_await(&e->completion, 0);
    e->watched = false;
    tow_mutex_unlock(&e->completion.lock);
    if ((Flags & CU_EVENT_INTERPROCESS) != 0) {
        atomic_store(&elsewhere, true);
    }
    uint64_t id = 0;
    CUresult status = towc_handle_mint_object(TOW_H_EVENT, e, &id);
    if (status != CUDA_SUCCESS) {
        put_back(e);
        return status;
    }
    CUevent event = (CUevent)(uintptr_t)id;
    status = towc_send_cuEventCreate(event, Flags);
    if (status != CUDA_SUCCESS) {
        event_retire(event);
        return status;
    }
    *phEvent = event;
    return CUDA_SUCCESS;
}

CUresult towc_cuEventDestroy_v2(CUevent hEvent)
{
    if (hEvent == NULL) {
        return CUDA_ERROR_INVALID_HANDLE; /* before cuInit, too */
    }
    CUresult status = towc_client_state();
    if (status != CUDA_SUCCESS) {
        return status; /* a forked child takes no lock: a thread of its parent may have held it */
    }
    status = event_check(hEvent);
    if (status != CUDA_SUCCESS) {
        event_retire(hEvent); /* one whose context is gone */
        return status;
    }
    bool visited = event_visit(hEvent);
    status = towc_send_cuEventDestroy_v2(hEvent);
    towc_context_back(visited);
    if (status == CUDA_SUCCESS) {
        event_retire(hEvent);
    }
    return status;
}

/* True if its last record is known to be done. */
static bool is_done(struct towc_event *e)
{
    const struct towc_context *context = e->context;
    tow_mutex_lock(&e->completion.lock);
    uint64_t recorded = e->recorded;
    const struct towc_stream *s = e->stream;
    uint64_t done = atomic_load_explicit(&context->done, memory_order_acquire);
    uint64_t here = atomic_load(s == NULL ? &context->default_done : &s->done);
    if (s != NULL && atomic_load(&s->unique) != e->stream_unique) {
        here = 0; /* its stream is gone: that was another one's, or may have been */
    }
    tow_mutex_unlock(&e->completion.lock);
    return recorded <= (done > here ? done : here) &&
           atomic_load_explicit(&context->sticky, memory_order_relaxed) == 0 &&
           !atomic_load_explicit(&elsewhere, memory_order_relaxed);
}

/* Whether the answer cannot be known here. */
static bool is_murky(const struct towc_event *e)
{
    return atomic_load(&elsewhere) || atomic_load(&e->context->sticky) != 0 ||
           towc_thread_in_hostfn(); /* where asking is not permitted */
}

/* Of a watched event: what is known of its last record. False: the server is asked now. */
static bool ask_completion(struct towc_event *e, bool wait, CUresult *ret_status)
{
    struct towc_link *link = e->context->link;
    tow_mutex_lock(&e->completion.lock);
    uint64_t records = e->records;
    if (!wait || towc_completion_tells_waiters(link)) {
        e->unseen = 0;
    }
    tow_mutex_unlock(&e->completion.lock);
    if (is_murky(e)) {
        return false;
    }
    enum towc_completion_outcome outcome = wait ? towc_completion_wait(&e->completion, link)
                                                : towc_completion_query(&e->completion, link, NULL);
    if (outcome == TOW_COMPLETION_DONE) {
        tow_mutex_lock(&e->completion.lock);
        if (e->records == records) {
            e->recorded = 0;
        }
        tow_mutex_unlock(&e->completion.lock);
    }
    *ret_status = outcome == TOW_COMPLETION_DONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    return outcome == TOW_COMPLETION_DONE || (outcome == TOW_COMPLETION_PENDING && !wait);
}

/* Asks whether its last record is done, and wants to hear when it is. */
static CUresult ask_and_watch(CUevent event)
{
    struct towc_event *e = towc_event_find(event);
    bool clear = false;
    if (e != NULL && (e->flags & CU_EVENT_INTERPROCESS) == 0 && !is_murky(e)) {
        tow_mutex_lock(&e->completion.lock);
        clear = e->recorded != UNKNOWN;
        tow_mutex_unlock(&e->completion.lock);
    }
    return clear ? towc_completion_ask(&e->completion, e->context->link, TOW_FN_cuEventQuery,
                                       (uint64_t)(uintptr_t)event)
                 : towc_send_cuEventQuery(event);
}

/* Calls on an event go to its server, unless its answer is known. `wait`: they wait for it. */
static CUresult event_ask(CUevent event, bool wait, CUresult (*send)(CUevent event))
{
    CUresult status = event_check(event);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_event *e = towc_event_find(event);
    if (e != NULL && is_done(e)) {
        return CUDA_SUCCESS;
    }
    if (e != NULL && ask_completion(e, wait, &status)) {
        return status;
    }
    uint64_t records = 0;
    if (e != NULL) {
        tow_mutex_lock(&e->completion.lock);
        records = e->records;
        e->watched = e->watched || !wait || towc_completion_tells_waiters(e->context->link);
        tow_mutex_unlock(&e->completion.lock);
    }
    bool visited = event_visit(event);
    status = send(event);
    towc_context_back(visited);
    if (status == CUDA_SUCCESS && e != NULL) {
        tow_mutex_lock(&e->completion.lock);
        if (e->records == records && e->recorded != UNKNOWN) {
            e->recorded = 0;
        }
        tow_mutex_unlock(&e->completion.lock);
    }
    return status;
}

/* Before the command that records it: until that was sent nobody takes it for done. Returns its
 * records so far. */
static uint64_t begin_record(CUevent event)
{
    struct towc_event *e = towc_event_find(event);
    uint64_t records = 0;
    if (e != NULL) {
        tow_mutex_lock(&e->completion.lock);
        records = ++e->records;
        e->recorded = UNKNOWN;
        towc_completion_await(&e->completion, 0);
        tow_mutex_unlock(&e->completion.lock);
    }
    return records;
}

/* Behind it. `value`: of its mark, or 0. */
static void end_record(CUevent event, CUstream stream, uint64_t begun, bool sent, uint32_t value)
{
    struct towc_event *e = towc_event_find(event);
    if (e == NULL) {
        return;
    }
    struct towc_stream *s = towc_stream_find(stream);
    bool known = sent && stream != CU_STREAM_PER_THREAD && !towc_capture_on(stream);
    tow_mutex_lock(&e->completion.lock);
    /* Of two threads that record it at the same time, who knows which is the last. */
    towc_completion_await(&e->completion, known && e->records == begun ? value : 0);
    e->records++;
    e->recorded = known ? towc_link_sent(e->context->link) : UNKNOWN;
    e->stream = s;
    e->stream_unique = s != NULL ? s->unique : 0;
    tow_mutex_unlock(&e->completion.lock);
}

CUresult towc_cuEventQuery(CUevent hEvent)
{
    CUresult unsafe = hEvent != NULL ? towc_capture_unsafe() : CUDA_ERROR_INVALID_HANDLE;
    return unsafe != CUDA_SUCCESS ? unsafe : event_ask(hEvent, false, ask_and_watch);
}

CUresult towc_cuEventSynchronize(CUevent hEvent)
{
    CUresult unsafe = hEvent != NULL ? towc_capture_unsafe() : CUDA_ERROR_INVALID_HANDLE;
    return unsafe != CUDA_SUCCESS ? unsafe : event_ask(hEvent, true, towc_send_cuEventSynchronize);
}

/* A stream and an event that meet in a record must be of one context. */
static CUresult check_record(CUevent event, CUstream stream)
{
    CUresult status = event_check(event);
    if (status != CUDA_SUCCESS) {
        bool own = (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD;
        bool nowhere = event == NULL && !own && towc_context_current() == NULL;
        return status == CUDA_ERROR_INVALID_HANDLE && nowhere ? CUDA_ERROR_INVALID_CONTEXT : status;
    }
    struct towc_context *context;
    status = towc_stream_context(stream, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_event *e = towc_event_find(event);
    return e != NULL && e->context != context ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult towc_event_flush_ipc(CUevent event, CUstream stream, CUresult status)
{
    if (status != CUDA_SUCCESS || !is_shared(event) || towc_capture_on(stream)) {
        return status; /* a capture's was waited for anyway */
    }
    status = towc_send_cuEventQuery(event);
    return status == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : status;
}

/* Whether this record is to be told of. */
static bool is_watched(struct towc_event *e)
{
    tow_mutex_lock(&e->completion.lock);
    e->watched = e->watched && e->unseen++ < UNSEEN_MAX;
    bool watched = e->watched;
    tow_mutex_unlock(&e->completion.lock);
    return watched && (e->flags & CU_EVENT_INTERPROCESS) == 0;
}

static CUresult send_record(CUevent event, CUstream stream, uint32_t *ret_value)
{
    struct towc_event *e = towc_event_find(event);
    struct towc_completion_mark mark = {0};
    bool told = e != NULL && stream != CU_STREAM_PER_THREAD && is_watched(e) &&
                towc_completion_follow(&e->completion, e->context->link, &mark);
    struct towc_call call;
    /* A capture refuses events that other processes know. */
    unsigned captured = is_shared(event) ? 0 : towc_capture_flag(stream);
    CUresult status = towc_call_begin(&call, TOW_FN_cuEventRecord, 32, TOW_CALL_CONTEXT | captured);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)event);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    if (told) {
        towc_completion_put(&call, &mark);
        *ret_value = mark.value;
    }
    return towc_call_send(&call);
}

CUresult towc_cuEventRecord(CUevent hEvent, CUstream hStream)
{
    CUresult status = check_record(hEvent, hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = event_visit(hEvent);
    uint64_t begun = begin_record(hEvent);
    uint32_t value = 0;
    status = send_record(hEvent, hStream, &value);
    end_record(hEvent, hStream, begun, status == CUDA_SUCCESS, value);
    status = towc_event_flush_ipc(hEvent, hStream, status);
    towc_context_back(visited);
    return status;
}

CUresult towc_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    if ((flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (flags == 0) {
        return towc_cuEventRecord(hEvent, hStream);
    }
    CUresult status = check_record(hEvent, hStream);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    towc_event_elsewhere(hEvent); /* launches of the graph record it */
    bool visited = event_visit(hEvent);
    uint64_t begun = begin_record(hEvent);
    status = towc_send_cuEventRecordWithFlags(hEvent, hStream, flags);
    end_record(hEvent, hStream, begun, status == CUDA_SUCCESS, 0);
    status = towc_event_flush_ipc(hEvent, hStream, status);
    towc_context_back(visited);
    return status;
}

/* No single stream's end tells of such a record: it is always asked for. */
/* The context is looked at before the event; a green one before cuInit, too. */
static CUresult check_all(unsigned fn, const void *of, CUevent event)
{
    bool green = fn == TOW_FN_cuGreenCtxRecordEvent || fn == TOW_FN_cuGreenCtxWaitEvent;
    CUresult status = green && of == NULL ? CUDA_SUCCESS : towc_client_state();
    if (status != CUDA_SUCCESS || of == NULL) {
        return status != CUDA_SUCCESS ? status : CUDA_ERROR_INVALID_CONTEXT;
    }
    return event_check(event);
}

CUresult towc_event_record_all(unsigned fn, void *of, CUevent event)
{
    CUresult status = check_all(fn, of, event);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = event_visit(event);
    uint64_t begun = begin_record(event);
    status = fn == TOW_FN_cuCtxRecordEvent ? towc_send_cuCtxRecordEvent(of, event)
                                           : towc_send_cuGreenCtxRecordEvent(of, event);
    end_record(event, NULL, begun, false, 0);
    status = towc_event_flush_ipc(event, NULL, status);
    towc_context_back(visited);
    return status;
}

CUresult towc_event_wait_all(unsigned fn, void *of, const struct towc_link *link, CUevent event)
{
    CUresult status = check_all(fn, of, event);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    const struct towc_event *e = towc_event_find(event);
    if (e != NULL && link != NULL && e->context->link != link) {
        return towc_cuEventSynchronize(event); /* as for a stream: the program waits instead */
    }
    bool visited = event_visit(event);
    status = fn == TOW_FN_cuCtxWaitEvent ? towc_send_cuCtxWaitEvent(of, event)
                                         : towc_send_cuGreenCtxWaitEvent(of, event);
    towc_capture_doubt(); /* any stream may be drawn into a capture by it */
    status = towc_event_flush_ipc(event, NULL, status);
    towc_context_back(visited);
    return status;
}

CUresult towc_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    return towc_event_record_all(TOW_FN_cuCtxRecordEvent, hCtx, hEvent);
}

CUresult towc_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    const struct towc_context *context = towc_context_find(hCtx);
    return towc_event_wait_all(TOW_FN_cuCtxWaitEvent, hCtx, context != NULL ? context->link : NULL,
                               hEvent);
}

static CUresult check_elapsed(const float *ret_milliseconds, CUevent start, CUevent end)
{
    CUresult status = event_check(start);
    if (status == CUDA_SUCCESS) {
        status = event_check(end);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (ret_milliseconds == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct towc_event *a = towc_event_find(start), *b = towc_event_find(end);
    if ((a != NULL && (a->flags & CU_EVENT_DISABLE_TIMING)) ||
        (b != NULL && (b->flags & CU_EVENT_DISABLE_TIMING)) ||
        (a != NULL && b != NULL && a->context != b->context)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    CUresult status = check_elapsed(pMilliseconds, hStart, hEnd);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = event_visit(hStart);
    status = towc_send_cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
    towc_context_back(visited);
    return status;
}

CUresult towc_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    CUresult status = check_elapsed(pMilliseconds, hStart, hEnd);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    bool visited = event_visit(hStart);
    status = towc_send_cuEventElapsedTime(pMilliseconds, hStart, hEnd);
    towc_context_back(visited);
    return status;
}
