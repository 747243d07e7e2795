/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of bits, 64 in a word. Any thread may use any bit at any time: each is read and changed
 * for itself. Which thread's change is seen when is the callers' affair. */
#ifndef TOW_BASE_BITS_H
#define TOW_BASE_BITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef _Atomic uint64_t tow_bits;

/* How many words hold so many bits. */
#define TOW_BITS_WORDS(count) (((uint64_t)(count) + 63) / 64)

void tow_bits_set(tow_bits *bits, uint64_t at, uint64_t count);
void tow_bits_clear(tow_bits *bits, uint64_t at, uint64_t count);
/* Copies `count` bits as memmove does; what others change meanwhile is copied as it was or is. */
void tow_bits_copy(tow_bits *bits, uint64_t to, uint64_t from, uint64_t count);

/* The part of word `word` that belongs to [at, at + count), which ends in it or behind. */
static inline uint64_t tow_bits_mask(uint64_t word, uint64_t at, uint64_t count)
{
    uint64_t low = at > word * 64 ? at - word * 64 : 0, high = at + count - word * 64;
    uint64_t below = high < 64 ? (UINT64_C(1) << high) - 1 : UINT64_MAX;
    return below & (UINT64_MAX << low);
}

/* Whether all are set. */
static inline bool tow_bits_all(const tow_bits *bits, uint64_t at, uint64_t count)
{
    for (uint64_t word = at / 64; word * 64 < at + count; word++) {
        uint64_t mask = tow_bits_mask(word, at, count);
        if (mask & ~atomic_load_explicit(&bits[word], memory_order_relaxed)) {
            return false;
        }
    }
    return true;
}

#endif
