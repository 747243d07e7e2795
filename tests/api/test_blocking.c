/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_LAUNCH_BLOCKING=1: a launch returns when the kernel is done, and says what became of it.
 * With TOWLINE_SYNC in place of it the same holds; the program sets the former unless the latter is
 * set. */
#include "api.h"

/* slow(int *word, int turns): takes its time and then adds 1 to *word; bad(): writes to nowhere. */
static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry slow(.param .u64 p0, .param .u32 p1)\n{\n"
    ".reg .u64 %a; .reg .u32 %n, %v; .reg .pred %p;\n"
    "ld.param.u64 %a, [p0]; ld.param.u32 %n, [p1];\n"
    "again: ld.volatile.global.u32 %v, [%a]; sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0;\n"
    "@%p bra again;\n"
    "add.u32 %v, %v, 1; st.global.u32 [%a], %v;\n"
    "ret;\n}\n"
    ".visible .entry bad()\n{\n"
    ".reg .u64 %a;\n"
    "mov.u64 %a, 64; st.global.u32 [%a], 1;\n"
    "ret;\n}\n";

enum { TURNS = 20000 };

static CUresult launch_slow(CUfunction slow, CUdeviceptr word, CUstream stream)
{
    int turns = TURNS;
    void *params[] = {&word, &turns};
    return cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void launches_are_done_when_they_return(CUfunction slow, CUdeviceptr word)
{
    CUstream streams[3] = {NULL};
    OK(cuStreamCreate(&streams[1], CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&streams[2], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 30; i++) {
        OK(launch_slow(slow, word, streams[i % 3]));
        OK(cuStreamQuery(streams[i % 3]));
    }
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY};
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, streams[2], &attribute, 1};
    int turns = TURNS, value = 0;
    void *params[] = {&word, &turns};
    OK(cuLaunchKernelEx(&config, slow, params, NULL));
    OK(cuStreamQuery(streams[2]));
    OK(cuMemcpyDtoH(&value, word, 4));
    EQUAL(value, 31);
    OK(cuStreamDestroy(streams[1]));
    OK(cuStreamDestroy(streams[2]));
}

/* What is captured is not waited for, and neither is what another stream does meanwhile. */
static void captures_are_not_disturbed(CUfunction slow, CUdeviceptr word)
{
    CUstream stream, other;
    CUgraph graph = NULL;
    CUgraphExec exec;
    int value = 0;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(launch_slow(slow, word, stream));
    OK(launch_slow(slow, word + 64, other));
    OK(launch_slow(slow, word, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuMemcpyDtoH(&value, word, 4));
    EQUAL(value, 31);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    if (api_is_remote()) { /* NVIDIA's driver does not say that graphs are waited for */
        OK(cuStreamQuery(stream));
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, word, 4));
    EQUAL(value, 33);
    OK(cuStreamSynchronize(other));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
    OK(cuStreamDestroy(other));
}

int main(void)
{
    struct api api;
    CUmodule module;
    CUfunction slow, bad;
    CUdeviceptr word;
    if (getenv("TOWLINE_SYNC") == NULL) {
        setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    }
    api_begin(&api);
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(&slow, module, "slow"));
    OK(cuModuleGetFunction(&bad, module, "bad"));
    OK(cuMemAlloc(&word, 128));
    OK(cuMemsetD8(word, 0, 128));
    launches_are_done_when_they_return(slow, word);
    captures_are_not_disturbed(slow, word);
    /* Last: nothing works after it. */
    EQUAL(cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    EQUAL(launch_slow(slow, word, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    printf("%s\n", api_failures == 0 ? "OK" : "FAILED");
    return api_failures != 0;
}
