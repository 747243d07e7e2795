/* SPDX-License-Identifier: Apache-2.0 */
/* Lines over stream sockets (unix, tcp).
 *
 * Out: the ring is emptied by a sender thread, which is started by the first commit and sleeps on
 * the ring's consumer_waits word while there is nothing to do. Whoever writes to the socket holds
 * the role: the sender thread, or a producer in send_direct and send_now. In: the consumer itself
 * receives into a private ring, or straight into its destination.
 */
#include "transport/sock.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "transport/ring.h"
#include "wire/control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Most that one send takes from the ring, so that room comes back while more is sent. */
#define SEND_CHUNK (256u << 10)

/* Behind a payload that went straight to its destination another one is likely: no more than the
 * head of its frame is received ahead, so that its bytes need not be copied out of the buffer. */
#define RECEIVE_HEAD TOW_DATA_HEAD

/* Below this a direct send is cheaper as a copy into the ring. */
#define DIRECT_MIN (16u << 10)

/* A peer that is silently gone is noticed within this time: by the kernel's own probes while
 * nothing is on its way (two parts of idle time, three probes a part apart), else by whoever waits
 * (silence.h). TCP_USER_TIMEOUT would also end a connection whose peer lives and
 * takes nothing: one in front of a long kernel, say. */
#define SILENCE_NS (20 * TOW_TIME_S)
#define KEEPALIVE_COUNT 3

#define UNIX_BUFFER (4 << 20)

static struct tow_sock_line *sock_of(struct tow_line *line)
{
    return (struct tow_sock_line *)line;
}

/* ---- sending ---- */

int tow_sock_send_error(int error)
{
    return error == ECONNRESET || error == ETIMEDOUT ? -ECONNRESET : -error;
}

int tow_sock_send_again(struct tow_sock_line *sock, int error, struct tow_silence *silence)
{
    if (error != EAGAIN && error != EINTR) {
        return tow_sock_send_error(error);
    }
    if (!tow_silence_look(silence, sock->fd, atomic_load(&sock->silence_ns), error == EINTR)) {
        return 0;
    }
    tow_line_fail(&sock->line, -EHOSTDOWN);
    shutdown(sock->fd, SHUT_RDWR); /* who receives waits no longer, either */
    return -EHOSTDOWN;
}

static int send_ring(struct tow_sock_line *sock, int flags)
{
    struct tow_line *line = &sock->line;
    uint64_t tail = atomic_load_explicit(&sock->ctl.tail, memory_order_relaxed);
    struct tow_silence silence = {0};
    for (;;) {
        uint64_t head = atomic_load_explicit(&sock->ctl.head, memory_order_acquire);
        if (head == tail) {
            return 0;
        }
        size_t n = head - tail < SEND_CHUNK ? (size_t)(head - tail) : SEND_CHUNK;
        tow_line_count(&line->sends, 1);
        ssize_t sent =
            send(sock->fd, line->out_base + (tail & line->out_mask), n, flags | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EAGAIN && (flags & MSG_DONTWAIT) != 0) {
                return -EAGAIN;
            }
            int error = tow_sock_send_again(sock, errno, &silence);
            if (error < 0) {
                return error;
            }
            continue;
        }
        silence = (struct tow_silence){0};
        tail += (uint64_t)sent;
        tow_ring_release(&sock->ctl, tail, head, line->out_mask + 1, false, NULL);
    }
}

/* Nothing goes out any more, whatever the reason: who receives here, and the peer, wait no longer,
 * either. What has come can still be read. */
static void sock_send_failed(struct tow_sock_line *sock, int error)
{
    tow_line_fail(&sock->line, error);
    shutdown(sock->fd, SHUT_RDWR);
}

static void *sender_run(void *arg)
{
    struct tow_sock_line *sock = arg;
    struct tow_line *line = &sock->line;
    int error = 0;
    while (error == 0) {
        struct tow_ring_wait wait = {
            .word = &sock->ctl.head,
            .waits = &sock->ctl.consumer_waits,
            .base = atomic_load(&sock->ctl.tail),
            .need = 1,
            /* The producer's own direct send may have moved tail meanwhile. */
            .capacity = UINT64_MAX,
            .spin = &sock->sender_spin,
            .sleeps = &sock->sender_sleeps,
            .spins = &sock->sender_spins,
            .producer = true,
        };
        uint64_t available;
        error = tow_ring_wait(line, &wait, TOW_TIME_FOREVER, &available);
        if (error == 0) {
            tow_mutex_lock(&sock->role);
            error = sock->kind->send_ring(sock, 0);
            tow_mutex_unlock(&sock->role);
        }
    }
    if (!atomic_load(&line->down)) {
        sock_send_failed(sock, error);
    }
    return NULL;
}

void tow_sock_wake(struct tow_line *line)
{
    struct tow_sock_line *sock = sock_of(line);
    if (sock->sender_started) {
        tow_line_count(&line->wakes, 1);
        tow_ring_wake(&sock->ctl.consumer_waits, false);
        return;
    }
    atomic_store(&sock->ctl.consumer_waits, 0);
    int error = tow_thread_start("towline-send", sender_run, sock, &sock->sender);
    if (error == 0) {
        sock->sender_started = true;
        return;
    }
    /* No thread to be had: this one sends, and will the next time. */
    atomic_store(&sock->ctl.consumer_waits, 1);
    tow_mutex_lock(&sock->role);
    error = sock->kind->send_ring(sock, 0);
    tow_mutex_unlock(&sock->role);
    if (error < 0) {
        sock_send_failed(sock, error);
    }
}

void tow_sock_send_now(struct tow_line *line)
{
    struct tow_sock_line *sock = sock_of(line);
    if (tow_mutex_try(&sock->role)) {
        int error = sock->kind->send_ring(sock, MSG_DONTWAIT);
        tow_mutex_unlock(&sock->role);
        if (error == 0) {
            return;
        }
        if (error != -EAGAIN) {
            sock_send_failed(sock, error);
            return;
        }
    }
    tow_sock_wake(line);
}

/* The system refuses memory (EFAULT) that a handler of the program's would open when it is touched:
 * so it is touched. What is none ends the program, as a copy by the processor does. */
static void sock_touch(uint8_t *bytes, size_t size, bool written)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < size; at += page - ((uintptr_t)(bytes + at) & (page - 1))) {
        volatile uint8_t *byte = bytes + at;
        uint8_t value = *byte;
        if (written) {
            *byte = value;
        }
    }
}

static int send_parts(struct tow_sock_line *sock, struct iovec *iov, int count)
{
    struct tow_line *line = &sock->line;
    bool touched = false; /* since the last byte that went */
    struct tow_silence silence = {0};
    while (count > 0) {
        if (iov->iov_len == 0) {
            iov++;
            count--;
            continue;
        }
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
        tow_line_count(&line->sends, 1);
        ssize_t sent = sendmsg(sock->fd, &message, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EFAULT && !touched) {
                for (int i = 0; i < count; i++) {
                    sock_touch(iov[i].iov_base, iov[i].iov_len, false);
                }
                touched = true;
                continue;
            }
            int error = tow_sock_send_again(sock, errno, &silence);
            if (error < 0) {
                return error;
            }
            continue;
        }
        touched = false;
        silence = (struct tow_silence){0};
        size_t left = (size_t)sent;
        while (count > 0 && left >= iov->iov_len) {
            left -= iov->iov_len;
            iov++;
            count--;
        }
        if (count > 0) {
            iov->iov_base = (uint8_t *)iov->iov_base + left;
            iov->iov_len -= left;
        }
    }
    return 0;
}

int tow_sock_send_direct(struct tow_line *line, const struct iovec *iov, int count, size_t total)
{
    struct tow_sock_line *sock = sock_of(line);
    if (total < DIRECT_MIN) {
        return tow_ring_send_copy(line, iov, count);
    }
    int error = atomic_load(&line->error);
    if (error != 0) {
        return error;
    }
    struct iovec parts[TOW_LINE_IOV_MAX];
    memcpy(parts, iov, (size_t)count * sizeof *iov);
    tow_mutex_lock(&sock->role);
    error = sock->kind->send_ring(sock, 0);
    if (error == 0) {
        error = sock->kind->send_parts(sock, parts, count);
    }
    tow_mutex_unlock(&sock->role);
    if (error < 0) {
        /* Part of a frame may be out: nothing can follow it. */
        sock_send_failed(sock, error);
        return atomic_load(&line->down) ? -ESHUTDOWN : error;
    }
    tow_line_count(&line->frames_out, 1);
    tow_line_count(&line->direct_out, total);
    return 0;
}

/* Somebody else sends, and sends all of it: an empty ring is as much room as there can be. */
static int sock_await_sent(struct tow_sock_line *sock, int64_t deadline_ns)
{
    struct tow_line *line = &sock->line;
    struct tow_spin spin = {0};
    uint64_t capacity = line->out_mask + 1, room = 0;
    struct tow_ring_wait wait = {
        .word = &sock->ctl.tail,
        .waits = &sock->ctl.producer_waits,
        .base = atomic_load(&sock->ctl.head) - capacity,
        .need = capacity,
        .capacity = UINT64_MAX, /* others may send more: the tail passes what was the head */
        .spin = &spin,
        .sleeps = &line->out_sleeps,
        .spins = &line->out_spins,
        .producer = true,
    };
    return tow_ring_wait(line, &wait, deadline_ns, &room);
}

int tow_sock_drain(struct tow_line *line, int64_t deadline_ns)
{
    struct tow_sock_line *sock = sock_of(line);
    for (;;) {
        int error = atomic_load(&line->error);
        if (error != 0) {
            return error;
        }
        if (atomic_load(&sock->ctl.tail) == atomic_load(&sock->ctl.head)) {
            return 0;
        }
        if (tow_mutex_try(&sock->role)) {
            error = sock->kind->send_ring(sock, MSG_DONTWAIT);
            tow_mutex_unlock(&sock->role);
            if (error == -EAGAIN) {
                error = tow_sock_poll(sock->fd, POLLOUT, deadline_ns);
            }
            if (error < 0) {
                return error;
            }
        } else {
            error = sock_await_sent(sock, deadline_ns);
            if (error < 0) {
                return error;
            }
        }
    }
}

/* ---- receiving ---- */

/* What the failure of a receive means: -EAGAIN, -EINTR, or the end. */
static int receive_error(struct tow_line *line, ssize_t got)
{
    int error = got == 0 ? ECONNRESET : errno;
    switch (error) {
    case ECONNRESET:
    case ETIMEDOUT:
    case EPIPE:
    case EHOSTUNREACH:
    case EHOSTDOWN:
        if (atomic_load(&line->down)) {
            return -ESHUTDOWN;
        }
        tow_line_fail(line, -EPIPE);
        /* The kernel's probes found nobody, or we did, or who sends did. */
        return error == ETIMEDOUT || error == EHOSTDOWN || atomic_load(&line->error) == -EHOSTDOWN
                   ? -EHOSTDOWN
                   : -ECONNRESET;
    default:
        return -error;
    }
}

/* One receive call. */
static ssize_t receive_once(struct tow_sock_line *sock, void *to, size_t n, int flags)
{
    tow_line_count(&sock->line.receives, 1);
    ssize_t got = recv(sock->fd, to, n, flags);
    return got > 0 ? got : receive_error(&sock->line, got);
}

ssize_t tow_sock_receive(struct tow_sock_line *sock, void *to, size_t n, int64_t deadline_ns,
                         int flags)
{
    struct tow_line *line = &sock->line;
    ssize_t got = -EAGAIN;
    struct tow_silence silence = {0};
    bool spins = line->in_spin.budget_ns > 0;
    int64_t began = spins ? tow_time_now_ns() : 0;
    if (spins) {
        int64_t until = tow_spin_until(&line->in_spin, began);
        for (;;) {
            got = receive_once(sock, to, n, MSG_DONTWAIT);
            int64_t now = got == -EAGAIN ? tow_time_now_ns() : 0;
            if (got != -EAGAIN || now >= until || now >= deadline_ns) {
                break;
            }
            tow_thread_pause();
        }
        if (got > 0) {
            tow_line_count(&line->in_spins, 1);
        }
    }
    while (got == -EAGAIN || got == -EINTR) {
        if (atomic_load(&line->down)) {
            return -ESHUTDOWN;
        }
        if (deadline_ns == TOW_TIME_FOREVER) {
            /* The call itself sleeps. */
            got = receive_once(sock, to, n, flags);
            if ((got == -EAGAIN || got == -EINTR) &&
                tow_silence_look(&silence, sock->fd, atomic_load(&sock->silence_ns),
                                 got == -EINTR)) {
                errno = EHOSTDOWN;
                got = receive_error(line, -1);
            }
            continue;
        }
        got = receive_once(sock, to, n, MSG_DONTWAIT);
        if (got == -EAGAIN) {
            tow_line_count(&line->in_sleeps, 1);
            int error = tow_sock_poll(sock->fd, POLLIN | POLLRDHUP, deadline_ns);
            if (error < 0) {
                return error;
            }
        }
    }
    if (spins) {
        tow_spin_learn(&line->in_spin, began, tow_time_now_ns());
    }
    return got;
}

static int sock_fill(struct tow_line *line, size_t min, int64_t deadline_ns)
{
    struct tow_sock_line *sock = sock_of(line);
    if (min > TOW_LINE_FRAME_MAX) {
        return -EMSGSIZE;
    }
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&line->in_head, memory_order_relaxed);
    if (head == tail) {
        /* Back to the start, which is in the cache; the alignment within the stream is kept. */
        head = tail = tail % 8;
        atomic_store_explicit(&line->in_tail, tail, memory_order_relaxed);
        atomic_store_explicit(&line->in_head, head, memory_order_relaxed);
    }
    size_t ahead = sock->bulk && min <= RECEIVE_HEAD ? RECEIVE_HEAD : TOW_SOCK_AHEAD;
    sock->bulk = false;
    while (head - tail < min) {
        size_t room = line->in_mask + 1 - (head - tail);
        size_t need = min - (head - tail);
        size_t want = need > ahead ? need : ahead;
        want = want < room ? want : room;
        ssize_t got = tow_sock_receive(sock, (uint8_t *)line->in_base + (head & line->in_mask),
                                       want, deadline_ns, 0);
        if (got < 0) {
            return (int)got;
        }
        head += (uint64_t)got;
        atomic_store_explicit(&line->in_head, head, memory_order_relaxed);
    }
    return 0;
}

static int sock_recv_into(struct tow_line *line, void *dst, size_t n)
{
    struct tow_sock_line *sock = sock_of(line);
    uint8_t *to = dst;
    size_t left = n;
    bool touched = false;
    while (left > 0) {
        ssize_t got = tow_sock_receive(sock, to, left, TOW_TIME_FOREVER, MSG_WAITALL);
        if (got == -EFAULT && !touched) {
            sock_touch(to, left, true);
            touched = true;
            continue;
        }
        if (got < 0) {
            return (int)got;
        }
        touched = false;
        to += got;
        left -= (size_t)got;
    }
    sock->bulk = n >= TOW_SOCK_BULK;
    /* The buffer is empty here; its positions keep counting, for the alignment. */
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed) + n;
    atomic_store_explicit(&line->in_tail, tail, memory_order_relaxed);
    atomic_store_explicit(&line->in_head, tail, memory_order_relaxed);
    tow_line_count(&line->bytes_in, n);
    return 0;
}

int tow_sock_wait_readable(struct tow_line *line, int64_t deadline_ns)
{
    struct tow_sock_line *sock = sock_of(line);
    for (;;) {
        if (atomic_load(&line->in_head) != atomic_load(&line->in_tail) ||
            atomic_load(&line->down)) {
            return 0;
        }
        /* In slices: another thread may have received into the buffer just after that look. */
        int64_t slice = tow_time_deadline(50 * TOW_TIME_MS);
        int error =
            tow_sock_poll(sock->fd, POLLIN | POLLRDHUP, slice < deadline_ns ? slice : deadline_ns);
        if (error != -ETIMEDOUT || tow_time_passed(deadline_ns)) {
            return error;
        }
    }
}

/* ---- life ---- */

void tow_sock_shutdown(struct tow_line *line)
{
    struct tow_sock_line *sock = sock_of(line);
    /* Ends every blocked send, recv and poll. */
    shutdown(sock->fd, SHUT_RDWR);
    tow_line_fail(line, -ESHUTDOWN);
}

int tow_sock_await_end(struct tow_line *line, int64_t deadline_ns)
{
    return tow_sock_poll(sock_of(line)->fd, POLLRDHUP, deadline_ns);
}

static void set_option(int fd, int level, int option, int value)
{
    /* None of them is needed for the line to work. */
    setsockopt(fd, level, option, &value, sizeof value);
}

void tow_sock_set_silence(struct tow_line *line, int64_t ns)
{
    struct tow_sock_line *sock = sock_of(line);
    int64_t parts_s = ns / 5 / TOW_TIME_S; /* of 5 */
    int part = parts_s > 0 ? (int)parts_s : 1;
    int64_t look_ns = ns / TOW_SILENCE_LOOKS;
    struct timeval look = {.tv_sec = look_ns / TOW_TIME_S,
                           .tv_usec = look_ns % TOW_TIME_S / TOW_TIME_US};
    if (!line->ops->can_break) {
        return;
    }
    set_option(sock->fd, SOL_SOCKET, SO_KEEPALIVE, ns > 0);
    set_option(sock->fd, IPPROTO_TCP, TCP_KEEPIDLE, 2 * part);
    set_option(sock->fd, IPPROTO_TCP, TCP_KEEPINTVL, part);
    set_option(sock->fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    setsockopt(sock->fd, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
    setsockopt(sock->fd, SOL_SOCKET, SO_SNDTIMEO, &look, sizeof look);
    atomic_store(&sock->silence_ns, ns);
}

void tow_sock_set_abrupt(struct tow_line *line)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(sock_of(line)->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void tow_sock_abandon(struct tow_line *line)
{
    close(sock_of(line)->fd);
}

static void sock_free(struct tow_sock_line *sock)
{
    tow_mirror_unmap(sock->line.out_base, TOW_LINE_RING_SIZE);
    tow_mirror_unmap((uint8_t *)sock->line.in_base, TOW_LINE_RING_SIZE);
    sock->kind->fini(sock);
    tow_mutex_fini(&sock->role);
    close(sock->fd);
    free(sock);
}

void tow_sock_destroy(struct tow_line *line)
{
    struct tow_sock_line *sock = sock_of(line);
    if (sock->sender_started) {
        pthread_join(sock->sender, NULL);
    }
    sock_free(sock);
}

static void no_fini(struct tow_sock_line *sock)
{
}

static const struct tow_sock_kind plain = {send_ring, send_parts, no_fini};

static const struct tow_line_ops unix_ops = TOW_SOCK_OPS("unix", false, sock_fill, sock_recv_into);
static const struct tow_line_ops tcp_ops = TOW_SOCK_OPS("tcp", true, sock_fill, sock_recv_into);

void tow_sock_widen(int fd)
{
    int now = 0;
    socklen_t length = sizeof now;
    /* The kernel shows twice what was asked for. */
    if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &now, &length) != 0 || now < 2 * UNIX_BUFFER) {
        set_option(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER);
        set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, UNIX_BUFFER);
    }
}

static void sock_tune(int fd, bool tcp)
{
    if (!tcp) {
        tow_sock_widen(fd);
        return;
    }
    /* No buffer sizes for tcp: setting one ends the kernel's own tuning, which goes further. */
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

int tow_sock_line_make(size_t size, const struct tow_line_ops *ops,
                       const struct tow_sock_kind *kind, int fd, bool tcp,
                       struct tow_sock_line **ret_sock)
{
    struct tow_sock_line *sock = aligned_alloc(128, (size + 127) / 128 * 128);
    if (sock == NULL) {
        close(fd);
        return -ENOMEM;
    }
    memset(sock, 0, size);
    tow_line_init(&sock->line, ops);
    sock->kind = kind;
    sock->fd = fd;
    sock->sender_spin = sock->line.out_spin;
    tow_mutex_init(&sock->role, LINE_SOCK_ROLE);
    atomic_store(&sock->ctl.consumer_waits, 1);
    uint8_t *out, *in;
    int error = tow_mirror_map(-1, 0, TOW_LINE_RING_SIZE, &out);
    if (error == 0) {
        tow_line_set_out(&sock->line, out, &sock->ctl, TOW_LINE_RING_SIZE);
        error = tow_mirror_map(-1, 0, TOW_LINE_RING_SIZE, &in);
    }
    if (error == 0) {
        sock->line.in_base = in;
        sock->line.in_mask = TOW_LINE_RING_SIZE - 1;
        error = tow_sock_set_blocking(fd, true);
    }
    if (error < 0) {
        sock_free(sock);
        return error;
    }
    sock_tune(fd, tcp);
    tow_sock_set_silence(&sock->line, SILENCE_NS);
    tow_sock_describe(fd, sock->line.peer, sizeof sock->line.peer);
    *ret_sock = sock;
    return 0;
}

int tow_sock_line(int fd, bool tcp, struct tow_line **ret_line)
{
    struct tow_sock_line *sock;
    int error =
        tow_sock_line_make(sizeof *sock, tcp ? &tcp_ops : &unix_ops, &plain, fd, tcp, &sock);
    if (error == 0) {
        *ret_line = &sock->line;
    }
    return error;
}

/* ---- helpers ---- */

int tow_sock_set_blocking(int fd, bool blocking)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0) {
        return -errno;
    }
    int wanted = blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK;
    return wanted != flags && fcntl(fd, F_SETFL, wanted) != 0 ? -errno : 0;
}

int tow_sock_poll(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int64_t left = tow_time_left(deadline_ns);
        struct timespec spec = tow_time_spec(left);
        int ready = ppoll(&poll_fd, 1, deadline_ns == TOW_TIME_FOREVER ? NULL : &spec, NULL);
        if (ready > 0) {
            return 0;
        }
        if (ready == 0) {
            return -ETIMEDOUT;
        }
        if (errno != EINTR) {
            return -errno;
        }
    }
}

int tow_sock_send_all(int fd, const void *bytes, size_t n, int64_t deadline_ns)
{
    const uint8_t *at = bytes;
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            n -= (size_t)sent;
            continue;
        }
        int error = errno == EAGAIN  ? tow_sock_poll(fd, POLLOUT, deadline_ns)
                    : errno == EINTR ? 0
                                     : -errno;
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

int tow_sock_recv_all(int fd, void *bytes, size_t n, int64_t deadline_ns)
{
    uint8_t *at = bytes;
    while (n > 0) {
        ssize_t got = recv(fd, at, n, MSG_DONTWAIT);
        if (got == 0) {
            return -ECONNRESET;
        }
        if (got > 0) {
            at += got;
            n -= (size_t)got;
            continue;
        }
        int error = errno == EAGAIN  ? tow_sock_poll(fd, POLLIN, deadline_ns)
                    : errno == EINTR ? 0
                                     : -errno;
        if (error < 0) {
            return error;
        }
    }
    return 0;
}

int tow_sock_connect(int fd, const struct sockaddr *address, unsigned length, int64_t deadline_ns)
{
    int error = tow_sock_set_blocking(fd, false);
    if (error < 0) {
        return error;
    }
    while (connect(fd, address, length) != 0) {
        if (errno == EISCONN) {
            break;
        }
        if (errno == EAGAIN) {
            /* A unix socket whose queue is full: nothing to poll for. */
            if (tow_time_passed(deadline_ns)) {
                return -ETIMEDOUT;
            }
            tow_time_sleep(5 * TOW_TIME_MS);
            continue;
        }
        if (errno != EINPROGRESS && errno != EINTR && errno != EALREADY) {
            return -errno;
        }
        error = tow_sock_poll(fd, POLLOUT, deadline_ns);
        if (error < 0) {
            return error;
        }
        int result = 0;
        socklen_t size = sizeof result;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &size) != 0) {
            return -errno;
        }
        if (result != 0) {
            return -result;
        }
        break;
    }
    return tow_sock_set_blocking(fd, true);
}

void tow_sock_describe(int fd, char *ret_text, size_t size)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    memset(&address, 0, sizeof address);
    snprintf(ret_text, size, "unknown peer");
    if (getpeername(fd, (struct sockaddr *)&address, &length) != 0) {
        return;
    }
    char text[INET6_ADDRSTRLEN] = "?";
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        snprintf(ret_text, size, "%s:%u", text, ntohs(in->sin_port));
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
        snprintf(ret_text, size, "[%s]:%u", text, ntohs(in->sin6_port));
    } else if (address.ss_family == AF_UNIX) {
        struct ucred who;
        socklen_t who_size = sizeof who;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_size) == 0) {
            snprintf(ret_text, size, "pid %d of user %u", (int)who.pid, (unsigned)who.uid);
        }
    }
}
