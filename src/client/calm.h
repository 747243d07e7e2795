/* Whether a context has anything to do: a free that has nothing to wait for needs no reply.
 *
 * A link is calm for its context while all that was sent is done, or gave the device nothing to do
 * (tow_call_rests; the word `rests` of the table). Who has just waited for all of the context's
 * work says so; every other command ends it, without being looked at.
 */
#ifndef TOW_CLIENT_CALM_H
#define TOW_CLIENT_CALM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen/cuda_abi.h"

struct tow_context;

/* What was so before a call that waits for the context's work. */
struct tow_calm {
    const struct tow_context *context; /* NULL: it will say nothing */
    uint64_t sent; /* by all threads: what was sent is done when the call has waited */
    uint64_t own;  /* by this thread */
};

/* Before and after a call that waits for all of the context's work, if that succeeds. */
struct tow_calm tow_calm_before(const struct tow_context *context);
void tow_calm_after(const struct tow_calm *before, CUresult status);
/* After a synchronous copy to the host in a default stream: the legacy one has waited for all
 * streams but those that wait for nobody. Returns `status`. */
CUresult tow_calm_fetched(const struct tow_calm *before, CUstream stream, CUresult status);

/* A context comes to life. Of two on one server, none is taken for calm. */
void tow_calm_begin(struct tow_context *context);
/* A stream is made with these flags. */
void tow_calm_stream(struct tow_context *context, unsigned flags);

/* Frees memory of the current context without waiting, if there is nothing to wait for and others
 * miss little of it meanwhile. False: the reply has to be waited for. */
bool tow_calm_free(CUdeviceptr address, size_t size, CUresult *ret_status);

/* Returns when memory that was freed so is free for others: NVML's library asks for this. */
void tow_calm_settle(void);

#endif
