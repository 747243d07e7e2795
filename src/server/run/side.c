/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that reads the side line. */
#include "server/run/side.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/copy/hostfn.h"
#include "server/copy/deferred_upload.h"
#include "server/copy/mirror.h"
#include "server/session/session.h"
#include "wire/control.h"

/* How long the session's own line stands still before it is overtaken. */
#define STILL_NS (5 * TOW_TIME_MS)
/* The leader may see a moment too late that somebody waits, and then read nothing more for a while.
 */
#define LOOK_NS TOW_TIME_MS
/* The client uses the side line once it is welcome, which is a moment before it is read. */
#define BEGIN_NS (5 * TOW_TIME_S)
/* A program that ends closes all its connections, one after the other. */
#define LEAVE_NS (2 * TOW_TIME_S)

static uint64_t taken_bytes(struct tows_session *session)
{
    struct tow_line_stats stats;
    tow_line_get_stats(session->line, &stats);
    return stats.bytes_in;
}

/* What the program did before a function ended comes before that end here, too: all that went out
 * on the session's own line up to `behind`. Unless it stands still: then perhaps in the driver,
 * which waits for the function. */
static void let_pass(struct tows_session *session, uint64_t behind)
{
    uint64_t taken = taken_bytes(session);
    if (taken >= behind) {
        return;
    }
    int64_t now = tow_time_now_ns(), since = now;
    tow_mutex_lock(&session->side.lock);
    atomic_store(&session->side.overtakes, behind);
    for (uint64_t before = taken; (taken = taken_bytes(session)) < behind; before = taken) {
        now = tow_time_now_ns();
        since = taken != before ? now : since;
        if (now - since >= STILL_NS) {
            break;
        }
        tow_mutex_wait_until(&session->side.lock, &session->side.changed, now + LOOK_NS);
    }
    atomic_store(&session->side.overtakes, 0);
    tow_mutex_unlock(&session->side.lock);
}

void tows_side_pass(struct tows_session *session)
{
    if (taken_bytes(session) >= atomic_load(&session->side.overtakes)) {
        tow_mutex_lock(&session->side.lock);
        pthread_cond_broadcast(&session->side.changed);
        tow_mutex_unlock(&session->side.lock);
    }
}

int tows_side_take(struct tows_session *session, const uint8_t *at, const struct tow_frame *frame)
{
    struct tow_callback_done done;
    int error;
    switch (frame->kind) {
    case TOW_CONTROL_MIRROR:
        return tows_mirror_take(session, frame->context, at + TOW_FRAME_HEADER,
                                frame->length - TOW_FRAME_HEADER);
    case TOW_CONTROL_CALLBACK_BYTES:
        return tows_deferred_upload_take(session, at, frame);
    case TOW_CONTROL_CALLBACK_DONE:
        error = tow_callback_done_decode(at, frame, &done);
        if (error == 0) {
            let_pass(session, done.behind);
            tows_hostfn_done(session, done.id);
        }
        return error;
    default:
        return -EPROTO;
    }
}

static int take_next(struct tows_session *session)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    int error =
        tow_line_peek(session->side.line, TOW_FRAME_HEADER, TOW_TIME_FOREVER, &at, &available);
    if (error == 0) {
        error = tow_frame_read(at, &frame);
    }
    if (error == 0) {
        error = tow_line_peek(session->side.line, frame.length, TOW_TIME_FOREVER, &at, &available);
    }
    if (error == 0) {
        error = frame.kind == TOW_CONTROL_FETCH ? tows_mirror_fetch(session, at, &frame)
                                                : tows_side_take(session, at, &frame);
    }
    if (error == 0) {
        tow_line_consume(session->side.line, frame.length);
        if (frame.kind == TOW_CONTROL_MIRROR) {
            tow_mutex_lock(&session->side.lock);
            session->side.mirrors++;
            pthread_cond_broadcast(&session->side.changed);
            tow_mutex_unlock(&session->side.lock);
        }
    }
    return error;
}

static void *take_run(void *arg)
{
    struct tows_session *session = arg;
    int error;
    do {
        error = take_next(session);
    } while (error == 0);
    tow_line_shutdown(session->side.line);
    /* A client that has gone says so on the session's own line, behind its last commands. One that
     * is still there waits for what would have come here. */
    bool stays = session->line != NULL &&
                 tow_line_await_end(session->line, tow_time_deadline(LEAVE_NS)) == -ETIMEDOUT;
    if (error == -EPROTO || (stays && tows_session_goes_on(session))) {
        tows_session_end(session, error);
    }
    tows_side_end(session); /* the last word: behind it the session may go */
    return NULL;
}

int tows_side_begin(struct tows_session *session, struct tow_line *line)
{
    pthread_t thread;
    tow_mutex_lock(&session->side.lock);
    int error = session->side.line != NULL ? -EEXIST : 0;
    if (error == 0) {
        session->side.line = line;
        error = tow_thread_start("towline-side", take_run, session, &thread);
        if (error < 0) {
            session->side.line = NULL;
            session->side.ended = true; /* the client counts on it */
        }
        pthread_cond_broadcast(&session->side.changed);
    }
    tow_mutex_unlock(&session->side.lock);
    if (error < 0) {
        tow_line_close(line);
        if (error != -EEXIST) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN, "no thread for a connection of this session: %s",
                    strerror(-error));
            tows_session_end(session, error); /* the client counts on it */
        }
        return error;
    }
    pthread_detach(thread);
    return 0;
}

int tows_side_await(struct tows_session *session, const uint8_t *at, const struct tow_frame *frame)
{
    struct tow_fence fence;
    int error = tow_fence_decode(at, frame, &fence);
    tow_mutex_lock(&session->side.lock);
    int64_t until = tow_time_deadline(BEGIN_NS);
    while (error == 0 && session->side.mirrors < fence.mirrors) {
        if (session->side.ended) {
            error = -EPIPE;
        } else if (session->side.line != NULL) {
            tow_mutex_wait(&session->side.lock, &session->side.changed);
        } else if (tow_mutex_wait_until(&session->side.lock, &session->side.changed, until) ==
                   -ETIMEDOUT) {
            error = -EPROTO;
        }
    }
    tow_mutex_unlock(&session->side.lock);
    return error;
}

void tows_side_end(struct tows_session *session)
{
    tow_mutex_lock(&session->side.lock);
    session->side.ended = true;
    pthread_cond_broadcast(&session->side.changed);
    tow_mutex_unlock(&session->side.lock);
}
