/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands behind an upload may rely on. */
#include "cmocka_all.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fake_backend.h"
#include "gen/context_client.h"
#include "gen/copy_client.h"
#include "gen/core_client.h"
#include "gen/memory_client.h"

enum { SIZE = 3 << 20, ROWS = 512, WIDTH = 1000, PITCH = 1024 };

static uint8_t source[SIZE];
static CUdeviceptr device;

/* The device has not read the bytes before it has been asked so often: a few times are soon over,
 * since the server waits for a moment only; many are never asked. */
enum { FEW = 5, MANY = 100 };
static void begin(int queries)
{
    atomic_store(&tow_fake.copies, 0);
    atomic_store(&tow_fake.not_ready, queries);
}

/* All that was sent has been carried out; how often it was not asked. */
static int end(size_t copied)
{
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.copies), copied);
    return atomic_exchange(&tow_fake.not_ready, 0);
}

static CUDA_MEMCPY2D rows(void)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = source,
                           .srcPitch = PITCH,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = device,
                           .dstPitch = PITCH,
                           .WidthInBytes = WIDTH,
                           .Height = ROWS};
}

/* Programs rely on it, with streams that wait for no other. */
static void a_synchronous_upload_has_been_read_before_the_next_command(void **state)
{
    CUDA_MEMCPY2D copy = rows();
    begin(FEW);
    assert_int_equal(towc_cuMemcpyHtoD_v2(device, source, SIZE), CUDA_SUCCESS);
    assert_int_equal(end(SIZE), 0);
    begin(FEW);
    assert_int_equal(towc_cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
    assert_int_equal(end((size_t)ROWS * WIDTH), 0);
}

static void nobody_waits_for_an_asynchronous_one(void **state)
{
    CUDA_MEMCPY2D copy = rows();
    begin(MANY);
    assert_int_equal(towc_cuMemcpyHtoDAsync_v2(device, source, 1 << 20, NULL), CUDA_SUCCESS);
    assert_int_not_equal(end(1 << 20), 0);
    begin(MANY);
    assert_int_equal(towc_cuMemcpy2DAsync_v2(&copy, NULL), CUDA_SUCCESS);
    assert_int_not_equal(end((size_t)ROWS * WIDTH), 0);
}

/* What its stream waits for may be behind it on the line. */
static void nobody_waits_for_ever(void **state)
{
    begin(INT_MAX);
    assert_int_equal(towc_cuMemcpyHtoD_v2(device, source, SIZE), CUDA_SUCCESS);
    assert_int_not_equal(end(SIZE), 0);
}

static int setup(void **state)
{
    setenv("TOWLINE_SERVER", "self:", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    CUcontext context;
    return towc_cuInit(0) != CUDA_SUCCESS ||
           towc_cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
           towc_cuCtxSetCurrent(context) != CUDA_SUCCESS ||
           towc_cuMemAlloc_v2(&device, SIZE) != CUDA_SUCCESS;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_synchronous_upload_has_been_read_before_the_next_command),
        cmocka_unit_test(nobody_waits_for_an_asynchronous_one),
        cmocka_unit_test(nobody_waits_for_ever),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
