/* SPDX-License-Identifier: Apache-2.0 */
/* tls://HOST:PORT: how a client finds out whether a server is the one that it is to be. */
#ifndef TOW_TRANSPORT_TLS_DIAL_H
#define TOW_TRANSPORT_TLS_DIAL_H

#include "transport/tls_cert.h"
#include "transport/transport.h"

/* Which key the server at an address has, whoever it is; and its name in the file of known servers
 * (`ret_name` has TOW_ADDRESS_MAX bytes). -EINVAL for an address without keys. With a sentence. */
int tow_tls_ask_print(const char *address, int64_t deadline_ns, char *ret_why, size_t size,
                      char *ret_name, struct tow_tls_print *ret_print);

/* Which file has the key of the server at this address (`ret_path` has PATH_MAX bytes): the
 * machine's if that has it, too. Nobody is asked. -ENOENT: none. With a sentence. */
int tow_tls_known(const char *address, char *ret_path, char *ret_why, size_t size);

#endif
