/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the sums of a timeline: tables, JSON, and what they advise. */
#include "cli/timeline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json_write.h"
#include "cli/cli.h"

enum { ROWS_SHOWN = 12, JSON_MAX = 256 << 20 };

static double part_of(double some, double all)
{
    return all > 0 ? some / all * 100 : 0;
}

/* "850 us", "12.3 ms", "4.5 s". */
static const char *time_text(double us, char text[16])
{
    if (us < 1000) {
        snprintf(text, 16, "%.1f us", us);
    } else if (us < 1e6) {
        snprintf(text, 16, "%.1f ms", us / 1e3);
    } else {
        snprintf(text, 16, "%.2f s", us / 1e6);
    }
    return text;
}

const struct tow_timeline_thread *tow_timeline_waiter(const struct tow_timeline_sums *sums)
{
    const struct tow_timeline_thread *most = NULL;
    for (size_t i = 0; i < sums->thread_count; i++) {
        const struct tow_timeline_thread *thread = &sums->threads[i];
        if (thread->called > 0 && (most == NULL || thread->waited > most->waited)) {
            most = thread;
        }
    }
    return most;
}

/* ---- advice ---- */

static double total_time(const struct tow_sums *sums)
{
    double time = 0;
    for (size_t i = 0; i < sums->count; i++) {
        time += sums->at[i].time;
    }
    return time;
}

static uint64_t total_count(const struct tow_sums *sums)
{
    uint64_t count = 0;
    for (size_t i = 0; i < sums->count; i++) {
        count += sums->at[i].count;
    }
    return count;
}

/* The call that waited longest of all. */
static const struct tow_sum *most_waited(const struct tow_sums *calls)
{
    const struct tow_sum *most = NULL;
    for (size_t i = 0; i < calls->count; i++) {
        most = calls->at[i].waited > (most == NULL ? 0 : most->waited) ? &calls->at[i] : most;
    }
    return most;
}

static const struct tow_sum *copy_named(const struct tow_timeline_sums *sums, const char *name)
{
    for (size_t i = 0; i < sums->copies.count; i++) {
        if (strcmp(sums->copies.at[i].name, name) == 0) {
            return &sums->copies.at[i];
        }
    }
    return NULL;
}

/* What the sentences are made of. */
struct findings {
    double window, idle;   /* from the GPU's first work to its last; without work, in percent */
    double waited, called; /* by the thread that waits most, in percent of all */
    double kernels;        /* us of each */
    const struct tow_sum *waits;
};

static struct findings find_all(const struct tow_timeline_sums *sums)
{
    const struct tow_timeline_thread *waiter = tow_timeline_waiter(sums);
    uint64_t count = total_count(&sums->kernels);
    struct findings found = {
        .window = sums->gpu_last - sums->gpu_first,
        .waited = waiter != NULL ? part_of(waiter->waited, sums->lasted) : 0,
        .called = waiter != NULL ? part_of(waiter->called, sums->lasted) : 0,
        .kernels = count > 0 ? total_time(&sums->kernels) / (double)count : 0,
        .waits = most_waited(&sums->calls),
    };
    for (size_t i = 0; i < sums->server_count; i++) {
        if (sums->servers[i].lost > 0) {
            found.window = 0; /* nobody knows what the GPU did then */
        }
    }
    found.idle = found.window > 0 ? 100 - part_of(sums->gpu_busy, found.window) : 0;
    return found;
}

/* The GPU waits for the program. False: it does not, or nobody knows why. */
static bool advise_idle(const struct tow_timeline_sums *sums, const struct findings *found,
                        char *text)
{
    char each[16];
    if (found->window <= 0 || found->idle < 30) {
        return false;
    }
    /* Long waits are for what the GPU computes: no way there is that long. */
    if (found->waits != NULL && found->waited >= 30 && found->waits->count >= 100 &&
        found->waits->waited / (double)found->waits->count < 2000) {
        snprintf(text, TOW_TIMELINE_SENTENCE,
                 "The GPU has nothing to do for %.0f %% of the time, and the program waits for "
                 "answers for %.0f %%: most in %s (%llu calls, %s each), so call that less often, "
                 "or take a nearer server.",
                 found->idle, found->waited, found->waits->name,
                 (unsigned long long)found->waits->count,
                 time_text(found->waits->waited / (double)found->waits->count, each));
        return true;
    }
    if (total_count(&sums->kernels) >= 1000 && found->kernels < 20 && found->called >= 50) {
        snprintf(text, TOW_TIMELINE_SENTENCE,
                 "The GPU has nothing to do for %.0f %% of the time, and its kernels take %s each: "
                 "launching them takes longer, so launch them as a CUDA graph, or fuse them.",
                 found->idle, time_text(found->kernels, each));
        return true;
    }
    if (found->called < 50) {
        snprintf(text, TOW_TIMELINE_SENTENCE,
                 "The GPU has nothing to do for %.0f %% of the time, and the program is in calls "
                 "for %.0f %%: what it computes or reads itself holds the GPU up.",
                 found->idle, found->called);
        return true;
    }
    return false;
}

static bool advise_copies(const struct tow_timeline_sums *sums, char *text)
{
    const struct tow_sum *in = copy_named(sums, "copy to the GPU");
    const struct tow_sum *out = copy_named(sums, "copy from the GPU");
    double time = (in != NULL ? in->time : 0) + (out != NULL ? out->time : 0);
    double bytes = (in != NULL ? in->bytes : 0) + (out != NULL ? out->bytes : 0);
    uint64_t count = (in != NULL ? in->count : 0) + (out != NULL ? out->count : 0);
    double all = total_time(&sums->kernels) + total_time(&sums->copies);
    char size[16], each[16];
    if (count == 0 || part_of(time, all) < 30) {
        return false;
    }
    bool small = count >= 1000 && bytes / (double)count < 64 << 10;
    snprintf(text, TOW_TIMELINE_SENTENCE,
             "Copies between host and GPU are %.0f %% of what the GPU does (%llu of them, %s in "
             "all%s%s): %s.",
             part_of(time, all), (unsigned long long)count, tow_cli_bytes(bytes, size),
             small ? ", each " : "", small ? tow_cli_bytes(bytes / (double)count, each) : "",
             small ? "copy more at a time" : "leave on the GPU what it needs again");
    return true;
}

static bool advise_start(const struct tow_timeline_sums *sums, char *text)
{
    static const char *const names[] = {"cuInit",
                                        "cuDriverGetVersion",
                                        "cuModuleLoadData",
                                        "cuModuleLoadDataEx",
                                        "cuModuleLoadFatBinary",
                                        "cuLibraryLoadData",
                                        "cuLinkAddData_v2",
                                        "cuLinkComplete"};
    double time = 0;
    char took[16];
    for (size_t i = 0; i < sums->calls.count; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            if (strcmp(sums->calls.at[i].name, names[n]) == 0) {
                time += sums->calls.at[i].time;
            }
        }
    }
    if (part_of(time, sums->lasted) < 25 || time < 100e3) {
        return false;
    }
    snprintf(text, TOW_TIMELINE_SENTENCE,
             "Connecting and loading code take %s, %.0f %% of all: let one process do more of the "
             "work.",
             time_text(time, took), part_of(time, sums->lasted));
    return true;
}

static bool advise_kernel(const struct tow_timeline_sums *sums, const struct findings *found,
                          char *text)
{
    const struct tow_sum *first = sums->kernels.count > 0 ? &sums->kernels.at[0] : NULL;
    double all = total_time(&sums->kernels) + total_time(&sums->copies);
    if (first == NULL || found->window <= 0 || found->idle >= 30 ||
        part_of(first->time, all) < 50) {
        return false;
    }
    snprintf(text, TOW_TIMELINE_SENTENCE,
             "The kernel %.120s is %.0f %% of what the GPU does: a faster one helps most.",
             first->name, part_of(first->time, all));
    return true;
}

unsigned tow_timeline_advise(const struct tow_timeline_sums *sums,
                             char ret_advice[TOW_TIMELINE_ADVICE][TOW_TIMELINE_SENTENCE])
{
    struct findings found = find_all(sums);
    unsigned count = 0;
    count += advise_idle(sums, &found, ret_advice[count]);
    count += advise_copies(sums, ret_advice[count]);
    count += advise_start(sums, ret_advice[count]);
    if (count < TOW_TIMELINE_ADVICE) {
        count += advise_kernel(sums, &found, ret_advice[count]);
    }
    return count;
}

/* ---- tables ---- */

static void show_row(const char *what, double time, double all)
{
    char text[16];
    printf("  %-44s %10s %5.0f %%\n", what, time_text(time, text), part_of(time, all));
}

static void show_where(const struct tow_timeline_sums *sums)
{
    const struct tow_timeline_thread *waiter = tow_timeline_waiter(sums);
    double window = sums->gpu_last - sums->gpu_first;
    char what[80];
    printf("\n%-46s %10s %7s\n", "WHERE THE TIME WENT", "TIME", "SHARE");
    show_row("all", sums->lasted, sums->lasted);
    if (window > 0) {
        show_row("GPU: from its first work to its last", window, sums->lasted);
        show_row("GPU: busy", sums->gpu_busy, sums->lasted);
        show_row("GPU: idle between", window - sums->gpu_busy, sums->lasted);
    }
    if (waiter != NULL) {
        snprintf(what, sizeof what, "%.24s: waits for the server", waiter->name);
        show_row(what, waiter->waited, sums->lasted);
        snprintf(what, sizeof what, "%.24s: in calls otherwise", waiter->name);
        show_row(what, waiter->called - waiter->waited, sums->lasted);
        snprintf(what, sizeof what, "%.24s: outside of calls", waiter->name);
        show_row(what, sums->lasted - waiter->called, sums->lasted);
    }
}

static void show_more(size_t count)
{
    if (count > ROWS_SHOWN) {
        printf("  and %zu more, which took less\n", count - ROWS_SHOWN);
    }
}

/* Names are a program's, or a hostile server's: they move no cursor. */
static const char *name_text(const char *name, char text[45])
{
    snprintf(text, 45, "%s", name);
    for (char *at = text; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at;
    }
    return text;
}

static void show_kernels(const struct tow_sums *kernels, double all)
{
    char name[45], time[16], each[16], queued[16];
    printf("\n%-46s %10s %7s %9s %10s %10s\n", "KERNEL", "TIME", "SHARE", "COUNT", "EACH",
           "QUEUED");
    for (size_t i = 0; i < kernels->count && i < ROWS_SHOWN; i++) {
        const struct tow_sum *sum = &kernels->at[i];
        printf("  %-44s %10s %5.0f %% %9llu %10s %10s\n", name_text(sum->name, name),
               time_text(sum->time, time), part_of(sum->time, all), (unsigned long long)sum->count,
               time_text(sum->time / (double)sum->count, each),
               time_text(sum->waited / (double)sum->count, queued));
    }
    show_more(kernels->count);
}

static void show_copies(const struct tow_sums *copies, double all)
{
    char name[45], time[16], bytes[16], rate[16];
    printf("\n%-46s %10s %7s %9s %10s %12s\n", "COPY", "TIME", "SHARE", "COUNT", "BYTES", "RATE");
    for (size_t i = 0; i < copies->count; i++) {
        const struct tow_sum *sum = &copies->at[i];
        printf("  %-44s %10s %5.0f %% %9llu %10s %10s/s\n", name_text(sum->name, name),
               time_text(sum->time, time), part_of(sum->time, all), (unsigned long long)sum->count,
               tow_cli_bytes(sum->bytes, bytes),
               tow_cli_bytes(sum->time > 0 ? sum->bytes / sum->time * 1e6 : 0, rate));
    }
}

static void show_calls(const struct tow_timeline_sums *sums)
{
    char name[45], time[16], each[16], waited[16];
    printf("\n%-46s %10s %7s %9s %10s %10s\n", "CALL", "TIME", "SHARE", "COUNT", "EACH", "WAITED");
    for (size_t i = 0; i < sums->calls.count && i < ROWS_SHOWN; i++) {
        const struct tow_sum *sum = &sums->calls.at[i];
        printf("  %-44s %10s %5.0f %% %9llu %10s %10s\n", name_text(sum->name, name),
               time_text(sum->time, time), part_of(sum->time, sums->lasted),
               (unsigned long long)sum->count, time_text(sum->time / (double)sum->count, each),
               time_text(sum->waited, waited));
    }
    show_more(sums->calls.count);
}

static void show_servers(const struct tow_timeline_sums *sums)
{
    char sent[16], received[16], rate[16], error[16];
    printf("\n");
    for (size_t i = 0; i < sums->server_count; i++) {
        const struct tow_timeline_server *server = &sums->servers[i];
        printf("%s: %s sent, %s received", server->address, tow_cli_bytes(server->sent, sent),
               tow_cli_bytes(server->received, received));
        if (server->gpu) {
            printf("; its clock is known to %s", time_text(server->error_ns / 1e3, error));
        } else {
            printf("; it does not say what its GPU did");
        }
        printf(server->lost > 0 ? "; %.0f things that its GPU did are missing.\n" : ".\n",
               server->lost);
    }
    if (sums->sent_most > 0 || sums->received_most > 0) {
        printf("The line: at most %s/s sent", tow_cli_bytes(sums->sent_most, rate));
        printf(", %s/s received.\n", tow_cli_bytes(sums->received_most, rate));
    }
    if (sums->left_out > 0) {
        printf("%.0f events had no room in the file.\n", sums->left_out);
    }
}

void tow_timeline_show(const char *path, const struct tow_timeline_sums *sums)
{
    char advice[TOW_TIMELINE_ADVICE][TOW_TIMELINE_SENTENCE], took[16], program[45];
    double all = total_time(&sums->kernels) + total_time(&sums->copies);
    size_t threads = 0;
    for (size_t i = 0; i < sums->thread_count; i++) {
        threads += sums->threads[i].called > 0;
    }
    printf("%s: %s, %s, %llu calls by %zu thread%s, %llu waits for the server\n", path,
           name_text(sums->program, program), time_text(sums->lasted, took),
           (unsigned long long)total_count(&sums->calls), threads, threads == 1 ? "" : "s",
           (unsigned long long)sums->waits);
    show_where(sums);
    if (sums->kernels.count > 0) {
        show_kernels(&sums->kernels, all);
    }
    if (sums->copies.count > 0) {
        show_copies(&sums->copies, all);
    }
    show_calls(sums);
    show_servers(sums);
    unsigned count = tow_timeline_advise(sums, advice);
    for (unsigned i = 0; i < count; i++) {
        printf("%s%s\n", i == 0 ? "\n" : "", advice[i]);
    }
}

/* ---- JSON ---- */

static void write_sums(struct tow_json *json, const char *key, const struct tow_sums *sums,
                       const char *waited)
{
    tow_json_array(json, key);
    for (size_t i = 0; i < sums->count; i++) {
        const struct tow_sum *sum = &sums->at[i];
        tow_json_object(json, NULL);
        tow_json_str(json, "name", sum->name);
        tow_json_u64(json, "count", sum->count);
        tow_json_f64(json, "us", sum->time);
        tow_json_f64(json, "longest_us", sum->most);
        tow_json_f64(json, waited, sum->waited);
        if (sum->bytes > 0) {
            tow_json_f64(json, "bytes", sum->bytes);
        }
        tow_json_end(json);
    }
    tow_json_end(json);
}

static void write_threads(struct tow_json *json, const struct tow_timeline_sums *sums)
{
    tow_json_array(json, "threads");
    for (size_t i = 0; i < sums->thread_count; i++) {
        const struct tow_timeline_thread *thread = &sums->threads[i];
        if (thread->called > 0) {
            tow_json_object(json, NULL);
            tow_json_u64(json, "thread", (uint64_t)thread->id);
            tow_json_str(json, "name", thread->name);
            tow_json_f64(json, "in_calls_us", thread->called);
            tow_json_f64(json, "waited_us", thread->waited);
            tow_json_end(json);
        }
    }
    tow_json_end(json);
}

static void write_servers(struct tow_json *json, const struct tow_timeline_sums *sums)
{
    tow_json_array(json, "servers");
    for (size_t i = 0; i < sums->server_count; i++) {
        const struct tow_timeline_server *server = &sums->servers[i];
        tow_json_object(json, NULL);
        tow_json_str(json, "address", server->address);
        tow_json_bool(json, "gpu", server->gpu);
        tow_json_f64(json, "bytes_sent", server->sent);
        tow_json_f64(json, "bytes_received", server->received);
        tow_json_f64(json, "lost", server->lost);
        if (server->gpu) {
            tow_json_f64(json, "clock_error_us", server->error_ns / 1e3);
            tow_json_f64(json, "clock_drift_ppm", server->drift_ppm);
        }
        tow_json_end(json);
    }
    tow_json_end(json);
}

int tow_timeline_print_json(const struct tow_timeline_sums *sums)
{
    char advice[TOW_TIMELINE_ADVICE][TOW_TIMELINE_SENTENCE];
    struct tow_buf text;
    struct tow_json json;
    tow_buf_init(&text, JSON_MAX);
    tow_json_init(&json, &text);
    tow_json_object(&json, NULL);
    tow_json_str(&json, "program", sums->program);
    tow_json_str(&json, "began", sums->began);
    tow_json_bool(&json, "ended", sums->ended);
    tow_json_f64(&json, "lasted_us", sums->lasted);
    tow_json_f64(&json, "left_out", sums->left_out);
    tow_json_object(&json, "gpu");
    tow_json_f64(&json, "first_us", sums->gpu_first);
    tow_json_f64(&json, "last_us", sums->gpu_last);
    tow_json_f64(&json, "busy_us", sums->gpu_busy);
    tow_json_f64(&json, "idle_us", sums->gpu_last - sums->gpu_first - sums->gpu_busy);
    tow_json_end(&json);
    write_sums(&json, "kernels", &sums->kernels, "queued_us");
    write_sums(&json, "copies", &sums->copies, "queued_us");
    write_sums(&json, "calls", &sums->calls, "waited_us");
    tow_json_u64(&json, "waits", sums->waits);
    write_threads(&json, sums);
    write_servers(&json, sums);
    tow_json_f64(&json, "sent_most_per_s", sums->sent_most);
    tow_json_f64(&json, "received_most_per_s", sums->received_most);
    tow_json_array(&json, "advice");
    unsigned count = tow_timeline_advise(sums, advice);
    for (unsigned i = 0; i < count; i++) {
        tow_json_str(&json, NULL, advice[i]);
    }
    tow_json_end(&json);
    tow_json_end(&json);
    int error = tow_json_finish(&json);
    if (error == 0) {
        error = tow_buf_append(&text, "\n", 1);
    }
    if (error == 0) {
        error = tow_file_write_all(STDOUT_FILENO, text.data, text.size);
    }
    if (error < 0) {
        tow_cli_say("the summary cannot be written: %s", strerror(-error));
    }
    tow_buf_fini(&text);
    return error;
}
