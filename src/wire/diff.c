/* SPDX-License-Identifier: Apache-2.0 */
/* Finds changed bytes between two copies, and applies changes. */
#include "wire/diff.h"

#include <errno.h>
#include <string.h>

#include "wire/cursor.h"

enum {
    FULL = 1,
    MASKED = 2,
    STEP = 4096, /* compared at once before single lines are looked at */
};

/* Whole pages of the program's memory are looked at, also beside what it registered, and while it
 * writes: the sanitizers must not judge these two. */
#define UNJUDGED                                                                                   \
    __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

typedef uint64_t __attribute__((may_alias, aligned(1))) word;

UNJUDGED static bool diff_same(const uint8_t *known, const uint8_t *now, size_t size)
{
    const word *a = (const word *)known, *b = (const word *)now;
    uint64_t differs = 0;
    for (size_t i = 0; i < size / 8; i++) {
        differs |= a[i] ^ b[i];
    }
    return differs == 0;
}

UNJUDGED static void diff_look(uint8_t line[TOW_DIFF_LINE], const uint8_t *now, size_t size)
{
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t eight = *(const volatile word *)(now + i);
        memcpy(line + i, &eight, 8);
    }
    for (; i < size; i++) {
        line[i] = ((const volatile uint8_t *)now)[i];
    }
}

/* A bit for every byte of a word that is not 0. */
static uint64_t bytes_set(uint64_t x)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7f;
    uint64_t tops = (((x & low) + low) | x) & ~low;
    return (tops >> 7) * 0x0102040810204080 >> 56;
}

/* Which bytes of a line differ. */
static uint64_t line_mask(const uint8_t *known, const uint8_t *line, size_t size)
{
    if (known == NULL) {
        return size == TOW_DIFF_LINE ? UINT64_MAX : (UINT64_C(1) << size) - 1;
    }
    uint64_t mask = 0;
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t a, b;
        memcpy(&a, known + i, 8);
        memcpy(&b, line + i, 8);
        mask |= bytes_set(a ^ b) << i;
    }
    for (size_t i = size & ~(size_t)7; i < size; i++) {
        mask |= (uint64_t)(known[i] != line[i]) << i;
    }
    return mask;
}

/* Makes `known` what the line is, where there is one. */
static void diff_learn(uint8_t *known, const uint8_t *line, size_t size)
{
    if (known != NULL) {
        memcpy(known, line, size);
    }
}

size_t tow_diff_next(struct tow_diff *diff, uint8_t *out, size_t room)
{
    size_t used = 0;
    uint8_t *head = NULL; /* of the record being written */
    uint32_t lines = 0, kind = 0;
    size_t next = 0; /* where a record would go on */
    while (diff->at < diff->size) {
        size_t left = diff->size - diff->at;
        uint8_t *known = diff->known != NULL ? diff->known + diff->at : NULL;
        if (known != NULL && diff->at % STEP == 0 && left >= STEP &&
            diff_same(known, diff->now + diff->at, STEP)) {
            diff->at += STEP;
            continue;
        }
        /* One look at the line: others may be writing it. The last one may be short. */
        uint8_t line[TOW_DIFF_LINE] = {0};
        size_t length = left < TOW_DIFF_LINE ? left : TOW_DIFF_LINE;
        diff_look(line, diff->now + diff->at, length);
        uint64_t mask = line_mask(known, line, length);
        if (mask == 0) {
            diff->at += TOW_DIFF_LINE;
            continue;
        }
        uint32_t this_kind = mask == UINT64_MAX ? FULL : MASKED;
        bool joins = head != NULL && this_kind == kind && next == diff->at;
        size_t need = TOW_DIFF_LINE + (this_kind == MASKED ? 8 : 0) + (joins ? 0 : 16);
        if (need > room - used) {
            break;
        }
        if (!joins) {
            uint64_t address = diff->address + diff->at;
            head = out + used;
            memcpy(head, &address, 8);
            kind = this_kind;
            lines = 0;
            used += 16;
        }
        lines++;
        memcpy(head + 8, &lines, 4);
        memcpy(head + 12, &kind, 4);
        if (kind == MASKED) {
            memcpy(out + used, &mask, 8);
            used += 8;
        }
        memcpy(out + used, line, sizeof line);
        used += sizeof line;
        diff_learn(known, line, length);
        diff->at += TOW_DIFF_LINE;
        next = diff->at;
    }
    return used;
}

int tow_diff_apply(const uint8_t *records, size_t size, tow_diff_find *find, void *user)
{
    struct tow_dec dec = tow_dec_init(records, size);
    while (tow_dec_left(&dec) >= 16) {
        uint64_t address = tow_dec_u64(&dec);
        uint32_t lines = tow_dec_u32(&dec);
        uint32_t kind = tow_dec_u32(&dec);
        size_t each = TOW_DIFF_LINE + (kind == MASKED ? 8 : 0);
        uint8_t *now = NULL, *known = NULL;
        if ((kind != FULL && kind != MASKED) || lines == 0 || lines > tow_dec_left(&dec) / each ||
            tow_dec_left(&dec) < each) {
            return -EPROTO;
        }
        for (uint32_t i = 0; i < lines; i++, address += TOW_DIFF_LINE) {
            uint64_t mask = kind == MASKED ? tow_dec_u64(&dec) : UINT64_MAX;
            const uint8_t *line = tow_dec_bytes(&dec, TOW_DIFF_LINE);
            /* A line that this side does not hold was given up while the record was under way. */
            if (mask == 0 ||
                !find(user, address, (size_t)(64 - __builtin_clzll(mask)), &now, &known)) {
                continue;
            }
            if (mask == UINT64_MAX) {
                memcpy(now, line, TOW_DIFF_LINE);
                if (known != NULL) {
                    memcpy(known, line, TOW_DIFF_LINE);
                }
                continue;
            }
            while (mask != 0) {
                /* As many as lie side by side: bytes beside them may be written by others. */
                int first = __builtin_ctzll(mask);
                uint64_t rest = ~(mask >> first);
                size_t n = rest != 0 ? (size_t)__builtin_ctzll(rest) : 64;
                memcpy(now + first, line + first, n);
                if (known != NULL) {
                    memcpy(known + first, line + first, n);
                }
                mask = first + n < 64 ? mask >> (first + n) << (first + n) : 0;
            }
        }
    }
    return dec.bad ? -EPROTO : 0;
}
