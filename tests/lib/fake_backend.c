/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that only keeps account of its calls. */
#include "fake_backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/self.h"
#include "server/run/run.h"
#include "server/session/session.h"
#include "transport/line.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/core.h"
#include "gen/device.h"
#include "gen/event.h"
#include "gen/graph.h"
#include "gen/launch.h"
#include "gen/memory.h"
#include "gen/stream.h"

struct tow_fake tow_fake;

enum { DEVICES = 3, STACK = 16 };

struct CUctx_st {
    CUdevice device;
    bool alive;
};
struct CUstream_st {
    bool alive;
    unsigned capture; /* that it is part of; over if it is not the one under way */
};
struct CUevent_st {
    bool alive;
    unsigned flags;
    unsigned capture;
};
struct CUgraph_st {
    int unused;
};

static struct CUctx_st primaries[DEVICES];
static int retained[DEVICES];
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;

/* What the driver has made. A real one frees with a context what is left in it; this one keeps it
 * to the process's end, where the search for leaks finds it. */
static struct {
    pthread_mutex_t lock; /* guards the list */
    void **objects;
    size_t count, room;
} made = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *made_add(void *object)
{
    pthread_mutex_lock(&made.lock);
    if (object != NULL && made.count == made.room) {
        size_t room = made.room != 0 ? 2 * made.room : 64;
        void **objects = realloc(made.objects, room * sizeof *objects);
        if (objects == NULL) {
            abort();
        }
        made.objects = objects;
        made.room = room;
    }
    if (object != NULL) {
        made.objects[made.count++] = object;
    }
    pthread_mutex_unlock(&made.lock);
    return object;
}

static void made_free(void *object)
{
    pthread_mutex_lock(&made.lock);
    for (size_t i = 0; i < made.count; i++) {
        if (made.objects[i] == object) {
            made.objects[i] = made.objects[--made.count];
            break;
        }
    }
    pthread_mutex_unlock(&made.lock);
    free(object);
}

static CUresult init(unsigned flags)
{
    return CUDA_SUCCESS;
}

static CUresult get_count(int *count)
{
    *count = DEVICES;
    return CUDA_SUCCESS;
}

static CUresult get_version(int *version)
{
    *version = 13000;
    return CUDA_SUCCESS;
}

static CUresult get_name(char *name, int size, CUdevice device)
{
    snprintf(name, (size_t)size, "Fake %d", device);
    return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid->bytes, 0x11 * (device + 1), sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

static CUresult total_mem(size_t *bytes, CUdevice device)
{
    *bytes = (size_t)(device + 1) << 30;
    return CUDA_SUCCESS;
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    if (attribute >= CU_DEVICE_ATTRIBUTE_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? 9 - device : (int)attribute;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    if (retained[device]++ == 0) {
        primaries[device] = (struct CUctx_st){device, true};
        atomic_fetch_add(&tow_fake.contexts, 1);
    }
    *context = &primaries[device];
    return CUDA_SUCCESS;
}

static CUresult reset(CUdevice device)
{
    if (primaries[device].alive) {
        primaries[device].alive = false;
        atomic_fetch_sub(&tow_fake.contexts, 1);
    }
    retained[device] = 0;
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    if (retained[device] == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return --retained[device] == 0 ? reset(device) : CUDA_SUCCESS;
}

static CUresult get_state(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = primaries[device].alive;
    return CUDA_SUCCESS;
}

static CUresult set_flags(CUdevice device, unsigned flags)
{
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *context)
{
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    depth = 1;
    stack[0] = context;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device)
{
    *device = stack[depth - 1]->device;
    return CUDA_SUCCESS;
}

static CUresult create_context(CUcontext *context, unsigned flags, CUdevice device)
{
    *context = made_add(calloc(1, sizeof **context));
    (*context)->device = device;
    (*context)->alive = true;
    atomic_fetch_add(&tow_fake.contexts, 1);
    return push(*context);
}

static CUresult destroy_context(CUcontext context)
{
    if (context >= primaries && context < primaries + DEVICES) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    atomic_fetch_sub(&tow_fake.contexts, 1);
    made_free(context);
    return CUDA_SUCCESS;
}

static CUresult get_limit(size_t *value, CUlimit limit)
{
    *value = 1000 + (size_t)limit;
    return CUDA_SUCCESS;
}

static CUresult priorities(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

static CUresult synchronize(void)
{
    atomic_fetch_add(&tow_fake.syncs, 1);
    return (CUresult)atomic_load(&tow_fake.fail_sync);
}

static CUresult create_stream(CUstream *stream, unsigned flags)
{
    CUresult fail = (CUresult)atomic_load(&tow_fake.fail_stream_create);
    if (fail != CUDA_SUCCESS) {
        return fail;
    }
    *stream = made_add(calloc(1, sizeof **stream));
    (*stream)->alive = true;
    atomic_fetch_add(&tow_fake.streams, 1);
    return CUDA_SUCCESS;
}

static CUresult create_stream_with_priority(CUstream *stream, unsigned flags, int priority)
{
    return create_stream(stream, flags);
}

static CUresult destroy_stream(CUstream stream)
{
    made_free(stream);
    atomic_fetch_sub(&tow_fake.streams, 1);
    return CUDA_SUCCESS;
}

/* The capture under way; 0: none. */
static unsigned capture, last_capture;
static bool capture_spoilt;
static CUgraph capture_graph;

/* The capture that a stream is part of; default streams are of none. */
static unsigned *capture_of(CUstream stream)
{
    static _Thread_local unsigned none;
    none = 0;
    return (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD ? &stream->capture : &none;
}

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    capture = stream->capture = ++last_capture;
    capture_spoilt = false;
    capture_graph = made_add(calloc(1, sizeof *capture_graph));
    atomic_fetch_add(&tow_fake.graphs, 1);
    return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = *capture_of(stream) == 0 || *capture_of(stream) != capture
                  ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture_spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                             CUgraph *graph, const CUgraphNode **nodes,
                             const CUgraphEdgeData **edges, size_t *count)
{
    *id = 0x100 + capture;
    *graph = capture_graph;
    *nodes = NULL;
    *edges = NULL;
    *count = 0;
    return is_capturing(stream, status);
}

static CUresult destroy_graph(CUgraph graph)
{
    made_free(graph);
    atomic_fetch_sub(&tow_fake.graphs, 1);
    return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    capture = 0;
    *graph = capture_graph;
    if (capture_spoilt) {
        *graph = NULL;
        destroy_graph(capture_graph);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    return CUDA_SUCCESS;
}

static CUresult synchronize_stream(CUstream stream)
{
    CUstreamCaptureStatus status;
    is_capturing(stream, &status);
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
        capture_spoilt = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return synchronize();
}

static CUresult create_event(CUevent *event, unsigned flags)
{
    *event = made_add(calloc(1, sizeof **event));
    atomic_fetch_add(&tow_fake.events, 1);
    return CUDA_SUCCESS;
}

static CUresult destroy_event(CUevent event)
{
    made_free(event);
    atomic_fetch_sub(&tow_fake.events, 1);
    return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream stream)
{
    event->capture = *capture_of(stream);
    return (CUresult)atomic_load(&tow_fake.fail_record);
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
    if (event->capture != 0) {
        *capture_of(stream) = event->capture;
    }
    return CUDA_SUCCESS;
}

static CUresult event_done(CUevent event)
{
    return CUDA_SUCCESS;
}

static CUresult query_event(CUevent event)
{
    int left = atomic_load(&tow_fake.not_ready);
    while (left > 0 && !atomic_compare_exchange_weak(&tow_fake.not_ready, &left, left - 1)) {
    }
    return left > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult elapsed(float *ms, CUevent a, CUevent b)
{
    *ms = 1.5f;
    return CUDA_SUCCESS;
}

/* Device memory is addresses that lie where no process has any. */
static CUresult allocate(CUdeviceptr *address, size_t size)
{
    static CUdeviceptr next = (CUdeviceptr)1 << 50;
    *address = next;
    next += (size + 4095) / 4096 * 4096;
    return CUDA_SUCCESS;
}

static CUresult allocate_host(void **memory, size_t size, unsigned flags)
{
    *memory = made_add(aligned_alloc(4096, (size + 4095) / 4096 * 4096));
    return *memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult free_host(void *memory)
{
    made_free(memory);
    return CUDA_SUCCESS;
}

static CUresult copy_to_device(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    atomic_fetch_add(&tow_fake.copies, (int)size);
    return CUDA_SUCCESS;
}

static CUresult copy_copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    atomic_fetch_add(&tow_fake.copies, (int)(copy->WidthInBytes * copy->Height * copy->Depth));
    return CUDA_SUCCESS;
}

/* One thread runs host functions in order, as the real driver does. */
struct job {
    struct job *next;
    CUhostFn run;
    CUstreamCallback callback;
    void *user;
};
static pthread_mutex_t job_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t job_added = PTHREAD_COND_INITIALIZER;
static struct job *first_job, **last_job = &first_job;
static bool job_thread;

static void *run_jobs(void *arg)
{
    for (;;) {
        pthread_mutex_lock(&job_lock);
        while (first_job == NULL) {
            pthread_cond_wait(&job_added, &job_lock);
        }
        struct job *job = first_job;
        first_job = job->next;
        if (first_job == NULL) {
            last_job = &first_job;
        }
        pthread_mutex_unlock(&job_lock);
        if (job->run != NULL) {
            job->run(job->user);
        } else {
            job->callback(NULL, CUDA_SUCCESS, job->user);
        }
        free(job);
    }
    return NULL;
}

static CUresult add_job(CUhostFn run, CUstreamCallback callback, void *user)
{
    struct job *job = calloc(1, sizeof *job);
    *job = (struct job){NULL, run, callback, user};
    pthread_mutex_lock(&job_lock);
    if (!job_thread) {
        pthread_t thread;
        pthread_create(&thread, NULL, run_jobs, NULL);
        pthread_detach(thread);
        job_thread = true;
    }
    *last_job = job;
    last_job = &job->next;
    pthread_cond_signal(&job_added);
    pthread_mutex_unlock(&job_lock);
    return CUDA_SUCCESS;
}

static CUresult launch_host(CUstream stream, CUhostFn fn, void *user)
{
    return atomic_load(&tow_fake.lose_functions) ? CUDA_SUCCESS : add_job(fn, NULL, user);
}

static CUresult add_callback(CUstream stream, CUstreamCallback callback, void *user, unsigned flags)
{
    return add_job(NULL, callback, user);
}

static CUresult describe_error(CUresult error, const char **text)
{
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "fake memory is used up" : NULL;
    return *text != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void tow_fake_open(struct tow_backend *backend)
{
    memset(backend, 0, sizeof *backend);
    backend->name = "fake";
    struct tow_driver *d = &backend->driver;
    tow_driver_fill_stubs(d);
    tow_driver_set(d, cuInit, init);
    tow_driver_set(d, cuDeviceGetCount, get_count);
    tow_driver_set(d, cuDriverGetVersion, get_version);
    tow_driver_set(d, cuGetErrorString, describe_error);
    tow_driver_set(d, cuDeviceGetName, get_name);
    tow_driver_set(d, cuDeviceGetUuid, get_uuid);
    tow_driver_set(d, cuDeviceTotalMem_v2, total_mem);
    tow_driver_set(d, cuDeviceGetAttribute, get_attribute);
    tow_driver_set(d, cuDevicePrimaryCtxRetain, retain);
    tow_driver_set(d, cuDevicePrimaryCtxRelease_v2, release);
    tow_driver_set(d, cuDevicePrimaryCtxReset_v2, reset);
    tow_driver_set(d, cuDevicePrimaryCtxGetState, get_state);
    tow_driver_set(d, cuDevicePrimaryCtxSetFlags_v2, set_flags);
    tow_driver_set(d, cuCtxPushCurrent_v2, push);
    tow_driver_set(d, cuCtxPopCurrent_v2, pop);
    tow_driver_set(d, cuCtxSetCurrent, set_current);
    tow_driver_set(d, cuCtxGetDevice, get_device);
    tow_driver_set(d, cuCtxCreate_v2, create_context);
    tow_driver_set(d, cuCtxDestroy_v2, destroy_context);
    tow_driver_set(d, cuCtxGetLimit, get_limit);
    tow_driver_set(d, cuCtxGetStreamPriorityRange, priorities);
    tow_driver_set(d, cuCtxSynchronize, synchronize);
    tow_driver_set(d, cuStreamCreate, create_stream);
    tow_driver_set(d, cuStreamCreateWithPriority, create_stream_with_priority);
    tow_driver_set(d, cuStreamDestroy_v2, destroy_stream);
    tow_driver_set(d, cuStreamSynchronize, synchronize_stream);
    tow_driver_set(d, cuStreamQuery, synchronize_stream);
    tow_driver_set(d, cuStreamWaitEvent, wait_event);
    tow_driver_set(d, cuStreamBeginCapture_v2, begin_capture);
    tow_driver_set(d, cuStreamEndCapture, end_capture);
    tow_driver_set(d, cuStreamIsCapturing, is_capturing);
    tow_driver_set(d, cuStreamGetCaptureInfo_v3, capture_info);
    tow_driver_set(d, cuGraphDestroy, destroy_graph);
    tow_driver_set(d, cuEventCreate, create_event);
    tow_driver_set(d, cuEventDestroy_v2, destroy_event);
    tow_driver_set(d, cuEventRecord, record);
    tow_driver_set(d, cuEventQuery, query_event);
    tow_driver_set(d, cuEventSynchronize, event_done);
    tow_driver_set(d, cuEventElapsedTime, elapsed);
    tow_driver_set(d, cuMemAlloc_v2, allocate);
    tow_driver_set(d, cuMemHostAlloc, allocate_host);
    tow_driver_set(d, cuMemFreeHost, free_host);
    tow_driver_set(d, cuMemcpyHtoDAsync_v2, copy_to_device);
    tow_driver_set(d, cuMemcpy3DAsync_v2, copy_copy_3d);
    tow_driver_set(d, cuLaunchHostFunc, launch_host);
    tow_driver_set(d, cuStreamAddCallback, add_callback);
}

/* ---- the server that self: finds when a test is linked with this file ---- */

static struct tow_line *lines[16];
static unsigned line_count;
static pthread_mutex_t line_lock =
    PTHREAD_MUTEX_INITIALIZER; /* a line is cut or closed, not both at once */

static void *serve(void *arg)
{
    static const struct tows_session_options options = {.id = 1, .in_process = true};
    static struct tow_backend backend; /* server threads may outlive the session's end */
    tow_fake_open(&backend);
    tows_session_run(arg, &backend, &options);
    pthread_mutex_lock(&line_lock);
    for (unsigned i = 0; i < line_count; i++) {
        lines[i] = lines[i] == arg ? NULL : lines[i];
    }
    tow_line_close(arg);
    pthread_mutex_unlock(&line_lock);
    return NULL;
}

int tow_self_start(const char *device, struct tow_line *line, char *why, size_t why_size)
{
    pthread_t thread;
    pthread_mutex_lock(&line_lock);
    if (line_count < 16) {
        lines[line_count++] = line;
    }
    pthread_mutex_unlock(&line_lock);
    int error = -pthread_create(&thread, NULL, serve, line);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}

void tow_fake_cut(void)
{
    pthread_mutex_lock(&line_lock);
    for (unsigned i = 0; i < line_count; i++) {
        if (lines[i] != NULL) {
            tow_line_shutdown(lines[i]);
        }
    }
    pthread_mutex_unlock(&line_lock);
}
