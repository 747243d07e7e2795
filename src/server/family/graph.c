/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs on the server: the calls whose parameters hold pointers or handles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mutex.h"
#include "gen/graph_server.h"
#include "gen/module.h"
#include "server/copy/hostfn.h"
#include "server/copy/mirror.h"
#include "server/session/session.h"
#include "wire/code.h"
#include "wire/copy.h"
#include "wire/graph.h"
#include "wire/id.h"

/* ---- bodies of conditional nodes ---- */

/* The driver does not tell of them again. They end with their node, and ids with them. */
struct body {
    CUgraphNode node;
    CUgraph graph;
    struct body *next;
};

struct bodies {
    struct tow_mutex lock;
    struct body *first; /* owned; guarded by lock */
};

static void bodies_init(struct tows_session *session, void *state)
{
    (void)session;
    tow_mutex_init(&((struct bodies *)state)->lock, SERVER_BODIES);
}

static void bodies_fini(struct tows_session *session, void *state)
{
    (void)session;
    struct bodies *bodies = state;
    while (bodies->first != NULL) {
        struct body *next = bodies->first->next;
        free(bodies->first);
        bodies->first = next;
    }
    tow_mutex_fini(&bodies->lock);
}

static void record_body(struct tows_serve *call, CUgraphNode node, CUgraph graph)
{
    static const struct tows_family_ops ops = {TOW_SESSION_GRAPH, sizeof(struct bodies),
                                               bodies_init, bodies_fini};
    struct bodies *bodies = tows_session_make_state(call->session, &ops);
    struct body *body = bodies != NULL ? malloc(sizeof *body) : NULL;
    if (body == NULL) {
        call->malformed = true; /* its id could outlive it */
        return;
    }
    tow_mutex_lock(&bodies->lock);
    *body = (struct body){node, graph, bodies->first};
    bodies->first = body;
    tow_mutex_unlock(&bodies->lock);
}

/* One of the node's, which is forgotten, and the caller's; NULL: it has no more. */
static struct body *take_body(struct tows_session *session, CUgraphNode node)
{
    struct bodies *bodies = tows_session_state(session, TOW_SESSION_GRAPH);
    if (bodies == NULL) {
        return NULL;
    }
    tow_mutex_lock(&bodies->lock);
    struct body **at = &bodies->first;
    while (*at != NULL && (*at)->node != node) {
        at = &(*at)->next;
    }
    struct body *body = *at;
    if (body != NULL) {
        *at = body->next;
    }
    tow_mutex_unlock(&bodies->lock);
    return body;
}

static void give_back_body(struct tows_session *session, struct body *body)
{
    struct bodies *bodies = tows_session_state(session, TOW_SESSION_GRAPH);
    tow_mutex_lock(&bodies->lock);
    body->next = bodies->first;
    bodies->first = body;
    tow_mutex_unlock(&bodies->lock);
}

/* ---- parameters from the wire ---- */

/* What the parameters of one node point at; lives as long as the call. */
struct node_room {
    size_t bytes;
    void *extra[5];
};

static void get_kernel(struct tows_serve *call, CUgraphNodeParams *p, struct node_room *room)
{
    struct tow_launch_head head;
    tow_dec_copy(&call->in, &head, sizeof head);
    void *bytes = tows_serve_array(call, head.bytes, 1);
    p->kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
        .gridDimX = head.grid[0],
        .gridDimY = head.grid[1],
        .gridDimZ = head.grid[2],
        .blockDimX = head.block[0],
        .blockDimY = head.block[1],
        .blockDimZ = head.block[2],
        .sharedMemBytes = head.shared,
    };
    void *function = tows_serve_handle(call, TOW_H_FUNCTION, head.function);
    if (TOW_ID_KIND(head.function) == TOW_H_KERNEL) {
        p->kernel.kern = function;
    } else {
        p->kernel.func = function;
    }
    if (head.bytes > 0) {
        room->bytes = head.bytes;
        room->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
        room->extra[1] = bytes;
        room->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
        room->extra[3] = &room->bytes;
        room->extra[4] = CU_LAUNCH_PARAM_END;
        p->kernel.extra = room->extra;
    }
}

static void get_operand(struct tows_serve *call, const struct tow_copy_3d *copy_3d,
                        const struct tow_copy_operand *operand, CUmemorytype *ret_type,
                        const void **ret_host, CUdeviceptr *ret_device, CUarray *ret_array)
{
    switch (operand->kind) {
    case TOW_AT_DEVICE:
        *ret_type = CU_MEMORYTYPE_DEVICE;
        *ret_device = operand->address;
        break;
    case TOW_AT_ARRAY:
        *ret_type = CU_MEMORYTYPE_ARRAY;
        *ret_array = tows_serve_handle(call, TOW_H_ARRAY, operand->address);
        break;
    case TOW_AT_ADDRESS:
        *ret_type = CU_MEMORYTYPE_HOST;
        *ret_host = (const void *)(uintptr_t)operand->address;
        if (!tows_mirror_reaches_operand(call, operand, copy_3d) && call->status == CUDA_SUCCESS) {
            call->status = CUDA_ERROR_INVALID_VALUE;
        }
        break;
    default:
        call->malformed = true;
        break;
    }
}

static void get_copy(struct tows_serve *call, CUDA_MEMCPY3D *p)
{
    struct tow_copy_3d s;
    const void *to = NULL;
    tow_dec_copy(&call->in, &s, sizeof s);
    *p = (CUDA_MEMCPY3D){
        .srcXInBytes = s.from.x,
        .srcY = s.from.y,
        .srcZ = s.from.z,
        .srcLOD = s.from.level,
        .srcPitch = s.from.pitch,
        .srcHeight = s.from.height,
        .dstXInBytes = s.to.x,
        .dstY = s.to.y,
        .dstZ = s.to.z,
        .dstLOD = s.to.level,
        .dstPitch = s.to.pitch,
        .dstHeight = s.to.height,
        .WidthInBytes = s.width,
        .Height = s.rows,
        .Depth = s.planes,
    };
    get_operand(call, &s, &s.from, &p->srcMemoryType, &p->srcHost, &p->srcDevice, &p->srcArray);
    get_operand(call, &s, &s.to, &p->dstMemoryType, &to, &p->dstDevice, &p->dstArray);
    p->dstHost = (void *)(uintptr_t)to;
}

/* Fills *p from the rest of the frame. */
static void get_params(struct tows_serve *call, uint32_t type, void *context, CUgraphNodeParams *p,
                       struct node_room *room)
{
    memset(p, 0, sizeof *p);
    p->type = (CUgraphNodeType)type;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        get_kernel(call, p, room);
        p->kernel.ctx = context;
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        get_copy(call, &p->memcpy.copyParams);
        p->memcpy.copyCtx = context;
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        tows_serve_record(call, &p->memset, sizeof p->memset);
        p->memset.ctx = context;
        break;
    case CU_GRAPH_NODE_TYPE_HOST: {
        uint64_t id = tow_dec_u64(&call->in);
        p->host.fn = tows_hostfn_run;
        p->host.userData = tows_hostfn_make(call->session, id, 1);
        if (p->host.userData == NULL) {
            call->status = CUDA_ERROR_OUT_OF_MEMORY;
        }
        break;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        tows_serve_record(call, &p->graph, sizeof p->graph);
        p->graph.graph = tows_serve_handle(call, TOW_H_GRAPH, (uint64_t)(uintptr_t)p->graph.graph);
        break;
    case CU_GRAPH_NODE_TYPE_EMPTY:
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        p->eventWait.event = tows_serve_handle(call, TOW_H_EVENT, tow_dec_u64(&call->in));
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        tows_serve_record(call, &p->alloc, sizeof p->alloc);
        p->alloc.poolProps.win32SecurityAttributes = NULL;
        p->alloc.accessDescs = NULL;
        if (p->alloc.accessDescCount > TOW_NODE_ACCESS_MAX) {
            call->malformed = true;
        } else {
            p->alloc.accessDescs =
                tows_serve_array(call, p->alloc.accessDescCount, sizeof *p->alloc.accessDescs);
        }
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        tows_serve_record(call, &p->free, sizeof p->free);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        tows_serve_record(call, &p->memOp, sizeof p->memOp);
        p->memOp.paramArray = NULL;
        p->memOp.ctx = context;
        if (p->memOp.count > TOW_NODE_MEMOPS_MAX) {
            call->malformed = true;
        } else {
            p->memOp.paramArray =
                tows_serve_array(call, p->memOp.count, sizeof *p->memOp.paramArray);
        }
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        tows_serve_record(call, &p->conditional, sizeof p->conditional);
        p->conditional.phGraph_out = NULL;
        p->conditional.ctx = context;
        call->malformed |= p->conditional.size > TOW_NODE_GRAPHS_MAX;
        break;
    default:
        call->status = CUDA_ERROR_NOT_SUPPORTED;
        break;
    }
}

/* After a call that nobody waits for. What it failed to complete does not run without it: every use
 * fails with the same error. */
static void graph_spoil(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id)
{
    if (TOW_ID_KIND(id) == (unsigned)kind) {
        tows_handles_spoil(&call->session->handles, id, call->status);
    }
}

static bool failed_unheard(const struct tows_serve *call)
{
    return call->frame.seq == 0 && call->status != CUDA_SUCCESS && !call->malformed;
}

static void add_node(struct tows_serve *call, const struct tow_node_head *head)
{
    CUgraph graph = tows_serve_handle(call, TOW_H_GRAPH, head->graph);
    void *context = tows_serve_handle(call, TOW_H_CONTEXT, head->context);
    if (head->dependencies > TOW_NODE_DEPENDENCIES_MAX) {
        call->malformed = true;
        return;
    }
    CUgraphNode *dependencies = tows_serve_array(call, head->dependencies, sizeof *dependencies);
    tows_serve_handles(call, TOW_H_GRAPHNODE, dependencies,
                       dependencies != NULL ? head->dependencies : 0);
    CUgraphEdgeData *edges = head->flags & TOW_NODE_EDGES
                                 ? tows_serve_array(call, head->dependencies, sizeof *edges)
                                 : NULL;
    CUgraphNodeParams params;
    struct node_room room;
    CUgraphNode node = NULL;
    get_params(call, head->type, context, &params, &room);
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuGraphAddNode_v2)(&node, graph, dependencies, edges,
                                                              head->dependencies, &params);
    if (call->status != CUDA_SUCCESS) {
        if (params.type == CU_GRAPH_NODE_TYPE_HOST) {
            tows_hostfn_drop(params.host.userData);
        }
        return;
    }
    tows_serve_bind(call, TOW_H_GRAPHNODE, head->id, node);
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        tow_enc_u64(&call->out, params.alloc.dptr);
    } else if (params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        tows_serve_reserve(call, 8 * params.conditional.size + 8);
        for (unsigned i = 0; i < params.conditional.size; i++) {
            record_body(call, node, params.conditional.phGraph_out[i]);
            tow_enc_u64(&call->out,
                        tows_serve_export(call, TOW_H_GRAPH, params.conditional.phGraph_out[i]));
        }
    }
}

void tows_serve_cuGraphAddNode_v2(struct tows_serve *call)
{
    struct tow_node_head head;
    tow_dec_copy(&call->in, &head, sizeof head);
    add_node(call, &head);
    if (failed_unheard(call)) {
        tows_serve_bind(call, TOW_H_GRAPHNODE, head.id, NULL);
        graph_spoil(call, TOW_H_GRAPH, head.graph);
    }
}

/* Sets a node of a graph. Of the older forms some name no context: the node keeps its own. */
static CUresult set_in_graph(const struct tow_driver *driver, CUgraphNode node,
                             CUgraphNodeParams *p)
{
    return p->type == CU_GRAPH_NODE_TYPE_MEMCPY && p->memcpy.copyCtx == NULL
               ? tow_drive(driver, cuGraphMemcpyNodeSetParams)(node, &p->memcpy.copyParams)
               : tow_drive(driver, cuGraphNodeSetParams)(node, p);
}

static void set_params(struct tows_serve *call, const struct tow_node_set_head *head, bool of_exec)
{
    CUgraphNodeParams params;
    struct node_room room;
    CUgraphExec exec = tows_serve_handle(call, TOW_H_GRAPHEXEC, head->exec);
    CUgraphNode node = tows_serve_handle(call, TOW_H_GRAPHNODE, head->node);
    void *context = tows_serve_handle(call, TOW_H_CONTEXT, head->context);
    get_params(call, head->type, context, &params, &room);
    if (!tows_serve_ready(call)) {
        return;
    }
    CUDA_BATCH_MEM_OP_NODE_PARAMS before;
    if (params.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && context == NULL &&
        tow_drive(call->driver, cuGraphBatchMemOpNodeGetParams)(node, &before) == CUDA_SUCCESS) {
        params.memOp.ctx = before.ctx;
    }
    call->status = of_exec ? tow_drive(call->driver, cuGraphExecNodeSetParams)(exec, node, &params)
                           : set_in_graph(call->driver, node, &params);
    if (call->status != CUDA_SUCCESS && params.type == CU_GRAPH_NODE_TYPE_HOST) {
        tows_hostfn_drop(params.host.userData);
    }
}

void tows_serve_cuGraphNodeSetParams(struct tows_serve *call)
{
    struct tow_node_set_head head;
    tow_dec_copy(&call->in, &head, sizeof head);
    set_params(call, &head, false);
}

void tows_serve_cuGraphExecNodeSetParams(struct tows_serve *call)
{
    struct tow_node_set_head head;
    tow_dec_copy(&call->in, &head, sizeof head);
    set_params(call, &head, true);
    if (failed_unheard(call)) {
        graph_spoil(call, TOW_H_GRAPHEXEC, head.exec);
    }
}

/* ---- asking nodes ---- */

/* The id under which the client knows a kernel: as a function, as a kernel, or a new one. */
static uint64_t export_kernel(struct tows_serve *call, const CUDA_KERNEL_NODE_PARAMS *p)
{
    struct tows_handles *handles = &call->session->handles;
    uint64_t id = p->kern != NULL ? tows_handles_known(handles, TOW_H_KERNEL, p->kern) : 0;
    if (id == 0 && p->func != NULL) {
        id = tows_handles_known(handles, TOW_H_FUNCTION, p->func);
    }
    if (id == 0 && p->func != NULL) {
        id = tows_handles_known(handles, TOW_H_KERNEL, p->func);
    }
    return id != 0 ? id : tows_serve_export(call, TOW_H_FUNCTION, p->func);
}

void tows_serve_cuGraphKernelNodeGetParams_v2(struct tows_serve *call)
{
    CUgraphNode node = tows_serve_handle(call, TOW_H_GRAPHNODE, tow_dec_u64(&call->in));
    CUDA_KERNEL_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuGraphKernelNodeGetParams_v2)(node, &p);
    if (call->status != CUDA_SUCCESS) {
        return;
    }
    size_t offsets[TOW_KERNEL_PARAMS_MAX], sizes[TOW_KERNEL_PARAMS_MAX], end;
    uint32_t count = 0, bytes = 0;
    while (count < TOW_KERNEL_PARAMS_MAX) {
        CUresult more = p.func != NULL ? tow_drive(call->driver, cuFuncGetParamInfo)(
                                             p.func, count, &offsets[count], &sizes[count])
                                       : tow_drive(call->driver, cuKernelGetParamInfo)(
                                             p.kern, count, &offsets[count], &sizes[count]);
        if (more != CUDA_SUCCESS) {
            break;
        }
        /* As the image says, which is the client's: in any order, and of any size. */
        if (__builtin_add_overflow(offsets[count], sizes[count], &end) ||
            end > TOW_LAUNCH_ARGS_MAX) {
            call->status = CUDA_ERROR_INVALID_IMAGE;
            return;
        }
        bytes = end > bytes ? (uint32_t)end : bytes;
        count++;
    }
    uint8_t *packed = tows_serve_room(call, bytes, 1);
    if (p.kernelParams != NULL) {
        for (uint32_t i = 0; packed != NULL && i < count; i++) {
            memcpy(packed + offsets[i], p.kernelParams[i], sizes[i]);
        }
    } else if (p.extra != NULL && packed != NULL) {
        const void *buffer = NULL;
        size_t size = 0;
        for (unsigned i = 0; p.extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
            if (p.extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
                buffer = p.extra[i + 1];
            } else if (p.extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
                size = *(const size_t *)p.extra[i + 1];
            }
        }
        if (buffer != NULL) {
            memcpy(packed, buffer, (size_t)tow_min_u64(size, bytes));
        }
    }
    struct tow_launch_head head = {.function = export_kernel(call, &p),
                                   .grid = {p.gridDimX, p.gridDimY, p.gridDimZ},
                                   .block = {tow_launch_dimension(p.blockDimX),
                                             tow_launch_dimension(p.blockDimY),
                                             tow_launch_dimension(p.blockDimZ)},
                                   .shared = p.sharedMemBytes,
                                   .bytes = (uint16_t)bytes};
    tows_serve_reserve(call, sizeof head + 8 + count * 4 + 8 + bytes + 8);
    tow_enc_bytes(&call->out, &head, sizeof head);
    tow_enc_u32(&call->out, count);
    tow_enc_u32(&call->out, 0);
    for (uint32_t i = 0; i < count; i++) {
        tow_enc_u32(&call->out, (uint32_t)offsets[i]);
    }
    tow_enc_align(&call->out, 8);
    if (packed != NULL) {
        tow_enc_bytes(&call->out, packed, bytes);
    }
}

void tows_serve_cuGraphMemcpyNodeGetParams(struct tows_serve *call)
{
    CUgraphNode node = tows_serve_handle(call, TOW_H_GRAPHNODE, tow_dec_u64(&call->in));
    CUDA_MEMCPY3D p;
    memset(&p, 0, sizeof p);
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuGraphMemcpyNodeGetParams)(node, &p);
        p.srcArray = (CUarray)(uintptr_t)tows_serve_export(call, TOW_H_ARRAY, p.srcArray);
        p.dstArray = (CUarray)(uintptr_t)tows_serve_export(call, TOW_H_ARRAY, p.dstArray);
        tow_enc_bytes(&call->out, &p, sizeof p);
    }
}

void tows_serve_cuGraphHostNodeGetParams(struct tows_serve *call)
{
    CUgraphNode node = tows_serve_handle(call, TOW_H_GRAPHNODE, tow_dec_u64(&call->in));
    CUDA_HOST_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuGraphHostNodeGetParams)(node, &p);
        tow_enc_u64(&call->out,
                    p.fn == tows_hostfn_run && p.userData != NULL ? tows_hostfn_id(p.userData) : 0);
    }
}

void tows_serve_cuGraphMemAllocNodeGetParams(struct tows_serve *call)
{
    CUgraphNode node = tows_serve_handle(call, TOW_H_GRAPHNODE, tow_dec_u64(&call->in));
    CUDA_MEM_ALLOC_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuGraphMemAllocNodeGetParams)(node, &p);
    size_t count =
        p.accessDescs != NULL && p.accessDescCount <= TOW_NODE_ACCESS_MAX ? p.accessDescCount : 0;
    const CUmemAccessDesc *descs = p.accessDescs;
    p.accessDescCount = count;
    p.accessDescs = NULL;
    tows_serve_reserve(call, sizeof p + count * sizeof *descs);
    tow_enc_bytes(&call->out, &p, sizeof p);
    if (count > 0) {
        tow_enc_bytes(&call->out, descs, count * sizeof *descs);
    }
}

void tows_serve_cuGraphBatchMemOpNodeGetParams(struct tows_serve *call)
{
    CUgraphNode node = tows_serve_handle(call, TOW_H_GRAPHNODE, tow_dec_u64(&call->in));
    CUDA_BATCH_MEM_OP_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuGraphBatchMemOpNodeGetParams)(node, &p);
    uint32_t count = p.count <= TOW_NODE_MEMOPS_MAX ? p.count : 0;
    tows_serve_reserve(call, 8 + count * sizeof *p.paramArray);
    tow_enc_u32(&call->out, count);
    tow_enc_u32(&call->out, p.flags);
    if (count > 0) {
        tow_enc_bytes(&call->out, p.paramArray, count * sizeof *p.paramArray);
    }
}

/* ---- whole graphs ---- */

/* What is unbound with a graph: ids in it, which are given back if the driver keeps it, and graphs
 * that are still to be looked into. A client nests them as deep as it likes, so this is a list and
 * no recursion. */
struct unbinding {
    struct tows_session *session;
    CUgraph *graphs; /* owned */
    size_t count, room;
    struct tows_handle_taken *taken; /* owned */
    size_t taken_count, taken_room;
    struct body *bodies; /* owned */
};

/* Room for one more of `count`; NULL: there is no memory. Then what is within keeps its ids: the
 * session cannot go on. */
static void *graph_grown(struct unbinding *list, void *array, size_t element, size_t count,
                         size_t *room)
{
    if (count < *room) {
        return array;
    }
    size_t more = *room == 0 ? 16 : 2 * *room;
    void *made = realloc(array, more * element);
    if (made == NULL) {
        tows_session_end(list->session, -ENOMEM);
        return NULL;
    }
    *room = more;
    return made;
}

static void unbind_later(struct unbinding *list, CUgraph graph)
{
    CUgraph *graphs =
        graph_grown(list, list->graphs, sizeof *list->graphs, list->count, &list->room);
    if (graphs != NULL) {
        list->graphs = graphs;
        list->graphs[list->count++] = graph;
    }
}

static void unbind_one(struct unbinding *list, enum tow_handle_kind kind, void *handle)
{
    struct tows_handles *handles = &list->session->handles;
    struct tows_handle_taken *taken =
        graph_grown(list, list->taken, sizeof *list->taken, list->taken_count, &list->taken_room);
    if (taken != NULL) {
        list->taken = taken;
        list->taken_count += tows_handles_take(handles, tows_handles_known(handles, kind, handle),
                                               &taken[list->taken_count]);
    }
}

/* Ids of graphs within a node, and of what is in them, end with it. */
static void unbind_within(struct unbinding *list, CUgraphNode node)
{
    struct tows_session *session = list->session;
    CUgraphNodeType type;
    CUgraph child = NULL;
    struct body *body;
    if (tow_drive(session->driver, cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) {
        return;
    }
    if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
        tow_drive(session->driver, cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS) {
        unbind_later(list, child);
    }
    while (type == CU_GRAPH_NODE_TYPE_CONDITIONAL && (body = take_body(session, node)) != NULL) {
        unbind_later(list, body->graph);
        body->next = list->bodies;
        list->bodies = body;
    }
}

/* Ids of nodes end with their graph. */
static void unbind_nodes(struct unbinding *list, CUgraph graph)
{
    struct tows_session *session = list->session;
    size_t count = 0;
    if (tow_drive(session->driver, cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS ||
        count == 0) {
        return;
    }
    CUgraphNode *nodes = calloc(count, sizeof *nodes);
    if (nodes == NULL) {
        tows_session_end(session, -ENOMEM);
    } else if (tow_drive(session->driver, cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS) {
        for (size_t i = 0; i < count; i++) {
            unbind_within(list, nodes[i]);
            unbind_one(list, TOW_H_GRAPHNODE, nodes[i]);
        }
    }
    free(nodes);
}

static void unbind_listed(struct unbinding *list)
{
    while (list->count > 0) {
        CUgraph graph = list->graphs[--list->count];
        unbind_nodes(list, graph);
        unbind_one(list, TOW_H_GRAPH, graph);
    }
}

/* `kept`: the driver did not destroy it after all. */
static void unbinding_fini(struct unbinding *list, bool kept)
{
    while (list->bodies != NULL) {
        struct body *body = list->bodies;
        list->bodies = body->next;
        if (kept) {
            give_back_body(list->session, body);
        } else {
            free(body);
        }
    }
    for (size_t i = list->taken_count; kept && i-- > 0;) {
        tows_handles_give_back(&list->session->handles, &list->taken[i]);
    }
    free(list->taken);
    free(list->graphs);
}

void tows_serve_cuGraphDestroyNode(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUgraphNode node = tows_serve_handle(call, TOW_H_GRAPHNODE, id);
    if (!tows_serve_ready(call) || !tows_serve_claim(call, TOW_H_GRAPHNODE, id)) {
        return;
    }
    struct unbinding list = {call->session};
    if (node != NULL) {
        unbind_within(&list, node);
        unbind_listed(&list);
    }
    call->status = tow_drive(call->driver, cuGraphDestroyNode)(node);
    unbinding_fini(&list, call->status != CUDA_SUCCESS);
    if (call->status != CUDA_SUCCESS) {
        tows_serve_unclaim(call);
    }
}

/* Of one that a call without a reply spoiled, too. */
static void *to_be_ended(struct tows_serve *call, enum tow_handle_kind kind, uint64_t id)
{
    CUresult before = call->status;
    void *handle = tows_serve_handle(call, kind, id);
    if (handle != NULL) {
        call->status = before;
    }
    return handle;
}

void tows_serve_cuGraphExecDestroy(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUgraphExec exec = to_be_ended(call, TOW_H_GRAPHEXEC, id);
    if (!tows_serve_ready(call) || !tows_serve_claim(call, TOW_H_GRAPHEXEC, id)) {
        return;
    }
    call->status = tow_drive(call->driver, cuGraphExecDestroy)(exec);
    if (call->status != CUDA_SUCCESS) {
        tows_serve_unclaim(call);
    }
}

void tows_serve_cuGraphDestroy(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUgraph graph = to_be_ended(call, TOW_H_GRAPH, id);
    if (!tows_serve_ready(call) || !tows_serve_claim(call, TOW_H_GRAPH, id)) {
        return;
    }
    struct unbinding list = {call->session};
    unbind_nodes(&list, graph);
    unbind_listed(&list);
    call->status = tow_drive(call->driver, cuGraphDestroy)(graph);
    unbinding_fini(&list, call->status != CUDA_SUCCESS);
    if (call->status != CUDA_SUCCESS) {
        tows_serve_unclaim(call);
    }
}

/* The outputs of a failure travel, too: the reply itself is a success and holds the real result. */
void tows_serve_cuGraphInstantiateWithParams(struct tows_serve *call)
{
    uint64_t id = tow_dec_u64(&call->in);
    CUgraph graph = tows_serve_handle(call, TOW_H_GRAPH, tow_dec_u64(&call->in));
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    memset(&params, 0, sizeof params);
    params.flags = tow_dec_u64(&call->in);
    params.hUploadStream = tows_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    CUgraphExec exec = NULL;
    if (!tows_serve_ready(call)) {
        return;
    }
    CUresult real = tow_drive(call->driver, cuGraphInstantiateWithParams)(&exec, graph, &params);
    if (real == CUDA_SUCCESS) {
        tows_serve_bind(call, TOW_H_GRAPHEXEC, id, exec);
    }
    tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_GRAPHNODE, params.hErrNode_out));
    tow_enc_u32(&call->out, (uint32_t)params.result_out);
    tow_enc_u32(&call->out, (uint32_t)real);
}

void tows_serve_cuGraphExecUpdate_v2(struct tows_serve *call)
{
    CUgraphExec exec = tows_serve_handle(call, TOW_H_GRAPHEXEC, tow_dec_u64(&call->in));
    CUgraph graph = tows_serve_handle(call, TOW_H_GRAPH, tow_dec_u64(&call->in));
    CUgraphExecUpdateResultInfo info;
    memset(&info, 0, sizeof info);
    if (!tows_serve_ready(call)) {
        return;
    }
    CUresult real = tow_drive(call->driver, cuGraphExecUpdate_v2)(exec, graph, &info);
    tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_GRAPHNODE, info.errorNode));
    tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_GRAPHNODE, info.errorFromNode));
    tow_enc_u32(&call->out, (uint32_t)info.result);
    tow_enc_u32(&call->out, (uint32_t)real);
}

void tows_serve_cuGraphDebugDotPrint(struct tows_serve *call)
{
    CUgraph graph = tows_serve_handle(call, TOW_H_GRAPH, tow_dec_u64(&call->in));
    uint32_t flags = tow_dec_u32(&call->in);
    char path[32];
    if (!tows_serve_ready(call)) {
        return;
    }
    /* A file without a name: nothing of it is left, however this ends. */
    int fd = memfd_create("towline-dot", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0) {
        call->status = CUDA_ERROR_OPERATING_SYSTEM;
        return;
    }
    call->status = tow_drive(call->driver, cuGraphDebugDotPrint)(graph, path, flags);
    off_t size = call->status == CUDA_SUCCESS ? lseek(fd, 0, SEEK_END) : 0;
    if (size < 0 || size > (off_t)(TOW_FRAME_MAX - 1024)) {
        call->status = CUDA_ERROR_OUT_OF_MEMORY; /* too large to travel in one reply */
    } else if (call->status == CUDA_SUCCESS) {
        tows_serve_reserve(call, (size_t)size + 16);
        tow_enc_u64(&call->out, (uint64_t)size);
        uint8_t *at = tow_enc_block(&call->out, (size_t)size);
        if (at == NULL || pread(fd, at, (size_t)size, 0) != size) {
            call->status = CUDA_ERROR_OPERATING_SYSTEM;
        }
        tow_enc_align(&call->out, 8);
    }
    close(fd);
}

void tows_serve_cuDeviceGetGraphMemAttribute(struct tows_serve *call)
{
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    CUgraphMem_attribute attr = (CUgraphMem_attribute)tow_dec_u32(&call->in);
    uint64_t value = 0;
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuDeviceGetGraphMemAttribute)(device, attr, &value);
        tow_enc_u64(&call->out, value);
    }
}

void tows_serve_cuDeviceSetGraphMemAttribute(struct tows_serve *call)
{
    CUdevice device = (CUdevice)tow_dec_u32(&call->in);
    CUgraphMem_attribute attr = (CUgraphMem_attribute)tow_dec_u32(&call->in);
    uint64_t value = tow_dec_u64(&call->in);
    if (tows_serve_ready(call)) {
        call->status = tow_drive(call->driver, cuDeviceSetGraphMemAttribute)(device, attr, &value);
    }
}

/* ---- capture ---- */

/* {u64 graph, u32 what work that nobody waited for failed with}: a graph without that work is not
 * what the program captured. */
void tows_serve_cuStreamEndCapture(struct tows_serve *call)
{
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    if (!tows_serve_ready(call)) {
        return;
    }
    CUgraph graph = NULL;
    call->status = tow_drive(call->driver, cuStreamEndCapture)(stream, &graph);
    CUresult owed = tows_session_take_deferred(call->session, call->frame.thread);
    if (call->status == CUDA_SUCCESS) {
        tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_GRAPH, graph));
        tow_enc_u32(&call->out, (uint32_t)owed);
        tow_enc_u32(&call->out, 0);
    }
}

void tows_serve_cuStreamGetCaptureInfo_v3(struct tows_serve *call)
{
    CUstream stream = tows_serve_handle(call, TOW_H_STREAM, tow_dec_u64(&call->in));
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    CUgraph graph = NULL;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 0;
    if (!tows_serve_ready(call)) {
        return;
    }
    call->status = tow_drive(call->driver, cuStreamGetCaptureInfo_v3)(
        stream, &capturing, &id, &graph, &nodes, &edges, &count);
    if (call->status == CUDA_ERROR_LOSSY_QUERY || call->status == CUDA_ERROR_NOT_SUPPORTED) {
        edges = NULL;
        call->status = tow_drive(call->driver, cuStreamGetCaptureInfo_v2)(stream, &capturing, &id,
                                                                          &graph, &nodes, &count);
    }
    if (call->status != CUDA_SUCCESS) {
        return;
    }
    count = nodes != NULL && count <= 1 << 16 ? count : 0;
    tows_serve_reserve(call, 32 + count * 16);
    tow_enc_u64(&call->out, id);
    tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_GRAPH, graph));
    tow_enc_u32(&call->out, (uint32_t)capturing);
    tow_enc_u32(&call->out, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        tow_enc_u64(&call->out, tows_serve_export(call, TOW_H_GRAPHNODE, nodes[i]));
    }
    static const CUgraphEdgeData plain;
    for (size_t i = 0; i < count; i++) {
        tow_enc_bytes(&call->out, edges != NULL ? &edges[i] : &plain, sizeof plain);
    }
}
