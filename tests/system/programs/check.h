/* SPDX-License-Identifier: Apache-2.0 */
// For the runtime-API test programs: every call is checked; a wrong value ends the program with 1.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t check_error = (call);                                                          \
        if (check_error != cudaSuccess) {                                                          \
            fprintf(stderr, "FAILED: %s:%d: %s: %s\n", __FILE__, __LINE__, #call,                  \
                    cudaGetErrorName(check_error));                                                \
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

// The call must fail in exactly this way.
#define EXPECT_ERROR(call, expected)                                                               \
    do {                                                                                           \
        cudaError_t check_error = (call);                                                          \
        if (check_error != (expected)) {                                                           \
            fprintf(stderr, "FAILED: %s:%d: %s: %s, not %s\n", __FILE__, __LINE__, #call,          \
                    cudaGetErrorName(check_error), cudaGetErrorName(expected));                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

inline int finish()
{
    CHECK(cudaDeviceSynchronize());
    puts("OK");
    return 0;
}
