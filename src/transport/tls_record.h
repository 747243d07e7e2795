/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: the records of TLS 1.3 (RFC 8446, section 5) under TLS_AES_128_GCM_SHA256,
 * one direction each, and the next key of it (7.2). No I/O, no locks: two threads may each use a
 * direction. The secrets come out of OpenSSL's handshake.
 */
#ifndef TOW_TRANSPORT_TLS_RECORD_H
#define TOW_TRANSPORT_TLS_RECORD_H

#include "transport/tls_lib.h"

#include <stdbool.h>
#include <sys/uio.h>

#define TOW_TLS_SECRET 32
#define TOW_TLS_IV 12
#define TOW_TLS_TAG 16
#define TOW_TLS_HEAD 5
#define TOW_TLS_PLAIN_MAX (16u << 10)
/* Of a record that we seal: its head, the type behind its content, its tag. */
#define TOW_TLS_OVERHEAD (TOW_TLS_HEAD + 1 + TOW_TLS_TAG)
/* Of one that comes: content, type and padding, tag. */
#define TOW_TLS_BODY_MAX (TOW_TLS_PLAIN_MAX + 256)
#define TOW_TLS_BODY_MIN (1 + TOW_TLS_TAG)

/* A key seals at most 2^24.5 records (RFC 8446, 5.5). */
#define TOW_TLS_RECORDS_MAX (UINT64_C(1) << 24)

enum tow_tls_type {
    TOW_TLS_ALERT = 21,
    TOW_TLS_HANDSHAKE = 22,
    TOW_TLS_DATA = 23,
};

struct tow_tls_key {
    const struct tow_tls_lib *lib; /* borrowed, for ever */
    EVP_CIPHER_CTX *cipher;        /* owned */
    bool seals;
    uint64_t records; /* under this key: the next one's number */
    uint64_t bytes;   /* of content under this key */
    uint8_t iv[TOW_TLS_IV];
    uint8_t secret[TOW_TLS_SECRET];
};

/* The first key of a direction. */
int tow_tls_key_init(struct tow_tls_key *key, const struct tow_tls_lib *lib, bool seals,
                     const uint8_t secret[TOW_TLS_SECRET]);
/* The next one; the old one cannot be had from it. After a failure there is none: -ENOKEY. */
int tow_tls_key_update(struct tow_tls_key *key);
/* Forgets everything; a zeroed one is fine. */
void tow_tls_key_fini(struct tow_tls_key *key);

/* Writes one record with the first `size` bytes (at most TOW_TLS_PLAIN_MAX) of `iov` to `ret`,
 * which has TOW_TLS_OVERHEAD more than that. */
int tow_tls_seal(struct tow_tls_key *key, enum tow_tls_type type, const struct iovec *iov,
                 size_t size, uint8_t *ret);

/* How long the record is that begins here with at least TOW_TLS_HEAD bytes, head and all; -EPROTO
 * if none does. */
int tow_tls_record_size(const uint8_t *at);

/* Opens the record that is whole at `at`. `ret` has room for TOW_TLS_OVERHEAD bytes less than the
 * record, which is cleared by a failure: -EBADMSG if it was not sealed by the peer. */
int tow_tls_open(struct tow_tls_key *key, const uint8_t *at, uint8_t *ret, size_t *ret_size,
                 uint8_t *ret_type);

/* HKDF-Expand-Label(secret, label, "", size) of RFC 8446, 7.1, with SHA-256; size at most 32. */
int tow_tls_expand(const struct tow_tls_lib *lib, const uint8_t secret[TOW_TLS_SECRET],
                   const char *label, uint8_t *ret, size_t size);

#endif
