/* SPDX-License-Identifier: Apache-2.0 */
// The other half of separate_main.cu.
extern __device__ int shared_by_both;
__device__ int other_variable = 1000;
__constant__ int other_constant[4] = {10, 20, 30, 40};

__device__ int other_function(int x)
{
    return 2 * x + shared_by_both;
}

__device__ int negate(int x)
{
    return -x;
}
__device__ int square(int x)
{
    return x * x;
}
typedef int (*function)(int);
__device__ function other_table[2] = {square, negate};

__global__ void other_kernel(int *out, int value)
{
    *out = value + shared_by_both;
}
