/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps which streams of a context have got work since they were last known to be empty. */
#include "server/session/busy.h"

#include "base/mutex.h"
#include "server/session/serve.h"
#include "server/session/session.h"
#include "gen/graph.h"
#include "gen/stream.h"

void tows_busy_init(struct tows_busy *busy)
{
    tow_mutex_init(&busy->lock, SERVER_BUSY);
}

void tows_busy_fini(struct tows_busy *busy)
{
    tow_mutex_fini(&busy->lock);
}

/* Default streams are one for each context, or for each of its threads; no minted id has the
 * highest bit. Never 0. */
static uint64_t key_of(const struct tow_frame *frame, uint64_t stream)
{
    uint64_t own = UINT64_C(1) << 63;
    switch (stream) {
    case 0: /* the null stream has two names */
    case 1:
        return own | frame->context;
    case 2:
        return own | UINT64_C(1) << 62 | (uint64_t)frame->thread << 32 | frame->context;
    default:
        return stream;
    }
}

static void busy_add(struct tows_busy *busy, const struct tow_frame *frame, uint64_t key,
                     uint64_t stream)
{
    tow_mutex_lock(&busy->lock);
    unsigned i = 0;
    uint64_t there = 0;
    while (i < TOW_BUSY_MAX && (there = atomic_load(&busy->keys[i])) != 0 && there != key) {
        i++;
    }
    if (i == TOW_BUSY_MAX) {
        busy->many = true;
    } else if (there == 0) {
        busy->at[i].stream = stream;
        busy->at[i].context = frame->context;
        busy->at[i].thread = frame->thread;
        atomic_store(&busy->keys[i], key);
    }
    tow_mutex_unlock(&busy->lock);
}

void tows_busy_use(struct tows_serve *call, uint64_t stream)
{
    struct tows_busy *busy = &call->session->busy;
    uint64_t key = key_of(&call->frame, stream);
    call->streams++;
    call->stream = stream;
    for (unsigned i = 0; i < TOW_BUSY_MAX; i++) {
        if (atomic_load_explicit(&busy->keys[i], memory_order_relaxed) == key) {
            return;
        }
    }
    busy_add(busy, &call->frame, key, stream);
}

void tows_busy_again(struct tows_serve *call)
{
    if (call->streams == 1) {
        tows_busy_use(call, call->stream);
    } else if (call->streams > 1) {
        tows_busy_lose(call->session);
    }
}

/* With the lock held: the driver's stream of an entry; false if it has ended. */
static bool busy_resolve(struct tows_session *session, unsigned i, CUstream *ret_stream)
{
    const struct tows_busy *busy = &session->busy;
    uint64_t id = busy->at[i].stream;
    if (id < 2) {
        *ret_stream = (CUstream)(uintptr_t)id;
        return true;
    }
    if (id == 2) {
        return tows_session_thread_stream(session, busy->at[i].thread, busy->at[i].context,
                                          ret_stream) == CUDA_SUCCESS;
    }
    const struct tows_handle_entry *entry = tows_handles_find(&session->handles, id);
    if (entry == NULL || entry->error != CUDA_SUCCESS) {
        return false;
    }
    *ret_stream = entry->handle;
    return true;
}

/* With the lock held. */
static void take_out(struct tows_busy *busy, unsigned i)
{
    for (; i + 1 < TOW_BUSY_MAX; i++) {
        busy->at[i] = busy->at[i + 1];
        atomic_store(&busy->keys[i], atomic_load(&busy->keys[i + 1]));
    }
    atomic_store(&busy->keys[i], 0);
}

bool tows_busy_idle(struct tows_serve *call)
{
    struct tows_busy *busy = &call->session->busy;
    if (atomic_load(&busy->in_flight) != 0) {
        return false;
    }
    tow_mutex_lock(&busy->lock);
    bool idle = !busy->many;
    while (idle && atomic_load(&busy->keys[0]) != 0) {
        CUstream stream = NULL;
        CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        /* A question would end a capture. */
        idle = busy->at[0].context == call->frame.context &&
               busy_resolve(call->session, 0, &stream) &&
               tow_drive(call->driver, cuStreamIsCapturing)(stream, &capture) == CUDA_SUCCESS &&
               capture == CU_STREAM_CAPTURE_STATUS_NONE &&
               tow_drive(call->driver, cuStreamQuery)(stream) == CUDA_SUCCESS;
        if (idle) {
            take_out(busy, 0);
        }
    }
    tow_mutex_unlock(&busy->lock);
    return idle;
}

bool tows_busy_last(struct tows_serve *call, CUstream *ret_stream, bool *ret_idle)
{
    struct tows_busy *busy = &call->session->busy;
    /* A call beside the leader may give work to a stream that was just seen idle. */
    if (atomic_load(&busy->in_flight) != 0) {
        return false;
    }
    tow_mutex_lock(&busy->lock);
    unsigned count = 0;
    bool known = !busy->many;
    while (count < TOW_BUSY_MAX && atomic_load(&busy->keys[count]) != 0) {
        known = known && busy->at[count].context == call->frame.context;
        count++;
    }
    for (unsigned i = count; known && count > 1 && i-- > 0;) {
        CUstream stream = NULL;
        known = busy_resolve(call->session, i, &stream);
        if (known && tow_drive(call->driver, cuStreamQuery)(stream) == CUDA_SUCCESS) {
            take_out(busy, i);
            count--;
        }
    }
    known = known && count <= 1 && (count == 0 || busy_resolve(call->session, 0, ret_stream));
    *ret_idle = count == 0;
    tow_mutex_unlock(&busy->lock);
    return known;
}

void tows_busy_forget(struct tows_session *session)
{
    struct tows_busy *busy = &session->busy;
    tow_mutex_lock(&busy->lock);
    for (unsigned i = 0; i < TOW_BUSY_MAX; i++) {
        atomic_store(&busy->keys[i], 0);
    }
    busy->many = false;
    tow_mutex_unlock(&busy->lock);
}

void tows_busy_lose(struct tows_session *session)
{
    tow_mutex_lock(&session->busy.lock);
    session->busy.many = true;
    tow_mutex_unlock(&session->busy.lock);
}
