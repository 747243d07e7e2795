/* SPDX-License-Identifier: Apache-2.0 */
// cuSPARSE: sparse matrix by vector and by dense matrix, in CSR form; incomplete LU decomposition.
#include "bits.h"

#include <cusparse.h>

// Three diagonals, made of a lower matrix with 1 and 3 and an upper with 2 and 1: the decomposition
// is exact. What is destroyed in the end frees a null pointer in the order of a stream.
static void decompose(cusparseHandle_t handle)
{
    const int rows = 100;
    std::vector<int> starts = {0}, indices;
    std::vector<float> values;
    for (int row = 0; row < rows; row++) {
        for (int column = row - 1; column <= row + 1; column++) {
            if (column >= 0 && column < rows) {
                indices.push_back(column);
                values.push_back(column < row ? 6 : column > row ? 1 : row > 0 ? 5 : 2);
            }
        }
        starts.push_back(int(indices.size()));
    }
    int *dstarts = to_device(starts), *dindices = to_device(indices), count = int(values.size());
    float *dvalues = to_device(values);
    cusparseMatDescr_t matrix;
    csrilu02Info_t info;
    CHECK(cusparseCreateMatDescr(&matrix));
    CHECK(cusparseCreateCsrilu02Info(&info));
    int size = 0, pivot = 0;
    void *work = nullptr;
    CHECK(cusparseScsrilu02_bufferSize(handle, rows, count, matrix, dvalues, dstarts, dindices,
                                       info, &size));
    CHECK(cudaMalloc(&work, size));
    CHECK(cusparseScsrilu02_analysis(handle, rows, count, matrix, dvalues, dstarts, dindices, info,
                                     CUSPARSE_SOLVE_POLICY_USE_LEVEL, work));
    CHECK(cusparseScsrilu02(handle, rows, count, matrix, dvalues, dstarts, dindices, info,
                            CUSPARSE_SOLVE_POLICY_USE_LEVEL, work));
    EXPECT(cusparseXcsrilu02_zeroPivot(handle, info, &pivot) == CUSPARSE_STATUS_SUCCESS);
    EXPECT(pivot == -1);
    std::vector<float> got = print_bits("ILU", dvalues, count);
    for (int row = 0, i = 0; row < rows; row++) {
        for (; i < starts[row + 1]; i++) {
            EXPECT(got[i] == (indices[i] < row ? 3 : indices[i] > row ? 1 : 2));
        }
    }
    CHECK(cusparseDestroyCsrilu02Info(info));
    CHECK(cusparseDestroyMatDescr(matrix));
    CHECK(cudaFree(work));
    CHECK(cudaDeviceSynchronize());
}

int main()
{
    const int rows = 300, columns = 200, wide = 8;
    std::vector<int> starts = {0}, indices;
    std::vector<float> values;
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            if (number(row * columns + column + 77) > 0.9f) {
                indices.push_back(column);
                values.push_back(number(row + 3 * column));
            }
        }
        starts.push_back(int(indices.size()));
    }
    std::vector<float> x(columns * wide), y(rows * wide, 0.0f), want(rows * wide, 0.0f);
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = number(i + 9000);
    }
    for (int row = 0; row < rows; row++) {
        for (int i = starts[row]; i < starts[row + 1]; i++) {
            for (int w = 0; w < wide; w++) {
                want[w * rows + row] += values[i] * x[w * columns + indices[i]];
            }
        }
    }
    int *dstarts = to_device(starts), *dindices = to_device(indices);
    float *dvalues = to_device(values), *dx = to_device(x), *dy = to_device(y);
    float one = 1, zero = 0;
    size_t size = 0;
    void *work = nullptr;
    cusparseHandle_t handle;
    cusparseSpMatDescr_t matrix;
    CHECK(cusparseCreate(&handle));
    CHECK(cusparseCreateCsr(&matrix, rows, columns, int64_t(values.size()), dstarts, dindices,
                            dvalues, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    cusparseDnVecDescr_t vx, vy;
    CHECK(cusparseCreateDnVec(&vx, columns, dx, CUDA_R_32F));
    CHECK(cusparseCreateDnVec(&vy, rows, dy, CUDA_R_32F));
    CHECK(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, vx, &zero,
                                  vy, CUDA_R_32F, CUSPARSE_SPMV_CSR_ALG2, &size));
    CHECK(cudaMalloc(&work, size + 1));
    CHECK(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, vx, &zero, vy,
                       CUDA_R_32F, CUSPARSE_SPMV_CSR_ALG2, work));
    std::vector<float> got = print_bits("SpMV", dy, rows);
    for (int i = 0; i < rows; i++) {
        EXPECT(fabsf(got[i] - want[i]) < 1e-4f);
    }
    CHECK(cudaFree(work));

    cusparseDnMatDescr_t mx, my;
    CHECK(cusparseCreateDnMat(&mx, columns, wide, columns, dx, CUDA_R_32F, CUSPARSE_ORDER_COL));
    CHECK(cusparseCreateDnMat(&my, rows, wide, rows, dy, CUDA_R_32F, CUSPARSE_ORDER_COL));
    CHECK(cusparseSpMM_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE,
                                  CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix, mx, &zero, my,
                                  CUDA_R_32F, CUSPARSE_SPMM_CSR_ALG3, &size));
    CHECK(cudaMalloc(&work, size + 1));
    CHECK(cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE,
                       &one, matrix, mx, &zero, my, CUDA_R_32F, CUSPARSE_SPMM_CSR_ALG3, work));
    got = print_bits("SpMM", dy, rows * wide);
    for (int i = 0; i < rows * wide; i++) {
        EXPECT(fabsf(got[i] - want[i]) < 1e-4f);
    }
    CHECK(cusparseDestroySpMat(matrix));
    decompose(handle);
    CHECK(cusparseDestroy(handle));
    puts("OK");
    return 0;
}
