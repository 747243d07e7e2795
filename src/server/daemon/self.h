/* SPDX-License-Identifier: Apache-2.0 */
/* The one function of libtowline-server.so: a server inside the program (`-s self:`), for tests. */
#ifndef TOW_SERVER_SELF_H
#define TOW_SERVER_SELF_H

#include <stddef.h>

#include "transport/line.h"

/* Opens a backend and serves `line` on a thread of its own; owns the line in any case. `what` is
 * what stands behind "self:": a device (soft, cuda, a path), settings of towlined as NAME=VALUE
 * separated by commas, or "" (then TOWLINE_DEVICE, else the server's own choice). Installs no
 * signal handler and never ends the process. On failure one sentence in `why`. */
int tow_self_start(const char *what, struct tow_line *line, char *why, size_t why_size);

#endif
