/* SPDX-License-Identifier: Apache-2.0 */
// For programs that use NVIDIA's libraries: results are printed as bits, so that a native and a
// remote run can be compared byte for byte.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int check_status = int(call);                                                              \
        if (check_status != 0) {                                                                   \
            fprintf(stderr, "FAILED: %s:%d: %s: %d\n", __FILE__, __LINE__, #call, check_status);   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "FAILED: %s:%d: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// The same numbers on every machine, from -1 to 1, with few bits: products of them are exact in
// fp16.
inline float number(uint32_t i)
{
    uint32_t x = i * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return float(int(x % 65) - 32) / 32.0f;
}

// Waits: a copy from pageable memory may return before its bytes have arrived, and non-blocking
// streams do not wait for it.
template <typename T> T *to_device(const std::vector<T> &host)
{
    T *pointer;
    CHECK(cudaMalloc(&pointer, host.size() * sizeof(T)));
    CHECK(cudaMemcpy(pointer, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    CHECK(cudaStreamSynchronize(nullptr));
    return pointer;
}

// Prints the first words and a hash of all bytes.
template <typename T> std::vector<T> print_bits(const char *what, const T *device, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(host.data());
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < count * sizeof(T); i++) {
        hash = (hash ^ bytes[i]) * 1099511628211u;
    }
    printf("%s: %zu x %zu bytes, hash %016llx, begins", what, count, sizeof(T),
           (unsigned long long)hash);
    for (size_t i = 0; i < 16 && i < count * sizeof(T); i++) {
        printf(" %02x", bytes[i]);
    }
    printf("\n");
    return host;
}
