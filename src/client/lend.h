/* Memory of the program's own that it page-locks (cuMemHostRegister), where the line can pass
 * memory (client/share.h): the worker gets it too, so that copies and kernels use it where it is.
 *
 * Only whole pages inside of what the program registered are lent. What else lies on its first and
 * last page is not the program's to give: headers of malloc, locks that the C library resets in a
 * forked child. Those ends are staged and mirrored as all other memory is.
 *
 * Shared mappings of a file in memory (shm_open, memfd, MAP_SHARED | MAP_ANONYMOUS): the worker
 * maps the same file, and nothing changes here.
 *
 * Private memory (malloc, mmap), unless TOWLINE_REGISTERED=stage: its pages become those of a
 * memfd, and private again at the end (client/move.h). A forked child gets a copy of its own, as
 * natively.
 */
#ifndef TOW_CLIENT_LEND_H
#define TOW_CLIENT_LEND_H

#include <stdbool.h>
#include <stdint.h>

#include "client/link.h"

/* Counts bytes that were copied from or to what is lent from `low` on. To lend private memory costs
 * as much as many copies save: a program that registers memory for a copy or two, and does so
 * again, has it staged then. */
void tow_lend_count(uint64_t low, uint64_t bytes);
/* It is meant for kernels, which pays in any case. */
void tow_lend_count_mapped(uint64_t low);

/* Lends what can be lent of [base, base + size), memory of the program that is in no region yet and
 * not mirrored, to the worker of the current context: false if that is nothing. */
bool tow_lend_begin(struct tow_link *link, uint64_t base, uint64_t size, uint64_t *ret_low,
                    uint64_t *ret_high);
/* Takes back what was lent from `low` on; the worker has let go of it then. */
CUresult tow_lend_end(struct tow_link *link, uint64_t low);
/* The end of what is lent at `at` (*ret_lent), or else where, before `end`, something is. `link`:
 * only what its worker has; NULL: any. */
uint64_t tow_lend_until(const struct tow_link *link, uint64_t at, uint64_t end, bool *ret_lent);

#endif
