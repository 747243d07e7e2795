/* SPDX-License-Identifier: Apache-2.0 */
// NCCL with one rank: collectives in a stream, and captured in a graph.
#include "bits.h"

#include <nccl.h>

static const size_t N = 100000;

__global__ static void add(float *data, size_t count, float by)
{
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < count) {
        data[i] += by;
    }
}

int main()
{
    int version, device = 0, ranks, rank;
    ncclComm_t comm;
    cudaStream_t stream;
    CHECK(ncclGetVersion(&version));
    printf("NCCL %d\n", version);
    CHECK(ncclCommInitAll(&comm, 1, &device));
    CHECK(ncclCommCount(comm, &ranks));
    CHECK(ncclCommUserRank(comm, &rank));
    printf("rank %d of %d\n", rank, ranks);
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<float> values(N);
    for (size_t i = 0; i < N; i++) {
        values[i] = number(i);
    }
    float *in = to_device(values), *out = to_device(std::vector<float>(N));
    CHECK(ncclAllReduce(in, out, N, ncclFloat, ncclSum, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(print_bits("all-reduce", out, N) == values);
    add<<<(N + 255) / 256, 256, 0, stream>>>(out, N, 1);
    CHECK(ncclAllReduce(out, out, N, ncclFloat, ncclMax, comm, stream));
    CHECK(ncclBroadcast(out, in, N, ncclFloat, 0, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(print_bits("broadcast", in, N)[5] == values[5] + 1);
    CHECK(ncclGroupStart());
    CHECK(ncclAllGather(in, out, N / 2, ncclFloat, comm, stream));
    CHECK(ncclReduceScatter(in, out, N / 2, ncclFloat, ncclProd, comm, stream));
    CHECK(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(print_bits("gathered and scattered", out, N / 2)[7] == values[7] + 1);

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add<<<(N + 255) / 256, 256, 0, stream>>>(in, N, 2);
    CHECK(ncclAllReduce(in, out, N, ncclFloat, ncclSum, comm, stream));
    CHECK(ncclBroadcast(out, in, N, ncclFloat, 0, comm, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CHECK(cudaGraphLaunch(exec, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(print_bits("three graphs", in, N)[9] == values[9] + 7);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));

    // What follows is done by kernels even with one rank, what was before by copies.
    CHECK(ncclGroupStart());
    CHECK(ncclSend(in, N, ncclFloat, 0, comm, stream));
    CHECK(ncclRecv(out, N, ncclFloat, 0, comm, stream));
    CHECK(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(print_bits("sent to itself", out, N)[7] == values[7] + 7);
    CHECK(ncclReduce(in, out, N, ncclFloat, ncclAvg, 0, comm, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(print_bits("average", out, N)[9] == values[9] + 7);

    ncclResult_t state;
    CHECK(ncclCommGetAsyncError(comm, &state));
    EXPECT(state == ncclSuccess);
    CHECK(ncclCommFinalize(comm));
    CHECK(ncclCommDestroy(comm));
    puts("OK");
    return 0;
}
