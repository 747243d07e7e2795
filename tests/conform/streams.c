/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: what waits for what, flags and identities, host functions, and memory operations. */
#include "driver.h"

CASE(stream_null_waits_for_blocking,
     "work in the null stream begins after what blocking streams had")
{
    CUstream s = stream_new(CU_STREAM_DEFAULT);
    CUdeviceptr w = words(2);
    hold(s);
    OK(launch_set(s, w, 5));
    OK(launch_copy(NULL, w + 4, w));
    conform_sleep_ms(10);
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 1), 0);
    let_go();
    IS(cuStreamSynchronize(NULL), CUDA_SUCCESS);
    EQ(peek(w, 1), 5);
}

CASE(stream_blocking_waits_for_null,
     "work in a blocking stream begins after what the null stream had")
{
    CUstream s = stream_new(CU_STREAM_DEFAULT);
    CUdeviceptr w = words(2);
    hold(NULL);
    OK(launch_set(NULL, w, 5));
    OK(launch_copy(s, w + 4, w));
    conform_sleep_ms(10);
    IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 1), 5);
}

CASE(stream_nonblocking_ignores_null, "a non-blocking stream does not wait for the null stream")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    hold(NULL);
    OK(launch_set(s, w, 5));
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 0), 5);
    let_go();
    IS(cuStreamSynchronize(NULL), CUDA_SUCCESS);
}

CASE(stream_null_ignores_nonblocking, "the null stream does not wait for a non-blocking one")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    hold(s);
    OK(launch_set(NULL, w, 5));
    IS(cuStreamSynchronize(NULL), CUDA_SUCCESS);
    IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 0), 5);
    let_go();
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
}

CASE(stream_blocking_ones_are_independent, "two blocking streams do not wait for each other")
{
    CUstream a = stream_new(CU_STREAM_DEFAULT), b = stream_new(CU_STREAM_DEFAULT);
    CUdeviceptr w = words(1);
    hold(a);
    OK(launch_set(b, w, 5));
    IS(cuStreamSynchronize(b), CUDA_SUCCESS);
    IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 0), 5);
    let_go();
    OK(cuStreamSynchronize(a));
}

CASE(stream_null_orders_blocking_ones,
     "work in the null stream stands between that of two blocking ones")
{
    CUstream a = stream_new(CU_STREAM_DEFAULT), b = stream_new(CU_STREAM_DEFAULT);
    CUdeviceptr w = words(3);
    hold(a);
    OK(launch_set(a, w, 5));
    OK(launch_copy(NULL, w + 4, w));
    OK(launch_copy(b, w + 8, w + 4));
    conform_sleep_ms(10);
    IS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(b), CUDA_SUCCESS);
    EQ(peek(w, 2), 5);
}

CASE(stream_per_thread_waits_for_null,
     "the per-thread stream is a blocking one: it waits for the null stream")
{
    CUdeviceptr w = words(2);
    hold(NULL);
    OK(launch_set(NULL, w, 5));
    OK(launch_copy(CU_STREAM_PER_THREAD, w + 4, w));
    conform_sleep_ms(10);
    IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    EQ(peek(w, 1), 5);
}

CASE(stream_null_waits_for_per_thread, "the null stream waits for the per-thread stream")
{
    CUdeviceptr w = words(2);
    hold(CU_STREAM_PER_THREAD);
    OK(launch_set(CU_STREAM_PER_THREAD, w, 5));
    OK(launch_copy(NULL, w + 4, w));
    conform_sleep_ms(10);
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(NULL), CUDA_SUCCESS);
    EQ(peek(w, 1), 5);
}

static void per_thread_elsewhere(void *arg)
{
    CUdeviceptr w = *(CUdeviceptr *)arg;
    OK(launch_set(CU_STREAM_PER_THREAD, w, 5));
    IS(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
}

CASE(stream_per_thread_is_each_threads_own,
     "the per-thread streams of two threads do not wait for each other")
{
    CUdeviceptr w = words(1);
    hold(CU_STREAM_PER_THREAD);
    in_thread(per_thread_elsewhere, &w);
    IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 0), 5);
    let_go();
    IS(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
}

CASE(stream_legacy_handle_is_null, "CU_STREAM_LEGACY and NULL are one stream")
{
    CUdeviceptr w = words(2);
    hold(CU_STREAM_LEGACY);
    OK(launch_set(NULL, w, 5));
    IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    IS(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
    IS(cuStreamQuery(NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(stream_idle_while_null_is_busy,
     "an idle blocking stream is asked while the null stream is busy")
{
    CUstream s = stream_new(CU_STREAM_DEFAULT), n = stream_new(CU_STREAM_NON_BLOCKING);
    hold(NULL);
    SEE(cuStreamQuery(s));
    IS(cuStreamQuery(n), CUDA_SUCCESS);
    let_go();
    OK(cuStreamSynchronize(NULL));
    IS(cuStreamQuery(s), CUDA_SUCCESS);
}

CASE(stream_idle_null_while_blocking_is_busy,
     "the idle null stream is asked while a blocking stream is busy")
{
    CUstream s = stream_new(CU_STREAM_DEFAULT);
    hold(s);
    SEE(cuStreamQuery(NULL));
    let_go();
    OK(cuStreamSynchronize(s));
    IS(cuStreamQuery(NULL), CUDA_SUCCESS);
}

CASE(stream_copy_waits_for_blocking, "a synchronous copy to the host waits for blocking streams")
{
    CUstream s = stream_new(CU_STREAM_DEFAULT);
    CUdeviceptr w = words(1);
    int got = -1;
    hold(s);
    OK(launch_set(s, w, 5));
    let_go_in(30);
    IS(cuMemcpyDtoH(&got, w, sizeof got), CUDA_SUCCESS);
    EQ(got, 5);
}

CASE(stream_copy_ignores_nonblocking,
     "a synchronous copy to the host does not wait for non-blocking streams")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    int got = -1;
    hold(s);
    OK(launch_set(s, w, 5));
    IS(cuMemcpyDtoH(&got, w, sizeof got), CUDA_SUCCESS);
    EQ(got, 0);
    let_go();
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(stream_context_synchronize_waits_for_all,
     "cuCtxSynchronize waits for non-blocking streams, too")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    hold(s);
    OK(launch_set(s, w, 5));
    let_go_in(30);
    IS(cuCtxSynchronize(), CUDA_SUCCESS);
    IS(cuStreamQuery(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(stream_destroy_lets_work_finish,
     "destroying a busy stream returns at once and its work still runs")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    hold(s);
    OK(launch_set(s, w, 5));
    IS(cuStreamDestroy(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 0);
    let_go();
    IS(cuCtxSynchronize(), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(stream_is_in_order, "work in one stream runs in the order of its calls")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    for (int i = 1; i <= 50; i++) {
        OK(cuMemsetD32Async(w, (unsigned)i, 1, s));
        OK(launch_inc(s, w, 100));
    }
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 150);
}

CASE(stream_flags_are_kept, "cuStreamGetFlags gives what the stream was made with")
{
    unsigned flags = 99;
    OK(cuStreamGetFlags(stream_new(CU_STREAM_DEFAULT), &flags));
    EQ(flags, CU_STREAM_DEFAULT);
    OK(cuStreamGetFlags(stream_new(CU_STREAM_NON_BLOCKING), &flags));
    EQ(flags, CU_STREAM_NON_BLOCKING);
    SEE(cuStreamGetFlags(NULL, &flags));
    NUM(flags);
    SEE(cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
    NUM(flags);
}

CASE(stream_priorities_are_clamped,
     "a priority outside of the range becomes the nearest one inside")
{
    int least = 99, greatest = 99, got = 99;
    CUstream low, high, plain = stream_new(0);
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    EQ(least, 0);
    TRUE(greatest < least);
    IS(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, 100), CUDA_SUCCESS);
    IS(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, -100), CUDA_SUCCESS);
    OK(cuStreamGetPriority(low, &got));
    EQ(got, 0);
    OK(cuStreamGetPriority(high, &got));
    TRUE(got == greatest);
    OK(cuStreamGetPriority(plain, &got));
    EQ(got, 0);
    IS(cuStreamGetPriority(NULL, &got), CUDA_SUCCESS);
    EQ(got, 0);
}

CASE(stream_ids_tell_streams_apart, "cuStreamGetId is stable, and different for different streams")
{
    unsigned long long a = 0, again = 0, b = 0, null = 0, legacy = 0, own = 0;
    CUstream s = stream_new(0), t = stream_new(0);
    OK(cuStreamGetId(s, &a));
    OK(cuStreamGetId(s, &again));
    OK(cuStreamGetId(t, &b));
    TRUE(a == again);
    TRUE(a != b);
    IS(cuStreamGetId(NULL, &null), CUDA_SUCCESS);
    IS(cuStreamGetId(CU_STREAM_LEGACY, &legacy), CUDA_SUCCESS);
    IS(cuStreamGetId(CU_STREAM_PER_THREAD, &own), CUDA_SUCCESS);
    TRUE(null == legacy);
    TRUE(own != legacy);
}

CASE(stream_knows_its_context, "cuStreamGetCtx gives the context the stream was made in")
{
    CUcontext got = NULL;
    OK(cuStreamGetCtx(stream_new(0), &got));
    TRUE(got == ctx);
    got = NULL;
    IS(cuStreamGetCtx(NULL, &got), CUDA_SUCCESS);
    TRUE(got == ctx);
}

CASE(stream_wait_event_orders, "work after a wait begins after what the event recorded")
{
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING), b = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    CUdeviceptr w = words(2);
    hold(a);
    OK(launch_set(a, w, 5));
    OK(cuEventRecord(e, a));
    IS(cuStreamWaitEvent(b, e, 0), CUDA_SUCCESS);
    OK(launch_copy(b, w + 4, w));
    conform_sleep_ms(10);
    IS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(b), CUDA_SUCCESS);
    EQ(peek(w, 1), 5);
}

CASE(stream_wait_takes_the_record_of_its_time,
     "recording an event anew does not change what already waits")
{
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING), b = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    CUdeviceptr w = words(1);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    hold(a);
    OK(cuEventRecord(e, a));
    OK(launch_set(b, w, 5));
    IS(cuStreamSynchronize(b), CUDA_SUCCESS);
    IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 0), 5);
    let_go();
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
}

CASE(stream_wait_for_unrecorded_event,
     "waiting for an event that was never recorded waits for nothing")
{
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    CUdeviceptr w = words(1);
    IS(cuStreamWaitEvent(a, e, 0), CUDA_SUCCESS);
    OK(launch_set(a, w, 5));
    IS(cuStreamSynchronize(a), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(stream_wait_for_its_own_event, "a stream may wait for its own event")
{
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    CUdeviceptr w = words(1);
    OK(launch_set(a, w, 1));
    OK(cuEventRecord(e, a));
    IS(cuStreamWaitEvent(a, e, 0), CUDA_SUCCESS);
    OK(launch_inc(a, w, 4));
    IS(cuStreamSynchronize(a), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
}

CASE(stream_null_wait_event,
     "an event that the null stream waits for holds up blocking streams after it")
{
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING), b = stream_new(CU_STREAM_DEFAULT);
    CUevent e = event_new(0);
    CUdeviceptr w = words(2);
    hold(a);
    OK(launch_set(a, w, 5));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(NULL, e, 0));
    OK(launch_copy(b, w + 4, w));
    conform_sleep_ms(10);
    SEE(cuStreamQuery(b));
    let_go();
    IS(cuCtxSynchronize(), CUDA_SUCCESS);
    NUM(peek(w, 1));
}

static CUstream callback_stream;
static int callback_count;
static CUresult callback_status[4];
static int callback_same;

static void CUDA_CB note_callback(CUstream stream, CUresult status, void *user)
{
    callback_same += stream == callback_stream && user == &callback_same;
    callback_status[callback_count] = status;
    __atomic_add_fetch(&callback_count, 1, __ATOMIC_SEQ_CST);
}

CASE(stream_callback_gets_its_arguments,
     "a callback gets its stream, success and the user's pointer")
{
    callback_stream = stream_new(0);
    IS(cuStreamAddCallback(callback_stream, note_callback, &callback_same, 0), CUDA_SUCCESS);
    IS(cuStreamSynchronize(callback_stream), CUDA_SUCCESS);
    EQ(callback_count, 1);
    EQ(callback_same, 1);
    IS(callback_status[0], CUDA_SUCCESS);
}

CASE(stream_callback_flags_are_reserved, "cuStreamAddCallback takes no flags")
{
    callback_stream = stream_new(0);
    callback_count = 0;
    IS(cuStreamAddCallback(callback_stream, note_callback, &callback_same, 1),
       CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(callback_stream));
    EQ(callback_count, 0);
}

CASE(stream_callback_holds_the_stream,
     "work after a callback begins when the callback has returned")
{
    CUstream s = stream_new(0);
    CUdeviceptr w = words(1);
    hold(s);
    OK(launch_set(s, w, 5));
    conform_sleep_ms(20);
    EQ(peek(w, 0), 0);
    let_go();
    OK(cuStreamSynchronize(s));
    EQ(peek(w, 0), 5);
}

static int host_order[16], host_count;

static void CUDA_CB note_order(void *user)
{
    host_order[host_count++] = (int)(intptr_t)user;
}

CASE(stream_host_functions_keep_order,
     "host functions of one stream run in the order of their calls")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    for (int i = 0; i < 10; i++) {
        OK(launch_inc(s, w, 1));
        OK(cuLaunchHostFunc(s, note_order, (void *)(intptr_t)i));
    }
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(host_count, 10);
    int wrong = 0;
    for (int i = 0; i < 10; i++) {
        wrong += host_order[i] != i;
    }
    EQ(wrong, 0);
}

static CUresult inside[8];

static void CUDA_CB call_cuda(void *user)
{
    CUdeviceptr word = *(CUdeviceptr *)user, got;
    int value = 3;
    inside[0] = cuMemAlloc(&got, 4);
    inside[1] = cuStreamSynchronize(side);
    inside[2] = cuMemcpyHtoD(word, &value, sizeof value);
    inside[3] = launch_set(side, word, 3);
    inside[4] = cuStreamQuery(side);
    inside[5] = cuCtxSynchronize();
}

CASE(stream_host_function_may_not_call_cuda,
     "calls of a host function are not permitted, and do not hurt the stream")
{
    CUstream s = stream_new(0);
    CUdeviceptr w = words(1);
    OK(cuLaunchHostFunc(s, call_cuda, &w));
    OK(launch_inc(s, w, 1));
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    conform_say("cuMemAlloc inside -> %s", result_name(inside[0]));
    conform_say("cuStreamSynchronize inside -> %s", result_name(inside[1]));
    conform_say("cuMemcpyHtoD inside -> %s", result_name(inside[2]));
    conform_say("cuLaunchKernel inside -> %s", result_name(inside[3]));
    conform_say("cuStreamQuery inside -> %s", result_name(inside[4]));
    conform_say("cuCtxSynchronize inside -> %s", result_name(inside[5]));
    OK(cuCtxSynchronize());
    EQ(peek(w, 0), 1);
}

static CUcontext current_inside;

static void CUDA_CB set_context(void *user)
{
    (void)user;
    inside[0] = cuCtxGetCurrent(&current_inside);
    inside[1] = cuCtxSetCurrent(ctx);
    inside[2] = cuStreamSynchronize(side);
    inside[3] = cuStreamQuery(side);
}

CASE_ALONE(stream_host_function_sets_context,
           "what a host function is told that makes a context current")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    OK(cuLaunchHostFunc(s, set_context, NULL));
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    conform_say("cuCtxGetCurrent inside -> %s, none: %d", result_name(inside[0]),
                current_inside == NULL);
    conform_say("cuCtxSetCurrent inside -> %s", result_name(inside[1]));
    conform_say("cuStreamSynchronize inside -> %s", result_name(inside[2]));
    conform_say("cuStreamQuery inside -> %s", result_name(inside[3]));
}

static int late_calls;

static void CUDA_CB count_late(void *user)
{
    (void)user;
    late_calls++;
}

CASE_ALONE(stream_error_reaches_callbacks,
           "after a kernel failed callbacks get the error and host functions are left out")
{
    callback_stream = stream_new(CU_STREAM_NON_BLOCKING);
    CUfunction broken = function("broken");
    hold(callback_stream);
    OK(cuLaunchKernel(broken, 1, 1, 1, 1, 1, 1, 0, callback_stream, NULL, NULL));
    OK(cuStreamAddCallback(callback_stream, note_callback, &callback_same, 0));
    OK(cuLaunchHostFunc(callback_stream, count_late, NULL));
    let_go();
    IS(cuStreamSynchronize(callback_stream), CUDA_ERROR_LAUNCH_FAILED);
    for (int i = 0; i < 200 && __atomic_load_n(&callback_count, __ATOMIC_SEQ_CST) == 0; i++) {
        conform_sleep_ms(10);
    }
    EQ(callback_count, 1);
    IS(callback_status[0], CUDA_ERROR_LAUNCH_FAILED);
    EQ(late_calls, 0);
    IS(cuStreamQuery(callback_stream), CUDA_ERROR_LAUNCH_FAILED);
}

CASE(stream_wait_value_compares, "cuStreamWaitValue32 releases for >=, ==, and, nor")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(2);
    OK(cuStreamWaitValue32(s, w, 5, CU_STREAM_WAIT_VALUE_GEQ));
    OK(launch_inc(s, w + 4, 1));
    OK(cuStreamWaitValue32(s, w, 9, CU_STREAM_WAIT_VALUE_EQ));
    OK(launch_inc(s, w + 4, 1));
    OK(cuStreamWaitValue32(s, w, 0x30, CU_STREAM_WAIT_VALUE_AND));
    OK(launch_inc(s, w + 4, 1));
    const unsigned steps[] = {4, 7, 9, 0x18};
    for (int i = 0; i < 4; i++) {
        OK(cuStreamWriteValue32(side, w, steps[i], 0));
        OK(cuStreamSynchronize(side));
        /* The next value comes only when this one was seen. */
        conform_sleep_ms(5);
        for (int round = 0; round < 500 && peek(w, 1) < i; round++) {
            conform_sleep_ms(5);
        }
        EQ(peek(w, 1), i);
    }
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 1), 3);
}

CASE(stream_wait_value_geq_is_cyclic,
     "the comparison >= is of the difference, so it goes round at 2^32")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    OK(cuStreamWriteValue32(s, w, 3, 0));
    OK(cuStreamWaitValue32(s, w, 0xfffffff0u, CU_STREAM_WAIT_VALUE_GEQ));
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 3);
}

CASE(stream_write_value_64,
     "cuStreamWriteValue64 writes eight bytes and cuStreamWaitValue64 compares them")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(4);
    IS(cuStreamWriteValue64(s, w, 0x100000002ull, 0), CUDA_SUCCESS);
    IS(cuStreamWaitValue64(s, w, 0x100000001ull, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 2);
    EQ(peek(w, 1), 1);
    EQ(peek(w, 2), 0);
}

CASE(stream_value_misaligned, "a value's address must be a multiple of its size")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(4);
    IS_LATE(cuStreamWriteValue32(s, w + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    IS_LATE(cuStreamWriteValue64(s, w + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
    IS_LATE(cuStreamWaitValue32(s, w + 2, 0, CU_STREAM_WAIT_VALUE_EQ), CUDA_ERROR_INVALID_VALUE);
    EQ(peek(w, 0), 0);
}

CASE(stream_batch_of_memory_operations, "cuStreamBatchMemOp does its operations in order")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(2);
    CUstreamBatchMemOpParams ops[3];
    memset(ops, 0, sizeof ops);
    ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[0].writeValue.address = w;
    ops[0].writeValue.value = 6;
    ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[1].waitValue.address = w;
    ops[1].waitValue.value = 6;
    ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    ops[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[2].writeValue.address = w + 4;
    ops[2].writeValue.value = 7;
    IS(cuStreamBatchMemOp(s, 3, ops, 0), CUDA_SUCCESS);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 6);
    EQ(peek(w, 1), 7);
}

CASE(stream_attributes_are_kept,
     "a stream's synchronisation policy is what was set, and can be copied")
{
    CUstream a = stream_new(0), b = stream_new(0);
    CUstreamAttrValue value;
    memset(&value, 0, sizeof value);
    OK(cuStreamGetAttribute(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    NUM(value.syncPolicy);
    value.syncPolicy = CU_SYNC_POLICY_YIELD;
    IS(cuStreamSetAttribute(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value), CUDA_SUCCESS);
    memset(&value, 0, sizeof value);
    OK(cuStreamGetAttribute(a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    EQ(value.syncPolicy, CU_SYNC_POLICY_YIELD);
    IS(cuStreamCopyAttributes(b, a), CUDA_SUCCESS);
    memset(&value, 0, sizeof value);
    OK(cuStreamGetAttribute(b, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    EQ(value.syncPolicy, CU_SYNC_POLICY_YIELD);
}

static void wait_in_stream(void *arg)
{
    IS(cuStreamSynchronize(*(CUstream *)arg), CUDA_SUCCESS);
}

CASE(stream_synchronize_elsewhere, "another thread may wait for a stream while this one goes on")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w = words(1);
    hold(s);
    OK(launch_set(s, w, 5));
    let_go_in(20);
    in_thread(wait_in_stream, &s);
    EQ(peek(w, 0), 5);
}

CASE(stream_per_thread_entry_points, "NULL means the per-thread stream to the _ptsz entry points")
{
    CUresult (*query)(CUstream) = NULL;
    CUdriverProcAddressQueryResult found;
    OK(cuGetProcAddress("cuStreamQuery", (void **)&query, 12000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found));
    hold(CU_STREAM_PER_THREAD);
    IS(query(NULL), CUDA_ERROR_NOT_READY);
    let_go();
    IS(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    IS(query(NULL), CUDA_SUCCESS);
}

CASE(stream_values_in_host_memory,
     "memory operations write and wait for page-locked memory of the host")
{
    struct place {
        int word, beside;
        uint64_t wide;
    };
    struct place *host[4];
    CUstreamBatchMemOpParams op;
    for (int i = 0; i < 4; i++) {
        OK(cuMemAllocHost((void **)&host[i], 4096));
        memset(host[i], 0, sizeof *host[i]);
        host[i]->beside = 2;
    }
    IS(cuStreamWriteValue32(side, (CUdeviceptr)&host[0]->word, 5, 0), CUDA_SUCCESS);
    IS(cuStreamWriteValue64(side, (CUdeviceptr)&host[1]->wide, 0x100000006, 0), CUDA_SUCCESS);
    memset(&op, 0, sizeof op);
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = (CUdeviceptr)&host[2]->word;
    op.writeValue.value = 7;
    IS(cuStreamBatchMemOp(side, 1, &op, 0), CUDA_SUCCESS);
    host[3]->word = 8;
    IS(cuStreamWaitValue32(side, (CUdeviceptr)&host[3]->word, 8, CU_STREAM_WAIT_VALUE_EQ),
       CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(host[0]->word, 5);
    EQ(host[0]->beside, 2);
    EQ(host[1]->wide, 0x100000006);
    EQ(host[2]->word, 7);
    EQ(host[3]->word, 8);
    for (int i = 0; i < 4; i++) {
        OK(cuMemFreeHost(host[i]));
    }
}

CASE(stream_device, "a stream tells its device")
{
    CUdevice d = 99;
    IS(cuStreamGetDevice(stream_new(CU_STREAM_NON_BLOCKING), &d), CUDA_SUCCESS);
    EQ(d, 0);
    d = 99;
    IS(cuStreamGetDevice(CU_STREAM_LEGACY, &d), CUDA_SUCCESS);
    EQ(d, 0);
}
