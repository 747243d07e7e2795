/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a server's report that are shown over HTTP without a token: of the server, and of
 * each GPU. */
#ifndef TOW_SERVER_WEB_FIGURES_H
#define TOW_SERVER_WEB_FIGURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOW_FIGURES_GPUS_MAX = 16, TOW_FIGURES_TEXT_MAX = 96 };

/* What NVIDIA's management library may know of a GPU. */
enum tows_figure {
    TOW_FIGURE_BUSY,         /* per cent */
    TOW_FIGURE_MEMORY_BUSY,  /* per cent */
    TOW_FIGURE_TEMPERATURE,  /* degrees Celsius */
    TOW_FIGURE_POWER,        /* milliwatts */
    TOW_FIGURE_ENERGY,       /* millijoules */
    TOW_FIGURE_CLOCK_SM,     /* MHz */
    TOW_FIGURE_CLOCK_MEMORY, /* MHz */
    TOW_FIGURE_COUNT,
};

struct tows_figures_gpu {
    char name[TOW_FIGURES_TEXT_MAX];
    char uuid[TOW_FIGURES_TEXT_MAX];
    double memory, used;            /* bytes */
    double value[TOW_FIGURE_COUNT]; /* not finite: it is not known */
};

struct tows_figures {
    char version[TOW_FIGURES_TEXT_MAX], backend[TOW_FIGURES_TEXT_MAX];
    double uptime_s;
    double starting, idle, busy; /* workers; each busy one has a session */
    double detached, suspended;  /* of these sessions */
    double waiting, sessions_max;
    bool draining, failing;
    double sessions, calls, replies, bytes_in, bytes_out; /* since the server has started */
    unsigned gpu_count;
    struct tows_figures_gpu gpus[TOW_FIGURES_GPUS_MAX];
};

/* -EPROTO: it is no report. */
int tows_figures_read(const char *json, size_t size, struct tows_figures *ret_figures);

#endif
