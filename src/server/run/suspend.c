/* SPDX-License-Identifier: Apache-2.0 */
/* Stands still, and has the backend put its memory out and in. */
#include "server/run/suspend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/session/session.h"

/* How long the program has waited when its user is told why. */
#define TELL_NS TOW_TIME_S
/* How often the leader looks whether it must go on, while what runs ends. */
#define LOOK_NS TOW_TIME_MS
/* Of soft-suspend: what does not end at once is let alone, and waited for hardly at all until it
 * has ended. A stream may be held for hundreds of commands, and whoever holds it may do so for some
 * seconds only. */
#define SELF_NS (50 * TOW_TIME_MS)
#define SELF_AGAIN_NS TOW_TIME_MS
/* How long a program may take to read why its session ends. */
#define FAREWELL_NS TOW_TIME_S

void tows_suspend_init(struct tows_session *session)
{
    tow_mutex_init(&session->suspend.lock, SERVER_SUSPEND);
    tow_cond_init(&session->suspend.changed);
    atomic_store(&session->suspend.wanted, session->options->suspend_every != 0);
}

void tows_suspend_fini(struct tows_session *session)
{
    tow_mutex_fini(&session->suspend.lock);
    pthread_cond_destroy(&session->suspend.changed);
}

/* ---- the leader ---- */

/* What came before waits for something that is behind this command: bytes of a copy, or the end of
 * a host function that what the program did before it is to precede. */
static bool must_go_on(struct tows_session *session)
{
    tow_mutex_lock(&session->transfers.lock);
    bool more = session->transfers.list != NULL;
    tow_mutex_unlock(&session->transfers.lock);
    return more || atomic_load(&session->side.overtakes) != 0;
}

/* With the lock held, which is given meanwhile. */
static void stand_tell(struct tows_session *session, const char *what, const char *by)
{
    char sentence[sizeof session->suspend.by + 128];
    snprintf(sentence, sizeof sentence, "session %llu %s%s",
             (unsigned long long)session->options->id, what, by);
    tow_mutex_unlock(&session->suspend.lock);
    tows_session_tell(session, sentence);
    tow_mutex_lock(&session->suspend.lock);
}

/* The same: where nobody has asked for it, its memory comes back when its program needs it. */
static void stand_call(struct tows_session *session)
{
    tow_mutex_unlock(&session->suspend.lock);
    if (session->options->on_call != NULL) {
        session->options->on_call();
    }
    tow_mutex_lock(&session->suspend.lock);
}

static int leader_stands(struct tows_session *session)
{
    int64_t tell_ns = tow_time_deadline(TELL_NS);
    bool told = false, called = false;
    tow_mutex_lock(&session->suspend.lock);
    while (session->suspend.phase != TOW_SUSPEND_NOT && tows_session_goes_on(session)) {
        bool away = session->suspend.phase == TOW_SUSPEND_AWAY;
        if (!away && must_go_on(session)) {
            break;
        }
        if (away && !called) {
            called = true;
            stand_call(session);
            continue;
        }
        if (away && !told && tow_time_passed(tell_ns)) {
            told = true;
            stand_tell(session,
                       "is suspended, and goes on when it is resumed: ", session->suspend.by);
            continue;
        }
        tow_mutex_wait_until(&session->suspend.lock, &session->suspend.changed,
                             !away  ? tow_time_deadline(LOOK_NS)
                             : told ? TOW_TIME_FOREVER
                                    : tell_ns);
    }
    if (told && tows_session_goes_on(session)) {
        stand_tell(session, "is resumed: the program goes on", "");
    }
    tow_mutex_unlock(&session->suspend.lock);
    return tows_session_goes_on(session) ? 0 : -ECANCELED;
}

/* soft-suspend: this thread is the leader, and stands by itself. */
static int suspend_self(struct tows_session *session)
{
    char why[256];
    uint64_t bytes;
    if (++session->suspend.commands % session->options->suspend_every != 0 ||
        session->backend->away == NULL || must_go_on(session)) {
        return 0;
    }
    int fd = memfd_create("towline-suspend", MFD_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    int64_t limit_ns = session->suspend.refused ? SELF_AGAIN_NS : SELF_NS;
    int error = tows_suspend_out(session, limit_ns, fd, "soft-suspend", &bytes, why, sizeof why);
    session->suspend.refused = error == -ETIMEDOUT;
    if (error == 0) {
        error = tows_suspend_in(session, fd, why, sizeof why);
    }
    close(fd);
    return error == -EIO ? error : 0;
}

int tows_suspend_stand(struct tows_session *session)
{
    return session->options->suspend_every != 0 ? suspend_self(session) : leader_stands(session);
}

void tows_suspend_end(struct tows_session *session)
{
    tow_mutex_lock(&session->suspend.lock);
    pthread_cond_broadcast(&session->suspend.changed);
    tow_mutex_unlock(&session->suspend.lock);
}

/* ---- who suspends ---- */

static void set_phase(struct tows_session *session, enum tows_suspend_phase phase, const char *by)
{
    tow_mutex_lock(&session->suspend.lock);
    session->suspend.phase = phase;
    if (by != NULL) {
        snprintf(session->suspend.by, sizeof session->suspend.by, "%s", by);
    }
    if (session->options->suspend_every == 0) {
        atomic_store(&session->suspend.wanted, phase != TOW_SUSPEND_NOT);
    }
    pthread_cond_broadcast(&session->suspend.changed);
    tow_mutex_unlock(&session->suspend.lock);
}

/* Its memory is neither here nor there. */
static void suspend_lose(struct tows_session *session, const char *why)
{
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "session %llu is ended: %s",
            (unsigned long long)session->options->id, why);
    tows_session_dismiss(session, why, FAREWELL_NS);
}

int tows_suspend_out(struct tows_session *session, int64_t limit_ns, int fd, const char *by,
                     uint64_t *ret_bytes, char *why, size_t why_size)
{
    const struct tow_backend_away_ops *ops = session->backend->away;
    if (ops == NULL) {
        snprintf(why, why_size,
                 "sessions on NVIDIA's driver cannot be suspended yet; end it with towline end");
        return -EOPNOTSUPP;
    }
    if (atomic_load(&session->stays)) {
        snprintf(why, why_size,
                 "its program writes a timeline, for which the driver's activity is recorded; "
                 "wait until it ends, or end it with towline end");
        return -EOPNOTSUPP;
    }
    set_phase(session, TOW_SUSPEND_STANDS, by);
    int error = ops->lock(tow_time_deadline(limit_ns), why, why_size);
    if (error == 0) {
        set_phase(session, TOW_SUSPEND_AWAY, NULL);
        error = ops->save(fd, ret_bytes, why, why_size);
        if (error == -EIO) {
            suspend_lose(session, why);
            return error;
        }
        if (error < 0) {
            ops->unlock();
        }
    }
    if (error < 0) {
        set_phase(session, TOW_SUSPEND_NOT, NULL);
        return error;
    }
    atomic_store(&session->stats->saved, *ret_bytes);
    atomic_fetch_add(&session->stats->suspends, 1);
    return 0;
}

int tows_suspend_in(struct tows_session *session, int fd, char *why, size_t why_size)
{
    const struct tow_backend_away_ops *ops = session->backend->away;
    if (ops->load(fd, why, why_size) < 0) {
        suspend_lose(session, why);
        return -EIO;
    }
    atomic_store(&session->stats->saved, 0);
    ops->unlock();
    set_phase(session, TOW_SUSPEND_NOT, NULL);
    return 0;
}
