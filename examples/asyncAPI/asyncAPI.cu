/* SPDX-License-Identifier: Apache-2.0 */
// Host and GPU at work at the same time: copies and a kernel are queued, the CPU counts while an
// event says that they are not done yet.
#include "../common/check.h"

__global__ void increment(int *data, int value, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        data[i] += value;
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 400000, 1, 1 << 28);
    bool time = options.time();
    options.done();
    const int value = 26;
    size_t bytes = n * sizeof(int);
    printf("asyncAPI: %d elements\n", n);

    int *host, *device = device_alloc<int>(n);
    CHECK(cudaMallocHost(&host, bytes));
    for (int i = 0; i < n; i++) {
        host[i] = i;
    }
    CHECK(cudaMemset(device, 255, bytes));
    CHECK(cudaDeviceSynchronize());

    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    CHECK(cudaEventRecord(start, 0));
    CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, 0));
    increment<<<(n + 511) / 512, 512>>>(device, value, n);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaEventRecord(stop, 0));

    unsigned long counter = 0;
    cudaError_t state;
    while ((state = cudaEventQuery(stop)) == cudaErrorNotReady) {
        counter++;
    }
    CHECK(state);
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (ms < 0) {
        fail("the GPU's clock ran backwards: %g ms", ms);
    }
    if (time) {
        printf("GPU: %.3f ms, the CPU counted to %lu meanwhile\n", ms, counter);
    }
    for (int i = 0; i < n; i++) {
        if (host[i] != i + value) {
            fail("element %d is %d, not %d", i, host[i], i + value);
        }
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
    return finish();
}
