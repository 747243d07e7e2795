/* SPDX-License-Identifier: Apache-2.0 */
// Histograms of bytes, with 64 and with 256 bins: counts in shared memory by atomics, one table per
// warp, merged at the end.
#include "../common/check.h"

const int WARPS = 4, THREADS = 32 * WARPS;

template <int BINS> __global__ void histogram(uint32_t *result, const uint32_t *words, int n)
{
    __shared__ uint32_t tables[WARPS][BINS];
    for (int i = threadIdx.x; i < WARPS * BINS; i += THREADS) {
        (&tables[0][0])[i] = 0;
    }
    __syncthreads();
    uint32_t *mine = tables[threadIdx.x / 32];
    const int shift = BINS == 64 ? 2 : 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        uint32_t word = words[i];
        for (int byte = 0; byte < 32; byte += 8) {
            atomicAdd(&mine[(word >> byte & 255) >> shift], 1);
        }
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += THREADS) {
        uint32_t sum = 0;
        for (int warp = 0; warp < WARPS; warp++) {
            sum += tables[warp][bin];
        }
        atomicAdd(&result[bin], sum);
    }
}

template <int BINS>
static void run(const std::vector<uint32_t> &words, const uint32_t *device, bool time)
{
    std::vector<uint32_t> want(BINS, 0);
    for (uint32_t word : words) {
        for (int byte = 0; byte < 32; byte += 8) {
            want[(word >> byte & 255) * BINS / 256]++;
        }
    }
    uint32_t *result = device_alloc<uint32_t>(BINS);
    CHECK(cudaMemset(result, 0, BINS * sizeof(uint32_t)));
    Timer timer;
    timer.start();
    histogram<BINS><<<32, THREADS>>>(result, device, int(words.size()));
    CHECK(cudaGetLastError());
    float ms = timer.stop();
    expect_equal("bins", from_device(result, BINS), want);
    printf("%d bins: equal\n", BINS);
    if (time) {
        printf("  %.3f ms, %.3f GB/s\n", ms, words.size() * 4 / ms / 1e6);
    }
    CHECK(cudaFree(result));
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 400000, 4, 1 << 30) / 4; // bytes
    bool time = options.time();
    options.done();
    printf("histogram: %d bytes\n", n * 4);

    Random random(16);
    std::vector<uint32_t> words(n);
    for (uint32_t &word : words) { // not uniform: the product of two bytes' worth of bits
        word = random.next() & random.next();
    }
    uint32_t *device = to_device(words);
    run<64>(words, device, time);
    run<256>(words, device, time);
    CHECK(cudaFree(device));
    return finish();
}
