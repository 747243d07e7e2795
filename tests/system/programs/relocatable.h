/* SPDX-License-Identifier: Apache-2.0 */
// What the two files of `relocatable` share.
#pragma once

struct shape {
    __device__ virtual int area(int x) const = 0;
    __device__ virtual ~shape()
    {
    }
};
__device__ shape *make_shape(int which);

template <typename T> struct pair {
    T first, second;
    __device__ T sum() const
    {
        return first + second;
    }
};
template <typename T> __device__ T twice(T value)
{
    return value + value;
}
extern template __device__ long long twice<long long>(long long value);

typedef int (*function)(int);
extern __device__ function chosen;
extern __device__ int counter;
extern __managed__ int seen;
__device__ int recurse(int n);
__device__ int count_up();
