/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what was run and when: a ring of spans, and the kernels' names. */
#include "backend/spans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"

enum {
    SPANS_MAX = 1 << 16, /* 3.7 MB; whoever wants them takes them many times a second */
    NAMES_MAX = 1 << 12, /* further kernels have none */
    NAME_MAX_LENGTH = 512,
    RECENT = 256,
};

/* Process-wide, as a backend is. */
atomic_bool tow_spans_kept;
__thread uint64_t tow_spans_command;

static struct {
    struct tow_mutex lock;         /* guards all here */
    struct tow_backend_span *ring; /* owned */
    unsigned first, count;
    uint64_t lost;
    char **names;    /* owned, and so are they: by number, less 1 */
    uint32_t *slots; /* owned: numbers by the names' hash; 0: free */
    uint32_t name_count;
    uint32_t recent[RECENT]; /* numbers by the names' addresses: most have come before */
} kept = {.lock = TOW_MUTEX(BACKEND_SPANS)};

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

/* The same, sooner if the same string has come before. */
static uint32_t span_name_again(const char *name)
{
    uint32_t *recent = &kept.recent[((uintptr_t)name >> 4) % RECENT];
    if (*recent == 0 || strcmp(kept.names[*recent - 1], name) != 0) {
        *recent = span_name(name);
    }
    return *recent;
}

void tow_spans_keep(const struct tow_backend_span *span, const char *name)
{
    tow_mutex_lock(&kept.lock);
    if (kept.ring == NULL || kept.count == SPANS_MAX) {
        kept.lost++;
        tow_mutex_unlock(&kept.lock);
        return;
    }
    struct tow_backend_span *into = &kept.ring[(kept.first + kept.count++) % SPANS_MAX];
    *into = *span;
    into->name = name != NULL ? span_name_again(name) : 0;
    tow_mutex_unlock(&kept.lock);
}

int tow_spans_begin(void)
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
        tow_spans_fini();
        return -ENOMEM;
    }
    atomic_store(&tow_spans_kept, true);
    return 0;
}

void tow_spans_lose(uint64_t count)
{
    tow_mutex_lock(&kept.lock);
    kept.lost += count;
    tow_mutex_unlock(&kept.lock);
}

unsigned tow_spans_take(struct tow_backend_span *ret_spans, unsigned count, uint64_t *ret_lost)
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

unsigned tow_spans_count(void)
{
    tow_mutex_lock(&kept.lock);
    unsigned count = kept.count;
    tow_mutex_unlock(&kept.lock);
    return count;
}

const char *tow_spans_name(uint32_t number)
{
    tow_mutex_lock(&kept.lock);
    const char *name = number > 0 && number <= kept.name_count ? kept.names[number - 1] : NULL;
    tow_mutex_unlock(&kept.lock);
    return name;
}

void tow_spans_fini(void)
{
    atomic_store(&tow_spans_kept, false);
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
    memset(kept.recent, 0, sizeof kept.recent);
    kept.first = kept.count = kept.name_count = 0;
    kept.lost = 0;
    tow_mutex_unlock(&kept.lock);
}
