/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables. */
#include "transport/limit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"

int tow_limit_gpu_memory(uint64_t *ret_bytes, char *why, size_t why_size)
{
    const char *name = "TOWLINE_GPU_MEMORY", *value = getenv("TOWLINE_GPU_MEMORY");
    *ret_bytes = 0;
    if (value == NULL || value[0] == '\0') {
        name = "CUDA_DEVICE_MEMORY_LIMIT";
        value = getenv("CUDA_DEVICE_MEMORY_LIMIT");
    }
    if (value == NULL || value[0] == '\0') {
        return 0;
    }
    uint64_t bytes;
    if (tow_size_parse(value, &bytes) < 0) {
        snprintf(
            why, why_size,
            "%s=%.64s is not understood; write a number of bytes, or one with K, M, G or T, as "
            "8G",
            name, value);
        return -EINVAL;
    }
    *ret_bytes = bytes;
    return 0;
}
