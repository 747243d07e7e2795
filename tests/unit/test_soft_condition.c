/* SPDX-License-Identifier: Apache-2.0 */
/* Conditional nodes, where CUDA's documents leave the answer open: what is refused, and how a loop
 * ends that never would. What they say is in tests/conform/conditions.c. */
#include "soft_lib.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/event.h"
#include "gen/graph.h"
#include "gen/launch.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/stream.h"

#include <unistd.h>

static CUmodule module;
static CUdeviceptr p;
static CUstream stream;
static CUgraph graph;

static const char *const setter =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n"
    ".visible .entry set(.param .u64 handle, .param .u32 value)\n"
    "{\n"
    "  .reg .b32 %r; .reg .b64 %d;\n"
    "  ld.param.u64 %d, [handle]; ld.param.u32 %r, [value];\n"
    "  { .param .b64 h; .param .b32 v; st.param.b64 [h], %d; st.param.b32 [v], %r;\n"
    "  call.uni cudaGraphSetConditional, (h, v); }\n"
    "  ret;\n"
    "}\n";

static int setup(void **state)
{
    int rc = soft_setup(state);
    if (rc == 0) {
        module = soft_module();
        OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4096));
        OK(tow_drive(cu, cuMemsetD8_v2)(p, 0, 4096));
        OK(tow_drive(cu, cuCtxSynchronize)());
        OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
        OK(tow_drive(cu, cuGraphCreate)(&graph, 0));
    }
    return rc;
}

static unsigned word(void)
{
    unsigned value;
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&value, p, 4));
    return value;
}

static CUgraphConditionalHandle condition(CUgraph of, unsigned value)
{
    CUgraphConditionalHandle handle;
    OK(tow_drive(cu, cuGraphConditionalHandleCreate)(&handle, of, NULL, value,
                                                     CU_GRAPH_COND_ASSIGN_DEFAULT));
    return handle;
}

static CUresult try_branch(CUgraph into, CUgraphConditionalHandle handle,
                           CUgraphConditionalNodeType type, unsigned size, CUgraph *ret_body)
{
    CUgraphNode node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    CUresult result = tow_drive(cu, cuGraphAddNode_v2)(&node, into, NULL, NULL, 0, &params);
    if (result == CUDA_SUCCESS) {
        *ret_body = params.conditional.phGraph_out[0];
    }
    return result;
}

static CUgraph branch(CUgraph into, CUgraphConditionalHandle handle,
                      CUgraphConditionalNodeType type)
{
    CUgraph body;
    OK(try_branch(into, handle, type, 1, &body));
    return body;
}

static CUresult try_kernel(CUgraph into, CUfunction function, void **params)
{
    CUgraphNode node;
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = function,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = params};
    return tow_drive(cu, cuGraphAddKernelNode_v2)(&node, into, NULL, 0, &kernel);
}

static void increment(CUgraph into)
{
    void *params[] = {&p};
    OK(try_kernel(into, soft_function(module, "increment"), params));
}

static CUgraphExec instantiate(void)
{
    CUgraphExec exec;
    OK(tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    return exec;
}

static void handles_belong_to_one_node_of_their_graph(void **state)
{
    (void)state;
    CUgraph other, body;
    CUgraphConditionalHandle handle = condition(graph, 1), nowhere;
    OK(tow_drive(cu, cuGraphCreate)(&other, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuGraphConditionalHandleCreate)(&nowhere, graph, NULL, 0, 2));
    CUcontext current;
    OK(tow_drive(cu, cuCtxPopCurrent_v2)(&current));
    FAILS(CUDA_ERROR_INVALID_CONTEXT,
          tow_drive(cu, cuGraphConditionalHandleCreate)(&nowhere, graph, NULL, 0, 0));
    OK(tow_drive(cu, cuCtxPushCurrent_v2)(current));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          try_branch(graph, handle + 16, CU_GRAPH_COND_TYPE_IF, 1, &body));
    FAILS(CUDA_ERROR_INVALID_VALUE, try_branch(other, handle, CU_GRAPH_COND_TYPE_IF, 1, &body));
    body = branch(graph, handle, CU_GRAPH_COND_TYPE_IF);
    FAILS(CUDA_ERROR_INVALID_VALUE, try_branch(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, &body));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphDestroy)(body));
    /* A body may use what its graph has, but not the other way round. */
    increment(branch(body, condition(graph, 1), CU_GRAPH_COND_TYPE_IF));
    CUgraph ignored;
    FAILS(CUDA_ERROR_INVALID_VALUE,
          try_branch(graph, condition(other, 1), CU_GRAPH_COND_TYPE_IF, 1, &ignored));
    OK(tow_drive(cu, cuGraphLaunch)(instantiate(), stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(word(), 1);
}

static void a_handle_without_a_node_is_told(void **state)
{
    (void)state;
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraph body = branch(graph, condition(graph, 1), CU_GRAPH_COND_TYPE_IF);
    condition(body, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuGraphInstantiateWithParams)(&exec, graph, &params));
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
}

static void nothing(void *user)
{
    (void)user;
}

static void bodies_take_what_runs_on_the_device(void **state)
{
    (void)state;
    CUgraphNode node;
    CUgraph body = branch(graph, condition(graph, 1), CU_GRAPH_COND_TYPE_IF), child;
    CUDA_HOST_NODE_PARAMS host = {.fn = nothing};
    CUevent event;
    OK(tow_drive(cu, cuEventCreate)(&event, 0));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, tow_drive(cu, cuGraphAddHostNode)(&node, body, NULL, 0, &host));
    FAILS(CUDA_ERROR_NOT_SUPPORTED,
          tow_drive(cu, cuGraphAddEventRecordNode)(&node, body, NULL, 0, event));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, tow_drive(cu, cuGraphAddMemFreeNode)(&node, body, NULL, 0, p));
    /* Nor in a child, before it is added or afterwards; and children have no conditions. */
    OK(tow_drive(cu, cuGraphCreate)(&child, 0));
    OK(tow_drive(cu, cuGraphAddHostNode)(&node, child, NULL, 0, &host));
    FAILS(CUDA_ERROR_NOT_SUPPORTED,
          tow_drive(cu, cuGraphAddChildGraphNode)(&node, body, NULL, 0, child));
    OK(tow_drive(cu, cuGraphDestroyNode)(node));
    OK(tow_drive(cu, cuGraphAddChildGraphNode)(&node, body, NULL, 0, child));
    OK(tow_drive(cu, cuGraphChildGraphNodeGetGraph)(node, &child));
    increment(child);
    FAILS(CUDA_ERROR_NOT_SUPPORTED,
          tow_drive(cu, cuGraphAddHostNode)(&node, child, NULL, 0, &host));
    FAILS(CUDA_ERROR_NOT_SUPPORTED,
          try_branch(child, condition(graph, 1), CU_GRAPH_COND_TYPE_IF, 1, &child));
    /* A stream that captures into it is refused in the same way. */
    CUgraph got;
    OK(tow_drive(cu, cuStreamBeginCaptureToGraph)(stream, body, NULL, NULL, 0,
                                                  CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(CUDA_ERROR_NOT_SUPPORTED, tow_drive(cu, cuLaunchHostFunc)(stream, nothing, NULL));
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, tow_drive(cu, cuStreamEndCapture)(stream, &got));
    /* All of it is of one context. */
    CUcontext other;
    OK(tow_drive(cu, cuCtxCreate_v2)(&other, 0, 0));
    CUfunction foreign = soft_function(soft_module(), "bump");
    FAILS(CUDA_ERROR_INVALID_VALUE, try_kernel(body, foreign, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          try_branch(body, condition(graph, 1), CU_GRAPH_COND_TYPE_IF, 1, &got));
    OK(tow_drive(cu, cuCtxDestroy_v2)(other));
}

static void bodies_in_bodies_end_somewhere(void **state)
{
    (void)state;
    CUgraph at = graph;
    CUresult result = CUDA_SUCCESS;
    unsigned depth = 0;
    while (result == CUDA_SUCCESS) {
        depth++;
        assert_in_range(depth, 1, 1000);
        result = try_branch(at, condition(graph, 1), CU_GRAPH_COND_TYPE_IF, 1, &at);
    }
    assert_int_equal(result, CUDA_ERROR_NOT_SUPPORTED);
    assert_in_range(depth, 64, 1000);
}

static void a_stream_stops_capturing_into_a_body_that_is_gone(void **state)
{
    (void)state;
    CUgraph body = branch(graph, condition(graph, 1), CU_GRAPH_COND_TYPE_IF), got;
    CUstreamCaptureStatus status;
    OK(tow_drive(cu, cuStreamBeginCaptureToGraph)(stream, body, NULL, NULL, 0,
                                                  CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(tow_drive(cu, cuMemsetD32Async)(p, 5, 1, stream));
    OK(tow_drive(cu, cuGraphDestroy)(graph));
    OK(tow_drive(cu, cuStreamIsCapturing)(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    FAILS(CUDA_ERROR_ILLEGAL_STATE, tow_drive(cu, cuStreamEndCapture)(stream, &got));
}

static void updates_change_no_type_and_no_size(void **state)
{
    (void)state;
    CUgraph other, body;
    CUgraphExecUpdateResultInfo info;
    increment(branch(graph, condition(graph, 1), CU_GRAPH_COND_TYPE_IF));
    CUgraphExec exec = instantiate();
    static const struct {
        CUgraphConditionalNodeType type;
        unsigned size;
        CUgraphExecUpdateResult result;
    } cases[] = {
        {CU_GRAPH_COND_TYPE_SWITCH, 1, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED},
        {CU_GRAPH_COND_TYPE_IF, 2, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED},
        {CU_GRAPH_COND_TYPE_IF, 1, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OK(tow_drive(cu, cuGraphCreate)(&other, 0));
        OK(try_branch(other, condition(other, 1), cases[i].type, cases[i].size, &body));
        FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
              tow_drive(cu, cuGraphExecUpdate_v2)(exec, other, &info));
        assert_int_equal(info.result, cases[i].result);
    }
    OK(tow_drive(cu, cuGraphLaunch)(exec, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(word(), 1);
}

static void an_endless_loop_is_stopped_by_context_destruction(void **state)
{
    (void)state;
    for (int with_kernel = 0; with_kernel < 2; with_kernel++) {
        CUcontext other;
        CUgraph loop;
        CUgraphExec exec;
        OK(tow_drive(cu, cuCtxCreate_v2)(&other, 0, 0));
        OK(tow_drive(cu, cuGraphCreate)(&loop, 0));
        CUgraph body = branch(loop, condition(loop, 1), CU_GRAPH_COND_TYPE_WHILE);
        if (with_kernel) {
            OK(try_kernel(body, soft_function(soft_module(), "bump"), NULL));
        }
        OK(tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, loop, 0));
        OK(tow_drive(cu, cuGraphLaunch)(exec, NULL));
        usleep(20000);
        FAILS(CUDA_ERROR_NOT_READY, tow_drive(cu, cuStreamQuery)(NULL));
        OK(tow_drive(cu, cuCtxDestroy_v2)(other));
        OK(tow_drive(cu, cuCtxSetCurrent)(context));
        /* The graph is still there, and cannot run any more. */
        FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuGraphInstantiateWithFlags)(&exec, loop, 0));
        OK(tow_drive(cu, cuGraphDestroy)(loop));
    }
}

static void an_unknown_handle_is_a_fault_of_the_kernel(void **state)
{
    (void)state;
    CUmodule code;
    CUgraphConditionalHandle handle = condition(graph, 0);
    unsigned value = 1;
    void *params[] = {&handle, &value};
    OK(tow_drive(cu, cuModuleLoadData)(&code, setter));
    CUfunction set = soft_function(code, "set");
    OK(soft_launch(set, 1, 1, stream, params));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    /* Another context does not know it, and nobody does when its graph is gone. */
    CUcontext other;
    OK(tow_drive(cu, cuCtxCreate_v2)(&other, 0, 0));
    OK(tow_drive(cu, cuModuleLoadData)(&code, setter));
    OK(soft_launch(soft_function(code, "set"), 1, 1, NULL, params));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuCtxSynchronize)());
    OK(tow_drive(cu, cuCtxDestroy_v2)(other));
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    OK(tow_drive(cu, cuGraphDestroy)(graph));
    OK(soft_launch(set, 1, 1, stream, params));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuStreamSynchronize)(stream));
}

static void a_dry_loop_runs_once(void **state)
{
    (void)state;
    soft_teardown(state);
    struct tow_soft_options options = {.memory = 256 * MIB, .dry = true};
    assert_int_equal(soft_open_with(&options), 0);
    module = soft_module();
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4096));
    OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    OK(tow_drive(cu, cuGraphCreate)(&graph, 0));
    increment(branch(graph, condition(graph, 1), CU_GRAPH_COND_TYPE_WHILE));
    OK(tow_drive(cu, cuGraphLaunch)(instantiate(), stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, soft_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(handles_belong_to_one_node_of_their_graph),
        TEST(a_handle_without_a_node_is_told),
        TEST(bodies_take_what_runs_on_the_device),
        TEST(bodies_in_bodies_end_somewhere),
        TEST(a_stream_stops_capturing_into_a_body_that_is_gone),
        TEST(updates_change_no_type_and_no_size),
        TEST(an_endless_loop_is_stopped_by_context_destruction),
        TEST(an_unknown_handle_is_a_fault_of_the_kernel),
        TEST(a_dry_loop_runs_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
