/* SPDX-License-Identifier: Apache-2.0 */
// A kernel that launches a kernel (dynamic parallelism), beside one that does not: prints how each
// launch ends.
#include "check.h"

__global__ void child(int *out)
{
    *out += 1;
}

__global__ void parent(int *out)
{
    child<<<1, 1>>>(out);
}

static const char *ending()
{
    cudaError_t error = cudaGetLastError();
    cudaError_t later = cudaDeviceSynchronize();
    cudaGetLastError(); // the runtime keeps it until it is asked for
    return cudaGetErrorName(error != cudaSuccess ? error : later);
}

int main()
{
    int *out, value = 0;
    CHECK(cudaMalloc(&out, sizeof(int)));
    CHECK(cudaMemset(out, 0, sizeof(int)));
    child<<<1, 1>>>(out);
    printf("child: %s\n", ending());
    for (int i = 0; i < 2; i++) {
        parent<<<1, 1>>>(out);
        printf("parent: %s\n", ending());
    }
    child<<<1, 1>>>(out);
    printf("child: %s\n", ending());
    CHECK(cudaMemcpy(&value, out, sizeof(int), cudaMemcpyDeviceToHost));
    printf("value: %d\n", value);
    return 0;
}
