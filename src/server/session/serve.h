/* SPDX-License-Identifier: Apache-2.0 */
/* What generated and by-hand server code is made of: one command being carried out.
 *
 * A handler decodes call->in, checks tows_serve_ready, calls the driver, puts outputs into
 * call->out. Reply and error bookkeeping are the dispatcher's. Handlers of no-reply commands run on
 * the dispatcher in order and must not wait for the GPU; all others run on a thread of their own
 * and may.
 */
#ifndef TOW_SERVER_SERVE_H
#define TOW_SERVER_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/number.h"
#include "backend/driver.h"
#include "gen/functions.h"
#include "server/session/handles.h"
#include "wire/cursor.h"
#include "wire/frame.h"

struct tows_session;
struct tows_serve_block;

struct tows_serve {
    struct tows_session *session;
    const struct tow_driver *driver;
    struct tow_frame frame; /* header of the command: kind, thread, context, seq */
    uint64_t number;        /* of the session's commands, from 1 on */
    struct tow_dec in;
    struct tow_enc out; /* body of the reply */
    /* All zeros at first, in one go: what a launch pays. */
    struct tows_serve_block *blocks; /* memory that lives as long as the call */
    CUresult status;
    unsigned held;    /* see hold.h */
    unsigned streams; /* how many it named; see completion.h */
    bool malformed;   /* the peer broke the protocol: the session ends */
    struct tows_handle_taken claimed;
    uint64_t stream; /* the last of them */
    uint8_t *out_start;
    uint64_t small[64];
};

typedef void tows_serve_fn(struct tows_serve *call);

/* False if the command was malformed or a handle in it was wrong; then do nothing (status is set).
 */
bool tows_serve_ready(struct tows_serve *call);

/* The driver's handle for an id. Streams: 0, 1 and 2 mean what they mean in CUDA, 2 being the real
 * stream that stands for the client thread's per-thread stream. A function may be a kernel and the
 * other way round. On failure NULL, with call->status set: CUDA_ERROR_INVALID_HANDLE (contexts:
 * INVALID_CONTEXT), or the error with which the object's own creation failed. Id 0 is NULL and no
 * error. */
void *tows_serve_handle(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id);
/* An array of u64 ids becomes, in place, an array of driver handles. */
void tows_serve_handles(struct tows_serve *call, enum tow_handle_kind kind, void *array,
                        size_t count);

/* A NUL-terminated text (u32 size with NUL, bytes), borrowed from the frame. */
const char *tows_serve_text(struct tows_serve *call);
/* `count` elements copied out of the frame into memory of the call, aligned; NULL for 0 or if
 * malformed. */
void *tows_serve_array(struct tows_serve *call, uint64_t count, size_t element);
/* Room for outputs, zeroed; NULL for 0. */
void *tows_serve_room(struct tows_serve *call, uint64_t count, size_t element);
void tows_serve_record(struct tows_serve *call, void *into, size_t size);
/* Makes sure that the reply has room for `bytes` more. */
void tows_serve_reserve(struct tows_serve *call, size_t bytes);

/* Memory that came from another process: its address, and how far it goes from there. */
void tows_serve_put_range(struct tows_serve *call, CUdeviceptr address);

/* After a creating call: ties the client's id to the driver's handle, or to the error
 * (call->status). */
void tows_serve_bind(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id, void *handle);
void tows_serve_unbind(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id);
/* Before a destroying call: the id means nothing any more, and uploads that found the handle have
 * given their bytes to the device. False if another thread destroys it (call->status is set). */
bool tows_serve_claim(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id);
/* The driver did not destroy it after all: the id means what it meant. */
void tows_serve_unclaim(struct tows_serve *call);
/* Of this thread: handles' ids that calls bind or answer from here on are listed, until the list is
 * NULL again. Who keeps a record of calls wants them. */
struct tows_serve_ids {
    uint64_t *ids; /* the lister's to free */
    uint32_t count, room;
    bool lacking; /* there was no memory for all of them */
};
void tows_serve_list_ids(struct tows_serve_ids *ids);
/* One of them; whoever binds it otherwise than by what is here says so. */
void tows_serve_list_id(uint64_t id);
/* The id of a driver handle that the server hands out; minted if it has none yet. NULL is 0. */
uint64_t tows_serve_export(struct tows_serve *call, enum tow_handle_kind kind, void *handle);
void tows_serve_export_all(struct tows_serve *call, enum tow_handle_kind kind, void *array,
                           size_t count);

#endif
