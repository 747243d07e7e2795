/* SPDX-License-Identifier: Apache-2.0 */
/* Makes claims of workers, has it decided, and carries that out. */
#include "server/pool/swap.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/login/room.h"
#include "server/pool/worker_pool.h"

/* While somebody waits it is looked so often who is idle. */
#define LOOK_NS (20 * TOW_TIME_MS)
/* More is not believed: sums must not overflow. */
#define MEMORY_MAX (UINT64_C(1) << 44)
#define BY "another program needed the GPU's memory (overcommit = swap)"

_Static_assert((int)TOW_ROOM_GPUS == (int)TOW_STATS_GPUS_MAX, "the same GPUs");

enum { LIMIT_DOUBLED_MAX = 6, STUCK = 2 };

/* ---- what a session does ---- */

static bool does_ask(const struct tows_worker *worker)
{
    return worker->limits.swaps &&
           atomic_load(&worker->stats->room_asked) != atomic_load(&worker->stats->room_answered);
}

/* Its program waits for memory that is put out. */
static bool does_call(const struct tows_worker *worker)
{
    const struct tows_session_stats *stats = worker->stats;
    return tows_suspend_is_away(worker) && worker->suspend.swapped &&
           (worker->suspend.recalled || atomic_load(&stats->called) != 0 ||
            atomic_load(&stats->in_flight) != 0 || atomic_load(&stats->leads) != 0 ||
            does_ask(worker));
}

static int64_t quantum_ns(const struct tows_worker_pool *pool)
{
    return (int64_t)pool->config->swap_quantum * TOW_TIME_S;
}

/* It could not be put out: it is left alone for a while, and then given more time. */
static void count_failure(const struct tows_worker_pool *pool, struct tows_worker *worker)
{
    struct tows_swap_seat *seat = &worker->swap;
    seat->failures++;
    unsigned doubled = seat->failures < LIMIT_DOUBLED_MAX ? seat->failures : LIMIT_DOUBLED_MAX;
    seat->fixed_ns = tow_time_deadline(quantum_ns(pool) << doubled >> 1);
}

static void look_at(const struct tows_worker_pool *pool, struct tows_worker *worker, int64_t now_ns)
{
    struct tows_swap_seat *seat = &worker->swap;
    const struct tows_session_stats *stats = worker->stats;
    uint64_t seen = stats->calls + stats->bytes_in;
    enum tows_suspension phase = worker->suspend.phase;
    if (seen != seat->seen || stats->in_flight != 0 || atomic_load(&stats->leads) != 0) {
        seat->seen = seen;
        seat->moved_ns = now_ns;
    }
    if (seat->phase == TOW_SUSPENSION_BEGINS && phase == TOW_SUSPENSION_NONE) {
        count_failure(pool, worker);
    } else if (seat->phase == TOW_SUSPENSION_BEGINS && phase == TOW_SUSPENSION_AWAY) {
        seat->failures = 0;
    } else if (seat->phase != TOW_SUSPENSION_NONE && phase == TOW_SUSPENSION_NONE) {
        seat->came_ns = seat->moved_ns = now_ns;
    }
    seat->phase = phase;
    bool waits = does_ask(worker) || does_call(worker);
    seat->asked_ns = !waits ? 0 : seat->asked_ns != 0 ? seat->asked_ns : now_ns;
}

/* ---- claims ---- */

static uint64_t believe_bytes(uint64_t bytes)
{
    return bytes < MEMORY_MAX ? bytes : MEMORY_MAX;
}

/* What it has of a GPU. What it was given counts before it has taken it. */
static uint64_t has_of(const struct tows_worker *worker, unsigned gpu)
{
    const struct tows_session_stats *stats = worker->stats;
    if (!worker->limits.swaps) {
        return believe_bytes(stats->charged[gpu]);
    }
    uint64_t has = believe_bytes(atomic_load(&stats->room[gpu]));
    bool taken = atomic_load(&stats->room_taken) == worker->swap.given;
    return !taken && stats->room_gpu == gpu && worker->swap.has > has ? worker->swap.has : has;
}

static enum tows_room_state state_of(const struct tows_worker *worker)
{
    switch (worker->suspend.phase) {
    case TOW_SUSPENSION_BEGINS:
        return TOW_ROOM_LEAVES;
    case TOW_SUSPENSION_AWAY:
        return TOW_ROOM_OUT;
    case TOW_SUSPENSION_ENDS:
        return TOW_ROOM_RETURNS;
    default:
        return TOW_ROOM_IN;
    }
}

static struct tows_room_claim claim_of(struct tows_worker *worker,
                                       const struct tows_swap_card *card, int64_t now_ns)
{
    const struct tows_session_stats *stats = worker->stats;
    const struct tows_swap_seat *seat = &worker->swap;
    bool detached = stats->detached_ns != 0;
    int64_t moved_ns = worker->usage.moved_ns;
    struct tows_room_claim claim = {
        .owner = worker,
        .state = state_of(worker),
        .detached = detached,
        .fixed = !worker->limits.swaps || worker->end_ns != 0 || worker->join_ns != 0 ||
                 seat->fixed_ns > now_ns,
        .stuck = !worker->limits.swaps || (seat->failures >= STUCK && seat->fixed_ns > now_ns),
        .back = does_call(worker),
        .asked_ns = seat->asked_ns,
        .moved_ns = seat->moved_ns > moved_ns ? seat->moved_ns : moved_ns,
        .came_ns = seat->came_ns != 0 ? seat->came_ns : worker->since_ns,
    };
    int32_t device = stats->device;
    for (unsigned i = 0; i < TOW_ROOM_GPUS; i++) {
        uint64_t has = has_of(worker, i);
        claim.kept += has;
        claim.has[i] = has + (has != 0 || device == (int32_t)i ? card->context : 0);
    }
    bool by_hand = claim.state == TOW_ROOM_OUT && !worker->suspend.swapped;
    claim.kept = by_hand                       ? 0
                 : claim.state == TOW_ROOM_OUT ? believe_bytes(stats->saved)
                                               : claim.kept;
    if (does_ask(worker)) {
        uint32_t gpu = stats->room_gpu;
        claim.gpu = gpu < TOW_ROOM_GPUS ? gpu : TOW_ROOM_GPUS - 1;
        uint64_t wanted = believe_bytes(stats->room_wanted), has = has_of(worker, claim.gpu);
        claim.more = wanted > has ? wanted - has : 0;
        claim.more += claim.has[claim.gpu] == 0 ? card->context : 0;
        claim.more = claim.more != 0 ? claim.more : 1;
    }
    return claim;
}

/* ---- what was decided ---- */

static void swap_answer(struct tows_worker *worker, bool gets)
{
    struct tows_session_stats *stats = worker->stats;
    uint32_t number = atomic_load(&stats->room_asked);
    worker->swap.given = number;
    worker->swap.has = gets ? believe_bytes(stats->room_wanted) : 0;
    atomic_store(&stats->room_given, gets);
    atomic_store(&stats->room_answered, number);
    atomic_fetch_add(&stats->room_news, 1);
    tow_futex_wake(&stats->room_news, 1, true);
}

/* Its record first: the next server believes nobody else that he is suspended. */
static void swap_out(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    unsigned doubled = worker->swap.failures;
    doubled = doubled < LIMIT_DOUBLED_MAX ? doubled : LIMIT_DOUBLED_MAX;
    uint32_t limit_ms = (uint32_t)(pool->config->swap_quantum * 1000) << doubled;
    worker->suspend.wanted = worker->suspend.swapped = true;
    tows_meeting_renew(pool, worker);
    atomic_store(&worker->stats->called, 0);
    if (tows_suspend_begin(worker, BY, limit_ms) < 0) {
        worker->suspend.wanted = worker->suspend.swapped = false;
        tows_meeting_renew(pool, worker);
        count_failure(pool, worker);
        return;
    }
    tows_worker_pool_limit(pool, worker);
    worker->swap.swaps++;
}

static void carry_out(struct tows_worker_pool *pool, const struct tows_room_claim *claim)
{
    struct tows_worker *worker = claim->owner;
    switch (claim->verdict) {
    case TOW_ROOM_STAYS:
        break;
    case TOW_ROOM_GETS:
        swap_answer(worker, true);
        break;
    case TOW_ROOM_REFUSED:
        swap_answer(worker, false);
        break;
    case TOW_ROOM_GOES_OUT:
        swap_out(pool, worker);
        break;
    case TOW_ROOM_COMES_BACK:
        tows_suspend_return(worker, "its program needs the GPU, and there is room");
        break;
    }
}

static bool is_session(const struct tows_worker *worker)
{
    return worker->state == TOW_WORKER_BUSY && worker->join_ns == 0;
}

void tows_swap_drive(struct tows_worker_pool *pool, const struct tows_swap_card *card)
{
    int64_t now_ns = tow_time_now_ns();
    unsigned count = 0, wanted = 0;
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (is_session(worker)) {
            look_at(pool, worker, now_ns);
            count++;
            wanted += worker->swap.asked_ns != 0;
        }
    }
    struct tows_room_claim *claims = wanted > 0 ? calloc(count, sizeof *claims) : NULL;
    if (claims == NULL) {
        return;
    }
    const struct tows_room by = {
        .card = card->bytes, .quantum_ns = quantum_ns(pool), .host = pool->config->swap_memory};
    count = 0;
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (is_session(worker)) {
            claims[count++] = claim_of(worker, card, now_ns);
        }
    }
    tows_room_decide(&by, claims, count, now_ns);
    for (unsigned i = 0; i < count; i++) {
        carry_out(pool, &claims[i]);
    }
    free(claims);
}

int64_t tows_swap_next(const struct tows_worker_pool *pool)
{
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (is_session(worker) && worker->swap.asked_ns != 0) {
            return tow_time_deadline(LOOK_NS);
        }
    }
    return TOW_TIME_FOREVER;
}

uint64_t tows_swap_used(const struct tows_worker_pool *pool)
{
    uint64_t sum = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        bool out = is_session(worker) && worker->suspend.swapped && tows_suspend_is_away(worker);
        sum += out ? believe_bytes(worker->stats->saved) : 0;
    }
    return sum;
}

/* ---- orders ---- */

void tows_swap_keep(struct tows_worker_pool *pool, struct tows_worker *worker, const char *by)
{
    worker->suspend.swapped = worker->suspend.recalled = false;
    snprintf(worker->suspend.by, sizeof worker->suspend.by, "%s", by);
    tows_meeting_renew(pool, worker);
}

void tows_swap_recall(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    worker->suspend.swapped = worker->suspend.recalled = true;
    tows_meeting_renew(pool, worker);
}
