/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the standard's examples, in pieces and with both implementations. */
#include "cmocka_all.h"

#include "base/hash.h"
#include "base/number.h"

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

static void check_mac(const void *key, size_t key_size, const void *bytes, size_t n,
                      const char *expected)
{
    uint8_t mac[TOW_SHA256_SIZE];
    char hex[2 * TOW_SHA256_SIZE + 1];
    tow_hmac_sha256(key, key_size, bytes, n, mac);
    tow_sha256_hex(mac, hex);
    hex[strlen(expected)] = '\0'; /* one of the vectors is cut short */
    assert_string_equal(hex, expected);
}

/* RFC 4231, 4.2 to 4.8. */
static void known_messages_have_their_known_macs(void **state)
{
    uint8_t key[131], data[50], count[25];
    memset(key, 0x0b, 20);
    check_mac(key, 20, "Hi There", 8,
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    check_mac("Jefe", 4, "what do ya want for nothing?", 28,
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, sizeof data);
    check_mac(key, 20, data, sizeof data,
              "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    for (size_t i = 0; i < sizeof count; i++) {
        count[i] = (uint8_t)(i + 1);
    }
    memset(data, 0xcd, sizeof data);
    check_mac(count, sizeof count, data, sizeof data,
              "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
    uint8_t short_key[20];
    memset(short_key, 0x0c, sizeof short_key);
    check_mac(short_key, sizeof short_key, "Test With Truncation", 20,
              "a3b6167473100ee06e0c796c2955552b");
    static const char large_key[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    check_mac(key, sizeof key, large_key, strlen(large_key),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    static const char large_data[] =
        "This is a test using a larger than block-size key and a larger than block-size data. The "
        "key needs to be hashed before being used by the HMAC algorithm.";
    check_mac(key, sizeof key, large_data, strlen(large_data),
              "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

static void digests_differ_in_any_bit(void **state)
{
    uint8_t one[TOW_SHA256_SIZE] = {7}, other[TOW_SHA256_SIZE] = {7};
    assert_true(tow_hash_equal(one, other));
    for (size_t bit = 0; bit < 8 * sizeof one; bit++) {
        other[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(tow_hash_equal(one, other));
        other[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void hexadecimal_digits_are_read_as_they_are_written(void **state)
{
    uint8_t digest[TOW_SHA256_SIZE], back[TOW_SHA256_SIZE];
    char hex[2 * TOW_SHA256_SIZE + 1];
    for (unsigned i = 0; i < sizeof digest; i++) {
        digest[i] = (uint8_t)(37 * i + 201);
    }
    tow_sha256_hex(digest, hex);
    assert_true(tow_hex_read(hex, back, sizeof back));
    assert_memory_equal(back, digest, sizeof back);
    for (unsigned i = 0; i < sizeof hex - 1; i++) {
        for (int c = 0; c < 256; c++) {
            hex[i] = (char)c;
            assert_int_equal(tow_hex_read(hex, back, sizeof back),
                             c != 0 && strchr("0123456789abcdef", c) != NULL);
        }
        hex[i] = '0';
    }
    for (int c = 0; c < 256; c++) {
        const char digit[] = {(char)c, '\0'};
        int value = strspn(digit, "0123456789abcdefABCDEF") ? (int)strtol(digit, NULL, 16) : -1;
        assert_int_equal(tow_hex_digit((char)c), value);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_messages_have_their_known_digests),
        cmocka_unit_test(known_messages_have_their_known_macs),
        cmocka_unit_test(digests_differ_in_any_bit),
        cmocka_unit_test(hexadecimal_digits_are_read_as_they_are_written),
        cmocka_unit_test(pieces_and_processors_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
