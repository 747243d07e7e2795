/* SPDX-License-Identifier: Apache-2.0 */
// Managed memory against memory that is copied, from 4 KiB to 64 MiB: the host writes it, a kernel
// changes it, the host reads it.
#include "managed.h"

static unsigned long long pass(int *host, int *device, size_t count, int round)
{
    for (size_t i = 0; i < count; i++) {
        host[i] = int(i) + round;
    }
    if (device != host) {
        CHECK(cudaMemcpy(device, host, count * 4, cudaMemcpyHostToDevice));
    }
    launch_add(device, count, 7);
    if (device != host) {
        CHECK(cudaMemcpy(host, device, count * 4, cudaMemcpyDeviceToHost));
    } else {
        CHECK(cudaDeviceSynchronize());
    }
    unsigned long long sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += unsigned(host[i]);
    }
    return sum;
}

static void measure(const char *kind, int *host, int *device, size_t bytes)
{
    char name[64];
    int rounds = bytes >= (4 << 20) ? 4 : 20;
    unsigned long long sum = pass(host, device, bytes / 4, 0);
    double start = now_ms();
    for (int round = 1; round <= rounds; round++) {
        sum += pass(host, device, bytes / 4, round);
    }
    double each = (now_ms() - start) / rounds;
    snprintf(name, sizeof name, "%s_%zu_kib_us", kind, bytes >> 10);
    took(name, each * 1e3);
    computed(name, sum);
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    for (size_t bytes = 4 << 10; bytes <= (quick ? 256 << 10 : 64 << 20); bytes *= 4) {
        int *managed, *device, *host = static_cast<int *>(malloc(bytes));
        CHECK(cudaMallocManaged(&managed, bytes));
        CHECK(cudaMalloc(&device, bytes));
        EXPECT(host != nullptr);
        measure("managed", managed, managed, bytes);
        measure("copied", host, device, bytes);
        CHECK(cudaFree(device));
        CHECK(cudaFree(managed));
        free(host);
    }
    puts("OK");
    return 0;
}
