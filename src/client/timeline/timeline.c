/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends a timeline; between, a thread writes down what was recorded and asks servers. */
#include "client/timeline/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_write.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/thread.h"
#include "client/timeline/inside.h"

/* How often the thread wakes: what a killed program loses is what happened since. The software GPU
 * keeps 65,536 spans meanwhile. */
#define TICK_NS (50 * TOW_TIME_MS)
/* So long a program that ends waits for servers to say what is missing. */
#define END_NS (5 * TOW_TIME_S)
/* Its end may have come in the midst of writing. */
#define END_LOCK_NS (500 * TOW_TIME_MS)

/* Process-wide: there is one timeline. */
atomic_bool towc_timeline_on;

/* Process-wide: one file for the program. */
static struct {
    const char *path; /* borrowed from the environment; NULL: none is wanted */
    int64_t loaded_ns, loaded_real_ns;
    pid_t owner; /* who writes the file */
    struct tow_lock lock;
    struct towc_out out; /* guarded by the lock */
    bool open;           /* the same */
    bool started;        /* there is a thread */
    pthread_t thread;
    _Atomic uint32_t word; /* what the thread sleeps with: it changes when there is something */
    atomic_bool stop;
    _Atomic uint32_t done; /* the thread has asked for the last time */
} timeline;

struct towc_out *towc_timeline_take(void)
{
    if (timeline.owner != getpid()) {
        atomic_store(&towc_timeline_on, false); /* a child that was forked past us */
        return NULL;
    }
    tow_lock_take(&timeline.lock);
    if (!timeline.open) {
        tow_lock_give(&timeline.lock);
        return NULL;
    }
    return &timeline.out;
}

void towc_timeline_give(void)
{
    tow_lock_give(&timeline.lock);
}

void towc_timeline_hurry(void)
{
    atomic_fetch_add(&timeline.word, 1);
    tow_futex_wake(&timeline.word, 1, false);
}

/* ---- the thread ---- */

static void write_down(void)
{
    struct towc_out *out = towc_timeline_take();
    if (out == NULL) {
        return;
    }
    towc_record_drain(out);
    towc_gpu_count_bytes(out);
    if (towc_out_flush(out) < 0) {
        atomic_store(&towc_timeline_on, false);
    }
    towc_timeline_give();
}

static void *timeline_thread(void *unused)
{
    (void)unused;
    towc_record_not_me();
    int64_t next = tow_time_deadline(TICK_NS);
    while (!atomic_load(&timeline.stop)) {
        uint32_t seen = atomic_load(&timeline.word);
        if (!atomic_load(&timeline.stop)) {
            tow_futex_wait(&timeline.word, seen, next, false);
        }
        if (!tow_time_passed(next)) {
            struct towc_out *out = towc_timeline_take(); /* a ring fills */
            if (out != NULL) {
                towc_record_drain(out);
                towc_timeline_give();
            }
            continue;
        }
        write_down();
        towc_gpu_ask(false);
        next = tow_time_deadline(TICK_NS);
    }
    towc_gpu_ask(true);
    atomic_store(&timeline.done, 1);
    tow_futex_wake(&timeline.done, 1, false);
    return NULL;
}

/* ---- beginning ---- */

void towc_timeline_want(const char *path)
{
    timeline.path = path;
    timeline.loaded_ns = tow_time_now_ns();
    timeline.loaded_real_ns = tow_time_real_ns();
}

/* What this file is, in its first event. */
static void write_head(struct towc_out *out)
{
    char memory[1024], began[40] = "";
    struct tow_buf text;
    struct tow_json json;
    time_t seconds = (time_t)(timeline.loaded_real_ns / TOW_TIME_S);
    struct tm when;
    if (gmtime_r(&seconds, &when) != NULL) {
        size_t n = strftime(began, sizeof began, "%Y-%m-%dT%H:%M:%S", &when);
        snprintf(began + n, sizeof began - n, ".%06dZ",
                 (int)(timeline.loaded_real_ns % TOW_TIME_S / TOW_TIME_US));
    }
    tow_buf_init_on(&text, memory, sizeof memory);
    tow_json_init(&json, &text);
    tow_json_object(&json, NULL);
    tow_json_u64(&json, "version", 1);
    tow_json_str(&json, "program", program_invocation_short_name);
    tow_json_str(&json, "began", began);
    tow_json_end(&json);
    if (tow_json_finish(&json) == 0 && tow_buf_append(&text, "", 1) == 0) {
        towc_out_fact(out, (uint32_t)timeline.owner, 0, "towline_timeline", memory);
    }
    towc_out_name(out, (uint32_t)timeline.owner, 0, program_invocation_short_name);
}

static void forked_child(void)
{
    atomic_store(&towc_timeline_on, false);
}

void towc_timeline_begin(void)
{
    if (timeline.path == NULL || timeline.owner == getpid()) {
        return;
    }
    if (timeline.owner == 0) {
        pthread_atfork(NULL, NULL, forked_child);
    }
    timeline.owner = getpid();
    tow_lock_init(&timeline.lock, CLIENT_TIMELINE);
    timeline.started = timeline.open = false;
    atomic_store(&timeline.stop, false);
    atomic_store(&timeline.done, 0);
    int error = towc_out_open(&timeline.out, timeline.path, timeline.loaded_ns);
    if (error < 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR, "the timeline %s cannot be written: %s",
                timeline.out.path, strerror(-error));
        return;
    }
    timeline.open = true;
    write_head(&timeline.out);
    if (!towc_record_begin((uint32_t)timeline.owner)) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_ERROR,
                "the timeline %s has no calls: this program's threads use up all of their keys",
                timeline.out.path);
        return;
    }
    atomic_store(&towc_timeline_on, true);
    towc_gpu_begin((uint32_t)timeline.owner);
    timeline.started =
        tow_thread_start("towline-timeline", timeline_thread, NULL, &timeline.thread) == 0;
}

/* ---- the end ---- */

static void write_end(struct towc_out *out)
{
    char memory[512];
    struct tow_buf text;
    struct tow_json json;
    tow_buf_init_on(&text, memory, sizeof memory);
    tow_json_init(&json, &text);
    tow_json_object(&json, NULL);
    tow_json_f64(&json, "lasted_us", (double)(tow_time_now_ns() - timeline.loaded_ns) / 1e3);
    tow_json_u64(&json, "calls", towc_record_calls());
    tow_json_u64(&json, "left_out", out->left_out + towc_record_lost());
    tow_json_end(&json);
    if (tow_json_finish(&json) == 0 && tow_buf_append(&text, "", 1) == 0) {
        towc_out_fact(out, (uint32_t)timeline.owner, 0, "towline_end", memory);
    }
    if (out->error == 0 && out->left_out > 0) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "the timeline %s has its first 512 MiB; %" PRIu64 " later events are left out",
                out->path, out->left_out);
    }
}

/* The thread asks for the last time. A server that does not answer is not waited for long. */
static void stop_thread(void)
{
    int64_t until = tow_time_deadline(END_NS);
    atomic_store(&timeline.stop, true);
    towc_timeline_hurry();
    while (atomic_load(&timeline.done) == 0 && !tow_time_passed(until)) {
        tow_futex_wait(&timeline.done, 0, until, false);
    }
    if (atomic_load(&timeline.done) != 0) {
        pthread_join(timeline.thread, NULL);
        return;
    }
    pthread_detach(timeline.thread);
    tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
            "a server does not say what its GPU did last: that is missing in the timeline %s",
            timeline.out.path);
}

void towc_timeline_finish(void)
{
    if (timeline.path == NULL || timeline.owner != getpid()) {
        return;
    }
    if (timeline.started) {
        stop_thread();
    } else {
        towc_gpu_ask(true);
    }
    atomic_store(&towc_timeline_on, false);
    if (!tow_lock_take_until(&timeline.lock, tow_time_deadline(END_LOCK_NS))) {
        return; /* a handler of a signal ends the program: the file stays without its end */
    }
    if (timeline.open) {
        timeline.open = false;
        towc_record_drain(&timeline.out);
        towc_gpu_count_bytes(&timeline.out);
        towc_gpu_facts(&timeline.out);
        write_end(&timeline.out);
        towc_out_close(&timeline.out);
    }
    tow_lock_give(&timeline.lock);
}
