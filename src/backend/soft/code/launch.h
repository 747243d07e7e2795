/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as work. */
#ifndef TOW_SOFT_CODE_LAUNCH_H
#define TOW_SOFT_CODE_LAUNCH_H

#include "backend/soft/engine/work.h"

#define TOW_SOFT_PARAMS_MAX 32764 /* bytes of kernel parameters, as CUDA 12.1 and later allow */
/* Checks and packs a launch; on success *ret_work holds it. */
CUresult tow_soft_launch_build(struct tow_soft_ctx *ctx, const CUlaunchConfig *config, CUfunction f,
                               void **params, void **extra, struct tow_soft_work *ret_work);
extern const struct tow_soft_work_ops tow_soft_kernel_ops;

#endif
