/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime's launches, functions, devices, and what a reset does. */
#include "runtime.h"

#include <cooperative_groups.h>

struct rt_large {
    int word[1000];
};

__global__ void rt_by_value(int *to, rt_large large, char byte, double real)
{
    *to = large.word[999] + byte + (int)real;
}

extern __shared__ int rt_room[];

__global__ void rt_use_shared(int *to, int words)
{
    rt_room[words - 1] = words;
    *to = rt_room[words - 1];
}

__global__ void __launch_bounds__(64) rt_bounded(int *to)
{
    atomicAdd(to, 1);
}

__global__ void rt_grid_sync(int *to)
{
    atomicAdd(to, 1);
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        to[1] = to[0];
    }
}

template <typename T> __global__ void rt_generic(T *to)
{
    *to = (T)3;
}

CASE(rt_launch_by_value, "large structures and small values arrive as arguments")
{
    static rt_large large;
    int *w = rt_words(1);
    large.word[999] = 1000;
    rt_by_value<<<1, 1>>>(w, large, 7, 30.5);
    IS(cudaGetLastError(), cudaSuccess);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(rt_peek(w, 0), 1037);
}

CASE(rt_launch_by_pointer, "cudaLaunchKernel takes a function's pointer and its arguments")
{
    int *w = rt_words(1), value = 4;
    void *args[] = {&w, &value};
    IS(cudaLaunchKernel((const void *)rt_inc, dim3(1), dim3(1), args, 0, rt_side), cudaSuccess);
    IS(cudaStreamSynchronize(rt_side), cudaSuccess);
    EQ(rt_peek(w, 0), 4);
}

CASE(rt_launch_ex, "cudaLaunchKernelEx launches with attributes")
{
    int *w = rt_words(1);
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute a[1] = {};
    a[0].id = cudaLaunchAttributePriority;
    a[0].val.priority = 0;
    c.gridDim = dim3(2);
    c.blockDim = dim3(3);
    c.stream = rt_side;
    c.attrs = a;
    c.numAttrs = 1;
    IS(cudaLaunchKernelEx(&c, rt_bounded, w), cudaSuccess);
    IS(cudaStreamSynchronize(rt_side), cudaSuccess);
    EQ(rt_peek(w, 0), 6);
}

CASE(rt_launch_bounds, "a kernel made for 64 threads refuses 65")
{
    int *w = rt_words(1);
    rt_bounded<<<1, 64>>>(w);
    IS(cudaGetLastError(), cudaSuccess);
    rt_bounded<<<1, 65>>>(w);
    SEE(cudaGetLastError());
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(rt_peek(w, 0), 64);
}

CASE(rt_dynamic_shared, "more than 48 KiB of shared memory must be asked for")
{
    int *w = rt_words(1);
    rt_use_shared<<<1, 1, 65536>>>(w, 16384);
    IS(cudaGetLastError(), cudaErrorInvalidValue);
    IS(cudaFuncSetAttribute((const void *)rt_use_shared,
                            cudaFuncAttributeMaxDynamicSharedMemorySize, 65536),
       cudaSuccess);
    rt_use_shared<<<1, 1, 65536>>>(w, 16384);
    IS(cudaGetLastError(), cudaSuccess);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(rt_peek(w, 0), 16384);
    SEE(cudaFuncSetAttribute((const void *)rt_use_shared,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 20));
}

CASE(rt_function_attributes, "cudaFuncGetAttributes tells about a kernel")
{
    cudaFuncAttributes a = {};
    IS(cudaFuncGetAttributes(&a, (const void *)rt_bounded), cudaSuccess);
    EQ(a.maxThreadsPerBlock, 64);
    EQ(a.sharedSizeBytes, 0);
    EQ(a.localSizeBytes, 0);
}

CASE(rt_cooperative, "a cooperative launch synchronises its grid")
{
    int *w = rt_words(2);
    void *args[] = {&w};
    IS(cudaLaunchCooperativeKernel((const void *)rt_grid_sync, dim3(4), dim3(32), args, 0, rt_side),
       cudaSuccess);
    IS(cudaStreamSynchronize(rt_side), cudaSuccess);
    EQ(rt_peek(w, 1), 128);
    IS(cudaLaunchCooperativeKernel((const void *)rt_grid_sync, dim3(1000000), dim3(32), args, 0,
                                   rt_side),
       cudaErrorCooperativeLaunchTooLarge);
    IS(cudaGetLastError(), cudaErrorCooperativeLaunchTooLarge);
}

CASE(rt_templates, "kernels made from a template are kernels of their own")
{
    int *w = rt_words(2);
    rt_generic<int><<<1, 1>>>(w);
    rt_generic<float><<<1, 1>>>((float *)(w + 1));
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(rt_peek(w, 0), 3);
    EQ(rt_peek(w, 1), 0x40400000);
}

CASE(rt_occupancy, "occupancy is at least one block, and its size can be launched")
{
    int blocks = 0, grid = 0, block = 0;
    int *w = rt_words(1);
    IS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, rt_bounded, 64, 0), cudaSuccess);
    TRUE(blocks > 0);
    IS(cudaOccupancyMaxPotentialBlockSize(&grid, &block, rt_bounded, 0, 0), cudaSuccess);
    EQ(block, 64);
    rt_bounded<<<1, block>>>(w);
    IS(cudaDeviceSynchronize(), cudaSuccess);
    EQ(rt_peek(w, 0), 64);
}

CASE(rt_device_properties, "properties and attributes say the same")
{
    cudaDeviceProp p;
    int value = 0, count = 0, current = 99;
    OK(cudaGetDeviceProperties(&p, 0));
    EQ(p.warpSize, 32);
    EQ(p.maxThreadsPerBlock, 1024);
    EQ(p.unifiedAddressing, 1);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    TRUE(value == p.multiProcessorCount);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 0));
    TRUE(value == p.major);
    OK(cudaGetDeviceCount(&count));
    TRUE(count >= 1);
    OK(cudaGetDevice(&current));
    EQ(current, 0);
    IS(cudaGetDeviceProperties(&p, 99), cudaErrorInvalidDevice);
}

CASE(rt_bus_id, "a device is found by its bus id")
{
    char text[32] = "";
    int device = 99;
    IS(cudaDeviceGetPCIBusId(text, sizeof text, 0), cudaSuccess);
    IS(cudaDeviceGetByPCIBusId(&device, text), cudaSuccess);
    EQ(device, 0);
    SEE(cudaDeviceGetByPCIBusId(&device, "nothing"));
}

CASE_ALONE(rt_limits, "limits are what was set, or more")
{
    size_t value = 0;
    IS(cudaDeviceSetLimit(cudaLimitStackSize, 8192), cudaSuccess);
    IS(cudaDeviceGetLimit(&value, cudaLimitStackSize), cudaSuccess);
    EQ(value, 8192);
    IS(cudaDeviceSetLimit((cudaLimit)99, 1), cudaErrorInvalidValue);
}

CASE(rt_reset, "after cudaDeviceReset the device is fresh and works")
{
    int *w = rt_words(1);
    (void)w;
    IS(cudaDeviceReset(), cudaSuccess);
    IS(cudaGetLastError(), cudaSuccess);
    int *again = NULL, out = 0;
    IS(cudaMalloc((void **)&again, 4), cudaSuccess);
    rt_set<<<1, 1>>>(again, 5);
    IS(cudaGetLastError(), cudaSuccess);
    IS(cudaMemcpy(&out, again, 4, cudaMemcpyDeviceToHost), cudaSuccess);
    EQ(out, 5);
}

CASE_ALONE_AT(rt_device_flags, BARE, "flags of a device that has no context yet")
{
    unsigned flags = 99;
    IS(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), cudaSuccess);
    IS(cudaGetDeviceFlags(&flags), cudaSuccess);
    NUM(flags);
    IS(cudaFree(NULL), cudaSuccess);
    IS(cudaGetDeviceFlags(&flags), cudaSuccess);
    NUM(flags);
}

CASE_AT(rt_versions, BARE, "versions are told without a context")
{
    int driver = 0, runtime = 0;
    IS(cudaDriverGetVersion(&driver), cudaSuccess);
    IS(cudaRuntimeGetVersion(&runtime), cudaSuccess);
    TRUE(driver >= 12000);
    TRUE(runtime >= 12000);
}

CASE(rt_mem_info, "memory that is free is not more than all")
{
    size_t left = 0, all = 0;
    IS(cudaMemGetInfo(&left, &all), cudaSuccess);
    TRUE(left > 0 && left <= all);
}

static void launch_here(void *arg)
{
    int *w = *(int **)arg;
    rt_inc<<<1, 1, 0, cudaStreamPerThread>>>(w, 1);
    IS(cudaGetLastError(), cudaSuccess);
    IS(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
}

CASE(rt_other_thread, "another thread uses the same device without any call before")
{
    int *w = rt_words(1);
    rt_in_thread(launch_here, &w);
    EQ(rt_peek(w, 0), 1);
}
