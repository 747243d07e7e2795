/* SPDX-License-Identifier: Apache-2.0 */
/* The index of live memory: a sorted array that kernels search without a lock.
 *
 * Writers (under its lock) make `sequence` odd while they move entries; a reader that saw an odd or
 * a changed sequence searches again. Every field is read and written with relaxed atomics, so a
 * reader that loses the race sees nonsense, never undefined behaviour, and throws it away.
 */
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/index.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/mutex.h"
#include "base/thread.h"

#define ENTRIES_MAX (1u << 20)

struct packed {
    _Atomic uint64_t low, high, reach, meta;
    _Atomic(struct tow_soft_alloc *) alloc;
};

static struct {
    struct tow_mutex lock;  /* guards writing of all below */
    struct packed *entries; /* a sparse mapping: only what is used takes memory */
    _Atomic uint64_t count;
    _Atomic uint64_t sequence;
} map = {.lock = TOW_MUTEX(SOFT_INDEX)};

int tow_soft_index_init(void)
{
    void *at = mmap(NULL, ENTRIES_MAX * sizeof(struct packed), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return -ENOMEM;
    }
    map.entries = at;
    atomic_store(&map.count, 0);
    return 0;
}

void tow_soft_index_fini(void)
{
    if (map.entries != NULL) {
        munmap(map.entries, ENTRIES_MAX * sizeof(struct packed));
        map.entries = NULL;
    }
}

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define PUT(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

static void index_move(struct packed *to, struct packed *from)
{
    PUT(to->low, GET(from->low));
    PUT(to->high, GET(from->high));
    PUT(to->reach, GET(from->reach));
    PUT(to->meta, GET(from->meta));
    PUT(to->alloc, GET(from->alloc));
}

/* How many entries begin at or below `address`. */
static uint64_t upper_bound(uint64_t address, uint64_t n)
{
    uint64_t low = 0;
    while (n > 0) {
        uint64_t half = n / 2;
        if (GET(map.entries[low + half].low) <= address) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

static void write_begin(void)
{
    tow_mutex_lock(&map.lock);
    atomic_fetch_add_explicit(&map.sequence, 1, memory_order_seq_cst);
}

static void write_end(void)
{
    atomic_fetch_add_explicit(&map.sequence, 1, memory_order_seq_cst);
    tow_mutex_unlock(&map.lock);
}

int tow_soft_index_add(const struct tow_soft_entry *entry)
{
    write_begin();
    uint64_t n = GET(map.count);
    if (n == ENTRIES_MAX) {
        write_end();
        return -ENOMEM;
    }
    uint64_t at = upper_bound(entry->low, n);
    for (uint64_t i = n; i > at; i--) {
        index_move(&map.entries[i], &map.entries[i - 1]);
    }
    PUT(map.entries[at].low, entry->low);
    PUT(map.entries[at].high, entry->high);
    PUT(map.entries[at].reach, entry->reach);
    PUT(map.entries[at].meta, entry->meta);
    PUT(map.entries[at].alloc, entry->alloc);
    PUT(map.count, n + 1);
    write_end();
    return 0;
}

static void index_unpack(struct packed *from, struct tow_soft_entry *ret_entry)
{
    ret_entry->low = GET(from->low);
    ret_entry->high = GET(from->high);
    ret_entry->reach = GET(from->reach);
    ret_entry->meta = GET(from->meta);
    ret_entry->alloc = GET(from->alloc);
}

bool tow_soft_index_next(uint64_t from, struct tow_soft_entry *ret_entry)
{
    tow_mutex_lock(&map.lock);
    uint64_t at = from > 0 ? upper_bound(from - 1, GET(map.count)) : 0;
    bool found = at < GET(map.count);
    if (found) {
        index_unpack(&map.entries[at], ret_entry);
    }
    tow_mutex_unlock(&map.lock);
    return found;
}

bool tow_soft_index_before(uint64_t address, struct tow_soft_entry *ret_entry)
{
    tow_mutex_lock(&map.lock);
    uint64_t at = upper_bound(address, GET(map.count));
    while (at > 0 && GET(map.entries[at - 1].high) > address) {
        at--;
    }
    if (at > 0) {
        index_unpack(&map.entries[at - 1], ret_entry);
    }
    tow_mutex_unlock(&map.lock);
    return at > 0;
}

bool tow_soft_index_remove(uint64_t low, struct tow_soft_entry *ret_entry)
{
    write_begin();
    uint64_t n = GET(map.count);
    uint64_t at = upper_bound(low, n);
    bool found = at > 0 && GET(map.entries[at - 1].low) == low;
    if (found) {
        if (ret_entry != NULL) {
            index_unpack(&map.entries[at - 1], ret_entry);
        }
        for (uint64_t i = at; i < n; i++) {
            index_move(&map.entries[i - 1], &map.entries[i]);
        }
        PUT(map.count, n - 1);
    }
    write_end();
    return found;
}

void tow_soft_index_set_meta(uint64_t low, uint64_t meta)
{
    write_begin();
    uint64_t at = upper_bound(low, GET(map.count));
    if (at > 0 && GET(map.entries[at - 1].low) == low) {
        PUT(map.entries[at - 1].meta, meta);
    }
    write_end();
}

static bool index_search(uint64_t address, bool padding, struct tow_soft_entry *ret_entry)
{
    for (;;) {
        uint64_t before = atomic_load_explicit(&map.sequence, memory_order_acquire);
        if (before & 1) {
            tow_thread_pause();
            continue;
        }
        uint64_t n = GET(map.count);
        uint64_t at = upper_bound(address, n < ENTRIES_MAX ? n : ENTRIES_MAX);
        bool found = false;
        if (at > 0) {
            index_unpack(&map.entries[at - 1], ret_entry);
            found = address < (padding ? ret_entry->reach : ret_entry->high) &&
                    address >= ret_entry->low;
        }
        /* A read-modify-write of nothing orders the loads above before it, where a fence would do
         * but is unknown to the thread sanitizer. */
#ifdef __SANITIZE_THREAD__
        uint64_t after = atomic_fetch_add_explicit(&map.sequence, 0, memory_order_acq_rel);
#else
        atomic_thread_fence(memory_order_acquire);
        uint64_t after = atomic_load_explicit(&map.sequence, memory_order_relaxed);
#endif
        if (before == after) {
            return found;
        }
    }
}

bool tow_soft_index_find(uint64_t address, struct tow_soft_entry *ret_entry)
{
    return index_search(address, false, ret_entry);
}

bool tow_soft_index_reach(uint64_t address, struct tow_soft_entry *ret_entry)
{
    return index_search(address, true, ret_entry);
}

bool tow_soft_index_overlaps(uint64_t base, uint64_t size)
{
    tow_mutex_lock(&map.lock);
    uint64_t at = upper_bound(base + size - 1, GET(map.count));
    bool overlaps = at > 0 && GET(map.entries[at - 1].high) > base;
    tow_mutex_unlock(&map.lock);
    return overlaps;
}
