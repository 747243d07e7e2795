/* SPDX-License-Identifier: Apache-2.0 */
/* The process that answers over HTTP. It has no rights: no files, no network but the one socket
 * that it was given, no GPU; where root starts the server, a user of its own. It asks the listener
 * as any client does, over connections that it makes itself. */
#ifndef TOW_SERVER_WEB_WEB_H
#define TOW_SERVER_WEB_WEB_H

#include "server/config/config.h"

/* The descriptor that leads to the listener, who sends the socket to accept from with one byte. */
enum { TOW_WEB_CONTROL = 3, TOW_WEB_PORT = 9837 /* where none is named */ };

/* The process itself (towlined --web). */
int tows_web_main(const struct tows_config *config);

#endif
