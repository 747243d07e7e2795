/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the GPU reaches, over a network: the worker has the same addresses, and both
 * copies are brought together at CUDA's synchronisation points. What the host changed goes to the
 * worker before work that may read it, and before waiting for work that may be watching it; what
 * the GPU changed comes back before a synchronising call returns. Managed memory is the same thing
 * with the worker's address.
 */
#ifndef TOW_CLIENT_MIRROR_H
#define TOW_CLIENT_MIRROR_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "client/hostmem/fault.h"
#include "client/link/link.h"
#include "client/hostmem/region.h"
#include "client/session/modes.h"

/* Whether page-locked memory may have to be mirrored: what its own server's worker shares may be
 * used at another's. */
static inline bool towc_mirror_is_candidate(const struct towc_region *region)
{
    return !towc_region_is_shared(region) || towc_client_link_count() > 1;
}

/* Makes host memory [base, base + size) reachable at the same address, unless it is already; of
 * page-locked memory always the whole piece. */
CUresult towc_mirror_host(struct towc_link *link, uint64_t base, uint64_t size);
/* The same on the current context's server: memory that a graph uses at every launch. */
CUresult towc_mirror_host_here(const void *host, size_t size);
/* Shares memory that the program registers, as far as that can be (client/hostmem/lend.h), unless
 * some of it is mirrored already. */
bool towc_mirror_lend(struct towc_link *link, uint64_t base, uint64_t size, uint64_t *ret_low,
                      uint64_t *ret_high);
/* The end of that for a region that stays registered: it is staged and mirrored from now on. */
void towc_mirror_unlend(const struct towc_region *region);
enum {
    TOW_MANAGED_PAGED = 1, /* as client/hostmem/fault.h does; else it is compared */
    TOW_MANAGED_TOLD = 2,  /* the worker does not know yet that it is to be mirrored (a __managed__
                              variable), and what it has there may not be zeros */
};
/* Puts memory of this process behind managed memory that the worker has at [base, base + size) and
 * mirrors it. CUDA_ERROR_NOT_SUPPORTED if it cannot be demand-paged. */
CUresult towc_mirror_managed(struct towc_link *link, uint64_t base, uint64_t size, unsigned how);
/* Ends the mirroring of what begins at `base`; the worker's mapping goes too. */
CUresult towc_mirror_remove(uint64_t base, uint64_t size);
/* True if [base, base + size) is mirrored or lent all through. */
bool towc_mirror_covers(uint64_t base, uint64_t size);
/* True if the worker of `link` has all of it too. Of managed and page-locked memory that means that
 * its GPU may write it, so copies must take it in the stream's order. (Pageable memory that a graph
 * uses is mirrored as well, but a copy of it has read it when the call returns.) */
bool towc_mirror_has(const struct towc_link *link, uint64_t base, uint64_t size);

/* Sends what the program changed. Call before the command whose work may read it. */
CUresult towc_mirror_push_all(struct towc_link *link);
/* The same before a call that waits for the device; `works`: it may give that work as well. */
CUresult towc_mirror_push_shown(struct towc_link *link, bool works);
/* The same at the end of a host function, before that is told: waits for nothing that the server
 * does. */
CUresult towc_mirror_push_function(struct towc_link *link);
/* The program may look at what the GPU wrote from now on: the worker has sent it, or memory that is
 * demand-paged is fetched anew. Call behind every synchronising reply and before a host function.
 */
void towc_mirror_stale_all(struct towc_link *link);
static inline void towc_mirror_stale(struct towc_link *link)
{
    if (__builtin_expect(atomic_load_explicit(&towc_fault_count, memory_order_relaxed) != 0, 0)) {
        towc_mirror_stale_all(link);
    }
}
/* Between these nothing is sent. */
void towc_mirror_pause(void);
void towc_mirror_resume(void);
static inline CUresult towc_mirror_push(struct towc_link *link)
{
    return atomic_load_explicit(&towc_mirror_count, memory_order_relaxed) == 0
               ? CUDA_SUCCESS
               : towc_mirror_push_all(link);
}

/* For calls in which NVIDIA's driver waits for the device, and ours need not: waits as well where
 * the program can look at memory that kernels write. */
CUresult towc_mirror_sync_device(void);

/* Looks for addresses of page-locked memory in kernel arguments and mirrors what it finds. */
CUresult towc_mirror_scan_all(struct towc_link *link, const void *params, size_t size);
static inline CUresult towc_mirror_scan(struct towc_link *link, const void *params, size_t size)
{
    return atomic_load_explicit(&towc_mirror_candidates, memory_order_relaxed) == 0
               ? CUDA_SUCCESS
               : towc_mirror_scan_all(link, params, size);
}

/* An address in the place of device memory: page-locked host memory is as good there, so it becomes
 * reachable. Nothing happens for other addresses. */
CUresult towc_mirror_reach_all(uint64_t address);
static inline CUresult towc_mirror_reach(uint64_t address)
{
    return atomic_load_explicit(&towc_mirror_candidates, memory_order_relaxed) == 0
               ? CUDA_SUCCESS
               : towc_mirror_reach_all(address);
}
/* Memory that host and device both see, managed or page-locked: what the host changed must be there
 * before a copy or fill, and a synchronous one is visible when it returns. */
bool towc_mirror_sees(uint64_t address);
/* towc_mirror_reach for a stream's memory operation: what the host wrote there before is there. A
 * driver refuses managed memory in these, and so do we: CUDA_ERROR_INVALID_VALUE. */
CUresult towc_mirror_reach_work(uint64_t address);
/* towc_region_check_device, and then towc_mirror_reach. */
CUresult towc_mirror_check_device(uint64_t address, uint64_t size);
/* The second half of that, for memory that was looked up, while there are candidates. */
CUresult towc_mirror_admit(uint64_t address, uint64_t size);

/* The same for work on `stream`. A capture takes any address (libraries capture work on addresses
 * that are none, to learn its shape): only the graph's launch needs the memory. */
CUresult towc_mirror_check_work(CUstream stream, uint64_t address, uint64_t size);

/* A context ends: so does what is known of its memory, and what the worker shares of it. */
void towc_mirror_end_context(struct towc_context *context);

/* A MIRROR frame's body came. */
int towc_mirror_apply(struct towc_link *link, const uint8_t *records, size_t size);

#endif
