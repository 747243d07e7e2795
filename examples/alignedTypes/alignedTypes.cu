/* SPDX-License-Identifier: Apache-2.0 */
// Copies arrays of structures of many sizes, with and without an alignment the GPU can load in one
// go. The compiler must use byte-wise loads for the plain ones and vector loads for the aligned
// ones.
#include "../common/check.h"

struct Rgb8 {
    uint8_t r, g, b;
};
struct Rgba8 {
    uint8_t r, g, b, a;
};
struct __align__(4) Rgba8Aligned
{
    uint8_t r, g, b, a;
};
struct La32 {
    uint32_t l, a;
};
struct __align__(8) La32Aligned
{
    uint32_t l, a;
};
struct Rgb32 {
    uint32_t r, g, b;
};
struct __align__(16) Rgb32Aligned
{
    uint32_t r, g, b;
};
struct __align__(16) Rgba32Aligned
{
    uint32_t r, g, b, a;
};
struct __align__(16) Rgba32Pair
{
    Rgba32Aligned left, right;
};

template <typename T> __global__ void copy(T *to, const T *from, int n)
{
    int step = blockDim.x * gridDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        to[i] = from[i];
    }
}

template <typename T>
static void test(const char *name, const std::vector<uint8_t> &data, uint8_t *from, uint8_t *to,
                 size_t used, bool time)
{
    // `used` is what of each element carries data; the rest is padding that need not be copied.
    int n = int(data.size() / sizeof(T));
    CHECK(cudaMemset(to, 0xa5, data.size()));
    Timer timer;
    timer.start();
    copy<<<32, 128>>>(reinterpret_cast<T *>(to), reinterpret_cast<const T *>(from), n);
    CHECK(cudaGetLastError());
    float ms = timer.stop();

    std::vector<uint8_t> got = from_device(to, data.size());
    for (int i = 0; i < n; i++) {
        if (memcmp(&got[i * sizeof(T)], &data[i * sizeof(T)], used) != 0) {
            fail("%s: element %d was not copied", name, i);
        }
    }
    for (size_t i = n * sizeof(T); i < data.size(); i++) {
        if (got[i] != 0xa5) {
            fail("%s: wrote past the end, byte %zu", name, i);
        }
    }
    printf("%-14s %2zu bytes, aligned to %2zu\n", name, sizeof(T), alignof(T));
    if (time) {
        printf("  %.3f ms, %.2f GB/s\n", ms, data.size() / ms / 1e6);
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 100001, 64, 1 << 28); // bytes; odd on purpose
    bool time = options.time();
    options.done();

    Random random(2);
    std::vector<uint8_t> data(n);
    for (uint8_t &byte : data) {
        byte = uint8_t(random.next());
    }
    uint8_t *from = to_device(data), *to = device_alloc<uint8_t>(n);
    test<uint8_t>("uint8", data, from, to, 1, time);
    test<uint16_t>("uint16", data, from, to, 2, time);
    test<Rgb8>("Rgb8", data, from, to, 3, time);
    test<Rgba8>("Rgba8", data, from, to, 4, time);
    test<Rgba8Aligned>("Rgba8Aligned", data, from, to, 4, time);
    test<uint32_t>("uint32", data, from, to, 4, time);
    test<La32>("La32", data, from, to, 8, time);
    test<La32Aligned>("La32Aligned", data, from, to, 8, time);
    test<Rgb32>("Rgb32", data, from, to, 12, time);
    test<Rgb32Aligned>("Rgb32Aligned", data, from, to, 12, time);
    test<Rgba32Aligned>("Rgba32Aligned", data, from, to, 16, time);
    test<Rgba32Pair>("Rgba32Pair", data, from, to, 32, time);
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
    return finish();
}
