/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of copies of two and three dimensions. */
#ifndef TOW_CLIENT_PART_H
#define TOW_CLIENT_PART_H

#include "client/link/host_rect.h"
#include "wire/copy.h"

/* A part of a copy one of whose operands is packed host memory: it is packed by itself. */
struct tow_copy_3d towc_copy_3d_part(const struct tow_copy_3d *whole, const struct towc_part *part);

#endif
