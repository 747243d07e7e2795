/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of two and three dimensions, and of arrays. */
#ifndef TOW_CLIENT_SHAPE_H
#define TOW_CLIENT_SHAPE_H

#include <stdbool.h>

#include "gen/cuda_types.h"

/* `wait`: the program's call is synchronous; `peer`: the two sides name their contexts. */
CUresult tow_shape_copy(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool wait, bool peer);

#endif
