/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of events. No event of a GPU travels here: no type is supported, no device can be
 * registered, and whoever waits waits for as long as it said. */
#include "nvml/nvml_api.h"
#include "nvml/nvml.h"

#include <stdlib.h>
#include <time.h>

struct tow_nvml_events {
    int kind; /* a set holds nothing; programs only pass its address around */
};

TOW_NVML_PUBLIC int nvmlEventSetCreate(struct tow_nvml_events **ret_set)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    struct tow_nvml_events *set = ret_set == NULL ? NULL : calloc(1, sizeof *set);
    if (set == NULL) {
        return tow_nvml_end(ret_set == NULL ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_MEMORY);
    }
    *ret_set = set;
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlEventSetFree(struct tow_nvml_events *set)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (set == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    free(set);
    return tow_nvml_end(NVML_SUCCESS);
}

TOW_NVML_PUBLIC int nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *ret_types)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (tow_nvml_device(handle) == NULL || ret_types == NULL) {
        return tow_nvml_end(NVML_ERROR_INVALID_ARGUMENT);
    }
    *ret_types = 0;
    return tow_nvml_end(NVML_SUCCESS);
}

/* The data is for an event, and there is none. */
TOW_NVML_PUBLIC int nvmlEventSetWait_v2(struct tow_nvml_events *set, void *data, unsigned ms)
{
    int result = tow_nvml_begin();
    if (result != NVML_SUCCESS) {
        return result;
    }
    tow_nvml_end(NVML_SUCCESS); /* nobody else waits for us */
    if (set == NULL || data == NULL) {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
    return NVML_ERROR_TIMEOUT;
}

TOW_NVML_PUBLIC int nvmlEventSetWait(struct tow_nvml_events *set, void *data, unsigned ms)
{
    return nvmlEventSetWait_v2(set, data, ms);
}
