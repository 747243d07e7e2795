#include "backend/unpack.h"

#include <errno.h>
#include <stdlib.h>

#ifdef TOW_HAVE_ZSTD
#include <zstd.h>
#endif

static int64_t decode(const uint8_t *packed, size_t packed_size, uint8_t *out, size_t size,
                      uint64_t flags)
{
    if (flags & TOW_ENTRY_LZ4) {
        return tow_lz4_decode(packed, packed_size, out, size);
    }
#ifdef TOW_HAVE_ZSTD
    size_t n = ZSTD_decompress(out, size, packed, packed_size);
    return ZSTD_isError(n) ? -EINVAL : (int64_t)n;
#else
    return -ENOTSUP;
#endif
}

int tow_unpack(const uint8_t *packed, size_t packed_size, uint64_t size, uint64_t flags,
               uint8_t **ret_bytes, size_t *ret_size)
{
    if (size == 0 || size > TOW_UNPACKED_MAX) {
        return -E2BIG;
    }
    uint8_t *bytes = malloc((size_t)size);
    if (bytes == NULL) {
        return -ENOMEM;
    }
    int64_t got = decode(packed, packed_size, bytes, (size_t)size, flags);
    if (got <= 0 || (uint64_t)got > size) {
        free(bytes);
        return got == -ENOTSUP ? -ENOTSUP : -EINVAL;
    }
    *ret_bytes = bytes;
    *ret_size = (size_t)got;
    return 0;
}
