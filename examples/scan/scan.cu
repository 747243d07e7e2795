/* SPDX-License-Identifier: Apache-2.0 */
// Exclusive prefix sum of a large array: each block scans its tile with warp shuffles, the tiles'
// totals are scanned in the same way, and the result is added back.
#include "../common/check.h"

const int THREADS = 256, PER_THREAD = 4, TILE = THREADS * PER_THREAD;

__device__ uint32_t warp_inclusive(uint32_t x)
{
    int lane = threadIdx.x % 32;
    for (int delta = 1; delta < 32; delta *= 2) {
        uint32_t left = __shfl_up_sync(0xffffffff, x, delta);
        if (lane >= delta) {
            x += left;
        }
    }
    return x;
}

__global__ void scan_tiles(uint32_t *out, const uint32_t *in, uint32_t *totals, int n)
{
    __shared__ uint32_t warps[THREADS / 32];
    int first = blockIdx.x * TILE + threadIdx.x * PER_THREAD;
    uint32_t value[PER_THREAD], mine = 0;
    for (int i = 0; i < PER_THREAD; i++) {
        value[i] = mine;
        mine += first + i < n ? in[first + i] : 0;
    }
    uint32_t inclusive = warp_inclusive(mine);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 31) {
        warps[warp] = inclusive;
    }
    __syncthreads();
    if (warp == 0) {
        uint32_t sum = lane < THREADS / 32 ? warps[lane] : 0;
        sum = warp_inclusive(sum);
        if (lane < THREADS / 32) {
            warps[lane] = sum;
        }
    }
    __syncthreads();
    uint32_t before = inclusive - mine + (warp > 0 ? warps[warp - 1] : 0);
    for (int i = 0; i < PER_THREAD; i++) {
        if (first + i < n) {
            out[first + i] = before + value[i];
        }
    }
    if (threadIdx.x == 0) {
        totals[blockIdx.x] = warps[THREADS / 32 - 1];
    }
}

__global__ void add_offsets(uint32_t *data, const uint32_t *offsets, int n)
{
    uint32_t offset = offsets[blockIdx.x];
    for (int i = blockIdx.x * TILE + threadIdx.x; i < min(n, int(blockIdx.x + 1) * TILE);
         i += THREADS) {
        data[i] += offset;
    }
}

static void scan(uint32_t *out, const uint32_t *in, int n)
{
    int tiles = (n + TILE - 1) / TILE;
    uint32_t *totals = device_alloc<uint32_t>(tiles);
    scan_tiles<<<tiles, THREADS>>>(out, in, totals, n);
    CHECK(cudaGetLastError());
    if (tiles > 1) {
        scan(totals, totals, tiles);
        add_offsets<<<tiles, THREADS>>>(out, totals, n);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaFree(totals));
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 300001, 1, 1 << 28);
    bool time = options.time();
    options.done();
    printf("scan: %d elements\n", n);

    Random random(14);
    std::vector<uint32_t> in(n), want(n);
    uint32_t sum = 0;
    for (int i = 0; i < n; i++) {
        in[i] = random.next();
        want[i] = sum;
        sum += in[i];
    }
    uint32_t *din = to_device(in), *dout = device_alloc<uint32_t>(n);
    Timer timer;
    timer.start();
    scan(dout, din, n);
    float ms = timer.stop();
    expect_equal("prefix sum", from_device(dout, n), want);
    if (time) {
        printf("time: %.3f ms, %.3f million elements/s\n", ms, n / ms / 1e3);
    }
    CHECK(cudaFree(din));
    CHECK(cudaFree(dout));
    return finish();
}
