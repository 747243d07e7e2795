/* SPDX-License-Identifier: Apache-2.0 */
/* What goes on in this process, as numbers that hot calls look at: each is 0 nearly always, and
 * then the call is short. Those who begin and end such a thing count it.
 */
#ifndef TOW_CLIENT_MODES_H
#define TOW_CLIENT_MODES_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"

/* While not 0 every call waits for its reply: TOWLINE_SYNC=1, CUDA_LAUNCH_BLOCKING=1
 * (towc_launch_wishes), or a stream captures (but see TOW_CALL_CAPTURED). Each reason adds 1. */
extern atomic_uint towc_wait_always;

/* How many streams of the program capture into graphs: while none does every question about
 * capturing is answered here. Counted by client/stream/capture.c. */
extern atomic_uint towc_captures;

/* How many pieces of host memory are mirrored, and of page-locked memory that could be
 * (client/hostmem/mirror.h). */
extern atomic_uint towc_mirror_count;
extern atomic_uint towc_mirror_candidates;

/* How many pieces of managed memory are demand-paged (client/hostmem/fault.h). */
extern atomic_uint towc_fault_count;

/* Who hears of each wait for a server when it is over, and when it began; NULL nearly always. */
typedef void towc_waited(int64_t began_ns);
extern _Atomic(towc_waited *) towc_wait_hook;
static inline int64_t towc_wait_begins(void)
{
    return __builtin_expect(atomic_load_explicit(&towc_wait_hook, memory_order_acquire) != NULL, 0)
               ? tow_time_now_ns()
               : 0;
}
static inline void towc_wait_ends(int64_t began_ns)
{
    if (__builtin_expect(began_ns != 0, 0)) {
        atomic_load_explicit(&towc_wait_hook, memory_order_acquire)(began_ns);
    }
}

#endif
