/* SPDX-License-Identifier: Apache-2.0 */
/* While the program waits in line for a server: it says where, and ends when its user wants that.
 * One link waits at a time (edge/core.c connects under a lock). */
#ifndef TOW_CLIENT_WAITING_H
#define TOW_CLIENT_WAITING_H

#include "transport/patience.h"

/* Says the place on stderr, or (place 0) that the wait is over. */
void towc_waiting_say(const char *address, const struct tow_place *place);
/* 1: SIGINT has come, though the program has a handler for it: Python's only notes it, and comes
 * back to it when this call is over. */
int towc_waiting_interrupted(void);
/* It waits no more, however it ended. */
void towc_waiting_end(const char *address);

#endif
