/* SPDX-License-Identifier: Apache-2.0 */
// 16 host threads, each with a stream of its own (or, built with -default-stream per-thread, its
// default stream), copying and computing at the same time. Nobody may see another's data.
#include "check.h"

#include <atomic>
#include <thread>

const int THREADS = 16, ROUNDS = 12, N = 3000;

__global__ void step(int *data, int n, int key)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] = data[i] * 3 + key;
    }
}

static std::atomic<int> finished;

static void worker(int id)
{
    cudaStream_t stream;
    int *device, *pinned;
    std::vector<int> host(N), back(N);
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
    stream = 0;
#else
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
#endif
    CHECK(cudaMalloc(&device, N * sizeof(int)));
    CHECK(cudaMallocHost(&pinned, N * sizeof(int)));
    for (int round = 0; round < ROUNDS; round++) {
        bool use_pinned = round % 2 == 1;
        int *from = use_pinned ? pinned : host.data(), *to = use_pinned ? pinned : back.data();
        for (int i = 0; i < N; i++) {
            from[i] = id * 100000 + round * 1000 + i;
        }
        CHECK(cudaMemcpyAsync(device, from, N * sizeof(int), cudaMemcpyHostToDevice, stream));
        step<<<(N + 127) / 128, 128, 0, stream>>>(device, N, id);
        step<<<(N + 127) / 128, 128, 0, stream>>>(device, N, round);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(to, device, N * sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < N; i++) {
            EXPECT(to[i] == (id * 100000 + round * 1000 + i) * 9 + id * 3 + round);
        }
    }
    // An error of one thread is that thread's.
    if (id == 3) {
        EXPECT_ERROR(cudaMalloc(&device, size_t(1) << 60), cudaErrorMemoryAllocation);
        EXPECT(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    } else {
        EXPECT(cudaPeekAtLastError() == cudaSuccess);
        CHECK(cudaFree(device));
    }
    CHECK(cudaFreeHost(pinned));
#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
    CHECK(cudaStreamDestroy(stream));
#endif
    finished++;
}

int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++) {
        threads.emplace_back(worker, i);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT(finished == THREADS);
    EXPECT(cudaGetLastError() == cudaSuccess);
    printf("threads: %d\n", THREADS);
    return finish();
}
