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

UNJUDGED static bool same(const uint8_t *known, const uint8_t *now, size_t size)
{
    const word *a = (const word *)known, *b = (const word *)now;
    uint64_t differs = 0;
    for (size_t i = 0; i < size / 8; i++) {
        differs |= a[i] ^ b[i];
    }
    return differs == 0;
}

UNJUDGED static void look(uint8_t line[TOW_DIFF_LINE], const uint8_t *now, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        line[i] = ((const volatile uint8_t *)now)[i];
    }
}

static uint64_t line_mask(const uint8_t *known, const uint8_t *line, size_t size)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < size; i++) {
        mask |= (uint64_t)(known[i] != line[i]) << i;
    }
    return mask;
}

size_t tow_diff_next(struct tow_diff *diff, uint8_t *out, size_t room)
{
    size_t used = 0;
    uint8_t *head = NULL; /* of the record being written */
    uint32_t lines = 0, kind = 0;
    size_t next = 0; /* where a record would go on */
    while (diff->at < diff->size) {
        size_t left = diff->size - diff->at;
        if (diff->at % STEP == 0 && left >= STEP &&
            same(diff->known + diff->at, diff->now + diff->at, STEP)) {
            diff->at += STEP;
            continue;
        }
        /* One look at the line: others may be writing it. The last one may be short. */
        uint8_t line[TOW_DIFF_LINE] = {0};
        size_t length = left < TOW_DIFF_LINE ? left : TOW_DIFF_LINE;
        look(line, diff->now + diff->at, length);
        uint64_t mask = line_mask(diff->known + diff->at, line, length);
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
        memcpy(diff->known + diff->at, line, length);
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
            for (; mask != 0; mask &= mask - 1) {
                int byte = __builtin_ctzll(mask);
                now[byte] = line[byte];
                if (known != NULL) {
                    known[byte] = line[byte];
                }
            }
        }
    }
    return dec.bad ? -EPROTO : 0;
}
