/* SPDX-License-Identifier: Apache-2.0 */
/* The driver table: one pointer for each function of the API, at the function's number. A backend
 * fills it, the server calls through it.
 *
 *     tow_drive(driver, cuEventRecord)(event, stream)
 *
 * Nothing here names a function: who calls one includes its family's header (gen/FAMILY.h), which
 * has its number and its type.
 */
#ifndef TOW_BACKEND_DRIVER_H
#define TOW_BACKEND_DRIVER_H

#include <stdint.h>

#include "base/locks.h"
#include "gen/cuda_types.h"
#include "gen/functions.h"

typedef void tow_driver_fn(void);

struct tow_driver {
    /* None is NULL where there is such a function. One may be put into the place of another at any
     * time (server/worker/gate.h), so each is read and written as a whole. */
    tow_driver_fn *fn[TOW_FN_LIMIT];
};

/* The driver's `name`, with the type that the API gives it. A driver takes as long as it likes:
 * only locks that are marked for it may be held (base/locks.def). */
#define tow_drive(driver, name)                                                                    \
    (tow_locks_over(TOW_LOCK_OVER_DRIVER, #name),                                                  \
     (__typeof__(&name))__atomic_load_n(&(driver)->fn[TOW_FN_##name], __ATOMIC_RELAXED))

/* Puts `function` in place of the driver's `name`; one of another type is a warning. */
#define tow_driver_set(driver, name, function)                                                     \
    do {                                                                                           \
        __typeof__(&name) tow_driver_set_ = (function);                                            \
        __atomic_store_n(&(driver)->fn[TOW_FN_##name], (tow_driver_fn *)tow_driver_set_,           \
                         __ATOMIC_RELAXED);                                                        \
    } while (0)

/* Points every entry at a stub that answers CUDA_ERROR_NOT_SUPPORTED and names itself once in the
 * log. */
void tow_driver_fill_stubs(struct tow_driver *driver);

/* Fills the entries that `find` knows (a dlsym-like function); the others stay as they are.
 * Returns how many were found. */
int tow_driver_load(struct tow_driver *driver, void *(*find)(void *user, const char *name),
                    void *user);

/* What the generated stubs (gen/FAMILY_driver.c) are made of. */
struct tow_driver_stub {
    uint16_t number;
    tow_driver_fn *fn; /* NULL ends a list */
};
CUresult tow_driver_refuse(unsigned number);

#endif
