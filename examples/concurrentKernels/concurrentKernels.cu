/* SPDX-License-Identifier: Apache-2.0 */
// Small kernels in streams of their own, which a GPU may run side by side; a last kernel waits for
// all of them through events and adds up what they found.
#include "../common/check.h"

// The cost is in the loop: one block cannot fill a GPU, several streams of them can.
__host__ __device__ inline uint32_t busy(uint32_t seed, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1664525u + 1013904223u;
        seed ^= seed >> 13;
    }
    return seed;
}

__global__ void work(uint32_t *out, uint32_t seed, int rounds)
{
    out[threadIdx.x] = busy(seed + threadIdx.x, rounds);
}

__global__ void add_up(const uint32_t *in, int n, uint32_t *sum)
{
    __shared__ uint32_t partial[32];
    uint32_t mine = 0;
    for (int i = threadIdx.x; i < n; i += 32) {
        mine += in[i];
    }
    partial[threadIdx.x] = mine;
    __syncthreads();
    for (int half = 16; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        *sum = partial[0];
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int kernels = options.number("-n", 8, 1, 128);
    int rounds = options.number("--rounds", 2000, 1, 1 << 30);
    bool time = options.time();
    options.done();
    const int THREADS = 64;
    printf("concurrentKernels: %d kernels of %d threads\n", kernels, THREADS);

    uint32_t *values = device_alloc<uint32_t>(kernels * THREADS), *sum = device_alloc<uint32_t>(1);
    std::vector<cudaStream_t> streams(kernels);
    std::vector<cudaEvent_t> done(kernels);
    for (int i = 0; i < kernels; i++) {
        CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
    }
    Timer timer;
    timer.start(streams[kernels - 1]);
    for (int i = 0; i < kernels; i++) {
        work<<<1, THREADS, 0, streams[i]>>>(values + i * THREADS, i * 1000, rounds);
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(done[i], streams[i]));
        CHECK(cudaStreamWaitEvent(streams[kernels - 1], done[i], 0));
    }
    add_up<<<1, 32, 0, streams[kernels - 1]>>>(values, kernels * THREADS, sum);
    CHECK(cudaGetLastError());
    float ms = timer.stop(streams[kernels - 1]);

    uint32_t want = 0;
    for (int i = 0; i < kernels * THREADS; i++) {
        want += busy(i / THREADS * 1000 + i % THREADS, rounds);
    }
    std::vector<uint32_t> got = from_device(sum, 1);
    if (got[0] != want) {
        fail("the sum is %u, the CPU says %u", got[0], want);
    }
    if (time) {
        printf("time: %.3f ms for all\n", ms);
    }
    for (int i = 0; i < kernels; i++) {
        CHECK(cudaStreamDestroy(streams[i]));
        CHECK(cudaEventDestroy(done[i]));
    }
    CHECK(cudaFree(values));
    CHECK(cudaFree(sum));
    return finish();
}
