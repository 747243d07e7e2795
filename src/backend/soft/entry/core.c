/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, version, names of errors, profiler calls that have nothing to do. */
#include "backend/soft/entry/entry.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/state.h"
#include "base/mutex.h"
#include "gen/core.h"

#include <string.h>

static const struct {
    CUresult code;
    const char *name;
} names[] = {
#define TOW_RESULT(name, code) {name, #name},
#include "gen/error_names.h"
#undef TOW_RESULT
};

static CUresult soft_cuGetErrorName(CUresult error, const char **pStr)
{
    if (pStr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].code == error) {
            *pStr = names[i].name;
            return CUDA_SUCCESS;
        }
    }
    *pStr = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult soft_cuGetErrorString(CUresult error, const char **pStr)
{
    /* The client has the sentences; here the name says as much. */
    return soft_cuGetErrorName(error, pStr);
}

static CUresult soft_cuInit(unsigned int Flags)
{
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    tow_mutex_lock(&tow_soft.lock);
    CUresult result = tow_soft.open ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
    tow_soft.initialised = tow_soft.open;
    tow_mutex_unlock(&tow_soft.lock);
    return result;
}

static CUresult soft_cuDriverGetVersion(int *driverVersion)
{
    if (driverVersion == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = TOW_SOFT_DRIVER_VERSION;
    return CUDA_SUCCESS;
}

static CUresult soft_cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    (void)pExportTableId;
    if (ppExportTable != NULL) {
        *ppExportTable = NULL;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult nothing_to_profile(void)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    return result == CUDA_SUCCESS ? tow_soft_leave(result) : result;
}

static CUresult soft_cuProfilerInitialize(const char *configFile, const char *outputFile,
                                          CUoutput_mode outputMode)
{
    (void)configFile;
    (void)outputFile;
    (void)outputMode;
    return CUDA_ERROR_NOT_SUPPORTED;
}

void tow_soft_fill_core(struct tow_driver *driver)
{
    tow_driver_set(driver, cuGetErrorName, soft_cuGetErrorName);
    tow_driver_set(driver, cuGetErrorString, soft_cuGetErrorString);
    tow_driver_set(driver, cuInit, soft_cuInit);
    tow_driver_set(driver, cuDriverGetVersion, soft_cuDriverGetVersion);
    tow_driver_set(driver, cuGetExportTable, soft_cuGetExportTable);
    tow_driver_set(driver, cuProfilerInitialize, soft_cuProfilerInitialize);
    tow_driver_set(driver, cuProfilerStart, nothing_to_profile);
    tow_driver_set(driver, cuProfilerStop, nothing_to_profile);
}
