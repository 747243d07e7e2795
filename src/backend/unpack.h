/* Compressed entries of fat binaries. */
#ifndef TOW_BACKEND_UNPACK_H
#define TOW_BACKEND_UNPACK_H

#include <stddef.h>
#include <stdint.h>

/* Bits of an entry's flags. */
#define TOW_ENTRY_LZ4 0x2000u
#define TOW_ENTRY_ZSTD 0x8000u

/* The largest entry, unpacked. */
#define TOW_UNPACKED_MAX (UINT64_C(256) << 20)

/* Unpacks into new memory, which is the caller's. -E2BIG: its size is not believable; -ENOTSUP:
 * built without Zstandard; -EINVAL: it is damaged; -ENOMEM. */
int tow_unpack(const uint8_t *packed, size_t packed_size, uint64_t size, uint64_t flags,
               uint8_t **ret_bytes, size_t *ret_size);

/* One LZ4 block: the bytes it gave, or negative. */
int64_t tow_lz4_decode(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size);

#endif
