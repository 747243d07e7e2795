/* SPDX-License-Identifier: Apache-2.0 */
// Built without PTX: only a GPU that runs machine code can run it, and a dry one can pretend to.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

struct three {
    char first;
    double second;
};

__device__ int table[25];
__constant__ float factors[3];

__global__ void fill(int *to, char letter, three pair, short count)
{
    to[threadIdx.x] = letter + (int)pair.second + count + table[0] + (int)factors[0];
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t status = (call);                                                               \
        if (status != cudaSuccess) {                                                               \
            printf("%s: %s\n", #call, cudaGetErrorName(status));                                   \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main()
{
    int *memory, back[4], before[4] = {1, 2, 3, 4};
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaMalloc(&memory, sizeof before));
    CHECK(cudaMemcpy(memory, before, sizeof before, cudaMemcpyHostToDevice));
    fill<<<1, 4>>>(memory, 'a', three{1, 2}, 3);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(back, memory, sizeof back, cudaMemcpyDeviceToHost));
    size_t size = 0, small = 0;
    CHECK(cudaGetSymbolSize(&size, table));
    CHECK(cudaGetSymbolSize(&small, factors));
    size_t offsets[4], sizes[4], more;
    cudaFunction_t function;
    CHECK(cudaGetFuncBySymbol(&function, (const void *)fill));
    for (int i = 0; i < 4; i++) {
        CHECK(cudaFuncGetParamInfo((const void *)fill, i, &offsets[i], &sizes[i]));
    }
    printf("%s\n", properties.name);
    printf("memory %s\n", memcmp(before, back, sizeof back) == 0 ? "untouched" : "written");
    printf("variables %zu %zu\n", size, small);
    printf("parameters");
    for (int i = 0; i < 4; i++) {
        printf(" %zu+%zu", offsets[i], sizes[i]);
    }
    printf("%s\n", cudaFuncGetParamInfo((const void *)fill, 4, &more, &more) == cudaSuccess ? " and more" : "");
    return 0;
}
