/* SPDX-License-Identifier: Apache-2.0 */
/* The ABI of cuda.h as NVIDIA's header has it, where a toolkit is installed. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#define TABLE abi_theirs
#include "abi_table.h"
