/* SPDX-License-Identifier: Apache-2.0 */
/* A session from its client's hello to its end. */
#ifndef TOW_SERVER_RUN_H
#define TOW_SERVER_RUN_H

struct tow_backend;
struct tow_line;
struct tows_session_options;

/* Says hello and serves until the client leaves, then frees everything of the session. 0 for an
 * orderly end, -EPIPE if the client vanished, -EPROTO if it broke the protocol, another error if
 * the session could not begin. */
int tows_session_run(struct tow_line *line, struct tow_backend *backend,
                     const struct tows_session_options *options);

#endif
