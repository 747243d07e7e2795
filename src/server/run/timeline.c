/* SPDX-License-Identifier: Apache-2.0 */
/* Answers TIMELINE from what the backend keeps; a session that never asks pays nothing. */
#include "server/run/timeline.h"

#include <errno.h>
#include <stdlib.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "server/session/session.h"
#include "wire/timeline.h"

#define ANSWER_MAX                                                                                 \
    (TOW_TIMELINE_ANSWER_SIZE + TOW_TIMELINE_SPANS_MAX * (TOW_SPAN_SIZE + 8u) +                    \
     TOW_TIMELINE_NAMES_MAX * (TOW_TIMELINE_NAME_MAX + 16u))
_Static_assert(ANSWER_MAX + TOW_FRAME_HEADER <= TOW_FRAME_MAX, "an answer fits a frame");

/* The wire's word for what the backend calls so. */
static uint32_t timeline_kind(uint32_t kind)
{
    static const uint8_t kinds[] = {
        [TOW_BACKEND_KERNEL] = TOW_SPAN_KERNEL,
        [TOW_BACKEND_COPY_IN] = TOW_SPAN_COPY_IN,
        [TOW_BACKEND_COPY_OUT] = TOW_SPAN_COPY_OUT,
        [TOW_BACKEND_COPY_DEVICE] = TOW_SPAN_COPY_DEVICE,
        [TOW_BACKEND_COPY_HOST] = TOW_SPAN_COPY_HOST,
        [TOW_BACKEND_FILL] = TOW_SPAN_FILL,
    };
    return kind < sizeof kinds ? kinds[kind] : 0;
}

/* With the names that the client lacks. Where these are many they go alone: what is taken is never
 * ahead of its name. */
static void timeline_fill(const struct tow_backend_timeline_ops *ops,
                          const struct tow_timeline *asked, struct tow_backend_span *spans,
                          struct tow_timeline_answer *answer, struct tow_enc *enc)
{
    const char *names[TOW_TIMELINE_NAMES_MAX], *name;
    uint32_t known = asked->names < UINT32_MAX / 2 ? asked->names : UINT32_MAX / 2;
    bool numbered = (asked->flags & TOW_TIMELINE_COMMANDS) != 0;
    bool many = ops->name(known + TOW_TIMELINE_NAMES_MAX / 2) != NULL;
    answer->spans = ops->take(spans, many ? 0 : TOW_TIMELINE_SPANS_MAX, &answer->lost);
    while (answer->names < TOW_TIMELINE_NAMES_MAX &&
           (name = ops->name(known + answer->names + 1)) != NULL) {
        names[answer->names++] = name;
    }
    bool more = answer->spans == TOW_TIMELINE_SPANS_MAX || many;
    answer->flags = TOW_TIMELINE_KNOWN | (more ? TOW_TIMELINE_MORE : 0) |
                    (numbered ? TOW_TIMELINE_NUMBERED : 0);
    tow_timeline_answer_put(enc, answer);
    for (uint32_t i = 0; i < answer->names; i++) {
        tow_enc_cstr(enc, names[i]);
    }
    tow_enc_align(enc, 8);
    for (uint32_t i = 0; i < answer->spans; i++) {
        const struct tow_backend_span *span = &spans[i];
        struct tow_span sent = {
            .given = span->given_ns,
            .began = span->began_ns,
            .ended = span->ended_ns,
            .bytes = span->bytes,
            .kind = timeline_kind(span->kind),
            .name = span->name,
            .stream = span->stream,
            .queued = span->queued,
        };
        tow_span_put(enc, &sent);
    }
    for (uint32_t i = 0; numbered && i < answer->spans; i++) {
        tow_enc_u64(enc, spans[i].command);
    }
}

int tows_timeline_answer(struct tows_session *session, const uint8_t *at,
                         const struct tow_frame *frame)
{
    struct tow_timeline_answer answer = {.now_ns = (uint64_t)tow_time_now_ns()};
    struct tow_timeline asked;
    int error = tow_timeline_decode(at, frame, &asked);
    if (error < 0) {
        return error;
    }
    const struct tow_backend_timeline_ops *ops =
        (asked.flags & TOW_TIMELINE_SPANS) != 0 ? session->backend->timeline : NULL;
    uint8_t small[TOW_TIMELINE_ANSWER_SIZE];
    uint8_t *room = NULL;
    struct tow_backend_span *spans = NULL;
    struct tow_enc enc = tow_enc_init(small, sizeof small);
    struct tow_backend_timeline_how how = {.stays = false};
    if (ops != NULL && ops->begin(&how) == 0) {
        atomic_store(&session->stays, how.stays);
        room = malloc(ANSWER_MAX);
        spans = malloc(TOW_TIMELINE_SPANS_MAX * sizeof *spans);
    }
    uint8_t *start = small;
    if (room != NULL && spans != NULL) {
        start = room;
        enc = tow_enc_init(room, ANSWER_MAX);
        timeline_fill(ops, &asked, spans, &answer, &enc);
    } else {
        tow_timeline_answer_put(&enc, &answer);
    }
    error = enc.overflow ? -EMSGSIZE
                         : tows_session_send(session, TOW_CONTROL_REPLY, frame->thread, 0,
                                             frame->seq, start, (size_t)(enc.at - start));
    free(spans);
    free(room);
    return error;
}
