/* SPDX-License-Identifier: Apache-2.0 */
// __constant__ and __device__ variables: initial values, copies in both directions with offsets,
// addresses.
#include "check.h"

__constant__ int table[16] = {3, 1, 4, 1, 5, 9, 2, 6};
__constant__ float scale = 0.5f;
__device__ int counter = 7;
__device__ double results[32];
__device__ int *alias = &counter; // holds another variable's address
__device__ const char text[] = "towline";
static __device__ long long hidden = -1;
namespace inner
{
__device__ short numbers[4] = {1, -2, 3, -4};
}

__global__ void use(int n)
{
    int i = threadIdx.x;
    if (i < n) {
        results[i] = table[i % 16] * scale + inner::numbers[i % 4];
    }
    if (i == 0) {
        *alias += 100;
        hidden = text[0] * 1000 + int(sizeof(text));
    }
}

int main()
{
    int host_table[16], value = 0;
    CHECK(cudaMemcpyFromSymbol(host_table, table, sizeof(host_table)));
    EXPECT(host_table[0] == 3 && host_table[7] == 6 && host_table[8] == 0);
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    EXPECT(value == 7);

    const int changed[2] = {50, 60};
    CHECK(cudaMemcpyToSymbol(table, changed, sizeof(changed), 14 * sizeof(int)));
    float two = 2.0f;
    CHECK(cudaMemcpyToSymbolAsync(scale, &two, sizeof(two), 0, cudaMemcpyHostToDevice, 0));
    use<<<1, 32>>>(32);
    CHECK(cudaGetLastError());

    const int expected_table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 0, 0, 0, 0, 0, 0, 50, 60};
    const int numbers[4] = {1, -2, 3, -4};
    double host[32];
    CHECK(cudaMemcpyFromSymbol(host, results, sizeof(host)));
    for (int i = 0; i < 32; i++) {
        EXPECT(host[i] == expected_table[i % 16] * 2.0 + numbers[i % 4]);
    }
    CHECK(cudaMemcpyFromSymbol(&host[0], results, sizeof(double), 5 * sizeof(double)));
    EXPECT(host[0] == 9 * 2.0 - 2);
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    EXPECT(value == 107);
    long long secret = 0;
    CHECK(cudaMemcpyFromSymbol(&secret, hidden, sizeof(secret)));
    EXPECT(secret == 't' * 1000 + 8);

    void *address = nullptr;
    size_t size = 0;
    int *pointer = nullptr;
    CHECK(cudaGetSymbolAddress(&address, counter));
    CHECK(cudaGetSymbolSize(&size, results));
    EXPECT(address != nullptr && size == sizeof(host));
    CHECK(cudaMemcpyFromSymbol(&pointer, alias, sizeof(pointer)));
    EXPECT(pointer == address);
    value = 1;
    CHECK(cudaMemcpy(address, &value, sizeof(value), cudaMemcpyHostToDevice));
    use<<<1, 32>>>(0);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    EXPECT(value == 101);

    EXPECT_ERROR(cudaMemcpyToSymbol(table, host_table, sizeof(host_table), 4),
                 cudaErrorInvalidValue); // past the end
    EXPECT_ERROR(cudaGetSymbolAddress(&address, host_table), cudaErrorInvalidSymbol);
    cudaGetLastError();
    return finish();
}
