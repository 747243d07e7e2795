/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous uploads from page-locked memory that a host function may still write.
 *
 * CUDA reads the source when the stream gets there. As a rule it can be read at once all the same:
 * a program that changes it meanwhile races with the copy. Not so its host functions, which run
 * in the stream's order, before the copy. So a function of ours stands in the stream in front of
 * the copy, and sends the bytes when its turn comes, to where the copy reads them
 * (server/copy/deferred_upload.h). No driver is called for that: it may wait for the very stream.
 */
#ifndef TOW_CLIENT_DEFERRED_UPLOAD_H
#define TOW_CLIENT_DEFERRED_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "gen/cuda_types.h"

/* Puts such an upload into a stream that does not capture. False: not this way, for it is too
 * large, or too many are under way, or the server cannot do it. Else `ret_status` says what became
 * of it.
 */
bool towc_deferred_upload_put(CUdeviceptr to, const void *from, size_t size, CUstream stream,
                              CUresult *ret_status);

#endif
