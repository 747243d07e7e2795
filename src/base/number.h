/* SPDX-License-Identifier: Apache-2.0 */
/* Small arithmetic that many files need. */
#ifndef TOW_BASE_NUMBER_H
#define TOW_BASE_NUMBER_H

#include <stdint.h>

static inline uint64_t tow_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The value of a hexadecimal digit, of either case; -1: it is none. */
static inline int tow_hex_digit(char digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                          : -1;
}

#endif
