/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture as streams and events see it. */
#ifndef TOW_SOFT_ENGINE_CAPTURE_H
#define TOW_SOFT_ENGINE_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/soft/ground/handle.h"
#include "gen/cuda_types.h"

struct tow_soft_board;
struct tow_soft_graph;
struct tow_soft_mark;
struct tow_soft_stream;
struct tow_soft_work;

struct tow_soft_event {
    struct tow_soft_object object;
    unsigned flags;
    struct tow_soft_mark *mark;   /* counted; NULL until recorded */
    struct tow_soft_board *board; /* counted; NULL unless other processes know it */
    /* Set while the last record was captured: what waits on the event joins that capture. */
    uint64_t capture_id;
    uint64_t *capture_deps; /* owned: node handles */
    size_t capture_dep_count;
};

/* What streams call of who captures them. */
struct tow_soft_capture_ops {
    /* Adds the work as a node and takes it over. */
    CUresult (*add)(struct tow_soft_stream *stream, struct tow_soft_work *work);
    CUresult (*alloc)(struct tow_soft_stream *stream, uint64_t size, int device,
                      CUdeviceptr *ret_ptr);
    void (*graph_free)(struct tow_soft_graph *graph);
};

struct tow_soft_capture {
    struct tow_soft_capture *next;
    const struct tow_soft_capture_ops *ops;
    uint64_t id;
    struct tow_soft_graph *graph; /* owned unless `to_graph` */
    bool to_graph;
    uint64_t origin; /* handle of the stream where it began */
    struct tow_soft_ctx *ctx;
    CUstreamCaptureMode mode;
    int thread; /* where it began */
    bool spoiled;
    uint64_t *left; /* owned: what streams that were destroyed captured last; is to be joined too */
    size_t left_count;
};

/* Of the calling thread. */
extern _Thread_local CUstreamCaptureMode tow_soft_capture_mode;
void tow_soft_capture_begin(struct tow_soft_capture *capture, struct tow_soft_stream *stream);
/* Ends and frees it; the graph stays with the caller when `keep_graph`. */
void tow_soft_capture_end(struct tow_soft_capture *capture, bool keep_graph);
/* A list of node handles, owned, becomes these; gets these as well. */
CUresult tow_soft_deps_set(uint64_t **deps, size_t *count, const uint64_t *from, size_t n);
CUresult tow_soft_deps_join(uint64_t **deps, size_t *dep_count, const uint64_t *more, size_t n);
/* cuStreamWaitEvent and cuEventRecord while a capture is on; *ret_done says whether they were
 * taken. */
CUresult tow_soft_capture_forbid_all(struct tow_soft_ctx *ctx);
CUresult tow_soft_capture_asked(struct tow_soft_event *event);
/* A launch into this stream is refused: what it captures is spoiled. */
void tow_soft_capture_spoil(struct tow_soft_stream *stream);
CUresult tow_soft_capture_wait(struct tow_soft_stream *stream, struct tow_soft_event *event,
                               bool external, bool *ret_done);
CUresult tow_soft_capture_record(struct tow_soft_stream *stream, struct tow_soft_event *event,
                                 bool external, bool *ret_done);
/* What a call that would synchronise the stream answers while it captures; CUDA_SUCCESS otherwise.
 */
CUresult tow_soft_capture_forbid(struct tow_soft_ctx *ctx, struct tow_soft_stream *stream);
/* For work on the legacy stream itself, which would wait for capturing streams. */
CUresult tow_soft_capture_forbid_implicit(struct tow_soft_ctx *ctx);
/* For calls that no capture in global mode allows (cuMemAlloc and the like). */
CUresult tow_soft_capture_unsafe(struct tow_soft_ctx *ctx);
void tow_soft_capture_graph_gone(struct tow_soft_graph *graph);
void tow_soft_capture_stream_gone(struct tow_soft_stream *stream);
void tow_soft_captures_drop(struct tow_soft_ctx *ctx);

#endif
