/* SPDX-License-Identifier: Apache-2.0 */
// Blurs an RGBA image by sliding a box along rows and then along columns: a thread walks a whole
// line and keeps a running sum, so the cost does not depend on the radius. Integers: exact.
#include "../common/check.h"

// Sums of up to 2 * radius + 1 pixels per channel; outside the image counts as the nearest pixel.
__host__ __device__ inline void slide(uint4 *out, const uint4 *in, int n, int stride, int radius)
{
    uint4 sum = {0, 0, 0, 0};
    for (int i = -radius; i <= radius; i++) {
        uint4 p = in[(i < 0 ? 0 : i < n ? i : n - 1) * stride];
        sum = {sum.x + p.x, sum.y + p.y, sum.z + p.z, sum.w + p.w};
    }
    for (int i = 0; i < n; i++) {
        out[i * stride] = sum;
        int enters = i + radius + 1, leaves = i - radius;
        uint4 a = in[(enters < n ? enters : n - 1) * stride];
        uint4 b = in[(leaves < 0 ? 0 : leaves) * stride];
        sum = {sum.x + a.x - b.x, sum.y + a.y - b.y, sum.z + a.z - b.z, sum.w + a.w - b.w};
    }
}

__global__ void unpack(uint4 *out, const uchar4 *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uchar4 p = in[i];
        out[i] = {p.x, p.y, p.z, p.w};
    }
}

__global__ void filter_rows(uint4 *out, const uint4 *in, int width, int height, int radius)
{
    int y = blockIdx.x * blockDim.x + threadIdx.x;
    if (y < height) {
        slide(out + y * width, in + y * width, width, 1, radius);
    }
}

__global__ void filter_columns(uint4 *out, const uint4 *in, int width, int height, int radius)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    if (x < width) {
        slide(out + x, in + x, height, width, radius);
    }
}

__global__ void pack(uchar4 *out, const uint4 *in, int n, unsigned area)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uint4 p = in[i];
        unsigned half = area / 2;
        out[i] = {(unsigned char)((p.x + half) / area), (unsigned char)((p.y + half) / area),
                  (unsigned char)((p.z + half) / area), (unsigned char)((p.w + half) / area)};
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int width = options.number("-n", 160, 8, 8192), height = width * 3 / 4;
    int radius = options.number("--radius", 5, 1, 100);
    bool time = options.time();
    options.done();
    int count = width * height, side = 2 * radius + 1;
    printf("boxFilter: %d x %d, radius %d\n", width, height, radius);

    Random random(11);
    std::vector<uchar4> image(count), want(count);
    for (uchar4 &p : image) {
        uint32_t bits = random.next();
        memcpy(&p, &bits, 4);
    }
    for (int y = 0; y < height; y++) { // the plain definition: add up the box
        for (int x = 0; x < width; x++) {
            unsigned sum[4] = {0, 0, 0, 0}, area = side * side;
            for (int dy = -radius; dy <= radius; dy++) {
                for (int dx = -radius; dx <= radius; dx++) {
                    int sx = std::min(std::max(x + dx, 0), width - 1);
                    int sy = std::min(std::max(y + dy, 0), height - 1);
                    uchar4 p = image[sy * width + sx];
                    sum[0] += p.x, sum[1] += p.y, sum[2] += p.z, sum[3] += p.w;
                }
            }
            unsigned char *bytes = &want[y * width + x].x;
            for (int c = 0; c < 4; c++) {
                bytes[c] = (unsigned char)((sum[c] + area / 2) / area);
            }
        }
    }
    uchar4 *pixels = to_device(image);
    uint4 *a = device_alloc<uint4>(count), *b = device_alloc<uint4>(count);
    Timer timer;
    timer.start();
    unpack<<<(count + 255) / 256, 256>>>(a, pixels, count);
    CHECK(cudaGetLastError());
    filter_rows<<<(height + 63) / 64, 64>>>(b, a, width, height, radius);
    CHECK(cudaGetLastError());
    filter_columns<<<(width + 63) / 64, 64>>>(a, b, width, height, radius);
    CHECK(cudaGetLastError());
    pack<<<(count + 255) / 256, 256>>>(pixels, a, count, side * side);
    CHECK(cudaGetLastError());
    float ms = timer.stop();
    expect_equal("blurred image", from_device(pixels, count), want);
    if (time) {
        printf("time: %.3f ms, %.3f million pixels/s\n", ms, count / ms / 1e3);
    }
    CHECK(cudaFree(pixels));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    return finish();
}
