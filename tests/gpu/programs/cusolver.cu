/* SPDX-License-Identifier: Apache-2.0 */
// cuSOLVER: LU with pivots and a solution, a Cholesky factor, eigenvalues.
#include "bits.h"

#include <cusolverDn.h>

int main()
{
    const int n = 100;
    cusolverDnHandle_t handle;
    CHECK(cusolverDnCreate(&handle));
    std::vector<float> a(n * n), b(n, 0.0f), spd(n * n);
    for (int column = 0; column < n; column++) {
        for (int row = 0; row < n; row++) {
            a[column * n + row] = number(column * n + row) + (row == column ? 8.0f : 0.0f);
            b[row] += a[column * n + row]; // the solution is all ones
            int low = row < column ? row : column, high = row + column - low;
            spd[column * n + row] = number(low * n + high) + (row == column ? 80.0f : 0.0f);
        }
    }
    float *da = to_device(a), *db = to_device(b), *work;
    int *pivots, *info, size = 0;
    std::vector<int> zero(1, 0);
    info = to_device(zero);
    CHECK(cudaMalloc(&pivots, n * sizeof(int)));
    CHECK(cusolverDnSgetrf_bufferSize(handle, n, n, da, n, &size));
    CHECK(cudaMalloc(&work, size * sizeof(float)));
    CHECK(cusolverDnSgetrf(handle, n, n, da, n, work, pivots, info));
    CHECK(cusolverDnSgetrs(handle, CUBLAS_OP_N, n, 1, da, n, pivots, db, n, info));
    print_bits("LU", da, n * n);
    print_bits("pivots", pivots, n);
    std::vector<float> x = print_bits("solution", db, n);
    for (float value : x) {
        EXPECT(fabsf(value - 1) < 1e-3f);
    }
    CHECK(cudaFree(work));

    float *ds = to_device(spd);
    CHECK(cusolverDnSpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, n, ds, n, &size));
    CHECK(cudaMalloc(&work, size * sizeof(float)));
    CHECK(cusolverDnSpotrf(handle, CUBLAS_FILL_MODE_LOWER, n, ds, n, work, size, info));
    std::vector<float> factor = print_bits("Cholesky", ds, n * n);
    EXPECT(fabsf(factor[0] - sqrtf(spd[0])) < 1e-3f);
    EXPECT(print_bits("info", info, 1)[0] == 0);
    CHECK(cudaFree(work));

    float *de = to_device(spd), *values;
    CHECK(cudaMalloc(&values, n * sizeof(float)));
    CHECK(cusolverDnSsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_LOWER, n,
                                      de, n, values, &size));
    CHECK(cudaMalloc(&work, size * sizeof(float)));
    CHECK(cusolverDnSsyevd(handle, CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_LOWER, n, de, n,
                           values, work, size, info));
    std::vector<float> eigen = print_bits("eigenvalues", values, n);
    double trace = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        trace += spd[i * n + i];
        sum += eigen[i];
    }
    EXPECT(fabs(trace - sum) < 0.1);
    CHECK(cusolverDnDestroy(handle));
    puts("OK");
    return 0;
}
