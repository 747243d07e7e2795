/* SPDX-License-Identifier: Apache-2.0 */
/* Answers about occupancy, kept by kernel. */
#include "base/mutex.h"
#include "client/code/code.h"

#include <stdlib.h>
#include <string.h>

enum { CACHE_MAX = 512 }; /* answers kept per kernel */

/* One answer. */
struct towc_occupancy {
    struct towc_occupancy *next;
    uint64_t answer;
    unsigned count; /* of this and those behind it */
    uint32_t size;
    uint8_t key[];
};

void towc_occupancy_free(struct towc_occupancy *occupancy)
{
    while (occupancy != NULL) {
        struct towc_occupancy *next = occupancy->next;
        free(occupancy);
        occupancy = next;
    }
}

void towc_occupancy_forget(struct towc_kernel *kernel)
{
    if (kernel->origin != NULL) {
        kernel = kernel->origin;
    }
    tow_mutex_lock(&kernel->library->lock);
    towc_occupancy_free(kernel->occupancy);
    kernel->occupancy = NULL;
    for (struct towc_kernel *f = kernel->functions; f != NULL; f = f->next) {
        towc_occupancy_free(f->occupancy);
        f->occupancy = NULL;
    }
    tow_mutex_unlock(&kernel->library->lock);
}

bool towc_occupancy_recall(struct towc_kernel *kernel, const void *key, uint32_t size,
                           uint64_t *ret_answer)
{
    tow_mutex_lock(&kernel->library->lock);
    struct towc_occupancy *o = kernel->occupancy;
    while (o != NULL && (o->size != size || memcmp(o->key, key, size) != 0)) {
        o = o->next;
    }
    if (o != NULL) {
        *ret_answer = o->answer;
    }
    tow_mutex_unlock(&kernel->library->lock);
    return o != NULL;
}

void towc_occupancy_remember(struct towc_kernel *kernel, const void *key, uint32_t size,
                             uint64_t answer)
{
    struct towc_occupancy *o = malloc(sizeof *o + size);
    if (o == NULL) {
        return; /* it is only a cache */
    }
    o->answer = answer;
    o->size = size;
    memcpy(o->key, key, size);
    tow_mutex_lock(&kernel->library->lock);
    if (kernel->occupancy != NULL && kernel->occupancy->count >= CACHE_MAX) {
        towc_occupancy_free(kernel->occupancy);
        kernel->occupancy = NULL;
    }
    o->next = kernel->occupancy;
    o->count = o->next != NULL ? o->next->count + 1 : 1;
    kernel->occupancy = o;
    tow_mutex_unlock(&kernel->library->lock);
}
