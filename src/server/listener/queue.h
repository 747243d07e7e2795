/* SPDX-License-Identifier: Apache-2.0 */
/* The listener's programs and sessions, as login/admission decides about them; does what it says.
 */
#ifndef TOW_SERVER_LISTENER_QUEUE_H
#define TOW_SERVER_LISTENER_QUEUE_H

#include "base/json_write.h"
#include "server/door/door.h"
#include "server/login/admission.h"
#include "server/login/policy.h"
#include "server/pool/worker_pool.h"

struct tows_queue {
    struct tows_claim *claims; /* owned */
    unsigned room;
    unsigned round; /* of tows_queue_decide */
    uint64_t card;  /* memory of the smallest GPU; 0: not known yet */
};

/* Decides who of the programs at the door may have a worker, tells the others their places or why
 * they are refused, and ends sessions whose lease is over. */
void tows_queue_decide(struct tows_queue *queue, const struct tows_config *config,
                       const struct tows_policy *policy, struct tows_worker_pool *pool,
                       struct tows_door *door);
/* What the GPUs have, as far as is known. */
struct tows_swap_card tows_queue_card(struct tows_queue *queue, const struct tows_config *config,
                                      const struct tows_worker_pool *pool);
/* Whether a suspended session may have its memory again; else -EAGAIN with a sentence. */
int tows_queue_return(struct tows_queue *queue, const struct tows_config *config,
                      const struct tows_policy *policy, struct tows_worker_pool *pool,
                      struct tows_door *door, const struct tows_worker *worker, char *ret_why,
                      size_t size);
void tows_queue_fini(struct tows_queue *queue);

/* The limits of a program that was admitted. */
struct tows_limits tows_queue_limits(const struct tows_config *config,
                                     const struct tows_policy *policy,
                                     const struct tows_pending_conn *conn);

/* Who waits in line, for a report to `who`: others are of some class, and have no names. */
void tows_queue_write(const struct tows_door *door, const struct tows_config *config,
                      const struct tows_policy *policy, const struct tows_who *who, bool all,
                      struct tow_json *json);

#endif
