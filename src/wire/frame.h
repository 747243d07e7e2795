/* SPDX-License-Identifier: Apache-2.0 */
/* A frame: 16 bytes of header, then a body. docs/wire-format.md is the specification.
 *
 *     0  u32 length   of the whole frame: at least 16, a multiple of 8, at most TOW_FRAME_MAX
 *     4  u16 kind     a function's number (1 .. 0xEFFF), or one of enum tow_control
 *     6  u16 thread   the client thread it comes from or is meant for
 *     8  u32 context  the client's context number; in a REPLY the CUresult of the call
 *    12  u32 seq      0: no reply is wanted; in a REPLY the number it answers
 */
#ifndef TOW_WIRE_FRAME_H
#define TOW_WIRE_FRAME_H

#include "wire/cursor.h"
#include "wire/limits.h"

#include <errno.h>

enum tow_control {
    TOW_CONTROL_FIRST = 0xf000,
    TOW_CONTROL_HELLO = 0xf000,         /* client's first frame */
    TOW_CONTROL_WELCOME = 0xf001,       /* server's answer */
    TOW_CONTROL_REFUSE = 0xf002,        /* server's other answer; the line is closed after it */
    TOW_CONTROL_REPLY = 0xf003,         /* the outputs of a call, as the table says */
    TOW_CONTROL_CALLBACK = 0xf004,      /* server: run host function `id` now */
    TOW_CONTROL_CALLBACK_DONE = 0xf005, /* client: it has returned */
    TOW_CONTROL_PRINT = 0xf006,         /* server: text of device printf */
    TOW_CONTROL_DATA = 0xf007,          /* a chunk of a bulk transfer */
    TOW_CONTROL_CREDIT = 0xf008,        /* the receiver has room for more */
    TOW_CONTROL_BYE = 0xf009,           /* an orderly end; nothing follows */
    TOW_CONTROL_NOTICE = 0xf00a,        /* server: something the client should know unasked */
    TOW_CONTROL_THREAD_EXIT = 0xf00b,   /* client: the header's thread has ended; no body */
    TOW_CONTROL_STATUS = 0xf00c,        /* first frame of one who only asks how the server is */
    TOW_CONTROL_REPORT = 0xf00d,        /* server's answer; the line is closed after it */
    TOW_CONTROL_MIRROR = 0xf00e, /* changes of memory that both sides hold, see wire/diff.h */
    TOW_CONTROL_LANE = 0xf00f,   /* first frame of a session's further connection, and its answer */
    TOW_CONTROL_SIDE = 0xf010,   /* client: asks for the key of a side line; no body */
    TOW_CONTROL_FENCE = 0xf011,  /* client: wait for so many MIRROR frames of the side line */
    TOW_CONTROL_CALLBACK_BYTES = 0xf012, /* client: bytes of a copy behind host functions */
    TOW_CONTROL_FETCH = 0xf013,  /* client, on the side line: what the worker has at an address */
    TOW_CONTROL_DONE = 0xf014,   /* server: events and streams that the client awaits */
    TOW_CONTROL_FORGET = 0xf015, /* client: an export whose descriptors are all closed */
    TOW_CONTROL_CHALLENGE = 0xf016, /* server: a login is needed first */
    TOW_CONTROL_PROOF = 0xf017,     /* client: of its token */
    TOW_CONTROL_PROVED = 0xf018,    /* server: it is right; the client says its first frame again */
    TOW_CONTROL_GRANT = 0xf019,     /* server, over tls: the secret of the session's own lines */
    TOW_CONTROL_LASTING = 0xf01a,   /* server, behind WELCOME: the line outlives its connection */
    TOW_CONTROL_RESUME = 0xf01b,    /* first frame of a connection over which a line goes on */
    TOW_CONTROL_TIMELINE = 0xf01c,  /* client: what the GPU did, and the worker's clock; a REPLY */
};

struct tow_frame {
    uint32_t length;
    uint16_t kind;
    uint16_t thread;
    uint32_t context;
    uint32_t seq;
};
_Static_assert(sizeof(struct tow_frame) == TOW_FRAME_HEADER, "the header is what the wire says");

static inline bool tow_frame_is_control(const struct tow_frame *frame)
{
    return frame->kind >= TOW_CONTROL_FIRST;
}

/* The length a frame with a body of `body` bytes has. */
static inline uint32_t tow_frame_length(size_t body)
{
    return (uint32_t)((TOW_FRAME_HEADER + body + TOW_FRAME_ALIGN - 1) &
                      ~(size_t)(TOW_FRAME_ALIGN - 1));
}

/* Writes the header at `at`, which has room for it. */
static inline void tow_frame_write(void *at, const struct tow_frame *frame)
{
    memcpy(at, frame, sizeof *frame);
}

/* Starts a frame at `start` and leaves `size` - 16 bytes for the body; finish with tow_frame_end.
 */
static inline struct tow_enc tow_frame_begin(void *start, size_t size)
{
    struct tow_enc enc = tow_enc_init(start, size);
    tow_enc_block(&enc, TOW_FRAME_HEADER);
    return enc;
}

/* Pads, writes the header (its length is set here) and says how many bytes to commit; -EMSGSIZE if
 * the body did not fit. */
static inline int tow_frame_end(struct tow_enc *enc, void *start, struct tow_frame frame,
                                uint32_t *ret_length)
{
    tow_enc_align(enc, TOW_FRAME_ALIGN);
    size_t length = (size_t)(enc->at - (uint8_t *)start);
    if (TOW_UNLIKELY(enc->overflow || length > TOW_FRAME_MAX)) {
        return -EMSGSIZE;
    }
    frame.length = (uint32_t)length;
    memcpy(start, &frame, sizeof frame);
    *ret_length = frame.length;
    return 0;
}

/* Reads a header from 16 bytes a peer sent. -EPROTO if its length cannot be or its kind is 0. */
static inline int tow_frame_read(const void *at, struct tow_frame *ret_frame)
{
    struct tow_frame frame;
    memcpy(&frame, at, sizeof frame);
    if (TOW_UNLIKELY(frame.length < TOW_FRAME_HEADER || frame.length > TOW_FRAME_MAX ||
                     frame.length % TOW_FRAME_ALIGN != 0 || frame.kind == 0)) {
        return -EPROTO;
    }
    *ret_frame = frame;
    return 0;
}

/* The body of a frame whose `frame->length` bytes are all at `at`. */
static inline struct tow_dec tow_frame_body(const void *at, const struct tow_frame *frame)
{
    return tow_dec_init((const uint8_t *)at + TOW_FRAME_HEADER, frame->length - TOW_FRAME_HEADER);
}

/* The word for a control kind ("HELLO"), or NULL. */
const char *tow_control_name(uint16_t kind);

#endif
