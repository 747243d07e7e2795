/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads behind host functions (client/callback/deferred_upload.h): the client sends their bytes
 * when the stream is there. Stream order: a host function of the client's, which sends the bytes
 * and ends; then the device's copy from the page-locked buffer that they were put into. Between the
 * two no driver is called: it may wait for the very stream.
 */
#ifndef TOW_SERVER_DEFERRED_UPLOAD_H
#define TOW_SERVER_DEFERRED_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"
#include "wire/frame.h"

struct tows_serve;
struct tows_session;

/* A copy command of the form TOW_COPY_DEFERRED, from behind the form on. */
void tows_deferred_upload_copy(struct tows_serve *call, CUdeviceptr to, uint64_t size,
                               CUstream stream);
/* A CALLBACK_BYTES frame. Bytes for a copy that is not known are thrown away. Never waits for the
 * driver. */
int tows_deferred_upload_take(struct tows_session *session, const uint8_t *at,
                              const struct tow_frame *frame);
/* A context ends. False: somebody still has memory of it in hand. */
bool tows_deferred_upload_drop_context(struct tows_session *session, uint32_t context,
                                       uint32_t heir);

#endif
