/* SPDX-License-Identifier: Apache-2.0 */
/* TIMELINE: a client asks what the GPU did, and what time it is there. It has a seq; the REPLY
 * comes in the order of the line, and behind its head (tow_timeline_answer) are as many names and
 * spans as that says. docs/wire/timeline.md */
#ifndef TOW_WIRE_TIMELINE_H
#define TOW_WIRE_TIMELINE_H

#include "wire/frame.h"

struct tow_timeline {
    uint32_t flags; /* TOW_TIMELINE_SPANS ...; unknown ones are ignored */
    uint32_t names; /* the kernels' names that the client has: the first so many */
};

#define TOW_TIMELINE_SPANS 1u    /* what the GPU did is wanted from now on, else the clock alone */
#define TOW_TIMELINE_COMMANDS 2u /* and which command gave it */

#define TOW_TIMELINE_HEAD 8u
void tow_timeline_head(const struct tow_timeline *timeline, uint8_t ret_head[TOW_TIMELINE_HEAD]);
int tow_timeline_decode(const void *at, const struct tow_frame *frame,
                        struct tow_timeline *ret_timeline);

#define TOW_TIMELINE_KNOWN 1u    /* the server knows what its GPUs do */
#define TOW_TIMELINE_MORE 2u     /* there is more to be asked for */
#define TOW_TIMELINE_NUMBERED 4u /* behind the spans is a number for each: its command, or 0 */

struct tow_timeline_answer {
    uint64_t now_ns; /* the worker's clock */
    uint64_t lost;   /* spans that there was no room for so far */
    uint32_t flags;  /* TOW_TIMELINE_KNOWN ... */
    uint32_t names;  /* at most TOW_TIMELINE_NAMES_MAX; numbered behind those that the client has */
    uint32_t spans;  /* at most TOW_TIMELINE_SPANS_MAX */
};

#define TOW_TIMELINE_ANSWER_SIZE 32u

void tow_timeline_answer_put(struct tow_enc *enc, const struct tow_timeline_answer *answer);
/* -EPROTO: it is too short, or has too many of something. */
int tow_timeline_answer_get(struct tow_dec *dec, struct tow_timeline_answer *ret_answer);

enum tow_span_kind {
    TOW_SPAN_KERNEL = 1,
    TOW_SPAN_COPY_IN,
    TOW_SPAN_COPY_OUT,
    TOW_SPAN_COPY_DEVICE,
    TOW_SPAN_COPY_HOST,
    TOW_SPAN_FILL,
};

/* Times are of the worker's clock, in ns. */
struct tow_span {
    uint64_t given, began, ended;
    uint64_t bytes;  /* of a copy or a fill */
    uint32_t kind;   /* enum tow_span_kind; what is unknown is something else */
    uint32_t name;   /* of a kernel: its number, from 1 on; 0: unknown */
    uint32_t stream; /* another number for each stream */
    uint32_t queued; /* how much was in the stream behind it as it began */
};

#define TOW_SPAN_SIZE 48u

void tow_span_put(struct tow_enc *enc, const struct tow_span *span);
struct tow_span tow_span_get(struct tow_dec *dec);

#endif
