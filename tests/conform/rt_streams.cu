/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's streams and events: what waits for what, queries, captures. */
#include "runtime.h"

CASE(rt_null_waits_for_blocking,
     "work in the default stream begins after what blocking streams had")
{
    cudaStream_t s = rt_stream(cudaStreamDefault);
    int *w = rt_words(2);
    rt_hold(s);
    rt_set<<<1, 1, 0, s>>>(w, 5);
    rt_copy<<<1, 1>>>(w + 1, w);
    conform_sleep_ms(10);
    IS(cudaStreamQuery(0), cudaErrorNotReady);
    EQ(rt_peek(w, 1), 0);
    rt_let_go();
    IS(cudaStreamSynchronize(0), cudaSuccess);
    EQ(rt_peek(w, 1), 5);
}

CASE(rt_nonblocking_ignores_null, "a non-blocking stream does not wait for the default stream")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    int *w = rt_words(1);
    rt_hold(0);
    rt_set<<<1, 1, 0, s>>>(w, 5);
    IS(cudaStreamSynchronize(s), cudaSuccess);
    EQ(rt_peek(w, 0), 5);
    IS(cudaStreamQuery(0), cudaErrorNotReady);
    rt_let_go();
    IS(cudaStreamSynchronize(0), cudaSuccess);
}

CASE(rt_per_thread_stream,
     "cudaStreamPerThread waits for the default stream, as blocking streams do")
{
    int *w = rt_words(2);
    rt_hold(cudaStreamLegacy);
    rt_set<<<1, 1, 0, cudaStreamLegacy>>>(w, 5);
    rt_copy<<<1, 1, 0, cudaStreamPerThread>>>(w + 1, w);
    IS(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
    rt_let_go();
    IS(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
    EQ(rt_peek(w, 1), 5);
}

CASE(rt_memset_null_stream, "cudaMemset comes in order with launches of the default stream")
{
    int *w = rt_words(1);
    rt_set<<<1, 1>>>(w, 5);
    OK(cudaMemset(w, 0, 4));
    rt_inc<<<1, 1>>>(w, 3);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(rt_peek(w, 0), 3);
}

CASE(rt_event_query, "an event is not ready until its stream has reached it")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    cudaEvent_t e = rt_event(cudaEventDefault);
    IS(cudaEventQuery(e), cudaSuccess);
    rt_hold(s);
    OK(cudaEventRecord(e, s));
    IS(cudaEventQuery(e), cudaErrorNotReady);
    rt_let_go();
    IS(cudaEventSynchronize(e), cudaSuccess);
    IS(cudaEventQuery(e), cudaSuccess);
}

CASE(rt_event_elapsed_mistakes, "times of events that have none")
{
    cudaEvent_t a = rt_event(cudaEventDefault), b = rt_event(cudaEventDisableTiming),
                c = rt_event(0);
    float ms = -1;
    OK(cudaEventRecord(a));
    OK(cudaEventRecord(b));
    OK(cudaDeviceSynchronize());
    IS(cudaEventElapsedTime(&ms, a, b), cudaErrorInvalidResourceHandle);
    IS(cudaEventElapsedTime(&ms, a, c), cudaErrorInvalidResourceHandle);
    IS(cudaEventElapsedTime(&ms, a, a), cudaSuccess);
    EQ(ms * 1000000, 0);
}

CASE(rt_stream_wait_event, "a stream waits for an event of another stream")
{
    cudaStream_t a = rt_stream(cudaStreamNonBlocking), b = rt_stream(cudaStreamNonBlocking);
    cudaEvent_t e = rt_event(cudaEventDisableTiming);
    int *w = rt_words(2);
    rt_hold(a);
    rt_set<<<1, 1, 0, a>>>(w, 5);
    OK(cudaEventRecord(e, a));
    IS(cudaStreamWaitEvent(b, e, 0), cudaSuccess);
    rt_copy<<<1, 1, 0, b>>>(w + 1, w);
    IS(cudaStreamQuery(b), cudaErrorNotReady);
    rt_let_go();
    IS(cudaStreamSynchronize(b), cudaSuccess);
    EQ(rt_peek(w, 1), 5);
}

CASE(rt_stream_facts, "streams tell flags, priority, id and device")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking), t = NULL;
    unsigned flags = 99;
    int priority = 99, least = 99, greatest = 99;
    unsigned long long a = 0, b = 0;
    OK(cudaStreamGetFlags(s, &flags));
    EQ(flags, cudaStreamNonBlocking);
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EQ(least, 0);
    OK(cudaStreamCreateWithPriority(&t, cudaStreamDefault, greatest));
    OK(cudaStreamGetPriority(t, &priority));
    TRUE(priority == greatest);
    OK(cudaStreamGetId(s, &a));
    OK(cudaStreamGetId(t, &b));
    TRUE(a != b);
    IS(cudaStreamCreateWithFlags(&t, 99), cudaErrorInvalidValue);
}

static cudaError_t inside[4];

static void CUDART_CB call_inside(void *)
{
    void *p = NULL;
    inside[0] = cudaMalloc(&p, 4);
    inside[1] = cudaStreamSynchronize(rt_side);
    inside[2] = cudaDeviceSynchronize();
    inside[3] = cudaMemset(p, 0, 4);
}

CASE(rt_host_function_may_not_call, "a host function's calls are not permitted")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    OK(cudaLaunchHostFunc(s, call_inside, NULL));
    IS(cudaStreamSynchronize(s), cudaSuccess);
    for (int i = 0; i < 4; i++) {
        conform_say("call %d -> %s", i, cudaGetErrorName(inside[i]));
    }
}

static int callback_count;
static cudaError_t callback_status;

static void CUDART_CB count_callback(cudaStream_t, cudaError_t status, void *user)
{
    callback_status = status;
    callback_count += user == &callback_count;
}

CASE(rt_callback, "a callback gets success and the user's pointer")
{
    cudaStream_t s = rt_stream(0);
    IS(cudaStreamAddCallback(s, count_callback, &callback_count, 0), cudaSuccess);
    IS(cudaStreamSynchronize(s), cudaSuccess);
    EQ(callback_count, 1);
    IS(callback_status, cudaSuccess);
}

CASE(rt_capture, "a captured sequence runs when it is launched")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    int *w = rt_words(1);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    rt_inc<<<1, 1, 0, s>>>(w, 1);
    OK(cudaMemsetAsync(w, 0, 4, s));
    rt_inc<<<1, 1, 0, s>>>(w, 7);
    OK(cudaStreamIsCapturing(s, &status));
    EQ(status, cudaStreamCaptureStatusActive);
    IS(cudaStreamEndCapture(s, &graph), cudaSuccess);
    EQ(rt_peek(w, 0), 0);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, s));
    OK(cudaGraphLaunch(exec, s));
    IS(cudaStreamSynchronize(s), cudaSuccess);
    EQ(rt_peek(w, 0), 7);
}

CASE(rt_capture_malloc, "cudaMalloc during a global capture ends it, and the next capture works")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    cudaGraph_t graph = NULL;
    void *p = NULL;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    IS(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
    IS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    SEE(cudaGetLastError());
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    IS(cudaStreamEndCapture(s, &graph), cudaSuccess);
}

CASE(rt_capture_sync, "synchronising during a capture")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    cudaGraph_t graph = NULL;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    SEE(cudaDeviceSynchronize());
    SEE(cudaStreamEndCapture(s, &graph));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    SEE(cudaDeviceSynchronize());
    SEE(cudaStreamEndCapture(s, &graph));
}

CASE(rt_capture_default_stream,
     "a launch in the default stream beside a blocking capture is an implicit dependency")
{
    cudaStream_t s = rt_stream(cudaStreamDefault);
    cudaGraph_t graph = NULL;
    int *w = rt_words(1);
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    rt_inc<<<1, 1>>>(w, 1);
    IS(cudaGetLastError(), cudaErrorStreamCaptureImplicit);
    IS(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
    SEE(cudaGetLastError());
}

CASE(rt_capture_launch_error, "a launch with wrong dimensions during a capture")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    cudaGraph_t graph = NULL;
    int *w = rt_words(1);
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    rt_inc<<<1, 2000, 0, s>>>(w, 1);
    SEE(cudaGetLastError());
    SEE(cudaStreamEndCapture(s, &graph));
}

CASE(rt_graph_update, "an instance takes over another graph's arguments")
{
    cudaStream_t s = rt_stream(cudaStreamNonBlocking);
    cudaGraph_t a = NULL, b = NULL;
    cudaGraphExec_t exec = NULL;
    cudaGraphExecUpdateResultInfo info;
    int *w = rt_words(1);
    for (int i = 0; i < 2; i++) {
        OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
        rt_inc<<<1, 1, 0, s>>>(w, i == 0 ? 1 : 50);
        OK(cudaStreamEndCapture(s, i == 0 ? &a : &b));
    }
    OK(cudaGraphInstantiate(&exec, a, 0));
    IS(cudaGraphExecUpdate(exec, b, &info), cudaSuccess);
    EQ(info.result, cudaGraphExecUpdateSuccess);
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    EQ(rt_peek(w, 0), 50);
}

CASE(rt_graph_kernel_node,
     "a kernel node is made from a host function's pointer, and gives it back")
{
    cudaGraph_t graph = NULL;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    cudaKernelNodeParams p = {}, got = {};
    int *w = rt_words(1), value = 9;
    void *args[] = {&w, &value};
    p.func = (void *)rt_inc;
    p.gridDim = dim3(1);
    p.blockDim = dim3(1);
    p.kernelParams = args;
    OK(cudaGraphCreate(&graph, 0));
    IS(cudaGraphAddKernelNode(&node, graph, NULL, 0, &p), cudaSuccess);
    IS(cudaGraphKernelNodeGetParams(node, &got), cudaSuccess);
    TRUE(got.func == (void *)rt_inc);
    EQ(*(int *)got.kernelParams[1], 9);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, rt_side));
    OK(cudaStreamSynchronize(rt_side));
    EQ(rt_peek(w, 0), 9);
}

static void *destroyed;

static void CUDART_CB destroy_object(void *user)
{
    __atomic_store_n(&destroyed, user, __ATOMIC_SEQ_CST);
}

CASE(rt_user_object, "a user object lives until the last graph that holds it is gone")
{
    cudaUserObject_t object;
    cudaGraph_t graph = NULL;
    static int mine;
    OK(cudaGraphCreate(&graph, 0));
    IS(cudaUserObjectCreate(&object, &mine, destroy_object, 1, cudaUserObjectNoDestructorSync),
       cudaSuccess);
    IS(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove), cudaSuccess);
    conform_sleep_ms(20);
    TRUE(__atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) == NULL);
    OK(cudaGraphDestroy(graph));
    for (int i = 0; i < 200 && __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) == NULL; i++) {
        conform_sleep_ms(10);
    }
    TRUE(destroyed == &mine);
}
