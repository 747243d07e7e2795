/* SPDX-License-Identifier: Apache-2.0 */
// cuBLAS: SGEMM and HGEMM, several shapes, and a dot product.
#include "bits.h"

#include <cublas_v2.h>
#include <cuda_fp16.h>

int main()
{
    cublasHandle_t handle;
    CHECK(cublasCreate(&handle));
    const int shapes[][3] = {{64, 64, 64}, {127, 33, 65}, {512, 256, 384}, {1, 1000, 7}};
    for (auto &shape : shapes) {
        int m = shape[0], n = shape[1], k = shape[2];
        std::vector<float> a(m * k), b(k * n), c(m * n);
        std::vector<__half> ha(m * k), hb(k * n), hc(m * n);
        for (size_t i = 0; i < a.size(); i++) {
            a[i] = number(i);
            ha[i] = __float2half(a[i]);
        }
        for (size_t i = 0; i < b.size(); i++) {
            b[i] = number(i + 1000000);
            hb[i] = __float2half(b[i]);
        }
        float *da = to_device(a), *db = to_device(b), *dc = to_device(c);
        __half *dha = to_device(ha), *dhb = to_device(hb), *dhc = to_device(hc);
        float one = 1, zero = 0;
        CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, da, m, db, k, &zero, dc,
                          m));
        char what[64];
        snprintf(what, sizeof(what), "SGEMM %d x %d x %d", m, n, k);
        std::vector<float> got = print_bits(what, dc, c.size());
        double want = 0;
        for (int i = 0; i < k; i++) {
            want += double(a[i * m]) * b[i];
        }
        EXPECT(fabs(got[0] - want) < 1e-3);

        __half half_one = __float2half(1), half_zero = __float2half(0);
        CHECK(cublasHgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &half_one, dha, m, dhb, k,
                          &half_zero, dhc, m));
        snprintf(what, sizeof(what), "HGEMM %d x %d x %d", m, n, k);
        std::vector<__half> half_got = print_bits(what, dhc, hc.size());
        EXPECT(fabs(__half2float(half_got[0]) - want) < 0.05 + 0.01 * fabs(want));
        for (void *p :
             {(void *)da, (void *)db, (void *)dc, (void *)dha, (void *)dhb, (void *)dhc}) {
            CHECK(cudaFree(p));
        }
    }
    std::vector<float> x(100000), y(100000);
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = number(i), y[i] = number(i + 7);
    }
    float *dx = to_device(x), *dy = to_device(y), *result;
    CHECK(cudaMalloc(&result, sizeof(float)));
    CHECK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    CHECK(cublasSdot(handle, int(x.size()), dx, 1, dy, 1, result));
    print_bits("SDOT", result, 1);
    CHECK(cublasDestroy(handle));
    puts("OK");
    return 0;
}
