#include "client/box.h"

#include <string.h>

void tow_box_scatter(const struct tow_box *box, uint64_t offset, const uint8_t *bytes, size_t size)
{
    uint64_t row = offset / box->width, y = row % box->rows;
    size_t x = (size_t)(offset % box->width);
    uint8_t *plane = box->first + row / box->rows * box->plane;
    while (size > 0) {
        size_t n = box->width - x < size ? box->width - x : size;
        memcpy(plane + y * box->pitch + x, bytes, n);
        bytes += n;
        size -= n;
        x = 0;
        y++;
        if (y == box->rows) {
            y = 0;
            plane += box->plane;
        }
    }
}

void tow_box_gather(const struct tow_box *box, uint8_t *bytes)
{
    for (size_t z = 0; z < box->planes; z++) {
        for (size_t y = 0; y < box->rows; y++) {
            memcpy(bytes, box->first + z * box->plane + y * box->pitch, box->width);
            bytes += box->width;
        }
    }
}
