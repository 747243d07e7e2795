/* SPDX-License-Identifier: Apache-2.0 */
// Matrix transpose: straightforward, through a shared tile, and through a tile without bank
// conflicts.
#include "../common/check.h"

const int TILE = 32, ROWS = 8;

__global__ void naive(float *out, const float *in, int width, int height)
{
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < width && y < height) {
            out[x * height + y] = in[y * width + x];
        }
    }
}

template <int PAD> __global__ void tiled(float *out, const float *in, int width, int height)
{
    __shared__ float tile[TILE][TILE + PAD];
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < width && y < height) {
            tile[j][threadIdx.x] = in[y * width + x];
        }
    }
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x; // of the result
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.x * TILE + j;
        if (x < height && y < width) {
            out[y * height + x] = tile[threadIdx.x][j];
        }
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int width = options.number("-n", 300, 1, 16384), height = width * 2 / 3 + 1;
    bool time = options.time();
    options.done();
    size_t count = size_t(width) * height;
    printf("transpose: %d x %d\n", width, height);

    Random random(17);
    std::vector<float> in(count), want(count);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            want[size_t(x) * height + y] = in[size_t(y) * width + x] = random.uniform(-1, 1);
        }
    }
    float *din = to_device(in), *dout = device_alloc<float>(count);
    dim3 grid((width + TILE - 1) / TILE, (height + TILE - 1) / TILE), block(TILE, ROWS);
    struct {
        const char *name;
        void (*kernel)(float *, const float *, int, int);
    } ways[] = {{"naive", naive}, {"tiled", tiled<0>}, {"tiled, padded", tiled<1>}};
    for (auto &way : ways) {
        CHECK(cudaMemset(dout, 255, count * sizeof(float)));
        Timer timer;
        timer.start();
        way.kernel<<<grid, block>>>(dout, din, width, height);
        CHECK(cudaGetLastError());
        float ms = timer.stop();
        expect_equal(way.name, from_device(dout, count), want);
        printf("%s: equal\n", way.name);
        if (time) {
            printf("  %.3f ms, %.3f GB/s\n", ms, 2 * count * sizeof(float) / ms / 1e6);
        }
    }
    CHECK(cudaFree(din));
    CHECK(cudaFree(dout));
    return finish();
}
