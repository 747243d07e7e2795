/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of the software GPU as a whole. */
#ifndef TOW_SOFT_ENTRY_ENTRY_H
#define TOW_SOFT_ENTRY_ENTRY_H

#include "backend/backend.h"
#include "backend/soft/ground/hooks.h"
#include "gen/cuda_types.h"

#define TOW_SOFT_NAME "Towline Software GPU"
#define TOW_SOFT_NAME_DRY "Towline Dry GPU (its kernels do nothing)"
#define TOW_SOFT_DRIVER_VERSION 13000
/* The same machine gives the same UUIDs, another machine others. No byte is zero: programs (CuPy)
 * take them for a C string. */
void tow_soft_uuid_make(unsigned ordinal, CUuuid *ret_uuid);
extern const struct tow_soft_hooks tow_soft_hooks;
extern const struct tow_backend_away_ops tow_soft_away_ops;
void tow_soft_greens_free(void);

#endif
