/* SPDX-License-Identifier: Apache-2.0 */
/* Managed memory that is not compared but demand-paged: a block of it is here while the program
 * uses it, and is fetched from the worker when the program touches it (userfaultfd). After a
 * synchronisation, when the GPU may have written anything, no block is here.
 *
 * What the program reads is write-protected: it is dropped by the next synchronisation, and until
 * then work costs nothing for it. Who writes it is stopped for a moment, and what it was is kept.
 * What was written is compared before work that may read it; the changes go to the worker, byte for
 * byte, as for all mirrored memory. Few blocks are protected again then and stay. Others leave by
 * being moved away as a whole (mremap), so that no write of another thread is lost.
 *
 * Where memory cannot be protected (TOWLINE_MANAGED=touch), all that is here is compared. What has
 * not left by the second time does then, so that a launch does not pay for what the program touched
 * long ago.
 *
 * Whoever touches an absent block waits for a thread of ours, with whatever lock it holds. So that
 * thread takes no lock under which the program's memory is touched: it asks on the side line,
 * behind the changes that went out there.
 */
#ifndef TOW_CLIENT_FAULT_H
#define TOW_CLIENT_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/link/link.h"
#include "client/session/modes.h"

enum { TOW_FAULT_BLOCK = 16 << 10 }; /* or a page, where that is more */

/* A descriptor that watches memory, for system calls as well; -1 if that is not permitted. */
int towc_fault_open(uint64_t features);

/* Whether new managed memory of this size is to be demand-paged; then it is to have whole pages.
 * Gets everything ready for it. */
bool towc_fault_wanted(struct towc_link *link, uint64_t size);

/* Watches [base, base + size), whole pages: fresh anonymous memory, of which nobody knows what the
 * worker has. False if that cannot be. */
bool towc_fault_add(struct towc_link *link, uint64_t base, uint64_t size);
/* What the worker has there is known: zeros, or not. For memory that nobody touched yet. */
void towc_fault_told(uint64_t base, bool blank);
/* Forgets it; before its memory is unmapped. Whoever waits for it finds what is there next. */
void towc_fault_remove(uint64_t base);
/* Lets those go on who wait for memory that is unmapped now. */
void towc_fault_wake(uint64_t base, uint64_t size);

/* Why what the program changed is sent. */
enum towc_fault_why {
    TOW_FAULT_WORK,  /* work follows that may read it, and write */
    TOW_FAULT_WAIT,  /* somebody waits for work that went out before */
    TOW_FAULT_STALE, /* that has been waited for: the GPU may have written, nothing stays here */
};
/* Sends what the program changed, as records in `send`, which may wait. One caller at a time.
 * `idle`: as in towc_side_send_changes. */
typedef CUresult towc_fault_send(struct towc_link *link, const struct towc_idle *idle,
                                 const uint8_t *bytes, size_t size);
CUresult towc_fault_push(struct towc_link *link, enum towc_fault_why why, uint8_t *chunk,
                         size_t room, towc_fault_send *send);

#endif
