/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes with streams, events and capture. Part of errors.c. */

/* ---- streams, events, capture -------------------------------------------------------------- */

static void CUDA_CB slow(void *unused)
{
    (void)unused;
    usleep(500000);
}

CASE(stream_null, CONTEXT)
{
    say(cuStreamCreate(NULL, 0));
}
CASE(stream_flags, CONTEXT)
{
    CUstream stream;
    say(cuStreamCreate(&stream, 0xf0));
}
CASE(stream_destroy_default, CONTEXT)
{
    say_and_sync(cuStreamDestroy(NULL));
}
ALONE(stream_destroy_twice, CONTEXT)
{
    CUstream stream;
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuStreamDestroy(stream));
    say_and_sync(cuStreamDestroy(stream));
}
ALONE(stream_query_destroyed, CONTEXT)
{
    CUstream stream;
    NEED(cuStreamCreate(&stream, 0));
    NEED(cuStreamDestroy(stream));
    say(cuStreamQuery(stream));
}
CASE(stream_query_busy, CONTEXT)
{
    NEED(cuLaunchHostFunc(NULL, slow, NULL));
    say(cuStreamQuery(NULL));
    then(cuCtxSynchronize());
}
CASE(stream_flags_null, CONTEXT)
{
    say(cuStreamGetFlags(NULL, NULL));
}
CASE(event_null, CONTEXT)
{
    say(cuEventCreate(NULL, 0));
}
CASE(event_flags, CONTEXT)
{
    CUevent event;
    say(cuEventCreate(&event, 0xf0));
}
CASE(event_record_null, CONTEXT)
{
    say_and_sync(cuEventRecord(NULL, NULL));
}
CASE(event_query_null, CONTEXT)
{
    say(cuEventQuery(NULL));
}
CASE(event_synchronize_null, CONTEXT)
{
    say(cuEventSynchronize(NULL));
}
CASE(event_destroy_null, CONTEXT)
{
    say_and_sync(cuEventDestroy(NULL));
}
ALONE(event_destroy_twice, CONTEXT)
{
    CUevent event;
    NEED(cuEventCreate(&event, 0));
    NEED(cuEventDestroy(event));
    say_and_sync(cuEventDestroy(event));
}
CASE(event_query_busy, CONTEXT)
{
    CUevent event;
    NEED(cuEventCreate(&event, 0));
    NEED(cuLaunchHostFunc(NULL, slow, NULL));
    NEED(cuEventRecord(event, NULL));
    say(cuEventQuery(event));
    then(cuCtxSynchronize());
}
CASE(event_elapsed_not_recorded, CONTEXT)
{
    CUevent a, b;
    float ms;
    NEED(cuEventCreate(&a, 0));
    NEED(cuEventCreate(&b, 0));
    NEED(cuEventRecord(a, NULL));
    say(cuEventElapsedTime(&ms, a, b));
}
CASE(event_elapsed_no_timing, CONTEXT)
{
    CUevent a, b;
    float ms;
    NEED(cuEventCreate(&a, CU_EVENT_DISABLE_TIMING));
    NEED(cuEventCreate(&b, 0));
    NEED(cuEventRecord(a, NULL));
    NEED(cuEventRecord(b, NULL));
    NEED(cuCtxSynchronize());
    say(cuEventElapsedTime(&ms, a, b));
}
CASE(event_elapsed_busy, CONTEXT)
{
    CUevent a, b;
    float ms;
    NEED(cuEventCreate(&a, 0));
    NEED(cuEventCreate(&b, 0));
    NEED(cuEventRecord(a, NULL));
    NEED(cuLaunchHostFunc(NULL, slow, NULL));
    NEED(cuEventRecord(b, NULL));
    say(cuEventElapsedTime(&ms, a, b));
    then(cuCtxSynchronize());
}
CASE(event_elapsed_null, CONTEXT)
{
    CUevent a;
    NEED(cuEventCreate(&a, 0));
    say(cuEventElapsedTime(NULL, a, a));
}
CASE(wait_event_null, CONTEXT)
{
    say_and_sync(cuStreamWaitEvent(NULL, NULL, 0));
}
CASE(wait_event_flags, CONTEXT)
{
    CUevent event;
    NEED(cuEventCreate(&event, 0));
    NEED(cuEventRecord(event, NULL));
    say_and_sync(cuStreamWaitEvent(NULL, event, 0x70));
}
CASE(host_function_null, CONTEXT)
{
    say_and_sync(cuLaunchHostFunc(NULL, NULL, NULL));
}
CASE(capture_default_stream, CONTEXT)
{
    say(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
}
CASE(capture_end_without_begin, CONTEXT)
{
    CUstream stream;
    CUgraph graph;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    say(cuStreamEndCapture(stream, &graph));
}
ALONE(capture_begin_twice, CONTEXT)
{
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}
CASE(capture_mode, CONTEXT)
{
    CUstream stream;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    say(cuStreamBeginCapture(stream, (CUstreamCaptureMode)9));
}
CASE(capture_synchronize, CONTEXT)
{
    CUstream stream;
    CUgraph graph;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say(cuStreamSynchronize(stream));
    then(cuStreamEndCapture(stream, &graph));
}
CASE(capture_alloc, CONTEXT)
{
    CUstream stream;
    CUgraph graph;
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    say(cuMemAlloc(&memory, 16));
    then(cuStreamEndCapture(stream, &graph));
}
CASE(graph_create_flags, CONTEXT)
{
    CUgraph graph;
    say(cuGraphCreate(&graph, 5));
}
CASE(graph_launch_null, CONTEXT)
{
    say_and_sync(cuGraphLaunch(NULL, NULL));
}
ALONE(graph_destroyed, CONTEXT)
{
    CUgraph graph;
    CUgraphNode node;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphDestroy(graph));
    say(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    then(cuGraphDestroy(graph));
}
ALONE(graph_node_destroyed, CONTEXT)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphNodeType type;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    NEED(cuGraphDestroyNode(node));
    say(cuGraphNodeGetType(node, &type));
    then(cuGraphDestroyNode(node));
}
ALONE(graph_exec_destroyed, CONTEXT)
{
    CUgraph graph;
    CUgraphExec exec;
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphExecDestroy(exec));
    say_and_sync(cuGraphLaunch(exec, NULL));
}
