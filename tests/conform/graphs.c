/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs built by hand: nodes and their parameters, edges, clones, updates, memory nodes. */
#include "graphs.h"

CUgraph graph_new(void)
{
    CUgraph graph = NULL;
    OK(cuGraphCreate(&graph, 0));
    return graph;
}

static int count_nodes(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return (int)count;
}

static int count_edges(CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    return (int)count;
}

CUgraphNode add_inc(CUgraph graph, CUgraphNode after, CUdeviceptr to, int value)
{
    CUgraphNode node = NULL;
    void *params[] = {&to, &value};
    CUDA_KERNEL_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.func = function("inc");
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    OK(cuGraphAddKernelNode(&node, graph, after != NULL ? &after : NULL, after != NULL, &p));
    return node;
}

CUgraphExec make(CUgraph graph)
{
    CUgraphExec exec = NULL;
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

void go(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, side));
    OK(cuStreamSynchronize(side));
}

CASE(graph_launches_many_times, "a graph may be launched any number of times, one after another")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    add_inc(graph, add_inc(graph, NULL, w, 1), w, 10);
    CUgraphExec exec = make(graph);
    for (int i = 0; i < 20; i++) {
        OK(cuGraphLaunch(exec, side));
    }
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 220);
}

CASE(graph_in_two_streams, "launches of one graph in two streams do not overlap")
{
    CUdeviceptr w = words(1);
    CUstream a = stream_new(CU_STREAM_NON_BLOCKING), b = stream_new(CU_STREAM_NON_BLOCKING);
    CUgraph graph = graph_new();
    add_inc(graph, NULL, w, 1);
    CUgraphExec exec = make(graph);
    hold(a);
    OK(cuGraphLaunch(exec, a));
    OK(cuGraphLaunch(exec, b));
    conform_sleep_ms(10);
    SEE(cuStreamQuery(b));
    let_go();
    OK(cuStreamSynchronize(a));
    OK(cuStreamSynchronize(b));
    EQ(peek(w, 0), 2);
}

CASE(graph_arguments_are_copied, "a kernel node keeps the arguments it was added with")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode node = NULL;
    int value = 5;
    void *params[] = {&w, &value};
    CUDA_KERNEL_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.func = function("inc");
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
    value = 1000;
    CUgraphExec exec = make(graph);
    value = 2000;
    go(exec);
    EQ(peek(w, 0), 5);
}

CASE(graph_kernel_params_come_back, "cuGraphKernelNodeGetParams gives what the node was made with")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode node = NULL;
    int value = 5;
    void *params[] = {&w, &value};
    CUDA_KERNEL_NODE_PARAMS p, got;
    memset(&p, 0, sizeof p);
    memset(&got, 0, sizeof got);
    p.func = function("inc");
    p.gridDimX = 2, p.gridDimY = 3, p.gridDimZ = 4, p.blockDimX = 5, p.blockDimY = 6,
    p.blockDimZ = 7;
    p.sharedMemBytes = 128;
    p.kernelParams = params;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
    IS(cuGraphKernelNodeGetParams(node, &got), CUDA_SUCCESS);
    EQ(got.gridDimX * 100 + got.gridDimY * 10 + got.gridDimZ, 234);
    EQ(got.blockDimX * 100 + got.blockDimY * 10 + got.blockDimZ, 567);
    EQ(got.sharedMemBytes, 128);
    TRUE(got.func == p.func);
    TRUE(got.kernelParams != NULL);
    EQ(*(int *)got.kernelParams[1], 5);
    TRUE(*(CUdeviceptr *)got.kernelParams[0] == w);
    TRUE(got.extra == NULL);
}

CASE(graph_node_change_leaves_exec,
     "changing a node of the graph does not change what was instantiated")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode node = add_inc(graph, NULL, w, 1);
    CUgraphExec before = make(graph), after;
    CUDA_KERNEL_NODE_PARAMS p;
    int value = 100;
    void *params[] = {&w, &value};
    OK(cuGraphKernelNodeGetParams(node, &p));
    p.kernelParams = params;
    IS(cuGraphKernelNodeSetParams(node, &p), CUDA_SUCCESS);
    after = make(graph);
    go(before);
    EQ(peek(w, 0), 1);
    go(after);
    EQ(peek(w, 0), 101);
}

CASE(graph_exec_kernel_params, "cuGraphExecKernelNodeSetParams changes later launches only")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode node = add_inc(graph, NULL, w, 1);
    CUgraphExec exec = make(graph);
    CUDA_KERNEL_NODE_PARAMS p;
    int value = 100;
    void *params[] = {&w, &value};
    OK(cuGraphKernelNodeGetParams(node, &p));
    hold(side);
    OK(cuGraphLaunch(exec, side));
    p.kernelParams = params;
    IS(cuGraphExecKernelNodeSetParams(exec, node, &p), CUDA_SUCCESS);
    OK(cuGraphLaunch(exec, side));
    let_go();
    OK(cuStreamSynchronize(side));
    EQ(peek(w, 0), 101);
    OK(cuGraphKernelNodeGetParams(node, &p));
    EQ(*(int *)p.kernelParams[1], 1);
}

CASE(graph_memset_node, "a memset node fills, and gives its parameters back")
{
    CUdeviceptr w = words(4);
    CUgraph graph = graph_new();
    CUgraphNode node = NULL;
    CUDA_MEMSET_NODE_PARAMS p, got;
    memset(&p, 0, sizeof p);
    p.dst = w;
    p.elementSize = 2;
    p.value = 0x1234;
    p.width = 5;
    p.height = 1;
    IS(cuGraphAddMemsetNode(&node, graph, NULL, 0, &p, ctx), CUDA_SUCCESS);
    OK(cuGraphMemsetNodeGetParams(node, &got));
    EQ(got.elementSize, 2);
    EQ(got.value, 0x1234);
    EQ(got.width, 5);
    EQ(got.height, 1);
    go(make(graph));
    EQ(peek(w, 0), 0x12341234);
    EQ(peek(w, 1), 0x12341234);
    EQ(peek(w, 2), 0x1234);
    EQ(peek(w, 3), 0);
}

CASE(graph_memset_node_mistakes, "a memset node wants elements of 1, 2 or 4 bytes")
{
    CUdeviceptr w = words(4);
    CUgraph graph = graph_new();
    CUgraphNode node = NULL;
    CUDA_MEMSET_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.dst = w;
    p.elementSize = 3;
    p.width = p.height = 1;
    IS(cuGraphAddMemsetNode(&node, graph, NULL, 0, &p, ctx), CUDA_ERROR_INVALID_VALUE);
    p.elementSize = 8;
    IS(cuGraphAddMemsetNode(&node, graph, NULL, 0, &p, ctx), CUDA_ERROR_INVALID_VALUE);
    EQ(count_nodes(graph), 0);
}

CASE(graph_memset_node_of_unknown_address,
     "what a graph says to a memset node where no memory is, and its instance")
{
    CUgraph graph = graph_new();
    CUgraphNode node = NULL;
    CUgraphExec exec = NULL;
    CUDA_MEMSET_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.dst = 0x80;
    p.elementSize = 1;
    p.width = 8192;
    p.height = 1;
    SEE(cuGraphAddMemsetNode(&node, graph, NULL, 0, &p, ctx));
    NUM(count_nodes(graph));
    SEE(cuGraphInstantiate(&exec, graph, 0));
}

CUDA_MEMCPY3D copy_of(CUdeviceptr to, const void *from, size_t size)
{
    CUDA_MEMCPY3D p;
    memset(&p, 0, sizeof p);
    p.srcMemoryType = CU_MEMORYTYPE_HOST;
    p.srcHost = from;
    p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    p.dstDevice = to;
    p.WidthInBytes = size;
    p.Height = p.Depth = 1;
    return p;
}

CASE(graph_copy_node,
     "a copy node copies at each launch, and its instance can be pointed elsewhere")
{
    CUdeviceptr w = words(2);
    static int a = 3, b = 4;
    CUgraph graph = graph_new();
    CUgraphNode node = NULL;
    CUDA_MEMCPY3D p = copy_of(w, &a, 4), got;
    IS(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &p, ctx), CUDA_SUCCESS);
    OK(cuGraphMemcpyNodeGetParams(node, &got));
    TRUE(got.srcHost == &a);
    TRUE(got.dstDevice == w);
    EQ(got.WidthInBytes, 4);
    CUgraphExec exec = make(graph);
    go(exec);
    EQ(peek(w, 0), 3);
    p.srcHost = &b;
    p.dstDevice = w + 4;
    IS(cuGraphExecMemcpyNodeSetParams(exec, node, &p, ctx), CUDA_SUCCESS);
    go(exec);
    EQ(peek(w, 1), 4);
}

static int host_sum;

static void CUDA_CB add_to_sum(void *user)
{
    host_sum = host_sum * 10 + (int)(intptr_t)user;
}

CASE(graph_host_nodes_in_order, "host nodes run in the order of their edges")
{
    CUgraph graph = graph_new();
    CUgraphNode last = NULL;
    for (intptr_t i = 1; i <= 4; i++) {
        CUDA_HOST_NODE_PARAMS p = {.fn = add_to_sum, .userData = (void *)i};
        CUgraphNode node;
        OK(cuGraphAddHostNode(&node, graph, last != NULL ? &last : NULL, last != NULL, &p));
        last = node;
    }
    CUgraphExec exec = make(graph);
    go(exec);
    EQ(host_sum, 1234);
    CUDA_HOST_NODE_PARAMS p = {.fn = add_to_sum, .userData = (void *)9};
    IS(cuGraphExecHostNodeSetParams(exec, last, &p), CUDA_SUCCESS);
    host_sum = 0;
    go(exec);
    EQ(host_sum, 1239);
}

CASE(graph_edges_come_back, "edges, dependencies and roots are told as they were made")
{
    CUgraph graph = graph_new();
    CUgraphNode a, b, c, list[4] = {NULL};
    size_t count;
    OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    CUgraphNode both[] = {a, b};
    OK(cuGraphAddEmptyNode(&c, graph, both, 2));
    EQ(count_nodes(graph), 3);
    EQ(count_edges(graph), 3);
    count = 4;
    OK(cuGraphGetRootNodes(graph, list, &count));
    EQ(count, 1);
    TRUE(list[0] == a);
    count = 4;
    OK(cuGraphNodeGetDependencies(c, list, NULL, &count));
    EQ(count, 2);
    count = 4;
    OK(cuGraphNodeGetDependentNodes(a, list, NULL, &count));
    EQ(count, 2);
    count = 0;
    OK(cuGraphNodeGetDependentNodes(c, NULL, NULL, &count));
    EQ(count, 0);
}

CASE(graph_list_with_too_little_room,
     "cuGraphGetNodes fills the room it has, and NULL past the end")
{
    CUgraph graph = graph_new();
    CUgraphNode n, list[5];
    for (int i = 0; i < 3; i++) {
        OK(cuGraphAddEmptyNode(&n, graph, NULL, 0));
    }
    memset(list, 0x55, sizeof list);
    size_t count = 2;
    IS(cuGraphGetNodes(graph, list, &count), CUDA_SUCCESS);
    EQ(count, 2);
    memset(list, 0x55, sizeof list);
    count = 5;
    IS(cuGraphGetNodes(graph, list, &count), CUDA_SUCCESS);
    EQ(count, 3);
    NUM(list[3] == NULL);
    NUM(list[4] == NULL);
}

CASE(graph_edge_mistakes, "an edge twice, to itself, or absent is refused")
{
    CUgraph graph = graph_new();
    CUgraphNode a, b;
    OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&b, graph, NULL, 0));
    IS(cuGraphAddDependencies(graph, &a, &b, NULL, 1), CUDA_SUCCESS);
    SEE(cuGraphAddDependencies(graph, &a, &b, NULL, 1));
    SEE(cuGraphAddDependencies(graph, &a, &a, NULL, 1));
    NUM(count_edges(graph));
    IS(cuGraphRemoveDependencies(graph, &a, &b, NULL, 1), CUDA_SUCCESS);
    SEE(cuGraphRemoveDependencies(graph, &a, &b, NULL, 1));
    EQ(count_edges(graph), 0);
    IS(cuGraphAddDependencies(graph, NULL, NULL, NULL, 0), CUDA_SUCCESS);
}

CASE(graph_cycle, "a graph with a cycle cannot be instantiated")
{
    CUgraph graph = graph_new();
    CUgraphNode a, b;
    CUgraphExec exec = NULL;
    OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    SEE(cuGraphAddDependencies(graph, &b, &a, NULL, 1));
    NUM(count_edges(graph));
    SEE(cuGraphInstantiate(&exec, graph, 0));
}

CASE(graph_destroy_node, "destroying a node takes its edges with it")
{
    CUdeviceptr w = words(2); /* what is left may run side by side */
    CUgraph graph = graph_new();
    CUgraphNode a = add_inc(graph, NULL, w, 1), b = add_inc(graph, a, w, 10);
    add_inc(graph, b, w + 4, 100);
    IS(cuGraphDestroyNode(b), CUDA_SUCCESS);
    EQ(count_nodes(graph), 2);
    EQ(count_edges(graph), 0);
    go(make(graph));
    EQ(peek(w, 0), 1);
    EQ(peek(w, 1), 100);
}

CASE(graph_clone, "a clone is a graph of its own whose nodes can be found by the original's")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new(), clone = NULL;
    CUgraphNode a = add_inc(graph, NULL, w, 1), found = NULL, late;
    IS(cuGraphClone(&clone, graph), CUDA_SUCCESS);
    IS(cuGraphNodeFindInClone(&found, a, clone), CUDA_SUCCESS);
    TRUE(found != NULL && found != a);
    OK(cuGraphAddEmptyNode(&late, graph, NULL, 0));
    EQ(count_nodes(clone), 1);
    SEE(cuGraphNodeFindInClone(&found, late, clone));
    OK(cuGraphDestroy(graph));
    go(make(clone));
    EQ(peek(w, 0), 1);
}

CASE(graph_child, "a child graph is a copy of what was added")
{
    CUdeviceptr w = words(1);
    CUgraph inner = graph_new(), outer = graph_new(), got = NULL;
    CUgraphNode child;
    add_inc(inner, NULL, w, 2);
    IS(cuGraphAddChildGraphNode(&child, outer, NULL, 0, inner), CUDA_SUCCESS);
    add_inc(inner, NULL, w, 1000);
    IS(cuGraphChildGraphNodeGetGraph(child, &got), CUDA_SUCCESS);
    TRUE(got != inner);
    EQ(count_nodes(got), 1);
    add_inc(outer, child, w, 40);
    go(make(outer));
    EQ(peek(w, 0), 42);
}

static void update_to(CUgraphExec exec, CUgraph other)
{
    CUgraphExecUpdateResultInfo info;
    memset(&info, 0, sizeof info);
    SEE(cuGraphExecUpdate(exec, other, &info));
    NUM(info.result);
    NUM(info.errorNode != NULL);
}

CASE(graph_update_arguments, "an instance takes over changed arguments of an equal graph")
{
    CUdeviceptr w = words(1);
    CUgraph a = graph_new(), b = graph_new();
    add_inc(a, NULL, w, 1);
    add_inc(b, NULL, w, 50);
    CUgraphExec exec = make(a);
    update_to(exec, b);
    go(exec);
    EQ(peek(w, 0), 50);
}

CASE(graph_update_topology,
     "an instance refuses a graph with another number of nodes, and stays as it was")
{
    CUdeviceptr w = words(1);
    CUgraph a = graph_new(), b = graph_new();
    add_inc(a, NULL, w, 1);
    add_inc(b, add_inc(b, NULL, w, 5), w, 6);
    CUgraphExec exec = make(a);
    update_to(exec, b);
    go(exec);
    EQ(peek(w, 0), 1);
}

CASE(graph_update_node_type, "an instance refuses a graph whose node is of another type")
{
    CUdeviceptr w = words(1);
    CUgraph a = graph_new(), b = graph_new();
    CUgraphNode node;
    add_inc(a, NULL, w, 1);
    OK(cuGraphAddEmptyNode(&node, b, NULL, 0));
    update_to(make(a), b);
}

CASE(graph_update_grid, "an instance takes over another grid")
{
    CUdeviceptr w = words(1);
    CUgraph a = graph_new(), b = graph_new();
    CUgraphNode node;
    void *params[] = {&w};
    CUDA_KERNEL_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.func = function("count");
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = params;
    OK(cuGraphAddKernelNode(&node, a, NULL, 0, &p));
    p.gridDimX = 7;
    p.blockDimX = 3;
    OK(cuGraphAddKernelNode(&node, b, NULL, 0, &p));
    CUgraphExec exec = make(a);
    update_to(exec, b);
    go(exec);
    EQ(peek(w, 0), 21);
}

CASE(graph_node_disabled, "a disabled node does nothing until it is enabled")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode a = add_inc(graph, NULL, w, 1);
    add_inc(graph, a, w, 10);
    CUgraphExec exec = make(graph);
    unsigned enabled = 9;
    IS(cuGraphNodeSetEnabled(exec, a, 0), CUDA_SUCCESS);
    OK(cuGraphNodeGetEnabled(exec, a, &enabled));
    EQ(enabled, 0);
    go(exec);
    EQ(peek(w, 0), 10);
    OK(cuGraphNodeSetEnabled(exec, a, 1));
    go(exec);
    EQ(peek(w, 0), 21);
}

CASE(graph_event_nodes, "event nodes record and wait, and give their events back")
{
    CUgraph graph = graph_new();
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING), f = event_new(CU_EVENT_DISABLE_TIMING),
            got = NULL;
    CUgraphNode record, wait;
    IS(cuGraphAddEventRecordNode(&record, graph, NULL, 0, e), CUDA_SUCCESS);
    IS(cuGraphAddEventWaitNode(&wait, graph, &record, 1, f), CUDA_SUCCESS);
    OK(cuGraphEventRecordNodeGetEvent(record, &got));
    TRUE(got == e);
    OK(cuGraphEventWaitNodeGetEvent(wait, &got));
    TRUE(got == f);
    CUgraphExec exec = make(graph);
    hold(side);
    OK(cuGraphLaunch(exec, side));
    let_go();
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    IS(cuEventQuery(e), CUDA_SUCCESS);
}

CASE(graph_types_of_nodes, "cuGraphNodeGetType tells each node's type")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode n;
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(add_inc(graph, NULL, w, 1), &type));
    EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuGraphAddEmptyNode(&n, graph, NULL, 0));
    OK(cuGraphNodeGetType(n, &type));
    EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
    CUDA_HOST_NODE_PARAMS h = {.fn = add_to_sum};
    OK(cuGraphAddHostNode(&n, graph, NULL, 0, &h));
    OK(cuGraphNodeGetType(n, &type));
    EQ(type, CU_GRAPH_NODE_TYPE_HOST);
    CUDA_KERNEL_NODE_PARAMS p;
    SEE(cuGraphKernelNodeGetParams(n, &p));
}

CUgraphNode add_alloc(CUgraph graph, CUdeviceptr *ret_address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS p;
    CUgraphNode node;
    memset(&p, 0, sizeof p);
    p.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.poolProps.location.id = dev;
    p.bytesize = 4096;
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &p));
    *ret_address = p.dptr;
    return node;
}

CASE(graph_memory_nodes, "memory of an allocation node lives until its free node, in each launch")
{
    CUdeviceptr w = words(1), m = 0, got = 0;
    CUgraph graph = graph_new();
    CUgraphNode alloc = add_alloc(graph, &m), zero, work, release;
    TRUE(m != 0);
    CUDA_MEMSET_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.dst = m;
    p.elementSize = 4;
    p.value = 9;
    p.width = 4;
    p.height = 1;
    OK(cuGraphAddMemsetNode(&zero, graph, &alloc, 1, &p, ctx));
    work = add_inc(graph, zero, w, 1);
    IS(cuGraphAddMemFreeNode(&release, graph, &work, 1, m), CUDA_SUCCESS);
    OK(cuGraphMemFreeNodeGetParams(release, &got));
    TRUE(got == m);
    CUgraphExec exec = make(graph);
    go(exec);
    go(exec);
    EQ(peek(w, 0), 2);
}

CASE(graph_memory_not_freed,
     "a graph that leaves memory behind cannot run twice before it is freed")
{
    CUdeviceptr m = 0;
    CUgraph graph = graph_new();
    add_alloc(graph, &m);
    CUgraphExec exec = make(graph);
    go(exec);
    SEE_LATE(cuGraphLaunch(exec, side));
    IS_LATE(cuMemFreeAsync(m, side), CUDA_SUCCESS);
    IS_LATE(cuGraphLaunch(exec, side), CUDA_SUCCESS);
    IS_LATE(cuMemFree(m), CUDA_SUCCESS);
}

CASE(graph_memory_auto_free,
     "with automatic freeing a graph may leave memory behind at each launch")
{
    CUdeviceptr m = 0;
    CUgraph graph = graph_new();
    CUgraphExec exec = NULL;
    add_alloc(graph, &m);
    IS(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
       CUDA_SUCCESS);
    IS_LATE(cuGraphLaunch(exec, side), CUDA_SUCCESS);
    IS_LATE(cuGraphLaunch(exec, side), CUDA_SUCCESS);
    cuuint64_t flags = 0;
    OK(cuGraphExecGetFlags(exec, &flags));
    EQ(flags, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
}

CASE(graph_memory_only_one_instance,
     "a graph with memory nodes has one instance at a time, and no clone")
{
    CUdeviceptr m = 0;
    CUgraph graph = graph_new(), clone = NULL;
    CUgraphExec first = NULL, second = NULL;
    add_alloc(graph, &m);
    IS(cuGraphInstantiate(&first, graph, 0), CUDA_SUCCESS);
    SEE(cuGraphInstantiate(&second, graph, 0));
    SEE(cuGraphClone(&clone, graph));
}

CASE_ALONE(graph_memory_attributes, "a graph's memory is counted, and can be trimmed")
{
    cuuint64_t used = 99;
    OK(cuDeviceGetGraphMemAttribute(dev, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    EQ(used, 0);
    IS(cuDeviceGraphMemTrim(dev), CUDA_SUCCESS);
    used = 1;
    SEE(cuDeviceSetGraphMemAttribute(dev, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
    used = 0;
    IS(cuDeviceSetGraphMemAttribute(dev, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used), CUDA_SUCCESS);
}

CASE(graph_upload, "uploading a graph runs nothing")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    add_inc(graph, NULL, w, 1);
    CUgraphExec exec = make(graph);
    IS(cuGraphUpload(exec, side), CUDA_SUCCESS);
    OK(cuStreamSynchronize(side));
    EQ(peek(w, 0), 0);
    go(exec);
    EQ(peek(w, 0), 1);
}

CASE(graph_instantiate_with_params, "cuGraphInstantiateWithParams says how it went")
{
    CUgraph graph = graph_new();
    CUgraphExec exec = NULL;
    CUDA_GRAPH_INSTANTIATE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.result_out = (CUgraphInstantiateResult)99;
    IS(cuGraphInstantiateWithParams(&exec, graph, &p), CUDA_SUCCESS);
    EQ(p.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    TRUE(exec != NULL);
}

CASE(graph_exec_destroyed_in_flight, "an instance may be destroyed while it runs")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    add_inc(graph, NULL, w, 1);
    CUgraphExec exec = make(graph);
    hold(side);
    OK(cuGraphLaunch(exec, side));
    IS(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    IS(cuGraphDestroy(graph), CUDA_SUCCESS);
    let_go();
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 1);
}

CASE(graph_without_a_context, "graphs are looked at, changed and ended without a current context")
{
    CUcontext context = NULL;
    CUgraph graph = graph_new(), clone = NULL, fresh = NULL;
    CUdeviceptr w = words(1);
    CUgraphNode first = add_inc(graph, NULL, w, 1), second = add_inc(graph, first, w, 1);
    CUgraphNode found = NULL, empty = NULL;
    CUgraphNodeType type;
    CUgraphExec exec = make(graph), other = make(graph);
    size_t count = 0;
    cuuint64_t flags = 0;
    go(exec);
    OK(cuCtxGetCurrent(&context));
    OK(cuCtxSetCurrent(NULL));
    SEE(cuGraphCreate(&fresh, 0));
    SEE(cuGraphClone(&clone, graph));
    SEE(cuGraphNodeFindInClone(&found, second, clone));
    SEE(cuGraphGetNodes(graph, NULL, &count));
    SEE(cuGraphGetRootNodes(graph, NULL, &count));
    SEE(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    SEE(cuGraphNodeGetDependencies(second, NULL, NULL, &count));
    SEE(cuGraphNodeGetDependentNodes(first, NULL, NULL, &count));
    SEE(cuGraphNodeGetType(first, &type));
    SEE(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
    SEE(cuGraphAddDependencies(graph, &second, &empty, NULL, 1));
    SEE(cuGraphRemoveDependencies(graph, &second, &empty, NULL, 1));
    SEE(cuGraphDestroyNode(empty));
    SEE(cuGraphExecGetFlags(exec, &flags));
    IS(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    if (clone != NULL) {
        SEE(cuGraphDestroy(clone));
    }
    if (fresh != NULL) {
        SEE(cuGraphDestroy(fresh));
    }
    OK(cuCtxSetCurrent(context));
    go(other);
    OK(cuGraphExecDestroy(other));
    OK(cuGraphDestroy(graph));
    EQ(peek(w, 0), 4);
}

CASE(graph_outlived_by_exec, "an instance works after its graph is gone")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    add_inc(graph, NULL, w, 1);
    CUgraphExec exec = make(graph);
    OK(cuGraphDestroy(graph));
    go(exec);
    EQ(peek(w, 0), 1);
}

CASE(graph_respects_its_stream, "a launched graph comes after and before the work of its stream")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    add_inc(graph, NULL, w, 1);
    CUgraphExec exec = make(graph);
    OK(launch_set(side, w, 10));
    OK(cuGraphLaunch(exec, side));
    OK(cuMemsetD32Async(w + 0, 5, 0, side));
    OK(launch_inc(side, w, 100));
    OK(cuGraphLaunch(exec, side));
    OK(cuStreamSynchronize(side));
    EQ(peek(w, 0), 112);
}

CASE(graph_kernel_attributes, "a kernel node's attributes are kept, and copied to another node")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode a = add_inc(graph, NULL, w, 1), b = add_inc(graph, NULL, w, 1);
    CUkernelNodeAttrValue value;
    memset(&value, 0, sizeof value);
    OK(cuGraphKernelNodeGetAttribute(a, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    EQ(value.priority, 0);
    value.priority = -1;
    IS(cuGraphKernelNodeSetAttribute(a, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value), CUDA_SUCCESS);
    memset(&value, 0, sizeof value);
    OK(cuGraphKernelNodeGetAttribute(a, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    EQ(value.priority, -1);
    IS(cuGraphKernelNodeCopyAttributes(b, a), CUDA_SUCCESS);
    memset(&value, 0, sizeof value);
    OK(cuGraphKernelNodeGetAttribute(b, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    EQ(value.priority, -1);
}

static void conditional(unsigned initial)
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphConditionalHandle handle = 0;
    CUgraphNodeParams p;
    CUgraphNode node = NULL;
    SEE(cuGraphConditionalHandleCreate(&handle, graph, ctx, initial, CU_GRAPH_COND_ASSIGN_DEFAULT));
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    p.conditional.handle = handle;
    p.conditional.type = CU_GRAPH_COND_TYPE_IF;
    p.conditional.size = 1;
    p.conditional.ctx = ctx;
    OK(cuGraphAddNode(&node, graph, NULL, NULL, 0, &p));
    add_inc(p.conditional.phGraph_out[0], NULL, w, 1);
    go(make(graph));
    NUM(peek(w, 0));
}

CASE(graph_conditional_true, "the body of an if node runs when its condition is 1")
{
    conditional(1);
}

CASE(graph_conditional_false, "the body of an if node does not run when its condition is 0")
{
    conditional(0);
}

CASE(graph_add_node_by_type, "cuGraphAddNode makes a kernel node from the general parameters")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode node;
    int value = 6;
    void *params[] = {&w, &value};
    CUgraphNodeParams p;
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_KERNEL;
    p.kernel.func = function("inc");
    p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = 1;
    p.kernel.blockDimX = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
    p.kernel.kernelParams = params;
    IS(cuGraphAddNode(&node, graph, NULL, NULL, 0, &p), CUDA_SUCCESS);
    go(make(graph));
    EQ(peek(w, 0), 6);
}

CASE(graph_bad_kernel_node, "a kernel node that could not be launched")
{
    CUgraph graph = graph_new();
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_KERNEL_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.func = function("nothing");
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
    p.blockDimX = 2000;
    SEE(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
    NUM(count_nodes(graph));
    SEE(cuGraphInstantiate(&exec, graph, 0));
}

static int destroyed;

static void CUDA_CB destroy_object(void *user)
{
    __atomic_add_fetch((int *)user, 1, __ATOMIC_SEQ_CST);
}

static CUuserObject object_new(void)
{
    CUuserObject object = NULL;
    __atomic_store_n(&destroyed, 0, __ATOMIC_SEQ_CST);
    OK(cuUserObjectCreate(&object, &destroyed, destroy_object, 1,
                          CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return object;
}

/* How often the object was destroyed, which the driver may do some time later. */
static int destroyed_soon(int wanted)
{
    conform_sleep_ms(wanted == 0 ? 20 : 0);
    for (int i = 0; i < 200 && __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST) < wanted; i++) {
        conform_sleep_ms(10);
    }
    return __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST);
}

CASE(graph_object_counts, "a user object is destroyed when its last reference is released")
{
    CUuserObject object = object_new();
    IS(cuUserObjectRetain(object, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuUserObjectRetain(object, 2), CUDA_SUCCESS);
    IS(cuUserObjectRelease(object, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuUserObjectRelease(object, 2), CUDA_SUCCESS);
    EQ(destroyed_soon(0), 0);
    IS(cuUserObjectRelease(object, 1), CUDA_SUCCESS);
    EQ(destroyed_soon(1), 1);
}

CASE(graph_object_released, "a graph that releases its references to a user object may be the last")
{
    CUgraph graph = graph_new();
    CUuserObject object = object_new();
    IS(cuGraphRetainUserObject(graph, object, 2, 0), CUDA_SUCCESS);
    IS(cuUserObjectRelease(object, 1), CUDA_SUCCESS);
    IS(cuGraphReleaseUserObject(graph, object, 1), CUDA_SUCCESS);
    EQ(destroyed_soon(0), 0);
    IS(cuGraphReleaseUserObject(graph, object, 1), CUDA_SUCCESS);
    EQ(destroyed_soon(1), 1);
    OK(cuGraphDestroy(graph));
}
