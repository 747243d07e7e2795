/* SPDX-License-Identifier: Apache-2.0 */
/* Asks each server what its GPUs did and what time it is there, and writes that down: a process for
 * each server, whose threads are the GPUs' streams. */
#include "client/timeline/inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "base/log.h"
#include "base/mutex.h"
#include "client/link/link.h"
#include "client/session/state.h"
#include "gen/functions.h"

enum {
    NAMES_MAX = 1 << 14,     /* kernels' names of one server that are kept */
    TRACKS = 256,            /* streams at a time; the one that was not used for longest goes */
    LANES = 4,               /* what one stream may do at the same time, as a graph may */
    BATCH = 256,             /* spans that are written down while others wait for the file */
    FIRST_PROCESS = 1 << 22, /* no process has such a number in Linux */
    ROUND_TRIPS = 8,
    MORE_MAX = 16, /* answers at a time; 260,000 spans */
};

#define ROUND_TRIPS_NS (50 * TOW_TIME_MS) /* beyond that fewer will do */
#define QUEUED_NS TOW_TIME_US             /* what waits for less is not shown to wait */
#define QUEUE_LONG_NS (20 * TOW_TIME_MS)  /* an event of a queue has no more */

struct track {
    uint32_t stream, thread; /* the first of LANES + 1 numbers; 0: free */
    uint64_t used;
    unsigned named; /* a bit for each */
    int64_t ended_ns[LANES], queued_ns;
    struct {
        int64_t began_ns, ended_ns;
        uint32_t behind; /* the most */
    } queue;             /* that is not written down yet: one thing waits, then the next */
};

/* What is known of one server; used by one thread at a time, but for what the lock guards. */
struct server {
    struct towc_link *link;
    uint32_t process;
    bool asked, known; /* it is asked for spans; it knows them */
    bool quiet;        /* it had nothing new */
    uint64_t commands; /* that had gone out then */
    struct towc_align align;
    char **names; /* owned, as JSON */
    uint32_t name_count;
    struct track *tracks; /* owned */
    uint32_t next_thread;
    uint64_t uses, spans, lost;
    uint64_t out, in; /* bytes until the last count */
    int64_t counted_ns;
};

/* Process-wide: the program's servers. */
static struct {
    struct server at[TOW_SERVERS_MAX];
    unsigned count;
    uint32_t process; /* the program's */
} servers;

/* ---- names and tracks ---- */

static char *as_json(const char *text)
{
    struct tow_buf buf;
    struct tow_json json;
    tow_buf_init(&buf, 8 * TOW_TIMELINE_NAME_MAX);
    tow_json_init(&json, &buf);
    tow_json_str(&json, NULL, text);
    char *copy = NULL;
    if (tow_json_finish(&json) == 0) {
        copy = strndup((const char *)buf.data, buf.size);
    }
    tow_buf_fini(&buf);
    return copy;
}

static const char *name_of(const struct server *server, const struct tow_span *span)
{
    static const char *const names[] = {
        [TOW_SPAN_KERNEL] = "\"a kernel\"",
        [TOW_SPAN_COPY_IN] = "\"copy to the GPU\"",
        [TOW_SPAN_COPY_OUT] = "\"copy from the GPU\"",
        [TOW_SPAN_COPY_DEVICE] = "\"copy on the GPU\"",
        [TOW_SPAN_COPY_HOST] = "\"copy on the host\"",
        [TOW_SPAN_FILL] = "\"fill\"",
    };
    if (span->kind == TOW_SPAN_KERNEL && span->name > 0 && span->name <= server->name_count &&
        server->names[span->name - 1] != NULL) {
        return server->names[span->name - 1];
    }
    return span->kind > 0 && span->kind < sizeof names / sizeof *names ? names[span->kind]
                                                                       : "\"something else\"";
}

static const char *kind_of(uint32_t kind)
{
    return kind == TOW_SPAN_KERNEL                            ? "kernel"
           : kind == TOW_SPAN_FILL                            ? "fill"
           : kind >= TOW_SPAN_COPY_IN && kind < TOW_SPAN_FILL ? "copy"
                                                              : "other";
}

/* With the lock held: the number of one of a track's lanes (LANES: its queue), which has a name. */
static uint32_t lane_thread(struct towc_out *out, const struct server *server, struct track *track,
                            unsigned lane)
{
    if ((track->named >> lane & 1) == 0) {
        char name[64];
        if (lane == LANES) {
            snprintf(name, sizeof name, "stream %" PRIu32 ": queue", track->stream);
        } else if (lane > 0) {
            snprintf(name, sizeof name, "stream %" PRIu32 " (%u)", track->stream, lane + 1);
        } else {
            snprintf(name, sizeof name, "stream %" PRIu32, track->stream);
        }
        towc_out_name(out, server->process, track->thread + lane, name);
        track->named |= 1u << lane;
    }
    return track->thread + lane;
}

/* ---- spans ---- */

/* A lane of the track in which nothing else was at that time. A clock that was moved may make
 * things overlap that did not. */
static unsigned free_lane(const struct server *server, const struct track *track, int64_t *began_ns,
                          int64_t ended_ns)
{
    int64_t moved = server->align.ahead_ns - server->align.before_ns;
    moved = moved < 0 ? -moved : moved;
    unsigned best = 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        if (*began_ns >= track->ended_ns[lane] - moved) {
            best = lane;
            break;
        }
        best = track->ended_ns[lane] < track->ended_ns[best] ? lane : best;
    }
    if (*began_ns < track->ended_ns[best]) {
        *began_ns = track->ended_ns[best] < ended_ns ? track->ended_ns[best] : ended_ns;
    }
    return best;
}

/* With the lock held: what is known of the queue so far. */
static void write_queue(struct towc_out *out, const struct server *server, struct track *track)
{
    struct towc_out_arg behind = {"behind", track->queue.behind, false};
    if (track->queue.ended_ns > track->queue.began_ns) {
        struct towc_out_event event = {
            .process = server->process,
            .thread = lane_thread(out, server, track, LANES),
            .began_ns = track->queue.began_ns,
            .ended_ns = track->queue.ended_ns,
            .kind = "queue",
            .name = "\"waits in the stream\"",
            .args = &behind,
            .arg_count = 1,
        };
        towc_out_span(out, &event);
    }
    memset(&track->queue, 0, sizeof track->queue);
}

static struct track *track_of(struct towc_out *out, struct server *server, uint32_t stream)
{
    struct track *oldest = &server->tracks[0];
    for (unsigned i = 0; i < TRACKS; i++) {
        struct track *track = &server->tracks[i];
        if (track->thread != 0 && track->stream == stream) {
            track->used = ++server->uses;
            return track;
        }
        oldest = track->used < oldest->used ? track : oldest;
    }
    write_queue(out, server, oldest);
    *oldest = (struct track){.stream = stream, .thread = server->next_thread};
    server->next_thread += LANES + 1;
    oldest->used = ++server->uses;
    return oldest;
}

/* With the lock held. */
static void write_span(struct towc_out *out, struct server *server, const struct tow_span *span,
                       uint64_t command)
{
    struct track *track = track_of(out, server, span->stream);
    int64_t given = towc_align_ours(&server->align, (int64_t)span->given);
    int64_t began = towc_align_ours(&server->align, (int64_t)span->began);
    int64_t ended = towc_align_ours(&server->align, (int64_t)span->ended);
    ended = ended > began ? ended : began;
    uint64_t queued = span->began > span->given ? span->began - span->given : 0;
    unsigned lane = free_lane(server, track, &began, ended);
    /* A queue's events do not overlap either: while one waits, those behind it do. */
    int64_t since = given > track->queued_ns ? given : track->queued_ns;
    if (began - since >= QUEUED_NS) {
        if (since != track->queue.ended_ns || began - track->queue.began_ns > QUEUE_LONG_NS) {
            write_queue(out, server, track);
            track->queue.began_ns = since;
        }
        track->queue.ended_ns = began;
        track->queue.behind =
            span->queued > track->queue.behind ? span->queued : track->queue.behind;
    }
    track->queued_ns = began > track->queued_ns ? began : track->queued_ns;
    struct towc_out_arg args[2] = {{"queued_us", queued, true}, {"bytes", span->bytes, false}};
    struct towc_out_event event = {
        .process = server->process,
        .thread = lane_thread(out, server, track, lane),
        .began_ns = began,
        .ended_ns = ended,
        .kind = kind_of(span->kind),
        .name = name_of(server, span),
        .args = args,
        .arg_count = span->kind == TOW_SPAN_KERNEL ? 1 : 2,
        .flow = command != 0 ? towc_link_command(server->link->index, command) : 0,
    };
    towc_out_span(out, &event);
    track->ended_ns[lane] = ended;
    server->spans++;
}

/* Names first, then spans; -EPROTO. */
static int take_answer(struct server *server, struct tow_dec *dec,
                       const struct tow_timeline_answer *answer)
{
    for (uint32_t i = 0; i < answer->names; i++) {
        const char *name = tow_dec_cstr(dec, TOW_TIMELINE_NAME_MAX + 1);
        if (name == NULL) {
            return -EPROTO;
        }
        if (server->name_count < NAMES_MAX) {
            server->names[server->name_count++] = as_json(name);
        }
    }
    tow_dec_align(dec, 8);
    struct tow_dec numbers = *dec; /* of commands: behind the spans */
    bool numbered = (answer->flags & TOW_TIMELINE_NUMBERED) != 0;
    tow_dec_bytes(&numbers, (size_t)answer->spans * TOW_SPAN_SIZE);
    for (uint32_t i = 0; i < answer->spans && !dec->bad;) {
        struct towc_out *out = towc_timeline_take();
        if (out == NULL) {
            return 0;
        }
        for (unsigned n = 0; n < BATCH && i < answer->spans; n++, i++) {
            struct tow_span span = tow_span_get(dec);
            uint64_t command = numbered ? tow_dec_u64(&numbers) : 0;
            if (!dec->bad) {
                write_span(out, server, &span, command);
            }
        }
        towc_timeline_give();
    }
    if ((answer->flags & TOW_TIMELINE_KNOWN) != 0) {
        server->lost = answer->lost;
    }
    return dec->bad || (numbered && numbers.bad) ? -EPROTO : 0;
}

/* ---- asking ---- */

/* One question; what it says of the clock is kept. -errno: the server is not to be asked. */
static int ask_once(struct server *server, uint32_t flags, struct tow_timeline_answer *ret_answer)
{
    struct tow_timeline asked = {.flags = flags, .names = server->name_count};
    struct tow_timeline_answer answer = {.flags = 0};
    uint8_t head[TOW_TIMELINE_HEAD];
    struct towc_call call;
    if (towc_call_begin_on(&call, server->link, 0, TOW_CONTROL_TIMELINE, sizeof head,
                           TOW_CALL_REPLY) != CUDA_SUCCESS) {
        return -ESHUTDOWN;
    }
    tow_timeline_head(&asked, head);
    tow_enc_bytes(&call.enc, head, sizeof head);
    int64_t asked_ns = tow_time_now_ns();
    CUresult status = towc_call_wait(&call);
    int64_t answered_ns = tow_time_now_ns();
    int error = status == CUDA_SUCCESS ? tow_timeline_answer_get(&call.dec, &answer) : -ESHUTDOWN;
    if (error == 0) {
        towc_align_take(&server->align, asked_ns, (int64_t)answer.now_ns, answered_ns);
        if ((flags & TOW_TIMELINE_SPANS) != 0) {
            towc_align_end(&server->align);
        }
        error = take_answer(server, &call.dec, &answer);
    }
    towc_call_end(&call, CUDA_ERROR_UNKNOWN);
    if (error == -EPROTO) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "what %s says of its GPUs' time cannot be understood: the timeline ends there",
                server->link->address);
    }
    *ret_answer = answer;
    return error;
}

static int ask_clock(struct server *server)
{
    int64_t until = tow_time_deadline(ROUND_TRIPS_NS);
    struct tow_timeline_answer answer;
    int error = 0;
    towc_align_begin(&server->align);
    for (int i = 0; i < ROUND_TRIPS && error == 0 && (i < 2 || !tow_time_passed(until)); i++) {
        error = ask_once(server, 0, &answer);
    }
    if (error == 0) {
        towc_align_end(&server->align);
    }
    return error;
}

static int ask_spans(struct server *server, bool all)
{
    struct tow_timeline_answer answer = {.flags = TOW_TIMELINE_MORE};
    uint64_t before = server->spans;
    int error = 0;
    for (int i = 0; i < MORE_MAX && error == 0 && (answer.flags & TOW_TIMELINE_MORE) != 0; i++) {
        towc_align_begin(&server->align);
        error = ask_once(server, TOW_TIMELINE_SPANS | TOW_TIMELINE_COMMANDS, &answer);
    }
    server->known |= (answer.flags & TOW_TIMELINE_KNOWN) != 0;
    server->quiet = server->spans == before;
    server->commands = atomic_load_explicit(&server->link->counters.commands, memory_order_relaxed);
    return error < 0 ? error : all ? ask_clock(server) : 0;
}

static bool has_waiters(struct towc_link *link)
{
    tow_mutex_lock(&link->wait.lock);
    bool some = link->wait.count > 0;
    tow_mutex_unlock(&link->wait.lock);
    return some;
}

/* Nobody asks the GPU of a program that does nothing: its session may count as idle. */
static bool has_news(const struct server *server)
{
    return !server->quiet ||
           atomic_load_explicit(&server->link->counters.commands, memory_order_relaxed) !=
               server->commands ||
           has_waiters(server->link);
}

void towc_gpu_ask(bool all)
{
    for (unsigned i = 0; i < servers.count; i++) {
        struct server *server = &servers.at[i];
        if (server->asked && (all || has_news(server)) && ask_spans(server, all) < 0) {
            server->asked = false;
        }
    }
}

static void server_begin(struct server *server)
{
    const char *why = NULL;
    if ((server->link->welcome.capabilities & TOW_CAN_TIMELINE) == 0) {
        why = "the server is older than this client";
    } else {
        server->names = calloc(NAMES_MAX, sizeof *server->names);
        server->tracks = calloc(TRACKS, sizeof *server->tracks);
        server->asked = server->names != NULL && server->tracks != NULL && ask_clock(server) == 0 &&
                        ask_spans(server, false) == 0;
        server->asked = server->asked && server->known;
        why = server->asked ? NULL : "it has no CUPTI to know them by";
    }
    if (why != NULL) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "the timeline has no kernels and copies of the GPUs of %s (%s): it has the "
                "program's calls",
                server->link->address, why);
    }
}

void towc_gpu_begin(uint32_t process)
{
    memset(&servers, 0, sizeof servers); /* a child leaves to its parent what its threads use */
    servers.process = process;
    for (unsigned i = 0; i < towc_client_link_count() && i < TOW_SERVERS_MAX; i++) {
        struct server *server = &servers.at[servers.count++];
        server->link = towc_client_link_at(i);
        server->process = FIRST_PROCESS + i + 1;
        server->next_thread = server->process + (i + 1) * 10000000;
        server->counted_ns = tow_time_now_ns();
        server_begin(server);
        struct towc_out *out = server->asked ? towc_timeline_take() : NULL;
        if (out != NULL) {
            char name[sizeof server->link->address + 16];
            snprintf(name, sizeof name, "GPUs of %s", server->link->address);
            towc_out_name(out, server->process, 0, name);
            towc_timeline_give();
        }
    }
}

/* ---- bytes, and what is true of all of it ---- */

static void bytes_of(const struct towc_link *link, uint64_t *ret_out, uint64_t *ret_in)
{
    const struct towc_link_counters *c = &link->counters;
    *ret_out = atomic_load(&c->bytes_out) + atomic_load(&c->side_out) + atomic_load(&c->lane_out);
    *ret_in = atomic_load(&c->bytes_in) + atomic_load(&c->side_in) + atomic_load(&c->lane_in);
}

void towc_gpu_count_bytes(struct towc_out *out)
{
    int64_t now = tow_time_now_ns();
    for (unsigned i = 0; i < servers.count; i++) {
        struct server *server = &servers.at[i];
        uint64_t sent, got;
        bytes_of(server->link, &sent, &got);
        int64_t passed = now - server->counted_ns;
        if (passed <= 0) {
            continue;
        }
        char name[48];
        snprintf(name, sizeof name, "\"line %u, bytes/s\"", i);
        struct towc_out_arg args[2] = {
            {"sent", (uint64_t)((double)(sent - server->out) / (double)passed * 1e9), false},
            {"received", (uint64_t)((double)(got - server->in) / (double)passed * 1e9), false},
        };
        struct towc_out_event event = {.process = servers.process,
                                       .began_ns = server->counted_ns,
                                       .name = name,
                                       .args = args,
                                       .arg_count = 2};
        towc_out_count(out, &event);
        server->out = sent;
        server->in = got;
        server->counted_ns = now;
    }
}

void towc_gpu_facts(struct towc_out *out)
{
    for (unsigned i = 0; i < servers.count; i++) {
        struct server *server = &servers.at[i];
        for (unsigned n = 0; server->tracks != NULL && n < TRACKS; n++) {
            write_queue(out, server, &server->tracks[n]);
        }
        char memory[1024];
        struct tow_buf text;
        struct tow_json json;
        uint64_t sent, got;
        int64_t drift_error = 0;
        bytes_of(server->link, &sent, &got);
        tow_buf_init_on(&text, memory, sizeof memory);
        tow_json_init(&json, &text);
        tow_json_object(&json, NULL);
        tow_json_str(&json, "address", server->link->address);
        tow_json_bool(&json, "gpu", server->known);
        tow_json_u64(&json, "bytes_sent", sent);
        tow_json_u64(&json, "bytes_received", got);
        tow_json_u64(&json, "spans", server->spans);
        tow_json_u64(&json, "spans_lost", server->lost);
        if (server->known) {
            const struct towc_align *align = &server->align;
            double drift = (double)towc_align_drift(align, &drift_error) / 1e3;
            tow_json_i64(&json, "clock_ahead_ns", align->ahead_ns);
            tow_json_i64(&json, "clock_error_ns", towc_align_error(align));
            tow_json_f64(&json, "clock_drift_ppm", drift);
            tow_json_f64(&json, "clock_drift_error_ppm", (double)drift_error / 1e3);
            tow_json_i64(&json, "round_trip_ns", align->first_high - align->first_low);
        }
        tow_json_end(&json);
        if (tow_json_finish(&json) == 0 && tow_buf_append(&text, "", 1) == 0) {
            towc_out_fact(out, server->known ? server->process : servers.process, 0,
                          "towline_server", memory);
        }
    }
}
