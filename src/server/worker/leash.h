/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the client for the worker, which never outlives it for long, whatever its session is
 * stuck in: the driver frees all that a dead process had.
 *
 * The end of the client's connection is the end of the session. Where its line lasts
 * (transport/keep.h) it is a cut, for so long as the session may be detached. A second connection,
 * the leash, on which nothing is said, tells when the program has gone: its end comes from the
 * program's machine itself then (RST), since the client has asked for that. Whoever is in between
 * closes it otherwise (FIN). */
#ifndef TOW_SERVER_LEASH_H
#define TOW_SERVER_LEASH_H

#include <stdbool.h>
#include <stdint.h>

#include "server/session/session.h"

struct tows_leash_setup {
    int fd;             /* the client's connection, which stays the caller's */
    bool network;       /* it can break: then its machine is looked at, too */
    int64_t silence_ns; /* how long that may be silent; 0: for ever */
    int64_t grace_ns;   /* how long a session may take to end itself */
    int control; /* borrowed: a socket whose end means that the session is to end; -1: none */
    struct tows_session_stats *stats; /* borrowed: says since when the session is detached */
    void (*dismiss)(void);            /* that socket has ended */
    void (*gone)(void);               /* the client will not come again: the session is to end */
    /* It has not: the process ends here. */
    void (*give_up)(bool told) __attribute__((noreturn));
};

/* Once; 0, or no thread can be had. */
int tows_leash_start(const struct tows_leash_setup *setup);

/* The session's line lasts: its client may come again for so long. */
void tows_leash_last(int64_t limit_ns);
/* It has, over this connection; a leash was made. Both own the descriptor. */
void tows_leash_renew(int fd);
void tows_leash_take(int fd);
/* The client has said goodbye, and keeps its end open until this process has ended. */
void tows_leash_release(void);

#endif
