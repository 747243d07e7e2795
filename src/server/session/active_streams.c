/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps which streams of a context have got work since they were last known to be empty. */
#include "server/session/completion.h"

#include "base/mutex.h"
#include "server/session/serve.h"
#include "server/session/session.h"

void tows_completion_init(struct tows_completion *completion)
{
    tow_mutex_init(&completion->active.lock, SERVER_ACTIVE_STREAMS);
}

void tows_completion_fini(struct tows_completion *completion)
{
    tow_mutex_fini(&completion->active.lock);
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

static void active_add(struct tows_completion *completion, const struct tow_frame *frame,
                       uint64_t key, uint64_t stream)
{
    tow_mutex_lock(&completion->active.lock);
    unsigned i = 0;
    uint64_t there = 0;
    while (i < TOW_ACTIVE_STREAMS_MAX && (there = atomic_load(&completion->active.keys[i])) != 0 &&
           there != key) {
        i++;
    }
    if (i == TOW_ACTIVE_STREAMS_MAX) {
        completion->active.many = true;
    } else if (there == 0) {
        completion->active.at[i].stream = stream;
        completion->active.at[i].context = frame->context;
        completion->active.at[i].thread = frame->thread;
        atomic_store(&completion->active.keys[i], key);
    }
    tow_mutex_unlock(&completion->active.lock);
}

void tows_completion_use(struct tows_serve *call, uint64_t stream)
{
    struct tows_completion *completion = &call->session->completion;
    uint64_t key = key_of(&call->frame, stream);
    call->streams++;
    call->stream = stream;
    for (unsigned i = 0; i < TOW_ACTIVE_STREAMS_MAX; i++) {
        if (atomic_load_explicit(&completion->active.keys[i], memory_order_relaxed) == key) {
            return;
        }
    }
    active_add(completion, &call->frame, key, stream);
}

void tows_completion_use_again(struct tows_serve *call)
{
    if (call->streams == 1) {
        tows_completion_use(call, call->stream);
    } else if (call->streams > 1) {
        tows_completion_lose(call->session);
    }
}

/* The driver's stream of an entry; false if it has ended. */
static bool active_resolve(struct tows_session *session, const struct tows_active_stream *at,
                           CUstream *ret_stream)
{
    if (at->stream < 2) {
        *ret_stream = (CUstream)(uintptr_t)at->stream;
        return true;
    }
    if (at->stream == 2) {
        return tows_session_thread_stream(session, at->thread, at->context, ret_stream) ==
               CUDA_SUCCESS;
    }
    const struct tows_handle_entry *entry = tows_handles_find(&session->handles, at->stream);
    if (entry == NULL || entry->error != CUDA_SUCCESS) {
        return false;
    }
    *ret_stream = entry->handle;
    return true;
}

/* What may have work, as it is now. Calls beside the leader do not look, so only uploads add to it
 * while the driver is asked; streams end only when the leader says so. */
struct active_list {
    uint64_t keys[TOW_ACTIVE_STREAMS_MAX];
    struct tows_active_stream at[TOW_ACTIVE_STREAMS_MAX];
    unsigned count;
    bool known; /* these are all, and of the context */
};

static struct active_list active_look(struct tows_completion *completion, uint32_t context)
{
    struct active_list list = {.count = 0};
    tow_mutex_lock(&completion->active.lock);
    list.known = !completion->active.many;
    while (list.count < TOW_ACTIVE_STREAMS_MAX) {
        uint64_t key = atomic_load(&completion->active.keys[list.count]);
        if (key == 0) {
            break;
        }
        list.keys[list.count] = key;
        list.at[list.count] = completion->active.at[list.count];
        list.known = list.known && list.at[list.count].context == context;
        list.count++;
    }
    tow_mutex_unlock(&completion->active.lock);
    return list;
}

static void active_take_out(struct tows_completion *completion, uint64_t key)
{
    unsigned i = 0;
    tow_mutex_lock(&completion->active.lock);
    while (i < TOW_ACTIVE_STREAMS_MAX && atomic_load(&completion->active.keys[i]) != key) {
        i++;
    }
    for (; i + 1 < TOW_ACTIVE_STREAMS_MAX; i++) {
        completion->active.at[i] = completion->active.at[i + 1];
        atomic_store(&completion->active.keys[i], atomic_load(&completion->active.keys[i + 1]));
    }
    if (i < TOW_ACTIVE_STREAMS_MAX) {
        atomic_store(&completion->active.keys[i], 0);
    }
    tow_mutex_unlock(&completion->active.lock);
}

/* False if it has ended. An entry that is through is taken out. */
static bool active_ask(struct tows_serve *call, const struct active_list *list, unsigned i,
                       bool *ret_through)
{
    CUstream stream = NULL;
    if (!active_resolve(call->session, &list->at[i], &stream)) {
        return false;
    }
    *ret_through = tows_completion_ask(call->driver, stream) == CUDA_SUCCESS;
    if (*ret_through) {
        active_take_out(&call->session->completion, list->keys[i]);
    }
    return true;
}

bool tows_completion_idle(struct tows_serve *call)
{
    struct tows_completion *completion = &call->session->completion;
    if (atomic_load(&call->session->stats->in_flight) != 0) {
        return false;
    }
    struct active_list list = active_look(completion, call->frame.context);
    bool idle = list.known;
    while (idle && list.count > 0) {
        for (unsigned i = 0; idle && i < list.count; i++) {
            bool through = false;
            idle = active_ask(call, &list, i, &through) && through;
        }
        if (idle) {
            list = active_look(completion, call->frame.context); /* uploads may have added to it */
            idle = list.known;
        }
    }
    return idle;
}

bool tows_completion_last(struct tows_serve *call, CUstream *ret_stream, bool *ret_idle)
{
    struct tows_completion *completion = &call->session->completion;
    /* A call beside the leader may give work to a stream that was just seen idle. */
    if (atomic_load(&call->session->stats->in_flight) != 0) {
        return false;
    }
    struct active_list list = active_look(completion, call->frame.context);
    unsigned left = list.count;
    for (unsigned i = list.count; list.known && left > 1 && i-- > 0;) {
        bool through = false;
        list.known = active_ask(call, &list, i, &through);
        left -= through;
    }
    if (list.known && list.count > 1) {
        list = active_look(completion, call->frame.context);
    }
    *ret_idle = list.count == 0;
    return list.known && list.count <= 1 &&
           (list.count == 0 || active_resolve(call->session, &list.at[0], ret_stream));
}

void tows_completion_forget(struct tows_session *session)
{
    struct tows_completion *completion = &session->completion;
    tow_mutex_lock(&completion->active.lock);
    for (unsigned i = 0; i < TOW_ACTIVE_STREAMS_MAX; i++) {
        atomic_store(&completion->active.keys[i], 0);
    }
    completion->active.many = false;
    tow_mutex_unlock(&completion->active.lock);
}

void tows_completion_lose(struct tows_session *session)
{
    tow_mutex_lock(&session->completion.active.lock);
    session->completion.active.many = true;
    tow_mutex_unlock(&session->completion.active.lock);
}
