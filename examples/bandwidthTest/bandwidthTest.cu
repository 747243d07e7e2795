/* SPDX-License-Identifier: Apache-2.0 */
// Copies between host and device and inside the device, from pageable and from pinned memory, and
// looks at every byte. With --time it prints rates.
#include "../common/check.h"

#include <chrono>

enum Way { UP, DOWN, INSIDE };

static double seconds()
{
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static uint8_t pattern(size_t i, int seed)
{
    return uint8_t(i * 131 + (i >> 8) * 7 + seed * 17);
}

static void fill(uint8_t *data, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++) {
        data[i] = pattern(i, seed);
    }
}

static void verify(const char *what, const uint8_t *data, size_t n, int seed)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] != pattern(i, seed)) {
            fail("%s: byte %zu of %zu is %u, not %u", what, i, n, data[i], pattern(i, seed));
        }
    }
}

static double copy(Way way, uint8_t *host, uint8_t *a, uint8_t *b, size_t n, int repeat)
{
    CHECK(cudaDeviceSynchronize());
    double start = seconds();
    for (int i = 0; i < repeat; i++) {
        if (way == UP) {
            CHECK(cudaMemcpyAsync(a, host, n, cudaMemcpyHostToDevice));
        } else if (way == DOWN) {
            CHECK(cudaMemcpyAsync(host, a, n, cudaMemcpyDeviceToHost));
        } else {
            CHECK(cudaMemcpyAsync(b, a, n, cudaMemcpyDeviceToDevice));
        }
    }
    CHECK(cudaDeviceSynchronize());
    return n * double(repeat) / (seconds() - start) / 1e9;
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    size_t n = options.number("-n", 4 << 20, 1, 1L << 32);
    int repeat = int(options.number("--repeat", 4, 1, 10000));
    bool time = options.time();
    options.done();
    printf("bandwidthTest: %zu bytes, %d times\n", n, repeat);

    uint8_t *a = device_alloc<uint8_t>(n), *b = device_alloc<uint8_t>(n);
    for (int pinned = 0; pinned < 2; pinned++) {
        const char *kind = pinned ? "pinned" : "pageable";
        uint8_t *host;
        if (pinned) {
            CHECK(cudaMallocHost(&host, n));
        } else {
            host = static_cast<uint8_t *>(malloc(n));
        }
        fill(host, n, pinned);
        double up = copy(UP, host, a, b, n, repeat);
        double inside = copy(INSIDE, host, a, b, n, repeat);
        memset(host, 0, n);
        double down = copy(DOWN, host, a, b, n, repeat);
        verify(kind, host, n, pinned);
        memset(host, 0, n);
        CHECK(cudaMemcpy(host, b, n, cudaMemcpyDeviceToHost));
        verify("device to device", host, n, pinned);
        printf("%s: every byte arrived\n", kind);
        if (time) {
            printf("  to device %.2f GB/s, to host %.2f GB/s, device to device %.2f GB/s\n", up,
                   down, inside);
        }
        if (pinned) {
            CHECK(cudaFreeHost(host));
        } else {
            free(host);
        }
    }
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    return finish();
}
