/* SPDX-License-Identifier: Apache-2.0 */
/* Walks memory in rows and packs or unpacks pieces of it. */
#include "client/link/box.h"

#include <string.h>

/* Where the next packed bytes lie. */
struct walk {
    uint8_t *plane;
    size_t x, y;
};

static struct walk walk_from(const struct towc_box *box, uint64_t offset)
{
    uint64_t row = offset / box->width;
    return (struct walk){.plane = box->first + row / box->rows * box->plane,
                         .x = (size_t)(offset % box->width),
                         .y = (size_t)(row % box->rows)};
}

/* Of `size` bytes those that lie side by side; then it is behind them, at a row's beginning. */
static inline uint8_t *walk_on(const struct towc_box *box, struct walk *at, size_t size,
                               size_t *ret_size)
{
    uint8_t *here = at->plane + at->y * box->pitch + at->x;
    *ret_size = box->width - at->x < size ? box->width - at->x : size;
    at->x = 0;
    at->y++;
    if (at->y == box->rows) {
        at->y = 0;
        at->plane += box->plane;
    }
    return here;
}

void towc_box_scatter(const struct towc_box *box, uint64_t offset, const uint8_t *bytes,
                      size_t size)
{
    struct walk at = walk_from(box, offset);
    for (size_t n; size > 0; bytes += n, size -= n) {
        uint8_t *to = walk_on(box, &at, size, &n);
        memcpy(to, bytes, n);
    }
}

void towc_box_gather(const struct towc_box *box, uint64_t offset, uint8_t *bytes, size_t size)
{
    struct walk at = walk_from(box, offset);
    for (size_t n; size > 0; bytes += n, size -= n) {
        const uint8_t *from = walk_on(box, &at, size, &n);
        memcpy(bytes, from, n);
    }
}

struct towc_box towc_box_part(const struct towc_box *box, const struct towc_part *part)
{
    return (struct towc_box){.first =
                                 box->first + part->z * box->plane + part->y * box->pitch + part->x,
                             .width = part->width,
                             .rows = part->rows,
                             .planes = part->planes,
                             .pitch = box->pitch,
                             .plane = box->plane};
}

static size_t box_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t box_parts(size_t whole, size_t each)
{
    return whole / each + (whole % each != 0);
}

struct towc_cut towc_cut_make(const struct towc_box *box, size_t most)
{
    struct towc_cut cut = {.whole = towc_part_all(box)};
    struct towc_part *each = &cut.each;
    each->width = box_least(box->width, most);
    each->rows = each->width < box->width ? 1 : box_least(box->rows, most / each->width);
    each->planes =
        each->rows < box->rows ? 1 : box_least(box->planes, most / (each->width * each->rows));
    cut.across = box_parts(box->width, each->width);
    cut.down = box_parts(box->rows, each->rows);
    cut.count = cut.across * cut.down * box_parts(box->planes, each->planes);
    return cut;
}

struct towc_part towc_cut_part(const struct towc_cut *cut, size_t index)
{
    const struct towc_part *each = &cut->each, *whole = &cut->whole;
    struct towc_part part = {.x = index % cut->across * each->width,
                             .y = index / cut->across % cut->down * each->rows,
                             .z = index / cut->across / cut->down * each->planes};
    part.width = box_least(each->width, whole->width - part.x);
    part.rows = box_least(each->rows, whole->rows - part.y);
    part.planes = box_least(each->planes, whole->planes - part.z);
    return part;
}
