/* SPDX-License-Identifier: Apache-2.0 */
/* Maps a ring twice in a row, and how its two ends wait: spinning, then sleeping. */
#include "transport/ring.h"

#include "base/clock.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A sleeper in shared memory cannot be woken by a peer that was killed: it looks this often. Two
 * looks fit in the two seconds within which a death must be noticed. */
#define PEER_CHECK_NS (500 * TOW_TIME_MS)

/* Longest spin where there are processors to spare: a futex wake-up takes 5 to 50 us, more in a
 * virtual machine whose processors have gone to sleep. */
#define SPIN_MAX_NS (300 * TOW_TIME_US)
#define SPIN_MIN_NS (2 * TOW_TIME_US)

/* A sleep that ended within this much beyond the longest spin tells nothing: what was waited for
 * may have come early, and the rest was waking up. */
#define SPIN_DOUBT_NS (400 * TOW_TIME_US)

/* Most expectations in a row that are not believed after wrong ones. */
enum { DOUBTS_MAX = 63 };

/* Looks between two questions for the time: a microsecond or two. */
enum { ROUNDS = 32 };

/* A copy into a ring is committed in pieces of this size: the consumer copies out meanwhile. */
#define COPY_CHUNK (256u << 10)

static _Atomic int64_t spin_min = -1, spin_max = -1;

void tow_line_set_spin(int64_t min_ns, int64_t max_ns)
{
    atomic_store_explicit(&spin_min, min_ns, memory_order_relaxed);
    atomic_store_explicit(&spin_max, max_ns, memory_order_relaxed);
}

static struct tow_spin spin_start(void)
{
    int64_t min = atomic_load_explicit(&spin_min, memory_order_relaxed);
    int64_t max = atomic_load_explicit(&spin_max, memory_order_relaxed);
    if (max < 0) {
        max = tow_cpu_count() <= 2 ? 0 : SPIN_MAX_NS;
    }
    if (min < 0) {
        min = SPIN_MIN_NS;
    }
    return (struct tow_spin){.budget_ns = max, .min_ns = min < max ? min : max, .max_ns = max};
}

int64_t tow_spin_until(const struct tow_spin *spin, int64_t now_ns)
{
    int64_t until = now_ns + spin->budget_ns;
    return spin->expected_ns > until ? spin->expected_ns : until;
}

void tow_spin_expect(struct tow_spin *spin, int64_t until_ns)
{
    if (spin->max_ns == 0) {
        return;
    }
    if (spin->doubts > 0) {
        spin->doubts--;
        return;
    }
    spin->expected_ns = until_ns;
}

void tow_line_expect(struct tow_line *line, int64_t ns)
{
    tow_spin_expect(&line->in_spin, tow_time_now_ns() + ns);
}

/* True where the wait was an expected one: other waits have nothing to learn from it. */
static bool was_expected(struct tow_spin *spin, int64_t now_ns)
{
    int64_t expected = spin->expected_ns;
    spin->expected_ns = 0;
    if (expected == 0) {
        return false;
    }
    if (now_ns <= expected) {
        spin->lost = 0;
        return true;
    }
    /* In vain: after 1, 3, 7 ... DOUBTS_MAX others it is tried again. */
    spin->lost = 2 * spin->lost + 1 < DOUBTS_MAX ? 2 * spin->lost + 1 : DOUBTS_MAX;
    spin->doubts = spin->lost;
    return false;
}

void tow_spin_learn(struct tow_spin *spin, int64_t began_ns, int64_t now_ns)
{
    int64_t waited_ns = now_ns - began_ns;
    if (spin->max_ns == 0 || was_expected(spin, now_ns)) {
        return;
    }
    /* A wait that spinning could have covered, or may have, raises the budget at once to twice its
     * length; a long one takes a quarter of it away, since spinning was in vain. */
    int64_t budget = spin->budget_ns;
    if (waited_ns > spin->max_ns + SPIN_DOUBT_NS) {
        budget -= budget / 4;
    } else if (2 * waited_ns > budget) {
        budget = 2 * waited_ns;
    } else {
        /* Slowly: programs launch in rows of a few microseconds with a hundred in between, and a
         * budget that forgets the hundred sleeps through the next row's beginning. */
        budget -= (budget - 2 * waited_ns) / 64;
    }
    spin->budget_ns = budget < spin->min_ns   ? spin->min_ns
                      : budget > spin->max_ns ? spin->max_ns
                                              : budget;
}

int tow_mirror_map(int fd, uint64_t offset, size_t size, uint8_t **ret_base)
{
    int own = -1;
    if (fd < 0) {
        own = memfd_create("towline-ring", MFD_CLOEXEC);
        if (own < 0) {
            return -errno;
        }
        if (ftruncate(own, (off_t)size) != 0) {
            int error = -errno;
            close(own);
            return error;
        }
        fd = own;
        offset = 0;
    }
    int result = 0;
    uint8_t *base =
        mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        result = -errno;
    } else {
        for (int i = 0; i < 2 && result == 0; i++) {
            if (mmap(base + (size_t)i * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     fd, (off_t)offset) == MAP_FAILED) {
                result = -errno;
            }
        }
        if (result < 0) {
            munmap(base, 2 * size);
        }
    }
    if (own >= 0) {
        close(own);
    }
    if (result == 0) {
        *ret_base = base;
    }
    return result;
}

void tow_mirror_unmap(uint8_t *base, size_t size)
{
    if (base != NULL) {
        munmap(base, 2 * size);
    }
}

void tow_line_init(struct tow_line *line, const struct tow_line_ops *ops)
{
    memset(line, 0, sizeof *line);
    line->ops = ops;
    line->peer_fd = -1;
    line->out_spin = line->in_spin = spin_start();
}

void tow_line_set_out(struct tow_line *line, uint8_t *base, struct tow_ring_ctl *ctl, size_t size)
{
    assert((size & (size - 1)) == 0);
    line->out_base = base;
    line->out = ctl;
    line->out_mask = size - 1;
    line->out_head = 0;
    line->out_limit = size;
}

void tow_ring_wake(_Atomic uint32_t *waits, bool shared)
{
    atomic_store(waits, 0);
    tow_futex_wake(waits, INT_MAX, shared);
}

void tow_line_fail(struct tow_line *line, int error)
{
    int none = 0;
    atomic_compare_exchange_strong(&line->error, &none, error);
    if (line->out != NULL) {
        tow_ring_wake(&line->out->producer_waits, line->shared);
        tow_ring_wake(&line->out->consumer_waits, line->shared);
    }
}

bool tow_socket_ended(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* Why the wait cannot go on, or 0. */
static int ring_ended(struct tow_line *line, const struct tow_ring_wait *wait)
{
    if (atomic_load(&line->down)) {
        return -ESHUTDOWN;
    }
    int error = atomic_load(&line->error);
    if (error != 0 && (wait->producer || error == -EPROTO)) {
        return error;
    }
    if (line->peer_gone != NULL && atomic_load(line->peer_gone) != 0) {
        return wait->producer ? -EPIPE : -ECONNRESET;
    }
    return 0;
}

/* 1: enough, 0: not yet, negative: nonsense. */
static int ring_look(const struct tow_ring_wait *wait, memory_order order, uint64_t *ret_value)
{
    uint64_t value = atomic_load_explicit(wait->word, order) - wait->base;
    if (value > wait->capacity) {
        return -EPROTO;
    }
    *ret_value = value;
    return value >= wait->need;
}

/* Until there is something to see, or for as long as spinning pays. True if it came before the
 * clock was asked: a wait of no length. */
static bool spin_for(const struct tow_ring_wait *wait, int64_t began_ns)
{
    int64_t until = tow_spin_until(wait->spin, began_ns);
    for (unsigned round = 1;; round++) {
        uint64_t value;
        if (ring_look(wait, memory_order_acquire, &value) != 0) {
            tow_line_count(wait->spins, 1);
            return round <= ROUNDS;
        }
        tow_thread_pause();
        if (round % ROUNDS == 0 && tow_time_now_ns() >= until) {
            return false;
        }
    }
}

static int wait_slowly(struct tow_line *line, const struct tow_ring_wait *wait, int64_t deadline_ns,
                       uint64_t *ret_value)
{
    for (;;) {
        /* Asked before the look: what was written before the end is still found. */
        int end = ring_ended(line, wait);
        int state = ring_look(wait, memory_order_acquire, ret_value);
        if (state < 0) {
            tow_line_fail(line, -EPROTO);
            return state;
        }
        if (end == -ESHUTDOWN || end == -EPROTO) {
            return end;
        }
        if (state > 0) {
            return 0;
        }
        if (end < 0) {
            return end;
        }
        int64_t until = deadline_ns;
        if (deadline_ns != TOW_TIME_FOREVER || line->peer_fd >= 0) {
            int64_t now = tow_time_now_ns();
            if (now >= deadline_ns) {
                return -ETIMEDOUT;
            }
            if (line->peer_fd >= 0 && until - now > PEER_CHECK_NS) {
                until = now + PEER_CHECK_NS;
            }
        }
        /* The order matters, see tow_line_commit: announce, look once more, sleep. */
        atomic_store(wait->waits, 1);
        if (ring_look(wait, memory_order_seq_cst, ret_value) != 0 || ring_ended(line, wait) != 0) {
            continue;
        }
        tow_line_count(wait->sleeps, 1);
        int result = tow_futex_wait(wait->waits, 1, until, line->shared);
        if (result == -ETIMEDOUT && line->peer_fd >= 0 && tow_socket_ended(line->peer_fd)) {
            atomic_store(line->peer_gone, 1);
        }
    }
}

int tow_ring_wait(struct tow_line *line, const struct tow_ring_wait *wait, int64_t deadline_ns,
                  uint64_t *ret_value)
{
    if (ring_look(wait, memory_order_acquire, ret_value) > 0 && !atomic_load(&line->down)) {
        return 0;
    }
    /* Without spinning there is nothing to learn, and the clock need not be asked. */
    bool spins = wait->spin->budget_ns > 0 && deadline_ns > 0;
    int64_t began = spins ? tow_time_now_ns() : 0;
    bool brief = spins && spin_for(wait, began);
    int error = wait_slowly(line, wait, deadline_ns, ret_value);
    if (spins) {
        tow_spin_learn(wait->spin, began, brief ? began : tow_time_now_ns());
    }
    return error;
}

int tow_line_reserve_slow(struct tow_line *line, size_t size, int64_t deadline_ns, uint8_t **ret_at)
{
    uint64_t capacity = line->out_mask + 1;
    if (size > TOW_LINE_FRAME_MAX) {
        return -EMSGSIZE;
    }
    int error = atomic_load(&line->error);
    if (error != 0) {
        return error;
    }
    struct tow_ring_wait wait = {
        .word = &line->out->tail,
        .waits = &line->out->producer_waits,
        /* tail - (head - capacity) is the room. */
        .base = line->out_head - capacity,
        .need = size,
        .capacity = capacity,
        .spin = &line->out_spin,
        .sleeps = &line->out_sleeps,
        .spins = &line->out_spins,
        .producer = true,
    };
    uint64_t room = atomic_load_explicit(wait.word, memory_order_acquire) - wait.base;
    if (room > capacity || room < size) {
        tow_line_count(&line->full_waits, 1);
        error = line->ops->await_room != NULL
                    ? line->ops->await_room(line, size, deadline_ns, &room)
                    : tow_ring_wait(line, &wait, deadline_ns, &room);
        if (error < 0) {
            return error;
        }
    } else if (line->peer_gone != NULL && atomic_load(line->peer_gone) != 0) {
        return -EPIPE;
    }
    line->out_limit = line->out_head + room;
    *ret_at = line->out_base + (line->out_head & line->out_mask);
    return 0;
}

void tow_ring_release(struct tow_ring_ctl *ctl, uint64_t tail, uint64_t head, uint64_t capacity,
                      bool shared, _Atomic uint64_t *wakes)
{
    atomic_store(&ctl->tail, tail);
    /* A producer that filled the ring is woken when a quarter is free, not for every frame; it
     * cannot starve, because a consumer that finds three quarters full has work to do. */
    if (__builtin_expect(atomic_load(&ctl->producer_waits) != 0, 0) &&
        head - tail <= capacity - capacity / 4) {
        if (wakes != NULL) {
            tow_line_count(wakes, 1);
        }
        tow_ring_wake(&ctl->producer_waits, shared);
    }
}

void tow_line_freed(struct tow_line *line)
{
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&line->in_place->head, memory_order_relaxed);
    uint64_t capacity = line->in_mask + 1;
    if (head - tail <= capacity - capacity / 4 || head - tail > capacity) {
        tow_ring_wake(&line->in_place->producer_waits, line->shared);
    }
}

int tow_ring_send_copy(struct tow_line *line, const struct iovec *iov, int count)
{
    for (int i = 0; i < count; i++) {
        const uint8_t *from = iov[i].iov_base;
        size_t left = iov[i].iov_len;
        while (left > 0) {
            size_t chunk = left < COPY_CHUNK ? left : COPY_CHUNK;
            uint8_t *at;
            int error = tow_line_reserve(line, chunk, &at);
            if (error < 0) {
                return error;
            }
            memcpy(at, from, chunk);
            tow_line_commit(line, chunk);
            from += chunk;
            left -= chunk;
        }
    }
    return 0;
}

/* How much it is; -EINVAL: that cannot be. */
static int64_t direct_total(const struct iovec *iov, int count)
{
    int64_t total = 0;
    if (count < 0 || count > TOW_LINE_IOV_MAX) {
        return -EINVAL;
    }
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len > (size_t)(INT64_MAX / 2 - total)) {
            return -EINVAL;
        }
        total += (int64_t)iov[i].iov_len;
    }
    return total;
}

int tow_line_send_direct(struct tow_line *line, const struct iovec *iov, int count)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_send_direct");
    int64_t total = direct_total(iov, count);
    return total < 0 ? (int)total : line->ops->send_direct(line, iov, count, (size_t)total);
}

int tow_line_lend(struct tow_line *line, const struct iovec *iov, int count)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_lend");
    int64_t total = direct_total(iov, count);
    if (total < 0) {
        return (int)total;
    }
    return (line->ops->lend != NULL ? line->ops->lend : line->ops->send_direct)(line, iov, count,
                                                                                (size_t)total);
}

int tow_line_take_back(struct tow_line *line)
{
    return tow_line_take_back_until(line, UINT64_MAX);
}

uint64_t tow_line_place(struct tow_line *line)
{
    return line->ops->place != NULL ? line->ops->place(line) : 0;
}

int tow_line_take_back_until(struct tow_line *line, uint64_t place)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_take_back");
    return line->ops->take_back != NULL ? line->ops->take_back(line, place) : 0;
}

int tow_line_drain(struct tow_line *line, int64_t deadline_ns)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_drain");
    return line->ops->drain(line, deadline_ns);
}

void tow_line_set_abrupt(struct tow_line *line)
{
    if (line->ops->set_abrupt != NULL) {
        line->ops->set_abrupt(line);
    }
}

void tow_line_set_silence(struct tow_line *line, int64_t ns)
{
    if (line->ops->set_silence != NULL) {
        line->ops->set_silence(line, ns);
    }
}

int tow_line_await_end(struct tow_line *line, int64_t deadline_ns)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_await_end");
    return line->ops->await_end == NULL ? 0 : line->ops->await_end(line, deadline_ns);
}

int tow_line_recv_into(struct tow_line *line, void *dst, size_t n)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_recv_into");
    /* What already is in the buffer first. */
    uint64_t tail = atomic_load_explicit(&line->in_tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&line->in_head, memory_order_acquire);
    size_t held = (size_t)(head - tail) < n ? (size_t)(head - tail) : n;
    if (held > 0) {
        memcpy(dst, line->in_base + (tail & line->in_mask), held);
        tow_line_consume(line, held);
    }
    if (held == n) {
        return 0;
    }
    return line->ops->recv_into(line, (uint8_t *)dst + held, n - held);
}

int tow_line_discard(struct tow_line *line, size_t n)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_discard");
    while (n > 0) {
        const uint8_t *at;
        size_t available;
        int error = tow_line_peek(line, 1, TOW_TIME_FOREVER, &at, &available);
        if (error < 0) {
            return error;
        }
        size_t chunk = available < n ? available : n;
        tow_line_consume(line, chunk);
        n -= chunk;
    }
    return 0;
}

int tow_line_wait_readable(struct tow_line *line, int64_t deadline_ns)
{
    if (deadline_ns != 0) {
        tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_wait_readable");
    }
    int error = line->ops->wait_readable(line, deadline_ns);
    return error == -ETIMEDOUT ? error : 0;
}

void tow_line_shutdown(struct tow_line *line)
{
    atomic_store(&line->down, true);
    line->ops->shutdown(line);
}

void tow_line_close(struct tow_line *line)
{
    if (line != NULL) {
        tow_line_shutdown(line);
        line->ops->destroy(line);
    }
}

void tow_line_let_go(struct tow_line *line)
{
    line->ops->destroy(line);
}

void tow_line_abandon(struct tow_line *line)
{
    line->ops->abandon(line);
}

void tow_line_get_stats(struct tow_line *line, struct tow_line_stats *ret_stats)
{
    struct tow_line_stats stats = {
        .bytes_out = atomic_load(&line->out->head) + atomic_load(&line->direct_out),
        .frames_out = atomic_load(&line->frames_out),
        .sends = atomic_load(&line->sends),
        .wakes = atomic_load(&line->wakes),
        .full_waits = atomic_load(&line->full_waits),
        .bytes_in = atomic_load(&line->bytes_in),
        .receives = atomic_load(&line->receives),
        .sleeps = atomic_load(&line->in_sleeps) + atomic_load(&line->out_sleeps),
        .spins = atomic_load(&line->in_spins) + atomic_load(&line->out_spins),
    };
    *ret_stats = stats;
    if (line->ops->add_stats != NULL) {
        line->ops->add_stats(line, ret_stats);
    }
}

bool tow_line_is_in_process(const struct tow_line *line)
{
    return line->ops->in_process;
}

bool tow_line_can_break(const struct tow_line *line)
{
    return line->ops->can_break;
}

bool tow_line_keeps(const struct tow_line *line)
{
    return line->ops->lend != NULL;
}

bool tow_line_can_share(const struct tow_line *line)
{
    return line->ops->send_fd != NULL;
}

int tow_line_send_fd(struct tow_line *line, int fd, uint64_t number)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_send_fd");
    return line->ops->send_fd != NULL ? line->ops->send_fd(line, fd, number) : -ENOTSUP;
}

int tow_line_take_fd(struct tow_line *line, uint64_t number, int64_t deadline_ns, int *ret_fd)
{
    tow_locks_over(TOW_LOCK_OVER_LINE, "tow_line_take_fd");
    return line->ops->take_fd != NULL ? line->ops->take_fd(line, number, deadline_ns, ret_fd)
                                      : -ENOTSUP;
}

const char *tow_line_kind(const struct tow_line *line)
{
    return line->ops->name;
}

const char *tow_line_peer(const struct tow_line *line)
{
    return line->peer;
}
