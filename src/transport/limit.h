/* SPDX-License-Identifier: Apache-2.0 */
/* What a program is to have of each GPU at most, as its environment says: TOWLINE_GPU_MEMORY, or
 * CUDA_DEVICE_MEMORY_LIMIT, which other ways to share GPUs read. */
#ifndef TOW_LIMIT_H
#define TOW_LIMIT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes; 0: neither is set. -EINVAL with a sentence in `why` where one is and cannot be understood.
 */
int tow_limit_gpu_memory(uint64_t *ret_bytes, char *why, size_t why_size);

#endif
