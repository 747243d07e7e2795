/* SPDX-License-Identifier: Apache-2.0 */
/* What `towline timeline` finds in a file of client/timeline, and shows. Times are in us. */
#ifndef TOW_CLI_TIMELINE_H
#define TOW_CLI_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All events of one name. */
struct tow_sum {
    char *name; /* owned */
    uint64_t count;
    double time, most; /* of all together, of the longest */
    double waited;     /* calls: for the server; what the GPU did: in its stream */
    double bytes;
};

/* Sums by name, found by a hash of it. */
struct tow_sums {
    struct tow_sum *at; /* owned */
    uint32_t *slots;    /* owned: an index and 1, by the hash; 0: free */
    size_t count, room;
};

struct tow_interval {
    double began, ended;
};

/* What one thread of the program waited, and how long it was in calls. */
struct tow_timeline_thread {
    double id, waited, called;
    /* Its last calls: one that made others comes behind them. */
    struct tow_interval last[8];
    unsigned last_count;
    char name[32];
};

enum { TOW_TIMELINE_THREADS = 4096, TOW_TIMELINE_SERVERS = 16 };

struct tow_timeline_server {
    char address[256];
    bool gpu;
    double sent, received, lost, error_ns, drift_ppm;
};

struct tow_timeline_sums {
    char program[64], began[40];
    bool ended;    /* the file was */
    double lasted; /* to the end, or the last event */
    double left_out;
    struct tow_sums kernels, copies, calls; /* copies: with fills */
    struct tow_interval *busy;              /* owned: when a GPU did something */
    size_t busy_count, busy_room;
    double gpu_first, gpu_last, gpu_busy; /* from its first work to its last; in it, together */
    struct tow_timeline_thread *threads;  /* owned */
    size_t thread_count;
    uint64_t waits;
    double sent_most, received_most; /* bytes/s */
    struct tow_timeline_server servers[TOW_TIMELINE_SERVERS];
    size_t server_count;
};

/* Adds to what the name has; NULL: no memory. */
struct tow_sum *tow_sums_find(struct tow_sums *sums, const char *name);
/* Those that took longest first. They cannot be found any more. */
void tow_sums_sort(struct tow_sums *sums);

/* The thread that waited longest; NULL: there is none. */
const struct tow_timeline_thread *tow_timeline_waiter(const struct tow_timeline_sums *sums);

/* At most TOW_TIMELINE_ADVICE sentences, the most important first; how many. */
enum { TOW_TIMELINE_ADVICE = 3, TOW_TIMELINE_SENTENCE = 400 };
unsigned tow_timeline_advise(const struct tow_timeline_sums *sums,
                             char ret_advice[TOW_TIMELINE_ADVICE][TOW_TIMELINE_SENTENCE]);
void tow_timeline_show(const char *path, const struct tow_timeline_sums *sums);
/* -errno. */
int tow_timeline_print_json(const struct tow_timeline_sums *sums);

#endif
