/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates of clients: a server asks for one in its handshake and judges it, a client shows its
 * own where it is asked for.
 *
 * A certificate that is not good does not end the handshake: in TLS 1.3 the client has finished its
 * part by then, and would learn of it by a connection that ends. The server knows what to think of
 * it, and refuses with a sentence what is wanted. */
#ifndef TOW_TRANSPORT_TLS_CLIENT_CERT_H
#define TOW_TRANSPORT_TLS_CLIENT_CERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/tls_lib.h"
#include "transport/transport.h"

/* ---- the server's part ---- */

enum tow_tls_cert_state {
    TOW_TLS_CERT_NONE,            /* shows no certificate, or was not asked for one */
    TOW_TLS_CERT_GOOD,            /* has one that an authority vouches for, and its key */
    TOW_TLS_CERT_NOT_YET,         /* one that is not valid yet */
    TOW_TLS_CERT_EXPIRED,         /* one that has expired */
    TOW_TLS_CERT_NOT_FOR_CLIENTS, /* one that is not for clients */
    TOW_TLS_CERT_FOREIGN,         /* one that no authority vouches for, or anything else is wrong */
};

/* The longest common name that X.509 knows (ub-common-name). */
enum { TOW_TLS_CERT_NAME_MAX = 64, TOW_TLS_CERT_DOUBT_MAX = 96 };

/* Whose certificate a client has shown. */
struct tow_tls_client_cert {
    uint32_t state;                       /* enum tow_tls_cert_state */
    char name[TOW_TLS_CERT_NAME_MAX + 1]; /* the common name of its subject, as it stands there; "":
                                          none, several, or one that is no text */
    char doubt[TOW_TLS_CERT_DOUBT_MAX + 1]; /* what is wrong, in OpenSSL's words; GOOD: "" */
};

/* Has handshakes with `context` ask for a certificate that is for clients and that one of these
 * authorities, a file in PEM, vouches for. None is as right as any. With a sentence. */
int tow_tls_client_cert_ask(const struct tow_tls_lib *lib, SSL_CTX *context,
                            const char *authorities, char *ret_why, size_t size);

/* After such a handshake. */
void tow_tls_client_cert_read(const struct tow_tls_lib *lib, const SSL *ssl,
                              struct tow_tls_client_cert *ret_cert);

/* ---- the client's part ---- */

/* Lives as long as the context that shows it. */
struct tow_tls_own {
    char why[TOW_WHY_MAX]; /* the handshake failed since it cannot be shown: the sentence; or "" */
};

/* Has handshakes with `context` show the user's certificate to a server that asks for one: that of
 * TOWLINE_TLS_CERT ("none": none), else of ~/.config/towline/client.pem if that is there, with the
 * key of TOWLINE_TLS_KEY, else of the same file. No file is opened before a server asks, which it
 * does only after it was found to be the right one. */
void tow_tls_own_show(const struct tow_tls_lib *lib, SSL_CTX *context, struct tow_tls_own *own);

#endif
