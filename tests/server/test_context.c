/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that end while other threads make, use or end some. The driver here does, on its thread,
 * what another thread does meanwhile. */
#include "cmocka_all.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/context_server.h"
#include "gen/device_server.h"
#include "gen/green_server.h"
#include "gen/memory_server.h"
#include "gen/stream.h"
#include "server/family/context.h"
#include "fake_session.h"
#include "server/session/session.h"
#include "wire/id.h"

enum { PRIMARY = 3, GREEN = 5, OTHER = 6, THREAD = 1, PAGE = 4096 };

static struct tows_session *session;
static struct tow_driver driver;
static unsigned made, contexts_destroyed, greens_destroyed, resets, unregistered;
static _Thread_local unsigned entered; /* how often the driver was told the current context */
static CUresult entering;              /* what it answers */
static _Thread_local bool malformed;   /* what the thread's last command was */
static void (*on_synchronize)(void), (*on_set_current)(CUcontext context);

static const uint64_t primary_id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 1, PRIMARY);
static const uint64_t green_id = TOW_ID_MAKE(TOW_H_GREENCTX, 0, 1, 20);
static const uint64_t of_green_id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 1, GREEN);
static const uint64_t other_id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 1, OTHER);
#define PRIMARY_HANDLE ((CUcontext)(uintptr_t)0x100)
#define OF_GREEN_HANDLE ((CUcontext)(uintptr_t)0x200)
#define GREEN_HANDLE ((CUgreenCtx)(uintptr_t)0x300)

/* ---- the driver ---- */

static CUresult fake_set_current(CUcontext context)
{
    void (*now)(CUcontext) = on_set_current;
    if (now != NULL) {
        now(context);
    }
    entered++;
    return entering;
}

static CUresult fake_synchronize(void)
{
    void (*now)(void) = on_synchronize;
    on_synchronize = NULL;
    if (now != NULL) {
        now();
    }
    return CUDA_SUCCESS;
}

static CUresult fake_create(CUcontext *ret, unsigned flags, CUdevice device)
{
    (void)flags, (void)device;
    *ret = (CUcontext)(uintptr_t)(0x1000 + 16 * made++);
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ret)
{
    *ret = NULL;
    return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult fake_device(CUdevice *ret)
{
    *ret = 0;
    return CUDA_SUCCESS;
}

static CUresult fake_destroy(CUcontext context)
{
    (void)context;
    contexts_destroyed++;
    return CUDA_SUCCESS;
}

static CUresult fake_retain(CUcontext *ret, CUdevice device)
{
    (void)device;
    *ret = PRIMARY_HANDLE;
    return CUDA_SUCCESS;
}

static CUresult fake_reset(CUdevice device)
{
    (void)device;
    /* Nobody is at anything of it any more. */
    assert_int_equal(atomic_load(&session->contexts_ending[1]), 0);
    assert_false(tows_handles_is_ending(&session->handles, of_green_id));
    resets++;
    return CUDA_SUCCESS;
}

static CUresult fake_from_green(CUcontext *ret, CUgreenCtx green)
{
    assert_ptr_equal(green, GREEN_HANDLE);
    *ret = OF_GREEN_HANDLE;
    return CUDA_SUCCESS;
}

static CUresult fake_destroy_green(CUgreenCtx green)
{
    assert_ptr_equal(green, GREEN_HANDLE);
    /* Nobody is at anything of its context any more. */
    assert_false(tows_handles_is_ending(&session->handles, of_green_id));
    assert_null(tows_handles_find(&session->handles, of_green_id));
    greens_destroyed++;
    return CUDA_SUCCESS;
}

static CUresult refuse_green(CUgreenCtx green)
{
    (void)green;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_register(void *memory, size_t size, unsigned flags)
{
    (void)memory, (void)size, (void)flags;
    return CUDA_SUCCESS;
}

/* Who resets the primary context waits for that. */
static CUresult fake_unregister(void *memory)
{
    (void)memory;
    if (greens_destroyed == 0) {
        assert_int_equal(atomic_load(&session->contexts_ending[1]), 1);
        assert_true(tows_handles_is_ending(&session->handles, of_green_id));
        unregistered++;
    }
    return CUDA_SUCCESS;
}

static CUresult fake_stream(CUstream *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUstream)(uintptr_t)0x4000;
    return CUDA_SUCCESS;
}

/* ---- commands ---- */

static CUresult serve_in(uint32_t context, tows_serve_fn *fn, uint16_t kind, uint64_t first,
                         uint64_t second)
{
    uint64_t body[4] = {first, second, context != 0};
    struct tows_serve call = {
        .session = session,
        .driver = &driver,
        .frame = {.kind = kind, .thread = THREAD, .context = context, .seq = 1}};
    call.in = tow_dec_init(body, sizeof body);
    call.out_start = (uint8_t *)call.small;
    call.out = tow_enc_init(call.small, sizeof call.small);
    fn(&call);
    malformed = call.malformed;
    return call.status;
}

#define SERVE(name, first, second) serve_in(0, tows_serve_##name, TOW_FN_##name, first, second)
#define SERVE_IN(context, name, first, second)                                                     \
    serve_in(context, tows_serve_##name, TOW_FN_##name, first, second)

static int fake_take_fd(struct tow_line *line, uint64_t number, int64_t deadline_ns, int *ret_fd)
{
    (void)line, (void)number, (void)deadline_ns;
    *ret_fd = memfd_create("piece", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return ftruncate(*ret_fd, PAGE) == 0 &&
                   fcntl(*ret_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0
               ? 0
               : -1;
}

static int begin(void **state)
{
    static const struct tow_line_ops ops = {.take_fd = fake_take_fd};
    static struct tow_line line = {.ops = &ops};
    (void)state;
    made = contexts_destroyed = greens_destroyed = resets = unregistered = 0;
    on_synchronize = NULL;
    on_set_current = NULL;
    tow_driver_fill_stubs(&driver);
    tow_driver_set(&driver, cuCtxSetCurrent, fake_set_current);
    tow_driver_set(&driver, cuCtxSynchronize, fake_synchronize);
    tow_driver_set(&driver, cuCtxCreate_v2, fake_create);
    tow_driver_set(&driver, cuCtxPopCurrent_v2, fake_pop);
    tow_driver_set(&driver, cuCtxPushCurrent_v2, fake_push);
    tow_driver_set(&driver, cuCtxGetDevice, fake_device);
    tow_driver_set(&driver, cuCtxDestroy_v2, fake_destroy);
    tow_driver_set(&driver, cuDevicePrimaryCtxRetain, fake_retain);
    tow_driver_set(&driver, cuDevicePrimaryCtxReset_v2, fake_reset);
    tow_driver_set(&driver, cuCtxFromGreenCtx, fake_from_green);
    tow_driver_set(&driver, cuGreenCtxDestroy, fake_destroy_green);
    tow_driver_set(&driver, cuStreamCreate, fake_stream);
    tow_driver_set(&driver, cuMemHostRegister_v2, fake_register);
    tow_driver_set(&driver, cuMemHostUnregister, fake_unregister);
    session = fake_session_make(&driver, &line);
    return 0;
}

static int end(void **state)
{
    (void)state;
    fake_session_end(session);
    return 0;
}

/* The primary context, and a green one of its device with its context. */
static void make_green(void)
{
    assert_int_equal(SERVE(cuDevicePrimaryCtxRetain, primary_id, 0), CUDA_SUCCESS);
    assert_int_equal(tows_handles_bind(&session->handles, green_id, GREEN_HANDLE, CUDA_SUCCESS, 0),
                     0);
    assert_int_equal(SERVE(cuCtxFromGreenCtx, of_green_id, green_id), CUDA_SUCCESS);
    assert_false(malformed);
}

/* ---- a context's number ---- */

static const uint64_t again_id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 2, OTHER);

static void create_again(void)
{
    SERVE(cuCtxCreate_v4, again_id, 0);
    assert_true(malformed);
    assert_null(tows_handles_at(&session->handles, TOW_H_CONTEXT, OTHER));
}

static void a_number_is_free_when_its_context_has_ended(void **state)
{
    (void)state;
    assert_int_equal(SERVE(cuCtxCreate_v4, other_id, 0), CUDA_SUCCESS);
    assert_false(malformed);
    on_synchronize = create_again;
    assert_int_equal(SERVE(cuCtxDestroy_v2, other_id, 0), CUDA_SUCCESS);
    assert_null(on_synchronize);
    assert_int_equal(contexts_destroyed, 2); /* that one, and the one that got no number */
    assert_int_equal(SERVE(cuCtxCreate_v4, again_id, 0), CUDA_SUCCESS);
    assert_false(malformed);
    /* What is made in it now is its own. */
    CUstream stream = NULL;
    assert_int_equal(tows_session_thread_stream(session, THREAD, OTHER, &stream), CUDA_SUCCESS);
    assert_int_equal(SERVE(cuCtxDestroy_v2, other_id, 0), CUDA_ERROR_INVALID_CONTEXT);
}

/* ---- who waits for whom ---- */

static void reset_beside(void)
{
    assert_int_equal(SERVE(cuDevicePrimaryCtxReset_v2, primary_id, 0), CUDA_SUCCESS);
    assert_int_equal(resets, 1);
}

/* Its work may take long, and has nothing to do with the primary context. */
static void a_reset_does_not_wait_for_contexts_of_their_own(void **state)
{
    (void)state;
    make_green();
    assert_int_equal(SERVE(cuCtxCreate_v4, other_id, 0), CUDA_SUCCESS);
    on_synchronize = reset_beside;
    assert_int_equal(SERVE(cuCtxDestroy_v2, other_id, 0), CUDA_SUCCESS);
    assert_int_equal(resets, 1);
}

/* What is done last for a green context that ends, by the driver. */
static void a_green_context_ends_until_all_is_done(void **state)
{
    (void)state;
    make_green();
    void *at = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    munmap(at, PAGE);
    assert_int_equal(SERVE_IN(GREEN, cuMemHostAlloc, (uint64_t)(uintptr_t)at, PAGE), CUDA_SUCCESS);
    assert_false(malformed);
    assert_int_equal(SERVE(cuGreenCtxDestroy, green_id, of_green_id), CUDA_SUCCESS);
    assert_int_equal(unregistered, 1);
    assert_int_equal(atomic_load(&session->contexts_ending[1]), 0);
}

static pthread_t beside;

static void *reset_thread(void *arg)
{
    (void)arg;
    assert_int_equal(SERVE(cuDevicePrimaryCtxReset_v2, primary_id, 0), CUDA_SUCCESS);
    return NULL;
}

static void begin_reset(void)
{
    assert_int_equal(pthread_create(&beside, NULL, reset_thread, NULL), 0);
}

static void a_reset_waits_for_green_contexts_that_end(void **state)
{
    (void)state;
    make_green();
    on_synchronize = begin_reset;
    assert_int_equal(SERVE(cuGreenCtxDestroy, green_id, of_green_id), CUDA_SUCCESS);
    pthread_join(beside, NULL);
    assert_int_equal(greens_destroyed, 1);
    assert_int_equal(resets, 1);
}

/* Another thread's end never comes: the client is gone, and so is who would go on. */
static void a_reset_waits_no_longer_than_the_session_lasts(void **state)
{
    (void)state;
    make_green();
    atomic_store(&session->contexts_ending[1], 1);
    atomic_store(&session->lead.phase, TOW_SESSION_ENDS);
    assert_int_equal(SERVE(cuDevicePrimaryCtxReset_v2, primary_id, 0), CUDA_ERROR_UNKNOWN);
    assert_int_equal(resets, 0);
    atomic_store(&session->contexts_ending[1], 0);
}

/* ---- green contexts that end twice ---- */

static void reset_first(CUcontext context)
{
    if (context == OF_GREEN_HANDLE) {
        on_set_current = NULL;
        reset_beside();
    }
}

/* Between the look at its context and the end of that. */
static void a_green_context_ends_when_the_primary_one_was_faster(void **state)
{
    (void)state;
    make_green();
    on_set_current = reset_first;
    assert_int_equal(SERVE(cuGreenCtxDestroy, green_id, of_green_id), CUDA_SUCCESS);
    assert_int_equal(resets, 1);
    assert_int_equal(greens_destroyed, 1);
    assert_null(tows_handles_find(&session->handles, green_id));
}

static void *destroy_green_thread(void *arg)
{
    (void)arg;
    assert_int_equal(SERVE(cuGreenCtxDestroy, green_id, of_green_id), CUDA_SUCCESS);
    return NULL;
}

static void begin_destroy_green(void)
{
    assert_int_equal(pthread_create(&beside, NULL, destroy_green_thread, NULL), 0);
    while (tows_handles_find(&session->handles, green_id) != NULL) {
        sched_yield(); /* it is at it */
    }
    tow_time_sleep(20 * TOW_TIME_MS); /* long enough to do what it must not */
}

static void with_the_green_one(CUcontext context)
{
    if (context == OF_GREEN_HANDLE) {
        on_set_current = NULL;
        on_synchronize = begin_destroy_green;
    }
}

/* fake_destroy_green looks whether it waited. */
static void a_green_context_waits_for_the_end_of_its_context(void **state)
{
    (void)state;
    make_green();
    on_set_current = with_the_green_one;
    assert_int_equal(SERVE(cuDevicePrimaryCtxReset_v2, primary_id, 0), CUDA_SUCCESS);
    pthread_join(beside, NULL);
    assert_int_equal(greens_destroyed, 1);
    assert_int_equal(resets, 1);
}

static void a_green_context_that_the_driver_keeps_has_its_id(void **state)
{
    (void)state;
    make_green();
    tow_driver_set(&driver, cuGreenCtxDestroy, refuse_green);
    assert_int_equal(SERVE(cuGreenCtxDestroy, green_id, of_green_id), CUDA_ERROR_INVALID_VALUE);
    const struct tows_handle_entry *entry = tows_handles_find(&session->handles, green_id);
    assert_non_null(entry);
    assert_ptr_equal(entry->handle, GREEN_HANDLE);
}

/* Its last look at the driver is behind the green one's end. */
static CUresult end_from_green(CUcontext *ret, CUgreenCtx green)
{
    tow_driver_set(&driver, cuCtxFromGreenCtx, fake_from_green);
    assert_int_equal(SERVE(cuGreenCtxDestroy, green_id, 0), CUDA_SUCCESS);
    return fake_from_green(ret, green);
}

static void no_context_is_made_of_a_green_one_that_has_ended(void **state)
{
    (void)state;
    assert_int_equal(SERVE(cuDevicePrimaryCtxRetain, primary_id, 0), CUDA_SUCCESS);
    assert_int_equal(tows_handles_bind(&session->handles, green_id, GREEN_HANDLE, CUDA_SUCCESS, 0),
                     0);
    tow_driver_set(&driver, cuCtxFromGreenCtx, end_from_green);
    assert_int_equal(SERVE(cuCtxFromGreenCtx, of_green_id, green_id),
                     CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(greens_destroyed, 1);
    assert_null(tows_handles_find(&session->handles, of_green_id));
}

/* The driver is told when another context is the current one, and after it has refused. */
static void a_thread_is_where_the_driver_has_it(void **state)
{
    (void)state;
    const uint64_t ids[] = {primary_id, other_id};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(
            tows_handles_bind(&session->handles, ids[i], PRIMARY_HANDLE, CUDA_SUCCESS, 0), 0);
    }
    tows_session_forget_current();
    entered = 0;
    assert_int_equal(tows_session_enter(session, OTHER), CUDA_SUCCESS);
    assert_int_equal(tows_session_enter(session, OTHER), CUDA_SUCCESS);
    assert_int_equal(entered, 1);
    entering = CUDA_ERROR_UNKNOWN;
    assert_int_equal(tows_session_enter(session, PRIMARY), CUDA_ERROR_UNKNOWN);
    entering = CUDA_SUCCESS;
    assert_int_equal(tows_session_enter(session, PRIMARY), CUDA_SUCCESS);
    assert_int_equal(entered, 3);
    assert_int_equal(tows_session_enter(session, OTHER), CUDA_SUCCESS);
    assert_int_equal(entered, 4);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(tows_handles_unbind(&session->handles, ids[i]));
    }
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_thread_is_where_the_driver_has_it),
        CASE(a_number_is_free_when_its_context_has_ended),
        CASE(a_reset_does_not_wait_for_contexts_of_their_own),
        CASE(a_green_context_ends_until_all_is_done),
        CASE(a_reset_waits_for_green_contexts_that_end),
        CASE(a_reset_waits_no_longer_than_the_session_lasts),
        CASE(a_green_context_ends_when_the_primary_one_was_faster),
        CASE(a_green_context_waits_for_the_end_of_its_context),
        CASE(a_green_context_that_the_driver_keeps_has_its_id),
        CASE(no_context_is_made_of_a_green_one_that_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
