/* SPDX-License-Identifier: Apache-2.0 */
/* Words that lie wholly in a range are changed at once, the others bit for bit by atomics. */
#include "base/bits.h"

static uint64_t bits_load(const tow_bits *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* The bits of `mask` become those of `value`. */
static void bits_put(tow_bits *word, uint64_t mask, uint64_t value)
{
    if (mask == UINT64_MAX) {
        atomic_store_explicit(word, value, memory_order_relaxed);
        return;
    }
    /* Nobody's neighbours are touched, and no bit is for a moment what it never is. */
    uint64_t now = bits_load(word);
    if (mask & value & ~now) {
        atomic_fetch_or_explicit(word, mask & value, memory_order_relaxed);
    }
    if (mask & ~value & now) {
        atomic_fetch_and_explicit(word, ~(mask & ~value), memory_order_relaxed);
    }
}

static void bits_fill(tow_bits *bits, uint64_t at, uint64_t count, uint64_t value)
{
    for (uint64_t word = at / 64; word * 64 < at + count; word++) {
        bits_put(&bits[word], tow_bits_mask(word, at, count), value);
    }
}

void tow_bits_set(tow_bits *bits, uint64_t at, uint64_t count)
{
    bits_fill(bits, at, count, UINT64_MAX);
}

void tow_bits_clear(tow_bits *bits, uint64_t at, uint64_t count)
{
    bits_fill(bits, at, count, 0);
}

/* The 64 bits from `at` on, of which those outside [low, high) are 0 and not read. */
static uint64_t bits_gather(const tow_bits *bits, int64_t at, int64_t low, int64_t high)
{
    int64_t word = at >= 0 ? at / 64 : -((63 - at) / 64);
    unsigned shift = (unsigned)(at - word * 64);
    uint64_t value = 0;
    if (word * 64 < high && (word + 1) * 64 > low) {
        value = bits_load(&bits[word]) >> shift;
    }
    if (shift != 0 && (word + 1) * 64 < high && (word + 2) * 64 > low) {
        value |= bits_load(&bits[word + 1]) << (64 - shift);
    }
    return value;
}

static void copy_word(tow_bits *bits, uint64_t word, uint64_t to, uint64_t from, uint64_t count)
{
    int64_t at = (int64_t)(word * 64 - to + from);
    uint64_t value = bits_gather(bits, at, (int64_t)from, (int64_t)(from + count));
    bits_put(&bits[word], tow_bits_mask(word, to, count), value);
}

void tow_bits_copy(tow_bits *bits, uint64_t to, uint64_t from, uint64_t count)
{
    uint64_t first = to / 64, behind = (to + count + 63) / 64;
    if (count == 0 || to == from) {
        return;
    }
    if (to < from) {
        for (uint64_t word = first; word < behind; word++) {
            copy_word(bits, word, to, from, count);
        }
    } else {
        for (uint64_t word = behind; word > first; word--) {
            copy_word(bits, word - 1, to, from, count);
        }
    }
}
