/* SPDX-License-Identifier: Apache-2.0 */
// The sum of an array in five ways, from naive to cooperative groups. Integers must be exact, the
// floating-point sum close.
#include "../common/check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;
const int THREADS = 256;

// Half of the threads idle in every round, and neighbours diverge.
template <typename T> __global__ void interleaved(T *out, const T *in, int n)
{
    __shared__ T shared[THREADS];
    int t = threadIdx.x, i = blockIdx.x * THREADS + t;
    shared[t] = i < n ? in[i] : T(0);
    for (int stride = 1; stride < THREADS; stride *= 2) {
        __syncthreads();
        if (t % (2 * stride) == 0) {
            shared[t] += shared[t + stride];
        }
    }
    if (t == 0) {
        out[blockIdx.x] = shared[0];
    }
}

// The working threads stay together; the first addition happens while loading.
template <typename T> __global__ void sequential(T *out, const T *in, int n)
{
    __shared__ T shared[THREADS];
    int t = threadIdx.x, i = blockIdx.x * 2 * THREADS + t;
    shared[t] = (i < n ? in[i] : T(0)) + (i + THREADS < n ? in[i + THREADS] : T(0));
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            shared[t] += shared[t + half];
        }
    }
    if (t == 0) {
        out[blockIdx.x] = shared[0];
    }
}

// Registers instead of shared memory inside a warp.
template <typename T> __global__ void shuffles(T *out, const T *in, int n)
{
    __shared__ T warps[THREADS / 32];
    T sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        sum += in[i];
    }
    for (int delta = 16; delta > 0; delta /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, delta);
    }
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < THREADS / 32 ? warps[threadIdx.x] : T(0);
        for (int delta = THREADS / 64; delta > 0; delta /= 2) {
            sum += __shfl_down_sync(0xffffffff, sum, delta);
        }
        if (threadIdx.x == 0) {
            out[blockIdx.x] = sum;
        }
    }
}

// The same, said with cooperative groups; blocks add to one result.
template <typename T> __global__ void groups(T *out, const T *in, int n)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    T sum = 0;
    for (int i = blockIdx.x * THREADS + block.thread_rank(); i < n; i += gridDim.x * THREADS) {
        sum += in[i];
    }
    sum = cg::reduce(warp, sum, cg::plus<T>());
    if (warp.thread_rank() == 0) {
        atomicAdd(out, sum);
    }
}

// Everything by atomics on one address.
template <typename T> __global__ void atomics(T *out, const T *in, int n)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        atomicAdd(out, in[i]);
    }
}

template <typename T> struct Way {
    const char *name;
    void (*kernel)(T *, const T *, int);
    int blocks, sums; // sums: how many results the blocks leave
};

template <typename T>
static void run(const char *type, const std::vector<T> &in, double want, double slack, bool time)
{
    int n = int(in.size());
    Way<T> ways[] = {
        {"interleaved", interleaved<T>, (n + THREADS - 1) / THREADS, (n + THREADS - 1) / THREADS},
        {"sequential", sequential<T>, (n + 2 * THREADS - 1) / (2 * THREADS),
         (n + 2 * THREADS - 1) / (2 * THREADS)},
        {"shuffles", shuffles<T>, 16, 16},
        {"groups", groups<T>, 16, 1},
        {"atomics", atomics<T>, (n + THREADS - 1) / THREADS, 1},
    };
    T *din = to_device(in);
    for (const Way<T> &way : ways) {
        T *dout = device_alloc<T>(way.sums);
        CHECK(cudaMemset(dout, 0, way.sums * sizeof(T)));
        Timer timer;
        timer.start();
        way.kernel<<<way.blocks, THREADS>>>(dout, din, n);
        CHECK(cudaGetLastError());
        float ms = timer.stop();
        std::vector<T> sums = from_device(dout, way.sums);
        T got = 0;
        for (T x : sums) {
            got += x;
        }
        if (!(fabs(double(got) - want) <= slack)) {
            fail("%s, %s: the sum is %.9g, the CPU says %.9g", type, way.name, double(got), want);
        }
        printf("%s, %s: right\n", type, way.name);
        if (time) {
            printf("  %.3f ms, %.3f GB/s\n", ms, n * sizeof(T) / ms / 1e6);
        }
        CHECK(cudaFree(dout));
    }
    CHECK(cudaFree(din));
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 60000, 1, 1 << 26);
    bool time = options.time();
    options.done();

    Random random(15);
    std::vector<int> integers(n);
    std::vector<float> floats(n);
    int sum = 0;
    double total = 0;
    for (int i = 0; i < n; i++) {
        integers[i] = int(random.below(21)) - 10;
        floats[i] = random.uniform(0, 1);
        sum += integers[i];
        total += floats[i];
    }
    run("int", integers, sum, 0, time);
    run("float", floats, total, 1e-3 * total, time);
    return finish();
}
