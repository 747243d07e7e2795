/* SPDX-License-Identifier: Apache-2.0 */
/* The listener's workers: started ahead, handed one connection each, reaped.
 *
 * A worker is a fresh process (this program again, with --worker), so that nothing of the driver
 * ever lives in the listener and a worker's death frees everything of its session. Only the
 * listener's one thread calls this.
 */
#ifndef TOW_SERVER_WORKER_POOL_H
#define TOW_SERVER_WORKER_POOL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/log.h"
#include "server/config/config.h"
#include "server/pool/cache_writer.h"
#include "server/pool/export_registry.h"
#include "server/pool/gates.h"
#include "server/pool/handle_registry.h"
#include "server/pool/meeting.h"
#include "server/pool/records.h"
#include "server/pool/refusals.h"
#include "server/pool/starter.h"
#include "server/pool/suspend.h"
#include "server/pool/swap.h"
#include "server/pool/usage.h"
#include "server/login/policy.h"
#include "server/login/who.h"
#include "server/session/session.h"
#include "transport/transport.h"
#include "wire/control.h"

enum tows_worker_state {
    TOW_WORKER_STARTING, /* opens its backend */
    TOW_WORKER_IDLE,     /* waits for a connection */
    TOW_WORKER_BUSY,     /* serves one */
    TOW_WORKER_ENDING,   /* was told to go */
};

struct tows_worker {
    struct tows_worker *next; /* owned by the worker pool */
    uint64_t number;          /* of its process, for the starter */
    pid_t pid;
    int control; /* owned */
    /* Owned: its client's connection, once more, or -1. The client sees it close when the process
     * is gone and the driver has freed what it had. */
    int client;
    enum tows_worker_state state;
    char key[TOW_WORKER_KEY_MAX];
    struct tows_session_stats *stats; /* owned mapping, shared with the worker */
    uint64_t session;
    struct tows_who who;       /* whose session it is, or whose program it is started for */
    struct tows_limits limits; /* BUSY: of its session; whoever assigns it sets them before */
    struct tows_who origin;    /* BUSY: where its connection comes from, whoever has logged in */
    uint32_t user;       /* that it has for its tenant; 0: the server's, or it serves none yet */
    unsigned lines;      /* of the log that it was given */
    uint32_t asked;      /* by the watchdog, last; 0: never */
    unsigned unanswered; /* how often it looked since, and found no answer */
    unsigned lingers;    /* BUSY: how often it looked, and its client had gone */
    bool stands;         /* BUSY: it was ended for one of these */
    char why[256];       /* BUSY: why this server ends the session; "": it does not */
    unsigned exports;    /* descriptors that it has exported */
    struct tows_handle_owner handles; /* of cuIpc, that it has made */
    int refused;        /* owned: tells which system calls it was refused; -1: none, or no more */
    bool tells_refused; /* it has sent that descriptor: a second one is not taken */
    unsigned refusals;  /* how many of them were heard */
    char peer[128];
    char transport[16];
    int64_t since_ns;  /* of the state */
    int64_t began_ns;  /* BUSY: when the session began, since 1970 */
    int64_t waited_ns; /* BUSY: how long its program was at the door before */
    int64_t end_ns;    /* BUSY: it was told to end, and is ended then; 0: it was not */
    struct tows_usage usage;
    struct tows_suspend suspend;
    struct tows_seat seat;        /* among those who take turns */
    struct tows_swap_seat swap;   /* among those whose memory is put out */
    uint8_t left[TOW_LOGIN_SIZE]; /* what its client's login left; whoever assigns it sets it */
    struct tow_login_keys secret; /* BUSY: of the session's secret, if `lasting` */
    bool lasting;                 /* its client may come again when its connection is cut */
    struct tow_grant grant;       /* BUSY, over tls: what its client's lines are made with */
    bool granted;                 /* it has one */
    int64_t arrive_ns;            /* granted: when the client must have come; 0: it has */
    bool kept;                    /* BUSY: it goes on without this server, see meeting.h */
    int64_t join_ns; /* BUSY, of another server: when it must have answered; 0: it has */
};

/* For lines of the log about its session. */
struct tow_log_about tows_worker_about(const struct tows_worker *worker,
                                       char ret_tenant[TOW_WHO_TEXT_MAX]);

/* What sessions have done that have ended. */
struct tows_pool_totals {
    uint64_t sessions, calls, replies, bytes_in, bytes_out, suspends;
};

struct tows_worker_pool {
    const struct tows_config *config; /* borrowed */
    struct tows_worker *workers;      /* owned */
    uint64_t next_session;
    struct tows_pool_totals ended;
    struct tows_export_registry exports; /* what sessions have exported for each other */
    struct tows_handle_registry handles; /* of cuIpc, that they have made */
    struct tows_cache_writer writer;     /* of the cache of code */
    struct tows_records records;         /* of ended sessions */
    struct tows_gates gates;             /* whose turn it is at which GPU */
    struct tows_refusals refusals;       /* which system calls the log has named */
    struct tows_starter starter;         /* of their processes */
    struct tows_meeting meeting;         /* where they are found by the next server */
    bool opened; /* some worker has opened its backend: the texts below hold */
    char backend[16];
    char description[256];
    bool pageable;     /* GPUs reach pageable memory */
    char *devices;     /* owned: a JSON array; NULL until a worker was ready */
    char failure[512]; /* why the last start failed; "" after a success */
    unsigned failures; /* in a row */
    int64_t retry_ns;  /* no worker is started ahead before this moment */
};

void tows_worker_pool_init(struct tows_worker_pool *pool, const struct tows_config *config);

/* Starts a worker, for a program of `who` or (NULL) for anybody's. 0, or why it could not be. */
int tows_worker_pool_start(struct tows_worker_pool *pool, const char *key,
                           const struct tows_who *who);

/* An idle worker for this key, or NULL. */
struct tows_worker *tows_worker_pool_idle(struct tows_worker_pool *pool, const char *key);
unsigned tows_worker_pool_count(const struct tows_worker_pool *pool, enum tows_worker_state state,
                                const char *key);
/* Those in that state for one peer: its sessions, or workers that start for its programs. */
unsigned tows_worker_pool_count_for(const struct tows_worker_pool *pool,
                                    enum tows_worker_state state, const struct tows_who *who);
/* Sessions of one class. */
unsigned tows_worker_pool_count_class(const struct tows_worker_pool *pool, const char *class);
/* Adds what its session has done. */
void tows_pool_totals_add(struct tows_pool_totals *totals, const struct tows_worker *worker);
/* All worker processes, whatever their state. */
unsigned tows_worker_pool_size(const struct tows_worker_pool *pool);

/* Gives it the connection of `who`, which comes from `origin`; the caller still owns its own `fd`.
 */
int tows_worker_pool_assign(struct tows_worker_pool *pool, struct tows_worker *worker, int fd,
                            enum tow_transport_kind kind, const char *peer,
                            const struct tows_who *who, const struct tows_who *origin);

/* Begins a session whose connections are still to come, over tls: only who has the grant can make
 * them. A session whose client does not come soon ends (tows_worker_pool_press). */
int tows_worker_pool_grant(struct tows_worker_pool *pool, struct tows_worker *worker,
                           const char *peer, const struct tows_who *who,
                           const struct tows_who *origin, struct tow_grant *ret_grant);

/* Gives the worker that has the grant of this id its client's connection, or a further one; the
 * caller still owns its own `fd`. The id is no secret: it must come from the session's address.
 * -ENOENT if nobody has it. */
int tows_worker_pool_arrive(struct tows_worker_pool *pool, const uint8_t id[TOW_GRANT_ID], int fd,
                            enum tow_transport_kind kind, const struct tows_who *origin);

/* Gives the worker of a session a further connection of it; the caller still owns its own `fd`.
 * -ENOENT if there is no such session, or it comes from elsewhere: nobody learns which. */
int tows_worker_pool_lane(struct tows_worker_pool *pool, uint64_t session, int fd,
                          enum tow_transport_kind kind, const struct tows_who *origin);

/* The worker of a session that outlives its connection; NULL: there is none. */
struct tows_worker *tows_worker_pool_lasting(struct tows_worker_pool *pool, uint64_t session);
/* Gives it a connection of its client's, who has shown the session's secret: its `line` (RESUME)
 * goes on there. The caller still owns its own `fd`. -EAGAIN: not now. */
int tows_worker_pool_resume(struct tows_worker_pool *pool, struct tows_worker *worker,
                            uint32_t line, int fd, enum tow_transport_kind kind, const char *peer,
                            const struct tows_who *origin);

/* The worker's control socket is readable. Returns 1 if the failure of a start should be told to
 * clients that wait for `worker->key`. */
int tows_worker_pool_hear(struct tows_worker_pool *pool, struct tows_worker *worker);

/* Reaps what has ended (SIGCHLD). Returns 1 as above, with the key in ret_key. Call until it
 * returns 0. */
int tows_worker_pool_reap(struct tows_worker_pool *pool, char ret_key[TOW_WORKER_KEY_MAX]);

/* The worker of a session, which is not in the pool, has ended while no server was there: frees it.
 */
void tows_worker_pool_lost(struct tows_worker_pool *pool, struct tows_worker *worker);

/* Gives workers lines of the log, of which the server has so many in all. Call it now and then. */
void tows_worker_pool_give_lines(struct tows_worker_pool *pool);

/* Ends a worker that serves nobody. */
void tows_worker_pool_end(struct tows_worker_pool *pool, struct tows_worker *worker);

/* Tells the kernel what its process may have: when its session begins, and when what it keeps of
 * GPU memory changes. */
void tows_worker_pool_limit(struct tows_worker_pool *pool, struct tows_worker *worker);

/* Ends a session: its program is told why, in a sentence without an end. A worker that does not go
 * is killed by tows_worker_pool_press, which is to be called now and then. */
void tows_worker_pool_dismiss(struct tows_worker_pool *pool, struct tows_worker *worker,
                              const char *why);
void tows_worker_pool_press(struct tows_worker_pool *pool);
/* The same for one that is stopped: it goes on, to tell its program why it ends. */
void tows_worker_pool_wake(struct tows_worker_pool *pool, struct tows_worker *worker,
                           const char *why);
/* The worker of a session; NULL: there is none. */
struct tows_worker *tows_worker_pool_find(struct tows_worker_pool *pool, uint64_t session);

/* Ends all, tells their programs why, waits for them (at most about 3 s), frees everything.
 * `leave`: sessions that the next server can take over (meeting.h) go on. */
void tows_worker_pool_fini(struct tows_worker_pool *pool, const char *why, bool leave);

#endif
