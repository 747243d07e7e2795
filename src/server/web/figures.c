/* SPDX-License-Identifier: Apache-2.0 */
/* Reads figures out of the listener's report. */
#include "server/web/figures.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "wire/report.h"

/* By enum tows_figure. */
static const char *const gauge_names[] = {"util_gpu", "util_memory", "temperature", "power",
                                          "energy",   "clock_sm",    "clock_memory"};
_Static_assert(sizeof gauge_names / sizeof *gauge_names == TOW_FIGURE_COUNT, "one for each");

static void read_gpu(const struct tow_json_doc *doc, const struct tow_report_gpu *gpu,
                     struct tows_figures_gpu *ret_gpu)
{
    const struct tow_json_value *gauges = tow_report_gauges(doc, gpu->uuid);
    snprintf(ret_gpu->name, sizeof ret_gpu->name, "%s", gpu->name);
    snprintf(ret_gpu->uuid, sizeof ret_gpu->uuid, "%s", gpu->uuid);
    ret_gpu->memory = gpu->memory;
    ret_gpu->used = gpu->used;
    for (int i = 0; i < TOW_FIGURE_COUNT; i++) {
        ret_gpu->value[i] = tow_json_member(doc, gauges, gauge_names[i]) != NULL
                                ? tow_json_number(doc, gauges, gauge_names[i])
                                : (double)NAN;
    }
}

static void read_report(const struct tow_json_doc *doc, struct tows_figures *figures)
{
    const struct tow_json_value *root = doc->values;
    const struct tow_json_value *workers = tow_json_member(doc, root, "workers");
    const struct tow_json_value *states = tow_json_member(doc, root, "states");
    const struct tow_json_value *totals = tow_json_member(doc, root, "totals");
    struct tow_report_gpu gpu;
    snprintf(figures->version, sizeof figures->version, "%s", tow_json_text(doc, root, "version"));
    snprintf(figures->backend, sizeof figures->backend, "%s", tow_json_text(doc, root, "backend"));
    figures->uptime_s = tow_json_number(doc, root, "uptime_s");
    figures->starting = tow_json_number(doc, workers, "starting");
    figures->idle = tow_json_number(doc, workers, "idle");
    figures->busy = tow_json_number(doc, workers, "busy");
    figures->detached = tow_json_number(doc, states, "detached");
    figures->suspended = tow_json_number(doc, states, "suspended");
    figures->waiting = tow_json_number(doc, root, "waiting");
    figures->sessions_max = tow_json_number(doc, root, "max_sessions");
    figures->draining = tow_json_number(doc, root, "draining") != 0;
    figures->failing = tow_json_text(doc, root, "failure")[0] != '\0';
    figures->sessions = tow_json_number(doc, totals, "sessions");
    figures->calls = tow_json_number(doc, totals, "calls");
    figures->replies = tow_json_number(doc, totals, "replies");
    figures->bytes_in = tow_json_number(doc, totals, "bytes_in");
    figures->bytes_out = tow_json_number(doc, totals, "bytes_out");
    while (figures->gpu_count < TOW_FIGURES_GPUS_MAX &&
           tow_report_gpu(doc, figures->gpu_count, &gpu)) {
        read_gpu(doc, &gpu, &figures->gpus[figures->gpu_count++]);
    }
}

int tows_figures_read(const char *json, size_t size, struct tows_figures *ret_figures)
{
    struct tow_json_doc doc = {0};
    struct tows_figures figures;
    memset(&figures, 0, sizeof figures);
    int error = tow_json_doc_parse(json, size, &doc);
    if (error == 0 && doc.values[0].type != TOW_JSON_OBJECT) {
        error = -EPROTO;
    }
    if (error == 0) {
        read_report(&doc, &figures);
        *ret_figures = figures;
    }
    tow_json_doc_fini(&doc);
    return error;
}
