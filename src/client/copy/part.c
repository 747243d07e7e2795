/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a copy of rows, as its command has it. */
#include "client/copy/part.h"

struct tow_copy_3d towc_copy_3d_part(const struct tow_copy_3d *whole, const struct towc_part *part)
{
    struct tow_copy_3d copy_3d = *whole;
    bool up = whole->from.kind == TOW_AT_HOST;
    struct tow_copy_operand *here = up ? &copy_3d.from : &copy_3d.to,
                            *there = up ? &copy_3d.to : &copy_3d.from;
    copy_3d.width = here->pitch = part->width;
    copy_3d.rows = here->height = part->rows;
    copy_3d.planes = part->planes;
    copy_3d.bytes = copy_3d.width * copy_3d.rows * copy_3d.planes;
    there->x += part->x;
    there->y += part->y;
    there->z += part->z;
    return copy_3d;
}
