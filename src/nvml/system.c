/* SPDX-License-Identifier: Apache-2.0 */
/* What belongs to no device: versions, results in words, names of processes. */
#include "nvml/nvml_api.h"
#include "nvml/nvml.h"

#include <stddef.h>

static int version_text(size_t offset, char *text, unsigned size)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    return tow_nvml_end(tow_nvml_give_text((const char *)tow_nvml_system() + offset, text, size));
}

TOW_NVML_PUBLIC int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    return version_text(offsetof(struct tow_nvml_system, driver), version, size);
}

TOW_NVML_PUBLIC int nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    return version_text(offsetof(struct tow_nvml_system, library), version, size);
}

TOW_NVML_PUBLIC int nvmlSystemGetCudaDriverVersion_v2(int *ret_version)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (ret_version == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    *ret_version = tow_nvml_system()->cuda;
    return tow_nvml_end(*ret_version > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED);
}

TOW_NVML_PUBLIC int nvmlSystemGetCudaDriverVersion(int *ret_version)
{
    return nvmlSystemGetCudaDriverVersion_v2(ret_version);
}

TOW_NVML_PUBLIC int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    result = tow_nvml_refresh();
    if (result != NVML_SUCCESS) {
        return tow_nvml_end(result);
    }
    for (unsigned i = 0; i < tow_nvml_count(); i++) {
        const struct tow_nvml_device *device = tow_nvml_at(i);
        for (unsigned j = 0; j < device->process_count; j++) {
            if (device->process[j].pid == pid) {
                return tow_nvml_end(tow_nvml_give_text(device->process[j].name, name, size));
            }
        }
    }
    return tow_nvml_end(NVML_ERROR_NOT_FOUND);
}

TOW_NVML_PUBLIC int nvmlUnitGetCount(unsigned *ret_count)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (ret_count == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    *ret_count = 0; /* S-class boxes, long gone */
    return tow_nvml_end(NVML_SUCCESS);
}

/* A session's memory is open to its server: never confidential, whatever the server's machine can
 * do. All numbers are 0: no environment, off, no tools mode, no multi-GPU mode. */
TOW_NVML_PUBLIC int nvmlSystemGetConfComputeState(struct nvml_confidential_state *state)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (state == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    *state = (struct nvml_confidential_state){0};
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlSystemGetConfComputeSettings(struct nvml_confidential *settings)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (settings == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    if (settings->version != (sizeof *settings | 1u << 24)) {
        return tow_nvml_end(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    *settings = (struct nvml_confidential){.version = settings->version};
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC const char *nvmlErrorString(int result)
{
    static const char *const texts[] = {
        [0] = "Success",
        [1] = "Uninitialized",
        [2] = "Invalid Argument",
        [3] = "Not Supported",
        [4] = "Insufficient Permissions",
        [5] = "Already Initialized",
        [6] = "Not Found",
        [7] = "Insufficient Size",
        [8] = "Insufficient External Power",
        [9] = "Driver Not Loaded",
        [10] = "Timeout",
        [11] = "Interrupt Request Issue",
        [12] = "NVML Shared Library Not Found",
        [13] = "Function Not Found",
        [14] = "Corrupted infoROM",
        [15] = "GPU is lost",
        [16] = "GPU requires reset",
        [17] = "GPU access blocked by the operating system",
        [18] = "Driver/library version mismatch",
        [19] = "In use by another client",
        [20] = "Insufficient Memory",
        [21] = "No data",
        [22] = "ECC not supported on this virtual GPU",
        [23] = "Insufficient resources",
        [24] = "Frequency not supported",
        [25] = "Argument version mismatch",
        [26] = "Deprecated",
        [27] = "Not ready",
        [28] = "GPU not found",
        [29] = "Invalid state",
        [30] = "Reset type not supported",
    };
    if (result == TOW_NVML_OURS_CODE) {
        return TOW_NVML_OURS_TEXT; /* how a server knows this library from NVIDIA's */
    }
    return result >= 0 && result < (int)(sizeof texts / sizeof *texts) && texts[result] != NULL
               ? texts[result]
               : "Unknown Error";
}
