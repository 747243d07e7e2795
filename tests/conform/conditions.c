/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional nodes: bodies that run, or run again, as kernels say. */
#include "graphs.h"

static CUmodule code;

/* A graph, and the kernels of these cases. */
static CUgraph begin(void)
{
    OK(cuModuleLoadData(&code, condition_ptx));
    return graph_new();
}

static CUgraphConditionalHandle handle_of(CUgraph graph, unsigned value, unsigned flags)
{
    CUgraphConditionalHandle handle = 0;
    OK(cuGraphConditionalHandleCreate(&handle, graph, ctx, value, flags));
    return handle;
}

static CUgraphNodeParams params_of(CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                                   unsigned size)
{
    CUgraphNodeParams p;
    memset(&p, 0, sizeof p);
    p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    p.conditional.handle = handle;
    p.conditional.type = type;
    p.conditional.size = size;
    p.conditional.ctx = ctx;
    return p;
}

/* Returns the bodies. */
static const CUgraph *add_branch(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle,
                                 CUgraphConditionalNodeType type, unsigned size,
                                 CUgraphNode *ret_node)
{
    CUgraphNodeParams p = params_of(handle, type, size);
    OK(cuGraphAddNode(ret_node, graph, after != NULL ? &after : NULL, NULL, after != NULL, &p));
    return p.conditional.phGraph_out;
}

static CUDA_KERNEL_NODE_PARAMS kernel_of(const char *name, void **arguments)
{
    CUDA_KERNEL_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    OK(cuModuleGetFunction(&p.func, code, name));
    p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimX = p.blockDimY = p.blockDimZ = 1;
    p.kernelParams = arguments;
    return p;
}

static CUgraphNode add_kernel(CUgraph graph, CUgraphNode after, const char *name, void **arguments)
{
    CUgraphNode node = NULL;
    CUDA_KERNEL_NODE_PARAMS p = kernel_of(name, arguments);
    OK(cuGraphAddKernelNode(&node, graph, after != NULL ? &after : NULL, after != NULL, &p));
    return node;
}

/* The condition becomes *from. */
static CUgraphNode add_decide(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle,
                              CUdeviceptr from)
{
    void *arguments[] = {&handle, &from};
    return add_kernel(graph, after, "decide", arguments);
}

/* Adds 1 to *count; the condition becomes: it is less than the limit. */
static CUgraphNode add_again(CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle,
                             CUdeviceptr count, int limit)
{
    void *arguments[] = {&handle, &count, &limit};
    return add_kernel(graph, after, "again", arguments);
}

static void poke(CUdeviceptr at, int value)
{
    OK(cuMemsetD32(at, (unsigned)value, 1));
    OK(cuCtxSynchronize());
}

/* Launches it once for each value below `count` that the condition is set to; the result of each,
 * as a decimal digit. Body i puts 1 + i there. */
static int choices(CUgraphConditionalNodeType type, unsigned size, int count)
{
    CUdeviceptr w = words(2);
    CUgraph graph = begin();
    CUgraphNode node;
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0);
    const CUgraph *bodies =
        add_branch(graph, add_decide(graph, NULL, handle, w), handle, type, size, &node);
    for (unsigned i = 0; i < size; i++) {
        add_inc(bodies[i], NULL, w + 4, (int)i + 1);
    }
    CUgraphExec exec = make(graph);
    int results = 0;
    for (int value = 0; value < count; value++) {
        poke(w, value);
        poke(w + 4, 0);
        go(exec);
        results = results * 10 + peek(w, 1);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    return results;
}

CASE(graph_conditional_if, "an if node's body runs where a kernel sets the condition to another "
                           "value than 0, anew at each launch")
{
    EQ(choices(CU_GRAPH_COND_TYPE_IF, 1, 3), 11);
}

CASE(graph_conditional_else,
     "an if node with two bodies runs the second one where the condition is "
     "0")
{
    EQ(choices(CU_GRAPH_COND_TYPE_IF, 2, 3), 211);
}

CASE(graph_conditional_switch, "a switch node runs the body of the condition's number, or none")
{
    EQ(choices(CU_GRAPH_COND_TYPE_SWITCH, 3, 5), 12300);
}

CASE(graph_conditional_while, "a while node's body runs until a kernel sets the condition to 0; "
                              "each launch begins with the default")
{
    CUdeviceptr w = words(2);
    CUgraph graph = begin();
    CUgraphNode node;
    CUgraphNodeType type;
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph body = add_branch(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node)[0];
    add_inc(graph, node, w + 4, 1);
    add_again(body, NULL, handle, w, 7);
    IS(cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
    EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    CUgraphExec exec = make(graph);
    OK(cuGraphUpload(exec, side));
    go(exec);
    EQ(peek(w, 0), 7);
    go(exec);
    EQ(peek(w, 0), 8);
    poke(w, 0);
    OK(cuGraphLaunch(exec, side));
    OK(cuGraphLaunch(exec, side));
    OK(cuStreamSynchronize(side));
    EQ(peek(w, 0), 8);
    EQ(peek(w, 1), 4);
}

/* A graph with a while node alone, whose body counts `w` up to `times`. */
static CUgraph loop_of(unsigned value, CUdeviceptr w, int times)
{
    CUgraph graph = begin();
    CUgraphNode node;
    CUgraphConditionalHandle handle = handle_of(graph, value, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_again(add_branch(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node)[0], NULL, handle,
              w, times);
    return graph;
}

CASE(graph_conditional_while_never, "a while node's body does not run where the condition is 0")
{
    CUdeviceptr w = words(1);
    CUgraph graph = loop_of(0, w, 7);
    go(make(graph));
    EQ(peek(w, 0), 0);
}

CASE(graph_conditional_body,
     "a body may hold copies, fills, empty nodes and child graphs, and they "
     "run in order")
{
    CUdeviceptr w = words(3);
    CUgraph graph = begin(), child = graph_new();
    CUgraphNode node, copied, filled, empty, called;
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph body = add_branch(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node)[0];
    CUgraphNode counted = add_again(body, NULL, handle, w, 5);
    CUDA_MEMCPY3D copy = copy_of(w + 4, NULL, 4);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = w;
    OK(cuGraphAddMemcpyNode(&copied, body, &counted, 1, &copy, ctx));
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = w + 8, .elementSize = 4, .width = 1, .height = 1, .value = 30};
    OK(cuGraphAddMemsetNode(&filled, body, &copied, 1, &fill, ctx));
    OK(cuGraphAddEmptyNode(&empty, body, &filled, 1));
    add_inc(child, NULL, w + 8, 4);
    OK(cuGraphAddChildGraphNode(&called, body, &empty, 1, child));
    go(make(graph));
    EQ(peek(w, 0), 5);
    EQ(peek(w, 1), 5);
    EQ(peek(w, 2), 34);
}

CASE(graph_conditional_nested, "a body may have conditional nodes of its own")
{
    CUdeviceptr w = words(4);
    CUgraph graph = begin();
    CUgraphNode node;
    CUgraphConditionalHandle rounds = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph body = add_branch(graph, NULL, rounds, CU_GRAPH_COND_TYPE_WHILE, 1, &node)[0];
    CUgraphConditionalHandle choice = handle_of(body, 0, 0);
    CUgraphNode begun = add_decide(body, add_again(body, NULL, rounds, w, 3), choice, w + 4);
    CUgraph chosen = add_branch(body, begun, choice, CU_GRAPH_COND_TYPE_IF, 1, &node)[0];
    CUgraphConditionalHandle inner = handle_of(chosen, 0, 0);
    begun = add_decide(chosen, NULL, inner, w + 4);
    add_again(add_branch(chosen, begun, inner, CU_GRAPH_COND_TYPE_WHILE, 1, &node)[0], NULL, inner,
              w + 8, 5);
    CUgraphExec exec = make(graph);
    poke(w + 4, 1);
    go(exec);
    EQ(peek(w, 0), 3);
    EQ(peek(w, 2), 7); /* 5 in the first round, 1 in each of the others */
    poke(w + 4, 0);
    go(exec);
    EQ(peek(w, 0), 4);
    EQ(peek(w, 2), 7);
}

CASE(graph_conditional_outlived, "an instance's conditions can be set when the graph is gone")
{
    CUdeviceptr w = words(1);
    CUgraph graph = loop_of(1, w, 4);
    CUgraphExec exec = make(graph);
    OK(cuGraphDestroy(graph));
    go(exec);
    EQ(peek(w, 0), 4);
}

static CUgraph if_graph(unsigned value, CUdeviceptr to, int what)
{
    CUgraph graph = graph_new();
    CUgraphNode node;
    CUgraphConditionalHandle handle = handle_of(graph, value, CU_GRAPH_COND_ASSIGN_DEFAULT);
    add_inc(add_branch(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &node)[0], NULL, to, what);
    return graph;
}

CASE(graph_conditional_update, "updating an instance changes its defaults and what its bodies do")
{
    CUdeviceptr w = words(1);
    CUgraphExec exec = make(if_graph(1, w, 1));
    CUgraphExecUpdateResultInfo info;
    go(exec);
    EQ(peek(w, 0), 1);
    IS(cuGraphExecUpdate(exec, if_graph(1, w, 10), &info), CUDA_SUCCESS);
    go(exec);
    EQ(peek(w, 0), 11);
    IS(cuGraphExecUpdate(exec, if_graph(0, w, 100), &info), CUDA_SUCCESS);
    go(exec);
    EQ(peek(w, 0), 11);
}

CASE(graph_conditional_not_twice, "a graph with a conditional node is not cloned, no child of "
                                  "another one, and has one instance at a time")
{
    CUdeviceptr w = words(1);
    CUgraph graph = if_graph(1, w, 1), parent = graph_new(), clone = NULL;
    CUgraphNode node = NULL;
    CUgraphExec exec = make(graph), second = NULL;
    TRUE(cuGraphClone(&clone, graph) != CUDA_SUCCESS);
    TRUE(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph) != CUDA_SUCCESS);
    TRUE(cuGraphInstantiate(&second, graph, 0) != CUDA_SUCCESS);
    OK(cuGraphExecDestroy(exec));
    go(make(graph));
    EQ(peek(w, 0), 1);
}

CASE(graph_conditional_sizes, "a while node has one body, an if node one or two, a switch node one "
                              "or more")
{
    CUgraph graph = graph_new();
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0);
    CUgraphNode node = NULL;
    CUgraphNodeParams p = params_of(handle, CU_GRAPH_COND_TYPE_WHILE, 2);
    TRUE(cuGraphAddNode(&node, graph, NULL, NULL, 0, &p) != CUDA_SUCCESS);
    p = params_of(handle, CU_GRAPH_COND_TYPE_IF, 3);
    TRUE(cuGraphAddNode(&node, graph, NULL, NULL, 0, &p) != CUDA_SUCCESS);
    p = params_of(handle, CU_GRAPH_COND_TYPE_SWITCH, 0);
    TRUE(cuGraphAddNode(&node, graph, NULL, NULL, 0, &p) != CUDA_SUCCESS);
}

CASE(graph_conditional_many, "a switch node may have hundreds of bodies")
{
    CUdeviceptr w = words(1);
    CUgraph graph = graph_new();
    CUgraphNode node;
    CUgraphConditionalHandle handle = handle_of(graph, 250, CU_GRAPH_COND_ASSIGN_DEFAULT);
    const CUgraph *bodies = add_branch(graph, NULL, handle, CU_GRAPH_COND_TYPE_SWITCH, 300, &node);
    for (int i = 0; i < 300; i++) {
        add_inc(bodies[i], NULL, w, i);
    }
    go(make(graph));
    EQ(peek(w, 0), 250);
}

CASE(graph_conditional_captured, "a node is put into a graph that is being captured, and a stream "
                                 "is captured into its body")
{
    CUdeviceptr w = words(2);
    CUgraph graph = NULL, got = NULL;
    CUgraphNode node;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUstreamCaptureStatus status;
    cuuint64_t id;
    const CUgraphNode *before = NULL;
    size_t count = 0;
    CUfunction decide;
    OK(cuModuleLoadData(&code, condition_ptx));
    OK(cuModuleGetFunction(&decide, code, "decide"));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamGetCaptureInfo(s, &status, &id, &graph, NULL, NULL, NULL));
    CUgraphConditionalHandle handle = handle_of(graph, 0, 0);
    void *arguments[] = {&handle, &w};
    OK(cuLaunchKernel(decide, 1, 1, 1, 1, 1, 1, 0, s, arguments, NULL));
    OK(cuStreamGetCaptureInfo(s, &status, &id, &graph, &before, NULL, &count));
    EQ(count, 1);
    CUgraph body = add_branch(graph, before[0], handle, CU_GRAPH_COND_TYPE_IF, 1, &node)[0];
    OK(cuStreamUpdateCaptureDependencies(s, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(cuStreamBeginCaptureToGraph(t, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch_inc(t, w + 4, 1));
    OK(launch_inc(t, w + 4, 2));
    IS(cuStreamEndCapture(t, NULL), CUDA_SUCCESS);
    OK(launch_inc(s, w + 4, 10));
    IS(cuStreamEndCapture(s, &got), CUDA_SUCCESS);
    CUgraphExec exec = make(got);
    go(exec);
    EQ(peek(w, 1), 10);
    poke(w, 1);
    go(exec);
    EQ(peek(w, 1), 23);
}

CASE_ALONE(graph_conditional_broken, "a kernel that fails in a body ends the loop, and the context "
                                     "has its error")
{
    CUgraph graph = begin();
    CUgraphNode node;
    CUgraphConditionalHandle handle = handle_of(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    CUgraph body = add_branch(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node)[0];
    add_kernel(body, NULL, "fail", NULL);
    CUgraphExec exec = make(graph);
    OK(cuGraphLaunch(exec, side));
    IS(cuStreamSynchronize(side), CUDA_ERROR_LAUNCH_FAILED);
    IS(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}
