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
};

/* Fills `out` with the next records; 0 when nothing (more) differs. */
size_t tow_diff_next(struct tow_diff *diff, uint8_t *out, size_t room);

/* Where the bytes of [address, address + size) are to be written, and the side's `known` for them
 * (NULL: it keeps none); false if this side does not hold them (any more): the record is passed
 * over. */
typedef bool tow_diff_find(void *user, uint64_t address, size_t size, uint8_t **ret_now,
                           uint8_t **ret_known);

/* Writes records that the peer sent. -EPROTO if they are malformed. */
int tow_diff_apply(const uint8_t *records, size_t size, tow_diff_find *find, void *user);

#endif
