/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: nodes, edges, copies, user objects. */
#include "backend/soft/code/module.h"
#include "backend/soft/engine/capture.h"
#include "backend/soft/engine/engine.h"
#include "backend/soft/engine/work.h"
#include "backend/soft/graph/graph.h"
#include "backend/soft/ground/context.h"
#include "backend/soft/ground/fill.h"
#include "backend/soft/ground/handle.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/memory/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "gen/graph.h"

struct tow_soft_graph *tow_soft_graphs;

/* ---- user objects
 * --------------------------------------------------------------------------------------- */

struct tow_soft_user_object {
    struct tow_soft_object object;
    unsigned refs;
    CUhostFn destroy;
    void *pointer;
};

static void *destructor_thread(void *arg)
{
    struct tow_soft_user_object *object = arg;
    object->destroy(object->pointer);
    free(object);
    return NULL;
}

void tow_soft_user_object_put(struct tow_soft_user_object *object, unsigned count)
{
    object->refs -= count;
    if (object->refs != 0) {
        return;
    }
    tow_soft_object_remove(&object->object);
    /* The destructor may take its time and must not run under our lock. */
    pthread_t thread;
    if (tow_thread_start("tow-destroy", destructor_thread, object, &thread) == 0) {
        pthread_detach(thread);
    }
}

/* ---- structure
 * -------------------------------------------------------------------------------------------- */

struct tow_soft_graph *tow_soft_graph_create(bool anonymous)
{
    struct tow_soft_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL ||
        (!anonymous && tow_soft_object_add(&graph->object, TOW_SOFT_GRAPH, NULL) != 0)) {
        free(graph);
        return NULL;
    }
    graph->anonymous = anonymous;
    graph->next = tow_soft_graphs;
    if (graph->next != NULL) {
        graph->next->prev = graph;
    }
    tow_soft_graphs = graph;
    return graph;
}

void tow_soft_node_free(struct tow_soft_node *node)
{
    tow_soft_object_remove(&node->object);
    tow_soft_work_fini(&node->work);
    free(node->edges);
    free(node->param_pointers);
    free(node);
}

void tow_soft_graph_free(struct tow_soft_graph *graph)
{
    if (graph == NULL) {
        return;
    }
    tow_soft_capture_graph_gone(graph);
    for (size_t i = 0; i < graph->count; i++) {
        tow_soft_node_free(graph->nodes[i]);
    }
    for (size_t i = 0; i < graph->user_count; i++) {
        tow_soft_user_object_put(graph->users[i].object, graph->users[i].count);
    }
    tow_soft_conditions_drop(graph);
    free(graph->users);
    free(graph->nodes);
    free(graph->order);
    tow_soft_object_remove(&graph->object);
    if (graph->prev != NULL) {
        graph->prev->next = graph->next;
    } else {
        tow_soft_graphs = graph->next;
    }
    if (graph->next != NULL) {
        graph->next->prev = graph->prev;
    }
    free(graph);
}

static void child_fini(struct tow_soft_work *work)
{
    tow_soft_graph_free(work->child.graph);
}

/* Who copies a graph sees to its children. */
const struct tow_soft_work_ops tow_soft_child_ops = {tow_soft_work_no_run, child_fini,
                                                     tow_soft_work_no_clone};

void tow_soft_graphs_fini(void)
{
    for (;;) {
        struct tow_soft_graph *graph = tow_soft_graphs;
        while (graph != NULL && graph->inside != NULL) {
            graph = graph->next;
        }
        if (graph == NULL) {
            return;
        }
        tow_soft_graph_free(graph);
    }
}

static bool graph_wants(const struct tow_soft_work *work, const struct tow_soft_ctx *ctx)
{
    if (work->kind == TOW_SOFT_WORK_KERNEL) {
        return work->kernel.function->module->object.ctx == ctx;
    }
    return work->kind == TOW_SOFT_WORK_COPY &&
           ((work->copy.dst_array != NULL && work->copy.dst_array->object.ctx == ctx) ||
            (work->copy.src_array != NULL && work->copy.src_array->object.ctx == ctx));
}

static bool graph_needs(const struct tow_soft_graph *graph, const struct tow_soft_ctx *ctx)
{
    bool found = false;
    for (size_t i = 0; i < graph->count && !found; i++) {
        const struct tow_soft_work *work = &graph->nodes[i]->work;
        found = graph_wants(work, ctx) ||
                (work->kind == TOW_SOFT_WORK_CHILD && graph_needs(work->child.graph, ctx));
        for (unsigned b = 0; work->kind == TOW_SOFT_WORK_BRANCH && b < work->branch.count; b++) {
            found |= graph_needs(work->branch.bodies[b], ctx);
        }
    }
    return found;
}

/* Whether something runs just now that needs the context. Nothing else is waited for: host
 * functions of other contexts may themselves wait for whoever ends this one. */
static bool is_needed(const struct tow_soft_ctx *ctx)
{
    bool found = false;
    for (const struct tow_soft_op *op = tow_soft.running; op != NULL && !found; op = op->run_next) {
        found = graph_wants(&op->work, ctx) || (op->work.kind == TOW_SOFT_WORK_GRAPH &&
                                                graph_needs(op->work.graph.plan->graph, ctx));
    }
    return found;
}

void tow_soft_graphs_forget(struct tow_soft_ctx *ctx)
{
    while (is_needed(ctx)) {
        tow_mutex_wait(&tow_soft.lock, &tow_soft.changed);
    }
    for (struct tow_soft_graph *graph = tow_soft_graphs; graph != NULL; graph = graph->next) {
        for (size_t i = 0; i < graph->count; i++) {
            if (graph_wants(&graph->nodes[i]->work, ctx)) {
                tow_soft_work_fini(&graph->nodes[i]->work);
            }
        }
    }
}

struct tow_soft_graph *tow_soft_graph_lookup(CUgraph handle)
{
    return tow_soft_lookup(TOW_SOFT_GRAPH, TOW_SOFT_HANDLE(handle));
}

struct tow_soft_node *tow_soft_node_lookup(CUgraphNode handle)
{
    return tow_soft_lookup(TOW_SOFT_NODE, TOW_SOFT_HANDLE(handle));
}

CUgraphNodeType tow_soft_node_type_of(const struct tow_soft_work *work)
{
    switch (work->kind) {
    case TOW_SOFT_WORK_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case TOW_SOFT_WORK_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case TOW_SOFT_WORK_SET:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case TOW_SOFT_WORK_HOST:
        return CU_GRAPH_NODE_TYPE_HOST;
    case TOW_SOFT_WORK_RECORD:
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    case TOW_SOFT_WORK_WAIT:
        return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    case TOW_SOFT_WORK_MEMOPS:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    case TOW_SOFT_WORK_ALLOC:
        return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    case TOW_SOFT_WORK_FREE:
        return CU_GRAPH_NODE_TYPE_MEM_FREE;
    case TOW_SOFT_WORK_CHILD:
        return CU_GRAPH_NODE_TYPE_GRAPH;
    case TOW_SOFT_WORK_BRANCH:
        return CU_GRAPH_NODE_TYPE_CONDITIONAL;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

static int edge_add(struct tow_soft_node *to, struct tow_soft_node *from,
                    const CUgraphEdgeData *data)
{
    if (to->edge_count == to->edge_capacity) {
        size_t capacity = to->edge_capacity == 0 ? 4 : to->edge_capacity * 2;
        struct tow_soft_edge *grown = realloc(to->edges, capacity * sizeof *grown);
        if (grown == NULL) {
            return -ENOMEM;
        }
        to->edges = grown;
        to->edge_capacity = capacity;
    }
    struct tow_soft_edge edge = {.from = from};
    if (data != NULL) {
        edge.data = *data;
    }
    to->edges[to->edge_count++] = edge;
    return 0;
}

static bool edge_ok(const CUgraphEdgeData *data)
{
    return data == NULL ||
           (data->type <= CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && data->to_port == 0);
}

static bool has_edge(const struct tow_soft_node *to, const struct tow_soft_node *from,
                     size_t *ret_at)
{
    for (size_t i = 0; i < to->edge_count; i++) {
        if (to->edges[i].from == from) {
            *ret_at = i;
            return true;
        }
    }
    return false;
}

static int node_append(struct tow_soft_graph *graph, struct tow_soft_node *node)
{
    if (graph->count == graph->capacity) {
        size_t capacity = graph->capacity == 0 ? 16 : graph->capacity * 2;
        if (capacity > TOW_SOFT_NODES_MAX) {
            return -ENOMEM;
        }
        struct tow_soft_node **grown = realloc(graph->nodes, capacity * sizeof *grown);
        if (grown == NULL) {
            return -ENOMEM;
        }
        graph->nodes = grown;
        graph->capacity = capacity;
    }
    if (!graph->anonymous && tow_soft_object_add(&node->object, TOW_SOFT_NODE, NULL) != 0) {
        return -ENOMEM;
    }
    node->graph = graph;
    node->index = graph->count;
    if (node->work.kind == TOW_SOFT_WORK_CHILD) {
        node->work.child.graph->inside = node;
    }
    for (unsigned i = 0; node->work.kind == TOW_SOFT_WORK_BRANCH && i < node->work.branch.count;
         i++) {
        node->work.branch.bodies[i]->inside = node;
    }
    graph->nodes[graph->count++] = node;
    return 0;
}

CUresult tow_soft_graph_add(struct tow_soft_graph *graph, const CUgraphNode *from,
                            const CUgraphEdgeData *data, size_t count, CUgraphNodeType type,
                            struct tow_soft_work *work, struct tow_soft_node **ret_node)
{
    struct tow_soft_node *node = calloc(1, sizeof *node);
    CUresult result = node == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && count != 0 && from == NULL) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result == CUDA_SUCCESS) {
        result = tow_soft_body_takes(graph, type, work);
    }
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct tow_soft_node *before = tow_soft_node_lookup(from[i]);
        size_t at;
        if (before == NULL || before->graph != graph || has_edge(node, before, &at) ||
            !edge_ok(data != NULL ? &data[i] : NULL)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (edge_add(node, before, data != NULL ? &data[i] : NULL) != 0) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (result != CUDA_SUCCESS) {
        tow_soft_work_fini(work);
        if (node != NULL) {
            tow_soft_node_free(node);
        }
        return result;
    }
    node->type = type;
    node->work = *work;
    memset(work, 0, sizeof *work);
    if (node_append(graph, node) != 0) {
        tow_soft_node_free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (node->work.kind == TOW_SOFT_WORK_BRANCH) {
        node->work.branch.condition->taken = true;
    }
    *ret_node = node;
    return CUDA_SUCCESS;
}

struct tow_soft_graph *tow_soft_graph_copy(const struct tow_soft_graph *graph, bool anonymous)
{
    struct tow_soft_graph *copy = tow_soft_graph_create(anonymous);
    if (copy == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < graph->count; i++) {
        struct tow_soft_node *node = graph->nodes[i];
        node->index = i;
        struct tow_soft_node *twin = calloc(1, sizeof *twin);
        if (twin == NULL) {
            goto free_copy;
        }
        twin->type = node->type;
        twin->origin = node->object.handle != 0 ? node->object.handle : node->origin;
        twin->disabled = node->disabled;
        int rc;
        if (node->work.kind == TOW_SOFT_WORK_CHILD) {
            twin->work.kind = TOW_SOFT_WORK_CHILD;
            twin->work.child.graph = tow_soft_graph_copy(node->work.child.graph, anonymous);
            rc = twin->work.child.graph != NULL ? 0 : -ENOMEM;
        } else if (node->work.kind == TOW_SOFT_WORK_BRANCH) {
            rc = tow_soft_branch_copy(&node->work, &twin->work) == CUDA_SUCCESS ? 0 : -ENOMEM;
        } else {
            rc = tow_soft_work_clone(&node->work, &twin->work);
        }
        for (size_t e = 0; e < node->edge_count && rc == 0; e++) {
            rc = -ENOMEM;
            /* Edges may lead to nodes that come later in the list: filled in below. */
            if (edge_add(twin, node->edges[e].from, &node->edges[e].data) == 0) {
                rc = 0;
            }
        }
        if (rc != 0 || node_append(copy, twin) != 0) {
            tow_soft_node_free(twin);
            goto free_copy;
        }
    }
    for (size_t i = 0; i < copy->count; i++) {
        for (size_t e = 0; e < copy->nodes[i]->edge_count; e++) {
            copy->nodes[i]->edges[e].from = copy->nodes[copy->nodes[i]->edges[e].from->index];
        }
    }
    if (graph->user_count != 0) {
        copy->users = calloc(graph->user_count, sizeof *copy->users);
        if (copy->users == NULL) {
            goto free_copy;
        }
        for (size_t i = 0; i < graph->user_count; i++) {
            copy->users[i].object = graph->users[i].object;
            copy->users[i].count = graph->users[i].count;
            copy->users[i].object->refs += graph->users[i].count;
        }
        copy->user_count = graph->user_count;
    }
    return copy;

free_copy:
    tow_soft_graph_free(copy);
    return NULL;
}

int tow_soft_graph_order(struct tow_soft_graph *graph, struct tow_soft_node ***ret_order)
{
    struct tow_soft_node **order = calloc(graph->count + 1, sizeof *order);
    if (order == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < graph->count; i++) {
        graph->nodes[i]->index = i;
        graph->nodes[i]->pending = graph->nodes[i]->edge_count;
    }
    /* Repeated passes in creation order keep it wherever edges allow; nearly always one pass is
     * enough. */
    size_t done = 0;
    bool progress = true;
    while (done < graph->count && progress) {
        progress = false;
        for (size_t i = 0; i < graph->count; i++) {
            struct tow_soft_node *node = graph->nodes[i];
            if (node->pending == SIZE_MAX) {
                continue;
            }
            bool ready = true;
            for (size_t e = 0; e < node->edge_count && ready; e++) {
                ready = node->edges[e].from->pending == SIZE_MAX;
            }
            if (ready) {
                node->pending = SIZE_MAX;
                order[done++] = node;
                progress = true;
            }
        }
    }
    if (done < graph->count) {
        free(order);
        return -ELOOP;
    }
    *ret_order = order;
    return 0;
}

/* ---- entry points: graphs
 * ----------------------------------------------------------------------------------- */

static CUresult enter_graph(CUgraph handle, struct tow_soft_graph **ret_graph)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_graph = tow_soft_graph_lookup(handle);
    return *ret_graph != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult enter_node(CUgraphNode handle, struct tow_soft_node **ret_node)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_node = tow_soft_node_lookup(handle);
    return *ret_node != NULL ? CUDA_SUCCESS : tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult soft_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (phGraph == NULL || flags != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_graph *graph = tow_soft_graph_create(false);
    if (graph == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *phGraph = TOW_SOFT_POINTER(graph->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphDestroy(CUgraph hGraph)
{
    struct tow_soft_graph *graph;
    CUresult result = enter_graph(hGraph, &graph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (graph->inside != NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    tow_soft_graph_free(graph);
    return tow_soft_leave(CUDA_SUCCESS);
}

bool tow_soft_graph_is_unique(const struct tow_soft_graph *graph)
{
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNodeType type = graph->nodes[i]->type;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
            type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
            return true;
        }
    }
    return false;
}

static CUresult soft_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    struct tow_soft_graph *graph;
    CUresult result = enter_graph(originalGraph, &graph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (phGraphClone == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (tow_soft_graph_is_unique(graph)) {
        return tow_soft_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    struct tow_soft_graph *copy = tow_soft_graph_copy(graph, false);
    if (copy == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *phGraphClone = TOW_SOFT_POINTER(copy->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                            CUgraph hClonedGraph)
{
    struct tow_soft_graph *graph;
    CUresult result = enter_graph(hClonedGraph, &graph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (size_t i = 0; i < graph->count && phNode != NULL; i++) {
        if (graph->nodes[i]->origin == TOW_SOFT_HANDLE(hOriginalNode) && hOriginalNode != NULL) {
            *phNode = TOW_SOFT_POINTER(graph->nodes[i]->object.handle);
            return tow_soft_leave(CUDA_SUCCESS);
        }
    }
    return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult soft_cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (type == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    *type = node->type;
    return tow_soft_leave(CUDA_SUCCESS);
}

/* Hands out node handles as queries do: NULL array asks for the count; spare places become NULL. */
struct out_nodes {
    CUgraphNode *nodes;
    size_t capacity, count;
};

static void out_put(struct out_nodes *out, const struct tow_soft_node *node)
{
    if (out->nodes != NULL && out->count < out->capacity) {
        out->nodes[out->count] = TOW_SOFT_POINTER(node->object.handle);
    }
    out->count++;
}

static void out_done(struct out_nodes *out, size_t *ret_count)
{
    if (out->nodes == NULL) {
        *ret_count = out->count;
        return;
    }
    for (size_t i = out->count; i < out->capacity; i++) {
        out->nodes[i] = NULL;
    }
    *ret_count = out->count < out->capacity ? out->count : out->capacity;
}

static CUresult list_nodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes, bool roots_only)
{
    struct tow_soft_graph *graph;
    CUresult result = enter_graph(hGraph, &graph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (numNodes == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct out_nodes out = {.nodes = nodes, .capacity = *numNodes};
    for (size_t i = 0; i < graph->count; i++) {
        if (!roots_only || graph->nodes[i]->edge_count == 0) {
            out_put(&out, graph->nodes[i]);
        }
    }
    out_done(&out, numNodes);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    return list_nodes(hGraph, nodes, numNodes, false);
}

static CUresult soft_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes,
                                         size_t *numRootNodes)
{
    return list_nodes(hGraph, rootNodes, numRootNodes, true);
}

static CUresult soft_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                                        CUgraphEdgeData *edgeData, size_t *numEdges)
{
    struct tow_soft_graph *graph;
    CUresult result = enter_graph(hGraph, &graph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (numEdges == NULL || (from == NULL) != (to == NULL)) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct out_nodes sources = {.nodes = from, .capacity = *numEdges};
    struct out_nodes targets = {.nodes = to, .capacity = *numEdges};
    size_t capacity = *numEdges;
    for (size_t i = 0; i < graph->count; i++) {
        for (size_t e = 0; e < graph->nodes[i]->edge_count; e++) {
            if (edgeData != NULL && from != NULL && sources.count < capacity) {
                edgeData[sources.count] = graph->nodes[i]->edges[e].data;
            }
            out_put(&sources, graph->nodes[i]->edges[e].from);
            out_put(&targets, graph->nodes[i]);
        }
    }
    size_t ignored;
    out_done(&sources, numEdges);
    out_done(&targets, &ignored);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                                     size_t *numEdges)
{
    return soft_cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

static CUresult soft_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                                   CUgraphEdgeData *edgeData,
                                                   size_t *numDependencies)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (numDependencies == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct out_nodes out = {.nodes = dependencies, .capacity = *numDependencies};
    for (size_t i = 0; i < node->edge_count; i++) {
        if (edgeData != NULL && dependencies != NULL && out.count < out.capacity) {
            edgeData[out.count] = node->edges[i].data;
        }
        out_put(&out, node->edges[i].from);
    }
    out_done(&out, numDependencies);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                                size_t *numDependencies)
{
    return soft_cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

static CUresult soft_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                                     CUgraphEdgeData *edgeData,
                                                     size_t *numDependentNodes)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (numDependentNodes == NULL) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct out_nodes out = {.nodes = dependentNodes, .capacity = *numDependentNodes};
    for (size_t i = 0; i < node->graph->count; i++) {
        size_t at;
        if (has_edge(node->graph->nodes[i], node, &at)) {
            if (edgeData != NULL && dependentNodes != NULL && out.count < out.capacity) {
                edgeData[out.count] = node->graph->nodes[i]->edges[at].data;
            }
            out_put(&out, node->graph->nodes[i]);
        }
    }
    out_done(&out, numDependentNodes);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                                  size_t *numDependentNodes)
{
    return soft_cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

static CUresult soft_cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                               const CUgraphNode *to,
                                               const CUgraphEdgeData *edgeData,
                                               size_t numDependencies)
{
    struct tow_soft_graph *graph;
    CUresult result = enter_graph(hGraph, &graph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (size_t i = 0; i < numDependencies && result == CUDA_SUCCESS; i++) {
        struct tow_soft_node *source = from != NULL ? tow_soft_node_lookup(from[i]) : NULL;
        struct tow_soft_node *target = to != NULL ? tow_soft_node_lookup(to[i]) : NULL;
        size_t at;
        if (source == NULL || target == NULL || source->graph != graph || target->graph != graph ||
            source == target || has_edge(target, source, &at) ||
            !edge_ok(edgeData != NULL ? &edgeData[i] : NULL)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (edge_add(target, source, edgeData != NULL ? &edgeData[i] : NULL) != 0) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from,
                                            const CUgraphNode *to, size_t numDependencies)
{
    return soft_cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

static CUresult soft_cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                                  const CUgraphNode *to,
                                                  const CUgraphEdgeData *edgeData,
                                                  size_t numDependencies)
{
    (void)edgeData;
    struct tow_soft_graph *graph;
    CUresult result = enter_graph(hGraph, &graph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (size_t i = 0; i < numDependencies && result == CUDA_SUCCESS; i++) {
        struct tow_soft_node *source = from != NULL ? tow_soft_node_lookup(from[i]) : NULL;
        struct tow_soft_node *target = to != NULL ? tow_soft_node_lookup(to[i]) : NULL;
        size_t at;
        if (source == NULL || target == NULL || target->graph != graph ||
            !has_edge(target, source, &at)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            target->edges[at] = target->edges[--target->edge_count];
        }
    }
    return tow_soft_leave(result);
}

static CUresult soft_cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from,
                                               const CUgraphNode *to, size_t numDependencies)
{
    return soft_cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

static CUresult soft_cuGraphDestroyNode(CUgraphNode hNode)
{
    struct tow_soft_node *node;
    CUresult result = enter_node(hNode, &node);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        return tow_soft_leave(CUDA_ERROR_NOT_SUPPORTED);
    }
    struct tow_soft_graph *graph = node->graph;
    size_t kept = 0;
    for (size_t i = 0; i < graph->count; i++) {
        size_t at;
        if (has_edge(graph->nodes[i], node, &at)) {
            struct tow_soft_node *after = graph->nodes[i];
            after->edges[at] = after->edges[--after->edge_count];
        }
        if (graph->nodes[i] != node) {
            graph->nodes[kept++] = graph->nodes[i];
        }
    }
    graph->count = kept;
    tow_soft_node_free(node);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    static const char *const names[] = {"KERNEL", "MEMCPY", "MEMSET", "HOST",       "GRAPH",
                                        "EMPTY",  "WAIT",   "RECORD", "EXT_SIGNAL", "EXT_WAIT",
                                        "ALLOC",  "FREE",   "MEMOPS", "CONDITIONAL"};
    (void)flags;
    struct tow_soft_graph *graph;
    CUresult result = enter_graph(hGraph, &graph);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    FILE *file = path != NULL ? fopen(path, "we") : NULL;
    if (file == NULL) {
        return tow_soft_leave(path == NULL ? CUDA_ERROR_INVALID_VALUE
                                           : CUDA_ERROR_OPERATING_SYSTEM);
    }
    fprintf(file, "digraph towline {\n");
    for (size_t i = 0; i < graph->count; i++) {
        struct tow_soft_node *node = graph->nodes[i];
        node->index = i;
        fprintf(file, "  n%zu [label=\"%zu %s%s%s\"];\n", i, i, names[node->type],
                node->work.kind == TOW_SOFT_WORK_KERNEL ? " " : "",
                node->work.kind == TOW_SOFT_WORK_KERNEL ? node->work.kernel.function->info.name
                                                        : "");
    }
    for (size_t i = 0; i < graph->count; i++) {
        for (size_t e = 0; e < graph->nodes[i]->edge_count; e++) {
            fprintf(file, "  n%zu -> n%zu;\n", graph->nodes[i]->edges[e].from->index, i);
        }
    }
    fprintf(file, "}\n");
    bool failed = ferror(file) != 0;
    failed |= fclose(file) != 0;
    return tow_soft_leave(failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS);
}

/* ---- entry points: user objects
 * ------------------------------------------------------------------------------- */

static CUresult soft_cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                                        unsigned int initialRefcount, unsigned int flags)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (object_out == NULL || destroy == NULL || initialRefcount == 0 ||
        initialRefcount > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    struct tow_soft_user_object *object = calloc(1, sizeof *object);
    if (object == NULL || tow_soft_object_add(&object->object, TOW_SOFT_USER_OBJECT, NULL) != 0) {
        free(object);
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    object->refs = initialRefcount;
    object->destroy = destroy;
    object->pointer = ptr;
    *object_out = TOW_SOFT_POINTER(object->object.handle);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult enter_user_object(CUuserObject handle, unsigned count,
                                  struct tow_soft_user_object **ret_object)
{
    CUresult result = tow_soft_enter_any();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *ret_object = tow_soft_lookup(TOW_SOFT_USER_OBJECT, TOW_SOFT_HANDLE(handle));
    return *ret_object != NULL && count != 0 && count <= INT32_MAX
               ? CUDA_SUCCESS
               : tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult soft_cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
    struct tow_soft_user_object *object;
    CUresult result = enter_user_object(handle, count, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    object->refs += count;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
    struct tow_soft_user_object *object;
    CUresult result = enter_user_object(handle, count, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (count > object->refs) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    tow_soft_user_object_put(object, count);
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphRetainUserObject(CUgraph hGraph, CUuserObject handle,
                                             unsigned int count, unsigned int flags)
{
    struct tow_soft_user_object *object;
    CUresult result = enter_user_object(handle, count, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_graph *graph = tow_soft_graph_lookup(hGraph);
    if (graph == NULL || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0) {
        return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
    }
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) {
        object->refs += count;
    }
    for (size_t i = 0; i < graph->user_count; i++) {
        if (graph->users[i].object == object) {
            graph->users[i].count += count;
            return tow_soft_leave(CUDA_SUCCESS);
        }
    }
    void *grown = realloc(graph->users, (graph->user_count + 1) * sizeof *graph->users);
    if (grown == NULL) {
        return tow_soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    graph->users = grown;
    graph->users[graph->user_count].object = object;
    graph->users[graph->user_count++].count = count;
    return tow_soft_leave(CUDA_SUCCESS);
}

static CUresult soft_cuGraphReleaseUserObject(CUgraph hGraph, CUuserObject handle,
                                              unsigned int count)
{
    struct tow_soft_user_object *object;
    CUresult result = enter_user_object(handle, count, &object);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct tow_soft_graph *graph = tow_soft_graph_lookup(hGraph);
    for (size_t i = 0; graph != NULL && i < graph->user_count; i++) {
        if (graph->users[i].object == object && graph->users[i].count >= count) {
            graph->users[i].count -= count;
            if (graph->users[i].count == 0) {
                graph->users[i] = graph->users[--graph->user_count];
            }
            tow_soft_user_object_put(object, count);
            return tow_soft_leave(CUDA_SUCCESS);
        }
    }
    return tow_soft_leave(CUDA_ERROR_INVALID_VALUE);
}

void tow_soft_fill_graph(struct tow_driver *driver)
{
    tow_driver_set(driver, cuGraphCreate, soft_cuGraphCreate);
    tow_driver_set(driver, cuGraphDestroy, soft_cuGraphDestroy);
    tow_driver_set(driver, cuGraphClone, soft_cuGraphClone);
    tow_driver_set(driver, cuGraphNodeFindInClone, soft_cuGraphNodeFindInClone);
    tow_driver_set(driver, cuGraphNodeGetType, soft_cuGraphNodeGetType);
    tow_driver_set(driver, cuGraphGetNodes, soft_cuGraphGetNodes);
    tow_driver_set(driver, cuGraphGetRootNodes, soft_cuGraphGetRootNodes);
    tow_driver_set(driver, cuGraphGetEdges, soft_cuGraphGetEdges);
    tow_driver_set(driver, cuGraphGetEdges_v2, soft_cuGraphGetEdges_v2);
    tow_driver_set(driver, cuGraphNodeGetDependencies, soft_cuGraphNodeGetDependencies);
    tow_driver_set(driver, cuGraphNodeGetDependencies_v2, soft_cuGraphNodeGetDependencies_v2);
    tow_driver_set(driver, cuGraphNodeGetDependentNodes, soft_cuGraphNodeGetDependentNodes);
    tow_driver_set(driver, cuGraphNodeGetDependentNodes_v2, soft_cuGraphNodeGetDependentNodes_v2);
    tow_driver_set(driver, cuGraphAddDependencies, soft_cuGraphAddDependencies);
    tow_driver_set(driver, cuGraphAddDependencies_v2, soft_cuGraphAddDependencies_v2);
    tow_driver_set(driver, cuGraphRemoveDependencies, soft_cuGraphRemoveDependencies);
    tow_driver_set(driver, cuGraphRemoveDependencies_v2, soft_cuGraphRemoveDependencies_v2);
    tow_driver_set(driver, cuGraphDestroyNode, soft_cuGraphDestroyNode);
    tow_driver_set(driver, cuGraphDebugDotPrint, soft_cuGraphDebugDotPrint);
    tow_driver_set(driver, cuUserObjectCreate, soft_cuUserObjectCreate);
    tow_driver_set(driver, cuUserObjectRetain, soft_cuUserObjectRetain);
    tow_driver_set(driver, cuUserObjectRelease, soft_cuUserObjectRelease);
    tow_driver_set(driver, cuGraphRetainUserObject, soft_cuGraphRetainUserObject);
    tow_driver_set(driver, cuGraphReleaseUserObject, soft_cuGraphReleaseUserObject);
}
