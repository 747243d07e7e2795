/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the entries of a fat binary and unpacks those that are compressed (LZ4, Zstandard). */
#include "backend/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef TOW_HAVE_ZSTD
#include <zstd.h>
#endif

/* Bits of an entry's flags. */
#define FLAG_LZ4 0x2000u
#define FLAG_ZSTD 0x8000u

enum { FATBIN_HEADER_MIN = 16, ENTRY_HEADER_MIN = 64 };

static uint64_t unpack_get(const uint8_t *at, unsigned bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, bytes); /* little-endian everywhere we run */
    return value;
}

int tow_entry_first(const uint8_t *image, size_t size, size_t *ret_at, uint64_t *ret_body)
{
    uint64_t header = size >= FATBIN_HEADER_MIN ? unpack_get(image + 6, 2) : 0;
    if (header < FATBIN_HEADER_MIN || header > size) {
        return -EINVAL;
    }
    *ret_at = (size_t)header;
    *ret_body = unpack_get(image + 8, 8);
    return 0;
}

int tow_entry_next(const uint8_t *image, size_t size, size_t *at, struct tow_entry *ret_entry)
{
    size_t left = size - *at;
    if (left < ENTRY_HEADER_MIN) {
        return 0;
    }
    const uint8_t *entry = image + *at;
    uint64_t header = unpack_get(entry + 4, 4), padded = unpack_get(entry + 8, 8),
             packed = unpack_get(entry + 16, 4);
    if (header < ENTRY_HEADER_MIN || header > left || padded > left - header) {
        return -EINVAL;
    }
    uint64_t flags = unpack_get(entry + 40, 8);
    *ret_entry = (struct tow_entry){
        .kind = (unsigned)unpack_get(entry, 2),
        .sm = (uint32_t)unpack_get(entry + 28, 4),
        .is_packed = packed != 0 && (flags & (FLAG_LZ4 | FLAG_ZSTD)) != 0,
        .payload = entry + header,
        .size = (size_t)padded,
        .flags = flags,
        .unpacked_size = unpack_get(entry + 56, 8),
        .packed_size = (size_t)packed,
    };
    *at += (size_t)(header + padded);
    return 1;
}

static int64_t unpack_decode(const uint8_t *packed, size_t packed_size, uint8_t *out, size_t size,
                             uint64_t flags)
{
    if (flags & FLAG_LZ4) {
        return tow_lz4_decode(packed, packed_size, out, size);
    }
#ifdef TOW_HAVE_ZSTD
    size_t n = ZSTD_decompress(out, size, packed, packed_size);
    return ZSTD_isError(n) ? -EINVAL : (int64_t)n;
#else
    return -ENOTSUP;
#endif
}

int tow_entry_unpack(const struct tow_entry *entry, uint8_t **ret_bytes, size_t *ret_size)
{
    uint64_t size = entry->unpacked_size;
    if (entry->packed_size > entry->size) {
        return -EINVAL;
    }
    if (size == 0 || size > TOW_UNPACKED_MAX) {
        return -E2BIG;
    }
    uint8_t *bytes = malloc((size_t)size);
    if (bytes == NULL) {
        return -ENOMEM;
    }
    int64_t got =
        unpack_decode(entry->payload, entry->packed_size, bytes, (size_t)size, entry->flags);
    if (got <= 0 || (uint64_t)got > size) {
        free(bytes);
        return got == -ENOTSUP ? -ENOTSUP : -EINVAL;
    }
    *ret_bytes = bytes;
    *ret_size = (size_t)got;
    return 0;
}
