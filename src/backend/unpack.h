/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of fat binaries, and unpacking them. */
#ifndef TOW_BACKEND_UNPACK_H
#define TOW_BACKEND_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest entry, unpacked. */
#define TOW_UNPACKED_MAX (UINT64_C(256) << 20)

enum tow_entry_kind { TOW_ENTRY_PTX = 1, TOW_ENTRY_ELF = 2 };

struct tow_entry {
    unsigned kind;  /* enum tow_entry_kind, or something newer */
    uint32_t sm;    /* 90: for compute capability 9.0 */
    bool is_packed; /* tow_entry_unpack gives its bytes; else they are the payload */
    const uint8_t *payload;
    size_t size; /* of the payload, with what it was padded by */

    uint64_t flags, unpacked_size;
    size_t packed_size;
};

/* Where the first entry of a fat binary is: its offset, or -EINVAL. `body`: the size that its
 * header says. */
int tow_entry_first(const uint8_t *image, size_t size, size_t *ret_at, uint64_t *ret_body);
/* Reads the entry at *at and goes to the next: 1, 0 at the end, -EINVAL if it is damaged. */
int tow_entry_next(const uint8_t *image, size_t size, size_t *at, struct tow_entry *ret_entry);

/* Unpacks into new memory, which is the caller's. -E2BIG: its size is not believable; -ENOTSUP:
 * built without Zstandard; -EINVAL: it is damaged; -ENOMEM. */
int tow_entry_unpack(const struct tow_entry *entry, uint8_t **ret_bytes, size_t *ret_size);

/* One LZ4 block: the bytes it gave, or negative. */
int64_t tow_lz4_decode(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size);

#endif
