/* SPDX-License-Identifier: Apache-2.0 */
/* Names and descriptions of results: ours, or those of the server's driver. */
#include "client/session/error.h"

#include <stdatomic.h>
#include <stddef.h>

#include "gen/core_client.h"

static const char *error_describe(CUresult error)
{
    switch (error) {
#define TOW_MEANING(result, sentence)                                                              \
    case result:                                                                                   \
        return sentence;
#include "client/session/error_meanings.def"
#undef TOW_MEANING
    default:
        return NULL;
    }
}

static const char *name_of(CUresult error)
{
    switch ((int)error) {
#define TOW_RESULT(name, value)                                                                    \
    case value:                                                                                    \
        return #name;
#include "gen/error_names.h"
#undef TOW_RESULT
    default:
        return NULL;
    }
}

CUresult towc_cuGetErrorName(CUresult error, const char **pStr)
{
    if (pStr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = name_of(error);
    return *pStr != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Process-wide: an error's text is the same for all. Of the first driver that a server told of.
 * Programs keep the pointers: never changed, never freed. */
static char *_Atomic known[TOW_SNAPSHOT_RESULTS];

void towc_error_take(struct tow_snapshot *snapshot)
{
    for (unsigned i = 0; i < TOW_SNAPSHOT_RESULTS; i++) {
        char *none = NULL;
        if (snapshot->texts[i] != NULL &&
            atomic_compare_exchange_strong(&known[i], &none, snapshot->texts[i])) {
            snapshot->texts[i] = NULL;
        }
    }
}

CUresult towc_cuGetErrorString(CUresult error, const char **pStr)
{
    if (pStr == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pStr = (unsigned)error < TOW_SNAPSHOT_RESULTS ? atomic_load(&known[error]) : NULL;
    if (*pStr != NULL) {
        return CUDA_SUCCESS;
    }
    *pStr = error_describe(error);
    if (*pStr == NULL) {
        /* A code that the table has and this file does not describe yet still has its name. */
        *pStr = name_of(error);
    }
    return *pStr != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
