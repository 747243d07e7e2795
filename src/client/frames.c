#include "client/frames.h"

#include "base/number.h"

struct tow_frames tow_frames_of(const struct tow_box *box, size_t most)
{
    size_t plane = box->width * box->rows;
    size_t unit = plane <= most ? plane : box->width <= most ? box->width : 1;
    return (struct tow_frames){.box = *box,
                               .each = (size_t)tow_min_u64(tow_box_size(box), most / unit * unit)};
}

const uint8_t *tow_frames_bytes(const struct tow_frames *frames, uint64_t offset, size_t size)
{
    if (tow_box_is_flat(&frames->box)) {
        return frames->box.first + offset;
    }
    tow_box_gather(&frames->box, offset, frames->room, size);
    return frames->room;
}
