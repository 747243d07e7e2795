/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: connections over tcp, for every scheme that has them. */
#ifndef TOW_TRANSPORT_TCP_H
#define TOW_TRANSPORT_TCP_H

#include <stddef.h>
#include <stdint.h>

struct tow_tcp_address {
    char host[256]; /* without brackets; "" for any */
    char port[8];
};

/* HOST:PORT, HOST, [::1]:PORT. `scheme` ("tcp://") says which port it is
 * where none is named. */
int tow_tcp_parse(const char *scheme, const char *rest, struct tow_tcp_address *ret_address,
                  char *ret_why, size_t size);

/* A connected socket, before the deadline; only name resolution may take longer. */
int tow_tcp_dial(const char *scheme, const char *rest, int64_t deadline_ns, char *ret_why,
                 size_t size, int *ret_fd);

/* A listening, non-blocking one; `ret_address` has TOW_ADDRESS_MAX bytes. */
int tow_tcp_listen(const char *scheme, const char *rest, char *ret_why, size_t size, int *ret_fd,
                   char *ret_address);

#endif
