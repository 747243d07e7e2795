/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps the driver's allocating functions: each reserves, allocates and books. */
#include "server/worker/account.h"
#include "base/log.h"
#include "base/mutex.h"
#include "gen/context.h"
#include "gen/device.h"
#include "gen/graph.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/pool.h"
#include "gen/stream.h"
#include "gen/texture.h"
#include "gen/vmm.h"
#include "server/session/session.h"
#include "server/worker/array_size.h"
#include "server/worker/graph_memory.h"
#include "server/worker/image_globals.h"
#include "server/worker/ledger.h"
#include "server/worker/mappings.h"
#include "server/worker/room.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEVICES_MAX = 64, NOWHERE = -1 };

/* Keys of what has no address and no handle that the driver would not give out twice. */
#define KEY_MADE (UINT64_C(1) << 63)
#define KEY_STEP 16

#define MIB(bytes) ((double)(bytes) / (1 << 20))

/* A pool that the session has made. */
struct pool {
    CUmemoryPool pool;
    int device;    /* NOWHERE: of host memory */
    unsigned uses; /* calls that name it just now */
};

/* What a limit of a context was at most. */
struct limit_seen {
    struct limit_seen *next;
    CUcontext context;
    CUlimit limit;
    uint64_t most;
};

static struct {
    struct tow_driver next; /* the driver itself */
    struct tows_ledger ledger;
    struct tows_mappings mappings;
    _Atomic uint64_t *launches; /* borrowed: only the leader launches */
    atomic_uint_least64_t made; /* keys of KEY_MADE */
    int devices;
    unsigned major; /* compute capability of the first GPU */
    const char *from;
    void (*tell)(const char *sentence);
    atomic_bool told;
    struct tow_mutex lock; /* guards all below */
    CUcontext primary[DEVICES_MAX];
    pthread_cond_t unused; /* a pool that is being destroyed is not used any more */
    struct pool *pools;    /* owned; with a quota */
    size_t pool_count, pool_room;
    struct limit_seen *limits; /* owned */
} account = {.lock = TOW_MUTEX(SERVER_ACCOUNT_POOLS), .unused = PTHREAD_COND_INITIALIZER};

/* ---- what all of them do ---- */

static bool is_limited(void)
{
    return atomic_load_explicit(&account.ledger.quota, memory_order_relaxed) != 0;
}

/* Of the current context. Where there is no quota nobody asks what each GPU has. */
static int current_device(void)
{
    CUdevice device = 0;
    if (account.devices > 1 && is_limited() &&
        tow_drive(&account.next, cuCtxGetDevice)(&device) != CUDA_SUCCESS) {
        return 0; /* the driver will say what is wrong */
    }
    return (int)device;
}

static CUcontext current_context(void)
{
    CUcontext context = NULL;
    tow_drive(&account.next, cuCtxGetCurrent)(&context);
    return context;
}

/* Once: who is refused often asks often. */
static void account_tell(int device, uint64_t size)
{
    char sentence[320];
    if (atomic_exchange(&account.told, true)) {
        return;
    }
    uint64_t quota = account.ledger.quota;
    snprintf(sentence, sizeof sentence,
             "%.1f MiB of GPU memory were refused: this program may have %.1f MiB of each GPU "
             "(%s), and %.1f MiB are left",
             MIB(size), MIB(quota), account.from,
             MIB(tows_ledger_left(&account.ledger, (unsigned)device)));
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "%s", sentence);
    account.tell(sentence);
}

/* The same where the quota is not what refuses it. */
static void tell_full(uint64_t size)
{
    char sentence[320];
    if (atomic_exchange(&account.told, true)) {
        return;
    }
    snprintf(sentence, sizeof sentence,
             "%.1f MiB of GPU memory were refused: other programs have it, and theirs cannot be "
             "put out (overcommit = swap); towline status on the server shows swap-memory and what "
             "is used of it",
             MIB(size));
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "%s", sentence);
    account.tell(sentence);
}

/* Lengthens `held` by what a pool has, or gives back what it does not use. */
static void ask_pool(CUmemoryPool pool, bool trims, struct tows_ledger_held *held)
{
    cuuint64_t bytes = 0;
    if (trims) {
        tow_drive(&account.next, cuMemPoolTrimTo)(pool, 0);
    }
    if (tow_drive(&account.next, cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                                        &bytes) == CUDA_SUCCESS) {
        held->bytes[TOW_LEDGER_POOL] += bytes;
    }
}

/* The first pool of a GPU from `number` on, which is used until the caller has done with it. */
static size_t use_pool(int device, size_t number, CUmemoryPool *ret)
{
    tow_mutex_lock(&account.lock);
    while (number < account.pool_count && account.pools[number].device != device) {
        number++;
    }
    *ret = number < account.pool_count ? account.pools[number].pool : NULL;
    if (*ret != NULL) {
        account.pools[number].uses++;
    }
    tow_mutex_unlock(&account.lock);
    return number;
}

/* With the lock held; NULL: it is not known. */
static struct pool *find_pool(CUmemoryPool pool)
{
    for (size_t i = 0; i < account.pool_count; i++) {
        if (account.pools[i].pool == pool) {
            return &account.pools[i];
        }
    }
    return NULL;
}

static void leave_pool(CUmemoryPool pool)
{
    tow_mutex_lock(&account.lock);
    find_pool(pool)->uses--;
    pthread_cond_broadcast(&account.unused);
    tow_mutex_unlock(&account.lock);
}

/* What pools and graphs hold on a GPU, with what was freed. */
static struct tows_ledger_held ask_pools(int device, bool trims)
{
    struct tows_ledger_held held = {.is_reused = true};
    CUmemoryPool pool = NULL;
    cuuint64_t bytes = 0;
    if (tow_drive(&account.next, cuDeviceGetDefaultMemPool)(&pool, device) == CUDA_SUCCESS) {
        ask_pool(pool, trims, &held);
    }
    for (size_t i = use_pool(device, 0, &pool); pool != NULL; i = use_pool(device, i + 1, &pool)) {
        held.is_reused = false; /* not by another pool */
        ask_pool(pool, trims, &held);
        leave_pool(pool);
    }
    if (trims) {
        tow_drive(&account.next, cuDeviceGraphMemTrim)(device);
    }
    if (tow_drive(&account.next, cuDeviceGetGraphMemAttribute)(
            device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS) {
        held.bytes[TOW_LEDGER_GRAPH] = bytes;
    }
    return held;
}

/* Room for all that the session has of a GPU, with what was reserved just now: others may have to
 * make some (overcommit = swap). Pools are trimmed before anybody is refused. */
static bool account_hold(int device)
{
    unsigned gpu = (unsigned)device;
    bool has = !tows_room_is_on() || tows_room_has(gpu, tows_ledger_holds(&account.ledger, gpu));
    for (unsigned i = 0; !has && i < 2; i++) {
        struct tows_ledger_held held = ask_pools(device, i > 0);
        tows_ledger_learn(&account.ledger, gpu, &held);
        has = tows_room_hold(gpu, tows_ledger_holds(&account.ledger, gpu));
    }
    return has;
}

/* Before the driver is asked for `size` bytes. False: the session may not have them. What pools
 * keep of what was freed goes back to the GPU first, so that the quota bounds what the session
 * holds there. */
static bool account_reserve(int device, uint64_t size, enum tows_ledger_kind kind)
{
    if (device == NOWHERE || !is_limited()) {
        return true;
    }
    enum tows_ledger_answer answer =
        tows_ledger_reserve(&account.ledger, (unsigned)device, size, kind, NULL);
    /* The last time it is for what others have freed while they were asked. */
    for (unsigned i = 0; i < 3 && answer == TOW_LEDGER_ASK; i++) {
        struct tows_ledger_held held = ask_pools(device, i > 0);
        answer = tows_ledger_reserve(&account.ledger, (unsigned)device, size, kind, &held);
    }
    if (answer == TOW_LEDGER_FITS && !account_hold(device)) {
        tows_ledger_give_back(&account.ledger, (unsigned)device, size, kind);
        tell_full(size);
        return false;
    }
    if (answer != TOW_LEDGER_FITS) {
        account_tell(device, size);
    }
    return answer == TOW_LEDGER_FITS;
}

/* For more of what was reserved. */
static bool reserve_more(int device, uint64_t size)
{
    if (!tows_ledger_reserve_more(&account.ledger, (unsigned)device, size)) {
        return false;
    }
    if (is_limited() && !account_hold(device)) {
        tows_ledger_give_back(&account.ledger, (unsigned)device, size, TOW_LEDGER_PLAIN);
        return false;
    }
    return true;
}

static void account_book(uint64_t key, int device, uint64_t size, enum tows_ledger_kind kind,
                         CUcontext context)
{
    if (device != NOWHERE) {
        const struct tows_ledger_entry entry = {
            .key = key, .size = size, .device = (unsigned)device, .kind = kind, .context = context};
        tows_ledger_book(&account.ledger, &entry);
    }
}

/* After the driver was asked: what it gave is booked. */
static CUresult account_confirm(CUresult result, uint64_t key, int device, uint64_t size,
                                bool of_context)
{
    if (result == CUDA_SUCCESS) {
        account_book(key, device, size, TOW_LEDGER_PLAIN, of_context ? current_context() : NULL);
    } else if (device != NOWHERE) {
        tows_ledger_give_back(&account.ledger, (unsigned)device, size, TOW_LEDGER_PLAIN);
    }
    return result;
}

static uint64_t account_holds(unsigned device)
{
    return tows_ledger_holds(&account.ledger, device);
}

/* Others may have the room of what was freed. */
static void account_shrink(void)
{
    for (int i = 0; tows_room_is_on() && i < account.devices; i++) {
        tows_room_shrink((unsigned)i, account_holds);
    }
}

static void account_drop(uint64_t key)
{
    tows_ledger_drop(&account.ledger, key);
    account_shrink();
}

static uint64_t make_key(void)
{
    return KEY_MADE | (atomic_fetch_add(&account.made, 1) + 1) * KEY_STEP;
}

/* ---- memory with an address ---- */

static CUresult account_alloc(CUdeviceptr *ret, size_t size)
{
    int device = current_device();
    if (!account_reserve(device, size, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuMemAlloc_v2)(ret, size);
    return account_confirm(result, result == CUDA_SUCCESS ? *ret : 0, device, size, true);
}

/* How long a row is the driver alone knows. What is asked for is reserved before, the rest
 * afterwards. Where that does not fit all goes back, and it is tried with what is known then. */
static CUresult alloc_pitch(CUdeviceptr *ret, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    int device = current_device();
    uint64_t size;
    if (__builtin_mul_overflow((uint64_t)width, (uint64_t)height, &size)) {
        size = UINT64_MAX;
    }
    for (;;) {
        uint64_t least = size;
        if (!account_reserve(device, least, TOW_LEDGER_PLAIN)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        CUresult result =
            tow_drive(&account.next, cuMemAllocPitch_v2)(ret, pitch, width, height, element);
        size = result == CUDA_SUCCESS ? (uint64_t)*pitch * height : least;
        uint64_t known = tows_ledger_charge(least), real = tows_ledger_charge(size);
        if (real <= known || reserve_more(device, real - known)) {
            return account_confirm(result, result == CUDA_SUCCESS ? *ret : 0, device,
                                   real < known ? least : size, true);
        }
        tow_drive(&account.next, cuMemFree_v2)(*ret);
        tows_ledger_give_back(&account.ledger, (unsigned)device, least, TOW_LEDGER_PLAIN);
    }
}

static CUresult alloc_managed(CUdeviceptr *ret, size_t size, unsigned int flags)
{
    int device = current_device();
    if (!account_reserve(device, size, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuMemAllocManaged)(ret, size, flags);
    return account_confirm(result, result == CUDA_SUCCESS ? *ret : 0, device, size, true);
}

static CUresult free_now(CUdeviceptr at)
{
    CUresult result = tow_drive(&account.next, cuMemFree_v2)(at);
    if (result == CUDA_SUCCESS) {
        account_drop(at);
        tows_graph_memory_freed(at);
    }
    return result;
}

/* ---- pools ---- */

/* What is captured is a node of a graph: it counts when that becomes executable. */
static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return account.ledger.quota != 0 &&
           tow_drive(&account.next, cuStreamIsCapturing)(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The device of a pool that the session has made; else that of the context. */
static int pool_device(CUmemoryPool pool)
{
    int device = current_device();
    if (is_limited()) {
        tow_mutex_lock(&account.lock);
        const struct pool *known = find_pool(pool);
        device = known != NULL ? known->device : device;
        tow_mutex_unlock(&account.lock);
    }
    return device;
}

static CUresult pool_confirm(CUresult result, const CUdeviceptr *at, int device, size_t size)
{
    if (result == CUDA_SUCCESS) {
        account_book(*at, device, size, TOW_LEDGER_POOL, NULL);
    } else if (device != NOWHERE) {
        tows_ledger_give_back(&account.ledger, (unsigned)device, size, TOW_LEDGER_POOL);
    }
    return result;
}

static CUresult alloc_async(CUdeviceptr *ret, size_t size, CUstream stream)
{
    if (is_captured(stream)) {
        return tow_drive(&account.next, cuMemAllocAsync)(ret, size, stream);
    }
    int device = current_device();
    if (!account_reserve(device, size, TOW_LEDGER_POOL)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return pool_confirm(tow_drive(&account.next, cuMemAllocAsync)(ret, size, stream), ret, device,
                        size);
}

static CUresult alloc_from_pool(CUdeviceptr *ret, size_t size, CUmemoryPool pool, CUstream stream)
{
    if (is_captured(stream)) {
        return tow_drive(&account.next, cuMemAllocFromPoolAsync)(ret, size, pool, stream);
    }
    int device = pool_device(pool);
    if (!account_reserve(device, size, TOW_LEDGER_POOL)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return pool_confirm(tow_drive(&account.next, cuMemAllocFromPoolAsync)(ret, size, pool, stream),
                        ret, device, size);
}

static CUresult free_async(CUdeviceptr at, CUstream stream)
{
    bool captured = is_captured(stream);
    CUresult result = tow_drive(&account.next, cuMemFreeAsync)(at, stream);
    if (result == CUDA_SUCCESS && !captured) {
        account_drop(at);
        tows_graph_memory_freed(at);
    }
    return result;
}

static bool add_pool(CUmemoryPool pool, int device)
{
    tow_mutex_lock(&account.lock);
    if (account.pool_count == account.pool_room) {
        size_t room = account.pool_room == 0 ? 16 : 2 * account.pool_room;
        struct pool *pools = realloc(account.pools, room * sizeof *pools);
        account.pools = pools != NULL ? pools : account.pools;
        account.pool_room = pools != NULL ? room : account.pool_room;
    }
    bool fits = account.pool_count < account.pool_room;
    if (fits) {
        account.pools[account.pool_count++] = (struct pool){.pool = pool, .device = device};
    }
    tow_mutex_unlock(&account.lock);
    return fits;
}

static CUresult pool_create(CUmemoryPool *ret, const CUmemPoolProps *props)
{
    CUresult result = tow_drive(&account.next, cuMemPoolCreate)(ret, props);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    int device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : NOWHERE;
    if (!add_pool(*ret, device)) { /* one that is not known holds what it likes */
        tow_drive(&account.next, cuMemPoolDestroy)(*ret);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static CUresult pool_destroy(CUmemoryPool pool)
{
    /* Before the driver can give it out again, and when no other thread asks it anything. */
    tow_mutex_lock(&account.lock);
    struct pool *known = find_pool(pool);
    while (known != NULL && known->uses > 0) {
        tow_mutex_wait(&account.lock, &account.unused);
        known = find_pool(pool);
    }
    bool was_known = known != NULL;
    int device = was_known ? known->device : NOWHERE;
    if (was_known) {
        *known = account.pools[--account.pool_count];
    }
    tow_mutex_unlock(&account.lock);
    CUresult result = tow_drive(&account.next, cuMemPoolDestroy)(pool);
    if (was_known && result != CUDA_SUCCESS) {
        add_pool(pool, device); /* there is room: one has just left */
    }
    return result;
}

/* ---- memory without an address ---- */

static void block_gone(void *user, uint64_t key)
{
    (void)user;
    account_drop(key);
}

/* Without a quota a handle is all that counts: memory that is mapped and has none is only a wrong
 * number in a table. */
static CUresult account_create(CUmemGenericAllocationHandle *ret, size_t size,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    int device = prop != NULL && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                     ? prop->location.id
                     : NOWHERE;
    if (!account_reserve(device, size, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuMemCreate)(ret, size, prop, flags);
    uint64_t key = result == CUDA_SUCCESS ? *ret : 0;
    if (result == CUDA_SUCCESS && is_limited()) {
        key = make_key();
        if (!tows_mappings_create(&account.mappings, *ret, key)) {
            tow_drive(&account.next, cuMemRelease)(*ret);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return account_confirm(result, key, device, size, false);
}

static CUresult account_release(CUmemGenericAllocationHandle handle)
{
    if (is_limited()) {
        tows_mappings_release(&account.mappings, handle);
        return tow_drive(&account.next, cuMemRelease)(handle);
    }
    CUresult result = tow_drive(&account.next, cuMemRelease)(handle);
    if (result == CUDA_SUCCESS) {
        account_drop(handle);
    }
    return result;
}

static CUresult account_map(CUdeviceptr at, size_t size, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    bool limited = is_limited();
    if (limited && !tows_mappings_map(&account.mappings, at, size, handle)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuMemMap)(at, size, offset, handle, flags);
    if (limited && result != CUDA_SUCCESS) {
        tows_mappings_undo(&account.mappings, at, handle);
    }
    return result;
}

static CUresult account_unmap(CUdeviceptr at, size_t size)
{
    if (!is_limited()) {
        return tow_drive(&account.next, cuMemUnmap)(at, size);
    }
    uint64_t unmapping = tows_mappings_unmap(&account.mappings, at, size);
    CUresult result = tow_drive(&account.next, cuMemUnmap)(at, size);
    tows_mappings_unmapped(&account.mappings, at, size, unmapping, result == CUDA_SUCCESS);
    return result;
}

static CUresult account_retain(CUmemGenericAllocationHandle *ret, void *address)
{
    struct tows_block *block =
        is_limited() ? tows_mappings_hold(&account.mappings, (uintptr_t)address) : NULL;
    CUresult result = tow_drive(&account.next, cuMemRetainAllocationHandle)(ret, address);
    const uint64_t handle = result == CUDA_SUCCESS ? *ret : 0;
    tows_mappings_held(&account.mappings, block, result == CUDA_SUCCESS ? &handle : NULL);
    return result;
}

/* Which parts of arrays lead to which memory is not kept: what was put behind one once counts to
 * the session's end. */
static CUresult account_map_arrays(CUarrayMapInfo *infos, unsigned int count, CUstream stream)
{
    for (unsigned i = 0; is_limited() && infos != NULL && i < count; i++) {
        if (infos[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
            tows_mappings_keep(&account.mappings, infos[i].memHandle.memHandle);
        }
    }
    return tow_drive(&account.next, cuMemMapArrayAsync)(infos, count, stream);
}

/* ---- arrays ---- */

static CUresult array_create_3d(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *what)
{
    int device = current_device();
    uint64_t size = tows_array_size(what, 1);
    if (!account_reserve(device, size, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuArray3DCreate_v2)(ret, what);
    return account_confirm(result, result == CUDA_SUCCESS ? (uintptr_t)*ret : 0, device, size,
                           true);
}

static CUresult array_create(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *what)
{
    const CUDA_ARRAY3D_DESCRIPTOR flat = {.Width = what->Width,
                                          .Height = what->Height,
                                          .Format = what->Format,
                                          .NumChannels = what->NumChannels};
    int device = current_device();
    uint64_t size = tows_array_size(&flat, 1);
    if (!account_reserve(device, size, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuArrayCreate_v2)(ret, what);
    return account_confirm(result, result == CUDA_SUCCESS ? (uintptr_t)*ret : 0, device, size,
                           true);
}

static CUresult array_destroy(CUarray array)
{
    CUresult result = tow_drive(&account.next, cuArrayDestroy)(array);
    if (result == CUDA_SUCCESS) {
        account_drop((uintptr_t)array);
    }
    return result;
}

static CUresult mipmapped_create(CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *what,
                                 unsigned int levels)
{
    int device = current_device();
    uint64_t size = tows_array_size(what, levels);
    if (!account_reserve(device, size, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuMipmappedArrayCreate)(ret, what, levels);
    return account_confirm(result, result == CUDA_SUCCESS ? (uintptr_t)*ret : 0, device, size,
                           true);
}

static CUresult mipmapped_destroy(CUmipmappedArray array)
{
    CUresult result = tow_drive(&account.next, cuMipmappedArrayDestroy)(array);
    if (result == CUDA_SUCCESS) {
        account_drop((uintptr_t)array);
    }
    return result;
}

/* ---- modules: only where there is a quota ---- */

static CUresult module_load(CUmodule *ret, const void *image, unsigned int count,
                            CUjit_option *options, void **values)
{
    int device = current_device();
    uint64_t size = tows_image_globals(image, account.major);
    if (!account_reserve(device, size, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result =
        tow_drive(&account.next, cuModuleLoadDataEx)(ret, image, count, options, values);
    return account_confirm(result, result == CUDA_SUCCESS ? (uintptr_t)*ret : 0, device, size,
                           true);
}

static CUresult module_unload(CUmodule module)
{
    CUresult result = tow_drive(&account.next, cuModuleUnload)(module);
    if (result == CUDA_SUCCESS) {
        account_drop((uintptr_t)module);
    }
    return result;
}

/* A library may become a module of each context: it counts with that of the first GPU. */
static CUresult library_load(CUlibrary *ret, const void *image, CUjit_option *jit, void **values,
                             unsigned int count, CUlibraryOption *options, void **option_values,
                             unsigned int option_count)
{
    uint64_t size = tows_image_globals(image, account.major);
    if (!account_reserve(0, size, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuLibraryLoadData)(
        ret, image, jit, values, count, options, option_values, option_count);
    return account_confirm(result, result == CUDA_SUCCESS ? (uintptr_t)*ret : 0, 0, size, false);
}

static CUresult library_unload(CUlibrary library)
{
    CUresult result = tow_drive(&account.next, cuLibraryUnload)(library);
    if (result == CUDA_SUCCESS) {
        account_drop((uintptr_t)library);
    }
    return result;
}

/* ---- graphs: the same ---- */

static CUresult graph_instantiate(CUgraphExec *ret, CUgraph graph, unsigned long long flags)
{
    struct tows_graph_charge charge;
    if (!tows_graph_memory_reserve(graph, &charge)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuGraphInstantiateWithFlags)(ret, graph, flags);
    tows_graph_memory_confirm(&charge, result == CUDA_SUCCESS ? *ret : NULL);
    return result;
}

static CUresult graph_instantiate_with(CUgraphExec *ret, CUgraph graph,
                                       CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    struct tows_graph_charge charge;
    if (!tows_graph_memory_reserve(graph, &charge)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = tow_drive(&account.next, cuGraphInstantiateWithParams)(ret, graph, params);
    tows_graph_memory_confirm(&charge, result == CUDA_SUCCESS ? *ret : NULL);
    return result;
}

static CUresult exec_destroy(CUgraphExec exec)
{
    CUgraphExec name = (CUgraphExec)(uintptr_t)make_key();
    tows_graph_memory_rename(exec, name);
    CUresult result = tow_drive(&account.next, cuGraphExecDestroy)(exec);
    if (result == CUDA_SUCCESS) {
        tows_graph_memory_end(name);
    } else {
        tows_graph_memory_rename(name, exec);
    }
    return result;
}

static CUresult count_launch(CUgraphExec exec, CUstream stream)
{
    tow_line_count(account.launches, 1);
    return tow_drive(&account.next, cuGraphLaunch)(exec, stream);
}

static CUresult graph_launch(CUgraphExec exec, CUstream stream)
{
    bool first = tows_graph_memory_launch(exec);
    CUresult result = count_launch(exec, stream);
    tows_graph_memory_launched(exec, first, result == CUDA_SUCCESS);
    return result;
}

static bool graph_reserve(int device, uint64_t size)
{
    return account_reserve(device, size, TOW_LEDGER_GRAPH);
}

static uint64_t graph_book(int device, uint64_t size)
{
    uint64_t key = make_key();
    account_book(key, device, size, TOW_LEDGER_GRAPH, NULL);
    return key;
}

static void graph_give_back(int device, uint64_t size)
{
    tows_ledger_give_back(&account.ledger, (unsigned)device, size, TOW_LEDGER_GRAPH);
}

static const struct tows_graph_memory_ops graph_ops = {graph_reserve, graph_give_back, graph_book,
                                                       account_drop};

/* ---- contexts ---- */

/* The most that a limit of a context ever was, `value` included. Where there is no memory for
 * that, it is `value`. */
static uint64_t most_of_limit(CUcontext context, CUlimit limit, uint64_t value)
{
    uint64_t most = value;
    tow_mutex_lock(&account.lock);
    struct limit_seen *seen = account.limits;
    while (seen != NULL && (seen->context != context || seen->limit != limit)) {
        seen = seen->next;
    }
    if (seen != NULL) {
        seen->most = seen->most > value ? seen->most : value;
        most = seen->most;
    } else if ((seen = malloc(sizeof *seen)) != NULL) {
        *seen = (struct limit_seen){account.limits, context, limit, value};
        account.limits = seen;
    }
    tow_mutex_unlock(&account.lock);
    return most;
}

static void forget_limits(CUcontext context)
{
    tow_mutex_lock(&account.lock);
    for (struct limit_seen **at = &account.limits; *at != NULL;) {
        struct limit_seen *seen = *at;
        if (seen->context == context) {
            *at = seen->next;
            free(seen);
        } else {
            at = &seen->next;
        }
    }
    tow_mutex_unlock(&account.lock);
}

/* Memory that a context has for its kernels: the heap of malloc and the buffer of printf. The
 * driver takes their default sizes for its own. What a context has ever had beyond these counts
 * until it goes: drivers do not say whether they give it back. */
static CUresult set_limit(CUlimit limit, size_t value)
{
    CUcontext context = current_context();
    if ((limit != CU_LIMIT_MALLOC_HEAP_SIZE && limit != CU_LIMIT_PRINTF_FIFO_SIZE) ||
        context == NULL) {
        return tow_drive(&account.next, cuCtxSetLimit)(limit, value);
    }
    int device = current_device();
    size_t before = 0;
    CUresult result = tow_drive(&account.next, cuCtxGetLimit)(&before, limit);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t most = most_of_limit(context, limit, before);
    uint64_t rise = value > most ? value - most : 0;
    if (rise != 0 && !account_reserve(device, rise, TOW_LEDGER_PLAIN)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = tow_drive(&account.next, cuCtxSetLimit)(limit, value);
    if (rise == 0) {
        return result;
    }
    if (result == CUDA_SUCCESS) {
        most_of_limit(context, limit, value);
    }
    return account_confirm(result, make_key(), device, rise, true);
}

static CUresult primary_retain(CUcontext *ret, CUdevice device)
{
    CUresult result = tow_drive(&account.next, cuDevicePrimaryCtxRetain)(ret, device);
    if (result == CUDA_SUCCESS && device >= 0 && device < DEVICES_MAX) {
        tow_mutex_lock(&account.lock);
        account.primary[device] = *ret;
        tow_mutex_unlock(&account.lock);
    }
    return result;
}

static bool is_active(CUdevice device)
{
    unsigned int flags;
    int active = 1;
    return tow_drive(&account.next, cuDevicePrimaryCtxGetState)(device, &flags, &active) !=
               CUDA_SUCCESS ||
           active;
}

/* Before the driver may destroy a context, and give its handle out again: what is in it gets
 * another name. */
static CUcontext context_leaves(CUcontext context)
{
    CUcontext name = (CUcontext)(uintptr_t)make_key();
    tows_ledger_rename_context(&account.ledger, context, name);
    return name;
}

static void context_left(CUcontext context, CUcontext name, bool gone)
{
    if (gone) {
        forget_limits(context);
        tows_ledger_drop_context(&account.ledger, name);
        account_shrink();
    } else {
        tows_ledger_rename_context(&account.ledger, name, context);
    }
}

/* The primary context may go with this: then so does all that is in it. */
static CUresult primary_leave(CUdevice device, CUresult (*leave)(CUdevice device))
{
    CUcontext context = NULL;
    if (device >= 0 && device < DEVICES_MAX) {
        tow_mutex_lock(&account.lock);
        context = account.primary[device];
        tow_mutex_unlock(&account.lock);
    }
    if (context == NULL) {
        return leave(device);
    }
    CUcontext name = context_leaves(context);
    CUresult result = leave(device);
    context_left(context, name, !is_active(device));
    return result;
}

static CUresult primary_release(CUdevice device)
{
    return primary_leave(device, tow_drive(&account.next, cuDevicePrimaryCtxRelease_v2));
}

static CUresult primary_reset(CUdevice device)
{
    return primary_leave(device, tow_drive(&account.next, cuDevicePrimaryCtxReset_v2));
}

static CUresult context_destroy(CUcontext context)
{
    CUcontext name = context_leaves(context);
    CUresult result = tow_drive(&account.next, cuCtxDestroy_v2)(context);
    context_left(context, name, result == CUDA_SUCCESS);
    return result;
}

/* ---- what the session sees ---- */

static CUresult total_memory(size_t *bytes, CUdevice device)
{
    CUresult result = tow_drive(&account.next, cuDeviceTotalMem_v2)(bytes, device);
    uint64_t quota = account.ledger.quota;
    if (result == CUDA_SUCCESS && *bytes > quota) {
        *bytes = (size_t)quota;
    }
    return result;
}

static CUresult memory_info(size_t *ret_free, size_t *ret_total)
{
    CUresult result = tow_drive(&account.next, cuMemGetInfo_v2)(ret_free, ret_total);
    uint64_t quota = account.ledger.quota;
    if (result == CUDA_SUCCESS) {
        uint64_t left = tows_ledger_left(&account.ledger, (unsigned)current_device());
        *ret_total = *ret_total < quota ? *ret_total : (size_t)quota;
        *ret_free = *ret_free < left ? *ret_free : (size_t)left;
    }
    return result;
}

void tows_account_install(struct tow_driver *driver, struct tows_session_stats *stats)
{
    account.next = *driver;
    account.launches = &stats->launches;
    tows_ledger_init(&account.ledger, &stats->memory, &stats->memory_most, stats->charged);
    tows_mappings_init(&account.mappings, block_gone, NULL);
    if (tow_drive(driver, cuDeviceGetCount)(&account.devices) != CUDA_SUCCESS) {
        account.devices = 0;
    }
    tow_driver_set(driver, cuGraphLaunch, count_launch);
    tow_driver_set(driver, cuMemAlloc_v2, account_alloc);
    tow_driver_set(driver, cuMemAllocPitch_v2, alloc_pitch);
    tow_driver_set(driver, cuMemAllocManaged, alloc_managed);
    tow_driver_set(driver, cuMemAllocAsync, alloc_async);
    tow_driver_set(driver, cuMemAllocFromPoolAsync, alloc_from_pool);
    tow_driver_set(driver, cuMemFree_v2, free_now);
    tow_driver_set(driver, cuMemFreeAsync, free_async);
    tow_driver_set(driver, cuMemCreate, account_create);
    tow_driver_set(driver, cuMemRelease, account_release);
    tow_driver_set(driver, cuMemMap, account_map);
    tow_driver_set(driver, cuMemUnmap, account_unmap);
    tow_driver_set(driver, cuMemRetainAllocationHandle, account_retain);
    tow_driver_set(driver, cuMemMapArrayAsync, account_map_arrays);
    tow_driver_set(driver, cuArrayCreate_v2, array_create);
    tow_driver_set(driver, cuArray3DCreate_v2, array_create_3d);
    tow_driver_set(driver, cuArrayDestroy, array_destroy);
    tow_driver_set(driver, cuMipmappedArrayCreate, mipmapped_create);
    tow_driver_set(driver, cuMipmappedArrayDestroy, mipmapped_destroy);
    tow_driver_set(driver, cuDevicePrimaryCtxRetain, primary_retain);
    tow_driver_set(driver, cuDevicePrimaryCtxRelease_v2, primary_release);
    tow_driver_set(driver, cuDevicePrimaryCtxReset_v2, primary_reset);
    tow_driver_set(driver, cuCtxDestroy_v2, context_destroy);
}

void tows_account_limit(struct tow_driver *driver, uint64_t quota, const char *from,
                        void (*tell)(const char *sentence))
{
    int major = 0;
    account.from = from;
    account.tell = tell;
    if (tow_drive(driver, cuDeviceGetAttribute)(
            &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0) == CUDA_SUCCESS) {
        account.major = (unsigned)major;
    }
    account.ledger.quota = quota;
    tows_graph_memory_begin(&account.next, &graph_ops);
    tow_driver_set(driver, cuDeviceTotalMem_v2, total_memory);
    tow_driver_set(driver, cuMemGetInfo_v2, memory_info);
    tow_driver_set(driver, cuMemPoolCreate, pool_create);
    tow_driver_set(driver, cuMemPoolDestroy, pool_destroy);
    tow_driver_set(driver, cuModuleLoadDataEx, module_load);
    tow_driver_set(driver, cuModuleUnload, module_unload);
    tow_driver_set(driver, cuLibraryLoadData, library_load);
    tow_driver_set(driver, cuLibraryUnload, library_unload);
    tow_driver_set(driver, cuGraphInstantiateWithFlags, graph_instantiate);
    tow_driver_set(driver, cuGraphInstantiateWithParams, graph_instantiate_with);
    tow_driver_set(driver, cuGraphExecDestroy, exec_destroy);
    tow_driver_set(driver, cuGraphLaunch, graph_launch);
    tow_driver_set(driver, cuCtxSetLimit, set_limit);
}
