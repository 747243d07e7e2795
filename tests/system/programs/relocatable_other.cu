/* SPDX-License-Identifier: Apache-2.0 */
// The other half of relocatable_main.cu.
#include "relocatable.h"

static __device__ int own = 1000;
__device__ int counter;
__managed__ int seen = 5;

struct square : shape {
    __device__ int area(int x) const override
    {
        return x * x;
    }
};
struct line : shape {
    __device__ int area(int x) const override
    {
        return 4 * x;
    }
};
__device__ shape *make_shape(int which)
{
    return which ? static_cast<shape *>(new square) : static_cast<shape *>(new line);
}

template __device__ long long twice<long long>(long long value);

static __device__ int next(int x)
{
    return x + 1;
}
__device__ function chosen = next;

__device__ int other_own()
{
    return own;
}
__device__ int recurse(int n)
{
    return n <= 1 ? 1 : n * recurse(n - 1);
}
__device__ int count_up()
{
    return atomicAdd(&counter, 1);
}
