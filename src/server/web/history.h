/* SPDX-License-Identifier: Apache-2.0 */
/* The last hour, in memory of a fixed size: it begins anew with the process. One thread at a time.
 */
#ifndef TOW_SERVER_WEB_HISTORY_H
#define TOW_SERVER_WEB_HISTORY_H

#include <stdint.h>

#include "base/buf.h"
#include "server/web/figures.h"

enum {
    TOW_HISTORY_EVERY_S = 5,
    TOW_HISTORY_POINTS = 3600 / TOW_HISTORY_EVERY_S,
};

/* Per cent and shares below 0, and rates, are not known. */
struct tows_history_point {
    int64_t at_s; /* since 1970 */
    float sessions, waiting;
    float calls, bytes_in, bytes_out; /* in a second, since the point before */
    float busy[TOW_FIGURES_GPUS_MAX]; /* per cent */
    float used[TOW_FIGURES_GPUS_MAX]; /* bytes */
};

struct tows_history {
    struct tows_history_point points[TOW_HISTORY_POINTS];
    unsigned first, count;
    unsigned gpu_count;
    struct tows_figures last;
    int64_t last_ns; /* when they were taken; 0: none were */
};

/* Figures of now; NULL: the server has not answered, which is a point that knows nothing. */
void tows_history_add(struct tows_history *history, const struct tows_figures *figures,
                      int64_t now_ns, int64_t real_s);

/* As JSON: the points after that second. */
int tows_history_write(const struct tows_history *history, int64_t after_s, struct tow_buf *out);

#endif
