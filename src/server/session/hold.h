/* SPDX-License-Identifier: Apache-2.0 */
/* What a command names of the client's stays there from the check to the last use.
 *
 * A command that looks up host memory of the client (mirrored or shared), or anything else that
 * another command may take away, is inside the hold from then on until it was carried out. Whoever
 * takes something away first makes sure that nobody finds it any more, and ends it when all
 * commands that were inside by then have left. Commands that look up nothing, such as launches, pay
 * nothing; and nobody who is inside waits for others.
 */
#ifndef TOW_SERVER_HOLD_H
#define TOW_SERVER_HOLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"

struct tows_serve;
struct tows_session;

/* What is to be done once nobody uses something any more; part of whatever that is. */
struct tows_hold_ending {
    void (*end)(struct tows_session *session, struct tows_hold_ending *ending);
    struct tows_hold_ending *next;
};

struct tows_hold {
    atomic_uint epoch;
    atomic_uint inside[2]; /* commands that entered in an even epoch, and in an odd one */
    atomic_uint waiting;   /* threads that wait for one of those to be 0 */
    struct tow_mutex lock; /* guards what follows */
    pthread_cond_t changed;
    struct tows_hold_ending *endings, **endings_end; /* the reaper's to end */
    bool reaping;                                    /* its thread runs */
};

void tows_hold_init(struct tows_hold *hold);
void tows_hold_fini(struct tows_hold *hold);

/* Before a command looks something up; once is enough. tows_hold_leave after it was carried out is
 * the dispatcher's. */
void tows_hold_enter(struct tows_serve *call);
void tows_hold_leave(struct tows_serve *call);
/* The same for who works for no command: returns what to leave with. */
unsigned tows_hold_enter_session(struct tows_session *session);
void tows_hold_leave_session(struct tows_session *session, unsigned held);

/* Waits until all who are inside now have left. False if that takes long: a command that is inside
 * may stand in a driver call until the client has run a host function, and the function may wait
 * for whoever calls this. */
bool tows_hold_wait(struct tows_session *session);
/* Then: calls ending->end when they have left, on a thread of its own. */
void tows_hold_defer(struct tows_session *session, struct tows_hold_ending *ending);

#endif
