/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events that end while a capture has them. */
#include "driver.h"

/* A capture that began in `s` and was carried into `t`, which copies what `s` wrote. */
struct fork {
    CUstream s, t;
    CUevent fork, join;
    CUdeviceptr w;
};

static struct fork forked(CUstreamCaptureMode mode, unsigned flags)
{
    struct fork f = {.w = words(3)};
    f.s = stream_new(flags);
    f.t = stream_new(flags);
    f.fork = event_new(0);
    f.join = event_new(0);
    OK(cuStreamBeginCapture(f.s, mode));
    OK(launch_set(f.s, f.w, 2));
    OK(cuEventRecord(f.fork, f.s));
    OK(cuStreamWaitEvent(f.t, f.fork, 0));
    OK(launch_copy(f.t, f.w + 4, f.w));
    return f;
}

static void join(const struct fork *f)
{
    OK(cuEventRecord(f->join, f->t));
    OK(cuStreamWaitEvent(f->s, f->join, 0));
}

static int status_of(CUstream s)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)99;
    OK(cuStreamIsCapturing(s, &status));
    return (int)status;
}

/* What became of the capture. */
static void finish(const struct fork *f)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    size_t nodes = 0, edges = 0;
    NUM(status_of(f->s));
    if (SEE(cuStreamEndCapture(f->s, &graph)) != CUDA_SUCCESS) {
        NUM(graph != NULL);
        NUM(status_of(f->s));
        SEE_LATE(launch_set(f->s, f->w, 7));
        return;
    }
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    NUM(nodes);
    NUM(edges);
    SEE(cuGraphInstantiate(&exec, graph, 0));
    SEE(cuGraphLaunch(exec, side));
    SEE(cuStreamSynchronize(side));
    NUM(peek(f->w, 1));
    NUM(peek(f->w, 2));
}

static void joined_and_destroyed(CUstreamCaptureMode mode, unsigned flags)
{
    struct fork f = forked(mode, flags);
    join(&f);
    SEE(cuStreamDestroy(f.t));
    finish(&f);
}

CASE(capture_ends_joined_global, "a joined stream is destroyed in a global capture")
{
    joined_and_destroyed(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING);
}

CASE(capture_ends_joined_local, "a joined stream is destroyed in a thread-local capture")
{
    joined_and_destroyed(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_NON_BLOCKING);
}

CASE(capture_ends_joined_relaxed, "a joined stream is destroyed in a relaxed capture")
{
    joined_and_destroyed(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
}

CASE(capture_ends_joined_blocking, "a joined blocking stream is destroyed in a capture")
{
    joined_and_destroyed(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_DEFAULT);
}

CASE(capture_ends_joined_goes_on, "after a joined stream was destroyed the capture takes more work")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph = NULL;
    const CUgraphNode *after = NULL;
    size_t count = 0;
    join(&f);
    SEE(cuStreamDestroy(f.t));
    SEE(cuStreamGetCaptureInfo(f.s, &status, &id, &graph, &after, NULL, &count));
    NUM(status);
    NUM(count);
    SEE(launch_copy(f.s, f.w + 8, f.w + 4));
    finish(&f);
}

CASE(capture_ends_unjoined, "a stream with work that was not joined is destroyed in a capture")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
    SEE(cuStreamDestroy(f.t));
    NUM(status_of(f.s));
    SEE(launch_set(f.s, f.w + 8, 5));
    finish(&f);
}

CASE(capture_ends_unjoined_global, "the same in a global capture")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING);
    SEE(cuStreamDestroy(f.t));
    finish(&f);
}

CASE(capture_ends_before_its_join, "a stream is destroyed, then its event is waited for")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
    OK(cuEventRecord(f.join, f.t));
    SEE(cuStreamDestroy(f.t));
    NUM(status_of(f.s));
    SEE(cuStreamWaitEvent(f.s, f.join, 0));
    finish(&f);
}

CASE(capture_ends_without_work, "a forked stream that had no work is destroyed in a capture")
{
    struct fork f = {.w = words(3)};
    f.s = stream_new(CU_STREAM_NON_BLOCKING);
    f.t = stream_new(CU_STREAM_NON_BLOCKING);
    f.fork = event_new(0);
    OK(cuStreamBeginCapture(f.s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch_set(f.s, f.w + 4, 2));
    OK(cuEventRecord(f.fork, f.s));
    OK(cuStreamWaitEvent(f.t, f.fork, 0));
    SEE(cuStreamDestroy(f.t));
    finish(&f);
}

CASE(capture_ends_with_more_work, "a stream that was joined and went on is destroyed in a capture")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
    join(&f);
    OK(launch_set(f.t, f.w + 8, 5));
    SEE(cuStreamDestroy(f.t));
    finish(&f);
}

CASE(capture_ends_behind_another, "a stream whose work a third one joined is destroyed")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
    CUstream u = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(0);
    OK(cuEventRecord(e, f.t));
    OK(cuStreamWaitEvent(u, e, 0));
    SEE(cuStreamDestroy(f.t));
    NUM(status_of(u));
    SEE(launch_copy(u, f.w + 8, f.w + 4));
    SEE(cuEventRecord(f.join, u));
    SEE(cuStreamWaitEvent(f.s, f.join, 0));
    finish(&f);
}

static void destroy_stream(void *arg)
{
    SEE(cuStreamDestroy(*(CUstream *)arg));
}

CASE(capture_ends_elsewhere, "another thread destroys a joined stream in a global capture")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING);
    join(&f);
    in_thread(destroy_stream, &f.t);
    finish(&f);
}

CASE(capture_ends_invalidated, "a joined stream is destroyed when the capture is invalid already")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
    join(&f);
    SEE(cuStreamSynchronize(f.s));
    SEE(cuStreamDestroy(f.t));
    finish(&f);
}

CASE(capture_ends_to_a_graph, "a joined stream is destroyed in a capture into a graph")
{
    struct fork f = {.w = words(3)};
    CUgraph graph = NULL;
    f.s = stream_new(CU_STREAM_NON_BLOCKING);
    f.t = stream_new(CU_STREAM_NON_BLOCKING);
    f.fork = event_new(0);
    f.join = event_new(0);
    OK(cuGraphCreate(&graph, 0));
    OK(cuStreamBeginCaptureToGraph(f.s, graph, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(f.fork, f.s));
    OK(cuStreamWaitEvent(f.t, f.fork, 0));
    OK(launch_set(f.t, f.w + 4, 2));
    join(&f);
    SEE(cuStreamDestroy(f.t));
    finish(&f);
}

CASE(capture_ends_events, "the events of a fork and a join are destroyed in a capture")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
    SEE(cuEventDestroy(f.fork));
    join(&f);
    SEE(cuEventDestroy(f.join));
    finish(&f);
}

CASE(capture_ends_all_of_it, "events, joined stream and a new stream afterwards")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING);
    join(&f);
    SEE(cuEventDestroy(f.fork));
    SEE(cuEventDestroy(f.join));
    SEE(cuStreamDestroy(f.t));
    NUM(status_of(stream_new(CU_STREAM_NON_BLOCKING)));
    finish(&f);
}

CASE_ALONE(capture_ends_origin, "the stream where a capture began is destroyed")
{
    CUdeviceptr w = words(1), p = 0;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch_set(s, w, 2));
    SEE(cuStreamDestroy(s));
    SEE(cuMemAlloc(&p, 4));
    SEE(cuStreamQuery(t));
    SEE(cuStreamBeginCapture(t, CU_STREAM_CAPTURE_MODE_GLOBAL));
    SEE(launch_set(t, w, 3));
    SEE(cuStreamEndCapture(t, &graph));
    SEE(cuCtxSynchronize());
    NUM(peek(w, 0));
}

CASE_ALONE(capture_ends_origin_of_a_fork,
           "the stream where a capture began is destroyed, and another one took part")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING);
    CUgraph graph = NULL;
    CUdeviceptr p = 0;
    SEE(cuStreamDestroy(f.s));
    NUM(status_of(f.t));
    SEE(launch_set(f.t, f.w + 8, 5));
    NUM(status_of(f.t));
    SEE(cuMemAlloc(&p, 4));
    SEE(cuStreamEndCapture(f.t, &graph));
    NUM(status_of(f.t));
    SEE(cuStreamDestroy(f.t));
    SEE(cuMemAlloc(&p, 4));
    SEE(cuCtxSynchronize());
    NUM(peek(f.w, 2));
}

CASE_ALONE(capture_ends_origin_relaxed, "the same in a relaxed capture, joined before")
{
    struct fork f = forked(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING);
    join(&f);
    SEE(cuStreamDestroy(f.s));
    NUM(status_of(f.t));
    SEE(cuStreamSynchronize(f.t));
    SEE_LATE(launch_set(f.t, f.w + 8, 5));
    NUM(status_of(f.t));
    NUM(peek(f.w, 2));
}
