/* SPDX-License-Identifier: Apache-2.0 */
/* A client's first TLS record, looked at without any key: which grant it names, so that whoever
 * accepts connections knows which session one belongs to. */
#ifndef TOW_TRANSPORT_TLS_HELLO_H
#define TOW_TRANSPORT_TLS_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/tls.h"

/* The largest record of a handshake (RFC 8446, 5.1), and its header. */
#define TOW_TLS_HELLO_MAX (5 + (16 << 10))

/* What the first `n` bytes of a connection are: -EPROTO: no TLS; -EAGAIN: its beginning; 0: a whole
 * ClientHello, which names a grant (and then `ret_id` is set) or none. One in several records names
 * none: ours are in one. */
int tow_tls_hello_read(const uint8_t *bytes, size_t n, bool *ret_names,
                       uint8_t ret_id[TOW_GRANT_ID]);

#endif
