/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: modes, what ends a capture, forks and joins, what becomes a node. */
#include "driver.h"

static CUstream begin(CUstreamCaptureMode mode)
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    OK(cuStreamBeginCapture(s, mode));
    return s;
}

static int status_of(CUstream s)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)99;
    OK(cuStreamIsCapturing(s, &status));
    return (int)status;
}

static int node_count(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return (int)count;
}

static int edge_count(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    return (int)count;
}

static int type_of_first(CUgraph graph)
{
    size_t count = 1;
    CUgraphNode node = NULL;
    CUgraphNodeType type = (CUgraphNodeType)99;
    OK(cuGraphGetNodes(graph, &node, &count));
    OK(cuGraphNodeGetType(node, &type));
    return (int)type;
}

static void run_graph(CUgraph graph)
{
    CUgraphExec exec = NULL;
    IS(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    IS(cuGraphLaunch(exec, side), CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
}

CASE(capture_runs_nothing, "captured work runs when the graph is launched, not before")
{
    CUdeviceptr w = words(1);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = NULL;
    OK(launch_inc(s, w, 1));
    OK(launch_inc(s, w, 1));
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    EQ(peek(w, 0), 0);
    EQ(node_count(graph), 2);
    EQ(edge_count(graph), 1);
    run_graph(graph);
    EQ(peek(w, 0), 2);
}

CASE(capture_of_nothing, "a capture without work gives an empty graph, which can be launched")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraph graph = NULL;
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    TRUE(graph != NULL);
    EQ(node_count(graph), 0);
    run_graph(graph);
}

CASE(capture_status_changes, "a stream's capture status goes none, active, invalidated, none")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    IS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    TRUE(graph == NULL);
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
}

static void alloc_in(CUstreamCaptureMode mode)
{
    CUstream s = begin(mode);
    CUgraph graph = NULL;
    CUdeviceptr memory = 0;
    SEE(cuMemAlloc(&memory, 256));
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
    NUM(graph != NULL);
}

CASE(capture_global_forbids_alloc, "cuMemAlloc of the capturing thread ends a global capture")
{
    alloc_in(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CASE(capture_local_forbids_alloc, "cuMemAlloc of the capturing thread ends a thread-local capture")
{
    alloc_in(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

CASE(capture_relaxed_allows_alloc, "cuMemAlloc is allowed during a relaxed capture")
{
    alloc_in(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void alloc_here(void *unused)
{
    CUdeviceptr memory = 0;
    (void)unused;
    SEE(cuMemAlloc(&memory, 256));
}

static void alloc_elsewhere(CUstreamCaptureMode mode)
{
    CUstream s = begin(mode);
    CUgraph graph = NULL;
    in_thread(alloc_here, NULL);
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
}

CASE(capture_global_forbids_alloc_elsewhere,
     "cuMemAlloc of another thread is refused during a global capture")
{
    alloc_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CASE(capture_local_allows_alloc_elsewhere,
     "cuMemAlloc of another thread is allowed during a thread-local capture")
{
    alloc_elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

CASE(capture_relaxed_allows_alloc_elsewhere,
     "cuMemAlloc of another thread is allowed during a relaxed capture")
{
    alloc_elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void alloc_relaxed_here(void *unused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr memory = 0;
    (void)unused;
    IS(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    IS(cuMemAlloc(&memory, 256), CUDA_SUCCESS);
}

CASE(capture_thread_may_relax_itself,
     "a thread that made itself relaxed may allocate during a global capture")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraph graph = NULL;
    in_thread(alloc_relaxed_here, NULL);
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
}

CASE(capture_exchange_mode, "cuThreadExchangeStreamCaptureMode swaps; a thread begins as global")
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    IS(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EQ(mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    mode = (CUstreamCaptureMode)7;
    IS(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
}

CASE(capture_relaxed_thread_in_own_global_capture,
     "a relaxed thread may allocate during its own global capture")
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUdeviceptr memory = 0;
    CUgraph graph = NULL;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    IS(cuMemAlloc(&memory, 256), CUDA_SUCCESS);
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
}

static void one_call(const char *what, CUresult result, CUstream s)
{
    CUgraph graph = NULL;
    conform_say("%s -> %s, then status %d", what, result_name(result), status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
}
#define DURING(mode, call)                                                                         \
    do {                                                                                           \
        CUstream s = begin(mode);                                                                  \
        one_call(#call, (call), s);                                                                \
    } while (0)

CASE(capture_query_of_captured_stream, "a capturing stream cannot be queried")
{
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamQuery(s));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamSynchronize(s));
}

CASE(capture_query_of_other_stream, "what a global capture says to queries of another stream")
{
    CUstream other = stream_new(CU_STREAM_NON_BLOCKING);
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuStreamQuery(other));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuStreamSynchronize(other));
    DURING(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuStreamSynchronize(other));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamSynchronize(other));
}

CASE(capture_context_synchronize, "what captures say to cuCtxSynchronize")
{
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuCtxSynchronize());
    DURING(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuCtxSynchronize());
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuCtxSynchronize());
}

CASE(capture_event_query_elsewhere,
     "what a global capture says to queries of an event outside of it")
{
    CUevent e = event_new(0);
    OK(cuEventRecord(e, side));
    OK(cuEventSynchronize(e));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuEventQuery(e));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuEventSynchronize(e));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuEventQuery(e));
}

CASE(capture_sync_copy, "what captures say to a synchronous copy")
{
    CUdeviceptr w = words(1);
    int value = 3;
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemcpyHtoD(w, &value, 4));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuMemcpyHtoD(w, &value, 4));
}

CASE(capture_sync_copy_others, "what captures say to copies that wait for the device or read much")
{
    CUdeviceptr w = 0;
    void *pinned = NULL;
    char *mine = calloc(1, 1 << 20);
    OK(cuMemAlloc(&w, 1 << 20));
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemcpyDtoH(mine, w, 4));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemcpyHtoD(w, mine, 1 << 20));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemcpyHtoD(w, pinned, 4096));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemcpyDtoD(w, w + 4096, 4096));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuMemcpyDtoH(mine, w, 4));
    free(mine);
    OK(cuMemFreeHost(pinned));
}

CASE(capture_host_free, "what captures say to freeing page-locked and allocating managed memory")
{
    void *a = NULL, *b = NULL;
    CUdeviceptr m = 0;
    OK(cuMemHostAlloc(&a, 4096, 0));
    OK(cuMemHostAlloc(&b, 4096, 0));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemFreeHost(a));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuMemFreeHost(b));
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemFreeHost(a));
}

CASE(capture_event_asked_after_its_end,
     "an event that was recorded in a capture which has ended well")
{
    CUevent e = event_new(0);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = NULL;
    OK(cuEventRecord(e, s));
    OK(cuStreamEndCapture(s, &graph));
    SEE(cuEventQuery(e));
    SEE(cuEventSynchronize(e));
    OK(cuEventRecord(e, s));
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
}

CASE(capture_memset_sync, "what captures say to a synchronous memset")
{
    CUdeviceptr w = words(1);
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemsetD32(w, 1, 1));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuMemsetD32(w, 1, 1));
}

CASE(capture_free, "what captures say to cuMemFree")
{
    CUdeviceptr a = words(1), b = words(1);
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemFree(a));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuMemFree(b));
}

CASE(capture_host_alloc, "what a global capture says to page-locked allocations")
{
    void *p = NULL;
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemHostAlloc(&p, 4096, 0));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuMemHostAlloc(&p, 4096, 0));
}

CASE(capture_harmless_calls,
     "creating streams and events and asking attributes does not disturb a capture")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_GLOBAL), other;
    CUevent e;
    int value;
    CUgraph graph = NULL;
    SEE(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    SEE(cuEventCreate(&e, 0));
    SEE(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function("nothing")));
    SEE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, dev));
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
}

CASE(capture_module_load, "what a global capture says to loading a module")
{
    CUmodule another;
    DURING(CU_STREAM_CAPTURE_MODE_GLOBAL, cuModuleLoadData(&another, driver_ptx));
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuModuleLoadData(&another, driver_ptx));
}

CASE(capture_event_is_captured,
     "an event recorded in a capture cannot be asked or waited for by the host")
{
    CUevent e = event_new(0);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = NULL;
    OK(cuEventRecord(e, s));
    SEE(cuEventQuery(e));
    NUM(status_of(s));
    SEE(cuEventSynchronize(e));
    SEE(cuStreamEndCapture(s, &graph));
    SEE(cuEventQuery(e));
}

CASE(capture_null_stream_beside_blocking,
     "using the null stream while a blocking stream is captured ends the capture")
{
    CUstream s = stream_new(CU_STREAM_DEFAULT);
    CUdeviceptr w = words(1);
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(launch_inc(NULL, w, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    NUM(status_of(s));
    SEE(cuStreamIsCapturing(NULL, &status));
    IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    IS(launch_inc(NULL, w, 1), CUDA_SUCCESS);
    IS(cuStreamSynchronize(NULL), CUDA_SUCCESS);
}

CASE(capture_null_stream_asked_beside_blocking,
     "asking the null stream whether it captures beside a blocking capture")
{
    CUstream s = stream_new(CU_STREAM_DEFAULT);
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)99;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
    IS(cuStreamIsCapturing(NULL, &status), CUDA_SUCCESS);
    EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

CASE(capture_null_stream_beside_nonblocking,
     "the null stream works while a non-blocking stream is captured")
{
    CUdeviceptr w = words(1);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraph graph = NULL;
    IS(launch_inc(NULL, w, 1), CUDA_SUCCESS);
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    EQ(node_count(graph), 0);
    OK(cuCtxSynchronize());
    EQ(peek(w, 0), 1);
}

CASE(capture_of_per_thread_stream, "the per-thread stream can be captured")
{
    CUdeviceptr w = words(1);
    CUgraph graph = NULL;
    IS(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    OK(launch_inc(CU_STREAM_PER_THREAD, w, 1));
    IS(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), CUDA_SUCCESS);
    EQ(node_count(graph), 1);
    EQ(peek(w, 0), 0);
}

CASE(capture_fork_and_join, "events carry a capture into another stream and back")
{
    CUdeviceptr w = words(2);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent fork = event_new(0), join = event_new(0);
    CUgraph graph = NULL;
    OK(launch_set(s, w, 2));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    EQ(status_of(t), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(launch_copy(t, w + 4, w));
    OK(launch_inc(s, w, 40));
    OK(cuEventRecord(join, t));
    OK(cuStreamWaitEvent(s, join, 0));
    OK(launch_inc(s, w + 4, 1));
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    EQ(status_of(t), CU_STREAM_CAPTURE_STATUS_NONE);
    EQ(node_count(graph), 4);
    EQ(edge_count(graph), 4);
}

CASE(capture_unjoined, "a capture cannot end while a forked stream has work that was not joined")
{
    CUdeviceptr w = words(2);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent fork = event_new(0);
    CUgraph graph = NULL;
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    OK(launch_inc(t, w, 1));
    IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    TRUE(graph == NULL);
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
    NUM(status_of(t));
    IS_LATE(launch_inc(s, w, 1), CUDA_SUCCESS);
    EQ(peek(w, 0), 1);
}

CASE(capture_forked_without_work, "a forked stream without work needs no join")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr w;
    CUevent fork = event_new(0);
    CUgraph graph = NULL;
    OK(cuMemAlloc(&w, 4));
    OK(launch_inc(s, w, 1));
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    SEE(cuStreamEndCapture(s, &graph));
}

CASE(capture_unmatched_end, "only the stream where a capture began can end it")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent fork = event_new(0);
    CUgraph graph = NULL;
    OK(cuEventRecord(fork, s));
    OK(cuStreamWaitEvent(t, fork, 0));
    IS(cuStreamEndCapture(t, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
}

static void end_here(void *arg)
{
    CUgraph graph = NULL;
    SEE(cuStreamEndCapture(*(CUstream *)arg, &graph));
}

CASE(capture_ends_in_its_thread, "another thread cannot end a capture that is not relaxed")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraph graph = NULL;
    in_thread(end_here, &s);
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
    s = begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    in_thread(end_here, &s);
    NUM(status_of(s));
}

CASE(capture_relaxed_ends_anywhere, "another thread can end a relaxed capture")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    in_thread(end_here, &s);
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
}

CASE(capture_merge, "two captures cannot be joined")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED), t = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUevent e = event_new(0);
    CUgraph graph = NULL;
    OK(cuEventRecord(e, s));
    IS(cuStreamWaitEvent(t, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    NUM(status_of(s));
    NUM(status_of(t));
    SEE(cuStreamEndCapture(s, &graph));
    SEE(cuStreamEndCapture(t, &graph));
}

CASE(capture_isolation, "a captured stream cannot wait for work outside of the capture")
{
    CUstream s, busy = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    CUgraph graph = NULL;
    hold(busy);
    OK(cuEventRecord(e, busy));
    s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    IS(cuStreamWaitEvent(s, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
    let_go();
    OK(cuStreamSynchronize(busy));
}

CASE(capture_waits_for_unrecorded, "a captured stream waits for an event that was never recorded")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUevent e = event_new(0);
    CUgraph graph = NULL;
    SEE(cuStreamWaitEvent(s, e, 0));
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
}

CASE(capture_external_events, "external records and waits become nodes")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING), f = event_new(CU_EVENT_DISABLE_TIMING);
    CUgraph graph = NULL;
    IS(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL), CUDA_SUCCESS);
    IS(cuEventRecordWithFlags(f, s, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    EQ(node_count(graph), 2);
    EQ(type_of_first(graph), CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    run_graph(graph);
    IS(cuEventQuery(f), CUDA_SUCCESS);
}

CASE(capture_info,
     "cuStreamGetCaptureInfo tells the capture's graph and what comes next would depend on")
{
    CUdeviceptr w = words(1);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED), t = stream_new(0);
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    CUgraph inside = NULL, graph = NULL;
    const CUgraphNode *after = NULL;
    size_t count = 99;
    OK(cuStreamGetCaptureInfo(s, &status, &id, &inside, &after, NULL, &count));
    EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    TRUE(id != 0);
    EQ(count, 0);
    OK(launch_inc(s, w, 1));
    OK(cuStreamGetCaptureInfo(s, &status, &id, &inside, &after, NULL, &count));
    EQ(count, 1);
    TRUE(inside != NULL);
    OK(cuStreamEndCapture(s, &graph));
    TRUE(graph == inside);
    IS(cuStreamGetCaptureInfo(t, &status, &id, &inside, &after, NULL, &count), CUDA_SUCCESS);
    EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

CASE(capture_update_dependencies,
     "cuStreamUpdateCaptureDependencies changes what comes next depends on")
{
    CUdeviceptr w = words(2);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = NULL;
    OK(launch_inc(s, w, 1));
    IS(cuStreamUpdateCaptureDependencies(s, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
       CUDA_SUCCESS);
    OK(launch_inc(s, w + 4, 1));
    SEE(cuStreamEndCapture(s, &graph));
    if (graph != NULL) {
        NUM(node_count(graph));
        NUM(edge_count(graph));
    }
}

CASE(capture_to_a_graph, "cuStreamBeginCaptureToGraph adds to a graph that has nodes")
{
    CUdeviceptr w = words(1);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL, got = NULL;
    CUgraphNode first;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&first, graph, NULL, 0));
    IS(cuStreamBeginCaptureToGraph(s, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED),
       CUDA_SUCCESS);
    OK(launch_inc(s, w, 3));
    IS(cuStreamEndCapture(s, &got), CUDA_SUCCESS);
    TRUE(got == graph);
    EQ(node_count(graph), 2);
    EQ(edge_count(graph), 1);
    run_graph(graph);
    EQ(peek(w, 0), 3);
}

CASE(capture_to_a_graph_untold, "who captures into a graph of his own need not ask for it")
{
    CUdeviceptr w = words(1);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    OK(cuGraphCreate(&graph, 0));
    OK(cuStreamBeginCaptureToGraph(s, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch_inc(s, w, 3));
    IS(cuStreamEndCapture(s, NULL), CUDA_SUCCESS);
    EQ(status_of(s), CU_STREAM_CAPTURE_STATUS_NONE);
    run_graph(graph);
    EQ(peek(w, 0), 3);
}

CASE_ALONE(capture_to_a_graph_in_its_thread,
           "a capture that another thread ends takes the graph with it that was there before")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    CUgraphNode node;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    OK(cuStreamBeginCaptureToGraph(s, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    in_thread(end_here, &s);
    IS(cuGraphAddEmptyNode(&node, graph, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
}

CASE(capture_two_at_once, "one thread may have two captures at the same time")
{
    CUdeviceptr w = words(2);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED), t = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph a = NULL, b = NULL;
    OK(launch_inc(s, w, 1));
    OK(launch_inc(t, w + 4, 1));
    OK(launch_inc(t, w + 4, 1));
    IS(cuStreamEndCapture(s, &a), CUDA_SUCCESS);
    IS(cuStreamEndCapture(t, &b), CUDA_SUCCESS);
    EQ(node_count(a), 1);
    EQ(node_count(b), 2);
}

static void CUDA_CB host_nothing(void *user)
{
    (void)user;
}

CASE(capture_node_kinds, "copies, memsets, host functions and launches become nodes of their kinds")
{
    CUdeviceptr w = words(4);
    static int host[2] = {1, 2};
    const char *const what[] = {"memset",    "copy to",       "copy inside",
                                "copy from", "host function", "event record"};
    for (int i = 0; i < 6; i++) {
        CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
        CUgraph graph = NULL;
        CUresult r = i == 0   ? cuMemsetD32Async(w, 1, 1, s)
                     : i == 1 ? cuMemcpyHtoDAsync(w, host, 4, s)
                     : i == 2 ? cuMemcpyDtoDAsync(w + 4, w, 4, s)
                     : i == 3 ? cuMemcpyDtoHAsync(host + 1, w, 4, s)
                     : i == 4 ? cuLaunchHostFunc(s, host_nothing, NULL)
                              : cuEventRecord(event_new(0), s);
        OK(cuStreamEndCapture(s, &graph));
        conform_say("%s -> %s, %d nodes, first of type %d", what[i], result_name(r),
                    node_count(graph), node_count(graph) > 0 ? type_of_first(graph) : -1);
    }
}

CASE(capture_pageable_source, "a captured copy from pageable memory reads it at each launch")
{
    CUdeviceptr w = words(1);
    static int value = 1;
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = NULL;
    OK(cuMemcpyHtoDAsync(w, &value, 4, s));
    OK(cuStreamEndCapture(s, &graph));
    value = 9;
    run_graph(graph);
    EQ(peek(w, 0), 9);
}

CASE(capture_zero_sizes, "what captured copies and memsets of nothing become")
{
    CUdeviceptr w = words(2);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph graph = NULL;
    static int host;
    SEE(cuMemcpyHtoDAsync(w, &host, 0, s));
    SEE(cuMemsetD32Async(w, 1, 0, s));
    SEE(cuMemcpyDtoDAsync(w, w + 4, 0, s));
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
    if (graph != NULL) {
        NUM(node_count(graph));
    }
}

CASE(capture_alloc_async,
     "cuMemAllocAsync and cuMemFreeAsync become nodes, and the address works in the graph")
{
    CUdeviceptr w = words(1), m = 0;
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUgraph graph = NULL;
    IS(cuMemAllocAsync(&m, 4096, s), CUDA_SUCCESS);
    OK(cuMemsetD32Async(m, 77, 4, s));
    OK(launch_copy(s, w, m));
    IS(cuMemFreeAsync(m, s), CUDA_SUCCESS);
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    EQ(node_count(graph), 4);
    EQ(type_of_first(graph), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    run_graph(graph);
    EQ(peek(w, 0), 77);
}

CASE(capture_of_graph_launch, "a graph cannot be launched into a capture")
{
    CUdeviceptr w = words(1);
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUgraph inner = NULL, outer = NULL;
    CUgraphExec exec;
    OK(launch_inc(s, w, 4));
    OK(cuStreamEndCapture(s, &inner));
    OK(cuGraphInstantiate(&exec, inner, 0));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(cuGraphLaunch(exec, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    IS(cuStreamEndCapture(s, &outer), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    TRUE(outer == NULL);
}

static void CUDA_CB old_callback(CUstream stream, CUresult status, void *user)
{
    (void)stream, (void)status, (void)user;
}

CASE(capture_of_callback, "what a capture says to cuStreamAddCallback")
{
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamAddCallback(s, old_callback, NULL, 0));
}

CASE(capture_launch_error_keeps_capture,
     "a launch that is refused for its arguments while capturing")
{
    CUfunction f = function("nothing");
    DURING(CU_STREAM_CAPTURE_MODE_RELAXED,
           cuLaunchKernel(f, 1, 1, 1, 2000, 1, 1, 0, s, NULL, NULL));
}

/* No memory's address. Libraries capture work on such ones to learn the shapes of its launches. */
static const CUdeviceptr nowhere = 0x80;

CASE(capture_memset_of_unknown_address, "a capture takes memsets of addresses where no memory is")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CUgraph graph = NULL;
    SEE(cuMemsetD8Async(nowhere, 0, 8192, s));
    SEE(cuMemsetD16Async(nowhere, 0, 16, s));
    SEE(cuMemsetD32Async(nowhere, 0, 16, s));
    SEE(cuMemsetD2D8Async(nowhere, 512, 0, 100, 4, s));
    SEE(cuMemsetD2D16Async(nowhere, 512, 0, 100, 4, s));
    SEE(cuMemsetD2D32Async(nowhere, 512, 0, 100, 4, s));
    NUM(status_of(s));
    SEE(cuStreamEndCapture(s, &graph));
    if (graph != NULL) {
        NUM(node_count(graph));
    }
}

CASE(capture_memset_of_unknown_address_beside,
     "a stream that does not capture refuses such a memset while another one does")
{
    DURING(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuMemsetD8Async(nowhere, 0, 8192, side));
}

CASE(capture_copy_of_unknown_address, "what a capture says to copies where no device memory is")
{
    CUdeviceptr w = words(4);
    static int host[4];
    DURING(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuMemcpyDtoDAsync(nowhere, w, 4, s));
    DURING(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuMemcpyDtoDAsync(w, nowhere, 4, s));
    DURING(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuMemcpyDtoDAsync(nowhere, nowhere + 4096, 4, s));
    DURING(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuMemcpyHtoDAsync(nowhere, host, 4, s));
    DURING(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuMemcpyDtoHAsync(host, nowhere, 4, s));
}

CASE(capture_launch_with_unknown_address, "a capture takes launches with any arguments")
{
    CUstream s = begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CUgraph graph = NULL;
    IS(launch_inc(s, nowhere, 1), CUDA_SUCCESS);
    IS(cuStreamEndCapture(s, &graph), CUDA_SUCCESS);
    EQ(node_count(graph), 1);
}
