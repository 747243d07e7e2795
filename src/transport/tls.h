/* SPDX-License-Identifier: Apache-2.0 */
/* Encrypted lines: TLS 1.3 over a connected socket with a secret that both ends have, which the
 * server gave to a client that said who it is (psk_dhe_ke: what was recorded stays secret when the
 * secret gets known). No certificate is needed, so whoever serves a session has no key of the
 * server's.
 */
#ifndef TOW_TRANSPORT_TLS_H
#define TOW_TRANSPORT_TLS_H

#include "transport/line.h"
#include "wire/control.h"

/* Makes a line of a connected socket, which it owns from then on (also when it fails): both ends
 * show each other that they have the grant's secret, before the deadline. -ENOTSUP without an
 * OpenSSL, -EACCES if the other end has another secret, -ETIMEDOUT; with a sentence. The grant
 * stays the caller's. */
int tow_tls_line(int fd, bool server, const struct tow_grant *grant, int64_t deadline_ns,
                 char *ret_why, size_t size, struct tow_line **ret_line);

/* How many bytes a key may encrypt before the next one is used, for lines made from now on; at most
 * what the cipher allows. 0: that. */
void tow_tls_set_key_limit(uint64_t bytes);

/* How often a line has taken a new key into use, for sending and for receiving. */
void tow_tls_key_updates(const struct tow_line *line, uint64_t *ret_out, uint64_t *ret_in);

#endif
