/* SPDX-License-Identifier: Apache-2.0 */
/* Makes claims of connections and workers, and carries out what was decided about them. */
#include "server/listener/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_read.h"
#include "base/log.h"

/* What a session has of a real GPU beside its quota: 525 MiB were measured, of a large one. */
#define CONTEXT_MEMORY (UINT64_C(560) << 20)

enum { ROOM_MIN = 64 };

/* ---- the machine ---- */

/* The memory of the smallest GPU, from what a worker has said of them. */
static uint64_t read_card(const char *devices)
{
    struct tow_json_doc doc;
    uint64_t least = 0;
    if (tow_json_doc_parse(devices, strlen(devices), &doc) < 0) {
        return 0;
    }
    const struct tow_json_value *device = NULL;
    while ((device = tow_json_next(&doc, doc.values, device)) != NULL) {
        double memory = tow_json_number(&doc, device, "memory");
        uint64_t bytes = memory > 0 ? (uint64_t)memory : 0;
        least = least == 0 || bytes < least ? bytes : least;
    }
    tow_json_doc_fini(&doc);
    return least;
}

static struct tows_admission describe_server(struct tows_queue *queue,
                                             const struct tows_config *config,
                                             const struct tows_worker_pool *pool)
{
    bool real = strcmp(pool->backend, "cuda") == 0;
    if (queue->card == 0 && pool->devices != NULL) {
        queue->card = read_card(pool->devices);
    }
    return (struct tows_admission){
        .config = config,
        .card = queue->card,
        .context = config->context_memory != TOW_CONFIG_UNSAID ? config->context_memory
                   : real                                      ? CONTEXT_MEMORY
                                                               : 0,
        .ready = tows_worker_pool_count(pool, TOW_WORKER_IDLE, NULL),
    };
}

/* Contexts of workers that are started ahead are there whoever else is. */
struct tows_swap_card tows_queue_card(struct tows_queue *queue, const struct tows_config *config,
                                      const struct tows_worker_pool *pool)
{
    struct tows_admission by = describe_server(queue, config, pool);
    uint64_t spare = tows_admission_spare(&by);
    return (struct tows_swap_card){.bytes = by.card > spare ? by.card - spare : by.card,
                                   .context = by.context};
}

/* ---- claims ---- */

/* The caller's sessions and programs are counted from here on. */
static void begin_caller(struct tows_queue *queue, const struct tows_worker_pool *pool,
                         struct tows_caller *caller)
{
    if (caller->round == queue->round) {
        return;
    }
    caller->round = queue->round;
    caller->claims.who = &caller->who;
    caller->claims.waits = 0;
    caller->sessions = tows_worker_pool_count_for(pool, TOW_WORKER_BUSY, &caller->who);
    caller->claims.runs = caller->sessions;
}

static struct tows_claimant *find_claimant(const struct tows_queue *queue,
                                           const struct tows_door *door, const struct tows_who *who)
{
    for (struct tows_caller *caller = door->callers; caller != NULL; caller = caller->next) {
        if (caller->round == queue->round && tows_who_same(&caller->who, who)) {
            return &caller->claims;
        }
    }
    return NULL;
}

static struct tows_claim claim_of_worker(const struct tows_queue *queue,
                                         const struct tows_policy *policy,
                                         const struct tows_door *door, struct tows_worker *worker)
{
    return (struct tows_claim){
        .owner = worker,
        .class = tows_policy_find(policy, worker->who.class),
        .claimant = worker->limits.lease != 0 ? find_claimant(queue, door, &worker->who) : NULL,
        .runs = true,
        .ending = worker->end_ns != 0,
        .suspended = tows_suspend_is_away(worker) && !worker->suspend.swapped,
        .exclusive = worker->limits.exclusive,
        .gpu_memory = worker->limits.gpu_memory,
        .lease_s = worker->limits.lease,
        .since_ns = worker->since_ns,
        .number = worker->session,
    };
}

struct tows_limits tows_queue_limits(const struct tows_config *config,
                                     const struct tows_policy *policy,
                                     const struct tows_pending_conn *conn)
{
    struct tows_limits limits = tows_policy_limits(
        config, tows_policy_find(policy, conn->who.class), conn->gpu_memory, &conn->wish);
    bool swaps = config->overcommit == TOW_CONFIG_SWAPS;
    if (conn->left != 0 && (limits.gpu_memory == 0 || conn->left < limits.gpu_memory)) {
        limits.gpu_memory = conn->left;
        snprintf(limits.gpu_memory_from, sizeof limits.gpu_memory_from, "%s",
                 swaps ? "what the GPU has beside contexts: overcommit = swap"
                       : "what others were not promised: overcommit = no");
    }
    limits.swaps = swaps && limits.gpu_memory != 0;
    return limits;
}

static struct tows_claim claim_of_program(const struct tows_config *config,
                                          const struct tows_policy *policy,
                                          struct tows_pending_conn *conn, uint64_t number)
{
    conn->left = 0;
    struct tows_limits limits = tows_queue_limits(config, policy, conn);
    return (struct tows_claim){
        .owner = conn,
        .class = tows_policy_find(policy, conn->who.class),
        .claimant = &conn->caller->claims,
        .exclusive = limits.exclusive,
        .forbidden = limits.forbidden,
        .gpu_memory = limits.gpu_memory,
        .priority = limits.priority,
        .since_ns = conn->came_ns,
        .number = number,
        .wait_s = conn->wish.wait_s,
    };
}

/* Programs first, so that callers are known when sessions ask for them. -1: no memory. */
static int fill_claims(struct tows_queue *queue, const struct tows_config *config,
                       const struct tows_policy *policy, struct tows_worker_pool *pool,
                       struct tows_door *door)
{
    unsigned needed = door->count + tows_worker_pool_count(pool, TOW_WORKER_BUSY, NULL), count = 0;
    if (needed > queue->room) {
        unsigned room = needed + needed / 2 + ROOM_MIN;
        struct tows_claim *claims = realloc(queue->claims, room * sizeof *claims);
        if (claims == NULL) {
            return -1;
        }
        queue->claims = claims;
        queue->room = room;
    }
    queue->round++;
    for (struct tows_pending_conn *conn = door->conns; conn != NULL; conn = conn->next) {
        if (conn->state == TOW_CONN_PROGRAM) {
            begin_caller(queue, pool, conn->caller);
            queue->claims[count] = claim_of_program(config, policy, conn, count);
            count++;
        }
    }
    for (struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (worker->state == TOW_WORKER_BUSY) {
            queue->claims[count++] = claim_of_worker(queue, policy, door, worker);
        }
    }
    return (int)count;
}

/* ---- what was decided ---- */

static void give_way(struct tows_worker_pool *pool, struct tows_worker *worker)
{
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "others wait, and it has had the GPU for longer than the %llu s that it may (lease)",
             (unsigned long long)worker->limits.lease);
    tows_worker_pool_dismiss(pool, worker, sentence);
}

void tows_queue_decide(struct tows_queue *queue, const struct tows_config *config,
                       const struct tows_policy *policy, struct tows_worker_pool *pool,
                       struct tows_door *door)
{
    struct tows_admission by = describe_server(queue, config, pool);
    int64_t now_ns = tow_time_now_ns();
    int count = fill_claims(queue, config, policy, pool, door);
    if (count < 0) {
        return; /* whoever was admitted before still is */
    }
    tows_admission_decide(&by, queue->claims, (unsigned)count, now_ns);
    for (int i = 0; i < count; i++) {
        const struct tows_claim *claim = &queue->claims[i];
        char why[TOW_POLICY_WHY_MAX];
        struct tows_pending_conn *conn = claim->owner;
        switch (claim->verdict) {
        case TOW_VERDICT_RUNS:
            break;
        case TOW_VERDICT_GIVES_WAY:
            give_way(pool, claim->owner);
            break;
        case TOW_VERDICT_STARTS:
            conn->left = claim->left;
            tows_pending_conn_queue(conn, (struct tows_place){.place = 0});
            break;
        case TOW_VERDICT_WAITS:
            tows_pending_conn_queue(conn,
                                    (struct tows_place){claim->place, claim->of, claim->wait_for});
            break;
        case TOW_VERDICT_REFUSED:
            tows_admission_explain(&by, claim, now_ns, why);
            tows_pending_conn_refuse(
                conn, tows_admission_is_final(claim) ? TOW_REFUSE_TOKEN : TOW_REFUSE_BUSY, why);
            break;
        }
    }
}

static const char *explain_return(enum tow_wait_for wait_for)
{
    switch (wait_for) {
    case TOW_WAIT_EXCLUSIVE:
        return "another program has the GPU for itself alone (exclusive)";
    case TOW_WAIT_ALONE:
        return "it had the GPU for itself alone (exclusive), and other programs use it";
    default:
        return "the GPU's memory is promised to other programs (overcommit = no)";
    }
}

int tows_queue_return(struct tows_queue *queue, const struct tows_config *config,
                      const struct tows_policy *policy, struct tows_worker_pool *pool,
                      struct tows_door *door, const struct tows_worker *worker, char *ret_why,
                      size_t size)
{
    struct tows_admission by = describe_server(queue, config, pool);
    int count = fill_claims(queue, config, policy, pool, door);
    for (int i = 0; i < count; i++) {
        if (queue->claims[i].owner == worker) {
            enum tow_wait_for wait_for =
                tows_admission_return(&by, queue->claims, (unsigned)count, &queue->claims[i]);
            if (wait_for == TOW_WAIT_NOT) {
                return 0;
            }
            snprintf(ret_why, size, "%s: try again when one has ended, or suspend one",
                     explain_return(wait_for));
            return -EAGAIN;
        }
    }
    snprintf(ret_why, size, "the server is out of memory");
    return -ENOMEM;
}

void tows_queue_fini(struct tows_queue *queue)
{
    free(queue->claims);
    *queue = (struct tows_queue){0};
}

/* ---- the report ---- */

static int compare_places(const void *one, const void *other)
{
    const struct tows_pending_conn *a = *(struct tows_pending_conn *const *)one;
    const struct tows_pending_conn *b = *(struct tows_pending_conn *const *)other;
    return (a->place.place > b->place.place) - (a->place.place < b->place.place);
}

static void write_waiter(const struct tows_pending_conn *conn, const struct tows_limits *limits,
                         bool named, struct tow_json *json)
{
    static const char *const priorities[] = {"low", "normal", "high"};
    char tenant[TOW_WHO_TEXT_MAX];
    tow_json_object(json, NULL);
    tow_json_u64(json, "place", conn->place.place);
    tow_json_u64(json, "of", conn->place.of);
    tow_json_str(json, "for", tows_admission_text(conn->place.wait_for));
    if (named) {
        tow_json_str(json, "tenant", tows_who_text(&conn->who, tenant));
        tow_json_str(json, "peer", conn->peer);
    }
    tow_json_str(json, "class", conn->who.class);
    tow_json_str(json, "priority", priorities[limits->priority]);
    tow_json_u64(json, "gpu-memory", limits->gpu_memory);
    tow_json_u64(json, "exclusive", limits->exclusive ? 1 : 0);
    tow_json_f64(json, "waited_s", (double)(tow_time_now_ns() - conn->came_ns) / TOW_TIME_S);
    tow_json_end(json);
}

void tows_queue_write(const struct tows_door *door, const struct tows_config *config,
                      const struct tows_policy *policy, const struct tows_who *who, bool all,
                      struct tow_json *json)
{
    unsigned count = 0;
    const struct tows_pending_conn **waiters = calloc(door->count + 1, sizeof *waiters);
    for (const struct tows_pending_conn *conn = door->conns; waiters != NULL && conn != NULL;
         conn = conn->next) {
        if (conn->state == TOW_CONN_PROGRAM && conn->place.place != 0 && count < door->count) {
            waiters[count++] = conn;
        }
    }
    tow_json_array(json, "line");
    if (count > 0) {
        qsort(waiters, count, sizeof *waiters, compare_places);
    }
    for (unsigned i = 0; i < count; i++) {
        struct tows_limits limits = tows_queue_limits(config, policy, waiters[i]);
        write_waiter(waiters[i], &limits, all || tows_who_same(who, &waiters[i]->who), json);
    }
    tow_json_end(json);
    free(waiters);
}
