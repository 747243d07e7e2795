/* SPDX-License-Identifier: Apache-2.0 */
// Kernel arguments of all sizes and alignments: scalars, pointers, structures, bytes, 8 KB.
#include "check.h"

struct Small {
    char tag;
    double value;
    short list[3];
};
struct Three {
    float x, y, z;
};
struct __align__(16) Wide
{
    unsigned long long low, high;
};
struct Huge {
    unsigned words[2048]; // 8 KB
};
struct Empty {
};

__global__ void scalars(double *out, char c, signed char sc, unsigned char uc, short s,
                        unsigned short us, bool b, int i, unsigned u, long long l,
                        unsigned long long ul, float f, double d)
{
    double values[] = {double(c), double(sc), double(uc), double(s),  double(us), double(b),
                       double(i), double(u),  double(l),  double(ul), double(f),  d};
    for (int k = 0; k < 12; k++) {
        out[k] = values[k];
    }
}

__global__ void structures(double *out, char before, Small small, char between, Three three,
                           char after, Wide wide, Empty, char last)
{
    double values[] = {double(before),
                       double(small.tag),
                       small.value,
                       double(small.list[0]),
                       double(small.list[2]),
                       double(between),
                       three.x,
                       three.y,
                       three.z,
                       double(after),
                       double(wide.low),
                       double(wide.high),
                       double(last)};
    for (int k = 0; k < 13; k++) {
        out[k] = values[k];
    }
}

__global__ void pointers(int **table, const int *const *in, int *a, int *null, void *any)
{
    table[0] = a;
    table[1] = null;
    table[2] = static_cast<int *>(any);
    *a = **in + 1;
}

__global__ void huge(unsigned *out, Huge data, int scale)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = data.words[i] * scale;
}

__global__ void bytes(char *out, char a, char b, char c, char d, char e)
{
    char list[] = {a, b, c, d, e};
    out[threadIdx.x] = list[threadIdx.x];
}

__global__ void nothing()
{
}

template <typename T> __global__ void typed(T *out, T value)
{
    *out = value;
}

static void expect_doubles(const double *device, const double *want, int n)
{
    double got[16];
    CHECK(cudaMemcpy(got, device, n * sizeof(double), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        if (got[i] != want[i]) {
            fprintf(stderr, "FAILED: value %d is %g, not %g\n", i, got[i], want[i]);
            exit(1);
        }
    }
}

int main()
{
    double *out;
    CHECK(cudaMalloc(&out, 16 * sizeof(double)));
    scalars<<<1, 1>>>(out, 'A', -7, 200, -3000, 60000, true, -70000, 4000000000u, -5000000000ll,
                      9007199254740992ull, 0.25f, -1e300);
    CHECK(cudaGetLastError());
    const double want_scalars[] = {65,   -7,     200,          -3000,         60000,
                                   1,    -70000, 4000000000.0, -5000000000.0, 9007199254740992.0,
                                   0.25, -1e300};
    expect_doubles(out, want_scalars, 12);

    Small small = {'s', 2.5, {1, 2, -3}};
    structures<<<1, 1>>>(out, 'b', small, 'm', {1.5f, -2.5f, 3.5f}, 'a', {77, 88}, {}, 'z');
    CHECK(cudaGetLastError());
    const double want_structures[] = {'b', 's', 2.5, 1, -3, 'm', 1.5, -2.5, 3.5, 'a', 77, 88, 'z'};
    expect_doubles(out, want_structures, 13);

    int *cell, *table[3] = {}, **device_table, start = 41;
    CHECK(cudaMalloc(&cell, sizeof(int)));
    CHECK(cudaMalloc(&device_table, sizeof(table)));
    CHECK(cudaMemcpy(cell, &start, sizeof(int), cudaMemcpyHostToDevice));
    table[0] = cell;
    CHECK(cudaMemcpy(device_table, table, sizeof(table), cudaMemcpyHostToDevice));
    int *result;
    CHECK(cudaMalloc(&result, sizeof(int)));
    pointers<<<1, 1>>>(device_table, device_table, result, nullptr, result + 5);
    CHECK(cudaGetLastError());
    int got = 0;
    // table[0] was read through after it became `result`, or before: both are device memory.
    CHECK(cudaMemcpy(table, device_table, sizeof(table), cudaMemcpyDeviceToHost));
    EXPECT(table[0] == result && table[1] == nullptr && table[2] == result + 5);

    Huge big;
    for (int i = 0; i < 2048; i++) {
        big.words[i] = i * i;
    }
    unsigned *words;
    std::vector<unsigned> back(2048);
    CHECK(cudaMalloc(&words, sizeof(Huge)));
    huge<<<8, 256>>>(words, big, 3);
    CHECK(cudaGetLastError());
    memset(&big, 0xff, sizeof(big)); // the launch has taken its copy
    CHECK(cudaMemcpy(back.data(), words, sizeof(Huge), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 2048; i++) {
        EXPECT(back[i] == i * i * 3);
    }

    char *text, letters[6] = "";
    CHECK(cudaMalloc(&text, 8));
    bytes<<<1, 5>>>(text, 'h', 'e', 'l', 'l', 'o');
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(letters, text, 5, cudaMemcpyDeviceToHost));
    EXPECT(strcmp(letters, "hello") == 0);

    nothing<<<3, 7>>>();
    CHECK(cudaGetLastError());
    typed<<<1, 1>>>(result, 123456);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&got, result, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(got == 123456);
    void *args[] = {&result, &start};
    CHECK(cudaLaunchKernel((const void *)typed<int>, dim3(1), dim3(1), args, 0, 0));
    CHECK(cudaMemcpy(&got, result, sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT(got == 41);
    return finish();
}
