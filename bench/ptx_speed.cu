/* SPDX-License-Identifier: Apache-2.0 */
// The kernels of bench/ptx_speed.c. After a change:
//   nvcc -ptx -arch=sm_90 -o bench/ptx_speed.ptx bench/ptx_speed.cu
#include <cuda_fp16.h>
#include <mma.h>

extern "C" {

__global__ void vector_add(float *c, const float *a, const float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

__global__ void saxpy(float *y, const float *x, float a, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] = a * x[i] + y[i];
    }
}

// Each block leaves its sum; one block more adds those.
__global__ void reduce(double *sums, const double *in, int n)
{
    __shared__ double part[8];
    double sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += in[i];
    }
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, d);
    }
    if (threadIdx.x % 32 == 0) {
        part[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; i++) {
            sum += part[i];
        }
        sums[blockIdx.x] = sum;
    }
}

// Running sums: eight values a thread, warps by shuffles, blocks of 256 threads. `totals` gets each block's.
#define ITEMS 8
__global__ void scan(unsigned *out, const unsigned *in, unsigned *totals, int n)
{
    __shared__ unsigned part[8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    unsigned own[ITEMS], sum = 0;
    for (int k = 0; k < ITEMS; k++) {
        sum += first + k < n ? in[first + k] : 0;
        own[k] = sum;
    }
    unsigned all = sum;
    for (int d = 1; d < 32; d *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, all, d);
        all += lane >= d ? other : 0;
    }
    if (lane == 31) {
        part[warp] = all;
    }
    __syncthreads();
    unsigned before = all - sum;
    for (int i = 0; i < warp; i++) {
        before += part[i];
    }
    for (int k = 0; k < ITEMS; k++) {
        if (first + k < n) {
            out[first + k] = before + own[k];
        }
    }
    if (totals && threadIdx.x == blockDim.x - 1) {
        totals[blockIdx.x] = before + sum;
    }
}

__global__ void scan_add(unsigned *out, const unsigned *totals, int n)
{
    if (blockIdx.x == 0) {
        return;
    }
    unsigned before = totals[blockIdx.x - 1];
    for (int k = 0; k < ITEMS; k++) {
        int i = (blockIdx.x * ITEMS + k) * blockDim.x + threadIdx.x;
        if (i < n) {
            out[i] += before;
        }
    }
}

__device__ static float normal(float d)
{
    const float a1 = 0.31938153f, a2 = -0.356563782f, a3 = 1.781477937f, a4 = -1.821255978f,
                a5 = 1.330274429f, rsqrt2pi = 0.39894228040143267794f;
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float c = rsqrt2pi * expf(-0.5f * d * d) * (k * (a1 + k * (a2 + k * (a3 + k * (a4 + k * a5)))));
    return d > 0 ? 1.0f - c : c;
}

__global__ void black_scholes(float *call, float *put, const float *price, const float *strike,
                              const float *years, float riskfree, float volatility, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float s = price[i], x = strike[i], t = years[i];
        float root = sqrtf(t);
        float d1 = (logf(s / x) + (riskfree + 0.5f * volatility * volatility) * t) / (volatility * root);
        float d2 = d1 - volatility * root;
        float n1 = normal(d1), n2 = normal(d2), e = expf(-riskfree * t);
        call[i] = s * n1 - x * e * n2;
        put[i] = x * e * (1.0f - n2) - s * (1.0f - n1);
    }
}

#define TILE 16
__global__ void matrix_mul(float *c, const float *a, const float *b, int n)
{
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        as[ty][tx] = a[row * n + k + tx];
        bs[ty][tx] = b[(k + ty) * n + col];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            sum += as[ty][i] * bs[i][tx];
        }
        __syncthreads();
    }
    c[row * n + col] = sum;
}

__global__ void nbody(float4 *force, const float4 *body, int n)
{
    __shared__ float4 tile[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = body[i];
    float fx = 0, fy = 0, fz = 0;
    for (int k = 0; k < n; k += 128) {
        tile[threadIdx.x] = body[k + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 128; j++) {
            float4 other = tile[j];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float d2 = dx * dx + dy * dy + dz * dz + 1e-4f;
            float inv = rsqrtf(d2), s = other.w * inv * inv * inv;
            fx += dx * s;
            fy += dy * s;
            fz += dz * s;
        }
        __syncthreads();
    }
    force[i] = make_float4(fx, fy, fz, 0);
}

__global__ void matrix_mul_double(double *c, const double *a, const double *b, int n)
{
    __shared__ double as[TILE][TILE], bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    double sum = 0;
    for (int k = 0; k < n; k += TILE) {
        as[ty][tx] = a[row * n + k + tx];
        bs[ty][tx] = b[(k + ty) * n + col];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            sum += as[ty][i] * bs[i][tx];
        }
        __syncthreads();
    }
    c[row * n + col] = sum;
}

__global__ void matrix_mul_half(float *c, const __half *a, const __half *b, int n)
{
    __shared__ __half as[TILE][TILE], bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        as[ty][tx] = a[row * n + k + tx];
        bs[ty][tx] = b[(k + ty) * n + col];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            sum += __half2float(as[ty][i]) * __half2float(bs[i][tx]);
        }
        __syncthreads();
    }
    c[row * n + col] = sum;
}

// One warp a tile of 16 x 16.
__global__ void tensor(float *c, const __half *a, const __half *b, int n)
{
    using namespace nvcuda;
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, row = warp / (n / 16), col = warp % (n / 16);
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < n; k += 16) {
        wmma::load_matrix_sync(fa, a + row * 16 * n + k, n);
        wmma::load_matrix_sync(fb, b + k * n + col * 16, n);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    wmma::store_matrix_sync(c + row * 16 * n + col * 16, sum, n, wmma::mem_row_major);
}

__global__ void mandelbrot(int *out, int width, int height, int most)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    double cr = __dadd_rn(-2.0, __dmul_rn(3.0 / width, x)), ci = __dadd_rn(-1.5, __dmul_rn(3.0 / height, y));
    double zr = 0, zi = 0;
    int i = 0;
    for (; i < most; i++) {
        double rr = __dmul_rn(zr, zr), ii = __dmul_rn(zi, zi);
        if (__dadd_rn(rr, ii) > 4.0) {
            break;
        }
        double ri = __dmul_rn(zr, zi);
        zr = __dadd_rn(__dsub_rn(rr, ii), cr);
        zi = __dadd_rn(__dadd_rn(ri, ri), ci);
    }
    out[y * width + x] = i;
}

__global__ void histogram(unsigned *bins, const unsigned *in, int n)
{
    __shared__ unsigned own[256];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned four = in[i];
        atomicAdd(&own[four & 255], 1);
        atomicAdd(&own[four >> 8 & 255], 1);
        atomicAdd(&own[four >> 16 & 255], 1);
        atomicAdd(&own[four >> 24], 1);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

__global__ void stencil(float *out, const float *in, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int at = y * width + x;
    if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
        out[at] = 0.5f * in[at] +
                  0.125f * (in[at - 1] + in[at + 1] + in[at - width] + in[at + width]);
    }
}

// Four bits at a time: how often each digit occurs in each block, sums of these (`scan`), then to their places. A thread's
// place among equal digits of its block: ballots in its warp, counts of the warps before.
__global__ void sort_count(unsigned *counts, const unsigned *keys, int shift)
{
    __shared__ unsigned own[16];
    if (threadIdx.x < 16) {
        own[threadIdx.x] = 0;
    }
    __syncthreads();
    atomicAdd(&own[keys[blockIdx.x * blockDim.x + threadIdx.x] >> shift & 15], 1);
    __syncthreads();
    if (threadIdx.x < 16) {
        counts[threadIdx.x * gridDim.x + blockIdx.x] = own[threadIdx.x];
    }
}

__global__ void sort_place(unsigned *out, const unsigned *keys, const unsigned *counts, const unsigned *sums,
                           int shift)
{
    __shared__ unsigned own[8][16];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned key = keys[blockIdx.x * blockDim.x + threadIdx.x], digit = key >> shift & 15, same = ~0u;
    for (int bit = 0; bit < 4; bit++) {
        unsigned votes = __ballot_sync(~0u, digit >> bit & 1);
        same &= digit >> bit & 1 ? votes : ~votes;
    }
    if (lane < 16) {
        own[warp][lane] = 0;
    }
    __syncwarp();
    unsigned before = __popc(same & ((1u << lane) - 1));
    if (before == 0) {
        own[warp][digit] = __popc(same);
    }
    __syncthreads();
    unsigned cell = digit * gridDim.x + blockIdx.x, at = sums[cell] - counts[cell] + before;
    for (unsigned w = 0; w < warp; w++) {
        at += own[w][digit];
    }
    out[at] = key;
}

__constant__ unsigned sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
// One block of 64 bytes a thread: word `k` of message `i` is in[k * n + i].
__global__ void sha256(unsigned *out, const unsigned *in, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned w[16];
#pragma unroll
    for (int k = 0; k < 16; k++) {
        w[k] = in[k * n + thread];
    }
    unsigned a = 0x6a09e667, b = 0xbb67ae85, c = 0x3c6ef372, d = 0xa54ff53a, e = 0x510e527f, f = 0x9b05688c,
             g = 0x1f83d9ab, h = 0x5be0cd19;
#pragma unroll 16
    for (int k = 0; k < 64; k++) {
        if (k >= 16) {
            unsigned x = w[(k + 1) % 16], y = w[(k + 14) % 16];
            w[k % 16] += (ROTATE(x, 7) ^ ROTATE(x, 18) ^ x >> 3) + w[(k + 9) % 16] +
                         (ROTATE(y, 17) ^ ROTATE(y, 19) ^ y >> 10);
        }
        unsigned one = h + (ROTATE(e, 6) ^ ROTATE(e, 11) ^ ROTATE(e, 25)) + ((e & f) ^ (~e & g)) + sha_k[k] + w[k % 16];
        unsigned two = (ROTATE(a, 2) ^ ROTATE(a, 13) ^ ROTATE(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    unsigned hash[8] = {a, b, c, d, e, f, g, h};
#pragma unroll
    for (int k = 0; k < 8; k++) {
        out[k * n + thread] = hash[k];
    }
}

// Compressed rows, one a thread.
__global__ void sparse(float *y, const int *rows, const int *columns, const float *values, const float *x, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) {
        float sum = 0;
        for (int k = rows[row]; k < rows[row + 1]; k++) {
            sum += values[k] * x[columns[k]];
        }
        y[row] = sum;
    }
}

// Smith-Waterman, a pair of sequences a thread: 16 letters against 64, letter `k` of pair `i` at [k * n + i].
__global__ void alignment(int *best, const unsigned char *query, const unsigned char *text, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x, most = 0;
    int letters[16], row[16];
#pragma unroll
    for (int j = 0; j < 16; j++) {
        letters[j] = query[j * n + thread];
        row[j] = 0;
    }
    for (int i = 0; i < 64; i++) {
        int letter = text[i * n + thread], left = 0, corner = 0;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            int score = corner + (letters[j] == letter ? 5 : -3);
            score = max(max(score, 0), max(row[j], left) - 4);
            corner = row[j];
            row[j] = left = score;
            most = max(most, score);
        }
    }
    best[thread] = most;
}

__global__ void texture_fetch(float *out, cudaTextureObject_t texture, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    out[y * width + x] = tex2D<float>(texture, 0.75f * x + 0.25f * y + 0.5f, 0.5f * y + 0.5f);
}
}
