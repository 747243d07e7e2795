/* SPDX-License-Identifier: Apache-2.0 */
// A separable image filter: rows, then columns, with the tile and its border in shared memory and
// the weights in constant memory.
#include "../common/check.h"

const int RADIUS = 8, TAPS = 2 * RADIUS + 1;
const int WIDE = 64, TALL = 4;    // a row tile
const int NARROW = 16, HIGH = 32; // a column tile
__constant__ float weights[TAPS];

__global__ void rows(float *out, const float *in, int width, int height)
{
    __shared__ float tile[TALL][WIDE + 2 * RADIUS];
    int y = blockIdx.y * TALL + threadIdx.y;
    int left = blockIdx.x * WIDE - RADIUS;
    for (int i = threadIdx.x; i < WIDE + 2 * RADIUS; i += WIDE) {
        int x = left + i;
        bool inside = x >= 0 && x < width && y < height;
        tile[threadIdx.y][i] = inside ? in[y * width + x] : 0.0f;
    }
    __syncthreads();
    int x = blockIdx.x * WIDE + threadIdx.x;
    if (x < width && y < height) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            sum += weights[k] * tile[threadIdx.y][threadIdx.x + k];
        }
        out[y * width + x] = sum;
    }
}

__global__ void columns(float *out, const float *in, int width, int height)
{
    __shared__ float tile[HIGH + 2 * RADIUS][NARROW + 1]; // + 1: no bank conflicts
    int x = blockIdx.x * NARROW + threadIdx.x;
    int top = blockIdx.y * HIGH - RADIUS;
    for (int i = threadIdx.y; i < HIGH + 2 * RADIUS; i += blockDim.y) {
        int y = top + i;
        bool inside = y >= 0 && y < height && x < width;
        tile[i][threadIdx.x] = inside ? in[y * width + x] : 0.0f;
    }
    __syncthreads();
    for (int i = threadIdx.y; i < HIGH; i += blockDim.y) {
        int y = blockIdx.y * HIGH + i;
        if (x < width && y < height) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < TAPS; k++) {
                sum += weights[k] * tile[i + k][threadIdx.x];
            }
            out[y * width + x] = sum;
        }
    }
}

static void reference(std::vector<float> &out, const std::vector<float> &in, int width, int height,
                      const float *w, int dx, int dy)
{
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            double sum = 0;
            for (int k = -RADIUS; k <= RADIUS; k++) {
                int sx = x + k * dx, sy = y + k * dy;
                if (sx >= 0 && sx < width && sy >= 0 && sy < height) {
                    sum += w[k + RADIUS] * double(in[sy * width + sx]);
                }
            }
            out[y * width + x] = float(sum);
        }
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int width = options.number("-n", 200, 1, 16384), height = width * 4 / 5 + 1;
    bool time = options.time();
    options.done();
    printf("convolutionSeparable: %d x %d, %d taps\n", width, height, TAPS);

    Random random(8);
    std::vector<float> image(size_t(width) * height), half(image.size()), want(image.size());
    for (float &x : image) {
        x = random.uniform(0, 16);
    }
    float host_weights[TAPS];
    for (int k = 0; k < TAPS; k++) {
        host_weights[k] = random.uniform(0, 1.0f / RADIUS);
    }
    CHECK(cudaMemcpyToSymbol(weights, host_weights, sizeof(host_weights)));
    reference(half, image, width, height, host_weights, 1, 0);
    reference(want, half, width, height, host_weights, 0, 1);

    float *in = to_device(image);
    float *middle = device_alloc<float>(image.size()), *out = device_alloc<float>(image.size());
    Timer timer;
    timer.start();
    rows<<<dim3((width + WIDE - 1) / WIDE, (height + TALL - 1) / TALL), dim3(WIDE, TALL)>>>(
        middle, in, width, height);
    CHECK(cudaGetLastError());
    columns<<<dim3((width + NARROW - 1) / NARROW, (height + HIGH - 1) / HIGH), dim3(NARROW, 8)>>>(
        out, middle, width, height);
    CHECK(cudaGetLastError());
    float ms = timer.stop();

    expect_near("filtered image", from_device(out, image.size()), want, 1e-3f);
    if (time) {
        printf("time: %.3f ms, %.3f million pixels/s\n", ms, image.size() / ms / 1e3);
    }
    CHECK(cudaFree(in));
    CHECK(cudaFree(middle));
    CHECK(cudaFree(out));
    return finish();
}
