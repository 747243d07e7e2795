/* SPDX-License-Identifier: Apache-2.0 */
// For the programs on managed memory: what they computed is printed, or with --time how long it
// took, in JSON lines for tests/gpu/bench. --quick does little, for the software GPU.
#pragma once

#include "bits.h"

#include <ctime>

// data[i] += by
static __global__ void add(int *data, size_t count, int by)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] += by;
    }
}

static inline void launch_add(int *data, size_t count, int by)
{
    add<<<unsigned((count + 255) / 256), 256>>>(data, count, by);
}

static inline double now_ms()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) * 1e3 + double(now.tv_nsec) / 1e6;
}

static bool timed, quick;

static inline void begin(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        timed |= strcmp(argv[i], "--time") == 0;
        quick |= strcmp(argv[i], "--quick") == 0;
    }
    int *first; // what a program's first calls cost is not measured
    CHECK(cudaMallocManaged(&first, 4));
    launch_add(first, 1, 1);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(first));
}

static inline void took(const char *name, double value)
{
    if (timed) {
        printf("{\"name\": \"%s\", \"value\": %.6g}\n", name, value);
    }
}

static inline void computed(const char *what, unsigned long long value)
{
    if (!timed) {
        printf("%s: %llu\n", what, value);
    }
}
