/* SPDX-License-Identifier: Apache-2.0 */
// Graphs whose nodes run or repeat their bodies as the device decides: if, if with else, while,
// switch, one in another; launched again, updated, captured.
#include "check.h"

__global__ void set(cudaGraphConditionalHandle handle, const int *value)
{
    cudaGraphSetConditional(handle, *value);
}

__global__ void add(int *to, int value)
{
    *to += value;
}

// One round of a loop: counts, and asks for another one below the limit.
__global__ void again(cudaGraphConditionalHandle handle, int *count, int limit)
{
    *count += 1;
    cudaGraphSetConditional(handle, *count < limit);
}

static cudaStream_t stream;
static int *words; // 0: what conditions are set to; the others: results

static void put(int index, int value)
{
    CHECK(cudaMemcpyAsync(words + index, &value, sizeof value, cudaMemcpyHostToDevice, stream));
    CHECK(cudaStreamSynchronize(stream));
}

static int get(int index)
{
    int value;
    CHECK(cudaMemcpyAsync(&value, words + index, sizeof value, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return value;
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, cudaGraphNode_t after, const void *function,
                                  void **arguments)
{
    cudaGraphNode_t node;
    cudaKernelNodeParams params = {};
    params.func = const_cast<void *>(function);
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&node, graph, after != nullptr ? &after : nullptr,
                                 after != nullptr, &params));
    return node;
}

static cudaGraphNode_t add_set(cudaGraph_t graph, cudaGraphNode_t after,
                               cudaGraphConditionalHandle handle, int *from)
{
    void *arguments[] = {&handle, &from};
    return add_kernel(graph, after, (const void *)set, arguments);
}

static cudaGraphNode_t add_add(cudaGraph_t graph, cudaGraphNode_t after, int index, int value)
{
    int *to = words + index;
    void *arguments[] = {&to, &value};
    return add_kernel(graph, after, (const void *)add, arguments);
}

static cudaGraphNode_t add_again(cudaGraph_t graph, cudaGraphNode_t after,
                                 cudaGraphConditionalHandle handle, int index, int limit)
{
    int *count = words + index;
    void *arguments[] = {&handle, &count, &limit};
    return add_kernel(graph, after, (const void *)again, arguments);
}

static cudaGraphNode_t add_branch(cudaGraph_t graph, cudaGraphNode_t after,
                                  cudaGraphConditionalHandle handle,
                                  cudaGraphConditionalNodeType type, int size, cudaGraph_t *bodies)
{
    cudaGraphNode_t node;
    cudaGraphNodeParams params = {};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    CHECK(cudaGraphAddNode(&node, graph, after != nullptr ? &after : nullptr, nullptr,
                           after != nullptr, &params));
    for (int i = 0; i < size; i++) {
        bodies[i] = params.conditional.phGraph_out[i];
    }
    cudaGraphNodeType got;
    CHECK(cudaGraphNodeGetType(node, &got));
    EXPECT(got == cudaGraphNodeTypeConditional);
    return node;
}

static cudaGraphConditionalHandle handle_of(cudaGraph_t graph, int value, unsigned flags)
{
    cudaGraphConditionalHandle handle;
    CHECK(cudaGraphConditionalHandleCreate(&handle, graph, value, flags));
    return handle;
}

static void launch(cudaGraphExec_t exec)
{
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
}

static cudaGraphExec_t make(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
}

// Body i adds 10 to the power of i; a node behind the branch adds 1 to another word.
static void branches(cudaGraphConditionalNodeType type, int size, int values,
                     int (*chosen)(int value))
{
    cudaGraph_t graph, bodies[4];
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = handle_of(graph, 0, 0);
    cudaGraphNode_t branch =
        add_branch(graph, add_set(graph, nullptr, handle, words), handle, type, size, bodies);
    for (int i = 0, value = 1; i < size; i++, value *= 10) {
        add_add(bodies[i], nullptr, 1, value);
    }
    add_add(graph, branch, 2, 1);
    cudaGraphExec_t exec = make(graph);
    CHECK(cudaGraphDestroy(graph));
    put(2, 0);
    for (int value = 0; value < values; value++) {
        put(0, value);
        put(1, 0);
        launch(exec);
        EXPECT(get(1) == chosen(value));
    }
    EXPECT(get(2) == values);
    CHECK(cudaGraphExecDestroy(exec));
}

static int if_chooses(int value)
{
    return value != 0 ? 1 : 0;
}

static int if_else_chooses(int value)
{
    return value != 0 ? 1 : 10;
}

static int switch_chooses(int value)
{
    return value == 0 ? 1 : value == 1 ? 10 : value == 2 ? 100 : 0;
}

// The body: a kernel, a copy, a fill, a child graph. Its default starts the loop at each launch.
static void loop()
{
    cudaGraph_t graph, body, child;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle handle = handle_of(graph, 1, cudaGraphCondAssignDefault);
    add_branch(graph, nullptr, handle, cudaGraphCondTypeWhile, 1, &body);
    cudaGraphNode_t counted = add_again(body, nullptr, handle, 1, 7), copied, filled, called;
    CHECK(cudaGraphAddMemcpyNode1D(&copied, body, &counted, 1, words + 2, words + 1, sizeof(int),
                                   cudaMemcpyDeviceToDevice));
    cudaMemsetParams fill = {};
    fill.dst = words + 3;
    fill.elementSize = 4;
    fill.width = fill.height = 1;
    fill.value = 33;
    CHECK(cudaGraphAddMemsetNode(&filled, body, &copied, 1, &fill));
    CHECK(cudaGraphCreate(&child, 0));
    add_add(child, nullptr, 3, 1);
    CHECK(cudaGraphAddChildGraphNode(&called, body, &filled, 1, child));
    CHECK(cudaGraphDestroy(child));
    cudaGraphExec_t exec = make(graph);
    CHECK(cudaGraphUpload(exec, stream));
    for (int round = 0; round < 2; round++) {
        for (int i = 1; i < 4; i++) {
            put(i, 0);
        }
        launch(exec);
        EXPECT(get(1) == 7 && get(2) == 7 && get(3) == 34);
    }
    // Begun with 7 it counts once, and no more.
    launch(exec);
    EXPECT(get(1) == 8);

    // Another limit, by an update of the whole.
    size_t count = 1;
    cudaGraphNode_t node;
    CHECK(cudaGraphGetRootNodes(body, &node, &count));
    EXPECT(node == counted);
    int *at = words + 1, limit = 3;
    void *arguments[] = {&handle, &at, &limit};
    cudaKernelNodeParams params = {};
    params.func = (void *)again;
    params.gridDim = params.blockDim = dim3(1);
    params.kernelParams = arguments;
    CHECK(cudaGraphKernelNodeSetParams(counted, &params));
    cudaGraphExecUpdateResultInfo info;
    CHECK(cudaGraphExecUpdate(exec, graph, &info));
    EXPECT(info.result == cudaGraphExecUpdateSuccess);
    put(1, 0);
    launch(exec);
    EXPECT(get(1) == 3);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// Four rounds; in those whose number is not 1 an inner loop counts to the word's next multiple
// of 5.
__global__ void outer(cudaGraphConditionalHandle self, cudaGraphConditionalHandle inner, int *round)
{
    cudaGraphSetConditional(inner, *round != 1);
    *round += 1;
    cudaGraphSetConditional(self, *round < 4);
}

__global__ void to_five(cudaGraphConditionalHandle handle, int *count)
{
    *count += 1;
    cudaGraphSetConditional(handle, *count % 5 != 0);
}

static void nested()
{
    cudaGraph_t graph, body, chosen, inner;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle rounds = handle_of(graph, 1, cudaGraphCondAssignDefault);
    add_branch(graph, nullptr, rounds, cudaGraphCondTypeWhile, 1, &body);
    cudaGraphConditionalHandle choice = handle_of(body, 0, 0);
    int *round = words + 1, *count = words + 2;
    void *first[] = {&rounds, &choice, &round};
    cudaGraphNode_t chose = add_kernel(body, nullptr, (const void *)outer, first);
    add_branch(body, chose, choice, cudaGraphCondTypeIf, 1, &chosen);
    cudaGraphConditionalHandle loop = handle_of(chosen, 0, 0);
    put(0, 1);
    cudaGraphNode_t begun = add_set(chosen, nullptr, loop, words);
    add_branch(chosen, begun, loop, cudaGraphCondTypeWhile, 1, &inner);
    void *second[] = {&loop, &count};
    add_kernel(inner, nullptr, (const void *)to_five, second);
    cudaGraphExec_t exec = make(graph);
    for (int i = 1; i <= 2; i++) {
        put(1, 0);
        launch(exec);
        EXPECT(get(1) == 4);
        EXPECT(get(2) == 15 * i);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

// A node put into a graph that is being captured, and a stream captured into its body.
static void captured()
{
    cudaStream_t other;
    cudaGraph_t graph, body, got;
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *before;
    size_t count;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    put(0, 0);
    put(1, 0);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    add<<<1, 1, 0, stream>>>(words, 1);
    CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    EXPECT(status == cudaStreamCaptureStatusActive);
    cudaGraphConditionalHandle handle = handle_of(graph, 0, 0);
    set<<<1, 1, 0, stream>>>(handle, words);
    CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &before, nullptr, &count));
    EXPECT(count == 1);
    cudaGraphNode_t branch = add_branch(graph, before[0], handle, cudaGraphCondTypeIf, 1, &body);
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &branch, nullptr, 1,
                                              cudaStreamSetCaptureDependencies));
    CHECK(cudaStreamBeginCaptureToGraph(other, body, nullptr, nullptr, 0,
                                        cudaStreamCaptureModeRelaxed));
    add<<<1, 1, 0, other>>>(words + 1, 5);
    add<<<1, 1, 0, other>>>(words + 1, 6);
    CHECK(cudaStreamEndCapture(other, nullptr));
    add<<<1, 1, 0, stream>>>(words + 1, 100);
    CHECK(cudaStreamEndCapture(stream, &got));
    cudaGraphExec_t exec = make(got);
    launch(exec);
    EXPECT(get(1) == 111);
    put(0, -1); // becomes 0: not chosen
    launch(exec);
    EXPECT(get(1) == 211);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(got));
    CHECK(cudaStreamDestroy(other));
}

int main()
{
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&words, 4 * sizeof(int)));
    CHECK(cudaMemset(words, 0, 4 * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    branches(cudaGraphCondTypeIf, 1, 3, if_chooses);
    branches(cudaGraphCondTypeIf, 2, 3, if_else_chooses);
    branches(cudaGraphCondTypeSwitch, 3, 5, switch_chooses);
    loop();
    put(2, 0);
    nested();
    captured();
    CHECK(cudaFree(words));
    return finish();
}
