/* Handles are ours: 64-bit ids that the client mints and the server maps.
 *
 *     bit  63      0
 *     bits 56..62  kind (enum tow_handle_kind), never 0
 *     bit  55      owner: 0 minted by the client, 1 by the server
 *     bits 32..54  generation of the index, so that a stale handle is known as such
 *     bits  0..31  index
 */
#ifndef TOW_CLIENT_HANDLE_H
#define TOW_CLIENT_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_abi.h"
#include "gen/functions.h"

#define TOW_ID_KIND(id) ((unsigned)((id) >> 56) & 0x7f)
#define TOW_ID_OF_SERVER(id) (((id) >> 55) & 1)
#define TOW_ID_GENERATION(id) ((uint32_t)((id) >> 32) & 0x7fffff)
#define TOW_ID_INDEX(id) ((uint32_t)(id))
#define TOW_ID_MAKE(kind, owner, generation, index)                                                              \
    ((uint64_t)(kind) << 56 | (uint64_t)(owner) << 55 | (uint64_t)((generation) & 0x7fffff) << 32 | (uint32_t)(index))

/* Makes a new id. `object` is the client's own state for it, borrowed until tow_handle_retire; may be NULL. */
CUresult tow_handle_mint(enum tow_handle_kind kind, uint64_t *ret_id);
CUresult tow_handle_mint_object(enum tow_handle_kind kind, void *object, uint64_t *ret_id);

/* True for a live id of this kind, and for every id of the server's. No lock: safe on the launch path. */
bool tow_handle_valid(enum tow_handle_kind kind, uint64_t id);
/* The object of a live id; NULL if it is stale, foreign or has none. No lock. */
void *tow_handle_object(enum tow_handle_kind kind, uint64_t id);

/* Ends an id; returns its object (the caller frees it). Later uses are known to be stale. */
void *tow_handle_retire(uint64_t id);

/* Calls `visit` for each live object of a kind, under the table's lock. */
void tow_handle_each(enum tow_handle_kind kind, void (*visit)(void *user, uint64_t id, void *object), void *user);

#endif
