/* SPDX-License-Identifier: Apache-2.0 */
// A kernel writes an array through a surface object, another reads it through a texture object,
// turned by a quarter: point sampling, so every value must be exact.
#include "../common/check.h"

__global__ void write(cudaSurfaceObject_t surface, const float *in, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        // A surface's x is in bytes.
        surf2Dwrite(in[y * width + x], surface, x * int(sizeof(float)), y, cudaBoundaryModeTrap);
    }
}

__global__ void read_turned(cudaTextureObject_t texture, float *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < height && y < width) {
        out[y * height + x] = tex2D<float>(texture, width - 1 - y + 0.5f, x + 0.5f);
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int width = options.number("-n", 120, 8, 8192), height = width * 3 / 4;
    bool time = options.time();
    options.done();
    printf("simpleSurfaceWrite: %d x %d\n", width, height);

    Random random(7);
    std::vector<float> image(size_t(width) * height), want(image.size());
    for (float &x : image) {
        x = random.uniform(-1, 1);
    }
    for (int y = 0; y < width; y++) {
        for (int x = 0; x < height; x++) {
            want[y * height + x] = image[x * width + (width - 1 - y)];
        }
    }

    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, width, height, cudaArraySurfaceLoadStore));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    how.filterMode = cudaFilterModePoint;
    how.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));

    float *in = to_device(image), *out = device_alloc<float>(image.size());
    dim3 block(16, 8);
    Timer timer;
    timer.start();
    write<<<dim3((width + 15) / 16, (height + 7) / 8), block>>>(surface, in, width, height);
    CHECK(cudaGetLastError());
    read_turned<<<dim3((height + 15) / 16, (width + 7) / 8), block>>>(texture, out, width, height);
    CHECK(cudaGetLastError());
    float ms = timer.stop();
    expect_equal("turned image", from_device(out, image.size()), want);

    std::vector<float> back(image.size()); // the array itself, as the host sees it
    CHECK(cudaMemcpy2DFromArray(back.data(), width * sizeof(float), array, 0, 0,
                                width * sizeof(float), height, cudaMemcpyDeviceToHost));
    expect_equal("array", back, image);
    if (time) {
        printf("time: %.3f ms\n", ms);
    }
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish();
}
