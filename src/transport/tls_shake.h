/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: the handshake of an encrypted line, by OpenSSL. */
#ifndef TOW_TRANSPORT_TLS_SHAKE_H
#define TOW_TRANSPORT_TLS_SHAKE_H

#include "transport/tls.h"
#include "transport/tls_client_cert.h"
#include "transport/tls_record.h"

/* More than a flight of a handshake with a few certificates, and what may come behind it. */
#define TOW_TLS_EARLY_MAX (16u << 10)

/* Bytes that both ends of a handshake have and nobody else, for proofs inside of it. */
#define TOW_TLS_BINDING 32
#define TOW_TLS_BINDING_LABEL "EXPORTER-towline-login"

/* What a handshake leaves. */
struct tow_tls_shaken {
    uint8_t client[TOW_TLS_SECRET]; /* CLIENT_TRAFFIC_SECRET_0 */
    uint8_t server[TOW_TLS_SECRET]; /* SERVER_TRAFFIC_SECRET_0 */
    uint8_t binding[TOW_TLS_BINDING];
    size_t early_size; /* received already, behind the handshake */
    uint8_t early[TOW_TLS_EARLY_MAX];
};

/* The settings that all our handshakes have: TLS 1.3, the one cipher, no tickets. NULL: no memory.
 */
SSL_CTX *tow_tls_context(const struct tow_tls_lib *lib);

/* The whole handshake on a connected socket. `context` with certificates, or `grant` (and then
 * `context` may be NULL); `host` is whom a certificate must name, NULL: verified otherwise. -EACCES
 * with OpenSSL's own words in ret_reason (which may stay NULL), -EPROTONOSUPPORT if the server
 * answers without TLS. Clear the result with explicit_bzero. */
struct tow_tls_shake_by {
    SSL_CTX *context;              /* borrowed */
    const struct tow_grant *grant; /* borrowed */
    const char *host;              /* borrowed */
    bool server;
    struct tow_tls_client_cert *ret_cert; /* a server's: who the client is, after
                                        tow_tls_client_cert_ask; NULL: nobody asks */
};
int tow_tls_shake(const struct tow_tls_lib *lib, int fd, const struct tow_tls_shake_by *by,
                  int64_t deadline_ns, const char **ret_reason, struct tow_tls_shaken *ret);

/* A line of what it left, which owns the socket in any case. */
int tow_tls_line_of(const struct tow_tls_lib *lib, int fd, bool server,
                    const struct tow_tls_shaken *shaken, struct tow_line **ret_line);

#endif
