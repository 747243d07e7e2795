/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target offers to driver.c; libFuzzer uses the entry point alone. */
#ifndef TOW_TESTS_FUZZ_H
#define TOW_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_SEED_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Writes valid input number `number` and gives its size; 0 when there are no more. */
size_t fuzz_seed(unsigned number, uint8_t *ret_bytes, size_t size);

#endif
