/* SPDX-License-Identifier: Apache-2.0 */
/* `towline timeline`: reads a file of `towline run --timeline` line by line, and sums up. */
#include "cli/timeline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json_read.h"
#include "cli/cli.h"

/* An event of ours has at most 4 KiB. A foreign file may be one line. */
enum { LINE_LENGTH_MAX = 16 << 10, NAMES_MAX = 1 << 20, VERSION = 1 };

/* ---- sums ---- */

static size_t hash_of(const char *name)
{
    size_t hash = 2166136261u; /* FNV-1a */
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    }
    return hash;
}

/* Twice as many slots as sums, so that one is always free. */
static int sums_grow(struct tow_sums *sums)
{
    size_t room = sums->room == 0 ? 256 : 2 * sums->room;
    struct tow_sum *at = room > NAMES_MAX ? NULL : realloc(sums->at, room * sizeof *at);
    if (at == NULL) {
        return -ENOMEM;
    }
    sums->at = at;
    uint32_t *slots = calloc(2 * room, sizeof *slots);
    if (slots == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < sums->count; i++) {
        size_t slot = hash_of(at[i].name) % (2 * room);
        while (slots[slot] != 0) {
            slot = (slot + 1) % (2 * room);
        }
        slots[slot] = (uint32_t)i + 1;
    }
    free(sums->slots);
    sums->slots = slots;
    sums->room = room;
    return 0;
}

struct tow_sum *tow_sums_find(struct tow_sums *sums, const char *name)
{
    if (sums->count == sums->room && sums_grow(sums) < 0) {
        return NULL;
    }
    size_t slot = hash_of(name) % (2 * sums->room);
    for (; sums->slots[slot] != 0; slot = (slot + 1) % (2 * sums->room)) {
        struct tow_sum *sum = &sums->at[sums->slots[slot] - 1];
        if (strcmp(sum->name, name) == 0) {
            return sum;
        }
    }
    char *copy = strdup(name);
    if (copy == NULL) {
        return NULL;
    }
    sums->at[sums->count] = (struct tow_sum){.name = copy};
    sums->slots[slot] = (uint32_t)sums->count + 1;
    return &sums->at[sums->count++];
}

static int compare_sums(const void *one, const void *other)
{
    double a = ((const struct tow_sum *)one)->time, b = ((const struct tow_sum *)other)->time;
    return a < b ? 1 : a > b ? -1 : 0;
}

void tow_sums_sort(struct tow_sums *sums)
{
    if (sums->count > 0) {
        qsort(sums->at, sums->count, sizeof *sums->at, compare_sums);
    }
}

static void sums_fini(struct tow_sums *sums)
{
    for (size_t i = 0; i < sums->count; i++) {
        free(sums->at[i].name);
    }
    free(sums->at);
    free(sums->slots);
}

/* Of streams that work at the same time the time counts once: intervals that touch the last one
 * become part of it. */
static int add_busy(struct tow_timeline_sums *sums, double began, double ended)
{
    struct tow_interval *last = sums->busy_count > 0 ? &sums->busy[sums->busy_count - 1] : NULL;
    if (last != NULL && began <= last->ended && ended >= last->began) {
        last->began = began < last->began ? began : last->began;
        last->ended = ended > last->ended ? ended : last->ended;
        return 0;
    }
    if (sums->busy_count == sums->busy_room) {
        size_t room = sums->busy_room == 0 ? 1024 : 2 * sums->busy_room;
        struct tow_interval *busy = realloc(sums->busy, room * sizeof *busy);
        if (busy == NULL) {
            return -ENOMEM;
        }
        sums->busy = busy;
        sums->busy_room = room;
    }
    sums->busy[sums->busy_count++] = (struct tow_interval){began, ended};
    return 0;
}

static int compare_intervals(const void *one, const void *other)
{
    double a = ((const struct tow_interval *)one)->began;
    double b = ((const struct tow_interval *)other)->began;
    return a < b ? -1 : a > b ? 1 : 0;
}

static void sum_busy(struct tow_timeline_sums *sums)
{
    if (sums->busy_count == 0) {
        return;
    }
    qsort(sums->busy, sums->busy_count, sizeof *sums->busy, compare_intervals);
    sums->gpu_first = sums->gpu_last = sums->busy[0].began;
    for (size_t i = 0; i < sums->busy_count; i++) {
        const struct tow_interval *next = &sums->busy[i];
        double since = next->began > sums->gpu_last ? next->began : sums->gpu_last;
        if (next->ended > since) {
            sums->gpu_busy += next->ended - since;
            sums->gpu_last = next->ended;
        }
    }
}

/* ---- events ---- */

static struct tow_timeline_thread *thread_of(struct tow_timeline_sums *sums, double id)
{
    /* One thread has many events in a row. */
    static struct tow_timeline_thread spare;
    for (size_t i = sums->thread_count; i > 0; i--) {
        if (sums->threads[i - 1].id == id) {
            return &sums->threads[i - 1];
        }
    }
    if (sums->thread_count == TOW_TIMELINE_THREADS) {
        return &spare; /* more than a program of people's has at a time */
    }
    struct tow_timeline_thread *thread = &sums->threads[sums->thread_count++];
    thread->id = id;
    return thread;
}

/* The time of calls that a call made is its own. */
static void add_call(struct tow_timeline_thread *thread, double began, double ended)
{
    enum { LAST = sizeof thread->last / sizeof *thread->last };
    struct tow_interval *last = thread->last;
    while (thread->last_count > 0 && last[thread->last_count - 1].began >= began) {
        thread->last_count--;
        thread->called -= last[thread->last_count].ended - last[thread->last_count].began;
    }
    if (thread->last_count == LAST) {
        memmove(last, last + 1, (LAST - 1) * sizeof *last);
        thread->last_count--;
    }
    last[thread->last_count++] = (struct tow_interval){began, ended};
    thread->called += ended - began;
}

static int take_span(struct tow_timeline_sums *sums, const struct tow_json_doc *doc)
{
    const struct tow_json_value *event = doc->values, *args = tow_json_member(doc, event, "args");
    const char *kind = tow_json_text(doc, event, "cat"), *name = tow_json_text(doc, event, "name");
    double began = tow_json_number(doc, event, "ts"), took = tow_json_number(doc, event, "dur");
    if (kind == NULL || name == NULL || took < 0) {
        return -EPROTO;
    }
    sums->lasted = began + took > sums->lasted ? began + took : sums->lasted;
    if (strcmp(kind, "queue") == 0) {
        return 0;
    }
    bool call = strcmp(kind, "call") == 0;
    if (call || strcmp(kind, "wait") == 0) {
        struct tow_timeline_thread *thread = thread_of(sums, tow_json_number(doc, event, "tid"));
        if (!call) {
            thread->waited += took;
            sums->waits++;
            return 0;
        }
        add_call(thread, began, began + took);
    }
    struct tow_sums *all = call                          ? &sums->calls
                           : strcmp(kind, "kernel") == 0 ? &sums->kernels
                                                         : &sums->copies;
    struct tow_sum *sum = tow_sums_find(all, name);
    if (sum == NULL) {
        return -ENOMEM;
    }
    sum->count++;
    sum->time += took;
    sum->most = took > sum->most ? took : sum->most;
    sum->waited += tow_json_number(doc, args, call ? "waited_us" : "queued_us");
    sum->bytes += tow_json_number(doc, args, "bytes");
    return call ? 0 : add_busy(sums, began, began + took);
}

static void take_count(struct tow_timeline_sums *sums, const struct tow_json_doc *doc)
{
    const struct tow_json_value *args = tow_json_member(doc, doc->values, "args");
    double sent = tow_json_number(doc, args, "sent");
    double received = tow_json_number(doc, args, "received");
    sums->sent_most = sent > sums->sent_most ? sent : sums->sent_most;
    sums->received_most = received > sums->received_most ? received : sums->received_most;
}

static void copy_text(char *into, size_t size, const char *text)
{
    snprintf(into, size, "%s", text != NULL ? text : "");
}

static void take_server(struct tow_timeline_sums *sums, const struct tow_json_doc *doc,
                        const struct tow_json_value *args)
{
    if (sums->server_count == TOW_TIMELINE_SERVERS) {
        return;
    }
    struct tow_timeline_server *server = &sums->servers[sums->server_count++];
    copy_text(server->address, sizeof server->address, tow_json_text(doc, args, "address"));
    const struct tow_json_value *gpu = tow_json_member(doc, args, "gpu");
    server->gpu = gpu != NULL && gpu->number != 0;
    server->sent = tow_json_number(doc, args, "bytes_sent");
    server->received = tow_json_number(doc, args, "bytes_received");
    server->lost = tow_json_number(doc, args, "spans_lost");
    server->error_ns = tow_json_number(doc, args, "clock_error_ns");
    server->drift_ppm = tow_json_number(doc, args, "clock_drift_ppm");
}

static int take_fact(struct tow_timeline_sums *sums, const struct tow_json_doc *doc)
{
    const struct tow_json_value *args = tow_json_member(doc, doc->values, "args");
    const char *name = tow_json_text(doc, doc->values, "name");
    if (name == NULL || args == NULL) {
        return -EPROTO;
    }
    if (strcmp(name, "thread_name") == 0) {
        struct tow_timeline_thread *thread =
            thread_of(sums, tow_json_number(doc, doc->values, "tid"));
        copy_text(thread->name, sizeof thread->name, tow_json_text(doc, args, "name"));
    } else if (strcmp(name, "towline_server") == 0) {
        take_server(sums, doc, args);
    } else if (strcmp(name, "towline_end") == 0) {
        sums->ended = true;
        sums->lasted = tow_json_number(doc, args, "lasted_us");
        sums->left_out = tow_json_number(doc, args, "left_out");
    }
    return 0;
}

/* -EPROTO: it is no event of ours. */
static int take_event(struct tow_timeline_sums *sums, const struct tow_json_doc *doc)
{
    const char *phase = tow_json_text(doc, doc->values, "ph");
    if (phase == NULL) {
        return -EPROTO;
    }
    switch (phase[0]) {
    case 'X':
        return take_span(sums, doc);
    case 'C':
        take_count(sums, doc);
        return 0;
    case 'M':
        return take_fact(sums, doc);
    default:
        return -EPROTO;
    }
}

/* ---- the file ---- */

/* The first event says what file it is: 0, -EPROTO, or (of a later version) -ENOTSUP. */
static int take_head(struct tow_timeline_sums *sums, const struct tow_json_doc *doc)
{
    const char *name = tow_json_text(doc, doc->values, "name");
    const struct tow_json_value *args = tow_json_member(doc, doc->values, "args");
    if (name == NULL || strcmp(name, "towline_timeline") != 0 || args == NULL) {
        return -EPROTO;
    }
    copy_text(sums->program, sizeof sums->program, tow_json_text(doc, args, "program"));
    copy_text(sums->began, sizeof sums->began, tow_json_text(doc, args, "began"));
    return tow_json_number(doc, args, "version") > VERSION ? -ENOTSUP : 0;
}

/* One line, without what stands between events. 0 if that is all there is to it. */
static int take_line(struct tow_timeline_sums *sums, const char *line, size_t size, bool first)
{
    struct tow_json_doc doc = {0};
    if (first) {
        if (size == 0 || line[0] != '[') {
            return -EPROTO;
        }
        line++;
        size--;
    }
    size -= size > 0 && line[size - 1] == ',';
    if (size == 0 || (size == 1 && line[0] == ']')) {
        return first ? -EPROTO : 0;
    }
    int error = tow_json_doc_parse(line, size, &doc);
    if (error == 0 && doc.values[0].type != TOW_JSON_OBJECT) {
        error = -EPROTO;
    }
    if (error == 0) {
        error = first ? take_head(sums, &doc) : take_event(sums, &doc);
    }
    tow_json_doc_fini(&doc);
    return error;
}

/* -errno, and it was said. */
static int read_file(FILE *file, const char *path, struct tow_timeline_sums *sums)
{
    static char line[LINE_LENGTH_MAX];
    unsigned long number = 0;
    int error = 0;
    bool whole = true; /* the last line had its end */
    while (error == 0 && fgets(line, sizeof line, file) != NULL) {
        size_t size = strlen(line);
        whole = size > 0 && line[size - 1] == '\n';
        number++;
        error = take_line(sums, line, size - whole, number == 1);
    }
    if (ferror(file)) {
        error = -EIO;
        tow_cli_say("%s cannot be read: %s", path, strerror(EIO));
    } else if (number == 0) {
        error = -ENODATA;
        tow_cli_say("%s is empty: no program that used a GPU has written its timeline there", path);
    } else if (error == -EPROTO && number > 1 && !whole && feof(file)) {
        error = 0; /* a killed program was writing it */
    } else if (error == -EPROTO || error == -E2BIG) {
        if (number == 1) {
            tow_cli_say("%s is nothing that towline run --timeline has written", path);
        } else {
            tow_cli_say("%s is damaged: line %lu is no event of a timeline", path, number);
        }
    } else if (error == -ENOTSUP) {
        tow_cli_say("%s is of a newer Towline: its towline timeline reads it", path);
    } else if (error < 0) {
        tow_cli_say("%s cannot be summed up: %s", path, strerror(-error));
    }
    return error;
}

static int timeline_show_file(const char *path, bool json)
{
    struct tow_timeline_sums sums = {.busy = NULL};
    bool input = strcmp(path, "-") == 0;
    FILE *file = input ? stdin : fopen(path, "re");
    struct stat status;
    int error = 0;
    if (file != NULL && fstat(fileno(file), &status) == 0 && S_ISDIR(status.st_mode)) {
        fclose(file);
        file = NULL;
        errno = EISDIR;
    }
    if (file == NULL) {
        error = -errno;
        tow_cli_say("%s cannot be read: %s", path, strerror(-error));
        return error;
    }
    sums.threads = calloc(TOW_TIMELINE_THREADS, sizeof *sums.threads);
    error = sums.threads == NULL ? -ENOMEM : read_file(file, input ? "stdin" : path, &sums);
    if (!input) {
        fclose(file);
    }
    if (error == 0) {
        sum_busy(&sums);
        tow_sums_sort(&sums.kernels);
        tow_sums_sort(&sums.copies);
        tow_sums_sort(&sums.calls);
        if (!sums.ended) {
            tow_cli_tell("%s has no end: its program was killed, or still runs; this is what came "
                         "before",
                         path);
        }
        if (json) {
            error = tow_timeline_print_json(&sums);
        } else {
            tow_timeline_show(path, &sums);
        }
    }
    sums_fini(&sums.kernels);
    sums_fini(&sums.copies);
    sums_fini(&sums.calls);
    free(sums.busy);
    free(sums.threads);
    return error;
}

static int timeline_main(int argc, char **argv)
{
    struct tow_flags flags = {
        .command = &tow_command_timeline, .argc = argc, .argv = argv, .at = 1};
    const char *value;
    bool json = false;
    int key;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
        json |= key == 'j';
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (flags.words != 1) {
        tow_cli_say("name one file: towline timeline FILE, of a program that ran with towline run "
                    "--timeline FILE");
        return TOW_EXIT_USAGE;
    }
    return timeline_show_file(argv[1], json) < 0 ? TOW_EXIT_FAILED : 0;
}

static const struct tow_flag timeline_flags[] = {
    {NULL, "--json", NULL, 'j'},
    {NULL, NULL, NULL, 0},
};

const struct tow_command tow_command_timeline = {
    .name = "timeline",
    .summary = "say where a program's time went, of a timeline",
    .help = "towline timeline FILE [--json]: sums up a timeline that towline run has written (-: "
            "stdin).\n"
            "\n"
            "  towline run --timeline train.json -- python3 train.py\n"
            "  towline timeline train.json\n"
            "\n"
            "Shows whether the GPU was busy and what the program waited for; kernels, copies and "
            "calls that took\n"
            "longest; and, where the numbers give it, what would help. The file itself is for "
            "https://ui.perfetto.dev\n"
            "or chrome://tracing.\n"
            "\n"
            "  --json   everything as an object, with times in microseconds\n",
    .flags = timeline_flags,
    .run = timeline_main,
};
