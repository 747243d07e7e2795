/* The further connections of a session, as the worker sees them; see transport/lanes.h. */
#ifndef TOW_SERVER_LANE_H
#define TOW_SERVER_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tow_session;

/* Tells a client that can use them the key, and waits for them on a thread of its own. Called
 * before the session's first command. */
void tow_lane_begin(struct tow_session *session);

#endif
