/* SPDX-License-Identifier: Apache-2.0 */
/* What all of the library asks first: may calls go on, and which servers are there. Set by
 * client/edge/core.c.
 */
#ifndef TOW_CLIENT_STATE_H
#define TOW_CLIENT_STATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "gen/cuda_types.h"

struct towc_link;

enum { TOW_SERVERS_MAX = 16 };

/* One word says whether calls may go on. It lies in memory that the kernel
 * clears in a forked child, so a child sees 0 (not initialised) without asking for its pid. */
enum towc_client_phase {
    TOW_PHASE_NONE = 0, /* before cuInit, or in a forked child */
    TOW_PHASE_READY = 1,
    TOW_PHASE_ENDED = 2, /* the program is past its end */
};
extern atomic_int *towc_client_phase;

/* CUDA_SUCCESS after cuInit; else what calls answer: NOT_INITIALIZED before cuInit and in a forked
 * child, DEINITIALIZED after the program's end. */
static inline CUresult towc_client_state(void)
{
    int phase = atomic_load_explicit(towc_client_phase, memory_order_acquire);
    if (__builtin_expect(phase == TOW_PHASE_READY, 1)) {
        return CUDA_SUCCESS;
    }
    return phase == TOW_PHASE_NONE ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_DEINITIALIZED;
}

/* True once exit() runs the handlers that were registered before cuInit, the CUDA runtime's among
 * them: the session ends in a moment. */
bool towc_client_is_exiting(void);

/* All servers, in the order named. */
unsigned towc_client_link_count(void);
struct towc_link *towc_client_link_at(unsigned index);

/* ---- for client/edge/core.c, whose lock guards the list while it changes ---- */

/* cuInit is done: calls may go on, in this process and not in its children. */
void towc_client_phase_begin(void);
/* The program is past its end. */
void towc_client_phase_end(void);

/* One more server, behind the others; false if there are too many. Not owned here. */
bool towc_client_link_add(struct towc_link *link);
void towc_client_links_clear(void);

#endif
