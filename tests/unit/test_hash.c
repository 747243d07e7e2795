/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the standard's examples, in pieces and with both implementations. */
#include "cmocka_all.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

static void check(const char *text, size_t repeat, const char *expected)
{
    struct tow_sha256 sha;
    uint8_t digest[TOW_SHA256_SIZE];
    char hex[2 * TOW_SHA256_SIZE + 1];
    tow_sha256_init(&sha);
    for (size_t i = 0; i < repeat; i++) {
        tow_sha256_update(&sha, text, strlen(text));
    }
    tow_sha256_final(&sha, digest);
    tow_sha256_hex(digest, hex);
    assert_string_equal(hex, expected);
}

/* The examples of FIPS 180-4 and their well-known companions. */
static void known_messages_have_their_known_digests(void **state)
{
    for (int portable = 0; portable < 2; portable++) {
        tow_sha256_force_portable(portable);
        check("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        check("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    tow_sha256_force_portable(0);
}

static void pieces_and_processors_do_not_matter(void **state)
{
    uint8_t bytes[700];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 131 + i / 7);
    }
    for (size_t n = 0; n < sizeof bytes; n += n < 200 ? 1 : 37) {
        uint8_t whole[TOW_SHA256_SIZE], pieces[TOW_SHA256_SIZE];
        tow_sha256_force_portable(0);
        tow_sha256_of(bytes, n, whole);
        tow_sha256_force_portable(1);
        struct tow_sha256 sha;
        tow_sha256_init(&sha);
        for (size_t at = 0, step = 1; at < n; at += step, step = step * 3 % 61 + 1) {
            tow_sha256_update(&sha, bytes + at, at + step < n ? step : n - at);
        }
        tow_sha256_final(&sha, pieces);
        assert_memory_equal(whole, pieces, TOW_SHA256_SIZE);
    }
    tow_sha256_force_portable(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_messages_have_their_known_digests),
        cmocka_unit_test(pieces_and_processors_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
