/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and checks the proofs of a login, and reads and writes tokens. */
#include "wire/login.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "towl-"
#define PREFIX_SIZE (sizeof PREFIX - 1)

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool tow_login_read_key(const char *text, uint8_t ret_key[TOW_LOGIN_SIZE])
{
    return strlen(text) == 2 * (size_t)TOW_LOGIN_SIZE &&
           tow_hex_read(text, ret_key, TOW_LOGIN_SIZE);
}

int tow_login_read(const char *text, size_t size, struct tow_login_token *ret_token)
{
    struct tow_login_token token = {0};
    uint8_t id[8];
    while (size > 0 && is_space(text[0])) {
        text++;
        size--;
    }
    while (size > 0 && is_space(text[size - 1])) {
        size--;
    }
    if (size != TOW_LOGIN_TEXT_SIZE || memcmp(text, PREFIX, PREFIX_SIZE) != 0 ||
        text[PREFIX_SIZE + 16] != '-' || !tow_hex_read(text + PREFIX_SIZE, id, sizeof id) ||
        !tow_hex_read(text + PREFIX_SIZE + 17, token.secret, sizeof token.secret)) {
        explicit_bzero(&token, sizeof token);
        return -EINVAL;
    }
    for (size_t i = 0; i < sizeof id; i++) {
        token.id = token.id << 8 | id[i];
    }
    if (token.id == 0) {
        return -EINVAL;
    }
    *ret_token = token;
    explicit_bzero(&token, sizeof token);
    return 0;
}

void tow_login_write(const struct tow_login_token *token, char ret_text[TOW_LOGIN_TEXT_SIZE + 1])
{
    int used = snprintf(ret_text, TOW_LOGIN_TEXT_SIZE + 1, PREFIX "%016llx-",
                        (unsigned long long)token->id);
    tow_sha256_hex(token->secret, ret_text + used);
}

void tow_login_first(const void *frame, size_t size, const uint8_t *binding,
                     uint8_t ret_first[TOW_LOGIN_SIZE])
{
    uint8_t both[2 * TOW_LOGIN_SIZE];
    tow_sha256_of(frame, size, ret_first);
    if (binding != NULL) {
        memcpy(both, ret_first, TOW_LOGIN_SIZE);
        memcpy(both + TOW_LOGIN_SIZE, binding, TOW_LOGIN_SIZE);
        tow_sha256_of(both, sizeof both, ret_first);
    }
}

static void client_key(const struct tow_login_token *token, uint8_t ret_key[TOW_LOGIN_SIZE])
{
    tow_hmac_sha256(token->secret, sizeof token->secret, "client", 6, ret_key);
}

void tow_login_keep(const struct tow_login_token *token, struct tow_login_keys *ret_keys)
{
    uint8_t key[TOW_LOGIN_SIZE];
    client_key(token, key);
    tow_sha256_of(key, sizeof key, ret_keys->stored);
    explicit_bzero(key, sizeof key);
    tow_hmac_sha256(token->secret, sizeof token->secret, "server", 6, ret_keys->server);
}

/* HMAC of what was said. */
static void sign_for(const char *use, const uint8_t key[TOW_LOGIN_SIZE],
                     const struct tow_login_said *said, uint8_t ret_signature[TOW_LOGIN_SIZE])
{
    struct tow_sha256 sha;
    uint8_t digest[TOW_LOGIN_SIZE];
    tow_sha256_init(&sha);
    tow_sha256_update(&sha, use, strlen(use) + 1);
    tow_sha256_update(&sha, &said->id, sizeof said->id);
    tow_sha256_update(&sha, said->server_nonce, sizeof said->server_nonce);
    tow_sha256_update(&sha, said->client_nonce, sizeof said->client_nonce);
    tow_sha256_update(&sha, said->first, sizeof said->first);
    tow_sha256_final(&sha, digest);
    tow_hmac_sha256(key, TOW_LOGIN_SIZE, digest, sizeof digest, ret_signature);
}

static void sign_said(const uint8_t key[TOW_LOGIN_SIZE], const struct tow_login_said *said,
                      uint8_t ret_signature[TOW_LOGIN_SIZE])
{
    sign_for("towline login 1", key, said, ret_signature);
}

void tow_login_prove(const struct tow_login_token *token, const struct tow_login_said *said,
                     uint8_t ret_proof[TOW_LOGIN_SIZE])
{
    struct tow_login_keys keys;
    uint8_t key[TOW_LOGIN_SIZE];
    tow_login_keep(token, &keys);
    client_key(token, key);
    sign_said(keys.stored, said, ret_proof);
    for (size_t i = 0; i < TOW_LOGIN_SIZE; i++) {
        ret_proof[i] ^= key[i];
    }
    explicit_bzero(key, sizeof key);
    explicit_bzero(&keys, sizeof keys);
}

bool tow_login_check(const struct tow_login_keys *keys, const struct tow_login_said *said,
                     const uint8_t proof[TOW_LOGIN_SIZE])
{
    uint8_t key[TOW_LOGIN_SIZE], digest[TOW_LOGIN_SIZE];
    sign_said(keys->stored, said, key);
    for (size_t i = 0; i < TOW_LOGIN_SIZE; i++) {
        key[i] ^= proof[i];
    }
    tow_sha256_of(key, sizeof key, digest);
    explicit_bzero(key, sizeof key);
    return tow_hash_equal(digest, keys->stored);
}

void tow_login_answer(const struct tow_login_keys *keys, const struct tow_login_said *said,
                      uint8_t ret_answer[TOW_LOGIN_SIZE])
{
    sign_said(keys->server, said, ret_answer);
}

bool tow_login_trusts(const struct tow_login_token *token, const struct tow_login_said *said,
                      const uint8_t answer[TOW_LOGIN_SIZE])
{
    struct tow_login_keys keys;
    uint8_t wanted[TOW_LOGIN_SIZE];
    tow_login_keep(token, &keys);
    sign_said(keys.server, said, wanted);
    explicit_bzero(&keys, sizeof keys);
    return tow_hash_equal(wanted, answer);
}

void tow_login_leave(const struct tow_login_keys *keys, const struct tow_login_said *said,
                     uint8_t ret_left[TOW_LOGIN_SIZE])
{
    sign_for("towline session 1", keys->server, said, ret_left);
}

void tow_login_session(uint64_t session, const uint8_t sent[TOW_LOGIN_SIZE],
                       const uint8_t left[TOW_LOGIN_SIZE], struct tow_login_token *ret_token)
{
    ret_token->id = session;
    tow_hmac_sha256(left, TOW_LOGIN_SIZE, sent, TOW_LOGIN_SIZE, ret_token->secret);
}
