/* SPDX-License-Identifier: Apache-2.0 */
/* Commands whose encoding is written by hand: a program, the client, a session and the software GPU
 * in this process. What the client sends and what it gets back become lines, if the function is one
 * of those; seq and thread are left out, they tell of the program's past only.
 *
 * A function that nobody calls here is named at the end: add a call. Everything is the same in each
 * run: the software GPU's addresses begin where we say, host memory lies where we put it. */
#include "golden.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend.h"
#include "client/link/call.h"
#include "client/link/self.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/core.h"
#include "gen/device.h"
#include "gen/graph.h"
#include "gen/green.h"
#include "gen/interop.h"
#include "gen/launch.h"
#include "gen/memory.h"
#include "gen/module.h"
#include "gen/pool.h"
#include "gen/stream.h"
#include "gen/texture.h"
#include "gen/vmm.h"
#include "server/run/run.h"
#include "server/session/session.h"
#include "wire/token.h"

#define GPU_BASE 0x210000000000u
#define HOST_BASE 0x3a0000000000u
enum { HOST_SIZE = 1 << 20 };

#define OK(call)                                                                                   \
    do {                                                                                           \
        CUresult status_ = (call);                                                                 \
        if (status_ != CUDA_SUCCESS) {                                                             \
            golden_wrong("line %d: %s answers %d", __LINE__, #call, status_);                      \
        }                                                                                          \
    } while (0)

static const char text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 counter = 7;\n"
    ".visible .entry add(.param .u64 p0, .param .u32 p1, .param .u32 p2)\n{\n"
    ".reg .u64 %a; .reg .u32 %b, %v;\n"
    "ld.param.u64 %a, [p0]; ld.param.u32 %b, [p2]; ld.global.u32 %v, [%a]; add.u32 %v, %v, %b;\n"
    "st.global.u32 [%a], %v; ret;\n}\n";

/* ---- the server ---- */

static struct tow_backend backend;

/* The software GPU has no tensor maps. */
static CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                             void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                             const cuuint32_t *box, const cuuint32_t *steps,
                             CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                             CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    bool same = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && rank == 2 && dims[0] == 64 &&
                dims[1] == 16 && strides[0] == 128 && box[0] == 32 && box[1] == 8 &&
                steps[0] == 1 && interleave == CU_TENSOR_MAP_INTERLEAVE_16B &&
                swizzle == CU_TENSOR_MAP_SWIZZLE_32B &&
                promotion == CU_TENSOR_MAP_L2_PROMOTION_L2_64B &&
                fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    golden_fill(map, sizeof *map, 9);
    memcpy(map, &address, sizeof address);
    return same ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* One exported descriptor at a time, with a token that is always the same. */
static const struct tow_token token = {{0x0102030405060708u, 0x1112131415161718u}};
static int kept = -1;

static int keep(int fd, struct tow_token *ret_token)
{
    kept = fd;
    *ret_token = token;
    return 0;
}

static int get(const struct tow_token *wanted)
{
    return tow_token_equal(wanted, &token) ? dup(kept) : -ENOENT;
}

static void forget(const struct tow_token *gone)
{
    (void)gone;
    close(kept);
}

static void *serve(void *arg)
{
    static const struct tows_export_ops ops = {keep, get, forget};
    static const struct tows_session_options options = {
        .id = 1, .in_process = true, .exports = &ops};
    tows_session_run(arg, &backend, &options);
    return NULL;
}

/* Before the client connects, which holds a lock over that: here it and the server are one library
 * to the check of locks. */
static void open_backend(void)
{
    struct tow_soft_options options = {
        .devices = 2, .memory = 256u << 20, .threads = 1, .address_base = GPU_BASE};
    char why[256] = "";
    if (tow_backend_soft_open(&options, &backend, why, sizeof why) < 0) {
        golden_wrong("no software GPU: %s", why);
        return;
    }
    tow_drive(&backend.driver, cuInit)(0);
    tow_driver_set(&backend.driver, cuTensorMapEncodeTiled, encode_tiled);
}

int tow_self_start(const char *device, struct tow_line *line, char *why, size_t why_size)
{
    pthread_t thread;
    (void)device;
    (void)why;
    (void)why_size;
    int error = -pthread_create(&thread, NULL, serve, line);
    if (error == 0) {
        pthread_detach(thread);
    }
    return error;
}

/* ---- the program ---- */

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction add;
static CUstream stream;
static CUdeviceptr data;
static uint8_t *host; /* at HOST_BASE */

static void contexts(void)
{
    CUcontext own = NULL, back = NULL;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxCreate_v4(&own, NULL, CU_CTX_SCHED_SPIN, device));
    OK(cuCtxDestroy_v2(own));
    OK(cuCtxSetCurrent(context));
    OK(cuCtxGetCurrent(&back));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&data, 4096));
}

static void code(void)
{
    static char log[256];
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_MAX_REGISTERS};
    void *values[] = {log, (void *)(uintptr_t)sizeof log, (void *)(uintptr_t)32};
    CUfunction functions[2];
    CUlibrary library = NULL;
    CUkernel kernel = NULL, kernels[2];
    CUmodule of_library = NULL;
    CUlinkState linker = NULL;
    void *cubin = NULL;
    size_t size = 0;
    OK(cuModuleLoadDataEx(&module, text, 3, options, values));
    OK(cuModuleGetFunction(&add, module, "add"));
    OK(cuModuleEnumerateFunctions(functions, 1, module));
    /* With an option of its own nothing is known of its kernels beforehand. */
    OK(cuLibraryLoadData(&library, text, &options[2], &values[2], 1, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "add"));
    OK(cuLibraryEnumerateKernels(kernels, 1, library));
    OK(cuLibraryGetModule(&of_library, library));
    OK(cuKernelGetFunction(&functions[0], kernel));
    OK(cuLibraryUnload(library));
    OK(cuLinkCreate_v2(0, NULL, NULL, &linker));
    OK(cuLinkAddData_v2(linker, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, sizeof text, "made-up",
                        0, NULL, NULL));
    OK(cuLinkComplete(linker, &cubin, &size));
    OK(cuLinkDestroy(linker));
}

/* Sharing memory needs two processes and a line between them that passes it: what travels is
 * written here as client/link/share.c writes it, and the answer is that it cannot be. */
static void share(void)
{
    struct towc_call call;
    OK(towc_call_begin(&call, TOW_FN_cuMemHostAlloc, 24, TOW_CALL_REPLY | TOW_CALL_CONTEXT));
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)host);
    tow_enc_u64(&call.enc, HOST_SIZE);
    tow_enc_u64(&call.enc, 1);
    OK(towc_call_end(&call, towc_call_wait(&call)) == CUDA_ERROR_NOT_SUPPORTED
           ? CUDA_SUCCESS
           : CUDA_ERROR_UNKNOWN);
    OK(towc_call_begin(&call, TOW_FN_cuMemHostAlloc, 32, TOW_CALL_REPLY | TOW_CALL_CONTEXT));
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)host);
    tow_enc_u64(&call.enc, HOST_SIZE);
    tow_enc_u64(&call.enc, 2);
    tow_enc_u64(&call.enc, 4096); /* where it is in a file of the program's */
    OK(towc_call_end(&call, towc_call_wait(&call)) == CUDA_ERROR_NOT_SUPPORTED
           ? CUDA_SUCCESS
           : CUDA_ERROR_UNKNOWN);
    OK(towc_call_begin(&call, TOW_FN_cuMemFreeHost, 8, TOW_CALL_REPLY | TOW_CALL_CONTEXT));
    tow_enc_u64(&call.enc, (uint64_t)(uintptr_t)host);
    OK(towc_call_end(&call, towc_call_wait(&call)) == CUDA_ERROR_INVALID_VALUE
           ? CUDA_SUCCESS
           : CUDA_ERROR_UNKNOWN);
}

static void memory(void)
{
    CUdeviceptr managed = 0, seen = 0;
    CUmemoryPool pool = NULL;
    cuuint64_t threshold = 0x123456;
    int value = 0;
    OK(cuMemHostRegister_v2(host, HOST_SIZE, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer_v2(&seen, host, 0));
    share();
    OK(cuMemHostUnregister(host));
    OK(cuMemAllocManaged(&managed, 8192, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed,
                              8192));
    OK(cuMemFree_v2(managed));
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

static void copies(void)
{
    CUDA_MEMCPY3D shape = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = host,
                           .srcPitch = 32,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = data,
                           .dstPitch = 64,
                           .dstHeight = 2,
                           .WidthInBytes = 24,
                           .Height = 2,
                           .Depth = 1};
    golden_fill(host, 4096, 1);
    OK(cuMemcpyHtoDAsync_v2(data, host, 40, stream));
    OK(cuMemcpyDtoHAsync_v2(host + 4096, data, 40, stream));
    OK(cuMemcpy3DAsync_v2(&shape, stream));
    OK(cuStreamSynchronize(stream));
    if (memcmp(host, host + 4096, 40) != 0) {
        golden_wrong("a copy there and back changed the bytes");
    }
}

static void tensors(void)
{
    CUtensorMap map;
    cuuint64_t dims[2] = {64, 16}, strides[1] = {128};
    cuuint32_t box[2] = {32, 8}, steps[2] = {1, 1};
    OK(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void *)(uintptr_t)data,
                              dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_16B,
                              CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA));
}

static void called(void *user)
{
    ++*(volatile int *)user;
}

static void called_back(CUstream where, CUresult status, void *user)
{
    (void)where;
    (void)status;
    called(user);
}

static void launches(void)
{
    static int calls;
    int count = 1, by = 2, clusters = 0;
    void *params[] = {&data, &count, &by};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = 0};
    CUlaunchConfig config = {.gridDimX = 2,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 2,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    OK(cuLaunchKernel(add, 1, 2, 3, 4, 5, 6, 0, stream, params, NULL));
    OK(cuLaunchKernelEx(&config, add, params, NULL));
    OK(cuOccupancyMaxPotentialClusterSize(&clusters, add, &config));
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                 .value.clusterDim = {2, 1, 1}};
    config.attrs = &cluster;
    OK(cuOccupancyMaxActiveClusters(&clusters, add, &config));
    OK(cuLaunchHostFunc(stream, called, &calls));
    OK(cuStreamAddCallback(stream, called_back, &calls, 0));
    OK(cuStreamSynchronize(stream));
    if (calls != 2) {
        golden_wrong("%d of 2 host functions ran", calls);
    }
}

static void graphs(void)
{
    CUgraph graph = NULL, other = NULL, captured = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode nodes[8] = {0};
    cuuint64_t amount = 0, id = 0;
    int count = 1, by = 2;
    void *params[] = {&data, &count, &by};
    OK(cuGraphCreate(&graph, 0));
    CUgraphNodeParams kernel = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                .kernel = {.func = add,
                                           .gridDimX = 1,
                                           .gridDimY = 1,
                                           .gridDimZ = 1,
                                           .blockDimX = 8,
                                           .blockDimY = 1,
                                           .blockDimZ = 1,
                                           .kernelParams = params}};
    OK(cuGraphAddNode_v2(&nodes[0], graph, NULL, NULL, 0, &kernel));
    CUgraphNodeParams copy = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                              .memcpy = {.copyParams = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                                        .srcDevice = data,
                                                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                                        .dstDevice = data + 1024,
                                                        .WidthInBytes = 64,
                                                        .Height = 1,
                                                        .Depth = 1}}};
    copy.memcpy.copyCtx = context;
    OK(cuGraphAddNode_v2(&nodes[1], graph, nodes, NULL, 1, &copy));
    CUgraphNodeParams fill = {
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {
            .dst = data, .value = 3, .elementSize = 4, .width = 16, .height = 1, .ctx = context}};
    OK(cuGraphAddNode_v2(&nodes[2], graph, nodes, NULL, 2, &fill));
    static int calls;
    CUgraphNodeParams run = {.type = CU_GRAPH_NODE_TYPE_HOST,
                             .host = {.fn = called, .userData = &calls}};
    OK(cuGraphAddNode_v2(&nodes[3], graph, NULL, NULL, 0, &run));
    CUstreamBatchMemOpParams write = {
        .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = data, .value = 5}};
    CUgraphNodeParams batch = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                               .memOp = {.ctx = context, .count = 1, .paramArray = &write}};
    OK(cuGraphAddNode_v2(&nodes[4], graph, NULL, NULL, 0, &batch));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUgraphNodeParams alloc = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    alloc.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    alloc.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    alloc.alloc.accessDescs = &access;
    alloc.alloc.accessDescCount = 1;
    alloc.alloc.bytesize = 4096;
    OK(cuGraphAddNode_v2(&nodes[5], graph, NULL, NULL, 0, &alloc));

    CUDA_KERNEL_NODE_PARAMS got_kernel;
    CUDA_MEMCPY3D got_copy;
    CUDA_HOST_NODE_PARAMS got_host;
    CUDA_BATCH_MEM_OP_NODE_PARAMS got_batch;
    CUDA_MEM_ALLOC_NODE_PARAMS got_alloc;
    OK(cuGraphKernelNodeGetParams_v2(nodes[0], &got_kernel));
    OK(cuGraphMemcpyNodeGetParams(nodes[1], &got_copy));
    OK(cuGraphHostNodeGetParams(nodes[3], &got_host));
    OK(cuGraphBatchMemOpNodeGetParams(nodes[4], &got_batch));
    OK(cuGraphMemAllocNodeGetParams(nodes[5], &got_alloc));
    if (*(int *)got_kernel.kernelParams[2] != by || got_copy.WidthInBytes != 64 ||
        got_host.userData != &calls || got_batch.count != 1 || got_alloc.bytesize != 4096 ||
        got_alloc.poolProps.location.id != device) {
        golden_wrong("a node's parameters came back otherwise than they were set");
    }
    by = 9;
    OK(cuGraphNodeSetParams(nodes[0], &kernel));

    /* An allocating graph has rules of its own; a smaller one is made executable. */
    OK(cuGraphCreate(&other, 0));
    OK(cuGraphAddNode_v2(&nodes[6], other, NULL, NULL, 0, &kernel));
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = 0};
    CUgraphExecUpdateResultInfo result;
    OK(cuGraphInstantiateWithParams(&exec, other, &how));
    OK(cuGraphExecNodeSetParams(exec, nodes[6], &kernel));
    OK(cuGraphExecUpdate_v2(exec, other, &result));
    cuGraphDebugDotPrint(other, "/dev/null", 0);
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &amount));
    amount = 0;
    OK(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &amount));

    CUstreamCaptureStatus status;
    const CUgraphNode *dependencies = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t found = 0;
    OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuLaunchKernel(add, 1, 1, 1, 8, 1, 1, 0, stream, params, NULL));
    OK(cuStreamGetCaptureInfo_v3(stream, &status, &id, &captured, &dependencies, &edges, &found));
    OK(cuStreamEndCapture(stream, &captured));
    OK(cuGraphDestroy(captured));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(graph));
}

static void sharing(void)
{
    CUdevResource all, group;
    CUdevResourceDesc description = NULL;
    CUgreenCtx green = NULL;
    CUcontext of_green = NULL;
    CUipcMemHandle handle;
    CUdeviceptr opened = 0;
    unsigned groups = 1;
    memset(&all, 0, sizeof all);
    OK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&group, &groups, &all, NULL, 0, 1));
    OK(cuDevResourceGenerateDesc(&description, &group, 1));
    OK(cuGreenCtxCreate(&green, description, device, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuCtxFromGreenCtx(&of_green, green));
    OK(cuGreenCtxDestroy(green));
    /* A program cannot open its own memory: the refusal is what is to be seen. */
    golden_fill(&handle, sizeof handle, 5);
    if (cuIpcOpenMemHandle_v2(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
        CUDA_SUCCESS) {
        golden_wrong("a made-up IPC handle was opened");
    }
}

static void shareable(void)
{
    const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAllocationProp prop;
    CUmemPoolProps props;
    CUmemGenericAllocationHandle memory = 0, imported = 0;
    CUmemPoolPtrExportData pointer;
    CUmemoryPool pool = NULL, other = NULL;
    CUdeviceptr at = 0;
    int fd = -1;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = type;
    prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
    OK(cuMemCreate(&memory, 2u << 20, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, memory, type, 0));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, type));
    close(fd);
    OK(cuMemRelease(imported));
    OK(cuMemRelease(memory));
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = type;
    props.location = prop.location;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, type, 0));
    OK(cuMemPoolImportFromShareableHandle(&other, (void *)(intptr_t)fd, type, 0));
    close(fd);
    /* A pointer names its pool by random bytes: the refusal is what is to be seen. */
    golden_fill(&pointer, sizeof pointer, 5);
    if (cuMemPoolImportPointer(&at, other, &pointer) == CUDA_SUCCESS) {
        golden_wrong("a made-up pointer was imported");
    }
    OK(cuMemPoolDestroy(other));
    OK(cuMemPoolDestroy(pool));
}

/* An ordinary one, and one that is managed. */
static void variables(void)
{
    static const char shared[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                 ".visible .global .attribute(.managed) .align 4 .u32 both;\n";
    CUlibrary library = NULL;
    CUdeviceptr at = 0;
    size_t size = 0;
    OK(cuModuleGetGlobal_v2(&at, &size, module, "counter"));
    OK(cuLibraryLoadData(&library, shared, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetGlobal(&at, &size, library, "both"));
    OK(cuLibraryGetManaged(&at, &size, library, "both"));
    OK(cuLibraryUnload(library));
}

static void end(void)
{
    OK(cuModuleUnload(module));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuDevicePrimaryCtxReset_v2(device));
}

/* The memory at `base`, or NULL. */
static void *map_at(uint64_t base, size_t size, int access)
{
    void *at = mmap((void *)(uintptr_t)base, size, access,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED && (uint64_t)(uintptr_t)at != base) {
        munmap(at, size);
    }
    return at == MAP_FAILED || (uint64_t)(uintptr_t)at != base ? NULL : at;
}

bool golden_has_addresses(void)
{
    void *arena = map_at(GPU_BASE, 1u << 30, PROT_NONE);
    host = map_at(HOST_BASE, HOST_SIZE, PROT_READ | PROT_WRITE);
    if (arena != NULL) {
        munmap(arena, 1u << 30);
    }
    return host != NULL && arena != NULL;
}

void golden_run_by_hand(void)
{
    setenv("TOWLINE_SERVER", "self:", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1); /* the program's device 0 is the server's 1 */
    open_backend();
    contexts();
    code();
    memory();
    copies();
    tensors();
    launches();
    graphs();
    sharing();
    shareable();
    variables();
    end();
}
