/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: the stack of each thread, primary contexts, limits, printf output. */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/mark.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/hooks.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/space.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/stream/context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "gen/context.h"

#define PRINT_MAX (UINT64_C(256) << 20)

/* ---- life
 * ---------------------------------------------------------------------------------------- */

static void limits_reset(struct tow_soft_ctx *ctx)
{
    memset(ctx->limits, 0, sizeof ctx->limits);
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 8448 << 10;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    ctx->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

/* Makes a context usable: fresh, or a primary one that is retained again. */
static int context_activate(struct tow_soft_ctx *ctx)
{
    ctx->error = CUDA_SUCCESS;
    atomic_store(&ctx->stop, false);
    atomic_store(&ctx->visible, 1u << ctx->device->ordinal);
    ctx->id = ++tow_soft.next_id;
    ctx->cache = CU_FUNC_CACHE_PREFER_NONE;
    ctx->shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    limits_reset(ctx);
    ctx->legacy = tow_soft_stream_create(ctx, 0, 0);
    if (ctx->legacy == NULL) {
        return -ENOMEM;
    }
    ctx->legacy->legacy = true;
    ctx->alive = true;
    return 0;
}

int tow_soft_ctx_create(struct tow_soft_device *device, unsigned flags, bool primary,
                        struct tow_soft_ctx **ret_ctx)
{
    struct tow_soft_ctx *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL || tow_soft_object_add(&ctx->object, TOW_SOFT_CTX, NULL) != 0) {
        free(ctx);
        return -ENOMEM;
    }
    ctx->device = device;
    ctx->flags = flags;
    ctx->primary = primary;
    ctx->version = 3020;
    tow_mutex_init(&ctx->heap_lock, SOFT_HEAP);
    tow_mutex_init(&ctx->print_lock, SOFT_PRINT);
    if (!primary && context_activate(ctx) != 0) {
        tow_soft_ctx_free(ctx);
        return -ENOMEM;
    }
    *ret_ctx = ctx;
    return 0;
}

void tow_soft_ctx_free(struct tow_soft_ctx *ctx)
{
    if (ctx == NULL) {
        return;
    }
    tow_soft_object_remove(&ctx->object);
    tow_mutex_fini(&ctx->heap_lock);
    tow_mutex_fini(&ctx->print_lock);
    free(ctx->print);
    free(ctx);
}

void tow_soft_ctx_destroy_contents(struct tow_soft_ctx *ctx)
{
    while (ctx->dying) { /* another thread is at it */
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
    if (!ctx->alive) {
        return;
    }
    ctx->alive = false;
    ctx->dying = true;
    tow_soft_engine_drain(ctx);
    if (tow_soft.strict) {
        /* NVIDIA's driver waits for host functions of other contexts, too. */
        tow_soft_hold();
        tow_soft_quiesce();
        tow_soft_let_go();
    }
    while (ctx->pins > 0) {
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
    tow_mutex_unlock(&tow_soft.lock);
    tow_soft_print_flush(ctx);
    tow_mutex_lock(&tow_soft.lock);
    tow_soft_captures_drop(ctx);
    /* Streams whose handle is gone already are not in the list. */
    struct tow_soft_stream *next;
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = next) {
        next = s->next;
        if (s->object.ctx == ctx) {
            tow_soft_stream_free(s);
        }
    }
    ctx->legacy = NULL;
    ctx->meeting = NULL;
    tow_soft_mark_unref(ctx->barrier);
    ctx->barrier = NULL;
    /* Graphs first: they hold references to modules and arrays. */
    tow_soft.hooks->ctx_ends(ctx);
    while (ctx->objects != NULL) {
        struct tow_soft_object *object = ctx->objects;
        tow_soft.hooks->ends[object->kind](object);
        if (ctx->objects == object) {
            tow_soft_object_remove(object);
        }
    }
    tow_soft_check_leaks(ctx);
    while (ctx->allocs != NULL) {
        if (ctx->allocs->kind == TOW_SOFT_MEM_ARRAY || ctx->allocs->variable) {
            /* Objects of another context hold it: a texture the array, a graph the module. The last
             * of them drops it. */
            tow_soft_alloc_disown(ctx->allocs);
        } else {
            if (ctx->allocs->kind == TOW_SOFT_MEM_REGISTERED) {
                tow_soft.registered_gone = ++tow_soft.seq;
            }
            if (ctx->allocs->va != NULL) {
                ctx->allocs->va->held = false;
            }
            tow_soft_alloc_drop(ctx->allocs);
        }
    }
    tow_soft_heap_fini(ctx);
    ctx->error = CUDA_SUCCESS;
    ctx->retains = 0;
    ctx->dying = false;
    pthread_cond_broadcast(&tow_soft.changed);
}

void tow_soft_contexts_destroy_all(void)
{
    /* Those that were made by cuCtxCreate. */
    while (tow_soft.contexts != NULL) {
        struct tow_soft_ctx *ctx = tow_soft.contexts;
        tow_soft.contexts = ctx->next;
        tow_soft_ctx_destroy_contents(ctx);
        tow_soft_ctx_free(ctx);
    }
}

/* ---- entry points
 * ----------------------------------------------------------------------------------- */

#define DEVICE_LOCKED(device, dev)                                                                 \
    CUresult entered = tow_soft_enter_any();                                                       \
    if (entered != CUDA_SUCCESS) {                                                                 \
        return entered;                                                                            \
    }                                                                                              \
    struct tow_soft_device *device = tow_soft_device_of(dev);                                      \
    if (device == NULL) {                                                                          \
        return tow_soft_leave(CUDA_ERROR_INVALID_DEVICE);                                          \
    }

static bool flags_ok(unsigned flags)
{
    unsigned sched = flags & CU_CTX_SCHED_MASK;
    return (flags & ~(unsigned)CU_CTX_FLAGS_MASK) == 0 &&
           (sched == CU_CTX_SCHED_AUTO || sched == CU_CTX_SCHED_SPIN ||
            sched == CU_CTX_SCHED_YIELD || sched == CU_CTX_SCHED_BLOCKING_SYNC);
}

static CUresult soft_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    DEVICE_LOCKED(device, dev);
    if (pctx == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_ctx *ctx = device->primary;
    while (ctx->dying) {
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
    if (!ctx->alive && device->ruined) {
        return tow_soft_leave(CUDA_ERROR_DEVICE_UNAVAILABLE);
    }
    if (!ctx->alive && context_activate(ctx) != 0) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    ctx->retains++;
    *pctx = TOW_SOFT_POINTER(ctx->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    DEVICE_LOCKED(device, dev);
    struct tow_soft_ctx *ctx = device->primary;
    if (!ctx->alive || ctx->retains == 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (--ctx->retains == 0) {
        tow_soft_ctx_destroy_contents(ctx);
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuDevicePrimaryCtxReset(CUdevice dev)
{
    DEVICE_LOCKED(device, dev);
    tow_soft_ctx_destroy_contents(device->primary);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    DEVICE_LOCKED(device, dev);
    if (!flags_ok(flags)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    device->primary->flags = flags & ~(unsigned)CU_CTX_MAP_HOST;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    DEVICE_LOCKED(device, dev);
    if (flags == NULL || active == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = device->primary->flags;
    *active = device->primary->alive;
    return tow_soft_leave(CUDA_SUCCESS);
}

/* What ruined a context of the device: as with NVIDIA's driver, no new one can be had beside it. */
static CUresult ruined_by(const struct tow_soft_device *device)
{
    CUresult error =
        device->primary != NULL && device->primary->alive ? device->primary->error : CUDA_SUCCESS;
    for (struct tow_soft_ctx *ctx = tow_soft.contexts; ctx != NULL && error == CUDA_SUCCESS;
         ctx = ctx->next) {
        if (ctx->device == device && ctx->alive) {
            error = ctx->error;
        }
    }
    return error;
}

static CUresult context_create(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    DEVICE_LOCKED(device, dev);
    if (pctx == NULL || !flags_ok(flags)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (ruined_by(device) != CUDA_SUCCESS) {
        return tow_soft_leave(ruined_by(device));
    }
    if (tow_soft_stack_is_full()) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    struct tow_soft_ctx *ctx;
    if (tow_soft_ctx_create(device, flags, false, &ctx) != 0) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    ctx->next = tow_soft.contexts;
    tow_soft.contexts = ctx;
    tow_soft_stack_push(ctx->object.handle);
    *pctx = TOW_SOFT_POINTER(ctx->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return context_create(pctx, flags, dev);
}

static CUresult soft_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray,
                                    int numParams, unsigned int flags, CUdevice dev)
{
    if (numParams != 0 && paramsArray != NULL) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    return context_create(pctx, flags, dev);
}

static CUresult soft_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
                                    unsigned int flags, CUdevice dev)
{
    if (ctxCreateParams != NULL) {
        if (ctxCreateParams->cigParams != NULL) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        if (ctxCreateParams->numExecAffinityParams != 0) {
            return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
        }
    }
    return context_create(pctx, flags, dev);
}

static CUresult soft_cuCtxDestroy(CUcontext handle)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_ctx *ctx = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(handle));
    if (ctx == NULL || ctx->primary || !ctx->alive) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    tow_soft_ctx_destroy_contents(ctx);
    struct tow_soft_ctx **at = &tow_soft.contexts;
    while (*at != ctx) {
        at = &(*at)->next;
    }
    *at = ctx->next;
    if (tow_soft_stack_top() == ctx->object.handle) {
        tow_soft_stack_pop();
    }
    tow_soft_ctx_free(ctx);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxPushCurrent(CUcontext handle)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(handle)) == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    return tow_soft_leave(tow_soft_stack_push(TOW_SOFT_HANDLE(handle)) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult soft_cuCtxPopCurrent(CUcontext *pctx)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t popped = tow_soft_stack_pop();
    if (popped == 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (pctx != NULL) {
        *pctx = TOW_SOFT_POINTER(popped);
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxSetCurrent(CUcontext handle)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (handle == NULL) {
        tow_soft_stack_pop();
        return tow_soft_leave(CUDA_SUCCESS);
    }
    if (tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(handle)) == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    tow_soft_stack_replace(TOW_SOFT_HANDLE(handle));
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxGetCurrent(CUcontext *pctx)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pctx == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pctx = TOW_SOFT_POINTER(tow_soft_stack_top());
    return tow_soft_leave(CUDA_SUCCESS);
}

/* The context that a call with an explicit handle means; NULL handle: the current one. */
static CUresult enter_ctx(CUcontext handle, struct tow_soft_ctx **ret_ctx)
{
    if (handle == NULL) {
        return tow_soft_enter(ret_ctx);
    }
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_ctx *ctx = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(handle));
    if (ctx == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
    }
    if (!ctx->alive) {
        return tow_soft_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    *ret_ctx = ctx;
    return CUDA_SUCCESS;
}

static CUresult soft_cuCtxGetDevice_v2(CUdevice *device, CUcontext handle)
{
    if (handle == NULL) { /* answered also for a context in error or not yet retained */
        CUresult result = tow_soft_enter_any();
        if (result != CUDA_SUCCESS) {
            return result;
        }
        struct tow_soft_ctx *current = tow_soft_current();
        if (current == NULL || device == NULL) {
            return tow_soft_leave(current == NULL ? CUDA_ERROR_INVALID_CONTEXT
                                                  : CUDA_ERROR_INVALID_VALUE);
        }
        *device = current->device->ordinal;
        return tow_soft_leave(CUDA_SUCCESS);
    }
    struct tow_soft_ctx *ctx;
    CUresult result = enter_ctx(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (device == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *device = ctx->device->ordinal;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxGetDevice(CUdevice *device)
{
    return soft_cuCtxGetDevice_v2(device, NULL);
}

static CUresult soft_cuCtxGetFlags(unsigned int *flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = ctx->flags | CU_CTX_MAP_HOST; /* it always can */
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxSetFlags(unsigned int flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!flags_ok(flags)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    ctx->flags = flags;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxGetId(CUcontext handle, unsigned long long *ctxId)
{
    struct tow_soft_ctx *ctx;
    CUresult result = enter_ctx(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ctxId == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *ctxId = ctx->id;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult context_synchronize(struct tow_soft_ctx *ctx)
{
    CUresult result = tow_soft_capture_forbid_all(ctx);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    uint64_t handle = ctx->object.handle;
    return tow_soft_leave_printed(handle, tow_soft_ctx_wait(ctx));
}

static CUresult soft_cuCtxSynchronize(void)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    return result == CUDA_SUCCESS ? context_synchronize(ctx) : result;
}

static CUresult soft_cuCtxSynchronize_v2(CUcontext handle)
{
    struct tow_soft_ctx *ctx;
    CUresult result = enter_ctx(handle, &ctx);
    return result == CUDA_SUCCESS ? context_synchronize(ctx) : result;
}

static CUresult soft_cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        if (value > 512 * 1024) {
            result = CUDA_ERROR_INVALID_VALUE;
        }
        value = tow_soft_round_up(value, 16);
        break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
        if (value > PRINT_MAX) {
            result = CUDA_ERROR_INVALID_VALUE;
        }
        break;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        if (ctx->heap_base != 0) {
            result = CUDA_ERROR_INVALID_VALUE; /* a kernel that uses malloc has run */
        } else if (value > ctx->device->total) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        break;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        value = value > 128 ? 128 : value;
        break;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        value = 0;
        break;
    default:
        result = CUDA_ERROR_UNSUPPORTED_LIMIT;
        break;
    }
    if (result == CUDA_SUCCESS) {
        tow_mutex_lock(&ctx->print_lock); /* kernels that print read one of them */
        ctx->limits[limit] = value;
        tow_mutex_unlock(&ctx->print_lock);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pvalue == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (limit == CU_LIMIT_CIG_ENABLED || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED) {
        /* No context of ours shares a device with graphics. cuBLAS refuses to work without an
         * answer. */
        *pvalue = 0;
        return tow_soft_leave(CUDA_SUCCESS);
    }
    if ((int)limit < 0 || limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE) {
        return tow_soft_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
    }
    *pvalue = ctx->limits[limit];
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pconfig == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pconfig = ctx->cache;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if ((int)config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    ctx->cache = config;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (pConfig == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *pConfig = ctx->shared_config;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return tow_soft_leave((int)config < 0 || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
                              ? CUDA_ERROR_INVALID_VALUE
                              : CUDA_SUCCESS);
}

static CUresult soft_cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
    struct tow_soft_ctx *ctx;
    CUresult result = enter_ctx(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (version == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *version = ctx->version;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (leastPriority != NULL) {
        *leastPriority = 0;
    }
    if (greatestPriority != NULL) {
        *greatestPriority = -5;
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxResetPersistingL2Cache(void)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    return result == CUDA_SUCCESS ? tow_soft_leave(result) : result;
}

static CUresult soft_cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity,
                                          CUexecAffinityType type)
{
    (void)pExecAffinity;
    (void)type;
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    return result == CUDA_SUCCESS ? tow_soft_leave(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY) : result;
}

static CUresult soft_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    if (pctx == NULL || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    ctx->attached++;
    *pctx = TOW_SOFT_POINTER(ctx->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxDetach(CUcontext handle)
{
    struct tow_soft_ctx *ctx;
    CUresult result = enter_ctx(handle, &ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (ctx->attached > 0) {
        ctx->attached--;
        return tow_soft_leave(CUDA_SUCCESS);
    }
    tow_soft_leave(CUDA_SUCCESS);
    return soft_cuCtxDestroy(handle);
}

static CUresult context_peer(CUcontext peerContext, bool enable)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_ctx *other = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(peerContext));
    if (other == NULL || other == ctx || other->device == ctx->device) {
        return tow_soft_leave(other == NULL  ? CUDA_ERROR_INVALID_CONTEXT
                              : other == ctx ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
                              : enable       ? CUDA_ERROR_INVALID_DEVICE
                                             : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    unsigned bit = 1u << other->device->ordinal;
    bool enabled = (atomic_load(&ctx->visible) & bit) != 0;
    if (enable == enabled) {
        return tow_soft_leave(enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
                                     : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    atomic_fetch_xor(&ctx->visible, bit);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    return Flags != 0 ? CUDA_ERROR_INVALID_VALUE : context_peer(peerContext, true);
}

static CUresult soft_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    return context_peer(peerContext, false);
}

void tow_soft_fill_context(struct tow_driver *driver)
{
    tow_driver_set(driver, cuDevicePrimaryCtxRetain, soft_cuDevicePrimaryCtxRetain);
    tow_driver_set(driver, cuDevicePrimaryCtxRelease, soft_cuDevicePrimaryCtxRelease);
    tow_driver_set(driver, cuDevicePrimaryCtxRelease_v2, soft_cuDevicePrimaryCtxRelease);
    tow_driver_set(driver, cuDevicePrimaryCtxReset, soft_cuDevicePrimaryCtxReset);
    tow_driver_set(driver, cuDevicePrimaryCtxReset_v2, soft_cuDevicePrimaryCtxReset);
    tow_driver_set(driver, cuDevicePrimaryCtxSetFlags, soft_cuDevicePrimaryCtxSetFlags);
    tow_driver_set(driver, cuDevicePrimaryCtxSetFlags_v2, soft_cuDevicePrimaryCtxSetFlags);
    tow_driver_set(driver, cuDevicePrimaryCtxGetState, soft_cuDevicePrimaryCtxGetState);
    tow_driver_set(driver, cuCtxCreate, soft_cuCtxCreate_v2);
    tow_driver_set(driver, cuCtxCreate_v2, soft_cuCtxCreate_v2);
    tow_driver_set(driver, cuCtxCreate_v3, soft_cuCtxCreate_v3);
    tow_driver_set(driver, cuCtxCreate_v4, soft_cuCtxCreate_v4);
    tow_driver_set(driver, cuCtxDestroy, soft_cuCtxDestroy);
    tow_driver_set(driver, cuCtxDestroy_v2, soft_cuCtxDestroy);
    tow_driver_set(driver, cuCtxPushCurrent, soft_cuCtxPushCurrent);
    tow_driver_set(driver, cuCtxPushCurrent_v2, soft_cuCtxPushCurrent);
    tow_driver_set(driver, cuCtxPopCurrent, soft_cuCtxPopCurrent);
    tow_driver_set(driver, cuCtxPopCurrent_v2, soft_cuCtxPopCurrent);
    tow_driver_set(driver, cuCtxSetCurrent, soft_cuCtxSetCurrent);
    tow_driver_set(driver, cuCtxGetCurrent, soft_cuCtxGetCurrent);
    tow_driver_set(driver, cuCtxGetDevice, soft_cuCtxGetDevice);
    tow_driver_set(driver, cuCtxGetDevice_v2, soft_cuCtxGetDevice_v2);
    tow_driver_set(driver, cuCtxGetFlags, soft_cuCtxGetFlags);
    tow_driver_set(driver, cuCtxSetFlags, soft_cuCtxSetFlags);
    tow_driver_set(driver, cuCtxGetId, soft_cuCtxGetId);
    tow_driver_set(driver, cuCtxSynchronize, soft_cuCtxSynchronize);
    tow_driver_set(driver, cuCtxSynchronize_v2, soft_cuCtxSynchronize_v2);
    tow_driver_set(driver, cuCtxSetLimit, soft_cuCtxSetLimit);
    tow_driver_set(driver, cuCtxGetLimit, soft_cuCtxGetLimit);
    tow_driver_set(driver, cuCtxGetCacheConfig, soft_cuCtxGetCacheConfig);
    tow_driver_set(driver, cuCtxSetCacheConfig, soft_cuCtxSetCacheConfig);
    tow_driver_set(driver, cuCtxGetSharedMemConfig, soft_cuCtxGetSharedMemConfig);
    tow_driver_set(driver, cuCtxSetSharedMemConfig, soft_cuCtxSetSharedMemConfig);
    tow_driver_set(driver, cuCtxGetApiVersion, soft_cuCtxGetApiVersion);
    tow_driver_set(driver, cuCtxGetStreamPriorityRange, soft_cuCtxGetStreamPriorityRange);
    tow_driver_set(driver, cuCtxResetPersistingL2Cache, soft_cuCtxResetPersistingL2Cache);
    tow_driver_set(driver, cuCtxGetExecAffinity, soft_cuCtxGetExecAffinity);
    tow_driver_set(driver, cuCtxAttach, soft_cuCtxAttach);
    tow_driver_set(driver, cuCtxDetach, soft_cuCtxDetach);
    tow_driver_set(driver, cuCtxEnablePeerAccess, soft_cuCtxEnablePeerAccess);
    tow_driver_set(driver, cuCtxDisablePeerAccess, soft_cuCtxDisablePeerAccess);
}
