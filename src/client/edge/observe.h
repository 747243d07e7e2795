/* SPDX-License-Identifier: Apache-2.0 */
/* Watching calls: TOWLINE_TRACE=FILE writes each with arguments and result (with
 * TOWLINE_TRACE_ERRORS=1 those that fail), TOWLINE_STATS=FILE counts them, TOWLINE_TIMELINE=FILE
 * shows them on a time axis (client/timeline). */
#ifndef TOW_CLIENT_OBSERVE_H
#define TOW_CLIENT_OBSERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/cuda_types.h"

/* Not 0 while anybody watches; set once at start, so that the ordinary path is one predictable
 * branch. */
extern int towc_observed;

struct towc_observation {
    unsigned fn;
    uint64_t begin_ns;
    uint64_t sent, waited; /* the thread's counts when the call began */
    uint64_t waited_ns;    /* the same, while a timeline is written */
    uint64_t command;      /* the last before it */
};
void towc_observe_begin(struct towc_observation *o, unsigned fn);
/* Counts; true if the call is to be traced. */
bool towc_observe_end(struct towc_observation *o, CUresult result);

/* The program ends: writes the statistics, closes the trace. */
void towc_observe_finish(void);

/* One line of the trace. */
struct towc_trace {
    char line[1024];
    size_t length;
    size_t limit; /* of `length`, and one more */
    unsigned args;
};
void towc_trace_begin(struct towc_trace *t, unsigned fn);
void towc_trace_int(struct towc_trace *t, const char *arg, long long value);
void towc_trace_hex(struct towc_trace *t, const char *arg, uint64_t value);
void towc_trace_float(struct towc_trace *t, const char *arg, double value);
void towc_trace_text(struct towc_trace *t, const char *arg, const char *text);
void towc_trace_record(struct towc_trace *t, const char *arg, const void *bytes, size_t size);
/* A kernel by its handle, with its name where there is such a one. */
void towc_trace_kernel(struct towc_trace *t, const char *arg, const void *kernel);
/* An output: `pointer` as given, and its value if the call succeeded. */
void towc_trace_out(struct towc_trace *t, const char *arg, const void *pointer, uint64_t value,
                    CUresult result);
void towc_trace_end(struct towc_trace *t, CUresult result);

#endif
