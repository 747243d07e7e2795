/* SPDX-License-Identifier: Apache-2.0 */
/* Lines over TLS 1.3: a socket line (sock.h) whose bytes are in records.
 *
 * OpenSSL does the handshake (tls_shake.c); the records are ours (tls_record.c), with a key for
 * each direction that nobody shares: the one who has the role seals, the consumer opens, and
 * neither waits for the other. Out: up to SEAL_MAX bytes of the ring, or of the caller's own
 * memory, become records in `sealed`, which one system call sends. In: what came is in `raw`, and
 * records are opened into the ring, or straight into their destination. Between two calls `raw`
 * never holds a whole record, so that an empty ring and a silent socket mean that there is nothing.
 */
#include "transport/tls.h"

#include "base/clock.h"
#include "base/log.h"
#include "transport/ring.h"
#include "transport/sock.h"
#include "transport/tls_shake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

/* Content that one send call takes: the records of it stay in the cache until they are sent. */
#define SEAL_MAX (128u << 10)
#define SEALED_SIZE ((SEAL_MAX / TOW_TLS_PLAIN_MAX + 2) * (TOW_TLS_PLAIN_MAX + TOW_TLS_OVERHEAD))

#define RECORD_MAX (TOW_TLS_HEAD + TOW_TLS_BODY_MAX)
/* Received ahead of a bulk payload, and the record that is not whole yet. */
#define RAW_SIZE ((128u << 10) + RECORD_MAX)

/* Records without content cost the peer nothing; a few are allowed. */
#define EMPTY_MAX 16u

/* KeyUpdate (RFC 8446, 4.6.3): type, length of 3 bytes, whether the other is to do it too. */
#define KEY_UPDATE_SIZE 5
static const uint8_t key_update[KEY_UPDATE_SIZE] = {24, 0, 0, 1, 0};

struct tls_line {
    struct tow_sock_line sock;
    uint64_t key_limit;
    enum tow_log_area area; /* of the side we are on */

    /* The role's. */
    struct tow_tls_key out;
    uint8_t *sealed;              /* owned: SEALED_SIZE bytes */
    size_t sealed_at, sealed_end; /* what is still to be sent of it */
    size_t sealed_ring;           /* so many bytes of the ring are in it */
    int out_broken;               /* 0, or why nothing more may be sealed */
    _Atomic uint64_t updates_out;

    /* The consumer's. */
    _Alignas(128) struct tow_tls_key in;
    uint8_t *raw;           /* owned: RAW_SIZE bytes */
    size_t raw_at, raw_end; /* what was not opened yet */
    unsigned empty;         /* records in a row */
    int broken;             /* 0, or why nothing that follows can be trusted */
    _Atomic uint64_t updates_in;

    _Atomic bool update_asked; /* the peer wants our next key */

    uint8_t binding[TOW_TLS_BINDING];
    struct tow_grant *grant; /* owned, on pages of its own; NULL: none */
};

static _Atomic uint64_t next_key_limit = TOW_TLS_RECORDS_MAX * TOW_TLS_PLAIN_MAX;

static struct tls_line *tls_of(struct tow_line *line)
{
    return (struct tls_line *)line;
}

/* ---- sending ---- */

/* Sends what is sealed. */
static int send_sealed(struct tls_line *tls, int flags)
{
    struct tow_line *line = &tls->sock.line;
    struct tow_silence silence = {0};
    while (tls->sealed_at < tls->sealed_end) {
        tow_line_count(&line->sends, 1);
        ssize_t sent = send(tls->sock.fd, tls->sealed + tls->sealed_at,
                            tls->sealed_end - tls->sealed_at, flags | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EAGAIN && (flags & MSG_DONTWAIT) != 0) {
                return -EAGAIN;
            }
            int error = tow_sock_send_again(&tls->sock, errno, &silence);
            if (error < 0) {
                return error;
            }
            continue;
        }
        silence = (struct tow_silence){0};
        tls->sealed_at += (size_t)sent;
    }
    tls->sealed_at = tls->sealed_end = 0;
    return 0;
}

static int seal_one(struct tls_line *tls, enum tow_tls_type type, const struct iovec *iov,
                    size_t size)
{
    int error = tow_tls_seal(&tls->out, type, iov, size, tls->sealed + tls->sealed_end);
    if (error == 0) {
        tls->sealed_end += size + TOW_TLS_OVERHEAD;
    }
    return error;
}

/* Behind what is sealed: one record of content, before it the next key if it is time for it. */
static int tls_seal(struct tls_line *tls, const struct iovec *iov, size_t size)
{
    bool asked = atomic_load_explicit(&tls->update_asked, memory_order_relaxed);
    if (__builtin_expect(asked || tls->out.records >= TOW_TLS_RECORDS_MAX ||
                             tls->out.bytes + size > tls->key_limit,
                         0)) {
        atomic_store(&tls->update_asked, false);
        const struct iovec update = {(void *)(uintptr_t)key_update, KEY_UPDATE_SIZE};
        int error = seal_one(tls, TOW_TLS_HANDSHAKE, &update, KEY_UPDATE_SIZE);
        if (error == 0) {
            error = tow_tls_key_update(&tls->out);
        }
        if (error < 0) {
            return error;
        }
        tow_line_count(&tls->updates_out, 1);
    }
    return seal_one(tls, TOW_TLS_DATA, iov, size);
}

/* After a failure the records that went and those that were sealed do not follow each other. */
static int sent_or_broken(struct tls_line *tls, int error)
{
    if (error < 0 && error != -EAGAIN) {
        tls->out_broken = error;
        tls->sealed_at = tls->sealed_end = tls->sealed_ring = 0;
    }
    return error;
}

static int seal_ring(struct tls_line *tls, int flags)
{
    struct tow_sock_line *sock = &tls->sock;
    struct tow_line *line = &sock->line;
    uint64_t tail = atomic_load_explicit(&sock->ctl.tail, memory_order_relaxed);
    for (;;) {
        uint64_t head = atomic_load_explicit(&sock->ctl.head, memory_order_acquire);
        if (tls->sealed_end > 0) {
            int error = send_sealed(tls, flags);
            if (error < 0) {
                return error;
            }
            tail += tls->sealed_ring;
            tls->sealed_ring = 0;
            tow_ring_release(&sock->ctl, tail, head, line->out_mask + 1, false, NULL);
            continue;
        }
        if (head == tail) {
            return 0;
        }
        size_t n = head - tail < SEAL_MAX ? (size_t)(head - tail) : SEAL_MAX;
        for (size_t at = 0; at < n;) {
            size_t size = n - at < TOW_TLS_PLAIN_MAX ? n - at : TOW_TLS_PLAIN_MAX;
            const struct iovec part = {line->out_base + ((tail + at) & line->out_mask), size};
            int error = tls_seal(tls, &part, size);
            if (error < 0) {
                return error;
            }
            at += size;
        }
        tls->sealed_ring = n;
    }
}

static int tls_send_ring(struct tow_sock_line *sock, int flags)
{
    struct tls_line *tls = (struct tls_line *)sock;
    return tls->out_broken != 0 ? tls->out_broken : sent_or_broken(tls, seal_ring(tls, flags));
}

static int seal_parts(struct tls_line *tls, struct iovec *iov, int count)
{
    size_t total = 0, in_batch = 0;
    for (int i = 0; i < count; i++) {
        total += iov[i].iov_len;
    }
    while (total > 0) {
        size_t size = total < TOW_TLS_PLAIN_MAX ? total : TOW_TLS_PLAIN_MAX;
        int error = tls_seal(tls, iov, size);
        total -= size;
        in_batch += size;
        if (error == 0 && (in_batch >= SEAL_MAX || total == 0)) {
            error = send_sealed(tls, 0);
            in_batch = 0;
        }
        if (error < 0) {
            return error;
        }
        while (size > 0) {
            size_t n = size < iov->iov_len ? size : iov->iov_len;
            iov->iov_base = (uint8_t *)iov->iov_base + n;
            iov->iov_len -= n;
            size -= n;
            iov += iov->iov_len == 0 ? 1 : 0;
        }
    }
    return 0;
}

static int tls_send_parts(struct tow_sock_line *sock, struct iovec *iov, int count)
{
    struct tls_line *tls = (struct tls_line *)sock;
    return tls->out_broken != 0 ? tls->out_broken
                                : sent_or_broken(tls, seal_parts(tls, iov, count));
}

/* ---- receiving ---- */

/* How long the next record is if it is whole; 0 if it is not, -EPROTO if it is none. */
static int next_record(const struct tls_line *tls)
{
    size_t have = tls->raw_end - tls->raw_at;
    if (have < TOW_TLS_HEAD) {
        return 0;
    }
    int size = tow_tls_record_size(tls->raw + tls->raw_at);
    return size < 0 || (size_t)size <= have ? size : 0;
}

static int take_key_update(struct tls_line *tls, const uint8_t *at, size_t n)
{
    if (n != KEY_UPDATE_SIZE || memcmp(at, key_update, KEY_UPDATE_SIZE - 1) != 0 || at[4] > 1) {
        return -EPROTO;
    }
    if (at[4] == 1) {
        atomic_store(&tls->update_asked, true);
    }
    tow_line_count(&tls->updates_in, 1);
    return tow_tls_key_update(&tls->in);
}

/* What is no content: the next key, or the peer's end. */
static int take_other(struct tls_line *tls, uint8_t type, const uint8_t *at, size_t n)
{
    if (type == TOW_TLS_HANDSHAKE) {
        return take_key_update(tls, at, n);
    }
    if (type == TOW_TLS_ALERT && n == 2) {
        if (at[1] != 0) {
            tow_log(tls->area, TOW_LOG_INFO, "%s: the peer ended the line with TLS alert %u",
                    tls->sock.line.peer, at[1]);
        }
        return -ECONNRESET;
    }
    return -EPROTO;
}

/* Opens the next record of `size` bytes into `to`, which has room for it: how much content. */
static int open_record(struct tls_line *tls, int size, uint8_t *to)
{
    size_t n = 0;
    uint8_t type = 0;
    int error = tow_tls_open(&tls->in, tls->raw + tls->raw_at, to, &n, &type);
    tls->raw_at += (size_t)size;
    if (error == 0 && type != TOW_TLS_DATA) {
        error = take_other(tls, type, to, n);
        n = 0;
    }
    if (error == 0) {
        tls->empty = n > 0 ? 0 : tls->empty + 1;
        error = tls->empty > EMPTY_MAX ? -EPROTO : (int)n;
    }
    return error;
}

/* The end, in the words of line.h. What was opened before it can still be read. */
static int receive_failed(struct tls_line *tls, int error)
{
    struct tow_line *line = &tls->sock.line;
    if (error == -EBADMSG || error == -EPROTO) {
        tow_log(tls->area, TOW_LOG_WARN,
                "%s: what came was not encrypted by the peer, or was changed on its way",
                line->peer);
        error = -EPROTO;
    }
    tls->broken = error;
    shutdown(tls->sock.fd, SHUT_RDWR); /* who waits for the socket learns it too */
    if (atomic_load(&line->down)) {
        return -ESHUTDOWN;
    }
    tow_line_fail(line, error == -ECONNRESET ? -EPIPE : error);
    return error;
}

/* Opens all whole records into the ring, which has room for what `raw` can hold. */
static int open_all(struct tls_line *tls)
{
    struct tow_line *line = &tls->sock.line;
    for (;;) {
        if (tls->broken != 0) {
            return atomic_load(&line->down) ? -ESHUTDOWN : tls->broken;
        }
        int size = next_record(tls);
        if (size == 0) {
            return 0;
        }
        uint64_t head = atomic_load_explicit(&line->in_head, memory_order_relaxed);
        int n = size < 0
                    ? size
                    : open_record(tls, size, (uint8_t *)line->in_base + (head & line->in_mask));
        if (n < 0) {
            return receive_failed(tls, n);
        }
        atomic_store_explicit(&line->in_head, head + (uint64_t)n, memory_order_relaxed);
    }
}

/* Receives up to `want` more bytes into `raw`, at least what is missing of a record. */
static int receive_raw(struct tls_line *tls, size_t want, int64_t deadline_ns, int flags)
{
    if (tls->raw_at > 0) {
        memmove(tls->raw, tls->raw + tls->raw_at, tls->raw_end - tls->raw_at);
        tls->raw_end -= tls->raw_at;
        tls->raw_at = 0;
    }
    size_t room = RAW_SIZE - tls->raw_end;
    ssize_t got = tow_sock_receive(&tls->sock, tls->raw + tls->raw_end, want < room ? want : room,
                                   deadline_ns, flags);
    if (got < 0) {
        return (int)got;
    }
    tls->raw_end += (size_t)got;
    return 0;
}

static int tls_fill(struct tow_line *line, size_t min, int64_t deadline_ns)
{
    struct tls_line *tls = tls_of(line);
    if (min > TOW_LINE_FRAME_MAX) {
        return -EMSGSIZE;
    }
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
    if (atomic_load_explicit(&line->in_head, memory_order_relaxed) == tail) {
        /* Back to the start, which is in the cache; the alignment within the stream is kept. */
        tail %= 8;
        atomic_store_explicit(&line->in_tail, tail, memory_order_relaxed);
        atomic_store_explicit(&line->in_head, tail, memory_order_relaxed);
    }
    /* Of a bulk payload that follows another one only its first record comes through the ring. */
    size_t want = tls->sock.bulk && min <= TOW_TLS_PLAIN_MAX ? TOW_TLS_PLAIN_MAX + TOW_TLS_OVERHEAD
                                                             : TOW_SOCK_AHEAD;
    tls->sock.bulk = false;
    for (;;) {
        int error = open_all(tls);
        /* What came before the end can be read. */
        if (atomic_load_explicit(&line->in_head, memory_order_relaxed) - tail >= min) {
            return 0;
        }
        if (error < 0) {
            return error;
        }
        error = receive_raw(tls, want, deadline_ns, 0);
        if (error < 0) {
            return error;
        }
    }
}

/* The least that must still come for `left` bytes of content, which may be waited for at once: at
 * least what is missing of the next record, which is not whole and may have more than that. */
static size_t least_for(const struct tls_line *tls, size_t left)
{
    size_t records = (left + TOW_TLS_PLAIN_MAX - 1) / TOW_TLS_PLAIN_MAX;
    size_t least = left + records * TOW_TLS_OVERHEAD;
    size_t have = tls->raw_end - tls->raw_at;
    size_t whole =
        have < TOW_TLS_HEAD ? TOW_TLS_HEAD : (size_t)tow_tls_record_size(tls->raw + tls->raw_at);
    return (least > whole ? least : whole) - have;
}

static int tls_recv_into(struct tow_line *line, void *dst, size_t n)
{
    struct tls_line *tls = tls_of(line);
    uint8_t *to = dst;
    /* The ring is empty here; its positions keep counting, for the alignment. */
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
    for (size_t left = n; left > 0;) {
        if (tls->broken != 0) {
            return atomic_load(&line->down) ? -ESHUTDOWN : tls->broken;
        }
        int size = next_record(tls);
        int got;
        if (size == 0) {
            got = receive_raw(tls, least_for(tls, left), TOW_TIME_FOREVER, MSG_WAITALL);
            if (got < 0) {
                return got;
            }
            continue;
        }
        bool fits = size > 0 && (size_t)size <= left + TOW_TLS_OVERHEAD;
        uint8_t *ring = (uint8_t *)line->in_base + (tail & line->in_mask);
        got = size < 0 ? size : open_record(tls, size, fits ? to : ring);
        if (got < 0) {
            return receive_failed(tls, got);
        }
        uint64_t head = tail + (uint64_t)got;
        size_t taken = (size_t)got < left ? (size_t)got : left;
        if (!fits) {
            memcpy(to, ring, taken);
        }
        to += taken;
        left -= taken;
        tail += taken;
        atomic_store_explicit(&line->in_tail, tail, memory_order_relaxed);
        atomic_store_explicit(&line->in_head, head, memory_order_relaxed);
    }
    tls->sock.bulk = n >= TOW_SOCK_BULK;
    tow_line_count(&line->bytes_in, n);
    open_all(tls); /* what came behind it: a failure is for whoever asks next */
    return 0;
}

/* ---- life ---- */

static void tls_fini(struct tow_sock_line *sock)
{
    struct tls_line *tls = (struct tls_line *)sock;
    tow_tls_key_fini(&tls->out);
    tow_tls_key_fini(&tls->in);
    free(tls->sealed);
    free(tls->raw);
    if (tls->grant != NULL) {
        explicit_bzero(tls->grant, sizeof *tls->grant);
        munmap(tls->grant, sizeof *tls->grant);
    }
}

static const struct tow_sock_kind tls_kind = {tls_send_ring, tls_send_parts, tls_fini};
static const struct tow_line_ops tls_ops = TOW_SOCK_OPS("tls", true, tls_fill, tls_recv_into);

static int tls_start(struct tls_line *tls, const struct tow_tls_lib *lib, bool server,
                     const struct tow_tls_shaken *shaken)
{
    tls->key_limit = atomic_load(&next_key_limit);
    tls->area = server ? TOW_AREA_SERVER : TOW_AREA_CLIENT;
    tls->sealed = malloc(SEALED_SIZE);
    tls->raw = malloc(RAW_SIZE);
    if (tls->sealed == NULL || tls->raw == NULL) {
        return -ENOMEM;
    }
    memcpy(tls->binding, shaken->binding, sizeof tls->binding);
    tls->sock.line.binding = tls->binding;
    memcpy(tls->raw, shaken->early, shaken->early_size);
    tls->raw_end = shaken->early_size;
    int error = tow_tls_key_init(&tls->out, lib, true, server ? shaken->server : shaken->client);
    if (error == 0) {
        error = tow_tls_key_init(&tls->in, lib, false, server ? shaken->client : shaken->server);
    }
    return error;
}

static void tls_explain(bool server, int error, const char *reason, char *ret_why, size_t size)
{
    const char *who = server ? "client" : "server";
    if (error == -EACCES) {
        snprintf(ret_why, size, "the %s does not know this session's secret (%s)", who,
                 reason != NULL ? reason : "no reason given");
    } else if (error == -ETIMEDOUT) {
        snprintf(ret_why, size, "the %s did not finish the TLS handshake in time", who);
    } else {
        snprintf(ret_why, size, "the %s ended the connection within the TLS handshake: %s", who,
                 strerror(-error));
    }
}

int tow_tls_line_of(const struct tow_tls_lib *lib, int fd, bool server,
                    const struct tow_tls_shaken *shaken, struct tow_line **ret_line)
{
    struct tow_sock_line *sock;
    int error = tow_sock_line_make(sizeof(struct tls_line), &tls_ops, &tls_kind, fd, true, &sock);
    if (error < 0) {
        return error;
    }
    error = tls_start((struct tls_line *)sock, lib, server, shaken);
    if (error < 0) {
        tow_line_close(&sock->line);
        return error;
    }
    open_all((struct tls_line *)sock); /* a failure is for whoever asks */
    *ret_line = &sock->line;
    return 0;
}

/* Not in core dumps, nor in children that the program forks. */
static int tls_keep(struct tls_line *tls, const struct tow_grant *grant)
{
    void *page =
        mmap(NULL, sizeof *grant, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return -ENOMEM;
    }
    madvise(page, sizeof *grant, MADV_DONTDUMP);
    madvise(page, sizeof *grant, MADV_WIPEONFORK);
    memcpy(page, grant, sizeof *grant);
    tls->grant = page;
    tls->sock.line.grant = tls->grant;
    return 0;
}

int tow_tls_line(int fd, bool server, const struct tow_grant *grant, int64_t deadline_ns,
                 char *ret_why, size_t size, struct tow_line **ret_line)
{
    const struct tow_tls_lib *lib;
    const struct tow_tls_shake_by by = {.grant = grant, .server = server};
    struct tow_tls_shaken shaken = {.early_size = 0};
    const char *reason = NULL;
    int error = tow_tls_lib(&lib, ret_why, size);
    if (error < 0) {
        close(fd);
        return error;
    }
    error = tow_tls_shake(lib, fd, &by, deadline_ns, &reason, &shaken);
    if (error < 0) {
        close(fd);
        tls_explain(server, error, reason, ret_why, size);
    } else {
        error = tow_tls_line_of(lib, fd, server, &shaken, ret_line);
        if (error == 0 && !server && (error = tls_keep(tls_of(*ret_line), grant)) < 0) {
            tow_line_close(*ret_line);
            *ret_line = NULL;
        }
        if (error < 0) {
            snprintf(ret_why, size, "cannot set up the encrypted connection: %s", strerror(-error));
        }
    }
    explicit_bzero(&shaken, sizeof shaken);
    return error;
}

void tow_tls_set_key_limit(uint64_t bytes)
{
    uint64_t most = TOW_TLS_RECORDS_MAX * TOW_TLS_PLAIN_MAX;
    atomic_store(&next_key_limit, bytes == 0 || bytes > most ? most : bytes);
}

void tow_tls_key_updates(const struct tow_line *line, uint64_t *ret_out, uint64_t *ret_in)
{
    const struct tls_line *tls = (const struct tls_line *)line;
    *ret_out = atomic_load_explicit(&tls->updates_out, memory_order_relaxed);
    *ret_in = atomic_load_explicit(&tls->updates_in, memory_order_relaxed);
}
