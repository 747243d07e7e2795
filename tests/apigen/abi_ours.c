/* SPDX-License-Identifier: Apache-2.0 */
#include "gen/cuda_types.h"
#define TABLE abi_ours
#include "abi_table.h"
