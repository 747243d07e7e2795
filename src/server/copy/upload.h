/* SPDX-License-Identifier: Apache-2.0 */
/* Copies from the client's memory to the device. */
#ifndef TOW_SERVER_UPLOAD_H
#define TOW_SERVER_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct tow_copy_3d;
struct tows_serve;
struct tows_session;

/* One that has a shape, whose bytes come as a transfer. */
void tows_upload_3d(struct tows_serve *call, const struct tow_copy_3d *copy_3d);

/* A context ends: waits for the device to have read what was uploaded to it. False: bytes are still
 * being received into its memory. */
bool tows_upload_drop_context(struct tows_session *session, uint32_t context, uint32_t heir);

#endif
