/* SPDX-License-Identifier: Apache-2.0 */
/* Streams as queues, and what runs what is in them. */
#ifndef TOW_SOFT_ENGINE_ENGINE_H
#define TOW_SOFT_ENGINE_ENGINE_H

#include "backend/soft/engine/work.h"
#include "backend/soft/ground/handle.h"

struct tow_soft_capture;

#define TOW_SOFT_RUNNERS_MAX 64 /* threads that execute streams */

struct tow_soft_op {
    struct tow_soft_op *next;
    struct tow_soft_stream *stream; /* borrowed */
    uint64_t seq;
    uint64_t given_ns; /* while spans are kept */
    uint64_t command;  /* see backend/spans.h */
    struct tow_soft_work work;
    unsigned step;  /* of MEMOPS: how many are done */
    bool *ret_done; /* borrowed from a caller that waits; set when the op is gone */
    /* While it runs: */
    uint64_t start;
    struct tow_soft_op *run_prev, *run_next;
};

struct tow_soft_stream {
    struct tow_soft_object object;
    unsigned flags;
    int priority;
    uint64_t id;
    bool legacy;
    bool destroyed; /* the handle is gone; freed once drained */
    int thread;     /* of a per-thread default stream: whose; else 0 */
    bool running;   /* the head runs on some thread */
    struct tow_soft_op *head, *tail;
    unsigned queued;                     /* how many these are */
    struct tow_soft_stream *prev, *next; /* in tow_soft.streams */
    struct tow_soft_capture *capture;    /* borrowed; NULL when not capturing */
    uint64_t *capture_deps; /* owned: node handles that the next captured node follows */
    size_t capture_dep_count;
    CUgraphEdgeData *capture_edges; /* owned: what the last capture query handed out */
    CUstreamAttrValue access_policy, sync_policy, mem_sync_map, mem_sync;
};
struct tow_soft_stream *tow_soft_stream_create(struct tow_soft_ctx *ctx, unsigned flags,
                                               int priority);
/* Handle 0, 1, 2 or a real one. */
CUresult tow_soft_stream_of(struct tow_soft_ctx *ctx, CUstream handle,
                            struct tow_soft_stream **ret_stream);
/* tow_soft_enter and tow_soft_stream_of: locked, with the stream, on success. */
CUresult tow_soft_enter_stream(CUstream handle, struct tow_soft_ctx **ret_ctx,
                               struct tow_soft_stream **ret_stream);
void tow_soft_stream_free(struct tow_soft_stream *stream);
void tow_soft_stream_end(struct tow_soft_object *object);
/* Queues the work, or adds it to the graph that the stream captures into; takes it over in any case
 * (*work is empty afterwards). Short work may be done before this returns: the lock is given up and
 * taken again meanwhile. */
CUresult tow_soft_submit(struct tow_soft_stream *stream, struct tow_soft_work *work);
/* Queues it and waits until it is done. Refused while capturing. */
CUresult tow_soft_submit_wait(struct tow_soft_stream *stream, struct tow_soft_work *work);
/* Waits for everything that is in the stream (by handle: it may vanish meanwhile) or context now.
 */
CUresult tow_soft_stream_wait(struct tow_soft_ctx *ctx, struct tow_soft_stream *stream);
CUresult tow_soft_ctx_wait(struct tow_soft_ctx *ctx);
/* With --soft-strict: the same, keeping others out. For calls in which NVIDIA's driver may wait. */
CUresult tow_soft_ctx_wait_strict(struct tow_soft_ctx *ctx);
CUresult tow_soft_mark_wait(struct tow_soft_mark *mark);
/* Sleeps until something changed that may have ended it; the lock is given up meanwhile. */
void tow_soft_mark_pause(const struct tow_soft_mark *mark);
bool tow_soft_stream_idle(const struct tow_soft_stream *stream);
/* Lets every op run that can; wakes or starts threads. */
void tow_soft_engine_kick(void);
/* Throws away what is queued for the context and waits until nothing of it runs. */
void tow_soft_engine_drain(struct tow_soft_ctx *ctx);
void tow_soft_engine_stop(void);
/* GPU time of this process so far, in ns: what its threads used for work of streams. Waits for
 * nobody: while others have the lock it is what it was. */
uint64_t tow_soft_engine_time(void);
/* Part of what lives on until queued work is done; nothing is allocated for it. */
struct tow_soft_later {
    struct tow_soft_later *next;
    uint64_t seq;
    void (*run)(struct tow_soft_later *later);
};
/* Calls `later->run` once every op that is queued now is done; at once if there is none. */
void tow_soft_engine_later(struct tow_soft_later *later);
/* Reports a context's fault: first one wins. Takes the lock itself. */
void tow_soft_ctx_fail(struct tow_soft_ctx *ctx, CUresult error);
/* Waits until no op runs that began before this call; the lock is given up meanwhile. */
void tow_soft_quiesce(void);
/* The same for ops that began before `before`, a value of tow_soft.seq, and but for host functions:
 * one may wait for whoever waits here, and uses no addresses. */
void tow_soft_quiesce_device(uint64_t before);

#endif
