/* SPDX-License-Identifier: Apache-2.0 */
/* The settings and lists of who may, read again while sessions go on. */
#ifndef TOW_SERVER_LISTENER_RELOAD_H
#define TOW_SERVER_LISTENER_RELOAD_H

#include "server/listener/server.h"

/* SIGHUP. Nothing takes effect before all was understood. */
void tows_reload_settings(struct tows_server *server);
/* Who may has changed: those who wait are asked once more, and programs whose tokens were revoked
 * end. */
void tows_reload_look_again(struct tows_server *server);

#endif
