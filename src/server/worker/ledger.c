/* SPDX-License-Identifier: Apache-2.0 */
/* A table of allocations, and reservations against a quota. */
#include "server/worker/ledger.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 1024 };

static unsigned place_of(unsigned device)
{
    return device < TOW_LEDGER_GPUS_MAX ? device : TOW_LEDGER_GPUS_MAX - 1;
}

uint64_t tows_ledger_charge(uint64_t size)
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
    uint64_t charge = tows_ledger_charge(gone->size);
    atomic_fetch_sub_explicit(ledger->total, gone->size, memory_order_relaxed);
    atomic_fetch_sub_explicit(&ledger->charged[device], charge, memory_order_relaxed);
    ledger->of_kind[gone->kind][device] -= charge;
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

/* ---- reservations ---- */

static uint64_t left_beyond(uint64_t one, uint64_t other)
{
    return one > other ? one - other : 0;
}

/* With the lock held: what pools and graphs hold that nobody is charged for. */
static uint64_t held_of_nobody(const struct tows_ledger *ledger, unsigned device, uint64_t charge,
                               enum tows_ledger_kind kind, const struct tows_ledger_held *held)
{
    uint64_t sum = 0;
    for (unsigned i = TOW_LEDGER_POOL; i < TOW_LEDGER_KINDS; i++) {
        uint64_t own = i == kind && held->is_reused ? charge : 0;
        uint64_t used = ledger->of_kind[i][device] + own;
        sum += left_beyond(left_beyond(held->bytes[i], used), TOW_LEDGER_ROUNDING);
    }
    return sum;
}

/* With the lock held: an answer, with what is reserved or (`booked`) without. Charges are no larger
 * than the quota. */
static bool has_room(const struct tows_ledger *ledger, unsigned device, uint64_t charge,
                     uint64_t other, bool booked)
{
    uint64_t charged = ledger->charged[device] - (booked ? ledger->reserved[device] : 0);
    uint64_t left = left_beyond(ledger->quota, charged);
    return charge <= left && other <= left - charge;
}

static void ledger_keep(struct tows_ledger *ledger, unsigned device,
                        const struct tows_ledger_held *held)
{
    uint64_t bytes = held->bytes[TOW_LEDGER_POOL] + held->bytes[TOW_LEDGER_GRAPH];
    ledger->kept[device] = bytes + ledger->coming[device];
}

static void reserve_now(struct tows_ledger *ledger, unsigned device, uint64_t charge,
                        enum tows_ledger_kind kind)
{
    ledger->reserved[device] += charge;
    ledger->of_kind[kind][device] += charge;
    if (kind != TOW_LEDGER_PLAIN) {
        ledger->coming[device] += charge;
        ledger->kept[device] += charge;
    }
    atomic_fetch_add_explicit(&ledger->charged[device], charge, memory_order_relaxed);
}

enum tows_ledger_answer tows_ledger_reserve(struct tows_ledger *ledger, unsigned device,
                                            uint64_t size, enum tows_ledger_kind kind,
                                            const struct tows_ledger_held *held)
{
    uint64_t quota = ledger->quota, charge = tows_ledger_charge(size);
    enum tows_ledger_answer answer = TOW_LEDGER_FULL;
    device = place_of(device);
    if (quota == 0) {
        return TOW_LEDGER_FITS;
    }
    tow_mutex_lock(&ledger->lock);
    if (held != NULL) {
        ledger_keep(ledger, device, held);
    }
    while (charge <= quota && has_room(ledger, device, charge, 0, true)) {
        uint64_t pools = ledger->of_kind[TOW_LEDGER_POOL][device];
        uint64_t graphs = ledger->of_kind[TOW_LEDGER_GRAPH][device];
        uint64_t other = held != NULL ? held_of_nobody(ledger, device, charge, kind, held)
                                      : left_beyond(ledger->kept[device], pools + graphs);
        if (has_room(ledger, device, charge, other, false)) {
            answer = TOW_LEDGER_FITS;
            reserve_now(ledger, device, charge, kind);
            break;
        }
        if (other > 0 && (held == NULL || !has_room(ledger, device, charge, other, true))) {
            answer = TOW_LEDGER_ASK;
            break;
        }
        tow_mutex_wait(&ledger->lock, &ledger->changed);
    }
    tow_mutex_unlock(&ledger->lock);
    return answer;
}

bool tows_ledger_reserve_more(struct tows_ledger *ledger, unsigned device, uint64_t size)
{
    uint64_t quota = ledger->quota, charge = tows_ledger_charge(size);
    device = place_of(device);
    if (quota == 0) {
        return true;
    }
    tow_mutex_lock(&ledger->lock);
    uint64_t used = ledger->of_kind[TOW_LEDGER_POOL][device];
    used += ledger->of_kind[TOW_LEDGER_GRAPH][device];
    bool fits = charge <= quota &&
                has_room(ledger, device, charge, left_beyond(ledger->kept[device], used), false);
    if (fits) {
        reserve_now(ledger, device, charge, TOW_LEDGER_PLAIN);
    }
    tow_mutex_unlock(&ledger->lock);
    return fits;
}

/* With the lock held: it is reserved no more. */
static void ledger_confirm(struct tows_ledger *ledger, unsigned device, uint64_t charge,
                           enum tows_ledger_kind kind)
{
    ledger->reserved[device] -= charge;
    ledger->coming[device] -= kind != TOW_LEDGER_PLAIN ? charge : 0;
    pthread_cond_broadcast(&ledger->changed);
}

void tows_ledger_give_back(struct tows_ledger *ledger, unsigned device, uint64_t size,
                           enum tows_ledger_kind kind)
{
    uint64_t charge = tows_ledger_charge(size);
    device = place_of(device);
    if (ledger->quota == 0) {
        return;
    }
    tow_mutex_lock(&ledger->lock);
    atomic_fetch_sub_explicit(&ledger->charged[device], charge, memory_order_relaxed);
    ledger->of_kind[kind][device] -= charge;
    ledger_confirm(ledger, device, charge, kind);
    tow_mutex_unlock(&ledger->lock);
}

void tows_ledger_book(struct tows_ledger *ledger, const struct tows_ledger_entry *entry)
{
    struct tows_ledger_entry booked = *entry;
    uint64_t charge = tows_ledger_charge(entry->size);
    bool limited = ledger->quota != 0;
    unsigned device = booked.device = place_of(entry->device);
    tow_mutex_lock(&ledger->lock);
    if (limited) {
        ledger_confirm(ledger, device, charge, booked.kind);
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
            ledger->of_kind[booked.kind][device] += charge;
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

void tows_ledger_rename_context(struct tows_ledger *ledger, const void *from, void *to)
{
    tow_mutex_lock(&ledger->lock);
    for (size_t i = 0; from != NULL && i < ledger->capacity; i++) {
        struct tows_ledger_entry *entry = &ledger->entries[i];
        entry->context = entry->key != 0 && entry->context == from ? to : entry->context;
    }
    tow_mutex_unlock(&ledger->lock);
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

uint64_t tows_ledger_holds(struct tows_ledger *ledger, unsigned device)
{
    device = place_of(device);
    tow_mutex_lock(&ledger->lock);
    uint64_t used =
        ledger->of_kind[TOW_LEDGER_POOL][device] + ledger->of_kind[TOW_LEDGER_GRAPH][device];
    uint64_t holds = ledger->charged[device] + left_beyond(ledger->kept[device], used);
    tow_mutex_unlock(&ledger->lock);
    return holds;
}

void tows_ledger_learn(struct tows_ledger *ledger, unsigned device,
                       const struct tows_ledger_held *held)
{
    device = place_of(device);
    tow_mutex_lock(&ledger->lock);
    ledger_keep(ledger, device, held);
    tow_mutex_unlock(&ledger->lock);
}

uint64_t tows_ledger_left(const struct tows_ledger *ledger, unsigned device)
{
    uint64_t quota = ledger->quota, charged = ledger->charged[place_of(device)];
    return quota == 0 ? UINT64_MAX : charged < quota ? quota - charged : 0;
}
