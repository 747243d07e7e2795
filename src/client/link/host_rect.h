/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program in rows, as copies of two and three dimensions have it. Its bytes travel
 * packed, row after row. */
#ifndef TOW_CLIENT_HOST_RECT_H
#define TOW_CLIENT_HOST_RECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct towc_host_rect {
    uint8_t *first;             /* borrowed */
    size_t width, rows, planes; /* at least 1 each; width in bytes */
    size_t pitch, plane;        /* how far rows, and planes, are apart */
};

/* Bytes that lie side by side. */
static inline struct towc_host_rect towc_host_rect_flat(void *bytes, size_t size)
{
    return (struct towc_host_rect){.first = bytes, .width = size, .rows = 1, .planes = 1};
}

/* Of the bytes, packed. */
static inline size_t towc_host_rect_size(const struct towc_host_rect *rect)
{
    return rect->width * rect->rows * rect->planes;
}

/* From the first of them to the last, with all that lies between. */
static inline size_t towc_host_rect_span(const struct towc_host_rect *rect)
{
    return (rect->planes - 1) * rect->plane + (rect->rows - 1) * rect->pitch + rect->width;
}

/* True if all of them lie side by side. */
static inline bool towc_host_rect_is_flat(const struct towc_host_rect *rect)
{
    return (rect->rows == 1 || rect->pitch == rect->width) &&
           (rect->planes == 1 || rect->plane == rect->width * rect->rows);
}

/* Where the byte at `offset` of the packed ones lies; `ret_contiguous` says how many from there
 * to the end of the row. */
static inline uint8_t *towc_host_rect_at(const struct towc_host_rect *rect, uint64_t offset,
                                         size_t *ret_contiguous)
{
    uint64_t row = offset / rect->width, x = offset % rect->width;
    *ret_contiguous = (size_t)(rect->width - x);
    return rect->first + row / rect->rows * rect->plane + row % rect->rows * rect->pitch + x;
}

/* Copies `size` packed bytes from `offset` on into their rows. */
void towc_host_rect_scatter(const struct towc_host_rect *rect, uint64_t offset,
                            const uint8_t *bytes, size_t size);
/* Packs as many from `offset` on. */
void towc_host_rect_gather(const struct towc_host_rect *rect, uint64_t offset, uint8_t *bytes,
                           size_t size);

/* A rectangle within a rectangle. */
struct towc_part {
    size_t x, y, z; /* x in bytes */
    size_t width, rows, planes;
};

static inline size_t towc_part_size(const struct towc_part *part)
{
    return part->width * part->rows * part->planes;
}

static inline struct towc_part towc_part_all(const struct towc_host_rect *rect)
{
    return (struct towc_part){.width = rect->width, .rows = rect->rows, .planes = rect->planes};
}

/* The memory of a part. */
struct towc_host_rect towc_host_rect_part(const struct towc_host_rect *rect,
                                          const struct towc_part *part);

/* A rectangle cut into parts of at most so many bytes: planes if they fit, else rows, else pieces
 * of rows. */
struct towc_cut {
    struct towc_part whole, each; /* `each`: the size of those that are not at an end */
    size_t across, down, count;   /* parts of a row, of a plane's rows, of all */
};

struct towc_cut towc_cut_make(const struct towc_host_rect *rect, size_t most);
/* In the order of their packed bytes. */
struct towc_part towc_cut_part(const struct towc_cut *cut, size_t index);

#endif
