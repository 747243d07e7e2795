/* SPDX-License-Identifier: Apache-2.0 */
// The first CUDA program: c = a + b, one thread per element.
#include "../common/check.h"

__global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

int main(int argc, char **argv)
{
    Options options(argc, argv);
    int n = options.number("-n", 200000, 1, 1 << 28);
    bool time = options.time();
    options.done();
    printf("vectorAdd: %d elements\n", n);

    Random random(1);
    std::vector<float> a(n), b(n), want(n);
    for (int i = 0; i < n; i++) {
        a[i] = random.uniform(-100, 100);
        b[i] = random.uniform(-100, 100);
        want[i] = a[i] + b[i];
    }
    float *da = to_device(a), *db = to_device(b), *dc = device_alloc<float>(n);

    Timer timer;
    timer.start();
    add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
    CHECK(cudaGetLastError());
    float ms = timer.stop();

    expect_equal("sum", from_device(dc, n), want); // one rounding: the same bits everywhere
    if (time) {
        printf("time: %.3f ms\n", ms);
    }
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    return finish();
}
