/* SPDX-License-Identifier: Apache-2.0 */
/* What graph nodes do: making them from their parameters, and asking and changing those. */
#include "backend/soft/code/launch.h"
#include "backend/soft/code/module.h"
#include "backend/soft/copy/copy.h"
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/graph/graph.h"
#include "backend/soft/ground/alloc.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/stream/stream.h"
#include "gen/graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- parameters to work
 * ------------------------------------------------------------------------------------ */

static CUresult build_kernel(struct tow_soft_ctx *ctx, const CUDA_KERNEL_NODE_PARAMS_v3 *p,
                             struct tow_soft_work *ret_work)
{
    if (p->ctx != NULL) {
        ctx = tow_soft_lookup(TOW_SOFT_CTX, TOW_SOFT_HANDLE(p->ctx));
        if (ctx == NULL || !ctx->alive) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
    }
    CUlaunchConfig config = {.gridDimX = p->gridDimX,
                             .gridDimY = p->gridDimY,
                             .gridDimZ = p->gridDimZ,
                             .blockDimX = p->blockDimX,
                             .blockDimY = p->blockDimY,
                             .blockDimZ = p->blockDimZ,
                             .sharedMemBytes = p->sharedMemBytes};
    CUfunction f = p->func != NULL ? p->func : (CUfunction)p->kern;
    return tow_soft_launch_build(ctx, &config, f, p->kernelParams, p->extra, ret_work);
}

static CUresult build_memops(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *p,
                             struct tow_soft_work *ret_work)
{
    CUresult result =
        p->count == 0 ? CUDA_ERROR_INVALID_VALUE : tow_soft_memops_check(p->paramArray, p->count);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_MEMOPS,
                                 .memops = {.count = p->count, .flags = p->flags}};
    work.memops.ops = malloc(p->count * sizeof *work.memops.ops);
    if (work.memops.ops == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(work.memops.ops, p->paramArray, p->count * sizeof *work.memops.ops);
    *ret_work = work;
    return CUDA_SUCCESS;
}

static CUresult build_event(enum tow_soft_work_kind kind, CUevent handle,
                            struct tow_soft_work *ret_work)
{
    struct tow_soft_event *event = tow_soft_lookup(TOW_SOFT_EVENT, TOW_SOFT_HANDLE(handle));
    if (event == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_work = (struct tow_soft_work){.kind = kind, .event = {.event = event->object.handle}};
    return CUDA_SUCCESS;
}

static CUresult build_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *p, struct tow_soft_work *ret_work)
{
    if (p->bytesize == 0 || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        p->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (tow_soft_device_of(p->poolProps.location.id) == NULL) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct tow_soft_work work = {.kind = TOW_SOFT_WORK_ALLOC, .alloc = {.size = p->bytesize}};
    work.alloc.va = tow_soft_graph_va_create(p->poolProps.location.id, p->bytesize);
    if (work.alloc.va == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    work.alloc.params.poolProps = p->poolProps;
    work.alloc.params.bytesize = p->bytesize;
    work.alloc.params.dptr = work.alloc.va->base;
    *ret_work = work;
    return CUDA_SUCCESS;
}

static CUresult build_child(CUgraph handle, struct tow_soft_work *ret_work)
{
    struct tow_soft_graph *graph = tow_soft_graph_lookup(handle);
    if (graph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (tow_soft_graph_is_unique(graph)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct tow_soft_graph *copy = tow_soft_graph_copy(graph, false);
    if (copy == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_work = (struct tow_soft_work){.kind = TOW_SOFT_WORK_CHILD, .child = {.graph = copy}};
    return CUDA_SUCCESS;
}

CUresult tow_soft_node_build(struct tow_soft_ctx *ctx, const CUgraphNodeParams *p,
                             struct tow_soft_work *ret_work)
{
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return build_kernel(ctx, &p->kernel, ret_work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return tow_soft_copy_build(&p->memcpy.copyParams, ret_work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set;
        memcpy(&set, &p->memset, sizeof set);
        return tow_soft_set_build(&set, TOW_SOFT_BUILD_NODE, ret_work);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
        if (p->host.fn == NULL) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *ret_work = (struct tow_soft_work){.kind = TOW_SOFT_WORK_HOST,
                                           .host = {.fn = p->host.fn, .user = p->host.userData}};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return build_child(p->graph.graph, ret_work);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        *ret_work = (struct tow_soft_work){.kind = TOW_SOFT_WORK_EMPTY};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return build_event(TOW_SOFT_WORK_WAIT, p->eventWait.event, ret_work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return build_event(TOW_SOFT_WORK_RECORD, p->eventRecord.event, ret_work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return build_alloc(&p->alloc, ret_work);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        if (p->free.dptr == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *ret_work = (struct tow_soft_work){.kind = TOW_SOFT_WORK_FREE,
                                           .release = {.address = p->free.dptr}};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return build_memops(&p->memOp, ret_work);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult tow_soft_node_replace(struct tow_soft_node *node, struct tow_soft_work *work)
{
    if (tow_soft_node_type_of(work) != node->type) {
        tow_soft_work_fini(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    tow_soft_work_fini(&node->work);
    free(node->param_pointers);
    node->param_pointers = NULL;
    node->work = *work;
    memset(work, 0, sizeof *work);
    return CUDA_SUCCESS;
}

/* ---- adding
 * --------------------------------------------------------------------------------------------------
 */

static CUresult graph_nodes_add(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                                size_t count, CUgraphNodeParams *params)
{
    struct tow_soft_ctx *ctx = NULL;
    /* A node that does nothing needs no context. */
    CUresult result = params != NULL && params->type == CU_GRAPH_NODE_TYPE_EMPTY
                          ? tow_soft_enter_any()
                          : tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_graph *graph = tow_soft_graph_lookup(hGraph);
    if (phGraphNode == NULL || graph == NULL || params == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_work work;
    result = params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL
                 ? tow_soft_branch_build(ctx, graph, &params->conditional, &work)
                 : tow_soft_node_build(ctx, params, &work);
    if (result != CUDA_SUCCESS) {
        return tow_soft_leave(result);
    }
    struct tow_soft_node *node;
    result = tow_soft_graph_add(graph, dependencies, data, count, params->type, &work, &node);
    if (result == CUDA_SUCCESS) {
        *phGraphNode = TOW_SOFT_POINTER(node->object.handle);
        if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            params->alloc.dptr = node->work.alloc.va->base;
        } else if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
            params->conditional.phGraph_out = node->work.branch.handles;
        }
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                       const CUgraphNode *dependencies,
                                       const CUgraphEdgeData *dependencyData,
                                       size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    return graph_nodes_add(phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                           nodeParams);
}

static CUresult soft_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                    const CUgraphNode *dependencies, size_t numDependencies,
                                    CUgraphNodeParams *nodeParams)
{
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

/* Fills the union of the general form from one of the older ones. */
#define GENERAL(name, node_type, member, pointer, bytes)                                           \
    CUgraphNodeParams name;                                                                        \
    memset(&name, 0, sizeof name);                                                                 \
    name.type = node_type;                                                                         \
    if ((pointer) == NULL) {                                                                       \
        return CUDA_ERROR_INVALID_VALUE;                                                           \
    }                                                                                              \
    memcpy(&name.member, pointer, bytes)

static CUresult soft_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                             const CUgraphNode *dependencies,
                                             size_t numDependencies,
                                             const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_KERNEL, kernel, nodeParams, sizeof *nodeParams);
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                          const CUgraphNode *dependencies, size_t numDependencies,
                                          const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_KERNEL, kernel, nodeParams, sizeof *nodeParams);
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                          const CUgraphNode *dependencies, size_t numDependencies,
                                          const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_MEMCPY, memcpy.copyParams, copyParams, sizeof *copyParams);
    p.memcpy.copyCtx = ctx;
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                          const CUgraphNode *dependencies, size_t numDependencies,
                                          const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                          CUcontext ctx)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_MEMSET, memset, memsetParams, sizeof *memsetParams);
    p.memset.ctx = ctx;
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                        const CUgraphNode *dependencies, size_t numDependencies,
                                        const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_HOST, host, nodeParams, sizeof *nodeParams);
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                              const CUgraphNode *dependencies,
                                              size_t numDependencies, CUgraph childGraph)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                         const CUgraphNode *dependencies, size_t numDependencies)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                               const CUgraphNode *dependencies,
                                               size_t numDependencies, CUevent event)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                           .eventRecord = {.event = event}};
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                             const CUgraphNode *dependencies,
                                             size_t numDependencies, CUevent event)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event}};
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                              const CUgraphNode *dependencies,
                                              size_t numDependencies,
                                              const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, memOp, nodeParams, sizeof *nodeParams);
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

static CUresult soft_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                            const CUgraphNode *dependencies, size_t numDependencies,
                                            CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_MEM_ALLOC, alloc, nodeParams, sizeof *nodeParams);
    CUresult result = graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
    if (result == CUDA_SUCCESS) {
        nodeParams->dptr = p.alloc.dptr;
    }
    return result;
}

static CUresult soft_cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                           const CUgraphNode *dependencies, size_t numDependencies,
                                           CUdeviceptr dptr)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = dptr}};
    return graph_nodes_add(phGraphNode, hGraph, dependencies, NULL, numDependencies, &p);
}

/* ---- asking
 * ----------------------------------------------------------------------------------------------------
 */

/* A node of one type whose work is still there; locked on success. */
static CUresult enter_node(CUgraphNode handle, CUgraphNodeType type,
                           struct tow_soft_node **ret_node)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_node *node = tow_soft_node_lookup(handle);
    if (node == NULL || node->type != type) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (tow_soft_node_type_of(&node->work) != type) {
        return tow_soft_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    *ret_node = node;
    return CUDA_SUCCESS;
}

static CUresult kernel_params(struct tow_soft_node *node, CUDA_KERNEL_NODE_PARAMS *out)
{
    const struct tow_soft_kernel_work *kernel = &node->work.kernel;
    const struct tow_ptx_kernel_info *info = &kernel->function->info;
    if (node->param_pointers == NULL) {
        node->param_pointers = calloc(info->param_count + 1, sizeof *node->param_pointers);
        if (node->param_pointers == NULL) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        for (uint32_t i = 0; i < info->param_count; i++) {
            node->param_pointers[i] = kernel->params + info->params[i].offset;
        }
    }
    memset(out, 0, sizeof *out);
    out->func = TOW_SOFT_POINTER(kernel->function->object.handle);
    if (kernel->through_kernel) {
        out->kern = TOW_SOFT_POINTER(kernel->function->of_kernel);
    }
    out->gridDimX = kernel->grid[0];
    out->gridDimY = kernel->grid[1];
    out->gridDimZ = kernel->grid[2];
    out->blockDimX = kernel->block[0];
    out->blockDimY = kernel->block[1];
    out->blockDimZ = kernel->block[2];
    out->sharedMemBytes = kernel->shared;
    out->kernelParams = node->param_pointers;
    out->ctx = TOW_SOFT_POINTER(kernel->function->module->object.ctx->object.handle);
    return CUDA_SUCCESS;
}

static CUresult soft_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                                   CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return tow_soft_leave(nodeParams == NULL ? CUDA_ERROR_INVALID_VALUE
                                             : kernel_params(node, nodeParams));
}

static CUresult soft_cuGraphKernelNodeGetParams(CUgraphNode hNode,
                                                CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS wide;
    CUresult result = nodeParams == NULL ? CUDA_ERROR_INVALID_VALUE
                                         : soft_cuGraphKernelNodeGetParams_v2(hNode, &wide);
    if (result == CUDA_SUCCESS) {
        memcpy(nodeParams, &wide, sizeof *nodeParams);
    }
    return result;
}

static CUresult soft_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (nodeParams == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *nodeParams = node->work.copy.desc;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphMemsetNodeGetParams(CUgraphNode hNode,
                                                CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_MEMSET, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (nodeParams == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    const struct tow_soft_set_work *set = &node->work.set;
    *nodeParams = (CUDA_MEMSET_NODE_PARAMS){.dst = set->dst,
                                            .pitch = set->pitch,
                                            .value = set->value,
                                            .elementSize = set->element,
                                            .width = set->width,
                                            .height = set->height};
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_HOST, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (nodeParams == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *nodeParams = (CUDA_HOST_NODE_PARAMS){node->work.host.fn, node->work.host.user};
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_GRAPH, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (phGraph == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *phGraph = TOW_SOFT_POINTER(node->work.child.graph->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult get_event(CUgraphNode hNode, CUgraphNodeType type, CUevent *event_out)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, type, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (event_out == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *event_out = TOW_SOFT_POINTER(node->work.event.event);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    return get_event(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

static CUresult soft_cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    return get_event(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

static CUresult soft_cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                                    CUDA_BATCH_MEM_OP_NODE_PARAMS *out)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (out == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *out = (CUDA_BATCH_MEM_OP_NODE_PARAMS){.count = node->work.memops.count,
                                           .paramArray = node->work.memops.ops,
                                           .flags = node->work.memops.flags};
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                                  CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (params_out == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *params_out = node->work.alloc.params;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (dptr_out == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *dptr_out = node->work.release.address;
    return tow_soft_leave(CUDA_SUCCESS);
}

/* ---- changing
 * ---------------------------------------------------------------------------------------------------
 */

static bool is_settable(CUgraphNodeType type)
{
    return type != CU_GRAPH_NODE_TYPE_GRAPH && type != CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
           type != CU_GRAPH_NODE_TYPE_MEM_FREE && type != CU_GRAPH_NODE_TYPE_EMPTY &&
           type != CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

/* In a graph (exec NULL) or in an instance of it. */
static CUresult graph_nodes_change(CUgraphExec hExec, bool in_exec, CUgraphNode hNode,
                                   const CUgraphNodeParams *params)
{
    struct tow_soft_ctx *ctx;
    CUresult result = tow_soft_enter(&ctx);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_node *node = NULL;
    if (in_exec) {
        struct tow_soft_exec *exec = tow_soft_lookup(TOW_SOFT_EXEC, TOW_SOFT_HANDLE(hExec));
        result = exec != NULL ? tow_soft_exec_own(exec) : CUDA_ERROR_INVALID_VALUE;
        if (result != CUDA_SUCCESS) {
            return tow_soft_leave(result);
        }
        node = tow_soft_exec_node(exec, hNode);
    } else {
        node = tow_soft_node_lookup(hNode);
    }
    if (node == NULL || params == NULL || node->type != params->type || !is_settable(node->type)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_work work;
    result = tow_soft_node_build(ctx, params, &work);
    if (result == CUDA_SUCCESS && work.kind == TOW_SOFT_WORK_KERNEL &&
        node->work.kind == TOW_SOFT_WORK_KERNEL) {
        /* Attributes belong to the node, not to the parameters. */
        memcpy(work.kernel.attrs, node->work.kernel.attrs, sizeof work.kernel.attrs);
        work.kernel.attr_count = node->work.kernel.attr_count;
        work.kernel.cooperative = node->work.kernel.cooperative;
        memcpy(work.kernel.cluster, node->work.kernel.cluster, sizeof work.kernel.cluster);
        work.kernel.priority = node->work.kernel.priority;
    }
    if (result == CUDA_SUCCESS) {
        result = tow_soft_node_replace(node, &work);
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    return graph_nodes_change(NULL, false, hNode, nodeParams);
}

static CUresult soft_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              CUgraphNodeParams *nodeParams)
{
    return nodeParams != NULL && nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH
               ? tow_soft_exec_set_child(hGraphExec, hNode, nodeParams->graph.graph)
               : graph_nodes_change(hGraphExec, true, hNode, nodeParams);
}

static CUresult soft_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_KERNEL, kernel, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(NULL, false, hNode, &p);
}

static CUresult soft_cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_KERNEL, kernel, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(NULL, false, hNode, &p);
}

static CUresult soft_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                       const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_KERNEL, kernel, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(hGraphExec, true, hNode, &p);
}

static CUresult soft_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_KERNEL, kernel, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(hGraphExec, true, hNode, &p);
}

static CUresult soft_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_MEMCPY, memcpy.copyParams, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(NULL, false, hNode, &p);
}

static CUresult soft_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_MEMCPY, memcpy.copyParams, copyParams, sizeof *copyParams);
    p.memcpy.copyCtx = ctx;
    return graph_nodes_change(hGraphExec, true, hNode, &p);
}

static CUresult soft_cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                                const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_MEMSET, memset, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(NULL, false, hNode, &p);
}

static CUresult soft_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                                    CUcontext ctx)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_MEMSET, memset, memsetParams, sizeof *memsetParams);
    p.memset.ctx = ctx;
    return graph_nodes_change(hGraphExec, true, hNode, &p);
}

static CUresult soft_cuGraphHostNodeSetParams(CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_HOST, host, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(NULL, false, hNode, &p);
}

static CUresult soft_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                  const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_HOST, host, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(hGraphExec, true, hNode, &p);
}

static CUresult soft_cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                           .eventRecord = {.event = event}};
    return graph_nodes_change(NULL, false, hNode, &p);
}

static CUresult soft_cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event}};
    return graph_nodes_change(NULL, false, hNode, &p);
}

static CUresult soft_cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                        CUevent event)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                           .eventRecord = {.event = event}};
    return graph_nodes_change(hGraphExec, true, hNode, &p);
}

static CUresult soft_cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                      CUevent event)
{
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {.event = event}};
    return graph_nodes_change(hGraphExec, true, hNode, &p);
}

static CUresult soft_cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, memOp, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(NULL, false, hNode, &p);
}

static CUresult
soft_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    GENERAL(p, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, memOp, nodeParams, sizeof *nodeParams);
    return graph_nodes_change(hGraphExec, true, hNode, &p);
}

/* ---- attributes of kernel nodes
 * ------------------------------------------------------------------------------------ */

static CUresult soft_cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                                   CUkernelNodeAttrValue *value_out)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (value_out == NULL || (int)attr <= CU_LAUNCH_ATTRIBUTE_IGNORE ||
        attr >= CU_LAUNCH_ATTRIBUTE_MAX) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    const struct tow_soft_kernel_work *kernel = &node->work.kernel;
    memset(value_out, 0, sizeof *value_out);
    for (unsigned i = 0; i < kernel->attr_count; i++) {
        if (kernel->attrs[i].id == attr) {
            *value_out = kernel->attrs[i].value;
        }
    }
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                                   const CUkernelNodeAttrValue *value)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (value == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_kernel_work *kernel = &node->work.kernel;
    switch ((int)attr) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        kernel->cooperative = value->cooperative != 0;
        break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        if (value->clusterDim.x == 0 || value->clusterDim.y == 0 || value->clusterDim.z == 0 ||
            kernel->grid[0] % value->clusterDim.x != 0 ||
            kernel->grid[1] % value->clusterDim.y != 0 ||
            kernel->grid[2] % value->clusterDim.z != 0) {
            return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
        }
        kernel->cluster[0] = value->clusterDim.x;
        kernel->cluster[1] = value->clusterDim.y;
        kernel->cluster[2] = value->clusterDim.z;
        break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        kernel->priority = value->priority;
        break;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        break;
    default:
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    unsigned at = 0;
    while (at < kernel->attr_count && kernel->attrs[at].id != attr) {
        at++;
    }
    if (at == sizeof kernel->attrs / sizeof *kernel->attrs) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    kernel->attrs[at] = (CUlaunchAttribute){.id = attr, .value = *value};
    kernel->attr_count += at == kernel->attr_count;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
    struct tow_soft_node *to;
    CUresult result = enter_node(dst, CU_GRAPH_NODE_TYPE_KERNEL, &to);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_node *from = tow_soft_node_lookup(src);
    if (from == NULL || from->work.kind != TOW_SOFT_WORK_KERNEL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    memcpy(to->work.kernel.attrs, from->work.kernel.attrs, sizeof to->work.kernel.attrs);
    to->work.kernel.attr_count = from->work.kernel.attr_count;
    to->work.kernel.cooperative = from->work.kernel.cooperative;
    to->work.kernel.priority = from->work.kernel.priority;
    memcpy(to->work.kernel.cluster, from->work.kernel.cluster, sizeof to->work.kernel.cluster);
    return tow_soft_leave(CUDA_SUCCESS);
}

void tow_soft_fill_graph_nodes(struct tow_driver *driver)
{
    tow_driver_set(driver, cuGraphAddNode, soft_cuGraphAddNode);
    tow_driver_set(driver, cuGraphAddNode_v2, soft_cuGraphAddNode_v2);
    tow_driver_set(driver, cuGraphAddKernelNode, soft_cuGraphAddKernelNode);
    tow_driver_set(driver, cuGraphAddKernelNode_v2, soft_cuGraphAddKernelNode_v2);
    tow_driver_set(driver, cuGraphAddMemcpyNode, soft_cuGraphAddMemcpyNode);
    tow_driver_set(driver, cuGraphAddMemsetNode, soft_cuGraphAddMemsetNode);
    tow_driver_set(driver, cuGraphAddHostNode, soft_cuGraphAddHostNode);
    tow_driver_set(driver, cuGraphAddChildGraphNode, soft_cuGraphAddChildGraphNode);
    tow_driver_set(driver, cuGraphAddEmptyNode, soft_cuGraphAddEmptyNode);
    tow_driver_set(driver, cuGraphAddEventRecordNode, soft_cuGraphAddEventRecordNode);
    tow_driver_set(driver, cuGraphAddEventWaitNode, soft_cuGraphAddEventWaitNode);
    tow_driver_set(driver, cuGraphAddBatchMemOpNode, soft_cuGraphAddBatchMemOpNode);
    tow_driver_set(driver, cuGraphAddMemAllocNode, soft_cuGraphAddMemAllocNode);
    tow_driver_set(driver, cuGraphAddMemFreeNode, soft_cuGraphAddMemFreeNode);
    tow_driver_set(driver, cuGraphKernelNodeGetParams, soft_cuGraphKernelNodeGetParams);
    tow_driver_set(driver, cuGraphKernelNodeGetParams_v2, soft_cuGraphKernelNodeGetParams_v2);
    tow_driver_set(driver, cuGraphMemcpyNodeGetParams, soft_cuGraphMemcpyNodeGetParams);
    tow_driver_set(driver, cuGraphMemsetNodeGetParams, soft_cuGraphMemsetNodeGetParams);
    tow_driver_set(driver, cuGraphHostNodeGetParams, soft_cuGraphHostNodeGetParams);
    tow_driver_set(driver, cuGraphChildGraphNodeGetGraph, soft_cuGraphChildGraphNodeGetGraph);
    tow_driver_set(driver, cuGraphEventRecordNodeGetEvent, soft_cuGraphEventRecordNodeGetEvent);
    tow_driver_set(driver, cuGraphEventWaitNodeGetEvent, soft_cuGraphEventWaitNodeGetEvent);
    tow_driver_set(driver, cuGraphBatchMemOpNodeGetParams, soft_cuGraphBatchMemOpNodeGetParams);
    tow_driver_set(driver, cuGraphMemAllocNodeGetParams, soft_cuGraphMemAllocNodeGetParams);
    tow_driver_set(driver, cuGraphMemFreeNodeGetParams, soft_cuGraphMemFreeNodeGetParams);
    tow_driver_set(driver, cuGraphNodeSetParams, soft_cuGraphNodeSetParams);
    tow_driver_set(driver, cuGraphExecNodeSetParams, soft_cuGraphExecNodeSetParams);
    tow_driver_set(driver, cuGraphKernelNodeSetParams, soft_cuGraphKernelNodeSetParams);
    tow_driver_set(driver, cuGraphKernelNodeSetParams_v2, soft_cuGraphKernelNodeSetParams_v2);
    tow_driver_set(driver, cuGraphExecKernelNodeSetParams, soft_cuGraphExecKernelNodeSetParams);
    tow_driver_set(driver, cuGraphExecKernelNodeSetParams_v2,
                   soft_cuGraphExecKernelNodeSetParams_v2);
    tow_driver_set(driver, cuGraphMemcpyNodeSetParams, soft_cuGraphMemcpyNodeSetParams);
    tow_driver_set(driver, cuGraphExecMemcpyNodeSetParams, soft_cuGraphExecMemcpyNodeSetParams);
    tow_driver_set(driver, cuGraphMemsetNodeSetParams, soft_cuGraphMemsetNodeSetParams);
    tow_driver_set(driver, cuGraphExecMemsetNodeSetParams, soft_cuGraphExecMemsetNodeSetParams);
    tow_driver_set(driver, cuGraphHostNodeSetParams, soft_cuGraphHostNodeSetParams);
    tow_driver_set(driver, cuGraphExecHostNodeSetParams, soft_cuGraphExecHostNodeSetParams);
    tow_driver_set(driver, cuGraphEventRecordNodeSetEvent, soft_cuGraphEventRecordNodeSetEvent);
    tow_driver_set(driver, cuGraphEventWaitNodeSetEvent, soft_cuGraphEventWaitNodeSetEvent);
    tow_driver_set(driver, cuGraphExecEventRecordNodeSetEvent,
                   soft_cuGraphExecEventRecordNodeSetEvent);
    tow_driver_set(driver, cuGraphExecEventWaitNodeSetEvent, soft_cuGraphExecEventWaitNodeSetEvent);
    tow_driver_set(driver, cuGraphBatchMemOpNodeSetParams, soft_cuGraphBatchMemOpNodeSetParams);
    tow_driver_set(driver, cuGraphExecBatchMemOpNodeSetParams,
                   soft_cuGraphExecBatchMemOpNodeSetParams);
    tow_driver_set(driver, cuGraphKernelNodeGetAttribute, soft_cuGraphKernelNodeGetAttribute);
    tow_driver_set(driver, cuGraphKernelNodeSetAttribute, soft_cuGraphKernelNodeSetAttribute);
    tow_driver_set(driver, cuGraphKernelNodeCopyAttributes, soft_cuGraphKernelNodeCopyAttributes);
}
