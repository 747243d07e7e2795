/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side line (client/link/side.h), as the worker sees it. What comes on it is taken on
 * a thread of its own, which never calls the driver and takes no lock that is held while somebody
 * does: a stream of the device waits for it. */
#ifndef TOW_SERVER_SIDE_H
#define TOW_SERVER_SIDE_H

#include <stdint.h>

#include "wire/frame.h"

struct tow_line;
struct tows_session;

/* The client has added its side line; owns it. -EEXIST if there is one. */
int tows_side_begin(struct tows_session *session, struct tow_line *line);
/* What may come on it, and, if the client has none, on the session's own line. -EPROTO for anything
 * else. */
int tows_side_take(struct tows_session *session, const uint8_t *at, const struct tow_frame *frame);
/* A FENCE frame on the session's own line: until so many MIRROR frames were taken. */
int tows_side_await(struct tows_session *session, const uint8_t *at, const struct tow_frame *frame);
/* By the leader, which takes bytes of the session's own line that the side line's reader waits for
 * (side.overtakes). */
void tows_side_pass(struct tows_session *session);
/* The session ends: nobody waits any more. */
void tows_side_end(struct tows_session *session);

#endif
