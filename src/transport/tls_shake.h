/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: the handshake of an encrypted line, by OpenSSL. */
#ifndef TOW_TRANSPORT_TLS_SHAKE_H
#define TOW_TRANSPORT_TLS_SHAKE_H

#include "transport/tls.h"
#include "transport/tls_record.h"

/* More than any flight of a handshake without certificates, and what may come behind it. */
#define TOW_TLS_EARLY_MAX (16u << 10)

/* What a handshake leaves. */
struct tow_tls_shaken {
    uint8_t client[TOW_TLS_SECRET]; /* CLIENT_TRAFFIC_SECRET_0 */
    uint8_t server[TOW_TLS_SECRET]; /* SERVER_TRAFFIC_SECRET_0 */
    size_t early_size;              /* received already, behind the handshake */
    uint8_t early[TOW_TLS_EARLY_MAX];
};

/* The whole handshake on a connected socket, as tow_tls_line has it. Clear the result with
 * explicit_bzero. */
int tow_tls_shake(const struct tow_tls_lib *lib, int fd, bool server,
                  const struct tow_tls_grant *grant, int64_t deadline_ns, char *ret_why,
                  size_t size, struct tow_tls_shaken *ret);

#endif
