/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: primary and created ones, the stack of each thread, and what their end takes with it.
 */
#include "client/stream/context.h"

#include "base/mutex.h"
#include "client/completion/completion.h"

#include <stdlib.h>
#include <string.h>

#include "client/link/call.h"
#include "client/link/device.h"
#include "client/session/handle.h"
#include "gen/context_client.h"
#include "wire/result.h"

/* Process-wide: one primary context for each device that the program sees; ids that are never
 * reused. */
static struct {
    struct tow_mutex lock; /* guards writing of all below */
    _Atomic(struct towc_context *) primaries[TOW_SNAPSHOT_DEVICES_MAX];
    struct towc_context *dead; /* any thread may have any context on its stack */
} contexts = {.lock = TOW_MUTEX(CLIENT_CONTEXTS)};
static _Atomic uint64_t uniques;

/* ---- finding ---- */

struct towc_context *towc_context_find(CUcontext handle)
{
    return towc_handle_object(TOW_H_CONTEXT, (uint64_t)(uintptr_t)handle);
}

struct towc_context *towc_context_or_current(CUcontext handle)
{
    return handle != NULL ? towc_context_find(handle) : towc_context_current();
}

CUresult towc_context_link(struct towc_link **ret_link)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    const struct towc_thread *self = towc_thread_here;
    if (self == NULL || self->depth == 0 || self->in_hostfn) {
        return self != NULL && self->in_hostfn ? CUDA_ERROR_NOT_PERMITTED
                                               : CUDA_ERROR_INVALID_CONTEXT;
    }
    struct towc_context *context = self->stack[self->depth - 1];
    *ret_link = context->link;
    return (CUresult)atomic_load_explicit(&context->sticky, memory_order_relaxed);
}

struct towc_context *towc_context_make(CUdevice device, bool primary)
{
    struct towc_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return NULL;
    }
    uint64_t id = 0;
    context->default_completion = calloc(1, sizeof *context->default_completion);
    if (context->default_completion == NULL ||
        towc_handle_mint_object(TOW_H_CONTEXT, context, &id) != CUDA_SUCCESS) {
        free(context->default_completion);
        free(context);
        return NULL;
    }
    context->handle = (CUcontext)(uintptr_t)id;
    context->number = TOW_ID_INDEX(id);
    context->unique = atomic_fetch_add_explicit(&uniques, 1, memory_order_relaxed) + 1;
    context->device = device;
    context->link = towc_device_at(device)->link;
    context->primary = primary;
    context->api_version = 3020;
    atomic_init(&context->cache_config, -1);
    atomic_init(&context->shared_config, -1);
    tow_mutex_init(&context->lock, CLIENT_CONTEXT);
    pthread_cond_init(&context->changed, NULL);
    tow_mutex_init(&context->default_completion->lock, CLIENT_STREAM_WATCH);
    context->default_completion->polled = true;
    return context;
}

void towc_context_discard(struct towc_context *context)
{
    towc_handle_retire((uint64_t)(uintptr_t)context->handle);
    pthread_cond_destroy(&context->changed);
    tow_mutex_fini(&context->lock);
    tow_mutex_fini(&context->default_completion->lock);
    free(context->default_completion);
    free(context);
}

struct towc_context *towc_context_primary(CUdevice device)
{
    if (towc_device_at(device) == NULL) {
        return NULL;
    }
    struct towc_context *context =
        atomic_load_explicit(&contexts.primaries[device], memory_order_acquire);
    if (context == NULL) {
        tow_mutex_lock(&contexts.lock);
        context = atomic_load_explicit(&contexts.primaries[device], memory_order_relaxed);
        if (context == NULL) {
            context = towc_context_make(device, true);
            atomic_store_explicit(&contexts.primaries[device], context, memory_order_release);
        }
        tow_mutex_unlock(&contexts.lock);
    }
    return context;
}

/* A destroyed context may still be on some thread's stack: it is kept, out of the way. */
static void context_bury(struct towc_context *context)
{
    tow_mutex_lock(&contexts.lock);
    context->next_dead = contexts.dead;
    contexts.dead = context;
    tow_mutex_unlock(&contexts.lock);
}

/* ---- errors that stay ---- */

void towc_context_take_error(struct towc_context *context, CUresult status)
{
    if (context != NULL && tow_result_is_sticky(status)) {
        int none = CUDA_SUCCESS;
        atomic_compare_exchange_strong(&context->sticky, &none, (int)status);
    }
}

struct returned {
    uint32_t number;
    CUresult status;
};

static void take_error_if(void *user, uint64_t id, void *object)
{
    const struct returned *returned = user;
    if (TOW_ID_INDEX(id) == returned->number) {
        towc_context_take_error(object, returned->status);
    }
}

void towc_context_take_error_of(uint32_t number, CUresult status)
{
    struct returned returned = {number, status};
    towc_handle_each(TOW_H_CONTEXT, take_error_if, &returned);
}

/* ---- beginning and ending, with the server ---- */

/* What a server says of a context it has just made; see put_facts in src/server/family/context.c.
 */
void towc_context_take_facts(struct towc_context *context, struct tow_dec *dec)
{
    context->api_version = tow_dec_u32(dec);
    atomic_store(&context->flags, tow_dec_u32(dec));
    context->least_priority = tow_dec_i32(dec);
    context->greatest_priority = tow_dec_i32(dec);
    atomic_store(&context->cache_config, tow_dec_i32(dec));
    atomic_store(&context->shared_config, tow_dec_i32(dec));
    uint32_t known = tow_dec_u32(dec);
    uint32_t count = tow_dec_count(dec, CU_LIMIT_MAX, sizeof(uint64_t));
    for (uint32_t i = 0; i < count; i++) {
        atomic_store(&context->limits[i], tow_dec_u64(dec));
    }
    atomic_store(&context->limits_known, known & ((1u << count) - 1));
}

static CUresult ask_for_end(struct towc_context *context)
{
    /* The server knows the context by the command's header: no need of the newer function there. */
    struct towc_call call;
    CUresult status =
        towc_call_begin_on(&call, context->link, context->number, TOW_FN_cuCtxSynchronize, 0,
                           TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    return status == CUDA_SUCCESS ? towc_call_end(&call, towc_call_wait(&call)) : status;
}

/* Process-wide: the library's own rooms, the same for every context. Set before there is one. */
static towc_context_end_hook *end_hooks[TOW_TURNS];

void towc_context_at_end(enum towc_context_turn turn, towc_context_end_hook *hook)
{
    end_hooks[turn] = hook;
}

static void take_turn(struct towc_context *context, enum towc_context_turn turn)
{
    if (end_hooks[turn] != NULL) {
        end_hooks[turn](context);
    }
}

void towc_context_ended(struct towc_context *context)
{
    towc_link_doubts(context->link);
    atomic_fetch_sub(&context->link->work.contexts, 1);
    take_turn(context, TOW_TURN_ENDED);
}

/* The context ends for the program: whatever was made in it is gone, libraries are told. */
void towc_context_end(struct towc_context *context)
{
    /* Its host functions run before, and may use all that is in it. */
    if (atomic_load(&context->link->hostfns.turns) != 0 && !towc_thread_in_hostfn()) {
        ask_for_end(context);
    }
    for (unsigned turn = 0; turn < TOW_TURN_ENDED; turn++) {
        take_turn(context, turn);
    }
    atomic_fetch_add(&context->epoch, 1);
    atomic_store(&context->alive, false);
    towc_completion_void(context->default_completion);
    atomic_store(&context->limits_known, 0);
    atomic_store(&context->cache_config, -1);
    atomic_store(&context->shared_config, -1);
}

static CUresult check_device(CUdevice device, struct towc_context **ret_context)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (towc_device_at(device) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *ret_context = towc_context_primary(device);
    return *ret_context != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Whether the welcome told all about this context: once, and while nobody has changed it. */
static bool take_ahead(const struct towc_context *context)
{
    return towc_device_to_server(context->device) == 0 &&
           atomic_exchange(&context->link->context_ahead, false);
}

/* With the right to change it: the server ends it. */
static CUresult send_end(struct towc_context *context, unsigned fn)
{
    struct towc_call call;
    CUresult status = towc_call_begin_on(&call, context->link, 0, fn, 16, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)context->handle);
        tow_enc_u32(&call.enc, (uint32_t)towc_device_to_server(context->device));
        status = towc_call_end(&call, towc_call_wait(&call));
        atomic_store(&context->sticky, CUDA_SUCCESS);
    }
    return status;
}

/* With the right to change it. */
static CUresult begin_primary(struct towc_context *context)
{
    struct towc_call call;
    if (context->owed) {
        context->owed = false;
        send_end(context, TOW_FN_cuDevicePrimaryCtxRelease_v2);
    }
    bool ahead = take_ahead(context);
    CUresult status = towc_call_begin_on(&call, context->link, 0, TOW_FN_cuDevicePrimaryCtxRetain,
                                         24, ahead ? 0 : TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)context->handle);
    tow_enc_u32(&call.enc, (uint32_t)towc_device_to_server(context->device));
    tow_enc_u32(&call.enc, 0);
    if (ahead) {
        const struct tow_welcome *welcome = &context->link->welcome;
        struct tow_dec dec = tow_dec_init(welcome->context, welcome->context_size);
        status = towc_call_send(&call);
        if (status == CUDA_SUCCESS) {
            towc_context_take_facts(context, &dec);
        }
        return status;
    }
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        towc_context_take_facts(context, &call.dec);
    }
    return towc_call_end(&call, status);
}

/* Takes the right to begin or end a primary context, which is not done under its lock: the server
 * is asked, and libraries' destructors run. With the lock held; false for the thread that has the
 * right already. */
static bool take_change(struct towc_context *context)
{
    while (context->changing) {
        if (pthread_equal(context->changer, pthread_self())) {
            return false;
        }
        tow_mutex_wait(&context->lock, &context->changed);
    }
    context->changing = true;
    context->changer = pthread_self();
    return true;
}

static void give_change(struct towc_context *context)
{
    context->changing = false;
    pthread_cond_broadcast(&context->changed);
}

CUresult towc_cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    struct towc_context *context;
    CUresult status = check_device(dev, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tow_mutex_lock(&context->lock);
    if (!take_change(context)) {
        tow_mutex_unlock(&context->lock);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED; /* a destructor asks, while the context ends */
    }
    if (!atomic_load(&context->alive)) {
        tow_mutex_unlock(&context->lock);
        status = begin_primary(context);
        tow_mutex_lock(&context->lock);
        if (status == CUDA_SUCCESS) {
            atomic_store(&context->sticky, CUDA_SUCCESS);
            atomic_fetch_add(&context->link->work.contexts, 1);
            atomic_store(&context->alive, true);
        }
    }
    if (status == CUDA_SUCCESS) {
        context->retained++;
        *pctx = context->handle;
    }
    give_change(context);
    tow_mutex_unlock(&context->lock);
    return status;
}

/* With the right to change it. */
static CUresult end_primary(struct towc_context *context, unsigned fn)
{
    towc_context_end(context);
    /* The CUDA runtime releases at exit. A driver takes 0.1 s to empty a context, and the worker's
     * end frees all of it once more: that is enough, and the program waits for it. */
    CUresult status = CUDA_SUCCESS;
    context->owed = fn == TOW_FN_cuDevicePrimaryCtxRelease_v2 && towc_client_is_exiting() &&
                    (context->link->welcome.capabilities & TOW_CAN_OUTLAST) != 0;
    if (context->owed) {
        atomic_store(&context->link->awaits_end, true);
    } else {
        status = send_end(context, fn);
    }
    towc_context_ended(context);
    return status;
}

/* One user less, or all gone (`reset`): ends the context if that is what it means. */
static CUresult give_up(CUdevice device, bool reset)
{
    struct towc_context *context;
    CUresult status = check_device(device, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_mutex_lock(&context->lock);
    if (!take_change(context)) {
        tow_mutex_unlock(&context->lock);
        return CUDA_SUCCESS; /* a destructor asks for what is under way */
    }
    if (!reset && context->retained == 0) {
        status = CUDA_ERROR_INVALID_CONTEXT;
    } else if (!reset) {
        context->retained--;
    }
    /* A reset leaves the count alone. */
    bool ends =
        status == CUDA_SUCCESS && (reset || context->retained == 0) && atomic_load(&context->alive);
    if (ends) {
        tow_mutex_unlock(&context->lock);
        status = end_primary(context, reset ? TOW_FN_cuDevicePrimaryCtxReset_v2
                                            : TOW_FN_cuDevicePrimaryCtxRelease_v2);
        tow_mutex_lock(&context->lock);
    }
    give_change(context);
    tow_mutex_unlock(&context->lock);
    return status;
}

CUresult towc_cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    return give_up(dev, false);
}

CUresult towc_cuDevicePrimaryCtxRelease(CUdevice dev)
{
    /* The first version does not mind that nobody uses it. */
    CUresult status = give_up(dev, false);
    return status == CUDA_ERROR_INVALID_CONTEXT ? CUDA_SUCCESS : status;
}

CUresult towc_cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    return give_up(dev, true);
}

CUresult towc_cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    struct towc_context *context;
    CUresult status = check_device(dev, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    take_ahead(context); /* it is to be another than the welcome said */
    status = towc_send_cuDevicePrimaryCtxSetFlags_v2(dev, flags);
    if (status == CUDA_SUCCESS) {
        atomic_store(&context->flags, flags);
    }
    return status;
}

CUresult towc_cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    struct towc_context *context;
    CUresult status = check_device(dev, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (flags != NULL) {
        *flags = atomic_load_explicit(&context->flags, memory_order_relaxed) &
                 ~(unsigned)CU_CTX_MAP_HOST;
    }
    if (active != NULL) {
        *active = atomic_load_explicit(&context->alive, memory_order_relaxed);
    }
    return CUDA_SUCCESS;
}

/* ---- the stack ---- */

/* A program's host functions may not even look at their thread's stack of contexts. */
static CUresult stack_state(void)
{
    CUresult state = towc_client_state();
    return state == CUDA_SUCCESS && towc_thread_in_hostfn() ? CUDA_ERROR_NOT_PERMITTED : state;
}

static CUresult context_push(struct towc_context *context)
{
    struct towc_thread *self = towc_thread_self();
    if (self == NULL || self->depth == TOW_CONTEXT_STACK_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    self->stack[self->depth++] = context;
    return CUDA_SUCCESS;
}

bool towc_context_visit(struct towc_context *context)
{
    const struct towc_context *current = towc_context_current();
    return context != NULL && current != NULL && current->link != context->link &&
           context_push(context) == CUDA_SUCCESS;
}

void towc_context_back(bool visited)
{
    if (visited) {
        towc_thread_here->depth--;
    }
}

CUresult towc_cuCtxPushCurrent_v2(CUcontext ctx)
{
    CUresult state = stack_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = towc_context_find(ctx);
    return context != NULL ? context_push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult towc_cuCtxPopCurrent_v2(CUcontext *pctx)
{
    CUresult state = stack_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_context *context = towc_context_current();
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    towc_thread_here->depth--;
    if (pctx != NULL) {
        *pctx = context->handle;
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuCtxSetCurrent(CUcontext ctx)
{
    CUresult state = stack_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_thread *self = towc_thread_self();
    if (self == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (ctx == NULL) {
        if (self->depth > 0) {
            self->depth--;
        }
        return CUDA_SUCCESS;
    }
    struct towc_context *context = towc_context_find(ctx);
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (self->depth == 0) {
        return context_push(context);
    }
    self->stack[self->depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult towc_cuCtxGetCurrent(CUcontext *pctx)
{
    CUresult state = stack_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (pctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = towc_context_current();
    *pctx = context != NULL ? context->handle : NULL;
    return CUDA_SUCCESS;
}

/* The context that a query is about; NULL means the current one. */
static CUresult context_asked(CUcontext handle, const void *out, struct towc_context **ret_context)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_context = towc_context_or_current(handle);
    return *ret_context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult towc_cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    struct towc_context *context;
    CUresult status = context_asked(ctx, device, &context);
    if (status == CUDA_SUCCESS) {
        *device = context->device;
    }
    return status;
}

CUresult towc_cuCtxGetDevice(CUdevice *device)
{
    return towc_cuCtxGetDevice_v2(device, NULL);
}

CUresult towc_cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    struct towc_context *context;
    CUresult status = context_asked(ctx, ctxId, &context);
    if (status == CUDA_SUCCESS) {
        *ctxId = context->unique;
    }
    return status;
}

CUresult towc_cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    struct towc_context *context;
    CUresult status = context_asked(ctx, version, &context);
    if (status == CUDA_SUCCESS) {
        *version = context->api_version;
    }
    return status;
}

CUresult towc_cuCtxGetFlags(unsigned int *flags)
{
    struct towc_context *context;
    CUresult status = context_asked(NULL, flags, &context);
    if (status == CUDA_SUCCESS) {
        /* The driver maps host memory for every primary context, whatever it was asked. */
        *flags = atomic_load(&context->flags) | (context->primary ? CU_CTX_MAP_HOST : 0);
    }
    return status;
}

CUresult towc_cuCtxSetFlags(unsigned int flags)
{
    CUresult status = towc_send_cuCtxSetFlags(flags);
    if (status == CUDA_SUCCESS) {
        atomic_store(&towc_context_current()->flags, flags);
    }
    return status;
}

/* The current context, alive and well, for what only the server's context knows. */
static CUresult context_working(const void *out, struct towc_context **ret_context)
{
    CUresult status = context_asked(NULL, out, ret_context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (!atomic_load_explicit(&(*ret_context)->alive, memory_order_relaxed)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    return (CUresult)atomic_load_explicit(&(*ret_context)->sticky, memory_order_relaxed);
}

CUresult towc_cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct towc_context *context;
    static const int unused;
    CUresult status = context_working(&unused, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (leastPriority != NULL) {
        *leastPriority = context->least_priority;
    }
    if (greatestPriority != NULL) {
        *greatestPriority = context->greatest_priority;
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct towc_context *context;
    CUresult status = context_working(pvalue, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if ((unsigned)limit >= CU_LIMIT_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((atomic_load_explicit(&context->limits_known, memory_order_acquire) >> limit & 1)) {
        *pvalue = atomic_load_explicit(&context->limits[limit], memory_order_relaxed);
        return CUDA_SUCCESS;
    }
    size_t value = 0;
    status = towc_send_cuCtxGetLimit(&value, limit);
    if (status == CUDA_SUCCESS) {
        *pvalue = value;
        atomic_store_explicit(&context->limits[limit], value, memory_order_relaxed);
        atomic_fetch_or_explicit(&context->limits_known, 1u << limit, memory_order_release);
    }
    return status;
}

CUresult towc_cuCtxSetLimit(CUlimit limit, size_t value)
{
    if ((unsigned)limit >= CU_LIMIT_MAX) {
        CUresult state = towc_client_state();
        return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = towc_context_current();
    if (context != NULL) {
        /* The driver may round, and one limit may move another: ask again next time. */
        atomic_store(&context->limits_known, 0);
    }
    CUresult status = towc_send_cuCtxSetLimit(limit, value);
    if (context != NULL) {
        atomic_store(&context->limits_known, 0); /* another thread may have asked meanwhile */
    }
    return status;
}

CUresult towc_cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    struct towc_context *context;
    CUresult status = context_working(pconfig, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    int known = atomic_load(&context->cache_config);
    if (known >= 0) {
        *pconfig = (CUfunc_cache)known;
        return CUDA_SUCCESS;
    }
    status = towc_send_cuCtxGetCacheConfig(pconfig);
    if (status == CUDA_SUCCESS) {
        atomic_store(&context->cache_config, (int)*pconfig);
    }
    return status;
}

CUresult towc_cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct towc_context *context = towc_context_current();
    if (context != NULL) {
        atomic_store(&context->cache_config, -1);
    }
    return towc_send_cuCtxSetCacheConfig(config);
}

CUresult towc_cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    struct towc_context *context;
    CUresult status = context_working(pConfig, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    int known = atomic_load(&context->shared_config);
    if (known >= 0) {
        *pConfig = (CUsharedconfig)known;
        return CUDA_SUCCESS;
    }
    status = towc_send_cuCtxGetSharedMemConfig(pConfig);
    if (status == CUDA_SUCCESS) {
        atomic_store(&context->shared_config, (int)*pConfig);
    }
    return status;
}

CUresult towc_cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct towc_context *context = towc_context_current();
    if (context != NULL) {
        atomic_store(&context->shared_config, -1);
    }
    return towc_send_cuCtxSetSharedMemConfig(config);
}

CUresult towc_cuCtxSynchronize_v2(CUcontext ctx)
{
    struct towc_context *context;
    static const int unused;
    CUresult status = context_asked(ctx, &unused, &context);
    if (towc_thread_in_hostfn()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (!atomic_load_explicit(&context->alive, memory_order_relaxed)) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    int sticky = atomic_load_explicit(&context->sticky, memory_order_relaxed);
    if (sticky != CUDA_SUCCESS) {
        return (CUresult)sticky;
    }
    uint64_t number = towc_link_sent(context->link);
    uint64_t given = atomic_load(&context->link->work.given);
    if (context != towc_context_current() ||
        !towc_completion_sync_context(context->link, &status)) {
        status = ask_for_end(context);
    }
    towc_context_take_error(context, status);
    if (status == CUDA_SUCCESS) {
        towc_link_raise(&context->done, number);
        towc_link_synchronised(context->link, context->number, given);
    }
    return status;
}

CUresult towc_cuCtxSynchronize(void)
{
    return towc_cuCtxSynchronize_v2(NULL);
}

/* Both contexts of a peer call must be on one server: no other can connect them. */
static CUresult check_peer(CUcontext handle, const struct towc_context **ret_peer)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_context *self = towc_context_current();
    struct towc_context *peer = towc_context_find(handle);
    if (self == NULL || peer == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *ret_peer = peer;
    return self != peer && self->link == peer->link ? CUDA_SUCCESS
                                                    : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult towc_cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    const struct towc_context *peer;
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = check_peer(peerContext, &peer);
    return status == CUDA_SUCCESS ? towc_send_cuCtxEnablePeerAccess(peerContext, Flags) : status;
}

CUresult towc_cuCtxDisablePeerAccess(CUcontext peerContext)
{
    const struct towc_context *peer;
    CUresult status = check_peer(peerContext, &peer);
    if (status == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) {
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    return status == CUDA_SUCCESS ? towc_send_cuCtxDisablePeerAccess(peerContext) : status;
}

/* ---- contexts that the program creates itself ---- */

static CUresult context_create(CUcontext *pctx, const CUexecAffinityParam *params, int count,
                               unsigned flags, CUdevice dev)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    if (pctx == NULL || (flags & ~(unsigned)CU_CTX_FLAGS_MASK) != 0 || count < 0 ||
        count > CU_EXEC_AFFINITY_TYPE_MAX || (count > 0 && params == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (towc_device_at(dev) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    const struct towc_thread *self = towc_thread_self();
    if (self == NULL || self->depth == TOW_CONTEXT_STACK_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY; /* it could not be made current */
    }
    struct towc_context *context = towc_context_make(dev, false);
    if (context == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct towc_call call;
    CUresult status = towc_call_begin_on(&call, context->link, 0, TOW_FN_cuCtxCreate_v4,
                                         32 + (size_t)count * sizeof *params, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)context->handle);
        tow_enc_u32(&call.enc, (uint32_t)towc_device_to_server(dev));
        tow_enc_u32(&call.enc, flags);
        tow_enc_u32(&call.enc, (uint32_t)count);
        tow_enc_u32(&call.enc, 0);
        tow_enc_bytes(&call.enc, params, (size_t)count * sizeof *params);
        status = towc_call_wait(&call);
        if (status == CUDA_SUCCESS) {
            towc_context_take_facts(context, &call.dec);
        }
        status = towc_call_end(&call, status);
    }
    if (status == CUDA_SUCCESS) {
        atomic_fetch_add(&context->link->work.contexts, 1);
        atomic_store(&context->alive, true);
        status = context_push(context);
        if (status != CUDA_SUCCESS) {
            atomic_fetch_sub(&context->link->work.contexts, 1);
        }
    }
    if (status != CUDA_SUCCESS) {
        towc_context_discard(context);
        return status;
    }
    *pctx = context->handle;
    return CUDA_SUCCESS;
}

CUresult towc_cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
                             unsigned int flags, CUdevice dev)
{
    if (ctxCreateParams == NULL) {
        return context_create(pctx, NULL, 0, flags, dev);
    }
    if (ctxCreateParams->cigParams != NULL) {
        return CUDA_ERROR_NOT_SUPPORTED; /* shares a graphics context of this machine */
    }
    return context_create(pctx, ctxCreateParams->execAffinityParams,
                          ctxCreateParams->numExecAffinityParams, flags, dev);
}

CUresult towc_cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                             unsigned int flags, CUdevice dev)
{
    return context_create(pctx, paramsArray, numParams, flags, dev);
}

CUresult towc_cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return context_create(pctx, NULL, 0, flags, dev);
}

CUresult towc_cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    return context_create(pctx, NULL, 0, flags, dev);
}

CUresult towc_cuCtxDestroy_v2(CUcontext ctx)
{
    if (ctx == NULL) {
        return CUDA_ERROR_INVALID_VALUE; /* before cuInit, too */
    }
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_context *context = towc_context_find(ctx);
    if (context == NULL && towc_handle_missing(TOW_H_CONTEXT, (uint64_t)(uintptr_t)ctx) ==
                               CUDA_ERROR_CONTEXT_IS_DESTROYED) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (context == NULL || context->primary || context->green != NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    towc_context_end(context);
    struct towc_thread *self = towc_thread_self();
    if (towc_context_current() == context) {
        self->depth--;
    }
    if (towc_handle_retire((uint64_t)(uintptr_t)ctx) != context) {
        return CUDA_ERROR_INVALID_CONTEXT; /* another thread was faster */
    }
    context_bury(context);
    struct towc_call call;
    CUresult status =
        towc_call_begin_on(&call, context->link, 0, TOW_FN_cuCtxDestroy_v2, 8, TOW_CALL_REPLY);
    if (status == CUDA_SUCCESS) {
        tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)ctx);
        status = towc_call_end(&call, towc_call_wait(&call));
    }
    towc_context_ended(context);
    return status;
}

CUresult towc_cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    struct towc_context *context;
    CUresult status = context_asked(NULL, pctx, &context);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tow_mutex_lock(&context->lock);
    context->attached++;
    tow_mutex_unlock(&context->lock);
    *pctx = context->handle;
    return CUDA_SUCCESS;
}

CUresult towc_cuCtxDetach(CUcontext ctx)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS) {
        return state;
    }
    struct towc_context *context = towc_context_find(ctx);
    if (context == NULL || context != towc_context_current()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    tow_mutex_lock(&context->lock);
    bool last = context->attached == 0;
    if (!last) {
        context->attached--;
    }
    tow_mutex_unlock(&context->lock);
    return last ? towc_cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
}
