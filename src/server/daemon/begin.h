/* SPDX-License-Identifier: Apache-2.0 */
/* The server from its first line to its last: opens, splits, has the listener run, ends. */
#ifndef TOW_SERVER_DAEMON_BEGIN_H
#define TOW_SERVER_DAEMON_BEGIN_H

#include "server/config/config.h"

/* Serves until SIGTERM or SIGINT; the program's exit code. `argc`, `argv` are read again at
 * SIGHUP. */
int tows_begin_main(const struct tows_config *config, int argc, char **argv);

#endif
