/* SPDX-License-Identifier: Apache-2.0 */
/* How a row of addresses is checked, for what has it in line: the commonest loads and stores. */
#ifndef TOW_PTX_ROW_H
#define TOW_PTX_ROW_H

#include "ptx/machine/machine.h"
#include "ptx/num/num_bits.h"

#define STEPS_AHEAD 2 /* what a loop is told to read */
#define CACHE_LINE 64

/* Steps from lane to lane are smaller, so that a product with a lane is one of 32-bit numbers. */
#define STEP_MAX (UINT64_C(1) << 32)

static inline struct tow_ptx_site *tow_ptx_site_of(struct tow_ptx_warp *w,
                                                   const struct tow_ptx_op *o)
{
    return &w->runner->sites[((uintptr_t)o / sizeof *o) % SITES];
}

static inline struct tow_ptx_range *tow_ptx_range_of(struct tow_ptx_warp *w,
                                                     const struct tow_ptx_op *o)
{
    return &tow_ptx_site_of(w, o)->range;
}

/* ---- lanes at even steps ---- */

/* Lanes at even steps in [low, low + size), which is at `host`. A few lanes tell most rows that
 * have none. */
TOW_INLINE bool tow_ptx_line_inside(const uint64_t *a, uint64_t offset, uint64_t low, uint64_t size,
                                    uint32_t bytes, uint8_t *host, struct tow_ptx_line *ret_line)
{
    uint64_t step = a[1] - a[0], uneven = 0, reach = 15 * step + bytes;
    uint64_t first = a[0] + offset - low, second = a[16] + offset - low;
    if (step >= STEP_MAX || a[2] - a[1] != step || a[31] - a[30] != step || size < reach ||
        first > size - reach || second > size - reach ||
        ((step | (first + low) | (second + low)) & (bytes - 1))) {
        return false;
    }
    for (unsigned l = 0; l < 16; l++) {
        uint64_t away = (uint64_t)(uint32_t)step * l;
        uneven |= (a[l] - a[0] - away) | (a[16 + l] - a[16] - away);
    }
    *ret_line = (struct tow_ptx_line){{host + first, host + second}, step};
    return !uneven;
}

TOW_INLINE bool tow_ptx_try_line_global(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                        uint32_t bytes, enum tow_ptx_access access,
                                        struct tow_ptx_line *ret_line)
{
    const struct tow_ptx_range *range = tow_ptx_range_of(w, o);
    return (access == ACCESS_READ || range->writable) &&
           tow_ptx_line_inside(tow_ptx_row(w, o->a), (uint64_t)o->imm, range->low,
                               range->high - range->low, bytes, (uint8_t *)(uintptr_t)range->low,
                               ret_line);
}

TOW_INLINE bool tow_ptx_try_line_shared32(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                          uint32_t bytes, enum tow_ptx_access access,
                                          struct tow_ptx_line *ret_line)
{
    (void)access;
    const uint32_t *a = tow_ptx_row(w, o->a);
    uint32_t step = a[1] - a[0], uneven = 0;
    uint32_t first = a[0] + (uint32_t)o->imm, second = a[16] + (uint32_t)o->imm;
    uint64_t reach = 15 * (uint64_t)step + bytes, size = w->block->shared_bytes;
    if (a[2] - a[1] != step || a[31] - a[30] != step || first + reach > size ||
        second + reach > size || ((step | first | second) & (bytes - 1))) {
        return false;
    }
    for (unsigned l = 0; l < 16; l++) {
        uneven |= (a[l] - a[0] - step * l) | (a[16 + l] - a[16] - step * l);
    }
    *ret_line = (struct tow_ptx_line){{w->block->shared + first, w->block->shared + second}, step};
    return !uneven;
}

/* ---- 32 lanes one behind the other, at one place, anywhere ---- */

enum tow_ptx_shape {
    SHAPE_OTHER,
    SHAPE_LINE, /* lanes 0 to 15, and 16 to 31, `bytes` apart */
    SHAPE_SAME, /* each half at one place */
};

#define ROW_SHAPE(T)                                                                               \
    {                                                                                              \
        T step = a[1] - a[0], uneven = 0;                                                          \
        if (step == bytes && a[15] - a[0] == 15 * bytes && a[31] - a[16] == 15 * bytes) {          \
            for (unsigned l = 0; l < 16; l++) {                                                    \
                uneven |=                                                                          \
                    ((a[l] - a[0]) ^ (T)(l * bytes)) | ((a[16 + l] - a[16]) ^ (T)(l * bytes));     \
            }                                                                                      \
            return uneven ? SHAPE_OTHER : SHAPE_LINE;                                              \
        }                                                                                          \
        if (step | (a[15] ^ a[0]) | (a[31] ^ a[16])) {                                             \
            return SHAPE_OTHER;                                                                    \
        }                                                                                          \
        for (unsigned l = 0; l < 16; l++) {                                                        \
            uneven |= (a[l] ^ a[0]) | (a[16 + l] ^ a[16]);                                         \
        }                                                                                          \
        return uneven ? SHAPE_OTHER : SHAPE_SAME;                                                  \
    }
TOW_INLINE enum tow_ptx_shape tow_ptx_row_shape64(const uint64_t *a,
                                                  uint32_t bytes){ROW_SHAPE(uint64_t)} TOW_INLINE
    enum tow_ptx_shape tow_ptx_row_shape32(const uint32_t *a, uint32_t bytes){ROW_SHAPE(uint32_t)}

/* Whether lanes that are as far apart as a shape has them are aligned and in the range that the
 * instruction hit last; `first` and `second` are where lanes 0 and 16 are. */
TOW_INLINE bool tow_ptx_halves_global(const struct tow_ptx_site *site, uint64_t first,
                                      uint64_t second, uint32_t bytes, enum tow_ptx_access access)
{
    const struct tow_ptx_range *range = &site->range;
    uint64_t size = range->high - range->low, reach = 16 * bytes;
    return size >= reach && first - range->low <= size - reach &&
           second - range->low <= size - reach && !((first | second) & (bytes - 1)) &&
           (access == ACCESS_READ || range->writable);
}

/* A loop comes here again, and mostly so much further on. */
TOW_INLINE void tow_ptx_read_ahead(struct tow_ptx_site *site, uint64_t first, uint64_t second,
                                   uint32_t bytes)
{
    uint64_t away = STEPS_AHEAD * (first - site->first);
    site->first = first;
    for (uint32_t k = 0; k < 16 * bytes; k += CACHE_LINE) {
        __builtin_prefetch((const void *)(uintptr_t)(first + away + k));
        __builtin_prefetch((const void *)(uintptr_t)(second + away + k));
    }
}

/* Where lanes 0 and 16 find their data when all 32 have a shape and are in the range that the
 * instruction hit last. */
TOW_INLINE enum tow_ptx_shape tow_ptx_shape_global(struct tow_ptx_warp *w,
                                                   const struct tow_ptx_op *o, uint32_t bytes,
                                                   enum tow_ptx_access access, uint8_t *ret_half[2])
{
    struct tow_ptx_site *site = tow_ptx_site_of(w, o);
    const uint64_t *a = tow_ptx_row(w, o->a);
    uint64_t first = a[0] + (uint64_t)o->imm, second = a[16] + (uint64_t)o->imm;
    if (!tow_ptx_halves_global(site, first, second, bytes, access)) {
        return SHAPE_OTHER;
    }
    ret_half[0] = (uint8_t *)(uintptr_t)first;
    ret_half[1] = (uint8_t *)(uintptr_t)second;
    enum tow_ptx_shape shape = tow_ptx_row_shape64(a, bytes);
    if (access == ACCESS_READ && shape == SHAPE_LINE) {
        tow_ptx_read_ahead(site, first, second, bytes);
    }
    return shape;
}

TOW_INLINE enum tow_ptx_shape tow_ptx_shape_shared(struct tow_ptx_warp *w,
                                                   const struct tow_ptx_op *o, uint32_t bytes,
                                                   enum tow_ptx_access access, uint8_t *ret_half[2])
{
    (void)access;
    const uint32_t *a = tow_ptx_row(w, o->a);
    uint32_t first = a[0] + (uint32_t)o->imm, second = a[16] + (uint32_t)o->imm;
    uint32_t size = w->block->shared_bytes, reach = 16 * bytes;
    if (size < reach || first > size - reach || second > size - reach ||
        ((first | second) & (bytes - 1))) {
        return SHAPE_OTHER;
    }
    ret_half[0] = w->block->shared + first;
    ret_half[1] = w->block->shared + second;
    return tow_ptx_row_shape32(a, bytes);
}

/* Whether all lanes that take part are aligned and in the range that the instruction hit last;
 * where lane `l` finds its data is then a host address in its row. */
TOW_INLINE bool tow_ptx_try_row_global(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                       uint32_t bytes, enum tow_ptx_access access)
{
    const struct tow_ptx_range *range = tow_ptx_range_of(w, o);
    const uint64_t *a = tow_ptx_row(w, o->a);
    uint64_t from = range->low - (uint64_t)o->imm, size = range->high - range->low;
    uint64_t span = size - bytes;
    uint32_t bad = 0;
    if (size < bytes || (range->low & (bytes - 1)) || (access != ACCESS_READ && !range->writable)) {
        return false;
    }
    for (unsigned l = 0; l < LANES; l++) {
        uint64_t at = a[l] - from;
        bad |= (at > span) | ((at & (bytes - 1)) != 0) ? tow_ptx_lane_bit[l] : 0u;
    }
    return !(bad & w->exec);
}

TOW_INLINE bool tow_ptx_try_row_shared32(struct tow_ptx_warp *w, const struct tow_ptx_op *o,
                                         uint32_t bytes, enum tow_ptx_access access)
{
    (void)access;
    const uint32_t *a = tow_ptx_row(w, o->a);
    uint32_t offset = (uint32_t)o->imm, size = w->block->shared_bytes, span = size - bytes;
    uint32_t bad = 0;
    if (size < bytes) {
        return false;
    }
    for (unsigned l = 0; l < LANES; l++) {
        uint32_t at = a[l] + offset;
        bad |= (at > span) | ((at & (bytes - 1)) != 0) ? tow_ptx_lane_bit[l] : 0u;
    }
    return !(bad & w->exec);
}

#endif
