/* SPDX-License-Identifier: Apache-2.0 */
// Many Mersenne Twisters (MT19937) at once, one per thread, each with its own seed; their states
// are interleaved in memory so that neighbouring threads touch neighbouring words. Then Box-Muller
// turns pairs of numbers into normally distributed ones. The CPU's reference is std::mt19937.
#include "../common/check.h"

#include <random>

const int WORDS = 624, MIDDLE = 397;

__global__ void seed_all(uint32_t *state, int generators, uint32_t seed)
{
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= generators) {
        return;
    }
    uint32_t x = seed + g;
    for (uint32_t i = 0; i < WORDS; i++) {
        state[i * generators + g] = x;
        x = 1812433253u * (x ^ (x >> 30)) + i + 1;
    }
}

__global__ void generate(uint32_t *state, uint32_t *out, int generators, int count)
{
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (g >= generators) {
        return;
    }
    uint32_t *mine = state + g;
    int i = 0, next = 1, middle = MIDDLE;
    uint32_t current = mine[0];
    for (int k = 0; k < count; k++) {
        uint32_t following = mine[next * generators];
        uint32_t mixed = (current & 0x80000000u) | (following & 0x7fffffffu);
        uint32_t x = mine[middle * generators] ^ (mixed >> 1) ^ (mixed & 1 ? 0x9908b0dfu : 0);
        mine[i * generators] = x;
        current = following;
        i = next;
        next = next + 1 == WORDS ? 0 : next + 1;
        middle = middle + 1 == WORDS ? 0 : middle + 1;
        x ^= x >> 11;
        x ^= (x << 7) & 0x9d2c5680u;
        x ^= (x << 15) & 0xefc60000u;
        out[k * generators + g] = x ^ (x >> 18);
    }
}

__host__ __device__ inline float2 box_muller(uint32_t a, uint32_t b)
{
    float u = ((a >> 8) + 1) * (1.0f / 16777217.0f), v = (b >> 8) * (1.0f / 16777216.0f);
    float radius = sqrtf(-2.0f * logf(u));
    return {radius * cosf(6.2831853f * v), radius * sinf(6.2831853f * v)};
}

__global__ void normals(float2 *out, const uint32_t *in, int pairs, int generators)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pairs) {
        int row = i / generators, g = i % generators;
        out[i] = box_muller(in[2 * row * generators + g], in[(2 * row + 1) * generators + g]);
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int count = options.number("-n", 700, 2, 1 << 20) & ~1; // numbers per generator
    int generators = options.number("--generators", 256, 1, 1 << 16);
    bool time = options.time();
    options.done();
    size_t total = size_t(count) * generators;
    printf("MersenneTwister: %d generators, %d numbers each\n", generators, count);

    uint32_t *state = device_alloc<uint32_t>(size_t(WORDS) * generators);
    uint32_t *numbers = device_alloc<uint32_t>(total);
    float2 *pairs = device_alloc<float2>(total / 2);
    int blocks = (generators + 63) / 64;
    Timer timer;
    timer.start();
    seed_all<<<blocks, 64>>>(state, generators, 777);
    CHECK(cudaGetLastError());
    generate<<<blocks, 64>>>(state, numbers, generators, count);
    CHECK(cudaGetLastError());
    normals<<<unsigned((total / 2 + 127) / 128), 128>>>(pairs, numbers, int(total / 2), generators);
    CHECK(cudaGetLastError());
    float ms = timer.stop();

    std::vector<uint32_t> want(total), got = from_device(numbers, total);
    for (int g = 0; g < generators; g++) {
        std::mt19937 twister(777 + g);
        for (int k = 0; k < count; k++) {
            want[size_t(k) * generators + g] = uint32_t(twister());
        }
    }
    expect_equal("random bits", got, want);

    std::vector<float2> normal = from_device(pairs, total / 2);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < total / 2; i++) {
        size_t row = i / generators, g = i % generators;
        float2 expected =
            box_muller(want[2 * row * generators + g], want[(2 * row + 1) * generators + g]);
        if (!(fabsf(normal[i].x - expected.x) < 1e-4f && fabsf(normal[i].y - expected.y) < 1e-4f)) {
            fail("normal pair %zu is (%g, %g), not (%g, %g)", i, normal[i].x, normal[i].y,
                 expected.x, expected.y);
        }
        sum += normal[i].x + normal[i].y;
        squares += normal[i].x * normal[i].x + normal[i].y * normal[i].y;
    }
    double slack = 6 / sqrt(double(total));
    if (fabs(sum / total) > slack || fabs(squares / total - 1) > 2 * slack) {
        fail("mean %g and variance %g are not those of a normal distribution", sum / total,
             squares / total);
    }
    if (time) {
        printf("time: %.3f ms, %.3f million numbers/s\n", ms, total / ms / 1e3);
    }
    CHECK(cudaFree(state));
    CHECK(cudaFree(numbers));
    CHECK(cudaFree(pairs));
    return finish();
}
