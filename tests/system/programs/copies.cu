/* SPDX-License-Identifier: Apache-2.0 */
// Copies of 0 bytes to 256 MiB, aligned and not, pageable and pinned, with guards on both sides.
// "copies small" stops at 16 MiB.
#include "check.h"

static const size_t MIB = 1 << 20;
static const size_t GUARD = 64;

static void fill(uint8_t *data, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i += 8) { // a new word each time: shifted bytes are found
        uint64_t word = (seed + i) * 0x9e3779b97f4a7c15u;
        word ^= word >> 29;
        memcpy(data + i, &word, n - i < 8 ? n - i : 8);
    }
}

static bool all(const uint8_t *data, size_t n, uint8_t value)
{
    return n == 0 || (data[0] == value && memcmp(data, data + 1, n - 1) == 0);
}

struct Buffers {
    uint8_t *from, *to; // host, `size` + 2 guards + 16 each
    uint8_t *a, *b;     // device, the same
};

// Host -> a -> b -> host, with the guards intact.
static void there_and_back(const Buffers &m, size_t n, size_t host_shift, size_t device_shift,
                           bool async)
{
    uint8_t *from = m.from + GUARD + host_shift, *to = m.to + GUARD + host_shift;
    uint8_t *a = m.a + GUARD + device_shift, *b = m.b + GUARD + 15 - device_shift;
    size_t whole = n + 2 * GUARD + 16;
    fill(from, n, n + host_shift);
    memset(m.to, 0x77, whole);
    CHECK(cudaMemset(m.a, 0x11, whole));
    CHECK(cudaMemset(m.b, 0x22, whole));
    if (async) {
        CHECK(cudaMemcpyAsync(a, from, n, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyAsync(b, a, n, cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpyAsync(to, b, n, cudaMemcpyDeviceToHost));
        CHECK(cudaStreamSynchronize(0));
    } else {
        CHECK(cudaMemcpy(a, from, n, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(b, a, n, cudaMemcpyDefault));
        CHECK(cudaMemcpy(to, b, n, cudaMemcpyDeviceToHost));
    }
    EXPECT(memcmp(from, to, n) == 0);
    EXPECT(all(m.to, GUARD + host_shift, 0x77));
    EXPECT(all(to + n, whole - n - GUARD - host_shift, 0x77));

    uint8_t edge[2 * GUARD + 16]; // around what was written on the device
    CHECK(cudaMemcpy(edge, m.b, GUARD + 15 - device_shift, cudaMemcpyDeviceToHost));
    EXPECT(all(edge, GUARD + 15 - device_shift, 0x22));
    CHECK(cudaMemcpy(edge, b + n, GUARD + device_shift, cudaMemcpyDeviceToHost));
    EXPECT(all(edge, GUARD + device_shift, 0x22));
}

static void sizes(size_t most, bool pinned)
{
    size_t whole = most + 2 * GUARD + 16;
    Buffers m;
    if (pinned) {
        CHECK(cudaMallocHost(&m.from, whole));
        CHECK(cudaMallocHost(&m.to, whole));
    } else {
        m.from = static_cast<uint8_t *>(malloc(whole));
        m.to = static_cast<uint8_t *>(malloc(whole));
    }
    CHECK(cudaMalloc(&m.a, whole));
    CHECK(cudaMalloc(&m.b, whole));
    const size_t list[] = {0,     1,     2,      3,       4,   5,       7,           8,    15,
                           16,    17,    63,     64,      255, 4095,    4096,        4097, 65535,
                           65536, 65537, 262144, 1048575, MIB, MIB + 1, 16 * MIB + 3};
    const size_t shifts[][2] = {{0, 0}, {1, 0}, {0, 1}, {3, 7}, {15, 15}};
    for (size_t n : list) {
        for (auto &shift : shifts) {
            if (n <= most && (n <= MIB + 1 || shift[0] == shift[1])) {
                there_and_back(m, n, shift[0], shift[1], false);
                there_and_back(m, n, shift[0], shift[1], true);
            }
        }
    }
    CHECK(cudaFree(m.a));
    CHECK(cudaFree(m.b));
    if (pinned) {
        CHECK(cudaFreeHost(m.from));
        CHECK(cudaFreeHost(m.to));
    } else {
        free(m.from);
        free(m.to);
    }
}

static void large()
{
    size_t n = 256 * MIB;
    std::vector<uint8_t> host(n + 1), back(n + 1);
    uint8_t *device;
    CHECK(cudaMalloc(&device, n + 1));
    fill(host.data(), n + 1, 5);
    CHECK(cudaMemcpy(device, host.data(), n, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(back.data(), device, n, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(host.data(), back.data(), n) == 0);
    CHECK(cudaMemset(device, 0, n + 1));
    CHECK(cudaMemcpy(device + 1, host.data() + 1, n, cudaMemcpyHostToDevice)); // not aligned
    CHECK(cudaMemcpy(back.data() + 1, device + 1, n, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(host.data() + 1, back.data() + 1, n) == 0);
    CHECK(cudaFree(device));
}

int main(int argc, char **argv)
{
    bool small = argc > 1 && strcmp(argv[1], "small") == 0;
    sizes(16 * MIB + 3, false);
    puts("pageable: right");
    sizes(MIB + 1, true);
    puts("pinned: right");
    if (!small) {
        large();
        puts("256 MiB: right");
    }
    // Nothing to copy: null pointers are fine then.
    CHECK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
    EXPECT_ERROR(cudaMemcpy(nullptr, nullptr, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    cudaGetLastError();
    return finish();
}
