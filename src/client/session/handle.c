/* SPDX-License-Identifier: Apache-2.0 */
/* Mints ids for handles and checks those that a program hands in. */
#include "client/session/handle.h"
#include "base/mutex.h"

#include <stdatomic.h>
#include <stdlib.h>

/* One table for all kinds, because servers find an id by its index alone. Its chunks never move, so
 * readers need no lock: a slot holds the whole id while it lives. */
enum {
    CHUNK_BITS = 12,
    CHUNK_SLOTS = 1 << CHUNK_BITS,
    CHUNKS_MAX = 4096, /* 16 Mi handles at a time, as many as a server takes */
};

struct slot {
    _Atomic uint64_t id; /* 0 while free */
    _Atomic(void *) object;
    uint32_t generation; /* of the last id; guarded by the lock */
    uint32_t next_free;  /* index, 0: none; guarded by the lock */
};

/* Process-wide: a program's handles are of one kind, whichever server has the object. */
static struct {
    struct tow_mutex lock; /* guards all here, and all writing to slots */
    uint32_t used;         /* slots ever taken; index 0 never is */
    uint32_t first_free, last_free;
} table = {.lock = TOW_MUTEX(CLIENT_HANDLES), .used = 1};
/* Process-wide: the same. Written with the lock held, read without. */
static _Atomic(struct slot *) chunks[CHUNKS_MAX]; /* owned, never freed */

static struct slot *slot_at(uint32_t index)
{
    uint32_t chunk = index >> CHUNK_BITS;
    if (chunk >= CHUNKS_MAX) {
        return NULL;
    }
    struct slot *slots = atomic_load_explicit(&chunks[chunk], memory_order_acquire);
    return slots != NULL ? &slots[index & (CHUNK_SLOTS - 1)] : NULL;
}

/* The slot of an id of ours that lives; NULL for any other value. */
static struct slot *live_slot(enum tow_handle_kind kind, uint64_t id)
{
    if (TOW_ID_KIND(id) != (unsigned)kind || id == 0) {
        return NULL;
    }
    struct slot *slot = slot_at(TOW_ID_INDEX(id));
    return slot != NULL && atomic_load_explicit(&slot->id, memory_order_acquire) == id ? slot
                                                                                       : NULL;
}

/* With the lock held: a free slot, taken out of the list. */
static struct slot *take_slot(uint32_t *ret_index)
{
    struct slot *slot = NULL;
    if (table.first_free != 0) {
        *ret_index = table.first_free;
        slot = slot_at(table.first_free);
        table.first_free = slot->next_free;
        if (table.first_free == 0) {
            table.last_free = 0;
        }
        return slot;
    }
    uint32_t chunk = table.used >> CHUNK_BITS;
    if (chunk >= CHUNKS_MAX) {
        return NULL;
    }
    if (atomic_load_explicit(&chunks[chunk], memory_order_relaxed) == NULL) {
        struct slot *slots = calloc(CHUNK_SLOTS, sizeof *slots);
        if (slots == NULL) {
            return NULL;
        }
        atomic_store_explicit(&chunks[chunk], slots, memory_order_release);
    }
    *ret_index = table.used;
    return slot_at(table.used++);
}

CUresult towc_handle_mint_object(enum tow_handle_kind kind, void *object, uint64_t *ret_id)
{
    tow_mutex_lock(&table.lock);
    uint32_t index = 0;
    struct slot *slot = take_slot(&index);
    if (slot == NULL) {
        tow_mutex_unlock(&table.lock);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t id = TOW_ID_MAKE(kind, 0, ++slot->generation, index);
    atomic_store_explicit(&slot->object, object, memory_order_relaxed);
    atomic_store_explicit(&slot->id, id, memory_order_release);
    tow_mutex_unlock(&table.lock);
    *ret_id = id;
    return CUDA_SUCCESS;
}

CUresult towc_handle_mint(enum tow_handle_kind kind, uint64_t *ret_id)
{
    return towc_handle_mint_object(kind, NULL, ret_id);
}

bool towc_handle_valid(enum tow_handle_kind kind, uint64_t id)
{
    if (TOW_ID_OF_SERVER(id)) {
        return TOW_ID_KIND(id) == (unsigned)kind && id >> 63 == 0;
    }
    return live_slot(kind, id) != NULL;
}

void *towc_handle_object(enum tow_handle_kind kind, uint64_t id)
{
    struct slot *slot = live_slot(kind, id);
    return slot != NULL ? atomic_load_explicit(&slot->object, memory_order_relaxed) : NULL;
}

CUresult towc_handle_missing(enum tow_handle_kind kind, uint64_t id)
{
    bool was = false;
    if (TOW_ID_KIND(id) == (unsigned)kind && !TOW_ID_OF_SERVER(id) && id >> 63 == 0) {
        tow_mutex_lock(&table.lock);
        struct slot *slot = TOW_ID_INDEX(id) < table.used ? slot_at(TOW_ID_INDEX(id)) : NULL;
        was =
            slot != NULL && TOW_ID_GENERATION(id) != 0 && TOW_ID_GENERATION(id) <= slot->generation;
        tow_mutex_unlock(&table.lock);
    }
    return was ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

void *towc_handle_retire(uint64_t id)
{
    void *object = NULL;
    tow_mutex_lock(&table.lock);
    struct slot *slot = live_slot((enum tow_handle_kind)TOW_ID_KIND(id), id);
    if (slot != NULL) {
        object = atomic_exchange_explicit(&slot->object, NULL, memory_order_relaxed);
        atomic_store_explicit(&slot->id, 0, memory_order_release);
        /* First in, first out: an index rests as long as possible before it is used again. A
         * context's never is: server threads remember which context they made current by its index.
         */
        if (TOW_ID_KIND(id) != TOW_H_CONTEXT) {
            uint32_t index = TOW_ID_INDEX(id);
            slot->next_free = 0;
            if (table.last_free != 0) {
                slot_at(table.last_free)->next_free = index;
            } else {
                table.first_free = index;
            }
            table.last_free = index;
        }
    }
    tow_mutex_unlock(&table.lock);
    return object;
}

void towc_handle_each(enum tow_handle_kind kind,
                      void (*visit)(void *user, uint64_t id, void *object), void *user)
{
    tow_mutex_lock(&table.lock);
    for (uint32_t index = 1; index < table.used; index++) {
        struct slot *slot = slot_at(index);
        uint64_t id = atomic_load_explicit(&slot->id, memory_order_relaxed);
        if (id != 0 && TOW_ID_KIND(id) == (unsigned)kind) {
            visit(user, id, atomic_load_explicit(&slot->object, memory_order_relaxed));
        }
    }
    tow_mutex_unlock(&table.lock);
}
