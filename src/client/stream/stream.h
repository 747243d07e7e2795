/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events as the client knows them. */
#ifndef TOW_CLIENT_STREAM_H
#define TOW_CLIENT_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mutex.h"
#include "client/stream/context.h"
#include "client/completion/completion.h"
#include "gen/cuda_types.h"

/* Whether a stream captures, as the server said last. Guarded by the lock of capture.c. */
struct tow_stream_capture {
    uint64_t asked; /* what `affairs` of capture.c was before the question; 0: not known */
    uint64_t waits; /* for events: they draw a stream into a capture */
    uint64_t id;    /* of the capture; 0: not known */
    CUstreamCaptureStatus status;
};

/* A stream that the program created. Used again after the stream's end, never freed: a late reader
 * sees another stream's numbers, not freed memory. */
struct tow_stream {
    struct tow_context *context; /* shared: contexts are never freed */
    unsigned epoch;              /* the context's, when it was made */
    unsigned flags;
    int priority;
    _Atomic uint64_t unique; /* cuStreamGetId: never used again */
    _Atomic uint64_t done;   /* its work of commands up to this number is done */
    struct tow_completion completion;
    struct tow_stream_capture capture;
    struct tow_stream *next_free;
};

/* Used again like streams. What a synchronisation brought to its end need not be asked for. */
struct tow_event {
    struct tow_context *context; /* shared */
    unsigned epoch;
    unsigned flags;
    struct tow_completion
        completion;            /* of its last record; its lock guards all below but the last */
    uint64_t records;          /* how often it was recorded: raised at both ends of a record */
    uint64_t recorded;         /* no command after this number recorded it; 0: it is done */
    struct tow_stream *stream; /* where; NULL: in its context's default stream */
    uint64_t stream_unique;
    bool watched;    /* the program looks at it: its records are followed by a mark */
    unsigned unseen; /* records since it was looked at last */
    struct tow_event *next_free;
};

/* The program's stream of a handle; NULL for the default streams (0, 1, 2) and for what is not one.
 */
struct tow_stream *tow_stream_find(CUstream stream);
/* CUDA_SUCCESS for a default stream in a live context and for a live stream, else what a call on it
 * answers. */
CUresult tow_stream_check(CUstream stream);

/* The context a stream belongs to: its own, or the calling thread's current one. */
CUresult tow_stream_context(CUstream stream, struct tow_context **ret_context);
/* Registers a stream made on the server under `id` semantics of its own (green contexts): mints its
 * handle. */
CUresult tow_stream_mint(struct tow_context *context, unsigned flags, int priority,
                         CUstream *ret_stream);
void tow_stream_retire(CUstream stream);
/* The number that no two streams of the process ever share. */
CUresult tow_stream_id(struct tow_context *context, CUstream stream, uint64_t *ret_id);

struct tow_event *tow_event_find(CUevent event);
/* cuCtxRecordEvent, cuCtxWaitEvent or their green forms (`fn`), of the context `of` on `link`
 * (NULL: it is none). */
CUresult tow_event_record_all(unsigned fn, void *of, CUevent event);
CUresult tow_event_wait_all(unsigned fn, void *of, const struct tow_link *link, CUevent event);
/* After a record of the event, or a stream's wait for it: if other processes know the event,
 * returns only when the server has done that, since they may look at once. */
CUresult tow_event_settle(CUevent event, CUstream stream, CUresult status);

/* A synchronisation of a stream that was sent behind command `number` was successful. */
void tow_stream_finished(CUstream stream, struct tow_context *context, uint64_t number);

#endif
