/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as a whole: the older forms of calls, launching, updating, user objects. */
#include "client/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mutex.h"
#include "client/stream/context.h"
#include "client/callback/hostfn.h"
#include "client/graph/graph_built.h"
#include "client/code/launch.h"
#include "client/hostmem/mirror.h"
#include "gen/graph_client.h"
#include "wire/id.h"

/* ---- user objects ---- */

struct user_object {
    void *data; /* the program's */
    CUhostFn destroy;
    unsigned uses; /* the program's own and those of graphs */
};

/* References that a graph or an executable graph holds. */
struct holding {
    uint64_t graph, object;
    unsigned uses;
    struct holding *next;
};

/* Process-wide: user objects belong to no context, and their destructors are the program's. */
static struct {
    struct tow_mutex lock; /* guards all here, and the objects' counts */
    struct holding *holdings;
} objects = {.lock = TOW_MUTEX(CLIENT_GRAPH_OBJECTS)};

static struct user_object *object_of(CUuserObject object)
{
    return towc_handle_object(TOW_H_USEROBJECT, (uint64_t)(uintptr_t)object);
}

/* Gives references back; the last one ends the object. */
static void object_release(uint64_t id, unsigned count)
{
    struct user_object *ended = NULL;
    tow_mutex_lock(&objects.lock);
    struct user_object *object = towc_handle_object(TOW_H_USEROBJECT, id);
    if (object != NULL && (object->uses -= count < object->uses ? count : object->uses) == 0) {
        ended = towc_handle_retire(id);
    }
    tow_mutex_unlock(&objects.lock);
    if (ended != NULL) {
        ended->destroy(ended->data);
        free(ended);
    }
}

CUresult towc_cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                                 unsigned int initialRefcount, unsigned int flags)
{
    if (object_out == NULL || destroy == NULL || initialRefcount == 0 ||
        initialRefcount > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct user_object *object = malloc(sizeof *object);
    uint64_t id = 0;
    if (object == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *object = (struct user_object){ptr, destroy, initialRefcount};
    CUresult status = towc_handle_mint_object(TOW_H_USEROBJECT, object, &id);
    if (status != CUDA_SUCCESS) {
        free(object);
        return status;
    }
    *object_out = (CUuserObject)(uintptr_t)id;
    return CUDA_SUCCESS;
}

CUresult towc_cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    tow_mutex_lock(&objects.lock);
    struct user_object *found = object_of(object);
    bool wrong = found == NULL || count == 0 || count > INT32_MAX;
    if (!wrong) {
        found->uses += count;
    }
    tow_mutex_unlock(&objects.lock);
    return wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult towc_cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    if (object_of(object) == NULL || count == 0 || count > INT32_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    object_release((uint64_t)(uintptr_t)object, count);
    return CUDA_SUCCESS;
}

/* With the object lock held. */
static bool graph_hold(uint64_t graph, uint64_t object, unsigned count)
{
    struct holding *h = objects.holdings;
    while (h != NULL && (h->graph != graph || h->object != object)) {
        h = h->next;
    }
    if (h == NULL) {
        h = calloc(1, sizeof *h);
        if (h == NULL) {
            return false;
        }
        h->graph = graph;
        h->object = object;
        h->next = objects.holdings;
        objects.holdings = h;
    }
    h->uses += count;
    return true;
}

CUresult towc_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                      unsigned int flags)
{
    if (count == 0 || count > INT32_MAX || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) ||
        graph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = CUDA_SUCCESS;
    tow_mutex_lock(&objects.lock);
    struct user_object *found = object_of(object);
    if (found == NULL) {
        status = CUDA_ERROR_INVALID_VALUE;
    } else if (!graph_hold((uint64_t)(uintptr_t)graph, (uint64_t)(uintptr_t)object, count)) {
        status = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) {
        found->uses += count;
    }
    tow_mutex_unlock(&objects.lock);
    return status;
}

CUresult towc_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    uint64_t key = (uint64_t)(uintptr_t)graph, id = (uint64_t)(uintptr_t)object;
    tow_mutex_lock(&objects.lock);
    struct holding **at = &objects.holdings;
    while (*at != NULL && ((*at)->graph != key || (*at)->object != id)) {
        at = &(*at)->next;
    }
    struct holding *h = *at;
    /* What the graph does not hold it can release. */
    bool nothing =
        h == NULL && count > 0 && object_of(object) != NULL && towc_handle_valid(TOW_H_GRAPH, key);
    bool wrong = h == NULL || count == 0 || count > h->uses;
    if (!wrong && (h->uses -= count) == 0) {
        *at = h->next;
        free(h);
    }
    tow_mutex_unlock(&objects.lock);
    if (wrong) {
        return nothing ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    object_release(id, count);
    return CUDA_SUCCESS;
}

void towc_graph_share_objects(uint64_t from, uint64_t to)
{
    tow_mutex_lock(&objects.lock);
    for (struct holding *h = objects.holdings; h != NULL; h = h->next) {
        struct user_object *object =
            h->graph == from ? towc_handle_object(TOW_H_USEROBJECT, h->object) : NULL;
        if (object != NULL && graph_hold(to, h->object, h->uses)) {
            object->uses += h->uses;
        }
    }
    tow_mutex_unlock(&objects.lock);
}

void towc_graph_drop_objects(uint64_t key)
{
    for (;;) {
        tow_mutex_lock(&objects.lock);
        struct holding **at = &objects.holdings;
        while (*at != NULL && (*at)->graph != key) {
            at = &(*at)->next;
        }
        struct holding *h = *at;
        if (h != NULL) {
            *at = h->next;
        }
        tow_mutex_unlock(&objects.lock);
        if (h == NULL) {
            return;
        }
        object_release(h->object, h->uses);
        free(h);
    }
}

/* ---- life of graphs ---- */

CUresult towc_cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    const struct towc_context *context = towc_context_current();
    uint64_t id = 0;
    CUresult status = towc_client_state();
    if (status == CUDA_SUCCESS && (phGraph == NULL || flags != 0)) {
        status = CUDA_ERROR_INVALID_VALUE;
    }
    if (status == CUDA_SUCCESS) {
        status = towc_built_graph(context != NULL ? context->link : towc_client_link(-1), &id);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    status = towc_send_cuGraphCreate((CUgraph)(uintptr_t)id, flags);
    if (status != CUDA_SUCCESS) {
        towc_built_end(id);
        return status;
    }
    *phGraph = (CUgraph)(uintptr_t)id;
    return CUDA_SUCCESS;
}

CUresult towc_cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    uint64_t id = 0;
    if (phGraphClone == NULL || originalGraph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_handle_mint(TOW_H_GRAPH, &id);
    if (status == CUDA_SUCCESS) {
        status = towc_send_cuGraphClone((CUgraph)(uintptr_t)id, originalGraph);
        if (status != CUDA_SUCCESS) {
            towc_handle_retire(id);
            return status;
        }
        towc_graph_share_objects((uint64_t)(uintptr_t)originalGraph, id);
        *phGraphClone = (CUgraph)(uintptr_t)id;
    }
    return status;
}

CUresult towc_cuGraphDestroy(CUgraph hGraph)
{
    uint64_t id = (uint64_t)(uintptr_t)hGraph;
    if (!towc_handle_valid(TOW_H_GRAPH, id)) {
        CUresult state = towc_client_state();
        return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_send_cuGraphDestroy(hGraph);
    if (status == CUDA_SUCCESS) {
        towc_graph_drop_objects(id);
        towc_built_end(id);
    }
    return status;
}

CUresult towc_cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    uint64_t id = (uint64_t)(uintptr_t)hGraphExec;
    if (!towc_handle_valid(TOW_H_GRAPHEXEC, id)) {
        CUresult state = towc_client_state();
        return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_send_cuGraphExecDestroy(hGraphExec);
    if (status == CUDA_SUCCESS) {
        towc_graph_drop_objects(id);
        towc_built_end(id);
    }
    return status;
}

/* A kernel that launches a graph knows it by the driver's own handle, which a program does not get.
 */
static bool for_kernels(unsigned long long flags)
{
    /* Process-wide: one line is enough. */
    static atomic_bool said;
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0) {
        return false;
    }
    if (!atomic_exchange(&said, true)) {
        tow_log(TOW_AREA_CLIENT, TOW_LOG_WARN,
                "graphs that kernels launch are not supported; docs/compatibility.md says why");
    }
    return true;
}

CUresult towc_cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                          unsigned long long flags)
{
    uint64_t id = 0;
    if (phGraphExec == NULL || hGraph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (for_kernels(flags)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult status = towc_built_exec((uint64_t)(uintptr_t)hGraph, &id);
    if (status == CUDA_SUCCESS) {
        status = towc_send_cuGraphInstantiateWithFlags((CUgraphExec)(uintptr_t)id, hGraph, flags);
        if (status != CUDA_SUCCESS) {
            towc_built_end(id);
            return status;
        }
        towc_graph_share_objects((uint64_t)(uintptr_t)hGraph, id);
        *phGraphExec = (CUgraphExec)(uintptr_t)id;
    }
    return status;
}

CUresult towc_cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
                                    CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    if (phErrorNode != NULL) {
        *phErrorNode = NULL;
    }
    if (logBuffer != NULL && bufferSize > 0) {
        logBuffer[0] = '\0';
    }
    return towc_cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

CUresult towc_cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    uint64_t id = 0;
    if (phGraphExec == NULL || hGraph == NULL || instantiateParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (for_kernels(instantiateParams->flags)) {
        instantiateParams->hErrNode_out = NULL;
        instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult status = towc_built_exec((uint64_t)(uintptr_t)hGraph, &id);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_call call;
    status = towc_call_begin(&call, TOW_FN_cuGraphInstantiateWithParams, 32,
                             TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        towc_built_end(id);
        return status;
    }
    tow_enc_u64(&call.enc, id);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)hGraph);
    tow_enc_u64(&call.enc, instantiateParams->flags);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)instantiateParams->hUploadStream);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        /* The outputs come with failures, too: the real result is among them. */
        instantiateParams->hErrNode_out = (CUgraphNode)(uintptr_t)tow_dec_u64(&call.dec);
        instantiateParams->result_out = (CUgraphInstantiateResult)tow_dec_u32(&call.dec);
        status = (CUresult)tow_dec_u32(&call.dec);
    }
    status = towc_call_end(&call, status);
    if (status != CUDA_SUCCESS) {
        towc_built_end(id);
        return status;
    }
    towc_graph_share_objects((uint64_t)(uintptr_t)hGraph, id);
    *phGraphExec = (CUgraphExec)(uintptr_t)id;
    return CUDA_SUCCESS;
}

/* Who is told of it by other means finds in the events that other processes know what the graph
 * recorded. */
static CUresult launch_and_wait(CUgraphExec exec, CUstream stream)
{
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuGraphLaunch, 16, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)exec);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)stream);
    return towc_call_end(&call, towc_call_wait(&call));
}

CUresult towc_cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
    struct towc_context *context = towc_context_current();
    if (context == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!towc_handle_valid(TOW_H_GRAPHEXEC, (uint64_t)(uintptr_t)hGraph)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_mirror_push(context->link);
    if (TOW_UNLIKELY(atomic_load_explicit(&context->link->hostfns.graphs, memory_order_relaxed))) {
        towc_hostfn_launched(context->link);
        if (atomic_load_explicit(&towc_captures, memory_order_relaxed) != 0) {
            towc_hostfn_doubled(); /* perhaps into a graph that is captured */
        }
    }
    if (status == CUDA_SUCCESS) {
        status = towc_event_graphs_wait() ? launch_and_wait(hGraph, hStream)
                                          : towc_send_cuGraphLaunch(hGraph, hStream);
        atomic_store_explicit(&context->link->worked, towc_link_sent(context->link),
                              memory_order_relaxed);
    }
    return towc_launch_wait_if_blocking(hStream, status);
}

CUresult towc_cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                   CUgraphExecUpdateResultInfo *resultInfo)
{
    if (resultInfo == NULL || hGraphExec == NULL || hGraph == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    towc_built_exec_changes((uint64_t)(uintptr_t)hGraphExec);
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuGraphExecUpdate_v2, 16, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)hGraphExec);
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)hGraph);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        resultInfo->errorNode = (CUgraphNode)(uintptr_t)tow_dec_u64(&call.dec);
        resultInfo->errorFromNode = (CUgraphNode)(uintptr_t)tow_dec_u64(&call.dec);
        resultInfo->result = (CUgraphExecUpdateResult)tow_dec_u32(&call.dec);
        status = (CUresult)tow_dec_u32(&call.dec);
    }
    return towc_call_end(&call, status);
}

CUresult towc_cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                                CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info = {0};
    CUresult status = towc_cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    if (hErrorNode_out != NULL) {
        *hErrorNode_out = info.errorNode;
    }
    if (updateResult_out != NULL) {
        *updateResult_out = info.result;
    }
    return status;
}

CUresult towc_cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                    unsigned int isEnabled)
{
    towc_built_exec_changes((uint64_t)(uintptr_t)hGraphExec);
    return towc_send_cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled);
}

CUresult towc_cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    if (hGraph == NULL || path == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuGraphDebugDotPrint, 16, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)hGraph);
    tow_enc_u32(&call.enc, flags);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        uint64_t size = tow_dec_u64(&call.dec);
        const uint8_t *text = tow_dec_bytes(&call.dec, (size_t)size);
        FILE *file = text != NULL ? fopen(path, "w") : NULL;
        if (file == NULL) {
            status = CUDA_ERROR_OPERATING_SYSTEM;
        } else {
            bool written = fwrite(text, 1, (size_t)size, file) == size;
            status = fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
        }
    }
    return towc_call_end(&call, status);
}

/* ---- attributes of graph memory: 8 bytes each ---- */

CUresult towc_cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    int ordinal = towc_device_to_server(device);
    if (value == NULL || (unsigned)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ordinal < 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuDeviceGetGraphMemAttribute, 16, TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u32(&call.enc, (uint32_t)ordinal);
    tow_enc_u32(&call.enc, (uint32_t)attr);
    status = towc_call_wait(&call);
    if (status == CUDA_SUCCESS) {
        uint64_t got = tow_dec_u64(&call.dec);
        memcpy(value, &got, sizeof got);
    }
    return towc_call_end(&call, status);
}

CUresult towc_cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    int ordinal = towc_device_to_server(device);
    uint64_t wanted = 0;
    if (value == NULL || (unsigned)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (ordinal < 0) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    memcpy(&wanted, value, sizeof wanted);
    struct towc_call call;
    CUresult status =
        towc_call_begin(&call, TOW_FN_cuDeviceSetGraphMemAttribute, 16, TOW_CALL_REPLY);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u32(&call.enc, (uint32_t)ordinal);
    tow_enc_u32(&call.enc, (uint32_t)attr);
    tow_enc_u64(&call.enc, wanted);
    return towc_call_end(&call, towc_call_wait(&call));
}

/* ---- older forms ---- */

/* Lists: what the program has room for beyond the list's end becomes NULL. */
static CUresult fill_rest(CUresult status, CUgraphNode *nodes, size_t room, size_t count)
{
    if (status == CUDA_SUCCESS && nodes != NULL && count < room) {
        memset(nodes + count, 0, (room - count) * sizeof *nodes);
    }
    return status;
}

CUresult towc_cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    if (numNodes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t room = *numNodes;
    CUresult status = towc_send_cuGraphGetNodes(hGraph, nodes, numNodes);
    return fill_rest(status, nodes, room, *numNodes);
}

CUresult towc_cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    if (numRootNodes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t room = *numRootNodes;
    CUresult status = towc_send_cuGraphGetRootNodes(hGraph, rootNodes, numRootNodes);
    return fill_rest(status, rootNodes, room, *numRootNodes);
}

CUresult towc_cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                                 CUgraphEdgeData *edgeData, size_t *numEdges)
{
    if (numEdges == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t room = *numEdges;
    CUresult status = towc_send_cuGraphGetEdges_v2(hGraph, from, to, edgeData, numEdges);
    fill_rest(status, from, room, *numEdges);
    return fill_rest(status, to, room, *numEdges);
}

CUresult towc_cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                            CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    if (numDependencies == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t room = *numDependencies;
    CUresult status =
        towc_send_cuGraphNodeGetDependencies_v2(hNode, dependencies, edgeData, numDependencies);
    return fill_rest(status, dependencies, room, *numDependencies);
}

CUresult towc_cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                              CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
    if (numDependentNodes == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t room = *numDependentNodes;
    CUresult status = towc_send_cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, edgeData,
                                                                numDependentNodes);
    return fill_rest(status, dependentNodes, room, *numDependentNodes);
}

CUresult towc_cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    return towc_cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult towc_cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                         size_t *numDependencies)
{
    return towc_cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult towc_cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                           size_t *numDependentNodes)
{
    return towc_cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

CUresult towc_cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                     size_t numDependencies)
{
    return towc_cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult towc_cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from,
                                        const CUgraphNode *to, size_t numDependencies)
{
    return towc_cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult towc_cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                                size_t numDependencies, unsigned int flags)
{
    return towc_cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, NULL, numDependencies,
                                                     flags);
}
