/* SPDX-License-Identifier: Apache-2.0 */
/* Launching: what the driver would check at once is checked here; then the command goes out and
 * nobody waits. */
#ifndef TOW_CLIENT_LAUNCH_H
#define TOW_CLIENT_LAUNCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/code/code.h"
#include "client/code/limits.h"

/* The arguments of a launch, from either form. */
struct towc_launch_args {
    void **params;      /* borrowed: one pointer per parameter; or NULL */
    const void *buffer; /* borrowed: packed; or NULL */
    uint32_t given;     /* how many bytes the buffer has */
    uint32_t bytes;     /* how many are sent; zeros follow a buffer that is shorter */
};

/* Chooses the form: CUDA_ERROR_INVALID_VALUE if it is none. */
CUresult towc_launch_args_init(const struct towc_kernel *kernel, void **params, void **extra,
                               struct towc_launch_args *ret_args);
/* Writes args->bytes, gaps between parameters as zeros. */
void towc_launch_args_pack(const struct towc_kernel *kernel, const struct towc_launch_args *args,
                           uint8_t *into);

/* TOWLINE_SYNC=1, and CUDA_LAUNCH_BLOCKING=1 as with NVIDIA's driver: read when the program begins.
 */
void towc_launch_wishes(void);
/* Behind a launch into a stream, whose result is `status`: waits for it if that is wished, and then
 * returns what became of it. */
CUresult towc_launch_wait_if_blocking(CUstream stream, CUresult status);

/* Makes host memory that the arguments point at reachable, and brings the worker's copies up to
 * date. */
CUresult towc_launch_reach_all(struct towc_link *link, const struct towc_kernel *kernel,
                               const struct towc_launch_args *args);

/* Grid, block and shared memory against what kernel and device allow. */
CUresult towc_launch_check(struct towc_kernel *kernel, CUdevice device, const uint32_t grid[3],
                           const uint32_t block[3], uint32_t shared);

#endif
