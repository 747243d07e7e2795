/* SPDX-License-Identifier: Apache-2.0 */
/* What sessions hold of this machine, and who goes when that is more than the settings allow: the
 * session itself where it holds too much, and where all of a peer, or all together, do, one of
 * those who hold more than their part. The kernel is asked, not the workers: a worker may be in its
 * client's hands.
 */
#ifndef TOW_SERVER_USAGE_H
#define TOW_SERVER_USAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/config/config.h"

struct tows_who;
struct tows_worker;
struct tows_worker_pool;

/* Of one worker, as it was looked at last. */
struct tows_usage {
    uint64_t memory; /* host memory of the process */
    uint64_t holds;  /* with what a driver keeps there of a GPU's */
    /* Of that, without what is the software GPU's: that has its own limit. At least; memory that
     * was given out there and never written is none. */
    uint64_t host;
    uint64_t most; /* that `host` ever was, as far as was looked */
    unsigned threads, descriptors;
    uint64_t seen;    /* calls and bytes of the client's until then */
    int64_t moved_ns; /* when the client last wanted something, as far as was looked; 0: never */
    int nice;         /* that its threads were given, beyond the listener's own */
    unsigned weight;  /* of its control group; 0: as it was made */
    unsigned quiet;   /* looks in a row at which there were no new ones */
    int64_t look_ns;  /* when it is looked at though there are none */
};

/* Settings that are 0 stand for a share of the machine: they are given their numbers. */
void tows_usage_defaults(struct tows_config *config);

/* Looks at sessions that may have changed, and ends those that hold too much. True: some grow, and
 * are to be looked at again soon; else in a second. */
bool tows_usage_look(struct tows_worker_pool *pool);

/* Threads come faster than anybody looks: tells each session ahead how many it may have. To be
 * called when one has begun, too. */
void tows_usage_allow_threads(struct tows_worker_pool *pool);
/* Seconds for which a session's client has wanted nothing. */
uint64_t tows_usage_idle(const struct tows_worker *worker);
/* What threads all workers have. */
uint64_t tows_usage_threads(const struct tows_worker_pool *pool);
/* What all sessions hold, or (not NULL) those of one peer. */
uint64_t tows_usage_memory(const struct tows_worker_pool *pool, const struct tows_who *who);

/* Whether the session's GPU memory may be put out into host memory; else why not, a sentence
 * without an end. */
bool tows_usage_has_room(const struct tows_worker_pool *pool, const struct tows_worker *worker,
                         char *why, size_t size);
/* What of a GPU a suspended session needs for coming back; 0: its worker has it already. */
uint64_t tows_usage_returns(const struct tows_worker *worker);

#endif
