/* SPDX-License-Identifier: Apache-2.0 */
/* MD2 and HMAC against the standards' examples. */
#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "client/edge/export.h"
#include "client/edge/md2.h"

static const char *hex(const uint8_t bytes[16])
{
    static char text[33];
    for (int i = 0; i < 16; i++) {
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    }
    return text;
}

static const char *md2_of(const char *input)
{
    static uint8_t digest[16];
    struct towc_md2 md2;
    towc_md2_init(&md2);
    towc_md2_update(&md2, input, strlen(input));
    towc_md2_final(&md2, digest);
    return hex(digest);
}

/* The test suite of RFC 1319. */
static void digests_are_those_of_the_standard(void **state)
{
    assert_string_equal(md2_of(""), "8350e5a3e24c153df2275c9f80692773");
    assert_string_equal(md2_of("a"), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
    assert_string_equal(md2_of("abc"), "da853b0d3f88d99b30283a69e6ded6bb");
    assert_string_equal(md2_of("message digest"), "ab4f496bfb2a530b219ff33031fe06b0");
    assert_string_equal(md2_of("abcdefghijklmnopqrstuvwxyz"), "4e8ddff3650292ab5a4108c3aa47940b");
}

static void pieces_give_the_digest_of_the_whole(void **state)
{
    const char *text = "0123456789abcdef0123456789abcdef0123";
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        struct towc_md2 md2;
        uint8_t digest[16];
        towc_md2_init(&md2);
        towc_md2_update(&md2, text, cut);
        towc_md2_update(&md2, text + cut, strlen(text) - cut);
        towc_md2_final(&md2, digest);
        char whole[33];
        strcpy(whole, md2_of(text));
        assert_string_equal(hex(digest), whole);
    }
}

static void the_runtime_accepts_these_answers(void **state)
{
    struct towc_integrity_head head = {
        .driver_version = 13000,
        .version = 13002,
        .pid = 1234,
        .thread = 0xabcd1234,
        .cudart_table = 0x7f0000001000,
        .integrity_table = 0x7f0000002000,
        .function = 0x7f0000003000,
        .seconds = 1700000000,
    };
    struct towc_integrity_device devices[2] = {{.pci_bus = 2}, {.pci_bus = 3}};
    uint8_t mac[16];
    for (int i = 0; i < 16; i++) {
        devices[0].uuid[i] = devices[1].uuid[i] = (uint8_t)i;
    }
    towc_integrity_mac(&head, devices, 0, mac);
    assert_string_equal(hex(mac), "b362e9c2e11de3a1e32e25e59eb735fe");
    towc_integrity_mac(&head, devices, 1, mac);
    assert_string_equal(hex(mac), "d7588a0f68b2a0f94202ff19f27f0c6c");
    towc_integrity_mac(&head, devices, 2, mac);
    assert_string_equal(hex(mac), "ad50d9d4055668eaeb1670a78a8cb4f0");
    head.seconds++;
    towc_integrity_mac(&head, devices, 2, mac);
    assert_string_not_equal(hex(mac), "ad50d9d4055668eaeb1670a78a8cb4f0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_those_of_the_standard),
        cmocka_unit_test(pieces_give_the_digest_of_the_whole),
        cmocka_unit_test(the_runtime_accepts_these_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
