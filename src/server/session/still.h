/* SPDX-License-Identifier: Apache-2.0 */
/* Nobody is in the driver while it has put GPU memory out: NVIDIA's answers some calls with errors
 * then. The leader stands; who calls the driver beside it says so here, and waits. */
#ifndef TOW_SERVER_STILL_H
#define TOW_SERVER_STILL_H

#include <stdatomic.h>
#include <stdbool.h>

struct tows_session;

struct tows_still {
    atomic_uint beside; /* threads beside the leader that may be in the driver */
    atomic_bool led;    /* the leader may be; it alone writes this */
    atomic_bool wanted; /* who comes waits */
};

/* From here to the leave this thread may call the driver. Nested it is one call too many. */
void tows_still_enter(struct tows_session *session);
void tows_still_leave(struct tows_session *session);

/* Whoever comes waits, until it is called again with `false`. */
void tows_still_want(struct tows_session *session, bool wanted);
/* Whether nobody is in there; meanwhile wanted. False after some milliseconds: somebody stays. */
bool tows_still_await(struct tows_session *session);

/* The leader, in front of each command and behind it. */
static inline void tows_still_lead(struct tows_still *still, bool leads)
{
    atomic_store_explicit(&still->led, leads, memory_order_release);
}

#endif
