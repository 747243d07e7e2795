/* SPDX-License-Identifier: Apache-2.0 */
/* Puts frames of a transfer together: whoever else wants to send waits for no more than these. */
#include "transport/data.h"

int tow_data_send(struct tow_line *line, struct tow_data *data, uint64_t end, const void *bytes,
                  uint64_t *sent)
{
    static const uint8_t zeros[8];
    struct tow_data_frame frames[TOW_DATA_HEADS];
    struct iovec parts[3 * TOW_DATA_HEADS];
    _Static_assert(3 * TOW_DATA_HEADS <= TOW_LINE_IOV_MAX, "all frames go in one call");
    _Static_assert(sizeof frames[0].head % 8 == 0 && sizeof frames[0].head < TOW_LINE_LENT_MIN,
                   "heads are ours again at once");
    const uint8_t *at = bytes;
    unsigned count = 0;
    int error = tow_data_frames_encode(data, end, frames, &count);
    if (error < 0) {
        return error;
    }
    for (unsigned i = 0; i < count; i++) {
        parts[3 * i] = (struct iovec){frames[i].head, sizeof frames[i].head};
        parts[3 * i + 1] = (struct iovec){(void *)(uintptr_t)at, frames[i].size};
        parts[3 * i + 2] = (struct iovec){(void *)(uintptr_t)zeros, frames[i].pad};
        at += frames[i].size;
        *sent += sizeof frames[i].head + frames[i].size + frames[i].pad;
    }
    data->offset += (uint64_t)(at - (const uint8_t *)bytes);
    return tow_line_lend(line, parts, (int)(3 * count));
}
