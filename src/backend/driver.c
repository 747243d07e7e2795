/* SPDX-License-Identifier: Apache-2.0 */
/* Stubs and loader of the driver table. */
#include "backend/driver.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "gen/driver_stubs.h"

CUresult tow_driver_refuse(unsigned number)
{
    static atomic_uchar said[TOW_FN_LIMIT];
    if (atomic_exchange_explicit(&said[number], 1, memory_order_relaxed) == 0) {
        tow_log(TOW_AREA_BACKEND, TOW_LOG_WARN, "%s is not supported by this device",
                tow_fn_info(number)->name);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

void tow_driver_fill_stubs(struct tow_driver *driver)
{
    *driver = (struct tow_driver){0};
    for (unsigned i = 0; tow_driver_stubs[i] != NULL; i++) {
        for (const struct tow_driver_stub *stub = tow_driver_stubs[i]; stub->fn != NULL; stub++) {
            driver->fn[stub->number] = stub->fn;
        }
    }
}

int tow_driver_load(struct tow_driver *driver, void *(*find)(void *user, const char *name),
                    void *user)
{
    int count = 0;
    for (unsigned number = 0; number < TOW_FN_LIMIT; number++) {
        const struct tow_fn_info *info = tow_fn_info(number);
        void *found = info != NULL ? find(user, info->name) : NULL;
        if (found != NULL) {
            memcpy(&driver->fn[number], &found, sizeof found);
            count++;
        }
    }
    return count;
}
