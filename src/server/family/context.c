/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts. The client counts retains itself: a command comes only when a context begins or ends.
 */
#include "server/family/context.h"

#include "gen/context_server.h"
#include "gen/green.h"
#include "gen/device.h"
#include "server/copy/copy.h"
#include "server/copy/mirror.h"
#include "server/session/session.h"
#include "server/copy/share.h"
#include "server/session/transfer.h"
#include "server/session/completion.h"
#include "wire/id.h"

/* What the client keeps of a context it has got; towc_context_take_facts in
 * src/client/stream/context.c reads it. */
static void write_facts(const struct tow_driver *driver, CUcontext context, struct tow_enc *enc)
{
    unsigned version = 0, flags = 0;
    int least = 0, greatest = 0;
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
    CUsharedconfig shared = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    uint32_t known = 0;
    uint64_t limits[CU_LIMIT_MAX] = {0};
    if (tow_drive(driver, cuCtxGetApiVersion)(context, &version) != CUDA_SUCCESS) {
        version = 3020;
    }
    bool pushed = tow_drive(driver, cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
    if (pushed) {
        tow_drive(driver, cuCtxGetFlags)(&flags);
        tow_drive(driver, cuCtxGetStreamPriorityRange)(&least, &greatest);
        tow_drive(driver, cuCtxGetCacheConfig)(&cache);
        tow_drive(driver, cuCtxGetSharedMemConfig)(&shared);
        for (unsigned i = 0; i < CU_LIMIT_MAX; i++) {
            size_t value = 0;
            if (tow_drive(driver, cuCtxGetLimit)(&value, (CUlimit)i) == CUDA_SUCCESS) {
                limits[i] = value;
                known |= 1u << i;
            }
        }
        CUcontext popped = NULL;
        tow_drive(driver, cuCtxPopCurrent_v2)(&popped);
    }
    tow_enc_u32(enc, version);
    tow_enc_u32(enc, flags);
    tow_enc_i32(enc, least);
    tow_enc_i32(enc, greatest);
    tow_enc_i32(enc, (int32_t)cache);
    tow_enc_i32(enc, (int32_t)shared);
    tow_enc_u32(enc, known);
    tow_enc_u32(enc, CU_LIMIT_MAX);
    for (unsigned i = 0; i < CU_LIMIT_MAX; i++) {
        tow_enc_u64(enc, limits[i]);
    }
}

enum { FACTS_SIZE = 32 + CU_LIMIT_MAX * sizeof(uint64_t) };
_Static_assert(FACTS_SIZE <= TOW_WELCOME_CONTEXT_MAX, "they go into the welcome");

static void put_facts(struct tows_serve *call, CUcontext context)
{
    tows_serve_reserve(call, FACTS_SIZE);
    write_facts(call->driver, context, &call->out);
}

bool tows_context_describe_ahead(const struct tow_driver *driver, struct tow_enc *enc)
{
    unsigned flags = 0;
    int active = 0;
    CUdevice device;
    CUcontext context = NULL;
    if (tow_drive(driver, cuDeviceGet)(&device, 0) != CUDA_SUCCESS ||
        tow_drive(driver, cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS ||
        !active || tow_drive(driver, cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS) {
        return false;
    }
    write_facts(driver, context, enc);
    tow_drive(driver, cuDevicePrimaryCtxRelease_v2)(device);
    return true;
}

/* ---- beginning ---- */

/* A device's primary context has one id at a time; while it begins or ends it has BUSY. */
enum { NO_ID = 0, BUSY = 1 };

bool tows_context_bind(struct tows_serve *call, uint64_t id, CUcontext context, uint32_t owner)
{
    struct tows_handles *handles = &call->session->handles;
    if (TOW_ID_KIND(id) != TOW_H_CONTEXT || TOW_ID_OF_SERVER(id) || TOW_ID_INDEX(id) == 0 ||
        tows_handles_bind_new(handles, id, context, owner) < 0) {
        call->malformed = true;
        return false;
    }
    if (call->frame.kind == TOW_FN_cuCtxFromGreenCtx &&
        atomic_load(&call->session->primaries[owner - 1]) <= BUSY) {
        tows_handles_unbind(handles, id); /* its device's primary context ends just now */
        call->status = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return false;
    }
    tows_serve_list_id(id);
    put_facts(call, context);
    return true;
}

static bool change_primary(struct tows_serve *call, CUdevice device, uint64_t from, uint64_t to)
{
    return (unsigned)device < TOW_SESSION_DEVICES_MAX &&
           atomic_compare_exchange_strong(&call->session->primaries[device], &from, to);
}

void tows_serve_cuDevicePrimaryCtxRetain(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    CUcontext context = NULL;
    if (!tows_serve_ready(call)) {
        return;
    }
    if ((unsigned)device >= TOW_SESSION_DEVICES_MAX) {
        call->status = CUDA_ERROR_INVALID_DEVICE;
        return;
    }
    if (!change_primary(call, device, NO_ID, BUSY)) {
        call->malformed = true; /* the client has it, and counts itself how often */
        return;
    }
    call->status = tow_drive(call->driver, cuDevicePrimaryCtxRetain)(&context, device);
    bool bound =
        call->status == CUDA_SUCCESS && tows_context_bind(call, id, context, (uint32_t)device + 1);
    if (call->status == CUDA_SUCCESS && !bound) {
        tow_drive(call->driver, cuDevicePrimaryCtxRelease_v2)(device);
    }
    atomic_store(&call->session->primaries[device], bound ? id : NO_ID);
    if (bound) {
        atomic_store_explicit(&call->session->stats->device, device, memory_order_relaxed);
    }
}

/* ---- ending ---- */

/* Forgets what was in a context that is about to end: the driver's handles are of no use any more.
 */
struct drop {
    struct tows_session *session;
    uint32_t context;
};

static void drop_entry(void *user, uint64_t id, const struct tows_handle_entry *entry)
{
    const struct drop *drop = user;
    unsigned kind = TOW_ID_KIND(id);
    /* Libraries, kernels and graphs belong to no context. */
    if (entry->context == drop->context &&
        (kind == TOW_H_STREAM || kind == TOW_H_EVENT || kind == TOW_H_MODULE ||
         kind == TOW_H_FUNCTION || kind == TOW_H_ARRAY || kind == TOW_H_MIPMAPPEDARRAY)) {
        tows_handles_unbind(&drop->session->handles, id);
    }
}

static void context_ended(struct tows_session *session, uint32_t owner)
{
    atomic_fetch_sub(&session->contexts_ending[owner], 1);
    tows_ending_tell(session);
}

CUresult tows_context_drop(struct tows_session *session, uint64_t id)
{
    struct drop drop = {session, TOW_ID_INDEX(id)};
    const struct tows_handle_entry *entry = tows_handles_find(&session->handles, id);
    uint32_t owner = entry != NULL ? entry->context : 0;
    uint64_t primary = owner != 0 ? atomic_load(&session->primaries[owner - 1]) : NO_ID;
    /* The memory of a green context that ends alone is its device's primary context's. Memory of no
     * context goes with that of device 0. */
    struct tows_mirror_gone gone = {.context = drop.context,
                                    .heir = primary > BUSY ? TOW_ID_INDEX(primary) : 0,
                                    .and_none = owner == 1 && primary <= BUSY};
    /* The driver may want it to be current where its events and memory are looked at. */
    CUresult status = tows_session_enter(session, drop.context);
    atomic_fetch_add(&session->contexts_ending[owner], 1);
    if (!tows_handles_end(&session->handles, id)) {
        context_ended(session, owner);
        return CUDA_ERROR_INVALID_CONTEXT; /* another thread ends it */
    }
    if (status != CUDA_SUCCESS) {
        tows_session_forget_current();
    }
    tows_session_leave_all(session);
    tows_transfer_wait_users(session);
    if (status == CUDA_SUCCESS) {
        /* As with NVIDIA's driver, whose contexts end when all of their work is done, host
         * functions included. While these run everything in the context is still there. */
        tow_drive(session->driver, cuCtxSynchronize)();
    }
    tows_mirror_forget_managed(session, &gone);
    bool dropped = tows_copy_drop_context(session, drop.context, gone.heir);
    atomic_store(&session->last_kernel, NULL);
    tows_session_drop_context(session, drop.context);
    tows_share_drop_context(session, drop.context);
    tows_handles_each(&session->handles, TOW_H_NONE, drop_entry, &drop);
    tows_completion_drop_context(session, drop.context);
    tows_session_forget_current();
    /* All of the above goes by the context's number, and may need its device's primary context. */
    tows_handles_ended(&session->handles, id);
    context_ended(session, owner);
    return dropped ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

bool tows_context_await_drop(struct tows_session *session, uint64_t id)
{
    unsigned seen = tows_ending_enter(session);
    bool goes_on = true;
    while (goes_on && tows_handles_is_ending(&session->handles, id)) {
        goes_on = tows_ending_await(session, &seen);
    }
    tows_ending_leave(session);
    return goes_on && tows_session_goes_on(session);
}

/* Contexts that share the memory of a device's primary context end with it: those of green
 * contexts, and itself. */
struct ending {
    struct tows_session *session;
    uint32_t owner;
    CUresult status;
};

static void end_entry(void *user, uint64_t id, const struct tows_handle_entry *entry)
{
    struct ending *ending = user;
    if (entry->context == ending->owner) {
        CUresult status = tows_context_drop(ending->session, id);
        if (ending->status == CUDA_SUCCESS && status != CUDA_ERROR_INVALID_CONTEXT) {
            ending->status = status; /* one that another thread ends is waited for */
        }
    }
}

/* {u64 id, u32 device}: the id is the device's primary context's, and ends. */
static bool end_primary(struct tows_serve *call, CUdevice *ret_device)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    if (!tows_serve_ready(call)) {
        return false;
    }
    if (id <= BUSY || !change_primary(call, device, id, BUSY)) {
        call->status = CUDA_ERROR_INVALID_CONTEXT;
        return false;
    }
    struct ending ending = {call->session, (uint32_t)device + 1, CUDA_SUCCESS};
    tows_handles_each(&call->session->handles, TOW_H_CONTEXT, end_entry, &ending);
    const atomic_uint *others = &call->session->contexts_ending[ending.owner];
    unsigned seen = tows_ending_enter(call->session);
    while (atomic_load(others) != 0 && ending.status == CUDA_SUCCESS) {
        /* Another thread ends one of them. */
        bool goes_on = tows_ending_await(call->session, &seen);
        ending.status = goes_on ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    }
    tows_ending_leave(call->session);
    if (ending.status != CUDA_SUCCESS) {
        call->status = ending.status;
        atomic_store(&call->session->primaries[device], NO_ID);
        return false;
    }
    *ret_device = device;
    return true;
}

void tows_serve_cuDevicePrimaryCtxRelease_v2(struct tows_serve *call)
{
    CUdevice device;
    if (!end_primary(call, &device)) {
        return;
    }
    call->status = tow_drive(call->driver, cuDevicePrimaryCtxRelease_v2)(device);
    /* The worker itself may keep the context warm; for the program it is to be empty. */
    unsigned flags = 0;
    int active = 0;
    if (tow_drive(call->driver, cuDevicePrimaryCtxGetState)(device, &flags, &active) ==
            CUDA_SUCCESS &&
        active) {
        tow_drive(call->driver, cuDevicePrimaryCtxReset_v2)(device);
    }
    atomic_store(&call->session->primaries[device], NO_ID);
}

void tows_serve_cuDevicePrimaryCtxReset_v2(struct tows_serve *call)
{
    CUdevice device;
    if (end_primary(call, &device)) {
        call->status = tow_drive(call->driver, cuDevicePrimaryCtxReset_v2)(device);
        atomic_store(&call->session->primaries[device], NO_ID);
    }
}

void tows_serve_cuCtxCreate_v4(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    uint32_t flags = tow_dec_u32(&call->in);
    uint32_t count =
        tow_dec_count(&call->in, CU_EXEC_AFFINITY_TYPE_MAX, sizeof(CUexecAffinityParam));
    tow_dec_u32(&call->in);
    CUexecAffinityParam *params = tows_serve_array(call, count, sizeof *params);
    CUcontext context = NULL;
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = count == 0 ? tow_drive(call->driver, cuCtxCreate_v2)(&context, flags, device)
                              : tow_drive(call->driver, cuCtxCreate_v3)(&context, params,
                                                                        (int)count, flags, device);
    if (call->status != CUDA_SUCCESS) {
        return;
    }
    /* It came onto this server thread's stack; the client has a stack of its own. */
    CUcontext popped = NULL;
    tow_drive(call->driver, cuCtxPopCurrent_v2)(&popped);
    tows_session_forget_current();
    if (!tows_context_bind(call, id, context, 0)) {
        tow_drive(call->driver, cuCtxDestroy_v2)(context);
        return;
    }
    atomic_store_explicit(&call->session->stats->device, device, memory_order_relaxed);
}

void tows_serve_cuCtxDestroy_v2(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUcontext context = tows_serve_handle(call, TOW_H_CONTEXT, id);
    if (!tows_serve_ready(call)) {
        return;
    }
    const struct tows_handle_entry *entry = tows_handles_find(&call->session->handles, id);
    if (entry == NULL || entry->context != 0) {
        call->status = CUDA_ERROR_INVALID_CONTEXT; /* a primary or a green one ends otherwise */
        return;
    }
    call->status = tows_context_drop(call->session, id);
    if (call->status == CUDA_SUCCESS) {
        call->status = tow_drive(call->driver, cuCtxDestroy_v2)(context);
    }
}
