/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes now, where several sessions want one GPU: by weight, in GPU time. Decided from what
 * is said of sessions and from the time that the caller says: nothing here knows a worker, a GPU or
 * a clock.
 *
 * One unit has the turn: a session, or all that share memory or events with each other, since their
 * kernels may wait for each other. Only who has it submits, a slice's worth at a time while others
 * wait. When the slice is over the next one gets it as soon as what was submitted is done, or after
 * a quantum: nobody waits for a GPU that does not become empty. What ran for longer is a debt.
 *
 * Time is counted here, as it passes, for whoever has the turn or has not finished: a session that
 * says too much or too little of itself pays for what it held.
 */
#ifndef TOW_SERVER_TURNS_H
#define TOW_SERVER_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#define TOW_TURNS_SLICE_NS (10 * TOW_TIME_MS)
#define TOW_TURNS_QUANTUM_NS (50 * TOW_TIME_MS)
/* Who waits for so long behind those of higher priority gets one slice. */
#define TOW_TURNS_STARVES_NS TOW_TIME_S
/* Who comes again so soon was never away: a program that waits for its kernels before it gives more
 * loses nothing. */
#define TOW_TURNS_AWAY_NS (50 * TOW_TIME_MS)
/* Over so long a percentage holds: a session may be ahead of it or behind it by no more. */
#define TOW_TURNS_WINDOW_NS (100 * TOW_TIME_MS)

enum { TOW_TURNS_MAX = 4096, TOW_TURNS_WEIGHT_MAX = 1000 };

/* A session on one GPU. */
struct tows_turn {
    void *owner;       /* the caller's */
    uint64_t group;    /* 0: its own; else it shares turns with those of the same number */
    unsigned weight;   /* from 1 to TOW_TURNS_WEIGHT_MAX */
    unsigned priority; /* a higher one goes first */
    unsigned percent;  /* of the GPU's time that it may have at most; 0: all */
    bool wants;        /* has something to submit, or would have if it might */
    bool works;        /* what it submitted is not done yet */

    bool may;           /* decided: it may submit now */
    bool drains;        /* it had the turn, and has not finished */
    uint64_t used_ns;   /* GPU time that it had so far */
    uint64_t waited_ns; /* that it wanted, and might not */
    double passed;      /* used_ns by its weight: the least goes next */
    double allowance;   /* ns that it may still have of its percentage; less than 0: a debt */
    int64_t waits_ns;   /* since when it waits; 0: it does not */
    bool there;         /* it wanted or worked a moment ago */
    int64_t left_ns;    /* when it did last */
};

/* One GPU. */
struct tows_turns {
    struct tows_turn *all[TOW_TURNS_MAX]; /* borrowed */
    unsigned count;
    int64_t now_ns;   /* until when time was counted; 0: never */
    int64_t slice_ns; /* when the turn is over; TOW_TIME_FOREVER: nobody else wants it */
    int64_t asked_ns; /* since when the one that had it is waited for; 0: nobody is */
    bool firm;     /* the turn is of one that starved: nobody takes it before its slice is over */
    double passed; /* of the one that had the last turn: who comes anew begins there */
};

/* -ENOSPC: there are too many. */
int tows_turns_add(struct tows_turns *turns, struct tows_turn *turn);
void tows_turns_remove(struct tows_turns *turns, struct tows_turn *turn);

/* Counts the time that has passed, by what `wants` and `works` say: before they change. */
void tows_turns_count(struct tows_turns *turns, int64_t now_ns);

/* Counts the time until `now_ns` and decides who may submit. To be called whenever `wants` or
 * `works` has changed, and when tows_turns_next says. */
void tows_turns_decide(struct tows_turns *turns, int64_t now_ns);
/* When something changes by itself; TOW_TIME_FOREVER: never. */
int64_t tows_turns_next(const struct tows_turns *turns);

#endif
