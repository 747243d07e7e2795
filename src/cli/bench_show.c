/* SPDX-License-Identifier: Apache-2.0 */
/* `towline bench`: medians and ratios of what was measured, and their table and JSON. */
#include "cli/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json_write.h"
#include "cli/cli.h"

static int bench_show_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tow_bench_median(const double *values, unsigned count)
{
    double sorted[TOW_BENCH_ROUNDS_MAX];
    if (count == 0 || count > TOW_BENCH_ROUNDS_MAX) {
        return 0;
    }
    memcpy(sorted, values, count * sizeof *values);
    qsort(sorted, count, sizeof *sorted, bench_show_compare);
    return count % 2 == 1 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

double tow_bench_ratio(const struct tow_bench_figure *figure)
{
    double ratios[TOW_BENCH_ROUNDS_MAX];
    unsigned count = figure->count[TOW_BENCH_REMOTE] < figure->count[TOW_BENCH_NATIVE]
                         ? figure->count[TOW_BENCH_REMOTE]
                         : figure->count[TOW_BENCH_NATIVE];
    for (unsigned i = 0; i < count; i++) {
        double native = figure->value[TOW_BENCH_NATIVE][i];
        ratios[i] = native > 0 ? figure->value[TOW_BENCH_REMOTE][i] / native : 0;
    }
    return tow_bench_median(ratios, count);
}

/* ---- for people ---- */

static const char *title_of(const char *name)
{
    static const char *const titles[][2] = {
        {"startup_context", "cuInit + context"},
        {"startup_first_result", "program to first result"},
        {"launch_enqueue", "launch, enqueue"},
        {"launch_sync", "launch + sync"},
        {"memset_sync", "memset + sync"},
        {"event_record", "event record"},
        {"alloc_free_1mib", "alloc + free 1 MiB"},
        {"alloc_free_2mib", "alloc + free 2 MiB"},
        {"copy_4b_d2h", "4 B device to host"},
        {"copy_4b_h2d", "4 B host to device"},
        {"launches_drained", "a launch of many, drained"},
        {"launches_per_second", "launches per second"},
        {"register", "register 1 MiB of many"},
        {"unregister", "unregister 1 MiB of many"},
    };
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
        if (strcmp(titles[i][0], name) == 0) {
            return titles[i][1];
        }
    }
    return name;
}

static void print_number(FILE *out, double value)
{
    fprintf(out, value >= 100 ? " %10.0f" : value >= 10 ? " %10.1f" : " %10.3g", value);
}

static void print_driver(const struct tow_bench_figure *f, enum tow_bench_driver driver, FILE *out)
{
    if (f->count[driver] == 0) {
        fprintf(out, " %10s %10s", "-", "");
        return;
    }
    print_number(out, tow_bench_median(f->value[driver], f->count[driver]));
    double p99 = tow_bench_median(f->p99[driver], f->count[driver]);
    if (p99 > 0) {
        print_number(out, p99);
    } else {
        fprintf(out, " %10s", "");
    }
}

/* The examples' times, or everything else that is no copy. */
static void show_rows(const struct tow_bench *bench, bool examples, FILE *out)
{
    const char *p99 = examples ? "" : "p99";
    bool any = false;
    for (unsigned i = 0; i < bench->figure_count; i++) {
        const struct tow_bench_figure *f = &bench->figures[i];
        if (f->bytes != 0 || (f->program[0] != '\0') != examples) {
            continue;
        }
        if (!any) {
            fprintf(out, "\n%-27s %-4s %10s %10s", examples ? "examples" : "", "", "Towline", p99);
            fprintf(out, bench->native ? " %10s %10s %8s\n" : "\n", "native", p99, "ratio");
            any = true;
        }
        fprintf(out, "%-27s %-4s", examples ? f->program : title_of(f->name), f->unit);
        print_driver(f, TOW_BENCH_REMOTE, out);
        if (bench->native) {
            print_driver(f, TOW_BENCH_NATIVE, out);
            fprintf(out, " %8.2f", tow_bench_ratio(f));
        }
        fprintf(out, "\n");
    }
}

static void show_copies(const struct tow_bench *bench, FILE *out)
{
    bool any = false;
    for (unsigned i = 0; i < bench->figure_count; i++) {
        const struct tow_bench_figure *f = &bench->figures[i];
        char size[16];
        if (f->bytes == 0) {
            continue;
        }
        if (!any) {
            fprintf(out, "\n%-10s %-4s %-10s %12s", "copies", "", "size", "Towline GB/s");
            fprintf(out, bench->native ? " %12s %8s\n" : "\n", "native GB/s", "ratio");
            any = true;
        }
        fprintf(out, "%-10s %-4s %-10s %12.4g", f->memory, f->direction,
                tow_cli_bytes((double)f->bytes, size),
                tow_bench_median(f->value[TOW_BENCH_REMOTE], f->count[TOW_BENCH_REMOTE]));
        if (bench->native) {
            fprintf(out, " %12.4g %8.2f",
                    tow_bench_median(f->value[TOW_BENCH_NATIVE], f->count[TOW_BENCH_NATIVE]),
                    tow_bench_ratio(f));
        }
        fprintf(out, "\n");
    }
}

void tow_bench_show(const struct tow_bench *bench, FILE *out)
{
    fprintf(out, "%s by way of %s, median of %u round%s\n",
            bench->device[TOW_BENCH_REMOTE][0] != '\0' ? bench->device[TOW_BENCH_REMOTE] : "a GPU",
            bench->server, bench->rounds, bench->rounds == 1 ? "" : "s");
    show_rows(bench, false, out);
    show_copies(bench, out);
    show_rows(bench, true, out);
}

/* ---- for programs ---- */

static void json_driver(struct tow_json *json, const char *key, const struct tow_bench_figure *f,
                        enum tow_bench_driver driver)
{
    tow_json_object(json, key);
    tow_json_f64(json, "median", tow_bench_median(f->value[driver], f->count[driver]));
    if (f->count[driver] > 0 && f->p99[driver][0] > 0) {
        tow_json_f64(json, "p99", tow_bench_median(f->p99[driver], f->count[driver]));
    }
    tow_json_array(json, "rounds");
    for (unsigned i = 0; i < f->count[driver]; i++) {
        tow_json_f64(json, NULL, f->value[driver][i]);
    }
    tow_json_end(json);
    tow_json_end(json);
}

int tow_bench_json(const struct tow_bench *bench, FILE *out)
{
    struct tow_buf text;
    struct tow_json json;
    tow_buf_init(&text, 4 << 20);
    tow_json_init(&json, &text);
    tow_json_object(&json, NULL);
    tow_json_str(&json, "server", bench->server);
    tow_json_str(&json, "device", bench->device[TOW_BENCH_REMOTE]);
    tow_json_u64(&json, "rounds", bench->rounds);
    tow_json_array(&json, "figures");
    for (unsigned i = 0; i < bench->figure_count; i++) {
        const struct tow_bench_figure *f = &bench->figures[i];
        tow_json_object(&json, NULL);
        tow_json_str(&json, "name", f->name);
        tow_json_str(&json, "unit", f->unit);
        if (f->bytes != 0) {
            tow_json_str(&json, "memory", f->memory);
            tow_json_str(&json, "direction", f->direction);
            tow_json_u64(&json, "bytes", f->bytes);
        }
        if (f->program[0] != '\0') {
            tow_json_str(&json, "program", f->program);
        }
        json_driver(&json, "towline", f, TOW_BENCH_REMOTE);
        if (bench->native) {
            json_driver(&json, "native", f, TOW_BENCH_NATIVE);
            tow_json_f64(&json, "ratio", tow_bench_ratio(f));
        }
        tow_json_end(&json);
    }
    tow_json_end(&json);
    tow_json_end(&json);
    int error = tow_json_finish(&json);
    if (error == 0 && (fwrite(text.data, 1, text.size, out) != text.size ||
                       fputc('\n', out) == EOF || fflush(out) != 0)) {
        error = -EIO;
    }
    tow_buf_fini(&text);
    if (error < 0) {
        tow_cli_say("the figures cannot be written: %s", strerror(-error));
    }
    return error;
}
