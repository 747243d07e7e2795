/* SPDX-License-Identifier: Apache-2.0 */
/* Small arithmetic that many files need. */
#ifndef TOW_BASE_NUMBER_H
#define TOW_BASE_NUMBER_H

#include <stdint.h>

static inline uint64_t tow_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
