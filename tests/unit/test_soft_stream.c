/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, host functions, memory operations: what waits for what. */
#include "soft_lib.h"
#include "backend/soft/ground/state.h"
#include "base/mutex.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/event.h"
#include "gen/launch.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* A stream that is busy until `*flag` (host memory) is set. */
static _Atomic unsigned *flag;
static CUfunction spin;

static void occupy(CUstream stream)
{
    CUdeviceptr p = (uintptr_t)flag;
    void *params[] = {&p};
    OK(soft_launch(spin, 1, 1, stream, params));
}

static int setup(void **state)
{
    int rc = soft_setup(state);
    if (rc == 0) {
        OK(tow_drive(cu, cuMemHostAlloc)((void **)&flag, 64, 0));
        *flag = 0;
        spin = soft_function(soft_module(), "spin");
    }
    return rc;
}

static void launches_return_before_kernels_end(void **state)
{
    (void)state;
    CUstream stream;
    OK(tow_drive(cu, cuStreamCreate)(&stream, 0));
    OK(tow_drive(cu, cuStreamQuery)(stream));
    occupy(stream);
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(stream));
    *flag = 1;
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    OK(tow_drive(cu, cuStreamQuery)(stream));
    OK(tow_drive(cu, cuStreamDestroy_v2)(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuStreamSynchronize)(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuStreamDestroy_v2)(stream));
}

static void streams_run_side_by_side(void **state)
{
    (void)state;
    /* The first waits for what the second does: on one queue this would never end. */
    CUstream a, b;
    OK(tow_drive(cu, cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    occupy(a);
    CUfunction fill = soft_function(soft_module(), "fill");
    CUdeviceptr p = (uintptr_t)flag;
    unsigned one = 1;
    void *params[] = {&p, &one};
    OK(soft_launch(fill, 1, 1, b, params));
    OK(tow_drive(cu, cuStreamSynchronize)(a));
    OK(tow_drive(cu, cuStreamSynchronize)(b));
}

static void the_legacy_stream_waits_for_blocking_streams_only(void **state)
{
    (void)state;
    CUstream blocking, free_running;
    OK(tow_drive(cu, cuStreamCreate)(&blocking, CU_STREAM_DEFAULT));
    OK(tow_drive(cu, cuStreamCreate)(&free_running, CU_STREAM_NON_BLOCKING));
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4));
    occupy(free_running);
    OK(tow_drive(cu, cuMemsetD8_v2)(p, 1, 4));
    OK(tow_drive(cu, cuStreamSynchronize)(NULL)); /* not held up */
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(free_running));
    *flag = 1;
    OK(tow_drive(cu, cuStreamSynchronize)(free_running));

    *flag = 0;
    occupy(blocking);
    OK(tow_drive(cu, cuMemsetD8_v2)(
        p, 2, 4)); /* held up, and what follows in another blocking stream too */
    CUstream other;
    OK(tow_drive(cu, cuStreamCreate)(&other, CU_STREAM_DEFAULT));
    OK(tow_drive(cu, cuMemsetD8Async)(p, 3, 4, other));
    usleep(5000);
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(NULL));
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(other));
    *flag = 1;
    OK(tow_drive(cu, cuCtxSynchronize)());
    unsigned out;
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&out, p, 4));
    assert_int_equal(out, 0x03030303);
}

static void events_order_streams_and_measure_time(void **state)
{
    (void)state;
    CUstream a, b;
    CUevent start, middle, end, untimed;
    OK(tow_drive(cu, cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuEventCreate)(&start, 0));
    OK(tow_drive(cu, cuEventCreate)(&middle, 0));
    OK(tow_drive(cu, cuEventCreate)(&end, CU_EVENT_BLOCKING_SYNC));
    OK(tow_drive(cu, cuEventCreate)(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(tow_drive(cu, cuEventQuery)(start));
    OK(tow_drive(cu, cuEventSynchronize)(start));
    float ms;
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuEventElapsedTime)(&ms, start, end));
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4));
    OK(tow_drive(cu, cuEventRecord)(start, a));
    occupy(a);
    OK(tow_drive(cu, cuMemsetD32Async)(p, 5, 1, a));
    OK(tow_drive(cu, cuEventRecord)(middle, a));
    OK(tow_drive(cu, cuStreamWaitEvent)(b, middle, 0));
    unsigned out = 0;
    unsigned *pinned;
    OK(tow_drive(cu, cuMemHostAlloc)((void **)&pinned, 4, 0));
    *pinned = 0;
    OK(tow_drive(cu, cuMemcpyDtoHAsync_v2)(pinned, p, 4, b));
    OK(tow_drive(cu, cuEventRecord)(end, b));
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuEventQuery)(end));
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuEventElapsedTime)(&ms, start, end));
    usleep(20000);
    assert_int_equal(*pinned, 0);
    *flag = 1;
    OK(tow_drive(cu, cuEventSynchronize)(end));
    assert_int_equal(*pinned, 5);
    OK(tow_drive(cu, cuEventElapsedTime)(&ms, start, end));
    assert_true(ms >= 19.0f && ms < 5000.0f);
    OK(tow_drive(cu, cuEventElapsedTime_v2)(&ms, end, start));
    assert_true(ms <= -19.0f);
    OK(tow_drive(cu, cuEventRecord)(untimed, a));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuEventElapsedTime)(&ms, start, untimed));
    OK(tow_drive(cu, cuEventDestroy_v2)(start));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuEventDestroy_v2)(start));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuEventRecord)(start, a));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuEventCreate)(&start, 64));
    (void)out;
}

static void pageable_memory_is_read_before_an_async_copy_returns(void **state)
{
    (void)state;
    CUstream stream;
    OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    size_t size = 3 * MIB;
    unsigned char *host = malloc(size), *back = malloc(size);
    memset(host, 7, size);
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, size));
    occupy(stream);
    OK(tow_drive(cu, cuMemcpyHtoDAsync_v2)(p, host, size, stream));
    memset(host, 9, size);
    *flag = 1;
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(back, p, size));
    for (size_t i = 0; i < size; i += 1001) {
        assert_int_equal(back[i], 7);
    }
    free(host);
    free(back);
}

struct calls {
    int order[8];
    int count;
    int sleep_us;
};

static void host_function(void *user)
{
    struct calls *calls = user;
    usleep((useconds_t)calls->sleep_us);
    calls->order[calls->count++] = 1;
}

static void stream_callback(CUstream stream, CUresult status, void *user)
{
    struct calls *calls = user;
    assert_non_null(stream);
    assert_int_equal(status, CUDA_SUCCESS);
    calls->order[calls->count++] = 2;
}

static void host_functions_run_in_order(void **state)
{
    (void)state;
    struct calls calls = {.sleep_us = 10000};
    CUstream stream;
    OK(tow_drive(cu, cuStreamCreate)(&stream, 0));
    OK(tow_drive(cu, cuLaunchHostFunc)(stream, host_function, &calls));
    OK(tow_drive(cu, cuStreamAddCallback)(stream, stream_callback, &calls, 0));
    OK(tow_drive(cu, cuLaunchHostFunc)(stream, host_function, &calls));
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(calls.count, 3);
    assert_int_equal(calls.order[0], 1);
    assert_int_equal(calls.order[1], 2);
    assert_int_equal(calls.order[2], 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuLaunchHostFunc)(stream, NULL, NULL));
}

static void values_in_memory_hold_streams(void **state)
{
    (void)state;
    CUstream a, b;
    OK(tow_drive(cu, cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 16));
    OK(tow_drive(cu, cuMemsetD32_v2)(p, 0, 4));
    OK(tow_drive(cu, cuStreamSynchronize)(NULL));
    OK(tow_drive(cu, cuStreamWaitValue32)(a, p, 3, CU_STREAM_WAIT_VALUE_GEQ));
    OK(tow_drive(cu, cuMemsetD32Async)(p + 4, 11, 1, a));
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(a));
    OK(tow_drive(cu, cuStreamWriteValue32)(b, p, 2, 0));
    OK(tow_drive(cu, cuStreamSynchronize)(b));
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(a));
    OK(tow_drive(cu, cuStreamWriteValue32)(b, p, 3, 0));
    OK(tow_drive(cu, cuStreamSynchronize)(a));
    unsigned out;
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&out, p + 4, 4));
    assert_int_equal(out, 11);
    /* Released by the host itself, without any call. */
    OK(tow_drive(cu, cuStreamWaitValue64)(a, (CUdeviceptr)(uintptr_t)flag, 1,
                                          CU_STREAM_WAIT_VALUE_EQ));
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(a));
    *flag = 1;
    OK(tow_drive(cu, cuStreamSynchronize)(a));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuStreamWaitValue32)(a, p + 2, 1, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuStreamWriteValue32)(a, 0x10, 1, 0));
}

static void destroyed_streams_finish_their_work(void **state)
{
    (void)state;
    CUstream stream;
    OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4));
    occupy(stream);
    OK(tow_drive(cu, cuMemsetD32Async)(p, 21, 1, stream));
    OK(tow_drive(cu, cuStreamDestroy_v2)(stream));
    *flag = 1;
    OK(tow_drive(cu, cuCtxSynchronize)());
    unsigned out;
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&out, p, 4));
    assert_int_equal(out, 21);
}

static void properties_of_streams(void **state)
{
    (void)state;
    CUstream a, b;
    int least, greatest, priority;
    OK(tow_drive(cu, cuCtxGetStreamPriorityRange)(&least, &greatest));
    assert_true(greatest < least);
    OK(tow_drive(cu, cuStreamCreateWithPriority)(&a, CU_STREAM_NON_BLOCKING, -100));
    OK(tow_drive(cu, cuStreamGetPriority)(a, &priority));
    assert_int_equal(priority, greatest);
    unsigned flags;
    OK(tow_drive(cu, cuStreamGetFlags)(a, &flags));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    unsigned long long ia, ib, legacy, legacy_too, mine;
    OK(tow_drive(cu, cuStreamCreate)(&b, 0));
    OK(tow_drive(cu, cuStreamGetId)(a, &ia));
    OK(tow_drive(cu, cuStreamGetId)(b, &ib));
    OK(tow_drive(cu, cuStreamGetId)(NULL, &legacy));
    OK(tow_drive(cu, cuStreamGetId)((CUstream)1, &legacy_too));
    OK(tow_drive(cu, cuStreamGetId)((CUstream)2, &mine));
    assert_int_not_equal(ia, ib);
    assert_int_equal(legacy, legacy_too);
    assert_int_not_equal(legacy, mine);
    CUcontext of;
    OK(tow_drive(cu, cuStreamGetCtx)(a, &of));
    assert_ptr_equal(of, context);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuStreamCreate)(&a, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuStreamCreate)(NULL, 0));
}

static void *worker(void *arg)
{
    CUdeviceptr p;
    CUstream stream;
    unsigned *failures = arg, out[256];
    CUmodule module;
    CUfunction fill;
    *failures = 1;
    if (tow_drive(cu, cuCtxSetCurrent)(context) != CUDA_SUCCESS ||
        tow_drive(cu, cuStreamCreate)(&stream, 0) != CUDA_SUCCESS ||
        tow_drive(cu, cuMemAlloc_v2)(&p, sizeof out) != CUDA_SUCCESS ||
        tow_drive(cu, cuModuleLoadData)(&module, soft_kernels) != CUDA_SUCCESS ||
        tow_drive(cu, cuModuleGetFunction)(&fill, module, "fill") != CUDA_SUCCESS) {
        return NULL;
    }
    *failures = 0;
    for (unsigned i = 0; i < 50; i++) {
        unsigned value = i * 1000 + (unsigned)(uintptr_t)arg % 997;
        void *params[] = {&p, &value};
        CUresult result = soft_launch(fill, 4, 64, stream, params);
        result = result == CUDA_SUCCESS
                     ? tow_drive(cu, cuMemcpyDtoHAsync_v2)(out, p, sizeof out, stream)
                     : result;
        result = result == CUDA_SUCCESS ? tow_drive(cu, cuStreamSynchronize)(stream) : result;
        *failures += result != CUDA_SUCCESS || out[0] != value || out[255] != value;
    }
    *failures += tow_drive(cu, cuStreamDestroy_v2)(stream) != CUDA_SUCCESS;
    *failures += tow_drive(cu, cuMemFree_v2)(p) != CUDA_SUCCESS;
    *failures += tow_drive(cu, cuModuleUnload)(module) != CUDA_SUCCESS;
    return NULL;
}

static void sixteen_threads_with_a_stream_each(void **state)
{
    (void)state;
    pthread_t threads[16];
    unsigned failures[16];
    for (int i = 0; i < 16; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &failures[i]), 0);
    }
    for (int i = 0; i < 16; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(failures[i], 0);
    }
}

static void *destroyer(void *arg)
{
    usleep(20000);
    tow_drive(cu, cuCtxDestroy_v2)(arg);
    return NULL;
}

static void waiting_ends_when_the_context_is_destroyed(void **state)
{
    (void)state;
    CUcontext own;
    OK(tow_drive(cu, cuCtxCreate_v2)(&own, 0, 0));
    CUfunction forever = soft_function(soft_module(), "forever");
    OK(soft_launch(forever, 1, 1, NULL, NULL));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroyer, own), 0);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, tow_drive(cu, cuStreamSynchronize)(NULL));
    pthread_join(thread, NULL);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, tow_drive(cu, cuCtxSynchronize)());
}

/* Work of another context that waits for an event goes on when the event's context ends. */
static void an_event_does_not_hold_others_beyond_its_context(void **state)
{
    (void)state;
    CUcontext own;
    CUstream stream;
    CUevent event, passed;
    OK(tow_drive(cu, cuCtxCreate_v2)(&own, 0, 0));
    CUfunction forever = soft_function(soft_module(), "forever");
    OK(tow_drive(cu, cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    OK(soft_launch(forever, 1, 1, NULL, NULL));
    OK(tow_drive(cu, cuEventRecord)(event, NULL));
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuEventCreate)(&passed, CU_EVENT_DISABLE_TIMING));
    OK(tow_drive(cu, cuStreamWaitEvent)(stream, event, 0));
    OK(tow_drive(cu, cuEventRecord)(passed, stream));
    FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuEventQuery)(passed));
    OK(tow_drive(cu, cuCtxDestroy_v2)(own));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    OK(tow_drive(cu, cuEventQuery)(passed));
    OK(tow_drive(cu, cuEventDestroy_v2)(passed));
    OK(tow_drive(cu, cuStreamDestroy_v2)(stream));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, soft_teardown)

/* ---- as strict as hardware ---- */

static int strict_setup(void **state)
{
    (void)state;
    struct tow_soft_options options = {.memory = 256 * MIB, .strict = true};
    return soft_open_with(&options);
}

static atomic_int gate, inside, most_inside;

/* Stands until the gate is open; counts how many do at once. */
static void stand(void *user)
{
    (void)user;
    int now = atomic_fetch_add(&inside, 1) + 1;
    if (now > atomic_load(&most_inside)) {
        atomic_store(&most_inside, now);
    }
    while (atomic_load(&gate) == 0) {
        usleep(200);
    }
    atomic_fetch_sub(&inside, 1);
}

struct stranger {
    CUdeviceptr freed;
    CUcontext context;
    atomic_bool through;
};

static void *free_it(void *user)
{
    struct stranger *s = user;
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    OK(tow_drive(cu, cuMemFree_v2)(s->freed));
    atomic_store(&s->through, true);
    return NULL;
}

static void *ask_it(void *user)
{
    struct stranger *s = user;
    CUdevice device;
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    OK(tow_drive(cu, cuCtxGetDevice)(&device));
    atomic_store(&s->through, true);
    return NULL;
}

static void strictly_a_call_that_waits_keeps_the_others_out(void **state)
{
    (void)state;
    CUstream a, b;
    struct stranger freer = {0}, asker = {0};
    pthread_t threads[2];
    OK(tow_drive(cu, cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuMemAlloc_v2)(&freer.freed, 4096));
    OK(tow_drive(cu, cuLaunchHostFunc)(a, stand, NULL));
    OK(tow_drive(cu, cuLaunchHostFunc)(b, stand, NULL));
    assert_int_equal(pthread_create(&threads[0], NULL, free_it, &freer), 0);
    for (bool waits = false; !waits;) { /* until it keeps the others out */
        usleep(200);
        tow_mutex_lock(&tow_soft.lock);
        waits = tow_soft.held;
        tow_mutex_unlock(&tow_soft.lock);
    }
    assert_int_equal(pthread_create(&threads[1], NULL, ask_it, &asker), 0);
    usleep(30000);
    assert_false(atomic_load(&freer.through));
    assert_false(atomic_load(&asker.through));
    atomic_store(&gate, 1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    OK(tow_drive(cu, cuCtxSynchronize)());
    assert_int_equal(atomic_load(&most_inside), 1); /* all host functions have one thread */
}

static void *destroy_it(void *user)
{
    struct stranger *s = user;
    OK(tow_drive(cu, cuCtxDestroy_v2)(s->context));
    atomic_store(&s->through, true);
    return NULL;
}

/* In the primary context; the stranger's is another one. */
static void stand_beside(struct stranger *s)
{
    CUstream stream;
    atomic_store(&gate, 0);
    OK(tow_drive(cu, cuCtxCreate_v2)(&s->context, 0, 0));
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuLaunchHostFunc)(stream, stand, NULL));
    while (atomic_load(&inside) == 0) {
        usleep(200);
    }
}

static void a_context_ends_beside_functions_of_others(void **state)
{
    (void)state;
    struct stranger s = {0};
    stand_beside(&s);
    OK(tow_drive(cu, cuCtxDestroy_v2)(s.context));
    assert_int_equal(atomic_load(&inside), 1);
    atomic_store(&gate, 1);
    OK(tow_drive(cu, cuCtxSynchronize)());
}

static void strictly_the_end_of_a_context_waits_for_functions_of_others(void **state)
{
    (void)state;
    struct stranger s = {0};
    pthread_t thread;
    stand_beside(&s);
    assert_int_equal(pthread_create(&thread, NULL, destroy_it, &s), 0);
    usleep(30000);
    assert_false(atomic_load(&s.through));
    atomic_store(&gate, 1);
    pthread_join(thread, NULL);
    OK(tow_drive(cu, cuCtxSynchronize)());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(launches_return_before_kernels_end),
        TEST(streams_run_side_by_side),
        TEST(the_legacy_stream_waits_for_blocking_streams_only),
        TEST(events_order_streams_and_measure_time),
        TEST(pageable_memory_is_read_before_an_async_copy_returns),
        TEST(host_functions_run_in_order),
        TEST(values_in_memory_hold_streams),
        TEST(destroyed_streams_finish_their_work),
        TEST(properties_of_streams),
        TEST(sixteen_threads_with_a_stream_each),
        TEST(waiting_ends_when_the_context_is_destroyed),
        TEST(an_event_does_not_hold_others_beyond_its_context),
        cmocka_unit_test_setup_teardown(strictly_a_call_that_waits_keeps_the_others_out,
                                        strict_setup, soft_teardown),
        cmocka_unit_test_setup_teardown(strictly_the_end_of_a_context_waits_for_functions_of_others,
                                        strict_setup, soft_teardown),
        TEST(a_context_ends_beside_functions_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
