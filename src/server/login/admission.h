/* SPDX-License-Identifier: Apache-2.0 */
/* Who may start now, who waits in line for what and at which place, who is refused, and which
 * session gives way: all of it is decided here, from what the caller counts and from the time that
 * it says. Nothing here knows a worker, a descriptor or a clock. */
#ifndef TOW_SERVER_ADMISSION_H
#define TOW_SERVER_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

#include "server/config/config.h"
#include "server/login/policy.h"
#include "server/login/who.h"
#include "wire/control.h"

/* As if it had come so much earlier, for each step of priority: nobody waits for ever behind those
 * who matter more. */
#define TOW_ADMISSION_STEP_NS (1800 * TOW_TIME_S)

/* One peer: its claims share it. */
struct tows_claimant {
    const struct tows_who *who; /* borrowed */
    unsigned runs;              /* its sessions: the caller counts them */
    unsigned waits;             /* its programs that are still waited for: counted here */
};

enum tows_verdict {
    TOW_VERDICT_RUNS,
    TOW_VERDICT_GIVES_WAY, /* it runs, and must end: its lease is over and somebody waits */
    TOW_VERDICT_STARTS,    /* it may have a worker */
    TOW_VERDICT_WAITS,
    TOW_VERDICT_REFUSED,
};

/* A program that runs, or wants to. */
struct tows_claim {
    void *owner;                           /* the caller's */
    const struct tows_policy_class *class; /* borrowed; NULL: none */
    struct tows_claimant *claimant;        /* borrowed; of one that runs it may be NULL */
    bool runs, ending;                     /* ending: it runs, and was told to end */
    bool suspended;                        /* it runs, and has no memory of the GPUs */
    bool exclusive;                        /* it has, or wants, the GPUs for itself alone */
    bool forbidden;                        /* it wants that, and may not */
    uint64_t gpu_memory;                   /* promised to it of each GPU; 0: no quota */
    uint64_t lease_s;                      /* 0: none */
    unsigned priority;                     /* enum tows_config_priority */
    int64_t since_ns;                      /* when it began to run, or came */
    uint64_t number;                       /* which of two came first; no two have the same */
    uint32_t wait_s;                       /* tow_wish */

    enum tows_verdict verdict;
    enum tow_wait_for wait_for; /* WAITS, REFUSED */
    unsigned place, of;         /* WAITS: from 1 on, and how many are in that line */
    uint64_t left;              /* STARTS: no more than that, if it is not 0 */
};

/* The server. */
struct tows_admission {
    const struct tows_config *config; /* borrowed */
    uint64_t card;                    /* memory of the smallest GPU; 0: not known */
    uint64_t context;                 /* of it, what a session has beside its quota */
    unsigned ready;                   /* workers that are ready for somebody and have that, too */
};

/* Decides about all at once. The order of `claims` changes. */
void tows_admission_decide(const struct tows_admission *by, struct tows_claim *claims,
                           unsigned count, int64_t now_ns);

/* What keeps a suspended session, which is one of the claims, from having its memory again; NOT:
 * nothing does. Nobody in line comes before it. */
enum tow_wait_for tows_admission_return(const struct tows_admission *by,
                                        const struct tows_claim *claims, unsigned count,
                                        const struct tows_claim *back);

/* Where memory is swapped: what is kept free for contexts of those who come. */
uint64_t tows_admission_spare(const struct tows_admission *by);

/* It is refused whatever ends: its user need not try again. */
bool tows_admission_is_final(const struct tows_claim *claim);

/* Why one is refused, for its user. */
void tows_admission_explain(const struct tows_admission *by, const struct tows_claim *claim,
                            int64_t now_ns, char ret_why[TOW_POLICY_WHY_MAX]);

/* "for the class's other programs" and so on: behind "waits". */
const char *tows_admission_text(enum tow_wait_for wait_for);

#endif
