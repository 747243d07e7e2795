/* SPDX-License-Identifier: Apache-2.0 */
// Dyadic convolution by the fast Walsh-Hadamard transform: transform both, multiply, transform
// back. Values are small integers, so that single precision loses next to nothing.
#include "../common/check.h"

const int LOG_TILE = 10; // 1024 elements in shared memory, 512 threads
const int TILE = 1 << LOG_TILE;

// All stages whose partners lie inside one tile.
__global__ void walsh_tile(float *data)
{
    __shared__ float tile[TILE];
    float *base = data + blockIdx.x * TILE;
    for (int i = threadIdx.x; i < TILE; i += blockDim.x) {
        tile[i] = base[i];
    }
    for (int stride = 1; stride < TILE; stride *= 2) {
        __syncthreads();
        int low = (threadIdx.x & (stride - 1)) + 2 * (threadIdx.x & ~(stride - 1));
        float a = tile[low], b = tile[low + stride];
        tile[low] = a + b;
        tile[low + stride] = a - b;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE; i += blockDim.x) {
        base[i] = tile[i];
    }
}

// One stage in global memory.
__global__ void walsh_stage(float *data, int stride)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int low = (i & (stride - 1)) + 2 * (i & ~(stride - 1));
    float a = data[low], b = data[low + stride];
    data[low] = a + b;
    data[low + stride] = a - b;
}

__global__ void multiply(float *a, const float *b, float scale)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] *= b[i] * scale;
}

static void walsh(float *data, int n)
{
    walsh_tile<<<n / TILE, TILE / 2>>>(data);
    CHECK(cudaGetLastError());
    for (int stride = TILE; stride < n; stride *= 2) {
        walsh_stage<<<n / TILE, TILE / 2>>>(data, stride);
        CHECK(cudaGetLastError());
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int log_n = options.number("-n", 14, LOG_TILE, 20); // log2 of the number of elements
    bool time = options.time();
    options.done();
    int n = 1 << log_n, taps = 16;
    printf("fastWalshTransform: %d elements, %d taps\n", n, taps);

    Random random(6);
    std::vector<float> data(n), kernel(n, 0.0f), want(n, 0.0f);
    for (float &x : data) {
        x = float(random.below(2));
    }
    for (int i = 0; i < taps; i++) {
        kernel[i] = float(random.below(2));
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < taps; k++) {
            want[i] += data[i ^ k] * kernel[k];
        }
    }
    float *ddata = to_device(data), *dkernel = to_device(kernel);
    Timer timer;
    timer.start();
    walsh(ddata, n);
    walsh(dkernel, n);
    multiply<<<n / 256, 256>>>(ddata, dkernel, 1.0f / n); // n is a power of two: exact
    CHECK(cudaGetLastError());
    walsh(ddata, n);
    float ms = timer.stop();

    expect_near("convolution", from_device(ddata, n), want, 1e-3f);
    if (time) {
        printf("time: %.3f ms\n", ms);
    }
    CHECK(cudaFree(ddata));
    CHECK(cudaFree(dkernel));
    return finish();
}
