/* SPDX-License-Identifier: Apache-2.0 */
/* The program's memory on its way out: a frame of `each` packed bytes after the other. */
#ifndef TOW_CLIENT_FRAMES_H
#define TOW_CLIENT_FRAMES_H

#include "client/link/box.h"

struct towc_frames {
    struct towc_box box;
    size_t size, each; /* of all its bytes; of a frame */
    bool flat;         /* they lie side by side */
    uint8_t *room; /* borrowed: `each` bytes to pack them in; not needed if the box has no gaps */
};

/* Frames of at most `most` bytes: of whole planes, or else rows, that fit into one. */
struct towc_frames towc_frames_of(const struct towc_box *box, size_t most);

/* The bytes of a frame, in the program's memory or packed into the room. */
const uint8_t *towc_frames_bytes(const struct towc_frames *frames, uint64_t offset, size_t size);

#endif
