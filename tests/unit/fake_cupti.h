/* SPDX-License-Identifier: Apache-2.0 */
/* A CUPTI without a GPU, for test_cupti.c. */
#ifndef TOW_TESTS_FAKE_CUPTI_H
#define TOW_TESTS_FAKE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/cupti_layout.h"

enum { FAKE_CUPTI_RECORD = 208, FAKE_CUPTI_ROOM = 16 * FAKE_CUPTI_RECORD };

void fake_cupti_call(uint32_t site, uint32_t correlation);
void fake_cupti_record(const void *record, size_t size);
void fake_cupti_drop(size_t count);
uint64_t fake_cupti_now(void);
uint32_t fake_cupti_kinds(void);
uint32_t fake_cupti_functions(void);

#endif
