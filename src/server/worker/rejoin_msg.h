/* SPDX-License-Identifier: Apache-2.0 */
/* The first words between a worker and a listener that did not start it. They come before both know
 * that they are of one version, so this packet never changes. */
#ifndef TOW_SERVER_REJOIN_MSG_H
#define TOW_SERVER_REJOIN_MSG_H

#include <stdint.h>

#include "server/session/session.h"
#include "server/worker/worker_msg.h"

#define TOW_REJOIN_MAGIC UINT64_C(0x6e696f6a65776f74) /* "towejoin" */

/* Of worker_msg.h, of tows_session_stats and of what they mean: another number for each change
 * that one of an older version would misread. */
enum { TOW_REJOIN_VERSION = 4 };

/* What a change of the structs alone would be noticed by. */
#define TOW_REJOIN_LAYOUT                                                                          \
    ((uint64_t)sizeof(struct tows_worker_msg) << 32 | (uint64_t)sizeof(struct tows_session_stats))

enum tows_rejoin_what {
    TOW_REJOIN_JOIN = 1,  /* listener: the session is served by this one from now on */
    TOW_REJOIN_LEAVE = 2, /* listener: it is to end, since this one cannot take it over */
};

struct tows_rejoin_msg {
    uint64_t magic;
    uint32_t version;
    uint32_t what;
    uint64_t layout;
    uint64_t session;
};

#endif
