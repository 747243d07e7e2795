/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the nodes of graphs and of their instances after they were made, and batches of memory
 * operations in graphs. */
#include "graphs.h"

#include <unistd.h>

/* ---- batches of memory operations ---- */

static CUstreamBatchMemOpParams write_of(CUdeviceptr to, unsigned value)
{
    CUstreamBatchMemOpParams op;
    memset(&op, 0, sizeof op);
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = to;
    op.writeValue.value = value;
    return op;
}

static CUDA_BATCH_MEM_OP_NODE_PARAMS memops_of(CUstreamBatchMemOpParams *ops, unsigned count)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.ctx = ctx;
    p.count = count;
    p.paramArray = ops;
    return p;
}

static CUgraphNode add_memops(CUgraph graph, CUstreamBatchMemOpParams *ops, unsigned count)
{
    CUDA_BATCH_MEM_OP_NODE_PARAMS p = memops_of(ops, count);
    CUgraphNode node = NULL;
    IS(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &p), CUDA_SUCCESS);
    return node;
}

CASE(graph_memops_write, "a batch node carries out its operations at each launch")
{
    CUdeviceptr w = words(4);
    CUstreamBatchMemOpParams ops[] = {write_of(w, 5), write_of(w + 4, 6), write_of(w + 8, 0)};
    ops[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    ops[2].writeValue.value64 = 0x900000008;
    CUgraph graph = graph_new();
    CUgraphNode node = add_memops(graph, ops, 3);
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(node, &type));
    EQ(type, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    memset(ops, 0, sizeof ops); /* the node has copied them */
    CUgraphExec exec = make(graph);
    for (int i = 0; i < 2; i++) {
        OK(cuMemsetD32(w, 0, 4));
        OK(cuCtxSynchronize());
        go(exec);
        EQ(peek(w, 0), 5);
        EQ(peek(w, 1), 6);
        EQ(peek(w, 2), 8);
        EQ(peek(w, 3), 9);
    }
}

CASE(graph_memops_wait, "a batch node waits for its word before what depends on it runs")
{
    CUdeviceptr w = words(2);
    CUstreamBatchMemOpParams op;
    memset(&op, 0, sizeof op);
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = w;
    op.waitValue.value = 7;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUgraph graph = graph_new();
    add_inc(graph, add_memops(graph, &op, 1), w + 4, 1);
    CUgraphExec exec = make(graph);
    OK(cuGraphLaunch(exec, s));
    conform_sleep_ms(10);
    IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 1), 0);
    OK(cuMemsetD32Async(w, 8, 1, side));
    OK(cuStreamSynchronize(side));
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 1), 1);
}

CASE(graph_memops_params_come_back, "a batch node's parameters are what it was made with")
{
    CUdeviceptr w = words(2);
    CUstreamBatchMemOpParams ops[] = {write_of(w, 5), write_of(w + 4, 6)};
    CUDA_BATCH_MEM_OP_NODE_PARAMS got;
    CUgraphNode node = add_memops(graph_new(), ops, 2);
    memset(&got, 0x55, sizeof got);
    IS(cuGraphBatchMemOpNodeGetParams(node, &got), CUDA_SUCCESS);
    EQ(got.count, 2);
    EQ(got.flags, 0);
    EQ(got.paramArray[0].operation, CU_STREAM_MEM_OP_WRITE_VALUE_32);
    TRUE(got.paramArray[1].writeValue.address == w + 4);
    EQ(got.paramArray[0].writeValue.value, 5);
    EQ(got.paramArray[1].writeValue.value, 6);
}

CASE(graph_memops_set, "a batch node takes other operations, and instances made before keep theirs")
{
    CUdeviceptr w = words(2);
    CUstreamBatchMemOpParams op = write_of(w, 5);
    CUDA_BATCH_MEM_OP_NODE_PARAMS p;
    CUgraph graph = graph_new();
    CUgraphNode node = add_memops(graph, &op, 1);
    CUgraphExec before = make(graph);
    OK(cuGraphBatchMemOpNodeGetParams(node, &p)); /* as programs do: what is, with a change */
    op = write_of(w + 4, 6);
    p.paramArray = &op;
    IS(cuGraphBatchMemOpNodeSetParams(node, &p), CUDA_SUCCESS);
    OK(cuGraphBatchMemOpNodeGetParams(node, &p));
    EQ(p.count, 1);
    EQ(p.paramArray[0].writeValue.value, 6);
    go(before);
    EQ(peek(w, 0), 5);
    EQ(peek(w, 1), 0);
    go(make(graph));
    EQ(peek(w, 1), 6);
}

CASE(graph_memops_exec_set,
     "an instance's batch node takes other operations, and its graph's does not")
{
    CUdeviceptr w = words(2);
    CUstreamBatchMemOpParams op = write_of(w, 5);
    CUDA_BATCH_MEM_OP_NODE_PARAMS p = memops_of(&op, 1);
    CUgraph graph = graph_new();
    CUgraphNode node = add_memops(graph, &op, 1);
    CUgraphExec exec = make(graph);
    op = write_of(w + 4, 6);
    IS(cuGraphExecBatchMemOpNodeSetParams(exec, node, &p), CUDA_SUCCESS);
    go(exec);
    EQ(peek(w, 0), 0);
    EQ(peek(w, 1), 6);
    OK(cuGraphBatchMemOpNodeGetParams(node, &p));
    EQ(p.paramArray[0].writeValue.value, 5);
}

CASE(graph_memops_host_memory, "a batch node writes page-locked memory of the host")
{
    int *host = NULL;
    OK(cuMemAllocHost((void **)&host, 4096));
    host[0] = 1, host[1] = 2;
    CUstreamBatchMemOpParams op = write_of((CUdeviceptr)host, 5);
    CUgraph graph = graph_new();
    add_memops(graph, &op, 1);
    go(make(graph));
    EQ(host[0], 5);
    EQ(host[1], 2);
    OK(cuMemFreeHost(host));
}

/* ---- nodes of a graph ---- */

static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr to, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.dst = to;
    p.elementSize = 4;
    p.value = value;
    p.width = p.height = 1;
    return p;
}

static CUgraphNode add_fill(CUgraph graph, CUdeviceptr to, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS p = fill_of(to, value);
    CUgraphNode node = NULL;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &p, ctx));
    return node;
}

CASE(graph_copy_node_set,
     "a copy node takes other parameters, and instances made before keep theirs")
{
    CUdeviceptr w = words(2);
    static int a = 3, b = 4;
    CUgraph graph = graph_new();
    CUgraphNode node = NULL;
    CUDA_MEMCPY3D p = copy_of(w, &a, 4), got;
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &p, ctx));
    CUgraphExec before = make(graph);
    p = copy_of(w + 4, &b, 4);
    IS(cuGraphMemcpyNodeSetParams(node, &p), CUDA_SUCCESS);
    OK(cuGraphMemcpyNodeGetParams(node, &got));
    TRUE(got.srcHost == &b);
    TRUE(got.dstDevice == w + 4);
    go(before);
    EQ(peek(w, 0), 3);
    EQ(peek(w, 1), 0);
    go(make(graph));
    EQ(peek(w, 1), 4);
}

CASE(graph_memset_node_set,
     "a memset node takes other parameters, and instances made before keep theirs")
{
    CUdeviceptr w = words(2);
    CUgraph graph = graph_new();
    CUgraphNode node = add_fill(graph, w, 3);
    CUDA_MEMSET_NODE_PARAMS p = fill_of(w + 4, 4), got;
    CUgraphExec before = make(graph);
    IS(cuGraphMemsetNodeSetParams(node, &p), CUDA_SUCCESS);
    OK(cuGraphMemsetNodeGetParams(node, &got));
    TRUE(got.dst == w + 4);
    EQ(got.value, 4);
    go(before);
    EQ(peek(w, 0), 3);
    EQ(peek(w, 1), 0);
    go(make(graph));
    EQ(peek(w, 1), 4);
}

CASE(graph_memset_exec_set,
     "an instance's memset node takes other parameters, and its graph's does not")
{
    CUdeviceptr w = words(2);
    CUgraph graph = graph_new();
    CUgraphNode node = add_fill(graph, w, 3);
    CUDA_MEMSET_NODE_PARAMS p = fill_of(w, 4), got;
    CUgraphExec exec = make(graph);
    IS(cuGraphExecMemsetNodeSetParams(exec, node, &p, ctx), CUDA_SUCCESS);
    go(exec);
    EQ(peek(w, 0), 4);
    OK(cuGraphMemsetNodeGetParams(node, &got));
    EQ(got.value, 3);
    go(make(graph));
    EQ(peek(w, 0), 3);
}

CASE(graph_memset_host_memory,
     "memset nodes fill page-locked memory of the host, old ones and changed ones")
{
    int *host[3];
    for (int i = 0; i < 3; i++) {
        OK(cuMemAllocHost((void **)&host[i], 4096));
        host[i][0] = 1, host[i][1] = 2;
    }
    CUgraph graph = graph_new();
    CUgraphNode node = add_fill(graph, (CUdeviceptr)host[0], 10);
    CUgraphExec exec = make(graph);
    go(exec);
    EQ(host[0][0], 10);
    EQ(host[0][1], 2);
    CUDA_MEMSET_NODE_PARAMS p = fill_of((CUdeviceptr)host[1], 11);
    IS(cuGraphMemsetNodeSetParams(node, &p), CUDA_SUCCESS);
    go(make(graph));
    EQ(host[1][0], 11);
    EQ(host[1][1], 2);
    p = fill_of((CUdeviceptr)host[2], 12);
    IS(cuGraphExecMemsetNodeSetParams(exec, node, &p, ctx), CUDA_SUCCESS);
    go(exec);
    EQ(host[2][0], 12);
    EQ(host[2][1], 2);
    for (int i = 0; i < 3; i++) {
        OK(cuMemFreeHost(host[i]));
    }
}

static int seen;

static void CUDA_CB see_user(void *user)
{
    seen = seen * 10 + (int)(intptr_t)user;
}

static void CUDA_CB see_more(void *user)
{
    seen = seen * 100 + (int)(intptr_t)user;
}

CASE(graph_host_node_set,
     "a host node takes another function, and instances made before keep theirs")
{
    CUgraph graph = graph_new();
    CUgraphNode node = NULL;
    CUDA_HOST_NODE_PARAMS p = {.fn = see_user, .userData = (void *)1}, got = {.fn = NULL};
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &p));
    CUgraphExec before = make(graph);
    p.fn = see_more;
    p.userData = (void *)2;
    IS(cuGraphHostNodeSetParams(node, &p), CUDA_SUCCESS);
    OK(cuGraphHostNodeGetParams(node, &got));
    TRUE(got.fn == see_more);
    TRUE(got.userData == (void *)2);
    seen = 0;
    go(before);
    EQ(seen, 1);
    go(make(graph));
    EQ(seen, 102);
    go(before);
    EQ(seen, 1021);
}

/* Whether it was ever recorded: otherwise there is no time to tell. */
static CUresult time_of(CUevent start, CUevent event)
{
    float ms = 0;
    return cuEventElapsedTime(&ms, start, event);
}

CASE(graph_record_node_set, "an event record node records the event that it was given last")
{
    CUgraph graph = graph_new();
    CUevent start = event_new(0), e = event_new(0), f = event_new(0), got = NULL;
    CUgraphNode node;
    OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, e));
    IS(cuGraphEventRecordNodeSetEvent(node, f), CUDA_SUCCESS);
    OK(cuGraphEventRecordNodeGetEvent(node, &got));
    TRUE(got == f);
    OK(cuEventRecord(start, side));
    go(make(graph));
    IS(time_of(start, f), CUDA_SUCCESS);
    IS(time_of(start, e), CUDA_ERROR_INVALID_HANDLE);
}

CASE(graph_record_exec_set,
     "an instance's event record node takes another event, and its graph's does not")
{
    CUgraph graph = graph_new();
    CUevent start = event_new(0), e = event_new(0), f = event_new(0), got = NULL;
    CUgraphNode node;
    OK(cuGraphAddEventRecordNode(&node, graph, NULL, 0, e));
    CUgraphExec exec = make(graph);
    IS(cuGraphExecEventRecordNodeSetEvent(exec, node, f), CUDA_SUCCESS);
    OK(cuGraphEventRecordNodeGetEvent(node, &got));
    TRUE(got == e);
    OK(cuEventRecord(start, side));
    go(exec);
    IS(time_of(start, f), CUDA_SUCCESS);
    IS(time_of(start, e), CUDA_ERROR_INVALID_HANDLE);
}

/* Launches an instance that adds 1 to *w, and says whether it waits for an event that is recorded
 * behind a gate. */
static void waits_for(CUgraphExec exec, CUevent event, CUdeviceptr w)
{
    CUstream first = stream_new(CU_STREAM_NON_BLOCKING), s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr word = gate(first);
    OK(cuEventRecord(event, first));
    OK(cuGraphLaunch(exec, s));
    conform_sleep_ms(10);
    IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 0), 0);
    open_gate(word);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 1);
}

CASE(graph_wait_node_set, "an event wait node waits for the event that it was given last")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING), f = event_new(CU_EVENT_DISABLE_TIMING);
    CUevent got = NULL;
    CUgraphNode node;
    OK(cuGraphAddEventWaitNode(&node, graph, NULL, 0, e));
    add_inc(graph, node, w, 1);
    IS(cuGraphEventWaitNodeSetEvent(node, f), CUDA_SUCCESS);
    OK(cuGraphEventWaitNodeGetEvent(node, &got));
    TRUE(got == f);
    waits_for(make(graph), f, w);
}

CASE(graph_wait_exec_set,
     "an instance's event wait node takes another event, and its graph's does not")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING), f = event_new(CU_EVENT_DISABLE_TIMING);
    CUevent got = NULL;
    CUgraphNode node;
    OK(cuGraphAddEventWaitNode(&node, graph, NULL, 0, e));
    add_inc(graph, node, w, 1);
    CUgraphExec exec = make(graph);
    IS(cuGraphExecEventWaitNodeSetEvent(exec, node, f), CUDA_SUCCESS);
    OK(cuGraphEventWaitNodeGetEvent(node, &got));
    TRUE(got == e);
    waits_for(exec, f, w);
}

CASE(graph_child_exec_set, "an instance's child takes over the arguments of an equal graph")
{
    CUdeviceptr w = words(1);
    CUgraph inner = graph_new(), other = graph_new(), longer = graph_new(), outer = graph_new();
    CUgraphNode child;
    add_inc(inner, NULL, w, 2);
    add_inc(other, NULL, w, 30);
    add_inc(longer, add_inc(longer, NULL, w, 400), w, 400);
    OK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, inner));
    CUgraphExec exec = make(outer);
    IS(cuGraphExecChildGraphNodeSetParams(exec, child, other), CUDA_SUCCESS);
    go(exec);
    EQ(peek(w, 0), 30);
    go(make(outer));
    EQ(peek(w, 0), 32);
    SEE(cuGraphExecChildGraphNodeSetParams(exec, child, longer));
    go(exec);
    EQ(peek(w, 0), 62);
}

/* ---- the general form ---- */

CASE(graph_set_by_type, "cuGraphNodeSetParams changes nodes by the general parameters")
{
    CUdeviceptr w = words(3);
    CUgraph graph = graph_new();
    CUgraphNode kernel = add_inc(graph, NULL, w, 1), fill = add_fill(graph, w + 4, 2), host = NULL;
    CUDA_HOST_NODE_PARAMS h = {.fn = see_user, .userData = (void *)1};
    OK(cuGraphAddHostNode(&host, graph, NULL, 0, &h));
    int value = 6;
    void *params[] = {&w, &value};
    CUgraphNodeParams p;
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_KERNEL;
    p.kernel.func = function("inc");
    p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = 1;
    p.kernel.blockDimX = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
    p.kernel.kernelParams = params;
    IS(cuGraphNodeSetParams(kernel, &p), CUDA_SUCCESS);
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_MEMSET;
    p.memset.dst = w + 4;
    p.memset.elementSize = 4;
    p.memset.value = 7;
    p.memset.width = 2;
    p.memset.height = 1;
    p.memset.ctx = ctx;
    IS(cuGraphNodeSetParams(fill, &p), CUDA_SUCCESS);
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_HOST;
    p.host.fn = see_user;
    p.host.userData = (void *)8;
    IS(cuGraphNodeSetParams(host, &p), CUDA_SUCCESS);
    IS(cuGraphNodeSetParams(kernel, &p), CUDA_ERROR_INVALID_VALUE);
    seen = 0;
    go(make(graph));
    EQ(peek(w, 0), 6);
    EQ(peek(w, 1), 7);
    EQ(peek(w, 2), 7);
    EQ(seen, 8);
}

CASE(graph_exec_set_by_type,
     "cuGraphExecNodeSetParams changes an instance by the general parameters")
{
    CUdeviceptr w = words(2);
    static int a = 3, b = 4;
    CUgraph graph = graph_new();
    CUgraphNode kernel = add_inc(graph, NULL, w, 1), copy = NULL;
    CUDA_MEMCPY3D c = copy_of(w + 4, &a, 4);
    OK(cuGraphAddMemcpyNode(&copy, graph, NULL, 0, &c, ctx));
    CUgraphExec exec = make(graph);
    int value = 6;
    void *params[] = {&w, &value};
    CUgraphNodeParams p;
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_KERNEL;
    p.kernel.func = function("inc");
    p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = 1;
    p.kernel.blockDimX = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
    p.kernel.kernelParams = params;
    IS(cuGraphExecNodeSetParams(exec, kernel, &p), CUDA_SUCCESS);
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    p.memcpy.copyCtx = ctx;
    p.memcpy.copyParams = copy_of(w + 4, &b, 4);
    IS(cuGraphExecNodeSetParams(exec, copy, &p), CUDA_SUCCESS);
    go(exec);
    EQ(peek(w, 0), 6);
    EQ(peek(w, 1), 4);
    go(make(graph));
    EQ(peek(w, 0), 7);
    EQ(peek(w, 1), 3);
}

CASE(graph_set_others_by_type, "the general parameters change events and memory operations, too")
{
    CUdeviceptr w = words(2);
    CUevent start = event_new(0), e = event_new(0), f = event_new(0), got = NULL;
    CUstreamBatchMemOpParams op = write_of(w, 5);
    CUgraph graph = graph_new();
    CUgraphNode record, wait, memops = add_memops(graph, &op, 1);
    OK(cuGraphAddEventRecordNode(&record, graph, NULL, 0, e));
    OK(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, e));
    CUgraphExec exec = make(graph);
    CUgraphNodeParams p;
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    p.eventRecord.event = f;
    IS(cuGraphExecNodeSetParams(exec, record, &p), CUDA_SUCCESS);
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    p.eventWait.event = f;
    IS(cuGraphNodeSetParams(wait, &p), CUDA_SUCCESS);
    OK(cuGraphEventWaitNodeGetEvent(wait, &got));
    TRUE(got == f);
    op = write_of(w + 4, 6);
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    p.memOp.ctx = ctx;
    p.memOp.count = 1;
    p.memOp.paramArray = &op;
    IS(cuGraphExecNodeSetParams(exec, memops, &p), CUDA_SUCCESS);
    OK(cuEventRecord(start, side));
    go(exec);
    IS(time_of(start, f), CUDA_SUCCESS);
    IS(time_of(start, e), CUDA_ERROR_INVALID_HANDLE);
    EQ(peek(w, 0), 0);
    EQ(peek(w, 1), 6);
}

CASE(graph_exec_set_child_by_type,
     "the general parameters give an instance's child other arguments")
{
    CUdeviceptr w = words(1);
    CUgraph inner = graph_new(), other = graph_new(), outer = graph_new();
    CUgraphNode child;
    add_inc(inner, NULL, w, 2);
    add_inc(other, NULL, w, 30);
    OK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, inner));
    CUgraphExec exec = make(outer);
    CUgraphNodeParams p;
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_GRAPH;
    p.graph.graph = other;
    SEE(cuGraphExecNodeSetParams(exec, child, &p));
    go(exec);
    NUM(peek(w, 0));
}

/* ---- looking at graphs ---- */

CASE(graph_alloc_params_come_back, "an allocation node's parameters are what it was made with")
{
    CUdeviceptr m = 0;
    CUDA_MEM_ALLOC_NODE_PARAMS got;
    CUgraphNode node = add_alloc(graph_new(), &m);
    memset(&got, 0x55, sizeof got);
    IS(cuGraphMemAllocNodeGetParams(node, &got), CUDA_SUCCESS);
    EQ(got.poolProps.allocType, CU_MEM_ALLOCATION_TYPE_PINNED);
    EQ(got.poolProps.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    EQ(got.poolProps.location.id, dev);
    EQ(got.bytesize, 4096);
    NUM(got.accessDescCount);
    TRUE(got.dptr == m);
}

CASE(graph_dot_print, "cuGraphDebugDotPrint writes a file where the program is")
{
    char folder[] = "/tmp/conform-dot-XXXXXX", back[4096], text[16] = "";
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    add_inc(graph, add_inc(graph, NULL, w, 1), w, 10);
    if (getcwd(back, sizeof back) == NULL || mkdtemp(folder) == NULL || chdir(folder) != 0) {
        conform_wrong("no folder to write in");
        conform_stop();
    }
    /* Not a whole path: a server's current folder is another one. */
    IS(cuGraphDebugDotPrint(graph, "graph.dot", CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE), CUDA_SUCCESS);
    FILE *file = fopen("graph.dot", "r");
    TRUE(file != NULL);
    if (file != NULL) {
        TRUE(fgets(text, 8, file) != NULL);
        conform_say("it begins with %s", text);
        fclose(file);
    }
    unlink("graph.dot");
    if (chdir(back) != 0) {
        conform_wrong("the folder before is gone");
    }
    rmdir(folder);
}
