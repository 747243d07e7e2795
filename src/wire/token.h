/* SPDX-License-Identifier: Apache-2.0 */
/* A shareable handle as the programs of one server pass it on.
 *
 * The descriptor that a program gets for memory or a pool is a small sealed file with a token. The
 * real descriptor, of the machine that has the GPU, stays with the server, which knows it by the
 * token; who has the token may import it.
 */
#ifndef TOW_WIRE_TOKEN_H
#define TOW_WIRE_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

/* Random bits. */
struct tow_token {
    uint64_t word[2];
};

#define TOW_TOKEN_MAGIC "towlshr1"

/* All of the file. */
struct tow_token_file {
    char magic[8];
    struct tow_token token;
};

/* Looks at all bits in any case: how long it takes tells nothing. */
static inline bool tow_token_equal(const struct tow_token *a, const struct tow_token *b)
{
    return ((a->word[0] ^ b->word[0]) | (a->word[1] ^ b->word[1])) == 0;
}

#endif
