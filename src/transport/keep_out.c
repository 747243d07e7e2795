/* SPDX-License-Identifier: Apache-2.0 */
/* The sending half of a lasting line: what is kept until the peer has it, and its records.
 *
 * The stream is the ring's bytes with segments in between, which are payloads that stay where they
 * are. What was sent stays in the ring, or in its segment, until it is acknowledged. A caller's
 * memory is given back earlier: then what is left of it is copied.
 */
#include "transport/keep_impl.h"

#include "base/thread.h"
#include "transport/ring.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Below this a record is cheaper as a copy in the ring of the line behind, and can be sent without
 * waiting. That line would copy it, too. */
#define SMALL_RECORD (16u << 10)

/* Below this a payload is cheaper as a copy in the ring; and so is a part of a larger one that is
 * below TOW_LINE_LENT_MIN. */
#define DIRECT_MIN (16u << 10)

/* Copies of what was not acknowledged when the call returned. Who needs more waits. */
#define COPIES (UINT64_C(8) << 20)
/* So many segments, and their memory is taken back before more is lent. */
#define LENT_MOST (KEEP_SEGMENTS - TOW_LINE_IOV_MAX)
_Static_assert(COPIES / DIRECT_MIN * TOW_LINE_IOV_MAX < LENT_MOST,
               "copies must not run out of segments");

/* Rather than copy more than this, the caller waits until the peer has taken more of it, as long as
 * the peer goes on: a large payload would be copied by the processor while nothing is sent. It is
 * more than a network holds, and than is received between two acknowledgements. */
#define COPY_MAX (1u << 20)
#define COPY_WAIT_NS (5 * TOW_TIME_MS)
/* Rather than copy more than this, it looks for acknowledgements that have come. */
#define COPY_LOOK (128u << 10)

/* At the end a peer that is there acknowledges within this time, if it reads at all. The kernel
 * delivers what it has all the same, unless the line is cut just then. */
#define DRAIN_ASK_NS (200 * TOW_TIME_MS)

/* ---- what is kept ---- */

static struct keep_segment *segment_at(struct keep_line *keep, uint64_t number)
{
    return &keep->segments[number & (KEEP_SEGMENTS - 1)];
}

/* The bytes of the stream from `at` on that lie in a row: how many, and where. */
static size_t find_stretch(struct keep_line *keep, uint64_t at, uint64_t until, size_t most,
                           const uint8_t **ret_bytes)
{
    struct keep_segment *next = NULL;
    /* The last look may have been at what was not sent then. */
    while (keep->next > keep->first) {
        next = segment_at(keep, keep->next - 1);
        if (at >= next->from + next->size) {
            break;
        }
        keep->next--;
    }
    next = NULL;
    while (keep->next < keep->end) {
        next = segment_at(keep, keep->next);
        if (at < next->from + next->size) {
            break;
        }
        keep->next++;
        next = NULL;
    }
    uint64_t n, ring_at;
    if (next != NULL && at >= next->from) {
        n = next->from + next->size - at;
        *ret_bytes = next->bytes + (at - next->from);
        return n < most ? (size_t)n : most;
    }
    if (next != NULL) {
        n = next->from - at;
        ring_at = next->ring_at - n;
    } else {
        n = until - at;
        ring_at = at - atomic_load(&keep->direct);
    }
    *ret_bytes = keep->line.out_base + (ring_at & keep->line.out_mask);
    return n < most ? (size_t)n : most;
}

static size_t stretch_at(struct keep_line *keep, uint64_t at, uint64_t until, size_t most,
                         const uint8_t **ret_bytes)
{
    tow_mutex_lock(&keep->kept);
    size_t n = find_stretch(keep, at, until, most, ret_bytes);
    tow_mutex_unlock(&keep->kept);
    return n;
}

/* Gives free what the peer has acknowledged. */
static void trim_kept(struct keep_line *keep)
{
    tow_mutex_lock(&keep->kept);
    uint64_t acked = atomic_load(&keep->acked), ring_at = 0;
    bool within = false;
    while (keep->first < keep->end && !within) {
        struct keep_segment *oldest = segment_at(keep, keep->first);
        if (acked < oldest->from + oldest->size) {
            within = true;
            ring_at = oldest->ring_at - (acked < oldest->from ? oldest->from - acked : 0);
            break;
        }
        if (oldest->copied) {
            keep->copy_tail += oldest->size;
        }
        keep->first++;
    }
    keep->next = keep->next > keep->first ? keep->next : keep->first;
    ring_at = within ? ring_at : acked - atomic_load(&keep->direct);
    if (keep->copy_tail == keep->copy_head) {
        keep->copy_tail = keep->copy_head = 0; /* what is in the cache is used again */
    }
    bool more = ring_at != atomic_load_explicit(&keep->ctl.tail, memory_order_relaxed);
    if (more) {
        atomic_store(&keep->ctl.tail, ring_at);
    }
    tow_mutex_unlock(&keep->kept);
    if (more) {
        keep_changed(keep);
    }
}

void keep_rewind(struct keep_line *keep, uint64_t taken)
{
    atomic_store(&keep->acked, taken);
    atomic_store(&keep->sent, taken);
    atomic_store(&keep->told, atomic_load(&keep->taken));
    trim_kept(keep);
}

/* ---- records ---- */

void keep_put_head(uint8_t *to, uint32_t size, enum keep_kind kind, uint64_t taken)
{
    const uint32_t words[2] = {htole32(size), htole32(kind)};
    taken = htole64(taken);
    memcpy(to, words, sizeof words);
    memcpy(to + sizeof words, &taken, sizeof taken);
}

static bool ack_is_due(struct keep_line *keep)
{
    return atomic_load(&keep->owed) ||
           atomic_load(&keep->taken) - atomic_load(&keep->told) >= keep->setup.ack_every;
}

bool keep_has_work(struct keep_line *keep)
{
    return atomic_load(&keep->sent) != keep_end_of(keep) || ack_is_due(keep) ||
           atomic_load(&keep->asks);
}

static bool has_room(struct tow_line *inner, size_t n)
{
    uint64_t room = inner->out_mask + 1 - (inner->out_head - atomic_load(&inner->out->tail));
    inner->out_limit = inner->out_head + room;
    return room >= n;
}

/* Waits for room only where there is none: so who has looked may hold locks of any kind. */
static int send_small(struct tow_line *inner, const struct iovec *parts, int count, size_t n)
{
    uint8_t *to = inner->out_base + (inner->out_head & inner->out_mask);
    int error = has_room(inner, n) ? 0 : tow_line_reserve(inner, n, &to);
    if (error < 0) {
        return error;
    }
    for (int i = 0; i < count; i++) {
        memcpy(to, parts[i].iov_base, parts[i].iov_len);
        to += parts[i].iov_len;
    }
    tow_line_commit_now(inner, n);
    return atomic_load_explicit(&inner->error, memory_order_relaxed);
}

/* 1: one was sent, 0: there is none to send; else as keep_pump. */
static int send_record(struct keep_line *keep, bool wait)
{
    struct tow_line *inner = keep->wire->line;
    uint8_t head[KEEP_HEAD];
    struct iovec parts[TOW_LINE_IOV_MAX] = {{head, sizeof head}};
    int count = 1;
    uint64_t at = atomic_load(&keep->sent), until = keep_end_of(keep);
    size_t size = 0;
    for (; count < TOW_LINE_IOV_MAX && at + size < until && size < KEEP_RECORD_MAX; count++) {
        const uint8_t *bytes;
        size_t n = stretch_at(keep, at + size, until, KEEP_RECORD_MAX - size, &bytes);
        parts[count] = (struct iovec){(void *)(uintptr_t)bytes, n};
        size += n;
    }
    bool asks = size == 0 && atomic_load(&keep->asks);
    if (size == 0 && !asks && !ack_is_due(keep)) {
        return 0;
    }
    bool small = size < SMALL_RECORD;
    if (!wait && (!small || !has_room(inner, KEEP_HEAD + size))) {
        return -EAGAIN;
    }
    atomic_store(&keep->owed, false); /* before `taken` is looked at */
    uint64_t taken = atomic_load(&keep->taken);
    keep_put_head(head, (uint32_t)size, size > 0 ? KEEP_DATA : asks ? KEEP_ASK : KEEP_ACK, taken);
    if (at + size > atomic_load(&keep->offered)) {
        atomic_store(&keep->offered, at + size);
    }
    int error = small ? send_small(inner, parts, count, KEEP_HEAD + size)
                      : tow_line_send_direct(inner, parts, count);
    if (error < 0) {
        return keep_failed(keep, error, false);
    }
    if (asks) {
        atomic_store(&keep->asks, false);
    }
    atomic_store(&keep->told, taken);
    atomic_store(&keep->sent, at + size);
    return 1;
}

int keep_pump(struct keep_line *keep, bool wait)
{
    for (;;) {
        if (atomic_load(&keep->state) != KEEP_LIVE || atomic_load(&keep->line.down)) {
            return -ENOTCONN;
        }
        trim_kept(keep);
        int sent = send_record(keep, wait);
        if (sent <= 0) {
            return sent;
        }
    }
}

void keep_send_give(struct keep_line *keep)
{
    /* Who found the role taken left it to us to acknowledge. */
    for (;;) {
        tow_mutex_unlock(&keep->send);
        keep_changed(keep);
        if (!ack_is_due(keep) || atomic_load(&keep->state) != KEEP_LIVE ||
            !tow_mutex_try(&keep->send)) {
            return;
        }
        if (keep_pump(keep, false) == -EAGAIN) {
            tow_mutex_unlock(&keep->send);
            keep_wake(&keep->line);
            return;
        }
    }
}

void keep_poke(struct keep_line *keep)
{
    if (!tow_mutex_try(&keep->send)) {
        return;
    }
    int error = keep_pump(keep, false);
    keep_send_give(keep);
    if (error == -EAGAIN) {
        keep_wake(&keep->line);
    }
}

void keep_say_end(struct keep_line *keep)
{
    /* Who has the role is about to give it back, or waits for a peer that takes nothing. */
    int64_t until = tow_time_deadline(50 * TOW_TIME_MS);
    while (!tow_mutex_try(&keep->send)) {
        if (tow_time_passed(until)) {
            return;
        }
        uint32_t seen = keep_wait_begin(keep);
        keep_wait(keep, seen, tow_time_deadline(TOW_TIME_MS));
        keep_wait_end(keep);
    }
    struct tow_line *inner = keep->wire->line;
    if (atomic_load(&keep->state) == KEEP_LIVE && !keep->said_end && has_room(inner, KEEP_HEAD)) {
        uint8_t head[KEEP_HEAD];
        const struct iovec part = {head, sizeof head};
        keep_put_head(head, 0, KEEP_END, atomic_load(&keep->taken));
        send_small(inner, &part, 1, sizeof head); /* a failure is an end, too */
        keep->said_end = true;
    }
    tow_mutex_unlock(&keep->send);
    keep_changed(keep);
}

/* ---- the sender's thread ---- */

/* Until there is something to send: 0, or why never again. */
static int await_work(struct keep_line *keep)
{
    struct tow_line *line = &keep->line;
    bool spins = keep->sender_spin.budget_ns > 0;
    int64_t began = spins ? tow_time_now_ns() : 0;
    int64_t until = spins ? tow_spin_until(&keep->sender_spin, began) : 0;
    for (;;) {
        int error = keep_await_mended(keep, TOW_TIME_FOREVER);
        if (error < 0 || keep_has_work(keep)) {
            if (spins) {
                tow_spin_learn(&keep->sender_spin, began, tow_time_now_ns());
            }
            return error;
        }
        if (spins && tow_time_now_ns() < until) {
            tow_thread_pause();
            continue;
        }
        /* The order matters, see tow_line_commit: announce, look once more, sleep. */
        atomic_store(&keep->ctl.consumer_waits, 1);
        if (keep_has_work(keep) || atomic_load(&line->error) != 0 || atomic_load(&line->down)) {
            continue;
        }
        tow_line_count(&line->out_sleeps, 1);
        tow_futex_wait(&keep->ctl.consumer_waits, 1, TOW_TIME_FOREVER, false);
    }
}

static void *sender_run(void *arg)
{
    struct keep_line *keep = arg;
    while (await_work(keep) == 0) {
        tow_mutex_lock(&keep->send);
        keep_pump(keep, true);
        keep_send_give(keep);
    }
    return NULL;
}

void keep_wake(struct tow_line *line)
{
    struct keep_line *keep = keep_of(line);
    int none = 0;
    if (atomic_compare_exchange_strong(&keep->sender_state, &none, 1)) {
        atomic_store(&keep->ctl.consumer_waits, 0);
        if (tow_thread_start("towline-send", sender_run, keep, &keep->sender) == 0) {
            atomic_store(&keep->sender_state, 2);
            return;
        }
        /* No thread to be had: this one sends, and will the next time. */
        atomic_store(&keep->sender_state, 0);
        atomic_store(&keep->ctl.consumer_waits, 1);
        tow_mutex_lock(&keep->send);
        keep_pump(keep, true);
        keep_send_give(keep);
        return;
    }
    tow_line_count(&line->wakes, 1);
    tow_ring_wake(&keep->ctl.consumer_waits, false);
}

void keep_send_now(struct tow_line *line)
{
    struct keep_line *keep = keep_of(line);
    if (tow_mutex_try(&keep->send)) {
        int error = keep_pump(keep, false);
        keep_send_give(keep);
        if (error != -EAGAIN) {
            return; /* after a cut, whoever mends it sees to it */
        }
    }
    keep_wake(line);
}

/* ---- payloads that stay where they are ---- */

/* Into the ring, but nobody is woken: who calls will send. */
static int lend_small(struct keep_line *keep, const struct iovec *part)
{
    struct tow_line *line = &keep->line;
    uint8_t *at;
    int error = tow_line_reserve(line, part->iov_len, &at);
    if (error == 0) {
        memcpy(at, part->iov_base, part->iov_len);
        line->out_head += part->iov_len;
        atomic_store(&keep->ctl.head, line->out_head);
    }
    return error;
}

static int lend_large(struct keep_line *keep, const struct iovec *part)
{
    tow_mutex_lock(&keep->kept);
    if (keep->segments == NULL) {
        keep->segments = calloc(KEEP_SEGMENTS, sizeof *keep->segments);
    }
    int error = keep->segments == NULL || keep->end - keep->first == KEEP_SEGMENTS ? -ENOMEM : 0;
    if (error == 0) {
        *segment_at(keep, keep->end) = (struct keep_segment){
            .from = keep_end_of(keep),
            .size = part->iov_len,
            .ring_at = keep->line.out_head,
            .bytes = part->iov_base,
        };
        keep->end++;
        atomic_store(&keep->direct, atomic_load(&keep->direct) + part->iov_len);
        tow_line_count(&keep->line.direct_out, part->iov_len);
    }
    tow_mutex_unlock(&keep->kept);
    return error;
}

/* Until everything up to `until` was sent once, through any number of cuts. */
static int send_until(struct keep_line *keep, uint64_t until)
{
    for (;;) {
        tow_mutex_lock(&keep->send);
        keep_pump(keep, true);
        bool done = atomic_load(&keep->sent) >= until;
        keep_send_give(keep);
        int error = done ? 0 : keep_await_mended(keep, TOW_TIME_FOREVER);
        if (done || error < 0) {
            return error;
        }
    }
}

static uint64_t acked_of(const struct keep_segment *lends, uint64_t acked)
{
    uint64_t had = acked > lends->from ? acked - lends->from : 0;
    return had < lends->size ? had : lends->size;
}

/* How much of the callers' memory up to `until` the peer has not acknowledged. */
static uint64_t lent_until(struct keep_line *keep, uint64_t until, uint64_t acked)
{
    uint64_t lent = 0;
    for (uint64_t i = keep->first; i < keep->end && segment_at(keep, i)->from < until; i++) {
        const struct keep_segment *lends = segment_at(keep, i);
        if (!lends->copied) {
            lent += lends->size - acked_of(lends, acked);
        }
    }
    return lent;
}

static void copy_until(struct keep_line *keep, uint64_t until, uint64_t acked)
{
    for (uint64_t i = keep->first; i < keep->end && segment_at(keep, i)->from < until; i++) {
        struct keep_segment *lends = segment_at(keep, i);
        if (lends->copied) {
            continue;
        }
        uint64_t had = acked_of(lends, acked);
        uint8_t *copy = keep->copies + keep->copy_head % COPIES;
        lends->from += had;
        lends->size -= had;
        memcpy(copy, lends->bytes + had, lends->size);
        keep->copy_head += lends->size;
        lends->bytes = copy;
        lends->copied = true;
    }
}

/* With the role, which it gives back: what is lent up to `until` is the callers' again. False: more
 * than can be copied, or than should be. */
static bool give_lent_now(struct keep_line *keep, uint64_t until, uint64_t most, int *ret_error)
{
    trim_kept(keep);
    tow_mutex_lock(&keep->kept);
    uint64_t acked = atomic_load(&keep->acked); /* others receive meanwhile */
    uint64_t lent = lent_until(keep, until, acked);
    uint64_t room = COPIES - (keep->copy_head - keep->copy_tail);
    bool done = lent <= room && lent <= most;
    if (done && lent > 0) {
        *ret_error = keep->copies != NULL ? 0 : tow_mirror_map(-1, 0, COPIES, &keep->copies);
        if (*ret_error == 0) {
            copy_until(keep, until, acked);
        }
    }
    tow_mutex_unlock(&keep->kept);
    keep_send_give(keep);
    return done;
}

static int give_lent(struct keep_line *keep, uint64_t until)
{
    uint64_t most = COPY_MAX;
    for (;;) {
        int error = 0;
        uint64_t acked = atomic_load(&keep->acked);
        tow_mutex_lock(&keep->send);
        if (give_lent_now(keep, until, most, &error)) {
            return error;
        }
        bool fits = most == COPIES;
        error =
            keep_await_ack(keep, acked, fits ? TOW_TIME_FOREVER : tow_time_deadline(COPY_WAIT_NS));
        if (error == -ETIMEDOUT) {
            most = COPIES; /* the peer is busy with something else */
        } else if (error < 0) {
            return error;
        }
    }
}

/* Few bytes go into the ring, where frames begin at multiples of 8: zeros at the end of a payload
 * do not. */
static bool is_lent(const struct iovec *part)
{
    return part->iov_len >= TOW_LINE_LENT_MIN || part->iov_len % 8 != 0;
}

/* After an error part of a frame may be out, and what is lent is the callers': nothing follows. */
static int stop_sending(struct keep_line *keep, int error)
{
    keep_end(keep, error, -ECONNRESET);
    tow_mutex_lock(&keep->send);
    keep_send_give(keep);
    return atomic_load(&keep->line.down) ? -ESHUTDOWN : atomic_load(&keep->line.error);
}

/* There is room for the parts of one more call. What is lent was sent: nobody waits for us. */
static int make_room(struct keep_line *keep)
{
    tow_mutex_lock(&keep->kept);
    bool full = keep->end - keep->first > LENT_MOST;
    tow_mutex_unlock(&keep->kept);
    return full ? give_lent(keep, keep_end_of(keep)) : 0;
}

int keep_lend(struct tow_line *line, const struct iovec *iov, int count, size_t total)
{
    struct keep_line *keep = keep_of(line);
    if (total < DIRECT_MIN) {
        return tow_ring_send_copy(line, iov, count);
    }
    int error = atomic_load(&line->error);
    if (error == 0) {
        error = make_room(keep);
    }
    for (int i = 0; i < count && error == 0; i++) {
        error = iov[i].iov_len == 0 ? 0
                : is_lent(&iov[i])  ? lend_large(keep, &iov[i])
                                    : lend_small(keep, &iov[i]);
    }
    if (error == 0) {
        error = send_until(keep, keep_end_of(keep));
    }
    if (error < 0) {
        return stop_sending(keep, error);
    }
    tow_line_count(&line->frames_out, 1);
    return 0;
}

/* How much memory up to there is callers', as far as is known: the peer may have acknowledged it.
 */
static uint64_t lent_before(struct keep_line *keep, uint64_t until)
{
    tow_mutex_lock(&keep->kept);
    uint64_t lent = lent_until(keep, until, atomic_load(&keep->acked));
    tow_mutex_unlock(&keep->kept);
    return lent;
}

uint64_t keep_place(struct tow_line *line)
{
    return keep_end_of(keep_of(line));
}

int keep_take_back(struct tow_line *line, uint64_t place)
{
    struct keep_line *keep = keep_of(line);
    uint64_t end = keep_end_of(keep), until = place < end ? place : end;
    uint64_t lent = lent_before(keep, until);
    if (lent > COPY_LOOK) {
        keep_look(keep, true); /* who only sends has not heard yet */
        lent = lent_before(keep, until);
    }
    int error = lent > 0 ? give_lent(keep, until) : 0;
    return error < 0 ? stop_sending(keep, error) : 0;
}

int keep_send_direct(struct tow_line *line, const struct iovec *iov, int count, size_t total)
{
    int error = keep_lend(line, iov, count, total);
    return error == 0 && total >= DIRECT_MIN ? keep_take_back(line, UINT64_MAX) : error;
}

/* ---- waiting for the peer ---- */

int keep_await_room(struct tow_line *line, size_t size, int64_t deadline_ns, uint64_t *ret_room)
{
    struct keep_line *keep = keep_of(line);
    for (;;) {
        int error = atomic_load(&line->error);
        if (atomic_load(&line->down) || error != 0) {
            return atomic_load(&line->down) ? -ESHUTDOWN : error;
        }
        uint64_t acked = atomic_load(&keep->acked);
        trim_kept(keep);
        uint64_t room = line->out_mask + 1 - (line->out_head - atomic_load(&keep->ctl.tail));
        if (room >= size) {
            *ret_room = room;
            return 0;
        }
        keep_wake(line); /* the last commits may have been a direct send's */
        error = keep_await_ack(keep, acked, deadline_ns);
        if (error < 0 && atomic_load(&line->error) == 0 && !atomic_load(&line->down)) {
            return error;
        }
    }
}

/* Until all is in the socket. -EAGAIN: something changed meanwhile. */
static int drain_once(struct keep_line *keep, int64_t deadline_ns)
{
    int error = keep_await_mended(keep, deadline_ns);
    if (error < 0) {
        return error;
    }
    uint32_t seen = keep_wait_begin(keep);
    bool sent = atomic_load(&keep->sent) == keep_end_of(keep);
    if (!sent) {
        keep_wake(&keep->line);
        keep_wait(keep, seen, deadline_ns);
    }
    keep_wait_end(keep);
    if (!sent) {
        return tow_time_passed(deadline_ns) ? -ETIMEDOUT : -EAGAIN;
    }
    struct keep_wire *wire = keep_wire_get(keep);
    error = tow_line_drain(wire->line, deadline_ns);
    keep_wire_put(keep, wire);
    if (error < 0 && error != -ETIMEDOUT) {
        keep_notice(keep);
        error = -EAGAIN;
    }
    return error;
}

int keep_drain(struct tow_line *line, int64_t deadline_ns)
{
    struct keep_line *keep = keep_of(line);
    int64_t ask_until = 0;
    unsigned asked_of = 0;
    for (;;) {
        int error = atomic_load(&line->error);
        if (error == 0) {
            error = drain_once(keep, deadline_ns);
        }
        if (error == -EAGAIN) {
            continue;
        }
        uint64_t acked = atomic_load(&keep->acked);
        if (error < 0 || acked == keep_end_of(keep)) {
            return error;
        }
        /* It has left this process. Should the line be cut now, it has to be sent again: so it is
         * better to know that it came. */
        if (ask_until == 0 || asked_of != atomic_load(&keep->mends)) {
            asked_of = atomic_load(&keep->mends);
            ask_until = tow_time_deadline(DRAIN_ASK_NS);
            ask_until = ask_until < deadline_ns ? ask_until : deadline_ns;
            atomic_store(&keep->asks, true);
            keep_poke(keep);
        }
        error = keep_await_ack(keep, acked, ask_until);
        if (error == -ETIMEDOUT && atomic_load(&keep->state) == KEEP_LIVE) {
            return 0;
        }
    }
}

void keep_out_fini(struct keep_line *keep)
{
    if (atomic_load(&keep->sender_state) == 2) {
        pthread_join(keep->sender, NULL);
    }
    tow_mirror_unmap(keep->line.out_base, TOW_LINE_RING_SIZE);
    tow_mirror_unmap(keep->copies, COPIES);
    free(keep->segments);
    tow_mutex_fini(&keep->send);
    tow_mutex_fini(&keep->kept);
}
