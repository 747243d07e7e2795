/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), in pieces or at once. Uses the processor's own instructions where it has
 * them: code images are hashed before every load, and eight cuBLAS calls load 99 MB of them. */
#ifndef TOW_BASE_HASH_H
#define TOW_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOW_SHA256_SIZE 32

struct tow_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes taken so far */
    uint8_t block[64];
};

void tow_sha256_init(struct tow_sha256 *sha);
void tow_sha256_update(struct tow_sha256 *sha, const void *bytes, size_t n);
void tow_sha256_final(struct tow_sha256 *sha, uint8_t ret_digest[TOW_SHA256_SIZE]);
void tow_sha256_of(const void *bytes, size_t n, uint8_t ret_digest[TOW_SHA256_SIZE]);

/* 64 lower-case hexadecimal digits and a NUL. */
void tow_sha256_hex(const uint8_t digest[TOW_SHA256_SIZE], char ret_text[2 * TOW_SHA256_SIZE + 1]);

/* The other way: 2 n such digits, lower-case only, as n bytes. False, with bytes of no meaning, if
 * one is none; a NUL is none. */
bool tow_hex_read(const char *text, uint8_t *ret_bytes, size_t n);

/* HMAC-SHA-256 (RFC 2104) of `n` bytes under a key of any length. */
void tow_hmac_sha256(const void *key, size_t key_size, const void *bytes, size_t n,
                     uint8_t ret_mac[TOW_SHA256_SIZE]);

/* Looks at all bytes in any case: how long it takes tells nothing. */
bool tow_hash_equal(const uint8_t one[TOW_SHA256_SIZE], const uint8_t other[TOW_SHA256_SIZE]);

/* The portable code, whatever the processor has: for tests that compare. */
void tow_sha256_force_portable(int on);

#endif
