/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the device memory that a worker's session holds, for `towline status`: stands between the
 * session and the driver in the driver table, so that no handler has to think of it. One session a
 * process. */
#ifndef TOW_SERVER_ACCOUNT_H
#define TOW_SERVER_ACCOUNT_H

#include <stdatomic.h>
#include <stdint.h>

#include "backend/driver.h"

/* Puts itself into `driver`; *memory (borrowed for the process's life) is kept up to date. Once a
 * process. */
void tows_account_install(struct tow_driver *driver, _Atomic uint64_t *memory);

#endif
