/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share. */
#ifndef TOW_CLIENT_TIMELINE_INSIDE_H
#define TOW_CLIENT_TIMELINE_INSIDE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "client/timeline/align.h"
#include "wire/timeline.h"

struct towc_link;

/* ---- out.c: the file ---- */

/* Perfetto and Chrome still open that much. */
#define TOW_TIMELINE_FILE_MAX (UINT64_C(512) << 20)

struct towc_out {
    int fd;
    char path[PATH_MAX];
    char *buffer; /* owned */
    size_t used;
    uint64_t size;     /* of what was written, or is in the buffer */
    uint64_t left_out; /* events that there was no room for */
    int error;         /* it could not be written */
    int64_t zero_ns;   /* our clock, where the time axis begins */
};

/* What follows an event's name, in its args; text is JSON already. NULL at the end. */
struct towc_out_arg {
    const char *name;
    uint64_t value;
    bool is_us; /* it is ns, and written as us */
};

struct towc_out_event {
    uint32_t process, thread;
    int64_t began_ns, ended_ns; /* of our clock */
    const char *kind;           /* "call" ... */
    const char *name;           /* as JSON, with its quotes */
    const struct towc_out_arg *args;
    unsigned arg_count;
    uint64_t flow; /* an arrow leads from a call with this number to work with it; 0: none */
};

/* -errno. Takes a name of which there is no file yet, or an empty one: `path`, else with the
 * process's number behind it, else with more. */
int towc_out_open(struct towc_out *out, const char *path, int64_t zero_ns);
void towc_out_span(struct towc_out *out, const struct towc_out_event *event);
/* Values that change with time; `args` are whole numbers. */
void towc_out_count(struct towc_out *out, const struct towc_out_event *event);
/* Something that is true of all of it: `text` is a JSON object, what stands in "args". */
void towc_out_fact(struct towc_out *out, uint32_t process, uint32_t thread, const char *name,
                   const char *text);
/* The same of a process or a thread: its name. */
void towc_out_name(struct towc_out *out, uint32_t process, uint32_t thread, const char *name);
/* What is in the buffer goes to the file. 0, or what went wrong just now. */
int towc_out_flush(struct towc_out *out);
/* The last event is there. */
void towc_out_close(struct towc_out *out);

/* ---- record.c: calls ---- */

struct towc_ring;
/* In a process that has no rings yet. False: there is no memory for it. */
bool towc_record_begin(uint32_t process);
/* With the lock held: writes down what threads have recorded. */
void towc_record_drain(struct towc_out *out);
/* The calling thread's waits are not the program's. */
void towc_record_not_me(void);
/* With the lock held: calls that were written down, and that no ring was there for. */
uint64_t towc_record_calls(void);
uint64_t towc_record_lost(void);

/* ---- gpu.c: servers ---- */

/* Begins to keep what their GPUs do. */
void towc_gpu_begin(uint32_t process);
/* Asks all, and writes down the answers. `all`: until they have no more; clocks once more. */
void towc_gpu_ask(bool all);
/* With the lock held: bytes since the last time; what is true at the end. */
void towc_gpu_count_bytes(struct towc_out *out);
void towc_gpu_facts(struct towc_out *out);

/* ---- timeline.c ---- */

/* Guards `out`, and the list of rings. NULL: this is another process, or it is over. */
struct towc_out *towc_timeline_take(void);
void towc_timeline_give(void);
/* A ring fills: it is written down soon. */
void towc_timeline_hurry(void);

#endif
