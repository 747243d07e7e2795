/* SPDX-License-Identifier: Apache-2.0 */
// cuBLASLt: products in fp16, bf16 and fp8 with biases and activations fused, and a workspace.
#include "bits.h"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

static cublasLtHandle_t handle;
static cudaStream_t stream;
static void *workspace;
static const size_t workspace_size = 32 << 20;

// D = act(A^T B + bias), A is k x m, B k x n, D m x n, all stored by columns.
template <typename In, typename Out>
static void multiply(const char *name, cudaDataType_t in_type, cudaDataType_t out_type,
                     cublasLtEpilogue_t epilogue, int m, int n, int k)
{
    std::vector<In> a(m * k), b(k * n);
    std::vector<Out> d(m * n), bias(m);
    for (size_t i = 0; i < a.size(); i++) {
        a[i] = In(number(i));
    }
    for (size_t i = 0; i < b.size(); i++) {
        b[i] = In(number(i + 1000000));
    }
    for (int i = 0; i < m; i++) {
        bias[i] = Out(number(i + 2000000));
    }
    In *da = to_device(a), *db = to_device(b);
    Out *dd = to_device(d), *dbias = to_device(bias);

    cublasLtMatmulDesc_t matmul;
    cublasOperation_t transposed = CUBLAS_OP_T;
    CHECK(cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof(transposed)));
    CHECK(cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof(epilogue)));
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
        CHECK(cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &dbias,
                                             sizeof(dbias)));
        CHECK(cublasLtMatmulDescSetAttribute(matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &out_type,
                                             sizeof(out_type)));
    }
    cublasLtMatrixLayout_t la, lb, ld;
    CHECK(cublasLtMatrixLayoutCreate(&la, in_type, k, m, k));
    CHECK(cublasLtMatrixLayoutCreate(&lb, in_type, k, n, k));
    CHECK(cublasLtMatrixLayoutCreate(&ld, out_type, m, n, m));
    cublasLtMatmulPreference_t preference;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace_size, sizeof(workspace_size)));
    cublasLtMatmulHeuristicResult_t choice[3];
    int choices = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, matmul, la, lb, ld, ld, preference, 3, choice,
                                         &choices));
    EXPECT(choices > 0);
    float one = 1, zero = 0;
    for (int i = 0; i < choices; i++) {
        CHECK(cudaMemsetAsync(dd, 0xff, d.size() * sizeof(Out), stream));
        CHECK(cublasLtMatmul(handle, matmul, &one, da, la, db, lb, &zero, dd, ld, dd, ld,
                             &choice[i].algo, workspace, workspace_size, stream));
        CHECK(cudaStreamSynchronize(stream));
        char what[96];
        snprintf(what, sizeof(what), "%s %d x %d x %d, choice %d with %zu bytes", name, m, n, k, i,
                 choice[i].workspaceSize);
        std::vector<Out> got = print_bits(what, dd, d.size());
        double want = 0;
        for (int j = 0; j < k; j++) {
            want += double(float(a[j])) * double(float(b[j]));
        }
        want += epilogue != CUBLASLT_EPILOGUE_DEFAULT ? float(bias[0]) : 0;
        if (epilogue == CUBLASLT_EPILOGUE_RELU_BIAS) {
            want = want > 0 ? want : 0;
        } else if (epilogue == CUBLASLT_EPILOGUE_GELU_BIAS) {
            want = 0.5 * want * (1 + erf(want / sqrt(2.0)));
        }
        EXPECT(fabs(float(got[0]) - want) < 0.05 + 0.02 * fabs(want));
    }
    CHECK(cublasLtMatmulPreferenceDestroy(preference));
    for (cublasLtMatrixLayout_t layout : {la, lb, ld}) {
        CHECK(cublasLtMatrixLayoutDestroy(layout));
    }
    CHECK(cublasLtMatmulDescDestroy(matmul));
    for (void *p : {(void *)da, (void *)db, (void *)dd, (void *)dbias}) {
        CHECK(cudaFree(p));
    }
}

int main()
{
    CHECK(cublasLtCreate(&handle));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&workspace, workspace_size));
    multiply<float, float>("fp32", CUDA_R_32F, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT, 96, 200, 72);
    multiply<__half, __half>("fp16", CUDA_R_16F, CUDA_R_16F, CUBLASLT_EPILOGUE_BIAS, 256, 128, 192);
    multiply<__half, __half>("fp16 relu", CUDA_R_16F, CUDA_R_16F, CUBLASLT_EPILOGUE_RELU_BIAS, 512,
                             64, 2048);
    multiply<__nv_bfloat16, __nv_bfloat16>("bf16 gelu", CUDA_R_16BF, CUDA_R_16BF,
                                           CUBLASLT_EPILOGUE_GELU_BIAS, 384, 512, 256);
    multiply<__nv_fp8_e4m3, __nv_bfloat16>("fp8", CUDA_R_8F_E4M3, CUDA_R_16BF,
                                           CUBLASLT_EPILOGUE_BIAS, 256, 256, 512);
    CHECK(cudaFree(workspace));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cublasLtDestroy(handle));
    puts("OK");
    return 0;
}
