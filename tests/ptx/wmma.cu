/* SPDX-License-Identifier: Apache-2.0 */
// Matrix products through CUDA's wmma templates, one kernel a type. test_ptx_wmma.c runs wmma.ptx:
//     nvcc -arch=sm_86 -ptx wmma.cu -o wmma.ptx
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;
using Row = wmma::row_major;
using Col = wmma::col_major;

template <int M, int N, int K, class T, class Acc, class LayoutA, class LayoutB, class P>
__device__ void multiply(const P *a, const P *b, Acc *c)
{
    wmma::fragment<wmma::matrix_a, M, N, K, T, LayoutA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, T, LayoutB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, Acc> fc;
    wmma::fill_fragment(fc, Acc(0));
    wmma::load_matrix_sync(fa, a, std::is_same<LayoutA, Row>::value ? K : M);
    wmma::load_matrix_sync(fb, b, std::is_same<LayoutB, Row>::value ? N : K);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, N, wmma::mem_row_major);
}

#define KERNEL(name, M, N, K, T, Acc, LA, LB, P)                                                   \
    extern "C" __global__ void name(const P *a, const P *b, Acc *c)                                \
    {                                                                                              \
        multiply<M, N, K, T, Acc, LA, LB>(a, b, c);                                                \
    }

KERNEL(f16_f32, 16, 16, 16, half, float, Row, Col, half)
KERNEL(f16_f16, 32, 8, 16, half, half, Col, Row, half)
KERNEL(bf16_f32, 8, 32, 16, __nv_bfloat16, float, Row, Row, __nv_bfloat16)
KERNEL(tf32_f32, 16, 16, 8, wmma::precision::tf32, float, Row, Col, float)
KERNEL(f64_f64, 8, 8, 4, double, double, Col, Row, double)
KERNEL(s8_s32, 16, 16, 16, signed char, int, Row, Col, signed char)
KERNEL(u8_s32, 32, 8, 16, unsigned char, int, Col, Row, unsigned char)
KERNEL(s4_s32, 8, 8, 32, wmma::experimental::precision::s4, int, Row, Col, void)

extern "C" __global__ void b1_s32(const void *a, const void *b, int *c)
{
    using wmma::experimental::precision::b1;
    wmma::fragment<wmma::matrix_a, 8, 8, 128, b1, Row> fa;
    wmma::fragment<wmma::matrix_b, 8, 8, 128, b1, Col> fb;
    wmma::fragment<wmma::accumulator, 8, 8, 128, int> fc;
    wmma::fill_fragment(fc, 0);
    wmma::load_matrix_sync(fa, a, 128);
    wmma::load_matrix_sync(fb, b, 128);
    wmma::bmma_sync(fc, fa, fb, fc, wmma::experimental::bmmaBitOpXOR);
    wmma::store_matrix_sync(c, fc, 8, wmma::mem_row_major);
}
