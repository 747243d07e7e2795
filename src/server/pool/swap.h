/* SPDX-License-Identifier: Apache-2.0 */
/* With overcommit = swap: what workers ask for goes to login/room.h, and what that decides is
 * carried out. Workers are told what they get, and to put memory out and take it in again
 * (suspend.h). Only the listener's one thread calls this. */
#ifndef TOW_SERVER_POOL_SWAP_H
#define TOW_SERVER_POOL_SWAP_H

#include <stdbool.h>
#include <stdint.h>

struct tows_worker;
struct tows_worker_pool;

/* A session's part of it. All zero: it has just begun. */
struct tows_swap_seat {
    uint64_t seen;     /* of its calls and bytes, when last looked */
    int64_t moved_ns;  /* when these had changed */
    int64_t came_ns;   /* since when its memory is there; 0: it was there from its beginning */
    int64_t asked_ns;  /* since when it waits; 0: it does not */
    uint32_t phase;    /* enum tows_suspension, when last looked */
    unsigned failures; /* in a row: it could not be put out */
    int64_t fixed_ns;  /* until then that is not tried again */
    uint32_t given;    /* number of the question that was answered last */
    uint64_t has;      /* and what it has by that, of the GPU that it asked about */
    uint64_t swaps;    /* how often it was put out */
};

/* What is left of each GPU when the contexts of those who are ready are counted, and what another
 * context takes; 0: not known yet. */
struct tows_swap_card {
    uint64_t bytes, context;
};

/* To be called in each round of the loop. */
void tows_swap_drive(struct tows_worker_pool *pool, const struct tows_swap_card *card);
/* When the next round must come; TOW_TIME_FOREVER: when there is news. */
int64_t tows_swap_next(const struct tows_worker_pool *pool);
/* Host memory that sessions take whose memory is put out, or is about to be. */
uint64_t tows_swap_used(const struct tows_worker_pool *pool);

/* Orders of a user's: a session that is out stays so until he says otherwise; and one that is comes
 * back when there is room. */
void tows_swap_keep(struct tows_worker_pool *pool, struct tows_worker *worker, const char *by);
void tows_swap_recall(struct tows_worker_pool *pool, struct tows_worker *worker);

#endif
