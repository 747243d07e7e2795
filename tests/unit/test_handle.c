/* SPDX-License-Identifier: Apache-2.0 */
/* Ids: minting, generations, and kinds. */
#include "cmocka_all.h"

#include "client/session/handle.h"

static void a_live_id_gives_its_object_and_a_stale_one_nothing(void **state)
{
    int object = 0;
    uint64_t id = 0, other = 0;
    assert_int_equal(towc_handle_mint_object(TOW_H_EVENT, &object, &id), CUDA_SUCCESS);
    assert_true(id > 2); /* never taken for a default stream */
    assert_int_equal(TOW_ID_KIND(id), TOW_H_EVENT);
    assert_int_equal(TOW_ID_OF_SERVER(id), 0);
    assert_ptr_equal(towc_handle_object(TOW_H_EVENT, id), &object);
    assert_null(towc_handle_object(TOW_H_STREAM, id));
    assert_false(towc_handle_valid(TOW_H_STREAM, id));
    assert_true(towc_handle_valid(TOW_H_EVENT, id));
    assert_false(towc_handle_valid(TOW_H_EVENT, id ^ UINT64_C(1) << 40));
    assert_false(towc_handle_valid(TOW_H_EVENT, id | UINT64_C(1) << 63));
    assert_false(towc_handle_valid(TOW_H_EVENT, (id & ~UINT64_C(0xffffffff)) | 0xffffffff));
    assert_false(towc_handle_valid(TOW_H_EVENT, 0));
    assert_ptr_equal(towc_handle_retire(id), &object);
    assert_false(towc_handle_valid(TOW_H_EVENT, id));
    assert_null(towc_handle_retire(id));
    assert_int_equal(towc_handle_missing(TOW_H_EVENT, id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    assert_int_equal(towc_handle_missing(TOW_H_STREAM, id), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(towc_handle_missing(TOW_H_EVENT, id + (UINT64_C(1) << 32)),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(towc_handle_missing(TOW_H_EVENT, id + 1000), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(towc_handle_mint(TOW_H_EVENT, &other), CUDA_SUCCESS);
    assert_int_equal(TOW_ID_INDEX(other), TOW_ID_INDEX(id));
    assert_true(other != id);
    towc_handle_retire(other);
}

static void no_two_live_ids_share_an_index_whatever_their_kind(void **state)
{
    enum { COUNT = 10000 };
    static uint64_t ids[COUNT];
    static bool seen[COUNT + 64];
    for (int i = 0; i < COUNT; i++) {
        enum tow_handle_kind kind = i % 3 == 0   ? TOW_H_STREAM
                                    : i % 3 == 1 ? TOW_H_EVENT
                                                 : TOW_H_MODULE;
        assert_int_equal(towc_handle_mint(kind, &ids[i]), CUDA_SUCCESS);
        uint32_t index = TOW_ID_INDEX(ids[i]);
        assert_true(index > 0 && index < COUNT + 64);
        assert_false(seen[index]);
        seen[index] = true;
    }
    for (int i = 0; i < COUNT; i++) {
        towc_handle_retire(ids[i]);
    }
}

static void a_context_index_is_never_used_again(void **state)
{
    uint64_t first = 0, second = 0, third = 0;
    assert_int_equal(towc_handle_mint(TOW_H_CONTEXT, &first), CUDA_SUCCESS);
    towc_handle_retire(first);
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(towc_handle_mint(TOW_H_EVENT, &second), CUDA_SUCCESS);
        assert_int_not_equal(TOW_ID_INDEX(second), TOW_ID_INDEX(first));
        towc_handle_retire(second);
    }
    assert_int_equal(towc_handle_mint(TOW_H_CONTEXT, &third), CUDA_SUCCESS);
    assert_int_not_equal(TOW_ID_INDEX(third), TOW_ID_INDEX(first));
}

static void ids_of_the_server_are_taken_as_they_are(void **state)
{
    uint64_t id = TOW_ID_MAKE(TOW_H_GRAPHNODE, 1, 0, 77);
    assert_true(towc_handle_valid(TOW_H_GRAPHNODE, id));
    assert_false(towc_handle_valid(TOW_H_GRAPH, id));
    assert_null(towc_handle_object(TOW_H_GRAPHNODE, id));
    assert_null(towc_handle_retire(id));
}

static void count_one(void *user, uint64_t id, void *object)
{
    ++*(int *)user;
    assert_ptr_equal(object, user);
}

static void every_live_object_of_a_kind_is_visited(void **state)
{
    int count = 0;
    uint64_t ids[5];
    for (int i = 0; i < 5; i++) {
        assert_int_equal(towc_handle_mint_object(TOW_H_LIBRARY, &count, &ids[i]), CUDA_SUCCESS);
    }
    towc_handle_retire(ids[2]);
    towc_handle_each(TOW_H_LIBRARY, count_one, &count);
    assert_int_equal(count, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_live_id_gives_its_object_and_a_stale_one_nothing),
        cmocka_unit_test(no_two_live_ids_share_an_index_whatever_their_kind),
        cmocka_unit_test(a_context_index_is_never_used_again),
        cmocka_unit_test(ids_of_the_server_are_taken_as_they_are),
        cmocka_unit_test(every_live_object_of_a_kind_is_visited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
