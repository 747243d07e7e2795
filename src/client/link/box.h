/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program in rows, as copies of two and three dimensions have it. Its bytes travel
 * packed, row after row. */
#ifndef TOW_CLIENT_BOX_H
#define TOW_CLIENT_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct towc_box {
    uint8_t *first;             /* borrowed */
    size_t width, rows, planes; /* at least 1 each; width in bytes */
    size_t pitch, plane;        /* how far rows, and planes, are apart */
};

/* Bytes that lie side by side. */
static inline struct towc_box towc_box_flat(void *bytes, size_t size)
{
    return (struct towc_box){.first = bytes, .width = size, .rows = 1, .planes = 1};
}

/* Of the bytes, packed. */
static inline size_t towc_box_size(const struct towc_box *box)
{
    return box->width * box->rows * box->planes;
}

/* From the first of them to the last, with all that lies between. */
static inline size_t towc_box_span(const struct towc_box *box)
{
    return (box->planes - 1) * box->plane + (box->rows - 1) * box->pitch + box->width;
}

/* True if all of them lie side by side. */
static inline bool towc_box_is_flat(const struct towc_box *box)
{
    return (box->rows == 1 || box->pitch == box->width) &&
           (box->planes == 1 || box->plane == box->width * box->rows);
}

/* Where the byte at `offset` of the packed ones lies; `ret_side_by_side` says how many from there
 * to the end of the row. */
static inline uint8_t *towc_box_at(const struct towc_box *box, uint64_t offset,
                                   size_t *ret_side_by_side)
{
    uint64_t row = offset / box->width, x = offset % box->width;
    *ret_side_by_side = (size_t)(box->width - x);
    return box->first + row / box->rows * box->plane + row % box->rows * box->pitch + x;
}

/* Copies `size` packed bytes from `offset` on into their rows. */
void towc_box_scatter(const struct towc_box *box, uint64_t offset, const uint8_t *bytes,
                      size_t size);
/* Packs as many from `offset` on. */
void towc_box_gather(const struct towc_box *box, uint64_t offset, uint8_t *bytes, size_t size);

/* A box within a box. */
struct towc_part {
    size_t x, y, z; /* x in bytes */
    size_t width, rows, planes;
};

static inline size_t towc_part_size(const struct towc_part *part)
{
    return part->width * part->rows * part->planes;
}

static inline struct towc_part towc_part_all(const struct towc_box *box)
{
    return (struct towc_part){.width = box->width, .rows = box->rows, .planes = box->planes};
}

/* The memory of a part. */
struct towc_box towc_box_part(const struct towc_box *box, const struct towc_part *part);

/* A box cut into parts of at most so many bytes: planes if they fit, else rows, else pieces of
 * rows. */
struct towc_cut {
    struct towc_part whole, each; /* `each`: the size of those that are not at an end */
    size_t across, down, count;   /* parts of a row, of a plane's rows, of all */
};

struct towc_cut towc_cut_make(const struct towc_box *box, size_t most);
/* In the order of their packed bytes. */
struct towc_part towc_cut_part(const struct towc_cut *cut, size_t index);

#endif
