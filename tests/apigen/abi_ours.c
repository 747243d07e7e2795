/* SPDX-License-Identifier: Apache-2.0 */
/* The ABI of cuda.h as our generated header has it. */
#include "gen/cuda_types.h"
#define TABLE abi_ours
#include "abi_table.h"
