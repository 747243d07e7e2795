/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes what TIMELINE asks and what answers it. */
#include "wire/timeline.h"

void tow_timeline_head(const struct tow_timeline *timeline, uint8_t ret_head[TOW_TIMELINE_HEAD])
{
    struct tow_enc enc = tow_enc_init(ret_head, TOW_TIMELINE_HEAD);
    tow_enc_u32(&enc, timeline->flags);
    tow_enc_u32(&enc, timeline->names);
}

int tow_timeline_decode(const void *at, const struct tow_frame *frame,
                        struct tow_timeline *ret_timeline)
{
    struct tow_dec dec = tow_frame_body(at, frame);
    struct tow_timeline timeline = {.flags = tow_dec_u32(&dec)};
    timeline.names = tow_dec_u32(&dec);
    if (dec.bad || frame->kind != TOW_CONTROL_TIMELINE || frame->seq == 0) {
        return -EPROTO;
    }
    *ret_timeline = timeline;
    return 0;
}

void tow_timeline_answer_put(struct tow_enc *enc, const struct tow_timeline_answer *answer)
{
    tow_enc_u64(enc, answer->now_ns);
    tow_enc_u64(enc, answer->lost);
    tow_enc_u32(enc, answer->flags);
    tow_enc_u32(enc, answer->names);
    tow_enc_u32(enc, answer->spans);
    tow_enc_align(enc, 8);
}

int tow_timeline_answer_get(struct tow_dec *dec, struct tow_timeline_answer *ret_answer)
{
    struct tow_timeline_answer answer = {.now_ns = tow_dec_u64(dec)};
    answer.lost = tow_dec_u64(dec);
    answer.flags = tow_dec_u32(dec);
    answer.names = tow_dec_u32(dec);
    answer.spans = tow_dec_u32(dec);
    tow_dec_align(dec, 8);
    if (dec->bad || answer.names > TOW_TIMELINE_NAMES_MAX ||
        answer.spans > TOW_TIMELINE_SPANS_MAX) {
        return -EPROTO;
    }
    *ret_answer = answer;
    return 0;
}

void tow_span_put(struct tow_enc *enc, const struct tow_span *span)
{
    tow_enc_u64(enc, span->given);
    tow_enc_u64(enc, span->began);
    tow_enc_u64(enc, span->ended);
    tow_enc_u64(enc, span->bytes);
    tow_enc_u32(enc, span->kind);
    tow_enc_u32(enc, span->name);
    tow_enc_u32(enc, span->stream);
    tow_enc_u32(enc, span->queued);
}

struct tow_span tow_span_get(struct tow_dec *dec)
{
    struct tow_span span = {.given = tow_dec_u64(dec)};
    span.began = tow_dec_u64(dec);
    span.ended = tow_dec_u64(dec);
    span.bytes = tow_dec_u64(dec);
    span.kind = tow_dec_u32(dec);
    span.name = tow_dec_u32(dec);
    span.stream = tow_dec_u32(dec);
    span.queued = tow_dec_u32(dec);
    return span;
}
