/* SPDX-License-Identifier: Apache-2.0 */
/* How long a client waits for a server that says nothing yet.
 *
 * From the listener's taking of a connection to the welcome of the worker that gets it nobody
 * speaks on that connection, and on a busy machine that may take long. So a client that has heard
 * nothing for a second asks the listener, over a connection of its own, whether it is there
 * (STATUS). While it answers, the worker is waited for; a server that does not is given up after
 * TOW_CONNECT_TIMEOUT_NS.
 */
#ifndef TOW_TRANSPORT_PATIENCE_H
#define TOW_TRANSPORT_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/control.h"

/* So long a worker may say nothing at all, though its listener answers. */
#define TOW_PATIENCE_MAX_S 60

/* Asks the listener at this address whether it is there: 0 if it answers (tow_ask_presence). */
typedef int tow_patience_ask(const char *address, int64_t deadline_ns);

/* Where a program stands in line. */
struct tow_place {
    uint32_t place, of;         /* from 1 on; how many wait there. 0: it does not wait in line */
    enum tow_wait_for wait_for; /* what for */
};

struct tow_patience {
    const char *address; /* borrowed: the listener's; NULL: nobody is asked */
    tow_patience_ask *ask;
    void (*say)(const char *address, int seconds); /* once, when it takes long; may be NULL */
    int64_t began_ns;
    int64_t deadline_ns; /* when the server is given up, unless it speaks or its listener answers */
    int64_t ask_ns;      /* when the listener is asked next */
    int64_t until_ns;    /* when its answers do not count any more */
    bool answered;       /* it did answer, since the server last spoke */
    bool said;
    struct tow_place place;
    /* When its place changes, and when it has none any more; may be NULL. */
    void (*say_place)(const char *address, const struct tow_place *place);
    int (*interrupted)(void); /* while it waits in line: 1: its user wants it to end; may be NULL */
};

/* `address` in its whole form; hook: is passed by, self: has nobody to be asked. */
void tow_patience_begin(struct tow_patience *patience, const char *address, tow_patience_ask *ask,
                        void (*say)(const char *address, int seconds));
/* One without a listener: the deadline is all. */
struct tow_patience tow_patience_none(int64_t deadline_ns);

/* The server has asked for patience itself. */
void tow_patience_heard(struct tow_patience *patience);

/* It has asked for patience in line: the values of its notice. */
void tow_patience_place(struct tow_patience *patience, uint64_t places, uint64_t wait_for);

/* Until when to wait for what the server says. */
int64_t tow_patience_next(const struct tow_patience *patience);
/* Nothing came until then: asks the listener, if it is time. True: look again, until
 * tow_patience_next. */
bool tow_patience_goes_on(struct tow_patience *patience);

/* A server whose places for newcomers are all taken closes a connection without a word
 * (-ECONNRESET, -EPIPE); one that has no room for a session now says so (-EUSERS). It is tried
 * again after ever longer pauses, for some seconds. Begin with zeros. */
#define TOW_RETRY_FULL_S 20
struct tow_retry {
    int64_t began_ns, pause_ns;
    int64_t worth_ns; /* how long the server is tried: as its most hopeful answer is worth */
};
/* Waits a while. False: the error is another one, or that was enough. */
bool tow_retry_pause(struct tow_retry *retry, int error, int64_t deadline_ns);

#endif
