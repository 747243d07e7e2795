/* SPDX-License-Identifier: Apache-2.0 */
/* A line: the duplex channel between one client and one worker, whatever carries it.
 *
 * Both directions are byte streams in rings. The producer reserves room, writes a frame in place
 * and commits it; committed bytes go out at once. The consumer peeks at contiguous bytes in place
 * and consumes them. Reserve, commit, peek and consume are a handful of instructions each while the
 * other side is awake: no system call, no lock, no allocation.
 *
 * Who may call what: one producer at a time (the caller holds its own lock from reserve to commit,
 * and around send_direct), one consumer at a time (peek, consume, recv_into). tow_line_shutdown,
 * tow_line_wait_readable and tow_line_get_stats may be called by any thread at any time while
 * the line lives. tow_line_close is the last call, by one thread.
 *
 * Errors: -EPIPE or -ECONNRESET: the peer is gone; -EHOSTDOWN: it has been silent for too long.
 * -ESHUTDOWN: tow_line_shutdown was called here. -EPROTO: the peer has written nonsense into shared
 * memory. -ETIMEDOUT: the deadline passed. What the peer sent before it went can still be read.
 *
 * What waits for the peer (reserve, send_direct, drain, peek, recv_into, discard, wait_readable,
 * send_fd, take_fd) is called only with locks held that base/locks.def marks for it.
 */
#ifndef TOW_TRANSPORT_LINE_H
#define TOW_TRANSPORT_LINE_H

#include "base/clock.h"
#include "base/locks.h"
#include "wire/limits.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Size of a ring: a power of two, a multiple of 64 KiB (the largest page size we meet), and large
 * enough for the largest frame while another is being read. */
#define TOW_LINE_RING_SIZE (2u << 20)
_Static_assert(TOW_LINE_RING_SIZE >= TOW_FRAME_MAX + TOW_FRAME_MAX / 2, "frames must fit the ring");

/* The most that can be reserved, or asked for in a peek. */
#define TOW_LINE_FRAME_MAX TOW_FRAME_MAX

/* Parts of tow_line_send_direct and tow_line_lend. */
#define TOW_LINE_IOV_MAX 8

/* What both sides of a ring share. Each word has cache lines of its own: head is written by the
 * producer, tail by the consumer, and the two waits words only by someone who goes to sleep and by
 * whoever wakes them. head and tail count bytes since the line began. */
struct tow_ring_ctl {
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) _Atomic uint32_t consumer_waits; /* 1: a futex sleeper wants to know of head */
    _Alignas(128) _Atomic uint32_t producer_waits; /* 1: a futex sleeper wants to know of tail */
};

struct tow_line_stats {
    uint64_t bytes_out;
    uint64_t frames_out; /* commits and direct sends */
    uint64_t sends;      /* system calls that sent */
    uint64_t wakes;      /* system calls that woke the other side (or the sender thread) */
    uint64_t full_waits; /* times the producer had to wait for room */
    uint64_t bytes_in;
    uint64_t receives; /* system calls that received, or asked whether there is something */
    uint64_t sleeps;   /* system calls that slept, on either end here */
    uint64_t spins;    /* waits that spinning ended before a sleep */
};

struct tow_line;
struct tow_grant;

/* How a kind of line does what it does differently. All are set, except where said. */
struct tow_line_ops {
    const char *name;
    bool in_process; /* tow_line_is_in_process */
    bool can_break;  /* tow_line_can_break */
    /* The consumer of the out ring sleeps: wake it (or start it). */
    void (*wake)(struct tow_line *line);
    /* The same, by a caller who will wait for the answer: may send from this thread. */
    void (*send_now)(struct tow_line *line);
    int (*send_direct)(struct tow_line *line, const struct iovec *iov, int count, size_t total);
    /* All or none: without them the memory is the caller's again as with send_direct. */
    int (*lend)(struct tow_line *line, const struct iovec *iov, int count, size_t total);
    int (*take_back)(struct tow_line *line, uint64_t place);
    /* See tow_line_place. */
    uint64_t (*place)(struct tow_line *line);
    /* Until there is room for `size` bytes in the out ring: how much. NULL: whoever takes from the
     * ring makes it. */
    int (*await_room)(struct tow_line *line, size_t size, int64_t deadline_ns, uint64_t *ret_room);
    /* Until everything committed was handed over. */
    int (*drain)(struct tow_line *line, int64_t deadline_ns);
    /* Until `min` bytes are between in_tail and in_head. */
    int (*fill)(struct tow_line *line, size_t min, int64_t deadline_ns);
    int (*recv_into)(struct tow_line *line, void *dst, size_t n);
    int (*wait_readable)(struct tow_line *line, int64_t deadline_ns);
    void (*shutdown)(struct tow_line *line);
    /* Until the peer has closed; NULL: it is not waited for. */
    int (*await_end)(struct tow_line *line, int64_t deadline_ns);
    /* Adds what lines behind this one have counted; NULL: there are none. */
    void (*add_stats)(struct tow_line *line, struct tow_line_stats *stats);
    /* See tow_line_set_silence; NULL: this kind cannot. */
    void (*set_silence)(struct tow_line *line, int64_t ns);
    /* See tow_line_set_abrupt; NULL: this kind cannot. */
    void (*set_abrupt)(struct tow_line *line);
    /* Passing memory to the other end; NULL: this kind cannot. */
    int (*send_fd)(struct tow_line *line, int fd, uint64_t number);
    int (*take_fd)(struct tow_line *line, uint64_t number, int64_t deadline_ns, int *ret_fd);
    /* In a forked child: closes descriptors, touches nothing that the parent uses. */
    void (*abandon)(struct tow_line *line);
    void (*destroy)(struct tow_line *line);
};

/* How long to spin before sleeping; follows what happened lately. Owned by one waiting thread. */
struct tow_spin {
    int64_t budget_ns; /* 0: never */
    int64_t min_ns, max_ns;
    int64_t expected_ns; /* until when somebody expects the wait to end; 0: nobody does */
    unsigned lost;       /* grows with every one that was wrong in a row */
    unsigned doubts;     /* so many of the next are not believed */
};

/* Only the inline functions below and this folder look inside. */
struct tow_line {
    /* The producer's. */
    uint8_t *out_base;        /* borrowed from the kind: ring mapped twice in a row */
    struct tow_ring_ctl *out; /* borrowed from the kind */
    uint64_t out_head;
    uint64_t out_limit; /* out_head may go up to here without looking at tail again */
    uint64_t out_mask;
    _Atomic uint64_t frames_out, direct_out, sends, wakes, full_waits, out_sleeps, out_spins;
    struct tow_spin out_spin;

    /* The consumer's. */
    _Alignas(128) const uint8_t *in_base; /* borrowed from the kind: ring mapped twice in a row */
    _Atomic uint64_t in_head;             /* bytes up to here are known to be there */
    _Atomic uint64_t in_tail;
    uint64_t in_mask;
    struct tow_ring_ctl *in_place; /* shared ring that is read in place; NULL: in_base is private */
    _Atomic uint64_t bytes_in, receives, in_sleeps, in_spins;
    struct tow_spin in_spin;

    /* Everybody's, rarely written. */
    _Alignas(128) _Atomic int error; /* 0, or why nothing can be sent any more; set once */
    _Atomic bool down;               /* tow_line_shutdown was called */
    const struct tow_line_ops *ops;
    /* For rings whose other end is a peer: nonzero once it has gone; NULL for sockets. */
    _Atomic uint32_t *peer_gone;
    bool shared; /* the rings are shared with another process */
    int peer_fd; /* a socket that ends when the peer dies, looked at while asleep; -1: none */
    char peer[128];
    /* Encrypted lines: what only these two ends have (TOW_TLS_BINDING bytes), and the secret that
     * further lines of the session are made with; NULL: none. Both are the kind's. */
    const uint8_t *binding;
    const struct tow_grant *grant;
};

/* ---- producing ---- */

int tow_line_reserve_slow(struct tow_line *line, size_t size, int64_t deadline_ns,
                          uint8_t **ret_at);
void tow_line_freed(struct tow_line *line); /* cold half of tow_line_consume */

/* Gives `size` contiguous bytes (at most TOW_LINE_FRAME_MAX), 8-aligned if all sizes were, to write
 * to. Blocks while the window is full. May be called again before the commit, with a larger
 * size too: it gives the same place. */
static inline int tow_line_reserve_until(struct tow_line *line, size_t size, int64_t deadline_ns,
                                         uint8_t **ret_at)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_reserve");
    if (__builtin_expect(size > line->out_limit - line->out_head ||
                             atomic_load_explicit(&line->error, memory_order_relaxed) != 0,
                         0)) {
        return tow_line_reserve_slow(line, size, deadline_ns, ret_at);
    }
    *ret_at = line->out_base + (line->out_head & line->out_mask);
    return 0;
}

static inline int tow_line_reserve(struct tow_line *line, size_t size, uint8_t **ret_at)
{
    return tow_line_reserve_until(line, size, TOW_TIME_FOREVER, ret_at);
}

static inline void tow_line_count(_Atomic uint64_t *counter, uint64_t by)
{
    /* One writer each: no need for an atomic addition. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

/* Sends the first `size` bytes of what was reserved. Never blocks. */
static inline void tow_line_commit(struct tow_line *line, size_t size)
{
    line->out_head += size;
    tow_line_count(&line->frames_out, 1);
    /* Both sequentially consistent: either the consumer sees the new head before it sleeps, or we
     * see that it wants to sleep. */
    atomic_store(&line->out->head, line->out_head);
    if (__builtin_expect(atomic_load(&line->out->consumer_waits) != 0, 0)) {
        line->ops->wake(line);
    }
}

/* The same, for a frame whose reply the caller will wait for: if nobody is awake to send it, this
 * thread does, which saves a thread switch. */
static inline void tow_line_commit_now(struct tow_line *line, size_t size)
{
    line->out_head += size;
    tow_line_count(&line->frames_out, 1);
    atomic_store(&line->out->head, line->out_head);
    if (__builtin_expect(atomic_load(&line->out->consumer_waits) != 0, 0)) {
        line->ops->send_now(line);
    }
}

/* Sends large bytes from the caller's own memory, behind everything committed, without copying them
 * where the kind can. Returns when the memory may be reused. At most TOW_LINE_IOV_MAX parts. */
int tow_line_send_direct(struct tow_line *line, const struct iovec *iov, int count);

/* The same in several calls: the memory may be reused behind tow_line_take_back, which has to come
 * behind the last of them, whether they failed or not. Parts that are smaller than this, and of
 * whole words of 8 bytes, are the caller's at once. Other producers may send in between, and
 * meanwhile. A line that keeps what it sends (keep.h) copies less then. */
#define TOW_LINE_LENT_MIN (4u << 10)
int tow_line_lend(struct tow_line *line, const struct iovec *iov, int count);
int tow_line_take_back(struct tow_line *line);

/* Who lends several buffers in turn takes back the oldest: what the peer has by then is not copied.
 * The place is that behind all that was lent so far; until it, all is the callers' again. */
uint64_t tow_line_place(struct tow_line *line);
int tow_line_take_back_until(struct tow_line *line, uint64_t place);

/* Waits until everything committed has left this process (it survives our end). Call it before
 * exit; the caller must keep producers away meanwhile. */
int tow_line_drain(struct tow_line *line, int64_t deadline_ns);

/* ---- consuming ---- */

/* Blocks until at least `min` contiguous bytes (1 .. TOW_LINE_FRAME_MAX) are there, and says where
 * and how many. They stay valid until they are consumed. */
static inline int tow_line_peek(struct tow_line *line, size_t min, int64_t deadline_ns,
                                const uint8_t **ret_at, size_t *ret_available)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_peek");
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
    /* Another thread may have received them (keep_in.c). */
    uint64_t head = atomic_load_explicit(&line->in_head, memory_order_acquire);
    if (__builtin_expect(head - tail < min, 0)) {
        int error = line->ops->fill(line, min, deadline_ns);
        if (error < 0) {
            return error;
        }
        tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
        head = atomic_load_explicit(&line->in_head, memory_order_acquire);
    }
    *ret_at = line->in_base + (tail & line->in_mask);
    *ret_available = (size_t)(head - tail);
    return 0;
}

/* Gives back the first `n` bytes; n is at most what the last peek said. */
static inline void tow_line_consume(struct tow_line *line, size_t n)
{
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed) + n;
    atomic_store_explicit(&line->in_tail, tail, memory_order_release);
    tow_line_count(&line->bytes_in, n);
    if (line->in_place != NULL) {
        atomic_store(&line->in_place->tail, tail);
        if (__builtin_expect(atomic_load(&line->in_place->producer_waits) != 0, 0)) {
            tow_line_freed(line);
        }
    }
}

/* Receives exactly `n` bytes into the caller's memory, the rest of a frame for example, without
 * going through a buffer where the kind can. */
int tow_line_recv_into(struct tow_line *line, void *dst, size_t n);

/* Takes `n` bytes and forgets them. */
int tow_line_discard(struct tow_line *line, size_t n);

/* Waits until a peek(1) would not block (also because the line has ended) without consuming.
 * Returns 0, or -ETIMEDOUT. It may return early while another thread consumes. */
int tow_line_wait_readable(struct tow_line *line, int64_t deadline_ns);

/* Waits until the peer has closed its end, and reads nothing: 0, or -ETIMEDOUT. Any thread. A peer
 * in this process is not waited for. */
int tow_line_await_end(struct tow_line *line, int64_t deadline_ns);

/* ---- a silent peer ---- */

/* How long the peer's machine may be silent (0: for ever); then whoever waits for it, to receive or
 * to send, gets -EHOSTDOWN. A process that says nothing is not silent: its kernel answers. Only for
 * lines over a network, where it is 20 s at first. Any thread. */
void tow_line_set_silence(struct tow_line *line, int64_t ns);

/* However this end closes, be it with its process, the peer's kernel is told that it was this end
 * (RST over tcp): whoever is in between closes otherwise (FIN). What was sent may be lost then. */
void tow_line_set_abrupt(struct tow_line *line);

/* ---- what a line is like: asked, so that only this folder knows the kinds ---- */

/* Whether both ends are in this process: what one end has mapped, the other has. */
bool tow_line_is_in_process(const struct tow_line *line);
/* Whether it can end while both ends live: there is a network between them. */
bool tow_line_can_break(const struct tow_line *line);
/* Whether it keeps what it sends for a while: then more buffers in turn are worth their memory. */
bool tow_line_keeps(const struct tow_line *line);

/* ---- memory for both ends ---- */

/* Whether descriptors can be passed: both ends are on one machine and share memory anyway. */
bool tow_line_can_share(const struct tow_line *line);
/* Passes a descriptor, which stays the caller's, under a number that a later frame names. Any
 * thread may call it. -ENOTSUP where the kind cannot. */
int tow_line_send_fd(struct tow_line *line, int fd, uint64_t number);
/* The other end: the descriptor of that number, which is the caller's then. Any thread. -EPROTO if
 * something else came. */
int tow_line_take_fd(struct tow_line *line, uint64_t number, int64_t deadline_ns, int *ret_fd);

/* ---- life ---- */

/* Makes every blocked and every later call on this end return -ESHUTDOWN, and the peer notice. What
 * was committed and not yet sent may be lost: drain first if that matters. */
void tow_line_shutdown(struct tow_line *line);

/* Shuts down, ends our threads, frees everything. No other call may be running. NULL is fine. */
void tow_line_close(struct tow_line *line);

/* Frees everything, too, but shuts nothing down: who has another descriptor of its connection keeps
 * that. Of a socket's line that is in nobody's hands and whose ring was never sent. */
void tow_line_let_go(struct tow_line *line);

/* In a forked child that inherited the line: closes its descriptors, so that the peer notices when
 * the parent ends. The line's memory stays; make no other call on it. */
void tow_line_abandon(struct tow_line *line);

void tow_line_get_stats(struct tow_line *line, struct tow_line_stats *ret_stats);

/* The kind: "self", "unix", "tcp", "tls", "shm", "hook". */
const char *tow_line_kind(const struct tow_line *line);

/* Who is at the other end, for logs: "10.0.0.3:41234", "pid 812 of user 1000". */
const char *tow_line_peer(const struct tow_line *line);

/* Two ends of a line within this process. */
int tow_line_pair(struct tow_line **ret_first, struct tow_line **ret_second);

/* The shortest and the longest spin before a sleep, for lines made from now on; it adapts in
 * between. Negative: choose by the number of processors (none on one or two, where spinning takes
 * the peer's processor away). */
void tow_line_set_spin(int64_t min_ns, int64_t max_ns);

/* By the consumer: what comes next is expected within `ns`, so that the next wait had better spin
 * as long. Expectations that were wrong make that rarer. */
void tow_line_expect(struct tow_line *line, int64_t ns);

#endif
