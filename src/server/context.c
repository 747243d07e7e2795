/* Contexts. The client counts retains itself: a command comes only when a context begins or ends.
 */
#include "server/context.h"

#include "gen/server_api.h"
#include "server/copy.h"
#include "server/session.h"
#include "server/share.h"
#include "server/watch.h"
#include "wire/id.h"

/* What the client keeps of a context it has got; tow_context_take_facts in src/client/context.c
 * reads it. */
static void write_facts(const struct tow_driver *driver, CUcontext context, struct tow_enc *enc)
{
    unsigned version = 0, flags = 0;
    int least = 0, greatest = 0;
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_NONE;
    CUsharedconfig shared = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    uint32_t known = 0;
    uint64_t limits[CU_LIMIT_MAX] = {0};
    if (driver->cuCtxGetApiVersion(context, &version) != CUDA_SUCCESS) {
        version = 3020;
    }
    bool pushed = driver->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    if (pushed) {
        driver->cuCtxGetFlags(&flags);
        driver->cuCtxGetStreamPriorityRange(&least, &greatest);
        driver->cuCtxGetCacheConfig(&cache);
        driver->cuCtxGetSharedMemConfig(&shared);
        for (unsigned i = 0; i < CU_LIMIT_MAX; i++) {
            size_t value = 0;
            if (driver->cuCtxGetLimit(&value, (CUlimit)i) == CUDA_SUCCESS) {
                limits[i] = value;
                known |= 1u << i;
            }
        }
        CUcontext popped = NULL;
        driver->cuCtxPopCurrent_v2(&popped);
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

void tow_context_put_facts(struct tow_serve *call, CUcontext context)
{
    tow_serve_reserve(call, FACTS_SIZE);
    write_facts(call->driver, context, &call->out);
}

bool tow_context_describe_ahead(const struct tow_driver *driver, struct tow_enc *enc)
{
    unsigned flags = 0;
    int active = 0;
    CUdevice device;
    CUcontext context = NULL;
    if (driver->cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        driver->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        driver->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
        return false;
    }
    write_facts(driver, context, enc);
    driver->cuDevicePrimaryCtxRelease_v2(device);
    return true;
}

void tow_serve_cuDevicePrimaryCtxRetain(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    CUcontext context = NULL;
    if (!tow_serve_ready(call)) {
        return;
    }
    call->status = call->driver->cuDevicePrimaryCtxRetain(&context, device);
    if (call->status == CUDA_SUCCESS) {
        tow_serve_bind(call, TOW_H_CONTEXT, id, context);
        if (call->malformed) {
            call->driver->cuDevicePrimaryCtxRelease_v2(device);
            return;
        }
        tow_context_put_facts(call, context);
        atomic_store_explicit(&call->session->stats->device, device, memory_order_relaxed);
    }
}

/* Forgets what was in a context that is about to end: the driver's handles are of no use any more.
 */
struct drop {
    struct tow_session *session;
    uint32_t context;
};

static void drop_entry(void *user, uint64_t id, const struct tow_handle_entry *entry)
{
    const struct drop *drop = user;
    unsigned kind = TOW_ID_KIND(id);
    /* Libraries, kernels and graphs belong to no context. */
    if (entry->context == drop->context &&
        (kind == TOW_H_STREAM || kind == TOW_H_EVENT || kind == TOW_H_MODULE ||
         kind == TOW_H_FUNCTION || kind == TOW_H_ARRAY || kind == TOW_H_MIPMAPPEDARRAY)) {
        tow_handles_unbind(&drop->session->handles, id);
    }
}

void tow_context_drop(struct tow_session *session, uint64_t id)
{
    struct drop drop = {session, TOW_ID_INDEX(id)};
    tow_copy_drop_context(session, drop.context);
    tow_session_drop_context(session, drop.context);
    tow_share_drop_context(session, drop.context);
    tow_handles_each(&session->handles, TOW_H_NONE, drop_entry, &drop);
    tow_handles_unbind(&session->handles, id);
    tow_watch_drop_context(session, drop.context);
    tow_session_forget_current();
}

void tow_serve_cuDevicePrimaryCtxRelease_v2(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    if (!tow_serve_ready(call)) {
        return;
    }
    tow_context_drop(call->session, id);
    call->status = call->driver->cuDevicePrimaryCtxRelease_v2(device);
    /* The worker itself may keep the context warm; for the program it is to be empty. */
    unsigned flags = 0;
    int active = 0;
    if (call->driver->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
        active) {
        call->driver->cuDevicePrimaryCtxReset_v2(device);
    }
}

void tow_serve_cuDevicePrimaryCtxReset_v2(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    if (!tow_serve_ready(call)) {
        return;
    }
    tow_context_drop(call->session, id);
    call->status = call->driver->cuDevicePrimaryCtxReset_v2(device);
}

void tow_serve_cuCtxCreate_v4(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    uint32_t flags = tow_dec_u32(&call->in);
    uint32_t count =
        tow_dec_count(&call->in, CU_EXEC_AFFINITY_TYPE_MAX, sizeof(CUexecAffinityParam));
    tow_dec_u32(&call->in);
    CUexecAffinityParam *params = tow_serve_array(call, count, sizeof *params);
    CUcontext context = NULL;
    if (!tow_serve_ready(call)) {
        return;
    }
    call->status = count == 0
                       ? call->driver->cuCtxCreate_v2(&context, flags, device)
                       : call->driver->cuCtxCreate_v3(&context, params, (int)count, flags, device);
    if (call->status != CUDA_SUCCESS) {
        return;
    }
    /* It came onto this server thread's stack; the client has a stack of its own. */
    CUcontext popped = NULL;
    call->driver->cuCtxPopCurrent_v2(&popped);
    tow_session_forget_current();
    tow_serve_bind(call, TOW_H_CONTEXT, id, context);
    if (call->malformed) {
        call->driver->cuCtxDestroy_v2(context);
        return;
    }
    tow_context_put_facts(call, context);
    atomic_store_explicit(&call->session->stats->device, device, memory_order_relaxed);
}

void tow_serve_cuCtxDestroy_v2(struct tow_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUcontext context = tow_serve_handle(call, TOW_H_CONTEXT, id);
    if (!tow_serve_ready(call)) {
        return;
    }
    tow_context_drop(call->session, id);
    call->status = call->driver->cuCtxDestroy_v2(context);
}
