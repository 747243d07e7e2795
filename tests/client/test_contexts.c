/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: their stack, primary ones, and what their end takes with it. */
#include "cmocka_all.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/stream/context.h"
#include "client/link/link.h"
#include "fake_backend.h"
#include "gen/context_client.h"
#include "gen/core_client.h"

static uint64_t waited(void)
{
    return towc_client_link(-1)->counters.replies_waited;
}

static void the_primary_context_has_one_handle_for_ever(void **state)
{
    struct towc_context *primary = towc_context_primary(0);
    CUcontext handle = primary->handle, again = NULL, current = NULL;
    size_t limit = 0;
    int active = -1;
    assert_int_equal(towc_cuDevicePrimaryCtxGetState(0, NULL, &active), CUDA_SUCCESS);
    assert_int_equal(active, 0);
    assert_int_equal(towc_cuCtxSetCurrent(handle), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE),
                     CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(atomic_load(&tow_fake.contexts), 0);
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    assert_ptr_equal(again, handle);
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.contexts), 1);
    assert_int_equal(towc_cuCtxGetCurrent(&current), CUDA_SUCCESS);
    assert_ptr_equal(current, handle);
    uint64_t before = waited();
    assert_int_equal(towc_cuCtxGetLimit(&limit, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
    assert_int_equal(limit, 1002);
    assert_int_equal(towc_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(waited(), before);
    assert_int_equal(towc_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.contexts), 0);
    assert_int_equal(towc_cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    assert_ptr_equal(again, handle);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(towc_cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(towc_cuCtxSetCurrent(NULL), CUDA_SUCCESS);
}

static int destroyed;
static void destroy_value(CUcontext context, void *key, void *value)
{
    assert_ptr_equal(context, towc_context_primary(0)->handle);
    assert_ptr_equal(value, &destroyed);
    destroyed++;
}

static void local_values_live_until_the_context_is_reset(void **state)
{
    static char a, b;
    void *value = NULL;
    CUcontext context = NULL;
    assert_int_equal(towc_context_get_local(&value, NULL, &a), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
    assert_int_equal(towc_context_get_local(&value, NULL, &a), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(towc_context_put_local(NULL, &a, &destroyed, destroy_value), CUDA_SUCCESS);
    assert_int_equal(towc_context_put_local(context, &b, &b, NULL), CUDA_SUCCESS);
    assert_int_equal(towc_context_get_local(&value, NULL, &a), CUDA_SUCCESS);
    assert_ptr_equal(value, &destroyed);
    assert_int_equal(towc_context_delete_local(context, &b), CUDA_SUCCESS);
    assert_int_equal(towc_context_get_local(&value, NULL, &b), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(towc_cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(destroyed, 1);
    assert_int_equal(towc_context_get_local(&value, context, &a), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(towc_cuCtxPopCurrent_v2(&context), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxPopCurrent_v2(&context), CUDA_ERROR_INVALID_CONTEXT);
}

static void created_contexts_stack_and_end(void **state)
{
    CUcontext first = NULL, second = NULL, current = NULL;
    CUdevice device = -1;
    unsigned long long a = 0, b = 0;
    assert_int_equal(towc_cuCtxCreate_v2(&first, 0, 1), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxCreate_v2(&second, 0, 2), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxGetDevice(&device), CUDA_SUCCESS);
    assert_int_equal(device, 2);
    assert_int_equal(towc_cuCtxGetDevice_v2(&device, first), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(towc_cuCtxGetId(first, &a), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxGetId(NULL, &b), CUDA_SUCCESS);
    assert_true(a != b);
    assert_int_equal(towc_cuCtxDestroy_v2(second), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxGetCurrent(&current), CUDA_SUCCESS);
    assert_ptr_equal(current, first);
    assert_int_equal(towc_cuCtxSetCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(towc_cuCtxDestroy_v2(second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(towc_cuCtxDestroy_v2(first), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxDestroy_v2(towc_context_primary(0)->handle),
                     CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(atomic_load(&tow_fake.contexts), 0);
    assert_int_equal(towc_cuCtxCreate_v2(&first, 0, 9), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(towc_cuCtxCreate_v2(&first, 0x10000, 0), CUDA_ERROR_INVALID_VALUE);
}

static void a_sticky_error_stays_until_the_reset(void **state)
{
    CUcontext context = NULL;
    size_t limit = 0;
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxSetCurrent(context), CUDA_SUCCESS);
    atomic_store(&tow_fake.fail_sync, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    atomic_store(&tow_fake.fail_sync, 0);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(towc_cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(towc_cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(towc_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

int main(void)
{
    setenv("TOWLINE_SERVER", "self:", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (towc_cuInit(0) != CUDA_SUCCESS) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_primary_context_has_one_handle_for_ever),
        cmocka_unit_test(local_values_live_until_the_context_is_reset),
        cmocka_unit_test(created_contexts_stack_and_end),
        cmocka_unit_test(a_sticky_error_stays_until_the_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
