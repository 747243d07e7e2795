/* SPDX-License-Identifier: Apache-2.0 */
/* What graphs' nodes are asked for, where the answer holds pointers or handles. */
#include <string.h>

#include "client/code/code.h"
#include "client/graph/graph.h"
#include "client/callback/hostfn.h"
#include "gen/client_api.h"
#include "gen/graph_client.h"
#include "wire/graph.h"

static CUresult ask_node(struct towc_call *call, unsigned fn, CUgraphNode node)
{
    CUresult status = towc_call_begin(call, fn, 8, TOW_CALL_REPLY | TOW_CALL_CONTEXT);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_enc_u64(&call->enc, (uint64_t)(uintptr_t)node);
    return towc_call_wait(call);
}

CUresult towc_cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || hNode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_call call;
    CUresult status = ask_node(&call, TOW_FN_cuGraphKernelNodeGetParams_v2, hNode);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct tow_launch_head head;
    tow_dec_copy(&call.dec, &head, sizeof head);
    uint32_t count = tow_dec_count(&call.dec, TOW_KERNEL_PARAMS_MAX, 4);
    tow_dec_u32(&call.dec);
    const uint32_t *offsets = (const uint32_t *)(uintptr_t)tow_dec_bytes(&call.dec, count * 4u);
    tow_dec_align(&call.dec, 8);
    const uint8_t *bytes = tow_dec_bytes(&call.dec, head.bytes);
    /* The program gets pointers into memory that lives as long as the node. */
    uint8_t *kept =
        towc_keep_make((uint64_t)(uintptr_t)hNode, (count + 1) * sizeof(void *) + head.bytes + 16);
    if (call.dec.bad || kept == NULL) {
        return towc_call_end(&call, kept == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
    }
    void **params = (void **)kept;
    uint8_t *values = kept + (((count + 1) * sizeof(void *) + 15) & ~(size_t)15);
    if (head.bytes > 0) {
        memcpy(values, bytes, head.bytes);
    }
    for (uint32_t i = 0; i < count; i++) {
        params[i] = values + (offsets[i] < head.bytes ? offsets[i] : 0);
    }
    /* NVIDIA's runtime finds the program's own function by the library's kernel. */
    const struct towc_kernel *kernel = towc_kernel_find((const void *)(uintptr_t)head.function);
    uint64_t origin = TOW_ID_KIND(head.function) == TOW_H_KERNEL ? head.function
                      : kernel != NULL && kernel->origin != NULL ? kernel->origin->id
                                                                 : 0;
    *nodeParams = (CUDA_KERNEL_NODE_PARAMS){
        .func = TOW_ID_KIND(head.function) == TOW_H_FUNCTION ? (CUfunction)(uintptr_t)head.function
                                                             : NULL,
        .kern = (CUkernel)(uintptr_t)origin,
        .gridDimX = head.grid[0],
        .gridDimY = head.grid[1],
        .gridDimZ = head.grid[2],
        .blockDimX = head.block[0],
        .blockDimY = head.block[1],
        .blockDimZ = head.block[2],
        .sharedMemBytes = head.shared,
        .kernelParams = count > 0 ? params : NULL,
    };
    return towc_call_end(&call, CUDA_SUCCESS);
}

CUresult towc_cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUDA_KERNEL_NODE_PARAMS v2;
    CUresult status = nodeParams == NULL ? CUDA_ERROR_INVALID_VALUE
                                         : towc_cuGraphKernelNodeGetParams_v2(hNode, &v2);
    if (status == CUDA_SUCCESS) {
        if (v2.func == NULL) {
            v2.func = (CUfunction)v2.kern;
        }
        memcpy(nodeParams, &v2, sizeof *nodeParams);
    }
    return status;
}

CUresult towc_cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    if (nodeParams == NULL || hNode == NULL) {
        CUresult state = towc_client_state();
        return state != CUDA_SUCCESS ? state : CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_call call;
    CUresult status = ask_node(&call, TOW_FN_cuGraphMemcpyNodeGetParams, hNode);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    /* Arrays are ids in it already. */
    tow_dec_copy(&call.dec, nodeParams, sizeof *nodeParams);
    return towc_call_end(&call, CUDA_SUCCESS);
}

CUresult towc_cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (nodeParams == NULL || hNode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_call call;
    CUresult status = ask_node(&call, TOW_FN_cuGraphHostNodeGetParams, hNode);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    struct towc_hostfn function;
    if (!towc_hostfn_find(tow_dec_u64(&call.dec), &function)) {
        return towc_call_end(&call, CUDA_ERROR_INVALID_VALUE);
    }
    nodeParams->fn = function.run;
    nodeParams->userData = function.user;
    return towc_call_end(&call, CUDA_SUCCESS);
}

CUresult towc_cuGraphMemAllocNodeGetParams(CUgraphNode hNode,
                                           CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    if (params_out == NULL || hNode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_call call;
    CUresult status = ask_node(&call, TOW_FN_cuGraphMemAllocNodeGetParams, hNode);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    tow_dec_copy(&call.dec, params_out, sizeof *params_out);
    towc_unpack_CUmemPoolProps(call.link, &params_out->poolProps);
    params_out->accessDescs = NULL;
    size_t count = params_out->accessDescCount;
    if (count > TOW_NODE_ACCESS_MAX) {
        params_out->accessDescCount = 0;
        tow_dec_fail(&call.dec);
    } else if (count > 0) {
        CUmemAccessDesc *descs = towc_keep_make((uint64_t)(uintptr_t)hNode, count * sizeof *descs);
        if (descs == NULL) {
            return towc_call_end(&call, CUDA_ERROR_OUT_OF_MEMORY);
        }
        tow_dec_copy(&call.dec, descs, count * sizeof *descs);
        for (size_t i = 0; i < count; i++) {
            towc_unpack_CUmemAccessDesc(call.link, &descs[i]);
        }
        params_out->accessDescs = descs;
    }
    return towc_call_end(&call, CUDA_SUCCESS);
}

CUresult towc_cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                             CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
    if (nodeParams_out == NULL || hNode == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct towc_call call;
    CUresult status = ask_node(&call, TOW_FN_cuGraphBatchMemOpNodeGetParams, hNode);
    if (status != CUDA_SUCCESS) {
        return status;
    }
    memset(nodeParams_out, 0, sizeof *nodeParams_out);
    uint32_t count =
        tow_dec_count(&call.dec, TOW_NODE_MEMOPS_MAX, sizeof(CUstreamBatchMemOpParams));
    nodeParams_out->flags = tow_dec_u32(&call.dec);
    CUstreamBatchMemOpParams *ops = towc_keep_make((uint64_t)(uintptr_t)hNode, count * sizeof *ops);
    if (ops == NULL) {
        return towc_call_end(&call, CUDA_ERROR_OUT_OF_MEMORY);
    }
    tow_dec_copy(&call.dec, ops, count * sizeof *ops);
    nodeParams_out->count = count;
    nodeParams_out->paramArray = ops;
    return towc_call_end(&call, CUDA_SUCCESS);
}
