/* SPDX-License-Identifier: Apache-2.0 */
/* Replies that are not what they should be. */
#include "cmocka_all.h"

#include <string.h>

#include "client/link/call.h"

static void an_array_is_no_longer_than_the_room_for_it(void **state)
{
    /* 3 elements of 4 bytes, as a server would send them. */
    uint64_t reply[3] = {3};
    uint32_t into[4];
    memcpy(&reply[1], (uint32_t[]){0, 1, 2}, 12);
    for (size_t room = 0; room <= 4; room++) {
        struct towc_call call = {.dec = tow_dec_init(reply, sizeof reply)};
        memset(into, 9, sizeof into);
        towc_call_get_array(&call, into, sizeof *into, room);
        assert_int_equal(call.dec.bad, room < 3);
        assert_int_equal(into[0], room < 3 ? 0x09090909 : 0);
        assert_int_equal(into[3], 0x09090909);
    }
    struct towc_call cut = {.dec = tow_dec_init(reply, 16)};
    towc_call_get_array(&cut, into, sizeof *into, 4);
    assert_true(cut.dec.bad);
    reply[0] = UINT64_MAX;
    struct towc_call endless = {.dec = tow_dec_init(reply, sizeof reply)};
    towc_call_get_array(&endless, NULL, sizeof *into, 0);
    assert_true(endless.dec.bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_is_no_longer_than_the_room_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
