/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a copy of rows, as its command has it. */
#include "client/copy/part.h"

struct tow_copy_shape towc_shape_part(const struct tow_copy_shape *whole,
                                      const struct towc_part *part)
{
    struct tow_copy_shape shape = *whole;
    bool up = whole->from.kind == TOW_AT_HOST;
    struct tow_copy_side *here = up ? &shape.from : &shape.to,
                         *there = up ? &shape.to : &shape.from;
    shape.width = here->pitch = part->width;
    shape.rows = here->height = part->rows;
    shape.planes = part->planes;
    shape.bytes = shape.width * shape.rows * shape.planes;
    there->x += part->x;
    there->y += part->y;
    there->z += part->z;
    return shape;
}
