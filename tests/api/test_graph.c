/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: built by hand and captured, updated, launched again; user objects; capture modes. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "api.h"

enum { N = 1000 };

static CUDA_KERNEL_NODE_PARAMS kernel_params(struct api *api, void **params)
{
    CUDA_KERNEL_NODE_PARAMS p = {.func = api->add,
                                 .gridDimX = (N + 63) / 64,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 64,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = params};
    return p;
}

static CUDA_MEMCPY3D copy_params(CUdeviceptr device, void *host, bool up)
{
    CUDA_MEMCPY3D p = {.WidthInBytes = N * sizeof(int), .Height = 1, .Depth = 1};
    if (up) {
        p.srcMemoryType = CU_MEMORYTYPE_HOST;
        p.srcHost = host;
        p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        p.dstDevice = device;
    } else {
        p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        p.srcDevice = device;
        p.dstMemoryType = CU_MEMORYTYPE_HOST;
        p.dstHost = host;
    }
    return p;
}

static int host_calls;
static void host_function(void *user)
{
    host_calls += *(int *)user;
}

static void explicit_graph_reads_host_memory_at_each_launch(struct api *api)
{
    /* Large enough to come from mmap: small memory could lie where the worker has its own program.
     */
    int *in = malloc(1 << 20), *out = calloc(1, 1 << 20);
    CUdeviceptr data;
    CUgraph graph, clone;
    CUgraphExec exec;
    CUgraphNode up, kernel, down, host, nodes[8], found;
    CUgraphNodeType type;
    int by = 5, count = N, weight = 3;
    size_t size = 8;
    OK(cuMemAlloc(&data, N * sizeof(int)));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEMCPY3D copy = copy_params(data, in, true);
    OK(cuGraphAddMemcpyNode(&up, graph, NULL, 0, &copy, api->context));
    void *params[] = {&data, &count, &by};
    CUDA_KERNEL_NODE_PARAMS kp = kernel_params(api, params);
    OK(cuGraphAddKernelNode(&kernel, graph, &up, 1, &kp));
    copy = copy_params(data, out, false);
    OK(cuGraphAddMemcpyNode(&down, graph, &kernel, 1, &copy, api->context));
    CUDA_HOST_NODE_PARAMS hp = {host_function, &weight};
    OK(cuGraphAddHostNode(&host, graph, &down, 1, &hp));
    OK(cuGraphGetNodes(graph, nodes, &size));
    EQUAL(size, 4);
    CUgraphNode roots[2] = {NULL, kernel};
    size_t root_count = 2;
    OK(cuGraphGetRootNodes(graph, roots, &root_count));
    EQUAL(root_count, 1);
    TRUE(roots[0] == up && roots[1] == NULL);
    EQUAL(cuGraphGetNodes(graph, nodes, NULL), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuGraphGetRootNodes(graph, roots, NULL), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuGraphGetEdges(graph, NULL, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphNodeGetType(kernel, &type));
    EQUAL(type, CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, kernel, clone));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int round = 1; round <= 3; round++) {
        for (int i = 0; i < N; i++) {
            in[i] = round * 1000 + i;
        }
        OK(cuGraphLaunch(exec, NULL));
        OK(cuStreamSynchronize(NULL));
        int wrong = 0;
        for (int i = 0; i < N; i++) {
            wrong += out[i] != round * 1000 + i + 5;
        }
        EQUAL(wrong, 0);
        EQUAL(host_calls, 3 * round);
    }
    /* The executable graph's kernel gets another argument; the graph itself keeps its own. */
    by = 100;
    OK(cuGraphExecKernelNodeSetParams(exec, kernel, &kp));
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    EQUAL(out[1], 3001 + 100);
    CUDA_KERNEL_NODE_PARAMS got;
    OK(cuGraphKernelNodeGetParams(kernel, &got));
    EQUAL(got.gridDimX, kp.gridDimX);
    EQUAL(*(int *)got.kernelParams[2], 5);
    EQUAL(*(CUdeviceptr *)got.kernelParams[0], data);
    CUDA_HOST_NODE_PARAMS got_host;
    OK(cuGraphHostNodeGetParams(host, &got_host));
    TRUE(got_host.fn == host_function && got_host.userData == &weight);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(clone));
    OK(cuGraphDestroy(graph));
    TRUE(cuGraphDestroy(graph) != CUDA_SUCCESS);
    OK(cuMemFree(data));
    free(in);
    free(out);
}

static void captured_work_runs_at_launch_only(struct api *api)
{
    CUstream stream, other;
    CUevent fork, join;
    CUdeviceptr data;
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    int *pinned;
    OK(cuMemAlloc(&data, N * sizeof(int)));
    OK(cuMemAllocHost((void **)&pinned, N * sizeof(int)));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuMemsetD32(data, 1, N));
    OK(cuCtxSynchronize());
    OK(cuStreamIsCapturing(stream, &status));
    EQUAL(status, CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuStreamIsCapturing(stream, &status));
    EQUAL(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(api_add(api, data, N, 10, stream));
    OK(cuEventRecord(fork, stream));
    OK(cuStreamWaitEvent(other, fork, 0));
    OK(api_add(api, data, N / 2, 100, other));
    OK(cuEventRecord(join, other));
    OK(cuStreamWaitEvent(stream, join, 0));
    OK(cuMemcpyDtoHAsync(pinned, data, N * sizeof(int), stream));
    OK(cuStreamEndCapture(stream, &graph));
    TRUE(graph != NULL);
    memset(pinned, 0, N * sizeof(int));
    OK(cuCtxSynchronize());
    EQUAL(pinned[0], 0);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(pinned[0], 111);
    EQUAL(pinned[N - 1], 11);
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(pinned[0], 331);
    EQUAL(pinned[N - 1], 31);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(other));
    OK(cuMemFreeHost(pinned));
    OK(cuMemFree(data));
}

/* Memory that a capture allocates is there again after each launch, whoever freed it in between:
 * the graph itself on a side stream, or a stream behind it. */
static void captured_memory_is_allocated_by_each_launch(struct api *api)
{
    CUstream stream, side;
    CUevent fork, join;
    CUdeviceptr inner, outer, sum;
    CUgraph graph = NULL;
    CUgraphExec exec;
    int got[2];
    OK(cuMemAlloc(&sum, 2 * sizeof(int)));
    OK(cuMemsetD32(sum, 0, 2));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&outer, 4096, stream));
    OK(cuMemsetD32Async(outer, 5, 1024, stream));
    OK(cuEventRecord(fork, stream));
    OK(cuStreamWaitEvent(side, fork, 0));
    OK(cuMemAllocAsync(&inner, 4096, side));
    OK(cuMemsetD32Async(inner, 5, 1024, side));
    OK(api_add(api, inner, 1, 2, side));
    OK(cuMemcpyDtoDAsync(sum + sizeof(int), inner, sizeof(int), side));
    OK(cuMemFreeAsync(inner, side));
    OK(cuEventRecord(join, side));
    OK(api_add(api, outer, 1, 1, stream));
    OK(cuStreamWaitEvent(stream, join, 0));
    OK(cuMemcpyDtoDAsync(sum, outer, sizeof(int), stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        OK(cuMemsetD32Async(sum, 0, 2, stream));
        OK(cuGraphLaunch(exec, stream));
        OK(round == 1 ? cuStreamSynchronize(stream) : CUDA_SUCCESS);
        OK(round == 1 ? cuMemFree(outer) : cuMemFreeAsync(outer, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(got, sum, sizeof got));
        EQUAL(got[0], 6);
        EQUAL(got[1], 7);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(side));
    OK(cuMemFree(sum));
}

static void unsafe_calls_end_a_capture(struct api *api)
{
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr data;
    (void)api;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EQUAL(cuMemAlloc(&data, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    TRUE(graph == NULL);
    /* In relaxed mode the same call is allowed. */
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAlloc(&data, 64));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(data));
    EQUAL(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamDestroy(stream));
}

static void *capture_and_end(void *arg)
{
    struct api *api = arg;
    OK(cuCtxSetCurrent(api->context));
    OK(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_GLOBAL));
    return NULL;
}

static void a_capture_ends_with_its_stream(struct api *api)
{
    CUstream stream;
    CUcontext own;
    CUdeviceptr data;
    pthread_t thread;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EQUAL(cuMemAlloc(&data, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamDestroy(stream));
    OK(cuMemAlloc(&data, 64));
    OK(cuMemFree(data));

    OK(cuCtxCreate_v2(&own, 0, api->device));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuCtxDestroy(own));
    OK(cuCtxSetCurrent(api->context));
    OK(cuMemAlloc(&data, 64));
    OK(cuMemFree(data));

    pthread_create(&thread, NULL, capture_and_end, api);
    pthread_join(thread, NULL);
    OK(cuMemAlloc(&data, 64));
    OK(cuMemFree(data));
}

static void count_call(void *user)
{
    ++*(int *)user;
}

/* A captured host function runs at every launch of the graph, of a clone, and after the graph is
 * gone. */
static void captured_host_functions_run_each_time(struct api *api)
{
    static int calls;
    CUstream stream;
    CUgraph graph, clone;
    CUgraphExec exec, second;
    (void)api;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuLaunchHostFunc(stream, count_call, &calls));
    OK(cuLaunchHostFunc(stream, count_call, &calls));
    OK(cuStreamEndCapture(stream, &graph));
    EQUAL(calls, 0);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphInstantiate(&second, clone, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(clone));
    for (int i = 1; i <= 3; i++) {
        OK(cuGraphLaunch(exec, stream));
        OK(cuGraphLaunch(second, stream));
        OK(cuStreamSynchronize(stream));
        EQUAL(calls, 4 * i);
    }
    /* Outside of a capture it runs once. */
    OK(cuLaunchHostFunc(stream, count_call, &calls));
    OK(cuStreamSynchronize(stream));
    EQUAL(calls, 13);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(second));
    OK(cuStreamDestroy(stream));
}

static atomic_int destroyed;
static void destroy(void *user)
{
    atomic_fetch_add(&destroyed, *(int *)user);
}

static void user_objects_live_as_long_as_their_graphs(struct api *api)
{
    CUuserObject object;
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    static int one = 1;
    (void)api;
    OK(cuUserObjectCreate(&object, &one, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    EQUAL(destroyed, 0);
    OK(cuGraphLaunch(exec, NULL));
    OK(cuCtxSynchronize());
    OK(cuGraphExecDestroy(exec));
    /* NVIDIA's driver runs the destructor on a thread of its own, some time later. */
    for (int i = 0; i < 500 && atomic_load(&destroyed) == 0; i++) {
        usleep(10000);
    }
    EQUAL(destroyed, 1);
}

static void updating_tells_what_does_not_fit(struct api *api)
{
    CUgraph a, b, c;
    CUgraphNode node;
    CUgraphExec exec;
    CUdeviceptr data;
    int by = 1, count = N, result[1] = {0};
    OK(cuMemAlloc(&data, N * sizeof(int)));
    OK(cuMemsetD32(data, 0, N));
    void *params[] = {&data, &count, &by};
    CUDA_KERNEL_NODE_PARAMS kp = kernel_params(api, params);
    OK(cuGraphCreate(&a, 0));
    OK(cuGraphAddKernelNode(&node, a, NULL, 0, &kp));
    OK(cuGraphInstantiate(&exec, a, 0));
    by = 7;
    OK(cuGraphCreate(&b, 0));
    OK(cuGraphAddKernelNode(&node, b, NULL, 0, &kp));
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphExecUpdate(exec, b, &info));
    EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(result, data, sizeof result));
    EQUAL(result[0], 7);
    OK(cuGraphCreate(&c, 0));
    OK(cuGraphAddEmptyNode(&node, c, NULL, 0));
    EQUAL(cuGraphExecUpdate(exec, c, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    TRUE(info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(a));
    OK(cuGraphDestroy(b));
    OK(cuGraphDestroy(c));
    OK(cuMemFree(data));
}

static size_t memory_in_use(void)
{
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks; /* 0 under a sanitizer */
#else
    return 0;
#endif
}

/* With the server in this process, what a call without a reply frees may take a moment, and one
 * more thread of the session has memory of its own. What is looked for are thousands of nodes. */
static bool memory_comes_back(size_t before)
{
    enum { SPARE = 192 << 10 };
    for (int i = 0; i < 600 && memory_in_use() >= before + SPARE; i++) {
        usleep(10000);
    }
    return memory_in_use() < before + SPARE;
}

/* What inference programs do for every token: capture, look at the nodes, throw it all away. */
static void graphs_that_are_gone_take_no_memory(struct api *api)
{
    enum { NODES = 40, ROUNDS = 150 };
    CUstream stream;
    CUdeviceptr data;
    size_t before = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&data, N * sizeof(int)));
    for (int round = 0; round < ROUNDS; round++) {
        CUgraph graph;
        CUgraphNode nodes[NODES];
        size_t count = NODES;
        if (round == ROUNDS / 3) {
            before = memory_in_use();
        }
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        for (int i = 0; i < NODES; i++) {
            OK(api_add(api, data, N, i, stream));
        }
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphGetNodes(graph, nodes, &count));
        EQUAL(count, NODES);
        for (int i = 0; i < NODES; i++) {
            CUDA_KERNEL_NODE_PARAMS params;
            OK(cuGraphKernelNodeGetParams(nodes[i], &params));
            EQUAL(*(CUdeviceptr *)params.kernelParams[0], data);
        }
        OK(cuGraphDestroy(graph));
    }
    TRUE(memory_comes_back(before));
    OK(cuMemFree(data));
    OK(cuStreamDestroy(stream));
}

/* Nodes that nobody waits for are right; what is not is told at the call, not later. */
static void mistakes_with_nodes_are_told_at_once(struct api *api)
{
    CUgraph graph, other;
    CUgraphNode a, b, c, late, failed, twice[2];
    CUgraphExec exec;
    CUdeviceptr data;
    int by = 1, count = N, result[1] = {0};
    OK(cuMemAlloc(&data, N * sizeof(int)));
    OK(cuMemsetD32(data, 0, N));
    void *params[] = {&data, &count, &by};
    CUDA_KERNEL_NODE_PARAMS kp = kernel_params(api, params);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&other, 0));
    EQUAL(cuGraphCreate(&other, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphAddKernelNode(&a, graph, NULL, 0, &kp));
    OK(cuGraphAddKernelNode(&b, graph, &a, 1, &kp));
    OK(cuGraphAddKernelNode(&c, other, NULL, 0, &kp));
    twice[0] = twice[1] = a;
    TRUE(cuGraphAddKernelNode(&failed, graph, twice, 2, &kp) != CUDA_SUCCESS);
    TRUE(cuGraphAddEmptyNode(&failed, graph, twice, 2) != CUDA_SUCCESS);
    TRUE(cuGraphAddKernelNode(&failed, graph, &c, 1, &kp) != CUDA_SUCCESS);
    TRUE(cuGraphAddEmptyNode(&failed, graph, &c, 1) != CUDA_SUCCESS);
    TRUE(cuGraphAddEmptyNode(&failed, graph, NULL, 1) != CUDA_SUCCESS);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphAddKernelNode(&late, graph, &b, 1, &kp));
    by = 10;
    OK(cuGraphExecKernelNodeSetParams(exec, b, &kp));
    TRUE(cuGraphExecKernelNodeSetParams(exec, late, &kp) != CUDA_SUCCESS);
    TRUE(cuGraphExecKernelNodeSetParams(exec, c, &kp) != CUDA_SUCCESS);
    kp.gridDimX = 0;
    EQUAL(cuGraphExecKernelNodeSetParams(exec, a, &kp), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuGraphAddKernelNode(&failed, graph, NULL, 0, &kp), CUDA_ERROR_INVALID_VALUE);
    kp.gridDimX = (N + 63) / 64;
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(result, data, sizeof result));
    EQUAL(result[0], 1 + 10);
    if (api_is_remote()) { /* to NVIDIA's driver they are pointers to nothing */
        OK(cuGraphDestroyNode(late));
        TRUE(cuGraphAddKernelNode(&failed, graph, &late, 1, &kp) != CUDA_SUCCESS);
        OK(cuGraphDestroy(graph));
        TRUE(cuGraphAddKernelNode(&failed, graph, NULL, 0, &kp) != CUDA_SUCCESS);
        TRUE(cuGraphAddEmptyNode(&failed, graph, NULL, 0) != CUDA_SUCCESS);
        TRUE(cuGraphExecKernelNodeSetParams(exec, a, &kp) != CUDA_SUCCESS);
        OK(cuGraphExecDestroy(exec));
        TRUE(cuGraphExecKernelNodeSetParams(exec, a, &kp) != CUDA_SUCCESS);
    } else {
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    OK(cuCtxSynchronize());
    OK(cuGraphDestroy(other));
    OK(cuMemFree(data));
}

/* Another kernel in a node, a node that does nothing, another graph's parameters: what is known of
 * the node before counts no more. */
static void nodes_are_updated_whatever_they_were_before(struct api *api)
{
    CUgraph graph, other;
    CUgraphNode node, others;
    CUgraphExec exec, second;
    CUgraphExecUpdateResultInfo info;
    CUdeviceptr data, from;
    int by = 1, count = N, result[1] = {0};
    OK(cuMemAlloc(&data, N * sizeof(int)));
    OK(cuMemAlloc(&from, N * sizeof(int)));
    OK(cuMemsetD32(data, 0, N));
    OK(cuMemsetD32(from, 1000, N));
    void *params[] = {&data, &count, &by}, *copied[] = {&data, &from, &count};
    CUDA_KERNEL_NODE_PARAMS kp = kernel_params(api, params), cp = kernel_params(api, copied);
    cp.func = api->copy;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &kp));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphKernelNodeSetParams(node, &cp));
    OK(cuGraphInstantiate(&second, graph, 0));
    by = 2;
    OK(cuGraphExecKernelNodeSetParams(exec, node, &kp)); /* 2 */
    OK(cuGraphLaunch(exec, NULL));
    OK(cuGraphExecKernelNodeSetParams(second, node, &kp)); /* 4 */
    OK(cuGraphLaunch(second, NULL));
    OK(cuGraphExecKernelNodeSetParams(exec, node, &cp)); /* 1000 */
    OK(cuGraphLaunch(exec, NULL));
    by = 3;
    OK(cuGraphExecKernelNodeSetParams(exec, node, &kp)); /* 1003 */
    OK(cuGraphLaunch(exec, NULL));
    OK(cuMemcpyDtoH(result, data, sizeof result));
    EQUAL(result[0], 1003);
    OK(cuGraphNodeSetEnabled(exec, node, 0));
    by = 4;
    OK(cuGraphExecKernelNodeSetParams(exec, node, &kp));
    OK(cuGraphNodeSetEnabled(exec, node, 1));
    OK(cuGraphLaunch(exec, NULL)); /* 1007 */
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddKernelNode(&others, other, NULL, 0, &kp));
    OK(cuGraphExecUpdate(exec, other, &info));
    by = 5;
    OK(cuGraphExecKernelNodeSetParams(exec, node, &kp));
    OK(cuGraphLaunch(exec, NULL)); /* 1012 */
    OK(cuMemcpyDtoH(result, data, sizeof result));
    EQUAL(result[0], 1012);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphExecDestroy(second));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(other));
    OK(cuMemFree(data));
    OK(cuMemFree(from));
}

/* An update is for launches behind it, and does not wait for those before. */
static void a_graph_is_updated_while_its_launch_waits(struct api *api)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream stream, other;
    CUdeviceptr data, word;
    int by = 1, count = N, result[1] = {0};
    OK(cuMemAlloc(&data, N * sizeof(int)));
    OK(cuMemAlloc(&word, 4));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuMemsetD32(data, 0, N));
    OK(cuMemsetD32(word, 0, 1));
    OK(cuCtxSynchronize());
    void *params[] = {&data, &count, &by};
    CUDA_KERNEL_NODE_PARAMS kp = kernel_params(api, params);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &kp));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    for (int round = 0; round < 3; round++) { /* 1, 10, 100 */
        OK(cuGraphExecKernelNodeSetParams(exec, node, &kp));
        OK(cuGraphLaunch(exec, stream));
        by *= 10;
    }
    EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    OK(cuStreamWriteValue32(other, word, 1, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(result, data, sizeof result));
    EQUAL(result[0], 111);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(other));
    OK(cuMemFree(data));
    OK(cuMemFree(word));
}

/* The nodes end with the graph: their ids are given to others. */
static void graphs_built_by_hand_leave_nothing(struct api *api)
{
    enum { NODES = 40, ROUNDS = 150 };
    uint32_t early = 0, late = 0;
    size_t before = 0;
    (void)api;
    for (int round = 0; round < ROUNDS; round++) {
        CUgraph graph, clone;
        CUgraphNode nodes[NODES];
        if (round == ROUNDS / 3) {
            before = memory_in_use();
        }
        OK(cuGraphCreate(&graph, 0));
        for (int i = 0; i < NODES; i++) {
            OK(cuGraphAddEmptyNode(&nodes[i], graph, nodes, (size_t)i));
            uint32_t *most = round < ROUNDS / 3 ? &early : &late;
            uint32_t index = (uint32_t)(uintptr_t)nodes[i];
            *most = index > *most ? index : *most;
        }
        OK(cuGraphClone(&clone, graph));
        OK(cuGraphDestroyNode(nodes[round % NODES]));
        OK(cuGraphDestroy(graph));
        OK(cuGraphDestroy(clone));
    }
    TRUE(memory_comes_back(before));
    TRUE(!api_is_remote() || late <= early);
}

/* A kernel would not know the graph by the handle that the program has: no success that crashes. */
static void graphs_for_kernels_are_refused(struct api *api)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec = NULL;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH};
    (void)api;
    if (!api_is_remote()) {
        return;
    }
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    EQUAL(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
          CUDA_ERROR_NOT_SUPPORTED);
    EQUAL(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_NOT_SUPPORTED);
    EQUAL(params.result_out, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
    OK(cuGraphDestroy(graph));
}

int main(int argc, char **argv)
{
    struct api api;
    (void)argc;
    /* What threads keep of memory that was freed, each some, is counted as in use. */
    if (getenv("GLIBC_TUNABLES") == NULL) {
        setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
        execv("/proc/self/exe", argv);
    }
    api_begin(&api);
    explicit_graph_reads_host_memory_at_each_launch(&api);
    captured_work_runs_at_launch_only(&api);
    captured_memory_is_allocated_by_each_launch(&api);
    unsafe_calls_end_a_capture(&api);
    a_capture_ends_with_its_stream(&api);
    user_objects_live_as_long_as_their_graphs(&api);
    captured_host_functions_run_each_time(&api);
    updating_tells_what_does_not_fit(&api);
    graphs_that_are_gone_take_no_memory(&api);
    mistakes_with_nodes_are_told_at_once(&api);
    nodes_are_updated_whatever_they_were_before(&api);
    a_graph_is_updated_while_its_launch_waits(&api);
    graphs_built_by_hand_leave_nothing(&api);
    graphs_for_kernels_are_refused(&api);
    return api_end(&api);
}
