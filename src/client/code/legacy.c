/* SPDX-License-Identifier: Apache-2.0 */
/* The first way to launch: block shape and arguments are set on the function, one call at a time.
 */
#include "base/mutex.h"
#include "client/code/launch.h"

#include "gen/launch_client.h"
#include "gen/legacy_client.h"

#include <stdlib.h>
#include <string.h>

enum { LEGACY_ARGS_MAX = 4096 };

struct towc_legacy_launch {
    unsigned block[3];
    unsigned shared;
    unsigned size; /* of the arguments */
    uint8_t args[LEGACY_ARGS_MAX];
};

/* As in CUDA, a function's settings are for one thread at a time. */
static struct towc_legacy_launch *legacy_of(CUfunction handle)
{
    struct towc_kernel *function = towc_kernel_find(handle);
    if (function == NULL) {
        return NULL;
    }
    struct towc_legacy_launch *legacy = atomic_load(&function->legacy);
    if (legacy != NULL) {
        return legacy;
    }
    struct towc_legacy_launch *made = malloc(sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    *made = (struct towc_legacy_launch){.block = {1, 1, 1}};
    if (!atomic_compare_exchange_strong(&function->legacy, &legacy, made)) {
        free(made); /* another thread was faster */
        return legacy;
    }
    return made;
}

CUresult towc_cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
    struct towc_legacy_launch *legacy = legacy_of(hfunc);
    if (legacy == NULL) {
        return towc_no_handle();
    }
    if (x <= 0 || y <= 0 || z <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    legacy->block[0] = (unsigned)x;
    legacy->block[1] = (unsigned)y;
    legacy->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

CUresult towc_cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
    struct towc_legacy_launch *legacy = legacy_of(hfunc);
    if (legacy == NULL) {
        return towc_no_handle();
    }
    legacy->shared = bytes;
    return CUDA_SUCCESS;
}

CUresult towc_cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
    struct towc_legacy_launch *legacy = legacy_of(hfunc);
    if (legacy == NULL) {
        return towc_no_handle();
    }
    if (numbytes > LEGACY_ARGS_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    legacy->size = numbytes;
    return CUDA_SUCCESS;
}

CUresult towc_cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
    struct towc_legacy_launch *legacy = legacy_of(hfunc);
    if (legacy == NULL) {
        return towc_no_handle();
    }
    if (ptr == NULL || offset < 0 || offset > LEGACY_ARGS_MAX ||
        numbytes > LEGACY_ARGS_MAX - (unsigned)offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(legacy->args + offset, ptr, numbytes);
    return CUDA_SUCCESS;
}

CUresult towc_cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
    return towc_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult towc_cuParamSetf(CUfunction hfunc, int offset, float value)
{
    return towc_cuParamSetv(hfunc, offset, &value, sizeof value);
}

CUresult towc_cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    struct towc_legacy_launch *legacy = legacy_of(f);
    if (legacy == NULL) {
        return towc_no_handle();
    }
    if (grid_width <= 0 || grid_height <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t size = legacy->size;
    void *extra[] = {
        CU_LAUNCH_PARAM_BUFFER_POINTER,
        legacy->args,
        CU_LAUNCH_PARAM_BUFFER_SIZE,
        &size,
        CU_LAUNCH_PARAM_END,
    };
    return towc_cuLaunchKernel(f, (unsigned)grid_width, (unsigned)grid_height, 1, legacy->block[0],
                               legacy->block[1], legacy->block[2], legacy->shared, hStream, NULL,
                               extra);
}

CUresult towc_cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    return towc_cuLaunchGridAsync(f, grid_width, grid_height, NULL);
}

CUresult towc_cuLaunch(CUfunction f)
{
    return towc_cuLaunchGridAsync(f, 1, 1, NULL);
}
