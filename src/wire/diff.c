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

/* Makes `known` what the lines at `at` are, where there is one. */
static void diff_learn(const struct tow_diff *diff, size_t at, const uint8_t *lines, size_t size)
{
    if (diff->known != NULL && !diff->last) {
        memcpy(diff->known + at, lines, size);
    }
}

/* Of a record that is being written. */
struct writing {
    uint8_t *out;
    size_t room, used;
    uint8_t *head; /* NULL: there is none */
    uint32_t lines, kind;
    size_t next; /* where it would go on */
};

/* Room for lines that changed, at `at` of the piece; NULL: there is none. */
static uint8_t *begin_lines(struct writing *w, uint64_t address, size_t at, uint32_t lines,
                            uint32_t kind)
{
    bool joins = w->head != NULL && kind == w->kind && w->next == at;
    size_t need = lines * (TOW_DIFF_LINE + (kind == MASKED ? 8u : 0u)) + (joins ? 0 : 16);
    if (need > w->room - w->used) {
        return NULL;
    }
    if (!joins) {
        address += at;
        w->head = w->out + w->used;
        memcpy(w->head, &address, 8);
        memcpy(w->head + 12, &kind, 4);
        w->kind = kind;
        w->lines = 0;
        w->used += 16;
        need -= 16;
    }
    w->lines += lines;
    memcpy(w->head + 8, &w->lines, 4);
    uint8_t *room = w->out + w->used;
    w->used += need;
    w->next = at + lines * TOW_DIFF_LINE;
    return room;
}

/* A line that changed, at `at` of the piece. False: there is no room for it. */
static bool diff_put(struct writing *w, const struct tow_diff *diff, const uint8_t *line,
                     uint64_t mask)
{
    uint32_t kind = mask == UINT64_MAX ? FULL : MASKED;
    uint8_t *at = begin_lines(w, diff->address, diff->at, 1, kind);
    if (at != NULL && kind == MASKED) {
        memcpy(at, &mask, 8);
        at += 8;
    }
    if (at != NULL) {
        memcpy(at, line, TOW_DIFF_LINE);
    }
    return at != NULL;
}

UNJUDGED void tow_diff_copy(uint8_t *to, const uint8_t *now, size_t size)
{
    word *a = (word *)to;
    const word *b = (const word *)now;
    for (size_t i = 0; i < size / 8; i++) {
        a[i] = b[i];
    }
}

/* The next STEP bytes, which differ somewhere and of which nobody else writes any: from the first
 * line that changed to the last, all of them. False: there is no room for it. */
static bool put_whole(struct writing *w, struct tow_diff *diff)
{
    const uint8_t *known = diff->known != NULL ? diff->known + diff->at : NULL;
    const uint8_t *now = diff->now + diff->at;
    size_t first = 0, end = STEP;
    while (known != NULL && diff_same(known + first, now + first, TOW_DIFF_LINE)) {
        first += TOW_DIFF_LINE;
        if (first == end) {
            return true; /* it was written back meanwhile */
        }
    }
    while (known != NULL && end > first + TOW_DIFF_LINE &&
           diff_same(known + end - TOW_DIFF_LINE, now + end - TOW_DIFF_LINE, TOW_DIFF_LINE)) {
        end -= TOW_DIFF_LINE;
    }
    uint8_t *at = begin_lines(w, diff->address, diff->at + first,
                              (uint32_t)((end - first) / TOW_DIFF_LINE), FULL);
    if (at == NULL) {
        return false;
    }
    tow_diff_copy(at, now + first, end - first);
    diff_learn(diff, diff->at + first, at, end - first);
    return true;
}

size_t tow_diff_next(struct tow_diff *diff, uint8_t *out, size_t room)
{
    struct writing w = {.out = out, .room = room};
    while (diff->at < diff->size) {
        size_t left = diff->size - diff->at;
        uint8_t *known = diff->known != NULL ? diff->known + diff->at : NULL;
        if (known != NULL && diff->at % STEP == 0 && left >= STEP &&
            diff_same(known, diff->now + diff->at, STEP)) {
            diff->at += STEP;
            continue;
        }
        if ((diff->whole || known == NULL) && diff->at % STEP == 0 && left >= STEP &&
            room - w.used >= STEP + 16) {
            if (!put_whole(&w, diff)) {
                break;
            }
            diff->at += STEP;
            continue;
        }
        /* One look at the line: others may be writing it. The last one may be short. */
        uint8_t line[TOW_DIFF_LINE] = {0};
        size_t length = left < TOW_DIFF_LINE ? left : TOW_DIFF_LINE;
        diff_look(line, diff->now + diff->at, length);
        uint64_t mask = line_mask(known, line, length);
        if (mask != 0) {
            mask = diff->whole && length == TOW_DIFF_LINE ? UINT64_MAX : mask;
            if (!diff_put(&w, diff, line, mask)) {
                break;
            }
            diff_learn(diff, diff->at, line, length);
        }
        diff->at += TOW_DIFF_LINE;
    }
    return w.used;
}

int tow_diff_record_next(struct tow_dec *dec, struct tow_diff_record *ret_record)
{
    if (tow_dec_left(dec) < 16) {
        return dec->bad ? -EPROTO : 0;
    }
    struct tow_diff_record record = {.address = tow_dec_u64(dec)};
    record.lines = tow_dec_u32(dec);
    uint32_t kind = tow_dec_u32(dec);
    size_t each = TOW_DIFF_LINE + (kind == MASKED ? 8 : 0);
    if ((kind != FULL && kind != MASKED) || record.lines == 0 ||
        record.lines > tow_dec_left(dec) / each) {
        return -EPROTO;
    }
    record.full = kind == FULL;
    record.bytes = tow_dec_bytes(dec, record.lines * each);
    *ret_record = record;
    return 1;
}

void tow_diff_record_apply(const struct tow_diff_record *record, tow_diff_find *find, void *user)
{
    const uint8_t *at = record->bytes;
    uint64_t address = record->address;
    uint8_t *now = NULL, *known = NULL;
    for (uint32_t i = 0; i < record->lines; i++, address += TOW_DIFF_LINE) {
        uint64_t mask = UINT64_MAX;
        if (!record->full) {
            memcpy(&mask, at, 8);
            at += 8;
        }
        const uint8_t *line = at;
        at += TOW_DIFF_LINE;
        /* A line that this side does not hold was given up while the record was under way. */
        if (mask == 0 || !find(user, address, (size_t)(64 - __builtin_clzll(mask)), &now, &known)) {
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

int tow_diff_apply(const uint8_t *records, size_t size, tow_diff_find *find, void *user)
{
    struct tow_dec dec = tow_dec_init(records, size);
    struct tow_diff_record record;
    int more;
    while ((more = tow_diff_record_next(&dec, &record)) > 0) {
        tow_diff_record_apply(&record, find, user);
    }
    return more;
}
