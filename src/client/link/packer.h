/* SPDX-License-Identifier: Apache-2.0 */
/* The program's memory on its way out: a frame of `each` packed bytes after the other. */
#ifndef TOW_CLIENT_PACKER_H
#define TOW_CLIENT_PACKER_H

#include "client/link/host_rect.h"

struct towc_packer {
    struct towc_host_rect rect;
    size_t size, each; /* of all its bytes; of a frame */
    bool flat;         /* they lie side by side */
    uint8_t
        *room; /* borrowed: `each` bytes to pack them in; not needed if the rectangle has no gaps */
};

/* Frames of at most `most` bytes: of whole planes, or else rows, that fit into one. */
struct towc_packer towc_packer_of(const struct towc_host_rect *rect, size_t most);

/* The bytes of a frame, in the program's memory or packed into the room. */
const uint8_t *towc_packer_bytes(const struct towc_packer *packer, uint64_t offset, size_t size);

#endif
