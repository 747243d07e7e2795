/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and mappings of memory that has no address of its own. */
#include "server/worker/mappings.h"

#include <stdlib.h>
#include <string.h>

struct tows_block {
    struct tows_block *next;
    uint64_t handle; /* while refs > 0; then the driver may give it out again */
    uint64_t key;
    unsigned refs; /* how often its handle is to be released */
    unsigned uses; /* mappings, and what keeps it for ever */
};

void tows_mappings_init(struct tows_mappings *mappings, void (*gone)(void *user, uint64_t key),
                        void *user)
{
    *mappings = (struct tows_mappings){.gone = gone, .user = user};
    tow_mutex_init(&mappings->lock, SERVER_MAPPINGS);
}

void tows_mappings_fini(struct tows_mappings *mappings)
{
    while (mappings->blocks != NULL) {
        struct tows_block *block = mappings->blocks;
        mappings->blocks = block->next;
        free(block);
    }
    free(mappings->list);
    pthread_mutex_destroy(&mappings->lock.mutex);
}

/* With the lock held: the block that a handle stands for. */
static struct tows_block *block_of(const struct tows_mappings *mappings, uint64_t handle)
{
    struct tows_block *block = mappings->blocks;
    while (block != NULL && (block->refs == 0 || block->handle != handle)) {
        block = block->next;
    }
    return block;
}

static void end_unused(struct tows_mappings *mappings, struct tows_block *block)
{
    if (block->refs > 0 || block->uses > 0) {
        return;
    }
    struct tows_block **at = &mappings->blocks;
    while (*at != block) {
        at = &(*at)->next;
    }
    *at = block->next;
    mappings->gone(mappings->user, block->key);
    free(block);
}

bool tows_mappings_create(struct tows_mappings *mappings, uint64_t handle, uint64_t key)
{
    struct tows_block *block = calloc(1, sizeof *block);
    if (block == NULL) {
        return false;
    }
    *block = (struct tows_block){.handle = handle, .key = key, .refs = 1};
    tow_mutex_lock(&mappings->lock);
    block->next = mappings->blocks;
    mappings->blocks = block;
    tow_mutex_unlock(&mappings->lock);
    return true;
}

void tows_mappings_release(struct tows_mappings *mappings, uint64_t handle)
{
    tow_mutex_lock(&mappings->lock);
    struct tows_block *block = block_of(mappings, handle);
    if (block != NULL) {
        block->refs--;
        end_unused(mappings, block);
    }
    tow_mutex_unlock(&mappings->lock);
}

void tows_mappings_keep(struct tows_mappings *mappings, uint64_t handle)
{
    tow_mutex_lock(&mappings->lock);
    struct tows_block *block = block_of(mappings, handle);
    if (block != NULL) {
        block->uses++;
    }
    tow_mutex_unlock(&mappings->lock);
}

/* With the lock held: the first mapping that does not lie below `base`. */
static size_t mapping_from(const struct tows_mappings *mappings, uint64_t base)
{
    size_t low = 0, high = mappings->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (mappings->list[middle].base < base) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void tows_mappings_hold(struct tows_mappings *mappings, uint64_t address, uint64_t handle)
{
    tow_mutex_lock(&mappings->lock);
    size_t at = mapping_from(mappings, address);
    if (at == mappings->count || mappings->list[at].base != address) {
        at--; /* the one that begins below */
    }
    if (at < mappings->count && address - mappings->list[at].base < mappings->list[at].size) {
        struct tows_block *block = mappings->list[at].block;
        block->refs++;
        block->handle = handle;
    }
    tow_mutex_unlock(&mappings->lock);
}

bool tows_mappings_map(struct tows_mappings *mappings, uint64_t base, uint64_t size,
                       uint64_t handle)
{
    bool there = true;
    tow_mutex_lock(&mappings->lock);
    struct tows_block *block = block_of(mappings, handle);
    if (block != NULL && mappings->count == mappings->room) {
        size_t room = mappings->room == 0 ? 64 : 2 * mappings->room;
        struct tows_mapping *list = realloc(mappings->list, room * sizeof *list);
        there = list != NULL;
        mappings->list = there ? list : mappings->list;
        mappings->room = there ? room : mappings->room;
    }
    if (block != NULL && there) {
        size_t at = mapping_from(mappings, base);
        struct tows_mapping *place = &mappings->list[at];
        memmove(place + 1, place, (mappings->count - at) * sizeof *place);
        *place = (struct tows_mapping){.base = base, .size = size, .block = block};
        mappings->count++;
        block->uses++;
    }
    tow_mutex_unlock(&mappings->lock);
    return there;
}

/* With the lock held. */
static void mapping_remove(struct tows_mappings *mappings, size_t from, size_t to)
{
    struct tows_mapping *list = mappings->list;
    for (size_t i = from; i < to; i++) {
        list[i].block->uses--;
        end_unused(mappings, list[i].block);
    }
    if (to > from) {
        memmove(&list[from], &list[to], (mappings->count - to) * sizeof *list);
        mappings->count -= to - from;
    }
}

void tows_mappings_undo(struct tows_mappings *mappings, uint64_t base, uint64_t handle)
{
    tow_mutex_lock(&mappings->lock);
    const struct tows_block *block = block_of(mappings, handle);
    for (size_t i = mapping_from(mappings, base);
         i < mappings->count && mappings->list[i].base == base; i++) {
        if (mappings->list[i].block == block) {
            mapping_remove(mappings, i, i + 1);
            break;
        }
    }
    tow_mutex_unlock(&mappings->lock);
}

void tows_mappings_unmap(struct tows_mappings *mappings, uint64_t base, uint64_t size)
{
    tow_mutex_lock(&mappings->lock);
    size_t from = mapping_from(mappings, base), to = from;
    while (to < mappings->count && mappings->list[to].base - base < size) {
        to++;
    }
    mapping_remove(mappings, from, to);
    tow_mutex_unlock(&mappings->lock);
}
