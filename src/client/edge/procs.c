/* SPDX-License-Identifier: Apache-2.0 */
/* Finding functions by name and version. */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "gen/client_api.h"
#include "gen/core_client.h"

/* Drivers have these besides what is in the table, for OpenGL, EGL and VDPAU. A runtime that does
 * not find them tells the user to install a newer driver, so they are found, and refuse. */
static CUresult refuse_graphics(void)
{
    /* Process-wide: one line is enough. */
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said)) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "graphics resources cannot be shared with a GPU that is somewhere else; "
                "docs/api-status.md says why");
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static bool is_graphics(const char *name)
{
    static const char *const prefixes[] = {"cuGL",
                                           "cuGraphicsGL",
                                           "cuEGL",
                                           "cuGraphicsEGL",
                                           "cuVDPAU",
                                           "cuGraphicsVDPAU",
                                           "cuEventCreateFromEGL"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The rows of a name: the first of them, and how many. */
static unsigned rows_of(const char *name, unsigned *ret_first)
{
    unsigned low = 0, high = towc_proc_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (strcmp(towc_procs[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    unsigned count = 0;
    while (low + count < towc_proc_count && strcmp(towc_procs[low + count].name, name) == 0) {
        count++;
    }
    *ret_first = low;
    return count;
}

/* The newest entry that is not newer than `version`. *ret_known: the name exists at all. */
static void *procs_find(const char *name, int version, bool per_thread, bool *ret_known)
{
    unsigned first = 0, count = rows_of(name, &first);
    bool has_per_thread = false;
    void *found = NULL;
    *ret_known = count > 0;
    for (unsigned i = first; i < first + count; i++) {
        has_per_thread = has_per_thread || towc_procs[i].per_thread_since != 0;
    }
    for (unsigned i = first; i < first + count; i++) {
        const struct towc_proc *proc = &towc_procs[i];
        if (per_thread && has_per_thread) {
            if (proc->per_thread_since != 0 && proc->per_thread_since <= version) {
                found = proc->per_thread_entry;
            }
        } else if (proc->since <= version) {
            found = proc->entry;
        }
    }
    if (!*ret_known && is_graphics(name)) {
        *ret_known = true;
        found = (void *)refuse_graphics;
    }
    return found;
}

CUresult towc_cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *symbolStatus)
{
    if (symbol == NULL || pfn == NULL || flags > 3) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool known = false;
    *pfn = procs_find(symbol, cudaVersion,
                      (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, &known);
    if (symbolStatus != NULL) {
        *symbolStatus = *pfn != NULL ? CU_GET_PROC_ADDRESS_SUCCESS
                        : known      ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return CUDA_SUCCESS;
}

CUresult towc_cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    if (symbol == NULL || pfn == NULL || flags > 3) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool known = false;
    void *found = procs_find(symbol, cudaVersion,
                             (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, &known);
    if (found == NULL) {
        return CUDA_ERROR_NOT_FOUND;
    }
    *pfn = found;
    return CUDA_SUCCESS;
}
