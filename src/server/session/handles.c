/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of ids: lookup without a lock, binding and export with one. */
#include "server/session/handles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "wire/id.h"

/* Open addressing from (kind, driver handle) to id; made anew at three quarters, what was used
 * included: as large as the live ones need. */
struct tows_handle_reverse {
    void *handle;
    uint64_t id; /* 0: free; 1: was used */
};

enum { GONE = 1 };

/* No id has this bit: nobody finds an entry that has. */
#define ENDING (UINT64_C(1) << 63)

int tows_handles_init(struct tows_handles *handles)
{
    handles->next_index = 1;
    return tow_mutex_init(&handles->lock, SERVER_HANDLES);
}

void tows_handles_fini(struct tows_handles *handles)
{
    for (int space = 0; space < 2; space++) {
        for (size_t i = 0; i < TOW_HANDLES_CHUNKS_MAX; i++) {
            free(atomic_load_explicit(&handles->spaces[space].chunks[i], memory_order_relaxed));
        }
    }
    free(handles->reverse);
    tow_mutex_fini(&handles->lock);
}

static struct tows_handle_entry *entry_at(const struct tows_handles *handles, unsigned owner,
                                          uint32_t index)
{
    uint32_t chunk = index / TOW_HANDLES_CHUNK;
    if (chunk >= TOW_HANDLES_CHUNKS_MAX) {
        return NULL;
    }
    struct tows_handle_entry *entries =
        atomic_load_explicit(&handles->spaces[owner].chunks[chunk], memory_order_acquire);
    return entries != NULL ? &entries[index % TOW_HANDLES_CHUNK] : NULL;
}

const struct tows_handle_entry *tows_handles_find(const struct tows_handles *handles, uint64_t id)
{
    struct tows_handle_entry *entry = entry_at(handles, TOW_ID_OF_SERVER(id), TOW_ID_INDEX(id));
    if (entry == NULL || id == 0 || (id & ENDING) ||
        atomic_load_explicit(&entry->id, memory_order_acquire) != id) {
        return NULL;
    }
    return entry;
}

const struct tows_handle_entry *tows_handles_at(const struct tows_handles *handles,
                                                enum tow_handle_kind kind, uint32_t index)
{
    struct tows_handle_entry *entry = entry_at(handles, 0, index);
    if (entry == NULL) {
        return NULL;
    }
    uint64_t id = atomic_load_explicit(&entry->id, memory_order_acquire);
    return id != 0 && !(id & ENDING) && TOW_ID_KIND(id) == (unsigned)kind ? entry : NULL;
}

static size_t handles_hash(enum tow_handle_kind kind, void *handle)
{
    uint64_t x = (uint64_t)(uintptr_t)handle ^ (uint64_t)kind << 58;
    x *= 0x9e3779b97f4a7c15u;
    return (size_t)(x >> 20);
}

static int reverse_put(struct tows_handles *h, void *handle, uint64_t id);
static bool unbind_locked(struct tows_handles *h, uint64_t id);

static int reverse_remake(struct tows_handles *h)
{
    size_t old_size = h->reverse_size;
    struct tows_handle_reverse *old = h->reverse;
    size_t live = 0, size = 256;
    for (size_t i = 0; i < old_size; i++) {
        live += old[i].id > GONE;
    }
    while (size < live * 4) {
        size *= 2;
    }
    struct tows_handle_reverse *made = calloc(size, sizeof *made);
    if (made == NULL) {
        return -ENOMEM;
    }
    h->reverse = made;
    h->reverse_size = size;
    h->reverse_used = 0;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].id > GONE) {
            reverse_put(h, old[i].handle, old[i].id);
        }
    }
    free(old);
    return 0;
}

static int reverse_put(struct tows_handles *h, void *handle, uint64_t id)
{
    if ((h->reverse_used + 1) * 4 > h->reverse_size * 3) {
        int error = reverse_remake(h);
        if (error < 0) {
            return error;
        }
    }
    size_t at = handles_hash(TOW_ID_KIND(id), handle) & (h->reverse_size - 1);
    while (h->reverse[at].id != 0) {
        at = (at + 1) & (h->reverse_size - 1);
    }
    h->reverse[at] = (struct tows_handle_reverse){handle, id};
    h->reverse_used++;
    return 0;
}

static struct tows_handle_reverse *reverse_find(struct tows_handles *h, unsigned kind, void *handle)
{
    if (h->reverse_size == 0) {
        return NULL;
    }
    size_t at = handles_hash(kind, handle) & (h->reverse_size - 1);
    while (h->reverse[at].id != 0) {
        struct tows_handle_reverse *r = &h->reverse[at];
        if (r->id != GONE && r->handle == handle && TOW_ID_KIND(r->id) == kind) {
            return r;
        }
        at = (at + 1) & (h->reverse_size - 1);
    }
    return NULL;
}

static int bind_locked(struct tows_handles *h, uint64_t id, void *handle, CUresult error,
                       uint32_t context)
{
    unsigned owner = TOW_ID_OF_SERVER(id);
    uint32_t chunk = TOW_ID_INDEX(id) / TOW_HANDLES_CHUNK;
    if (chunk >= TOW_HANDLES_CHUNKS_MAX || TOW_ID_KIND(id) == 0 || TOW_ID_KIND(id) >= TOW_H_LIMIT ||
        (id & ENDING)) {
        return -EINVAL;
    }
    if (atomic_load_explicit(&h->spaces[owner].chunks[chunk], memory_order_relaxed) == NULL) {
        struct tows_handle_entry *made = calloc(TOW_HANDLES_CHUNK, sizeof *made);
        if (made == NULL) {
            return -ENOMEM;
        }
        atomic_store_explicit(&h->spaces[owner].chunks[chunk], made, memory_order_release);
    }
    struct tows_handle_entry *entry = entry_at(h, owner, TOW_ID_INDEX(id));
    uint64_t before = atomic_load_explicit(&entry->id, memory_order_relaxed);
    if (before == id || (before & ENDING) ||
        (before != 0 && TOW_ID_KIND(before) == TOW_H_CONTEXT)) {
        return -EINVAL; /* much is known by a context's number: it ends in its own way */
    }
    if (before != 0) {
        /* The client gave the index to a new object, so its old one is gone, even if destroying it
         * failed here or it never was. */
        unbind_locked(h, before);
    }
    if (handle != NULL) {
        /* A driver may give a freed handle's address to a new object: the newer id counts. */
        struct tows_handle_reverse *old = reverse_find(h, TOW_ID_KIND(id), handle);
        if (old != NULL) {
            old->id = id;
        } else if (reverse_put(h, handle, id) < 0) {
            return -ENOMEM;
        }
    }
    entry->handle = handle;
    entry->error = error;
    entry->context = context;
    atomic_store_explicit(&entry->id, id, memory_order_release);
    return 0;
}

int tows_handles_bind(struct tows_handles *handles, uint64_t id, void *handle, CUresult error,
                      uint32_t context)
{
    tow_mutex_lock(&handles->lock);
    int result = bind_locked(handles, id, handle, error, context);
    tow_mutex_unlock(&handles->lock);
    return result;
}

int tows_handles_bind_new(struct tows_handles *handles, uint64_t id, void *handle, uint32_t context)
{
    tow_mutex_lock(&handles->lock);
    struct tows_handle_entry *entry = entry_at(handles, TOW_ID_OF_SERVER(id), TOW_ID_INDEX(id));
    bool used = (entry != NULL && atomic_load_explicit(&entry->id, memory_order_relaxed) != 0) ||
                reverse_find(handles, TOW_ID_KIND(id), handle) != NULL;
    int result = used ? -EEXIST : bind_locked(handles, id, handle, CUDA_SUCCESS, context);
    tow_mutex_unlock(&handles->lock);
    return result;
}

/* The entry and its index are free again. */
static void free_locked(struct tows_handles *h, struct tows_handle_entry *entry, uint64_t id)
{
    struct tows_handle_reverse *r =
        entry->handle != NULL ? reverse_find(h, TOW_ID_KIND(id), entry->handle) : NULL;
    if (r != NULL && r->id == id) {
        r->id = GONE;
    }
    atomic_store_explicit(&entry->id, 0, memory_order_release);
    if (TOW_ID_OF_SERVER(id)) {
        entry->context = h->free_index;
        h->free_index = TOW_ID_INDEX(id);
    }
}

static bool unbind_locked(struct tows_handles *h, uint64_t id)
{
    struct tows_handle_entry *entry = entry_at(h, TOW_ID_OF_SERVER(id), TOW_ID_INDEX(id));
    if (entry == NULL || atomic_load_explicit(&entry->id, memory_order_relaxed) != id || id == 0) {
        return false;
    }
    free_locked(h, entry, id);
    return true;
}

bool tows_handles_unbind(struct tows_handles *handles, uint64_t id)
{
    tow_mutex_lock(&handles->lock);
    bool was_there = unbind_locked(handles, id);
    tow_mutex_unlock(&handles->lock);
    return was_there;
}

bool tows_handles_take(struct tows_handles *handles, uint64_t id,
                       struct tows_handle_taken *ret_taken)
{
    tow_mutex_lock(&handles->lock);
    const struct tows_handle_entry *entry = tows_handles_find(handles, id);
    if (entry != NULL) {
        *ret_taken = (struct tows_handle_taken){id, entry->handle, entry->error, entry->context};
        unbind_locked(handles, id);
    }
    tow_mutex_unlock(&handles->lock);
    return entry != NULL;
}

/* With the lock held: an index of the server's that is free, taken out of the list. */
static void handles_unfree(struct tows_handles *h, uint32_t index)
{
    uint32_t *at = &h->free_index;
    while (*at != 0 && *at != index) {
        at = &entry_at(h, 1, *at)->context;
    }
    if (*at == index) {
        *at = entry_at(h, 1, index)->context;
    }
}

int tows_handles_give_back(struct tows_handles *handles, const struct tows_handle_taken *taken)
{
    tow_mutex_lock(&handles->lock);
    unsigned of_server = TOW_ID_OF_SERVER(taken->id);
    const struct tows_handle_entry *entry = entry_at(handles, of_server, TOW_ID_INDEX(taken->id));
    /* Another has the index meanwhile, the server's or, once it had retired the id, the client's:
     * the id is lost. */
    int result = atomic_load(&entry->id) != 0 ? -EEXIST : 0;
    if (result == 0) {
        if (of_server) {
            handles_unfree(handles, TOW_ID_INDEX(taken->id));
        }
        result = bind_locked(handles, taken->id, taken->handle, taken->error, taken->context);
    }
    tow_mutex_unlock(&handles->lock);
    return result;
}

bool tows_handles_end(struct tows_handles *handles, uint64_t id)
{
    tow_mutex_lock(&handles->lock);
    struct tows_handle_entry *entry = entry_at(handles, TOW_ID_OF_SERVER(id), TOW_ID_INDEX(id));
    bool was_there = entry != NULL && id != 0 && !(id & ENDING) &&
                     atomic_load_explicit(&entry->id, memory_order_relaxed) == id;
    if (was_there) {
        atomic_store_explicit(&entry->id, id | ENDING, memory_order_release);
    }
    tow_mutex_unlock(&handles->lock);
    return was_there;
}

void tows_handles_ended(struct tows_handles *handles, uint64_t id)
{
    tow_mutex_lock(&handles->lock);
    struct tows_handle_entry *entry = entry_at(handles, TOW_ID_OF_SERVER(id), TOW_ID_INDEX(id));
    free_locked(handles, entry, id);
    tow_mutex_unlock(&handles->lock);
}

bool tows_handles_is_ending(const struct tows_handles *handles, uint64_t id)
{
    const struct tows_handle_entry *entry =
        entry_at(handles, TOW_ID_OF_SERVER(id), TOW_ID_INDEX(id));
    return entry != NULL && atomic_load_explicit(&entry->id, memory_order_acquire) == (id | ENDING);
}

void tows_handles_spoil(struct tows_handles *handles, uint64_t id, CUresult error)
{
    tow_mutex_lock(&handles->lock);
    struct tows_handle_entry *entry = entry_at(handles, TOW_ID_OF_SERVER(id), TOW_ID_INDEX(id));
    if (entry != NULL && atomic_load_explicit(&entry->id, memory_order_relaxed) == id) {
        entry->error = error;
    }
    tow_mutex_unlock(&handles->lock);
}

/* An id of the server's that was not there before. */
static uint64_t export_locked(struct tows_handles *h, enum tow_handle_kind kind, void *handle,
                              uint32_t context)
{
    uint32_t index = h->free_index != 0 ? h->free_index : h->next_index;
    struct tows_handle_entry *entry = entry_at(h, 1, index);
    uint32_t next_free = h->free_index != 0 ? entry->context : 0;
    uint32_t generation = entry != NULL ? entry->generation : 0;
    uint64_t id = TOW_ID_MAKE(kind, 1, generation, index);
    if (bind_locked(h, id, handle, CUDA_SUCCESS, context) < 0) {
        return 0;
    }
    entry_at(h, 1, index)->generation = generation + 1;
    if (h->free_index != 0) {
        h->free_index = next_free;
    } else {
        h->next_index++;
    }
    return id;
}

uint64_t tows_handles_export(struct tows_handles *handles, enum tow_handle_kind kind, void *handle,
                             uint32_t context)
{
    tow_mutex_lock(&handles->lock);
    struct tows_handle_reverse *r = reverse_find(handles, kind, handle);
    uint64_t id = r != NULL ? r->id : 0;
    if (id == 0) {
        id = export_locked(handles, kind, handle, context);
    }
    tow_mutex_unlock(&handles->lock);
    return id;
}

uint64_t tows_handles_known(struct tows_handles *handles, enum tow_handle_kind kind, void *handle)
{
    tow_mutex_lock(&handles->lock);
    struct tows_handle_reverse *r = reverse_find(handles, kind, handle);
    uint64_t id = r != NULL ? r->id : 0;
    tow_mutex_unlock(&handles->lock);
    return id;
}

void tows_handles_each(struct tows_handles *handles, enum tow_handle_kind kind,
                       void (*visit)(void *user, uint64_t id,
                                     const struct tows_handle_entry *entry),
                       void *user)
{
    for (unsigned space = 0; space < 2; space++) {
        for (uint32_t chunk = 0; chunk < TOW_HANDLES_CHUNKS_MAX; chunk++) {
            struct tows_handle_entry *entries =
                atomic_load_explicit(&handles->spaces[space].chunks[chunk], memory_order_acquire);
            for (uint32_t i = 0; entries != NULL && i < TOW_HANDLES_CHUNK; i++) {
                uint64_t id = atomic_load_explicit(&entries[i].id, memory_order_acquire);
                if (id != 0 && !(id & ENDING) &&
                    (kind == TOW_H_NONE || TOW_ID_KIND(id) == (unsigned)kind)) {
                    visit(user, id, &entries[i]);
                }
            }
        }
    }
}
