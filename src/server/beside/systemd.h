/* SPDX-License-Identifier: Apache-2.0 */
/* What systemd and a service tell each other, without its library. */
#ifndef TOW_SERVER_BESIDE_SYSTEMD_H
#define TOW_SERVER_BESIDE_SYSTEMD_H

#include <stdbool.h>
#include <stdint.h>

#include "server/pool/parent_line.h"

/* From now on the parent says it: systemd listens to the process that it has started. */
void tows_systemd_relay(struct tows_parent_line *line);
/* Whether a state says nothing but how this service is: a process that sends others could have
 * systemd take another process for it. */
bool tows_systemd_is_state(const char *state);

/* Sends e.g. "READY=1" to whoever started us with NOTIFY_SOCKET; nothing happens without one. */
void tows_systemd_notify(const char *state);

/* How many listening sockets we were started with (descriptors 3, 4, ...); they are made CLOEXEC,
 * and the variables that name them are removed from the environment. */
int tows_systemd_sockets(void);

/* How often systemd's watchdog is to hear WATCHDOG=1 of us: twice as often as it must; 0: it does
 * not wait for that. The variables that say so are removed from the environment. */
int64_t tows_systemd_watchdog(void);

#endif
