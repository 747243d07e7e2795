/* SPDX-License-Identifier: Apache-2.0 */
/* Who is in the driver beside the leader. */
#include "server/session/still.h"

#include <errno.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/session/session.h"

/* How long somebody may take to leave the driver, where nothing runs. He who is kept there by its
 * lock does not. */
#define PATIENCE_NS (20 * TOW_TIME_MS)
/* What the leader has written is seen by then. */
#define SEEN_NS TOW_TIME_MS

void tows_still_enter(struct tows_session *session)
{
    struct tows_still *still = &session->still;
    atomic_fetch_add(&still->beside, 1);
    while (atomic_load(&still->wanted) && tows_session_goes_on(session)) {
        tow_mutex_lock(&session->suspend.lock);
        atomic_fetch_sub(&still->beside, 1);
        pthread_cond_broadcast(&session->suspend.changed);
        while (atomic_load(&still->wanted) && tows_session_goes_on(session)) {
            tow_mutex_wait(&session->suspend.lock, &session->suspend.changed);
        }
        atomic_fetch_add(&still->beside, 1);
        tow_mutex_unlock(&session->suspend.lock);
    }
}

void tows_still_leave(struct tows_session *session)
{
    if (atomic_fetch_sub(&session->still.beside, 1) == 1 && atomic_load(&session->still.wanted)) {
        tow_mutex_lock(&session->suspend.lock);
        pthread_cond_broadcast(&session->suspend.changed);
        tow_mutex_unlock(&session->suspend.lock);
    }
}

void tows_still_want(struct tows_session *session, bool wanted)
{
    tow_mutex_lock(&session->suspend.lock);
    atomic_store(&session->still.wanted, wanted);
    pthread_cond_broadcast(&session->suspend.changed);
    tow_mutex_unlock(&session->suspend.lock);
}

/* With the lock held. */
static bool is_still(const struct tows_session *session)
{
    return atomic_load(&session->still.beside) == 0 && !atomic_load(&session->still.led);
}

bool tows_still_await(struct tows_session *session)
{
    int64_t now_ns = tow_time_now_ns();
    bool still = false;
    tow_mutex_lock(&session->suspend.lock);
    /* The leader tells nobody: it is looked at again and again. */
    for (int64_t at_ns = now_ns + SEEN_NS; !still && at_ns < now_ns + PATIENCE_NS;
         at_ns += SEEN_NS) {
        while (tow_mutex_wait_until(&session->suspend.lock, &session->suspend.changed, at_ns) !=
               -ETIMEDOUT) {
        }
        still = is_still(session);
    }
    tow_mutex_unlock(&session->suspend.lock);
    return still;
}
