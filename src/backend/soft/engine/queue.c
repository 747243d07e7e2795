/* SPDX-License-Identifier: Apache-2.0 */
/* Streams as the engine has them: queues that are made, found by handle and freed. */
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/mark.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"

#include <stdlib.h>

#include "base/thread.h"

#define PRIORITY_GREATEST (-5)

struct tow_soft_stream *tow_soft_stream_create(struct tow_soft_ctx *ctx, unsigned flags,
                                               int priority)
{
    struct tow_soft_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL || tow_soft_object_add(&stream->object, TOW_SOFT_STREAM, ctx) != 0) {
        free(stream);
        return NULL;
    }
    stream->flags = flags;
    stream->priority = priority > 0                   ? 0
                       : priority < PRIORITY_GREATEST ? PRIORITY_GREATEST
                                                      : priority;
    stream->id = ++tow_soft.next_id;
    /* NVIDIA's driver tells this of a stream for which no policy was set. */
    stream->sync_policy.syncPolicy = (CUsynchronizationPolicy)-1;
    stream->mem_sync_map.memSyncDomainMap = (CUlaunchMemSyncDomainMap){0, 0};
    stream->next = tow_soft.streams;
    if (stream->next != NULL) {
        stream->next->prev = stream;
    }
    tow_soft.streams = stream;
    if (ctx->barrier != NULL && !ctx->barrier->done) {
        struct tow_soft_work work = {.kind = TOW_SOFT_WORK_WAIT,
                                     .event = {.mark = tow_soft_mark_ref(ctx->barrier)}};
        if (tow_soft_submit(stream, &work) != CUDA_SUCCESS) {
            tow_soft_stream_free(stream);
            return NULL;
        }
    }
    return stream;
}

void tow_soft_stream_free(struct tow_soft_stream *stream)
{
    tow_soft_object_remove(&stream->object);
    if (stream->prev != NULL) {
        stream->prev->next = stream->next;
    } else {
        tow_soft.streams = stream->next;
    }
    if (stream->next != NULL) {
        stream->next->prev = stream->prev;
    }
    free(stream->capture_deps);
    free(stream->capture_edges);
    free(stream);
}

void tow_soft_stream_end(struct tow_soft_object *object)
{
    tow_soft_stream_free((struct tow_soft_stream *)object);
}

static CUresult per_thread(struct tow_soft_ctx *ctx, struct tow_soft_stream **ret_stream)
{
    int thread = tow_thread_id();
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        if (s->object.ctx == ctx && s->thread == thread) {
            *ret_stream = s;
            return CUDA_SUCCESS;
        }
    }
    struct tow_soft_stream *stream = tow_soft_stream_create(ctx, 0, 0);
    if (stream == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->thread = thread;
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

CUresult tow_soft_stream_of(struct tow_soft_ctx *ctx, CUstream handle,
                            struct tow_soft_stream **ret_stream)
{
    uint64_t value = TOW_SOFT_HANDLE(handle);
    if (value <= 1) {
        *ret_stream = ctx->legacy;
        return CUDA_SUCCESS;
    }
    if (value == 2) {
        return per_thread(ctx, ret_stream);
    }
    struct tow_soft_stream *stream = tow_soft_lookup(TOW_SOFT_STREAM, value);
    if (stream == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!stream->object.ctx->alive) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (stream->object.ctx->error != CUDA_SUCCESS) {
        return stream->object.ctx->error;
    }
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

CUresult tow_soft_enter_stream(CUstream handle, struct tow_soft_ctx **ret_ctx,
                               struct tow_soft_stream **ret_stream)
{
    CUresult result = tow_soft_enter(ret_ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_stream_of(*ret_ctx, handle, ret_stream);
    return result == CUDA_SUCCESS ? result : tow_soft_leave(result);
}
