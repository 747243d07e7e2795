/* SPDX-License-Identifier: Apache-2.0 */
/* Lasting lines: their states, who waits for whom, and how they go on over a new line. */
#include "transport/keep_impl.h"

#include "base/thread.h"
#include "transport/ring.h"
#include "transport/secret_page.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Acknowledged after so much: a quarter of the ring, so that a producer that fills it goes on
 * before it is full, and few enough for a large payload (each one costs both ends a call). */
#define ACK_EVERY (512u << 10)

/* Between two tries to connect: at once, then this, doubled up to that. */
#define PAUSE_MIN_NS (10 * TOW_TIME_MS)
#define PAUSE_MAX_NS (500 * TOW_TIME_MS)
/* A line that lived no longer and carried nothing was as good as none. */
#define SHORT_NS (5 * TOW_TIME_S)
/* How long a word for who goes may take. */
#define REFUSE_NS (100 * TOW_TIME_MS)
/* One try. */
#define REDIAL_NS (4 * TOW_TIME_S)

/* ---- waiting ---- */

uint32_t keep_wait_begin(struct keep_line *keep)
{
    atomic_fetch_add(&keep->waiters, 1);
    return atomic_load(&keep->changes);
}

void keep_wait(struct keep_line *keep, uint32_t seen, int64_t deadline_ns)
{
    int64_t second = tow_time_deadline(TOW_TIME_S);
    tow_futex_wait(&keep->changes, seen, second < deadline_ns ? second : deadline_ns, false);
}

void keep_wait_end(struct keep_line *keep)
{
    atomic_fetch_sub(&keep->waiters, 1);
}

/* What was changed before was stored sequentially consistent: either we see who waits, or he sees
 * it in his look. */
void keep_changed(struct keep_line *keep)
{
    if (atomic_load(&keep->waiters) != 0) {
        atomic_fetch_add(&keep->changes, 1);
        tow_futex_wake(&keep->changes, INT_MAX, false);
    }
}

/* ---- the line behind ---- */

struct keep_wire *keep_wire_get(struct keep_line *keep)
{
    tow_mutex_lock(&keep->life);
    struct keep_wire *wire = keep->wire;
    wire->users++;
    tow_mutex_unlock(&keep->life);
    return wire;
}

/* System calls; bytes and frames are counted as the session's. */
static void add_calls(struct tow_line_stats *stats, const struct tow_line_stats *more)
{
    stats->sends += more->sends;
    stats->receives += more->receives;
    stats->wakes += more->wakes;
    stats->sleeps += more->sleeps;
    stats->spins += more->spins;
}

void keep_wire_put(struct keep_line *keep, struct keep_wire *wire)
{
    struct tow_line_stats stats;
    tow_mutex_lock(&keep->life);
    bool last = --wire->users == 0;
    if (last) {
        tow_line_get_stats(wire->line, &stats);
        add_calls(&keep->past, &stats);
    }
    tow_mutex_unlock(&keep->life);
    if (last) {
        tow_line_close(wire->line);
        free(wire);
    }
}

static void shut_wire(struct keep_line *keep)
{
    struct keep_wire *wire = keep_wire_get(keep);
    tow_line_shutdown(wire->line);
    keep_wire_put(keep, wire);
}

/* ---- states ---- */

/* Time that goes on while the machine sleeps. */
static int64_t boot_now_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * TOW_TIME_S + now.tv_nsec;
}

/* A line that is cut again as soon as it was mended, and has carried nothing, goes on being cut:
 * what ends each line behind it is no accident, and would go on for ever. */
static void mark_cut(struct keep_line *keep, int error)
{
    tow_mutex_lock(&keep->life);
    if (atomic_load(&keep->state) == KEEP_LIVE) {
        int64_t now = boot_now_ns();
        uint64_t at = atomic_load(&keep->taken) + atomic_load(&keep->acked);
        keep->why = error;
        if (at != keep->cut_at || now - keep->mended_ns > SHORT_NS) {
            keep->cut_ns = now;
        }
        keep->cut_at = at;
        atomic_store(&keep->state, KEEP_CUT);
    }
    tow_mutex_unlock(&keep->life);
    keep_changed(keep);
}

int keep_failed(struct keep_line *keep, int error, bool drained)
{
    if (error == -EFAULT || error == -ENOMEM || error == -EMSGSIZE) {
        keep_end(keep, error, error); /* not the line's failure: another one helps nobody */
        return error;
    }
    mark_cut(keep, error);
    if (drained) {
        /* Who sends waits no longer, either. Who failed to send has seen to that; what has come can
         * still be received. */
        tow_line_shutdown(keep->wire->line);
    }
    return error;
}

void keep_end(struct keep_line *keep, int write_error, int read_error)
{
    int none = 0;
    atomic_compare_exchange_strong(&keep->read_error, &none, read_error);
    tow_line_fail(&keep->line, write_error);
    tow_mutex_lock(&keep->life);
    atomic_store(&keep->state, KEEP_ENDED);
    tow_mutex_unlock(&keep->life);
    keep_changed(keep);
    shut_wire(keep);
}

int keep_ended(struct keep_line *keep)
{
    if (atomic_load(&keep->line.down)) {
        return -ESHUTDOWN;
    }
    return atomic_load(&keep->state) == KEEP_ENDED ? atomic_load(&keep->read_error) : 0;
}

/* How long the cut may still last, 0 if that is over. */
static int64_t cut_left(struct keep_line *keep, int *ret_why)
{
    tow_mutex_lock(&keep->life);
    int64_t left = keep->cut_ns + keep->setup.limit_ns - boot_now_ns();
    *ret_why = keep->why;
    tow_mutex_unlock(&keep->life);
    return left > 0 ? left : 0;
}

int keep_await_mended(struct keep_line *keep, int64_t deadline_ns)
{
    for (;;) {
        uint32_t seen = keep_wait_begin(keep);
        int ended = keep_ended(keep);
        bool live = atomic_load(&keep->state) == KEEP_LIVE;
        int why = 0;
        int64_t left = live || ended != 0 ? 0 : cut_left(keep, &why);
        if (left > 0) {
            int64_t until = tow_time_deadline(left);
            keep_wait(keep, seen, until < deadline_ns ? until : deadline_ns);
        }
        keep_wait_end(keep);
        if (live || ended != 0) {
            return ended;
        }
        if (left == 0) {
            bool silent = why == -EHOSTDOWN;
            keep_end(keep, silent ? why : -EPIPE, silent ? why : -ECONNRESET);
        } else if (tow_time_passed(deadline_ns) && atomic_load(&keep->state) == KEEP_CUT) {
            return -ETIMEDOUT;
        }
    }
}

/* ---- mending ---- */

/* Both roles: their holders come out of a line that is shut down. */
static int take_roles(struct keep_line *keep, int64_t deadline_ns)
{
    while (!keep_receive_try(keep)) {
        uint32_t seen = keep_wait_begin(keep);
        if (atomic_load(&keep->receiving)) {
            keep_wait(keep, seen, deadline_ns);
        }
        keep_wait_end(keep);
        if (tow_time_passed(deadline_ns)) {
            return -ETIMEDOUT;
        }
    }
    tow_mutex_lock(&keep->send);
    return 0;
}

/* Says what was taken here, and learns what was taken there. */
static int exchange_taken(struct keep_line *keep, struct tow_line *fresh, int64_t deadline_ns,
                          uint64_t *ret_taken)
{
    uint8_t *to;
    const uint8_t *at = NULL;
    size_t available;
    uint32_t size;
    int error = tow_line_reserve(fresh, KEEP_HEAD, &to);
    if (error < 0) {
        return error;
    }
    keep_put_head(to, 0, KEEP_RESUME, atomic_load(&keep->taken));
    tow_line_commit_now(fresh, KEEP_HEAD);
    error = tow_line_peek(fresh, KEEP_HEAD, deadline_ns, &at, &available);
    if (error < 0) {
        return error;
    }
    int kind = keep_get_head(at, &size, ret_taken);
    tow_line_consume(fresh, KEEP_HEAD);
    if (kind == KEEP_END) {
        return -ESTALE;
    }
    return kind == KEEP_RESUME && *ret_taken >= atomic_load(&keep->acked) &&
                   *ret_taken <= atomic_load(&keep->offered)
               ? 0
               : -EPROTO;
}

/* With both roles. The old line is the caller's then. */
static struct keep_wire *swap_wire(struct keep_line *keep, struct keep_wire *wire, uint64_t taken)
{
    keep_rewind(keep, taken);
    keep->left = 0;
    keep->bulk = false;
    tow_mutex_lock(&keep->life);
    struct keep_wire *old = keep->wire;
    int64_t silence_ns = keep->silence_ns;
    keep->wire = wire;
    if (atomic_load(&keep->state) != KEEP_ENDED) {
        atomic_store(&keep->state, KEEP_LIVE);
    }
    keep->mended_ns = boot_now_ns();
    tow_mutex_unlock(&keep->life);
    if (silence_ns >= 0) {
        tow_line_set_silence(wire->line, silence_ns);
    }
    atomic_fetch_add(&keep->mends, 1);
    return old;
}

int tow_keep_mend(struct tow_line *line, struct tow_line *fresh, int64_t deadline_ns)
{
    struct keep_line *keep = keep_of(line);
    struct keep_wire *wire = malloc(sizeof *wire);
    if (wire == NULL) {
        tow_line_close(fresh);
        return -ENOMEM;
    }
    *wire = (struct keep_wire){.line = fresh, .users = 1};
    mark_cut(keep, -ECONNRESET);
    shut_wire(keep);
    int error = take_roles(keep, deadline_ns);
    if (error == 0) {
        uint64_t taken = 0;
        error = keep_ended(keep);
        if (error == 0) {
            error = exchange_taken(keep, fresh, deadline_ns, &taken);
        }
        if (error == 0) {
            wire = swap_wire(keep, wire, taken);
        }
        tow_mutex_unlock(&keep->send);
        keep_receive_give(keep);
    }
    keep_wire_put(keep, wire); /* the old one, or the new one that was of no use */
    if (error == -ESTALE) {
        keep_end(keep, -EPIPE, -ECONNRESET);
    } else if (error == 0) {
        int ended = keep_ended(keep);
        if (ended != 0) {
            shut_wire(keep); /* the end came while there were two */
        } else if (keep_has_work(keep)) {
            keep_wake(line);
        }
    }
    return error;
}

static void redial_until_live(struct keep_line *keep)
{
    int64_t pause = 0;
    int why;
    keep_look(keep, true); /* perhaps it was no cut */
    while (keep_ended(keep) == 0 && atomic_load(&keep->state) == KEEP_CUT) {
        int64_t until = tow_time_deadline(pause);
        pause = pause == 0 ? PAUSE_MIN_NS : 2 * pause < PAUSE_MAX_NS ? 2 * pause : PAUSE_MAX_NS;
        while (!tow_time_passed(until) && keep_await_mended(keep, until) == -ETIMEDOUT) {
        }
        int64_t left = cut_left(keep, &why);
        if (left == 0) {
            keep_await_mended(keep, 0); /* ends it */
        } else if (keep_ended(keep) == 0 && atomic_load(&keep->state) == KEEP_CUT) {
            int64_t deadline = tow_time_deadline(left < REDIAL_NS ? left : REDIAL_NS);
            struct tow_line *fresh = NULL;
            int error = keep->setup.redial(keep->setup.arg, deadline, &fresh);
            if (error == 0) {
                error = tow_keep_mend(&keep->line, fresh, deadline);
                if (error == 0 && keep->setup.mended != NULL) {
                    keep->setup.mended(keep->setup.arg);
                }
            } else if (error == -ESTALE) {
                keep_end(keep, -EPIPE, -ECONNRESET);
            }
        }
    }
}

/* Of the end that connects. It also notices a cut while nobody sends or receives: the other end
 * does not wait for ever. */
static void *mender_run(void *arg)
{
    struct keep_line *keep = arg;
    while (keep_ended(keep) == 0) {
        if (atomic_load(&keep->state) == KEEP_CUT) {
            redial_until_live(keep);
            continue;
        }
        struct keep_wire *wire = keep_wire_get(keep);
        int error = tow_line_await_end(wire->line, tow_time_deadline(TOW_TIME_S));
        keep_wire_put(keep, wire);
        if (error == 0) {
            keep_notice(keep);
        }
    }
    return NULL;
}

/* ---- life ---- */

static void keep_shutdown(struct tow_line *line)
{
    struct keep_line *keep = keep_of(line);
    keep_say_end(keep);
    tow_line_fail(line, -ESHUTDOWN);
    shut_wire(keep);
    keep_changed(keep);
}

static void keep_set_silence(struct tow_line *line, int64_t ns)
{
    struct keep_line *keep = keep_of(line);
    tow_mutex_lock(&keep->life);
    keep->silence_ns = ns;
    tow_mutex_unlock(&keep->life);
    struct keep_wire *wire = keep_wire_get(keep);
    tow_line_set_silence(wire->line, ns);
    keep_wire_put(keep, wire);
}

static void keep_add_stats(struct tow_line *line, struct tow_line_stats *stats)
{
    struct keep_line *keep = keep_of(line);
    struct tow_line_stats behind;
    struct keep_wire *wire = keep_wire_get(keep);
    tow_line_get_stats(wire->line, &behind);
    add_calls(stats, &behind);
    keep_wire_put(keep, wire);
    tow_mutex_lock(&keep->life);
    add_calls(stats, &keep->past);
    tow_mutex_unlock(&keep->life);
}

/* In the child nobody else is, and locks may be taken by those who are not. */
static void keep_abandon(struct tow_line *line)
{
    tow_line_abandon(keep_of(line)->wire->line);
}

static void keep_destroy(struct tow_line *line)
{
    struct keep_line *keep = keep_of(line);
    if (keep->mender_started) {
        pthread_join(keep->mender, NULL);
    }
    keep_out_fini(keep);
    if (keep->wire != NULL) {
        keep_wire_put(keep, keep->wire);
    }
    if (keep->grant != NULL) {
        tow_secret_page_forget(keep->grant, sizeof *keep->grant);
    }
    tow_mirror_unmap((uint8_t *)line->in_base, TOW_LINE_RING_SIZE);
    tow_mutex_fini(&keep->life);
    free(keep);
}

static const struct tow_line_ops keep_ops = {
    .can_break = true,
    .wake = keep_wake,
    .send_now = keep_send_now,
    .send_direct = keep_send_direct,
    .lend = keep_lend,
    .take_back = keep_take_back,
    .place = keep_place,
    .await_room = keep_await_room,
    .drain = keep_drain,
    .fill = keep_fill,
    .recv_into = keep_recv_into,
    .wait_readable = keep_wait_readable,
    .shutdown = keep_shutdown,
    .await_end = keep_await_end,
    .add_stats = keep_add_stats,
    .set_silence = keep_set_silence,
    .abandon = keep_abandon,
    .destroy = keep_destroy,
};

/* What is the session's outlives the first line behind. */
static int take_over(struct keep_line *keep, const struct tow_line *inner)
{
    memcpy(keep->line.peer, inner->peer, sizeof keep->line.peer);
    if (inner->binding != NULL) {
        memcpy(keep->binding, inner->binding, sizeof keep->binding);
        keep->line.binding = keep->binding;
    }
    if (inner->grant != NULL) {
        keep->grant = tow_secret_page_make(sizeof *keep->grant);
        if (keep->grant == NULL) {
            return -ENOMEM;
        }
        memcpy(keep->grant, inner->grant, sizeof *keep->grant);
        keep->line.grant = keep->grant;
    }
    return 0;
}

static int map_rings(struct keep_line *keep)
{
    uint8_t *out, *in;
    int error = tow_mirror_map(-1, 0, TOW_LINE_RING_SIZE, &out);
    if (error == 0) {
        tow_line_set_out(&keep->line, out, &keep->ctl, TOW_LINE_RING_SIZE);
        error = tow_mirror_map(-1, 0, TOW_LINE_RING_SIZE, &in);
    }
    if (error == 0) {
        keep->line.in_base = in;
        keep->line.in_mask = TOW_LINE_RING_SIZE - 1;
    }
    return error;
}

int tow_keep_line(struct tow_line *inner, const struct tow_keep_setup *setup,
                  struct tow_line **ret_line)
{
    size_t size = (sizeof(struct keep_line) + 127) / 128 * 128;
    struct keep_line *keep = aligned_alloc(128, size);
    struct keep_wire *wire = malloc(sizeof *wire);
    if (keep == NULL || wire == NULL) {
        free(keep);
        free(wire);
        tow_line_close(inner);
        return -ENOMEM;
    }
    memset(keep, 0, size);
    *wire = (struct keep_wire){.line = inner, .users = 1};
    keep->ops = keep_ops;
    keep->ops.name = tow_line_kind(inner);
    tow_line_init(&keep->line, &keep->ops);
    keep->setup = *setup;
    keep->setup.ack_every = setup->ack_every > 0 ? setup->ack_every : ACK_EVERY;
    keep->wire = wire;
    keep->silence_ns = -1;
    keep->sender_spin = keep->line.out_spin;
    atomic_store(&keep->ctl.consumer_waits, 1);
    tow_mutex_init(&keep->send, LINE_KEEP_SEND);
    tow_mutex_init(&keep->kept, LINE_KEEP_KEPT);
    tow_mutex_init(&keep->life, LINE_KEEP_LIFE);
    int error = map_rings(keep);
    if (error == 0) {
        error = take_over(keep, inner);
    }
    if (error == 0 && setup->hello_ns > 0) {
        uint64_t none;
        error = exchange_taken(keep, inner, tow_time_deadline(setup->hello_ns), &none);
    }
    if (error == 0 && setup->redial != NULL) {
        error = tow_thread_start("towline-mend", mender_run, keep, &keep->mender);
        keep->mender_started = error == 0;
    }
    if (error < 0) {
        tow_line_shutdown(inner);
        keep_destroy(&keep->line);
        return error;
    }
    *ret_line = &keep->line;
    return 0;
}

void tow_keep_refuse(struct tow_line *fresh)
{
    uint8_t *to;
    if (tow_line_reserve(fresh, KEEP_HEAD, &to) == 0) {
        keep_put_head(to, 0, KEEP_END, 0);
        tow_line_commit_now(fresh, KEEP_HEAD);
        tow_line_drain(fresh, tow_time_deadline(REFUSE_NS));
    }
    tow_line_close(fresh);
}

void tow_keep_give_up(struct tow_line *line)
{
    keep_end(keep_of(line), -EPIPE, -ECONNRESET);
}

void tow_keep_acknowledge(struct tow_line *line)
{
    struct keep_line *keep = keep_of(line);
    atomic_store(&keep->owed, true);
    keep_poke(keep);
}

unsigned tow_keep_mends(const struct tow_line *line, bool *ret_cut)
{
    const struct keep_line *keep = (const struct keep_line *)line;
    *ret_cut = atomic_load(&keep->state) == KEEP_CUT;
    return atomic_load(&keep->mends);
}
