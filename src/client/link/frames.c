/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the program's memory into DATA frames. */
#include "client/link/frames.h"

struct tow_frames tow_frames_of(const struct tow_box *box, size_t most)
{
    if (box->rows == 1 && box->planes == 1) {
        return (struct tow_frames){.box = *box,
                                   .size = box->width,
                                   .each = box->width < most ? box->width : most,
                                   .flat = true};
    }
    struct tow_cut cut = tow_cut_make(box, most);
    return (struct tow_frames){.box = *box,
                               .size = tow_box_size(box),
                               .each = tow_part_size(&cut.each),
                               .flat = tow_box_is_flat(box)};
}

const uint8_t *tow_frames_bytes(const struct tow_frames *frames, uint64_t offset, size_t size)
{
    if (frames->flat) {
        return frames->box.first + offset;
    }
    tow_box_gather(&frames->box, offset, frames->room, size);
    return frames->room;
}
