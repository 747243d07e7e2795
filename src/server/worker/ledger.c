/* SPDX-License-Identifier: Apache-2.0 */
/* A table of allocations, and reservations against a quota. */
#include "server/worker/ledger.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 1024 };

static unsigned place_of(unsigned device)
{
    return device < TOW_LEDGER_GPUS_MAX ? device : TOW_LEDGER_GPUS_MAX - 1;
}

/* What counts of an allocation. */
static uint64_t charge_of(uint64_t size)
{
    return size > UINT64_MAX - TOW_LEDGER_UNIT
               ? UINT64_MAX
               : (size + TOW_LEDGER_UNIT - 1) / TOW_LEDGER_UNIT * TOW_LEDGER_UNIT;
}

void tows_ledger_init(struct tows_ledger *ledger, _Atomic uint64_t *total, _Atomic uint64_t *most,
                      _Atomic uint64_t *charged)
{
    *ledger = (struct tows_ledger){.total = total, .most = most, .charged = charged};
    tow_mutex_init(&ledger->lock, SERVER_ACCOUNT);
    pthread_cond_init(&ledger->changed, NULL);
}

void tows_ledger_fini(struct tows_ledger *ledger)
{
    free(ledger->entries);
    pthread_cond_destroy(&ledger->changed);
    pthread_mutex_destroy(&ledger->lock.mutex);
}

/* ---- the table, with the lock held ---- */

static size_t slot_of(const struct tows_ledger *ledger, uint64_t key)
{
    return (size_t)((key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (ledger->capacity - 1);
}

static void table_insert(struct tows_ledger *ledger, const struct tows_ledger_entry *entry)
{
    size_t at = slot_of(ledger, entry->key);
    while (ledger->entries[at].key != 0) {
        at = (at + 1) & (ledger->capacity - 1);
    }
    ledger->entries[at] = *entry;
    ledger->used++;
}

static bool table_grow(struct tows_ledger *ledger)
{
    size_t old_capacity = ledger->capacity;
    struct tows_ledger_entry *old = ledger->entries;
    size_t capacity = old_capacity == 0 ? FIRST_CAPACITY : 2 * old_capacity;
    struct tows_ledger_entry *entries = calloc(capacity, sizeof *entries);
    if (entries == NULL) {
        return false;
    }
    ledger->entries = entries;
    ledger->capacity = capacity;
    ledger->used = 0;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].key != 0) {
            table_insert(ledger, &old[i]);
        }
    }
    free(old);
    return true;
}

/* NULL: it is not there. */
static struct tows_ledger_entry *table_find(struct tows_ledger *ledger, uint64_t key)
{
    if (ledger->capacity == 0 || key == 0) {
        return NULL;
    }
    size_t at = slot_of(ledger, key);
    while (ledger->entries[at].key != 0 && ledger->entries[at].key != key) {
        at = (at + 1) & (ledger->capacity - 1);
    }
    return ledger->entries[at].key == key ? &ledger->entries[at] : NULL;
}

/* Empties a slot and moves what was pushed behind it. */
static void table_remove(struct tows_ledger *ledger, size_t at)
{
    size_t mask = ledger->capacity - 1;
    const struct tows_ledger_entry *gone = &ledger->entries[at];
    unsigned device = gone->device;
    uint64_t charge = charge_of(gone->size);
    atomic_fetch_sub_explicit(ledger->total, gone->size, memory_order_relaxed);
    atomic_fetch_sub_explicit(&ledger->charged[device], charge, memory_order_relaxed);
    ledger->pooled[device] -= gone->pooled ? charge : 0;
    if (ledger->quota != 0) {
        pthread_cond_broadcast(&ledger->changed);
    }
    ledger->entries[at].key = 0;
    ledger->used--;
    for (size_t i = (at + 1) & mask; ledger->entries[i].key != 0; i = (i + 1) & mask) {
        struct tows_ledger_entry moved = ledger->entries[i];
        ledger->entries[i].key = 0;
        ledger->used--;
        table_insert(ledger, &moved);
    }
}

/* ---- pools ---- */

bool tows_ledger_wants_trim(struct tows_ledger *ledger, unsigned device, uint64_t size, bool pooled)
{
    uint64_t quota = ledger->quota, charge = charge_of(size);
    device = place_of(device);
    if (quota == 0 || charge > quota) {
        return false;
    }
    tow_mutex_lock(&ledger->lock);
    uint64_t spare = ledger->kept[device] - ledger->pooled[device];
    /* A pool uses what it has kept. */
    spare = !pooled ? spare : spare > charge ? spare - charge : 0;
    bool wants = spare > 0 && ledger->charged[device] + charge + spare > quota;
    tow_mutex_unlock(&ledger->lock);
    return wants;
}

void tows_ledger_trimmed(struct tows_ledger *ledger, unsigned device)
{
    device = place_of(device);
    tow_mutex_lock(&ledger->lock);
    ledger->kept[device] = ledger->pooled[device];
    tow_mutex_unlock(&ledger->lock);
}

/* ---- reservations ---- */

bool tows_ledger_reserve(struct tows_ledger *ledger, unsigned device, uint64_t size)
{
    uint64_t quota = ledger->quota, charge = charge_of(size);
    device = place_of(device);
    if (quota == 0) {
        return true;
    }
    tow_mutex_lock(&ledger->lock);
    bool fits;
    while (!(fits = charge <= quota && ledger->charged[device] <= quota - charge) &&
           charge <= quota &&
           ledger->charged[device] - ledger->reserved[device] <= quota - charge) {
        tow_mutex_wait(&ledger->lock, &ledger->changed);
    }
    if (fits) {
        ledger->reserved[device] += charge;
        atomic_fetch_add_explicit(&ledger->charged[device], charge, memory_order_relaxed);
    }
    tow_mutex_unlock(&ledger->lock);
    return fits;
}

/* With the lock held: it is reserved no more. */
static void ledger_confirm(struct tows_ledger *ledger, unsigned device, uint64_t charge)
{
    ledger->reserved[device] -= charge;
    pthread_cond_broadcast(&ledger->changed);
}

void tows_ledger_give_back(struct tows_ledger *ledger, unsigned device, uint64_t size)
{
    uint64_t charge = charge_of(size);
    device = place_of(device);
    if (ledger->quota == 0) {
        return;
    }
    tow_mutex_lock(&ledger->lock);
    atomic_fetch_sub_explicit(&ledger->charged[device], charge, memory_order_relaxed);
    ledger_confirm(ledger, device, charge);
    tow_mutex_unlock(&ledger->lock);
}

void tows_ledger_book(struct tows_ledger *ledger, const struct tows_ledger_entry *entry)
{
    struct tows_ledger_entry booked = *entry;
    uint64_t charge = charge_of(entry->size);
    bool limited = ledger->quota != 0;
    unsigned device = booked.device = place_of(entry->device);
    tow_mutex_lock(&ledger->lock);
    if (limited) {
        ledger_confirm(ledger, device, charge);
    }
    /* Where there is no memory for an entry: without a quota that is only a wrong number in a
     * table; with one it stays charged for as long as the session lives. */
    if (entry->key != 0 && (ledger->used * 2 < ledger->capacity || table_grow(ledger))) {
        table_insert(ledger, &booked);
        uint64_t total = booked.size + atomic_fetch_add_explicit(ledger->total, booked.size,
                                                                 memory_order_relaxed);
        if (total > atomic_load_explicit(ledger->most, memory_order_relaxed)) {
            atomic_store_explicit(ledger->most, total, memory_order_relaxed);
        }
        if (!limited) {
            atomic_fetch_add_explicit(&ledger->charged[device], charge, memory_order_relaxed);
        }
        if (booked.pooled) {
            ledger->pooled[device] += charge;
            ledger->kept[device] = ledger->pooled[device] > ledger->kept[device]
                                       ? ledger->pooled[device]
                                       : ledger->kept[device];
        }
    }
    tow_mutex_unlock(&ledger->lock);
}

void tows_ledger_drop(struct tows_ledger *ledger, uint64_t key)
{
    tow_mutex_lock(&ledger->lock);
    const struct tows_ledger_entry *entry = table_find(ledger, key);
    if (entry != NULL) {
        table_remove(ledger, (size_t)(entry - ledger->entries));
    }
    tow_mutex_unlock(&ledger->lock);
}

bool tows_ledger_has(struct tows_ledger *ledger, uint64_t key)
{
    tow_mutex_lock(&ledger->lock);
    bool has = table_find(ledger, key) != NULL;
    tow_mutex_unlock(&ledger->lock);
    return has;
}

void tows_ledger_drop_context(struct tows_ledger *ledger, const void *context)
{
    tow_mutex_lock(&ledger->lock);
    for (size_t i = 0; context != NULL && i < ledger->capacity;) {
        if (ledger->entries[i].key != 0 && ledger->entries[i].context == context) {
            table_remove(ledger, i); /* another may have moved here: look again */
        } else {
            i++;
        }
    }
    tow_mutex_unlock(&ledger->lock);
}

uint64_t tows_ledger_left(const struct tows_ledger *ledger, unsigned device)
{
    uint64_t quota = ledger->quota, charged = ledger->charged[place_of(device)];
    return quota == 0 ? UINT64_MAX : charged < quota ? quota - charged : 0;
}
