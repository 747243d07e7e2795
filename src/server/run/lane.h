/* SPDX-License-Identifier: Apache-2.0 */
/* The further connections of a session, as the worker sees them; see transport/lanes.h. */
#ifndef TOW_SERVER_LANE_H
#define TOW_SERVER_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tows_session;

/* The session's line lasts: begins to take connections over which it goes on. With `bulk` others
 * may come, too, once the client is told of them. Before the first command. -ENOMEM. */
int tows_lane_await(struct tows_session *session, bool bulk);

/* Tells the client the key, and waits for them on a thread of its own. With `bulk`, before the
 * session's first command: they may be lanes for bulk data. Without, later, by the leader: only the
 * side line (side.h). */
void tows_lane_begin(struct tows_session *session, bool bulk);

/* The listener's orders come the same way: from now on somebody takes them. -ENOMEM. */
int tows_lane_listen(struct tows_session *session);

#endif
