/* SPDX-License-Identifier: Apache-2.0 */
/* Writes TOWLINE_TRACE's lines and TOWLINE_STATS's counts; TOWLINE_TIMELINE is client/timeline's.
 */
#include "client/edge/observe.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_write.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/code/code.h"
#include "client/session/state.h"
#include "client/link/link.h"
#include "client/session/thread.h"
#include "client/timeline/timeline.h"
#include "gen/context_client.h"
#include "gen/core_client.h"
#include "gen/device_client.h"
#include "gen/functions.h"

/* Process-wide: TOWLINE_STATS and TOWLINE_TRACE are the environment's. */
int towc_observed;

enum { KIND_LOCAL, KIND_CACHED, KIND_ASYNC, KIND_SYNC, KIND_COUNT };

static const char *const kind_names[KIND_COUNT] = {"local", "cached", "async", "sync"};

/* Process-wide: one report for the program. How often each function was answered in which way, and
 * how long it took in all. */
static _Atomic uint64_t counts[TOW_FN_LIMIT][KIND_COUNT];
static _Atomic uint64_t nanoseconds[TOW_FN_LIMIT];

/* Process-wide: one report, one trace for the program. */
static const char *stats_path, *trace_path; /* borrowed from the environment, read once at load */
static pthread_once_t trace_once = PTHREAD_ONCE_INIT;
static int trace_fd = -1;
static bool trace_errors;    /* only calls that fail */
static bool timeline_alone;  /* nothing else is wanted */
enum { TRACE_RESULT = 128 }; /* what long arguments leave of a line for the result */
static __thread int64_t began_ns __attribute__((tls_model("initial-exec")));
static __thread int64_t took_ns __attribute__((tls_model("initial-exec")));

/* Only looks at the environment: files are opened when there is something to write. */
__attribute__((constructor)) static void observe_look(void)
{
    stats_path = getenv("TOWLINE_STATS");
    trace_path = getenv("TOWLINE_TRACE");
    stats_path = stats_path != NULL && stats_path[0] != '\0' ? stats_path : NULL;
    trace_path = trace_path != NULL && trace_path[0] != '\0' ? trace_path : NULL;
    const char *errors = getenv("TOWLINE_TRACE_ERRORS");
    trace_errors = errors != NULL && errors[0] != '\0' && strcmp(errors, "0") != 0;
    const char *timeline = getenv("TOWLINE_TIMELINE");
    timeline = timeline != NULL && timeline[0] != '\0' ? timeline : NULL;
    towc_timeline_want(timeline);
    timeline_alone = stats_path == NULL && trace_path == NULL;
    towc_observed = stats_path != NULL || trace_path != NULL || timeline != NULL;
}

static bool timeline_is_on(void)
{
    return atomic_load_explicit(&towc_timeline_on, memory_order_acquire);
}

/* What programs ask all the time, PyTorch some fifteen times for each launch, and what needs no
 * server: a timeline has none of it, since writing it down took longer than the launch. */
static bool is_small_question(unsigned fn)
{
    switch (fn) {
    case TOW_FN_cuCtxGetCurrent:
    case TOW_FN_cuCtxGetDevice:
    case TOW_FN_cuCtxGetDevice_v2:
    case TOW_FN_cuDeviceGet:
    case TOW_FN_cuDeviceGetAttribute:
    case TOW_FN_cuDeviceGetCount:
    case TOW_FN_cuDevicePrimaryCtxGetState:
    case TOW_FN_cuGetErrorName:
    case TOW_FN_cuGetErrorString:
    case TOW_FN_cuGetProcAddress:
    case TOW_FN_cuGetProcAddress_v2:
        return true;
    default:
        return false;
    }
}

void towc_observe_begin(struct towc_observation *o, unsigned fn)
{
    if (timeline_alone && is_small_question(fn)) {
        o->begin_ns = 0;
        return;
    }
    struct towc_thread *self = towc_thread_self();
    o->fn = fn;
    o->sent = self != NULL ? self->sent : 0;
    o->waited = self != NULL ? self->waited : 0;
    o->command = self != NULL ? self->command : 0;
    o->waited_ns = timeline_is_on() ? towc_timeline_waited() : 0;
    o->begin_ns = (uint64_t)tow_time_now_ns();
}

bool towc_observe_end(struct towc_observation *o, CUresult result)
{
    if (o->begin_ns == 0) {
        return false;
    }
    struct towc_thread *self = towc_thread_self();
    const struct tow_fn_info *info = tow_fn_info(o->fn);
    /* What was refused without asking anybody is an answer of our own, not a remembered one. */
    bool local = result != CUDA_SUCCESS || (info != NULL && (info->flags & TOW_FN_LOCAL));
    int kind = local ? KIND_LOCAL : KIND_CACHED;
    if (self != NULL && self->waited != o->waited) {
        kind = KIND_SYNC;
    } else if (self != NULL && self->sent != o->sent) {
        kind = KIND_ASYNC;
    }
    began_ns = (int64_t)o->begin_ns;
    took_ns = tow_time_now_ns() - began_ns;
    if (stats_path != NULL) {
        atomic_fetch_add_explicit(&counts[o->fn][kind], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&nanoseconds[o->fn], (uint64_t)took_ns, memory_order_relaxed);
    }
    if (timeline_is_on() && !is_small_question(o->fn)) {
        uint64_t command = self != NULL && self->command != o->command ? self->command : 0;
        towc_timeline_called(
            &(struct towc_timeline_call){o->fn, result, began_ns, began_ns + took_ns, command},
            o->waited_ns);
    }
    /* "Not ready" is an answer. */
    bool fails = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
    return trace_path != NULL && (fails || !trace_errors);
}

/* ---- statistics ---- */

static void write_stats(void)
{
    struct tow_buf text;
    struct tow_json json;
    struct towc_link_counters total = {0};
    uint64_t sends = 0, receives = 0;
    tow_buf_init(&text, 4 << 20);
    tow_json_init(&json, &text);
    for (unsigned i = 0; i < towc_client_link_count(); i++) {
        const struct towc_link *link = towc_client_link_at(i);
        const struct towc_link_counters *c = &link->counters;
        struct tow_line_stats line = {0};
        if (link->line != NULL) {
            tow_line_get_stats(link->line, &line);
        }
        sends += line.sends;
        receives += line.receives;
        total.commands += c->commands;
        total.replies_waited += c->replies_waited;
        total.bytes_out += c->bytes_out + c->side_out;
        total.bytes_in += c->bytes_in + c->side_in;
        total.compared += c->compared;
        total.compared_bytes += c->compared_bytes;
    }
    tow_json_object(&json, NULL);
    tow_json_u64(&json, "replies_waited", total.replies_waited);
    tow_json_u64(&json, "commands", total.commands);
    tow_json_u64(&json, "bytes_out", total.bytes_out);
    tow_json_u64(&json, "bytes_in", total.bytes_in);
    tow_json_u64(&json, "sends", sends);
    tow_json_u64(&json, "receives", receives);
    tow_json_u64(&json, "compared", total.compared);
    tow_json_u64(&json, "compared_bytes", total.compared_bytes);
    tow_json_object(&json, "calls");
    for (unsigned fn = 0; fn < TOW_FN_LIMIT; fn++) {
        const struct tow_fn_info *info = tow_fn_info(fn);
        uint64_t sum = 0;
        for (int kind = 0; kind < KIND_COUNT; kind++) {
            sum += atomic_load(&counts[fn][kind]);
        }
        if (info == NULL || sum == 0) {
            continue;
        }
        tow_json_object(&json, info->name);
        for (int kind = 0; kind < KIND_COUNT; kind++) {
            tow_json_u64(&json, kind_names[kind], atomic_load(&counts[fn][kind]));
        }
        tow_json_u64(&json, "ns", atomic_load(&nanoseconds[fn]));
        tow_json_end(&json);
    }
    tow_json_end(&json);
    tow_json_end(&json);
    int error = tow_json_finish(&json);
    if (error == 0) {
        error = tow_buf_append(&text, "\n", 1);
    }
    if (error == 0) {
        if (strcmp(stats_path, "-") == 0) {
            error = tow_file_write_all(STDERR_FILENO, text.data, text.size);
        } else {
            char path[PATH_MAX];
            tow_file_of_process(stats_path, path);
            error = tow_file_write_atomic(path, text.data, text.size, 0644);
        }
    }
    if (error < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR, "the statistics could not be written to %s: %s",
                stats_path, strerror(-error));
    }
    tow_buf_fini(&text);
}

void towc_observe_finish(void)
{
    if (stats_path != NULL) {
        write_stats();
    }
}

/* ---- trace ---- */

static void open_trace(void)
{
    if (strcmp(trace_path, "-") == 0) {
        trace_fd = STDERR_FILENO;
        return;
    }
    char path[PATH_MAX];
    tow_file_of_process(trace_path, path);
    trace_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (trace_fd < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR, "the trace %s cannot be written: %m", path);
    }
}

__attribute__((format(printf, 2, 3))) static void observe_add(struct towc_trace *t,
                                                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->line + t->length, t->limit - t->length, format, args);
    va_end(args);
    if (n > 0) {
        t->length += (size_t)n;
        if (t->length > t->limit - 1) {
            t->length = t->limit - 1;
        }
    }
}

void towc_trace_begin(struct towc_trace *t, unsigned fn)
{
    const struct tow_fn_info *info = tow_fn_info(fn);
    t->length = 0;
    t->limit = sizeof t->line - TRACE_RESULT;
    t->args = 0;
    /* When it began, by the clock that logs have. */
    int64_t us = (tow_time_real_ns() - (tow_time_now_ns() - began_ns)) / TOW_TIME_US;
    int64_t s = us / 1000000 % 86400;
    observe_add(t, "%d %02d:%02d:%02d.%06d %s(", tow_thread_id(), (int)(s / 3600),
                (int)(s / 60 % 60), (int)(s % 60), (int)(us % 1000000),
                info != NULL ? info->name : "?");
}

static void observe_name(struct towc_trace *t, const char *text)
{
    observe_add(t, "%s%s=", t->args++ > 0 ? ", " : "", text);
}

void towc_trace_int(struct towc_trace *t, const char *arg, long long value)
{
    observe_name(t, arg);
    observe_add(t, "%lld", value);
}

void towc_trace_hex(struct towc_trace *t, const char *arg, uint64_t value)
{
    observe_name(t, arg);
    observe_add(t, value < 10 ? "%" PRIu64 : "0x%" PRIx64, value);
}

void towc_trace_float(struct towc_trace *t, const char *arg, double value)
{
    observe_name(t, arg);
    observe_add(t, "%g", value);
}

static void observe_text(struct towc_trace *t, const char *text)
{
    for (size_t i = 0; text[i] != '\0' && i < 256; i++) {
        unsigned char c = (unsigned char)text[i];
        observe_add(t, c < ' ' || c == '"' || c == '\\' || c >= 127 ? "\\x%02x" : "%c", c);
    }
}

void towc_trace_text(struct towc_trace *t, const char *arg, const char *text)
{
    observe_name(t, arg);
    if (text == NULL) {
        observe_add(t, "NULL");
        return;
    }
    observe_add(t, "\"");
    observe_text(t, text);
    observe_add(t, "\"");
}

void towc_trace_kernel(struct towc_trace *t, const char *arg, const void *kernel)
{
    const struct towc_kernel *known = towc_kernel_find(kernel);
    towc_trace_hex(t, arg, (uint64_t)(uintptr_t)kernel);
    known = known != NULL && known->origin != NULL ? known->origin : known;
    if (known != NULL && known->name != NULL) {
        observe_add(t, " \"");
        observe_text(t, known->name);
        observe_add(t, "\"");
    }
}

void towc_trace_record(struct towc_trace *t, const char *arg, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    observe_name(t, arg);
    observe_add(t, "{");
    for (size_t i = 0; i < size && i < 64; i++) {
        observe_add(t, "%02x", at[i]);
    }
    observe_add(t, size > 64 ? "...}" : "}");
}

void towc_trace_out(struct towc_trace *t, const char *arg, const void *pointer, uint64_t value,
                    CUresult result)
{
    observe_name(t, arg);
    if (pointer == NULL) {
        observe_add(t, "NULL");
    } else if (result == CUDA_SUCCESS) {
        observe_add(t, value < 10000 ? "->%" PRIu64 : "->0x%" PRIx64, value);
    } else {
        observe_add(t, "->?");
    }
}

void towc_trace_end(struct towc_trace *t, CUresult result)
{
    pthread_once(&trace_once, open_trace);
    const char *error = NULL;
    bool cut = t->length == t->limit - 1;
    t->limit = sizeof t->line;
    observe_add(t, "%s) = %d ", cut ? "..." : "", (int)result);
    if (result != CUDA_SUCCESS && towc_cuGetErrorName(result, &error) == CUDA_SUCCESS) {
        observe_add(t, "%s ", error);
    }
    observe_add(t, "%.1fus\n", (double)took_ns / 1e3);
    if (trace_fd >= 0 && write(trace_fd, t->line, t->length) < 0) {
        /* A trace that cannot be written is no reason to disturb the program. */
        return;
    }
}
