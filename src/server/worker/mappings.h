/* SPDX-License-Identifier: Apache-2.0 */
/* Memory without an address (cuMemCreate): it lives for as long as somebody holds its handle, or
 * some address leads to it. So whoever counts it must know both. */
#ifndef TOW_SERVER_MAPPINGS_H
#define TOW_SERVER_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"

enum { TOW_MAPPINGS_BUCKETS = 4096 };

struct tows_block; /* such memory */

struct tows_mapping {
    uint64_t base, size;
    struct tows_block *block; /* borrowed from `blocks` */
    uint64_t unmapping;       /* which call takes it away just now; 0: none */
};

struct tows_mappings {
    struct tow_mutex lock;                            /* guards all here */
    struct tows_block *blocks;                        /* owned */
    struct tows_block *buckets[TOW_MAPPINGS_BUCKETS]; /* borrowed: those with handles */
    struct tows_mapping *list;                        /* owned; by address */
    size_t count, room;
    uint64_t unmappings; /* calls there have been */
    /* A block has gone: `key` is what it was made with. Called with the lock held. */
    void (*gone)(void *user, uint64_t key);
    void *user;
};

void tows_mappings_init(struct tows_mappings *mappings, void (*gone)(void *user, uint64_t key),
                        void *user);
void tows_mappings_fini(struct tows_mappings *mappings);

/* `handle` stands for new memory. False: there is no memory for that. */
bool tows_mappings_create(struct tows_mappings *mappings, uint64_t handle, uint64_t key);
/* Before the driver is asked for a handle of what is mapped at an address: it does not go
 * meanwhile. NULL: it is not the session's own. */
struct tows_block *tows_mappings_hold(struct tows_mappings *mappings, uint64_t address);
/* Afterwards: with what must be released once more, or NULL. */
void tows_mappings_held(struct tows_mappings *mappings, struct tows_block *block,
                        const uint64_t *handle);
/* Before the driver releases it and may give the handle out again. */
void tows_mappings_release(struct tows_mappings *mappings, uint64_t handle);
/* Something that is not looked after holds it for as long as the session lives. */
void tows_mappings_keep(struct tows_mappings *mappings, uint64_t handle);

/* Before the driver maps, and afterwards if it could not: room for one more. */
bool tows_mappings_map(struct tows_mappings *mappings, uint64_t base, uint64_t size,
                       uint64_t handle);
/* The driver could not. */
void tows_mappings_undo(struct tows_mappings *mappings, uint64_t base, uint64_t handle);
/* Before the driver takes away all that lies in there, and afterwards: it may map something else
 * there at once. */
uint64_t tows_mappings_unmap(struct tows_mappings *mappings, uint64_t base, uint64_t size);
void tows_mappings_unmapped(struct tows_mappings *mappings, uint64_t base, uint64_t size,
                            uint64_t unmapping, bool well);

#endif
