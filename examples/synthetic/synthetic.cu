/* SPDX-License-Identifier: Apache-2.0 */
// A program whose mix of transfer and computation is an option: each iteration uploads a piece,
// works
// --ratio rounds on each of its words, and downloads it. --ratio 0 is only transfer; a large one is
// almost only computation; --no-transfer leaves the piece on the GPU between iterations.
#include "../common/check.h"

__host__ __device__ inline uint32_t churn(uint32_t x, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        x = x * 747796405u + 2891336453u;
        x ^= x >> 16;
    }
    return x;
}

__global__ void work(uint32_t *data, int n, int rounds)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] = churn(data[i], rounds);
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 50000, 1, 1 << 28); // words of one piece
    int ratio = options.number("--ratio", 4, 0, 1 << 24);
    int iterations = options.number("--iterations", 4, 1, 1 << 20);
    bool pinned = options.flag("--pinned"), transfer = !options.flag("--no-transfer");
    bool time = options.time();
    options.done();
    size_t bytes = n * sizeof(uint32_t);
    printf("synthetic: %d x %zu bytes, %d rounds a word, %s memory%s\n", iterations, bytes, ratio,
           pinned ? "pinned" : "pageable", transfer ? "" : ", no transfer in between");

    uint32_t *host, *device = device_alloc<uint32_t>(n);
    if (pinned) {
        CHECK(cudaMallocHost(&host, bytes));
    } else {
        host = static_cast<uint32_t *>(malloc(bytes));
    }
    for (int i = 0; i < n; i++) {
        host[i] = i;
    }
    CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    Timer timer;
    timer.start();
    for (int iteration = 0; iteration < iterations; iteration++) {
        if (transfer) {
            CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice));
        }
        if (ratio > 0) {
            work<<<(n + 255) / 256, 256>>>(device, n, ratio);
            CHECK(cudaGetLastError());
        }
        if (transfer) {
            CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost));
            CHECK(cudaStreamSynchronize(0));
        }
    }
    float ms = timer.stop();
    CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        uint32_t want = i;
        for (int iteration = 0; iteration < iterations; iteration++) {
            want = churn(want, ratio);
        }
        if (host[i] != want) {
            fail("word %d is %u, the CPU says %u", i, host[i], want);
        }
    }
    if (time) {
        printf("time: %.3f ms, %.3f GB/s moved, %.3f million rounds/s\n", ms,
               transfer ? 2.0 * bytes * iterations / ms / 1e6 : 0.0,
               double(n) * ratio * iterations / ms / 1e3);
    }
    if (pinned) {
        CHECK(cudaFreeHost(host));
    } else {
        free(host);
    }
    CHECK(cudaFree(device));
    return finish();
}
