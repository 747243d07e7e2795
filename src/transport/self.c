/* SPDX-License-Identifier: Apache-2.0 */
/* self: both ends in one process, read in place. For tests and for a server loaded as a library. */
#include "transport/ring.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* What the two ends have in common; freed by the second close. */
struct self_common {
    struct tow_ring_ctl ctl[2]; /* [i]: written by end i */
    _Atomic uint32_t gone[2];   /* end i has shut down */
    uint8_t *ring[2];           /* owned */
    _Atomic int users;
};

struct self_line {
    struct tow_line line;
    struct self_common *common; /* shared with the other end */
    int end;                    /* 0 or 1 */
};

static void self_wake(struct tow_line *line)
{
    tow_line_count(&line->wakes, 1);
    tow_ring_wake(&line->out->consumer_waits, false);
}

static int self_send_direct(struct tow_line *line, const struct iovec *iov, int count, size_t total)
{
    return tow_ring_send_copy(line, iov, count);
}

static int self_drain(struct tow_line *line, int64_t deadline_ns)
{
    return 0;
}

static struct tow_ring_wait in_wait(struct tow_line *line, uint64_t need)
{
    return (struct tow_ring_wait){
        .word = &line->in_place->head,
        .waits = &line->in_place->consumer_waits,
        .base = atomic_load_explicit(&line->in_tail, memory_order_relaxed),
        .need = need,
        .capacity = line->in_mask + 1,
        .spin = &line->in_spin,
        .sleeps = &line->in_sleeps,
        .spins = &line->in_spins,
    };
}

static int self_fill(struct tow_line *line, size_t min, int64_t deadline_ns)
{
    if (min > TOW_LINE_FRAME_MAX) {
        return -EMSGSIZE;
    }
    struct tow_ring_wait wait = in_wait(line, min);
    uint64_t available;
    int error = tow_ring_wait(line, &wait, deadline_ns, &available);
    if (error < 0) {
        return error;
    }
    atomic_store_explicit(&line->in_head, wait.base + available, memory_order_relaxed);
    return 0;
}

static int self_recv_into(struct tow_line *line, void *dst, size_t n)
{
    uint8_t *to = dst;
    while (n > 0) {
        const uint8_t *at;
        size_t available;
        int error = tow_line_peek(line, 1, TOW_TIME_FOREVER, &at, &available);
        if (error < 0) {
            return error;
        }
        /* Given back in pieces, so that the producer can go on copying. */
        size_t chunk = available < n ? available : n;
        chunk = chunk < (256u << 10) ? chunk : 256u << 10;
        memcpy(to, at, chunk);
        tow_line_consume(line, chunk);
        to += chunk;
        n -= chunk;
    }
    return 0;
}

static int self_wait_readable(struct tow_line *line, int64_t deadline_ns)
{
    /* Not the consumer's own spin state: this may be another thread. */
    struct tow_spin spin = {0};
    struct tow_ring_wait wait = in_wait(line, 1);
    wait.spin = &spin;
    /* Which may get far ahead of this one: no distance is nonsense here. */
    wait.capacity = UINT64_MAX;
    uint64_t available;
    return tow_ring_wait(line, &wait, deadline_ns, &available);
}

static void self_shutdown(struct tow_line *line)
{
    struct self_line *self = (struct self_line *)line;
    atomic_store(&self->common->gone[self->end], 1);
    tow_line_fail(line, -ESHUTDOWN);
    tow_ring_wake(&line->in_place->producer_waits, false);
    tow_ring_wake(&line->in_place->consumer_waits, false);
}

static void self_abandon(struct tow_line *line)
{
    (void)line;
}

static void common_unref(struct self_common *common)
{
    if (atomic_fetch_sub(&common->users, 1) == 1) {
        tow_mirror_unmap(common->ring[0], TOW_LINE_RING_SIZE);
        tow_mirror_unmap(common->ring[1], TOW_LINE_RING_SIZE);
        free(common);
    }
}

static void self_destroy(struct tow_line *line)
{
    struct self_line *self = (struct self_line *)line;
    common_unref(self->common);
    free(self);
}

static const struct tow_line_ops self_ops = {
    .name = "self",
    .in_process = true,
    .wake = self_wake,
    .send_now = self_wake,
    .send_direct = self_send_direct,
    .drain = self_drain,
    .fill = self_fill,
    .recv_into = self_recv_into,
    .wait_readable = self_wait_readable,
    .shutdown = self_shutdown,
    .abandon = self_abandon,
    .destroy = self_destroy,
};

int tow_line_pair(struct tow_line **ret_first, struct tow_line **ret_second)
{
    struct self_common *common = aligned_alloc(128, sizeof *common);
    struct self_line *ends[2] = {aligned_alloc(128, sizeof *ends[0]),
                                 aligned_alloc(128, sizeof *ends[1])};
    int error = -ENOMEM;
    if (common == NULL || ends[0] == NULL || ends[1] == NULL) {
        goto free_all;
    }
    memset(common, 0, sizeof *common);
    atomic_store(&common->users, 2);
    for (int i = 0; i < 2; i++) {
        error = tow_mirror_map(-1, 0, TOW_LINE_RING_SIZE, &common->ring[i]);
        if (error < 0) {
            goto unmap;
        }
    }
    for (int i = 0; i < 2; i++) {
        struct tow_line *line = &ends[i]->line;
        tow_line_init(line, &self_ops);
        tow_line_set_out(line, common->ring[i], &common->ctl[i], TOW_LINE_RING_SIZE);
        line->in_base = common->ring[1 - i];
        line->in_mask = TOW_LINE_RING_SIZE - 1;
        line->in_place = &common->ctl[1 - i];
        line->peer_gone = &common->gone[1 - i];
        snprintf(line->peer, sizeof line->peer, "this process");
        ends[i]->common = common;
        ends[i]->end = i;
    }
    *ret_first = &ends[0]->line;
    *ret_second = &ends[1]->line;
    return 0;

unmap:
    tow_mirror_unmap(common->ring[0], TOW_LINE_RING_SIZE);
    tow_mirror_unmap(common->ring[1], TOW_LINE_RING_SIZE);
free_all:
    free(common);
    free(ends[0]);
    free(ends[1]);
    return error;
}
