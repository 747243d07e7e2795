/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets which worker: whose turn it is, and how many workers start. */
#ifndef TOW_SERVER_LISTENER_BALANCE_H
#define TOW_SERVER_LISTENER_BALANCE_H

#include "server/listener/server.h"

/* Whoever waits gets a worker; workers are started for the others and ahead; what nobody needs is
 * ended. */
void tows_balance(struct tows_server *server);
/* No worker for this key can start: those who wait for one learn why. */
void tows_balance_refuse(struct tows_server *server, const char *key);

#endif
