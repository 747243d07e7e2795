/* SPDX-License-Identifier: Apache-2.0 */
/* What changed in a piece of memory that both sides hold, byte-exact.
 *
 * Host memory that a GPU reaches over a network exists twice: in the program and in the worker.
 * Each side keeps what both had at the last exchange (`known`); what differs from it is what this
 * side wrote. Only bytes that changed are written at the other side, so a host and a kernel that
 * write different bytes of one line do not disturb each other.
 *
 * A record: u64 address (of 64-byte lines, counted from the piece's beginning), u32 lines, u32
 * kind. Kind 1: lines * 64 bytes, all of them changed. Kind 2: per line a u64 mask of the changed
 * bytes (bit i for byte i), then its 64 bytes.
 */
#ifndef TOW_WIRE_DIFF_H
#define TOW_WIRE_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tow_dec;

enum {
    TOW_DIFF_LINE = 64,
    TOW_DIFF_ROOM_MIN = 16 + 8 + TOW_DIFF_LINE, /* an output of this size always makes progress */
};

struct tow_diff {
    uint8_t *known;     /* borrowed: brought up to date as records are made; NULL: all of it goes */
    const uint8_t *now; /* borrowed: may be written by others meanwhile */
    uint64_t address;
    size_t size; /* the last line may be short */
    size_t at;
    bool whole; /* nobody else writes it: of a line that changed all bytes go, and what is between
                   such lines of a page */
    bool last;  /* nobody will compare with `known` again: it stays as it is */
};

/* Copies whole words of memory that others may be writing. */
void tow_diff_copy(uint8_t *to, const uint8_t *now, size_t size);

/* Fills `out` with the next records; 0 when nothing (more) differs. */
size_t tow_diff_next(struct tow_diff *diff, uint8_t *out, size_t room);

/* One record that the peer sent. */
struct tow_diff_record {
    uint64_t address;
    uint32_t lines;
    bool full;            /* `bytes` are the lines; else each has its mask before it */
    const uint8_t *bytes; /* in the records */
};
/* 1: there is a further one, which is taken; 0: there is none; -EPROTO: it is malformed. */
int tow_diff_record_next(struct tow_dec *dec, struct tow_diff_record *ret_record);

/* Where the bytes of [address, address + size) are to be written, and the side's `known` for them
 * (NULL: it keeps none); false if this side does not hold them (any more): the record is passed
 * over. */
typedef bool tow_diff_find(void *user, uint64_t address, size_t size, uint8_t **ret_now,
                           uint8_t **ret_known);

/* Writes records that the peer sent. -EPROTO if they are malformed. */
int tow_diff_apply(const uint8_t *records, size_t size, tow_diff_find *find, void *user);
/* The same for one of them. */
void tow_diff_record_apply(const struct tow_diff_record *record, tow_diff_find *find, void *user);

#endif
