/* SPDX-License-Identifier: Apache-2.0 */
/* A context, and the way in and out of every entry point:
 *
 *     struct tow_soft_ctx *ctx;
 *     CUresult result = tow_soft_enter(&ctx); // locked, with a healthy current context on success
 *     if (result != CUDA_SUCCESS) {
 *         return result;
 *     }
 *     ...
 *     return tow_soft_leave(result);
 */
#ifndef TOW_SOFT_GROUND_CONTEXT_H
#define TOW_SOFT_GROUND_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/space.h"
#include "base/mutex.h"
#include "gen/cuda_types.h"

struct tow_soft_alloc;
struct tow_soft_device;
struct tow_soft_mark;
struct tow_soft_stream;

struct tow_soft_ctx {
    struct tow_soft_object object;
    struct tow_soft_device *device; /* borrowed */
    unsigned flags;
    bool primary;
    bool alive; /* a primary context that nobody retained is not */
    unsigned retains;
    uint64_t id;
    unsigned version;
    CUresult error;                  /* sticky */
    atomic_bool stop;                /* ends running kernels; set for good when the context dies */
    atomic_uint visible;             /* devices whose memory its kernels may touch */
    struct tow_soft_object *objects; /* owned: everything that dies with it */
    struct tow_soft_alloc *allocs;   /* owned */
    struct tow_soft_stream *legacy;  /* owned */
    struct tow_soft_stream *meeting; /* owned: where events of the whole context meet, or NULL */
    struct tow_soft_mark *barrier;   /* counted: what work of new streams waits for, or NULL */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache;
    CUsharedconfig shared_config;
    unsigned running;         /* ops that run now */
    unsigned captures_global; /* active captures in global mode */
    /* Device malloc. `heap_lock` guards the three; taken without or inside tow_soft.lock. */
    struct tow_mutex heap_lock;
    struct tow_soft_space heap;
    uint64_t heap_base, heap_size;
    /* Device printf, until the next synchronisation. `print_lock` guards the three. */
    struct tow_mutex print_lock;
    char *print; /* owned */
    size_t print_size, print_capacity;
    unsigned attached;
    unsigned pins;             /* threads that use it without the lock: it is not freed meanwhile */
    bool dying;                /* its contents are being destroyed */
    struct tow_soft_ctx *next; /* in tow_soft.contexts */
};

/* With the lock held. NVIDIA's driver waits for the device in many calls (freeing memory, copies of
 * pageable memory, a full queue ...) and keeps every other call of the process out meanwhile. With
 * --soft-strict so do we, between these two: others that enter wait. Else they do nothing. */
void tow_soft_hold(void);
void tow_soft_let_go(void);
CUresult tow_soft_enter(struct tow_soft_ctx **ret_ctx);
/* Locked, whatever the state: for calls that leave with tow_soft_leave. */
void tow_soft_enter_anyway(void);
/* Locked and initialised, whatever the current context. */
CUresult tow_soft_enter_any(void);
CUresult tow_soft_leave(CUresult result);
/* As tow_soft_leave, and brings out what kernels of the context printed. The handle may be stale.
 */
CUresult tow_soft_leave_printed(uint64_t ctx_handle, CUresult result);
/* The calling thread's contexts: the current one's handle, 0 if there is none; pop answers it, too.
 */
uint64_t tow_soft_stack_top(void);
bool tow_soft_stack_is_full(void);
bool tow_soft_stack_push(uint64_t handle); /* false: it is full */
uint64_t tow_soft_stack_pop(void);
void tow_soft_stack_replace(uint64_t handle);
/* Current context without checks; NULL if there is none or it is gone. */
struct tow_soft_ctx *tow_soft_current(void);
/* Hands what kernels printed to the server; unlocked. */
void tow_soft_print_flush(struct tow_soft_ctx *ctx);
void tow_soft_print_add(struct tow_soft_ctx *ctx, const char *text, size_t length);

#endif
