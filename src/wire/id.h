/* SPDX-License-Identifier: Apache-2.0 */
/* Ids that stand for handles on the wire.
 *
 *     bit  63      0
 *     bits 56..62  kind (enum tow_handle_kind), never 0
 *     bit  55      owner: 0 minted by the client, 1 by the server
 *     bits 32..54  generation of the index, so that a stale handle is known as such
 *     bits  0..31  index
 */
#ifndef TOW_WIRE_ID_H
#define TOW_WIRE_ID_H

#include <stdint.h>

#define TOW_ID_KIND(id) ((unsigned)((id) >> 56) & 0x7f)
#define TOW_ID_OF_SERVER(id) ((unsigned)((id) >> 55) & 1)
#define TOW_ID_GENERATION(id) ((uint32_t)((id) >> 32) & 0x7fffff)
#define TOW_ID_INDEX(id) ((uint32_t)(id))
#define TOW_ID_MAKE(kind, owner, generation, index)                                                \
    ((uint64_t)(kind) << 56 | (uint64_t)(owner) << 55 | (uint64_t)((generation)&0x7fffff) << 32 |  \
     (uint32_t)(index))

#endif
