/* SPDX-License-Identifier: Apache-2.0 */
/* Walks memory in rows and packs or unpacks pieces of it. */
#include "client/link/host_rect.h"

#include <string.h>

/* Where the next packed bytes lie. */
struct walk {
    uint8_t *plane;
    size_t x, y;
};

static struct walk walk_from(const struct towc_host_rect *rect, uint64_t offset)
{
    uint64_t row = offset / rect->width;
    return (struct walk){.plane = rect->first + row / rect->rows * rect->plane,
                         .x = (size_t)(offset % rect->width),
                         .y = (size_t)(row % rect->rows)};
}

/* Of `size` bytes those that lie side by side; then it is behind them, at a row's beginning. */
static inline uint8_t *walk_on(const struct towc_host_rect *rect, struct walk *at, size_t size,
                               size_t *ret_size)
{
    uint8_t *here = at->plane + at->y * rect->pitch + at->x;
    *ret_size = rect->width - at->x < size ? rect->width - at->x : size;
    at->x = 0;
    at->y++;
    if (at->y == rect->rows) {
        at->y = 0;
        at->plane += rect->plane;
    }
    return here;
}

void towc_host_rect_scatter(const struct towc_host_rect *rect, uint64_t offset,
                            const uint8_t *bytes, size_t size)
{
    struct walk at = walk_from(rect, offset);
    for (size_t n; size > 0; bytes += n, size -= n) {
        uint8_t *to = walk_on(rect, &at, size, &n);
        memcpy(to, bytes, n);
    }
}

void towc_host_rect_gather(const struct towc_host_rect *rect, uint64_t offset, uint8_t *bytes,
                           size_t size)
{
    struct walk at = walk_from(rect, offset);
    for (size_t n; size > 0; bytes += n, size -= n) {
        const uint8_t *from = walk_on(rect, &at, size, &n);
        memcpy(bytes, from, n);
    }
}

struct towc_host_rect towc_host_rect_part(const struct towc_host_rect *rect,
                                          const struct towc_part *part)
{
    return (struct towc_host_rect){.first = rect->first + part->z * rect->plane +
                                            part->y * rect->pitch + part->x,
                                   .width = part->width,
                                   .rows = part->rows,
                                   .planes = part->planes,
                                   .pitch = rect->pitch,
                                   .plane = rect->plane};
}

static size_t least_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t parts_of(size_t whole, size_t each)
{
    return whole / each + (whole % each != 0);
}

struct towc_cut towc_cut_make(const struct towc_host_rect *rect, size_t most)
{
    struct towc_cut cut = {.whole = towc_part_all(rect)};
    struct towc_part *each = &cut.each;
    each->width = least_of(rect->width, most);
    each->rows = each->width < rect->width ? 1 : least_of(rect->rows, most / each->width);
    each->planes =
        each->rows < rect->rows ? 1 : least_of(rect->planes, most / (each->width * each->rows));
    cut.across = parts_of(rect->width, each->width);
    cut.down = parts_of(rect->rows, each->rows);
    cut.count = cut.across * cut.down * parts_of(rect->planes, each->planes);
    return cut;
}

struct towc_part towc_cut_part(const struct towc_cut *cut, size_t index)
{
    const struct towc_part *each = &cut->each, *whole = &cut->whole;
    struct towc_part part = {.x = index % cut->across * each->width,
                             .y = index / cut->across % cut->down * each->rows,
                             .z = index / cut->across / cut->down * each->planes};
    part.width = least_of(each->width, whole->width - part.x);
    part.rows = least_of(each->rows, whole->rows - part.y);
    part.planes = least_of(each->planes, whole->planes - part.z);
    return part;
}
