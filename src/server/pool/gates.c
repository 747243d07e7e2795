/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what workers say, has it decided, and tells them. */
#include "server/pool/gates.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/pool/worker_pool.h"
#include "server/worker/worker_msg.h"

/* How often it is looked who computes, while turns could be needed. */
#define LOOK_NS (100 * TOW_TIME_MS)
/* For so long nobody needed turns: they end. */
#define QUIET_NS TOW_TIME_S
/* After turns that nobody needed. */
#define RETRY_NS (10 * TOW_TIME_S)

enum { GPUS = TOW_STATS_GPUS_MAX };

static bool takes_turns(const struct tows_worker *worker)
{
    return worker->state == TOW_WORKER_BUSY && worker->join_ns == 0 && worker->limits.turns;
}

static struct tows_worker *next_of(struct tows_worker *worker)
{
    while (worker != NULL && !takes_turns(worker)) {
        worker = worker->next;
    }
    return worker;
}

static struct tows_worker *first_of(const struct tows_worker_pool *pool)
{
    return next_of(pool->workers);
}

/* ---- words ---- */

/* `again`: also if it is the same, so that the worker shows that it follows. */
static void put_word(struct tows_worker *worker, unsigned gpu, enum tows_gate_state state,
                     bool again)
{
    _Atomic uint32_t *at = &worker->stats->gate[gpu];
    uint32_t word = atomic_load(at);
    if (TOW_GATE_STATE(word) == (uint32_t)state && !again) {
        return;
    }
    atomic_store(at, ((word & ~(TOW_GATE_STEP - 1)) + TOW_GATE_STEP) | (uint32_t)state);
    if (worker->seat.unseen_ns[gpu] == 0) {
        worker->seat.unseen_ns[gpu] = tow_time_now_ns();
    }
    atomic_fetch_add(&worker->stats->gate_news, 1);
    tow_futex_wake(&worker->stats->gate_news, 1, true);
}

/* Where nobody takes turns, but for those that have only a part of the time. */
static enum tows_gate_state word_without_turns(const struct tows_worker *worker)
{
    return worker->limits.compute != 0 ? TOW_GATE_SHUT : TOW_GATE_OFF;
}

/* A worker that stands, or that does not listen, has no turn. */
static bool does_follow(struct tows_worker *worker, unsigned gpu, int64_t now_ns)
{
    const struct tows_session_stats *stats = worker->stats;
    int64_t *unseen_ns = &worker->seat.unseen_ns[gpu];
    if (atomic_load(&stats->gate_seen[gpu]) == atomic_load(&stats->gate[gpu])) {
        *unseen_ns = 0;
    }
    return *unseen_ns == 0 || now_ns - *unseen_ns < TOW_TURNS_QUANTUM_NS;
}

/* ---- who takes turns ---- */

static void take_seat(struct tows_gate_gpu *gpu, struct tows_worker *worker, unsigned number)
{
    struct tows_seat *seat = &worker->seat;
    struct tows_turn *turn = &seat->turns[number];
    turn->owner = worker;
    turn->weight = worker->limits.share;
    turn->priority = worker->limits.priority;
    turn->percent = worker->limits.compute;
    seat->seated[number] |= !seat->seated[number] && tows_turns_add(&gpu->turns, turn) == 0;
}

static struct tows_gate_gpu *gpu_of(struct tows_gates *gates, unsigned number)
{
    if (gates->gpus[number] == NULL) {
        gates->gpus[number] = calloc(1, sizeof *gates->gpus[number]);
    }
    return gates->gpus[number];
}

static void begin_turns(struct tows_worker_pool *pool, unsigned number)
{
    struct tows_gate_gpu *gpu = gpu_of(&pool->gates, number);
    if (gpu == NULL || gpu->on) {
        return;
    }
    gpu->on = true;
    gpu->needed = false;
    gpu->quiet_ns = 0;
    gpu->turns.now_ns = 0;
    gpu->turns.slice_ns = TOW_TIME_FOREVER;
    for (struct tows_worker *worker = first_of(pool); worker != NULL;
         worker = next_of(worker->next)) {
        take_seat(gpu, worker, number);
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_DEBUG, "GPU %u: sessions take turns", number);
}

static void end_turns(struct tows_worker_pool *pool, unsigned number)
{
    struct tows_gate_gpu *gpu = pool->gates.gpus[number];
    gpu->on = false;
    gpu->retry_ns = gpu->needed ? 0 : tow_time_deadline(RETRY_NS);
    for (struct tows_worker *worker = first_of(pool); worker != NULL;
         worker = next_of(worker->next)) {
        worker->seat.turns[number].may = false;
        put_word(worker, number, word_without_turns(worker), false);
    }
    tow_log(TOW_AREA_SERVER, TOW_LOG_DEBUG, "GPU %u: nobody takes turns", number);
}

/* Two that launch, or two that call: it may be copies, it may be nothing. */
static void look_who_computes(struct tows_worker_pool *pool)
{
    unsigned launch[GPUS] = {0}, call[GPUS] = {0};
    for (struct tows_worker *worker = first_of(pool); worker != NULL;
         worker = next_of(worker->next)) {
        struct tows_seat *seat = &worker->seat;
        uint64_t launches = worker->stats->launches, calls = worker->stats->calls;
        int32_t device = worker->stats->device;
        if (device >= 0 && device < GPUS) {
            launch[device] += launches != seat->launches;
            call[device] += calls != seat->calls;
        }
        seat->launches = launches;
        seat->calls = calls;
    }
    for (unsigned i = 0; i < GPUS; i++) {
        const struct tows_gate_gpu *gpu = pool->gates.gpus[i];
        if (launch[i] > 1 || (call[i] > 1 && (gpu == NULL || tow_time_passed(gpu->retry_ns)))) {
            begin_turns(pool, i);
        }
    }
}

/* ---- turns ---- */

/* What workers say. Returns how many want the GPU; more where one of them is capped. */
static unsigned hear_workers(struct tows_worker_pool *pool, unsigned number, int64_t now_ns)
{
    unsigned count = 0;
    for (struct tows_worker *worker = first_of(pool); worker != NULL;
         worker = next_of(worker->next)) {
        struct tows_turn *turn = &worker->seat.turns[number];
        bool here = does_follow(worker, number, now_ns) && !tows_suspend_is_away(worker);
        turn->wants = here && atomic_load(&worker->stats->wants[number]) != 0;
        turn->works = here && atomic_load(&worker->stats->works[number]) != 0;
        turn->group = worker->seat.group;
        count += turn->wants || turn->works ? 1 + (turn->percent != 0) : 0;
    }
    return count;
}

static void drive_gpu(struct tows_worker_pool *pool, unsigned number, int64_t now_ns)
{
    struct tows_gate_gpu *gpu = pool->gates.gpus[number];
    tows_turns_count(&gpu->turns, now_ns); /* what has passed was as it was heard before */
    bool needed = hear_workers(pool, number, now_ns) > 1;
    gpu->needed |= needed;
    if (needed || gpu->quiet_ns == 0) {
        gpu->quiet_ns = needed ? 0 : now_ns;
    } else if (now_ns - gpu->quiet_ns >= QUIET_NS) {
        end_turns(pool, number);
        return;
    }
    int64_t slice_ns = gpu->turns.slice_ns;
    tows_turns_decide(&gpu->turns, now_ns);
    bool next_slice = gpu->turns.slice_ns != slice_ns; /* it may be the same one's again */
    for (struct tows_worker *worker = first_of(pool); worker != NULL;
         worker = next_of(worker->next)) {
        bool may = worker->seat.turns[number].may || !worker->seat.seated[number];
        put_word(worker, number, may ? TOW_GATE_OPEN : TOW_GATE_SHUT, may && next_slice);
    }
}

/* One that has only a part of the time waits already. */
static void hear_capped(struct tows_worker_pool *pool)
{
    for (struct tows_worker *worker = first_of(pool); worker != NULL;
         worker = next_of(worker->next)) {
        for (unsigned i = 0; worker->limits.compute != 0 && i < GPUS; i++) {
            if (atomic_load(&worker->stats->wants[i]) != 0) {
                begin_turns(pool, i);
            }
        }
    }
}

void tows_gates_drive(struct tows_worker_pool *pool)
{
    struct tows_gates *gates = &pool->gates;
    if (first_of(pool) == NULL) {
        return;
    }
    if (tow_time_passed(gates->look_ns)) {
        look_who_computes(pool);
        gates->look_ns = tow_time_deadline(LOOK_NS);
    }
    hear_capped(pool);
    int64_t now_ns = tow_time_now_ns();
    for (unsigned i = 0; i < GPUS; i++) {
        if (gates->gpus[i] != NULL && gates->gpus[i]->on) {
            drive_gpu(pool, i, now_ns);
        }
    }
}

static bool several_sessions(const struct tows_worker_pool *pool)
{
    struct tows_worker *first = first_of(pool);
    return first != NULL && next_of(first->next) != NULL;
}

int64_t tows_gates_next(const struct tows_worker_pool *pool)
{
    const struct tows_gates *gates = &pool->gates;
    int64_t now_ns = tow_time_now_ns();
    int64_t next = several_sessions(pool) ? gates->look_ns : TOW_TIME_FOREVER;
    for (unsigned i = 0; i < GPUS; i++) {
        const struct tows_gate_gpu *gpu = gates->gpus[i];
        if (gpu == NULL || !gpu->on) {
            continue;
        }
        int64_t moment = tows_turns_next(&gpu->turns);
        moment = gpu->quiet_ns != 0 && gpu->quiet_ns + QUIET_NS < moment ? gpu->quiet_ns + QUIET_NS
                                                                         : moment;
        next = moment < next ? moment : next;
    }
    for (struct tows_worker *worker = first_of(pool); worker != NULL;
         worker = next_of(worker->next)) {
        for (unsigned i = 0; i < GPUS; i++) {
            int64_t moment = worker->seat.unseen_ns[i] + TOW_TURNS_QUANTUM_NS;
            next = moment > now_ns && moment < next ? moment : next;
        }
    }
    return next;
}

void tows_gates_begin(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    if (!worker->limits.turns) {
        return;
    }
    for (unsigned i = 0; i < GPUS; i++) {
        struct tows_gate_gpu *gpu = pool->gates.gpus[i];
        bool on = gpu != NULL && gpu->on;
        if (on) {
            take_seat(gpu, worker, i);
        }
        put_word(worker, i, on ? TOW_GATE_SHUT : word_without_turns(worker), false);
        worker->seat.unseen_ns[i] = 0; /* it does not listen yet */
    }
}

void tows_gates_end(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    for (unsigned i = 0; i < GPUS; i++) {
        if (worker->seat.seated[i]) {
            tows_turns_remove(&pool->gates.gpus[i]->turns, &worker->seat.turns[i]);
        }
    }
}

void tows_gates_join(struct tows_worker_pool *pool, struct tows_worker *one,
                     struct tows_worker *other)
{
    uint64_t group = one->seat.group != 0 ? one->seat.group : one->session + 1;
    uint64_t old = other->seat.group;
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (old != 0 && worker->seat.group == old) {
            worker->seat.group = group;
        }
    }
    one->seat.group = other->seat.group = group;
}

uint64_t tows_gates_time(const struct tows_worker *worker)
{
    uint64_t ns = worker->stats->gpu_ns;
    for (unsigned i = 0; ns == 0 && i < GPUS; i++) {
        ns += worker->seat.turns[i].used_ns;
    }
    return ns;
}

void tows_gates_fini(struct tows_gates *gates)
{
    for (unsigned i = 0; i < GPUS; i++) {
        free(gates->gpus[i]);
        gates->gpus[i] = NULL;
    }
}
