/* SPDX-License-Identifier: Apache-2.0 */
/* One table of metrics, written in either format. */
#include "server/web/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>

struct metrics {
    struct tow_buf *out;
    bool open;
    int error; /* the first */
};

static void metrics_add(struct metrics *metrics, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void metrics_add(struct metrics *metrics, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (metrics->error == 0) {
        metrics->error = tow_buf_vprintf(metrics->out, format, args);
    }
    va_end(args);
}

/* A counter's family is called without _total in OpenMetrics, and with it in the older format. */
static void begin_family(struct metrics *metrics, const char *name, const char *type,
                         const char *unit, const char *help)
{
    const char *end = strcmp(type, "counter") == 0 && !metrics->open ? "_total" : "";
    metrics_add(metrics, "# TYPE %s%s %s\n", name, end, type);
    if (metrics->open && unit != NULL) {
        metrics_add(metrics, "# UNIT %s %s\n", name, unit);
    }
    metrics_add(metrics, "# HELP %s%s %s\n", name, end, help);
}

/* A number as both formats have it: whole ones without a fraction. */
static void metrics_value(struct metrics *metrics, double value)
{
    bool whole = value > -1e15 && value < 1e15 && value == (double)(int64_t)value;
    metrics_add(metrics, whole ? " %.0f\n" : " %.9g\n", value);
}

static void add_gauge(struct metrics *metrics, const char *name, const char *unit, const char *help,
                      double value)
{
    begin_family(metrics, name, "gauge", unit, help);
    metrics_add(metrics, "%s", name);
    metrics_value(metrics, value);
}

static void add_counter(struct metrics *metrics, const char *name, const char *unit,
                        const char *help, double value)
{
    begin_family(metrics, name, "counter", unit, help);
    metrics_add(metrics, "%s_total", name);
    metrics_value(metrics, value);
}

/* Backslashes, quotes and ends of lines; what else is no printable ASCII becomes a question mark.
 */
static void add_quoted(struct metrics *metrics, const char *text)
{
    metrics_add(metrics, "\"");
    for (; *text != '\0'; text++) {
        bool plain = *text >= ' ' && *text < 0x7f;
        metrics_add(metrics, *text == '"' || *text == '\\' ? "\\%c" : "%c", plain ? *text : '?');
    }
    metrics_add(metrics, "\"");
}

/* ---- the server ---- */

struct of_state {
    const char *state;
    double count;
};

static void add_states(struct metrics *metrics, const char *name, const char *help,
                       const struct of_state *states, size_t count)
{
    begin_family(metrics, name, "gauge", NULL, help);
    for (size_t i = 0; i < count; i++) {
        metrics_add(metrics, "%s{state=\"%s\"}", name, states[i].state);
        metrics_value(metrics, states[i].count);
    }
}

static void add_server(struct metrics *metrics, const struct tows_figures *figures)
{
    begin_family(metrics, "towline_build_info", "gauge", NULL, "The server's version and driver.");
    metrics_add(metrics, "towline_build_info{version=");
    add_quoted(metrics, figures->version);
    metrics_add(metrics, ",backend=");
    add_quoted(metrics, figures->backend);
    metrics_add(metrics, "} 1\n");
    add_gauge(metrics, "towline_uptime_seconds", "seconds", "How long the server has run.",
              figures->uptime_s);
    add_gauge(metrics, "towline_failing", NULL, "1: its workers cannot start.", figures->failing);
    add_gauge(metrics, "towline_draining", NULL, "1: it serves no new programs.",
              figures->draining);
    add_gauge(metrics, "towline_sessions", NULL, "Programs that are served now.", figures->busy);
    add_gauge(metrics, "towline_sessions_limit", NULL, "How many may be served at once.",
              figures->sessions_max);
    add_gauge(metrics, "towline_waiting_programs", NULL, "Programs that wait to be served.",
              figures->waiting);
    const struct of_state workers[] = {
        {"starting", figures->starting}, {"idle", figures->idle}, {"busy", figures->busy}};
    add_states(metrics, "towline_workers", "Worker processes by state.", workers,
               sizeof workers / sizeof *workers);
    const struct of_state sessions[] = {
        {"running", figures->busy - figures->detached - figures->suspended},
        {"detached", figures->detached},
        {"suspended", figures->suspended}};
    add_states(metrics, "towline_session_states", "Programs that are served now, by state.",
               sessions, sizeof sessions / sizeof *sessions);
    add_counter(metrics, "towline_sessions_served", NULL, "Programs served since the start.",
                figures->sessions);
    add_counter(metrics, "towline_calls", NULL, "Calls of the driver that programs have sent.",
                figures->calls);
    add_counter(metrics, "towline_replies", NULL, "Calls whose programs have waited for an answer.",
                figures->replies);
    add_counter(metrics, "towline_received_bytes", "bytes", "Bytes from programs.",
                figures->bytes_in);
    add_counter(metrics, "towline_sent_bytes", "bytes", "Bytes to programs.", figures->bytes_out);
}

/* ---- GPUs ---- */

/* A value of each GPU that has it; the family is left out where none has. */
struct metrics_of_gpu {
    const char *name, *type, *unit, *help;
    int figure;    /* enum tows_figure */
    double factor; /* from the report's unit */
};

static const struct metrics_of_gpu ours[] = {
    {"towline_gpu_utilization_ratio", "gauge", "ratio", "How busy a GPU is, from 0 to 1.",
     TOW_FIGURE_BUSY, 0.01},
    {"towline_gpu_temperature_celsius", "gauge", "celsius", "A GPU's temperature.",
     TOW_FIGURE_TEMPERATURE, 1},
    {"towline_gpu_power_watts", "gauge", "watts", "A GPU's power.", TOW_FIGURE_POWER, 0.001},
    {"towline_gpu_energy_joules", "counter", "joules", "A GPU's energy since its driver started.",
     TOW_FIGURE_ENERGY, 0.001},
    {"towline_gpu_sm_clock_hertz", "gauge", "hertz", "The clock of a GPU's processors.",
     TOW_FIGURE_CLOCK_SM, 1e6},
    {"towline_gpu_memory_clock_hertz", "gauge", "hertz", "The clock of a GPU's memory.",
     TOW_FIGURE_CLOCK_MEMORY, 1e6},
};

/* Under the names, and in the units, of NVIDIA's exporter (dcgm-exporter). */
static const struct metrics_of_gpu theirs[] = {
    {"DCGM_FI_DEV_GPU_UTIL", "gauge", NULL, "GPU utilization (in %).", TOW_FIGURE_BUSY, 1},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", NULL, "Memory utilization (in %).",
     TOW_FIGURE_MEMORY_BUSY, 1},
    {"DCGM_FI_DEV_GPU_TEMP", "gauge", NULL, "GPU temperature (in C).", TOW_FIGURE_TEMPERATURE, 1},
    {"DCGM_FI_DEV_POWER_USAGE", "gauge", NULL, "Power draw (in W).", TOW_FIGURE_POWER, 0.001},
    {"DCGM_FI_DEV_SM_CLOCK", "gauge", NULL, "SM clock frequency (in MHz).", TOW_FIGURE_CLOCK_SM, 1},
    {"DCGM_FI_DEV_MEM_CLOCK", "gauge", NULL, "Memory clock frequency (in MHz).",
     TOW_FIGURE_CLOCK_MEMORY, 1},
};

static void add_label(struct metrics *metrics, const char *name, unsigned gpu)
{
    metrics_add(metrics, "%s{gpu=\"%u\"}", name, gpu);
}

/* As that exporter labels them. */
static void add_their_label(struct metrics *metrics, const char *name, unsigned nth,
                            const struct tows_figures_gpu *gpu)
{
    metrics_add(metrics, "%s{gpu=\"%u\",UUID=", name, nth);
    add_quoted(metrics, gpu->uuid);
    metrics_add(metrics, ",device=\"nvidia%u\",modelName=", nth);
    add_quoted(metrics, gpu->name);
    metrics_add(metrics, "}");
}

static void add_table(struct metrics *metrics, const struct tows_figures *figures,
                      const struct metrics_of_gpu *table, size_t count, bool is_theirs)
{
    for (const struct metrics_of_gpu *row = table; row < table + count; row++) {
        bool begun = false;
        for (unsigned i = 0; i < figures->gpu_count; i++) {
            const struct tows_figures_gpu *gpu = &figures->gpus[i];
            double value = gpu->value[row->figure] * row->factor;
            if (!isfinite(value)) {
                continue;
            }
            if (!begun) {
                begin_family(metrics, row->name, row->type, row->unit, row->help);
                begun = true;
            }
            if (is_theirs) {
                add_their_label(metrics, row->name, i, gpu);
            } else {
                metrics_add(metrics, "%s%s{gpu=\"%u\"}", row->name,
                            strcmp(row->type, "counter") == 0 ? "_total" : "", i);
            }
            metrics_value(metrics, value);
        }
    }
}

static void add_gpus(struct metrics *metrics, const struct tows_figures *figures)
{
    begin_family(metrics, "towline_gpu_info", "gauge", NULL, "A GPU's name and number.");
    for (unsigned i = 0; i < figures->gpu_count; i++) {
        metrics_add(metrics, "towline_gpu_info{gpu=\"%u\",uuid=", i);
        add_quoted(metrics, figures->gpus[i].uuid);
        metrics_add(metrics, ",name=");
        add_quoted(metrics, figures->gpus[i].name);
        metrics_add(metrics, "} 1\n");
    }
    begin_family(metrics, "towline_gpu_memory_size_bytes", "gauge", "bytes", "A GPU's memory.");
    for (unsigned i = 0; i < figures->gpu_count; i++) {
        add_label(metrics, "towline_gpu_memory_size_bytes", i);
        metrics_value(metrics, figures->gpus[i].memory);
    }
    begin_family(metrics, "towline_gpu_memory_used_bytes", "gauge", "bytes",
                 "What is in use of a GPU's memory.");
    for (unsigned i = 0; i < figures->gpu_count; i++) {
        add_label(metrics, "towline_gpu_memory_used_bytes", i);
        metrics_value(metrics, figures->gpus[i].used);
    }
    add_table(metrics, figures, ours, sizeof ours / sizeof *ours, false);
}

static void add_dcgm(struct metrics *metrics, const struct tows_figures *figures)
{
    static const char *const names[] = {"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"};
    add_table(metrics, figures, theirs, sizeof theirs / sizeof *theirs, true);
    for (int which = 0; which < 2; which++) {
        begin_family(metrics, names[which], "gauge", NULL,
                     which == 0 ? "Framebuffer memory used (in MiB)."
                                : "Framebuffer memory free (in MiB).");
        for (unsigned i = 0; i < figures->gpu_count; i++) {
            const struct tows_figures_gpu *gpu = &figures->gpus[i];
            double bytes = which == 0 ? gpu->used : gpu->memory - gpu->used;
            add_their_label(metrics, names[which], i, gpu);
            metrics_value(metrics, (double)(int64_t)(bytes / (1 << 20)));
        }
    }
}

int tows_metrics_write(const struct tows_figures *figures, bool open, bool dcgm,
                       struct tow_buf *out)
{
    struct metrics metrics = {.out = out, .open = open};
    add_server(&metrics, figures);
    if (figures->gpu_count > 0) {
        add_gpus(&metrics, figures);
    }
    if (dcgm && figures->gpu_count > 0) {
        add_dcgm(&metrics, figures);
    }
    if (open) {
        metrics_add(&metrics, "# EOF\n");
    }
    return metrics.error;
}
