/* Asynchronous uploads from page-locked memory that a host function may still write.
 *
 * CUDA reads the source when the stream gets there. As a rule it can be read at once all the same:
 * a program that changes it meanwhile races with the copy. Not so its host functions, which run
 * in the stream's order, before the copy. So the source is sent ahead, a function of ours stands in
 * the stream at the copy's place, and looks at it again when its turn comes. Most functions write
 * something else: then nothing is left to do.
 */
#ifndef TOW_CLIENT_LATE_H
#define TOW_CLIENT_LATE_H

#include <stdbool.h>
#include <stddef.h>

#include "gen/cuda_abi.h"

struct tow_context;

/* Before a host function goes into a stream of the context: makes what its turns may need. While
 * functions run, a driver may wait for them in such calls. */
void tow_late_prepare(struct tow_context *context);

/* Puts such an upload into a stream that does not capture. CUDA_ERROR_NOT_SUPPORTED if it is too
 * large to be sent ahead, or too many are under way. */
CUresult tow_late_upload(CUdeviceptr to, const void *from, size_t size, CUstream stream);

/* True while some of [address, address + size) waits to be read. */
bool tow_late_reads(const void *address, size_t size);

#endif
