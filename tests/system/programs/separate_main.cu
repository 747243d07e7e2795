/* SPDX-License-Identifier: Apache-2.0 */
// Separate compilation (-rdc=true): functions and variables of another file, and a function
// pointer.
#include "check.h"

extern __device__ int other_function(int x);
extern __device__ int other_variable;
extern __constant__ int other_constant[4];
typedef int (*function)(int);
extern __device__ function other_table[2];
extern __global__ void other_kernel(int *out, int value);

__device__ int shared_by_both = 5;

__global__ void use(int *out)
{
    int i = threadIdx.x;
    out[i] = other_function(i) + other_constant[i % 4] + other_table[i % 2](i);
    if (i == 0) {
        other_variable += 1;
    }
}

int main()
{
    const int N = 32;
    int *out, host[N], value = 0;
    CHECK(cudaMalloc(&out, sizeof(host)));
    use<<<1, N>>>(out);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
    const int constants[4] = {10, 20, 30, 40};
    for (int i = 0; i < N; i++) {
        EXPECT(host[i] == (i * 2 + 5) + constants[i % 4] + (i % 2 ? -i : i * i));
    }
    CHECK(cudaMemcpyFromSymbol(&value, other_variable, sizeof(value)));
    EXPECT(value == 1001);
    other_kernel<<<1, 1>>>(out, 99);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&value, out, sizeof(value), cudaMemcpyDeviceToHost));
    EXPECT(value == 104);
    return finish();
}
