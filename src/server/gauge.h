/* What NVIDIA's management library says of the GPUs' state (memory in use, load, temperature ...),
 * for the report. A process of its own asks it, because the listener opens no driver library: it
 * asks anew each time the listener is asked, and lays the numbers into shared memory. */
#ifndef TOW_SERVER_GAUGE_H
#define TOW_SERVER_GAUGE_H

#include <sys/types.h>

#include "base/json.h"

struct tow_gauge_page;

struct tow_gauge {
    struct tow_gauge_page *page; /* owned mapping, shared with the process; NULL: not started */
    int ask;                     /* owned: a byte here asks for new numbers */
    pid_t pid;
};

/* Only from a process with one thread (it forks). `driver` is the path of the driver library, if
 * the user named one: NVIDIA's management library is looked for beside it first. 0, or why there
 * are no gauges. */
int tow_gauge_start(struct tow_gauge *gauge, const char *driver);
void tow_gauge_stop(struct tow_gauge *gauge);
/* Asks for new numbers; never waits. */
void tow_gauge_refresh(struct tow_gauge *gauge);

/* Writes into an open object: "gauges": null, or the driver's version, how old the numbers are and
 * one object per GPU. */
void tow_gauge_write(const struct tow_gauge *gauge, struct tow_json *json);

#endif
