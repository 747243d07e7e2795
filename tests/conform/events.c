/* SPDX-License-Identifier: Apache-2.0 */
/* Events: recorded, anew, in several streams, waited for, destroyed, timed. */
#include "driver.h"

CASE(event_fresh_is_done, "an event that was never recorded counts as done")
{
    CUevent e = event_new(0);
    IS(cuEventQuery(e), CUDA_SUCCESS);
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    IS(cuEventDestroy(e), CUDA_SUCCESS);
}

CASE(event_is_not_ready_until_reached, "an event is done when its stream has reached it")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    hold(s);
    OK(cuEventRecord(e, s));
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    IS(cuEventQuery(e), CUDA_SUCCESS);
}

CASE(event_recorded_anew, "recording an event that was done makes it not ready again")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    OK(cuEventRecord(e, s));
    OK(cuEventSynchronize(e));
    IS(cuEventQuery(e), CUDA_SUCCESS);
    hold(s);
    OK(cuEventRecord(e, s));
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
}

CASE(event_last_record_counts, "of an event recorded in two streams the last record counts")
{
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING), b = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    hold(a);
    OK(cuEventRecord(e, a));
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    OK(cuEventRecord(e, b));
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(a));
}

CASE(event_does_not_wait_for_later_work,
     "an event is done though its stream is busy with later work")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    OK(cuEventRecord(e, s));
    hold(s);
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(s));
}

CASE(event_in_null_waits_for_blocking,
     "an event of the null stream comes after what blocking streams had")
{
    CUstream s = stream_new(CU_STREAM_DEFAULT);
    CUevent e = event_new(0);
    hold(s);
    OK(cuEventRecord(e, NULL));
    conform_sleep_ms(10);
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    IS(cuStreamQuery(s), CUDA_SUCCESS);
}

CASE(event_in_null_ignores_nonblocking,
     "an event of the null stream does not wait for non-blocking streams")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    hold(s);
    OK(cuEventRecord(e, NULL));
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuStreamSynchronize(s));
}

CASE(event_destroyed_while_waited_for, "an event may be destroyed while a stream waits for it")
{
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING), b = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    CUdeviceptr w = words(2);
    hold(a);
    OK(launch_set(a, w, 5));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    IS(cuEventDestroy(e), CUDA_SUCCESS);
    OK(launch_copy(b, w + 4, w));
    conform_sleep_ms(10);
    IS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(b), CUDA_SUCCESS);
    EQ(peek(w, 1), 5);
}

CASE(event_outlives_its_stream, "an event whose stream was destroyed is still waited for")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    CUdeviceptr w = words(1);
    hold(s);
    OK(launch_set(s, w, 5));
    OK(cuEventRecord(e, s));
    OK(cuStreamDestroy(s));
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(event_elapsed_between_one_and_itself, "no time passes between an event and itself")
{
    CUevent e = event_new(0);
    float ms = -1;
    OK(cuEventRecord(e, NULL));
    OK(cuEventSynchronize(e));
    IS(cuEventElapsedTime(&ms, e, e), CUDA_SUCCESS);
    EQ(ms * 1000000, 0);
}

CASE(event_elapsed_has_a_sign, "the time between events is negative when they are swapped")
{
    CUevent a = event_new(0), b = event_new(0);
    float there = 0, back = 0;
    OK(cuEventRecord(a, side));
    hold(side);
    let_go_in(5);
    OK(cuEventRecord(b, side));
    OK(cuEventSynchronize(b));
    IS(cuEventElapsedTime(&there, a, b), CUDA_SUCCESS);
    IS(cuEventElapsedTime(&back, b, a), CUDA_SUCCESS);
    TRUE(there > 1);
    TRUE(back < -1);
    TRUE(there + back < 0.001f && there + back > -0.001f);
}

CASE(event_elapsed_across_streams, "events of different streams can be timed against each other")
{
    CUevent a = event_new(0), b = event_new(0);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    float ms = -1;
    OK(cuEventRecord(a, side));
    OK(cuEventSynchronize(a));
    conform_sleep_ms(5);
    OK(cuEventRecord(b, s));
    OK(cuEventSynchronize(b));
    IS(cuEventElapsedTime(&ms, a, b), CUDA_SUCCESS);
    TRUE(ms > 1 && ms < 10000);
}

CASE(event_elapsed_counts_time_anew, "after recording anew the new time counts")
{
    CUevent a = event_new(0), b = event_new(0);
    float first = -1, second = -1;
    OK(cuEventRecord(a, side));
    OK(cuEventRecord(b, side));
    OK(cuEventSynchronize(b));
    OK(cuEventElapsedTime(&first, a, b));
    conform_sleep_ms(20);
    OK(cuEventRecord(b, side));
    OK(cuEventSynchronize(b));
    IS(cuEventElapsedTime(&second, a, b), CUDA_SUCCESS);
    TRUE(second > first + 10);
}

CASE(event_interprocess_wants_no_timing, "an event for other processes must be made without timing")
{
    CUevent e = NULL;
    IS(cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
}

CASE(event_blocking_sync_works, "an event with blocking synchronisation works as any other")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    hold(s);
    OK(cuEventRecord(e, s));
    let_go_in(20);
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    IS(cuStreamQuery(s), CUDA_SUCCESS);
}

CASE(event_external_record_wants_a_capture, "CU_EVENT_RECORD_EXTERNAL outside of a capture")
{
    CUevent e = event_new(0);
    CUstream s = stream_new(0);
    SEE_LATE(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
    IS_LATE(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_DEFAULT), CUDA_SUCCESS);
    IS(cuEventRecordWithFlags(e, s, 8), CUDA_ERROR_INVALID_VALUE);
}

CASE(event_external_wait_wants_a_capture, "CU_EVENT_WAIT_EXTERNAL outside of a capture")
{
    CUevent e = event_new(0);
    CUstream s = stream_new(0);
    OK(cuEventRecord(e, NULL));
    SEE_LATE(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL));
}

CASE(event_many_in_flight, "hundreds of events in flight each keep their own place")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    enum { COUNT = 300 };
    static CUevent e[COUNT];
    for (int i = 0; i < COUNT; i++) {
        e[i] = event_new(CU_EVENT_DISABLE_TIMING);
    }
    OK(cuEventRecord(e[0], s));
    hold(s);
    for (int i = 1; i < COUNT; i++) {
        OK(cuEventRecord(e[i], s));
    }
    IS(cuEventSynchronize(e[0]), CUDA_SUCCESS);
    int ready = 0;
    for (int i = 0; i < COUNT; i++) {
        ready += cuEventQuery(e[i]) == CUDA_SUCCESS;
    }
    EQ(ready, 1);
    let_go();
    IS(cuEventSynchronize(e[COUNT - 1]), CUDA_SUCCESS);
    ready = 0;
    for (int i = 0; i < COUNT; i++) {
        ready += cuEventQuery(e[i]) == CUDA_SUCCESS;
    }
    EQ(ready, COUNT);
}

CASE(event_timing_of_pending_record, "an event recorded anew and not reached has no time yet")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent a = event_new(0), b = event_new(0);
    float ms = -1;
    OK(cuEventRecord(a, s));
    OK(cuEventRecord(b, s));
    OK(cuEventSynchronize(b));
    hold(s);
    OK(cuEventRecord(b, s));
    IS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
    let_go();
    OK(cuEventSynchronize(b));
    IS(cuEventElapsedTime(&ms, a, b), CUDA_SUCCESS);
}

/* As gate() and open_gate(), for words that are there: a second gate() would wait for the first. */
static void gate_at(CUstream stream, CUdeviceptr word)
{
    OK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
}

CASE(event_behind_a_context, "cuCtxRecordEvent records behind the work of all streams of a context")
{
    CUdeviceptr w = words(4), first = w + 8, second = w + 12;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    gate_at(s, first);
    gate_at(t, second);
    OK(launch_set(s, w, 1));
    OK(launch_set(t, w + 4, 2));
    IS(cuCtxRecordEvent(ctx, e), CUDA_SUCCESS);
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    open_gate(first);
    OK(cuStreamSynchronize(s));
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    open_gate(second);
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    EQ(peek(w, 0), 1);
    EQ(peek(w, 1), 2);
}

CASE(event_before_a_context, "cuCtxWaitEvent makes later work of all streams of a context wait")
{
    CUdeviceptr w = words(2);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    hold(s);
    OK(launch_set(s, w, 5));
    OK(cuEventRecord(e, s));
    IS(cuCtxWaitEvent(ctx, e), CUDA_SUCCESS);
    OK(launch_copy(t, w + 4, w));
    conform_sleep_ms(10);
    IS(cuStreamQuery(t), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(t), CUDA_SUCCESS);
    EQ(peek(w, 1), 5);
}

CASE(event_before_a_new_stream, "whether a stream made after cuCtxWaitEvent waits as well")
{
    CUdeviceptr w = words(2);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    hold(s);
    OK(cuEventRecord(e, s));
    OK(cuCtxWaitEvent(ctx, e));
    CUstream t = stream_new(CU_STREAM_NON_BLOCKING);
    OK(launch_set(t, w, 5));
    conform_sleep_ms(10);
    SEE(cuStreamQuery(t));
    let_go();
    IS(cuStreamSynchronize(t), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(event_of_a_capturing_context, "a context whose stream captures has no events of its own")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(cuCtxRecordEvent(ctx, e), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SEE(cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(cuCtxWaitEvent(ctx, e), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* A green context with half of the processors, or somewhat more, and a stream of it. */
static CUgreenCtx green_new(CUstream *ret_stream)
{
    CUdevResource all, some;
    CUdevResourceDesc description = NULL;
    CUgreenCtx green = NULL;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource(dev, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&some, &groups, &all, NULL, 0, all.sm.smCount / 2));
    OK(cuDevResourceGenerateDesc(&description, &some, 1));
    OK(cuGreenCtxCreate(&green, description, dev, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuGreenCtxStreamCreate(ret_stream, green, CU_STREAM_NON_BLOCKING, 0));
    return green;
}

CASE(event_behind_a_green_context,
     "cuGreenCtxRecordEvent records behind a green context's work alone")
{
    CUstream s = NULL, other = stream_new(CU_STREAM_NON_BLOCKING);
    CUgreenCtx green = green_new(&s);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    CUdeviceptr inside = words(2), outside = inside + 4;
    gate_at(s, inside);
    gate_at(other, outside);
    IS(cuGreenCtxRecordEvent(green, e), CUDA_SUCCESS);
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    open_gate(inside);
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    IS(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    open_gate(outside);
    OK(cuStreamSynchronize(other));
    OK(cuStreamDestroy(s));
    OK(cuGreenCtxDestroy(green));
}

CASE(event_before_a_green_context, "cuGreenCtxWaitEvent makes a green context's work alone wait")
{
    CUdeviceptr w = words(2);
    CUstream s = NULL, first = stream_new(CU_STREAM_NON_BLOCKING);
    CUgreenCtx green = green_new(&s);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    CUdeviceptr word = gate(first);
    OK(cuEventRecord(e, first));
    IS(cuGreenCtxWaitEvent(green, e), CUDA_SUCCESS);
    OK(cuMemsetD32Async(w, 5, 1, s));
    conform_sleep_ms(10);
    IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 0), 0); /* the stream that looks is not in the green context */
    open_gate(word);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
    OK(cuStreamDestroy(s));
    OK(cuGreenCtxDestroy(green));
}
