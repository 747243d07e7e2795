/* SPDX-License-Identifier: Apache-2.0 */
/* No driver is called under a lock that other threads need: the driver here does, on its thread,
 * what another thread might want meanwhile. With the lock held that would never end. */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/driver.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/event.h"
#include "gen/launch.h"
#include "gen/memory_server.h"
#include "gen/stream.h"
#include "server/copy/deferred_upload.h"
#include "server/copy/share.h"
#include "fake_session.h"
#include "server/session/session.h"
#include "transport/line.h"
#include "wire/id.h"
#include "wire/limits.h"

enum { THREAD = 3, CONTEXT = 5, OTHER = 6 };

static struct tows_session *session;
static struct tow_driver driver;
static struct tow_frame frame = {.kind = 1, .thread = THREAD, .seq = 1};
static unsigned streams, destroyed, synchronised;

/* Meanwhile another thread may have made it: the second of two goes. */
static CUresult fake_stream(CUstream *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUstream)(uintptr_t)(0x1000 + 16 * ++streams);
    tows_session_defer(session, THREAD, 1, CUDA_ERROR_INVALID_VALUE, "");
    if (streams == 1) {
        CUstream other = NULL;
        assert_int_equal(tows_session_thread_stream(session, THREAD, CONTEXT, &other),
                         CUDA_SUCCESS);
        assert_int_equal((uintptr_t)other, 0x1020);
    }
    return CUDA_SUCCESS;
}

static CUresult fake_destroy(CUstream stream)
{
    assert_int_equal((uintptr_t)stream, 0x1010);
    destroyed++;
    return CUDA_SUCCESS;
}

/* As the driver's, it goes with its context: here with the test. */
static void *allocated[8];
static unsigned allocations;

static CUresult fake_allocate(void **ret, size_t size, unsigned flags)
{
    (void)flags;
    assert_in_range(allocations, 0, 7);
    *ret = allocated[allocations++] = malloc(size);
    return CUDA_SUCCESS;
}

static CUresult fake_event(CUevent *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUevent)(uintptr_t)0x2000;
    return CUDA_SUCCESS;
}

static CUresult fake_record(CUevent event, CUstream stream)
{
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult fake_not_ready(CUevent event)
{
    (void)event;
    return CUDA_ERROR_NOT_READY;
}

static CUresult fake_copy(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    (void)to, (void)from, (void)size, (void)stream;
    return CUDA_SUCCESS;
}

static CUresult fake_launch(CUstream stream, CUhostFn run, void *turn)
{
    (void)stream, (void)run, (void)turn;
    return CUDA_SUCCESS;
}

static void upload_late(uint32_t context, uint64_t number)
{
    uint64_t body[2] = {100 + number, number};
    struct tows_serve call = {.session = session, .driver = &driver, .frame = frame};
    call.frame.context = context;
    call.in = tow_dec_init(body, sizeof body);
    tows_deferred_upload_copy(&call, 0x1000, 64, NULL);
    assert_false(call.malformed);
    assert_int_equal(call.status, CUDA_SUCCESS);
}

/* While a context waits for its uploads others make theirs. */
static CUresult fake_wait(CUevent event)
{
    (void)event;
    upload_late(OTHER, 10 + synchronised++);
    return CUDA_SUCCESS;
}

/* ---- shared memory ---- */

enum { PAGE = 4096 };

static uint64_t pieces[2]; /* where the client has them */
static unsigned registered, unregistered;

static int fake_take_fd(struct tow_line *line, uint64_t number, int64_t deadline_ns, int *ret_fd)
{
    (void)line, (void)number, (void)deadline_ns;
    *ret_fd = memfd_create("piece", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return ftruncate(*ret_fd, PAGE) == 0 &&
                   fcntl(*ret_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0
               ? 0
               : -1;
}

static struct tows_serve call_in(uint32_t context, const void *body, size_t size)
{
    struct tows_serve call = {.session = session, .driver = &driver, .frame = frame};
    call.frame.context = context;
    call.in = tow_dec_init(body, size);
    return call;
}

static bool others_can_use(uint64_t address)
{
    struct tows_serve call = call_in(OTHER, NULL, 0);
    bool holds = tows_share_holds(&call, address, PAGE);
    tows_hold_leave(&call);
    return holds && call.status == CUDA_SUCCESS;
}

/* While the driver has one piece in hand, others use the other. */
static CUresult fake_register(void *memory, size_t size, unsigned flags)
{
    (void)size, (void)flags;
    if (registered++ > 0 && (uint64_t)(uintptr_t)memory == pieces[1]) {
        assert_true(others_can_use(pieces[0]));
    }
    return CUDA_SUCCESS;
}

static CUresult fake_unregister(void *memory)
{
    uint64_t other = (uint64_t)(uintptr_t)memory == pieces[0] ? pieces[1] : pieces[0];
    if (unregistered++ < 2) {
        assert_true(others_can_use(other));
    }
    return CUDA_SUCCESS;
}

static void share_piece(unsigned i)
{
    void *at = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    munmap(at, PAGE);
    pieces[i] = (uint64_t)(uintptr_t)at;
    uint64_t body[3] = {pieces[i], PAGE, 1};
    struct tows_serve call = call_in(CONTEXT, body, sizeof body);
    tows_serve_cuMemHostAlloc(&call);
    assert_int_equal(call.status, CUDA_SUCCESS);
    assert_false(call.malformed);
}

static void a_piece_in_the_driver_does_not_hold_up_the_others(void **state)
{
    (void)state;
    share_piece(0);
    share_piece(1);
    assert_int_equal(registered, 2);
    /* Each is page-locked again by who uses it while the other one's context ends. */
    tows_share_drop_context(session, CONTEXT);
    assert_int_equal(unregistered, 2);
    assert_int_equal(registered, 3);
    struct tows_serve call = call_in(CONTEXT, &pieces[1], sizeof pieces[1]);
    tows_serve_cuMemFreeHost(&call);
    assert_int_equal(call.status, CUDA_SUCCESS);
    assert_false(others_can_use(pieces[1]));
    assert_true(others_can_use(pieces[0]));
}

static int begin(void **state)
{
    static const struct tow_line_ops ops = {.take_fd = fake_take_fd};
    static struct tow_line line = {.ops = &ops};
    (void)state;
    tow_driver_set(&driver, cuStreamCreate, fake_stream);
    tow_driver_set(&driver, cuStreamDestroy_v2, fake_destroy);
    tow_driver_set(&driver, cuMemHostAlloc, fake_allocate);
    tow_driver_set(&driver, cuEventCreate, fake_event);
    tow_driver_set(&driver, cuEventRecord, fake_record);
    tow_driver_set(&driver, cuEventDestroy_v2, fake_event_destroy);
    tow_driver_set(&driver, cuEventQuery, fake_not_ready);
    tow_driver_set(&driver, cuEventSynchronize, fake_wait);
    tow_driver_set(&driver, cuMemcpyHtoDAsync_v2, fake_copy);
    tow_driver_set(&driver, cuLaunchHostFunc, fake_launch);
    tow_driver_set(&driver, cuMemHostRegister_v2, fake_register);
    tow_driver_set(&driver, cuMemHostUnregister, fake_unregister);
    session = fake_session_make(&driver, &line);
    return 0;
}

static int end(void **state)
{
    (void)state;
    fake_session_end(session);
    while (allocations > 0) {
        free(allocated[--allocations]);
    }
    return 0;
}

static uint64_t bind_context(uint32_t number, uint32_t generation)
{
    static uint8_t handles[8];
    uint64_t id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, generation, number);
    assert_int_equal(
        tows_handles_bind(&session->handles, id, &handles[generation], CUDA_SUCCESS, 0), 0);
    return id;
}

static uint64_t ending;

/* The context ends meanwhile, and another one gets its number. */
static CUresult fake_stream_of_the_dead(CUstream *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUstream)(uintptr_t)0x3000;
    assert_true(tows_handles_unbind(&session->handles, ending));
    tows_session_drop_context(session, CONTEXT);
    bind_context(CONTEXT, 2);
    return CUDA_SUCCESS;
}

static void a_threads_stream_does_not_outlive_its_context(void **state)
{
    (void)state;
    CUstream stream = NULL;
    assert_int_equal(tows_session_thread_stream(session, THREAD, CONTEXT, &stream),
                     CUDA_ERROR_INVALID_CONTEXT);
    ending = bind_context(CONTEXT, 1);
    tow_driver_set(&driver, cuStreamCreate, fake_stream_of_the_dead);
    assert_int_equal(tows_session_thread_stream(session, THREAD, CONTEXT, &stream),
                     CUDA_ERROR_CONTEXT_IS_DESTROYED);
    streams = 1;
    tow_driver_set(&driver, cuStreamCreate, fake_stream);
    assert_int_equal(tows_session_thread_stream(session, THREAD, CONTEXT, &stream), CUDA_SUCCESS);
    assert_int_equal((uintptr_t)stream, 0x1020); /* its own */
    streams = 0;
}

static void a_threads_stream_is_made_without_a_lock(void **state)
{
    (void)state;
    CUstream stream = NULL;
    bind_context(CONTEXT, 1);
    assert_int_equal(tows_session_thread_stream(session, THREAD, CONTEXT, &stream), CUDA_SUCCESS);
    assert_int_equal((uintptr_t)stream, 0x1020); /* that of the one who was quicker */
    assert_int_equal(destroyed, 1);
    assert_int_equal(tows_session_take_deferred(session, THREAD), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(tows_session_thread_stream(session, THREAD, CONTEXT, &stream), CUDA_SUCCESS);
    assert_int_equal(streams, 2);
}

static void a_context_that_ends_does_not_hold_up_uploads_of_others(void **state)
{
    (void)state;
    static uint8_t handles[2];
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 1, CONTEXT + i);
        assert_int_equal(tows_handles_bind(&session->handles, id, &handles[i], CUDA_SUCCESS, 0), 0);
    }
    upload_late(CONTEXT, 1);
    upload_late(CONTEXT, 2);
    assert_true(tows_deferred_upload_drop_context(session, CONTEXT, 0));
    assert_int_equal(synchronised, 2);
    tow_driver_set(&driver, cuEventSynchronize, fake_not_ready);
    assert_true(tows_deferred_upload_drop_context(session, OTHER, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_threads_stream_does_not_outlive_its_context, begin, end),
        cmocka_unit_test_setup_teardown(a_threads_stream_is_made_without_a_lock, begin, end),
        cmocka_unit_test_setup_teardown(a_context_that_ends_does_not_hold_up_uploads_of_others,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_piece_in_the_driver_does_not_hold_up_the_others, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
