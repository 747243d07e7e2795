/* SPDX-License-Identifier: Apache-2.0 */
/* The listening process: accepts, looks at what a peer wants, hands programs to workers. Never
 * touches a GPU. */
#ifndef TOW_SERVER_LISTENER_LISTENER_H
#define TOW_SERVER_LISTENER_LISTENER_H

#include "server/listener/server.h"

/* Until the server is told to stop, or has failed. */
void tows_listener_run(struct tows_server *server);

#endif
