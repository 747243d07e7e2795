/* SPDX-License-Identifier: Apache-2.0 */
/* What a session has of the GPUs' memory, allocation by allocation, and what it may have. Knows no
 * driver: whoever allocates reserves first, and then books what came of it. */
#ifndef TOW_SERVER_LEDGER_H
#define TOW_SERVER_LEDGER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"

enum {
    TOW_LEDGER_GPUS_MAX = 16, /* those behind are counted with the last */
    TOW_LEDGER_UNIT = 512,    /* no driver gives out less */
};

/* One allocation. Addresses and handles of all kinds share the table: their values do not meet. */
struct tows_ledger_entry {
    uint64_t key; /* 0: none */
    uint64_t size;
    unsigned device;
    bool pooled;   /* a pool may keep it when it was freed */
    void *context; /* what it dies with; NULL: nothing */
};

struct tows_ledger {
    _Atomic uint64_t *total;   /* borrowed: bytes of all entries */
    _Atomic uint64_t *most;    /* borrowed: that these ever were */
    _Atomic uint64_t *charged; /* borrowed: of each GPU what counts, with what is reserved */
    _Atomic uint64_t quota;    /* of each GPU; 0: none. Set once, before anything is allocated */
    struct tow_mutex lock;     /* guards all below */
    pthread_cond_t changed;    /* a reservation was booked or given back, or memory freed */
    struct tows_ledger_entry *entries; /* owned; open addressing */
    size_t capacity;                   /* a power of two */
    size_t used;
    uint64_t reserved[TOW_LEDGER_GPUS_MAX]; /* of what is charged: not booked yet */
    uint64_t pooled[TOW_LEDGER_GPUS_MAX];   /* of what is charged: of pools */
    uint64_t kept[TOW_LEDGER_GPUS_MAX];     /* the most that pools had since they were trimmed */
};

/* `charged` has TOW_LEDGER_GPUS_MAX numbers. */
void tows_ledger_init(struct tows_ledger *ledger, _Atomic uint64_t *total, _Atomic uint64_t *most,
                      _Atomic uint64_t *charged);
void tows_ledger_fini(struct tows_ledger *ledger);

/* Whether pools may keep so much that they should be trimmed before this is allocated. */
bool tows_ledger_wants_trim(struct tows_ledger *ledger, unsigned device, uint64_t size,
                            bool pooled);
void tows_ledger_trimmed(struct tows_ledger *ledger, unsigned device);

/* Room for `size` bytes, or false: that would be more than the quota. Where it depends on what
 * others have reserved and may give back, it waits for them: nobody is refused for what nobody
 * gets. Without a quota there is always room, and nothing is reserved. */
bool tows_ledger_reserve(struct tows_ledger *ledger, unsigned device, uint64_t size);
void tows_ledger_give_back(struct tows_ledger *ledger, unsigned device, uint64_t size);

/* What was reserved is allocated, and is called `key`. */
void tows_ledger_book(struct tows_ledger *ledger, const struct tows_ledger_entry *entry);
/* It is freed; a key that is not known is none of the session's own. */
void tows_ledger_drop(struct tows_ledger *ledger, uint64_t key);
bool tows_ledger_has(struct tows_ledger *ledger, uint64_t key);
/* All that dies with a context. */
void tows_ledger_drop_context(struct tows_ledger *ledger, const void *context);

/* What is left of the quota; UINT64_MAX: there is none. */
uint64_t tows_ledger_left(const struct tows_ledger *ledger, unsigned device);

#endif
