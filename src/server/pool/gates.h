/* SPDX-License-Identifier: Apache-2.0 */
/* Gives sessions their turns at GPUs: what their workers say goes to login/turns.h, and what that
 * decides to the workers' gates (worker/gate.h), each in the memory that it shares.
 *
 * On a GPU nobody takes turns until two sessions compute there, or one whose share is capped. A
 * worker is in its client's hands: what it says is believed of itself alone, and one that does not
 * follow for a quantum has no turn until it does. */
#ifndef TOW_SERVER_GATES_H
#define TOW_SERVER_GATES_H

#include <stdint.h>

#include "server/login/turns.h"
#include "server/session/session.h"

struct tows_worker;
struct tows_worker_pool;

/* A session's part of it. All zero: it has none. */
struct tows_seat {
    struct tows_turn turns[TOW_STATS_GPUS_MAX];
    bool seated[TOW_STATS_GPUS_MAX];       /* it is among those of that GPU */
    int64_t unseen_ns[TOW_STATS_GPUS_MAX]; /* since when it has not followed; 0: it has */
    uint64_t group;                        /* of sessions that share memory or events; 0: alone */
    uint64_t launches, calls;              /* when last looked */
};

/* A GPU. */
struct tows_gate_gpu {
    struct tows_turns turns;
    bool on;          /* turns are taken */
    bool needed;      /* somebody did need them since they are */
    int64_t quiet_ns; /* since when nobody would need them; 0: somebody does */
    int64_t retry_ns; /* they were for nothing: not again before, unless there are launches */
};

struct tows_gates {
    struct tows_gate_gpu *gpus[TOW_STATS_GPUS_MAX]; /* owned; NULL: never used */
    int64_t look_ns;                                /* when to look who computes */
};

/* What was said, and what time it is, leads to new words. To be called in each round of the loop.
 */
void tows_gates_drive(struct tows_worker_pool *pool);
/* When the next round must come; TOW_TIME_FOREVER: when there is news. */
int64_t tows_gates_next(const struct tows_worker_pool *pool);
/* Before a session begins, and when it has ended. */
void tows_gates_begin(struct tows_worker_pool *pool, struct tows_worker *worker);
void tows_gates_end(struct tows_worker_pool *pool, struct tows_worker *worker);
/* One uses what the other has exported: from now on they take their turns together. */
void tows_gates_join(struct tows_worker_pool *pool, struct tows_worker *one,
                     struct tows_worker *other);
/* GPU time that a session has had, in ns. */
uint64_t tows_gates_time(const struct tows_worker *worker);
void tows_gates_fini(struct tows_gates *gates);

#endif
