/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts as the program sees them. */
#ifndef TOW_CLIENT_CONTEXT_H
#define TOW_CLIENT_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "client/link/current.h"
#include "client/link/link.h"
#include "client/completion/completion.h"
#include "gen/cuda_types.h"

/* The context of a handle; NULL if it is not one, or was destroyed. A primary context counts as
 * there even while nobody retains it. */
struct tow_context *tow_context_find(CUcontext handle);
/* The same, NULL meaning the calling thread's current one. */
struct tow_context *tow_context_or_current(CUcontext handle);
/* The server of the current context, if work may be given to that. */
CUresult tow_context_link(struct tow_link **ret_link);

/* Streams and events may be used while a context of another server is current. Makes theirs current
 * for one call, if that is so; tow_context_back with the result follows. */
bool tow_context_visit(struct tow_context *context);
void tow_context_back(bool visited);

/* The primary context of a visible device, made (without the server) on first use; NULL for a wrong
 * device. */
struct tow_context *tow_context_primary(CUdevice device);

/* For contexts that other families make (green contexts): a new object that is not alive yet; what
 * the server said of it; its end for the program. An object that never came alive may be freed. */
struct tow_context *tow_context_make(CUdevice device, bool primary);
void tow_context_take_facts(struct tow_context *context, struct tow_dec *dec);
void tow_context_end(struct tow_context *context);
/* Behind tow_context_end: it has ended on the server, too. */
void tow_context_ended(struct tow_context *context);
void tow_context_discard(struct tow_context *context);

/* What ends with a context. Each room registers what it does then; client/edge/core.c has all of
 * them do so, once. They are called in this order. */
enum tow_context_turn {
    /* While everything in the context can still be used: the program's own destructors run. */
    TOW_TURN_LOCALS,
    /* Before the server ends it; its streams can still be found. */
    TOW_TURN_CAPTURES,
    TOW_TURN_CODE,   /* managed variables leave the map of memory with their module */
    TOW_TURN_MEMORY, /* all that is left in the map */
    /* When the server has ended it: none of its work runs any more. */
    TOW_TURN_ENDED,
    TOW_TURNS,
};
typedef void tow_context_end_hook(struct tow_context *context);
void tow_context_at_end(enum tow_context_turn turn, tow_context_end_hook *hook);

/* A call on `context` came back with `status`: remembers errors that a context does not recover
 * from. */
void tow_context_note(struct tow_context *context, CUresult status);
/* The same for a context that is known by its number on the wire. */
void tow_context_note_number(uint32_t number, CUresult status);

/* Values that libraries tie to a context (export table c693). `destroy` runs when the context ends.
 */
typedef void tow_local_destroy(CUcontext context, void *key, void *value);
CUresult tow_context_put_local(CUcontext handle, void *key, void *value,
                               tow_local_destroy *destroy);
CUresult tow_context_delete_local(CUcontext handle, void *key);
/* The context ends: runs the destructors of its values and forgets them. */
void tow_context_end_locals(struct tow_context *context);
/* No lock: nearly every call of the CUDA runtime asks. */
CUresult tow_context_get_local(void **ret_value, CUcontext handle, void *key);

#endif
