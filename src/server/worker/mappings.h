/* SPDX-License-Identifier: Apache-2.0 */
/* Memory without an address (cuMemCreate): it lives for as long as somebody holds its handle, or
 * some address leads to it. So whoever counts it must know both. */
#ifndef TOW_SERVER_MAPPINGS_H
#define TOW_SERVER_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"

struct tows_block; /* such memory */

struct tows_mapping {
    uint64_t base, size;
    struct tows_block *block; /* borrowed from `blocks` */
};

struct tows_mappings {
    struct tow_mutex lock;     /* guards all here */
    struct tows_block *blocks; /* owned */
    struct tows_mapping *list; /* owned; by address */
    size_t count, room;
    /* A block has gone: `key` is what it was made with. Called with the lock held. */
    void (*gone)(void *user, uint64_t key);
    void *user;
};

void tows_mappings_init(struct tows_mappings *mappings, void (*gone)(void *user, uint64_t key),
                        void *user);
void tows_mappings_fini(struct tows_mappings *mappings);

/* `handle` stands for new memory. False: there is no memory for that. */
bool tows_mappings_create(struct tows_mappings *mappings, uint64_t handle, uint64_t key);
/* The driver gave out a handle of what is mapped at an address: of memory of the session's own it
 * must be released once more. */
void tows_mappings_hold(struct tows_mappings *mappings, uint64_t address, uint64_t handle);
/* Before the driver releases it and may give the handle out again. */
void tows_mappings_release(struct tows_mappings *mappings, uint64_t handle);
/* Something that is not looked after holds it for as long as the session lives. */
void tows_mappings_keep(struct tows_mappings *mappings, uint64_t handle);

/* Before the driver maps, and afterwards if it could not: room for one more. */
bool tows_mappings_map(struct tows_mappings *mappings, uint64_t base, uint64_t size,
                       uint64_t handle);
/* The driver could not. */
void tows_mappings_undo(struct tows_mappings *mappings, uint64_t base, uint64_t handle);
/* All that lie in there. */
void tows_mappings_unmap(struct tows_mappings *mappings, uint64_t base, uint64_t size);

#endif
