/* SPDX-License-Identifier: Apache-2.0 */
// cuDNN by its functions: a convolution and its gradients, batch normalisation, softmax, a pool.
#include "bits.h"

#include <cudnn.h>

enum { N = 4, C = 16, H = 20, W = 24, K = 32, R = 3 };

static std::vector<float> numbers(size_t count, uint32_t from)
{
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++) {
        values[i] = number(uint32_t(i) + from);
    }
    return values;
}

int main()
{
    cudnnHandle_t handle;
    cudaStream_t stream;
    CHECK(cudnnCreate(&handle));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudnnSetStream(handle, stream));
    cudnnTensorDescriptor_t x_desc, y_desc, channel_desc;
    cudnnFilterDescriptor_t w_desc;
    cudnnConvolutionDescriptor_t conv;
    CHECK(cudnnCreateTensorDescriptor(&x_desc));
    CHECK(cudnnCreateTensorDescriptor(&y_desc));
    CHECK(cudnnCreateTensorDescriptor(&channel_desc));
    CHECK(cudnnCreateFilterDescriptor(&w_desc));
    CHECK(cudnnCreateConvolutionDescriptor(&conv));
    CHECK(cudnnSetTensor4dDescriptor(x_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, H, W));
    CHECK(cudnnSetTensor4dDescriptor(y_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, K, H, W));
    CHECK(cudnnSetFilter4dDescriptor(w_desc, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, K, C, R, R));
    CHECK(cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    CHECK(cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH));
    const size_t x_count = N * C * H * W, y_count = N * K * H * W, w_count = K * C * R * R;
    std::vector<float> hx = numbers(x_count, 0), hw = numbers(w_count, 5000000);
    float *x = to_device(hx), *w = to_device(hw), *y = to_device(std::vector<float>(y_count));
    float *dx = to_device(std::vector<float>(x_count)),
          *dw = to_device(std::vector<float>(w_count));
    float one = 1, zero = 0;
    size_t size = 0;
    void *work;

    const cudnnConvolutionFwdAlgo_t forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, conv, y_desc, forward,
                                                  &size));
    CHECK(cudaMalloc(&work, size + 1));
    CHECK(cudnnConvolutionForward(handle, &one, x_desc, x, w_desc, w, conv, forward, work, size,
                                  &zero, y_desc, y));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> got = print_bits("convolution", y, y_count);
    double want = 0; // at (n 0, k 0, h 1, w 1): no padding is touched
    for (int c = 0; c < C; c++) {
        for (int r = 0; r < R; r++) {
            for (int s = 0; s < R; s++) {
                want += double(hx[(c * H + r) * W + s]) * hw[(c * R + r) * R + s];
            }
        }
    }
    EXPECT(fabs(got[W + 1] - want) < 1e-3);
    CHECK(cudaFree(work));

    const cudnnConvolutionBwdDataAlgo_t data = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
    CHECK(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w_desc, y_desc, conv, x_desc, data,
                                                       &size));
    CHECK(cudaMalloc(&work, size + 1));
    CHECK(cudnnConvolutionBackwardData(handle, &one, w_desc, w, y_desc, y, conv, data, work, size,
                                       &zero, x_desc, dx));
    CHECK(cudaStreamSynchronize(stream));
    print_bits("gradient of the data", dx, x_count);
    CHECK(cudaFree(work));

    const cudnnConvolutionBwdFilterAlgo_t filter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
    CHECK(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x_desc, y_desc, conv, w_desc,
                                                         filter, &size));
    CHECK(cudaMalloc(&work, size + 1));
    CHECK(cudnnConvolutionBackwardFilter(handle, &one, x_desc, x, y_desc, y, conv, filter, work,
                                         size, &zero, w_desc, dw));
    CHECK(cudaStreamSynchronize(stream));
    print_bits("gradient of the filter", dw, w_count);
    CHECK(cudaFree(work));

    CHECK(cudnnDeriveBNTensorDescriptor(channel_desc, x_desc, CUDNN_BATCHNORM_SPATIAL));
    float *scale = to_device(std::vector<float>(C, 1.5f)), *bias = to_device(numbers(C, 99));
    float *mean = to_device(std::vector<float>(C)), *variance = to_device(std::vector<float>(C));
    float *saved_mean = to_device(std::vector<float>(C));
    float *saved_scale = to_device(std::vector<float>(C));
    CHECK(cudnnBatchNormalizationForwardTraining(
        handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, x_desc, x, x_desc, dx, channel_desc, scale,
        bias, 0.1, mean, variance, 1e-5, saved_mean, saved_scale));
    CHECK(cudaStreamSynchronize(stream));
    print_bits("batch normalisation", dx, x_count);
    print_bits("its running mean", mean, C);
    print_bits("its running variance", variance, C);

    CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one,
                              y_desc, y, &zero, y_desc, y));
    CHECK(cudaStreamSynchronize(stream));
    got = print_bits("softmax", y, y_count);
    double sum = 0;
    for (int k = 0; k < K; k++) {
        sum += got[k * H * W];
    }
    EXPECT(fabs(sum - 1) < 1e-4);

    cudnnPoolingDescriptor_t pool;
    cudnnTensorDescriptor_t small_desc;
    CHECK(cudnnCreatePoolingDescriptor(&pool));
    CHECK(cudnnCreateTensorDescriptor(&small_desc));
    CHECK(cudnnSetPooling2dDescriptor(pool, CUDNN_POOLING_MAX_DETERMINISTIC, CUDNN_PROPAGATE_NAN, 2,
                                      2, 0, 0, 2, 2));
    CHECK(cudnnSetTensor4dDescriptor(small_desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, H / 2,
                                     W / 2));
    CHECK(cudnnPoolingForward(handle, pool, &one, x_desc, x, &zero, small_desc, dx));
    CHECK(cudaStreamSynchronize(stream));
    print_bits("largest of each 2 x 2", dx, x_count / 4);
    CHECK(cudnnDestroy(handle));
    puts("OK");
    return 0;
}
