/* SPDX-License-Identifier: Apache-2.0 */
// Kernels as real programs have them, compiled by nvcc and run by test_real: each takes int *bad, a
// place to count mistakes in, and int *space, 1 MiB of zeroes.  Grid 4, block 256.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda/std/tuple>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
#include <cuda_fp16.h>
#include <curand_kernel.h>
#include <mma.h>

namespace cg = cooperative_groups;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            atomicAdd(bad, 1);                                                                     \
        }                                                                                          \
    } while (0)

struct shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~shape() {}
};
struct square : shape {
    float a;
    __device__ square(float x) : a(x) {}
    __device__ float area() const override { return a * a; }
};
struct disc : shape {
    float r;
    __device__ disc(float x) : r(x) {}
    __device__ float area() const override { return 3.0f * r * r; }
};

extern "C" __global__ void t_virtual(int *bad, int *space)
{
    shape *s;
    if (threadIdx.x >= 8) {
        return;
    }
    if (threadIdx.x % 2) {
        s = new square(threadIdx.x);
    } else {
        s = new disc(threadIdx.x);
    }
    float want = (threadIdx.x % 2 ? 1.0f : 3.0f) * threadIdx.x * threadIdx.x;
    CHECK(s->area() == want);
    delete s;
}

extern "C" __global__ void t_cub_block(int *bad, int *space)
{
    using Sort = cub::BlockRadixSort<unsigned, 256, 4>;
    using Scan = cub::BlockScan<int, 256>;
    using Reduce = cub::BlockReduce<double, 256>;
    __shared__ union {
        typename Sort::TempStorage sort;
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
    } temp;
    unsigned keys[4];
    for (int i = 0; i < 4; i++) {
        keys[i] = (threadIdx.x * 4 + i) * 2654435761u;
    }
    Sort(temp.sort).Sort(keys);
    for (int i = 0; i < 3; i++) {
        CHECK(keys[i] <= keys[i + 1]);
    }
    __syncthreads();
    int sum;
    Scan(temp.scan).ExclusiveSum((int)threadIdx.x, sum);
    CHECK(sum == (int)(threadIdx.x * (threadIdx.x - 1) / 2));
    __syncthreads();
    double total = Reduce(temp.reduce).Sum((double)threadIdx.x);
    if (threadIdx.x == 0) {
        CHECK(total == 255.0 * 128);
    }
}

extern "C" __global__ void t_groups(int *bad, int *space)
{
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int sum = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
    int base = threadIdx.x / 8 * 8;
    CHECK(sum == base * 8 + 28);
    int before = cg::exclusive_scan(tile, 2);
    CHECK(before == 2 * (int)tile.thread_rank());
    if (threadIdx.x % 3 == 0) {
        auto active = cg::coalesced_threads();
        CHECK(active.size() >= 10 && active.size() <= 11);
        int leader = active.shfl((int)threadIdx.x, 0);
        CHECK(leader / 32 == (int)threadIdx.x / 32);
    }
    auto labelled = cg::labeled_partition(cg::tiled_partition<32>(block), (int)threadIdx.x % 2);
    CHECK(labelled.size() == 16);
    block.sync();
}

extern "C" __global__ void t_barrier(int *bad, int *space)
{
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int data[256];
    if (threadIdx.x == 0) {
        init(&bar, blockDim.x);
    }
    __syncthreads();
    for (int round = 0; round < 3; round++) {
        data[threadIdx.x] = threadIdx.x + round;
        bar.arrive_and_wait();
        CHECK(data[255 - threadIdx.x] == 255 - (int)threadIdx.x + round);
        bar.arrive_and_wait();
    }
}

extern "C" __global__ void t_atomics(int *bad, int *space)
{
    cuda::atomic_ref<int, cuda::thread_scope_device> a(space[0]);
    a.fetch_add(1, cuda::memory_order_relaxed);
    atomicMax(&space[1], (int)threadIdx.x);
    atomicAdd((float *)&space[2], 1.0f);
    atomicAdd((double *)&space[4], 0.5);
    atomicAdd((unsigned long long *)&space[6], 3ull);
    atomicAdd((__half2 *)&space[8], __floats2half2_rn(0.0f, 1.0f));
    __threadfence();
    __shared__ bool last;
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicInc((unsigned *)&space[10], gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        CHECK(space[0] == 1024);
        CHECK(space[1] == 255);
        CHECK(*(volatile float *)&space[2] == 1024.0f);
        CHECK(*(volatile double *)&space[4] == 512.0);
        CHECK(*(volatile unsigned long long *)&space[6] == 3072);
        CHECK(__high2float(*(__half2 *)&space[8]) == 1024.0f);
        CHECK(space[10] == 0);
    }
}

__device__ float compare(float got, double want)
{
    return fabs((double)got - want) / (fabs(want) + 1e-30);
}

extern "C" __global__ void t_math(int *bad, int *space)
{
    float x = 0.01f + threadIdx.x * 0.37f;
    double d = x;
    CHECK(compare(sinf(x), sin(d)) < 1e-5 || fabsf(sinf(x)) < 1e-3f);
    CHECK(compare(expf(-x), exp(-d)) < 1e-5);
    CHECK(compare(logf(x), log(d)) < 1e-5 || fabs(log(d)) < 1e-2);
    CHECK(compare(powf(x, 1.25f), pow(d, 1.25)) < 1e-5);
    CHECK(compare(tanhf(x), tanh(d)) < 1e-5);
    CHECK(compare(erff(x), erf(d)) < 1e-5);
    CHECK(compare(cbrtf(x), cbrt(d)) < 1e-5);
    CHECK(compare(atan2f(x, 3.0f), atan2(d, 3.0)) < 1e-5);
    CHECK(compare(rsqrtf(x), 1 / sqrt(d)) < 1e-5);
    CHECK(compare(fmodf(x, 0.7f), fmod(d, (double)0.7f)) < 1e-4 || fmodf(x, 0.7f) < 1e-3f);
    CHECK(fabs(tgamma(5.0) - 24) < 1e-9);
    CHECK(fabs(lgamma(10.0) - 12.801827480081469) < 1e-9);
    CHECK(compare(__sinf(0.5f), sin(0.5)) < 1e-5);
    CHECK(compare(__expf(1.5f), exp(1.5)) < 1e-5);
    CHECK(sinf(1e10f) >= -1 && sinf(1e10f) <= 1);
    CHECK(fabs(sinf(123456.0f) - sin(123456.0)) < 1e-5);
    CHECK((int)threadIdx.x / 7 * 7 + (int)threadIdx.x % 7 == (int)threadIdx.x);
    long long big = 123456789012345678ll + threadIdx.x;
    CHECK(big / 1000003 * 1000003 + big % 1000003 == big);
    CHECK(__umul64hi(~0ull, 2) == 1);
    CHECK(__brev(1u) == 0x80000000u && __clz(1) == 31 && __ffs(8) == 4 && __popc(255) == 8);
    CHECK(__byte_perm(0x03020100, 0x07060504, 0x7531) == 0x07050301);
    CHECK(__vadd4(0x01ff0304u, 0x01010101u) == 0x02000405u);
    CHECK(__vsetgtu2(0x00020001u, 0x00010001u) == 0x00010000u);
    CHECK(__dp4a(0x01020304, 0x01010101, 5) == 15);
    CHECK(nextafterf(1.0f, 2.0f) > 1.0f && isnan(0.0f / (x - x)) && isinf(1.0f / (x - x)));
}

extern "C" __global__ void t_half(int *bad, int *space)
{
    __half a = __float2half(1.5f), b = __int2half_rn(threadIdx.x);
    CHECK(__half2float(__hadd(a, b)) == 1.5f + threadIdx.x || threadIdx.x > 1000);
    __half2 v = __halves2half2(a, b);
    v = __hfma2(v, v, v);
    CHECK(__low2float(v) == 3.75f);
    CHECK(__hgt(b, a) == (threadIdx.x > 1));
    __nv_bfloat16 c = __float2bfloat16(2.5f);
    CHECK(__bfloat162float(__hmul(c, c)) == 6.25f);
    __nv_bfloat162 w = __float22bfloat162_rn(make_float2(1.0f, 3.0f));
    w = __hmax2(w, __float2bfloat162_rn(2.0f));
    CHECK(__low2float(w) == 2.0f && __high2float(w) == 3.0f);
    CHECK(fabsf(__half2float(hexp(__float2half(1.0f))) - 2.71828f) < 0.01f);
    CHECK(__half2int_rn(__float2half(2.5f)) == 2);
}

extern "C" __global__ void t_wmma(int *bad, int *space)
{
    using namespace nvcuda;
    __shared__ __half a[256], b[256];
    __shared__ float c[256];
    a[threadIdx.x] = __float2half((float)(threadIdx.x % 5));
    b[threadIdx.x] = __float2half((float)(threadIdx.x % 7));
    __syncthreads();
    if (threadIdx.x < 32) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
        wmma::fill_fragment(fc, 1.0f);
        wmma::load_matrix_sync(fa, a, 16);
        wmma::load_matrix_sync(fb, b, 16);
        wmma::mma_sync(fc, fa, fb, fc);
        wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
    }
    __syncthreads();
    int row = threadIdx.x / 16, col = threadIdx.x % 16;
    float want = 1;
    for (int k = 0; k < 16; k++) {
        want += (float)((row * 16 + k) % 5) * (float)((col * 16 + k) % 7);
    }
    CHECK(c[threadIdx.x] == want);
}

extern "C" __global__ void t_random(int *bad, int *space)
{
    curandStatePhilox4_32_10_t philox;
    curandState xorwow;
    curand_init(1234, threadIdx.x, 0, &philox);
    curand_init(1234, threadIdx.x, 0, &xorwow);
    float sum = 0;
    for (int i = 0; i < 16; i++) {
        float u = curand_uniform(&philox), v = curand_normal(&xorwow);
        CHECK(u > 0 && u <= 1 && v > -8 && v < 8);
        sum += u;
    }
    CHECK(sum > 2 && sum < 14);
}

template <typename T, int N> struct stack {
    T item[N];
    int top = 0;
    __device__ void push(T x) { item[top++] = x; }
    __device__ T pop() { return item[--top]; }
};

extern "C" __global__ void t_local(int *bad, int *space)
{
    stack<int, 64> s;
    int n = threadIdx.x % 60;
    for (int i = 0; i < n; i++) {
        s.push(i * i);
    }
    for (int i = n - 1; i >= 0; i--) {
        CHECK(s.pop() == i * i);
    }
    cuda::std::complex<float> z(0, 1);
    z = z * z;
    CHECK(z.real() == -1);
    auto t = cuda::std::make_tuple(1, 2.5, (int)threadIdx.x);
    CHECK(cuda::std::get<2>(t) == (int)threadIdx.x);
}

__device__ __noinline__ int ackermann(int m, int n)
{
    if (m == 0) {
        return n + 1;
    }
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

typedef int (*op)(int, int);
__device__ int plus_op(int a, int b) { return a + b; }
__device__ int times_op(int a, int b) { return a * b; }
__device__ op ops[2] = {plus_op, times_op};

extern "C" __global__ void t_calls(int *bad, int *space)
{
    if (threadIdx.x < 4) {
        CHECK(ackermann(2, threadIdx.x) == 2 * (int)threadIdx.x + 3);
    }
    CHECK(ops[threadIdx.x % 2](threadIdx.x, 3) ==
          (threadIdx.x % 2 ? (int)threadIdx.x * 3 : (int)threadIdx.x + 3));
}

__constant__ int table[8] = {5, 4, 3, 2, 1, 0, -1, -2};
__device__ int counter = 7;
__managed__ int managed = 9;

extern "C" __global__ void t_variables(int *bad, int *space)
{
    CHECK(table[threadIdx.x % 8] == 5 - (int)threadIdx.x % 8);
    CHECK(counter == 7 && managed == 9);
    extern __shared__ int dynamic[];
    dynamic[threadIdx.x] = threadIdx.x;
    __syncthreads();
    CHECK(dynamic[255 - threadIdx.x] == 255 - (int)threadIdx.x);
}

extern "C" __global__ void t_grid_sync(int *bad, int *space)
{
    auto grid = cg::this_grid();
    for (int round = 1; round <= 3; round++) {
        if (threadIdx.x == 0) {
            atomicAdd(&space[0], 1);
        }
        grid.sync();
        CHECK(*(volatile int *)&space[0] == round * (int)gridDim.x);
        grid.sync();
    }
}

extern "C" __global__ void t_copy_async(int *bad, int *space)
{
    __shared__ alignas(16) int data[1024];
    for (int i = threadIdx.x; i < 1024; i += 256) {
        space[4096 + blockIdx.x * 1024 + i] = i;
    }
    __syncthreads();
    auto block = cg::this_thread_block();
    __pipeline_memcpy_async(&data[threadIdx.x * 4], &space[4096 + blockIdx.x * 1024 + threadIdx.x * 4], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    block.sync();
    CHECK(data[1023 - threadIdx.x] == 1023 - (int)threadIdx.x);
}
