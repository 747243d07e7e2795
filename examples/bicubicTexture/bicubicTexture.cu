/* SPDX-License-Identifier: Apache-2.0 */
// Enlarges an image with a cubic B-spline, once with 16 point reads and once with 4 linear reads
// whose positions carry the weights: the texture unit does the multiplications.
#include "../common/check.h"

__host__ __device__ inline void spline(float t, float w[4])
{
    float s = 1 - t;
    w[0] = s * s * s / 6;
    w[1] = (4 - 6 * t * t + 3 * t * t * t) / 6;
    w[2] = (4 - 6 * s * s + 3 * s * s * s) / 6;
    w[3] = t * t * t / 6;
}

__device__ float sixteen_reads(cudaTextureObject_t image, float x, float y)
{
    float i = floorf(x - 0.5f), j = floorf(y - 0.5f);
    float wx[4], wy[4], sum = 0;
    spline(x - 0.5f - i, wx);
    spline(y - 0.5f - j, wy);
    for (int b = 0; b < 4; b++) {
        for (int a = 0; a < 4; a++) {
            sum += wx[a] * wy[b] * tex2D<float>(image, i + a - 0.5f, j + b - 0.5f);
        }
    }
    return sum;
}

__device__ float four_reads(cudaTextureObject_t image, float x, float y)
{
    float i = floorf(x - 0.5f), j = floorf(y - 0.5f);
    float wx[4], wy[4];
    spline(x - 0.5f - i, wx);
    spline(y - 0.5f - j, wy);
    float gx0 = wx[0] + wx[1], gx1 = wx[2] + wx[3], gy0 = wy[0] + wy[1], gy1 = wy[2] + wy[3];
    float x0 = i - 0.5f + wx[1] / gx0, x1 = i + 1.5f + wx[3] / gx1;
    float y0 = j - 0.5f + wy[1] / gy0, y1 = j + 1.5f + wy[3] / gy1;
    return gy0 * (gx0 * tex2D<float>(image, x0, y0) + gx1 * tex2D<float>(image, x1, y0)) +
           gy1 * (gx0 * tex2D<float>(image, x0, y1) + gx1 * tex2D<float>(image, x1, y1));
}

template <bool FAST>
__global__ void enlarge(cudaTextureObject_t image, float *out, int size, float scale)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < size && y < size) {
        float u = (x + 0.5f) * scale, v = (y + 0.5f) * scale;
        out[y * size + x] = FAST ? four_reads(image, u, v) : sixteen_reads(image, u, v);
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int size = options.number("-n", 112, 16, 8192);
    bool time = options.time();
    options.done();
    int source = size / 3 + 1;
    printf("bicubicTexture: %d x %d to %d x %d\n", source, source, size, size);

    Random random(12);
    std::vector<unsigned char> image(size_t(source) * source);
    for (unsigned char &p : image) {
        p = (unsigned char)random.next();
    }
    float scale = float(source) / size;
    std::vector<float> want(size_t(size) * size);
    for (int y = 0; y < size; y++) {
        for (int x = 0; x < size; x++) {
            float u = (x + 0.5f) * scale - 0.5f, v = (y + 0.5f) * scale - 0.5f;
            int i = int(floorf(u)), j = int(floorf(v));
            float wx[4], wy[4], sum = 0;
            spline(u - i, wx);
            spline(v - j, wy);
            for (int b = 0; b < 4; b++) {
                for (int a = 0; a < 4; a++) {
                    int sx = std::min(std::max(i + a - 1, 0), source - 1);
                    int sy = std::min(std::max(j + b - 1, 0), source - 1);
                    sum += wx[a] * wy[b] * (image[sy * source + sx] / 255.0f);
                }
            }
            want[y * size + x] = sum;
        }
    }

    cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned char>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, source, source));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), source, source, source,
                              cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    how.readMode = cudaReadModeNormalizedFloat; // bytes are read as 0 to 1
    cudaTextureObject_t point, linear;
    how.filterMode = cudaFilterModePoint;
    CHECK(cudaCreateTextureObject(&point, &resource, &how, nullptr));
    how.filterMode = cudaFilterModeLinear;
    CHECK(cudaCreateTextureObject(&linear, &resource, &how, nullptr));

    float *out = device_alloc<float>(want.size());
    dim3 block(16, 8), grid((size + 15) / 16, (size + 7) / 8);
    Timer timer;
    timer.start();
    enlarge<false><<<grid, block>>>(point, out, size, scale);
    CHECK(cudaGetLastError());
    float slow = timer.stop();
    expect_near("16 point reads", from_device(out, want.size()), want, 1e-5f);
    timer.start();
    enlarge<true><<<grid, block>>>(linear, out, size, scale);
    CHECK(cudaGetLastError());
    float fast = timer.stop();
    // The texture unit's weights have 8 bits.
    expect_near("4 linear reads", from_device(out, want.size()), want, 1.0f / 128);
    if (time) {
        printf("time: %.3f ms with 16 reads, %.3f ms with 4\n", slow, fast);
    }
    CHECK(cudaDestroyTextureObject(point));
    CHECK(cudaDestroyTextureObject(linear));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(out));
    return finish();
}
