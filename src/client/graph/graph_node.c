/* SPDX-License-Identifier: Apache-2.0 */
/* Making and changing nodes: kernels, copies, host functions, memory, conditions. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "client/code/code.h"
#include "client/graph/graph.h"
#include "client/hostmem/memops.h"
#include "client/graph/graph_built.h"
#include "client/callback/hostfn.h"
#include "client/code/launch.h"
#include "client/hostmem/mirror.h"
#include "client/hostmem/region.h"
#include "client/stream/stream.h"
#include "gen/client_api.h"
#include "gen/graph_client.h"
#include "wire/copy.h"
#include "wire/graph.h"

/* ---- answers that are known ---- */

/* What is known of a node's parameters before the server has seen them. */
struct known {
    bool fine; /* the driver takes them, in a graph and behind nodes that are right */
    struct towc_built_kernel kernel;
    uint64_t block; /* as towc_kernel.node_block has it */
};

/* True if nothing but grid, block and shared memory decides whether the kernel can be launched. */
static bool is_plain(struct towc_kernel *kernel, CUdevice device)
{
    const unsigned needed = 1u << CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK |
                            1u << CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    const struct towc_attributes *a = towc_kernel_attributes(kernel, device);
    unsigned known = a != NULL ? atomic_load_explicit(&a->known, memory_order_acquire) : 0;
    if ((known & needed) != needed) {
        return false;
    }
    for (unsigned i = CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;
         i <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH; i++) {
        if ((known >> i & 1) != 0 &&
            atomic_load_explicit(&a->value[i], memory_order_relaxed) != 0) {
            return false;
        }
    }
    return true;
}

/* For a node that passed towc_launch_check. A kernel may want one block and no other (.reqntid),
 * and its code may fail to load: so the driver must have taken a node like this one before. */
static void know_kernel(struct towc_kernel *kernel, const struct towc_context *context,
                        const CUDA_KERNEL_NODE_PARAMS_v3 *p, const struct towc_launch_args *args,
                        struct known *known)
{
    unsigned epoch = atomic_load_explicit(&context->epoch, memory_order_relaxed);
    unsigned links = atomic_load_explicit(&kernel->links, memory_order_acquire);
    if ((p->ctx != NULL && p->ctx != context->handle) ||
        (kernel->context != 0 && kernel->context != context->number)) {
        return; /* the node is another context's */
    }
    known->kernel = (struct towc_built_kernel){.function = kernel->id,
                                               .place = (uint64_t)context->number << 32 | epoch};
    known->block = (uint64_t)context->number << 40 | (uint64_t)(epoch & 0x7ff) << 29 |
                   p->blockDimX | p->blockDimY << 11 | p->blockDimZ << 22;
    known->fine = (links >> context->link->index & 1) != 0 && args->bytes == kernel->param_bytes &&
                  atomic_load_explicit(&kernel->node_block, memory_order_relaxed) == known->block &&
                  is_plain(kernel, context->device);
}

/* Memory that cuMemAlloc made in the node's context, which is the current one. */
static bool is_here(const struct towc_context *context, CUcontext named, CUdeviceptr at,
                    uint64_t size)
{
    struct towc_region region;
    return context != NULL && named == context->handle && towc_region_find(at, &region) &&
           region.kind == TOW_REGION_DEVICE && region.context == context->handle &&
           region.link == context->link && size <= region.base + region.size - at;
}

static bool is_known_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *p)
{
    unsigned size = p->elementSize;
    return (size == 1 || size == 2 || size == 4) && p->dst % size == 0 && p->height == 1 &&
           (uint64_t)p->value >> (8 * size) == 0 && p->width > 0 && p->width <= UINT32_MAX &&
           is_here(towc_context_current(), p->ctx, p->dst, p->width * size);
}

/* One row, between two places on the device. */
static bool is_known_copy(const struct tow_copy_3d *s, CUcontext named)
{
    const struct towc_context *context = towc_context_current();
    const struct tow_copy_operand *const operands[] = {&s->from, &s->to};
    bool known = s->rows == 1 && s->planes == 1;
    for (unsigned i = 0; known && i < 2; i++) {
        const struct tow_copy_operand *operand = operands[i];
        known = operand->kind == TOW_AT_DEVICE && operand->level == 0 &&
                (operand->x | operand->y | operand->z) == 0 &&
                (operand->pitch == 0 || operand->pitch >= s->width) &&
                is_here(context, named, operand->address, s->width);
    }
    return known && (s->from.address + s->width <= s->to.address ||
                     s->to.address + s->width <= s->from.address);
}

/* The server took them. */
static void graph_node_took(const struct known *known)
{
    struct towc_kernel *kernel = towc_kernel_find((const void *)(uintptr_t)known->kernel.function);
    if (kernel != NULL) {
        atomic_store_explicit(&kernel->node_block, known->block, memory_order_relaxed);
    }
}

/* True if an answer that is known need not be waited for. While a stream captures, it may be into
 * the graph, which is nobody else's then. */
static bool may_tell(const struct towc_context *context)
{
    return context != NULL && atomic_load_explicit(&context->alive, memory_order_relaxed) &&
           atomic_load_explicit(&towc_captures, memory_order_relaxed) == 0;
}

/* ---- parameters to the wire ---- */

static CUresult kernel_of(const CUDA_KERNEL_NODE_PARAMS_v3 *p, struct towc_kernel **ret_kernel)
{
    struct towc_kernel *kernel =
        towc_kernel_find(p->func != NULL ? (const void *)p->func : (const void *)p->kern);
    if (kernel == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_kernel = kernel;
    return CUDA_SUCCESS;
}

static CUresult encode_kernel(struct tow_buf *out, const struct towc_kernel *kernel,
                              const CUDA_KERNEL_NODE_PARAMS_v3 *p,
                              const struct towc_launch_args *args)
{
    struct tow_launch_head head = {
        .function = kernel->id,
        .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
        .block = {tow_launch_dimension(p->blockDimX), tow_launch_dimension(p->blockDimY),
                  tow_launch_dimension(p->blockDimZ)},
        .shared = p->sharedMemBytes,
        .bytes = (uint16_t)args->bytes,
    };
    tow_buf_append(out, &head, sizeof head);
    uint8_t *packed = calloc(1, args->bytes + 8u);
    if (packed == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    towc_launch_args_pack(kernel, args, packed);
    tow_buf_append(out, packed, (args->bytes + 7) & ~(size_t)7);
    free(packed);
    return CUDA_SUCCESS;
}

static CUresult put_kernel(struct tow_buf *out, const CUDA_KERNEL_NODE_PARAMS_v3 *p,
                           struct known *known)
{
    struct towc_kernel *kernel = NULL;
    struct towc_context *context = towc_context_current();
    struct towc_launch_args args;
    CUresult status = kernel_of(p, &kernel);
    if (status == CUDA_SUCCESS && context != NULL) {
        status = towc_kernel_reach(kernel, context->link);
    }
    if (status == CUDA_SUCCESS && context != NULL) {
        const uint32_t grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
        const uint32_t block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
        status = towc_launch_check(kernel, context->device, grid, block, p->sharedMemBytes);
    }
    if (status == CUDA_SUCCESS) {
        status = towc_launch_args_init(kernel, p->kernelParams, p->extra, &args);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    if (context != NULL) {
        know_kernel(kernel, context, p, &args, known);
    }
    size_t before = out->size;
    status = encode_kernel(out, kernel, p, &args);
    if (status == CUDA_SUCCESS && context != NULL &&
        out->size > before + sizeof(struct tow_launch_head)) {
        status = towc_mirror_scan(context->link,
                                  out->data + before + sizeof(struct tow_launch_head), args.bytes);
    }
    return status;
}

static CUresult put_operand(struct tow_copy_operand *operand, CUmemorytype type, const void *host,
                            CUdeviceptr device, CUarray array, const struct tow_copy_3d *copy_3d)
{
    if (type == CU_MEMORYTYPE_UNIFIED) {
        type = towc_region_is_device(device) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        host = (const void *)(uintptr_t)device;
    }
    switch (type) {
    case CU_MEMORYTYPE_DEVICE:
        operand->kind = TOW_AT_DEVICE;
        operand->address = device;
        return towc_mirror_reach(device);
    case CU_MEMORYTYPE_ARRAY:
        operand->kind = TOW_AT_ARRAY;
        operand->address = (uint64_t)(uintptr_t)array;
        return towc_handle_valid(TOW_H_ARRAY, operand->address) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
    case CU_MEMORYTYPE_HOST: {
        uint64_t pitch = operand->pitch != 0 ? operand->pitch : operand->x + copy_3d->width;
        uint64_t height = operand->height != 0 ? operand->height : operand->y + copy_3d->rows;
        uint64_t bytes = 0;
        operand->kind = TOW_AT_ADDRESS;
        operand->address = (uint64_t)(uintptr_t)host;
        if (host == NULL || __builtin_mul_overflow(pitch, height, &bytes) ||
            __builtin_mul_overflow(bytes, operand->z + copy_3d->planes - 1, &bytes) ||
            __builtin_add_overflow(
                bytes, pitch * (operand->y + copy_3d->rows - 1) + operand->x + copy_3d->width,
                &bytes)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return towc_mirror_host_here(host, bytes);
    }
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult put_copy(struct tow_buf *out, const CUDA_MEMCPY3D *p, CUcontext named,
                         struct known *known)
{
    struct tow_copy_3d copy_3d = {
        .from = {.pitch = p->srcPitch,
                 .height = p->srcHeight,
                 .x = p->srcXInBytes,
                 .y = p->srcY,
                 .z = p->srcZ,
                 .level = (uint32_t)p->srcLOD},
        .to = {.pitch = p->dstPitch,
               .height = p->dstHeight,
               .x = p->dstXInBytes,
               .y = p->dstY,
               .z = p->dstZ,
               .level = (uint32_t)p->dstLOD},
        .width = p->WidthInBytes,
        .rows = p->Height,
        .planes = p->Depth,
    };
    if (p->WidthInBytes == 0 || p->Height == 0 || p->Depth == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = put_operand(&copy_3d.from, p->srcMemoryType, p->srcHost, p->srcDevice,
                                  p->srcArray, &copy_3d);
    if (status == CUDA_SUCCESS) {
        status = put_operand(&copy_3d.to, p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray,
                             &copy_3d);
    }
    if (status == CUDA_SUCCESS) {
        tow_buf_append(out, &copy_3d, sizeof copy_3d);
        known->fine = is_known_copy(&copy_3d, named);
    }
    return status;
}

static CUresult put_host(struct tow_buf *out, CUhostFn fn, void *user)
{
    struct towc_context *context = towc_context_current();
    uint64_t id = 0;
    if (fn == NULL || context == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_hostfn_add(
        context, &(struct towc_hostfn){.run = fn, .user = user, .repeats = true}, &id);
    if (status == CUDA_SUCCESS) {
        tow_buf_append(out, &id, sizeof id);
    }
    return status;
}

/* Records travel without the program's pointers, and with the server's device numbers. */
static CUresult put_alloc(struct tow_buf *out, const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *p)
{
    if (p->accessDescCount > TOW_NODE_ACCESS_MAX ||
        (p->accessDescCount > 0 && p->accessDescs == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_context *context = towc_context_current();
    struct towc_link *link = context != NULL ? context->link : NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 sent = *p;
    sent.accessDescs = NULL;
    CUresult status = towc_pack_CUmemPoolProps(&sent.poolProps, &link);
    tow_buf_append(out, &sent, sizeof sent);
    for (size_t i = 0; status == CUDA_SUCCESS && i < p->accessDescCount; i++) {
        CUmemAccessDesc access = p->accessDescs[i];
        status = towc_pack_CUmemAccessDesc(&access, &link);
        tow_buf_append(out, &access, sizeof access);
    }
    return status;
}

static CUresult put_memops(struct tow_buf *out, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 *p)
{
    if (p->count > TOW_NODE_MEMOPS_MAX || (p->count > 0 && p->paramArray == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 sent = *p;
    sent.paramArray = NULL;
    tow_buf_append(out, &sent, sizeof sent);
    tow_buf_append(out, p->paramArray, p->count * sizeof *p->paramArray);
    return towc_memops_reach(p->paramArray, p->count);
}

static CUresult put_conditional(struct tow_buf *out, const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
    if (p->size == 0 || p->size > TOW_NODE_GRAPHS_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_CONDITIONAL_NODE_PARAMS sent = *p;
    sent.phGraph_out = NULL;
    tow_buf_append(out, &sent, sizeof sent);
    return CUDA_SUCCESS;
}

static CUresult put_params(struct tow_buf *out, const CUgraphNodeParams *p, struct known *known)
{
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return put_kernel(out, &p->kernel, known);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return put_copy(out, &p->memcpy.copyParams, p->memcpy.copyCtx, known);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        known->fine = is_known_fill(&p->memset);
        tow_buf_append(out, &p->memset, sizeof p->memset);
        return towc_mirror_reach(p->memset.dst);
    case CU_GRAPH_NODE_TYPE_HOST:
        return put_host(out, p->host.fn, p->host.userData);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        towc_hostfn_doubled();
        tow_buf_append(out, &p->graph, sizeof p->graph);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EMPTY:
        known->fine = true;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        towc_event_elsewhere(p->eventRecord.event);
        tow_buf_append(out, &p->eventRecord, sizeof p->eventRecord);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        towc_event_in_graph(p->eventWait.event);
        tow_buf_append(out, &p->eventWait, sizeof p->eventWait);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return put_alloc(out, &p->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        tow_buf_append(out, &p->free, sizeof p->free);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return put_memops(out, &p->memOp);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return put_conditional(out, &p->conditional);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* The context that a node's parameters name. */
static uint64_t context_of(const CUgraphNodeParams *p)
{
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return (uint64_t)(uintptr_t)p->kernel.ctx;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return (uint64_t)(uintptr_t)p->memcpy.copyCtx;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return (uint64_t)(uintptr_t)p->memset.ctx;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return (uint64_t)(uintptr_t)p->memOp.ctx;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return (uint64_t)(uintptr_t)p->conditional.ctx;
    default:
        return 0;
    }
}

/* Sends a composed body and waits; outputs are in call->dec. */
static CUresult graph_node_ask(struct towc_call *call, unsigned fn, const struct tow_buf *body)
{
    CUresult status = towc_call_begin(call, fn, body->size, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_bytes(&call->enc, body->data, body->size);
    status = towc_call_wait(call);
    if (status != CUDA_SUCCESS) {
        towc_call_end(call, status);
    }
    return status;
}

/* Sends a composed body whose answer is known. */
static CUresult graph_node_tell(unsigned fn, const struct tow_buf *body)
{
    struct towc_call call;
    CUresult status = towc_call_begin(&call, fn, body->size, TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_bytes(&call.enc, body->data, body->size);
    return towc_call_send(&call);
}

static CUresult add_outputs(struct towc_call *call, uint64_t id, CUgraphNodeParams *p)
{
    CUresult status = CUDA_SUCCESS;
    if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        struct towc_context *context = towc_context_current();
        p->alloc.dptr = tow_dec_u64(&call->dec);
        struct towc_region region = {.base = p->alloc.dptr,
                                     .size = p->alloc.bytesize,
                                     .kind = TOW_REGION_POOL,
                                     .graph = true};
        struct towc_region known;
        if (context != NULL) {
            region.device = context->device;
            region.link = context->link;
        }
        if (!towc_region_find(region.base, &known)) {
            towc_region_add(&region);
        }
    } else if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        CUgraph *graphs = towc_keep_make(id, p->conditional.size * sizeof *graphs);
        for (unsigned i = 0; graphs != NULL && i < p->conditional.size; i++) {
            graphs[i] = (CUgraph)(uintptr_t)tow_dec_u64(&call->dec);
        }
        p->conditional.phGraph_out = graphs;
        status = graphs == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    return status;
}

/* After the call that makes node `id`. */
static CUresult graph_node_added(CUresult status, uint64_t id, CUgraphNode *ret_node)
{
    if (status != CUDA_SUCCESS) {
        towc_built_end(id);
        return status;
    }
    *ret_node = (CUgraphNode)(uintptr_t)id;
    return CUDA_SUCCESS;
}

static CUresult send_node(const struct tow_buf *body, const struct tow_node_head *head,
                          const CUgraphNode *dependencies, const struct known *known,
                          CUgraphNodeParams *p)
{
    const struct towc_context *context = towc_context_current();
    if (known->fine && may_tell(context) && (head->flags & TOW_NODE_EDGES) == 0 &&
        towc_built_takes(head->graph, context->link, dependencies, head->dependencies)) {
        return graph_node_tell(TOW_FN_cuGraphAddNode_v2, body);
    }
    struct towc_call call;
    CUresult status = graph_node_ask(&call, TOW_FN_cuGraphAddNode_v2, body);
    if (status == CUDA_SUCCESS) {
        status = towc_call_end(&call, add_outputs(&call, head->id, p));
    }
    if (status == CUDA_SUCCESS) {
        graph_node_took(known);
    }
    return status;
}

static CUresult add_node(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *dependencies,
                         const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *p)
{
    if (ret_node == NULL || p == NULL || graph == NULL || count > TOW_NODE_DEPENDENCIES_MAX ||
        (count > 0 && dependencies == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t id = 0;
    CUresult status = towc_built_node((uint64_t)(uintptr_t)graph, &id);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_buf body;
    tow_buf_init(&body, TOW_FRAME_MAX);
    struct tow_node_head head = {.id = id,
                                 .graph = (uint64_t)(uintptr_t)graph,
                                 .context = context_of(p),
                                 .dependencies = (uint32_t)count,
                                 .flags = edges != NULL ? TOW_NODE_EDGES : 0,
                                 .type = (uint32_t)p->type};
    tow_buf_append(&body, &head, sizeof head);
    tow_buf_append(&body, dependencies, count * sizeof *dependencies);
    if (edges != NULL) {
        tow_buf_append(&body, edges, count * sizeof *edges);
    }
    struct known known = {0};
    status = put_params(&body, p, &known);
    if (status == CUDA_SUCCESS) {
        status = send_node(&body, &head, dependencies, &known, p);
    }
    tow_buf_fini(&body);
    if (status == CUDA_SUCCESS) {
        towc_built_runs(id, known.kernel);
    }
    if (status == CUDA_SUCCESS && p->type == CU_GRAPH_NODE_TYPE_GRAPH &&
        p->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) {
        towc_built_graph_moves((uint64_t)(uintptr_t)p->graph.graph);
    }
    return graph_node_added(status, id, ret_node);
}

static CUresult send_params(const struct tow_buf *body, const struct tow_node_set_head *head,
                            const struct known *known)
{
    const struct towc_context *context = towc_context_current();
    unsigned fn = head->exec != 0 ? TOW_FN_cuGraphExecNodeSetParams : TOW_FN_cuGraphNodeSetParams;
    if (head->exec == 0) {
        towc_built_node_changes(head->node, known->kernel);
    } else if (known->fine && may_tell(context) &&
               towc_built_ran(head->exec, context->link, head->node, known->kernel)) {
        return graph_node_tell(fn, body);
    }
    struct towc_call call;
    CUresult status = graph_node_ask(&call, fn, body);
    if (status == CUDA_SUCCESS) {
        status = towc_call_end(&call, status);
        graph_node_took(known);
    }
    return status;
}

static CUresult set_node(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *p)
{
    if (node == NULL || p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct tow_buf body;
    tow_buf_init(&body, TOW_FRAME_MAX);
    struct tow_node_set_head head = {.exec = (uint64_t)(uintptr_t)exec,
                                     .node = (uint64_t)(uintptr_t)node,
                                     .context = context_of(p),
                                     .type = (uint32_t)p->type};
    tow_buf_append(&body, &head, sizeof head);
    struct known known = {0};
    CUresult status = put_params(&body, p, &known);
    if (status == CUDA_SUCCESS) {
        status = send_params(&body, &head, &known);
    }
    tow_buf_fini(&body);
    return status;
}

/* ---- the driver's forms of the same thing ---- */

static CUgraphNodeParams of_kernel(const CUDA_KERNEL_NODE_PARAMS *p)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, p, sizeof params.kernel);
    return params;
}

static CUDA_KERNEL_NODE_PARAMS of_kernel_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    memcpy(&params, p, sizeof *p);
    return params;
}

static CUgraphNodeParams of_copy(const CUDA_MEMCPY3D *p, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY};
    params.memcpy.copyCtx = context;
    params.memcpy.copyParams = *p;
    return params;
}

static CUgraphNodeParams of_fill(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    memcpy(&params.memset, p, sizeof *p);
    params.memset.ctx = context;
    return params;
}

static CUgraphNodeParams of_host(const CUDA_HOST_NODE_PARAMS *p)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    params.host.fn = p->fn;
    params.host.userData = p->userData;
    return params;
}

static CUgraphNodeParams of_memops(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP};
    memcpy(&params.memOp, p, sizeof *p);
    return params;
}

CUresult towc_cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies,
                                const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                CUgraphNodeParams *nodeParams)
{
    return add_node(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams);
}

CUresult towc_cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies, size_t numDependencies,
                             CUgraphNodeParams *nodeParams)
{
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

CUresult towc_cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    return set_node(NULL, hNode, nodeParams);
}

CUresult towc_cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       CUgraphNodeParams *nodeParams)
{
    return hGraphExec == NULL ? CUDA_ERROR_INVALID_VALUE : set_node(hGraphExec, hNode, nodeParams);
}

CUresult towc_cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                      const CUgraphNode *dependencies, size_t numDependencies,
                                      const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_kernel(nodeParams);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

CUresult towc_cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_KERNEL_NODE_PARAMS v2 = of_kernel_v1(nodeParams);
    return towc_cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &v2);
}

CUresult towc_cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                            const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_kernel(nodeParams);
    return set_node(NULL, hNode, &params);
}

CUresult towc_cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                         const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_KERNEL_NODE_PARAMS v2 = of_kernel_v1(nodeParams);
    return towc_cuGraphKernelNodeSetParams_v2(hNode, &v2);
}

CUresult towc_cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || hGraphExec == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_kernel(nodeParams);
    return set_node(hGraphExec, hNode, &params);
}

CUresult towc_cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_KERNEL_NODE_PARAMS v2 = of_kernel_v1(nodeParams);
    return towc_cuGraphExecKernelNodeSetParams_v2(hGraphExec, hNode, &v2);
}

CUresult towc_cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (copyParams == NULL) {
        CUresult state = towc_client_state();
        return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_copy(copyParams, ctx);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

CUresult towc_cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_copy(nodeParams, NULL);
    return set_node(NULL, hNode, &params);
}

CUresult towc_cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (copyParams == NULL || hGraphExec == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_copy(copyParams, ctx);
    return set_node(hGraphExec, hNode, &params);
}

/* A node must fill something. */
static bool is_empty_fill(const CUDA_MEMSET_NODE_PARAMS *params)
{
    return params == NULL || params->width == 0 || params->height == 0;
}

CUresult towc_cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    uint64_t id = 0;
    if (phGraphNode == NULL || is_empty_fill(memsetParams)) {
        CUresult state = towc_client_state();
        return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_fill(memsetParams, ctx);
    if (is_known_fill(&params.memset)) {
        return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
    }
    CUresult status = towc_mirror_reach(memsetParams->dst);
    if (status == CUDA_SUCCESS) {
        status = towc_built_node((uint64_t)(uintptr_t)hGraph, &id);
    }
    if (status != CUDA_SUCCESS) {
        return status;
    }
    status = towc_send_cuGraphAddMemsetNode((CUgraphNode)(uintptr_t)id, hGraph, dependencies,
                                            numDependencies, memsetParams, ctx);
    return graph_node_added(status, id, phGraphNode);
}

CUresult towc_cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies)
{
    uint64_t id = 0;
    if (phGraphNode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct towc_context *context = towc_context_current();
    if (may_tell(context) && numDependencies <= TOW_NODE_DEPENDENCIES_MAX &&
        towc_built_takes((uint64_t)(uintptr_t)hGraph, context->link, dependencies,
                         numDependencies)) {
        CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
        return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
    }
    CUresult status = towc_built_node((uint64_t)(uintptr_t)hGraph, &id);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    status = towc_send_cuGraphAddEmptyNode((CUgraphNode)(uintptr_t)id, hGraph, dependencies,
                                           numDependencies);
    return graph_node_added(status, id, phGraphNode);
}

CUresult towc_cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                       const CUgraphNode *dependencies, size_t numDependencies,
                                       CUgraph childGraph)
{
    uint64_t id = 0;
    if (phGraphNode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult status = towc_built_node((uint64_t)(uintptr_t)hGraph, &id);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    towc_hostfn_doubled();
    status = towc_send_cuGraphAddChildGraphNode((CUgraphNode)(uintptr_t)id, hGraph, dependencies,
                                                numDependencies, childGraph);
    return graph_node_added(status, id, phGraphNode);
}

CUresult towc_cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 CUgraph childGraph)
{
    towc_hostfn_doubled();
    return towc_send_cuGraphExecChildGraphNodeSetParams(hGraphExec, hNode, childGraph);
}

CUresult towc_cuGraphDestroyNode(CUgraphNode hNode)
{
    CUresult status = towc_send_cuGraphDestroyNode(hNode);
    if (status == CUDA_SUCCESS) {
        towc_built_end((uint64_t)(uintptr_t)hNode);
    }
    return status;
}

CUresult towc_cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                         const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    CUresult status =
        is_empty_fill(nodeParams) ? CUDA_ERROR_INVALID_VALUE : towc_mirror_reach(nodeParams->dst);
    return status != CUDA_SUCCESS ? status
                                  : towc_send_cuGraphMemsetNodeSetParams(hNode, nodeParams);
}

CUresult towc_cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                             CUcontext ctx)
{
    CUresult status = is_empty_fill(memsetParams) ? CUDA_ERROR_INVALID_VALUE
                                                  : towc_mirror_reach(memsetParams->dst);
    return status != CUDA_SUCCESS
               ? status
               : towc_send_cuGraphExecMemsetNodeSetParams(hGraphExec, hNode, memsetParams, ctx);
}

CUresult towc_cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_host(nodeParams);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

CUresult towc_cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_host(nodeParams);
    return set_node(NULL, hNode, &params);
}

CUresult towc_cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || hGraphExec == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_host(nodeParams);
    return set_node(hGraphExec, hNode, &params);
}

CUresult towc_cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                       const CUgraphNode *dependencies, size_t numDependencies,
                                       const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_memops(nodeParams);
    return add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
}

CUresult towc_cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                             const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_memops(nodeParams);
    return set_node(NULL, hNode, &params);
}

CUresult towc_cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                 const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || hGraphExec == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = of_memops(nodeParams);
    return set_node(hGraphExec, hNode, &params);
}

CUresult towc_cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                     const CUgraphNode *dependencies, size_t numDependencies,
                                     CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    memcpy(&params.alloc, nodeParams, sizeof params.alloc);
    CUresult status = add_node(phGraphNode, hGraph, dependencies, NULL, numDependencies, &params);
    nodeParams->dptr = status == CUDA_SUCCESS ? params.alloc.dptr : 0;
    return status;
}

/* ---- attributes of kernel nodes ---- */

static void attribute_changes(CUgraphNode node)
{
    towc_built_node_changes((uint64_t)(uintptr_t)node, (struct towc_built_kernel){0});
}

CUresult towc_cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                            const CUkernelNodeAttrValue *value)
{
    if (attr != CU_LAUNCH_ATTRIBUTE_PRIORITY) { /* goes with any parameters */
        attribute_changes(hNode);
    }
    return towc_send_cuGraphKernelNodeSetAttribute(hNode, attr, value);
}

CUresult towc_cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
    CUresult state = towc_client_state();
    if (state != CUDA_SUCCESS || dst == NULL || src == NULL) {
        return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_VALUE;
    }
    attribute_changes(dst);
    return towc_send_cuGraphKernelNodeCopyAttributes(dst, src);
}
