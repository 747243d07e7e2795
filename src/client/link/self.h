/* SPDX-License-Identifier: Apache-2.0 */
/* self: the server as a library in this process, for tests and for trying things out. */
#ifndef TOW_CLIENT_SELF_H
#define TOW_CLIENT_SELF_H

#include <stddef.h>

struct tow_line;

/* Loads libtowline-server.so, which lies beside this library, and starts a session on the device
 * that `rest` names ("soft", "cuda", a path; empty: as the server chooses). One sentence in `why`
 * on failure. */
int towc_self_connect(const char *rest, struct tow_line **ret_line, char *why, size_t why_size);

/* What that library exports: serves on a thread of its own until the line ends. Owns the line in
 * any case. */
int tow_self_start(const char *device, struct tow_line *line, char *why, size_t why_size);

#endif
