/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and mappings of memory that has no address of its own. */
#include "server/worker/mappings.h"

#include <stdlib.h>
#include <string.h>

struct tows_block {
    struct tows_block *next, **at;  /* of all */
    struct tows_block *next_handle; /* while refs > 0: in the bucket of its handle */
    uint64_t handle;                /* while refs > 0; then the driver may give it out again */
    uint64_t key;
    unsigned refs; /* how often its handle is to be released */
    unsigned uses; /* mappings, calls that hold it, and what keeps it for ever */
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

/* ---- blocks, with the lock held ---- */

/* The end of the bucket: NULL is there. */
static struct tows_block **place_of(struct tows_mappings *mappings, uint64_t handle)
{
    uint64_t mixed = (handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    struct tows_block **at = &mappings->buckets[mixed % TOW_MAPPINGS_BUCKETS];
    while (*at != NULL && (*at)->handle != handle) {
        at = &(*at)->next_handle;
    }
    return at;
}

/* The block that a handle stands for. */
static struct tows_block *block_of(struct tows_mappings *mappings, uint64_t handle)
{
    return *place_of(mappings, handle);
}

/* Once more it is to be released. A second handle of a block is not looked after: then it stays. */
static void add_ref(struct tows_mappings *mappings, struct tows_block *block, uint64_t handle)
{
    struct tows_block **at = place_of(mappings, handle);
    if (block->refs++ == 0 && *at == NULL) {
        block->handle = handle;
        block->next_handle = NULL;
        *at = block;
    }
}

static void end_unused(struct tows_mappings *mappings, struct tows_block *block)
{
    if (block->refs > 0 || block->uses > 0) {
        return;
    }
    *block->at = block->next;
    if (block->next != NULL) {
        block->next->at = block->at;
    }
    mappings->gone(mappings->user, block->key);
    free(block);
}

bool tows_mappings_create(struct tows_mappings *mappings, uint64_t handle, uint64_t key)
{
    struct tows_block *block = calloc(1, sizeof *block);
    if (block == NULL) {
        return false;
    }
    block->key = key;
    tow_mutex_lock(&mappings->lock);
    block->next = mappings->blocks;
    block->at = &mappings->blocks;
    if (block->next != NULL) {
        block->next->at = &block->next;
    }
    mappings->blocks = block;
    add_ref(mappings, block, handle);
    tow_mutex_unlock(&mappings->lock);
    return true;
}

void tows_mappings_release(struct tows_mappings *mappings, uint64_t handle)
{
    tow_mutex_lock(&mappings->lock);
    struct tows_block **at = place_of(mappings, handle), *block = *at;
    if (block != NULL) {
        if (--block->refs == 0) {
            *at = block->next_handle;
        }
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

/* ---- mappings ---- */

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

struct tows_block *tows_mappings_hold(struct tows_mappings *mappings, uint64_t address)
{
    struct tows_block *block = NULL;
    tow_mutex_lock(&mappings->lock);
    /* Of those that begin at it, or the last that begins below. */
    size_t at = mapping_from(mappings, address);
    while (at < mappings->count && mappings->list[at].base == address) {
        at++;
    }
    while (block == NULL && at > 0 &&
           address - mappings->list[at - 1].base < mappings->list[at - 1].size) {
        const struct tows_mapping *mapping = &mappings->list[--at];
        block = mapping->unmapping == 0 ? mapping->block : NULL;
    }
    if (block != NULL) {
        block->uses++;
    }
    tow_mutex_unlock(&mappings->lock);
    return block;
}

void tows_mappings_held(struct tows_mappings *mappings, struct tows_block *block,
                        const uint64_t *handle)
{
    if (block == NULL) {
        return;
    }
    tow_mutex_lock(&mappings->lock);
    if (handle != NULL) {
        add_ref(mappings, block, *handle);
    }
    block->uses--;
    end_unused(mappings, block);
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
static void mapping_remove(struct tows_mappings *mappings, size_t at)
{
    struct tows_mapping *place = &mappings->list[at];
    place->block->uses--;
    end_unused(mappings, place->block);
    memmove(place, place + 1, (--mappings->count - at) * sizeof *place);
}

void tows_mappings_undo(struct tows_mappings *mappings, uint64_t base, uint64_t handle)
{
    tow_mutex_lock(&mappings->lock);
    const struct tows_block *block = block_of(mappings, handle);
    for (size_t i = mapping_from(mappings, base);
         i < mappings->count && mappings->list[i].base == base; i++) {
        if (mappings->list[i].block == block && mappings->list[i].unmapping == 0) {
            mapping_remove(mappings, i);
            break;
        }
    }
    tow_mutex_unlock(&mappings->lock);
}

uint64_t tows_mappings_unmap(struct tows_mappings *mappings, uint64_t base, uint64_t size)
{
    tow_mutex_lock(&mappings->lock);
    uint64_t unmapping = ++mappings->unmappings;
    for (size_t i = mapping_from(mappings, base);
         i < mappings->count && mappings->list[i].base - base < size; i++) {
        struct tows_mapping *one = &mappings->list[i];
        one->unmapping = one->unmapping == 0 ? unmapping : one->unmapping;
    }
    tow_mutex_unlock(&mappings->lock);
    return unmapping;
}

void tows_mappings_unmapped(struct tows_mappings *mappings, uint64_t base, uint64_t size,
                            uint64_t unmapping, bool well)
{
    tow_mutex_lock(&mappings->lock);
    size_t from = mapping_from(mappings, base), to = from, i = from;
    struct tows_mapping *list = mappings->list;
    for (; i < mappings->count && list[i].base - base < size; i++) {
        bool own = list[i].unmapping == unmapping;
        if (own && well) {
            list[i].block->uses--;
            end_unused(mappings, list[i].block);
            continue;
        }
        list[i].unmapping = own ? 0 : list[i].unmapping;
        list[to++] = list[i];
    }
    if (to < i) {
        memmove(&list[to], &list[i], (mappings->count - i) * sizeof *list);
        mappings->count -= i - to;
    }
    tow_mutex_unlock(&mappings->lock);
}
