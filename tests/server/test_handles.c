/* SPDX-License-Identifier: Apache-2.0 */
/* Ids and handles: found, stale, used again, and no more memory than the live ones need. */
#include "cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/session/handles.h"
#include "wire/id.h"

static struct tows_handles handles;

static int setup(void **state)
{
    memset(&handles, 0, sizeof handles);
    return tows_handles_init(&handles);
}

static int teardown(void **state)
{
    tows_handles_fini(&handles);
    return 0;
}

static void *at(uint32_t number)
{
    return (void *)((uintptr_t)0x10000 + (uintptr_t)number * 16);
}

static void what_comes_and_goes_takes_no_memory(void **state)
{
    for (uint32_t i = 1; i < 300000; i++) {
        uint64_t id = TOW_ID_MAKE(TOW_H_EVENT, 0, i, 7);
        assert_int_equal(tows_handles_bind(&handles, id, at(i), CUDA_SUCCESS, 1), 0);
        assert_ptr_equal(tows_handles_find(&handles, id)->handle, at(i));
        tows_handles_unbind(&handles, id);
        assert_null(tows_handles_find(&handles, id));
    }
    assert_true(handles.reverse_size <= 1024);
}

static void live_ones_are_found_whatever_goes(void **state)
{
    enum { LIVE = 5000 };
    for (uint32_t i = 1; i <= LIVE; i++) {
        uint64_t id = TOW_ID_MAKE(TOW_H_STREAM, 0, 1, i);
        assert_int_equal(tows_handles_bind(&handles, id, at(i), CUDA_SUCCESS, 1), 0);
    }
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t id = TOW_ID_MAKE(TOW_H_EVENT, 0, 1 + i, LIVE + 1);
        assert_int_equal(tows_handles_bind(&handles, id, at(LIVE + 1 + i), CUDA_SUCCESS, 1), 0);
        tows_handles_unbind(&handles, id);
    }
    for (uint32_t i = 1; i <= LIVE; i++) {
        assert_int_equal(tows_handles_known(&handles, TOW_H_STREAM, at(i)),
                         TOW_ID_MAKE(TOW_H_STREAM, 0, 1, i));
    }
}

static void the_servers_indices_are_used_again(void **state)
{
    uint64_t first = tows_handles_export(&handles, TOW_H_GRAPHNODE, at(1), 1);
    assert_int_equal(tows_handles_export(&handles, TOW_H_GRAPHNODE, at(1), 1), first);
    uint64_t before = 0;
    for (uint32_t i = 2; i < 100000; i++) {
        uint64_t id = tows_handles_export(&handles, TOW_H_GRAPHNODE, at(i), 1);
        assert_int_not_equal(id, 0);
        assert_int_not_equal(id, before); /* a stale one is known as such */
        assert_null(tows_handles_find(&handles, before));
        assert_in_range(TOW_ID_INDEX(id), 1, 10);
        tows_handles_unbind(&handles, id);
        before = id;
    }
    assert_ptr_equal(tows_handles_find(&handles, first)->handle, at(1));
    /* Several free ones. */
    uint64_t ids[100];
    for (uint32_t i = 0; i < 100; i++) {
        ids[i] = tows_handles_export(&handles, TOW_H_GRAPH, at(200000 + i), 1);
    }
    for (uint32_t i = 0; i < 100; i++) {
        tows_handles_unbind(&handles, ids[i]);
    }
    for (uint32_t i = 0; i < 100; i++) {
        ids[i] = tows_handles_export(&handles, TOW_H_GRAPH, at(300000 + i), 1);
        assert_ptr_equal(tows_handles_find(&handles, ids[i])->handle, at(300000 + i));
        assert_in_range(TOW_ID_INDEX(ids[i]), 1, 110);
        for (uint32_t j = 0; j < i; j++) {
            assert_int_not_equal(ids[i], ids[j]);
        }
    }
}

static void ids_that_cannot_be_are_refused(void **state)
{
    const uint64_t wrong[] = {0, TOW_ID_MAKE(0, 0, 1, 1), TOW_ID_MAKE(TOW_H_LIMIT, 0, 1, 1),
                              TOW_ID_MAKE(TOW_H_EVENT, 0, 1, UINT32_MAX),
                              TOW_ID_MAKE(TOW_H_EVENT, 0, 1, 1) | UINT64_C(1) << 63};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(tows_handles_bind(&handles, wrong[i], at(1), CUDA_SUCCESS, 1), -EINVAL);
        assert_null(tows_handles_find(&handles, wrong[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_comes_and_goes_takes_no_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(live_ones_are_found_whatever_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(the_servers_indices_are_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(ids_that_cannot_be_are_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
