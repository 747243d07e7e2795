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
struct towc_context *towc_context_find(CUcontext handle);
/* The same, NULL meaning the calling thread's current one. */
struct towc_context *towc_context_or_current(CUcontext handle);
/* The server of the current context, if work may be given to that. */
CUresult towc_context_link(struct towc_link **ret_link);

/* Streams and events may be used while a context of another server is current. Makes theirs current
 * for one call, if that is so; towc_context_back with the result follows. */
bool towc_context_visit(struct towc_context *context);
void towc_context_back(bool visited);

/* The primary context of a visible device, made (without the server) on first use; NULL for a wrong
 * device. */
struct towc_context *towc_context_primary(CUdevice device);

/* For contexts that other families make (green contexts): a new object that is not alive yet; what
 * the server said of it; its end for the program. An object that never came alive may be freed. */
struct towc_context *towc_context_make(CUdevice device, bool primary);
void towc_context_take_facts(struct towc_context *context, struct tow_dec *dec);
void towc_context_end(struct towc_context *context);
/* Behind towc_context_end: it has ended on the server, too. */
void towc_context_ended(struct towc_context *context);
void towc_context_discard(struct towc_context *context);

/* What ends with a context. Each room registers what it does then; client/edge/core.c has all of
 * them do so, once. They are called in this order. */
enum towc_context_turn {
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
typedef void towc_context_end_hook(struct towc_context *context);
void towc_context_at_end(enum towc_context_turn turn, towc_context_end_hook *hook);

/* A call on `context` came back with `status`: remembers errors that a context does not recover
 * from. */
void towc_context_take_error(struct towc_context *context, CUresult status);
/* The same for a context that is known by its number on the wire. */
void towc_context_take_error_of(uint32_t number, CUresult status);

/* Values that libraries tie to a context (export table c693). `destroy` runs when the context ends.
 */
typedef void towc_local_destroy(CUcontext context, void *key, void *value);
CUresult towc_context_put_local(CUcontext handle, void *key, void *value,
                                towc_local_destroy *destroy);
CUresult towc_context_delete_local(CUcontext handle, void *key);
/* The context ends: runs the destructors of its values and forgets them. */
void towc_context_end_locals(struct towc_context *context);
/* No lock: nearly every call of the CUDA runtime asks. */
CUresult towc_context_get_local(void **ret_value, CUcontext handle, void *key);

#endif
