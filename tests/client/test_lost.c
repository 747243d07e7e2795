/* SPDX-License-Identifier: Apache-2.0 */
/* A server that is lost: every call says so, none hangs. */
#include "cmocka_all.h"

#include <stdlib.h>

#include "base/log.h"
#include "fake_backend.h"
#include "gen/context_client.h"
#include "gen/core_client.h"
#include "gen/device_client.h"
#include "gen/stream_client.h"

static void a_lost_server_is_an_error_from_every_later_call(void **state)
{
    CUcontext context = NULL;
    CUstream stream = NULL;
    int count = 0;
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxSetCurrent(context), CUDA_SUCCESS);
    tow_fake_cut();
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(towc_cuStreamCreate(&stream, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(towc_cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&context, 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
    /* What the client knows by itself it still answers. */
    assert_int_equal(towc_cuDeviceGetCount(&count), CUDA_SUCCESS);
    assert_int_equal(count, 3);
}

int main(void)
{
    setenv("TOWLINE_SERVER", "self:", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (towc_cuInit(0) != CUDA_SUCCESS) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_server_is_an_error_from_every_later_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
