/* SPDX-License-Identifier: Apache-2.0 */
/* The two things systemd and a service tell each other, without its library. */
#ifndef TOW_SERVER_SYSTEMD_H
#define TOW_SERVER_SYSTEMD_H

/* Sends e.g. "READY=1" to whoever started us with NOTIFY_SOCKET; nothing happens without one. */
void tows_systemd_notify(const char *state);

/* How many listening sockets we were started with (descriptors 3, 4, ...); they are made CLOEXEC,
 * and the variables that name them are removed from the environment. */
int tows_systemd_sockets(void);

#endif
