/* SPDX-License-Identifier: Apache-2.0 */
/* Handles are ours: ids (wire/id.h) that the client mints and the server maps. */
#ifndef TOW_CLIENT_HANDLE_H
#define TOW_CLIENT_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"
#include "gen/functions.h"
#include "wire/id.h"

/* Makes a new id. `object` is the client's own state for it, borrowed until towc_handle_retire; may
 * be NULL. */
CUresult towc_handle_mint(enum tow_handle_kind kind, uint64_t *ret_id);
CUresult towc_handle_mint_object(enum tow_handle_kind kind, void *object, uint64_t *ret_id);

/* True for a live id of this kind, and for every id of the server's. No lock: safe on the launch
 * path. */
bool towc_handle_valid(enum tow_handle_kind kind, uint64_t id);
/* The object of a live id; NULL if it is stale, foreign or has none. No lock. */
void *towc_handle_object(enum tow_handle_kind kind, uint64_t id);

/* What a call on an id that is not live answers: CONTEXT_IS_DESTROYED for one that was (as the
 * driver does for streams and events that are gone), INVALID_HANDLE for one that never was. */
CUresult towc_handle_missing(enum tow_handle_kind kind, uint64_t id);

/* Ends an id; returns its object (the caller frees it). Later uses are known to be stale. */
void *towc_handle_retire(uint64_t id);

/* Calls `visit` for each live object of a kind, under the table's lock. */
void towc_handle_each(enum tow_handle_kind kind,
                      void (*visit)(void *user, uint64_t id, void *object), void *user);

#endif
