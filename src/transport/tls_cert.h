/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates: the one that a server has, and which of them a client takes for its server's.
 *
 * A key is named by its fingerprint, SHA-256 of the public key as a certificate has it
 * (SubjectPublicKeyInfo, as in RFC 7469): a certificate that is renewed keeps it.
 */
#ifndef TOW_TRANSPORT_TLS_CERT_H
#define TOW_TRANSPORT_TLS_CERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "transport/tls_lib.h"

/* "sha256:" and 64 hexadecimal digits. */
#define TOW_TLS_PRINT_TEXT (7 + 2 * TOW_SHA256_SIZE)

struct tow_tls_print {
    uint8_t bytes[TOW_SHA256_SIZE];
};

void tow_tls_print_write(const struct tow_tls_print *print, char ret_text[TOW_TLS_PRINT_TEXT + 1]);
/* `text` and nothing else: 0, or -EINVAL. */
int tow_tls_print_read(const char *text, struct tow_tls_print *ret_print);

/* Makes a key (P-256) and a certificate of its own signature that does not expire, both in the file
 * `path`, which only its owner can read. A file that is there stays. With a sentence. */
int tow_tls_cert_make(const struct tow_tls_lib *lib, const char *path, char *ret_why, size_t size);

/* What a server shakes hands with: the certificate, what signed it behind it, and its key, in PEM.
 * Nobody but its owner and group may be able to read the key. With a sentence. The context is the
 * caller's (SSL_CTX_free). */
int tow_tls_cert_serve(const struct tow_tls_lib *lib, const char *certificate, const char *key,
                       char *ret_why, size_t size, SSL_CTX **ret_context,
                       struct tow_tls_print *ret_print);

/* Whom a client believes. Lives as long as the context that is made of it. */
struct tow_tls_trust {
    const struct tow_tls_print *pin; /* borrowed: this key and no other; NULL: see below */
    const char *authorities; /* borrowed: a file in PEM; whoever has a certificate of theirs for the
                                host of the handshake. NULL, and no pin: whoever it is */
    /* What the handshake saw. */
    bool met;                  /* a certificate came */
    struct tow_tls_print seen; /* its key */
    const char *doubt;         /* why the authorities' rules do not let it pass, or NULL */
};

/* What a client shakes hands with: -EACCES of tow_tls_shake if the server is another. With a
 * sentence. The context is the caller's. */
int tow_tls_cert_trust(const struct tow_tls_lib *lib, struct tow_tls_trust *trust, char *ret_why,
                       size_t size, SSL_CTX **ret_context);

#endif
