/* SPDX-License-Identifier: Apache-2.0 */
// Removes noise from an image in two ways: K nearest neighbours (weights by difference in
// brightness) and non-local means (weights by difference of small patches). Reads go through a
// texture.
#include "../common/check.h"

const int WINDOW = 3, PATCH = 1; // radii

#pragma nv_exec_check_disable // HostReader is for the CPU alone
template <typename Reader>
__host__ __device__ inline float knn(const Reader &read, int x, int y, float strength)
{
    float centre = read(x, y), sum = 0, total = 0;
    for (int dy = -WINDOW; dy <= WINDOW; dy++) {
        for (int dx = -WINDOW; dx <= WINDOW; dx++) {
            float value = read(x + dx, y + dy), difference = value - centre;
            float far = float(dx * dx + dy * dy) / ((2 * WINDOW + 1) * (2 * WINDOW + 1));
            float weight = expf(-(difference * difference * strength + far));
            sum += value * weight;
            total += weight;
        }
    }
    return sum / total;
}

#pragma nv_exec_check_disable // HostReader is for the CPU alone
template <typename Reader>
__host__ __device__ inline float nlm(const Reader &read, int x, int y, float strength)
{
    float sum = 0, total = 0;
    for (int dy = -WINDOW; dy <= WINDOW; dy++) {
        for (int dx = -WINDOW; dx <= WINDOW; dx++) {
            float distance = 0;
            for (int j = -PATCH; j <= PATCH; j++) {
                for (int i = -PATCH; i <= PATCH; i++) {
                    float d = read(x + dx + i, y + dy + j) - read(x + i, y + j);
                    distance += d * d;
                }
            }
            float weight = expf(-distance * strength);
            sum += read(x + dx, y + dy) * weight;
            total += weight;
        }
    }
    return sum / total;
}

struct TextureReader {
    cudaTextureObject_t texture;
    __device__ float operator()(int x, int y) const
    {
        return tex2D<float>(texture, x + 0.5f, y + 0.5f);
    }
};

struct HostReader {
    const unsigned char *data;
    int width, height;
    float operator()(int x, int y) const
    {
        x = std::min(std::max(x, 0), width - 1);
        y = std::min(std::max(y, 0), height - 1);
        return data[y * width + x] / 255.0f;
    }
};

template <bool NLM>
__global__ void denoise(float *out, TextureReader read, int width, int height, float strength)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        out[y * width + x] = NLM ? nlm(read, x, y, strength) : knn(read, x, y, strength);
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int width = options.number("-n", 56, 8, 4096), height = width * 3 / 4;
    bool time = options.time();
    options.done();
    int count = width * height;
    printf("imageDenoising: %d x %d\n", width, height);

    Random random(13);
    std::vector<unsigned char> noisy(count);
    for (int i = 0; i < count; i++) { // a chequered board, with noise
        int x = i % width, y = i / width;
        noisy[i] = (unsigned char)(((x / 8 + y / 8) % 2 ? 190 : 60) + int(random.below(41)) - 20);
    }
    // A plain piece of memory can be a texture, too, if its pitch is right.
    unsigned char *memory;
    size_t pitch;
    CHECK(cudaMallocPitch(&memory, &pitch, width, height));
    CHECK(cudaMemcpy2D(memory, pitch, noisy.data(), width, width, height, cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = memory;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<unsigned char>();
    resource.res.pitch2D.width = width;
    resource.res.pitch2D.height = height;
    resource.res.pitch2D.pitchInBytes = pitch;
    cudaTextureDesc how = {};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    how.filterMode = cudaFilterModePoint;
    how.readMode = cudaReadModeNormalizedFloat;
    TextureReader reader;
    CHECK(cudaCreateTextureObject(&reader.texture, &resource, &how, nullptr));

    HostReader host = {noisy.data(), width, height};
    std::vector<float> want_knn(count), want_nlm(count);
    for (int i = 0; i < count; i++) {
        want_knn[i] = knn(host, i % width, i / width, 40.0f);
        want_nlm[i] = nlm(host, i % width, i / width, 12.0f);
    }
    float *out = device_alloc<float>(count);
    dim3 block(8, 8), grid((width + 7) / 8, (height + 7) / 8);
    Timer timer;
    timer.start();
    denoise<false><<<grid, block>>>(out, reader, width, height, 40.0f);
    CHECK(cudaGetLastError());
    float ms_knn = timer.stop();
    expect_near("K nearest neighbours", from_device(out, count), want_knn, 1e-4f);
    timer.start();
    denoise<true><<<grid, block>>>(out, reader, width, height, 12.0f);
    CHECK(cudaGetLastError());
    float ms_nlm = timer.stop();
    expect_near("non-local means", from_device(out, count), want_nlm, 1e-4f);
    if (time) {
        printf("time: %.3f ms nearest neighbours, %.3f ms non-local means\n", ms_knn, ms_nlm);
    }
    CHECK(cudaDestroyTextureObject(reader.texture));
    CHECK(cudaFree(memory));
    CHECK(cudaFree(out));
    return finish();
}
