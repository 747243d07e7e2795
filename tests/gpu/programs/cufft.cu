/* SPDX-License-Identifier: Apache-2.0 */
// cuFFT: complex and real transforms in one and two dimensions, there and back.
#include "bits.h"

#include <cufft.h>

int main()
{
    for (int n : {64, 1000, 4096, 30030}) {
        std::vector<cufftComplex> in(n);
        double sum = 0;
        for (int i = 0; i < n; i++) {
            in[i] = {number(i), number(i + 500000)};
            sum += in[i].x;
        }
        cufftComplex *data = to_device(in);
        cufftHandle plan;
        CHECK(cufftPlan1d(&plan, n, CUFFT_C2C, 1));
        CHECK(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
        char what[64];
        snprintf(what, sizeof(what), "C2C %d", n);
        std::vector<cufftComplex> out = print_bits(what, data, n);
        EXPECT(fabs(out[0].x - sum) < 1e-2 + 1e-4 * fabs(sum));
        CHECK(cufftExecC2C(plan, data, data, CUFFT_INVERSE));
        snprintf(what, sizeof(what), "C2C %d back", n);
        out = print_bits(what, data, n);
        EXPECT(fabs(out[1].x / n - in[1].x) < 1e-3);
        CHECK(cufftDestroy(plan));
        CHECK(cudaFree(data));
    }
    const int H = 48, W = 60;
    std::vector<float> image(H * W);
    for (int i = 0; i < H * W; i++) {
        image[i] = number(i);
    }
    float *in = to_device(image);
    cufftComplex *out;
    CHECK(cudaMalloc(&out, H * (W / 2 + 1) * sizeof(cufftComplex)));
    cufftHandle plan;
    CHECK(cufftPlan2d(&plan, H, W, CUFFT_R2C));
    CHECK(cufftExecR2C(plan, in, out));
    print_bits("R2C 48 x 60", out, H * (W / 2 + 1));
    CHECK(cufftDestroy(plan));
    puts("OK");
    return 0;
}
