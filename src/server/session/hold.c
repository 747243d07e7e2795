/* SPDX-License-Identifier: Apache-2.0 */
/* The epochs of commands inside, and the waiting of who takes something away. */
#include "server/session/hold.h"

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/session/session.h"

/* How long who takes something away waits itself. As a rule a command is inside for microseconds.
 */
#define PATIENCE_NS (100 * TOW_TIME_MS)

void tows_hold_init(struct tows_hold *hold)
{
    tow_mutex_init(&hold->lock, SERVER_HOLD);
    tow_cond_init(&hold->changed);
    hold->endings_end = &hold->endings;
}

void tows_hold_fini(struct tows_hold *hold)
{
    /* The session's commands have all been carried out: the reaper has nothing to wait for. */
    tow_mutex_lock(&hold->lock);
    while (hold->reaping) {
        tow_mutex_wait(&hold->lock, &hold->changed);
    }
    tow_mutex_unlock(&hold->lock);
    tow_mutex_fini(&hold->lock);
    pthread_cond_destroy(&hold->changed);
}

unsigned tows_hold_enter_session(struct tows_session *session)
{
    struct tows_hold *hold = &session->hold;
    for (;;) {
        unsigned epoch = atomic_load(&hold->epoch);
        atomic_fetch_add(&hold->inside[epoch % 2], 1);
        if (atomic_load(&hold->epoch) == epoch) {
            return 1 + epoch % 2;
        }
        tows_hold_leave_session(session,
                                1 + epoch % 2); /* who waits for that one came in between */
    }
}

void tows_hold_leave_session(struct tows_session *session, unsigned held)
{
    struct tows_hold *hold = &session->hold;
    if (atomic_fetch_sub(&hold->inside[held - 1], 1) == 1 && atomic_load(&hold->waiting) != 0) {
        tow_mutex_lock(&hold->lock);
        pthread_cond_broadcast(&hold->changed);
        tow_mutex_unlock(&hold->lock);
    }
}

void tows_hold_enter(struct tows_serve *call)
{
    if (call->held == 0) {
        call->held = tows_hold_enter_session(call->session);
    }
}

void tows_hold_leave(struct tows_serve *call)
{
    if (call->held != 0) {
        tows_hold_leave_session(call->session, call->held);
        call->held = 0;
    }
}

/* With the lock held: until all of an epoch have left, or it is too late. */
static bool await_empty(struct tows_hold *hold, unsigned epoch, int64_t deadline)
{
    while (atomic_load(&hold->inside[epoch % 2]) != 0) {
        if (tow_mutex_wait_until(&hold->lock, &hold->changed, deadline) != 0 &&
            tow_time_passed(deadline)) {
            return atomic_load(&hold->inside[epoch % 2]) == 0;
        }
    }
    return true;
}

/* With the lock held: until all who are inside now have left. */
static bool await_all(struct tows_hold *hold, int64_t deadline)
{
    atomic_fetch_add(&hold->waiting, 1);
    /* Those of the last epoch are inside as well, and the next one counts where they do. */
    unsigned epoch;
    bool left = true;
    do {
        epoch = atomic_load(&hold->epoch);
        left = await_empty(hold, epoch + 1, deadline);
    } while (left && atomic_load(&hold->epoch) != epoch);
    if (left) {
        atomic_store(&hold->epoch, epoch + 1);
        left = await_empty(hold, epoch, deadline);
    }
    atomic_fetch_sub(&hold->waiting, 1);
    return left;
}

bool tows_hold_wait(struct tows_session *session)
{
    struct tows_hold *hold = &session->hold;
    tow_mutex_lock(&hold->lock);
    bool left = await_all(hold, tow_time_deadline(PATIENCE_NS));
    tow_mutex_unlock(&hold->lock);
    return left;
}

static void *hold_reaper(void *arg)
{
    struct tows_session *session = arg;
    struct tows_hold *hold = &session->hold;
    tow_mutex_lock(&hold->lock);
    while (hold->endings != NULL) {
        struct tows_hold_ending *ending = hold->endings;
        hold->endings = ending->next;
        if (hold->endings == NULL) {
            hold->endings_end = &hold->endings;
        }
        await_all(hold, TOW_TIME_FOREVER);
        tow_mutex_unlock(&hold->lock);
        /* It calls the driver, which may wait for the GPU then, and keep others out. */
        tows_still_enter(session);
        atomic_fetch_add(&session->stats->in_flight, 1);
        ending->end(session, ending);
        atomic_fetch_sub(&session->stats->in_flight, 1);
        tows_still_leave(session);
        tow_mutex_lock(&hold->lock);
    }
    hold->reaping = false;
    pthread_cond_broadcast(&hold->changed);
    tow_mutex_unlock(&hold->lock);
    return NULL;
}

void tows_hold_defer(struct tows_session *session, struct tows_hold_ending *ending)
{
    struct tows_hold *hold = &session->hold;
    pthread_t thread;
    tow_mutex_lock(&hold->lock);
    ending->next = NULL;
    *hold->endings_end = ending;
    hold->endings_end = &ending->next;
    if (!hold->reaping && tow_thread_start("towline-reaper", hold_reaper, session, &thread) == 0) {
        pthread_detach(thread);
        hold->reaping = true;
    }
    /* Without a thread it stays until the next comes, or the worker ends: nothing is used wrongly.
     */
    tow_mutex_unlock(&hold->lock);
}
