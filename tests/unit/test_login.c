/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens as text, and proofs: right ones are taken, and nothing else. */
#include "cmocka_all.h"

#include "wire/login.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char text[] = "towl-00a1b2c3d4e5f607-"
                           "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

static struct tow_login_token token_of(const char *from)
{
    struct tow_login_token token;
    assert_int_equal(tow_login_read(from, strlen(from), &token), 0);
    return token;
}

static void a_token_is_written_as_it_is_read(void **state)
{
    char again[TOW_LOGIN_TEXT_SIZE + 1], padded[128];
    assert_int_equal(strlen(text), TOW_LOGIN_TEXT_SIZE);
    struct tow_login_token token = token_of(text);
    assert_true(token.id == 0x00a1b2c3d4e5f607u);
    assert_int_equal(token.secret[31], 0x1f);
    tow_login_write(&token, again);
    assert_string_equal(again, text);
    snprintf(padded, sizeof padded, " \t%s\r\n\n", text);
    struct tow_login_token same = token_of(padded);
    assert_memory_equal(&same, &token, sizeof token);
}

static void what_is_no_token_is_refused(void **state)
{
    struct tow_login_token token;
    char wrong[sizeof text + 1];
    for (size_t n = 0; n < TOW_LOGIN_TEXT_SIZE; n++) {
        assert_int_equal(tow_login_read(text, n, &token), -EINVAL);
        snprintf(wrong, sizeof wrong, "%s", text);
        wrong[n] = n % 2 == 0 ? 'G' : '\0';
        assert_int_equal(tow_login_read(wrong, TOW_LOGIN_TEXT_SIZE, &token), -EINVAL);
    }
    snprintf(wrong, sizeof wrong, "%s0", text);
    assert_int_equal(tow_login_read(wrong, strlen(wrong), &token), -EINVAL);
    snprintf(wrong, sizeof wrong, "%s", text);
    memset(wrong + 5, '0', 16); /* nobody has this id */
    assert_int_equal(tow_login_read(wrong, strlen(wrong), &token), -EINVAL);
}

static void a_proof_is_for_what_was_said_and_its_token(void **state)
{
    struct tow_login_token token = token_of(text);
    struct tow_login_keys keys;
    struct tow_login_said said = {.id = token.id, .server_nonce = {1}, .client_nonce = {2}};
    uint8_t proof[TOW_LOGIN_SIZE], answer[TOW_LOGIN_SIZE];
    tow_login_keep(&token, &keys);
    tow_login_prove(&token, &said, proof);
    tow_login_answer(&keys, &said, answer);
    assert_true(tow_login_check(&keys, &said, proof));
    assert_true(tow_login_trusts(&token, &said, answer));
    /* Every byte of what was said counts, for both. */
    for (size_t i = 0; i < sizeof said; i++) {
        struct tow_login_said other = said;
        ((uint8_t *)&other)[i] ^= 0x10;
        assert_false(tow_login_check(&keys, &other, proof));
        assert_false(tow_login_trusts(&token, &other, answer));
    }
    for (size_t i = 0; i < TOW_LOGIN_SIZE; i++) {
        struct tow_login_token other = token;
        other.secret[i] ^= 1;
        proof[i] ^= 1;
        answer[i] ^= 1;
        assert_false(tow_login_check(&keys, &said, proof));
        assert_false(tow_login_trusts(&token, &said, answer));
        proof[i] ^= 1;
        answer[i] ^= 1;
        assert_false(tow_login_trusts(&other, &said, answer));
    }
}

/* A proof that was made for one TLS connection is none for another, nor for one without. */
static void a_proof_is_bound_to_its_connection(void **state)
{
    struct tow_login_token token = token_of(text);
    struct tow_login_keys keys;
    struct tow_login_said said = {.id = token.id};
    const uint8_t here[TOW_LOGIN_SIZE] = {1}, there[TOW_LOGIN_SIZE] = {2};
    uint8_t proof[TOW_LOGIN_SIZE];
    tow_login_keep(&token, &keys);
    tow_login_first("hello", 5, here, said.first);
    tow_login_prove(&token, &said, proof);
    assert_true(tow_login_check(&keys, &said, proof));
    tow_login_first("hello", 5, there, said.first);
    assert_false(tow_login_check(&keys, &said, proof));
    tow_login_first("hello", 5, NULL, said.first);
    assert_false(tow_login_check(&keys, &said, proof));
}

/* Who has the server's file, and nothing that was said, cannot log in with what is in it. */
static void what_the_server_keeps_is_no_token(void **state)
{
    struct tow_login_token token = token_of(text), thief = token;
    struct tow_login_keys keys;
    struct tow_login_said said = {.id = token.id, .server_nonce = {3}};
    uint8_t proof[TOW_LOGIN_SIZE];
    tow_login_keep(&token, &keys);
    memcpy(thief.secret, keys.stored, sizeof thief.secret);
    tow_login_prove(&thief, &said, proof);
    assert_false(tow_login_check(&keys, &said, proof));
    memcpy(thief.secret, keys.server, sizeof thief.secret);
    tow_login_prove(&thief, &said, proof);
    assert_false(tow_login_check(&keys, &said, proof));
}

/* Both sides of a login make the same secret of a session, of which nothing was said that makes it;
 * who has only read what was said makes another. */
static void a_session_has_a_secret_that_was_not_said(void **state)
{
    struct tow_login_token token = token_of(text), ours, theirs, thiefs;
    struct tow_login_keys keys, own;
    struct tow_login_said said = {.id = token.id, .server_nonce = {3}, .client_nonce = {4}};
    uint8_t left[TOW_LOGIN_SIZE], answer[TOW_LOGIN_SIZE], proof[TOW_LOGIN_SIZE];
    const uint8_t sent[TOW_LOGIN_SIZE] = {5}, none[TOW_LOGIN_SIZE] = {0};
    tow_login_keep(&token, &keys);
    tow_login_leave(&keys, &said, left);
    tow_login_answer(&keys, &said, answer);
    tow_login_session(77, sent, left, &ours);
    tow_login_session(77, sent, left, &theirs);
    assert_int_equal(ours.id, 77);
    assert_memory_equal(ours.secret, theirs.secret, TOW_LOGIN_SIZE);
    const uint8_t *wrong[] = {none, answer};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tow_login_session(77, sent, wrong[i], &thiefs);
        assert_memory_not_equal(ours.secret, thiefs.secret, TOW_LOGIN_SIZE);
        said.id = 77;
        tow_login_keep(&ours, &own);
        tow_login_prove(&thiefs, &said, proof);
        assert_false(tow_login_check(&own, &said, proof));
    }
    tow_login_prove(&theirs, &said, proof);
    assert_true(tow_login_check(&own, &said, proof));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_written_as_it_is_read),
        cmocka_unit_test(what_is_no_token_is_refused),
        cmocka_unit_test(a_proof_is_for_what_was_said_and_its_token),
        cmocka_unit_test(a_proof_is_bound_to_its_connection),
        cmocka_unit_test(what_the_server_keeps_is_no_token),
        cmocka_unit_test(a_session_has_a_secret_that_was_not_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
