/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills as work. */
#ifndef TOW_SOFT_COPY_COPY_H
#define TOW_SOFT_COPY_COPY_H

#include "backend/soft/engine/work.h"

/* When the work is checked that is built: it runs soon; it is of a node that was made by hand; it
 * is captured, which NVIDIA's driver takes for fills of any address. */
enum tow_soft_build {
    TOW_SOFT_BUILD_NOW,
    TOW_SOFT_BUILD_NODE,
    TOW_SOFT_BUILD_CAPTURED,
};

/* Checks and makes the work of a node that copies; of a fill. */
CUresult tow_soft_copy_build(const CUDA_MEMCPY3D *desc, struct tow_soft_work *ret_work);
CUresult tow_soft_set_build(const CUDA_MEMSET_NODE_PARAMS *params, enum tow_soft_build how,
                            struct tow_soft_work *ret_work);
extern const struct tow_soft_work_ops tow_soft_copy_ops, tow_soft_set_ops;

#endif
