/* SPDX-License-Identifier: Apache-2.0 */
// Sorts 32-bit keys with their values, 4 bits a pass: count digits per block, scan the counts,
// scatter. A warp ranks its equal digits with match, so the sort is stable, as every pass after the
// first needs.
#include "../common/check.h"

#include <algorithm>
#include <numeric>

const int THREADS = 256, WARPS = THREADS / 32, DIGITS = 16;

// How many keys with my digit come before me in my block; counts[warp][digit] is filled on the way.
__device__ uint32_t rank_in_block(uint32_t digit, bool valid, uint32_t counts[WARPS][DIGITS],
                                  uint32_t *block_count)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x < WARPS * DIGITS) {
        (&counts[0][0])[threadIdx.x] = 0;
    }
    __syncthreads();
    uint32_t same = __match_any_sync(0xffffffff, valid ? digit : DIGITS);
    uint32_t before = __popc(same & ((1u << lane) - 1));
    if (valid && before == 0) {
        counts[warp][digit] = __popc(same);
    }
    __syncthreads();
    if (threadIdx.x < DIGITS) { // exclusive scan over the warps, one thread per digit
        uint32_t sum = 0;
        for (int w = 0; w < WARPS; w++) {
            uint32_t count = counts[w][threadIdx.x];
            counts[w][threadIdx.x] = sum;
            sum += count;
        }
        block_count[threadIdx.x] = sum;
    }
    __syncthreads();
    return valid ? counts[warp][digit] + before : 0;
}

__global__ void count_digits(uint32_t *counts, const uint32_t *keys, int n, int shift)
{
    __shared__ uint32_t bins[DIGITS];
    if (threadIdx.x < DIGITS) {
        bins[threadIdx.x] = 0;
    }
    __syncthreads();
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        atomicAdd(&bins[keys[i] >> shift & (DIGITS - 1)], 1);
    }
    __syncthreads();
    if (threadIdx.x < DIGITS) { // digit-major, so that one scan gives every block its places
        counts[threadIdx.x * gridDim.x + blockIdx.x] = bins[threadIdx.x];
    }
}

__global__ void scan_counts(uint32_t *counts, int n)
{
    __shared__ uint32_t warps[32];
    uint32_t carry = 0;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int start = 0; start < n; start += blockDim.x) {
        int i = start + threadIdx.x;
        uint32_t mine = i < n ? counts[i] : 0, sum = mine;
        for (int delta = 1; delta < 32; delta *= 2) {
            uint32_t left = __shfl_up_sync(0xffffffff, sum, delta);
            sum += lane >= delta ? left : 0;
        }
        if (lane == 31) {
            warps[warp] = sum;
        }
        __syncthreads();
        uint32_t before = carry;
        for (int w = 0; w < int(blockDim.x) / 32; w++) {
            before += w < warp ? warps[w] : 0;
            carry += warps[w];
        }
        if (i < n) {
            counts[i] = before + sum - mine;
        }
        __syncthreads();
    }
}

__global__ void scatter(uint32_t *keys_out, uint32_t *values_out, const uint32_t *keys,
                        const uint32_t *values, const uint32_t *places, int n, int shift)
{
    __shared__ uint32_t counts[WARPS][DIGITS], block_count[DIGITS];
    int i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t key = i < n ? keys[i] : 0, digit = key >> shift & (DIGITS - 1);
    uint32_t rank = rank_in_block(digit, i < n, counts, block_count);
    if (i < n) {
        uint32_t place = places[digit * gridDim.x + blockIdx.x] + rank;
        keys_out[place] = key;
        values_out[place] = values[i];
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 12000, 1, 1 << 26);
    bool time = options.time();
    options.done();
    printf("radixSort: %d pairs\n", n);

    Random random(19);
    std::vector<uint32_t> keys(n), values(n), order(n);
    for (int i = 0; i < n; i++) {
        keys[i] = random.next() & (i % 3 ? 0xffffffff : 0xff); // some keys come often
        values[i] = order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    std::vector<uint32_t> want(n);
    for (int i = 0; i < n; i++) {
        want[i] = keys[order[i]];
    }

    int blocks = (n + THREADS - 1) / THREADS;
    uint32_t *k0 = to_device(keys), *k1 = device_alloc<uint32_t>(n);
    uint32_t *v0 = to_device(values), *v1 = device_alloc<uint32_t>(n);
    uint32_t *counts = device_alloc<uint32_t>(size_t(blocks) * DIGITS);
    Timer timer;
    timer.start();
    for (int shift = 0; shift < 32; shift += 4) {
        count_digits<<<blocks, THREADS>>>(counts, k0, n, shift);
        CHECK(cudaGetLastError());
        scan_counts<<<1, THREADS>>>(counts, blocks * DIGITS);
        CHECK(cudaGetLastError());
        scatter<<<blocks, THREADS>>>(k1, v1, k0, v0, counts, n, shift);
        CHECK(cudaGetLastError());
        std::swap(k0, k1);
        std::swap(v0, v1);
    }
    float ms = timer.stop();
    expect_equal("keys", from_device(k0, n), want);
    expect_equal("values", from_device(v0, n), order);
    if (time) {
        printf("time: %.3f ms, %.3f million pairs/s\n", ms, n / ms / 1e3);
    }
    for (uint32_t *p : {k0, k1, v0, v1, counts}) {
        CHECK(cudaFree(p));
    }
    return finish();
}
