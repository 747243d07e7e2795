/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts a session's further connections and hands their frames to transfers. */
#include "server/run/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/run/side.h"
#include "server/session/session.h"
#include "server/session/transfer.h"
#include "transport/keep.h"
#include "transport/lanes.h"
#include "wire/control.h"

/* The listener has seen the whole first frame before it hands a connection over. */
#define FIRST_FRAME_NS (1 * TOW_TIME_S)

/* What both ends of a line have received, they tell each other: the client waits no longer. */
#define MEND_NS (4 * TOW_TIME_S)

struct tows_acceptor {
    struct tows_session *session; /* borrowed: the worker's, which ends with the process */
    uint64_t key[2];
    bool lasting; /* the session's lines outlive their connections, and begin by RESUME */
    /* Of a session that lasts, by number: its lanes, which live as long as it. By the thread. */
    struct tow_line *lanes[TOW_LANES_MAX + 1];
};

static int lane_take(void *user, struct tow_line *line, const struct tow_data *data)
{
    return tows_transfer_take_lane(user, line, data);
}

static void lane_ended(void *user, int error)
{
    /* Bytes may be missing that nobody will send again. */
    tows_session_end(user, error == -EPROTO ? -EPROTO : -EPIPE);
}

static bool has_room(struct tows_session *session)
{
    return session->lanes != NULL && tow_lanes_count(session->lanes) < session->options->lanes;
}

/* A line that lasts goes on over a connection, or begins: its client has shown the session's
 * secret. */
static void take_lasting(struct tows_acceptor *acceptor, struct tow_line *fresh, uint32_t number)
{
    struct tows_session *session = acceptor->session;
    const struct tow_keep_setup setup = {
        .limit_ns = (int64_t)session->options->reconnect_s * TOW_TIME_S, .hello_ns = MEND_NS};
    bool is_side = number == TOW_LANE_SIDE, is_lane = number > 0 && number <= TOW_LANES_MAX;
    struct tow_line *line = number == TOW_LANE_MAIN ? session->line
                            : is_side               ? session->side.line
                            : is_lane               ? acceptor->lanes[number]
                                                    : NULL;
    if (line != NULL) {
        tow_keep_mend(line, fresh, tow_time_deadline(MEND_NS));
        return;
    }
    if (!is_side && !(is_lane && has_room(session))) {
        tow_keep_refuse(fresh);
        return;
    }
    if (tow_keep_line(fresh, &setup, &line) < 0) {
        return; /* the client comes again */
    }
    tow_line_set_silence(line, (int64_t)session->options->silence_ms * TOW_TIME_MS);
    int error = is_side ? tows_side_begin(session, line) : tow_lanes_add(session->lanes, line);
    if (error == 0 && is_lane) {
        acceptor->lanes[number] = line;
    }
}

/* Whether the client of this session sent it: then it is told so. */
static bool welcome_lane(const struct tows_acceptor *acceptor, struct tow_line *line,
                         bool *ret_side)
{
    struct tows_session *session = acceptor->session;
    const uint8_t *at = NULL;
    uint8_t *out = NULL;
    size_t available = 0;
    struct tow_frame frame;
    struct tow_lane lane;
    uint32_t length = 0;
    int64_t deadline = tow_time_deadline(FIRST_FRAME_NS);
    if (tow_line_peek(line, TOW_FRAME_HEADER, deadline, &at, &available) < 0 ||
        tow_frame_read(at, &frame) < 0 || frame.kind != TOW_CONTROL_LANE ||
        tow_line_peek(line, frame.length, deadline, &at, &available) < 0 ||
        tow_lane_decode(at, &frame, &lane) < 0) {
        return false;
    }
    /* All bits are looked at in any case: how long it takes tells nothing of the key. */
    uint64_t differs = (lane.key[0] ^ acceptor->key[0]) | (lane.key[1] ^ acceptor->key[1]);
    *ret_side = lane.index == TOW_LANE_SIDE;
    bool room = !acceptor->lasting && (*ret_side || has_room(session));
    if (differs != 0 || lane.session != session->options->id || !room) {
        tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                "%s wanted to add a connection to session %llu and was refused",
                tow_line_peer(line), (unsigned long long)session->options->id);
        return false;
    }
    tow_line_consume(line, frame.length);
    struct tow_lane answer = {.session = lane.session, .index = lane.index};
    if (tow_line_reserve(line, 64, &out) < 0 || tow_lane_encode(&answer, out, 64, &length) < 0) {
        return false;
    }
    tow_line_commit_now(line, length);
    return true;
}

static void *accept_run(void *arg)
{
    struct tows_acceptor *acceptor = arg;
    struct tows_session *session = acceptor->session;
    struct tow_line *line = NULL;
    bool again = false;
    uint32_t number = 0;
    while (session->options->next_lane(&line, &again, &number) == 0) {
        bool side = false;
        if (again) {
            take_lasting(acceptor, line, number);
        } else if (!welcome_lane(acceptor, line, &side)) {
            tow_line_close(line);
        } else if (side) {
            tows_side_begin(session, line);
        } else if (tow_lanes_add(session->lanes, line) < 0) {
            break;
        }
    }
    return NULL; /* the acceptor stays: the process ends with the session */
}

static void tell_key(struct tows_session *session, uint32_t topic, const uint64_t key[2])
{
    struct tow_notice notice = {.topic = topic, .values = {key[0], key[1]}};
    uint8_t *at = NULL;
    uint32_t length = 0;
    tow_mutex_lock(&session->reply_lock);
    if (tow_line_reserve(session->line, 256, &at) >= 0 &&
        tow_notice_encode(&notice, at, 256, &length) == 0) {
        tow_line_commit(session->line, length);
    }
    tow_mutex_unlock(&session->reply_lock);
}

/* Starts to accept; NULL if that cannot be. */
static struct tows_acceptor *lane_start(struct tows_session *session, bool bulk, bool lasting)
{
    const struct tow_lanes_user user = {lane_take, lane_ended, session};
    struct tows_acceptor *acceptor = calloc(1, sizeof *acceptor);
    struct tow_lanes *lanes = acceptor != NULL && bulk ? tow_lanes_create(&user) : NULL;
    pthread_t thread;
    if (acceptor == NULL || (bulk && lanes == NULL) ||
        getrandom(acceptor->key, sizeof acceptor->key, 0) != (ssize_t)sizeof acceptor->key) {
        tow_lanes_destroy(lanes);
        free(acceptor);
        return NULL;
    }
    acceptor->session = session;
    acceptor->lasting = lasting;
    session->lanes = lanes;
    if (tow_thread_start("towline-lanes", accept_run, acceptor, &thread) < 0) {
        session->lanes = NULL;
        tow_lanes_destroy(lanes);
        free(acceptor);
        return NULL;
    }
    pthread_detach(thread);
    return acceptor;
}

int tows_lane_await(struct tows_session *session, bool bulk)
{
    session->acceptor = lane_start(session, bulk && session->options->lanes > 0, true);
    return session->acceptor != NULL ? 0 : -ENOMEM;
}

void tows_lane_begin(struct tows_session *session, bool bulk)
{
    static const uint64_t none[2];
    if (session->acceptor == NULL && session->options->next_lane != NULL &&
        (!bulk || session->options->lanes > 0)) {
        session->acceptor = lane_start(session, bulk, false);
    }
    if (session->acceptor != NULL) {
        atomic_store(&session->stats->lanes, 1);
    }
    if (!bulk) {
        tell_key(session, TOW_NOTICE_SIDE,
                 session->acceptor != NULL ? session->acceptor->key : none);
    } else if (session->lanes != NULL) {
        tell_key(session, TOW_NOTICE_LANES, session->acceptor->key);
    }
}

int tows_lane_listen(struct tows_session *session)
{
    if (session->acceptor == NULL && session->options->next_lane != NULL) {
        session->acceptor = lane_start(session, false, false);
        return session->acceptor != NULL ? 0 : -ENOMEM;
    }
    return 0;
}
