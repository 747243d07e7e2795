/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory is mirrored for as long as it is there, and no longer. */
#include "base/mutex.h"
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "gen/context.h"
#include "gen/memory.h"
#include "gen/memory_server.h"
#include "server/copy/mirror.h"
#include "server/family/context.h"
#include "server/session/hold.h"
#include "fake_session.h"
#include "server/session/session.h"
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
    assert_int_equal(tows_mirror_take(session, records, size), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_of_a_context_goes_with_it, begin, end),
        cmocka_unit_test_setup_teardown(an_heir_has_it_from_then_on, begin, end),
        cmocka_unit_test_setup_teardown(a_green_context_that_ends_alone_leaves_its_memory, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
