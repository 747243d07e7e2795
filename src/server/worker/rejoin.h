/* SPDX-License-Identifier: Apache-2.0 */
/* A session that outlives its listener: one thread sees it end, and takes the next one's connection
 * in its place.
 *
 * The worker has a listening socket from the listener, whose file lies in the server's folder
 * (pool/meeting.h). Nobody but the server's user can connect there, and the worker looks again.
 * Docs: docs/inside/restart.md.
 */
#ifndef TOW_SERVER_REJOIN_H
#define TOW_SERVER_REJOIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tows_session_stats;

struct tows_rejoin_setup {
    int control;  /* the socket's number, which stays: the connection behind it is another then */
    int place;    /* where the next listener comes */
    int stats_fd; /* of `stats` */
    uid_t owner;  /* the listener's user: nobody else is one */
    uint64_t session;
    int64_t limit_ns; /* how long it waits */
    int64_t grace_ns;
    struct tows_session_stats *stats; /* borrowed */
    uint32_t (*phase)(void);          /* of suspending, as HERE has it */
    void (*dismiss)(void);            /* `farewell` says why */
    void (*give_up)(bool told);       /* the grace time is over */
};

/* Before the first message is sent. All of `setup` is the thread's from then on, descriptors too.
 * -Exxx: the session ends with its listener. */
int tows_rejoin_start(const struct tows_rejoin_setup *setup);
/* Its client's connection is this one, which the caller keeps. */
void tows_rejoin_client(int fd);

/* Another number for each listener. */
uint32_t tows_rejoin_count(void);
/* Something could not be said to a listener, or not be heard: waits while there is none. 0: there
 * is one that has not heard it, and `*seen` is its number; -EPIPE: no other one came. */
int tows_rejoin_await(uint32_t *seen);

#endif
