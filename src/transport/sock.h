/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: lines over stream sockets, and the small helpers all socket kinds use. */
#ifndef TOW_TRANSPORT_SOCK_H
#define TOW_TRANSPORT_SOCK_H

#include "transport/line.h"

/* Makes a line of a connected stream socket, which it owns from then on (also when it fails). */
int tow_sock_line(int fd, bool tcp, struct tow_line **ret_line);

/* Describes the peer of a socket: its address, or its process and user. */
void tow_sock_describe(int fd, char *ret_text, size_t size);

/* Sends or receives exactly n bytes before the deadline; for the few bytes before a line exists. */
int tow_sock_send_all(int fd, const void *bytes, size_t n, int64_t deadline_ns);
int tow_sock_recv_all(int fd, void *bytes, size_t n, int64_t deadline_ns);

/* Waits for `events` on fd: 0, -ETIMEDOUT or an error. */
int tow_sock_poll(int fd, short events, int64_t deadline_ns);

/* Connects without blocking beyond the deadline; the socket is blocking afterwards. */
struct sockaddr;
int tow_sock_connect(int fd, const struct sockaddr *address, unsigned length, int64_t deadline_ns);

/* Gives a unix socket a large buffer, if it has none yet; as large as root may, where it is root.
 */
void tow_sock_widen(int fd);

/* Sets or clears O_NONBLOCK. */
int tow_sock_set_blocking(int fd, bool blocking);

#endif
