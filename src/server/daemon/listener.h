/* SPDX-License-Identifier: Apache-2.0 */
/* The listening process: accepts, looks at what a peer wants, hands programs to workers. Never
 * touches a GPU. */
#ifndef TOW_SERVER_LISTENER_H
#define TOW_SERVER_LISTENER_H

#include "server/config/config.h"

/* Listens until SIGTERM or SIGINT; the program's exit code. `argc`, `argv` are read again at
 * SIGHUP. */
int tows_listener_main(const struct tows_config *config, int argc, char **argv);

#endif
