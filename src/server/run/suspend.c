/* SPDX-License-Identifier: Apache-2.0 */
/* Stands still, and has the backend put its memory out and in. */
#include "server/run/suspend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/module.h"
#include "server/copy/hostfn.h"
#include "server/copy/mirror.h"
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
/* NVIDIA's driver is asked to lock for so long at a time, and so long apart. */
#define TRY_NS (100 * TOW_TIME_MS)
#define APART_NS (2 * TOW_TIME_MS)
/* What else it puts out, of a context for example: 0.5 GiB were seen. */
#define SPARE (UINT64_C(1) << 30)
enum { MEMINFO_MAX = 64 << 10 };
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
    tows_still_lead(&session->still, false);
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
    /* Before anybody can suspend it again. */
    tows_still_lead(&session->still, true);
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
    tows_still_lead(&session->still, false);
    int64_t limit_ns = session->suspend.refused ? SELF_AGAIN_NS : SELF_NS;
    int error = tows_suspend_out(session, limit_ns, fd, "soft-suspend", &bytes, why, sizeof why);
    session->suspend.refused = error == -ETIMEDOUT;
    if (error == 0) {
        error = tows_suspend_in(session, fd, why, sizeof why);
    }
    close(fd);
    tows_still_lead(&session->still, true);
    if (error == -EIO) {
        tows_suspend_lose(session, why);
        return error;
    }
    return 0;
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

/* Those of the worker's that know no session. */
static void set_outsiders(struct tows_session *session, bool still)
{
    if (session->options->on_still != NULL) {
        session->options->on_still(still);
    }
}

void tows_suspend_lose(struct tows_session *session, const char *why)
{
    tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "session %llu is ended: %s",
            (unsigned long long)session->options->id, why);
    tows_session_dismiss(session, why, FAREWELL_NS);
}

/* What keeps it, where the backend does not know. */
static void name_keeper(struct tows_session *session, char *why, size_t why_size)
{
    CUfunction last = atomic_load(&session->last_kernel);
    const char *name = NULL;
    if (why[0] != '\0') {
        return;
    }
    if (tows_hostfn_runs(session)) {
        snprintf(why, why_size, "a host function in a stream has not ended");
    } else if (last != NULL &&
               tows_session_enter(session, atomic_load(&session->last_context)) == CUDA_SUCCESS &&
               tow_drive(session->driver, cuFuncGetName)(&name, last) == CUDA_SUCCESS &&
               name != NULL) {
        snprintf(why, why_size,
                 "its GPU has work that has not ended; the last kernel that was given to it is "
                 "%.120s",
                 name);
    } else {
        snprintf(why, why_size, "its GPU has work that has not ended, or a call waits");
    }
}

/* Bytes of host memory that the kernel can give; UINT64_MAX: it does not say. */
static uint64_t free_memory(void)
{
    static const char name[] = "MemAvailable:";
    struct tow_buf text;
    uint64_t free = UINT64_MAX;
    tow_buf_init(&text, MEMINFO_MAX);
    if (tow_file_read("/proc/meminfo", &text) == 0 && tow_buf_append(&text, "", 1) == 0) {
        const char *at = strstr((const char *)text.data, name);
        free = at != NULL ? strtoull(at + sizeof name - 1, NULL, 10) << 10 : free;
    }
    tow_buf_fini(&text);
    return free;
}

/* It goes into host memory, which there must be: nothing undoes half of it. */
static int find_room(struct tows_session *session, char *why, size_t why_size)
{
    uint64_t memory = atomic_load(&session->stats->memory), free = free_memory();
    if (free < memory + SPARE) {
        snprintf(why, why_size,
                 "its %.1f GiB of GPU memory do not fit into the server's host memory, of which "
                 "%.1f GiB are free",
                 (double)memory / (1 << 30), (double)free / (1 << 30));
        return -ENOMEM;
    }
    return 0;
}

/* NVIDIA's driver keeps all out while it tries, who may be needed for the end of what it waits for,
 * and lets queries in when it has locked. */
static int lock_driver(struct tows_session *session, int64_t deadline_ns, char *why,
                       size_t why_size)
{
    const struct tow_backend_away_ops *ops = session->backend->away;
    for (;;) {
        int64_t try_ns = tow_time_deadline(TRY_NS);
        set_outsiders(session, true);
        int error = ops->lock(try_ns < deadline_ns ? try_ns : deadline_ns, why, why_size);
        if (error == 0) {
            set_phase(session, TOW_SUSPEND_AWAY, NULL);
            tows_still_want(session, true);
            if (!must_go_on(session) && tows_still_await(session)) {
                return 0;
            }
            tows_still_want(session, false);
            set_phase(session, TOW_SUSPEND_STANDS, NULL);
            error = ops->unlock(why, why_size);
            error = error < 0 ? error : -ETIMEDOUT;
            why[0] = error == -ETIMEDOUT ? '\0' : why[0];
        }
        set_outsiders(session, false);
        if (error != -ETIMEDOUT || tow_time_passed(deadline_ns) || !tows_session_goes_on(session)) {
            name_keeper(session, why, why_size);
            return error;
        }
        tow_mutex_lock(&session->suspend.lock);
        tow_mutex_wait_until(&session->suspend.lock, &session->suspend.changed,
                             tow_time_deadline(APART_NS));
        tow_mutex_unlock(&session->suspend.lock);
    }
}

/* A timeline has the driver record what it does, and that it does not put out. */
static bool is_recorded(const struct tows_session *session, char *why, size_t why_size)
{
    bool stays = atomic_load(&session->stays);
    if (stays) {
        snprintf(why, why_size,
                 "its program writes a timeline, for which the driver's activity is recorded; "
                 "wait until it ends, or end it with towline end");
    }
    return stays;
}

static int lock_session(struct tows_session *session, int64_t deadline_ns, char *why,
                        size_t why_size)
{
    const struct tow_backend_away_ops *ops = session->backend->away;
    if (!ops->by_driver) {
        return ops->lock(deadline_ns, why, why_size);
    }
    if (tows_mirror_has_managed(session)) {
        snprintf(why, why_size, "it has managed memory, which NVIDIA's driver does not put out");
        return -EOPNOTSUPP;
    }
    int error = find_room(session, why, why_size);
    return error < 0 ? error : lock_driver(session, deadline_ns, why, why_size);
}

/* -EIO: the session is lost. */
static int unlock_session(struct tows_session *session, char *why, size_t why_size)
{
    const struct tow_backend_away_ops *ops = session->backend->away;
    int error = ops->unlock(why, why_size);
    if (ops->by_driver) {
        set_outsiders(session, false);
        tows_still_want(session, false);
    }
    return error < 0 ? -EIO : 0;
}

static int save_session(struct tows_session *session, int fd, uint64_t *ret_bytes, char *why,
                        size_t why_size)
{
    char more[128];
    uint64_t memory = atomic_load(&session->stats->memory);
    int error = is_recorded(session, why, why_size) /* since the lock */
                    ? -EOPNOTSUPP
                    : session->backend->away->save(fd, ret_bytes, why, why_size);
    if (error == 0) {
        *ret_bytes = session->backend->away->by_driver ? memory : *ret_bytes;
        return 0;
    }
    if (error != -EIO && unlock_session(session, more, sizeof more) < 0) {
        snprintf(why, why_size, "%s", more);
        error = -EIO;
    }
    return error;
}

int tows_suspend_out(struct tows_session *session, int64_t limit_ns, int fd, const char *by,
                     uint64_t *ret_bytes, char *why, size_t why_size)
{
    if (session->backend->away == NULL) {
        snprintf(why, why_size,
                 "the server's driver cannot suspend programs; NVIDIA's can from 570 on");
        return -EOPNOTSUPP;
    }
    if (is_recorded(session, why, why_size)) {
        return -EOPNOTSUPP;
    }
    set_phase(session, TOW_SUSPEND_STANDS, by);
    int error = lock_session(session, tow_time_deadline(limit_ns), why, why_size);
    if (error == 0) {
        set_phase(session, TOW_SUSPEND_AWAY, NULL);
        error = save_session(session, fd, ret_bytes, why, why_size);
    }
    if (error < 0 && error != -EIO) {
        set_phase(session, TOW_SUSPEND_NOT, NULL);
    }
    if (error < 0) {
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
        return -EIO;
    }
    atomic_store(&session->stats->saved, 0);
    if (unlock_session(session, why, why_size) < 0) {
        return -EIO;
    }
    set_phase(session, TOW_SUSPEND_NOT, NULL);
    return 0;
}
