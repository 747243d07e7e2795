/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses what NVIDIA's driver does not look at before it uses it.
 *
 * Most values that are no ids travel as the driver gave them out, and it knows its own: texture and
 * surface objects, conditional handles, resources, device addresses, exported pointers. Some it
 * takes for what they say, and a client could say anything: generic allocation handles are
 * addresses inside libcuda. This stands between the session and the driver in the driver table, as
 * account.h does, and knows those that are alive. One session a process.
 */
#ifndef TOW_SERVER_GUARD_H
#define TOW_SERVER_GUARD_H

#include "backend/driver.h"

/* Puts itself into `driver`. Once a process. */
void tows_guard_install(struct tow_driver *driver);

#endif
