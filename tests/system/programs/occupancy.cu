/* SPDX-License-Identifier: Apache-2.0 */
// Function attributes, occupancy, and more than 48 KB of shared memory.
#include "check.h"

__constant__ int lookup[8] = {1};

__global__ void __launch_bounds__(256, 2) bounded(int *out)
{
    out[threadIdx.x] = lookup[threadIdx.x % 8];
}

__global__ void with_shared(int *out)
{
    __shared__ int fixed[1000];
    extern __shared__ int dynamic[];
    fixed[threadIdx.x] = threadIdx.x;
    dynamic[threadIdx.x] = 2 * threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = fixed[blockDim.x - 1 - threadIdx.x] + dynamic[threadIdx.x];
}

__global__ void large_shared(int *out, int words)
{
    extern __shared__ int dynamic[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        dynamic[i] = i;
    }
    __syncthreads();
    int sum = 0;
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        sum += dynamic[words - 1 - i];
    }
    atomicAdd(out, sum);
}

static size_t two_words_per_thread(int threads)
{
    return threads * 8;
}

int main()
{
    cudaFuncAttributes about;
    CHECK(cudaFuncGetAttributes(&about, bounded));
    EXPECT(about.maxThreadsPerBlock == 256 && about.sharedSizeBytes == 0);
    EXPECT(about.numRegs >= 1 && about.numRegs <= 255);
    CHECK(cudaFuncGetAttributes(&about, with_shared));
    EXPECT(about.maxThreadsPerBlock == 1024 && about.sharedSizeBytes == 4000);
    EXPECT(about.maxDynamicSharedSizeBytes == 49152 - 4000);
    EXPECT(about.ptxVersion >= 70 && about.binaryVersion >= 70);

    cudaDeviceProp p;
    CHECK(cudaGetDeviceProperties(&p, 0));
    int one = 0, eight = 0, wide = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&one, with_shared, 1024, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&eight, with_shared, 128, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&wide, with_shared, 128, 40000));
    EXPECT(one >= 1 && one <= p.maxThreadsPerMultiProcessor / 1024);
    EXPECT(eight >= one && eight <= p.maxThreadsPerMultiProcessor / 128);
    EXPECT(wide >= 1 && wide <= eight && wide * 44000 <= int(p.sharedMemPerMultiprocessor));
    int grid = 0, block = 0;
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, bounded, 0, 0));
    EXPECT(block % 32 == 0 && block >= 32 && block <= 256 && grid >= p.multiProcessorCount);
    CHECK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, with_shared,
                                                         two_words_per_thread));
    EXPECT(block >= 32 && block <= 1024 && grid >= 1);

    int *out, host[256], total = 0;
    CHECK(cudaMalloc(&out, sizeof(host)));
    with_shared<<<1, 256, 1024>>>(out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 256; i++) {
        EXPECT(host[i] == 255 - i + 2 * i);
    }

    // Above 48 KB only after asking for it, and never above what the device has.
    int most = int(p.sharedMemPerBlockOptin), words = most / 4;
    EXPECT(most > 49152);
    large_shared<<<1, 128, most>>>(out, words);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(large_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
    CHECK(cudaMemset(out, 0, sizeof(int)));
    large_shared<<<1, 128, most>>>(out, words);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&total, out, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(total == (long long)words * (words - 1) / 2);
    EXPECT_ERROR(
        cudaFuncSetAttribute(large_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 4),
        cudaErrorInvalidValue);
    cudaGetLastError();
    return finish();
}
