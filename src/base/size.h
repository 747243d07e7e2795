/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes as people write them. */
#ifndef TOW_BASE_SIZE_H
#define TOW_BASE_SIZE_H

#include <stdint.h>

/* "16G", "512MiB", "3000m", "4096": bytes, of units of 1024. -EINVAL. */
int tow_size_parse(const char *text, uint64_t *ret_size);

#endif
