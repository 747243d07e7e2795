/* SPDX-License-Identifier: Apache-2.0 */
/* Copies from the device to the client's memory. */
#ifndef TOW_SERVER_DOWNLOAD_H
#define TOW_SERVER_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/cuda_types.h"

struct tows_serve;
struct tows_session;
struct tows_driver_copy;

/* A download whose caller waits, as a transfer, in the call's context. */
CUresult tows_copy_download(struct tows_serve *call, CUdeviceptr from, uint64_t size,
                            CUstream stream, uint32_t transfer, bool spread);

/* A download whose bytes come when the device has them. */
struct tows_async_download {
    uint32_t transfer;
    uint64_t size;      /* at most TOW_COPY_ASYNC_MAX */
    bool spread;        /* may leave over the lanes; a frame on the own line closes it */
    uint64_t stream_id; /* the client's, and the driver's */
    CUstream stream;
    CUdeviceptr from;                           /* of one dimension */
    const struct tows_driver_copy *driver_copy; /* borrowed; else NULL */
};

/* Begins it, in the call's context. If it fails the client is told that nothing comes. */
void tows_copy_download_async(struct tows_serve *call, const struct tows_async_download *want);
void tows_copy_tell_none_comes(struct tows_serve *call, uint32_t transfer);

/* Sends the bytes of asynchronous downloads that the device has finished. Called before every reply
 * to a synchronising call and before every host function: what the program may look at then has
 * arrived. */
void tows_copy_flush(struct tows_session *session);
/* Before the driver waits for a stream, or for the whole context of a call whose caller waits:
 * sends what is downloaded there buffer by buffer, as the device brings it. */
void tows_copy_send_stream(struct tows_serve *call, uint64_t id, CUstream stream);
void tows_copy_send_context(struct tows_serve *call);
/* The same before it waits for an event: nobody knows which copies are before that, so it looks now
 * and then while large ones are under way. */
void tows_copy_send_until(struct tows_serve *call, CUevent event);
/* A context ends: what it still has to bring comes first. False: somebody has memory of it in hand.
 */
bool tows_copy_drop_downloads(struct tows_session *session, uint32_t context, uint32_t heir);

#endif
