/* SPDX-License-Identifier: Apache-2.0 */
/* `towline stats`: a table, and what it means, of what TOWLINE_STATS has written. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json_read.h"
#include "transport/transport.h"

enum { STATS_MAX = 4 << 20, ROWS_SHOWN = 20 };

/* How a function was answered, and how long its calls took in all. */
struct stats_row {
    const char *name; /* the document's */
    double local, cached, async, sync, ns;
};

struct stats {
    struct stats_row *rows; /* owned; those that took longest first */
    size_t count;
    double calls, sync, ns;
    double replies, commands, out, in, compared_bytes;
};

static double row_calls(const struct stats_row *row)
{
    return row->local + row->cached + row->async + row->sync;
}

static int compare_rows(const void *one, const void *other)
{
    double a = ((const struct stats_row *)one)->ns, b = ((const struct stats_row *)other)->ns;
    return a < b ? 1 : a > b ? -1 : 0;
}

/* -EPROTO: the file has something else. */
static int stats_read(const struct tow_json_doc *doc, struct stats *ret_stats)
{
    const struct tow_json_value *root = doc->values, *call = NULL;
    const struct tow_json_value *calls = tow_json_member(doc, root, "calls");
    struct stats stats = {
        .replies = tow_json_number(doc, root, "replies_waited"),
        .commands = tow_json_number(doc, root, "commands"),
        .out = tow_json_number(doc, root, "bytes_out"),
        .in = tow_json_number(doc, root, "bytes_in"),
        .compared_bytes = tow_json_number(doc, root, "compared_bytes"),
    };
    if (calls == NULL || calls->type != TOW_JSON_OBJECT) {
        return -EPROTO;
    }
    stats.rows = calloc(doc->count, sizeof *stats.rows);
    if (stats.rows == NULL) {
        return -ENOMEM;
    }
    while ((call = tow_json_next(doc, calls, call)) != NULL) {
        struct stats_row *row = &stats.rows[stats.count++];
        *row = (struct stats_row){
            .name = call->key,
            .local = tow_json_number(doc, call, "local"),
            .cached = tow_json_number(doc, call, "cached"),
            .async = tow_json_number(doc, call, "async"),
            .sync = tow_json_number(doc, call, "sync"),
            .ns = tow_json_number(doc, call, "ns"),
        };
        stats.calls += row_calls(row);
        stats.sync += row->sync;
        stats.ns += row->ns;
    }
    qsort(stats.rows, stats.count, sizeof *stats.rows, compare_rows);
    *ret_stats = stats;
    return 0;
}

static void show_rows(const struct stats *stats)
{
    printf("%-34s %10s %10s %10s %10s %10s %11s %6s\n", "FUNCTION", "CALLS", "WAITED", "SENT",
           "KNOWN", "TIME", "EACH", "SHARE");
    for (size_t i = 0; i < stats->count && i < ROWS_SHOWN; i++) {
        const struct stats_row *row = &stats->rows[i];
        double calls = row_calls(row);
        printf("%-34.34s %10.0f %10.0f %10.0f %10.0f %7.1f ms %8.1f us %4.0f %%\n", row->name,
               calls, row->sync, row->async, row->local + row->cached, row->ns / 1e6,
               calls > 0 ? row->ns / calls / 1e3 : 0,
               stats->ns > 0 ? row->ns / stats->ns * 100 : 0);
    }
    if (stats->count > ROWS_SHOWN) {
        printf("and %zu more, which took less\n", stats->count - ROWS_SHOWN);
    }
}

/* The function that has most of something. */
static const struct stats_row *most_waited(const struct stats *stats)
{
    const struct stats_row *most = NULL;
    for (size_t i = 0; i < stats->count; i++) {
        most = stats->rows[i].sync > (most == NULL ? 0 : most->sync) ? &stats->rows[i] : most;
    }
    return most;
}

static void show_verdict(const struct stats *stats)
{
    char out[16], in[16];
    const struct stats_row *most = most_waited(stats);
    double share = stats->calls > 0 ? stats->sync / stats->calls * 100 : 0;
    printf(
        "\n%.0f calls, of which %.0f (%.1f %%) have waited for the server; %.0f commands, %s sent, "
        "%s received.\n",
        stats->calls, stats->sync, share, stats->commands, tow_cli_bytes(stats->out, out),
        tow_cli_bytes(stats->in, in));
    if (most == NULL) {
        printf("Nothing has waited: how far away the server is makes no difference.\n");
    } else if (share < 1) {
        printf("Few calls wait, %s most often: how far away the server is makes little "
               "difference.\n",
               most->name);
    } else {
        printf("Each that waits takes a round trip: %.0f of them, %.0f ms where one takes 0.1 ms. "
               "%s waits most often (%.0f times, %.1f us each).\n",
               stats->replies, stats->replies / 10, most->name, most->sync,
               most->ns / row_calls(most) / 1e3);
    }
    if (stats->compared_bytes > 1 << 30) {
        printf("%s of memory that host and GPU share were compared: TOWLINE_MANAGED=track, or a "
               "server on this machine, makes that less.\n",
               tow_cli_bytes(stats->compared_bytes, out));
    }
}

static int stats_show(const char *path)
{
    struct tow_buf text;
    struct tow_json_doc doc = {0};
    struct stats stats = {.rows = NULL};
    tow_buf_init(&text, STATS_MAX);
    int error = tow_file_read(strcmp(path, "-") == 0 ? "/dev/stdin" : path, &text);
    if (error < 0) {
        tow_cli_say("%s cannot be read: %s", path, strerror(-error));
    } else {
        error = tow_json_doc_parse((const char *)text.data, text.size, &doc);
        error = error < 0 ? error : stats_read(&doc, &stats);
        if (error < 0) {
            tow_cli_say("%s is nothing that TOWLINE_STATS=FILE has written", path);
        }
    }
    if (error == 0) {
        show_rows(&stats);
        show_verdict(&stats);
    }
    free(stats.rows);
    tow_json_doc_fini(&doc);
    tow_buf_fini(&text);
    return error < 0 ? TOW_EXIT_FAILED : 0;
}

static int stats_main(int argc, char **argv)
{
    struct tow_flags flags = {.command = &tow_command_stats, .argc = argc, .argv = argv, .at = 1};
    const char *value;
    int key;
    while ((key = tow_flags_next(&flags, &value)) > 0) {
    }
    if (key == TOW_FLAG_STOP) {
        return flags.code;
    }
    if (flags.words != 1) {
        tow_cli_say("name one file: towline stats FILE, of a program that ran with "
                    "TOWLINE_STATS=FILE");
        return TOW_EXIT_USAGE;
    }
    return stats_show(argv[1]);
}

static const struct tow_flag stats_flags[] = {{NULL, NULL, NULL, 0}};

const struct tow_command tow_command_stats = {
    .name = "stats",
    .summary = "show what TOWLINE_STATS has counted, and what it means",
    .help = "towline stats FILE: shows what TOWLINE_STATS=FILE has counted (-: from stdin).\n"
            "\n"
            "  TOWLINE_STATS=counts towline run -- ./app\n"
            "  towline stats counts\n"
            "\n"
            "A row for each function, those that took longest first: how often it was called, "
            "how many calls\n"
            "WAITED for the server's answer, were SENT without waiting, or were KNOWN here; the "
            "time of all, and\n"
            "of each. Below: whether waiting for the server is what the program's time goes to.\n",
    .flags = stats_flags,
    .run = stats_main,
};
