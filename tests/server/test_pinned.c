/* SPDX-License-Identifier: Apache-2.0 */
/* Page-locked memory is counted for as long as the driver has it, whichever context it came from.
 */
#include "cmocka_all.h"

#include <stdlib.h>

#include "gen/context.h"
#include "gen/event.h"
#include "gen/memory.h"
#include "server/copy/pinned.h"
#include "server/session/session.h"
#include "wire/id.h"

enum { PRIMARY = 3, GREEN = 5, OTHER = 6, SIZE = 256 << 10, MOST = 64 };

static struct tows_session *session;
static struct tow_driver driver;
static struct tows_pinned pinned;
static struct {
    void *at;
    CUcontext in;
} blocks[MOST];
static unsigned allocations, events;
static CUcontext current, before;

static CUresult fake_push(CUcontext context)
{
    before = current;
    current = context;
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ret)
{
    *ret = current;
    current = before;
    return CUDA_SUCCESS;
}

static CUresult fake_allocate(void **ret, size_t size, unsigned flags)
{
    (void)flags;
    assert_in_range(allocations, 0, MOST - 1);
    blocks[allocations].in = current;
    blocks[allocations++].at = *ret = malloc(size);
    return CUDA_SUCCESS;
}

static CUresult fake_event(CUevent *ret, unsigned flags)
{
    (void)flags;
    events++;
    *ret = (CUevent)(void *)current;
    return CUDA_SUCCESS;
}

static CUresult fake_event_destroy(CUevent event)
{
    (void)event; /* whichever context is current */
    events--;
    return CUDA_SUCCESS;
}

static CUcontext handle_of(uint32_t number)
{
    return (CUcontext)(uintptr_t)(16 * number);
}

static uint64_t make_context(uint32_t number, uint32_t owner)
{
    uint64_t id = TOW_ID_MAKE(TOW_H_CONTEXT, 0, 1, number);
    assert_int_equal(tows_handles_bind_new(&session->handles, id, handle_of(number), owner), 0);
    return id;
}

static int begin(void **state)
{
    (void)state;
    tow_driver_set(&driver, cuCtxPushCurrent_v2, fake_push);
    tow_driver_set(&driver, cuCtxPopCurrent_v2, fake_pop);
    tow_driver_set(&driver, cuMemHostAlloc, fake_allocate);
    tow_driver_set(&driver, cuEventCreate, fake_event);
    tow_driver_set(&driver, cuEventDestroy_v2, fake_event_destroy);
    allocations = events = 0;
    session = calloc(1, sizeof *session);
    session->driver = &driver;
    tows_ending_init(&session->ending);
    tows_pinned_init(&pinned, session);
    return tows_handles_init(&session->handles);
}

static int end(void **state)
{
    (void)state;
    tows_pinned_fini(&pinned);
    tows_ending_fini(&session->ending);
    tows_handles_fini(&session->handles);
    free(session);
    for (unsigned i = 0; i < allocations; i++) {
        free(blocks[i].at);
    }
    return 0;
}

static struct tows_pinned_buffer *take(uint32_t context)
{
    struct tows_pinned_buffer *buffer = NULL;
    current = handle_of(context);
    assert_int_equal(tows_pinned_take(&pinned, session, context, SIZE, &buffer), CUDA_SUCCESS);
    assert_int_equal(buffer->context, context);
    assert_ptr_equal((void *)buffer->filled, (void *)handle_of(context));
    assert_ptr_equal(current, handle_of(context));
    return buffer;
}

static bool drop(uint64_t id, uint32_t heir)
{
    current = handle_of(TOW_ID_INDEX(id));
    return tows_pinned_drop_context(&pinned, session, TOW_ID_INDEX(id), heir);
}

static void memory_of_a_context_is_counted_until_it_ends(void **state)
{
    (void)state;
    uint64_t id = make_context(OTHER, 0);
    struct tows_pinned_buffer *one = take(OTHER), *two = take(OTHER);
    assert_ptr_equal(blocks[0].in, handle_of(OTHER));
    assert_int_equal(pinned.total, 2 * SIZE);
    assert_true(tows_handles_end(&session->handles, id));
    assert_false(drop(id, 0));
    struct tows_pinned_buffer *none = NULL;
    assert_int_equal(tows_pinned_take(&pinned, session, OTHER, SIZE, &none),
                     CUDA_ERROR_CONTEXT_IS_DESTROYED);
    tows_pinned_give(&pinned, one);
    assert_false(drop(id, 0));
    tows_pinned_lose(&pinned, two);
    assert_int_equal(pinned.total, 2 * SIZE);
    assert_true(drop(id, 0));
    assert_int_equal(pinned.total, 0);
    assert_null(pinned.outs);
}

static void memory_of_green_contexts_stays_with_the_primary_one(void **state)
{
    (void)state;
    uint64_t primary = make_context(PRIMARY, 1);
    atomic_store(&session->primaries[0], primary);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t green = make_context(GREEN + round, 1);
        struct tows_pinned_buffer *buffer = take(GREEN + round);
        assert_int_equal(allocations, 1);
        assert_ptr_equal(blocks[0].in, handle_of(PRIMARY));
        tows_pinned_give(&pinned, buffer);
        assert_true(tows_handles_end(&session->handles, green));
        assert_true(drop(green, PRIMARY));
        tows_handles_ended(&session->handles, green);
        assert_int_equal(events, 0);
        /* The driver has it still, and so it counts. */
        assert_int_equal(pinned.total, SIZE);
    }
    /* And it is used; what the primary one has used, too, by a green one, with an event of its own.
     */
    tows_pinned_give(&pinned, take(PRIMARY));
    uint64_t green = make_context(GREEN, 1);
    struct tows_pinned_buffer *buffers[2] = {take(GREEN), take(GREEN)};
    assert_int_equal(allocations, 2);
    assert_int_equal(events, 2);
    tows_pinned_give(&pinned, buffers[0]);
    tows_pinned_give(&pinned, buffers[1]);
    assert_true(tows_handles_end(&session->handles, green));
    assert_true(drop(green, PRIMARY));
    tows_handles_ended(&session->handles, green);
    assert_int_equal(pinned.total, 2 * SIZE);
    assert_int_equal(events, 0);
    assert_true(tows_handles_end(&session->handles, primary));
    assert_true(drop(primary, 0));
    assert_int_equal(pinned.total, 0);
    assert_null(pinned.outs);
}

static void nobody_inherits_whose_end_has_begun(void **state)
{
    (void)state;
    uint64_t primary = make_context(PRIMARY, 1), green = make_context(GREEN, 1);
    atomic_store(&session->primaries[0], primary);
    tows_pinned_give(&pinned, take(GREEN));
    assert_true(tows_handles_end(&session->handles, green));
    assert_true(tows_handles_end(&session->handles, primary));
    assert_true(drop(primary, 0));
    assert_true(drop(green, PRIMARY)); /* which lived when this one's end began */
    assert_int_equal(pinned.total, 0);
    assert_null(pinned.outs);
    tows_handles_ended(&session->handles, primary);
    make_context(PRIMARY, 1); /* nothing old is taken for its own */
    tows_pinned_give(&pinned, take(PRIMARY));
    assert_int_equal(allocations, 2);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(memory_of_a_context_is_counted_until_it_ends),
        CASE(memory_of_green_contexts_stays_with_the_primary_one),
        CASE(nobody_inherits_whose_end_has_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
