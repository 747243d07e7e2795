/* SPDX-License-Identifier: Apache-2.0 */
/* What the end of a context waits for: other threads that end one, or that have some of its memory
 * in hand. None of it is kept here: whoever waits enters, looks at it, and sleeps until somebody
 * says that something has changed. While nobody waits that costs one look.
 */
#ifndef TOW_SERVER_ENDING_H
#define TOW_SERVER_ENDING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/mutex.h"

struct tows_session;

struct tows_ending {
    struct tow_mutex lock; /* guards what follows */
    pthread_cond_t changed;
    unsigned changes;    /* how often somebody was told */
    atomic_uint waiting; /* threads that have entered; looked at without the lock */
};

void tows_ending_init(struct tows_ending *ending);
void tows_ending_fini(struct tows_ending *ending);

/* Before the first look: what changes from now on is told. Returns how far that is. */
unsigned tows_ending_enter(struct tows_session *session);
void tows_ending_leave(struct tows_session *session);
/* Sleeps until something has changed since `*seen`; false once the session ends. */
bool tows_ending_await(struct tows_session *session, unsigned *seen);

/* A context has ended, somebody has given memory of one out of hand, or the session ends. */
void tows_ending_tell(struct tows_session *session);

#endif
