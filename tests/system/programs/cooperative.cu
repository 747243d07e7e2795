/* SPDX-License-Identifier: Apache-2.0 */
// Cooperative groups: a barrier over the whole grid, tiles, coalesced groups.
#include "check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// Each round, everybody reads what another block wrote in the round before.
__global__ void relay(int *data, int rounds)
{
    cg::grid_group grid = cg::this_grid();
    int n = int(grid.size()), me = int(grid.thread_rank());
    int *current = data, *next = data + n;
    for (int i = 0; i < rounds; i++) {
        next[me] = current[(me + int(blockDim.x) + 1) % n] + 1;
        grid.sync();
        int *swap = current;
        current = next;
        next = swap;
    }
}

__global__ void groups(int *out)
{
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int sum = cg::reduce(tile, int(block.thread_rank()), cg::plus<int>());
    int shifted = tile.shfl_xor(int(block.thread_rank()), 1);
    int active = 0;
    if (threadIdx.x % 3 == 0) {
        cg::coalesced_group together = cg::coalesced_threads();
        active = int(together.size()) * 100 + int(together.thread_rank());
    }
    int vote = tile.any(block.thread_rank() == 13) ? 1 : 0;
    block.sync();
    int *mine = out + block.thread_rank() * 4;
    mine[0] = sum, mine[1] = shifted, mine[2] = active, mine[3] = vote;
}

int main()
{
    int supported = 0, per_sm = 0, sms = 0, rounds = 7;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    EXPECT(supported == 1);
    const int THREADS = 64;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, relay, THREADS, 0));
    EXPECT(per_sm >= 1);
    int blocks = per_sm * sms < 6 ? per_sm * sms : 6, n = blocks * THREADS;

    std::vector<int> host(2 * n, 0), want(n), next(n);
    for (int i = 0; i < n; i++) {
        host[i] = want[i] = i * 10;
    }
    int *data;
    CHECK(cudaMalloc(&data, 2 * n * sizeof(int)));
    CHECK(cudaMemcpy(data, host.data(), 2 * n * sizeof(int), cudaMemcpyHostToDevice));
    void *args[] = {&data, &rounds};
    CHECK(cudaLaunchCooperativeKernel(relay, dim3(blocks), dim3(THREADS), args, 0, 0));
    CHECK(cudaMemcpy(host.data(), data, 2 * n * sizeof(int), cudaMemcpyDeviceToHost));
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < n; i++) {
            next[i] = want[(i + THREADS + 1) % n] + 1;
        }
        want.swap(next);
    }
    int offset = rounds % 2 ? n : 0;
    for (int i = 0; i < n; i++) {
        EXPECT(host[offset + i] == want[i]);
    }
    // More blocks than fit at once cannot wait for each other.
    EXPECT_ERROR(
        cudaLaunchCooperativeKernel(relay, dim3(per_sm * sms + 1), dim3(THREADS), args, 0, 0),
        cudaErrorCooperativeLaunchTooLarge);
    cudaGetLastError();

    int *out, got[64][4];
    CHECK(cudaMalloc(&out, sizeof(got)));
    groups<<<1, 64>>>(out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) {
        int first = i / 8 * 8, lane = i % 32, in_warp = 0, before = 0;
        for (int l = 0; l < 32; l++) {
            bool member = (i / 32 * 32 + l) % 3 == 0;
            in_warp += member;
            before += member && l < lane;
        }
        EXPECT(got[i][0] == 8 * first + 28);
        EXPECT(got[i][1] == (i ^ 1));
        EXPECT(got[i][2] == (i % 3 == 0 ? in_warp * 100 + before : 0));
        EXPECT(got[i][3] == (first == 8));
    }
    return finish();
}
