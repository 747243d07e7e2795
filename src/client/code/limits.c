/* SPDX-License-Identifier: Apache-2.0 */
/* What devices allow is asked once of each; a kernel's bounds begin with it. */
#include "client/code/limits.h"

#include <stdbool.h>
#include <string.h>

#include "base/mutex.h"
#include "gen/device_client.h"
#include "wire/cursor.h"

enum { LIMITS_DEVICES = 64 };

/* Process-wide: limits of devices, which do not change. */
static struct {
    struct tow_mutex lock; /* guards filling them */
    struct {
        struct towc_launch_limits limits;
        atomic_bool ready;
    } of[LIMITS_DEVICES];
} devices = {.lock = TOW_MUTEX(CLIENT_LIMITS)};

static CUresult fill_limits(CUdevice device, struct towc_launch_limits *limits)
{
    static const CUdevice_attribute wanted[] = {
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE,
    };
    uint32_t *into[] = {
        &limits->grid[0],    &limits->grid[1],  &limits->grid[2], &limits->block[0],
        &limits->block[1],   &limits->block[2], &limits->threads, &limits->shared_optin,
        &limits->processors, &limits->warp,
    };
    for (unsigned i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        int value = 0;
        CUresult status = towc_cuDeviceGetAttribute(&value, wanted[i], device);
        if (status != CUDA_SUCCESS) {
            return status;
        }
        *into[i] = (uint32_t)value;
    }
    return CUDA_SUCCESS;
}

static const struct towc_launch_limits *limits_slow(CUdevice device)
{
    struct towc_launch_limits limits;
    if (fill_limits(device, &limits) != CUDA_SUCCESS) {
        return NULL;
    }
    tow_mutex_lock(&devices.lock);
    if (!atomic_load_explicit(&devices.of[device].ready, memory_order_relaxed)) {
        devices.of[device].limits = limits;
        atomic_store_explicit(&devices.of[device].ready, true, memory_order_release);
    }
    tow_mutex_unlock(&devices.lock);
    return &devices.of[device].limits;
}

const struct towc_launch_limits *towc_launch_limits(CUdevice device)
{
    if ((unsigned)device >= LIMITS_DEVICES) {
        return NULL;
    }
    if (TOW_UNLIKELY(!atomic_load_explicit(&devices.of[device].ready, memory_order_acquire))) {
        return limits_slow(device);
    }
    return &devices.of[device].limits;
}

void towc_launch_bounds_init(struct towc_bounds *bounds, CUdevice device)
{
    const struct towc_launch_limits *limits = towc_launch_limits(device);
    /* For a device that is not ours to know: nothing is refused here that a head can tell. */
    memset(bounds, 0xff, sizeof *bounds);
    for (unsigned i = 0; i < 3; i++) {
        bounds->block[i] = UINT16_MAX;
    }
    if (limits != NULL) {
        memcpy(bounds->grid, limits->grid, sizeof bounds->grid);
        memcpy(bounds->block, limits->block, sizeof bounds->block);
        atomic_store(&bounds->threads, limits->threads);
    }
}
