/* SPDX-License-Identifier: Apache-2.0 */
/* Host functions that the program put into streams: the server says when, one thread here runs
 * them. */
#ifndef TOW_CLIENT_HOSTFN_H
#define TOW_CLIENT_HOSTFN_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct towc_context;
struct towc_link;

/* A function of the program, under the id by which the wire knows it. */
struct towc_hostfn {
    CUhostFn run;              /* or: */
    CUstreamCallback callback; /* of cuStreamAddCallback */
    CUstream stream;           /* what callback is told */
    void *user;                /* the program's */
    bool repeats; /* runs each time the server says so (graph nodes); else once, then its id ends */
    bool own;     /* ours: it writes nothing that belongs to the program */
    void (*drop)(void *user); /* instead of `run` if its turn never comes; NULL: nothing to do */
};

/* Gives a function its id, never 0, and makes sure that somebody listens on the context's link and
 * runs functions. */
CUresult towc_hostfn_add(struct towc_context *context, const struct towc_hostfn *function,
                         uint64_t *ret_id);
/* A copy to the device whose bytes the function in front of it sends
 * (client/callback/deferred_upload.h). */
struct towc_hostfn_upload {
    CUdeviceptr to;
    size_t size;
    uint64_t number; /* by which those bytes are known */
};
/* Puts a function of ours, which runs once, and such a copy into a stream. It is run or dropped
 * whatever this answers; run also when the server could not do so. */
CUresult towc_hostfn_put_upload(CUstream stream, const struct towc_hostfn *function,
                                const struct towc_hostfn_upload *upload);
/* Waits until the program's functions that are in streams of this server now have run, but no
 * longer than `limit_ns`; false if some have not. */
bool towc_hostfn_wait_all(struct towc_link *link, int64_t limit_ns);
/* The context has ended, on the server too: functions in its streams that have had no turn get
 * none. Those of graphs stay: a graph belongs to no context. */
void towc_hostfn_drop_context(struct towc_context *context);

/* The function of a live id. */
bool towc_hostfn_find(uint64_t id, struct towc_hostfn *ret_function);

/* A graph is about to be launched while functions are in graphs. */
void towc_hostfn_launched(struct towc_link *link);
/* A graph becomes part of another: a launch of that may run each function twice as often as any
 * launch before. */
void towc_hostfn_doubled(void);

/* The server says that it is the turn of function `id`: hands it to the thread that runs them.
 * Never runs it here. -EIDRM: it is no function of that link, or has no turn left. */
int towc_hostfn_call(struct towc_link *link, uint64_t id, CUresult status);

#endif
