/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory is mirrored for as long as it is there, and no longer. */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/event.h"
#include "gen/memory.h"
#include "gen/memory_server.h"
#include "gen/stream.h"
#include "server/copy/hostfn.h"
#include "server/copy/mirror.h"
#include "server/family/context.h"
#include "server/run/side.h"
#include "server/session/hold.h"
#include "fake_session.h"
#include "server/session/session.h"
#include "transport/transport.h"
#include "wire/control.h"
#include "wire/diff.h"
#include "wire/id.h"

enum { PAGE = 4096, PAGES = 8, GREEN = 5, OTHER = 6, PRIMARY = 3 };

static struct tows_session *session;
static struct tow_driver driver;
static _Alignas(PAGE) uint8_t memory[PAGES][PAGE];
static unsigned used;

static CUresult fake_allocate(CUdeviceptr *ret, size_t size, unsigned flags)
{
    (void)size, (void)flags;
    *ret = (CUdeviceptr)(uintptr_t)memory[used++];
    return CUDA_SUCCESS;
}

static CUresult fake_set_current(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult fake_synchronize(void)
{
    return CUDA_SUCCESS;
}

static int begin(void **state)
{
    (void)state;
    used = 0;
    memset(memory, 0, sizeof memory);
    tow_driver_set(&driver, cuMemAllocManaged, fake_allocate);
    tow_driver_set(&driver, cuCtxSetCurrent, fake_set_current);
    tow_driver_set(&driver, cuCtxSynchronize, fake_synchronize);
    session = fake_session_make(&driver, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    fake_session_end(session);
    return 0;
}

/* A page of managed memory that is made in a context. */
static uint8_t *allocate(uint32_t context)
{
    uint8_t in[16], out[64];
    struct tow_enc enc = tow_enc_init(in, sizeof in);
    tow_enc_u64(&enc, PAGE);
    tow_enc_u32(&enc, CU_MEM_ATTACH_GLOBAL);
    tow_enc_u32(&enc, TOW_MANAGED_FETCHED);
    struct tows_serve call = {.session = session,
                              .driver = &driver,
                              .frame = {.context = context},
                              .in = tow_dec_init(in, sizeof in),
                              .out = tow_enc_init(out, sizeof out)};
    tows_serve_cuMemAllocManaged(&call);
    assert_int_equal(call.status, CUDA_SUCCESS);
    return memory[used - 1];
}

/* Whether what the client writes there arrives. */
static bool is_mirrored(uint8_t *at)
{
    static uint8_t known[PAGE], now[PAGE], records[2 * PAGE];
    static uint8_t value;
    memset(now, 0, sizeof now);
    now[100] = ++value;
    struct tow_diff diff = {
        .known = known, .now = now, .address = (uint64_t)(uintptr_t)at, .size = PAGE};
    memset(known, 0, sizeof known);
    size_t size = tow_diff_next(&diff, records, sizeof records);
    assert_int_equal(tows_mirror_take(session, 0, records, size), 0);
    return at[100] == value;
}

static void forget(struct tows_mirror_gone gone)
{
    tows_mirror_forget_managed(session, &gone);
}

static void memory_of_a_context_goes_with_it(void **state)
{
    (void)state;
    uint8_t *a = allocate(GREEN), *b = allocate(OTHER), *none = allocate(0);
    assert_true(is_mirrored(a) && is_mirrored(b) && is_mirrored(none));
    forget((struct tows_mirror_gone){.context = GREEN});
    assert_false(is_mirrored(a));
    assert_true(is_mirrored(b) && is_mirrored(none));
    forget((struct tows_mirror_gone){.context = GREEN, .and_none = true});
    assert_false(is_mirrored(none));
    assert_true(is_mirrored(b));
    tows_mirror_freed(session, (CUdeviceptr)(uintptr_t)b);
    assert_false(is_mirrored(b));
}

/* A context's id; `device` is counted from 1, and 0 for one that has memory of its own. */
static uint64_t make_context(uint32_t index, uint32_t device)
{
    uint64_t id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 1, index);
    assert_int_equal(tows_handles_bind(&session->handles, id, (void *)(uintptr_t)(16 * index),
                                       CUDA_SUCCESS, device),
                     0);
    return id;
}

static void an_heir_has_it_from_then_on(void **state)
{
    (void)state;
    uint64_t primary = make_context(PRIMARY, 1);
    uint8_t *a = allocate(GREEN), *b = allocate(OTHER);
    forget((struct tows_mirror_gone){.context = GREEN, .heir = PRIMARY});
    assert_true(is_mirrored(a) && is_mirrored(b));
    forget((struct tows_mirror_gone){.context = GREEN});
    assert_true(is_mirrored(a) && is_mirrored(b));
    forget((struct tows_mirror_gone){.context = PRIMARY});
    assert_false(is_mirrored(a));
    assert_true(is_mirrored(b));
    /* One that ends just now has been asked already. */
    uint8_t *c = allocate(GREEN);
    assert_true(tows_handles_end(&session->handles, primary));
    forget((struct tows_mirror_gone){.context = GREEN, .heir = PRIMARY});
    assert_false(is_mirrored(c));
    assert_true(is_mirrored(b));
}

static void a_green_context_that_ends_alone_leaves_its_memory(void **state)
{
    (void)state;
    uint64_t primary = make_context(PRIMARY, 1), green = make_context(GREEN, 1);
    uint64_t other = make_context(OTHER, 0);
    atomic_store(&session->primaries[0], primary);
    uint8_t *a = allocate(GREEN), *b = allocate(OTHER), *none = allocate(0);
    assert_int_equal(tows_context_drop(session, green), CUDA_SUCCESS);
    assert_true(is_mirrored(a) && is_mirrored(b) && is_mirrored(none));
    assert_int_equal(tows_context_drop(session, other), CUDA_SUCCESS);
    assert_false(is_mirrored(b));
    assert_true(is_mirrored(a) && is_mirrored(none));
    assert_int_equal(tows_context_drop(session, other), CUDA_ERROR_INVALID_CONTEXT);
    /* The primary one's end: nobody is its heir any more. */
    atomic_store(&session->primaries[0], 0);
    assert_int_equal(tows_context_drop(session, primary), CUDA_SUCCESS);
    assert_false(is_mirrored(a));
    assert_false(is_mirrored(none));
}

/* ---- by the driver's copies ---- */

enum { UP, DOWN, WAIT };
static unsigned calls[3];
static struct tow_line *here, *there; /* the side line's two ends */
static void (*meanwhile)(void);       /* what happens while the driver copies */

static CUresult fake_up(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    assert_ptr_equal(stream, &calls);
    memcpy((void *)(uintptr_t)to, from, size);
    calls[UP]++;
    return CUDA_SUCCESS;
}

static CUresult fake_down(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    assert_ptr_equal(stream, &calls);
    memcpy(to, (const void *)(uintptr_t)from, size);
    calls[DOWN]++;
    return CUDA_SUCCESS;
}

static CUresult fake_wait(CUstream stream)
{
    assert_ptr_equal(stream, &calls);
    calls[WAIT]++;
    if (meanwhile != NULL) {
        meanwhile();
    }
    return CUDA_SUCCESS;
}

static CUresult fake_stream(CUstream *ret, unsigned flags)
{
    assert_int_equal(flags,
                     CU_STREAM_NON_BLOCKING); /* it waits for no other, and no other for it */
    *ret = (CUstream)(void *)&calls;
    return CUDA_SUCCESS;
}

static CUresult fake_event(CUevent *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUevent)(void *)&calls;
    return CUDA_SUCCESS;
}

static uint8_t locked[1 << 20];

static CUresult fake_lock(void **ret, size_t size, unsigned flags)
{
    static size_t used_up;
    (void)flags;
    used_up = used_up + size <= sizeof locked ? used_up : 0;
    *ret = locked + used_up;
    used_up += (size + 63) & ~(size_t)63;
    return CUDA_SUCCESS;
}

static int begin_carrying(void **state)
{
    int error = begin(state);
    tow_driver_set(&driver, cuMemcpyHtoDAsync_v2, fake_up);
    tow_driver_set(&driver, cuMemcpyDtoHAsync_v2, fake_down);
    tow_driver_set(&driver, cuStreamSynchronize, fake_wait);
    tow_driver_set(&driver, cuStreamCreate, fake_stream);
    tow_driver_set(&driver, cuEventCreate, fake_event);
    tow_driver_set(&driver, cuMemHostAlloc, fake_lock);
    memset(calls, 0, sizeof calls);
    meanwhile = NULL;
    assert_int_equal(tow_line_pair(&here, &there), 0);
    session->side.line = here;
    return error;
}

static int end_carrying(void **state)
{
    tow_line_close(here);
    tow_line_close(there);
    return end(state);
}

/* What is fetched in a context, which must be what is there. */
static void fetch(const uint8_t *at, uint32_t context)
{
    uint8_t frame[TOW_FRAME_HEADER + TOW_FETCH_HEAD];
    struct tow_frame head = {.length = sizeof frame, .kind = TOW_CONTROL_FETCH, .context = context};
    tow_frame_write(frame, &head);
    tow_fetch_head(&(struct tow_fetch){(uint64_t)(uintptr_t)at, PAGE}, frame + TOW_FRAME_HEADER);
    assert_int_equal(tows_mirror_fetch(session, frame, &head), 0);
    const uint8_t *got = NULL;
    size_t available = 0;
    assert_int_equal(tow_line_peek(there, TOW_DATA_HEAD + PAGE, tow_time_deadline(20 * TOW_TIME_S),
                                   &got, &available),
                     0);
    assert_memory_equal(got + TOW_DATA_HEAD, at, PAGE);
    tow_line_consume(there, TOW_DATA_HEAD + PAGE);
}

/* Writes a line and some bytes of another. */
static void change(uint8_t *at, uint32_t context)
{
    static uint8_t known[PAGE], now[PAGE], records[2 * PAGE];
    static uint8_t value;
    memcpy(known, at, PAGE);
    memcpy(now, at, PAGE);
    value++;
    memset(now + 128, value, 64);
    now[1000] = value;
    struct tow_diff diff = {
        .known = known, .now = now, .address = (uint64_t)(uintptr_t)at, .size = PAGE};
    size_t size = tow_diff_next(&diff, records, sizeof records);
    assert_int_equal(tows_mirror_take(session, context, records, size), 0);
    assert_memory_equal(at, now, PAGE);
}

static void expect_calls(unsigned ups, unsigned downs)
{
    assert_int_equal(calls[UP], ups);
    assert_int_equal(calls[DOWN], downs);
}

static void the_driver_copies_what_an_idle_client_asks_for(void **state)
{
    (void)state;
    make_context(OTHER, 0);
    uint8_t *a = allocate(OTHER);
    memset(a, 7, PAGE);
    fetch(a, OTHER);
    expect_calls(0, 1);
    change(a, OTHER);
    expect_calls(1, 1); /* the line; of the other one only what changed, by the CPU */
    assert_int_equal(calls[WAIT], 2);
    /* By the CPU: a client that says nothing, and a context that is none. */
    fetch(a, 0);
    fetch(a, GREEN);
    change(a, 0);
    change(a, GREEN);
    expect_calls(1, 1);
}

static void a_host_function_forbids_it(void **state)
{
    (void)state;
    make_context(OTHER, 0);
    uint8_t *a = allocate(OTHER);
    struct tows_hostfn_turn *once = tows_hostfn_make(session, 1, 0);
    struct tows_hostfn_turn *kept = tows_hostfn_make(session, 2, 1);
    fetch(a, OTHER);
    change(a, OTHER);
    tows_hostfn_drop(once); /* the driver did not take it */
    fetch(a, OTHER);
    expect_calls(0, 0);
    tows_hostfn_drop(kept);
    fetch(a, OTHER);
    change(a, OTHER);
    expect_calls(1, 1);
}

static pthread_t putting;
static atomic_bool is_put;

static void *put_function(void *unused)
{
    struct tows_hostfn_turn *turn = tows_hostfn_make(session, 1, 0);
    atomic_store(&is_put, true);
    tows_hostfn_drop(turn);
    return unused;
}

static void put_meanwhile(void)
{
    meanwhile = NULL;
    assert_int_equal(pthread_create(&putting, NULL, put_function, NULL), 0);
    tow_time_sleep(20 * TOW_TIME_MS); /* that it waits is certain; how long one looks is not */
    assert_false(atomic_load(&is_put));
}

static void none_is_put_while_the_driver_copies(void **state)
{
    (void)state;
    make_context(OTHER, 0);
    uint8_t *a = allocate(OTHER);
    atomic_store(&is_put, false);
    meanwhile = put_meanwhile;
    fetch(a, OTHER);
    assert_int_equal(pthread_join(putting, NULL), 0);
    expect_calls(0, 1);
}

static void *take_turn(void *turn)
{
    tows_hostfn_run(turn);
    return NULL;
}

/* It counts until the client has run it, not only until its turn has come. */
static void the_end_of_a_host_function_allows_it(void **state)
{
    (void)state;
    struct tow_line *own = NULL, *clients = NULL;
    const uint8_t *at = NULL;
    size_t available = 0;
    pthread_t thread;
    make_context(OTHER, 0);
    uint8_t *a = allocate(OTHER);
    assert_int_equal(tow_line_pair(&own, &clients), 0);
    session->line = own;
    struct tows_hostfn_turn *turn = tows_hostfn_make(session, 9, 0);
    assert_int_equal(pthread_create(&thread, NULL, take_turn, turn), 0);
    assert_int_equal(tow_line_peek(clients, TOW_FRAME_HEADER + TOW_CALLBACK_HEAD,
                                   tow_time_deadline(20 * TOW_TIME_S), &at, &available),
                     0);
    fetch(a, OTHER);
    expect_calls(0, 0);
    tows_hostfn_done(session, 9);
    assert_int_equal(pthread_join(thread, NULL), 0);
    fetch(a, OTHER);
    expect_calls(0, 1);
    tows_hostfn_end(session);
    tow_line_close(own);
    tow_line_close(clients);
}

static atomic_bool copying, may_end, work_begins;

static void copy_long(void)
{
    meanwhile = NULL;
    atomic_store(&copying, true);
    while (!atomic_load(&may_end)) {
        tow_time_sleep(TOW_TIME_MS);
    }
}

/* Whoever takes the client's commands, at a FENCE frame. */
static void *come_to_fence(void *unused)
{
    uint8_t bytes[TOW_FRAME_HEADER + TOW_FENCE_HEAD];
    struct tow_frame frame = {.length = sizeof bytes, .kind = TOW_CONTROL_FENCE};
    tow_frame_write(bytes, &frame);
    tow_fence_head(&(struct tow_fence){1}, bytes + TOW_FRAME_HEADER);
    assert_int_equal(tows_side_await(session, bytes, &frame), 0);
    atomic_store(&work_begins, true);
    return unused;
}

/* The client gives work behind a fetch: that waits for the copy, and not the other way round. */
static void work_waits_for_a_copy_that_is_under_way(void **state)
{
    (void)state;
    pthread_t thread;
    const uint8_t *got = NULL;
    size_t available = 0;
    uint8_t bytes[TOW_FRAME_HEADER + TOW_FETCH_HEAD + TOW_FRAME_HEADER];
    make_context(OTHER, 0);
    uint8_t *a = allocate(OTHER);
    struct tow_frame asks = {
        .length = TOW_FRAME_HEADER + TOW_FETCH_HEAD, .kind = TOW_CONTROL_FETCH, .context = OTHER};
    struct tow_frame counts = {.length = TOW_FRAME_HEADER, .kind = TOW_CONTROL_MIRROR};
    tow_frame_write(bytes, &asks);
    tow_fetch_head(&(struct tow_fetch){(uint64_t)(uintptr_t)a, PAGE}, bytes + TOW_FRAME_HEADER);
    tow_frame_write(bytes + asks.length, &counts);
    atomic_store(&copying, false);
    atomic_store(&may_end, false);
    atomic_store(&work_begins, false);
    meanwhile = copy_long;
    session->side.line = NULL;
    assert_int_equal(tows_side_begin(session, here), 0);
    struct iovec part = {bytes, sizeof bytes};
    assert_int_equal(tow_line_send_direct(there, &part, 1), 0);
    while (!atomic_load(&copying)) {
        tow_time_sleep(TOW_TIME_MS);
    }
    assert_int_equal(pthread_create(&thread, NULL, come_to_fence, NULL), 0);
    tow_time_sleep(20 * TOW_TIME_MS); /* that it waits is certain; how long one looks is not */
    assert_false(atomic_load(&work_begins));
    atomic_store(&may_end, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&work_begins));
    assert_int_equal(tow_line_peek(there, TOW_DATA_HEAD + PAGE, tow_time_deadline(20 * TOW_TIME_S),
                                   &got, &available),
                     0);
    expect_calls(0, 1);
    /* The thread that reads the line ends with it. */
    tow_line_shutdown(there);
    tow_mutex_lock(&session->side.lock);
    while (!session->side.ended) {
        tow_mutex_wait(&session->side.lock, &session->side.changed);
    }
    tow_mutex_unlock(&session->side.lock);
}

static void its_stream_goes_with_its_context(void **state)
{
    (void)state;
    uint64_t other = make_context(OTHER, 0);
    make_context(GREEN, 0);
    uint8_t *a = allocate(OTHER), *b = allocate(GREEN);
    fetch(a, OTHER);
    fetch(b, GREEN); /* two contexts: by the CPU */
    expect_calls(0, 1);
    assert_int_equal(tows_context_drop(session, other), CUDA_SUCCESS);
    fetch(b, GREEN);
    expect_calls(0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_of_a_context_goes_with_it, begin, end),
        cmocka_unit_test_setup_teardown(an_heir_has_it_from_then_on, begin, end),
        cmocka_unit_test_setup_teardown(a_green_context_that_ends_alone_leaves_its_memory, begin,
                                        end),
        cmocka_unit_test_setup_teardown(the_driver_copies_what_an_idle_client_asks_for,
                                        begin_carrying, end_carrying),
        cmocka_unit_test_setup_teardown(a_host_function_forbids_it, begin_carrying, end_carrying),
        cmocka_unit_test_setup_teardown(none_is_put_while_the_driver_copies, begin_carrying,
                                        end_carrying),
        cmocka_unit_test_setup_teardown(the_end_of_a_host_function_allows_it, begin_carrying,
                                        end_carrying),
        cmocka_unit_test_setup_teardown(work_waits_for_a_copy_that_is_under_way, begin_carrying,
                                        end_carrying),
        cmocka_unit_test_setup_teardown(its_stream_goes_with_its_context, begin_carrying,
                                        end_carrying),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
