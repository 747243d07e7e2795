/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that goes with an id. */
#include "client/session/keep.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "wire/id.h"

struct kept {
    uint64_t key;
    struct kept *next;
    _Alignas(16) uint8_t bytes[];
};

enum { BUCKETS = 1024 };

/* Process-wide: graphs belong to no context; found by their ids. */
static struct {
    struct tow_mutex lock; /* guards the lists */
    struct kept *lists[BUCKETS];
} all_kept = {.lock = TOW_MUTEX(CLIENT_KEPT)};

static struct kept **list_of(uint64_t key)
{
    return &all_kept.lists[TOW_ID_INDEX(key) % BUCKETS];
}

/* True for ids that differ in their generation alone. Nodes end with their graph, of which nothing
 * tells us: their bytes stay until the index is used again. */
static bool same_place(uint64_t a, uint64_t b)
{
    return TOW_ID_INDEX(a) == TOW_ID_INDEX(b) && TOW_ID_KIND(a) == TOW_ID_KIND(b) &&
           TOW_ID_OF_SERVER(a) == TOW_ID_OF_SERVER(b);
}

static struct kept *take_kept(uint64_t key)
{
    tow_mutex_lock(&all_kept.lock);
    struct kept **at = list_of(key);
    while (*at != NULL && !same_place((*at)->key, key)) {
        at = &(*at)->next;
    }
    struct kept *found = *at;
    if (found != NULL) {
        *at = found->next;
    }
    tow_mutex_unlock(&all_kept.lock);
    return found;
}

void towc_keep_drop(uint64_t key)
{
    free(take_kept(key));
}

void *towc_keep_make(uint64_t key, size_t size)
{
    struct kept *made = calloc(1, sizeof *made + size);
    if (made == NULL) {
        return NULL;
    }
    towc_keep_drop(key);
    made->key = key;
    tow_mutex_lock(&all_kept.lock);
    struct kept **list = list_of(key);
    made->next = *list;
    *list = made;
    tow_mutex_unlock(&all_kept.lock);
    return made->bytes;
}
