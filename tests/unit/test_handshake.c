#include "cmocka_all.h"

#include "wire/handshake.h"

#include <stdio.h>
#include <string.h>

static char why[512];

static void expect(enum tow_side side, const char *bytes, size_t n, const char *sentence)
{
    why[0] = '\0';
    assert_int_equal(tow_handshake_sniff(side, bytes, n, "tcp://h:1", why, sizeof why), -EPROTO);
    assert_string_equal(why, sentence);
}

static void strangers_are_recognised(void **state)
{
    const char *http = "tcp://h:1 answers with HTTP, not with Towline's protocol; name the address "
                       "that towlined listens on";
    expect(TOW_SIDE_CLIENT, "HTTP/1.1 400 Bad Request", 24, http);
    expect(TOW_SIDE_CLIENT, "\x15\x03\x01\0\x02\x02\x46", 7,
           "tcp://h:1 answers with TLS, not with Towline's protocol; name the address that "
           "towlined listens on");
    expect(TOW_SIDE_CLIENT, "SSH-2.0-OpenSSH_9.2", 19,
           "tcp://h:1 answers with SSH, not with Towline's protocol; name the address that "
           "towlined listens on");
    expect(TOW_SIDE_SERVER, "GET / HTTP/1.1\r\n", 16,
           "the client at tcp://h:1 speaks HTTP, not Towline's protocol");
    expect(TOW_SIDE_SERVER, "\x16\x03\x01\x02\x00\x01", 6,
           "the client at tcp://h:1 speaks TLS, not Towline's protocol");
    expect(TOW_SIDE_SERVER, "\xff\xff\xff\xff\x01\x02\x03\x04\0\0\0\0\0\0\0\0", 16,
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
        int result = tow_handshake_sniff(TOW_SIDE_SERVER, bytes, n, "p", why, sizeof why);
        assert_int_equal(result, n < 16 ? -EAGAIN : 0);
    }
    /* A client does not answer a client. */
    assert_int_equal(tow_handshake_sniff(TOW_SIDE_CLIENT, bytes, length, "p", why, sizeof why),
                     -EPROTO);
    bytes[16] ^= 1;
    assert_int_equal(tow_handshake_sniff(TOW_SIDE_SERVER, bytes, length, "p", why, sizeof why),
                     -EPROTO);
    struct tow_refuse refuse = {.code = 1, .sentence = "no"};
    assert_int_equal(tow_refuse_encode(&refuse, bytes, sizeof bytes, &length), 0);
    assert_int_equal(tow_handshake_sniff(TOW_SIDE_CLIENT, bytes, length, "p", why, sizeof why), 0);
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

static void expect_table(const char *client, uint32_t client_functions, const char *server,
                         uint32_t server_functions, const char *sentence)
{
    static const uint64_t one[4] = {1, 2, 3, 4}, other[4] = {1, 2, 3, 5};
    struct tow_table a = {one, client, client_functions}, b = {other, server, server_functions};
    why[0] = '\0';
    assert_int_equal(tow_handshake_check_table(&a, &b, why, sizeof why), -EPROTO);
    assert_string_equal(why, sentence);
    b.hash = one;
    assert_int_equal(tow_handshake_check_table(&a, &b, why, sizeof why), 0);
}

static void another_table_names_what_to_install_where(void **state)
{
    expect_table("0.9.1", 5, "0.10.0", 5,
                 "the client is Towline 0.9.1 and the server Towline 0.10.0; install Towline "
                 "0.10.0 on the client");
    expect_table("2.0", 5, "1.9.9", 7,
                 "the client is Towline 2.0 and the server Towline 1.9.9; install Towline 2.0 on "
                 "the server");
    expect_table("1.0.1", 5, "1.0", 5,
                 "the client is Towline 1.0.1 and the server Towline 1.0; install Towline 1.0.1 on "
                 "the server");
    expect_table("1.0", 240, "1.0", 246,
                 "the client's build of Towline 1.0 implements 240 driver functions and the "
                 "server's 246; install the newer build on the client");
    expect_table("1.0", 247, "1.0", 246,
                 "the client's build of Towline 1.0 implements 247 driver functions and the "
                 "server's 246; install the newer build on the server");
    expect_table("1.0", 246, "1.0", 246,
                 "client and server are both Towline 1.0, but built from different tables of the "
                 "driver API; install the same build on both sides");
    expect_table(NULL, 0, "1.0", 246,
                 "client and server were built from different tables of the driver API; install "
                 "Towline 1.0 on the client");
    expect_table("strange", 1, "1.0-rc", 1,
                 "the client is Towline strange and the server Towline 1.0-rc; install Towline "
                 "1.0-rc on the client");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_recognised),
        cmocka_unit_test(our_own_frames_are_let_in),
        cmocka_unit_test(the_highest_common_version_is_chosen),
        cmocka_unit_test(no_common_version_names_who_is_older),
        cmocka_unit_test(another_table_names_what_to_install_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
