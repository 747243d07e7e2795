/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of cuIpc: found by their tokens and by the same peer only, never too many. */
#include "cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "server/pool/handle_registry.h"

static struct tows_handle_registry handles;
static struct tows_handle_owner ann, bob; /* sessions 1 and 2 */
static const struct tows_who one = {.kind = TOW_WHO_USER, .user = 1000};
static const struct tows_who other = {.kind = TOW_WHO_USER, .user = 1001};

static int setup(void **state)
{
    (void)state;
    memset(&handles, 0, sizeof handles);
    memset(&ann, 0, sizeof ann);
    memset(&bob, 0, sizeof bob);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tows_handle_registry_end(&handles, &ann);
    tows_handle_registry_end(&handles, &bob);
    assert_int_equal(ann.count + bob.count, 0);
    for (int i = 0; i < TOW_HANDLES_BUCKETS; i++) {
        assert_null(handles.buckets[i]);
    }
    return 0;
}

static struct tows_ipc_handle made(unsigned number)
{
    struct tows_ipc_handle handle = {.kind = TOW_IPC_MEMORY};
    memcpy(handle.bytes, &number, sizeof number);
    return handle;
}

static struct tow_token added(struct tows_handle_owner *owner, unsigned number)
{
    struct tows_ipc_handle handle = made(number);
    struct tow_token token;
    assert_int_equal(
        tows_handle_registry_add(&handles, owner, owner == &ann ? 1 : 2, &one, &handle, &token), 0);
    return token;
}

static int found(struct tow_token token, const struct tows_who *who, unsigned number)
{
    struct tows_ipc_handle handle, wanted = made(number);
    const struct tows_handle_owner *owner;
    int error = tows_handle_registry_find(&handles, &token, who, &handle, &owner);
    if (error == 0) {
        assert_memory_equal(&handle, &wanted, sizeof handle);
    }
    return error;
}

static void a_token_leads_to_its_handle_and_for_the_same_peer_only(void **state)
{
    struct tow_token token[50];
    (void)state;
    for (unsigned i = 0; i < 50; i++) {
        token[i] = added(i % 2 != 0 ? &ann : &bob, i);
    }
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(found(token[i], &one, i), 0);
        assert_int_equal(found(token[i], &other, i), -ENOENT);
        token[i].word[1] ^= 1;
        assert_int_equal(found(token[i], &one, i), -ENOENT);
    }
}

static void a_handle_has_one_token_in_a_session(void **state)
{
    struct tow_token first = added(&ann, 7), again = added(&ann, 7), bobs = added(&bob, 7);
    (void)state;
    assert_memory_equal(&first, &again, sizeof first);
    assert_memory_not_equal(&first, &bobs, sizeof first);
    assert_int_equal(ann.count, 1);
    tows_handle_registry_end(&handles, &ann);
    assert_int_equal(found(first, &one, 7), -ENOENT);
    assert_int_equal(found(bobs, &one, 7), 0);
}

static void the_oldest_goes_when_there_are_too_many(void **state)
{
    struct tow_token first = added(&ann, 0), second = added(&ann, 1), bobs = added(&bob, 0),
                     last = first;
    (void)state;
    for (unsigned i = 2; i <= TOW_HANDLES_SESSION_MAX; i++) {
        last = added(&ann, i);
    }
    assert_int_equal(ann.count, TOW_HANDLES_SESSION_MAX);
    assert_int_equal(found(first, &one, 0), -ENOENT);
    assert_int_equal(found(second, &one, 1), 0);
    assert_int_equal(found(last, &one, TOW_HANDLES_SESSION_MAX), 0);
    assert_int_equal(found(bobs, &one, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_token_leads_to_its_handle_and_for_the_same_peer_only,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_handle_has_one_token_in_a_session, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_goes_when_there_are_too_many, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
