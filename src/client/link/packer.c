/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the program's memory into DATA frames. */
#include "client/link/packer.h"

struct towc_packer towc_packer_of(const struct towc_host_rect *rect, size_t most)
{
    if (rect->rows == 1 && rect->planes == 1) {
        return (struct towc_packer){.rect = *rect,
                                    .size = rect->width,
                                    .each = rect->width < most ? rect->width : most,
                                    .flat = true};
    }
    struct towc_cut cut = towc_cut_make(rect, most);
    return (struct towc_packer){.rect = *rect,
                                .size = towc_host_rect_size(rect),
                                .each = towc_part_size(&cut.each),
                                .flat = towc_host_rect_is_flat(rect)};
}

const uint8_t *towc_packer_bytes(const struct towc_packer *packer, uint64_t offset, size_t size)
{
    if (packer->flat) {
        return packer->rect.first + offset;
    }
    towc_host_rect_gather(&packer->rect, offset, packer->room, size);
    return packer->room;
}
