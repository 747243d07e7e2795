/* SPDX-License-Identifier: Apache-2.0 */
/* Of copies, what other parts of the client use. */
#ifndef TOW_CLIENT_COPY_H
#define TOW_CLIENT_COPY_H

#include <stdbool.h>
#include <stddef.h>

#include "client/link/link.h"

/* Sends bytes of the program's to the device, through the line and its lanes only; they have been
 * read when it returns. `settle`: the program's call is synchronous. */
CUresult tow_copy_upload(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                         bool settle);

/* An upload must not read memory that an earlier download is still to fill. */
CUresult tow_copy_settle_source(struct tow_link *link, const void *from, size_t size);

/* Behind host functions that write its source, or that the program is still to let go, a copy takes
 * place in its turn: `ret_named`, between the device and the worker's memory, which is mirrored
 * from then on. That costs every launch, so the functions are given a moment first: when they have
 * run it is a copy like any other. Where the worker cannot have a mirror an upload waits for its
 * stream. */
CUresult tow_copy_take_turn(struct tow_link *link, const void *host, size_t size, CUstream stream,
                            bool up, bool *ret_named);

/* A synchronous copy of pageable memory has been read when it is sent, and the server lets nothing
 * overtake it while that takes the device a moment (TOW_COPY_SETTLE). Behind launches it may take
 * long: then it is waited for, as natively, unless a capture forbids it. */
bool tow_copy_is_long(const struct tow_link *link, size_t size, CUstream stream);
/* Until the stream has done what it was given. */
CUresult tow_copy_await(struct tow_link *link, CUstream stream);

/* Which side an address is on. While its stream captures it may be no address at all; then it is
 * taken for the device's, since the host's would have to be looked at. */
bool tow_copy_is_device(CUdeviceptr address, CUstream stream);

/* A copy between contexts that names no stream comes behind the work of both, and before what they
 * are given next. The default stream of the current one says nothing of another: the program waits
 * for that before the copy, and for the copy. */
CUresult tow_copy_wait_for_others(CUcontext dst, CUcontext src, bool *ret_others);

#endif
