/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and times as people write them. */
#ifndef TOW_BASE_SIZE_H
#define TOW_BASE_SIZE_H

#include <stdint.h>

/* Digits of a base up to 10, and what is behind them. -EINVAL. */
int tow_number_parse(const char *text, int base, uint64_t *ret_number, const char **ret_rest);

/* "16G", "512MiB", "3000m", "4096": bytes, of units of 1024. -EINVAL. */
int tow_size_parse(const char *text, uint64_t *ret_size);

/* "90", "90s", "10m", "2h", "1d": seconds. -EINVAL. */
int tow_duration_parse(const char *text, uint64_t *ret_seconds);

#endif
