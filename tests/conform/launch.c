/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: arguments in every form, dimensions, shared memory, attributes, cooperation. */
#include "driver.h"

CASE(launch_arguments_of_all_sizes, "arguments of one to eight bytes and structures arrive")
{
    CUdeviceptr w = words(1);
    unsigned char byte = 1, blob[7] = {0, 0, 0, 0, 0, 50, 0};
    unsigned short half = 200;
    unsigned word = 3000;
    unsigned long long wide = 40000 + (700000ull << 32);
    float real = 6;
    void *params[] = {&byte, &half, &word, &wide, blob, &real, &w};
    IS_LATE(cuLaunchKernel(function("many"), 1, 1, 1, 1, 1, 1, 0, side, params, NULL),
            CUDA_SUCCESS);
    EQ(peek(w, 0), 1 + 200 + 3000 + 40000 + 700000 + 50 + 6);
}

CASE(launch_argument_buffer, "arguments in one buffer arrive, each at its offset")
{
    CUdeviceptr w = words(1);
    struct __attribute__((packed)) {
        unsigned char byte, gap;
        unsigned short half;
        unsigned word;
        unsigned long long wide;
        unsigned char blob[7], more;
        float real;
        unsigned fill;
        CUdeviceptr to;
    } b = {.byte = 2,
           .half = 300,
           .word = 4000,
           .wide = 50000,
           .blob = {0, 0, 0, 0, 0, 60},
           .real = 7,
           .to = w};
    size_t size = sizeof b;
    if (offsetof(__typeof__(b), fill) == 28) {
        /* to is aligned to 8 bytes: 16 + 7 + 1 + 4 + 4 */
        EQ(offsetof(__typeof__(b), to), 32);
    }
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &b, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    IS_LATE(cuLaunchKernel(function("many"), 1, 1, 1, 1, 1, 1, 0, side, NULL, extra), CUDA_SUCCESS);
    EQ(peek(w, 0), 2 + 300 + 4000 + 50000 + 60 + 7);
}

CASE(launch_argument_buffer_may_be_short, "a buffer may end before arguments that are not used")
{
    CUdeviceptr w = words(1);
    struct {
        CUdeviceptr to;
        unsigned blob[1022];
    } b = {.to = w};
    size_t size = 64;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &b, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    IS_LATE(cuLaunchKernel(function("large"), 1, 1, 1, 1, 1, 1, 0, side, NULL, extra),
            CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
}

CASE(launch_large_arguments, "four kilobytes of arguments arrive")
{
    CUdeviceptr w = words(1);
    static unsigned blob[1022];
    blob[1021] = 77;
    void *params[] = {&w, blob};
    IS_LATE(cuLaunchKernel(function("large"), 1, 1, 1, 1, 1, 1, 0, side, params, NULL),
            CUDA_SUCCESS);
    EQ(peek(w, 0), 77);
}

CASE(launch_takes_arguments_at_once, "arguments may change after the call")
{
    CUdeviceptr w = words(2), to = w;
    int value = 5;
    void *params[] = {&to, &value};
    CUfunction f = function("set");
    hold(side);
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, side, params, NULL));
    to = w + 4;
    value = 6;
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, side, params, NULL));
    to = 0;
    value = 7;
    let_go();
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 5);
    EQ(peek(w, 1), 6);
}

CASE(launch_dimensions, "a kernel sees the dimensions it was launched with")
{
    CUdeviceptr w = words(6);
    void *params[] = {&w};
    IS_LATE(cuLaunchKernel(function("shape"), 2, 3, 4, 5, 6, 7, 0, side, params, NULL),
            CUDA_SUCCESS);
    conform_say("grid %d %d %d block %d %d %d", peek(w, 0), peek(w, 1), peek(w, 2), peek(w, 3),
                peek(w, 4), peek(w, 5));
}

CASE(launch_counts_threads, "every thread of every block runs once")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    IS_LATE(cuLaunchKernel(function("count"), 13, 2, 1, 96, 2, 2, 0, side, params, NULL),
            CUDA_SUCCESS);
    EQ(peek(w, 0), 13 * 2 * 96 * 2 * 2);
}

CASE(launch_largest_block, "a block may have 1024 threads, and 64 in its third dimension")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUfunction f = function("count");
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 1024, 1, 1, 0, side, params, NULL), CUDA_SUCCESS);
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 16, 1, 64, 0, side, params, NULL), CUDA_SUCCESS);
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 1, 1024, 1, 0, side, params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 3072);
}

CASE(launch_wide_grid, "a grid may have more than 65535 blocks in its first dimension")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    IS_LATE(cuLaunchKernel(function("count"), 70000, 1, 1, 1, 1, 1, 0, side, params, NULL),
            CUDA_SUCCESS);
    EQ(peek(w, 0), 70000);
}

CASE(launch_dynamic_shared, "a kernel gets the dynamic shared memory of its launch")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    IS_LATE(cuLaunchKernel(function("shared"), 1, 1, 1, 1, 1, 1, 1024, side, params, NULL),
            CUDA_SUCCESS);
    EQ(peek(w, 0), 1024);
}

CASE(launch_static_shared, "static shared memory counts against the limit")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUfunction f = function("fixed");
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 40000, side, params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 9);
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 48 << 10, side, params, NULL),
            CUDA_ERROR_INVALID_VALUE);
}

CASE(launch_of_nothing_in_null_stream, "an empty kernel without parameters runs in the null stream")
{
    IS(cuLaunchKernel(function("nothing"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
    IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

CASE(launch_respects_maxntid, "a kernel made for at most 128 threads takes 128")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUfunction f = function("limited");
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 128, 1, 1, 0, side, params, NULL), CUDA_SUCCESS);
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 16, 8, 1, 0, side, params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 256);
}

CASE(launch_ex_plain, "cuLaunchKernelEx without attributes is a plain launch")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUlaunchConfig c;
    memset(&c, 0, sizeof c);
    c.gridDimX = 3, c.gridDimY = c.gridDimZ = 1, c.blockDimX = 5, c.blockDimY = c.blockDimZ = 1;
    c.hStream = side;
    IS_LATE(cuLaunchKernelEx(&c, function("count"), params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 15);
}

CASE(launch_ex_attributes, "priority and programmatic serialisation are taken as attributes")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUlaunchAttribute a[2];
    CUlaunchConfig c;
    memset(&c, 0, sizeof c);
    memset(a, 0, sizeof a);
    a[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    a[0].value.priority = -1;
    a[1].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
    c.gridDimX = 3, c.gridDimY = c.gridDimZ = 1, c.blockDimX = 5, c.blockDimY = c.blockDimZ = 1;
    c.hStream = side;
    c.attrs = a;
    c.numAttrs = 2;
    IS_LATE(cuLaunchKernelEx(&c, function("count"), params, NULL), CUDA_SUCCESS);
    a[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    a[0].value.programmaticStreamSerializationAllowed = 1;
    IS_LATE(cuLaunchKernelEx(&c, function("count"), params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 30);
}

CASE(launch_ex_cluster_of_one, "a cluster of one block is a plain launch")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUlaunchAttribute a;
    CUlaunchConfig c;
    memset(&c, 0, sizeof c);
    memset(&a, 0, sizeof a);
    a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    a.value.clusterDim.x = a.value.clusterDim.y = a.value.clusterDim.z = 1;
    c.gridDimX = 4, c.gridDimY = c.gridDimZ = 1, c.blockDimX = 2, c.blockDimY = c.blockDimZ = 1;
    c.hStream = side;
    c.attrs = &a;
    c.numAttrs = 1;
    IS_LATE(cuLaunchKernelEx(&c, function("count"), params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 8);
}

CASE(launch_ex_event, "an event given as attribute is recorded when the launch is done")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUlaunchAttribute a;
    CUlaunchConfig c;
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    memset(&c, 0, sizeof c);
    memset(&a, 0, sizeof a);
    a.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    a.value.launchCompletionEvent.event = e;
    c.gridDimX = c.gridDimY = c.gridDimZ = c.blockDimX = c.blockDimY = c.blockDimZ = 1;
    c.hStream = side;
    c.attrs = &a;
    c.numAttrs = 1;
    CUresult r = cuLaunchKernelEx(&c, function("count"), params, NULL);
    conform_say("cuLaunchKernelEx -> %s", result_name(driver_late(r)));
    IS(cuEventSynchronize(e), CUDA_SUCCESS);
    NUM(peek(w, 0));
}

CASE(launch_cooperative, "a cooperative launch of a few blocks runs")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    int supported = 0;
    OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, dev));
    EQ(supported, 1);
    IS_LATE(cuLaunchCooperativeKernel(function("count"), 2, 1, 1, 32, 1, 1, 0, side, params),
            CUDA_SUCCESS);
    EQ(peek(w, 0), 64);
}

CASE(launch_cooperative_attribute, "the same by attribute; too many blocks are refused")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUlaunchAttribute a;
    CUlaunchConfig c;
    memset(&c, 0, sizeof c);
    memset(&a, 0, sizeof a);
    a.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    a.value.cooperative = 1;
    c.gridDimX = 2, c.gridDimY = c.gridDimZ = 1, c.blockDimX = 32, c.blockDimY = c.blockDimZ = 1;
    c.hStream = side;
    c.attrs = &a;
    c.numAttrs = 1;
    IS_LATE(cuLaunchKernelEx(&c, function("count"), params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 64);
    c.gridDimX = 1000000;
    IS_LATE(cuLaunchKernelEx(&c, function("count"), params, NULL),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    IS_LATE(cuLaunchKernel(function("nothing"), 1, 1, 1, 1, 1, 1, 0, side, NULL, NULL),
            CUDA_SUCCESS);
}

CASE(launch_refusal_does_not_stay, "after a launch that was refused the next one works")
{
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    CUfunction f = function("count");
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, side, params, NULL),
            CUDA_ERROR_INVALID_VALUE);
    IS_LATE(cuLaunchKernel(f, 1, 1, 1, 10, 1, 1, 0, side, params, NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 10);
}

CASE(launch_many, "a thousand launches of one stream all run, in order")
{
    CUdeviceptr w = words(1);
    for (int i = 0; i < 1000; i++) {
        OK(launch_inc(side, w, 1));
    }
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 1000);
}

static void launch_here(void *arg)
{
    CUdeviceptr w = *(CUdeviceptr *)arg;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 100; i++) {
        OK(launch_inc(s, w, 1));
    }
    OK(cuStreamSynchronize(s));
}

CASE(launch_from_another_thread, "a thread with the context current launches the same functions")
{
    CUdeviceptr w = words(1);
    in_thread(launch_here, &w);
    EQ(peek(w, 0), 100);
}

CASE(occupancy_fits_the_device, "occupancy never exceeds what a multiprocessor has")
{
    int threads = 0, blocks = 0, one = 0, full = 0, small = 0;
    OK(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, dev));
    OK(cuDeviceGetAttribute(&blocks, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, dev));
    IS(cuOccupancyMaxActiveBlocksPerMultiprocessor(&full, function("nothing"), 1024, 0),
       CUDA_SUCCESS);
    IS(cuOccupancyMaxActiveBlocksPerMultiprocessor(&small, function("nothing"), 32, 0),
       CUDA_SUCCESS);
    IS(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&one, function("nothing"), 128, 0, 0),
       CUDA_SUCCESS);
    TRUE(full == threads / 1024);
    TRUE(small <= blocks && small >= full);
    TRUE(one * 128 <= threads);
}

CASE(occupancy_block_size, "the block size that is recommended can be launched")
{
    int grid = 0, block = 0;
    CUdeviceptr w = words(1);
    void *params[] = {&w};
    IS(cuOccupancyMaxPotentialBlockSize(&grid, &block, function("limited"), NULL, 0, 0),
       CUDA_SUCCESS);
    TRUE(block > 0 && block <= 128);
    TRUE(grid > 0);
    IS_LATE(
        cuLaunchKernel(function("limited"), 1, 1, 1, (unsigned)block, 1, 1, 0, side, params, NULL),
        CUDA_SUCCESS);
    IS(cuOccupancyMaxPotentialBlockSize(&grid, &block, function("nothing"), NULL, 0, 64),
       CUDA_SUCCESS);
    EQ(block, 64);
}

CASE(occupancy_shared, "the dynamic shared memory that fits is told")
{
    size_t one = 0, two = 0;
    IS(cuOccupancyAvailableDynamicSMemPerBlock(&one, function("shared"), 1, 64), CUDA_SUCCESS);
    IS(cuOccupancyAvailableDynamicSMemPerBlock(&two, function("shared"), 2, 64), CUDA_SUCCESS);
    TRUE(one >= 48 << 10);
    TRUE(two <= one);
    int blocks = -1;
    SEE(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function("shared"), 64, 100 << 20));
    NUM(blocks);
}

CASE(launch_largest_cluster, "the largest cluster is the portable one until a kernel allows more")
{
    CUfunction f = function("count");
    CUlaunchConfig config;
    int size = -1;
    memset(&config, 0, sizeof config);
    config.gridDimX = 64;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    IS(cuOccupancyMaxPotentialClusterSize(&size, f, &config), CUDA_SUCCESS);
    NUM(size);
    OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    IS(cuOccupancyMaxPotentialClusterSize(&size, f, &config), CUDA_SUCCESS);
    NUM(size);
    OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0));
    IS(cuOccupancyMaxPotentialClusterSize(NULL, f, &config), CUDA_ERROR_INVALID_VALUE);
}
