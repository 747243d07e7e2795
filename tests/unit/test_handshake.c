/* SPDX-License-Identifier: Apache-2.0 */
/* Hellos and welcomes of all versions, and those that make no sense. */
#include "cmocka_all.h"

#include "wire/handshake.h"

#include <stdio.h>
#include <string.h>

static char why[512];

static void expect(enum tow_role side, const char *bytes, size_t n, const char *sentence)
{
    why[0] = '\0';
    assert_int_equal(tow_handshake_sniff(side, bytes, n, "tcp://h:1", why, sizeof why), -EPROTO);
    assert_string_equal(why, sentence);
}

static void strangers_are_recognised(void **state)
{
    const char *http = "tcp://h:1 answers with HTTP, not with Towline's protocol; name the address "
                       "that towlined listens on";
    expect(TOW_ROLE_CLIENT, "HTTP/1.1 400 Bad Request", 24, http);
    expect(TOW_ROLE_CLIENT, "\x15\x03\x01\0\x02\x02\x46", 7,
           "tcp://h:1 answers with TLS, not with Towline's protocol; name the address that "
           "towlined listens on");
    expect(TOW_ROLE_CLIENT, "SSH-2.0-OpenSSH_9.2", 19,
           "tcp://h:1 answers with SSH, not with Towline's protocol; name the address that "
           "towlined listens on");
    expect(TOW_ROLE_SERVER, "GET / HTTP/1.1\r\n", 16,
           "the client at tcp://h:1 speaks HTTP, not Towline's protocol");
    expect(TOW_ROLE_SERVER, "\x16\x03\x01\x02\x00\x01", 6,
           "the client at tcp://h:1 speaks TLS, not Towline's protocol");
    expect(TOW_ROLE_SERVER, "\xff\xff\xff\xff\x01\x02\x03\x04\0\0\0\0\0\0\0\0", 16,
           "the client at tcp://h:1 does not speak Towline's protocol (its first bytes are ff ff "
           "ff ff 01 02 03 04)");
}

static void our_own_frames_are_let_in(void **state)
{
    _Alignas(8) uint8_t bytes[1024];
    uint32_t length;
    struct tow_hello hello = {.version_min = 1, .version_max = 1, .name = "x"};
    assert_int_equal(tow_hello_encode(&hello, bytes, sizeof bytes, &length), 0);
    for (size_t n = 0; n < length; n++) {
        int result = tow_handshake_sniff(TOW_ROLE_SERVER, bytes, n, "p", why, sizeof why);
        assert_int_equal(result, n < 16 ? -EAGAIN : 0);
    }
    /* A client does not answer a client. */
    assert_int_equal(tow_handshake_sniff(TOW_ROLE_CLIENT, bytes, length, "p", why, sizeof why),
                     -EPROTO);
    bytes[16] ^= 1;
    assert_int_equal(tow_handshake_sniff(TOW_ROLE_SERVER, bytes, length, "p", why, sizeof why),
                     -EPROTO);
    struct tow_refuse refuse = {.code = 1, .sentence = "no"};
    assert_int_equal(tow_refuse_encode(&refuse, bytes, sizeof bytes, &length), 0);
    assert_int_equal(tow_handshake_sniff(TOW_ROLE_CLIENT, bytes, length, "p", why, sizeof why), 0);
}

static void the_highest_common_version_is_chosen(void **state)
{
    assert_int_equal(tow_handshake_pick_version(1, 3, 2, 5, why, sizeof why), 3);
    assert_int_equal(tow_handshake_pick_version(2, 9, 1, 4, why, sizeof why), 4);
    assert_int_equal(tow_handshake_pick_version(1, 1, 1, 1, why, sizeof why), 1);
}

static void no_common_version_names_who_is_older(void **state)
{
    assert_int_equal(tow_handshake_pick_version(3, 4, 1, 2, why, sizeof why), -EPROTO);
    assert_string_equal(why, "the client speaks Towline protocol 3 to 4 and the server 1 to 2; "
                             "install a newer Towline on the server");
    assert_int_equal(tow_handshake_pick_version(1, 1, 2, 2, why, sizeof why), -EPROTO);
    assert_string_equal(why, "the client speaks Towline protocol 1 and the server 2; install a "
                             "newer Towline on the client");
    assert_int_equal(tow_handshake_check_version(TOW_PROTOCOL_MAX, why, sizeof why), 0);
    assert_int_equal(tow_handshake_check_version(TOW_PROTOCOL_MAX + 1, why, sizeof why), -EPROTO);
    char wanted[200];
    snprintf(wanted, sizeof wanted,
             "the server chose Towline protocol %u, this client speaks %u; install the same "
             "Towline on both sides",
             TOW_PROTOCOL_MAX + 1, TOW_PROTOCOL_MAX);
    assert_string_equal(why, wanted);
}

/* A server that has the functions 3, 7 and 9. */
static uint32_t hash_of(unsigned number)
{
    return number == 3 || number == 7 || number == 9 ? 0x100 + number : 0;
}

static unsigned common[8], common_count;

static void take_common(void *user, unsigned number)
{
    assert_ptr_equal(user, common);
    common[common_count++] = number;
}

static int agree(const struct tow_travel *travels, uint32_t count, uint32_t *ret_lacking,
                 uint32_t *ret_count)
{
    struct tow_hello hello = {.functions = count, .travels = travels};
    common_count = 0;
    return tow_handshake_agree(&hello, hash_of, take_common, common, ret_lacking, ret_count);
}

static void both_sides_keep_the_functions_that_both_know(void **state)
{
    uint32_t lacking[8], count = 99;
    /* 3 is known, 5 is newer, of 7 something else travels, 9 is lacking here, 0xefff is the last
     * number that a function may have. */
    static const struct tow_travel travels[] = {
        {3, 0x103}, {5, 0x105}, {7, 0x207}, {0xefff, 0x1234}};
    assert_int_equal(agree(travels, 4, lacking, &count), 0);
    assert_int_equal(common_count, 1);
    assert_int_equal(common[0], 3);
    assert_int_equal(count, 3);
    assert_int_equal(lacking[0], 5);
    assert_int_equal(lacking[1], 7);
    assert_int_equal(lacking[2], 0xefff);
    assert_int_equal(agree(NULL, 0, lacking, &count), 0);
    assert_int_equal(count, 0);
}

static void functions_out_of_order_are_refused(void **state)
{
    uint32_t lacking[8], count = 0;
    static const struct tow_travel wrong[][2] = {{{3, 0x103}, {3, 0x103}},
                                                 {{5, 0x105}, {3, 0x103}},
                                                 {{0, 0x100}, {3, 0x103}},
                                                 {{3, 0x103}, {4, 0}},
                                                 {{3, 0x103}, {TOW_CONTROL_FIRST, 1}},
                                                 {{3, 0x103}, {0x10003, 0x103}}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(agree(wrong[i], 2, lacking, &count), -EPROTO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_recognised),
        cmocka_unit_test(our_own_frames_are_let_in),
        cmocka_unit_test(the_highest_common_version_is_chosen),
        cmocka_unit_test(no_common_version_names_who_is_older),
        cmocka_unit_test(both_sides_keep_the_functions_that_both_know),
        cmocka_unit_test(functions_out_of_order_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
