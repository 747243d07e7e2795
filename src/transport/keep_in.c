/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving half of a lasting line: records, and who takes them off the line behind.
 *
 * The consumer receives, as in other lines. But acknowledgements come on the same line, and who
 * only sends waits for these: so whoever waits for room takes the role if it is free, and what
 * comes goes into the ring, where the consumer finds it.
 */
#include "transport/keep_impl.h"

#include "transport/ring.h"
#include "transport/sock.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* Of a payload at most so much is received in one call, so that it is acknowledged in time. */
#define RECEIVE_MOST (1u << 20)

/* What has come of small records is taken in one go; of larger ones the consumer may want the rest
 * where it belongs. */
#define SWEEP_MAX (8u << 10)

/* A ring that is full of what the consumer has not read: nobody tells us when he has. */
#define FULL_LOOK_NS (5 * TOW_TIME_MS)

/* ---- the role ---- */

bool keep_receive_try(struct keep_line *keep)
{
    return !atomic_load_explicit(&keep->receiving, memory_order_relaxed) &&
           !atomic_exchange(&keep->receiving, true);
}

void keep_receive_give(struct keep_line *keep)
{
    atomic_store(&keep->receiving, false);
    keep_changed(keep);
}

/* ---- records ---- */

int keep_get_head(const uint8_t *at, uint32_t *ret_size, uint64_t *ret_taken)
{
    uint32_t words[2];
    uint64_t taken;
    memcpy(words, at, sizeof words);
    memcpy(&taken, at + sizeof words, sizeof taken);
    uint32_t size = le32toh(words[0]), kind = le32toh(words[1]);
    bool data = kind == KEEP_DATA;
    if (kind < KEEP_DATA || kind > KEEP_END || data != (size > 0) || size > KEEP_RECORD_MAX) {
        return -EPROTO;
    }
    *ret_size = size;
    *ret_taken = le64toh(taken);
    return (int)kind;
}

/* By who has the role, if the last record is done: the head of the next one, which may be all of
 * it. 0, -ETIMEDOUT, or keep_failed's. */
static int next_record(struct keep_line *keep, int64_t deadline_ns)
{
    struct tow_line *inner = keep->wire->line;
    const uint8_t *at = NULL;
    size_t available;
    uint32_t size = 0;
    uint64_t acked = 0;
    if (keep->left > 0) {
        return 0;
    }
    int error = tow_line_peek(inner, KEEP_HEAD, deadline_ns, &at, &available);
    if (error < 0) {
        return error == -ETIMEDOUT ? error : keep_failed(keep, error, true);
    }
    int kind = keep_get_head(at, &size, &acked);
    tow_line_consume(inner, KEEP_HEAD);
    if (kind < 0 || kind == KEEP_RESUME || acked < atomic_load(&keep->acked) ||
        acked > atomic_load(&keep->offered)) {
        keep_end(keep, -EPROTO, -EPROTO);
        return -EPROTO;
    }
    keep->left = size;
    if (acked != atomic_load_explicit(&keep->acked, memory_order_relaxed)) {
        atomic_store(&keep->acked, acked);
        keep_changed(keep);
    }
    if (kind == KEEP_ASK) {
        atomic_store(&keep->owed, true);
        keep_poke(keep);
    } else if (kind == KEEP_END) {
        keep_end(keep, -EPIPE, -ECONNRESET);
        return -ECONNRESET;
    }
    return 0;
}

static void count_taken(struct keep_line *keep, size_t n)
{
    keep->left -= (uint32_t)n;
    uint64_t taken = atomic_load_explicit(&keep->taken, memory_order_relaxed) + n;
    atomic_store(&keep->taken, taken);
    if (taken - atomic_load(&keep->told) >= keep->setup.ack_every) {
        keep_poke(keep);
    }
}

/* ---- into the ring ---- */

/* What has come of the record, or some of it, waiting for its first byte. -ENOBUFS: there is no
 * room. */
static int take_some(struct keep_line *keep, size_t most, int64_t deadline_ns)
{
    struct tow_line *line = &keep->line, *inner = keep->wire->line;
    uint64_t head = atomic_load_explicit(&line->in_head, memory_order_relaxed);
    size_t room = (size_t)(line->in_mask + 1 - keep_held(line));
    uint8_t *to = (uint8_t *)line->in_base + (head & line->in_mask);
    size_t n = keep->left < room ? keep->left : room;
    n = n < most ? n : most;
    if (n == 0) {
        return -ENOBUFS;
    }
    int error;
    if (keep->bulk && deadline_ns == TOW_TIME_FOREVER) {
        /* No more than this is wanted in the ring: what follows is another large payload's. */
        error = tow_line_recv_into(inner, to, n);
    } else {
        const uint8_t *at = NULL;
        size_t available = 0;
        error = tow_line_peek(inner, 1, deadline_ns, &at, &available);
        if (error == 0) {
            n = n < available ? n : available;
            memcpy(to, at, n);
            tow_line_consume(inner, n);
        }
    }
    if (error < 0) {
        return error == -ETIMEDOUT ? error : keep_failed(keep, error, true);
    }
    atomic_store(&line->in_head, head + n);
    count_taken(keep, n);
    return 0;
}

/* What lies there already and is small. */
static void sweep_small(struct keep_line *keep)
{
    struct tow_line *inner = keep->wire->line;
    int error = 0;
    while (error == 0 && keep_held(inner) >= (keep->left > 0 ? 1 : KEEP_HEAD)) {
        error = next_record(keep, 0);
        if (error == 0 && keep->left > 0 && keep->left <= SWEEP_MAX && keep_held(inner) > 0) {
            error = take_some(keep, SWEEP_MAX, 0);
        } else if (keep->left > 0) {
            return;
        }
    }
}

/* One step with the role; who waits for acknowledgements has it sometimes, and the deadline. */
static int receive_step(struct keep_line *keep, int64_t deadline_ns)
{
    if (keep->left > 0 && keep_held(&keep->line) == keep->line.in_mask + 1) {
        return -ENOBUFS;
    }
    int error = next_record(keep, deadline_ns);
    return error < 0 || keep->left == 0 ? error : take_some(keep, SIZE_MAX, deadline_ns);
}

/* With the role, by the consumer. */
static int fill_ring(struct keep_line *keep, size_t min, int64_t deadline_ns)
{
    struct tow_line *line = &keep->line;
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
    if (atomic_load_explicit(&line->in_head, memory_order_relaxed) == tail) {
        /* Back to the start, which is in the cache; the alignment within the stream is kept. */
        tail %= 8;
        atomic_store_explicit(&line->in_tail, tail, memory_order_relaxed);
        atomic_store_explicit(&line->in_head, tail, memory_order_relaxed);
    }
    if (line->in_spin.expected_ns != 0) {
        tow_spin_expect(&keep->wire->line->in_spin, line->in_spin.expected_ns);
        line->in_spin.expected_ns = 0;
    }
    keep->bulk = keep->bulk && min <= TOW_DATA_HEAD;
    int error = 0;
    for (size_t held; error == 0 && (held = (size_t)keep_held(line)) < min;) {
        error = next_record(keep, deadline_ns);
        if (error == 0 && keep->left > 0) {
            error = take_some(keep, keep->bulk ? min - held : SIZE_MAX, deadline_ns);
        }
    }
    keep->bulk = false;
    if (error == 0) {
        sweep_small(keep);
    }
    return error;
}

/* Without the role: until its holder has given it back or brought something. */
static int await_receiver(struct keep_line *keep, size_t held, int64_t deadline_ns)
{
    uint32_t seen = keep_wait_begin(keep);
    if (atomic_load(&keep->receiving) && keep_held(&keep->line) <= held && keep_ended(keep) == 0) {
        keep_wait(keep, seen, deadline_ns);
    }
    keep_wait_end(keep);
    return tow_time_passed(deadline_ns) ? -ETIMEDOUT : 0;
}

/* After an error of who had the role: whether to go on. */
static int after_step(struct keep_line *keep, int error, int64_t deadline_ns)
{
    int ended = keep_ended(keep);
    if (ended != 0 || error == -ETIMEDOUT) {
        return ended != 0 ? ended : error;
    }
    return error < 0 ? keep_await_mended(keep, deadline_ns) : 0;
}

int keep_fill(struct tow_line *line, size_t min, int64_t deadline_ns)
{
    struct keep_line *keep = keep_of(line);
    if (min > TOW_LINE_FRAME_MAX) {
        return -EMSGSIZE;
    }
    for (int error = 0;;) {
        if (atomic_load(&line->down)) {
            return -ESHUTDOWN;
        }
        size_t held = (size_t)keep_held(line);
        if (held >= min) {
            return 0;
        }
        if (error < 0) {
            return error;
        }
        if (keep_receive_try(keep)) {
            error = fill_ring(keep, min, deadline_ns);
            keep_receive_give(keep);
            error = after_step(keep, error, deadline_ns);
        } else {
            error = await_receiver(keep, held, deadline_ns);
            error = after_step(keep, error, deadline_ns);
        }
    }
}

/* ---- straight to where it belongs ---- */

/* What somebody else has received meanwhile. */
static size_t from_ring(struct tow_line *line, uint8_t *to, size_t n)
{
    size_t held = (size_t)keep_held(line);
    n = n < held ? n : held;
    if (n > 0) {
        memcpy(to, line->in_base + (atomic_load(&line->in_tail) & line->in_mask), n);
        tow_line_consume(line, n);
    }
    return n;
}

/* With the role, the ring being empty: how much was received, or an error. */
static ssize_t receive_direct(struct keep_line *keep, uint8_t *to, size_t n)
{
    struct tow_line *line = &keep->line;
    int error = 0;
    while (error == 0 && keep->left == 0) {
        error = next_record(keep, TOW_TIME_FOREVER);
    }
    n = n < keep->left ? n : keep->left;
    n = n < RECEIVE_MOST ? n : RECEIVE_MOST;
    if (error == 0) {
        error = tow_line_recv_into(keep->wire->line, to, n);
        error = error < 0 ? keep_failed(keep, error, true) : 0;
    }
    if (error < 0) {
        return error;
    }
    /* The ring's positions keep counting, for the alignment. */
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed) + n;
    atomic_store_explicit(&line->in_tail, tail, memory_order_relaxed);
    atomic_store_explicit(&line->in_head, tail, memory_order_relaxed);
    tow_line_count(&line->bytes_in, n);
    count_taken(keep, n);
    return (ssize_t)n;
}

int keep_recv_into(struct tow_line *line, void *dst, size_t n)
{
    struct keep_line *keep = keep_of(line);
    uint8_t *to = dst;
    for (size_t left = n; left > 0;) {
        size_t got = from_ring(line, to, left);
        ssize_t error = 0;
        if (got == 0 && !keep_receive_try(keep)) {
            error = await_receiver(keep, 0, TOW_TIME_FOREVER);
        } else if (got == 0) {
            if (keep_held(line) == 0) {
                error = receive_direct(keep, to, left);
                keep->bulk = n >= TOW_SOCK_BULK && error == (ssize_t)left;
            }
            keep_receive_give(keep);
            got = error > 0 ? (size_t)error : 0;
        }
        to += got;
        left -= got;
        int ended = left > 0 && got == 0 ? after_step(keep, (int)error, TOW_TIME_FOREVER) : 0;
        if (ended < 0 && keep_held(line) == 0) {
            return ended;
        }
    }
    return 0;
}

/* ---- who does not consume ---- */

void keep_look(struct keep_line *keep, bool all)
{
    if (keep_receive_try(keep)) {
        while ((all || keep_held(&keep->line) == 0) && receive_step(keep, 0) == 0) {
        }
        keep_receive_give(keep);
    }
}

void keep_notice(struct keep_line *keep)
{
    keep_look(keep, true);
    uint32_t seen = keep_wait_begin(keep);
    if (atomic_load(&keep->state) == KEEP_LIVE && !atomic_load(&keep->line.down)) {
        keep_wait(keep, seen, tow_time_deadline(FULL_LOOK_NS));
    }
    keep_wait_end(keep);
}

int keep_await_ack(struct keep_line *keep, uint64_t acked, int64_t deadline_ns)
{
    while (atomic_load(&keep->acked) == acked) {
        int error = keep_await_mended(keep, deadline_ns);
        if (error < 0) {
            return error;
        }
        if (keep_receive_try(keep)) {
            error = receive_step(keep, deadline_ns);
            keep_receive_give(keep);
            if (error == -ENOBUFS) {
                /* The program has not read what came, and waiting is right. */
                uint32_t seen = keep_wait_begin(keep);
                keep_wait(keep, seen, tow_time_deadline(FULL_LOOK_NS));
                keep_wait_end(keep);
            } else if (error == -ETIMEDOUT) {
                return error;
            }
        } else {
            uint32_t seen = keep_wait_begin(keep);
            if (atomic_load(&keep->receiving) && atomic_load(&keep->acked) == acked &&
                atomic_load(&keep->state) == KEEP_LIVE && !atomic_load(&keep->line.down)) {
                keep_wait(keep, seen, deadline_ns);
            }
            keep_wait_end(keep);
        }
        if (tow_time_passed(deadline_ns)) {
            return -ETIMEDOUT;
        }
    }
    return 0;
}

int keep_wait_readable(struct tow_line *line, int64_t deadline_ns)
{
    struct keep_line *keep = keep_of(line);
    for (;;) {
        if (keep_held(line) != 0 || atomic_load(&line->down) || keep_ended(keep) != 0) {
            return 0;
        }
        struct keep_wire *wire = keep_wire_get(keep);
        /* In slices: another thread may have received into the ring just after that look. */
        int64_t slice = tow_time_deadline(50 * TOW_TIME_MS);
        int error = tow_line_wait_readable(wire->line, slice < deadline_ns ? slice : deadline_ns);
        keep_wire_put(keep, wire);
        if (error == 0) {
            /* It may be an acknowledgement only, or a cut. */
            keep_look(keep, false);
            if (atomic_load(&keep->receiving)) {
                error = await_receiver(keep, 0, slice < deadline_ns ? slice : deadline_ns);
            }
            error = keep_held(line) != 0 ? 0 : keep_await_mended(keep, deadline_ns);
            if (error != 0 && error != -ETIMEDOUT) {
                return 0;
            }
        }
        if (keep_held(line) == 0 && tow_time_passed(deadline_ns)) {
            return -ETIMEDOUT;
        }
    }
}

int keep_await_end(struct tow_line *line, int64_t deadline_ns)
{
    struct keep_line *keep = keep_of(line);
    for (;;) {
        int error = keep_await_mended(keep, deadline_ns);
        if (error < 0) {
            return error == -ETIMEDOUT ? error : 0;
        }
        struct keep_wire *wire = keep_wire_get(keep);
        error = tow_line_await_end(wire->line, deadline_ns);
        keep_wire_put(keep, wire);
        if (error == -ETIMEDOUT) {
            return error;
        }
        keep_notice(keep);
    }
}
