/* SPDX-License-Identifier: Apache-2.0 */
// Turns an image through a texture object: normalised coordinates, linear filter, wrapping edges.
#include "../common/check.h"

__global__ void rotate(cudaTextureObject_t image, float *out, int size, float sine, float cosine)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < size && y < size) {
        float u = (x + 0.5f) / size - 0.5f, v = (y + 0.5f) / size - 0.5f;
        out[y * size + x] =
            tex2D<float>(image, u * cosine - v * sine + 0.5f, v * cosine + u * sine + 0.5f);
    }
}

static float texel(const std::vector<float> &image, int size, int x, int y)
{
    x = (x % size + size) % size;
    y = (y % size + size) % size;
    return image[y * size + x];
}

static float bilinear(const std::vector<float> &image, int size, float u, float v)
{
    float x = u * size - 0.5f, y = v * size - 0.5f;
    int i = int(floorf(x)), j = int(floorf(y));
    float a = x - i, b = y - j;
    return (1 - b) * ((1 - a) * texel(image, size, i, j) + a * texel(image, size, i + 1, j)) +
           b * ((1 - a) * texel(image, size, i, j + 1) + a * texel(image, size, i + 1, j + 1));
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int size = options.number("-n", 128, 16, 16384);
    bool time = options.time();
    options.done();
    printf("simpleTexture: %d x %d\n", size, size);

    // A smooth image whose edges meet, so that neighbours differ by little.
    std::vector<float> image(size_t(size) * size), want(image.size());
    for (int y = 0; y < size; y++) {
        for (int x = 0; x < size; x++) {
            image[y * size + x] = 0.5f + 0.25f * sinf(6.2831853f * x / size * 3) +
                                  0.25f * cosf(6.2831853f * y / size * 2);
        }
    }
    float sine = sinf(0.5f), cosine = cosf(0.5f);
    for (int y = 0; y < size; y++) {
        for (int x = 0; x < size; x++) {
            float u = (x + 0.5f) / size - 0.5f, v = (y + 0.5f) / size - 0.5f;
            want[y * size + x] =
                bilinear(image, size, u * cosine - v * sine + 0.5f, v * cosine + u * sine + 0.5f);
        }
    }

    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, size, size));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, image.data(), size * sizeof(float), size * sizeof(float),
                              size, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeWrap;
    how.filterMode = cudaFilterModeLinear;
    how.readMode = cudaReadModeElementType;
    how.normalizedCoords = 1;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));

    float *out = device_alloc<float>(image.size());
    dim3 block(16, 16), grid((size + 15) / 16, (size + 15) / 16);
    Timer timer;
    timer.start();
    rotate<<<grid, block>>>(texture, out, size, sine, cosine);
    CHECK(cudaGetLastError());
    float ms = timer.stop();

    // The filter's weights have 8 bits; neighbours differ by at most 0.25 * 2 pi * 3 / size.
    float tolerance = 2 * (4.72f / size) / 256 + 1e-3f;
    expect_near("rotated image", from_device(out, image.size()), want, tolerance);
    if (time) {
        printf("time: %.3f ms, %.3f million pixels/s\n", ms, image.size() / ms / 1e3);
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(out));
    return finish();
}
