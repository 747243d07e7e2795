/* Copies from the client's memory to the device. */
#ifndef TOW_SERVER_UPLOAD_H
#define TOW_SERVER_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_abi.h"

struct tow_serve;
struct tow_session;
struct tow_shaped;

/* One that has a shape, of at most TOW_COPY_SHAPE_UP_MAX bytes: takes place when they have come.
 * `settles`: the program's call is synchronous. */
void tow_upload_shape(struct tow_serve *call, uint32_t transfer, uint64_t size, CUstream stream,
                      const struct tow_shaped *shaped, bool settles);

/* A context is about to end: waits for the device to have read what was uploaded to it. */
void tow_upload_drop_context(struct tow_session *session, uint32_t context);

#endif
