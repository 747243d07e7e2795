/* SPDX-License-Identifier: Apache-2.0 */
/* A context, and which one is current: what every call goes to. Contexts are made and ended by
 * client/stream/context.c.
 */
#ifndef TOW_CLIENT_CURRENT_H
#define TOW_CLIENT_CURRENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "client/session/state.h"
#include "client/session/thread.h"
#include "gen/cuda_types.h"

struct towc_link;
struct towc_local_value;
struct towc_completion;

/* Never freed: a thread may have a destroyed context on its stack. */
struct towc_context {
    CUcontext handle;
    uint32_t number;        /* on the wire: index of the handle, never 0 */
    uint64_t unique;        /* cuCtxGetId: never used again */
    CUdevice device;        /* visible ordinal */
    struct towc_link *link; /* borrowed: the server that has the device */
    bool primary;
    CUgreenCtx green;  /* it ends with this one; NULL for an ordinary context */
    atomic_bool alive; /* false after destroy or reset, until retained again */
    atomic_uint epoch; /* raised by destroy and reset: what was made before is gone */
    atomic_int sticky; /* CUresult that every call on it returns, or 0 */
    atomic_uint flags;
    /* Of commands up to these numbers all work is done: of all its streams, of its default stream
     */
    _Atomic uint64_t done, default_done;
    _Atomic uint64_t stream_done;               /* the same of any one stream: the newest of them */
    struct towc_completion *default_completion; /* owned; of its default stream */
    unsigned api_version;
    int least_priority, greatest_priority;

    atomic_uint limits_known; /* bit i: limits[i] is what the server would answer */
    _Atomic uint64_t limits[CU_LIMIT_MAX];
    atomic_int cache_config, shared_config; /* -1: not known */

    struct tow_mutex lock;  /* guards what follows; of the values only the writing */
    pthread_cond_t changed; /* nobody is changing it any more */
    bool changing;          /* primary: a thread begins or ends it, without holding the lock */
    pthread_t changer;      /* that thread */
    unsigned retained;      /* primary: retains not yet released */
    bool owed;              /* primary: the server was not told that it was released */
    unsigned attached;      /* others: cuCtxAttach beyond the first */
    _Atomic(struct towc_local_value *) values; /* context-local storage; readers need no lock */
    struct towc_context *next_dead;            /* after its destruction */
};

/* The calling thread's current context, NULL if it has none. */
static inline struct towc_context *towc_context_current(void)
{
    struct towc_thread *self = towc_thread_self();
    return self != NULL && self->depth > 0 ? self->stack[self->depth - 1] : NULL;
}

/* Its number on its server, 0 if there is none. */
static inline uint32_t towc_context_number(void)
{
    const struct towc_context *context = towc_context_current();
    return context != NULL ? context->number : 0;
}

#endif
