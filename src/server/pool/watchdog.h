/* SPDX-License-Identifier: Apache-2.0 */
/* Ends sessions whose worker stands still: stopped by a signal, or asleep in the kernel where no
 * signal reaches it. Its threads serve nobody then, and those that look after its client stand,
 * too. Kills workers that are there when their program has long gone, whatever they do.
 */
#ifndef TOW_SERVER_WATCHDOG_H
#define TOW_SERVER_WATCHDOG_H

#include <stdint.h>
#include <sys/types.h>

#include "server/pool/worker_pool.h"

/* Asks every worker whether it lives, and ends those that have left `watchdog` questions without an
 * answer, or that were there `linger` times although their client's connection had ended. To be
 * called once a second: it is the questions that count. So a listener that was itself
 * stopped, with its workers, ends none when it goes on. */
void tows_watchdog_look(struct tows_worker_pool *pool);

#endif
