/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions of graphs, and the nodes that run one of their bodies, or none, as a condition says.
 *
 * A condition belongs to the graph it was made for and is named by one node of it. Kernels set it
 * by its handle, so the instance has no copy of it: a graph with such a node has one instance at
 * most.
 */
#include "backend/soft/code/module.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/graph/graph.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "base/mutex.h"
#include "gen/graph.h"

#include <stdlib.h>

#define BODIES_MAX 65536
#define NESTING_MAX 128 /* bodies in bodies: whoever walks through them recurses */

static struct tow_soft_condition *condition_ref(struct tow_soft_condition *condition)
{
    condition->refs++;
    return condition;
}

static void condition_unref(struct tow_soft_condition *condition)
{
    if (condition != NULL && --condition->refs == 0) {
        tow_soft_object_remove(&condition->object);
        free(condition);
    }
}

void tow_soft_conditions_drop(struct tow_soft_graph *graph)
{
    struct tow_soft_condition *next;
    for (struct tow_soft_condition *c = graph->conditions; c != NULL; c = next) {
        next = c->next;
        c->graph = NULL;
        condition_unref(c);
    }
    graph->conditions = NULL;
}

int tow_soft_condition_set(const struct tow_soft_ctx *ctx, uint64_t handle, uint32_t value)
{
    tow_mutex_lock(&tow_soft.lock);
    struct tow_soft_condition *condition = tow_soft_lookup(TOW_SOFT_CONDITION, handle);
    bool known = condition != NULL && condition->ctx == ctx->object.handle;
    if (known) {
        atomic_store(&condition->value, value);
    }
    tow_mutex_unlock(&tow_soft.lock);
    return known ? 0 : -1;
}

/* ---- the work of a conditional node ---- */

static void branch_fini(struct tow_soft_work *work)
{
    for (unsigned i = 0; work->branch.bodies != NULL && i < work->branch.count; i++) {
        tow_soft_graph_free(work->branch.bodies[i]);
    }
    free(work->branch.bodies);
    free(work->branch.handles);
    condition_unref(work->branch.condition);
}

/* Who copies a graph sees to its branches. */
const struct tow_soft_work_ops tow_soft_branch_ops = {tow_soft_work_no_run, branch_fini,
                                                      tow_soft_work_no_clone};

static bool is_within(const struct tow_soft_graph *graph, const struct tow_soft_graph *outer)
{
    while (graph != outer && graph->inside != NULL) {
        graph = graph->inside->graph;
    }
    return graph == outer;
}

static bool size_ok(CUgraphConditionalNodeType type, unsigned size)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
        return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return size != 0;
    default:
        return false;
    }
}

CUresult tow_soft_branch_build(struct tow_soft_ctx *ctx, const struct tow_soft_graph *graph,
                               const CUDA_CONDITIONAL_NODE_PARAMS *p,
                               struct tow_soft_work *ret_work)
{
    struct tow_soft_condition *condition = tow_soft_lookup(TOW_SOFT_CONDITION, p->handle);
    uint64_t ctx_handle = p->ctx != NULL ? TOW_SOFT_HANDLE(p->ctx) : ctx->object.handle;
    if (condition == NULL || condition->taken || condition->graph == NULL ||
        condition->ctx != ctx_handle || !is_within(graph, condition->graph) ||
        !size_ok(p->type, p->size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (p->size > BODIES_MAX) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_BRANCH,
                                 .branch = {.type = p->type, .count = p->size}};
    work.branch.condition = condition_ref(condition);
    work.branch.bodies = calloc(p->size, sizeof *work.branch.bodies);
    work.branch.handles = calloc(p->size, sizeof *work.branch.handles);
    bool failed = work.branch.bodies == NULL || work.branch.handles == NULL;
    for (unsigned i = 0; i < p->size && !failed; i++) {
        work.branch.bodies[i] = tow_soft_graph_create(false);
        failed = work.branch.bodies[i] == NULL;
        if (!failed) {
            work.branch.handles[i] = TOW_SOFT_POINTER(work.branch.bodies[i]->object.handle);
        }
    }
    if (failed) {
        tow_soft_work_fini(&work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_work = work;
    return CUDA_SUCCESS;
}

CUresult tow_soft_branch_copy(const struct tow_soft_work *from, struct tow_soft_work *ret_work)
{
    struct tow_soft_work work = {
        .kind = TOW_SOFT_WORK_BRANCH,
        .branch = {.type = from->branch.type, .count = from->branch.count}};
    work.branch.condition = condition_ref(from->branch.condition);
    work.branch.bodies = calloc(from->branch.count, sizeof *work.branch.bodies);
    bool failed = work.branch.bodies == NULL;
    for (unsigned i = 0; i < from->branch.count && !failed; i++) {
        work.branch.bodies[i] = tow_soft_graph_copy(from->branch.bodies[i], true);
        failed = work.branch.bodies[i] == NULL;
    }
    if (failed) {
        tow_soft_work_fini(&work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_work = work;
    return CUDA_SUCCESS;
}

void tow_soft_branch_adopt(struct tow_soft_work *work, const struct tow_soft_work *from)
{
    struct tow_soft_condition *condition = condition_ref(from->branch.condition);
    condition_unref(work->branch.condition);
    work->branch.condition = condition;
}

/* ---- what a body may hold ---- */

static CUresult graph_condition_takes(const struct tow_soft_condition *condition,
                                      CUgraphNodeType type, const struct tow_soft_work *work)
{
    switch (type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return work->branch.condition->ctx == condition->ctx ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return work->kind != TOW_SOFT_WORK_KERNEL ||
                       work->kernel.function->module->object.ctx->object.handle == condition->ctx
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_INVALID_VALUE;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return work->kind != TOW_SOFT_WORK_COPY ||
                       (work->copy.dst_array == NULL && work->copy.src_array == NULL)
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_GRAPH: {
        CUresult result = CUDA_SUCCESS;
        const struct tow_soft_graph *child = work->child.graph;
        for (size_t i = 0; i < child->count && result == CUDA_SUCCESS; i++) {
            result =
                graph_condition_takes(condition, child->nodes[i]->type, &child->nodes[i]->work);
        }
        return result;
    }
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult tow_soft_body_takes(const struct tow_soft_graph *graph, CUgraphNodeType type,
                             const struct tow_soft_work *work)
{
    unsigned depth = 0;
    const struct tow_soft_condition *condition = NULL;
    for (const struct tow_soft_node *node = graph->inside; node != NULL;
         node = node->graph->inside) {
        if (node->work.kind == TOW_SOFT_WORK_BRANCH) {
            condition = node->work.branch.condition;
        } else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
            return CUDA_ERROR_NOT_SUPPORTED; /* a child graph has none */
        }
        depth++;
    }
    if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL && depth >= NESTING_MAX) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return condition != NULL ? graph_condition_takes(condition, type, work) : CUDA_SUCCESS;
}

/* ---- entry point ---- */

static CUresult soft_cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out,
                                                    CUgraph hGraph, CUcontext hCtx,
                                                    unsigned int defaultLaunchValue,
                                                    unsigned int flags)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (hCtx != NULL) {
        ctx = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(hCtx));
        if (ctx == NULL || !ctx->alive) {
            return tow_soft_leave(CUDA_ERROR_INVALID_CONTEXT);
        }
    }
    struct tow_soft_graph *graph = tow_soft_graph_lookup(hGraph);
    if (pHandle_out == NULL || graph == NULL ||
        (flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_condition *condition = calloc(1, sizeof *condition);
    if (condition == NULL ||
        tow_soft_object_add(&condition->object, TOW_SOFT_CONDITION, NULL) != 0) {
        free(condition);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    condition->refs = 1;
    condition->ctx = ctx->object.handle;
    condition->assign = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
    condition->initial = defaultLaunchValue;
    condition->graph = graph;
    condition->next = graph->conditions;
    graph->conditions = condition;
    *pHandle_out = condition->object.handle;
    return tow_soft_leave(CUDA_SUCCESS);
}

void tow_soft_fill_graph_condition(struct tow_driver *driver)
{
    tow_driver_set(driver, cuGraphConditionalHandleCreate, soft_cuGraphConditionalHandleCreate);
}
