/* SPDX-License-Identifier: Apache-2.0 */
/* Wraps the driver's submitting functions; a thread follows the listener and looks at events. */
#include "server/worker/gate.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/event.h"
#include "gen/graph.h"
#include "gen/green.h"
#include "gen/launch.h"
#include "gen/memory.h"
#include "gen/stream.h"
#include "server/worker/worker_msg.h"

/* So much of the GPU's time may be submitted and not done. */
#define AHEAD_NS (5 * TOW_TIME_MS)
/* Who has submitted nothing for so long, and has nothing there, leaves the turn to others. */
#define QUIET_NS (2 * TOW_TIME_MS)
/* What runs may wait for what is not submitted yet: if for so long, and for twice the time of what
 * came before, nothing was submitted or done, one more may pass. */
#define STUCK_NS (50 * TOW_TIME_MS)
/* How often events are looked at; the second where somebody waits for them to be done. */
#define LOOK_NS (250 * TOW_TIME_US)
#define LOOK_SOON_NS (100 * TOW_TIME_US)

enum {
    AHEAD_FIRST = 4, /* submissions, where no time was measured yet */
    AHEAD_MAX = 512, /* less than what makes a driver wait */
    GPUS = TOW_STATS_GPUS_MAX,
};

/* A stream with what was submitted there. */
struct track {
    struct track *next;
    CUcontext context;
    CUstream stream;
    unsigned gpu;
    CUevent events[2]; /* owned: one is behind what is done, the other behind what is not */
    unsigned ahead;    /* which one that is */
    bool pending;      /* it was recorded, and is not done */
    bool blind;        /* there are no events: what was submitted counts as done */
    bool closed;       /* the stream has ended, its work has not */
    bool gone;         /* is freed by the last that is inside */
    unsigned inside;   /* threads in the driver's call */
    uint64_t submitted, marked, done; /* calls: that came back, and how far they are */
};

struct gpu {
    uint32_t word;     /* the listener's, as it was followed */
    unsigned waiting;  /* threads at the gate */
    uint64_t ahead;    /* calls in the driver, or submitted and not done */
    double each_ns;    /* what one of them takes; 0: not known */
    int64_t active_ns; /* when something was submitted, or done */
};

static struct {
    struct tow_driver *driver; /* borrowed: the session's */
    struct tow_driver next;    /* what was there */
    struct tows_session_stats *page;
    uint64_t (*gpu_time)(void);
    void (*tell)(void);
    struct tow_mutex lock; /* guards all below */
    pthread_cond_t changed;
    bool installed, let_go;
    bool rests; /* the driver is not to be asked just now */
    bool looks; /* the thread looks again soon, by itself */
    struct gpu gpus[GPUS];
    struct track *tracks; /* owned */
} gate = {.lock = TOW_MUTEX(SERVER_GATE), .changed = PTHREAD_COND_INITIALIZER};

/* ---- what the listener is told ---- */

static bool put_flag(_Atomic uint32_t *word, bool value)
{
    return atomic_exchange(word, value) != (uint32_t)value;
}

/* With the lock held. True: the listener does not know yet. */
static bool publish_gpu(unsigned number, int64_t now_ns)
{
    const struct gpu *gpu = &gate.gpus[number];
    bool on = TOW_GATE_STATE(gpu->word) != TOW_GATE_OFF;
    bool wants = gpu->waiting > 0 || gpu->ahead > 0 || now_ns - gpu->active_ns < QUIET_NS;
    bool works = put_flag(&gate.page->works[number], on && gpu->ahead > 0);
    return put_flag(&gate.page->wants[number], on && wants) || works;
}

/* The thread has reason to look. */
static void wake_looker(void)
{
    atomic_fetch_add(&gate.page->gate_news, 1);
    tow_futex_wake(&gate.page->gate_news, 1, true);
}

/* ---- events behind what was submitted ---- */

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return tow_drive(&gate.next, cuStreamIsCapturing)(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* With the lock held, in the track's context. Behind what was submitted before a capture nothing
 * is recorded until that has ended. */
static void track_mark(struct track *track)
{
    if (track->pending || track->submitted == track->marked || is_captured(track->stream)) {
        return;
    }
    if (track->blind || tow_drive(&gate.next, cuEventRecord)(track->events[track->ahead],
                                                             track->stream) != CUDA_SUCCESS) {
        gate.gpus[track->gpu].ahead -= track->submitted - track->done;
        track->done = track->marked = track->submitted;
        return;
    }
    track->marked = track->submitted;
    track->pending = true;
}

static void track_free(struct track *track)
{
    for (unsigned i = 0; i < 2; i++) {
        if (track->events[i] != NULL) {
            tow_drive(&gate.next, cuEventDestroy_v2)(track->events[i]);
        }
    }
    free(track);
}

/* With the lock held: forgets it, with what is not done. */
static void track_drop(struct track **at)
{
    struct track *track = *at;
    *at = track->next;
    gate.gpus[track->gpu].ahead -= track->submitted - track->done;
    track->done = track->submitted;
    if (track->inside > 0) {
        track->gone = true;
    } else {
        track_free(track);
    }
}

/* In the current context, which is `context`. NULL: there is no memory. */
static struct track *track_of(CUcontext context, CUstream stream, unsigned gpu)
{
    struct track *track = gate.tracks;
    while (track != NULL &&
           (track->closed || track->context != context || track->stream != stream)) {
        track = track->next;
    }
    if (track != NULL) {
        return track;
    }
    track = calloc(1, sizeof *track);
    if (track != NULL) {
        *track =
            (struct track){.next = gate.tracks, .context = context, .stream = stream, .gpu = gpu};
        for (unsigned i = 0; i < 2; i++) {
            track->blind |= tow_drive(&gate.next, cuEventCreate)(&track->events[i],
                                                                 CU_EVENT_DEFAULT) != CUDA_SUCCESS;
        }
        gate.tracks = track;
    }
    return track;
}

/* What one call takes, by the last of them. */
static void measure_calls(const struct track *track, struct gpu *gpu)
{
    float ms = 0;
    CUevent begin = track->events[!track->ahead], end = track->events[track->ahead];
    if (tow_drive(&gate.next, cuEventElapsedTime)(&ms, begin, end) == CUDA_SUCCESS && ms >= 0) {
        double each_ns = (double)ms * TOW_TIME_MS / (double)(track->marked - track->done);
        gpu->each_ns = gpu->each_ns > 0 ? (3 * gpu->each_ns + each_ns) / 4 : each_ns + 1;
    }
}

/* With the lock held. False: it was the last of a stream that has ended. */
static bool track_look(struct track *track, int64_t now_ns)
{
    struct gpu *gpu = &gate.gpus[track->gpu];
    if (track->pending || track->submitted > track->marked) {
        tow_drive(&gate.next, cuCtxSetCurrent)(track->context);
    }
    if (!track->pending) {
        track_mark(track);
        return !track->closed;
    }
    CUresult result = tow_drive(&gate.next, cuEventQuery)(track->events[track->ahead]);
    if (result == CUDA_ERROR_NOT_READY) {
        return true;
    }
    if (result == CUDA_SUCCESS) {
        measure_calls(track, gpu);
    }
    gpu->ahead -= track->marked - track->done;
    gpu->active_ns = now_ns;
    track->done = track->marked;
    track->pending = false;
    track->ahead = !track->ahead;
    if (!track->closed) {
        track_mark(track);
    }
    return !track->closed;
}

/* ---- passing ---- */

/* How many calls may be in the driver, or submitted and not done. */
static uint64_t most_ahead(const struct gpu *gpu)
{
    double count = gpu->each_ns > 0 ? (double)AHEAD_NS / gpu->each_ns : AHEAD_FIRST;
    double least = gpu->each_ns > 2 * AHEAD_NS ? 1 : 2;
    return (uint64_t)(count < least ? least : count > AHEAD_MAX ? AHEAD_MAX : count);
}

static bool is_stuck(const struct gpu *gpu, int64_t now_ns)
{
    int64_t twice_ns = (int64_t)(2 * gpu->each_ns);
    int64_t patience = twice_ns > STUCK_NS ? twice_ns : STUCK_NS;
    return now_ns - gpu->active_ns >= patience;
}

static bool may_pass(const struct gpu *gpu, int64_t now_ns)
{
    bool open = TOW_GATE_STATE(gpu->word) == TOW_GATE_OPEN;
    return gate.let_go || TOW_GATE_STATE(gpu->word) == TOW_GATE_OFF ||
           (open && (gpu->ahead < most_ahead(gpu) || is_stuck(gpu, now_ns)));
}

/* With the lock held, which is given back meanwhile: waits for the turn. */
static void await_turn(unsigned number)
{
    struct gpu *gpu = &gate.gpus[number];
    gpu->waiting++;
    for (;;) {
        int64_t now_ns = tow_time_now_ns();
        if (publish_gpu(number, now_ns)) {
            tow_mutex_unlock(&gate.lock);
            gate.tell();
            tow_mutex_lock(&gate.lock);
        } else if (may_pass(gpu, now_ns)) {
            break;
        } else {
            tow_mutex_wait(&gate.lock, &gate.changed);
        }
    }
    gpu->waiting--;
    gpu->active_ns = tow_time_now_ns();
}

/* Before the driver is called. NULL: nothing is held back, or kept of it. */
static struct track *gate_enter(CUstream stream)
{
    CUcontext context = NULL;
    CUdevice device = 0;
    if (is_captured(stream) || tow_drive(&gate.next, cuCtxGetCurrent)(&context) != CUDA_SUCCESS ||
        context == NULL || tow_drive(&gate.next, cuCtxGetDevice)(&device) != CUDA_SUCCESS ||
        device < 0 || device >= GPUS) {
        return NULL;
    }
    tow_mutex_lock(&gate.lock);
    await_turn((unsigned)device);
    struct track *track = gate.installed ? track_of(context, stream, (unsigned)device) : NULL;
    if (track != NULL) {
        if (track->inside == 0 && track->submitted == track->done && !track->blind) {
            /* From idle: time begins here. */
            tow_drive(&gate.next, cuEventRecord)(track->events[!track->ahead], stream);
        }
        track->inside++;
        gate.gpus[device].ahead++;
    }
    tow_mutex_unlock(&gate.lock);
    return track;
}

/* After it: hands on what it said. */
static CUresult gate_leave(struct track *track, CUresult result)
{
    if (track == NULL) {
        return result;
    }
    tow_mutex_lock(&gate.lock);
    track->inside--;
    if (track->gone) {
        gate.gpus[track->gpu].ahead--;
        if (track->inside == 0) {
            track_free(track);
        }
    } else {
        track->submitted++;
        track_mark(track);
        if (!gate.looks) {
            gate.looks = true;
            wake_looker();
        }
    }
    tow_mutex_unlock(&gate.lock);
    return result;
}

/* ---- the driver's functions ---- */

static CUresult launch_kernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                              unsigned int block_z, unsigned int shared, CUstream stream,
                              void **params, void **extra)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuLaunchKernel)(function, grid_x, grid_y, grid_z,
                                                                   block_x, block_y, block_z,
                                                                   shared, stream, params, extra));
}

static CUresult launch_kernel_ex(const CUlaunchConfig *config, CUfunction function, void **params,
                                 void **extra)
{
    struct track *track = gate_enter(config->hStream);
    return gate_leave(track,
                      tow_drive(&gate.next, cuLaunchKernelEx)(config, function, params, extra));
}

static CUresult launch_graph(CUgraphExec exec, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuGraphLaunch)(exec, stream));
}

static CUresult copy_up(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpyHtoDAsync_v2)(to, from, size, stream));
}

static CUresult copy_down(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpyDtoHAsync_v2)(to, from, size, stream));
}

static CUresult copy_device(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpyDtoDAsync_v2)(to, from, size, stream));
}

static CUresult copy_any(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpyAsync)(to, from, size, stream));
}

static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t size, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpyPeerAsync)(to, to_context, from,
                                                                      from_context, size, stream));
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpy3DAsync_v2)(copy, stream));
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpy3DPeerAsync)(copy, stream));
}

static CUresult copy_to_array(CUarray to, size_t offset, CUdeviceptr from, size_t size)
{
    struct track *track = gate_enter(NULL);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpyDtoA_v2)(to, offset, from, size));
}

static CUresult copy_from_array(CUdeviceptr to, CUarray from, size_t offset, size_t size)
{
    struct track *track = gate_enter(NULL);
    return gate_leave(track, tow_drive(&gate.next, cuMemcpyAtoD_v2)(to, from, offset, size));
}

static CUresult copy_array(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                           size_t size)
{
    struct track *track = gate_enter(NULL);
    return gate_leave(
        track, tow_drive(&gate.next, cuMemcpyAtoA_v2)(to, to_offset, from, from_offset, size));
}

static CUresult fill_8(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemsetD8Async)(to, value, count, stream));
}

static CUresult fill_16(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemsetD16Async)(to, value, count, stream));
}

static CUresult fill_32(CUdeviceptr to, unsigned int value, size_t count, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemsetD32Async)(to, value, count, stream));
}

static CUresult fill_2d_8(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                          size_t height, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(
        track, tow_drive(&gate.next, cuMemsetD2D8Async)(to, pitch, value, width, height, stream));
}

static CUresult fill_2d_16(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                           size_t height, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(
        track, tow_drive(&gate.next, cuMemsetD2D16Async)(to, pitch, value, width, height, stream));
}

static CUresult fill_2d_32(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                           size_t height, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(
        track, tow_drive(&gate.next, cuMemsetD2D32Async)(to, pitch, value, width, height, stream));
}

static CUresult copy_ahead(CUdeviceptr at, size_t size, CUmemLocation to, unsigned int flags,
                           CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track,
                      tow_drive(&gate.next, cuMemPrefetchAsync_v2)(at, size, to, flags, stream));
}

static CUresult gate_decompress(CUmemDecompressParams *list, size_t count, unsigned int flags,
                                size_t *error_index, CUstream stream)
{
    struct track *track = gate_enter(stream);
    return gate_leave(track, tow_drive(&gate.next, cuMemBatchDecompressAsync)(list, count, flags,
                                                                              error_index, stream));
}

/* ---- streams and contexts that end ---- */

/* Its work is still waited for. */
static CUresult stream_destroy(CUstream stream)
{
    tow_mutex_lock(&gate.lock);
    for (struct track *track = gate.tracks; track != NULL; track = track->next) {
        if (!track->closed && track->stream == stream && stream != NULL) {
            if (track->submitted > track->marked && track->pending && !track->blind &&
                tow_drive(&gate.next, cuEventRecord)(track->events[track->ahead], stream) ==
                    CUDA_SUCCESS) {
                track->marked = track->submitted; /* the same event, further behind */
            }
            track_mark(track);
            track->closed = true;
        }
    }
    tow_mutex_unlock(&gate.lock);
    return tow_drive(&gate.next, cuStreamDestroy_v2)(stream);
}

/* Which of them end with a context is not asked: what is forgotten of others comes again. */
static void forget_all(void)
{
    tow_mutex_lock(&gate.lock);
    while (gate.tracks != NULL) {
        track_drop(&gate.tracks);
    }
    tow_mutex_unlock(&gate.lock);
}

/* Nothing of ours is recorded in the middle of a capture: it would be a part of it. */
static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    tow_mutex_lock(&gate.lock);
    CUresult result = tow_drive(&gate.next, cuStreamBeginCapture_v2)(stream, mode);
    tow_mutex_unlock(&gate.lock);
    return result;
}

static CUresult begin_capture_to_graph(CUstream stream, CUgraph graph,
                                       const CUgraphNode *dependencies,
                                       const CUgraphEdgeData *edges, size_t count,
                                       CUstreamCaptureMode mode)
{
    tow_mutex_lock(&gate.lock);
    CUresult result = tow_drive(&gate.next, cuStreamBeginCaptureToGraph)(
        stream, graph, dependencies, edges, count, mode);
    tow_mutex_unlock(&gate.lock);
    return result;
}

static CUresult context_destroy(CUcontext context)
{
    forget_all();
    return tow_drive(&gate.next, cuCtxDestroy_v2)(context);
}

static CUresult primary_release(CUdevice device)
{
    forget_all();
    return tow_drive(&gate.next, cuDevicePrimaryCtxRelease_v2)(device);
}

static CUresult primary_reset(CUdevice device)
{
    forget_all();
    return tow_drive(&gate.next, cuDevicePrimaryCtxReset_v2)(device);
}

static CUresult green_destroy(CUgreenCtx green)
{
    forget_all();
    return tow_drive(&gate.next, cuGreenCtxDestroy)(green);
}

/* With the lock held. */
static void gate_install(void)
{
    struct tow_driver *driver = gate.driver;
    tow_driver_set(driver, cuLaunchKernel, launch_kernel);
    tow_driver_set(driver, cuLaunchKernelEx, launch_kernel_ex);
    tow_driver_set(driver, cuGraphLaunch, launch_graph);
    tow_driver_set(driver, cuMemcpyHtoDAsync_v2, copy_up);
    tow_driver_set(driver, cuMemcpyDtoHAsync_v2, copy_down);
    tow_driver_set(driver, cuMemcpyDtoDAsync_v2, copy_device);
    tow_driver_set(driver, cuMemcpyAsync, copy_any);
    tow_driver_set(driver, cuMemcpyPeerAsync, copy_peer);
    tow_driver_set(driver, cuMemcpy3DAsync_v2, copy_3d);
    tow_driver_set(driver, cuMemcpy3DPeerAsync, copy_3d_peer);
    tow_driver_set(driver, cuMemcpyDtoA_v2, copy_to_array);
    tow_driver_set(driver, cuMemcpyAtoD_v2, copy_from_array);
    tow_driver_set(driver, cuMemcpyAtoA_v2, copy_array);
    tow_driver_set(driver, cuMemsetD8Async, fill_8);
    tow_driver_set(driver, cuMemsetD16Async, fill_16);
    tow_driver_set(driver, cuMemsetD32Async, fill_32);
    tow_driver_set(driver, cuMemsetD2D8Async, fill_2d_8);
    tow_driver_set(driver, cuMemsetD2D16Async, fill_2d_16);
    tow_driver_set(driver, cuMemsetD2D32Async, fill_2d_32);
    tow_driver_set(driver, cuMemPrefetchAsync_v2, copy_ahead);
    tow_driver_set(driver, cuMemBatchDecompressAsync, gate_decompress);
    tow_driver_set(driver, cuStreamDestroy_v2, stream_destroy);
    tow_driver_set(driver, cuStreamBeginCapture_v2, begin_capture);
    tow_driver_set(driver, cuStreamBeginCaptureToGraph, begin_capture_to_graph);
    tow_driver_set(driver, cuCtxDestroy_v2, context_destroy);
    tow_driver_set(driver, cuDevicePrimaryCtxRelease_v2, primary_release);
    tow_driver_set(driver, cuDevicePrimaryCtxReset_v2, primary_reset);
    tow_driver_set(driver, cuGreenCtxDestroy, green_destroy);
    gate.installed = true;
}

/* With the lock held. Who is inside a function of this file finds its way out. */
static void gate_remove(void)
{
    for (unsigned i = 0; i < TOW_FN_LIMIT; i++) {
        __atomic_store_n(&gate.driver->fn[i], gate.next.fn[i], __ATOMIC_RELAXED);
    }
    gate.installed = false;
    while (gate.tracks != NULL) {
        track_drop(&gate.tracks);
    }
}

/* ---- the thread ---- */

/* With the lock held. */
static void follow_listener(void)
{
    bool on = false, changed = false;
    for (unsigned i = 0; i < GPUS; i++) {
        uint32_t word = atomic_load(&gate.page->gate[i]);
        changed |= word != gate.gpus[i].word;
        gate.gpus[i].word = word;
        on |= TOW_GATE_STATE(word) != TOW_GATE_OFF;
    }
    if (on && !gate.installed) {
        gate_install();
    } else if (!on && gate.installed && !gate.rests) {
        gate_remove();
    }
    if (changed) {
        pthread_cond_broadcast(&gate.changed);
    }
}

/* With the lock held: what is done now. */
static void look_at_tracks(int64_t now_ns)
{
    struct track **at = &gate.tracks;
    while (*at != NULL) {
        if (track_look(*at, now_ns) || (*at)->inside > 0) {
            at = &(*at)->next;
        } else {
            track_drop(at);
        }
    }
}

/* With the lock held: when to look again; TOW_TIME_FOREVER: when there is news. */
static int64_t look_again(int64_t now_ns)
{
    int64_t again = TOW_TIME_FOREVER;
    for (unsigned i = 0; i < GPUS && !gate.rests; i++) {
        const struct gpu *gpu = &gate.gpus[i];
        uint32_t state = TOW_GATE_STATE(gpu->word);
        bool quiet = gpu->ahead == 0 && now_ns - gpu->active_ns >= QUIET_NS;
        if (state == TOW_GATE_OFF || quiet) {
            continue;
        }
        bool soon = gpu->ahead > 0 && (state == TOW_GATE_SHUT || gpu->waiting > 0);
        int64_t moment = now_ns + (soon ? LOOK_SOON_NS : LOOK_NS);
        again = moment < again ? moment : again;
    }
    return again;
}

/* Once. Returns when to do it again. */
static int64_t gate_look(void)
{
    bool news = false;
    tow_mutex_lock(&gate.lock);
    follow_listener();
    int64_t now_ns = tow_time_now_ns();
    if (gate.installed && !gate.rests) {
        look_at_tracks(now_ns);
        pthread_cond_broadcast(&gate.changed);
    }
    for (unsigned i = 0; i < GPUS; i++) {
        news |= publish_gpu(i, now_ns);
        atomic_store(&gate.page->gate_seen[i], gate.gpus[i].word);
    }
    int64_t again = look_again(now_ns);
    gate.looks = again != TOW_TIME_FOREVER;
    tow_mutex_unlock(&gate.lock);
    if (gate.gpu_time != NULL) {
        atomic_store(&gate.page->gpu_ns, gate.gpu_time());
    }
    if (news) {
        gate.tell();
    }
    return again;
}

static void *gate_run(void *unused)
{
    (void)unused;
    for (;;) {
        uint32_t news = atomic_load(&gate.page->gate_news);
        int64_t again = gate_look();
        tow_futex_wait(&gate.page->gate_news, news, again, true);
    }
    return NULL;
}

int tows_gate_start(struct tow_backend *backend, struct tows_session_stats *stats,
                    void (*tell)(void))
{
    pthread_t thread;
    gate.driver = &backend->driver;
    gate.next = backend->driver;
    gate.page = stats;
    gate.gpu_time = backend->gpu_time;
    gate.tell = tell;
    gate_look(); /* the first submission finds it */
    int error = tow_thread_start("tow-gate", gate_run, NULL, &thread);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}

void tows_gate_rest(bool rests)
{
    tow_mutex_lock(&gate.lock);
    gate.rests = rests;
    if (!rests && gate.page != NULL) {
        wake_looker();
    }
    tow_mutex_unlock(&gate.lock);
}

void tows_gate_let_go(void)
{
    tow_mutex_lock(&gate.lock);
    gate.let_go = true;
    pthread_cond_broadcast(&gate.changed);
    tow_mutex_unlock(&gate.lock);
}
