/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads of one program on one connection. */
#include "cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "client/stream/context.h"
#include "client/stream/stream.h"
#include "fake_backend.h"
#include "gen/context_client.h"
#include "gen/core_client.h"
#include "gen/event_client.h"
#include "gen/graph_client.h"
#include "gen/stream_client.h"

enum { THREADS = 8, ROUNDS = 100 };

static atomic_int wrong;
static atomic_int values_destroyed, values_put;

#define RIGHT(call)                                                                                \
    do {                                                                                           \
        if ((call) != CUDA_SUCCESS) {                                                              \
            atomic_fetch_add(&wrong, 1);                                                           \
        }                                                                                          \
    } while (0)

static void *streams_and_events(void *arg)
{
    CUcontext context = arg;
    RIGHT(towc_cuCtxSetCurrent(context));
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream = NULL;
        CUevent event = NULL;
        CUstreamCaptureStatus capture;
        RIGHT(towc_cuStreamCreate(&stream, 0));
        RIGHT(towc_cuEventCreate(&event, 0));
        RIGHT(towc_cuEventRecord(event, stream));
        RIGHT(towc_cuStreamIsCapturing(stream, &capture));
        RIGHT(towc_cuStreamWaitEvent(CU_STREAM_PER_THREAD, event, 0));
        RIGHT(towc_cuEventSynchronize(event));
        if (i % 10 == 0) {
            RIGHT(towc_cuStreamSynchronize(stream));
        }
        RIGHT(towc_cuEventDestroy_v2(event));
        RIGHT(towc_cuStreamDestroy_v2(stream));
    }
    return NULL;
}

static void many_threads_use_one_session(void **state)
{
    CUcontext context = NULL;
    pthread_t threads[THREADS];
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, streams_and_events, context), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(towc_cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.streams), 0); /* the per-thread ones too */
    assert_int_equal(atomic_load(&tow_fake.events), 0);
    assert_int_equal(towc_cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

static void destroy_value(CUcontext context, void *key, void *value)
{
    CUcontext again = NULL;
    atomic_fetch_add(&values_destroyed, 1);
    /* Must neither hang nor bring the context back. */
    if (towc_cuDevicePrimaryCtxRetain(&again, 1) == CUDA_SUCCESS) {
        atomic_fetch_add(&wrong, 1);
    }
}

static void *retain_and_release(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        CUcontext context = NULL;
        void *value = NULL;
        RIGHT(towc_cuDevicePrimaryCtxRetain(&context, 1));
        RIGHT(towc_cuCtxPushCurrent_v2(context));
        RIGHT(towc_context_put_local(NULL, arg, &value, destroy_value));
        atomic_fetch_add(&values_put, 1);
        RIGHT(towc_context_get_local(&value, NULL, arg));
        RIGHT(towc_cuCtxSynchronize());
        RIGHT(towc_cuCtxPopCurrent_v2(&context));
        RIGHT(towc_cuDevicePrimaryCtxRelease_v2(1));
    }
    return NULL;
}

static void a_primary_context_comes_and_goes_with_its_users(void **state)
{
    static char keys[THREADS];
    pthread_t threads[THREADS];
    atomic_store(&wrong, 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, retain_and_release, &keys[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(atomic_load(&tow_fake.contexts), 0);
    assert_true(atomic_load(&values_destroyed) > 0);
    assert_true(atomic_load(&values_destroyed) <= atomic_load(&values_put));
}

int main(void)
{
    setenv("TOWLINE_SERVER", "self:", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (towc_cuInit(0) != CUDA_SUCCESS) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_use_one_session),
        cmocka_unit_test(a_primary_context_comes_and_goes_with_its_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
