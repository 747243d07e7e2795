/* SPDX-License-Identifier: Apache-2.0 */
/* Events: moments in streams, and the time between them. */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/mark.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/stream/event.h"
#include "gen/context.h"
#include "gen/event.h"
#include "gen/stream.h"

#include <stdlib.h>

void tow_soft_event_end(struct tow_soft_object *object)
{
    struct tow_soft_event *event = (struct tow_soft_event *)object;
    tow_soft_object_remove(&event->object);
    tow_soft_mark_unref(event->mark);
    tow_soft_board_unref(event->board);
    free(event->capture_deps);
    free(event);
}

static CUresult enter_event(CUevent handle, struct tow_soft_ctx **ret_ctx,
                            struct tow_soft_event **ret_event)
{
    CUresult result = tow_soft_enter(ret_ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_event = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(handle));
    return *ret_event != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult soft_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    if (phEvent == NULL || (Flags & ~known) != 0 ||
        ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING))) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_event *event = calloc(1, sizeof *event);
    if (event == NULL || tow_soft_object_add(&event->object, TOW_SOFT_EVENT, ctx) != 0) {
        free(event);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    event->flags = Flags;
    *phEvent = TOW_SOFT_POINTER(event->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuEventDestroy(CUevent hEvent)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_event *event;
    CUresult result = enter_event(hEvent, &ctx, &event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    tow_soft_event_end(&event->object);
    return tow_soft_leave(CUDA_SUCCESS);
}

CUresult tow_soft_event_renew(struct tow_soft_event *event, struct tow_soft_mark *mark)
{
    CUresult result = event->board != NULL ? tow_soft_board_post(event->board, mark) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        tow_soft_mark_unref(event->mark);
        event->mark = tow_soft_mark_ref(mark);
        event->capture_id = 0;
    }
    return result;
}

static CUresult event_record(struct tow_soft_event *event, struct tow_soft_stream *stream,
                             bool external)
{
    bool captured = false;
    CUresult result = tow_soft_capture_record(stream, event, external, &captured);
    if (result != CUDA_SUCCESS || captured) {
        return result;
    }
    bool timing = (event->flags & CU_EVENT_DISABLE_TIMING) == 0;
    struct tow_soft_mark *mark = tow_soft_mark_create(stream->object.ctx, timing);
    if (mark == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = tow_soft_event_renew(event, mark);
    if (result != CUDA_SUCCESS) {
        tow_soft_mark_unref(mark);
        return result;
    }
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_RECORD,
                                 .event = {.mark = mark, .event = event->object.handle}};
    result = tow_soft_submit(stream, &work);
    if (result != CUDA_SUCCESS && event->mark != NULL) {
        tow_soft_mark_finish(event->mark); /* nobody else will, and somebody may wait for it */
    }
    return result;
}

CUresult tow_soft_event_record(struct tow_soft_event *event, struct tow_soft_stream *stream)
{
    return event_record(event, stream, false);
}

static CUresult soft_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_event *event;
    CUresult result = enter_event(hEvent, &ctx, &event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result == CUDA_SUCCESS && (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) != 0) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS && stream->object.ctx != event->object.ctx) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    if (result == CUDA_SUCCESS) {
        result = event_record(event, stream, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return soft_cuEventRecordWithFlags(hEvent, hStream, 0);
}

/* The host wants to know of it. */
static CUresult event_asked(struct tow_soft_event *event)
{
    CUresult result = tow_soft_capture_asked(event);
    return result == CUDA_SUCCESS ? tow_soft_event_refresh(event) : result;
}

static CUresult soft_cuEventQuery(CUevent hEvent)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_event *event;
    CUresult result = enter_event(hEvent, &ctx, &event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = event_asked(event);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    if (event->mark != NULL && !tow_soft_mark_done(event->mark)) {
        tow_soft_engine_kick();
        result = tow_soft_mark_done(event->mark) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuEventSynchronize(CUevent hEvent)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_event *event;
    CUresult result = enter_event(hEvent, &ctx, &event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = event_asked(event);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    uint64_t handle = event->object.ctx->object.handle;
    if (event->mark != NULL) {
        result = tow_soft_mark_wait(event->mark);
    }
    return tow_soft_leave_printed(handle, result);
}

static CUresult soft_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_event *start, *end;
    CUresult result = enter_event(hStart, &ctx, &start);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    end = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(hEnd));
    if (end == NULL || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING ||
        start->mark == NULL || end->mark == NULL || start->object.ctx != end->object.ctx) {
        return tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (pMilliseconds == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    if (!start->mark->done || !end->mark->done) {
        return tow_soft_leave(CUDA_ERROR_NOT_READY);
    }
    *pMilliseconds = (float)((double)(end->mark->time_ns - start->mark->time_ns) / 1e6);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_event *event;
    CUresult result = enter_event(hEvent, &ctx, &event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result == CUDA_SUCCESS && (Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) != 0) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    bool captured = false;
    if (result == CUDA_SUCCESS) {
        result = tow_soft_event_refresh(event);
    }
    if (result == CUDA_SUCCESS) {
        result =
            tow_soft_capture_wait(stream, event, (Flags & CU_EVENT_WAIT_EXTERNAL) != 0, &captured);
    }
    if (result != CUDA_SUCCESS || captured || event->mark == NULL ||
        tow_soft_mark_done(event->mark)) {
        return tow_soft_leave(result);
    }
    struct tow_soft_work work = {
        .kind = TOW_SOFT_WORK_WAIT,
        .event = {.mark = tow_soft_mark_ref(event->mark), .event = event->object.handle}};
    return tow_soft_leave(tow_soft_submit(stream, &work));
}

/* ---- events of whole contexts ---- */

static CUresult event_submit(struct tow_soft_stream *stream, enum tow_soft_work_kind kind,
                             struct tow_soft_mark *mark)
{
    struct tow_soft_work work = {.kind = kind, .event = {.mark = tow_soft_mark_ref(mark)}};
    return tow_soft_submit(stream, &work);
}

/* Calls it for each stream of the context but the meeting. By handles: submitting gives up the
 * lock, and streams come and go. */
static CUresult each_stream(struct tow_soft_ctx *ctx,
                            CUresult (*call)(struct tow_soft_stream *stream,
                                             struct tow_soft_mark *mark),
                            struct tow_soft_mark *mark)
{
    size_t count = 0;
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        count += s->object.ctx == ctx && s != ctx->meeting;
    }
    uint64_t *handles = calloc(count + 1, sizeof *handles);
    if (handles == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    count = 0;
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        if (s->object.ctx == ctx && s != ctx->meeting) {
            handles[count++] = s->object.handle;
        }
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct tow_soft_stream *stream = tow_soft_lookup(TOW_SOFT_STREAM, handles[i]);
        result = stream != NULL ? call(stream, mark) : CUDA_SUCCESS;
    }
    free(handles);
    return result;
}

/* The meeting waits for what the stream holds now. */
static CUresult event_meet(struct tow_soft_stream *stream, struct tow_soft_mark *unused)
{
    (void)unused;
    struct tow_soft_ctx *ctx = stream->object.ctx;
    if (tow_soft_stream_idle(stream)) {
        return CUDA_SUCCESS;
    }
    struct tow_soft_mark *mark = tow_soft_mark_create(ctx, false);
    if (mark == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = event_submit(stream, TOW_SOFT_WORK_RECORD, mark);
    if (result == CUDA_SUCCESS) {
        result = event_submit(ctx->meeting, TOW_SOFT_WORK_WAIT, mark);
    }
    tow_soft_mark_unref(mark);
    return result;
}

static CUresult wait_for(struct tow_soft_stream *stream, struct tow_soft_mark *mark)
{
    return event_submit(stream, TOW_SOFT_WORK_WAIT, mark);
}

/* Whether the context's streams can all be waited for or made to wait; makes the meeting. */
static CUresult meeting_make(struct tow_soft_ctx *ctx)
{
    if (!ctx->alive || ctx->error != CUDA_SUCCESS) {
        return ctx->alive ? ctx->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    CUresult result = tow_soft_capture_forbid_all(ctx);
    if (result == CUDA_SUCCESS && ctx->meeting == NULL) {
        ctx->meeting = tow_soft_stream_create(ctx, CU_STREAM_NON_BLOCKING, 0);
        result = ctx->meeting != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* Submitting gives up the lock: the context must not go meanwhile. */
static CUresult event_unpin(struct tow_soft_ctx *ctx, CUresult result)
{
    if (--ctx->pins == 0 && ctx->dying) {
        pthread_cond_broadcast(&tow_soft.changed);
    }
    return result;
}

CUresult tow_soft_event_record_all(CUevent handle, struct tow_soft_ctx *ctx)
{
    struct tow_soft_event *event = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(handle));
    if (event == NULL || event->object.ctx->device != ctx->device) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = meeting_make(ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ctx->pins++;
    result = each_stream(ctx, event_meet, NULL);
    event = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(handle));
    if (result == CUDA_SUCCESS && event != NULL) {
        result = event_record(event, ctx->meeting, false);
    }
    return event_unpin(ctx, result);
}

CUresult tow_soft_event_wait_all(CUevent handle, struct tow_soft_ctx *ctx)
{
    struct tow_soft_event *event = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(handle));
    if (event == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result =
        event->capture_id != 0 ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : meeting_make(ctx);
    if (result == CUDA_SUCCESS) {
        result = tow_soft_event_refresh(event);
    }
    if (result != CUDA_SUCCESS || event->mark == NULL || tow_soft_mark_done(event->mark)) {
        return result;
    }
    /* One mark behind this wait and those before it. */
    struct tow_soft_mark *mark = tow_soft_mark_create(ctx, false);
    if (mark == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ctx->pins++;
    tow_soft_mark_unref(ctx->barrier);
    ctx->barrier = tow_soft_mark_ref(mark);
    result = event_submit(ctx->meeting, TOW_SOFT_WORK_WAIT, event->mark);
    if (result == CUDA_SUCCESS) {
        result = event_submit(ctx->meeting, TOW_SOFT_WORK_RECORD, mark);
    }
    if (result == CUDA_SUCCESS) {
        result = each_stream(ctx, wait_for, mark);
    }
    mark->done |= result != CUDA_SUCCESS; /* new streams wait for nothing that never comes */
    tow_soft_mark_unref(mark);
    return event_unpin(ctx, result);
}

static CUresult soft_cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_ctx *ctx = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(hCtx));
    struct tow_soft_event *event = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(hEvent));
    if (ctx == NULL || event == NULL || event->object.ctx != ctx) {
        return tow_soft_leave(ctx == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE);
    }
    return tow_soft_leave(tow_soft_event_record_all(hEvent, ctx));
}

static CUresult soft_cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_ctx *ctx = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(hCtx));
    return tow_soft_leave(ctx == NULL ? CUDA_ERROR_INVALID_CONTEXT
                                      : tow_soft_event_wait_all(hEvent, ctx));
}

void tow_soft_fill_event(struct tow_driver *driver)
{
    tow_driver_set(driver, cuCtxRecordEvent, soft_cuCtxRecordEvent);
    tow_driver_set(driver, cuCtxWaitEvent, soft_cuCtxWaitEvent);
    tow_driver_set(driver, cuEventCreate, soft_cuEventCreate);
    tow_driver_set(driver, cuEventDestroy, soft_cuEventDestroy);
    tow_driver_set(driver, cuEventDestroy_v2, soft_cuEventDestroy);
    tow_driver_set(driver, cuEventRecord, soft_cuEventRecord);
    tow_driver_set(driver, cuEventRecordWithFlags, soft_cuEventRecordWithFlags);
    tow_driver_set(driver, cuEventQuery, soft_cuEventQuery);
    tow_driver_set(driver, cuEventSynchronize, soft_cuEventSynchronize);
    tow_driver_set(driver, cuEventElapsedTime, soft_cuEventElapsedTime);
    tow_driver_set(driver, cuEventElapsedTime_v2, soft_cuEventElapsedTime);
    tow_driver_set(driver, cuStreamWaitEvent, soft_cuStreamWaitEvent);
}
