/* SPDX-License-Identifier: Apache-2.0 */
// Blocks read the multiprocessor's clock before and after their work (a minimum over shared
// memory). The clock must run forward, whatever it counts; the work's result must be right.
#include "../common/check.h"

const int THREADS = 128;

__global__ void timed_minimum(const float *in, float *out, long long *start, long long *stop)
{
    __shared__ float shared[2 * THREADS];
    int t = threadIdx.x;
    const float *mine = in + blockIdx.x * 2 * THREADS;
    if (t == 0) {
        start[blockIdx.x] = clock64();
    }
    shared[t] = mine[t];
    shared[t + THREADS] = mine[t + THREADS];
    for (int half = THREADS; half > 0; half /= 2) {
        __syncthreads();
        if (t < half && shared[t + half] < shared[t]) {
            shared[t] = shared[t + half];
        }
    }
    if (t == 0) {
        out[blockIdx.x] = shared[0];
    }
    __syncthreads();
    if (t == 0) {
        stop[blockIdx.x] = clock64();
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int blocks = options.number("-n", 64, 1, 1 << 20);
    bool time = options.time();
    options.done();
    printf("clock: %d blocks\n", blocks);

    Random random(9);
    std::vector<float> in(size_t(blocks) * 2 * THREADS), want(blocks);
    for (size_t i = 0; i < in.size(); i++) {
        in[i] = random.uniform(-1000, 1000);
        float &least = want[i / (2 * THREADS)];
        least = i % (2 * THREADS) == 0 ? in[i] : fminf(least, in[i]);
    }
    float *din = to_device(in), *dout = device_alloc<float>(blocks);
    long long *dstart = device_alloc<long long>(blocks), *dstop = device_alloc<long long>(blocks);
    timed_minimum<<<blocks, THREADS>>>(din, dout, dstart, dstop);
    CHECK(cudaGetLastError());
    expect_equal("minimum", from_device(dout, blocks), want);

    std::vector<long long> start = from_device(dstart, blocks), stop = from_device(dstop, blocks);
    long long total = 0;
    for (int i = 0; i < blocks; i++) {
        if (stop[i] <= start[i]) {
            fail("block %d: the clock went from %lld to %lld", i, start[i], stop[i]);
        }
        total += stop[i] - start[i];
    }
    if (time) {
        printf("clocks per block: %.1f\n", double(total) / blocks);
    }
    CHECK(cudaFree(din));
    CHECK(cudaFree(dout));
    CHECK(cudaFree(dstart));
    CHECK(cudaFree(dstop));
    return finish();
}
