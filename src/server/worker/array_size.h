/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory an array takes, told from what is asked for: no driver says it. */
#ifndef TOW_SERVER_ARRAY_SIZE_H
#define TOW_SERVER_ARRAY_SIZE_H

#include <stdint.h>

#include "backend/driver.h"

/* What an array of so many levels needs at least. Memory of one that is sparse, or is mapped
 * later, is none of its own. UINT64_MAX: more than can be told. */
uint64_t tows_array_size(const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned levels);

#endif
