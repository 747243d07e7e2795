/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what was run and when: a ring of spans, and the kernels' names. */
#include "backend/soft/engine/span.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mutex.h"

enum {
    SPANS_MAX = 1 << 16, /* 3.7 MB; whoever wants them takes them many times a second */
    NAMES_MAX = 1 << 12, /* further kernels have none */
    NAME_MAX_LENGTH = 512,
};

/* Process-wide, as the software GPU is. */
atomic_bool tow_soft_spans_kept;

static struct {
    struct tow_mutex lock;         /* guards all here */
    struct tow_backend_span *ring; /* owned */
    unsigned first, count;
    uint64_t lost;
    char **names;    /* owned, and so are they: by number, less 1 */
    uint32_t *slots; /* owned: numbers by the names' hash; 0: free */
    uint32_t name_count;
} kept = {.lock = TOW_MUTEX(SOFT_SPANS)};

static __thread struct tow_soft_span_place here;

void tow_soft_span_of(struct tow_soft_span_place place)
{
    here = place;
}

/* Locked: the name's number, 0 if there is no room for it. */
static uint32_t span_name(const char *name)
{
    size_t length = strnlen(name, NAME_MAX_LENGTH);
    uint32_t at = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < length; i++) {
        at = (at ^ (uint8_t)name[i]) * 16777619u;
    }
    at %= 2 * NAMES_MAX;
    for (; kept.slots[at] != 0; at = (at + 1) % (2 * NAMES_MAX)) {
        const char *known = kept.names[kept.slots[at] - 1];
        if (strncmp(known, name, length) == 0 && known[length] == '\0') {
            return kept.slots[at];
        }
    }
    char *copy = kept.name_count < NAMES_MAX ? strndup(name, length) : NULL;
    if (copy == NULL) {
        return 0;
    }
    kept.names[kept.name_count++] = copy;
    kept.slots[at] = kept.name_count;
    return kept.name_count;
}

void tow_soft_span_keep(const struct tow_backend_span *span, const char *name)
{
    uint64_t now = (uint64_t)tow_time_now_ns();
    tow_mutex_lock(&kept.lock);
    if (kept.ring == NULL || kept.count == SPANS_MAX) {
        kept.lost++;
        tow_mutex_unlock(&kept.lock);
        return;
    }
    struct tow_backend_span *into = &kept.ring[(kept.first + kept.count++) % SPANS_MAX];
    *into = *span;
    into->ended_ns = now;
    into->given_ns = here.given_ns != 0 ? here.given_ns : span->began_ns;
    into->stream = (uint32_t)here.stream;
    into->queued = here.queued;
    into->name = name != NULL ? span_name(name) : 0;
    tow_mutex_unlock(&kept.lock);
}

static int spans_begin(void)
{
    tow_mutex_lock(&kept.lock);
    if (kept.ring == NULL) {
        kept.ring = calloc(SPANS_MAX, sizeof *kept.ring);
        kept.names = calloc(NAMES_MAX, sizeof *kept.names);
        kept.slots = calloc((size_t)2 * NAMES_MAX, sizeof *kept.slots);
    }
    bool whole = kept.ring != NULL && kept.names != NULL && kept.slots != NULL;
    tow_mutex_unlock(&kept.lock);
    if (!whole) {
        tow_soft_spans_fini();
        return -ENOMEM;
    }
    atomic_store(&tow_soft_spans_kept, true);
    return 0;
}

static unsigned spans_take(struct tow_backend_span *ret_spans, unsigned count, uint64_t *ret_lost)
{
    tow_mutex_lock(&kept.lock);
    unsigned taken = count < kept.count ? count : kept.count;
    for (unsigned i = 0; i < taken; i++) {
        ret_spans[i] = kept.ring[(kept.first + i) % SPANS_MAX];
    }
    kept.first = (kept.first + taken) % SPANS_MAX;
    kept.count -= taken;
    *ret_lost = kept.lost;
    tow_mutex_unlock(&kept.lock);
    return taken;
}

static const char *spans_name(uint32_t number)
{
    tow_mutex_lock(&kept.lock);
    const char *name = number > 0 && number <= kept.name_count ? kept.names[number - 1] : NULL;
    tow_mutex_unlock(&kept.lock);
    return name;
}

void tow_soft_spans_fini(void)
{
    atomic_store(&tow_soft_spans_kept, false);
    tow_mutex_lock(&kept.lock);
    for (uint32_t i = 0; i < kept.name_count; i++) {
        free(kept.names[i]);
    }
    free(kept.names);
    free(kept.slots);
    free(kept.ring);
    kept.names = NULL;
    kept.slots = NULL;
    kept.ring = NULL;
    kept.first = kept.count = kept.name_count = 0;
    kept.lost = 0;
    tow_mutex_unlock(&kept.lock);
}

const struct tow_backend_timeline_ops tow_soft_span_ops = {spans_begin, spans_take, spans_name};
