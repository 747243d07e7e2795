/* SPDX-License-Identifier: Apache-2.0 */
/* Copies as they travel: commands of one dimension have their own few fields, all others this
 * shape. */
#ifndef TOW_WIRE_COPY_H
#define TOW_WIRE_COPY_H

#include <stdint.h>

enum {
    TOW_COPY_INLINE_MAX = 64 << 10,  /* what rides in the command or the reply itself */
    TOW_COPY_ASYNC_MAX = 4 << 20,    /* of a download that nobody waits for, or that has a shape */
    TOW_COPY_DEFERRED_MAX = 4 << 20, /* one upload whose bytes come when its turn is there */
};

/* Where one operand of a copy is, after unified addresses have been looked up. */
enum tow_operand_kind {
    TOW_AT_HOST = 0,
    TOW_AT_DEVICE = 1,
    TOW_AT_ARRAY = 2,
    TOW_AT_ADDRESS = 3, /* host memory that both sides have at this address */
};

/* One operand of a copy as it travels. A host operand travels without an address: its bytes are
 * packed, row after row. */
struct tow_copy_operand {
    uint64_t address; /* device address or id of the array; 0 for the host */
    uint64_t pitch, height;
    uint64_t x, y, z;
    uint64_t context; /* id, 0: the current one */
    uint32_t kind, level;
};

enum tow_copy_3d_flag {
    TOW_COPY_3D_PEER = 1,        /* the two operands name their contexts */
    TOW_COPY_3D_SPREAD = 2,      /* its bytes may come on several lines */
    TOW_COPY_3D_SYNCHRONOUS = 4, /* of an upload: as TOW_COPY_SYNCHRONOUS */
    TOW_COPY_3D_FENCE_WORD = 8,  /* one operand is packed shared memory; a fence word follows */
};

/* The fixed part of a copy command of two or three dimensions. An upload is one command; the client
 * cuts a download that is larger than TOW_COPY_ASYNC_MAX into several. */
struct tow_copy_3d {
    struct tow_copy_operand from, to;
    uint64_t width, rows, planes; /* width in bytes */
    uint64_t stream;              /* id */
    uint64_t bytes;               /* of the host operand, packed */
    uint32_t transfer;            /* 0: the bytes are in the command */
    uint32_t flags;               /* tow_copy_3d_flag */
};

#endif
