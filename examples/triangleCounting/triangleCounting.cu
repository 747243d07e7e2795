/* SPDX-License-Identifier: Apache-2.0 */
// Counts the triangles of a random graph: every edge points from its lower to its higher vertex,
// and a warp intersects the two sorted neighbour lists of an edge by binary search.
#include "../common/check.h"

#include <algorithm>

__device__ bool contains(const int *list, int n, int value)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && list[low] == value;
}

__global__ void count(unsigned long long *total, const int *starts, const int *neighbours,
                      const int *sources, int edges)
{
    int lane = threadIdx.x % 32;
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    int mine = 0;
    for (int edge = warp; edge < edges; edge += warps) {
        int a = sources[edge], b = neighbours[edge];
        int degree_a = starts[a + 1] - starts[a], degree_b = starts[b + 1] - starts[b];
        const int *small = neighbours + starts[a], *big = neighbours + starts[b];
        int small_n = degree_a, big_n = degree_b;
        if (small_n > big_n) {
            const int *swap = small;
            small = big, big = swap;
            small_n = degree_b, big_n = degree_a;
        }
        for (int i = lane; i < small_n; i += 32) {
            mine += contains(big, big_n, small[i]);
        }
    }
    int sum = __reduce_add_sync(0xffffffff, mine);
    if (lane == 0 && sum != 0) {
        atomicAdd(total, (unsigned long long)sum);
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int vertices = options.number("-n", 1000, 3, 1 << 22);
    int degree = options.number("--degree", 16, 1, 1000);
    bool time = options.time();
    options.done();

    // Vertices come in communities of 64, so that there are triangles to find.
    Random random(21);
    std::vector<std::vector<int>> lists(vertices);
    for (long i = 0; i < long(vertices) * degree / 2; i++) {
        int a = random.below(vertices), base = a & ~63;
        int b = random.below(4) ? base + int(random.below(64)) : int(random.below(vertices));
        if (a != b && b < vertices) {
            lists[std::min(a, b)].push_back(std::max(a, b));
        }
    }
    std::vector<int> starts = {0}, neighbours, sources;
    for (int v = 0; v < vertices; v++) {
        std::sort(lists[v].begin(), lists[v].end());
        lists[v].erase(std::unique(lists[v].begin(), lists[v].end()), lists[v].end());
        neighbours.insert(neighbours.end(), lists[v].begin(), lists[v].end());
        sources.insert(sources.end(), lists[v].size(), v);
        starts.push_back(int(neighbours.size()));
    }
    int edges = int(neighbours.size());
    printf("triangleCounting: %d vertices, %d edges\n", vertices, edges);

    unsigned long long want = 0; // by merging the two lists
    for (int edge = 0; edge < edges; edge++) {
        const std::vector<int> &a = lists[sources[edge]], &b = lists[neighbours[edge]];
        for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
            want += a[i] == b[j];
            a[i] < b[j] ? i++ : j++;
        }
    }
    int *dstarts = to_device(starts), *dneighbours = to_device(neighbours);
    int *dsources = to_device(sources);
    unsigned long long *dtotal = device_alloc<unsigned long long>(1);
    CHECK(cudaMemset(dtotal, 0, sizeof(*dtotal)));
    Timer timer;
    timer.start();
    count<<<32, 128>>>(dtotal, dstarts, dneighbours, dsources, edges);
    CHECK(cudaGetLastError());
    float ms = timer.stop();
    unsigned long long got = from_device(dtotal, 1)[0];
    if (got != want) {
        fail("%llu triangles, the CPU says %llu", got, want);
    }
    printf("triangles: %llu\n", got);
    if (time) {
        printf("time: %.3f ms, %.3f million edges/s\n", ms, edges / ms / 1e3);
    }
    CHECK(cudaFree(dstarts));
    CHECK(cudaFree(dneighbours));
    CHECK(cudaFree(dsources));
    CHECK(cudaFree(dtotal));
    return finish();
}
