/* SPDX-License-Identifier: Apache-2.0 */
/* What NVIDIA's management library says of the GPUs' state (memory in use, load, temperature ...),
 * for the report. A process of its own asks it, because the listener opens no driver library: it
 * asks anew when the listener is asked, but not in between, and lays the numbers into shared
 * memory. */
#ifndef TOW_SERVER_BESIDE_GAUGE_H
#define TOW_SERVER_BESIDE_GAUGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/json_write.h"

struct tows_gauge_page;

struct tows_gauge {
    struct tows_gauge_page *page; /* owned mapping, shared with the process; NULL: not started */
    int ask;                      /* owned: a byte here asks for new numbers */
    int told; /* owned: a byte here says that there are some; -1: it has ended */
    pid_t pid;
};

/* Only from a process with one thread (it forks). `driver` is the path of the driver library, if
 * the user named one: NVIDIA's management library is looked for beside it first. 0, or why there
 * are no gauges. */
int tows_gauge_start(struct tows_gauge *gauge, const char *driver);
void tows_gauge_stop(struct tows_gauge *gauge);
/* What to poll for news; -1: nothing. */
int tows_gauge_fd(const struct tows_gauge *gauge);
/* Reads the news; never waits. */
void tows_gauge_hear(struct tows_gauge *gauge);
/* Asks for numbers that are newer than this call; never waits. 0: there is nobody to ask. */
uint64_t tows_gauge_ask(struct tows_gauge *gauge);
/* Whether those numbers are there, or never will be. */
bool tows_gauge_has(const struct tows_gauge *gauge, uint64_t ticket);

/* Free memory of the GPU that has most; UINT64_MAX: nobody says. */
uint64_t tows_gauge_free(const struct tows_gauge *gauge);

/* Writes into an open object: "gauges": null, or the driver's version, how old the numbers are and
 * one object per GPU. */
void tows_gauge_write(const struct tows_gauge *gauge, struct tow_json *json);

#endif
