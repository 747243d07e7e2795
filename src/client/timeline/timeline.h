/* SPDX-License-Identifier: Apache-2.0 */
/* TOWLINE_TIMELINE=FILE: what the program and the GPU did, as Chrome's trace events. docs/guide/
 * looking-inside.md says what is in it; `towline timeline` reads it (cli/timeline.c). */
#ifndef TOW_CLIENT_TIMELINE_H
#define TOW_CLIENT_TIMELINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"

/* Calls are recorded: from the first connection to the program's end. */
extern atomic_bool towc_timeline_on;

/* When the library is loaded, with which the time axis begins. `path` is the environment's. */
void towc_timeline_want(const char *path);
/* The servers are connected. Makes the file, if one is wanted. In a forked child whose parent had
 * begun, another one. */
void towc_timeline_begin(void);
/* The program ends: what is missing is asked for, and the file is ended. */
void towc_timeline_finish(void);

/* How long the calling thread has waited for servers so far. */
uint64_t towc_timeline_waited(void);
struct towc_timeline_call {
    unsigned fn;
    CUresult result;
    int64_t began_ns, ended_ns;
    uint64_t command; /* the last that it sent (towc_link_command); 0: none */
};
/* It has returned. `waited`: towc_timeline_waited() from when it began. */
void towc_timeline_called(const struct towc_timeline_call *call, uint64_t waited);

#endif
