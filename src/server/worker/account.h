/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the GPU memory that a worker's session holds, and holds it to its quota: stands between
 * the session and the driver in the driver table, so that no handler has to think of it. One
 * session a process. */
#ifndef TOW_SERVER_ACCOUNT_H
#define TOW_SERVER_ACCOUNT_H

#include <stdint.h>

#include "backend/driver.h"

struct tows_session_stats;

/* Puts itself into `driver`; `memory` and `charged` of the statistics (borrowed for the process's
 * life) are kept up to date. Once a process. */
void tows_account_install(struct tow_driver *driver, struct tows_session_stats *stats);

/* The session that begins now may have `quota` bytes of each GPU; `from` (borrowed) is who says so.
 * The first time that it wants more, `tell` gets a sentence for its user. Before anything is
 * allocated for it. */
void tows_account_limit(struct tow_driver *driver, uint64_t quota, const char *from,
                        void (*tell)(const char *sentence));

#endif
