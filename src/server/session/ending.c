/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for the end of what a context still has. */
#include "server/session/ending.h"

#include "base/mutex.h"
#include "server/session/session.h"

void tows_ending_init(struct tows_ending *ending)
{
    tow_mutex_init(&ending->lock, SERVER_ENDING);
    pthread_cond_init(&ending->changed, NULL);
}

void tows_ending_fini(struct tows_ending *ending)
{
    tow_mutex_fini(&ending->lock);
    pthread_cond_destroy(&ending->changed);
}

unsigned tows_ending_enter(struct tows_session *session)
{
    struct tows_ending *ending = &session->ending;
    tow_mutex_lock(&ending->lock);
    atomic_fetch_add(&ending->waiting, 1);
    unsigned seen = ending->changes;
    tow_mutex_unlock(&ending->lock);
    return seen;
}

void tows_ending_leave(struct tows_session *session)
{
    atomic_fetch_sub(&session->ending.waiting, 1);
}

bool tows_ending_await(struct tows_session *session, unsigned *seen)
{
    struct tows_ending *ending = &session->ending;
    tow_mutex_lock(&ending->lock);
    while (ending->changes == *seen && tows_session_goes_on(session)) {
        tow_mutex_wait(&ending->lock, &ending->changed);
    }
    *seen = ending->changes;
    tow_mutex_unlock(&ending->lock);
    return tows_session_goes_on(session);
}

void tows_ending_tell(struct tows_session *session)
{
    struct tows_ending *ending = &session->ending;
    /* Both change the number: who enters behind this sees what has changed before it. */
    if (atomic_fetch_add(&ending->waiting, 0) == 0) {
        return;
    }
    tow_mutex_lock(&ending->lock);
    ending->changes++;
    pthread_cond_broadcast(&ending->changed);
    tow_mutex_unlock(&ending->lock);
}
