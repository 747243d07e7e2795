/* SPDX-License-Identifier: Apache-2.0 */
// Graphs: captured from streams and built by hand, launched many times, with changed parameters.
#include "check.h"

__global__ void add(int *data, int n, int value)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] += value;
    }
}

const int N = 1000;

static void expect_all(const int *device, int value)
{
    std::vector<int> host(N);
    CHECK(cudaMemcpy(host.data(), device, N * sizeof(int), cudaMemcpyDeviceToHost));
    for (int x : host) {
        EXPECT(x == value);
    }
}

static void captured(int *data, int *other)
{
    cudaStream_t first, second;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));

    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(first, &status));
    EXPECT(status == cudaStreamCaptureStatusActive);
    CHECK(cudaMemsetAsync(data, 0, N * sizeof(int), first));
    add<<<4, 256, 0, first>>>(data, N, 1);
    CHECK(cudaEventRecord(fork, first));
    CHECK(cudaStreamWaitEvent(second, fork, 0));
    CHECK(cudaMemcpyAsync(other, data, N * sizeof(int), cudaMemcpyDeviceToDevice, second));
    add<<<4, 256, 0, second>>>(other, N, 10);
    add<<<4, 256, 0, first>>>(data, N, 100);
    CHECK(cudaEventRecord(join, second));
    CHECK(cudaStreamWaitEvent(first, join, 0));
    add<<<4, 256, 0, first>>>(other, N, 1000);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamEndCapture(first, &graph));

    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 6);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaMemset(other, 0x55, N * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 5; i++) {
        CHECK(cudaGraphLaunch(exec, first));
    }
    CHECK(cudaStreamSynchronize(first));
    expect_all(data, 101);
    expect_all(other, 1011);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaEventDestroy(join));
}

static void built(int *data)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t clear, one, two;
    int n = N, value = 3;
    void *args[] = {&data, &n, &value};
    CHECK(cudaGraphCreate(&graph, 0));
    cudaMemsetParams memset_params = {};
    memset_params.dst = data;
    memset_params.elementSize = 4;
    memset_params.width = N;
    memset_params.height = 1;
    memset_params.value = 7;
    CHECK(cudaGraphAddMemsetNode(&clear, graph, nullptr, 0, &memset_params));
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void *>(add);
    kernel.gridDim = dim3(4);
    kernel.blockDim = dim3(256);
    kernel.kernelParams = args;
    CHECK(cudaGraphAddKernelNode(&one, graph, &clear, 1, &kernel));
    value = 20;
    CHECK(cudaGraphAddKernelNode(&two, graph, &one, 1, &kernel));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, 0));
    expect_all(data, 30);

    value = 500; // only in the instance
    CHECK(cudaGraphExecKernelNodeSetParams(exec, two, &kernel));
    CHECK(cudaGraphLaunch(exec, 0));
    expect_all(data, 510);

    size_t count = 0;
    cudaGraphNodeType type;
    CHECK(cudaGraphGetRootNodes(graph, nullptr, &count));
    CHECK(cudaGraphNodeGetType(clear, &type));
    EXPECT(count == 1 && type == cudaGraphNodeTypeMemset);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

int main()
{
    int *data, *other;
    CHECK(cudaMalloc(&data, N * sizeof(int)));
    CHECK(cudaMalloc(&other, N * sizeof(int)));
    add<<<4, 256>>>(data, N, 0); // lazy loading is not for the middle of a capture
    CHECK(cudaDeviceSynchronize());
    captured(data, other);
    puts("captured: right");
    built(data);
    puts("built: right");
    return finish();
}
