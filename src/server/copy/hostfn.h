/* SPDX-License-Identifier: Apache-2.0 */
/* Host functions: the GPU's stream calls the client, which runs the program's function and says
 * when it is done. */
#ifndef TOW_SERVER_HOSTFN_H
#define TOW_SERVER_HOSTFN_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct tows_session;
struct tows_hostfn_turn;

/* The client has run host function `id`: the stream that waits for it goes on. Unknown ids are
 * ignored. */
void tows_hostfn_done(struct tows_session *session, uint64_t id);

/* Tells the client that it is the turn of function `id`, or (`status`) that it never will be. */
int tows_hostfn_tell(struct tows_session *session, uint64_t id, CUresult status);

/* Whether a stream waits for one just now. */
bool tows_hostfn_runs(struct tows_session *session);

/* The session ends: whoever waits for a host function goes on. */
void tows_hostfn_end(struct tows_session *session);

/* What to hand to the driver as a host function and its argument, so that the client runs its
 * function `id`: once, or each time the driver calls (`repeats`, for graphs: lives as long as the
 * session). tows_hostfn_drop if the driver did not take it. NULL if memory is used up. */
struct tows_hostfn_turn *tows_hostfn_make(struct tows_session *session, uint64_t id, int repeats);
void tows_hostfn_run(void *opaque); /* a CUhostFn */
void tows_hostfn_drop(struct tows_hostfn_turn *turn);
uint64_t tows_hostfn_id(const struct tows_hostfn_turn *turn);

#endif
