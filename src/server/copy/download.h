/* SPDX-License-Identifier: Apache-2.0 */
/* Copies from the device to the client's memory. */
#ifndef TOW_SERVER_DOWNLOAD_H
#define TOW_SERVER_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct tow_serve;
struct tow_session;
struct tow_shaped;

/* A download whose caller waits, as a transfer, in the call's context. */
CUresult tow_copy_download(struct tow_serve *call, CUdeviceptr from, uint64_t size, CUstream stream,
                           uint32_t transfer, bool spread);

/* A download whose bytes come when the device has them. */
struct tow_later_copy {
    uint32_t transfer;
    uint64_t size;      /* at most TOW_COPY_ASYNC_MAX */
    bool spread;        /* may leave over the lanes; a frame on the own line closes it */
    uint64_t stream_id; /* the client's, and the driver's */
    CUstream stream;
    CUdeviceptr from;                /* of one dimension */
    const struct tow_shaped *shaped; /* borrowed; else NULL */
};

/* Begins it, in the call's context. If it fails the client is told that nothing comes. */
void tow_copy_later(struct tow_serve *call, const struct tow_later_copy *want);
void tow_copy_tell_none_comes(struct tow_serve *call, uint32_t transfer);

/* Sends the bytes of asynchronous downloads that the device has finished. Called before every reply
 * to a synchronising call and before every host function: what the program may look at then has
 * arrived. */
void tow_copy_flush(struct tow_session *session);
/* Before the driver waits for a stream, or for the whole context of a call whose caller waits:
 * sends what is downloaded there piece by piece, as the device brings it. */
void tow_copy_send_stream(struct tow_serve *call, uint64_t id, CUstream stream);
void tow_copy_send_context(struct tow_serve *call);
/* The same before it waits for an event: nobody knows which copies are before that, so it looks now
 * and then while large ones are under way. */
void tow_copy_send_until(struct tow_serve *call, CUevent event);
/* A context ends: what it still has to bring comes first. False: somebody has memory of it in hand.
 */
bool tow_copy_drop_downloads(struct tow_session *session, uint32_t context, uint32_t heir);

#endif
