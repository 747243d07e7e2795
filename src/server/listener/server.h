/* SPDX-License-Identifier: Apache-2.0 */
/* The server's state, as the listener's files share it: one thread has it, and none of it is
 * locked. */
#ifndef TOW_SERVER_LISTENER_SERVER_H
#define TOW_SERVER_LISTENER_SERVER_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/config/config.h"
#include "server/beside/gauge.h"
#include "server/listener/queue.h"
#include "server/listener/listen.h"
#include "server/listener/login.h"
#include "server/beside/shaker.h"
#include "server/beside/web_host.h"
#include "server/door/door.h"
#include "server/pool/parent_line.h"
#include "server/pool/worker_pool.h"

/* How old numbers of sessions may be, and how often sessions that grow are looked at. */
#define TOW_SERVER_LOOK_MS 100

struct tows_server_source; /* of listener.c */

struct tows_server {
    struct tows_config config;
    struct tows_login login;
    struct tows_parent_line line;                       /* to the parent, if there is one */
    int argc;                                           /* for SIGHUP */
    char **argv;                                        /* borrowed */
    struct tow_listener *listeners[TOW_LISTEN_MAX + 1]; /* owned; room for `http` */
    unsigned listener_count;
    struct tows_worker_pool pool;
    char groups_said[512]; /* of its control groups; "": nothing */
    struct tows_door door;
    struct tows_queue queue;
    unsigned starts; /* how many workers may start at once */
    uid_t owner;     /* who runs this server */
    struct tows_gauge gauge;
    struct tows_shaker shaker; /* where an address is of TLS */
    struct tow_listener *http; /* owned; NULL: nothing is shown by HTTP */
    struct tows_web_host web;  /* who answers there */
    int signals;               /* owned: a signalfd */
    int monitored;             /* owned: a pidfd; -1: none */
    bool announced;            /* READY was said */
    bool failed;               /* the first worker could not start: end with an error */
    bool stop;
    bool leaving;      /* stop, and leave the sessions to the next server */
    bool draining;     /* no new sessions; ends with the last */
    int64_t ending_ns; /* was told to end: when the sessions that are left end; 0: was not */
    int64_t started_ns;
    int64_t watchdog_every_ns; /* how often systemd is to hear that the loop runs; 0: never */
    int64_t watchdog_ns;       /* when it hears that again */
    int64_t tick_ns;           /* when the listener's tick has something to do again */
    int64_t look_ns;           /* when sessions are looked at again */
    int64_t looked_ns;         /* when they were */
    struct pollfd *polls;      /* owned, as are the sources */
    struct tows_server_source *sources;
    unsigned poll_room;
};

/* Whether the process that keeps rights is another one. */
bool tows_server_has_parent(const struct tows_server *server);
/* Whether it may see and end everything. */
bool tows_server_is_ruled_by(const struct tows_server *server, const struct tows_who *who);
/* Programs that wait for a worker of this key; NULL: of any. `all`: those in line, too. */
unsigned tows_server_count_waiting(const struct tows_server *server, const char *key, bool all);
/* What sessions hold is looked at every second, and more often while some grow. */
void tows_server_look(struct tows_server *server);

/* No new sessions from now on; ends with the last. */
void tows_server_drain(struct tows_server *server);
/* SIGTERM: programs that end soon may; the second time, or where nobody waits, it ends at once. */
void tows_server_end(struct tows_server *server);
/* SIGUSR2: it ends at once, and leaves the sessions to the next server, where there can be one
 * (restart-dir); else as above. */
void tows_server_leave(struct tows_server *server);
/* Whether all sessions have ended, and all refusals are out. */
bool tows_server_is_dry(const struct tows_server *server);

#endif
