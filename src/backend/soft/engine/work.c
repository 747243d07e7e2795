/* SPDX-License-Identifier: Apache-2.0 */
/* Work: what ops and graph nodes do, by kind. Here are the kinds that need nothing but streams; the
 * others are in the rooms above (tow_soft_hooks). */
#include "backend/backend.h"
#include "backend/soft/engine/mark.h"
#include "backend/spans.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/hooks.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/ground/written.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"

static bool value_reached(uint64_t have, uint64_t want, unsigned flags, bool wide)
{
    switch (flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return wide ? (int64_t)(have - want) >= 0 : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return have == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (have & want) != 0;
    default:
        return wide ? ~(have | want) != 0 : (uint32_t) ~(have | want) != 0;
    }
}

bool tow_soft_memop_try(const CUstreamBatchMemOpParams *op, const struct tow_soft_ctx *ctx,
                        CUresult *ret_result)
{
    bool wide = op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    bool write = op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                 op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    if (op->operation == CU_STREAM_MEM_OP_BARRIER ||
        op->operation == CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES) {
        atomic_thread_fence(memory_order_seq_cst);
        return true;
    }
    if (!tow_soft_range_ok(ctx, op->waitValue.address, wide ? 8 : 4, write)) {
        tow_log(TOW_AREA_SOFT, TOW_LOG_ERROR,
                "a stream memory operation used 0x%llx, which is not allocated any more",
                (unsigned long long)op->waitValue.address);
        *ret_result = CUDA_ERROR_ILLEGAL_ADDRESS;
        return true;
    }
    void *at = (void *)(uintptr_t)op->waitValue.address;
    if (write) {
        tow_soft_written_all(op->waitValue.address, wide ? 8 : 4);
        if (wide) {
            atomic_store((_Atomic uint64_t *)at, op->writeValue.value64);
        } else {
            atomic_store((_Atomic uint32_t *)at, op->writeValue.value);
        }
        return true;
    }
    if (wide) {
        return value_reached(atomic_load((_Atomic uint64_t *)at), op->waitValue.value64,
                             op->waitValue.flags, true);
    }
    return value_reached(atomic_load((_Atomic uint32_t *)at), op->waitValue.value,
                         op->waitValue.flags, false);
}

/* NVIDIA's driver has one thread for all host functions. */
static struct {
    struct tow_mutex
        lock; /* held while one runs, if strict: it guards what the program does there */
} alone = {.lock = TOW_MUTEX(SOFT_ALONE)};

static CUresult host_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    tow_soft_print_flush(ctx);
    bool strict = tow_soft.strict;
    if (strict) {
        tow_mutex_lock(&alone.lock);
    }
    if (work->host.callback != NULL) {
        work->host.callback(work->host.stream, work->host.status, work->host.user);
    } else {
        work->host.fn(work->host.user);
    }
    if (strict) {
        tow_mutex_unlock(&alone.lock);
    }
    return CUDA_SUCCESS;
}

/* ---- marks, values, addresses of graphs ---- */

static void mark_fini(struct tow_soft_work *work)
{
    tow_soft_mark_unref(work->event.mark);
}

static int mark_clone(struct tow_soft_work *copy)
{
    tow_soft_mark_ref(copy->event.mark);
    return 0;
}

static void memops_fini(struct tow_soft_work *work)
{
    free(work->memops.ops);
}

static int memops_clone(struct tow_soft_work *copy)
{
    copy->memops.ops =
        tow_soft_copy_bytes(copy->memops.ops, copy->memops.count * sizeof *copy->memops.ops);
    return copy->memops.ops != NULL ? 0 : -ENOMEM;
}

static void va_fini(struct tow_soft_work *work)
{
    tow_soft_graph_va_unref(work->alloc.va);
}

static int va_clone(struct tow_soft_work *copy)
{
    tow_soft_graph_va_ref(copy->alloc.va);
    return 0;
}

/* ---- the table ---- */

void *tow_soft_copy_bytes(const void *bytes, size_t size)
{
    void *copy = malloc(size != 0 ? size : 1);
    if (copy != NULL && size != 0) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

CUresult tow_soft_work_no_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    (void)work;
    (void)ctx;
    return CUDA_SUCCESS;
}

void tow_soft_work_no_fini(struct tow_soft_work *work)
{
    (void)work;
}

int tow_soft_work_plain_clone(struct tow_soft_work *copy)
{
    (void)copy;
    return 0;
}

int tow_soft_work_no_clone(struct tow_soft_work *copy)
{
    (void)copy;
    return -EINVAL;
}

static const struct tow_soft_work_ops *ops_of(const struct tow_soft_work *work)
{
    static const struct tow_soft_work_ops empty = {tow_soft_work_no_run, tow_soft_work_no_fini,
                                                   tow_soft_work_plain_clone},
                                          host = {host_run, tow_soft_work_no_fini,
                                                  tow_soft_work_plain_clone},
                                          mark = {tow_soft_work_no_run, mark_fini, mark_clone},
                                          memops = {tow_soft_work_no_run, memops_fini,
                                                    memops_clone},
                                          va = {tow_soft_work_no_run, va_fini, va_clone};
    switch (work->kind) {
    case TOW_SOFT_WORK_EMPTY:
        return &empty;
    case TOW_SOFT_WORK_HOST:
        return &host;
    case TOW_SOFT_WORK_RECORD:
    case TOW_SOFT_WORK_WAIT:
        return &mark;
    case TOW_SOFT_WORK_MEMOPS:
        return &memops;
    case TOW_SOFT_WORK_ALLOC:
        return &va;
    default:
        return tow_soft.hooks->work[work->kind];
    }
}

void tow_soft_work_fini(struct tow_soft_work *work)
{
    ops_of(work)->fini(work);
    memset(work, 0, sizeof *work);
}

int tow_soft_work_clone(const struct tow_soft_work *work, struct tow_soft_work *ret_work)
{
    struct tow_soft_work copy = *work;
    int rc = ops_of(work)->clone(&copy);
    if (rc == 0) {
        *ret_work = copy;
    }
    return rc;
}

/* Whose op this thread is about to run; the nodes of a graph are its own. */
static __thread struct tow_soft_work_place here;

void tow_soft_work_of(struct tow_soft_work_place place)
{
    here = place;
}

CUresult tow_soft_work_run(struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    const struct tow_soft_work_ops *ops = ops_of(work);
    struct tow_backend_span span = {0};
    if (__builtin_expect(atomic_load_explicit(&tow_spans_kept, memory_order_relaxed), 0) &&
        ops->describe != NULL) {
        const char *name = ops->describe(work, &span);
        span.began_ns = (uint64_t)tow_time_now_ns();
        CUresult result = ops->run(work, ctx);
        span.ended_ns = (uint64_t)tow_time_now_ns();
        span.given_ns = here.given_ns != 0 ? here.given_ns : span.began_ns;
        span.command = here.command;
        span.stream = here.stream;
        span.queued = here.queued;
        tow_spans_keep(&span, name);
        return result;
    }
    return ops->run(work, ctx);
}
