/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: what is sent, what is waited for, and stale handles. */
#include "cmocka_all.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/session/handle.h"
#include "client/link/link.h"
#include "client/stream/stream.h"
#include "fake_backend.h"
#include "gen/context_client.h"
#include "gen/core_client.h"
#include "gen/event_client.h"
#include "gen/graph_client.h"
#include "gen/stream_client.h"

static uint64_t waited(void)
{
    return towc_client_link(-1)->counters.replies_waited;
}

static void streams_are_made_and_ended_without_waiting(void **state)
{
    CUstream stream = NULL, other = NULL;
    unsigned long long a = 0, b = 0, c = 0;
    int priority = 0;
    unsigned flags = 0;
    uint64_t before = waited();
    assert_int_equal(towc_cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -9),
                     CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamCreate(&other, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
    assert_int_equal(priority, -5);
    assert_int_equal(towc_cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    assert_int_equal(towc_cuStreamGetId(stream, &a), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamGetId(other, &b), CUDA_SUCCESS);
    assert_true(a != b);
    assert_int_equal(towc_cuStreamDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamCreate(&other, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamGetId(other, &c), CUDA_SUCCESS);
    assert_true(b != c && a != c);
    assert_int_equal(waited(), before);
    assert_int_equal(towc_cuStreamSynchronize(stream), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.streams), 2);
    assert_int_equal(towc_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamSynchronize(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(towc_cuStreamDestroy_v2(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(towc_cuStreamDestroy_v2(other), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamCreate(&other, 77), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.streams), 0);
}

static void a_creation_that_failed_shows_on_use(void **state)
{
    CUstream stream = NULL;
    atomic_store(&tow_fake.fail_stream_create, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(towc_cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamSynchronize(stream), CUDA_ERROR_OUT_OF_MEMORY);
    atomic_store(&tow_fake.fail_stream_create, 0);
    assert_int_equal(towc_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    /* Errors of calls that nobody waited for come with the next one that is waited for. */
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
}

static void *in_a_thread(void *arg)
{
    unsigned long long id = 0;
    towc_cuCtxSetCurrent(arg);
    assert_int_equal(towc_cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamGetId(CU_STREAM_PER_THREAD, &id), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.streams), 1);
    return (void *)(uintptr_t)id;
}

static void a_per_thread_stream_ends_with_its_thread(void **state)
{
    CUcontext context = NULL;
    void *first = NULL, *second = NULL;
    pthread_t thread;
    towc_cuCtxGetCurrent(&context);
    assert_int_equal(pthread_create(&thread, NULL, in_a_thread, context), 0);
    pthread_join(thread, &first);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.streams), 0);
    assert_int_equal(pthread_create(&thread, NULL, in_a_thread, context), 0);
    pthread_join(thread, &second);
    assert_ptr_not_equal(first, second);
}

static void events_follow_the_rules(void **state)
{
    CUevent start = NULL, end = NULL, untimed = NULL;
    float ms = 0;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    uint64_t before = waited();
    assert_int_equal(towc_cuEventCreate(&start, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventRecord(start, NULL), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamWaitEvent(NULL, start, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamIsCapturing(NULL, &capture), CUDA_SUCCESS);
    assert_int_equal(capture, CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(waited(), before);
    assert_int_equal(towc_cuEventElapsedTime_v2(&ms, start, end), CUDA_SUCCESS);
    assert_true(ms == 1.5f);
    assert_int_equal(towc_cuEventElapsedTime_v2(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(towc_cuEventCreate(&end, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(towc_cuEventDestroy_v2(start), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventRecord(start, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(towc_cuEventQuery((CUevent)0x1234), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(towc_cuEventDestroy_v2(end), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventDestroy_v2(untimed), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&tow_fake.events), 0);
}

/* In a context where nothing else was waited for. */
static void an_event_that_was_waited_for_is_not_asked_for(void **state)
{
    CUcontext own = NULL;
    CUevent event = NULL;
    assert_int_equal(towc_cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventCreate(&event, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        uint64_t before = waited();
        assert_int_equal(towc_cuEventRecord(event, NULL), CUDA_SUCCESS);
        assert_int_equal(towc_cuEventSynchronize(event), CUDA_SUCCESS);
        assert_int_equal(waited(), before + 1);
        assert_int_equal(towc_cuEventQuery(event), CUDA_SUCCESS);
        assert_int_equal(towc_cuEventSynchronize(event), CUDA_SUCCESS);
        assert_int_equal(waited(), before + 1);
    }
    assert_int_equal(towc_cuEventDestroy_v2(event), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxDestroy_v2(own), CUDA_SUCCESS);
}

static void what_a_synchronisation_ended_is_not_asked_for(void **state)
{
    CUstream stream = NULL, other = NULL;
    CUevent event = NULL;
    assert_int_equal(towc_cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamCreate(&other, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventCreate(&event, 0), CUDA_SUCCESS);
    uint64_t before = waited();
    assert_int_equal(towc_cuEventQuery(event), CUDA_SUCCESS); /* was never recorded */
    assert_int_equal(waited(), before);

    assert_int_equal(towc_cuEventRecord(event, stream), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamSynchronize(other), CUDA_SUCCESS);
    before = waited();
    assert_int_equal(towc_cuEventQuery(event), CUDA_SUCCESS); /* that was another stream */
    assert_int_equal(waited(), before + 1);
    assert_int_equal(towc_cuEventSynchronize(event), CUDA_SUCCESS); /* but now it is known */
    assert_int_equal(waited(), before + 1);

    assert_int_equal(towc_cuEventRecord(event, stream), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamSynchronize(stream), CUDA_SUCCESS);
    before = waited();
    assert_int_equal(towc_cuEventQuery(event), CUDA_SUCCESS);
    assert_int_equal(waited(), before);

    assert_int_equal(towc_cuEventRecord(event, NULL), CUDA_SUCCESS);
    assert_int_equal(towc_cuCtxSynchronize(), CUDA_SUCCESS);
    before = waited();
    assert_int_equal(towc_cuEventQuery(event), CUDA_SUCCESS);
    assert_int_equal(waited(), before);
    assert_int_equal(towc_cuEventRecord(event, NULL), CUDA_SUCCESS);
    CUresult status = towc_cuEventQuery(event); /* recorded again since: the server will tell */
    while (status == CUDA_ERROR_NOT_READY) {
        status = towc_cuEventQuery(event);
    }
    assert_int_equal(status, CUDA_SUCCESS);

    towc_event_elsewhere(event); /* from now on a graph may record it as well */
    before = waited();
    assert_int_equal(towc_cuEventQuery(event), CUDA_SUCCESS);
    assert_int_equal(waited(), before + 1);
    assert_int_equal(towc_cuEventDestroy_v2(event), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamDestroy_v2(other), CUDA_SUCCESS);
}

static void what_was_in_a_context_goes_with_it(void **state)
{
    CUstream stream = NULL;
    CUevent event = NULL;
    CUcontext context = NULL;
    assert_int_equal(towc_cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventCreate(&event, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(towc_cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(towc_cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(towc_cuEventQuery(event), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(towc_cuStreamDestroy_v2(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

/* A graph's launch is waited for once graphs use an event that other processes know. */
static void launches_are_waited_for_if_others_may_see_them(void **state)
{
    CUevent shared = NULL, own = NULL;
    uint64_t id = 0, before = waited();
    assert_int_equal(towc_cuEventCreate(&own, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventCreate(&shared, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS),
                     CUDA_SUCCESS);
    assert_int_equal(towc_handle_mint(TOW_H_GRAPHEXEC, &id), CUDA_SUCCESS);
    CUgraphExec exec = (CUgraphExec)(uintptr_t)id; /* the server knows nothing of it */
    assert_int_equal(towc_cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_int_equal(waited(), before);
    assert_true(towc_cuCtxSynchronize() != CUDA_SUCCESS);
    cuGraphEventWaitNodeSetEvent(NULL, own);
    assert_int_equal(towc_cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
    assert_true(towc_cuCtxSynchronize() != CUDA_SUCCESS);
    cuGraphEventWaitNodeSetEvent(NULL, shared);
    before = waited();
    assert_true(towc_cuGraphLaunch(exec, NULL) != CUDA_SUCCESS);
    assert_int_equal(waited(), before + 1);
    assert_int_equal(towc_cuEventDestroy_v2(own), CUDA_SUCCESS);
    assert_int_equal(towc_cuEventDestroy_v2(shared), CUDA_SUCCESS);
}

int main(void)
{
    CUcontext context = NULL;
    setenv("TOWLINE_SERVER", "self:", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    if (towc_cuInit(0) != CUDA_SUCCESS ||
        towc_cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        towc_cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_made_and_ended_without_waiting),
        cmocka_unit_test(a_creation_that_failed_shows_on_use),
        cmocka_unit_test(a_per_thread_stream_ends_with_its_thread),
        cmocka_unit_test(events_follow_the_rules),
        cmocka_unit_test(an_event_that_was_waited_for_is_not_asked_for),
        cmocka_unit_test(what_a_synchronisation_ended_is_not_asked_for),
        cmocka_unit_test(launches_are_waited_for_if_others_may_see_them),
        cmocka_unit_test(what_was_in_a_context_goes_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
