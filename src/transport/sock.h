/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of this folder: lines over stream sockets, and the small helpers all socket kinds use. */
#ifndef TOW_TRANSPORT_SOCK_H
#define TOW_TRANSPORT_SOCK_H

#include "base/mutex.h"
#include "transport/line.h"
#include "transport/silence.h"

#include <pthread.h>
#include <sys/types.h>

/* Most that is received ahead of need: hundreds of commands in one call, yet little of a bulk
 * payload gets copied twice. */
#define TOW_SOCK_AHEAD (64u << 10)

/* A payload of this size is likely to be followed by another one. */
#define TOW_SOCK_BULK (64u << 10)

struct tow_sock_line;

/* How bytes get onto the socket. Both are called with the role. */
struct tow_sock_kind {
    /* Sends what is in the ring. -EAGAIN: the socket is full and `flags` has MSG_DONTWAIT. */
    int (*send_ring)(struct tow_sock_line *sock, int flags);
    /* Sends these bytes, behind a ring that is empty. May change `iov`. */
    int (*send_parts)(struct tow_sock_line *sock, struct iovec *iov, int count);
    /* Frees what the kind has of its own. */
    void (*fini)(struct tow_sock_line *sock);
};

/* A line over a stream socket; a kind may have more behind it. */
struct tow_sock_line {
    struct tow_line line;
    struct tow_ring_ctl ctl; /* of the out ring: consumer_waits starts as 1, nobody is there */
    const struct tow_sock_kind *kind;
    int fd;                /* owned */
    struct tow_mutex role; /* guards the socket's sending half and advancing ctl.tail */
    pthread_t sender;
    bool sender_started; /* written by the producer only */
    struct tow_spin sender_spin;
    _Atomic uint64_t sender_sleeps, sender_spins, receiver_sleeps;
    bool bulk;                  /* the consumer's: a large payload was received last */
    _Atomic int64_t silence_ns; /* over a network: how long the peer may be silent */
};

/* Makes one of a connected stream socket, which it owns from then on (also when it fails); `size`
 * is that of the kind's struct, which begins with a tow_sock_line and is zero behind it. */
int tow_sock_line_make(size_t size, const struct tow_line_ops *ops,
                       const struct tow_sock_kind *kind, int fd, bool tcp,
                       struct tow_sock_line **ret_sock);

/* What all such lines do in the same way, for their tow_line_ops. */
void tow_sock_wake(struct tow_line *line);
void tow_sock_send_now(struct tow_line *line);
int tow_sock_send_direct(struct tow_line *line, const struct iovec *iov, int count, size_t total);
int tow_sock_drain(struct tow_line *line, int64_t deadline_ns);
int tow_sock_wait_readable(struct tow_line *line, int64_t deadline_ns);
void tow_sock_shutdown(struct tow_line *line);
int tow_sock_await_end(struct tow_line *line, int64_t deadline_ns);
void tow_sock_set_silence(struct tow_line *line, int64_t ns);
void tow_sock_set_abrupt(struct tow_line *line);
void tow_sock_abandon(struct tow_line *line);
void tow_sock_destroy(struct tow_line *line);

#define TOW_SOCK_OPS(kind, breaks, fills, receives_into)                                           \
    {                                                                                              \
        .name = kind, .can_break = breaks, .wake = tow_sock_wake, .send_now = tow_sock_send_now,   \
        .send_direct = tow_sock_send_direct, .drain = tow_sock_drain, .fill = fills,               \
        .recv_into = receives_into, .wait_readable = tow_sock_wait_readable,                       \
        .shutdown = tow_sock_shutdown, .await_end = tow_sock_await_end,                            \
        .set_silence = tow_sock_set_silence, .set_abrupt = tow_sock_set_abrupt,                    \
        .abandon = tow_sock_abandon, .destroy = tow_sock_destroy,                                  \
    }

/* Receives at least one byte, waiting until the deadline: the count, or an error. `flags` are for
 * the call that sleeps. */
ssize_t tow_sock_receive(struct tow_sock_line *sock, void *to, size_t n, int64_t deadline_ns,
                         int flags);

/* The peer's end, in our words. */
int tow_sock_send_error(int error);
/* A blocking send has failed: 0 if it is to be tried again. The silence begins as 0, and is 0 again
 * when something went. */
int tow_sock_send_again(struct tow_sock_line *sock, int error, struct tow_silence *silence);

/* Makes a line of a connected stream socket, which it owns from then on (also when it fails). */
int tow_sock_line(int fd, bool tcp, struct tow_line **ret_line);

/* Describes the peer of a socket: its address, or its process and user. */
void tow_sock_describe(int fd, char *ret_text, size_t size);

/* Sends or receives exactly n bytes before the deadline; for the few bytes before a line exists. */
int tow_sock_send_all(int fd, const void *bytes, size_t n, int64_t deadline_ns);
int tow_sock_recv_all(int fd, void *bytes, size_t n, int64_t deadline_ns);

/* Waits for `events` on fd: 0, -ETIMEDOUT or an error. */
int tow_sock_poll(int fd, short events, int64_t deadline_ns);

/* Connects without blocking beyond the deadline; the socket is blocking afterwards. */
struct sockaddr;
int tow_sock_connect(int fd, const struct sockaddr *address, unsigned length, int64_t deadline_ns);

/* Gives a unix socket a large buffer, if it has none yet; as large as root may, where it is root.
 */
void tow_sock_widen(int fd);

/* Sets or clears O_NONBLOCK. */
int tow_sock_set_blocking(int fd, bool blocking);

#endif
