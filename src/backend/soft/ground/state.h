/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the software GPU and its devices.
 *
 * One lock (tow_soft.lock) guards everything in the headers of this folder unless a field says
 * otherwise; kernels, copies and host functions run without it. Functions named tow_soft_* expect
 * the lock to be held unless their comment says "unlocked". Entry points of the driver table take
 * it themselves (context.h). */
#ifndef TOW_SOFT_GROUND_STATE_H
#define TOW_SOFT_GROUND_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mutex.h"
#include "gen/cuda_types.h"

struct tow_backend_exchange_ops;
struct tow_soft_block;
struct tow_soft_ctx;
struct tow_soft_hooks;
struct tow_soft_op;
struct tow_soft_pool;
struct tow_soft_retired;
struct tow_soft_stream;

#define TOW_SOFT_DEVICES_MAX 16

struct tow_soft_device {
    int ordinal;
    uint64_t total;
    _Atomic uint64_t *used; /* own_used, or borrowed from who watches; changed under the lock */
    _Atomic uint64_t own_used;
    CUuuid uuid;
    struct tow_soft_ctx *primary;  /* owned; its handle never changes */
    struct tow_soft_block *blocks; /* owned */
    struct tow_soft_pool *default_pool, *pool;
    uint64_t graph_used, graph_used_high;
    bool ruined; /* a kernel ended with an error: this process gets no new primary context */
};

struct tow_soft {
    struct tow_mutex lock;
    const struct tow_soft_hooks *hooks; /* set once, when opened first */
    pthread_cond_t changed;             /* something finished: waiters look again */
    pthread_cond_t work;                /* something can run: idle runners look */
    bool open;
    atomic_bool initialised;
    int capability; /* 121 = 12.1 */
    bool dry;       /* kernels do nothing, and code may be of any kind */
    unsigned threads, sm_count;
    unsigned device_count;
    struct tow_soft_device devices[TOW_SOFT_DEVICES_MAX];
    struct tow_soft_ctx *contexts;   /* owned: those of cuCtxCreate */
    struct tow_soft_stream *streams; /* all of them */
    struct tow_soft_op *running;     /* ops that run now, newest first */
    _Atomic uint32_t *queued; /* ops of all streams but host functions: own_queued, or borrowed */
    _Atomic uint32_t own_queued;
    uint32_t queued_most; /* 0: any number */
    bool queue_full_told;
    uint64_t seq;             /* counts ops and starts */
    uint64_t registered_gone; /* `seq` when a context last took registered memory along */
    uint64_t next_id;         /* contexts, streams, allocations, captures */
    uint64_t alloc_count;     /* allocations that were ever made */
    unsigned runners, runners_idle, runners_starting;
    unsigned tokens; /* wake-ups that idle runners have not taken yet; never more than are idle */
    bool stopping, polls; /* polls: a stream waits for a value in memory */
    bool strict, held;    /* see tow_soft_hold */
    bool away;            /* device memory is put out: who enters waits */
    void (*called)(void); /* somebody waits who has entered while it is; NULL: nobody asks */
    bool awaited;         /* somebody waits until nothing runs and nobody is inside */
    unsigned inside;      /* calls that have entered and not left; they may be asleep */
    struct tow_soft_retired *retired;
    uint64_t arena_base, arena_size;
    /* Set by the server before the first launch. */
    void (*print)(void *user, const char *text, size_t length);
    void (*print_error)(void *user, const char *text, size_t length);
    void *print_user;
    const struct tow_backend_exchange_ops *exchange; /* borrowed, for ever; or NULL */
};

extern struct tow_soft tow_soft;
struct tow_soft_device *tow_soft_device_of(CUdevice device); /* NULL if there is none */

struct tow_soft_limits_of_device {
    int threads_per_sm, blocks_per_sm, registers_per_sm, shared_per_sm, shared_optin;
};
void tow_soft_device_limits(struct tow_soft_limits_of_device *ret_limits);

#endif
