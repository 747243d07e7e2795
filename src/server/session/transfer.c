/* SPDX-License-Identifier: Apache-2.0 */
/* Puts DATA frames of announced transfers where they belong, in any order. */
#include "server/session/transfer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "server/session/session.h"
#include "wire/control.h"

/* Transfers under way at once: one for each client thread that uploads just then. What is announced
 * takes memory here, whether it comes or not. */
enum { INCOMING_MAX = 4096 };

struct tows_incoming {
    uint32_t number;
    uint64_t size, got; /* got: what has come, or is coming on a lane */
    uint64_t filled;    /* of a spread one: what is where it belongs */
    struct tows_transfer_sink sink;
    struct tows_incoming *next;
};

int tows_transfer_expect(struct tows_session *session, uint32_t number, uint64_t size,
                         const struct tows_transfer_sink *sink)
{
    if (size == 0) {
        sink->done(sink->user, true);
        return 0;
    }
    struct tows_incoming *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    *made = (struct tows_incoming){.number = number, .size = size, .sink = *sink};
    tow_mutex_lock(&session->transfers.lock);
    unsigned count = 0;
    bool there = false;
    for (struct tows_incoming *i = session->transfers.list; i != NULL; i = i->next) {
        there |= i->number == number;
        count++;
    }
    if (there || count == INCOMING_MAX) {
        tow_mutex_unlock(&session->transfers.lock);
        free(made);
        return there ? -EEXIST : -ENOSPC;
    }
    made->next = session->transfers.list;
    session->transfers.list = made;
    pthread_cond_broadcast(&session->transfers.changed);
    tow_mutex_unlock(&session->transfers.lock);
    return 0;
}

static struct tows_incoming **transfer_find(struct tows_session *session, uint32_t number)
{
    struct tows_incoming **at = &session->transfers.list;
    while (*at != NULL && (*at)->number != number) {
        at = &(*at)->next;
    }
    return at;
}

static int take_chunk(struct tow_line *line, const struct tows_transfer_sink *sink, uint64_t offset,
                      size_t size)
{
    const uint8_t *at = NULL;
    size_t available = 0;
    int error = tow_line_peek(line, size, TOW_TIME_FOREVER, &at, &available);
    if (error == 0) {
        sink->chunk(sink->user, offset, at, size);
        tow_line_consume(line, size);
    }
    return error;
}

static int take_placed(struct tow_line *line, const struct tows_transfer_sink *sink,
                       uint64_t offset, size_t size)
{
    int error = 0;
    while (size > 0 && error == 0) {
        size_t n = size;
        void *token = NULL;
        void *at = sink->place(sink->user, offset, &n, &token);
        if (at == NULL) {
            return tow_line_discard(line, size);
        }
        error = tow_line_recv_into(line, at, n);
        sink->filled(sink->user, offset, error == 0 ? n : 0, token);
        offset += n;
        size -= n;
    }
    return error;
}

/* ---- spread over several lines ---- */

/* With the lock held, for a while: something changed, or the session may have ended. */
static int await_change(struct tows_session *session)
{
    tow_mutex_wait_until(&session->transfers.lock, &session->transfers.changed,
                         tow_time_deadline(100 * TOW_TIME_MS));
    return tows_session_goes_on(session) ? 0 : -ESHUTDOWN;
}

/* With the lock held: the frame's bytes are ours to receive; the transfer stays until they
 * are counted as filled. */
static int transfer_claim(struct tows_incoming *incoming, const struct tow_data *data)
{
    if (data->offset > incoming->size || data->size > incoming->size - data->offset ||
        data->size > incoming->size - incoming->got) {
        return -EPROTO;
    }
    incoming->got += data->size;
    return 0;
}

static int take_claimed(struct tows_session *session, struct tow_line *line,
                        struct tows_incoming *incoming, const struct tow_data *data)
{
    int error = take_placed(line, &incoming->sink, data->offset, data->size);
    tow_mutex_lock(&session->transfers.lock);
    incoming->filled += data->size; /* or never will be: nobody uses it any more in any case */
    pthread_cond_broadcast(&session->transfers.changed);
    tow_mutex_unlock(&session->transfers.lock);
    return error;
}

int tows_transfer_take_lane(struct tows_session *session, struct tow_line *line,
                            const struct tow_data *data)
{
    int error = 0;
    tow_mutex_lock(&session->transfers.lock);
    struct tows_incoming *incoming = *transfer_find(session, data->transfer);
    while (incoming == NULL && error == 0) {
        error = await_change(session);
        incoming = *transfer_find(session, data->transfer);
    }
    if (error == 0) {
        error = incoming->sink.spread && data->size > 0 ? transfer_claim(incoming, data) : -EPROTO;
    }
    tow_mutex_unlock(&session->transfers.lock);
    return error < 0 ? error : take_claimed(session, line, incoming, data);
}

/* A frame on the session's own line. The last one is behind everything that follows from the copy:
 * the leader waits there for what the lanes still bring. */
static int take_spread(struct tows_session *session, struct tows_incoming *incoming,
                       const struct tow_data *data, bool *ret_over)
{
    bool failed = (data->flags & TOW_DATA_FAILED) != 0;
    int error = 0;
    if (!failed) {
        tow_mutex_lock(&session->transfers.lock);
        error = transfer_claim(incoming, data);
        tow_mutex_unlock(&session->transfers.lock);
        if (error == 0) {
            error = take_claimed(session, session->line, incoming, data);
        }
    } else {
        error = tow_line_discard(session->line, data->size);
    }
    *ret_over = failed || (data->flags & TOW_DATA_LAST) != 0;
    tow_mutex_lock(&session->transfers.lock);
    while (error == 0 && *ret_over &&
           incoming->filled < (failed ? incoming->got : incoming->size)) {
        error = await_change(session);
    }
    if (error == 0 && *ret_over) {
        /* In the same breath: nobody can claim any more of it. */
        *transfer_find(session, incoming->number) = incoming->next;
    }
    tow_mutex_unlock(&session->transfers.lock);
    return error;
}

/* The whole of the frame's payload is within the transfer, and comes next. */
static int take_payload(struct tow_line *line, struct tows_incoming *incoming,
                        const struct tow_data *data)
{
    if (data->size == 0) {
        return 0;
    }
    if (data->flags & TOW_DATA_FAILED) {
        return tow_line_discard(line, data->size);
    }
    return incoming->sink.place != NULL
               ? take_placed(line, &incoming->sink, data->offset, data->size)
               : take_chunk(line, &incoming->sink, data->offset, data->size);
}

int tows_transfer_take(struct tows_session *session, const struct tow_frame *frame)
{
    struct tow_line *line = session->line;
    struct tow_data data;
    uint32_t pad = 0;
    const uint8_t *at = NULL;
    size_t available = 0;
    if (frame->length < TOW_DATA_HEAD) {
        return -EPROTO;
    }
    int error = tow_line_peek(line, TOW_DATA_HEAD, TOW_TIME_FOREVER, &at, &available);
    if (error < 0) {
        return error;
    }
    if (tow_data_head_decode(at, frame, &data, &pad) < 0) {
        return -EPROTO;
    }
    tow_mutex_lock(&session->transfers.lock);
    struct tows_incoming *incoming = *transfer_find(session, data.transfer);
    tow_mutex_unlock(&session->transfers.lock);
    /* Only the leading thread, this one, removes transfers: it stays while its bytes come. */
    if (incoming == NULL ||
        (!incoming->sink.spread &&
         (data.offset != incoming->got || data.size > incoming->size - incoming->got))) {
        return -EPROTO;
    }
    tow_line_consume(line, TOW_DATA_HEAD);
    bool failed = (data.flags & TOW_DATA_FAILED) != 0, over = false;
    if (incoming->sink.spread) {
        error = take_spread(session, incoming, &data, &over);
    } else {
        error = take_payload(line, incoming, &data);
        incoming->got += data.size;
        over = failed || incoming->got == incoming->size;
        if (over && error == 0) {
            tow_mutex_lock(&session->transfers.lock);
            *transfer_find(session, incoming->number) = incoming->next;
            tow_mutex_unlock(&session->transfers.lock);
        }
    }
    if (error < 0) {
        return error;
    }
    if (over) {
        incoming->sink.done(incoming->sink.user, !failed);
        free(incoming);
    }
    return tow_line_discard(line, pad);
}

void tows_transfer_wait_users(struct tows_session *session)
{
    tow_mutex_lock(&session->transfers.lock);
    bool under_way = session->transfers.list != NULL;
    tow_mutex_unlock(&session->transfers.lock);
    while (under_way && !tows_hold_wait(session)) {
        under_way = tows_session_goes_on(session);
    }
}

void tows_transfer_end_all(struct tows_session *session)
{
    tow_mutex_lock(&session->transfers.lock);
    struct tows_incoming *all = session->transfers.list;
    session->transfers.list = NULL;
    tow_mutex_unlock(&session->transfers.lock);
    while (all != NULL) {
        struct tows_incoming *next = all->next;
        all->sink.done(all->sink.user, false);
        free(all);
        all = next;
    }
}
