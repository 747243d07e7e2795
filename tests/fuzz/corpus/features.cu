// Many kinds of instructions in little text; features.ptx is what nvcc made of it (README.md says how).
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <stdio.h>

__device__ int table[4] = {1, 2, 3, 4};
__constant__ float weights[8];
__managed__ unsigned counter;

__device__ __noinline__ int recursive(int n)
{
    return n <= 1 ? 1 : n * recursive(n - 1) + table[n & 3];
}

typedef int (*function)(int);
__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ function functions[2] = {recursive, twice};

extern "C" __global__ void calls(int *out, int n)
{
    int i = threadIdx.x;
    out[i] = functions[i & 1](n & 7);
    if (i == 0) {
        printf("%d %f %s\n", n, (double)weights[1], "text");
    }
}

extern "C" __global__ void atomics(unsigned *a, unsigned long long *b, float *c, double *d)
{
    __shared__ unsigned part[64];
    part[threadIdx.x & 63] = 0;
    __syncthreads();
    atomicAdd(&part[threadIdx.x & 7], 3u);
    atomicMax(a, part[0]);
    atomicCAS(a + 1, 0u, 5u);
    atomicExch(b, 1ull);
    atomicAdd(c, 0.5f);
    atomicAdd(d, 0.5);
    atomicAdd_system(&counter, 1u);
    a[threadIdx.x & 31] += __ballot_sync(~0u, part[1] > 1) + __popc(__activemask());
    a[threadIdx.x & 31] ^= __match_any_sync(~0u, part[2]) + __reduce_add_sync(~0u, part[3]);
    a[2] = __syncthreads_count(part[4] > 2);
}

extern "C" __global__ void floats(float *f, double *d, __half2 *h, __nv_bfloat162 *b, long long *l)
{
    int i = threadIdx.x & 31;
    f[i] = __fmaf_rz(f[i], f[i + 1], __sinf(f[i])) + rsqrtf(f[i]) * exp2f(f[i]) + tanhf(f[i]);
    d[i] = fma(d[i], d[i + 1], sqrt(d[i])) / __ddiv_rd(d[i], 3.0);
    h[i] = __hfma2(h[i], h[i + 1], __floats2half2_rn(f[i], 1.0f));
    b[i] = __hmul2(b[i], b[i + 1]);
    l[i] = __double2ll_ru(d[i]) + __float2int_rz(f[i]) + __mul64hi(l[i], l[i + 1]) + __clzll(l[i]);
    l[i] /= l[i + 1] | 1;
}

extern "C" __global__ void integers(unsigned *a, uint4 *v, char *bytes, short *shorts)
{
    int i = threadIdx.x & 31;
    uint4 x = v[i];
    x.x = __byte_perm(x.y, x.z, x.w) + __brev(x.x) + __funnelshift_l(x.x, x.y, x.z);
    x.y = __dp4a(x.x, x.y, x.z) + __umul24(x.x, x.w) + __usad(x.x, x.y, x.z);
    x.z = (x.x & x.y) ^ (x.z | ~x.w);
    v[i ^ 1] = x;
    bytes[i] += (char)shorts[i] * 3;
    switch (a[i] % 7) {
    case 0: a[i] = 5; break;
    case 1: a[i] = x.x; break;
    case 2: a[i] *= 7; break;
    case 3: a[i] -= x.z; break;
    case 4: a[i] <<= 3; break;
    case 5: __trap();
    default: break;
    }
}

extern "C" __global__ void pipeline(float *out, const float4 *in, cudaTextureObject_t texture)
{
    extern __shared__ float4 stage[];
    __pipeline_memcpy_async(&stage[threadIdx.x & 15], &in[threadIdx.x & 15], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    cooperative_groups::thread_block block = cooperative_groups::this_thread_block();
    cooperative_groups::tiled_partition<8>(block).sync();
    block.sync();
    float local[16];
    for (int i = 0; i < 16; i++) {
        local[i] = stage[i].x + tex2D<float>(texture, i, 0.5f);
    }
    out[threadIdx.x & 31] = local[(int)out[0] & 15] + __shfl_xor_sync(~0u, out[1], 3);
    long long start = clock64();
    while (clock64() - start < 100) {
    }
}
