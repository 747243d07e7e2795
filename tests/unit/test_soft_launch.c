/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels through the driver table: parameters, limits, faults. */
#include "soft_lib.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/launch.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/stream.h"

#include <unistd.h>

static void add_computes_every_element(void **state)
{
    (void)state;
    enum { N = 1000 };
    float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = 2.0f * (float)i;
    }
    CUdeviceptr da, db, dc;
    OK(tow_drive(cu, cuMemAlloc_v2)(&da, sizeof a));
    OK(tow_drive(cu, cuMemAlloc_v2)(&db, sizeof b));
    OK(tow_drive(cu, cuMemAlloc_v2)(&dc, sizeof c));
    OK(tow_drive(cu, cuMemcpyHtoD_v2)(da, a, sizeof a));
    OK(tow_drive(cu, cuMemcpyHtoD_v2)(db, b, sizeof b));
    CUmodule module = soft_module();
    CUfunction add = soft_function(module, "add");
    unsigned n = N;
    void *params[] = {&da, &db, &dc, &n};
    OK(soft_launch(add, 4, 256, NULL, params));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(c, dc, sizeof c));
    for (int i = 0; i < N; i++) {
        assert_true(c[i] == 3.0f * (float)i);
    }
    OK(tow_drive(cu, cuModuleUnload)(module));
    OK(tow_drive(cu, cuMemFree_v2)(da));
    OK(tow_drive(cu, cuMemFree_v2)(db));
    OK(tow_drive(cu, cuMemFree_v2)(dc));
}

static void extra_form_carries_the_same_parameters(void **state)
{
    (void)state;
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 256));
    CUfunction fill = soft_function(soft_module(), "fill");
    struct {
        CUdeviceptr p;
        unsigned v;
    } block = {p, 0xabcd};
    size_t size = 12;
    void *extra[] = {(void *)CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT, &block,
                     (void *)CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT, &size,
                     (void *)CU_LAUNCH_PARAM_END_AS_INT};
    OK(tow_drive(cu, cuLaunchKernel)(fill, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    unsigned out[64];
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, p, sizeof out));
    for (int i = 0; i < 64; i++) {
        assert_int_equal(out[i], 0xabcd);
    }
    size = 8; /* zeros for the rest */
    OK(tow_drive(cu, cuLaunchKernel)(fill, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, p, sizeof out));
    assert_int_equal(out[0] | out[63], 0);
    void *params[] = {&p, &size};
    size = 12;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuLaunchKernel)(fill, 2, 1, 1, 32, 1, 1, 0, NULL, params, extra));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuLaunchKernel)(fill, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

static void limits_are_checked(void **state)
{
    (void)state;
    CUmodule module = soft_module();
    CUfunction f = soft_function(module, "bump"), bounded = soft_function(module, "bounded");
    FAILS(CUDA_ERROR_INVALID_HANDLE, soft_launch(NULL, 1, 1, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, soft_launch((CUfunction)&f, 1, 1, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, soft_launch(f, 0, 1, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, soft_launch(f, 1, 0, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, soft_launch(f, 1, 1025, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuLaunchKernel)(f, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuLaunchKernel)(f, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 48 * 1024 + 1, NULL, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, soft_launch(bounded, 1, 65, NULL, NULL));
    OK(soft_launch(bounded, 1, 64, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_HANDLE, soft_launch(f, 1, 1, (CUstream)(uintptr_t)0x1234560, NULL));
    OK(tow_drive(cu, cuCtxSynchronize)());
}

static void dynamic_shared_memory_needs_opting_in_above_48k(void **state)
{
    (void)state;
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 128 * 4));
    CUfunction f = soft_function(soft_module(), "shared");
    void *params[] = {&p};
    OK(tow_drive(cu, cuLaunchKernel)(f, 1, 1, 1, 128, 1, 1, 512, NULL, params, NULL));
    unsigned out[128];
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, p, sizeof out));
    for (unsigned i = 0; i < 128; i++) {
        assert_int_equal(out[i], 127 - i);
    }
    unsigned big = 64 * 1024;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuLaunchKernel)(f, 1, 1, 1, 128, 1, 1, big, NULL, params, NULL));
    OK(tow_drive(cu, cuFuncSetAttribute)(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         (int)big));
    OK(tow_drive(cu, cuLaunchKernel)(f, 1, 1, 1, 128, 1, 1, big, NULL, params, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuFuncSetAttribute)(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            200 * 1024));
    OK(tow_drive(cu, cuCtxSynchronize)());
}

static void a_write_one_past_the_end_is_sticky_and_ruins_the_device(void **state)
{
    (void)state;
    CUdeviceptr p, q;
    CUfunction fill = soft_function(soft_module(), "fill"); /* its variables lie before */
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4 * 128));
    unsigned value = 1;
    void *params[] = {&p, &value};
    OK(soft_launch(fill, 1, 128, NULL, params));
    OK(tow_drive(cu, cuCtxSynchronize)());
    OK(soft_launch(fill, 1, 129, NULL, params));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuCtxSynchronize)());
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuMemAlloc_v2)(&q, 4));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuMemFree_v2)(p));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuStreamQuery)(NULL));
    OK(tow_drive(cu, cuDevicePrimaryCtxReset_v2)(0));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, tow_drive(cu, cuMemAlloc_v2)(&q, 4));
    CUcontext again;
    FAILS(CUDA_ERROR_DEVICE_UNAVAILABLE, tow_drive(cu, cuDevicePrimaryCtxRetain)(&again, 0));
}

/* Hardware has no finer bounds: programs that are a little wrong run there, and have to run here.
 */
static void kernels_reach_the_rest_of_the_last_unit_and_no_more(void **state)
{
    (void)state;
    CUdeviceptr before, p, after;
    unsigned out[128], value = 7, sizes[] = {4, 4 * 31, 4 * 127 + 1};
    CUfunction fill = soft_function(soft_module(), "fill");
    void *params[] = {&p, &value};
    for (unsigned i = 0; i < 3; i++) {
        OK(tow_drive(cu, cuMemAlloc_v2)(&before, 4));
        OK(tow_drive(cu, cuMemAlloc_v2)(&p, sizes[i]));
        OK(tow_drive(cu, cuMemAlloc_v2)(&after, 512));
        OK(tow_drive(cu, cuMemsetD32_v2)(before, 0, 1));
        OK(tow_drive(cu, cuMemsetD32_v2)(after, 0, 128));
        OK(soft_launch(fill, 1, 128, NULL, params));
        OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, before, 4));
        assert_int_equal(out[0], 0);
        OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, after, 512));
        for (unsigned k = 0; k < 128; k++) {
            assert_int_equal(out[k], 0);
        }
        FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyDtoH_v2)(out, p, sizes[i] + 1));
    }
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4)); /* nothing behind it */
    OK(soft_launch(fill, 1, 128, NULL, params));
    OK(tow_drive(cu, cuCtxSynchronize)());
    OK(soft_launch(fill, 1, 129, NULL, params));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuCtxSynchronize)());
}

static void a_block_reaches_whole_units_of_shared_memory(void **state)
{
    (void)state;
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 128 * 4));
    CUfunction f = soft_function(soft_module(), "shared");
    void *params[] = {&p};
    OK(tow_drive(cu, cuLaunchKernel)(f, 1, 1, 1, 128, 1, 1, 385, NULL, params, NULL));
    unsigned out[128];
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, p, sizeof out));
    assert_int_equal(out[0], 127);
    OK(tow_drive(cu, cuLaunchKernel)(f, 1, 1, 1, 128, 1, 1, 384, NULL, params, NULL));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuCtxSynchronize)());
}

static void memory_that_was_freed_faults(void **state)
{
    (void)state;
    CUdeviceptr p, keep;
    OK(tow_drive(cu, cuMemAlloc_v2)(&keep, 4096));
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4 * 32));
    CUfunction fill = soft_function(soft_module(), "fill");
    OK(tow_drive(cu, cuMemFree_v2)(p));
    unsigned value = 1;
    void *params[] = {&p, &value};
    OK(soft_launch(fill, 1, 32, NULL, params));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuStreamSynchronize)(NULL));
}

static void misaligned_access_has_its_code(void **state)
{
    (void)state;
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4 * 32));
    CUfunction fill = soft_function(soft_module(), "fill");
    unsigned value = 1;
    CUdeviceptr odd = p + 2;
    void *params[] = {&odd, &value};
    OK(soft_launch(fill, 1, 1, NULL, params));
    FAILS(CUDA_ERROR_MISALIGNED_ADDRESS, tow_drive(cu, cuCtxSynchronize)());
}

static void trap_has_its_code(void **state)
{
    (void)state;
    CUfunction crash = soft_function(soft_module(), "crash");
    OK(soft_launch(crash, 1, 1, NULL, NULL));
    FAILS(CUDA_ERROR_LAUNCH_FAILED, tow_drive(cu, cuCtxSynchronize)());
}

static void a_kernel_that_never_ends_is_stopped_by_context_destruction(void **state)
{
    (void)state;
    CUcontext other;
    OK(tow_drive(cu, cuCtxCreate_v2)(&other, 0, 0));
    CUfunction forever = soft_function(soft_module(), "forever");
    OK(soft_launch(forever, 4, 64, NULL, NULL));
    usleep(20000);
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(NULL));
    OK(tow_drive(cu, cuCtxDestroy_v2)(other));
    CUcontext now;
    OK(tow_drive(cu, cuCtxGetCurrent)(&now));
    assert_ptr_equal(now, context);
}

static void occupancy_counts_threads_and_shared_memory(void **state)
{
    (void)state;
    CUfunction f = soft_function(soft_module(), "shared");
    int blocks;
    OK(tow_drive(cu, cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, f, 1024, 0));
    assert_int_equal(blocks, 1);
    OK(tow_drive(cu, cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, f, 32, 40 * 1024));
    assert_int_equal(blocks, 2);
    OK(tow_drive(cu, cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, f, 2048, 0));
    assert_int_equal(blocks, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, f, 0, 0));
    CUfunction bump = soft_function(soft_module(), "bump");
    FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
          tow_drive(cu, cuLaunchCooperativeKernel)(bump, 100000, 1, 1, 1024, 1, 1, 0, NULL, NULL));
    OK(tow_drive(cu, cuLaunchCooperativeKernel)(bump, 4, 1, 1, 32, 1, 1, 0, NULL, NULL));
    OK(tow_drive(cu, cuCtxSynchronize)());
}

static void attributes_of_a_launch_are_taken(void **state)
{
    (void)state;
    CUfunction bump = soft_function(soft_module(), "bump");
    CUlaunchAttribute attrs[2] = {
        {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {2, 1, 1}}},
        {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
         .value = {.programmaticStreamSerializationAllowed = 1}}};
    CUlaunchConfig config = {.gridDimX = 4,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = attrs,
                             .numAttrs = 2};
    OK(tow_drive(cu, cuLaunchKernelEx)(&config, bump, NULL, NULL));
    config.gridDimX = 3;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuLaunchKernelEx)(&config, bump, NULL, NULL));
    config.gridDimX = 9;
    attrs[0].value.clusterDim.x = 9;
    FAILS(CUDA_ERROR_INVALID_CLUSTER_SIZE,
          tow_drive(cu, cuLaunchKernelEx)(&config, bump, NULL, NULL));
    int clusters = 0;
    config.gridDimX = 4;
    attrs[0].value.clusterDim.x = 2;
    /* Each direction of the grid is made of whole clusters. */
    config.gridDimY = 3;
    config.gridDimZ = 2;
    attrs[0].value.clusterDim.y = 3;
    OK(tow_drive(cu, cuLaunchKernelEx)(&config, bump, NULL, NULL));
    attrs[0].value.clusterDim.y = 2;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuLaunchKernelEx)(&config, bump, NULL, NULL));
    attrs[0].value.clusterDim.y = 1;
    attrs[0].value.clusterDim.z = 3;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuLaunchKernelEx)(&config, bump, NULL, NULL));
    attrs[0].value.clusterDim.z = 1;
    OK(tow_drive(cu, cuOccupancyMaxActiveClusters)(&clusters, bump, &config));
    assert_true(clusters > 0);
    attrs[0].id = (CUlaunchAttributeID)99;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuLaunchKernelEx)(&config, bump, NULL, NULL));
    OK(tow_drive(cu, cuCtxSynchronize)());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, soft_setup, soft_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(add_computes_every_element),
        TEST(extra_form_carries_the_same_parameters),
        TEST(limits_are_checked),
        TEST(dynamic_shared_memory_needs_opting_in_above_48k),
        TEST(a_write_one_past_the_end_is_sticky_and_ruins_the_device),
        TEST(kernels_reach_the_rest_of_the_last_unit_and_no_more),
        TEST(a_block_reaches_whole_units_of_shared_memory),
        TEST(memory_that_was_freed_faults),
        TEST(misaligned_access_has_its_code),
        TEST(trap_has_its_code),
        TEST(a_kernel_that_never_ends_is_stopped_by_context_destruction),
        TEST(occupancy_counts_threads_and_shared_memory),
        TEST(attributes_of_a_launch_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
