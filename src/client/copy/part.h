/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of copies of two and three dimensions. */
#ifndef TOW_CLIENT_PART_H
#define TOW_CLIENT_PART_H

#include "client/link/box.h"
#include "wire/copy.h"

/* A part of a copy one of whose sides is packed host memory: it is packed by itself. */
struct tow_copy_shape towc_shape_part(const struct tow_copy_shape *whole,
                                      const struct towc_part *part);

#endif
