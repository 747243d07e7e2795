/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of points; rates come from the counters of two that follow each other. */
#include "server/web/history.h"

#include <math.h>

#include "base/clock.h"
#include "base/json_write.h"

static float history_rate(double now, double before, double seconds)
{
    return seconds > 0 && now >= before ? (float)((now - before) / seconds) : NAN;
}

static struct tows_history_point *history_next(struct tows_history *history)
{
    unsigned at = (history->first + history->count) % TOW_HISTORY_POINTS;
    if (history->count < TOW_HISTORY_POINTS) {
        history->count++;
    } else {
        history->first = (history->first + 1) % TOW_HISTORY_POINTS;
    }
    return &history->points[at];
}

void tows_history_add(struct tows_history *history, const struct tows_figures *figures,
                      int64_t now_ns, int64_t real_s)
{
    struct tows_history_point point = {.at_s = real_s,
                                       .sessions = NAN,
                                       .waiting = NAN,
                                       .calls = NAN,
                                       .bytes_in = NAN,
                                       .bytes_out = NAN};
    for (int i = 0; i < TOW_FIGURES_GPUS_MAX; i++) {
        point.busy[i] = point.used[i] = NAN;
    }
    if (figures != NULL) {
        const struct tows_figures *last = &history->last;
        double seconds =
            history->last_ns == 0 ? 0 : (double)(now_ns - history->last_ns) / (double)TOW_TIME_S;
        point.sessions = (float)figures->busy;
        point.waiting = (float)figures->waiting;
        point.calls = history_rate(figures->calls, last->calls, seconds);
        point.bytes_in = history_rate(figures->bytes_in, last->bytes_in, seconds);
        point.bytes_out = history_rate(figures->bytes_out, last->bytes_out, seconds);
        for (unsigned i = 0; i < figures->gpu_count; i++) {
            point.busy[i] = (float)figures->gpus[i].value[TOW_FIGURE_BUSY];
            point.used[i] = (float)figures->gpus[i].used;
        }
        history->gpu_count = figures->gpu_count;
        history->last = *figures;
    }
    history->last_ns = figures != NULL ? now_ns : 0;
    *history_next(history) = point;
}

/* ---- as JSON ---- */

/* Which number of a point a column has. */
enum column {
    COLUMN_SESSIONS,
    COLUMN_WAITING,
    COLUMN_CALLS,
    COLUMN_IN,
    COLUMN_OUT,
    COLUMN_BUSY,
    COLUMN_USED
};

static double point_value(const struct tows_history_point *point, enum column column, unsigned gpu)
{
    switch (column) {
    case COLUMN_SESSIONS:
        return (double)point->sessions;
    case COLUMN_WAITING:
        return (double)point->waiting;
    case COLUMN_CALLS:
        return (double)point->calls;
    case COLUMN_IN:
        return (double)point->bytes_in;
    case COLUMN_OUT:
        return (double)point->bytes_out;
    case COLUMN_BUSY:
        return (double)point->busy[gpu];
    default:
        return (double)point->used[gpu];
    }
}

/* To a tenth: a float has no more, and most are whole. */
static void write_rounded(struct tow_json *json, double value)
{
    bool small = value >= 0 && value < 1e15;
    tow_json_f64(json, NULL, small ? (double)(int64_t)(value * 10 + 0.5) / 10 : value);
}

static void write_column(struct tow_json *json, const struct tows_history *history, int64_t after_s,
                         const char *name, enum column column, unsigned gpu)
{
    tow_json_array(json, name);
    for (unsigned i = 0; i < history->count; i++) {
        const struct tows_history_point *point =
            &history->points[(history->first + i) % TOW_HISTORY_POINTS];
        if (point->at_s > after_s) {
            write_rounded(json, point_value(point, column, gpu));
        }
    }
    tow_json_end(json);
}

int tows_history_write(const struct tows_history *history, int64_t after_s, struct tow_buf *out)
{
    struct tow_json json;
    tow_json_init(&json, out);
    tow_json_object(&json, NULL);
    tow_json_u64(&json, "every_s", TOW_HISTORY_EVERY_S);
    tow_json_array(&json, "at_s");
    for (unsigned i = 0; i < history->count; i++) {
        const struct tows_history_point *point =
            &history->points[(history->first + i) % TOW_HISTORY_POINTS];
        if (point->at_s > after_s) {
            tow_json_i64(&json, NULL, point->at_s);
        }
    }
    tow_json_end(&json);
    write_column(&json, history, after_s, "sessions", COLUMN_SESSIONS, 0);
    write_column(&json, history, after_s, "waiting", COLUMN_WAITING, 0);
    write_column(&json, history, after_s, "calls_per_s", COLUMN_CALLS, 0);
    write_column(&json, history, after_s, "in_per_s", COLUMN_IN, 0);
    write_column(&json, history, after_s, "out_per_s", COLUMN_OUT, 0);
    tow_json_array(&json, "gpus");
    for (unsigned gpu = 0; gpu < history->gpu_count; gpu++) {
        tow_json_object(&json, NULL);
        tow_json_f64(&json, "memory", history->last.gpus[gpu].memory);
        write_column(&json, history, after_s, "busy", COLUMN_BUSY, gpu);
        write_column(&json, history, after_s, "used", COLUMN_USED, gpu);
        tow_json_end(&json);
    }
    tow_json_end(&json);
    tow_json_end(&json);
    return tow_json_finish(&json);
}
