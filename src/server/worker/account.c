/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps the driver's allocating functions to count a session's device memory. */
#include "server/worker/account.h"
#include "base/mutex.h"
#include "gen/context.h"
#include "gen/memory.h"
#include "gen/pool.h"
#include "gen/texture.h"
#include "gen/vmm.h"

#include <stdbool.h>
#include <stdlib.h>

/* One allocation. Addresses, generic handles and arrays share the table: their values do not meet.
 */
struct entry {
    uint64_t key; /* 0: empty */
    uint64_t size;
    CUcontext context; /* what it dies with; NULL: nothing */
};

enum { DEVICES_MAX = 64, FIRST_CAPACITY = 1024 };

static struct {
    struct tow_driver next; /* the driver itself */
    _Atomic uint64_t *memory;
    struct tow_mutex lock; /* guards all below */
    struct entry *entries; /* owned; open addressing */
    size_t capacity;       /* a power of two */
    size_t used;
    CUcontext primary[DEVICES_MAX];
} account = {.lock = TOW_MUTEX(SERVER_ACCOUNT)};

static size_t slot_of(uint64_t key)
{
    return (size_t)((key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (account.capacity - 1);
}

static void account_insert(struct entry entry)
{
    size_t at = slot_of(entry.key);
    while (account.entries[at].key != 0) {
        at = (at + 1) & (account.capacity - 1);
    }
    account.entries[at] = entry;
    account.used++;
}

static bool account_grow(void)
{
    size_t old_capacity = account.capacity;
    struct entry *old = account.entries;
    size_t capacity = old_capacity == 0 ? FIRST_CAPACITY : 2 * old_capacity;
    struct entry *entries = calloc(capacity, sizeof *entries);
    if (entries == NULL) {
        return false;
    }
    account.entries = entries;
    account.capacity = capacity;
    account.used = 0;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].key != 0) {
            account_insert(old[i]);
        }
    }
    free(old);
    return true;
}

static void account_add(uint64_t key, uint64_t size, bool of_context)
{
    CUcontext context = NULL;
    if (of_context) {
        tow_drive(&account.next, cuCtxGetCurrent)(&context);
    }
    tow_mutex_lock(&account.lock);
    /* A count that cannot be kept is only a wrong number in a table. */
    if (key != 0 && (account.used * 2 < account.capacity || account_grow())) {
        account_insert((struct entry){.key = key, .size = size, .context = context});
        atomic_fetch_add_explicit(account.memory, size, memory_order_relaxed);
    }
    tow_mutex_unlock(&account.lock);
}

/* Empties a slot and moves what was pushed behind it. */
static void remove_at(size_t at)
{
    size_t mask = account.capacity - 1;
    atomic_fetch_sub_explicit(account.memory, account.entries[at].size, memory_order_relaxed);
    account.entries[at].key = 0;
    account.used--;
    for (size_t i = (at + 1) & mask; account.entries[i].key != 0; i = (i + 1) & mask) {
        struct entry moved = account.entries[i];
        account.entries[i].key = 0;
        account.used--;
        account_insert(moved);
    }
}

static void account_drop(uint64_t key)
{
    tow_mutex_lock(&account.lock);
    if (account.capacity > 0 && key != 0) {
        size_t at = slot_of(key);
        while (account.entries[at].key != 0 && account.entries[at].key != key) {
            at = (at + 1) & (account.capacity - 1);
        }
        if (account.entries[at].key == key) {
            remove_at(at);
        }
    }
    tow_mutex_unlock(&account.lock);
}

static void drop_context(CUcontext context)
{
    tow_mutex_lock(&account.lock);
    for (size_t i = 0; context != NULL && i < account.capacity;) {
        if (account.entries[i].key != 0 && account.entries[i].context == context) {
            remove_at(i); /* another may have moved here: look again */
        } else {
            i++;
        }
    }
    tow_mutex_unlock(&account.lock);
}

/* ---- in the driver's place ---- */

static CUresult account_alloc(CUdeviceptr *ret, size_t size)
{
    CUresult result = tow_drive(&account.next, cuMemAlloc_v2)(ret, size);
    if (result == CUDA_SUCCESS) {
        account_add(*ret, size, true);
    }
    return result;
}

static CUresult alloc_pitch(CUdeviceptr *ret, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    CUresult result =
        tow_drive(&account.next, cuMemAllocPitch_v2)(ret, pitch, width, height, element);
    if (result == CUDA_SUCCESS) {
        account_add(*ret, *pitch * height, true);
    }
    return result;
}

static CUresult alloc_managed(CUdeviceptr *ret, size_t size, unsigned int flags)
{
    CUresult result = tow_drive(&account.next, cuMemAllocManaged)(ret, size, flags);
    if (result == CUDA_SUCCESS) {
        account_add(*ret, size, true);
    }
    return result;
}

static CUresult alloc_async(CUdeviceptr *ret, size_t size, CUstream stream)
{
    CUresult result = tow_drive(&account.next, cuMemAllocAsync)(ret, size, stream);
    if (result == CUDA_SUCCESS) {
        account_add(*ret, size, false);
    }
    return result;
}

static CUresult alloc_from_pool(CUdeviceptr *ret, size_t size, CUmemoryPool pool, CUstream stream)
{
    CUresult result = tow_drive(&account.next, cuMemAllocFromPoolAsync)(ret, size, pool, stream);
    if (result == CUDA_SUCCESS) {
        account_add(*ret, size, false);
    }
    return result;
}

static CUresult free_now(CUdeviceptr at)
{
    CUresult result = tow_drive(&account.next, cuMemFree_v2)(at);
    if (result == CUDA_SUCCESS) {
        account_drop(at);
    }
    return result;
}

static CUresult free_async(CUdeviceptr at, CUstream stream)
{
    CUresult result = tow_drive(&account.next, cuMemFreeAsync)(at, stream);
    if (result == CUDA_SUCCESS) {
        account_drop(at);
    }
    return result;
}

static CUresult account_create(CUmemGenericAllocationHandle *ret, size_t size,
                               const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = tow_drive(&account.next, cuMemCreate)(ret, size, prop, flags);
    if (result == CUDA_SUCCESS) {
        account_add(*ret, size, false);
    }
    return result;
}

static CUresult account_release(CUmemGenericAllocationHandle handle)
{
    CUresult result = tow_drive(&account.next, cuMemRelease)(handle);
    if (result == CUDA_SUCCESS) {
        account_drop(handle);
    }
    return result;
}

static uint64_t at_least_one(uint64_t value)
{
    return value == 0 ? 1 : value;
}

static uint64_t array_size(uint64_t width, uint64_t height, uint64_t depth, CUarray_format format,
                           unsigned channels)
{
    uint64_t element = format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8
                           ? 1
                       : format == CU_AD_FORMAT_UNSIGNED_INT16 ||
                               format == CU_AD_FORMAT_SIGNED_INT16 || format == CU_AD_FORMAT_HALF
                           ? 2
                           : 4;
    return at_least_one(width) * at_least_one(height) * at_least_one(depth) * element *
           at_least_one(channels);
}

static CUresult array_create(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *what)
{
    CUresult result = tow_drive(&account.next, cuArrayCreate_v2)(ret, what);
    if (result == CUDA_SUCCESS) {
        account_add((uintptr_t)*ret,
                    array_size(what->Width, what->Height, 1, what->Format, what->NumChannels),
                    true);
    }
    return result;
}

static CUresult array_create_3d(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *what)
{
    CUresult result = tow_drive(&account.next, cuArray3DCreate_v2)(ret, what);
    if (result == CUDA_SUCCESS) {
        account_add(
            (uintptr_t)*ret,
            array_size(what->Width, what->Height, what->Depth, what->Format, what->NumChannels),
            true);
    }
    return result;
}

static CUresult array_destroy(CUarray array)
{
    CUresult result = tow_drive(&account.next, cuArrayDestroy)(array);
    if (result == CUDA_SUCCESS) {
        account_drop((uintptr_t)array);
    }
    return result;
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

/* The primary context may have gone: then so has all that was in it. */
static void check_primary(CUdevice device)
{
    unsigned int flags;
    int active = 1;
    if (device < 0 || device >= DEVICES_MAX ||
        tow_drive(&account.next, cuDevicePrimaryCtxGetState)(device, &flags, &active) !=
            CUDA_SUCCESS ||
        active) {
        return;
    }
    tow_mutex_lock(&account.lock);
    CUcontext context = account.primary[device];
    tow_mutex_unlock(&account.lock);
    drop_context(context);
}

static CUresult primary_release(CUdevice device)
{
    CUresult result = tow_drive(&account.next, cuDevicePrimaryCtxRelease_v2)(device);
    check_primary(device);
    return result;
}

static CUresult primary_reset(CUdevice device)
{
    CUresult result = tow_drive(&account.next, cuDevicePrimaryCtxReset_v2)(device);
    check_primary(device);
    return result;
}

static CUresult context_destroy(CUcontext context)
{
    CUresult result = tow_drive(&account.next, cuCtxDestroy_v2)(context);
    if (result == CUDA_SUCCESS) {
        drop_context(context);
    }
    return result;
}

void tows_account_install(struct tow_driver *driver, _Atomic uint64_t *memory)
{
    account.next = *driver;
    account.memory = memory;
    tow_driver_set(driver, cuMemAlloc_v2, account_alloc);
    tow_driver_set(driver, cuMemAllocPitch_v2, alloc_pitch);
    tow_driver_set(driver, cuMemAllocManaged, alloc_managed);
    tow_driver_set(driver, cuMemAllocAsync, alloc_async);
    tow_driver_set(driver, cuMemAllocFromPoolAsync, alloc_from_pool);
    tow_driver_set(driver, cuMemFree_v2, free_now);
    tow_driver_set(driver, cuMemFreeAsync, free_async);
    tow_driver_set(driver, cuMemCreate, account_create);
    tow_driver_set(driver, cuMemRelease, account_release);
    tow_driver_set(driver, cuArrayCreate_v2, array_create);
    tow_driver_set(driver, cuArray3DCreate_v2, array_create_3d);
    tow_driver_set(driver, cuArrayDestroy, array_destroy);
    tow_driver_set(driver, cuDevicePrimaryCtxRetain, primary_retain);
    tow_driver_set(driver, cuDevicePrimaryCtxRelease_v2, primary_release);
    tow_driver_set(driver, cuDevicePrimaryCtxReset_v2, primary_reset);
    tow_driver_set(driver, cuCtxDestroy_v2, context_destroy);
}
