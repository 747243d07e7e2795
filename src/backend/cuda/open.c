/* SPDX-License-Identifier: Apache-2.0 */
/* The real driver: finds libcuda.so.1, makes sure that it is not ours, loads the table. */
#include "backend/backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/away.h"
#include "backend/cuda/cupti.h"
#include "backend/cuda/space.h"
#include "base/log.h"
#include "base/ours.h"
#include "gen/core.h"
#include "gen/device.h"
#include "gen/stream.h"

static const char *const folders[] = {
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/cuda/compat",
    "/usr/lib",
};

struct state {
    void *library;
};

/* Whether an open library is Towline's own client. */
static bool is_ours(void *library)
{
    CUresult (*get)(const void **, const CUuuid *) = NULL;
    void *symbol = dlsym(library, "cuGetExportTable");
    if (symbol == NULL) {
        return false;
    }
    memcpy(&get, &symbol, sizeof get);
    CUuuid id;
    memcpy(id.bytes, TOW_OURS_UUID, TOW_OURS_UUID_SIZE);
    const void *table = NULL;
    return get(&table, &id) == CUDA_SUCCESS && table != NULL;
}

/* Opens one candidate: -ENOENT if it is not there or not a driver, -ELOOP if it is ours. */
static int try_open(const char *path, void **ret_library, char *why, size_t why_size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *error = dlerror();
        snprintf(why, why_size, "The driver library %s cannot be opened: %s.", path,
                 error != NULL ? error : "unknown error");
        return -ENOENT;
    }
    if (is_ours(library)) {
        dlclose(library);
        snprintf(why, why_size,
                 "%s is Towline's own client library, not a driver; give the path of NVIDIA's "
                 "libcuda.so.1.",
                 path);
        return -ELOOP;
    }
    if (dlsym(library, "cuInit") == NULL) {
        dlclose(library);
        snprintf(why, why_size, "%s is not a CUDA driver library: it has no cuInit.", path);
        return -ENOENT;
    }
    *ret_library = library;
    return 0;
}

static int find_library(const char *path, void **ret_library, char *ret_path, size_t path_size,
                        char *why, size_t why_size)
{
    if (path != NULL && path[0] != '\0') {
        snprintf(ret_path, path_size, "%s", path);
        return try_open(path, ret_library, why, why_size);
    }
    bool ours = false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char candidate[PATH_MAX];
        snprintf(candidate, sizeof candidate, "%s/libcuda.so.1", folders[i]);
        if (access(candidate, R_OK) != 0) {
            continue;
        }
        int rc = try_open(candidate, ret_library, why, why_size);
        if (rc == 0) {
            snprintf(ret_path, path_size, "%s", candidate);
            return 0;
        }
        ours |= rc == -ELOOP;
    }
    /* Whatever the loader would find; LD_LIBRARY_PATH may well lead to ours. */
    char ignored[512];
    int rc = try_open("libcuda.so.1", ret_library, ours ? ignored : why,
                      ours ? sizeof ignored : why_size);
    if (rc == 0) {
        char origin[PATH_MAX] = "";
        snprintf(ret_path, path_size, "libcuda.so.1");
        if (dlinfo(*ret_library, RTLD_DI_ORIGIN, origin) == 0) {
            snprintf(ret_path, path_size, "%.200s/libcuda.so.1", origin);
        }
        return 0;
    }
    if (rc == -ENOENT && !ours) {
        snprintf(why, why_size,
                 "There is no NVIDIA driver on this machine: libcuda.so.1 was not found.");
    }
    return ours ? -ELOOP : rc;
}

static void *find_symbol(void *user, const char *name)
{
    return dlsym(user, name);
}

static void cuda_close(struct tow_backend *backend)
{
    struct state *state = backend->state;
    if (state != NULL) {
        /* The driver's threads may still run code of the library: it stays mapped until the process
         * ends. */
        free(state);
        backend->state = NULL;
    }
}

/* ---- what NVIDIA's driver does not survive ---- */

static CUresult(CUDAAPI *attach_memory)(CUstream stream, CUdeviceptr address, size_t length,
                                        unsigned flags); /* the driver's; a process opens one */

/* With other flags driver 580 crashes, and a client may send any. */
static CUresult CUDAAPI guarded_attach_memory(CUstream stream, CUdeviceptr address, size_t length,
                                              unsigned flags)
{
    bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                 flags == CU_MEM_ATTACH_SINGLE;
    return known ? attach_memory(stream, address, length, flags) : CUDA_ERROR_INVALID_VALUE;
}

int tow_backend_cuda_open(const char *path, uint64_t slot, struct tow_backend *ret_backend,
                          char *why, size_t why_size)
{
    char found[PATH_MAX] = "";
    void *library;
    int rc = find_library(path, &library, found, sizeof found, why, why_size);
    if (rc != 0) {
        return rc;
    }
    struct state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        dlclose(library);
        snprintf(why, why_size, "Out of memory.");
        return -ENOMEM;
    }
    state->library = library;
    memset(ret_backend, 0, sizeof *ret_backend);
    ret_backend->name = "cuda";
    tow_driver_fill_stubs(&ret_backend->driver);
    int count = tow_driver_load(&ret_backend->driver, find_symbol, library);
    tow_log(TOW_AREA_BACKEND, TOW_LOG_DEBUG, "%s: %d functions", found, count);
    attach_memory = tow_drive(&ret_backend->driver, cuStreamAttachMemAsync);
    tow_driver_set(&ret_backend->driver, cuStreamAttachMemAsync, guarded_attach_memory);
    tow_space_fill(slot);
    CUresult result = tow_drive(&ret_backend->driver, cuInit)(0);
    int devices = 0;
    if (result == CUDA_SUCCESS) {
        result = tow_drive(&ret_backend->driver, cuDeviceGetCount)(&devices);
    }
    if (result != CUDA_SUCCESS || devices == 0) {
        const char *name = NULL;
        if (tow_drive(&ret_backend->driver, cuGetErrorName)(result, &name) != CUDA_SUCCESS ||
            name == NULL) {
            name = "no device";
        }
        snprintf(why, why_size, "The driver %s says that there is no GPU to use (%s).", found,
                 result == CUDA_SUCCESS ? "no device" : name);
        free(state);
        dlclose(library);
        return -ENODEV;
    }
    int version = 0;
    tow_drive(&ret_backend->driver, cuDriverGetVersion)(&version);
    snprintf(ret_backend->description, sizeof ret_backend->description,
             "%.180s (CUDA %d.%d, %d GPU%s)", found, version / 1000, version % 1000 / 10, devices,
             devices == 1 ? "" : "s");
    ret_backend->range_count = tow_space_ranges(slot, ret_backend->ranges);
    ret_backend->timeline = &tow_cupti_ops;
    /* Drivers before 570 do not have it. */
    if (dlsym(library, "cuCheckpointProcessLock") != NULL) {
        ret_backend->away = tow_cuda_away_begin(&ret_backend->driver);
    }
    ret_backend->close = cuda_close;
    ret_backend->state = state;
    return 0;
}
