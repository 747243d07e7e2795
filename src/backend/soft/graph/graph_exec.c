/* SPDX-License-Identifier: Apache-2.0 */
/* Instances of graphs: making, changing, launching and running them. */
#include "backend/soft/code/launch.h"
#include "backend/soft/code/module.h"
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/mark.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/graph/graph.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/index.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/pool.h"
#include "backend/soft/stream/event.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "gen/graph.h"

#define MEMOP_POLL (50 * TOW_TIME_US)

/* ---- plans
 * -----------------------------------------------------------------------------------------------------
 */

static void plan_unref(struct tow_soft_plan *plan)
{
    if (plan != NULL && --plan->refs == 0) {
        tow_soft_graph_free(plan->graph);
        free(plan);
    }
}

static size_t graph_exec_leaves(const struct tow_soft_graph *graph)
{
    size_t count = 0;
    for (size_t i = 0; i < graph->count; i++) {
        count += graph->nodes[i]->work.kind == TOW_SOFT_WORK_CHILD
                     ? graph_exec_leaves(graph->nodes[i]->work.child.graph)
                     : 1;
    }
    return count;
}

static int graph_exec_arrange(struct tow_soft_graph *graph, struct tow_soft_plan *plan);

static int graph_exec_flatten(struct tow_soft_graph *graph, struct tow_soft_graph *into,
                              struct tow_soft_plan *plan)
{
    struct tow_soft_node **order;
    int rc = tow_soft_graph_order(graph, &order);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < graph->count && rc == 0; i++) {
        struct tow_soft_work *work = &order[i]->work;
        if (work->kind == TOW_SOFT_WORK_CHILD) {
            rc = graph_exec_flatten(work->child.graph, into, plan);
            continue;
        }
        if (work->kind == TOW_SOFT_WORK_RECORD) {
            order[i]->mark = plan->mark_count++;
        }
        for (unsigned b = 0;
             work->kind == TOW_SOFT_WORK_BRANCH && b < work->branch.count && rc == 0; b++) {
            rc = graph_exec_arrange(work->branch.bodies[b], plan);
        }
        into->order[into->order_count++] = order[i];
    }
    free(order);
    return rc;
}

static int graph_exec_arrange(struct tow_soft_graph *graph, struct tow_soft_plan *plan)
{
    graph->order = calloc(graph_exec_leaves(graph) + 1, sizeof *graph->order);
    return graph->order != NULL ? graph_exec_flatten(graph, graph, plan) : -ENOMEM;
}

static struct tow_soft_plan *plan_create(const struct tow_soft_graph *graph, bool auto_free,
                                         int *ret_error)
{
    struct tow_soft_plan *plan = calloc(1, sizeof *plan);
    *ret_error = -ENOMEM;
    if (plan == NULL) {
        return NULL;
    }
    plan->refs = 1;
    plan->auto_free = auto_free;
    plan->graph = tow_soft_graph_copy(graph, true);
    if (plan->graph != NULL) {
        *ret_error = graph_exec_arrange(plan->graph, plan);
    }
    if (*ret_error != 0) {
        plan_unref(plan);
        return NULL;
    }
    return plan;
}

void tow_soft_exec_end(struct tow_soft_object *object)
{
    struct tow_soft_exec *exec = (struct tow_soft_exec *)object;
    tow_soft_object_remove(&exec->object);
    plan_unref(exec->plan);
    tow_soft_mark_unref(exec->last);
    free(exec);
}

CUresult tow_soft_exec_own(struct tow_soft_exec *exec)
{
    if (exec->plan->refs == 1) {
        return CUDA_SUCCESS;
    }
    int error;
    struct tow_soft_plan *plan = plan_create(exec->plan->graph, exec->plan->auto_free, &error);
    if (plan == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    plan_unref(exec->plan);
    exec->plan = plan;
    return CUDA_SUCCESS;
}

/* The graphs that a node holds: a child, the bodies of a condition. */
static unsigned inner_count(const struct tow_soft_node *node)
{
    return node->work.kind == TOW_SOFT_WORK_CHILD    ? 1
           : node->work.kind == TOW_SOFT_WORK_BRANCH ? node->work.branch.count
                                                     : 0;
}

static struct tow_soft_graph *inner_at(const struct tow_soft_node *node, unsigned index)
{
    return node->work.kind == TOW_SOFT_WORK_CHILD ? node->work.child.graph
                                                  : node->work.branch.bodies[index];
}

static struct tow_soft_node *find_origin(struct tow_soft_graph *graph, uint64_t handle)
{
    for (size_t i = 0; i < graph->count; i++) {
        struct tow_soft_node *found = graph->nodes[i]->origin == handle ? graph->nodes[i] : NULL;
        for (unsigned g = 0; found == NULL && g < inner_count(graph->nodes[i]); g++) {
            found = find_origin(inner_at(graph->nodes[i], g), handle);
        }
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

/* False if a context is gone that a node at any depth needs. */
static bool is_whole(const struct tow_soft_graph *graph)
{
    bool whole = true;
    for (size_t i = 0; i < graph->count && whole; i++) {
        const struct tow_soft_node *node = graph->nodes[i];
        whole = tow_soft_node_type_of(&node->work) == node->type &&
                (node->work.kind != TOW_SOFT_WORK_BRANCH ||
                 tow_soft_lookup(TOW_SOFT_CTX, node->work.branch.condition->ctx) != NULL);
        for (unsigned g = 0; whole && g < inner_count(node); g++) {
            whole = is_whole(inner_at(node, g));
        }
    }
    return whole;
}

/* Whether every condition of the graph and its bodies has its node. */
static bool conditions_used(const struct tow_soft_graph *graph)
{
    bool used = true;
    for (const struct tow_soft_condition *c = graph->conditions; c != NULL && used; c = c->next) {
        used = c->taken;
    }
    for (size_t i = 0; i < graph->count && used; i++) {
        for (unsigned g = 0; used && g < inner_count(graph->nodes[i]); g++) {
            used = conditions_used(inner_at(graph->nodes[i], g));
        }
    }
    return used;
}

struct tow_soft_node *tow_soft_exec_node(struct tow_soft_exec *exec, CUgraphNode handle)
{
    return handle != NULL ? find_origin(exec->plan->graph, TOW_SOFT_HANDLE(handle)) : NULL;
}

/* ---- running
 * -------------------------------------------------------------------------------------------------------
 */

static CUresult run_memops(const struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    for (unsigned i = 0; i < work->memops.count; i++) {
        CUresult result = CUDA_SUCCESS;
        while (!tow_soft_memop_try(&work->memops.ops[i], ctx, &result)) {
            if (atomic_load(&ctx->stop)) {
                return CUDA_ERROR_LAUNCH_FAILED;
            }
            tow_time_sleep(MEMOP_POLL);
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult run_alloc(const struct tow_soft_work *work, struct tow_soft_ctx *ctx)
{
    struct tow_soft_graph_va *va = work->alloc.va;
    struct tow_soft_alloc *live = tow_soft_alloc_at(va->base);
    if (live != NULL) {
        tow_soft_alloc_drop(live); /* left over from an earlier launch */
    }
    CUresult result = tow_soft_graph_va_commit(va);
    struct tow_soft_alloc *alloc = result == CUDA_SUCCESS ? calloc(1, sizeof *alloc) : NULL;
    if (alloc == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alloc->base = va->base;
    alloc->size = work->alloc.size;
    alloc->reserved = va->size;
    alloc->kind = TOW_SOFT_MEM_GRAPH;
    alloc->ctx = ctx;
    alloc->device = va->device;
    if (tow_soft_alloc_enter(alloc) != 0) {
        free(alloc);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    alloc->va = tow_soft_graph_va_ref(va);
    struct tow_soft_device *device = &tow_soft.devices[va->device];
    device->graph_used += va->size;
    if (device->graph_used > device->graph_used_high) {
        device->graph_used_high = device->graph_used;
    }
    return CUDA_SUCCESS;
}

/* What needs the lock; taken here. */
static CUresult run_locked(struct tow_soft_node *node, struct tow_soft_work *launch,
                           struct tow_soft_ctx *ctx)
{
    CUresult result = CUDA_SUCCESS;
    tow_mutex_lock(&tow_soft.lock);
    switch (node->work.kind) {
    case TOW_SOFT_WORK_RECORD:
        launch->graph.marks[node->mark]->time_ns = tow_time_now_ns();
        tow_soft_mark_finish(launch->graph.marks[node->mark]);
        pthread_cond_broadcast(&tow_soft.changed);
        tow_soft_engine_kick();
        break;
    case TOW_SOFT_WORK_WAIT: {
        struct tow_soft_event *event = tow_soft_lookup(TOW_SOFT_EVENT, node->work.event.event);
        result = event != NULL ? tow_soft_event_refresh(event) : CUDA_SUCCESS;
        struct tow_soft_mark *mark = event != NULL ? tow_soft_mark_ref(event->mark) : NULL;
        while (mark != NULL && !tow_soft_mark_done(mark) && !atomic_load(&ctx->stop)) {
            tow_soft_mark_pause(mark);
        }
        tow_soft_mark_unref(mark);
        break;
    }
    case TOW_SOFT_WORK_ALLOC:
        result = run_alloc(&node->work, ctx);
        break;
    default: /* FREE */
        result = tow_soft_free_async_run(node->work.release.address);
        break;
    }
    tow_mutex_unlock(&tow_soft.lock);
    return result;
}

static CUresult run_graph(struct tow_soft_graph *graph, struct tow_soft_work *launch,
                          struct tow_soft_ctx *ctx);

static CUresult run_while(struct tow_soft_node *node, struct tow_soft_work *launch,
                          struct tow_soft_ctx *ctx)
{
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && atomic_load(&node->work.branch.condition->value) != 0) {
        if (atomic_load(&ctx->stop)) {
            return CUDA_ERROR_LAUNCH_FAILED;
        }
        result = run_graph(node->work.branch.bodies[0], launch, ctx);
        if (tow_soft.dry) {
            break; /* no kernel will ever set it to 0 */
        }
    }
    return result;
}

static CUresult run_branch(struct tow_soft_node *node, struct tow_soft_work *launch,
                           struct tow_soft_ctx *ctx)
{
    uint32_t index = atomic_load(&node->work.branch.condition->value);
    switch (node->work.branch.type) {
    case CU_GRAPH_COND_TYPE_WHILE:
        return run_while(node, launch, ctx);
    case CU_GRAPH_COND_TYPE_IF:
        index = index == 0;
        break;
    default: /* SWITCH */
        break;
    }
    return index < node->work.branch.count ? run_graph(node->work.branch.bodies[index], launch, ctx)
                                           : CUDA_SUCCESS;
}

static void conditions_begin(const struct tow_soft_graph *graph)
{
    for (size_t i = 0; i < graph->order_count; i++) {
        const struct tow_soft_work *work = &graph->order[i]->work;
        if (work->kind != TOW_SOFT_WORK_BRANCH) {
            continue;
        }
        if (work->branch.condition->assign) {
            atomic_store(&work->branch.condition->value, work->branch.condition->initial);
        }
        for (unsigned b = 0; b < work->branch.count; b++) {
            conditions_begin(work->branch.bodies[b]);
        }
    }
}

static CUresult run_graph(struct tow_soft_graph *graph, struct tow_soft_work *launch,
                          struct tow_soft_ctx *ctx)
{
    for (size_t i = 0; i < graph->order_count; i++) {
        struct tow_soft_node *node = graph->order[i];
        CUresult result = CUDA_SUCCESS;
        if (atomic_load(&ctx->stop)) {
            return CUDA_ERROR_LAUNCH_FAILED;
        }
        if (node->disabled) {
            continue;
        }
        switch (node->work.kind) {
        case TOW_SOFT_WORK_EMPTY:
            break;
        case TOW_SOFT_WORK_KERNEL:
            result = tow_soft_work_run(&node->work, node->work.kernel.function->module->object.ctx);
            break;
        case TOW_SOFT_WORK_MEMOPS:
            result = run_memops(&node->work, ctx);
            break;
        case TOW_SOFT_WORK_RECORD:
        case TOW_SOFT_WORK_WAIT:
        case TOW_SOFT_WORK_ALLOC:
        case TOW_SOFT_WORK_FREE:
            result = run_locked(node, launch, ctx);
            break;
        case TOW_SOFT_WORK_BRANCH:
            result = run_branch(node, launch, ctx);
            break;
        default:
            result = tow_soft_work_run(&node->work, ctx);
            break;
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult plan_run(struct tow_soft_work *launch, struct tow_soft_ctx *ctx)
{
    struct tow_soft_graph *graph = launch->graph.plan->graph;
    conditions_begin(graph);
    return run_graph(graph, launch, ctx);
}

static void plan_fini(struct tow_soft_work *work)
{
    for (size_t i = 0; i < work->graph.mark_count; i++) {
        /* Also when the graph failed or was thrown away. */
        tow_soft_mark_finish(work->graph.marks[i]);
        tow_soft_mark_unref(work->graph.marks[i]);
    }
    free(work->graph.marks);
    plan_unref(work->graph.plan);
}

/* It is only queued, never a node. */
const struct tow_soft_work_ops tow_soft_plan_ops = {plan_run, plan_fini, tow_soft_work_no_clone};

/* ---- instantiating
 * ---------------------------------------------------------------------------------------------------
 */

static CUresult graph_exec_instantiate(CUgraphExec *phGraphExec, CUgraph hGraph,
                                       unsigned long long flags,
                                       CUgraphInstantiateResult *ret_reason)
{
    *ret_reason = CUDA_GRAPH_INSTANTIATE_ERROR;
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_graph *graph = tow_soft_graph_lookup(hGraph);
    unsigned long long known =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (phGraphExec == NULL || graph == NULL || (flags & ~known) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
        *ret_reason = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
        return tow_soft_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    if (!is_whole(graph)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!conditions_used(graph)) {
        *ret_reason = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    bool unique = tow_soft_graph_is_unique(graph);
    if (unique && tow_soft_lookup(TOW_SOFT_EXEC, graph->only_exec) != NULL) {
        return tow_soft_leave(CUDA_ERROR_NOT_SUPPORTED); /* its addresses or handles are taken */
    }
    struct tow_soft_exec *exec = calloc(1, sizeof *exec);
    int error = -ENOMEM;
    if (exec != NULL) {
        exec->plan = plan_create(
            graph, (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0, &error);
    }
    if (exec == NULL || exec->plan == NULL ||
        tow_soft_object_add(&exec->object, TOW_SOFT_EXEC, ctx) != 0) {
        if (exec != NULL) {
            plan_unref(exec->plan);
        }
        free(exec);
        if (error == -ELOOP) {
            *ret_reason = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
            return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
        }
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    exec->flags = flags;
    graph->only_exec = unique ? exec->object.handle : 0;
    *phGraphExec = TOW_SOFT_POINTER(exec->object.handle);
    *ret_reason = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                 unsigned long long flags)
{
    CUgraphInstantiateResult reason;
    return graph_exec_instantiate(phGraphExec, hGraph, flags, &reason);
}

static CUresult soft_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (params == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    params->hErrNode_out = NULL;
    return graph_exec_instantiate(phGraphExec, hGraph, params->flags, &params->result_out);
}

static CUresult soft_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUgraphNode *phErrorNode, char *logBuffer,
                                           size_t bufferSize)
{
    if (phErrorNode != NULL) {
        *phErrorNode = NULL;
    }
    if (logBuffer != NULL && bufferSize != 0) {
        logBuffer[0] = '\0';
    }
    return soft_cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

static CUresult enter_exec(CUgraphExec handle, struct tow_soft_ctx **ret_ctx,
                           struct tow_soft_exec **ret_exec)
{
    CUresult result = tow_soft_enter(ret_ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_exec = tow_soft_lookup(TOW_SOFT_EXEC, TOW_SOFT_HANDLE(handle));
    return *ret_exec != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

/* Needs no current context. */
static CUresult enter_exec_any(CUgraphExec hGraphExec, struct tow_soft_exec **ret_exec)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_exec = tow_soft_lookup(TOW_SOFT_EXEC, TOW_SOFT_HANDLE(hGraphExec));
    return *ret_exec != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult soft_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    struct tow_soft_exec *exec;
    CUresult result = enter_exec_any(hGraphExec, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    tow_soft_exec_end(&exec->object);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    struct tow_soft_exec *exec;
    CUresult result = enter_exec_any(hGraphExec, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (flags == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *flags = exec->flags & ~(unsigned long long)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_exec *exec;
    CUresult result = enter_exec(hGraph, &ctx, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    return tow_soft_leave(tow_soft_stream_of(ctx, hStream, &stream));
}

/* ---- launching
 * ----------------------------------------------------------------------------------------------------------
 */

static CUresult launch_build(struct tow_soft_ctx *ctx, struct tow_soft_plan *plan,
                             struct tow_soft_work *ret_work)
{
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_GRAPH};
    work.graph.marks = calloc(plan->mark_count + 1, sizeof *work.graph.marks);
    if (work.graph.marks == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    work.graph.plan = plan;
    plan->refs++;
    const struct tow_soft_graph *graph = plan->graph;
    if (!is_whole(graph)) {
        tow_soft_work_fini(&work);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    for (size_t i = 0; i < graph->order_count; i++) {
        struct tow_soft_node *node = graph->order[i];
        if (node->work.kind != TOW_SOFT_WORK_RECORD) {
            continue;
        }
        struct tow_soft_event *event = tow_soft_lookup(TOW_SOFT_EVENT, node->work.event.event);
        struct tow_soft_mark *mark = tow_soft_mark_create(ctx, true);
        if (event == NULL || mark == NULL) {
            tow_soft_mark_unref(mark);
            tow_soft_work_fini(&work);
            return event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY;
        }
        work.graph.marks[work.graph.mark_count++] = mark;
    }
    for (size_t i = 0; i < graph->order_count; i++) {
        struct tow_soft_node *node = graph->order[i];
        if (node->work.kind == TOW_SOFT_WORK_RECORD) {
            struct tow_soft_event *event = tow_soft_lookup(TOW_SOFT_EVENT, node->work.event.event);
            CUresult result = tow_soft_event_renew(event, work.graph.marks[node->mark]);
            if (result != CUDA_SUCCESS) {
                tow_soft_work_fini(&work);
                return result;
            }
        }
    }
    *ret_work = work;
    return CUDA_SUCCESS;
}

/* Launches of one instance never overlap, whatever streams they are in. Takes the work over. */
static CUresult launch_after_last(struct tow_soft_exec *exec, struct tow_soft_stream *stream,
                                  struct tow_soft_work *launch)
{
    struct tow_soft_mark *mark = tow_soft_mark_create(stream->object.ctx, false);
    if (mark == NULL) {
        tow_soft_work_fini(launch);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = CUDA_SUCCESS;
    if (exec->last != NULL && !exec->last->done) {
        struct tow_soft_work wait = {.kind = TOW_SOFT_WORK_WAIT,
                                     .event = {.mark = tow_soft_mark_ref(exec->last)}};
        result = tow_soft_submit(stream, &wait);
    }
    if (result == CUDA_SUCCESS) {
        result = tow_soft_submit(stream, launch);
    } else {
        tow_soft_work_fini(launch);
    }
    if (result != CUDA_SUCCESS) {
        tow_soft_mark_unref(mark);
        return result;
    }
    tow_soft_mark_unref(exec->last);
    exec->last = tow_soft_mark_ref(mark);
    struct tow_soft_work record = {.kind = TOW_SOFT_WORK_RECORD, .event = {.mark = mark}};
    result = tow_soft_submit(stream, &record);
    if (result != CUDA_SUCCESS) {
        tow_soft_mark_finish(exec->last); /* nobody else will, and later launches wait for it */
    }
    return result;
}

/* Who may free what: that is told by the order of calls, whenever the launch runs. */
static void hold_memory(const struct tow_soft_graph *graph)
{
    for (size_t i = 0; i < graph->order_count; i++) {
        const struct tow_soft_work *work = &graph->order[i]->work;
        struct tow_soft_graph_va *va = work->kind == TOW_SOFT_WORK_ALLOC ? work->alloc.va
                                       : work->kind == TOW_SOFT_WORK_FREE
                                           ? tow_soft_graph_va_at(work->release.address)
                                           : NULL;
        if (va != NULL) {
            va->held = work->kind == TOW_SOFT_WORK_ALLOC;
        }
    }
}

static CUresult soft_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_exec *exec;
    CUresult result = enter_exec(hGraph, &ctx, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_stream *stream;
    result = tow_soft_stream_of(ctx, hStream, &stream);
    if (result == CUDA_SUCCESS && stream->legacy) {
        result = tow_soft_capture_forbid_implicit(ctx);
    }
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct tow_soft_work work;
    if (stream->capture != NULL) {
        return tow_soft_leave(tow_soft_capture_forbid(ctx, stream));
    }
    const struct tow_soft_graph *graph = exec->plan->graph;
    for (size_t i = 0; i < graph->order_count && !exec->plan->auto_free; i++) {
        struct tow_soft_node *node = graph->order[i];
        if (node->work.kind == TOW_SOFT_WORK_ALLOC && node->work.alloc.va->held) {
            return tow_soft_leave(
                CUDA_ERROR_INVALID_VALUE); /* what the last launch allocated still lives */
        }
    }
    result = launch_build(stream->object.ctx, exec->plan, &work);
    if (result == CUDA_SUCCESS) {
        result = launch_after_last(exec, stream, &work);
    }
    if (result == CUDA_SUCCESS) {
        hold_memory(exec->plan->graph);
    }
    return tow_soft_leave(result);
}

/* ---- changing
 * -------------------------------------------------------------------------------------------------------------
 */

static CUgraphExecUpdateResult graph_exec_compare(struct tow_soft_graph *have,
                                                  struct tow_soft_graph *want,
                                                  struct tow_soft_node **ret_bad)
{
    *ret_bad = NULL;
    if (have->count != want->count) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    for (size_t i = 0; i < have->count; i++) {
        have->nodes[i]->index = i;
        want->nodes[i]->index = i;
    }
    for (size_t i = 0; i < have->count; i++) {
        struct tow_soft_node *a = have->nodes[i], *b = want->nodes[i];
        *ret_bad = b;
        if (a->type != b->type) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        }
        if (a->edge_count != b->edge_count) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
        for (size_t e = 0; e < a->edge_count; e++) {
            bool found = false;
            for (size_t o = 0; o < b->edge_count; o++) {
                found |= a->edges[e].from->index == b->edges[o].from->index;
            }
            if (!found) {
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            }
        }
        if (a->work.kind == TOW_SOFT_WORK_BRANCH &&
            (a->work.branch.type != b->work.branch.type ||
             a->work.branch.count != b->work.branch.count ||
             a->work.branch.condition->ctx != b->work.branch.condition->ctx)) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
        }
        for (unsigned g = 0; g < inner_count(a); g++) {
            CUgraphExecUpdateResult inner =
                graph_exec_compare(inner_at(a, g), inner_at(b, g), ret_bad);
            if (inner != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
                return inner;
            }
        }
        *ret_bad = b;
        if (a->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || a->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        }
        if (a->work.kind == TOW_SOFT_WORK_KERNEL && b->work.kind == TOW_SOFT_WORK_KERNEL &&
            a->work.kernel.function->module->object.ctx !=
                b->work.kernel.function->module->object.ctx) {
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        }
        *ret_bad = NULL;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* The work of `want` into the nodes of `have`, which graph_exec_compare() found alike. */
static CUresult graph_exec_overwrite(struct tow_soft_graph *have, struct tow_soft_graph *want)
{
    for (size_t i = 0; i < have->count; i++) {
        struct tow_soft_node *a = have->nodes[i], *b = want->nodes[i];
        CUresult result = CUDA_SUCCESS;
        for (unsigned g = 0; g < inner_count(a) && result == CUDA_SUCCESS; g++) {
            result = graph_exec_overwrite(inner_at(a, g), inner_at(b, g));
        }
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (a->work.kind == TOW_SOFT_WORK_BRANCH) {
            tow_soft_branch_adopt(&a->work, &b->work);
        }
        if (inner_count(a) != 0) {
            continue;
        }
        struct tow_soft_work work;
        if (tow_soft_work_clone(&b->work, &work) != 0) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        tow_soft_work_fini(&a->work);
        a->work = work;
    }
    return CUDA_SUCCESS;
}

static CUresult soft_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                          CUgraphExecUpdateResultInfo *resultInfo)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_exec *exec;
    CUresult result = enter_exec(hGraphExec, &ctx, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_graph *graph = tow_soft_graph_lookup(hGraph);
    if (graph == NULL || resultInfo == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    memset(resultInfo, 0, sizeof *resultInfo);
    struct tow_soft_node *bad;
    resultInfo->result = graph_exec_compare(exec->plan->graph, graph, &bad);
    if (resultInfo->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        resultInfo->errorNode = bad != NULL ? TOW_SOFT_POINTER(bad->object.handle) : NULL;
        return tow_soft_leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    }
    result = tow_soft_exec_own(exec);
    if (result == CUDA_SUCCESS) {
        result = graph_exec_overwrite(exec->plan->graph, graph);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                                       CUgraphNode *hErrorNode_out,
                                       CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info;
    memset(&info, 0, sizeof info);
    info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
    CUresult result = soft_cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    if (hErrorNode_out != NULL) {
        *hErrorNode_out = info.errorNode;
    }
    if (updateResult_out != NULL) {
        *updateResult_out = info.result;
    }
    return result;
}

CUresult tow_soft_exec_set_child(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraph childGraph)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_exec *exec;
    CUresult result = enter_exec(hGraphExec, &ctx, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_graph *graph = tow_soft_graph_lookup(childGraph);
    result = tow_soft_exec_own(exec);
    struct tow_soft_node *node = result == CUDA_SUCCESS ? tow_soft_exec_node(exec, hNode) : NULL;
    struct tow_soft_node *bad;
    if (result == CUDA_SUCCESS &&
        (graph == NULL || node == NULL || node->work.kind != TOW_SOFT_WORK_CHILD)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (result == CUDA_SUCCESS && graph_exec_compare(node->work.child.graph, graph, &bad) !=
                                             CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    if (result == CUDA_SUCCESS) {
        result = graph_exec_overwrite(node->work.child.graph, graph);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           unsigned int isEnabled)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_exec *exec;
    CUresult result = enter_exec(hGraphExec, &ctx, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = tow_soft_exec_own(exec);
    struct tow_soft_node *node = result == CUDA_SUCCESS ? tow_soft_exec_node(exec, hNode) : NULL;
    if (result == CUDA_SUCCESS &&
        (node == NULL || isEnabled > 1 ||
         (node->type != CU_GRAPH_NODE_TYPE_KERNEL && node->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
          node->type != CU_GRAPH_NODE_TYPE_MEMSET))) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        node->disabled = isEnabled == 0;
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           unsigned int *isEnabled)
{
    struct tow_soft_ctx *ctx;
    struct tow_soft_exec *exec;
    CUresult result = enter_exec(hGraphExec, &ctx, &exec);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_node *node = tow_soft_exec_node(exec, hNode);
    if (node == NULL || isEnabled == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *isEnabled = !node->disabled;
    return tow_soft_leave(CUDA_SUCCESS);
}

/* ---- memory of graphs
 * --------------------------------------------------------------------------------------------------------
 */

static CUresult enter_device(CUdevice dev, struct tow_soft_device **ret_device)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_device = tow_soft_device_of(dev);
    return *ret_device != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_DEVICE);
}

static CUresult soft_cuDeviceGraphMemTrim(CUdevice dev)
{
    struct tow_soft_device *device;
    CUresult result = enter_device(dev, &device);
    return result == CUDA_SUCCESS ? tow_soft_leave(result) : result;
}

static CUresult soft_cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr,
                                                  void *value)
{
    struct tow_soft_device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (value == NULL || (int)attr < 0 || attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    bool high =
        attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    cuuint64_t number = high ? device->graph_used_high : device->graph_used;
    memcpy(value, &number, sizeof number);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr,
                                                  void *value)
{
    struct tow_soft_device *device;
    CUresult result = enter_device(dev, &device);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    cuuint64_t number = 1;
    if (value != NULL) {
        memcpy(&number, value, sizeof number);
    }
    if (number != 0 ||
        (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    device->graph_used_high = device->graph_used;
    return tow_soft_leave(CUDA_SUCCESS);
}

void tow_soft_fill_graph_exec(struct tow_driver *driver)
{
    tow_driver_set(driver, cuGraphInstantiate, soft_cuGraphInstantiate_v2);
    tow_driver_set(driver, cuGraphInstantiate_v2, soft_cuGraphInstantiate_v2);
    tow_driver_set(driver, cuGraphInstantiateWithFlags, soft_cuGraphInstantiateWithFlags);
    tow_driver_set(driver, cuGraphInstantiateWithParams, soft_cuGraphInstantiateWithParams);
    tow_driver_set(driver, cuGraphExecDestroy, soft_cuGraphExecDestroy);
    tow_driver_set(driver, cuGraphExecGetFlags, soft_cuGraphExecGetFlags);
    tow_driver_set(driver, cuGraphUpload, soft_cuGraphUpload);
    tow_driver_set(driver, cuGraphLaunch, soft_cuGraphLaunch);
    tow_driver_set(driver, cuGraphExecUpdate, soft_cuGraphExecUpdate);
    tow_driver_set(driver, cuGraphExecUpdate_v2, soft_cuGraphExecUpdate_v2);
    tow_driver_set(driver, cuGraphExecChildGraphNodeSetParams, tow_soft_exec_set_child);
    tow_driver_set(driver, cuGraphNodeSetEnabled, soft_cuGraphNodeSetEnabled);
    tow_driver_set(driver, cuGraphNodeGetEnabled, soft_cuGraphNodeGetEnabled);
    tow_driver_set(driver, cuDeviceGraphMemTrim, soft_cuDeviceGraphMemTrim);
    tow_driver_set(driver, cuDeviceGetGraphMemAttribute, soft_cuDeviceGetGraphMemAttribute);
    tow_driver_set(driver, cuDeviceSetGraphMemAttribute, soft_cuDeviceSetGraphMemAttribute);
}
