/* SPDX-License-Identifier: Apache-2.0 */
/* The client's part of a login: finds its token and proves to a server that asks that it has it;
 * and of a RESUME, the same with a session's secret. */
#ifndef TOW_TRANSPORT_LOGIN_H
#define TOW_TRANSPORT_LOGIN_H

#include "transport/transport.h"
#include "wire/control.h"

/* The server's CHALLENGE is at the front of the line, whole: proves the token, has the server prove
 * itself, and says `first` again, which the client had said first. The token is that of
 * TOWLINE_TOKEN_FILE, else TOWLINE_TOKEN, else of ~/.config/towline/token. `ret_left` has
 * TOW_LOGIN_SIZE bytes (tow_login_leave), or is NULL. An error with one sentence in `why`. */
int tow_login_do(struct tow_line *line, const char *address, const struct tow_preface *first,
                 int64_t deadline_ns, char *why, size_t why_size, uint8_t *ret_left);

/* Says RESUME on a new connection and proves that this is whose session it is: from then on it
 * carries what the line behind it did. -ESTALE: the server knows nothing of it (any more), with its
 * sentence in `why`; other errors may pass. */
int tow_login_resume(struct tow_line *line, const char *address, const struct tow_resume *resume,
                     const struct tow_login_token *secret, int64_t deadline_ns, char *why,
                     size_t why_size);

/* The same on a new encrypted connection, which only who has the session's grant can make: nothing
 * else is to be proved, and the session answers. */
int tow_login_go_on(struct tow_line *line, const struct tow_resume *resume, int64_t deadline_ns);

#endif
