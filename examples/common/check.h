/* SPDX-License-Identifier: Apache-2.0 */
// What every example shares: checked CUDA calls, options, test data, and the last word.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// Ends the program with exit code 1 and one line on stderr.
[[noreturn]] inline void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fflush(stdout);
    fputs("FAILED: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t check_error = (call);                                                          \
        if (check_error != cudaSuccess) {                                                          \
            fail("%s:%d: %s: %s (%s)", __FILE__, __LINE__, #call, cudaGetErrorName(check_error),   \
                 cudaGetErrorString(check_error));                                                 \
        }                                                                                          \
    } while (0)

// Command line options. Ask for each one that the program knows, then call done().
class Options
{
  public:
    Options(int argc, char **argv) : args(argv + 1, argv + argc), used(args.size(), false)
    {
    }

    long number(const char *name, long fallback, long low, long high)
    {
        known += std::string(" [") + name + " NUMBER]";
        for (size_t i = 0; i + 1 < args.size(); i++) {
            if (args[i] == name && !used[i]) {
                used[i] = used[i + 1] = true;
                char *end;
                fallback = strtol(args[i + 1].c_str(), &end, 0);
                if (*end != '\0' || fallback < low || fallback > high) {
                    fail("%s takes a number from %ld to %ld", name, low, high);
                }
            }
        }
        return fallback;
    }

    bool flag(const char *name)
    {
        bool found = false;
        known += std::string(" [") + name + "]";
        for (size_t i = 0; i < args.size(); i++) {
            if (args[i] == name) {
                used[i] = found = true;
            }
        }
        return found;
    }

    // Times are printed only when asked for, so that two runs print the same.
    bool time()
    {
        return flag("--time") | flag("-v");
    }

    void done()
    {
        for (size_t i = 0; i < args.size(); i++) {
            if (!used[i]) {
                fail("\"%s\" is not understood; options:%s", args[i].c_str(), known.c_str());
            }
        }
    }

  private:
    std::vector<std::string> args;
    std::vector<bool> used;
    std::string known;
};

// The same pseudo-random numbers on every machine.
class Random
{
  public:
    explicit Random(uint64_t seed) : state(seed * 2654435769u + 1)
    {
    }

    uint32_t next()
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return uint32_t(state >> 32);
    }
    uint32_t below(uint32_t limit)
    {
        return next() % limit;
    }
    float uniform(float low, float high)
    {
        return low + (high - low) * (next() >> 8) / 16777216.0f;
    }

  private:
    uint64_t state;
};

template <typename T> T *device_alloc(size_t count)
{
    T *pointer = nullptr;
    CHECK(cudaMalloc(&pointer, count * sizeof(T)));
    return pointer;
}

template <typename T> T *to_device(const std::vector<T> &host)
{
    T *pointer = device_alloc<T>(host.size());
    CHECK(cudaMemcpy(pointer, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return pointer;
}

template <typename T> std::vector<T> from_device(const T *pointer, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), pointer, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

template <typename T>
void expect_equal(const char *what, const std::vector<T> &got, const std::vector<T> &want)
{
    for (size_t i = 0; i < want.size(); i++) {
        if (memcmp(&got[i], &want[i], sizeof(T)) != 0) {
            fail("%s: element %zu of %zu differs from the CPU's", what, i, want.size());
        }
    }
}

inline void expect_near(const char *what, const std::vector<float> &got,
                        const std::vector<float> &want, float tolerance)
{
    for (size_t i = 0; i < want.size(); i++) {
        if (!(fabsf(got[i] - want[i]) <= tolerance)) { // also true for a NaN
            fail("%s: element %zu is %g, the CPU says %g (tolerance %g)", what, i, got[i], want[i],
                 tolerance);
        }
    }
}

// Milliseconds on the GPU's clock between start() and stop().
class Timer
{
  public:
    Timer()
    {
        CHECK(cudaEventCreate(&begin));
        CHECK(cudaEventCreate(&end));
    }
    ~Timer()
    {
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
    }
    Timer(const Timer &) = delete;
    void start(cudaStream_t stream = 0)
    {
        CHECK(cudaEventRecord(begin, stream));
    }
    float stop(cudaStream_t stream = 0)
    {
        float ms = 0;
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        return ms;
    }

  private:
    cudaEvent_t begin, end;
};

// The last line of an example: everything was right.
inline int finish()
{
    CHECK(cudaDeviceSynchronize());
    puts("OK");
    return 0;
}
