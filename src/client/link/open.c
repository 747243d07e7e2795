/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to a server, up to its welcome. */
#include "base/mutex.h"
#include "client/link/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/link/hello.h"
#include "client/link/lane.h"
#include "client/link/lasting.h"
#include "client/link/self.h"
#include "client/link/share.h"
#include "client/link/waiting.h"
#include "transport/choose.h"
#include "transport/lanes.h"
#include "transport/login.h"
#include "transport/transport.h"
#include "wire/handshake.h"

enum { SAY_S = 5 }; /* when the user is told that a full server is tried again */

static int say_hello(struct tow_line *line, const struct tow_preface *hello)
{
    uint8_t *at = NULL;
    int error = tow_line_reserve(line, hello->size, &at);
    if (error == 0) {
        memcpy(at, hello->bytes, hello->size);
        tow_line_commit_now(line, hello->size);
    }
    return error;
}

/* Takes a notice that asks for patience, if that is what comes before the welcome. */
static bool takes_patience(struct towc_link *link, const uint8_t *at, struct tow_patience *patience)
{
    struct tow_frame frame;
    struct tow_notice notice;
    size_t available = 0;
    if (tow_frame_read(at, &frame) < 0 || frame.kind != TOW_CONTROL_NOTICE ||
        tow_line_peek(link->line, frame.length, patience->deadline_ns, &at, &available) < 0 ||
        tow_notice_decode(at, &frame, &notice) < 0 || notice.topic != TOW_NOTICE_PATIENCE) {
        return false;
    }
    tow_line_consume(link->line, frame.length);
    tow_patience_place(patience, notice.values[0], notice.values[1]);
    return true;
}

static void explain_silence(const char *address, const struct tow_patience *patience, char *why,
                            size_t why_size)
{
    if (patience->answered) {
        snprintf(why, why_size,
                 "%s answers, but the worker that is to serve this program has said nothing for %d "
                 "seconds; look at the server's log, or try again when its machine is less busy",
                 address, TOW_PATIENCE_MAX_S);
        return;
    }
    snprintf(why, why_size,
             "%s accepts connections but says nothing within %d seconds; is it a towlined?",
             address, TOW_CONNECT_TIMEOUT_S);
}

static void say_that_we_wait(const char *address, int seconds)
{
    tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
            "%s is there, but has not begun to serve this program for %d seconds; waiting on",
            address, seconds);
}

/* A server that has no room now is heard, and tried again. `why` is its sentence. */
static void bear_refusal(struct tow_patience *patience, const char *why)
{
    int seconds = (int)((tow_time_now_ns() - patience->began_ns) / TOW_TIME_S);
    patience->say = NULL; /* why it does not serve is known, and what is said */
    if (seconds >= SAY_S && !patience->said) {
        patience->said = true;
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN, "%s; trying again until %d seconds have passed", why,
                TOW_RETRY_FULL_S);
    }
    tow_patience_heard(patience);
}

/* Waits for so many bytes. */
static int peek_patiently(struct tow_line *line, size_t n, struct tow_patience *patience,
                          const uint8_t **ret_at, size_t *ret_available)
{
    int error;
    do {
        error = tow_line_peek(line, n, tow_patience_next(patience), ret_at, ret_available);
    } while (error == -ETIMEDOUT && tow_patience_goes_on(patience));
    return error;
}

/* The kind of the server's first frame that does not ask for patience; its header is at ret_at. */
static int hear_first(struct towc_link *link, struct tow_patience *patience, const uint8_t **ret_at,
                      size_t *ret_available)
{
    int error = peek_patiently(link->line, TOW_FRAME_HEADER, patience, ret_at, ret_available);
    while (error == 0 && takes_patience(link, *ret_at, patience)) {
        error = peek_patiently(link->line, TOW_FRAME_HEADER, patience, ret_at, ret_available);
    }
    return error;
}

/* A server that demands a token asks for it before the welcome, or is not asked. */
static int log_in(struct towc_link *link, const struct tow_preface *hello,
                  struct tow_patience *patience, char *why, size_t why_size,
                  uint8_t ret_left[TOW_LOGIN_SIZE])
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    if (hear_first(link, patience, &at, &available) < 0 || tow_frame_read(at, &frame) < 0 ||
        frame.kind != TOW_CONTROL_CHALLENGE) {
        return 0; /* whoever reads the welcome says what is wrong */
    }
    /* The listener answers, and may let a wrong token wait: it has the time of a silent server. */
    tow_patience_heard(patience);
    int error = tow_login_do(link->line, link->address, hello, patience->deadline_ns, why, why_size,
                             ret_left);
    tow_patience_heard(patience);
    return error;
}

static int read_welcome(struct towc_link *link, struct tow_patience *patience, char *why,
                        size_t why_size)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    struct tow_frame frame;
    int error = hear_first(link, patience, &at, &available);
    if (error == -ETIMEDOUT) {
        explain_silence(link->address, patience, why, why_size);
        return error;
    }
    if (error < 0) {
        snprintf(why, why_size,
                 "%s closed the connection at once; is it a towlined, and what does its log say?",
                 link->address);
        return error;
    }
    error = tow_handshake_sniff(TOW_ROLE_CLIENT, at, available, link->address, why, why_size);
    if (error == -EPROTO) {
        return error;
    }
    error = tow_frame_read(at, &frame);
    if (error == 0) {
        error = peek_patiently(link->line, frame.length, patience, &at, &available);
    }
    if (error == 0 && frame.kind == TOW_CONTROL_REFUSE) {
        struct tow_refuse refuse;
        error = tow_refuse_decode(at, &frame, &refuse);
        if (error == 0) {
            snprintf(why, why_size, "%s refuses: %s", link->address, refuse.sentence);
            return refuse.code == TOW_REFUSE_BUSY ? -EUSERS : -ECONNREFUSED;
        }
    } else if (error == 0) {
        error = frame.kind == TOW_CONTROL_WELCOME ? tow_welcome_decode(at, &frame, &link->welcome)
                                                  : -EPROTO;
    }
    if (error < 0) {
        snprintf(why, why_size,
                 "%s answers with something that is not a welcome; use the same version of Towline "
                 "on both sides.",
                 link->address);
        return error;
    }
    error = tow_handshake_check_version(link->welcome.version, why, why_size);
    if (error < 0) {
        return error;
    }
    towc_hello_check_limit(link);
    if (towc_hello_take_lacking(link) < 0) {
        snprintf(why, why_size, "memory is used up");
        return -ENOMEM;
    }
    link->snapshot = malloc(link->welcome.snapshot_size + link->welcome.context_size + 1);
    if (link->snapshot == NULL) {
        snprintf(why, why_size, "memory is used up");
        return -ENOMEM;
    }
    memcpy(link->snapshot, link->welcome.snapshot, link->welcome.snapshot_size);
    link->welcome.snapshot = link->snapshot;
    if (link->welcome.context_size > 0) {
        uint8_t *context = link->snapshot + link->welcome.snapshot_size;
        memcpy(context, link->welcome.context, link->welcome.context_size);
        link->welcome.context = context;
        atomic_store(&link->context_ahead, true);
    }
    tow_line_consume(link->line, frame.length);
    return 0;
}

/* A server on this machine is best reached through shared memory, which its unix socket arranges.
 * TOWLINE_TRANSPORT=unix stays with the socket, TOWLINE_TRANSPORT=shm takes nothing else. */
static int connect_local(const char *address, const char *shared, const struct tow_preface *hello,
                         struct tow_patience *patience, struct tow_line **ret_line, char *why,
                         size_t why_size)
{
    const char *wish = getenv("TOWLINE_TRANSPORT");
    bool must = wish != NULL && strcmp(wish, "shm") == 0;
    if (wish != NULL && wish[0] != '\0' && !must && strcmp(wish, "unix") != 0 &&
        strcmp(wish, "auto") != 0) {
        snprintf(why, why_size, "TOWLINE_TRANSPORT=%s is not understood; write auto, unix or shm",
                 wish);
        return -EINVAL;
    }
    if (must || wish == NULL || strcmp(wish, "unix") != 0) {
        int error = tow_transport_connect_by(shared, hello, patience, why, why_size, ret_line);
        if (error == 0 || must) {
            return error;
        }
        switch (-error) {
        case ETIMEDOUT:
            explain_silence(address, patience, why, why_size);
            return error;
        case EBUSY:
        case EUSERS:
            return error; /* it refuses, and says why */
        case ENOENT:
        case ECONNREFUSED:
        case EACCES:
        case EPERM:
            break; /* nor will the socket do: let it say so */
        default:
            tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO,
                    "%s: no shared memory, the socket is used instead: %s", address, why);
        }
    }
    return tow_transport_connect_by(address, hello, patience, why, why_size, ret_line);
}

/* The hello decides which worker will do: the session's further servers and settings of the driver
 * need one of their own. Shared memory is arranged before, so that the server is shown it then. */
static int connect_line(const char *address, const struct tow_preface *hello,
                        struct tow_patience *patience, struct tow_line **ret_line, char *why,
                        size_t why_size)
{
    const char *rest;
    char shared[TOW_ADDRESS_MAX];
    if (tow_transport_is_in_process(address, &rest)) {
        /* Our own threads: slow perhaps, not silent. */
        *patience = tow_patience_none(tow_time_deadline(60 * TOW_TIME_S));
        return towc_self_connect(rest, ret_line, why, why_size);
    }
    if (tow_transport_faster(address, shared) == 0) {
        return connect_local(address, shared, hello, patience, ret_line, why, why_size);
    }
    return tow_transport_connect_by(address, hello, patience, why, why_size, ret_line);
}

/* To the welcome. A connection that was closed without a word is -ECONNRESET or -EPIPE, a server
 * without room now -EUSERS. */
static int be_welcomed(struct towc_link *link, const struct tow_preface *hello,
                       struct tow_patience *patience, char *why, size_t why_size)
{
    int64_t began_ns = tow_time_now_ns();
    uint8_t left[TOW_LOGIN_SIZE] = {0};
    int error = connect_line(link->address, hello, patience, &link->line, why, why_size);
    if (error < 0) {
        return error;
    }
    error = say_hello(link->line, hello);
    if (error < 0) {
        snprintf(why, why_size, "%s closed the connection at once; is it a towlined?",
                 link->address);
    } else {
        error = log_in(link, hello, patience, why, why_size, left);
        error = error < 0 ? error : read_welcome(link, patience, why, why_size);
    }
    if (error == 0 && (link->welcome.capabilities & TOW_CAN_LAST) != 0) {
        error = towc_lasting_begin(link, left, patience->deadline_ns, why, why_size);
    }
    explicit_bzero(left, sizeof left);
    bool closed = error == -ECONNRESET || error == -EPIPE;
    if (closed && tow_transport_explain(link->address, began_ns, why, why_size)) {
        error = -ECONNREFUSED;
    }
    return error;
}

int towc_link_open(const char *address, unsigned index, struct towc_link **ret_link, char *why,
                   size_t why_size)
{
    struct towc_link *link = calloc(1, sizeof *link);
    if (link == NULL) {
        snprintf(why, why_size, "memory is used up");
        return -ENOMEM;
    }
    snprintf(link->address, sizeof link->address, "%s", address);
    link->index = index;
    link->send.next_seq = 1;
    link->send.next_transfer = 1;
    atomic_init(&link->room, TOW_LINK_ROOM);
    atomic_init(&link->silence_ns, -1);
    tow_lock_init(&link->send.lock, CLIENT_SEND);
    tow_mutex_init(&link->wait.lock, CLIENT_WAIT);
    tow_mutex_init(&link->lane.lock, CLIENT_LANES);
    tow_mutex_init(&link->side_send.lock, CLIENT_SIDE);
    tow_cond_init(&link->wait.transfer_done);
    tow_cond_init(&link->wait.unread);
    tow_cond_init(&link->side_send.told);
    tow_cond_init(&link->hostfns.ended);
    struct tow_patience patience; /* for all that follows */
    tow_patience_begin(&patience, address, tow_ask_presence, say_that_we_wait);
    patience.say_place = towc_waiting_say;
    patience.interrupted = towc_waiting_interrupted;
    struct tow_retry retry = {0};
    struct tow_preface hello = {0};
    int error =
        towc_hello_make(index, towc_lane_wanted(link) > 0, tow_transport_lasts(address), &hello);
    if (error < 0) {
        snprintf(why, why_size, "cannot make a hello for %s: %s", address, strerror(-error));
    } else {
        error = be_welcomed(link, &hello, &patience, why, why_size);
    }
    while (error < 0) {
        if (error == -EUSERS && (patience.place.place != 0 || !towc_hello_waits())) {
            break; /* it has waited, or does not want to */
        }
        if (error == -EUSERS) {
            bear_refusal(&patience, why);
        }
        if (!tow_retry_pause(&retry, error, patience.deadline_ns)) {
            break;
        }
        towc_lasting_end(link);
        error = be_welcomed(link, &hello, &patience, why, why_size);
    }
    towc_hello_free(&hello);
    if (error < 0 && towc_waiting_interrupted() == 1) {
        snprintf(why, why_size, "the program was interrupted while it waited in line at %s",
                 address);
    }
    towc_waiting_end(address);
    if (error < 0) {
        towc_link_close(link);
        return error;
    }
    link->share = towc_share_make(link->line);
    towc_link_handler->opened(link);
    towc_lasting_hold(link);
    tow_log(TOW_AREA_CLIENT, TOW_LOG_INFO, "connected to %s over %s", address,
            tow_line_kind(link->line));
    *ret_link = link;
    return 0;
}

void towc_link_close(struct towc_link *link)
{
    if (link == NULL) {
        return;
    }
    tow_lanes_destroy(link->lane.lanes);
    tow_line_close(atomic_load(&link->side));
    towc_lasting_end(link);
    towc_link_handler->closes(link);
    towc_share_destroy(link->share);
    while (link->wait.oldest != NULL) {
        struct towc_transfer *next = link->wait.oldest->next;
        free(link->wait.oldest);
        link->wait.oldest = next;
    }
    free(link->snapshot);
    free(link->lacking);
    tow_mutex_fini(&link->wait.lock);
    tow_mutex_fini(&link->lane.lock);
    tow_mutex_fini(&link->side_send.lock);
    pthread_cond_destroy(&link->wait.transfer_done);
    pthread_cond_destroy(&link->wait.unread);
    pthread_cond_destroy(&link->side_send.told);
    pthread_cond_destroy(&link->hostfns.ended);
    free(link);
}
