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
struct towc_stream_capture {
    uint64_t asked; /* what `affairs` of capture.c was before the question; 0: not known */
    uint64_t waits; /* for events: they draw a stream into a capture */
    uint64_t id;    /* of the capture; 0: not known */
    CUstreamCaptureStatus status;
};

/* A stream that the program created. Used again after the stream's end, never freed: a late reader
 * sees another stream's numbers, not freed memory. */
struct towc_stream {
    struct towc_context *context; /* shared: contexts are never freed */
    unsigned epoch;               /* the context's, when it was made */
    unsigned flags;
    int priority;
    _Atomic uint64_t unique; /* cuStreamGetId: never used again */
    _Atomic uint64_t done;   /* its work of commands up to this number is done */
    struct towc_completion completion;
    struct towc_stream_capture capture;
    struct towc_stream *next_free;
};

/* Used again like streams. What a synchronisation brought to its end need not be asked for. */
struct towc_event {
    struct towc_context *context; /* shared */
    unsigned epoch;
    unsigned flags;
    struct towc_completion
        completion;             /* of its last record; its lock guards all below but the last */
    uint64_t records;           /* how often it was recorded: raised at both ends of a record */
    uint64_t recorded;          /* no command after this number recorded it; 0: it is done */
    struct towc_stream *stream; /* where; NULL: in its context's default stream */
    uint64_t stream_unique;
    bool watched;    /* the program looks at it: its records are followed by a mark */
    unsigned unseen; /* records since it was looked at last */
    struct towc_event *next_free;
};

/* The program's stream of a handle; NULL for the default streams (0, 1, 2) and for what is not one.
 */
struct towc_stream *towc_stream_find(CUstream stream);
/* CUDA_SUCCESS for a default stream in a live context and for a live stream, else what a call on it
 * answers. */
CUresult towc_stream_check(CUstream stream);

/* The context a stream belongs to: its own, or the calling thread's current one. */
CUresult towc_stream_context(CUstream stream, struct towc_context **ret_context);
/* Registers a stream made on the server under `id` semantics of its own (green contexts): mints its
 * handle. */
CUresult towc_stream_mint(struct towc_context *context, unsigned flags, int priority,
                          CUstream *ret_stream);
void towc_stream_retire(CUstream stream);
/* The number that no two streams of the process ever share. */
CUresult towc_stream_id(struct towc_context *context, CUstream stream, uint64_t *ret_id);

struct towc_event *towc_event_find(CUevent event);
/* cuCtxRecordEvent, cuCtxWaitEvent or their green forms (`fn`), of the context `of` on `link`
 * (NULL: it is none). */
CUresult towc_event_record_all(unsigned fn, void *of, CUevent event);
CUresult towc_event_wait_all(unsigned fn, void *of, const struct towc_link *link, CUevent event);
/* After a record of the event, or a stream's wait for it: if other processes know the event,
 * returns only when the server has done that, since they may look at once. */
CUresult towc_event_flush_ipc(CUevent event, CUstream stream, CUresult status);

/* A synchronisation of a stream that was sent behind command `number` was successful. */
void towc_stream_finished(CUstream stream, struct towc_context *context, uint64_t number);
/* For copies: synchronises by asking; or a word of the GPU's has told that the stream is through
 * with command `number`. `owing`: a reply would bring more, so the stream is still asked for. */
CUresult towc_stream_ask(struct towc_link *link, CUstream stream);
void towc_stream_told(struct towc_link *link, CUstream stream, uint64_t number, bool owing);

#endif
