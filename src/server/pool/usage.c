/* SPDX-License-Identifier: Apache-2.0 */
/* Measures workers, and chooses which of them end. */
#include "server/pool/usage.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/pool/machine.h"
#include "server/pool/worker_pool.h"

#define SESSION_MIN (UINT64_C(4) << 30) /* of session-memory, where nobody sets it */
#define SAVED_MAX (UINT64_C(1) << 48)   /* more is not believed: sums must not overflow */
#define GROWS_MIN (UINT64_C(1) << 20)   /* less in one look is nothing to look again for */

enum {
    QUIET_MAX = 3,    /* a session that does nothing is looked at every 2^3 s */
    WEIGHT = 100,     /* of a control group, where nobody sets it */
    THREADS_MIN = 64, /* that every session may have, whatever others do */
};

void tows_usage_defaults(struct tows_config *config)
{
    uint64_t machine = tows_machine_memory();
    if (config->session_memory == 0) {
        config->session_memory = machine / 2 > SESSION_MIN ? machine / 2 : SESSION_MIN;
    }
    if (config->memory == 0) {
        config->memory = machine - machine / 5;
    }
    if (config->threads == 0) {
        config->threads = tows_machine_threads() / 2;
    }
    if (config->swap_memory == 0) {
        config->swap_memory = machine / 2;
    }
    bool private = config->private_dir[0] != '\0';
    if (config->memory_per_peer == 0) {
        config->memory_per_peer = private ? config->memory : config->memory - config->memory / 4;
    }
    if (config->code_cache_per_peer == 0) {
        config->code_cache_per_peer =
            private ? config->code_cache : config->code_cache - config->code_cache / 4;
    }
}

/* ---- measuring ---- */

static uint64_t memory_without(uint64_t all, uint64_t part)
{
    return all > part ? all - part : 0;
}

/* What the software GPU has given out, which is host memory. */
static uint64_t device_memory(const struct tows_session_stats *stats)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < stats->used_count && i < TOW_STATS_GPUS_MAX; i++) {
        sum += stats->used[i];
    }
    return sum;
}

/* What a suspended session keeps of its GPU memory. The worker says it, and may lie. */
static uint64_t saved_memory(const struct tows_worker *worker)
{
    bool counts = tows_suspend_is_away(worker) && !worker->suspend.swapped; /* swap-memory */
    uint64_t saved = counts ? worker->stats->saved : 0;
    return saved < SAVED_MAX ? saved : SAVED_MAX;
}

/* The software GPU's lies in a file that no process has mapped. NVIDIA's driver has it in the
 * worker's own memory. */
static bool is_apart(const struct tows_worker *worker)
{
    return worker->stats->used_count != 0;
}

/* What is no memory of the program's in the worker's own, while its session is suspended. */
static uint64_t kept_inside(const struct tows_worker *worker)
{
    bool kept = tows_suspend_is_away(worker) && !is_apart(worker);
    uint64_t saved = worker->stats->saved;
    return !kept ? 0 : TOW_SUSPENSION_MORE + (saved < SAVED_MAX ? saved : SAVED_MAX);
}

/* Whether it has changed, or may have: a worker in its client's hands says what it likes. */
static bool is_due(struct tows_worker *worker)
{
    struct tows_usage *usage = &worker->usage;
    uint64_t seen = worker->stats->calls + worker->stats->bytes_in;
    if (tows_suspend_moves(worker)) {
        return false; /* its memory is in two places */
    }
    bool same = seen == usage->seen;
    if (!same || worker->stats->in_flight != 0) {
        usage->moved_ns = tow_time_now_ns();
    }
    if (same && !tow_time_passed(usage->look_ns)) {
        return false;
    }
    usage->seen = seen;
    usage->quiet = !same ? 0 : usage->quiet < QUIET_MAX ? usage->quiet + 1 : QUIET_MAX;
    usage->look_ns = tow_time_deadline(TOW_TIME_S << usage->quiet);
    return true;
}

/* True: it grows. */
static bool usage_measure(struct tows_worker *worker)
{
    static bool told;
    struct tows_usage *usage = &worker->usage;
    struct tows_machine_process process;
    int error = tows_machine_look(worker->pid, &process);
    if (error < 0) {
        if (!told) {
            tow_log(TOW_AREA_SERVER, TOW_LOG_WARN,
                    "/proc does not say what workers hold, so that session-memory, memory and "
                    "memory-per-peer do not hold: mount it without hidepid");
        }
        told = true;
        return false;
    }
    uint64_t before = usage->memory;
    unsigned threads = usage->threads;
    usage->threads = process.threads;
    usage->descriptors = process.descriptors;
    /* What its program shares with it is the program's own. */
    uint64_t saved = saved_memory(worker), device = device_memory(worker->stats);
    usage->memory = memory_without(process.anonymous, kept_inside(worker)) +
                    memory_without(process.shared, worker->stats->shared) + saved;
    usage->host = memory_without(usage->memory, device + saved);
    usage->holds = process.anonymous;
    worker->stats->host = usage->host;
    usage->most = usage->host > usage->most ? usage->host : usage->most;
    return usage->memory > before + GROWS_MIN || usage->threads > threads + THREADS_MIN / 2;
}

/* ---- who goes ---- */

#define MIB(bytes) ((unsigned long long)((bytes) >> 20))

static bool is_counted(const struct tows_worker *worker)
{
    return worker->state == TOW_WORKER_BUSY && worker->end_ns == 0;
}

uint64_t tows_usage_memory(const struct tows_worker_pool *pool, const struct tows_who *who)
{
    uint64_t sum = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        bool wanted = is_counted(worker) && (who == NULL || tows_who_same(&worker->who, who));
        sum += wanted ? worker->usage.memory : 0;
    }
    return sum;
}

/* The software GPU's memory is host memory already. */
bool tows_usage_has_room(const struct tows_worker_pool *pool, const struct tows_worker *worker,
                         char *why, size_t size)
{
    const struct tows_config *config = pool->config;
    uint64_t more = memory_without(worker->stats->memory, device_memory(worker->stats));
    more = more < SAVED_MAX ? more : SAVED_MAX;
    uint64_t all = tows_usage_memory(pool, NULL), own = tows_usage_memory(pool, &worker->who);
    bool fits = all + more <= config->memory && own + more <= config->memory_per_peer;
    if (more > 0 && !fits) {
        snprintf(why, size,
                 "its %llu MiB of GPU memory would lie in the server's host memory, and that is "
                 "more than %s leaves",
                 MIB(more), all + more > config->memory ? "memory" : "memory-per-peer");
        return false;
    }
    return true;
}

/* NVIDIA's driver puts out more than the program's memory: what contexts take. That is in what the
 * worker holds, beside memory that never was on a GPU. */
uint64_t tows_usage_returns(const struct tows_worker *worker)
{
    uint64_t saved = saved_memory(worker), held = worker->usage.holds;
    uint64_t most = saved + TOW_SUSPENSION_MORE;
    return is_apart(worker) ? 0 : held < saved ? saved : held < most ? held : most;
}

struct peer {
    const struct tows_who *who; /* borrowed from a worker; NULL: nobody */
    uint64_t memory;
    unsigned sessions;
};

static struct peer peer_of(const struct tows_worker_pool *pool, const struct tows_worker *worker)
{
    struct peer peer = {.who = &worker->who};
    for (const struct tows_worker *other = pool->workers; other != NULL; other = other->next) {
        if (is_counted(other) && tows_who_same(&other->who, peer.who)) {
            peer.memory += other->usage.memory;
            peer.sessions++;
        }
    }
    return peer;
}

/* The peer that holds most. */
static struct peer largest_peer(const struct tows_worker_pool *pool)
{
    struct peer largest = {0};
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        struct peer peer = is_counted(worker) ? peer_of(pool, worker) : (struct peer){0};
        if (peer.memory > largest.memory) {
            largest = peer;
        }
    }
    return largest;
}

/* Each is counted with the first of its sessions in the list. */
static unsigned count_peers(const struct tows_worker_pool *pool)
{
    unsigned count = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        const struct tows_worker *first = pool->workers;
        while (first != worker &&
               !(is_counted(first) && tows_who_same(&first->who, &worker->who))) {
            first = first->next;
        }
        count += first == worker && is_counted(worker);
    }
    return count;
}

/* Of a peer that holds too much: the youngest session that holds half of an equal share at
 * least. Who has worked for long loses most, and many small ones do not drive out the one that was
 * there before them. */
static struct tows_worker *usage_choose(const struct tows_worker_pool *pool,
                                        const struct peer *peer)
{
    struct tows_worker *chosen = NULL;
    uint64_t least = peer->sessions > 0 ? peer->memory / peer->sessions / 2 : 0;
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (is_counted(worker) && tows_who_same(&worker->who, peer->who) &&
            worker->usage.memory >= least &&
            (chosen == NULL || worker->session > chosen->session)) {
            chosen = worker;
        }
    }
    return chosen;
}

/* Where all together hold too much: of those peers that hold at least half of an equal part of what
 * may be held, the one whose session is the youngest. So whoever stays below that loses nothing;
 * and who was there first, and holds no more than half of all, is not driven out by many small
 * peers that come later: below that half part each they hold too little to fill the rest. */
static struct peer peer_to_lose(const struct tows_worker_pool *pool, uint64_t most)
{
    struct peer chosen = {0};
    unsigned peers = count_peers(pool);
    uint64_t least = peers > 0 ? most / peers / 2 : 0, youngest = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        struct peer peer = is_counted(worker) ? peer_of(pool, worker) : (struct peer){0};
        const struct tows_worker *last = peer.memory >= least ? usage_choose(pool, &peer) : NULL;
        if (last != NULL && last->session > youngest) {
            youngest = last->session;
            chosen = peer;
        }
    }
    return chosen;
}

/* One at a time: its memory is not counted any more, and comes back soon. */
static void end_those_together(struct tows_worker_pool *pool)
{
    const struct tows_config *config = pool->config;
    uint64_t all;
    char why[256], text[TOW_WHO_TEXT_MAX];
    while ((all = tows_usage_memory(pool, NULL)) > config->memory_per_peer ||
           all > config->memory) {
        struct peer peer = largest_peer(pool);
        if (peer.memory <= config->memory_per_peer) {
            peer = all > config->memory ? peer_to_lose(pool, config->memory) : (struct peer){0};
        }
        struct tows_worker *worker = peer.who != NULL ? usage_choose(pool, &peer) : NULL;
        if (worker == NULL) {
            return;
        }
        if (peer.memory > config->memory_per_peer) {
            snprintf(why, sizeof why,
                     "the %u sessions of %s hold %llu MiB of host memory there, and may have %llu "
                     "MiB (memory-per-peer); this is the last of them that holds its share",
                     peer.sessions, tows_who_text(peer.who, text), MIB(peer.memory),
                     MIB(config->memory_per_peer));
        } else {
            snprintf(why, sizeof why,
                     "all sessions there hold %llu MiB of host memory, and may have %llu MiB "
                     "(memory); %s has %llu MiB, at least half of an equal part, and this is the "
                     "last session of those who have",
                     MIB(all), MIB(config->memory), tows_who_text(peer.who, text),
                     MIB(peer.memory));
        }
        tows_worker_pool_dismiss(pool, worker, why);
    }
}

/* ---- those who hold too much, or want nothing ---- */

static int64_t usage_moved(const struct tows_worker *worker)
{
    if (atomic_load(&worker->stats->detached_ns) != 0 ||
        (worker->suspend.phase != TOW_SUSPENSION_NONE && !tows_suspend_is_idle(worker))) {
        return tow_time_now_ns(); /* its program cannot say what it wants */
    }
    return worker->usage.moved_ns != 0 ? worker->usage.moved_ns : worker->since_ns;
}

uint64_t tows_usage_idle(const struct tows_worker *worker)
{
    int64_t moved_ns = usage_moved(worker); /* which may be now */
    return (uint64_t)(tow_time_now_ns() - moved_ns) / TOW_TIME_S;
}

static void end_those_alone(struct tows_worker_pool *pool)
{
    int64_t now_ns = tow_time_now_ns();
    char why[TOW_POLICY_WHY_MAX];
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        struct tows_policy_use use = {.host_memory = worker->usage.host,
                                      .moved_ns = usage_moved(worker)};
        if (is_counted(worker) && tows_policy_must_end(&worker->limits, &use, now_ns, why)) {
            tows_worker_pool_dismiss(pool, worker, why);
        }
    }
}

/* ---- processors, for kernels of the software GPU ---- */

/* Which of its peer's sessions it is, the oldest being the first. */
static unsigned rank_of(const struct tows_worker_pool *pool, const struct tows_worker *worker)
{
    unsigned rank = 1;
    for (const struct tows_worker *other = pool->workers; other != NULL; other = other->next) {
        rank += is_counted(other) && other->session < worker->session &&
                tows_who_same(&other->who, &worker->who);
    }
    return rank;
}

/* The kernel gives a thread of nice n+1 four fifths of what one of nice n gets: the rank-th session
 * of a peer is to have a rank-th of the first. */
static int nice_of(unsigned rank)
{
    int nice = 0;
    for (double share = rank; share > 1.12 && nice < PRIO_MAX - 1; share /= 1.25) {
        nice++;
    }
    return nice;
}

static bool has_several_peers(const struct tows_worker_pool *pool)
{
    const struct tows_worker *first = NULL;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (is_counted(worker) && first == NULL) {
            first = worker;
        } else if (is_counted(worker) && !tows_who_same(&first->who, &worker->who)) {
            return true;
        }
    }
    return false;
}

/* Who has many sessions does not get most of the cores while others want some: each further session
 * of a peer yields more. Where nobody else wants them it costs nothing. A group's weight is
 * compared with those of other groups, a nice value only within one, and it cannot be taken back.
 */
static void share_processors(struct tows_worker_pool *pool)
{
    if (pool->config->soft_fair == 0 || strcmp(pool->backend, "soft") != 0 ||
        !has_several_peers(pool)) {
        return;
    }
    int own = tows_starter_nice(&pool->starter);
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        unsigned rank = is_counted(worker) ? rank_of(pool, worker) : 1;
        unsigned weight = rank < WEIGHT ? WEIGHT / rank : 1;
        int nice = nice_of(rank);
        if (weight != worker->usage.weight &&
            tows_starter_weigh(&pool->starter, worker->number, weight)) {
            worker->usage.weight = weight;
        }
        /* In a group of its own it does not matter, unless that has no part of its own. */
        if (nice > worker->usage.nice) {
            worker->usage.nice = nice;
            tows_starter_yield(&pool->starter, worker->number,
                               own + nice < PRIO_MAX ? own + nice : PRIO_MAX - 1);
        }
    }
}

/* ---- threads ---- */

uint64_t tows_usage_threads(const struct tows_worker_pool *pool)
{
    uint64_t sum = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        sum += worker->usage.threads;
    }
    return sum;
}

/* Half of what is free is shared out, so that all together do not go beyond the limit before they
 * are looked at again, and one alone gets as many as it may. */
void tows_usage_allow_threads(struct tows_worker_pool *pool)
{
    uint64_t used = tows_usage_threads(pool), most = pool->config->threads;
    unsigned busy = tows_worker_pool_count(pool, TOW_WORKER_BUSY, NULL);
    uint64_t more = memory_without(most, used) / (2 * ((uint64_t)busy + 1));
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        uint64_t allowed = worker->usage.threads + more;
        allowed = allowed > UINT32_MAX ? UINT32_MAX : allowed;
        worker->stats->threads_max = allowed > THREADS_MIN ? (uint32_t)allowed : THREADS_MIN;
    }
}

bool tows_usage_look(struct tows_worker_pool *pool)
{
    bool grows = false;
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (is_counted(worker) && is_due(worker)) {
            grows |= usage_measure(worker);
        }
    }
    tows_usage_allow_threads(pool);
    share_processors(pool);
    end_those_alone(pool);
    end_those_together(pool);
    return grows;
}
