/* SPDX-License-Identifier: Apache-2.0 */
/* The client's part of a login: finds its token and proves to a server that asks that it has it. */
#ifndef TOW_TRANSPORT_LOGIN_H
#define TOW_TRANSPORT_LOGIN_H

#include "transport/transport.h"
#include "wire/control.h"

/* The server's CHALLENGE is at the front of the line, whole: proves the token, has the server prove
 * itself, and says `first` again, which the client had said first. The token is that of
 * TOWLINE_TOKEN_FILE, else TOWLINE_TOKEN, else of ~/.config/towline/token. An error with one
 * sentence in `why`. */
int tow_login_do(struct tow_line *line, const char *address, const struct tow_preface *first,
                 int64_t deadline_ns, char *why, size_t why_size);

#endif
