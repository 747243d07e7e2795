/* SPDX-License-Identifier: Apache-2.0 */
/* Has NVIDIA's driver put this process's GPU memory out into its host memory, and in again.
 *
 * A process may do that for itself: the driver reaches its own thread by pipes in /proc/self/fd, so
 * nobody needs rights over another process (docs/inside/suspending.md).
 *
 * What was opened of another process makes the driver fail for good when it comes back. So whatever
 * is shared is remembered here, and refused before.
 */
#include "backend/cuda/away.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "gen/context.h"
#include "gen/core.h"
#include "gen/interop.h"
#include "gen/pool.h"
#include "gen/vmm.h"

enum { MOST_MS = 3600 * 1000 };

static struct {
    struct tow_driver next; /* the driver itself */
    atomic_bool shared;     /* GPU memory or an event was another process's, or may be */
    atomic_bool peers;      /* contexts reach each other's memory */
    atomic_int place;       /* the GPU that was given access to memory first; -1: none was */
} away = {.place = -1};

/* ---- what is remembered ---- */

static CUresult set_if(CUresult result, atomic_bool *which)
{
    if (result == CUDA_SUCCESS) {
        atomic_store_explicit(which, true, memory_order_relaxed);
    }
    return result;
}

static CUresult CUDAAPI get_memory(CUipcMemHandle *ret, CUdeviceptr address)
{
    return set_if(tow_drive(&away.next, cuIpcGetMemHandle)(ret, address), &away.shared);
}

static CUresult CUDAAPI open_memory(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags)
{
    return set_if(tow_drive(&away.next, cuIpcOpenMemHandle_v2)(ret, handle, flags), &away.shared);
}

static CUresult CUDAAPI get_event(CUipcEventHandle *ret, CUevent event)
{
    return set_if(tow_drive(&away.next, cuIpcGetEventHandle)(ret, event), &away.shared);
}

static CUresult CUDAAPI open_event(CUevent *ret, CUipcEventHandle handle)
{
    return set_if(tow_drive(&away.next, cuIpcOpenEventHandle)(ret, handle), &away.shared);
}

static CUresult CUDAAPI export_memory(void *ret, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    return set_if(tow_drive(&away.next, cuMemExportToShareableHandle)(ret, handle, type, flags),
                  &away.shared);
}

static CUresult CUDAAPI import_memory(CUmemGenericAllocationHandle *ret, void *handle,
                                      CUmemAllocationHandleType type)
{
    return set_if(tow_drive(&away.next, cuMemImportFromShareableHandle)(ret, handle, type),
                  &away.shared);
}

static CUresult CUDAAPI export_pool(void *ret, CUmemoryPool pool, CUmemAllocationHandleType type,
                                    unsigned long long flags)
{
    return set_if(tow_drive(&away.next, cuMemPoolExportToShareableHandle)(ret, pool, type, flags),
                  &away.shared);
}

static CUresult CUDAAPI import_pool(CUmemoryPool *ret, void *handle, CUmemAllocationHandleType type,
                                    unsigned long long flags)
{
    return set_if(
        tow_drive(&away.next, cuMemPoolImportFromShareableHandle)(ret, handle, type, flags),
        &away.shared);
}

static CUresult CUDAAPI enable_peer(CUcontext context, unsigned int flags)
{
    return set_if(tow_drive(&away.next, cuCtxEnablePeerAccess)(context, flags), &away.peers);
}

/* More than one GPU may reach memory. */
static void see_places(const CUmemAccessDesc *access, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int none = -1, id = access[i].location.id;
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            !atomic_compare_exchange_strong(&away.place, &none, id) && none != id) {
            atomic_store_explicit(&away.peers, true, memory_order_relaxed);
        }
    }
}

static CUresult CUDAAPI set_access(CUdeviceptr address, size_t length, const CUmemAccessDesc *desc,
                                   size_t count)
{
    CUresult result = tow_drive(&away.next, cuMemSetAccess)(address, length, desc, count);
    if (result == CUDA_SUCCESS) {
        see_places(desc, count);
    }
    return result;
}

static CUresult CUDAAPI set_pool_access(CUmemoryPool pool, const CUmemAccessDesc *desc,
                                        size_t count)
{
    CUresult result = tow_drive(&away.next, cuMemPoolSetAccess)(pool, desc, count);
    if (result == CUDA_SUCCESS) {
        see_places(desc, count);
    }
    return result;
}

static CUresult CUDAAPI make_multicast(CUmemGenericAllocationHandle *ret,
                                       const CUmulticastObjectProp *prop)
{
    return set_if(tow_drive(&away.next, cuMulticastCreate)(ret, prop), &away.peers);
}

/* ---- the driver's words ---- */

static const char *error_name(CUresult result)
{
    const char *name = NULL;
    return tow_drive(&away.next, cuGetErrorName)(result, &name) == CUDA_SUCCESS && name != NULL
               ? name
               : "an unknown error";
}

static CUprocessState away_state(void)
{
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    CUresult result = tow_drive(&away.next, cuCheckpointProcessGetState)(getpid(), &state);
    return result == CUDA_SUCCESS ? state : CU_PROCESS_STATE_FAILED;
}

/* ---- locking ---- */

static bool is_refused(char *why, size_t size)
{
    if (atomic_load(&away.shared)) {
        snprintf(why, size, "it shares GPU memory with other programs");
        return true;
    }
    if (atomic_load(&away.peers)) {
        snprintf(why, size, "its GPUs reach each other's memory");
        return true;
    }
    return false;
}

/* While the driver tries, all who call it wait. */
static int away_lock(int64_t deadline_ns, char *why, size_t size)
{
    int64_t left_ms = (deadline_ns - tow_time_now_ns()) / TOW_TIME_MS;
    CUcheckpointLockArgs args = {.timeoutMs = left_ms < 1         ? 1 /* 0 has no end */
                                              : left_ms < MOST_MS ? (unsigned)left_ms
                                                                  : MOST_MS};
    if (is_refused(why, size)) {
        return -EOPNOTSUPP;
    }
    CUresult result = tow_drive(&away.next, cuCheckpointProcessLock)(getpid(), &args);
    switch (result) {
    case CUDA_SUCCESS:
        return 0;
    case CUDA_ERROR_NOT_READY:
        why[0] = '\0'; /* it does not say what */
        return -ETIMEDOUT;
    case CUDA_ERROR_NOT_SUPPORTED:
        snprintf(why, size,
                 "NVIDIA's driver does not suspend programs here, as under MPS "
                 "(CUDA_ERROR_NOT_SUPPORTED)");
        return -EOPNOTSUPP;
    default:
        snprintf(why, size, "NVIDIA's driver cannot suspend it: %s", error_name(result));
        return -EOPNOTSUPP;
    }
}

static int away_unlock(char *why, size_t size)
{
    CUcheckpointUnlockArgs args = {0};
    CUresult result = tow_drive(&away.next, cuCheckpointProcessUnlock)(getpid(), &args);
    if (result != CUDA_SUCCESS) {
        snprintf(why, size, "NVIDIA's driver does not let it go on: %s", error_name(result));
        return -EIO;
    }
    return 0;
}

/* ---- out and in ---- */

/* Into host memory of this process, which the driver asks for. */
static int away_save(int fd, uint64_t *ret_bytes, char *why, size_t size)
{
    (void)fd;
    (void)ret_bytes;
    CUcheckpointCheckpointArgs args = {0};
    if (is_refused(why, size)) {
        return -EOPNOTSUPP; /* since it was looked at before the lock */
    }
    CUresult result = tow_drive(&away.next, cuCheckpointProcessCheckpoint)(getpid(), &args);
    if (result == CUDA_SUCCESS) {
        return 0;
    }
    if (away_state() != CU_PROCESS_STATE_LOCKED) {
        snprintf(why, size, "NVIDIA's driver could not suspend it: %s", error_name(result));
        return -EIO;
    }
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        snprintf(why, size,
                 "it has something that NVIDIA's driver does not put out, like managed variables "
                 "(CUDA_ERROR_NOT_SUPPORTED)");
    } else {
        snprintf(why, size, "NVIDIA's driver cannot put its memory out: %s", error_name(result));
    }
    return -EOPNOTSUPP;
}

static int away_load(int fd, char *why, size_t size)
{
    (void)fd;
    CUcheckpointRestoreArgs args = {0};
    CUresult result = tow_drive(&away.next, cuCheckpointProcessRestore)(getpid(), &args);
    if (result == CUDA_SUCCESS) {
        return 0;
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        snprintf(why, size, "its GPU memory cannot come back: others have taken it meanwhile");
    } else {
        snprintf(why, size, "NVIDIA's driver cannot bring its GPU memory back: %s",
                 error_name(result));
    }
    return -EIO;
}

static const struct tow_backend_away_ops cuda_away_ops = {
    .by_driver = true,
    .lock = away_lock,
    .save = away_save,
    .load = away_load,
    .unlock = away_unlock,
};

const struct tow_backend_away_ops *tow_cuda_away_begin(struct tow_driver *driver)
{
    away.next = *driver;
    tow_driver_set(driver, cuIpcGetMemHandle, get_memory);
    tow_driver_set(driver, cuIpcOpenMemHandle_v2, open_memory);
    tow_driver_set(driver, cuIpcGetEventHandle, get_event);
    tow_driver_set(driver, cuIpcOpenEventHandle, open_event);
    tow_driver_set(driver, cuMemExportToShareableHandle, export_memory);
    tow_driver_set(driver, cuMemImportFromShareableHandle, import_memory);
    tow_driver_set(driver, cuMemPoolExportToShareableHandle, export_pool);
    tow_driver_set(driver, cuMemPoolImportFromShareableHandle, import_pool);
    tow_driver_set(driver, cuCtxEnablePeerAccess, enable_peer);
    tow_driver_set(driver, cuMulticastCreate, make_multicast);
    tow_driver_set(driver, cuMemSetAccess, set_access);
    tow_driver_set(driver, cuMemPoolSetAccess, set_pool_access);
    return &cuda_away_ops;
}
