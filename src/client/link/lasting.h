/* SPDX-License-Identifier: Apache-2.0 */
/* A link whose line goes on over another connection when its own is cut (transport/keep.h,
 * docs/inside/lasting.md). */
#ifndef TOW_CLIENT_LASTING_H
#define TOW_CLIENT_LASTING_H

#include "client/link/link.h"

/* Behind a WELCOME that says so: takes LASTING off the line, and puts a lasting one before it.
 * `left` is what the login has left (wire/login.h), zeros if there was none. On failure one
 * sentence in `why`. */
int towc_lasting_begin(struct towc_link *link, const uint8_t left[TOW_LOGIN_SIZE],
                       int64_t deadline_ns, char *why, size_t why_size);

/* Another line of the session, with that number (RESUME), which goes on as the session's own does.
 * It waits while the network is cut. -ESTALE: the server takes none. */
int towc_lasting_further(struct towc_link *link, uint32_t number, struct tow_line **ret_line);

/* The link is in use from now on: a second connection tells the server how the program ends, be it
 * killed. It is made beside the program. */
void towc_lasting_hold(struct towc_link *link);

/* The server has said how long its machine may be silent. */
void towc_lasting_silence(struct towc_link *link);

/* The program ends: it says goodbye now, and nobody need be told of a cut; all was said, and none
 * is mended. */
void towc_lasting_leave(struct towc_link *link);
void towc_lasting_left(struct towc_link *link);

/* Why the server does not let the line go on; else `otherwise`. By the reader, at the end. */
const char *towc_lasting_why(const struct towc_link *link, const char *otherwise);

/* What is said when a further connection has ended: of a session that lasts, the same. */
const char *towc_lasting_closed(const struct towc_link *link);

/* In a forked child, as tow_line_abandon. */
void towc_lasting_abandon(struct towc_link *link);

/* Closes the link's line, be it lasting or not. */
void towc_lasting_end(struct towc_link *link);

#endif
