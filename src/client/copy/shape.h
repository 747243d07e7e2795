/* Copies of two and three dimensions, and of arrays. */
#ifndef TOW_CLIENT_SHAPE_H
#define TOW_CLIENT_SHAPE_H

#include <stdbool.h>

#include "client/link/box.h"
#include "gen/cuda_types.h"
#include "wire/copy.h"

/* `wait`: the program's call is synchronous; `peer`: the two sides name their contexts. */
CUresult tow_shape_copy(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool wait, bool peer);

/* A part of a copy one of whose sides is packed host memory: it is packed by itself. */
struct tow_copy_shape tow_shape_part(const struct tow_copy_shape *whole,
                                     const struct tow_part *part);

#endif
