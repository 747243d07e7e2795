/* SPDX-License-Identifier: Apache-2.0 */
// What compute-sanitizer looks for, one kind of mistake per run: prints the error's name.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

__global__ void store(int *to, int index)
{
    to[index] = 1;
}

__global__ void odd(char *to)
{
    *reinterpret_cast<volatile int *>(to + 2) = 1;
}

// Half of the block leaves, the other half waits for twice as many threads as there are.
__global__ void unpaired(int *to)
{
    if (threadIdx.x < 32) {
        return;
    }
    asm volatile("barrier.sync 1, 128;");
    *to = 1;
}

__device__ __noinline__ int deep(int n, volatile int *to)
{
    volatile int room[64];
    room[n % 64] = n;
    return n == *to ? 0 : deep(n + 1, to) + room[n % 64];
}

__global__ void recurse(int *to)
{
    *to = -1;
    *to = deep(0, to);
}

int main(int, char **argv)
{
    const char *what = argv[1];
    int *memory = nullptr, *other = nullptr;
    if (cudaMalloc(&memory, 256 * sizeof(int)) != cudaSuccess) {
        return 2;
    }
    if (strcmp(what, "beyond") == 0) {
        store<<<1, 1>>>(memory, 256);
    } else if (strcmp(what, "freed") == 0) {
        cudaMalloc(&other, 4 << 20);
        cudaFree(other);
        store<<<1, 1>>>(other, 0);
    } else if (strcmp(what, "misaligned") == 0) {
        odd<<<1, 1>>>(reinterpret_cast<char *>(memory));
    } else if (strcmp(what, "barrier") == 0) {
        unpaired<<<1, 64>>>(memory);
    } else if (strcmp(what, "recursion") == 0) {
        recurse<<<1, 1>>>(memory);
    }
    printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    return 0;
}
