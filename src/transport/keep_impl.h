/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of keep*.c: what a lasting line has.
 *
 * Each direction is a stream of bytes, counted from 0. The sending half is the role `send`, a lock;
 * the receiving half is the role `receiving`, a flag, because who finds it taken waits for what its
 * holder brings rather than for the role. Who has a role uses the line behind; who replaces that
 * one has both.
 */
#ifndef TOW_TRANSPORT_KEEP_IMPL_H
#define TOW_TRANSPORT_KEEP_IMPL_H

#include "base/clock.h"
#include "base/mutex.h"
#include "transport/keep.h"
#include "transport/tls_shake.h"
#include "wire/control.h"

/* A record: u32 size of what follows, u32 kind, u64 how many bytes of the stream this end has
 * taken. Little-endian. */
#define KEEP_HEAD 16u
/* Most that follows a head: a payload's bytes. More of them cost less, and delay what the head of
 * the next one acknowledges. */
#define KEEP_RECORD_MAX (4u << 20)

enum keep_kind {
    KEEP_DATA = 1,   /* bytes of the stream; all others have none */
    KEEP_ACK = 2,    /* nobody was about to send */
    KEEP_ASK = 3,    /* acknowledge what came, at once */
    KEEP_RESUME = 4, /* the first of each new line: go on behind what is taken */
    KEEP_END = 5,    /* the stream is over: this was no cut */
};

enum keep_state {
    KEEP_LIVE,
    KEEP_CUT,   /* waits for a new line */
    KEEP_ENDED, /* for good: line.error says why */
};

/* A line behind this one. */
struct keep_wire {
    struct tow_line *line; /* owned */
    unsigned users;        /* guarded by `life`: the last one closes it */
};

/* Bytes of the stream that never were in the ring. */
struct keep_segment {
    uint64_t from, size;  /* of the stream */
    uint64_t ring_at;     /* the ring's position that they stand before */
    const uint8_t *bytes; /* a caller's that waits for us, or in `copies` */
    bool copied;
};

/* More than are ever needed (keep_out.c). A power of 2. */
#define KEEP_SEGMENTS 8192u

struct keep_line {
    struct tow_line line;
    struct tow_ring_ctl ctl; /* of the out ring: its tail is what the peer has acknowledged */
    struct tow_line_ops ops;
    struct tow_keep_setup setup;
    uint8_t binding[TOW_TLS_BINDING];
    struct tow_grant *grant; /* owned, on a secret page; NULL: none */

    /* The role of sending, LINE_KEEP_SEND. */
    struct tow_mutex send;
    _Atomic uint64_t sent; /* of the stream, over this line or an earlier one */
    bool said_end;
    /* What is kept: LINE_KEEP_KEPT guards it, up to the next comment. Bytes that are being sent
     * stay where they are for who has the role: only he puts others in their place. */
    struct tow_mutex kept;
    _Atomic uint64_t direct;       /* bytes of the stream in segments, of all time */
    struct keep_segment *segments; /* owned: KEEP_SEGMENTS of them; NULL until they are needed */
    uint64_t first, next, end;     /* the oldest, the one that is sent next, behind the last */
    uint8_t *copies;               /* owned: a ring; NULL until it is needed */
    uint64_t copy_head, copy_tail;
    /* By who sends. */
    _Atomic uint64_t offered; /* the peer may have so much */
    _Atomic uint64_t told;    /* what the peer was told of `taken` */
    _Atomic bool asks;        /* an acknowledgement is wanted */
    _Atomic int sender_state; /* 0: none, 1: there is one, 2: its thread number is set */
    pthread_t sender;
    struct tow_spin sender_spin;

    /* The role of receiving. It guards what has no _Atomic up to the next comment. */
    _Alignas(128) _Atomic bool receiving;
    uint32_t left; /* of the record that is being received */
    bool bulk;     /* a large payload was received last */
    _Atomic uint64_t taken;
    _Atomic uint64_t acked; /* so much the peer has taken */
    _Atomic bool owed;      /* the peer asked for an acknowledgement */

    /* Everybody's. */
    _Alignas(128) _Atomic int state;
    _Atomic uint32_t changes, waiters; /* see keep_wait */
    struct tow_mutex life;             /* LINE_KEEP_LIFE guards the following, up to the comment */
    struct keep_wire *wire; /* owned; replaced by who has both roles, so with one it can be read */
    struct tow_line_stats past; /* of the lines that were behind before */
    int64_t cut_ns;             /* when, by the clock of boot_now_ns; see mark_cut */
    int64_t mended_ns;          /* when it was mended last */
    uint64_t cut_at;            /* how far both directions had come at the last cut */
    int why;                    /* the error of the cut */
    int64_t silence_ns;         /* -1: never set */
    /* Set once. */
    _Atomic int read_error; /* of KEEP_ENDED */
    _Atomic unsigned mends;
    bool mender_started;
    pthread_t mender;
};

static inline struct keep_line *keep_of(struct tow_line *line)
{
    return (struct keep_line *)line;
}

static inline uint64_t keep_held(const struct tow_line *line)
{
    return atomic_load_explicit(&line->in_head, memory_order_acquire) -
           atomic_load_explicit(&line->in_tail, memory_order_acquire);
}

/* Bytes of the stream that the producer has committed. */
static inline uint64_t keep_end_of(struct keep_line *keep)
{
    return atomic_load(&keep->ctl.head) + atomic_load(&keep->direct);
}

/* ---- keep.c: states and waiting ---- */

/* Whoever waits for another thread of this line: keep_wait_begin, then a look at what is waited
 * for, then keep_wait unless it is there, and in any case keep_wait_end. Whoever changes something
 * calls keep_changed behind it. */
uint32_t keep_wait_begin(struct keep_line *keep);
/* Until something changes or the deadline, and never longer than a second: the limit of a cut is
 * counted by another clock. */
void keep_wait(struct keep_line *keep, uint32_t seen, int64_t deadline_ns);
void keep_wait_end(struct keep_line *keep);
void keep_changed(struct keep_line *keep);

/* The line behind, for who has no role; NULL if there is none. */
struct keep_wire *keep_wire_get(struct keep_line *keep);
void keep_wire_put(struct keep_line *keep, struct keep_wire *wire);

/* By who has a role and got an error from the line behind: a cut, or the end if it is ours. Gives
 * the error. `drained`: nothing can be received from it any more. */
int keep_failed(struct keep_line *keep, int error, bool drained);
/* Ends it for good. */
void keep_end(struct keep_line *keep, int write_error, int read_error);
/* Waits while it is cut: 0, -ETIMEDOUT, or the end as readers learn it. */
int keep_await_mended(struct keep_line *keep, int64_t deadline_ns);
/* What readers learn of the end; 0: it has not come. */
int keep_ended(struct keep_line *keep);

/* ---- keep_out.c ---- */

void keep_put_head(uint8_t *to, uint32_t size, enum keep_kind kind, uint64_t taken);
/* With the role: sends what is there and acknowledges what is due. 0, or -EAGAIN without `wait`, or
 * keep_failed's. */
int keep_pump(struct keep_line *keep, bool wait);
/* Gives the role back; what became due meanwhile is sent. */
void keep_send_give(struct keep_line *keep);
/* Sends without waiting if nobody sends; else somebody will. */
void keep_poke(struct keep_line *keep);
bool keep_has_work(struct keep_line *keep);
/* With both roles: the peer has taken so much, what follows is to be sent again. */
void keep_rewind(struct keep_line *keep, uint64_t taken);
/* Says that this is no cut, if that can be said soon. */
void keep_say_end(struct keep_line *keep);

void keep_wake(struct tow_line *line);
void keep_send_now(struct tow_line *line);
int keep_send_direct(struct tow_line *line, const struct iovec *iov, int count, size_t total);
int keep_lend(struct tow_line *line, const struct iovec *iov, int count, size_t total);
int keep_take_back(struct tow_line *line, uint64_t place);
uint64_t keep_place(struct tow_line *line);
int keep_await_room(struct tow_line *line, size_t size, int64_t deadline_ns, uint64_t *ret_room);
int keep_drain(struct tow_line *line, int64_t deadline_ns);
/* Ends the sender's thread and frees what this half has. */
void keep_out_fini(struct keep_line *keep);

/* ---- keep_in.c ---- */

bool keep_receive_try(struct keep_line *keep);
void keep_receive_give(struct keep_line *keep);
/* Without a role: until the peer has taken something else than `acked`. It receives if nobody else
 * does. 0, -ETIMEDOUT, or the end. */
int keep_await_ack(struct keep_line *keep, uint64_t acked, int64_t deadline_ns);
/* Takes what has come, if nobody else does, without waiting: until there is something to consume,
 * or `all`, so that an end is noticed. */
void keep_look(struct keep_line *keep, bool all);
/* The line behind has ended for somebody without a role: who has one is to see it, too. */
void keep_notice(struct keep_line *keep);
/* The head of a record: its kind, or -EPROTO. */
int keep_get_head(const uint8_t *at, uint32_t *ret_size, uint64_t *ret_taken);

int keep_fill(struct tow_line *line, size_t min, int64_t deadline_ns);
int keep_recv_into(struct tow_line *line, void *dst, size_t n);
int keep_wait_readable(struct tow_line *line, int64_t deadline_ns);
int keep_await_end(struct tow_line *line, int64_t deadline_ns);

#endif
