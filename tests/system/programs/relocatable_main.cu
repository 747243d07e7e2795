/* SPDX-License-Identifier: Apache-2.0 */
// Relocatable device code as CMake's CUDA_SEPARABLE_COMPILATION makes it, for PTX alone: then the
// whole device runtime (libcudadevrt) is linked in, of which nothing is used.
#include "check.h"
#include "relocatable.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

static __device__ int own = 7; // the other file has one of this name, too
__device__ int other_own();

__global__ void compute(int *out)
{
    int i = threadIdx.x;
    pair<int> both = {i, own};
    shape *made = make_shape(i % 2);
    int *scratch = static_cast<int *>(malloc(16 * sizeof(int)));
    scratch[i % 16] = i;
    out[i] = both.sum() + other_own() + int(twice<long long>(i)) + made->area(i) + chosen(i) +
             recurse(5) + scratch[i % 16];
    free(scratch);
    delete made;
    count_up();
}

__global__ void over_the_grid(int *sums)
{
    cg::grid_group grid = cg::this_grid();
    if (threadIdx.x == 0) {
        atomicAdd(&sums[0], blockIdx.x + 1);
    }
    grid.sync();
    if (grid.thread_rank() == 0) {
        sums[1] = sums[0];
        printf("the grid has %d blocks\n", int(gridDim.x));
        seen += sums[0];
    }
}

int main()
{
    const int N = 64;
    int *out, host[N], value = 0;
    CHECK(cudaMalloc(&out, sizeof(host)));
    compute<<<1, N>>>(out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) {
        EXPECT(host[i] == (i + 7) + 1000 + 2 * i + (i % 2 ? i * i : 4 * i) + (i + 1) + 120 + i);
    }
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    EXPECT(value == N);
    CHECK(cudaMemset(out, 0, 2 * sizeof(int)));
    void *arguments[] = {&out};
    CHECK(cudaLaunchCooperativeKernel((void *)over_the_grid, 4, 32, arguments, 0, 0));
    CHECK(cudaMemcpy(host, out, 2 * sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 10 && host[1] == 10);
    CHECK(cudaDeviceSynchronize());
    EXPECT(seen == 15);
    return finish();
}
