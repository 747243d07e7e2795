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
    /* What pools, and graphs, may hold in pieces that are not full. */
    TOW_LEDGER_ROUNDING = 32 << 20,
};

/* Who keeps memory when it was freed. */
enum tows_ledger_kind {
    TOW_LEDGER_PLAIN, /* nobody */
    TOW_LEDGER_POOL,
    TOW_LEDGER_GRAPH,
    TOW_LEDGER_KINDS,
};

enum tows_ledger_answer {
    TOW_LEDGER_FULL,
    TOW_LEDGER_FITS,
    TOW_LEDGER_ASK, /* it depends on what pools and graphs hold */
};

/* What the driver says that they hold on a GPU. */
struct tows_ledger_held {
    uint64_t bytes[TOW_LEDGER_KINDS];
    bool is_reused; /* what the pools have free is for whoever asks */
};

/* One allocation. Addresses and handles of all kinds share the table: their values do not meet. */
struct tows_ledger_entry {
    uint64_t key; /* 0: none */
    uint64_t size;
    unsigned device;
    enum tows_ledger_kind kind;
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
    uint64_t coming[TOW_LEDGER_GPUS_MAX];   /* of that: to pools and graphs */
    uint64_t of_kind[TOW_LEDGER_KINDS][TOW_LEDGER_GPUS_MAX]; /* of what is charged */
    uint64_t kept[TOW_LEDGER_GPUS_MAX]; /* pools and graphs hold no more than this */
};

/* `charged` has TOW_LEDGER_GPUS_MAX numbers. */
void tows_ledger_init(struct tows_ledger *ledger, _Atomic uint64_t *total, _Atomic uint64_t *most,
                      _Atomic uint64_t *charged);
void tows_ledger_fini(struct tows_ledger *ledger);

/* Room for `size` bytes; without a quota there always is, and nothing is reserved. Where it depends
 * on what others have reserved and may give back, it waits for them: nobody is refused for what
 * nobody gets. `held` is NULL at first. When the answer is TOW_LEDGER_ASK the caller asks the
 * driver and comes again; if that is the answer then, too, pools should be trimmed first. */
enum tows_ledger_answer tows_ledger_reserve(struct tows_ledger *ledger, unsigned device,
                                            uint64_t size, enum tows_ledger_kind kind,
                                            const struct tows_ledger_held *held);
/* The same for more of what the caller has reserved already: it waits for nobody, as it might wait
 * for itself. */
bool tows_ledger_reserve_more(struct tows_ledger *ledger, unsigned device, uint64_t size);
void tows_ledger_give_back(struct tows_ledger *ledger, unsigned device, uint64_t size,
                           enum tows_ledger_kind kind);

/* What was reserved is allocated, and is called `key`. */
void tows_ledger_book(struct tows_ledger *ledger, const struct tows_ledger_entry *entry);
/* It is freed; a key that is not known is none of the session's own. */
void tows_ledger_drop(struct tows_ledger *ledger, uint64_t key);
bool tows_ledger_has(struct tows_ledger *ledger, uint64_t key);
/* All that dies with a context. The driver may give out its handle again at once: before it is
 * asked to destroy it, the context gets a name that no driver gives out. */
void tows_ledger_rename_context(struct tows_ledger *ledger, const void *from, void *to);
void tows_ledger_drop_context(struct tows_ledger *ledger, const void *context);
/* What counts of an allocation. */
uint64_t tows_ledger_charge(uint64_t size);

/* What it may have of a GPU at most, with what pools and graphs keep, as far as is known; and to
 * know it better, what the driver says. */
uint64_t tows_ledger_holds(struct tows_ledger *ledger, unsigned device);
void tows_ledger_learn(struct tows_ledger *ledger, unsigned device,
                       const struct tows_ledger_held *held);

/* What is left of the quota; UINT64_MAX: there is none. */
uint64_t tows_ledger_left(const struct tows_ledger *ledger, unsigned device);

#endif
