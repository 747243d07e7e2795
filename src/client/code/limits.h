/* SPDX-License-Identifier: Apache-2.0 */
/* What devices and kernels allow a launch to ask for. */
#ifndef TOW_CLIENT_LIMITS_H
#define TOW_CLIENT_LIMITS_H

#include <stdatomic.h>
#include <stdint.h>

#include "gen/cuda_types.h"

/* What a device allows. */
struct towc_launch_limits {
    uint32_t grid[3], block[3];
    uint32_t threads;      /* per block */
    uint32_t shared_optin; /* bytes of shared memory that a block may have at most */
    uint32_t processors;
    uint32_t warp;
};

/* Borrowed for ever; NULL if there is no such device. */
const struct towc_launch_limits *towc_launch_limits(CUdevice device);

/* What a launch may not go beyond: of the device, and of the kernel on it. */
struct towc_bounds {
    uint32_t grid[3], block[3];
    atomic_uint threads; /* per block */
    atomic_uint shared;  /* bytes that a launch may ask for */
};

/* Bounds of a kernel of which nothing else is known. */
void towc_launch_bounds_init(struct towc_bounds *bounds, CUdevice device);

#endif
