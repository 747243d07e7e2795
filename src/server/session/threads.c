/* SPDX-License-Identifier: Apache-2.0 */
/* The client's threads: each has a stream of its own in every context that it used it in, and the
 * first error of its no-reply calls. */
#include "base/mutex.h"
#include "server/session/session.h"

#include <stdlib.h>

#include "base/log.h"
#include "gen/stream.h"
#include "server/session/transfer.h"

/* What is kept for one client thread. Guarded by the table's lock. */
struct tows_session_thread {
    CUresult deferred; /* first error of its no-reply calls that it was not told yet */
    unsigned stream_count;
    struct {
        uint32_t context;
        CUstream stream;
    } streams[8]; /* a thread rarely uses more than one context */
};

static struct tows_session_thread *thread_of(struct tows_session *session, uint16_t number)
{
    struct tows_session_thread *t = session->client_threads.table[number];
    if (t == NULL) {
        t = session->client_threads.table[number] = calloc(1, sizeof *t);
    }
    return t;
}

/* With the lock held: the thread's stream in a context, or NULL. */
static CUstream stream_of(const struct tows_session_thread *t, uint32_t context)
{
    for (unsigned i = 0; t != NULL && i < t->stream_count; i++) {
        if (t->streams[i].context == context) {
            return t->streams[i].stream;
        }
    }
    return NULL;
}

/* With the lock held: the stream is the thread's in a context where it has none. */
static bool add_stream(struct tows_session_thread *t, uint32_t context, CUstream stream)
{
    if (t == NULL || t->stream_count == sizeof t->streams / sizeof t->streams[0]) {
        return false;
    }
    t->streams[t->stream_count].context = context;
    t->streams[t->stream_count].stream = stream;
    t->stream_count++;
    return true;
}

/* Of the context that has the number now; 0: none has. */
static uint64_t context_id(const struct tows_session *session, uint32_t context)
{
    const struct tows_handle_entry *entry =
        tows_handles_at(&session->handles, TOW_H_CONTEXT, context);
    return entry != NULL ? atomic_load(&entry->id) : 0;
}

/* The driver makes it without the lock, which others need for their errors: if the client uses one
 * thread's number on two threads both make one, and that of the second goes. Meanwhile the context
 * may end, which takes its number first and its streams then. */
static CUresult make_stream(struct tows_session *session, uint16_t thread, uint32_t context,
                            CUstream *ret_stream)
{
    CUstream made = NULL, stream = NULL;
    uint64_t id = context_id(session, context);
    CUresult status = id == 0
                          ? CUDA_ERROR_INVALID_CONTEXT
                          : tow_drive(session->driver, cuStreamCreate)(&made, CU_STREAM_DEFAULT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_mutex_lock(&session->client_threads.lock);
    if (context_id(session, context) == id) {
        struct tows_session_thread *t = thread_of(session, thread);
        stream = stream_of(t, context);
        if (stream == NULL && add_stream(t, context, made)) {
            stream = made;
        }
        status = stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        status = CUDA_ERROR_CONTEXT_IS_DESTROYED; /* and with it what was made */
        made = NULL;
    }
    tow_mutex_unlock(&session->client_threads.lock);
    if (made != NULL && stream != made) {
        tow_drive(session->driver, cuStreamDestroy_v2)(made);
    }
    *ret_stream = stream;
    return status;
}

CUresult tows_session_thread_stream(struct tows_session *session, uint16_t thread, uint32_t context,
                                    CUstream *ret_stream)
{
    if (context == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    tow_mutex_lock(&session->client_threads.lock);
    CUstream stream = stream_of(session->client_threads.table[thread], context);
    tow_mutex_unlock(&session->client_threads.lock);
    if (stream == NULL) {
        return make_stream(session, thread, context, ret_stream);
    }
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

void tows_session_drop_thread(struct tows_session *session, uint16_t thread)
{
    tow_mutex_lock(&session->client_threads.lock);
    struct tows_session_thread *t = session->client_threads.table[thread];
    session->client_threads.table[thread] = NULL;
    if (t != NULL && t->deferred != CUDA_SUCCESS) {
        atomic_fetch_sub(&session->client_threads.owed, 1);
    }
    tow_mutex_unlock(&session->client_threads.lock);
    if (t != NULL && t->stream_count > 0) {
        tows_completion_lose(session); /* what they were given goes on */
        tows_transfer_wait_users(session);
    }
    for (unsigned i = 0; t != NULL && i < t->stream_count; i++) {
        if (tows_session_enter(session, t->streams[i].context) == CUDA_SUCCESS) {
            tow_drive(session->driver, cuStreamDestroy_v2)(t->streams[i].stream);
        }
    }
    free(t);
}

void tows_session_drop_context(struct tows_session *session, uint32_t context)
{
    tow_mutex_lock(&session->client_threads.lock);
    for (uint32_t n = 0; n <= TOW_THREADS_MAX; n++) {
        struct tows_session_thread *t = session->client_threads.table[n];
        for (unsigned i = 0; t != NULL && i < t->stream_count; i++) {
            if (t->streams[i].context == context) {
                /* The stream goes with its context. */
                t->streams[i] = t->streams[--t->stream_count];
                i--;
            }
        }
    }
    tow_mutex_unlock(&session->client_threads.lock);
}

void tows_session_end_threads(struct tows_session *session)
{
    struct tows_session_thread **table = session->client_threads.table;
    for (uint32_t i = 0; table != NULL && i <= TOW_THREADS_MAX; i++) {
        free(table[i]);
    }
    free(table);
    session->client_threads.table = NULL;
}

void tows_session_defer(struct tows_session *session, uint16_t thread, uint16_t fn, CUresult status,
                        const char *arguments)
{
    const struct tow_fn_info *info = tow_fn_info(fn);
    tow_log(TOW_AREA_SERVER, TOW_LOG_INFO, "%s(%s) of client thread %u failed with error %d",
            info != NULL ? info->name : "a call", arguments, thread, (int)status);
    tow_mutex_lock(&session->client_threads.lock);
    struct tows_session_thread *t = thread_of(session, thread);
    if (t != NULL && t->deferred == CUDA_SUCCESS && status != CUDA_SUCCESS) {
        t->deferred = status;
        atomic_fetch_add(&session->client_threads.owed, 1);
    }
    tow_mutex_unlock(&session->client_threads.lock);
    if (t == NULL) {
        /* A program must not go on as if the call had been carried out. */
        tows_session_end(session, -ENOMEM);
    }
}

CUresult tows_session_take_deferred(struct tows_session *session, uint16_t thread)
{
    tow_mutex_lock(&session->client_threads.lock);
    struct tows_session_thread *t = session->client_threads.table[thread];
    CUresult status = CUDA_SUCCESS;
    if (t != NULL) {
        status = t->deferred;
        t->deferred = CUDA_SUCCESS;
        if (status != CUDA_SUCCESS) {
            atomic_fetch_sub(&session->client_threads.owed, 1);
        }
    }
    tow_mutex_unlock(&session->client_threads.lock);
    return status;
}

bool tows_session_deferred(struct tows_session *session, uint16_t thread)
{
    if (atomic_load(&session->client_threads.owed) == 0) {
        return false;
    }
    tow_mutex_lock(&session->client_threads.lock);
    const struct tows_session_thread *t = session->client_threads.table[thread];
    bool deferred = t != NULL && t->deferred != CUDA_SUCCESS;
    tow_mutex_unlock(&session->client_threads.lock);
    return deferred;
}

bool tows_session_owes(struct tows_session *session, uint16_t thread)
{
    return atomic_load_explicit(&session->printers, memory_order_acquire) != 0 ||
           tows_session_deferred(session, thread);
}

bool tows_session_owes_any(const struct tows_session *session)
{
    return atomic_load_explicit(&session->printers, memory_order_acquire) != 0 ||
           atomic_load(&session->client_threads.owed) != 0;
}
