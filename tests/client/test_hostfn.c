/* SPDX-License-Identifier: Apache-2.0 */
/* Host functions: order, numbers, and a server that is lost while one runs. */
#include "cmocka_all.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/stream/context.h"
#include "client/callback/hostfn.h"
#include "client/link/link.h"
#include "fake_backend.h"
#include "gen/context_client.h"
#include "gen/core_client.h"
#include "gen/launch_client.h"
#include "gen/stream_client.h"

enum { COUNT = 200 };

static atomic_int ran;
static int order[COUNT];
static pthread_t runner;

static void note(void *user)
{
    if (ran == 0) {
        runner = pthread_self();
    }
    assert_true(pthread_equal(runner, pthread_self()));
    order[ran] = (int)(intptr_t)user;
    atomic_fetch_add(&ran, 1);
}

static void note_stream(CUstream stream, CUresult status, void *user)
{
    assert_ptr_equal(stream, CU_STREAM_LEGACY);
    assert_int_equal(status, CUDA_SUCCESS);
    note(user);
}

static void await(int count)
{
    for (int i = 0; i < 10000 && atomic_load(&ran) < count; i++) {
        struct timespec ms = {0, 1000000};
        nanosleep(&ms, NULL);
    }
    assert_int_equal(atomic_load(&ran), count);
}

static void host_functions_run_in_order_on_one_thread(void **state)
{
    for (int i = 0; i < COUNT / 2; i++) {
        assert_int_equal(towc_cuLaunchHostFunc(NULL, note, (void *)(intptr_t)(2 * i)),
                         CUDA_SUCCESS);
        assert_int_equal(towc_cuStreamAddCallback(CU_STREAM_LEGACY, note_stream,
                                                  (void *)(intptr_t)(2 * i + 1), 0),
                         CUDA_SUCCESS);
    }
    /* Nobody waits in the library meanwhile: somebody must listen all the same. */
    await(COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(order[i], i);
    }
    assert_false(pthread_equal(runner, pthread_self()));
    assert_int_equal(towc_cuLaunchHostFunc(NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(towc_cuLaunchHostFunc((CUstream)0x77, note, NULL), CUDA_ERROR_INVALID_HANDLE);
}

static CUresult inside[7];

static void synchronise(void *user)
{
    CUcontext current = NULL;
    inside[0] = towc_cuCtxGetCurrent(&current);
    inside[1] = towc_cuCtxSetCurrent(user);
    inside[2] = towc_cuCtxPushCurrent_v2(user);
    inside[3] = towc_cuCtxPopCurrent_v2(&current);
    inside[4] = towc_cuStreamSynchronize(NULL);
    inside[5] = towc_cuCtxSynchronize();
    inside[6] = towc_cuStreamWriteValue32_v2(NULL, 0x1000, 1, 0);
    atomic_fetch_add(&ran, 1);
}

static void a_host_function_may_not_wait_for_the_gpu(void **state)
{
    CUcontext context = NULL;
    assert_int_equal(towc_cuCtxGetCurrent(&context), CUDA_SUCCESS);
    assert_int_equal(towc_cuLaunchHostFunc(NULL, synchronise, context), CUDA_SUCCESS);
    await(COUNT + 1);
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        assert_int_equal(inside[i], CUDA_ERROR_NOT_PERMITTED);
    }
}

static sem_t at_gate, gate;

static void pass_gate(void *user)
{
    sem_post(&at_gate);
    sem_wait(&gate);
    atomic_fetch_add(&ran, 1);
}

/* Lets a function through its gate when the main thread waits. */
static void *open_gate(void *user)
{
    char path[64], state = 'R';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    while (state != 'S') {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
        fclose(file);
    }
    sem_post(&gate);
    return NULL;
}

/* Those of other contexts stay what they are, and count. */
static void functions_that_never_run_end_with_their_context(void **state)
{
    CUcontext context = NULL, others[2] = {NULL, NULL};
    assert_int_equal(towc_cuCtxGetCurrent(&context), CUDA_SUCCESS);
    const struct towc_link_hostfns *count = &towc_context_current()->link->hostfns;
    pthread_t opener;
    sem_init(&at_gate, 0, 0);
    sem_init(&gate, 0, 0);
    assert_int_equal(towc_cuLaunchHostFunc(NULL, pass_gate, NULL), CUDA_SUCCESS);
    sem_wait(&at_gate);
    atomic_store(&tow_fake.lose_functions, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(towc_cuCtxCreate_v2(&others[i], 0, 0), CUDA_SUCCESS);
        for (int j = 0; j < 3; j++) {
            assert_int_equal(towc_cuLaunchHostFunc(NULL, note, NULL), CUDA_SUCCESS);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&count->turns), 1 + 3 * (2 - i));
        assert_int_equal(atomic_load(&count->writers), 1 + 3 * (2 - i));
        assert_int_equal(towc_cuCtxDestroy_v2(others[i]), CUDA_SUCCESS);
    }
    atomic_store(&tow_fake.lose_functions, false);
    assert_int_equal(atomic_load(&count->turns), 1);
    assert_int_equal(atomic_load(&count->writers), 1);
    assert_int_equal(towc_cuCtxSetCurrent(context), CUDA_SUCCESS);
    assert_false(towc_hostfn_wait_all(towc_context_current()->link, TOW_TIME_MS));
    pthread_create(&opener, NULL, open_gate, NULL);
    assert_true(towc_hostfn_wait_all(towc_context_current()->link, 1000 * TOW_TIME_S));
    pthread_join(opener, NULL);
    assert_int_equal(atomic_load(&count->turns), 0);
    assert_int_equal(atomic_load(&count->writers), 0);
}

int main(void)
{
    CUcontext context = NULL;
    setenv("TOWLINE_SERVER", "self:", 1);
    if (towc_cuInit(0) != CUDA_SUCCESS ||
        towc_cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        towc_cuCtxSetCurrent(context) != CUDA_SUCCESS) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_functions_run_in_order_on_one_thread),
        cmocka_unit_test(a_host_function_may_not_wait_for_the_gpu),
        cmocka_unit_test(functions_that_never_run_end_with_their_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
