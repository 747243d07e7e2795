/* SPDX-License-Identifier: Apache-2.0 */
/* A token, and how its owner proves over a line that others may read that he has it, without
 * showing it: SCRAM (RFC 5802) with 256 random bits instead of a password.
 *
 *     ClientKey = HMAC(secret, "client")      ServerKey = HMAC(secret, "server")
 *     StoredKey = SHA-256(ClientKey)          the server keeps StoredKey and ServerKey
 *     said      = SHA-256(id, the server's nonce, the client's nonce, SHA-256(first frame))
 *     proof     = ClientKey xor HMAC(StoredKey, said)
 *     answer    = HMAC(ServerKey, said)
 *     left      = HMAC(ServerKey, said, for another use)
 *
 * Neither what the server keeps nor what was said lets anybody log in; both together do.
 */
#ifndef TOW_WIRE_LOGIN_H
#define TOW_WIRE_LOGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* Of nonces, keys and proofs. */
#define TOW_LOGIN_SIZE TOW_SHA256_SIZE

/* "towl-", 16 digits of the id, "-", 64 of the secret: hexadecimal, lower case. */
#define TOW_LOGIN_TEXT_SIZE (5 + 16 + 1 + 64)

struct tow_login_token {
    uint64_t id; /* no secret: lists and logs show it; not 0 */
    uint8_t secret[TOW_LOGIN_SIZE];
};

/* What a server keeps of a token. */
struct tow_login_keys {
    uint8_t stored[TOW_LOGIN_SIZE];
    uint8_t server[TOW_LOGIN_SIZE];
};

/* What both sides have said when the proof is made. */
struct tow_login_said {
    uint64_t id;
    uint8_t server_nonce[TOW_LOGIN_SIZE];
    uint8_t client_nonce[TOW_LOGIN_SIZE];
    uint8_t first[TOW_LOGIN_SIZE]; /* tow_login_first of the frame that the client said first, and
                                      says again when it has logged in */
};

/* SHA-256 of a frame; with a `binding` (TOW_LOGIN_SIZE bytes that only the two ends of this
 * connection have; or NULL) of that and the binding. */
void tow_login_first(const void *frame, size_t size, const uint8_t *binding,
                     uint8_t ret_first[TOW_LOGIN_SIZE]);

/* `size` bytes that are a token from end to end, but for spaces and newlines around it: 0, or
 * -EINVAL. */
int tow_login_read(const char *text, size_t size, struct tow_login_token *ret_token);
void tow_login_write(const struct tow_login_token *token, char ret_text[TOW_LOGIN_TEXT_SIZE + 1]);

/* 64 hexadecimal digits and nothing else. */
bool tow_login_read_key(const char *text, uint8_t ret_key[TOW_LOGIN_SIZE]);

void tow_login_keep(const struct tow_login_token *token, struct tow_login_keys *ret_keys);

/* The client's: the proof, and whether the server's answer is right. */
void tow_login_prove(const struct tow_login_token *token, const struct tow_login_said *said,
                     uint8_t ret_proof[TOW_LOGIN_SIZE]);
bool tow_login_trusts(const struct tow_login_token *token, const struct tow_login_said *said,
                      const uint8_t answer[TOW_LOGIN_SIZE]);

/* The server's: whether a proof is right, and its answer. */
bool tow_login_check(const struct tow_login_keys *keys, const struct tow_login_said *said,
                     const uint8_t proof[TOW_LOGIN_SIZE]);
void tow_login_answer(const struct tow_login_keys *keys, const struct tow_login_said *said,
                      uint8_t ret_answer[TOW_LOGIN_SIZE]);

/* What a login leaves to its two sides, who had the token before, and to nobody who has read it. */
void tow_login_leave(const struct tow_login_keys *keys, const struct tow_login_said *said,
                     uint8_t ret_left[TOW_LOGIN_SIZE]);
/* A session's secret, as a token whose id is the session's number: of what was sent, and of what
 * the login has left (zeros: there was none). */
void tow_login_session(uint64_t session, const uint8_t sent[TOW_LOGIN_SIZE],
                       const uint8_t left[TOW_LOGIN_SIZE], struct tow_login_token *ret_token);

#endif
