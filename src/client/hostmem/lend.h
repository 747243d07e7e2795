/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program's own that it page-locks (cuMemHostRegister), where the line can pass
 * memory (client/link/share.h): of a shared mapping of a file in memory (shm_open, memfd,
 * MAP_SHARED | MAP_ANONYMOUS) the worker maps the same file, so that copies and kernels use it
 * where it is. Private memory stays as it is, and is staged and mirrored as all other memory.
 *
 * Only whole pages inside of what the program registered are lent. The rest of its first and last
 * page is staged and mirrored, too.
 */
#ifndef TOW_CLIENT_LEND_H
#define TOW_CLIENT_LEND_H

#include <stdbool.h>
#include <stdint.h>

#include "client/link/link.h"

/* Lends what can be lent of [base, base + size), memory of the program that is in no region yet and
 * not mirrored, to the worker of the current context: false if that is nothing. */
bool towc_lend_begin(struct towc_link *link, uint64_t base, uint64_t size, uint64_t *ret_low,
                     uint64_t *ret_high);
/* Takes back what was lent from `low` on; the worker has let go of it then. */
CUresult towc_lend_end(struct towc_link *link, uint64_t low);
/* The end of what is lent at `at` (*ret_lent), or else where, before `end`, something is. `link`:
 * only what its worker has; NULL: any. */
uint64_t towc_lend_until(const struct towc_link *link, uint64_t at, uint64_t end, bool *ret_lent);

#endif
