/* Contexts as the program sees them. */
#ifndef TOW_CLIENT_CONTEXT_H
#define TOW_CLIENT_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/link.h"
#include "client/thread.h"
#include "gen/cuda_abi.h"

struct tow_context {
    CUcontext handle;
    uint32_t number;       /* on the wire: index of the handle, never 0 */
    uint64_t unique;       /* cuCtxGetId: never used again */
    CUdevice device;       /* visible ordinal */
    struct tow_link *link; /* borrowed: the server that has the device */
    bool primary;
    atomic_bool alive; /* false after destroy or reset, until retained again */
    atomic_int sticky; /* CUresult that every call on it returns, or 0 */
    atomic_uint flags;
    unsigned api_version;
};

/* The calling thread's current context, NULL if it has none. */
static inline struct tow_context *tow_context_current(void)
{
    struct tow_thread *self = tow_thread_self();
    return self != NULL && self->depth > 0 ? self->stack[self->depth - 1] : NULL;
}

/* The context of a handle; NULL if it is not a live one. */
struct tow_context *tow_context_find(CUcontext handle);

/* A call on `context` came back with `status`: remembers errors that a context does not recover
 * from. */
void tow_context_note(struct tow_context *context, CUresult status);

/* State of the whole library: 0 before cuInit, then 1; after the program's end or in a forked child
 * the error that calls get. */
CUresult tow_client_state(void);
/* The server that has a visible device; the first server for -1. NULL if there is none. */
struct tow_link *tow_client_link(CUdevice device);

#endif
