/* SPDX-License-Identifier: Apache-2.0 */
/* The LZ4 block format, decoded within bounds: fat binaries may be compressed with it. */
#include "backend/unpack.h"

#include <errno.h>
#include <string.h>

#define MATCH_MIN 4

/* Reads a length that continues in bytes of 255. */
static int lz4_extend(const uint8_t **at, const uint8_t *end, size_t *length)
{
    uint8_t byte;
    do {
        if (*at == end) {
            return -EINVAL;
        }
        byte = *(*at)++;
        *length += byte;
    } while (byte == 255);
    return 0;
}

int64_t tow_lz4_decode(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size)
{
    const uint8_t *end = in + in_size;
    size_t done = 0;
    while (in < end) {
        uint8_t token = *in++;
        size_t literals = token >> 4;
        if (literals == 15 && lz4_extend(&in, end, &literals) != 0) {
            return -EINVAL;
        }
        if (literals > (size_t)(end - in) || literals > out_size - done) {
            return -EINVAL;
        }
        memcpy(out + done, in, literals);
        in += literals;
        done += literals;
        if (in == end) {
            return (int64_t)done; /* the last sequence has literals only */
        }
        if (end - in < 2) {
            return -EINVAL;
        }
        size_t offset = (size_t)in[0] | (size_t)in[1] << 8;
        in += 2;
        size_t match = token & 15;
        if (match == 15 && lz4_extend(&in, end, &match) != 0) {
            return -EINVAL;
        }
        match += MATCH_MIN;
        if (offset == 0 || offset > done || match > out_size - done) {
            return -EINVAL;
        }
        for (size_t i = 0; i < match; i++) { /* may overlap itself, byte by byte */
            out[done + i] = out[done + i - offset];
        }
        done += match;
    }
    return (int64_t)done;
}
