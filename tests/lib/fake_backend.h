/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that does nothing but keep account: contexts, streams, events, captures (one at a time)
 * and host functions; copies to memory that nobody has, no code. For tests of client and server
 * that are not about GPUs.
 */
#ifndef TOW_TESTS_FAKE_BACKEND_H
#define TOW_TESTS_FAKE_BACKEND_H

#include <stdatomic.h>

#include "backend/backend.h"

struct tow_fake {
    atomic_int contexts, streams, events, graphs; /* alive now */
    atomic_int syncs;              /* cuStreamSynchronize and cuCtxSynchronize calls */
    atomic_int fail_stream_create; /* CUresult for the next cuStreamCreate calls; 0: succeed */
    atomic_int fail_sync;          /* CUresult that synchronising answers; 0: succeed */
    atomic_int fail_record;        /* CUresult that recording answers; 0: succeed */
    atomic_bool lose_functions;    /* host functions never get their turn */
    atomic_int copies;             /* bytes that cuMemcpy*Async was asked to copy */
    atomic_int not_ready;          /* so many cuEventQuery calls say that it is not done yet */
};
extern struct tow_fake tow_fake;

void tow_fake_open(struct tow_backend *ret_backend);

/* Makes the server's ends of all self: sessions end, as if the server had died. */
void tow_fake_cut(void);

#endif
