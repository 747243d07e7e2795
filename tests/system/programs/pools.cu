/* SPDX-License-Identifier: Apache-2.0 */
// Stream-ordered allocation and device-side malloc.
#include "check.h"

__global__ void fill(int *data, int n, int value)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        data[i] = value + i;
    }
}

__global__ void heap(int *result)
{
    int *mine = static_cast<int *>(malloc(64 * sizeof(int)));
    int sum = 0;
    if (mine != nullptr) {
        for (int i = 0; i < 64; i++) {
            mine[i] = i * int(threadIdx.x);
        }
        for (int i = 0; i < 64; i++) {
            sum += mine[i];
        }
        free(mine);
    }
    result[threadIdx.x] = sum;
}

int main()
{
    int supported = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    EXPECT(supported == 1);
    const int N = 10000;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    std::vector<int> host(N);
    for (int round = 0; round < 10; round++) {
        int *a, *b;
        CHECK(cudaMallocAsync(&a, N * sizeof(int), stream));
        CHECK(cudaMallocAsync(&b, N * sizeof(int), stream));
        EXPECT(a != b);
        fill<<<1, 256, 0, stream>>>(a, N, round);
        fill<<<1, 256, 0, stream>>>(b, N, 1000 + round);
        CHECK(cudaGetLastError());
        CHECK(cudaFreeAsync(b, stream));
        CHECK(cudaMemcpyAsync(host.data(), a, N * sizeof(int), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaFreeAsync(a, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < N; i++) {
            EXPECT(host[i] == round + i);
        }
    }
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX, got = 0;
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
    EXPECT(got == keep);
    CHECK(cudaMemPoolTrimTo(pool, 0));
    CHECK(cudaStreamDestroy(stream));

    int *result, sums[32];
    CHECK(cudaMalloc(&result, sizeof(sums)));
    heap<<<1, 32>>>(result);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(sums, result, sizeof(sums), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) {
        EXPECT(sums[i] == 2016 * i);
    }
    return finish();
}
