/* SPDX-License-Identifier: Apache-2.0 */
/* What a program is to have at most, as its environment says: TOWLINE_GPU_MEMORY of each GPU, or
 * CUDA_DEVICE_MEMORY_LIMIT, which other ways to share GPUs read; and how it waits in line. */
#ifndef TOW_LIMIT_H
#define TOW_LIMIT_H

#include <stddef.h>
#include <stdint.h>

#include "wire/control.h"

/* Bytes; 0: neither is set. -EINVAL with a sentence in `why` where one is and cannot be understood.
 */
int tow_limit_gpu_memory(uint64_t *ret_bytes, char *why, size_t why_size);

/* TOWLINE_WAIT, TOWLINE_PRIORITY, TOWLINE_SHARE and TOWLINE_EXCLUSIVE. What is not set, or
 * (-EINVAL, with a sentence) cannot be understood, is as it is without. */
int tow_limit_wish(struct tow_wish *ret_wish, char *why, size_t why_size);

/* "10m", "0": as tow_wish has it. -EINVAL. */
int tow_limit_parse_wait(const char *text, uint32_t *ret_wait_s);
/* "low", "normal", "high": enum tow_priority. -EINVAL. */
int tow_limit_parse_priority(const char *text, uint32_t *ret_priority);
/* A weight from 1 to 1000. -EINVAL. */
int tow_limit_parse_share(const char *text, uint32_t *ret_share);

#endif
