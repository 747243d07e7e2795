/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the program's memory into DATA frames. */
#include "client/link/frames.h"

struct towc_frames towc_frames_of(const struct towc_box *box, size_t most)
{
    if (box->rows == 1 && box->planes == 1) {
        return (struct towc_frames){.box = *box,
                                    .size = box->width,
                                    .each = box->width < most ? box->width : most,
                                    .flat = true};
    }
    struct towc_cut cut = towc_cut_make(box, most);
    return (struct towc_frames){.box = *box,
                                .size = towc_box_size(box),
                                .each = towc_part_size(&cut.each),
                                .flat = towc_box_is_flat(box)};
}

const uint8_t *towc_frames_bytes(const struct towc_frames *frames, uint64_t offset, size_t size)
{
    if (frames->flat) {
        return frames->box.first + offset;
    }
    towc_box_gather(&frames->box, offset, frames->room, size);
    return frames->room;
}
