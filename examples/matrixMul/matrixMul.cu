/* SPDX-License-Identifier: Apache-2.0 */
// Matrix product twice: tiles in shared memory in single precision, and the tensor cores with half
// precision factors and single precision sums. The factors are small integers, so both are exact.
#include "../common/check.h"

#include <cuda_fp16.h>
#include <mma.h>

const int TILE = 16;

__global__ void multiply_tiled(float *c, const float *a, const float *b, int n)
{
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        as[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// One warp per 16 x 16 tile of the result.
__global__ void multiply_tensor(float *c, const __half *a, const __half *b, int n)
{
    using namespace nvcuda;
    int row = (blockIdx.y * blockDim.y + threadIdx.y) * TILE, column = blockIdx.x * TILE;
    if (row >= n) {
        return;
    }
    wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, __half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < n; k += TILE) {
        wmma::load_matrix_sync(fa, a + row * n + k, n);
        wmma::load_matrix_sync(fb, b + k * n + column, n);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    wmma::store_matrix_sync(c + row * n + column, sum, n, wmma::mem_row_major);
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = (options.number("-n", 144, 16, 4096) + TILE - 1) / TILE * TILE;
    bool time = options.time();
    options.done();
    printf("matrixMul: %d x %d\n", n, n);

    Random random(10);
    size_t count = size_t(n) * n;
    std::vector<float> a(count), b(count), want(count, 0.0f);
    std::vector<__half> ha(count), hb(count);
    for (size_t i = 0; i < count; i++) {
        a[i] = float(int(random.below(17)) - 8);
        b[i] = float(int(random.below(17)) - 8);
        ha[i] = __float2half(a[i]);
        hb[i] = __float2half(b[i]);
    }
    for (int row = 0; row < n; row++) {
        for (int k = 0; k < n; k++) {
            for (int column = 0; column < n; column++) {
                want[row * n + column] += a[row * n + k] * b[k * n + column];
            }
        }
    }
    float *da = to_device(a), *db = to_device(b), *dc = device_alloc<float>(count);
    __half *dha = to_device(ha), *dhb = to_device(hb);

    Timer timer;
    timer.start();
    multiply_tiled<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(dc, da, db, n);
    CHECK(cudaGetLastError());
    float ms = timer.stop();
    expect_near("tiled", from_device(dc, count), want, 0.0f);
    printf("tiled: equal\n");
    if (time) {
        printf("  %.3f ms, %.3f GFLOP/s\n", ms, 2e-6 * count * n / ms);
    }

    CHECK(cudaMemset(dc, 255, count * sizeof(float)));
    timer.start();
    multiply_tensor<<<dim3(n / TILE, (n / TILE + 3) / 4), dim3(32, 4)>>>(dc, dha, dhb, n);
    CHECK(cudaGetLastError());
    ms = timer.stop();
    expect_near("tensor cores", from_device(dc, count), want, 0.0f);
    printf("tensor cores: equal\n");
    if (time) {
        printf("  %.3f ms, %.3f GFLOP/s\n", ms, 2e-6 * count * n / ms);
    }
    for (void *p : {(void *)da, (void *)db, (void *)dc, (void *)dha, (void *)dhb}) {
        CHECK(cudaFree(p));
    }
    return finish();
}
