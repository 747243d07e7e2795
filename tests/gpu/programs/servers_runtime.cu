/* SPDX-License-Identifier: Apache-2.0 */
// Two devices by the runtime, which remotely are those of two servers: one program's kernels and
// symbols on both, each driven by a thread of its own. One device alone plays both parts.
#include "bits.h"

#include <thread>

static const int COUNT = 1 << 18;

__device__ int bias = 1;

__global__ static void step(int *data, int count, int by)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        data[i] = 5 * data[i] + by + bias;
    }
}

static void fill(int device, int **ret_data, int from)
{
    CHECK(cudaSetDevice(device));
    std::vector<int> values(COUNT);
    for (int i = 0; i < COUNT; i++) {
        values[i] = from + i;
    }
    int *data = to_device(values);
    for (int k = 0; k < 50; k++) {
        step<<<COUNT / 256, 256>>>(data, COUNT, k);
    }
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    *ret_data = data;
}

int main()
{
    int count, *data[2];
    CHECK(cudaGetDeviceCount(&count));
    EXPECT(!getenv("EXPECT_DEVICES") || count == atoi(getenv("EXPECT_DEVICES")));
    const int other = count > 1 ? 1 : 0;
    std::thread first(fill, 0, &data[0], 0), second(fill, other, &data[1], 1000);
    first.join();
    second.join();
    CHECK(cudaSetDevice(0));
    print_bits("the first device", data[0], COUNT);
    CHECK(cudaSetDevice(other));
    std::vector<int> there = print_bits("the second device", data[1], COUNT);

    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpyPeer(data[0], 0, data[1], other, COUNT * sizeof(int)));
    EXPECT(print_bits("copied to the first", data[0], COUNT) == there);
    step<<<COUNT / 256, 256>>>(data[0], COUNT, 0);
    CHECK(cudaMemcpy(data[1], data[0], COUNT * sizeof(int), cudaMemcpyDefault));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaSetDevice(other));
    EXPECT(print_bits("and back", data[1], COUNT)[3] == 5 * there[3] + 1);

    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, data[1]));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == other);
    CHECK(cudaFree(data[1]));
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(data[0]));
    puts("OK");
    return 0;
}
