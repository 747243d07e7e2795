/* SPDX-License-Identifier: Apache-2.0 */
/* Puts together the report of a server. */
#include "server/listener/status.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_write.h"
#include "server/listener/queue.h"

static double seconds_since(int64_t moment_ns)
{
    return (double)(tow_time_now_ns() - moment_ns) / (double)TOW_TIME_S;
}

/* A limit beside what is used of it. */
static void write_limit(struct tow_json *json, const char *name, uint64_t used, uint64_t limit)
{
    tow_json_object(json, name);
    tow_json_u64(json, "used", used);
    tow_json_u64(json, "limit", limit);
    tow_json_end(json);
}

/* A suspended session has none, and is charged nothing. */
static uint64_t memory_here(const struct tows_worker *worker)
{
    return tows_suspend_is_away(worker) ? 0 : worker->stats->memory;
}

static uint64_t charged_here(const struct tows_worker *worker, unsigned device)
{
    return device >= TOW_STATS_GPUS_MAX || tows_suspend_is_away(worker)
               ? 0
               : worker->stats->charged[device];
}

/* How long it had turns, and waited for some, while others computed there, too. */
static void write_turns(struct tow_json *json, const struct tows_worker *worker)
{
    uint64_t used_ns = 0, waited_ns = 0;
    for (unsigned i = 0; i < TOW_STATS_GPUS_MAX; i++) {
        used_ns += worker->seat.turns[i].used_ns;
        waited_ns += worker->seat.turns[i].waited_ns;
    }
    tow_json_object(json, "turns");
    tow_json_u64(json, "share", worker->limits.share);
    tow_json_u64(json, "compute", worker->limits.compute);
    tow_json_f64(json, "had_s", (double)used_ns / (double)TOW_TIME_S);
    tow_json_f64(json, "waited_s", (double)waited_ns / (double)TOW_TIME_S);
    tow_json_end(json);
}

/* What a session has of its quota of each GPU; GPUs behind the last that it uses are left out. */
static void write_charged(struct tow_json *json, const struct tows_worker *worker)
{
    unsigned count = TOW_STATS_GPUS_MAX;
    while (count > 0 && charged_here(worker, count - 1) == 0) {
        count--;
    }
    tow_json_array(json, "charged");
    for (unsigned i = 0; i < count; i++) {
        tow_json_u64(json, NULL, charged_here(worker, i));
    }
    tow_json_end(json);
}

static void write_suspended(struct tow_json *json, const struct tows_worker *worker)
{
    if (worker->suspend.phase == TOW_SUSPENSION_AWAY ||
        worker->suspend.phase == TOW_SUSPENSION_ENDS) {
        tow_json_f64(json, "suspended_s", seconds_since(worker->suspend.since_ns));
        tow_json_str(json, "suspended_by", worker->suspend.by);
        tow_json_u64(json, "saved", worker->stats->saved);
    }
    tow_json_u64(json, "suspends", worker->stats->suspends);
    if (worker->limits.swaps) {
        tow_json_u64(json, "swaps", worker->swap.swaps);
    }
}

static const char *state_of(const struct tows_worker *worker)
{
    return worker->stats->detached_ns != 0 ? "detached" : tows_suspend_text(worker);
}

static void write_session(struct tow_json *json, const struct tows_worker *worker,
                          const struct tows_config *config, uint64_t files)
{
    const struct tows_session_stats *stats = worker->stats;
    const struct tows_limits *limits = &worker->limits;
    char client[sizeof stats->client + 1] = "", tenant[TOW_WHO_TEXT_MAX];
    /* Written by another process at any moment: copied once and ended by ourselves. */
    if (stats->started_ns != 0) {
        memcpy(client, stats->client, sizeof stats->client);
    }
    tow_json_object(json, NULL);
    tow_json_u64(json, "id", worker->session);
    tow_json_str(json, "client", client);
    tow_json_u64(json, "client_pid", stats->client_pid);
    tow_json_str(json, "peer", worker->peer);
    tow_json_str(json, "tenant", tows_who_text(&worker->who, tenant));
    tow_json_str(json, "class", worker->who.class);
    tow_json_i64(json, "gpu", stats->device);
    tow_json_str(json, "state", state_of(worker));
    tow_json_u64(json, "memory", memory_here(worker));
    if (stats->used_count != 0) {
        tow_json_array(json, "used");
        for (unsigned i = 0; i < stats->used_count && i < TOW_STATS_GPUS_MAX; i++) {
            tow_json_u64(json, NULL, stats->used[i]);
        }
        tow_json_end(json);
    }
    if (limits->gpu_memory != 0) {
        write_charged(json, worker);
    }
    tow_json_u64(json, "calls", stats->calls);
    tow_json_u64(json, "launches", stats->launches);
    tow_json_f64(json, "gpu_s", (double)tows_gates_time(worker) / (double)TOW_TIME_S);
    tow_json_u64(json, "replies", stats->replies);
    tow_json_u64(json, "bytes_in", stats->bytes_in);
    tow_json_u64(json, "bytes_out", stats->bytes_out);
    tow_json_f64(json, "age_s", seconds_since(worker->since_ns));
    int64_t detached_ns = stats->detached_ns;
    if (detached_ns != 0) {
        tow_json_f64(json, "detached_s", seconds_since(detached_ns));
    }
    write_suspended(json, worker);
    if (limits->turns) {
        write_turns(json, worker);
    }
    tow_json_i64(json, "worker_pid", worker->pid);
    tow_json_i64(json, "nice", worker->usage.nice);
    tow_json_object(json, "limits");
    if (limits->gpu_memory != 0) {
        write_limit(json, "gpu-memory", charged_here(worker, (unsigned)stats->device),
                    limits->gpu_memory);
    }
    write_limit(json, "session-memory", worker->usage.host, limits->session_memory);
    write_limit(json, "session-idle", tows_usage_idle(worker), limits->session_idle);
    write_limit(json, "session-threads", stats->threads, config->session_threads);
    write_limit(json, "session-commands", (uint64_t)stats->queued + stats->in_flight,
                config->session_commands);
    write_limit(json, "session-descriptors", worker->usage.descriptors, files);
    uint64_t lines = stats->lines, most = config->session_log_lines;
    write_limit(json, "session-log-lines", lines < most ? most - lines : 0, most);
    tow_json_end(json);
    tow_json_end(json);
}

static bool status_shows(const struct tows_status_source *source, const struct tows_worker *worker)
{
    return source->all || (!source->none && tows_who_same(&source->who, &worker->who));
}

/* What sessions that are not shown hold of each GPU: how much is in use is no secret. */
static void write_others(struct tow_json *json, const struct tows_status_source *source)
{
    uint64_t held[TOW_STATS_GPUS_MAX] = {0};
    unsigned count = 0, hidden = 0;
    for (const struct tows_worker *worker = source->pool->workers; worker != NULL;
         worker = worker->next) {
        const struct tows_session_stats *stats = worker->stats;
        int device = stats->device;
        if (worker->state != TOW_WORKER_BUSY || status_shows(source, worker)) {
            continue;
        }
        hidden++;
        unsigned used = stats->used_count;
        used = used < TOW_STATS_GPUS_MAX ? used : (unsigned)TOW_STATS_GPUS_MAX;
        for (unsigned i = 0; i < used; i++) {
            held[i] += stats->used[i];
        }
        if (used == 0 && device >= 0 && device < TOW_STATS_GPUS_MAX) {
            held[device] += memory_here(worker);
            used = (unsigned)device + 1;
        }
        count = used > count ? used : count;
    }
    if (hidden == 0) {
        return;
    }
    tow_json_object(json, "others");
    tow_json_u64(json, "sessions", hidden);
    tow_json_array(json, "used");
    for (unsigned i = 0; i < count; i++) {
        tow_json_u64(json, NULL, held[i]);
    }
    tow_json_end(json);
    tow_json_end(json);
}

/* What the session of the peer who asks has that has most of a GPU: what is left of a quota that
 * each of them has. */
static uint64_t charged_to(const struct tows_status_source *source)
{
    uint64_t most = 0;
    for (const struct tows_worker *worker = source->pool->workers; worker != NULL;
         worker = worker->next) {
        for (unsigned i = 0; i < TOW_STATS_GPUS_MAX; i++) {
            uint64_t charged = charged_here(worker, i);
            most = worker->state == TOW_WORKER_BUSY && charged > most &&
                           tows_who_same(&source->who, &worker->who)
                       ? charged
                       : most;
        }
    }
    return most;
}

/* Those of the machine, and of the peer who asks; named as the settings are. */
static void write_limits(struct tow_json *json, const struct tows_status_source *source)
{
    const struct tows_config *config = source->config;
    tow_json_object(json, "limits");
    write_limit(json, "max-sessions", tows_worker_pool_count(source->pool, TOW_WORKER_BUSY, NULL),
                config->max_sessions);
    write_limit(json, "sessions-per-peer",
                tows_worker_pool_count_for(source->pool, TOW_WORKER_BUSY, &source->who),
                tows_policy_sessions_per_peer(config, source->class));
    write_limit(json, "gpu-memory", charged_to(source),
                tows_policy_limits(config, source->class, 0, &(struct tow_wish){0}).gpu_memory);
    write_limit(json, "places", source->places, config->places);
    write_limit(json, "places-per-peer", source->own_places, config->places_per_peer);
    write_limit(json, "code-cache", tows_cache_writer_used(&source->pool->writer),
                config->code_cache);
    char tenant[TOW_WHO_TEXT_MAX];
    write_limit(
        json, "code-cache-per-peer",
        tows_cache_writer_used_by(&source->pool->writer, tows_who_text(&source->who, tenant)),
        config->code_cache_per_peer);
    write_limit(json, "log-lines", tow_log_used(), config->log_lines);
    write_limit(json, "connections-per-second", source->rate, config->connections_per_second);
    write_limit(json, "memory", tows_usage_memory(source->pool, NULL), config->memory);
    if (config->overcommit == TOW_CONFIG_SWAPS) {
        write_limit(json, "swap-memory", tows_swap_used(source->pool), config->swap_memory);
    }
    write_limit(json, "threads", tows_usage_threads(source->pool), config->threads);
    write_limit(json, "memory-per-peer", tows_usage_memory(source->pool, &source->who),
                config->memory_per_peer);
    tow_json_end(json);
}

/* How many sessions do not simply run: of all users. Orders that are about to be carried out are
 * counted as what the session still is. */
static void write_states(struct tow_json *json, const struct tows_worker_pool *pool)
{
    unsigned detached = 0, suspended = 0;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        bool is_detached = worker->stats->detached_ns != 0;
        if (worker->state == TOW_WORKER_BUSY) {
            detached += is_detached;
            suspended += !is_detached && (worker->suspend.phase == TOW_SUSPENSION_AWAY ||
                                          worker->suspend.phase == TOW_SUSPENSION_ENDS);
        }
    }
    tow_json_object(json, "states");
    tow_json_u64(json, "detached", detached);
    tow_json_u64(json, "suspended", suspended);
    tow_json_end(json);
}

/* Since the server has started, of all sessions. */
static void write_totals(struct tow_json *json, const struct tows_worker_pool *pool)
{
    struct tows_pool_totals totals = pool->ended;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (worker->state == TOW_WORKER_BUSY) {
            tows_pool_totals_add(&totals, worker);
        }
    }
    tow_json_object(json, "totals");
    tow_json_u64(json, "sessions", totals.sessions);
    tow_json_u64(json, "calls", totals.calls);
    tow_json_u64(json, "replies", totals.replies);
    tow_json_u64(json, "bytes_in", totals.bytes_in);
    tow_json_u64(json, "bytes_out", totals.bytes_out);
    tow_json_u64(json, "suspends", totals.suspends);
    tow_json_end(json);
}

int tows_status_write(const struct tows_status_source *source, struct tow_buf *out)
{
    const struct tows_worker_pool *pool = source->pool;
    struct tow_json json;
    tow_json_init(&json, out);
    tow_json_object(&json, NULL);
    tow_json_str(&json, "version", TOWLINE_VERSION);
    tow_json_u64(&json, "protocol", TOW_PROTOCOL_MAX);
    tow_json_f64(&json, "uptime_s", seconds_since(source->started_ns));
    char you[TOW_WHO_TEXT_MAX];
    tow_json_str(&json, "you", tows_who_text(&source->who, you));
    if (source->who.class[0] != '\0') {
        tow_json_str(&json, "class", source->who.class);
    }
    if (source->all) {
        /* Paths and numbers of this machine are of no use to others, but to an attacker. */
        tow_json_i64(&json, "pid", source->pid);
        tow_json_array(&json, "listen");
        for (unsigned i = 0; i < source->listener_count; i++) {
            tow_json_str(&json, NULL, source->listeners[i]->address);
        }
        tow_json_end(&json);
    }
    tow_json_str(&json, "backend", pool->backend);
    /* Of a driver others learn the name, not the folder. */
    const char *slash = source->all ? NULL : strrchr(pool->description, '/');
    tow_json_str(&json, "description", slash == NULL ? pool->description : slash + 1);
    tow_json_str(&json, "failure",
                 source->all || pool->failure[0] == '\0' ? pool->failure
                                                         : TOW_STATUS_FAILURE_HIDDEN);
    tow_json_raw(&json, "devices", pool->devices == NULL ? "[]" : pool->devices);
    tows_gauge_write(source->gauge, &json);
    tow_json_object(&json, "workers");
    tow_json_u64(&json, "starting", tows_worker_pool_count(pool, TOW_WORKER_STARTING, NULL));
    tow_json_u64(&json, "idle", tows_worker_pool_count(pool, TOW_WORKER_IDLE, NULL));
    tow_json_u64(&json, "busy", tows_worker_pool_count(pool, TOW_WORKER_BUSY, NULL));
    tow_json_end(&json);
    tow_json_u64(&json, "waiting", source->waiting);
    write_states(&json, pool);
    write_totals(&json, pool);
    tows_queue_write(source->door, source->config, source->policy, &source->who,
                     source->all && !source->none, &json);
    if (source->draining) {
        tow_json_u64(&json, "draining", 1);
    }
    tow_json_u64(&json, "max_sessions", source->config->max_sessions);
    write_limits(&json, source);
    tow_json_array(&json, "sessions");
    uint64_t files = tows_starter_files(&pool->starter).rlim_cur;
    for (const struct tows_worker *worker = pool->workers; worker != NULL; worker = worker->next) {
        if (worker->state == TOW_WORKER_BUSY && status_shows(source, worker)) {
            write_session(&json, worker, source->config, files);
        }
    }
    tow_json_end(&json);
    write_others(&json, source);
    tow_json_end(&json);
    return tow_json_finish(&json);
}
