/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a worker that answers the listener's watchdog (pool/watchdog.h), and does nothing
 * else: it stands still only when the whole process does, not while a driver or a kernel takes
 * long.
 */
#ifndef TOW_SERVER_ALIVE_H
#define TOW_SERVER_ALIVE_H

#include "server/session/session.h"

/* Starts it; `stats`, which the listener sees, must live on. Behind those walls that hold for one
 * thread and those it makes. */
void tows_alive_start(struct tows_session_stats *stats);
/* With each answer it says from now on what GPU time the session has had. `ask` waits for nobody.
 */
void tows_alive_tell_time(uint64_t (*ask)(void));

#endif
