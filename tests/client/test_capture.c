/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that are captured: what goes into the graph, and what a capture forbids. */
#include "cmocka_all.h"

#include <stdlib.h>

#include "client/session/state.h"
#include "client/link/link.h"
#include "fake_backend.h"
#include "gen/context_client.h"
#include "gen/core_client.h"
#include "gen/event_client.h"
#include "gen/graph_client.h"
#include "gen/stream_client.h"

#define OK(call) assert_int_equal(call, CUDA_SUCCESS)

enum { MANY = 20 };

static CUstream stream, side;
static CUevent event, joint;

static uint64_t waited(void)
{
    return towc_client_link(-1)->counters.replies_waited;
}

static CUstreamCaptureStatus status_of(CUstream of)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    OK(towc_cuStreamIsCapturing(of, &status));
    return status;
}

static int make(void **state)
{
    OK(towc_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(towc_cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(towc_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(towc_cuEventCreate(&joint, CU_EVENT_DISABLE_TIMING));
    return 0;
}

static int end(void **state)
{
    OK(towc_cuEventDestroy_v2(event));
    OK(towc_cuEventDestroy_v2(joint));
    OK(towc_cuStreamDestroy_v2(stream));
    OK(towc_cuStreamDestroy_v2(side));
    OK(towc_cuCtxSynchronize());
    assert_int_equal(atomic_load(&tow_fake.graphs), 0);
    return 0;
}

static void record_many(CUstream into)
{
    for (int i = 0; i < MANY; i++) {
        OK(towc_cuEventRecord(event, into));
        assert_int_equal(status_of(into), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    }
}

static void work_of_a_capture_is_not_waited_for(void **state)
{
    CUgraph graph = NULL;
    OK(towc_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    uint64_t before = waited();
    record_many(stream);
    assert_int_equal(waited(), before + 1); /* whether the stream captures */
    OK(towc_cuStreamEndCapture(stream, &graph));
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(towc_cuGraphDestroy(graph));
}

static void what_began_beside_it_is_asked_for_again(void **state)
{
    CUgraph graph = NULL;
    OK(towc_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
    uint64_t before = waited();
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(waited(), before);
    OK(towc_cuEventRecord(joint, stream));
    OK(towc_cuStreamWaitEvent(side, joint, 0)); /* draws it into the capture */
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    before = waited();
    record_many(side);
    OK(towc_cuEventRecord(joint, side));
    assert_int_equal(waited(), before);
    OK(towc_cuStreamWaitEvent(stream, joint, 0)); /* what captures goes on to do so */
    before = waited();
    record_many(stream);
    assert_int_equal(waited(), before);
    OK(towc_cuStreamEndCapture(stream, &graph));
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(towc_cuGraphDestroy(graph));
}

static void a_capture_that_failed_in_silence_gives_no_graph(void **state)
{
    CUgraph graph = (CUgraph)1;
    OK(towc_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    atomic_store(&tow_fake.fail_record, CUDA_ERROR_OUT_OF_MEMORY);
    OK(towc_cuEventRecord(event, stream));
    assert_int_equal(towc_cuStreamEndCapture(stream, &graph), CUDA_ERROR_OUT_OF_MEMORY);
    assert_null(graph);
    atomic_store(&tow_fake.fail_record, 0);
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
    OK(towc_cuCtxSynchronize()); /* it has been told */
    assert_int_equal(atomic_load(&tow_fake.graphs), 0);
}

static void after_a_failure_calls_are_waited_for(void **state)
{
    CUgraph graph = NULL;
    OK(towc_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    record_many(stream);
    /* Refused, and the capture is invalid. */
    assert_int_equal(towc_cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    atomic_store(&tow_fake.fail_record, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(towc_cuEventRecord(event, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    atomic_store(&tow_fake.fail_record, 0);
    assert_int_equal(towc_cuStreamEndCapture(stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(towc_cuCtxSynchronize());
}

static void the_id_of_a_capture_is_asked_for_once(void **state)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL, of = NULL;
    cuuint64_t first = 0, second = 0;
    OK(towc_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(towc_cuStreamGetCaptureInfo(stream, &status, &first));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    uint64_t before = waited();
    status = CU_STREAM_CAPTURE_STATUS_NONE;
    OK(towc_cuStreamGetCaptureInfo(stream, &status, &second));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(waited(), before);
    assert_true(first != 0 && first == second);
    OK(towc_cuStreamGetCaptureInfo_v2(stream, &status, &second, &of, NULL, NULL));
    assert_int_equal(waited(), before + 1); /* more is wanted */
    OK(towc_cuStreamEndCapture(stream, &graph));
    assert_ptr_equal(of, graph);
    OK(towc_cuGraphDestroy(graph));
}

/* Streams are used again: another's past says nothing. */
static void a_new_stream_has_no_past(void **state)
{
    CUgraph graph = NULL;
    CUstream later = NULL;
    OK(towc_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(towc_cuEventRecord(joint, stream));
    OK(towc_cuStreamWaitEvent(side, joint, 0));
    assert_int_equal(status_of(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(towc_cuStreamDestroy_v2(side));
    OK(towc_cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
    assert_int_equal(status_of(later), CU_STREAM_CAPTURE_STATUS_NONE);
    side = later;
    OK(towc_cuStreamEndCapture(stream, &graph));
    OK(towc_cuGraphDestroy(graph));
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
        cmocka_unit_test_setup_teardown(work_of_a_capture_is_not_waited_for, make, end),
        cmocka_unit_test_setup_teardown(what_began_beside_it_is_asked_for_again, make, end),
        cmocka_unit_test_setup_teardown(a_capture_that_failed_in_silence_gives_no_graph, make, end),
        cmocka_unit_test_setup_teardown(after_a_failure_calls_are_waited_for, make, end),
        cmocka_unit_test_setup_teardown(the_id_of_a_capture_is_asked_for_once, make, end),
        cmocka_unit_test_setup_teardown(a_new_stream_has_no_past, make, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
