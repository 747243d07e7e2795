/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: made by hand and by capture, launched, changed. */
#include "soft_lib.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/event.h"
#include "gen/graph.h"
#include "gen/memory.h"
#include "gen/pool.h"
#include "gen/stream.h"

static CUmodule module;
static CUdeviceptr p;
static CUstream stream;

static int setup(void **state)
{
    int rc = soft_setup(state);
    if (rc == 0) {
        module = soft_module();
        OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4096));
        OK(tow_drive(cu, cuMemsetD8_v2)(p, 0, 4096));
        OK(tow_drive(cu, cuCtxSynchronize)());
        OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    }
    return rc;
}

static unsigned word(size_t index)
{
    unsigned value;
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, p + 4 * index, 4));
    return value;
}

static void increment(CUstream on)
{
    void *params[] = {&p};
    OK(soft_launch(soft_function(module, "increment"), 1, 1, on, params));
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    OK(tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    return exec;
}

static void captured_work_runs_at_each_launch_only(void **state)
{
    (void)state;
    CUgraph graph;
    CUstreamCaptureStatus status;
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(tow_drive(cu, cuStreamIsCapturing)(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    increment(stream);
    OK(tow_drive(cu, cuMemcpyDtoDAsync_v2)(p + 4, p, 4, stream));
    OK(tow_drive(cu, cuMemsetD32Async)(p + 8, 9, 1, stream));
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &graph));
    OK(tow_drive(cu, cuStreamIsCapturing)(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(word(0), 0);
    size_t nodes = 0, edges = 0;
    OK(tow_drive(cu, cuGraphGetNodes)(graph, NULL, &nodes));
    OK(tow_drive(cu, cuGraphGetEdges)(graph, NULL, NULL, &edges));
    assert_int_equal(nodes, 3);
    assert_int_equal(edges, 2);
    CUgraphExec exec = instantiate(graph);
    OK(tow_drive(cu, cuGraphDestroy)(graph));
    for (int i = 0; i < 5; i++) {
        OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    }
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(word(0), 5);
    assert_int_equal(word(1), 5);
    assert_int_equal(word(2), 9);
    OK(tow_drive(cu, cuGraphExecDestroy)(exec));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphLaunch)(exec, stream));
}

static void a_captured_copy_says_what_it_copies(void **state)
{
    (void)state;
    static unsigned host[2];
    CUgraph graph;
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(tow_drive(cu, cuMemcpyHtoDAsync_v2)(p, host, 4, stream));
    OK(tow_drive(cu, cuMemcpyDtoHAsync_v2)(host + 1, p + 4, 4, stream));
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &graph));
    CUgraphNode nodes[2];
    CUDA_MEMCPY3D up, down;
    size_t count = 2;
    OK(tow_drive(cu, cuGraphGetNodes)(graph, nodes, &count));
    OK(tow_drive(cu, cuGraphMemcpyNodeGetParams)(nodes[0], &up));
    OK(tow_drive(cu, cuGraphMemcpyNodeGetParams)(nodes[1], &down));
    assert_ptr_equal(up.srcHost, host);
    assert_int_equal(up.dstDevice, p);
    assert_int_equal(up.WidthInBytes, 4);
    assert_ptr_equal(down.dstHost, host + 1);
    assert_int_equal(down.srcDevice, p + 4);
    OK(tow_drive(cu, cuGraphDestroy)(graph));
}

static void events_carry_a_capture_to_other_streams(void **state)
{
    (void)state;
    CUstream other;
    CUevent fork, join;
    CUgraph graph;
    OK(tow_drive(cu, cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuEventCreate)(&fork, CU_EVENT_DISABLE_TIMING));
    OK(tow_drive(cu, cuEventCreate)(&join, CU_EVENT_DISABLE_TIMING));
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    increment(stream);
    OK(tow_drive(cu, cuEventRecord)(fork, stream));
    OK(tow_drive(cu, cuStreamWaitEvent)(other, fork, 0));
    OK(tow_drive(cu, cuMemsetD32Async)(p + 4, 4, 1, other));
    OK(tow_drive(cu, cuMemsetD32Async)(p + 8, 5, 1, stream));
    OK(tow_drive(cu, cuEventRecord)(join, other));
    OK(tow_drive(cu, cuStreamWaitEvent)(stream, join, 0));
    OK(tow_drive(cu, cuMemcpyDtoDAsync_v2)(p + 12, p + 4, 4, stream));
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &graph));
    CUgraphNode nodes[8];
    size_t count = 8;
    OK(tow_drive(cu, cuGraphGetNodes)(graph, nodes, &count));
    assert_int_equal(count, 4);
    size_t deps = 0;
    OK(tow_drive(cu, cuGraphNodeGetDependencies)(nodes[3], NULL, &deps));
    assert_int_equal(deps, 2);
    count = 8;
    OK(tow_drive(cu, cuGraphGetRootNodes)(graph, nodes, &count));
    assert_int_equal(count, 1);
    OK(tow_drive(cu, cuGraphLaunch)(instantiate(graph), stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(word(0), 1);
    assert_int_equal(word(2), 5);
    assert_int_equal(word(3), 4);

    /* Forked and never joined. */
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(tow_drive(cu, cuEventRecord)(fork, stream));
    OK(tow_drive(cu, cuStreamWaitEvent)(other, fork, 0));
    increment(other);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, tow_drive(cu, cuStreamEndCapture)(stream, &graph));
    assert_null(graph);
    CUstreamCaptureStatus status;
    OK(tow_drive(cu, cuStreamIsCapturing)(other, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
}

static void waiting_spoils_a_capture(void **state)
{
    (void)state;
    CUgraph graph;
    CUdeviceptr q;
    CUstreamCaptureStatus status;
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, tow_drive(cu, cuStreamSynchronize)(stream));
    OK(tow_drive(cu, cuStreamIsCapturing)(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    void *params[] = {&p};
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          soft_launch(soft_function(module, "increment"), 1, 1, stream, params));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, tow_drive(cu, cuStreamEndCapture)(stream, &graph));
    assert_null(graph);
    FAILS(CUDA_ERROR_ILLEGAL_STATE, tow_drive(cu, cuStreamEndCapture)(stream, &graph));

    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, tow_drive(cu, cuMemAlloc_v2)(&q, 4));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, tow_drive(cu, cuStreamEndCapture)(stream, &graph));

    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(tow_drive(cu, cuMemAlloc_v2)(&q, 4));
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &graph));

    CUstream blocking;
    OK(tow_drive(cu, cuStreamCreate)(&blocking, 0));
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
          soft_launch(soft_function(module, "increment"), 1, 1, NULL, params));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
          tow_drive(cu, cuStreamEndCapture)(blocking, &graph));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          tow_drive(cu, cuStreamBeginCapture_v2)(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUevent event;
    OK(tow_drive(cu, cuEventCreate)(&event, 0));
    OK(tow_drive(cu, cuEventRecord)(event, stream));
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, tow_drive(cu, cuStreamWaitEvent)(stream, event, 0));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, tow_drive(cu, cuStreamEndCapture)(stream, &graph));
}

static int host_calls;

static void host_function(void *user)
{
    host_calls += *(int *)user;
}

static void nodes_of_every_kind_by_hand(void **state)
{
    (void)state;
    CUgraph graph, child;
    CUgraphNode set, kernel, copy, host, sub, empty, record, wait, ops, node;
    OK(tow_drive(cu, cuGraphCreate)(&graph, 0));
    OK(tow_drive(cu, cuGraphCreate)(&child, 0));
    CUDA_MEMSET_NODE_PARAMS set_params = {
        .dst = p, .value = 10, .elementSize = 4, .width = 1, .height = 1};
    OK(tow_drive(cu, cuGraphAddMemsetNode)(&set, graph, NULL, 0, &set_params, context));
    void *params[] = {&p};
    CUDA_KERNEL_NODE_PARAMS kernel_params = {.func = soft_function(module, "increment"),
                                             .gridDimX = 1,
                                             .gridDimY = 1,
                                             .gridDimZ = 1,
                                             .blockDimX = 1,
                                             .blockDimY = 1,
                                             .blockDimZ = 1,
                                             .kernelParams = params};
    OK(tow_drive(cu, cuGraphAddKernelNode_v2)(&kernel, graph, &set, 1, &kernel_params));
    OK(tow_drive(cu, cuGraphAddKernelNode_v2)(&node, child, NULL, 0, &kernel_params));
    OK(tow_drive(cu, cuGraphAddChildGraphNode)(&sub, graph, &kernel, 1, child));
    static unsigned out;
    CUDA_MEMCPY3D copy_params = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                 .srcDevice = p,
                                 .dstMemoryType = CU_MEMORYTYPE_HOST,
                                 .dstHost = &out,
                                 .WidthInBytes = 4,
                                 .Height = 1,
                                 .Depth = 1};
    OK(tow_drive(cu, cuGraphAddMemcpyNode)(&copy, graph, &sub, 1, &copy_params, context));
    int amount = 3;
    CUDA_HOST_NODE_PARAMS host_params = {host_function, &amount};
    OK(tow_drive(cu, cuGraphAddHostNode)(&host, graph, &copy, 1, &host_params));
    OK(tow_drive(cu, cuGraphAddEmptyNode)(&empty, graph, &host, 1));
    CUevent event;
    OK(tow_drive(cu, cuEventCreate)(&event, 0));
    OK(tow_drive(cu, cuGraphAddEventRecordNode)(&record, graph, &empty, 1, event));
    OK(tow_drive(cu, cuGraphAddEventWaitNode)(&wait, graph, &record, 1, event));
    CUstreamBatchMemOpParams op;
    memset(&op, 0, sizeof op);
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = p + 64;
    op.writeValue.value = 1234;
    CUDA_BATCH_MEM_OP_NODE_PARAMS op_params = {.ctx = context, .count = 1, .paramArray = &op};
    OK(tow_drive(cu, cuGraphAddBatchMemOpNode)(&ops, graph, &wait, 1, &op_params));
    op_params.count = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuGraphAddBatchMemOpNode)(&node, graph, NULL, 0, &op_params));
    op_params.count = 1;
    op.operation = (CUstreamBatchMemOpType)77;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuGraphAddBatchMemOpNode)(&node, graph, NULL, 0, &op_params));
    CUgraphNode wrong = (CUgraphNode)child;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphAddEmptyNode)(&node, graph, &wrong, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphAddEmptyNode)(&node, child, &set, 1));

    CUDA_KERNEL_NODE_PARAMS got;
    OK(tow_drive(cu, cuGraphKernelNodeGetParams_v2)(kernel, &got));
    assert_memory_equal(got.kernelParams[0], &p, sizeof p);
    assert_int_equal(got.gridDimX, 1);
    CUDA_MEMSET_NODE_PARAMS got_set;
    OK(tow_drive(cu, cuGraphMemsetNodeGetParams)(set, &got_set));
    assert_int_equal(got_set.value, 10);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphMemsetNodeGetParams)(kernel, &got_set));

    host_calls = 0;
    CUgraphExec exec = instantiate(graph);
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(out, 12);
    assert_int_equal(host_calls, 3);
    OK(tow_drive(cu, cuEventQuery)(event));
    assert_int_equal(word(16), 1234);

    cuuint64_t flags = 1;
    OK(tow_drive(cu, cuGraphExecGetFlags)(exec, &flags));
    assert_int_equal(flags, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphExecGetFlags)(exec, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphExecGetFlags)((CUgraphExec)graph, &flags));

    /* Nodes switched off, parameters changed: later launches only. */
    OK(tow_drive(cu, cuGraphNodeSetEnabled)(exec, kernel, 0));
    set_params.value = 100;
    OK(tow_drive(cu, cuGraphExecMemsetNodeSetParams)(exec, set, &set_params, context));
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(out, 101);

    /* Each kind has its own parameters. */
    CUDA_BATCH_MEM_OP_NODE_PARAMS got_ops;
    OK(tow_drive(cu, cuGraphBatchMemOpNodeGetParams)(ops, &got_ops));
    assert_int_equal(got_ops.count, 1);
    assert_int_equal(got_ops.paramArray[0].writeValue.address, p + 64);
    CUDA_MEMCPY3D got_copy;
    CUDA_HOST_NODE_PARAMS got_host;
    CUevent got_event;
    CUgraph got_child;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphKernelNodeGetParams_v2)(set, &got));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphMemcpyNodeGetParams)(set, &got_copy));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphHostNodeGetParams)(set, &got_host));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphBatchMemOpNodeGetParams)(set, &got_ops));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphEventRecordNodeGetEvent)(set, &got_event));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphEventWaitNodeGetEvent)(set, &got_event));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphChildGraphNodeGetGraph)(set, &got_child));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphKernelNodeGetParams_v2)(kernel, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphMemsetNodeGetParams)(set, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphMemcpyNodeGetParams)(copy, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphHostNodeGetParams)(host, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphBatchMemOpNodeGetParams)(ops, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphEventRecordNodeGetEvent)(record, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphEventWaitNodeGetEvent)(wait, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphChildGraphNodeGetGraph)(sub, NULL));

    /* A drawing has each of them, and each edge. */
    char path[] = "/tmp/test_soft_graph_XXXXXX", line[256];
    int fd = mkstemp(path), arrows = 0, lines = 0;
    assert_true(fd >= 0);
    close(fd);
    OK(tow_drive(cu, cuGraphDebugDotPrint)(graph, path, 0));
    FILE *dot = fopen(path, "r");
    assert_non_null(dot);
    while (fgets(line, sizeof line, dot) != NULL) {
        arrows += strstr(line, "->") != NULL;
        lines++;
    }
    fclose(dot);
    unlink(path);
    assert_int_equal(arrows, 8);
    assert_true(lines >= 9 + 8);

    /* A copy knows where its nodes came from. */
    CUgraph clone, found_graph;
    CUgraphNode found;
    OK(tow_drive(cu, cuGraphClone)(&clone, graph));
    OK(tow_drive(cu, cuGraphNodeFindInClone)(&found, kernel, clone));
    CUgraphNodeType type;
    OK(tow_drive(cu, cuGraphNodeGetType)(found, &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
    OK(tow_drive(cu, cuGraphDestroyNode)(found));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphNodeFindInClone)(&found, kernel, clone));
    OK(tow_drive(cu, cuGraphDestroy)(clone));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphClone)(&found_graph, clone));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphClone)(NULL, graph));

    /* A circle cannot be instantiated. */
    OK(tow_drive(cu, cuGraphAddDependencies)(graph, &ops, &set, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    OK(tow_drive(cu, cuGraphRemoveDependencies)(graph, &ops, &set, 1));
    OK(tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, graph, 0));
}

static void whole_graphs_are_updated_if_they_look_alike(void **state)
{
    (void)state;
    CUgraph first, second, third;
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(tow_drive(cu, cuMemsetD32Async)(p, 1, 1, stream));
    increment(stream);
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &first));
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(tow_drive(cu, cuMemsetD32Async)(p, 50, 1, stream));
    increment(stream);
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &second));
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    increment(stream);
    increment(stream);
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &third));
    CUgraphExec exec = instantiate(first);
    CUgraphExecUpdateResultInfo info;
    OK(tow_drive(cu, cuGraphExecUpdate_v2)(exec, second, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(word(0), 51);
    FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
          tow_drive(cu, cuGraphExecUpdate_v2)(exec, third, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    assert_non_null(info.errorNode);
}

static void graphs_allocate_and_free(void **state)
{
    (void)state;
    CUgraph graph;
    CUdeviceptr q;
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(tow_drive(cu, cuMemAllocAsync)(&q, 4096, stream));
    OK(tow_drive(cu, cuMemsetD32Async)(q, 66, 4, stream));
    OK(tow_drive(cu, cuMemcpyDtoDAsync_v2)(p, q, 4, stream));
    OK(tow_drive(cu, cuMemFreeAsync)(q, stream));
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &graph));
    unsigned value;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuMemcpyDtoH_v2)(&value, q, 4)); /* not there between launches */
    CUgraphExec exec = instantiate(graph);
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(word(0), 66);
    OK(tow_drive(cu, cuGraphExecDestroy)(exec));
    OK(tow_drive(cu, cuGraphDestroy)(graph));
}

static void captured_fills_of_any_address_fail_at_the_launch(void **state)
{
    (void)state;
    CUgraph graph;
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(tow_drive(cu, cuMemsetD8Async)(0x80, 0, 8192, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyDtoDAsync_v2)(0x80, p, 4, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyDtoDAsync_v2)(p, 0x80, 4, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemsetD8_v2)(0x80, 0, 8192));
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &graph));
    CUgraphExec exec = instantiate(graph);
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuStreamSynchronize)(stream));
}

static CUresult add_fill(CUgraph graph, const CUgraphNode *after, CUdeviceptr at, size_t size,
                         CUgraphNode *ret_node)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = at, .value = 5, .elementSize = 1, .width = size};
    fill.height = 1;
    return tow_drive(cu, cuGraphAddMemsetNode)(ret_node, graph, after, after != NULL, &fill, NULL);
}

static CUresult add_copy(CUgraph graph, const CUgraphNode *after, CUdeviceptr to, CUdeviceptr from,
                         CUgraphNode *ret_node)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .WidthInBytes = 4,
                          .Height = 1,
                          .Depth = 1};
    copy.srcDevice = from;
    copy.dstDevice = to;
    return tow_drive(cu, cuGraphAddMemcpyNode)(ret_node, graph, after, after != NULL, &copy, NULL);
}

static void nodes_name_memory_that_is_or_will_be(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphNode alloc, fill, copy, end;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.bytesize = 4096};
    wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    OK(tow_drive(cu, cuGraphCreate)(&graph, 0));
    OK(tow_drive(cu, cuGraphAddMemAllocNode)(&alloc, graph, NULL, 0, &wanted));
    CUdeviceptr q = wanted.dptr;
    OK(add_fill(graph, &alloc, q, 4096, &fill));
    OK(add_copy(graph, &fill, p, q + 4092, &copy));
    OK(tow_drive(cu, cuGraphAddMemFreeNode)(&end, graph, &copy, 1, q));
    FAILS(CUDA_ERROR_INVALID_VALUE, add_fill(graph, NULL, 0x80, 8192, &fill));
    FAILS(CUDA_ERROR_INVALID_VALUE, add_fill(graph, NULL, p, 1 << 30, &fill));
    FAILS(CUDA_ERROR_INVALID_VALUE, add_fill(graph, NULL, q, 1 << 30, &fill));
    FAILS(CUDA_ERROR_INVALID_VALUE, add_copy(graph, NULL, 0x80, p, &copy));
    FAILS(CUDA_ERROR_INVALID_VALUE, add_copy(graph, NULL, p, 0x80, &copy));
    CUgraphExec exec = instantiate(graph);
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(word(0), 0x05050505);
    OK(tow_drive(cu, cuGraphExecDestroy)(exec));
    OK(tow_drive(cu, cuGraphDestroy)(graph));
    OK(tow_drive(cu, cuGraphCreate)(&graph, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          add_fill(graph, NULL, q, 4096, &fill)); /* gone with its graph */
    OK(tow_drive(cu, cuGraphDestroy)(graph));
}

static void destroyed(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1); /* each on a thread of its own */
}

/* Its references: the program's, and those of graphs. */
static void user_objects_live_as_long_as_somebody_has_them(void **state)
{
    (void)state;
    CUgraph graph;
    CUuserObject object, gone;
    static atomic_int ends;
    ends = 0;
    OK(tow_drive(cu, cuGraphCreate)(&graph, 0));
    OK(tow_drive(cu, cuUserObjectCreate)(&gone, &ends, destroyed, 1,
                                         CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(tow_drive(cu, cuUserObjectRelease)(gone, 1));
    OK(tow_drive(cu, cuUserObjectCreate)(&object, &ends, destroyed, 1,
                                         CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuUserObjectRetain)(gone, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuUserObjectRelease)(gone, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphRetainUserObject)(graph, gone, 1, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphReleaseUserObject)(graph, gone, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphRetainUserObject)(graph, object, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphRetainUserObject)(graph, object, 1, 2));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphRetainUserObject)(NULL, object, 1, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphReleaseUserObject)(graph, object, 1));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuUserObjectRelease)(object, 2));
    OK(tow_drive(cu, cuGraphRetainUserObject)(graph, object, 1, 0));
    OK(tow_drive(cu, cuGraphRetainUserObject)(graph, object, 1, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphReleaseUserObject)(graph, object, 3));
    OK(tow_drive(cu, cuGraphReleaseUserObject)(graph, object, 2));
    OK(tow_drive(cu, cuUserObjectRetain)(object, 1));
    OK(tow_drive(cu, cuUserObjectRelease)(object, 1));
    OK(tow_drive(cu, cuGraphRetainUserObject)(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(tow_drive(cu, cuGraphDestroy)(graph));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuUserObjectRelease)(object, 1));
    for (int i = 0; i < 20000 && atomic_load(&ends) < 2; i++) {
        tow_time_sleep(TOW_TIME_MS);
    }
    assert_int_equal(atomic_load(&ends), 2);
}

static void a_launch_into_a_capture_ends_it(void **state)
{
    (void)state;
    CUgraph inner, outer;
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    increment(stream);
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &inner));
    CUgraphExec exec = instantiate(inner);
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, tow_drive(cu, cuGraphLaunch)(exec, stream));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, tow_drive(cu, cuStreamEndCapture)(stream, &outer));
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(word(0), 1);
}

static void a_context_reset_leaves_graphs_that_cannot_run(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    OK(tow_drive(cu, cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    increment(stream);
    OK(tow_drive(cu, cuStreamEndCapture)(stream, &graph));
    exec = instantiate(graph);
    OK(tow_drive(cu, cuDevicePrimaryCtxReset_v2)(0));
    OK(tow_drive(cu, cuDevicePrimaryCtxRetain)(&context, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphLaunch)(exec, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    OK(tow_drive(cu, cuGraphDestroy)(graph));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, soft_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(captured_work_runs_at_each_launch_only),
        TEST(a_captured_copy_says_what_it_copies),
        TEST(events_carry_a_capture_to_other_streams),
        TEST(waiting_spoils_a_capture),
        TEST(nodes_of_every_kind_by_hand),
        TEST(whole_graphs_are_updated_if_they_look_alike),
        TEST(graphs_allocate_and_free),
        TEST(captured_fills_of_any_address_fail_at_the_launch),
        TEST(nodes_name_memory_that_is_or_will_be),
        TEST(user_objects_live_as_long_as_somebody_has_them),
        TEST(a_launch_into_a_capture_ends_it),
        TEST(a_context_reset_leaves_graphs_that_cannot_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
