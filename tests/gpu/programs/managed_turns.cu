/* SPDX-License-Identifier: Apache-2.0 */
// Host and kernel in turns over 256 MiB of managed memory: all of it is touched by both, then all
// of it by the kernel and a little by the host, then a little by both.
#include "managed.h"

static unsigned long long sum_of(const int *data, size_t count, size_t step)
{
    unsigned long long sum = 0;
    for (size_t i = 0; i < count; i += step) {
        sum += unsigned(data[i]);
    }
    return sum;
}

int main(int argc, char **argv)
{
    begin(argc, argv);
    const size_t count = (quick ? 2 << 20 : 256 << 20) / 4, stride = count / 64;
    int *data;
    CHECK(cudaMallocManaged(&data, count * 4));

    double start = now_ms();
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++) {
            data[i] = int(i) + round;
        }
        launch_add(data, count, 7);
        CHECK(cudaDeviceSynchronize());
        computed("all by both", sum_of(data, count, 1));
    }
    took("managed_turns_all_ms", (now_ms() - start) / 3);

    start = now_ms();
    for (int round = 0; round < 10; round++) {
        data[size_t(round) * stride] += 5;
        launch_add(data, count, 1);
        CHECK(cudaDeviceSynchronize());
        computed("all by the kernel", sum_of(data, count, stride));
    }
    took("managed_turns_kernel_ms", (now_ms() - start) / 10);

    start = now_ms();
    for (int round = 0; round < 200; round++) {
        int *word = data + (round % 8) * stride;
        *word += 5;
        launch_add(word, 1, 1);
        CHECK(cudaDeviceSynchronize());
        EXPECT(*word != 0);
    }
    took("managed_turns_little_ms", (now_ms() - start) / 200);
    computed("little by both", sum_of(data, count, stride));
    CHECK(cudaFree(data));
    puts("OK");
    return 0;
}
