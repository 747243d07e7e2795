/* SPDX-License-Identifier: Apache-2.0 */
/* Runs what streams hold.
 *
 * A stream is a queue; only its head may run. Every op has a number from one counter, which makes
 * the rules of the legacy default stream a comparison: its op waits for every older op in the
 * context's blocking streams, and theirs for its older ones. Ops that take no time (events, waits,
 * values) are done by whoever holds the lock; the others by runner threads, started when first
 * needed, or by a caller that would have to wait for them anyway.
 */
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/mark.h"
#include "backend/spans.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "ptx/ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"

#define SMALL_WORK 65536 /* bytes: shorter copies are done at once by the caller */
#define QUEUE_MAX                                                                                  \
    1024 /* operations of a stream that may be queued: NVIDIA's driver has as many                 \
          */
#define POLL_MIN (20 * TOW_TIME_US)
#define POLL_MAX (200 * TOW_TIME_US)

static bool poller;           /* an idle runner watches what other processes or the host write */
static int64_t poll_interval; /* how long it sleeps */

/* What GPU time was: the runners' processor time, and that of callers who ran something. */
static clockid_t runner_clocks[TOW_SOFT_RUNNERS_MAX];
static unsigned runner_clock_count;
static uint64_t helped_ns;

void tow_soft_mark_pause(const struct tow_soft_mark *mark)
{
    if (mark->foreign) {
        tow_mutex_wait_until(&tow_soft.lock, &tow_soft.changed, tow_time_deadline(POLL_MAX));
    } else {
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
}

/* ---- queues
 * ---------------------------------------------------------------------------------------- */

static bool is_blocking(const struct tow_soft_stream *stream)
{
    return !stream->legacy && (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

/* Whether the head of the stream has everything older behind it that it must. */
static bool is_eligible(const struct tow_soft_stream *stream)
{
    if (stream->head == NULL || stream->running) {
        return false;
    }
    uint64_t seq = stream->head->seq;
    struct tow_soft_ctx *ctx = stream->object.ctx;
    if (stream->legacy) {
        for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
            if (s->object.ctx == ctx && is_blocking(s) && s->head != NULL && s->head->seq < seq) {
                return false;
            }
        }
        return true;
    }
    return !is_blocking(stream) || ctx->legacy == NULL || ctx->legacy->head == NULL ||
           ctx->legacy->head->seq > seq;
}

/* Of host functions the server counts its own part. */
static bool is_counted(const struct tow_soft_work *work)
{
    return work->kind != TOW_SOFT_WORK_HOST;
}

static void op_free(struct tow_soft_op *op)
{
    if (is_counted(&op->work)) {
        atomic_fetch_sub_explicit(tow_soft.queued, 1, memory_order_relaxed);
    }
    if (op->ret_done != NULL) {
        *op->ret_done = true;
    }
    tow_soft_work_fini(&op->work);
    free(op);
}

static void engine_pop(struct tow_soft_stream *stream)
{
    struct tow_soft_op *op = stream->head;
    stream->head = op->next;
    stream->queued--;
    if (stream->head == NULL) {
        stream->tail = NULL;
    }
    op_free(op);
}

/* Throws away what has not begun; after an error (`told`) callbacks stay, which must hear of it. */
static void drop_queued(struct tow_soft_stream *stream, bool told)
{
    struct tow_soft_op *op = stream->head, *last = NULL;
    stream->head = NULL;
    stream->tail = NULL;
    stream->queued = 0;
    for (bool begun = stream->running; op != NULL; begun = false) {
        struct tow_soft_op *next = op->next;
        op->next = NULL;
        if (begun ||
            (told && op->work.kind == TOW_SOFT_WORK_HOST && op->work.host.callback != NULL)) {
            if (last != NULL) {
                last->next = op;
            } else {
                stream->head = op;
            }
            last = stream->tail = op;
            stream->queued++;
        } else {
            if (op->work.kind == TOW_SOFT_WORK_RECORD) {
                tow_soft_mark_finish(op->work.event.mark);
            }
            op_free(op);
        }
        op = next;
    }
}

static void engine_fail(struct tow_soft_ctx *ctx, CUresult error)
{
    if (ctx->error != CUDA_SUCCESS) {
        return;
    }
    ctx->error = error;
    ctx->device->ruined = true;
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        if (s->object.ctx == ctx) {
            drop_queued(s, true);
        }
    }
}

void tow_soft_ctx_fail(struct tow_soft_ctx *ctx, CUresult error)
{
    tow_mutex_lock(&tow_soft.lock);
    engine_fail(ctx, error);
    pthread_cond_broadcast(&tow_soft.changed);
    tow_mutex_unlock(&tow_soft.lock);
}

/* Does as many of the batch as it can; true when all are done. */
static bool memops_advance(struct tow_soft_op *op, struct tow_soft_ctx *ctx)
{
    while (op->step < op->work.memops.count) {
        CUresult result = CUDA_SUCCESS;
        if (!tow_soft_memop_try(&op->work.memops.ops[op->step], ctx, &result)) {
            return false;
        }
        if (result != CUDA_SUCCESS) {
            engine_fail(ctx, result);
            return true;
        }
        op->step++;
    }
    return true;
}

/* Does the ops at the head that take no time. True if anything changed. */
static bool engine_advance(struct tow_soft_stream *stream, bool *ret_polls)
{
    bool changed = false;
    while (is_eligible(stream)) {
        struct tow_soft_op *op = stream->head;
        struct tow_soft_ctx *ctx = stream->object.ctx;
        switch (op->work.kind) {
        case TOW_SOFT_WORK_EMPTY:
            break;
        case TOW_SOFT_WORK_RECORD:
            op->work.event.mark->time_ns = tow_time_now_ns();
            tow_soft_mark_finish(op->work.event.mark);
            break;
        case TOW_SOFT_WORK_WAIT:
            if (!tow_soft_mark_done(op->work.event.mark)) {
                *ret_polls |= op->work.event.mark->foreign;
                return changed;
            }
            break;
        case TOW_SOFT_WORK_MEMOPS:
            if (!memops_advance(op, ctx)) {
                *ret_polls = true;
                return changed;
            }
            if (ctx->error != CUDA_SUCCESS) {
                return true; /* the queue was dropped, this op with it */
            }
            break;
        case TOW_SOFT_WORK_FREE:
            tow_soft_work_run(&op->work, ctx);
            break;
        default:
            return changed;
        }
        engine_pop(stream);
        changed = true;
    }
    return changed;
}

static bool is_runnable(const struct tow_soft_stream *stream)
{
    return is_eligible(stream) && stream->head->work.kind != TOW_SOFT_WORK_WAIT &&
           stream->head->work.kind != TOW_SOFT_WORK_MEMOPS;
}

static void retire_due(void)
{
    uint64_t oldest = UINT64_MAX;
    for (struct tow_soft_op *op = tow_soft.running; op != NULL; op = op->run_next) {
        oldest = op->start < oldest ? op->start : oldest;
    }
    tow_soft_retire_poll(oldest);
}

static struct tow_soft_later *laters; /* guarded by tow_soft.lock */

static void later_due(void)
{
    if (laters == NULL) {
        return;
    }
    uint64_t oldest = UINT64_MAX; /* what runs is at the head of its stream, too */
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        oldest = s->head != NULL && s->head->seq < oldest ? s->head->seq : oldest;
    }
    for (struct tow_soft_later **at = &laters; *at != NULL;) {
        struct tow_soft_later *later = *at;
        if (later->seq < oldest) {
            *at = later->next;
            later->run(later);
        } else {
            at = &later->next;
        }
    }
}

void tow_soft_engine_later(struct tow_soft_later *later)
{
    later->seq = ++tow_soft.seq;
    later->next = laters;
    laters = later;
    later_due();
}

static void streams_reap(void)
{
    struct tow_soft_stream *next;
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = next) {
        next = s->next;
        if (s->destroyed && s->head == NULL && !s->running) {
            tow_soft_stream_free(s);
        }
    }
}

static void *engine_runner(void *arg);

/* Sees to it that `wanted` runners are on their way: a token wakes an idle one, and no token is
 * lost, since it stays until one takes it. */
static void wake_runners(unsigned wanted)
{
    while (tow_soft.tokens + tow_soft.runners_starting < wanted) {
        if (tow_soft.runners_idle > tow_soft.tokens) {
            tow_soft.tokens++;
            pthread_cond_signal(&tow_soft.work);
            continue;
        }
        if (tow_soft.runners >= TOW_SOFT_RUNNERS_MAX || tow_soft.stopping) {
            return;
        }
        pthread_t thread;
        if (tow_thread_start("tow-soft", engine_runner, NULL, &thread) != 0) {
            tow_log(TOW_AREA_SOFT, TOW_LOG_WARN,
                    "cannot start a thread: streams share those there are");
            return;
        }
        pthread_detach(thread);
        tow_soft.runners++;
        tow_soft.runners_starting++;
    }
}

void tow_soft_engine_kick(void)
{
    bool any = false, polls, changed;
    do {
        changed = false;
        polls = false;
        for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
            changed |= engine_advance(s, &polls);
        }
        any |= changed;
    } while (changed);
    if (any) {
        poll_interval = POLL_MIN;
        streams_reap();
        later_due();
        retire_due();
        pthread_cond_broadcast(&tow_soft.changed);
    }
    unsigned wanted = 0;
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        wanted += is_runnable(s);
    }
    if (polls && !poller) {
        poll_interval = POLL_MIN;
        wanted++;
    }
    tow_soft.polls = polls;
    wake_runners(wanted);
}

/* Runs the head of a stream on this thread. The stream may be gone afterwards. */
static void run_head(struct tow_soft_stream *stream)
{
    struct tow_soft_op *op = stream->head;
    struct tow_soft_ctx *ctx = stream->object.ctx;
    stream->running = true;
    ctx->running++;
    op->start = ++tow_soft.seq;
    op->run_prev = NULL;
    op->run_next = tow_soft.running;
    if (tow_soft.running != NULL) {
        tow_soft.running->run_prev = op;
    }
    tow_soft.running = op;
    if (op->work.kind == TOW_SOFT_WORK_HOST) {
        op->work.host.status = ctx->error;
    }
    tow_soft_work_of((struct tow_soft_work_place){op->given_ns, op->command, (uint32_t)stream->id,
                                                  stream->queued - 1});
    tow_mutex_unlock(&tow_soft.lock);

    CUresult result = tow_soft_work_run(&op->work, ctx);

    tow_mutex_lock(&tow_soft.lock);
    if (op->run_prev != NULL) {
        op->run_prev->run_next = op->run_next;
    } else {
        tow_soft.running = op->run_next;
    }
    if (op->run_next != NULL) {
        op->run_next->run_prev = op->run_prev;
    }
    ctx->running--;
    stream->running = false;
    engine_pop(stream);
    if (result != CUDA_SUCCESS && ctx->alive) {
        engine_fail(ctx, result);
    }
    streams_reap();
    later_due();
    retire_due();
    pthread_cond_broadcast(&tow_soft.changed);
    tow_soft_engine_kick();
}

/* The same by a caller, who does not wait for a runner. */
static void help_head(struct tow_soft_stream *stream)
{
    uint64_t before = tow_time_of(CLOCK_THREAD_CPUTIME_ID);
    run_head(stream);
    helped_ns += tow_time_of(CLOCK_THREAD_CPUTIME_ID) - before;
}

uint64_t tow_soft_engine_time(void)
{
    static _Atomic uint64_t last;
    if (!tow_mutex_try(&tow_soft.lock)) {
        return atomic_load(&last);
    }
    uint64_t sum = helped_ns;
    for (unsigned i = 0; i < runner_clock_count; i++) {
        sum += tow_time_of(runner_clocks[i]);
    }
    tow_mutex_unlock(&tow_soft.lock);
    sum += tow_ptx_helpers_ns();
    atomic_store(&last, sum);
    return sum;
}

static struct tow_soft_stream *engine_pick(void)
{
    struct tow_soft_stream *best = NULL;
    for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
        if (is_runnable(s) && (best == NULL || s->priority < best->priority ||
                               (s->priority == best->priority && s->head->seq < best->head->seq))) {
            best = s;
        }
    }
    return best;
}

/* Sleeps until there is a token; one idle runner also watches memory that streams wait for. */
static void engine_idle(void)
{
    tow_soft.runners_idle++;
    while (tow_soft.tokens == 0 && !tow_soft.stopping) {
        if (!tow_soft.polls || poller) {
            tow_mutex_wait(&tow_soft.lock, &tow_soft.work);
            continue;
        }
        poller = true;
        tow_mutex_wait_until(&tow_soft.lock, &tow_soft.work, tow_time_deadline(poll_interval));
        poll_interval = poll_interval * 2 < POLL_MAX ? poll_interval * 2 : POLL_MAX;
        tow_soft_engine_kick();
        poller = false;
    }
    tow_soft.tokens -= tow_soft.tokens > 0;
    tow_soft.runners_idle--;
}

static void *engine_runner(void *arg)
{
    (void)arg;
    tow_mutex_lock(&tow_soft.lock);
    tow_soft.runners_starting--;
    runner_clock_count +=
        runner_clock_count < TOW_SOFT_RUNNERS_MAX &&
        pthread_getcpuclockid(pthread_self(), &runner_clocks[runner_clock_count]) == 0;
    while (!tow_soft.stopping) {
        struct tow_soft_stream *stream = engine_pick();
        if (stream != NULL) {
            if (tow_soft.polls && !poller) {
                /* Somebody must watch on. Only where there is work to do: idle runners that woke
                 * each other for this would never sleep, and never let go of the lock. */
                wake_runners(tow_soft.tokens + tow_soft.runners_starting + 1);
            }
            run_head(stream);
        } else {
            engine_idle();
        }
    }
    tow_soft.runners--;
    pthread_cond_broadcast(&tow_soft.changed);
    tow_mutex_unlock(&tow_soft.lock);
    return NULL;
}

/* ---- submitting and waiting
 * ------------------------------------------------------------------------ */

static struct tow_soft_op *engine_enqueue(struct tow_soft_stream *stream,
                                          struct tow_soft_work *work)
{
    struct tow_soft_op *op = calloc(1, sizeof *op);
    if (op == NULL) {
        tow_soft_work_fini(work);
        return NULL;
    }
    op->stream = stream;
    op->seq = ++tow_soft.seq;
    op->given_ns = atomic_load_explicit(&tow_spans_kept, memory_order_relaxed)
                       ? (uint64_t)tow_time_now_ns()
                       : 0;
    op->command = tow_spans_command;
    op->work = *work;
    memset(work, 0, sizeof *work);
    if (is_counted(&op->work)) {
        atomic_fetch_add_explicit(tow_soft.queued, 1, memory_order_relaxed);
    }
    if (stream->tail != NULL) {
        stream->tail->next = op;
    } else {
        stream->head = op;
    }
    stream->tail = op;
    stream->queued++;
    return op;
}

static bool is_small(const struct tow_soft_work *work)
{
    if (work->kind == TOW_SOFT_WORK_COPY) {
        const struct tow_soft_copy_work *copy = &work->copy;
        return copy->width <= SMALL_WORK && copy->height <= SMALL_WORK &&
               copy->depth <= SMALL_WORK && copy->width * copy->height * copy->depth <= SMALL_WORK;
    }
    return work->kind == TOW_SOFT_WORK_SET && work->set.width <= SMALL_WORK &&
           work->set.height <= SMALL_WORK &&
           work->set.width * work->set.height * work->set.element <= SMALL_WORK;
}

static CUresult engine_refuse(struct tow_soft_ctx *ctx, struct tow_soft_work *work)
{
    CUresult result = !ctx->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED : ctx->error;
    if (result != CUDA_SUCCESS) {
        tow_soft_work_fini(work);
        memset(work, 0, sizeof *work);
    }
    return result;
}

/* What puts others in order, and what gives memory back, is never refused: a record that is not
 * there counts as done, and behind a launch that was taken its record must be. A stream's own
 * length bounds these. */
static bool may_be_refused(const struct tow_soft_work *work)
{
    return is_counted(work) && work->kind != TOW_SOFT_WORK_RECORD &&
           work->kind != TOW_SOFT_WORK_WAIT && work->kind != TOW_SOFT_WORK_FREE;
}

/* Whether so much is queued that nothing more is taken; then the work is gone. */
static bool is_full(struct tow_soft_work *work)
{
    uint32_t most = tow_soft.queued_most;
    if (most == 0 || !may_be_refused(work) || atomic_load(tow_soft.queued) < most) {
        return false;
    }
    if (!tow_soft.queue_full_told) {
        tow_soft.queue_full_told = true;
        tow_log(TOW_AREA_SOFT, TOW_LOG_WARN,
                "%u commands of the program wait in its streams, and it may have no more "
                "(session-commands): further ones fail with CUDA_ERROR_OUT_OF_MEMORY",
                most);
    }
    tow_soft_work_fini(work);
    memset(work, 0, sizeof *work);
    return true;
}

CUresult tow_soft_submit(struct tow_soft_stream *stream, struct tow_soft_work *work)
{
    CUresult result = engine_refuse(stream->object.ctx, work);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (stream->capture != NULL) {
        return stream->capture->ops->add(stream, work);
    }
    if (is_full(work)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    bool small = is_small(work);
    struct tow_soft_op *op = engine_enqueue(stream, work);
    if (op == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (small && stream->head == op && is_runnable(stream)) {
        help_head(stream);
        return CUDA_SUCCESS;
    }
    uint64_t handle = stream->object.handle;
    tow_soft_engine_kick();
    /* As with NVIDIA's driver, whoever is far ahead of the device waits for it. */
    if (stream->queued <= QUEUE_MAX) {
        return CUDA_SUCCESS;
    }
    tow_soft_hold();
    while ((stream = tow_soft_lookup(TOW_SOFT_STREAM, handle)) != NULL &&
           stream->queued > QUEUE_MAX) {
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
    tow_soft_let_go();
    return CUDA_SUCCESS;
}

/* What became of the context meanwhile. */
static CUresult state_of(uint64_t ctx_handle)
{
    struct tow_soft_ctx *ctx = tow_soft_lookup(TOW_SOFT_CTX, ctx_handle);
    return ctx == NULL || !ctx->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED : ctx->error;
}

static bool may_help(const struct tow_soft_stream *stream)
{
    return is_runnable(stream) && stream->head->work.kind != TOW_SOFT_WORK_HOST &&
           stream->head->work.kind != TOW_SOFT_WORK_GRAPH;
}

CUresult tow_soft_submit_wait(struct tow_soft_stream *stream, struct tow_soft_work *work)
{
    struct tow_soft_ctx *ctx = stream->object.ctx;
    CUresult result = engine_refuse(ctx, work);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t handle = ctx->object.handle;
    bool done = false;
    struct tow_soft_op *op = engine_enqueue(stream, work);
    if (op == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    op->ret_done = &done;
    if (stream->head != op || !is_runnable(stream)) {
        tow_soft_engine_kick();
    }
    while (!done) {
        if (may_help(stream)) {
            help_head(stream);
        } else {
            tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
        }
    }
    return state_of(handle);
}

/* Waits until no stream for which `member` says yes holds an op as old as now. */
static CUresult wait_for(struct tow_soft_ctx *ctx, struct tow_soft_stream *only)
{
    uint64_t handle = ctx->object.handle;
    uint64_t only_handle = only != NULL ? only->object.handle : 0;
    bool with_blocking = only != NULL && only->legacy;
    uint64_t target = tow_soft.seq;
    for (;;) {
        CUresult result = state_of(handle);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        bool busy = false;
        struct tow_soft_stream *help = NULL;
        for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
            bool member =
                s->object.ctx == ctx && (only == NULL || s->object.handle == only_handle ||
                                         (with_blocking && is_blocking(s)));
            if (member && s->head != NULL && s->head->seq <= target) {
                busy = true;
                if (may_help(s)) {
                    help = s;
                }
            }
        }
        if (!busy) {
            return CUDA_SUCCESS;
        }
        if (help != NULL) {
            help_head(help);
        } else {
            tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
        }
    }
}

CUresult tow_soft_stream_wait(struct tow_soft_ctx *ctx, struct tow_soft_stream *stream)
{
    return wait_for(ctx, stream);
}

CUresult tow_soft_ctx_wait(struct tow_soft_ctx *ctx)
{
    return wait_for(ctx, NULL);
}

CUresult tow_soft_ctx_wait_strict(struct tow_soft_ctx *ctx)
{
    if (!tow_soft.strict) {
        return CUDA_SUCCESS;
    }
    tow_soft_hold();
    CUresult result = wait_for(ctx, NULL);
    tow_soft_let_go();
    return result;
}

CUresult tow_soft_mark_wait(struct tow_soft_mark *mark)
{
    uint64_t handle = mark->ctx->object.handle;
    tow_soft_mark_ref(mark);
    while (!tow_soft_mark_done(mark)) {
        tow_soft_mark_pause(mark);
    }
    tow_soft_mark_unref(mark);
    return state_of(handle);
}

bool tow_soft_stream_idle(const struct tow_soft_stream *stream)
{
    if (stream->head != NULL) {
        return false;
    }
    if (stream->legacy) {
        for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
            if (s->object.ctx == stream->object.ctx && is_blocking(s) && s->head != NULL) {
                return false;
            }
        }
    }
    return true;
}

void tow_soft_engine_drain(struct tow_soft_ctx *ctx)
{
    atomic_store(&ctx->stop, true);
    for (;;) {
        for (struct tow_soft_stream *s = tow_soft.streams; s != NULL; s = s->next) {
            if (s->object.ctx == ctx) {
                drop_queued(s, false);
            }
        }
        pthread_cond_broadcast(&tow_soft.changed);
        if (ctx->running == 0) {
            break;
        }
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
    tow_soft_engine_kick();
}

static void engine_quiesce(bool with_host_functions, uint64_t target)
{
    for (;;) {
        bool busy = false;
        for (struct tow_soft_op *op = tow_soft.running; op != NULL; op = op->run_next) {
            busy |=
                op->start < target && (with_host_functions || op->work.kind != TOW_SOFT_WORK_HOST);
        }
        if (!busy) {
            return;
        }
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
}

void tow_soft_quiesce(void)
{
    engine_quiesce(true, ++tow_soft.seq);
}

void tow_soft_quiesce_device(uint64_t before)
{
    engine_quiesce(false, before);
}

void tow_soft_engine_stop(void)
{
    tow_soft.stopping = true;
    pthread_cond_broadcast(&tow_soft.work);
    while (tow_soft.runners > 0) {
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
        pthread_cond_broadcast(&tow_soft.work);
    }
    later_due();
    runner_clock_count = 0;
    tow_soft.stopping = false;
    tow_soft.polls = false;
    tow_soft.tokens = 0;
    poller = false;
}
