/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that this program and its worker both have (wire/share.h), where the line can pass it.
 * Where it cannot be shared the caller does what it does over a network.
 */
#ifndef TOW_CLIENT_SHARE_H
#define TOW_CLIENT_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/link/link.h"

struct towc_share;

/* Of a link that was just opened; NULL if its line cannot pass memory. */
struct towc_share *towc_share_make(struct tow_line *line);
void towc_share_destroy(struct towc_share *share);

/* New memory for both. False: memory cannot be shared. True: `ret_status` says how it went. */
bool towc_share_alloc(struct towc_link *link, size_t size, CUresult *ret_status, void **ret_at);
/* Ends it; the worker has let go of it when this returns. */
CUresult towc_share_free(struct towc_link *link, void *at, size_t size);

/* A file in memory whose size is fixed for good. */
int towc_share_make_memory(size_t size, int *ret_fd);
/* Passes memory that the program has at [at, at + size), whole pages, for the worker to map there
 * as well: one that towc_share_make_memory made for it, or, with an offset, a file of the
 * program's. It answers as towc_share_alloc does.
 */
bool towc_share_lend(struct towc_link *link, int fd, uint64_t at, uint64_t size,
                     const uint64_t *offset, CUresult *ret_status);
/* Ends that; here nothing changes. */
CUresult towc_share_take_back(struct towc_link *link, uint64_t at);

/* Shared memory for our own use, made when it is first wanted. */
struct towc_share_area {
    atomic_int state;
    uint8_t *base; /* owned; set once */
    size_t size;
};
/* False: it cannot be had, and will not be asked for again. */
bool towc_share_area_ready(struct towc_link *link, struct towc_share_area *area, size_t size);
void towc_share_area_fini(struct towc_share_area *area);

#endif
