/* SPDX-License-Identifier: Apache-2.0 */
/* Two devices, which remotely are those of two servers: memory, kernels, streams, events and
 * copies between them. Where there is one device only it plays both parts, and the output is the
 * same. */
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>

static void check(int status, int line, const char *what)
{
    if (status != 0) {
        fprintf(stderr, "FAILED: line %d: %s: %d\n", line, what, status);
        exit(1);
    }
}
#define CHECK(call) check((int)(call), __LINE__, #call)
#define EXPECT(condition) check((condition) ? 0 : 1, __LINE__, #condition)

/* step(int *data, int count, int by): data[i] = 3 * data[i] + by */
static const char ptx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry step(.param .u64 p0, .param .u32 p1, .param .u32 p2)\n{\n"
    ".reg .u64 %a, %o; .reg .u32 %i, %n, %b, %t, %c, %v; .reg .pred %p;\n"
    "ld.param.u64 %a, [p0]; ld.param.u32 %n, [p1]; ld.param.u32 %b, [p2];\n"
    "mov.u32 %i, %ctaid.x; mov.u32 %c, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %i, %c, %t;\n"
    "setp.ge.u32 %p, %i, %n; @%p bra done;\n"
    "mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; ld.global.u32 %v, [%a];\n"
    "mad.lo.u32 %v, %v, 3, %b; st.global.u32 [%a], %v;\n"
    "done: ret;\n}\n";

enum { COUNT = 1 << 20, BYTES = COUNT * 4 };

struct part {
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction step;
    CUstream stream;
    CUevent event;
    CUdeviceptr data;
};

static void begin(struct part *part, int ordinal)
{
    CHECK(cuDeviceGet(&part->device, ordinal));
    CHECK(cuCtxCreate(&part->context, NULL, 0, part->device));
    CHECK(cuModuleLoadData(&part->module, ptx));
    CHECK(cuModuleGetFunction(&part->step, part->module, "step"));
    CHECK(cuStreamCreate(&part->stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&part->event, CU_EVENT_DISABLE_TIMING));
    CHECK(cuMemAlloc(&part->data, BYTES));
}

static void step(struct part *part, int by)
{
    int count = COUNT;
    void *arguments[] = {&part->data, &count, &by};
    CHECK(cuCtxSetCurrent(part->context));
    CHECK(
        cuLaunchKernel(part->step, COUNT / 256, 1, 1, 256, 1, 1, 0, part->stream, arguments, NULL));
}

/* Sends the data of one part to the other, behind what its stream does. */
static void send(struct part *to, struct part *from)
{
    CHECK(cuCtxSetCurrent(from->context));
    CHECK(cuMemcpyPeerAsync(to->data, to->context, from->data, from->context, BYTES, from->stream));
    CHECK(cuEventRecord(from->event, from->stream));
    CHECK(cuCtxSetCurrent(to->context));
    CHECK(cuStreamWaitEvent(to->stream, from->event, 0));
}

/* What one device says of the other is so: kernels reach it once allowed, or never. */
static void reach(struct part *part, struct part *other)
{
    int can = -1;
    CHECK(cuDeviceCanAccessPeer(&can, part->device, other->device));
    CHECK(cuCtxSetCurrent(part->context));
    CUresult result = cuCtxEnablePeerAccess(other->context, 0);
    if (can) {
        struct part there = *part;
        CHECK(result);
        CHECK(cuMemsetD32(other->data, 4, COUNT));
        CHECK(cuCtxSynchronize());
        there.data = other->data;
        step(&there, 1);
        CHECK(cuStreamSynchronize(part->stream));
        unsigned value = 0;
        CHECK(cuMemcpyDtoH(&value, other->data, sizeof value));
        EXPECT(value == 13);
        CHECK(cuCtxDisablePeerAccess(other->context));
    } else if (part->device != other->device) {
        EXPECT(result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        EXPECT(cuCtxDisablePeerAccess(other->context) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    puts("peer access is what the device says");
}

/* A block out of the middle of the volume that `from` has, to the start of what `to` has. */
static void send_block(struct part *to, struct part *from)
{
    CUDA_MEMCPY3D_PEER copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = from->data,
                               .srcContext = from->context,
                               .srcPitch = 1024,
                               .srcHeight = 64,
                               .srcXInBytes = 128,
                               .srcY = 3,
                               .srcZ = 2,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = to->data,
                               .dstContext = to->context,
                               .dstPitch = 512,
                               .dstHeight = 32,
                               .WidthInBytes = 256,
                               .Height = 20,
                               .Depth = 5};
    CHECK(cuCtxSetCurrent(from->context));
    CHECK(cuMemcpy3DPeerAsync(&copy, from->stream));
    CHECK(cuStreamSynchronize(from->stream));
    copy.dstZ = 8;
    CHECK(cuMemcpy3DPeer(&copy));
    CHECK(cuCtxSynchronize());
}

/* One context waits for all work of the other, and calls about either are made where it is not
 * current. */
static void wait_for_all(struct part *part, struct part *other)
{
    step(other, 1);
    CHECK(cuCtxSetCurrent(part->context));
    CHECK(cuCtxRecordEvent(other->context, other->event));
    CHECK(cuCtxSetCurrent(other->context));
    CHECK(cuCtxWaitEvent(part->context, other->event));
    step(part, 1);
    CHECK(cuStreamSynchronize(part->stream));
    EXPECT(cuEventQuery(other->event) == CUDA_SUCCESS);
    puts("a context waits for the other");
}

static unsigned *fetch(struct part *part)
{
    unsigned *host = malloc(BYTES);
    CHECK(cuCtxSetCurrent(part->context));
    CHECK(cuStreamSynchronize(part->stream));
    CHECK(cuMemcpyDtoH(host, part->data, BYTES));
    return host;
}

static void show(const char *what, const unsigned *values)
{
    unsigned long long hash = 14695981039346656037u;
    for (int i = 0; i < COUNT; i++) {
        hash = (hash ^ values[i]) * 1099511628211u;
    }
    printf("%s: %u %u %u hash %016llx\n", what, values[0], values[1], values[COUNT - 1], hash);
}

/* A library's kernel belongs to no device, also where the first to use it is a graph. */
static void step_in_a_graph(struct part *parts)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    unsigned by = 1, count = COUNT;
    CHECK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, "step"));
    for (int i = 0; i < 2; i++) {
        CUgraph graph;
        CUgraphExec exec;
        CUgraphNode node;
        void *args[] = {&parts[i].data, &count, &by};
        CUDA_KERNEL_NODE_PARAMS p = {.gridDimX = COUNT / 256,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 256,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = args,
                                     .kern = kernel};
        CHECK(cuCtxSetCurrent(parts[i].context));
        CHECK(cuMemsetD32(parts[i].data, 5 + (unsigned)i, COUNT));
        CHECK(cuGraphCreate(&graph, 0));
        CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
        CHECK(cuGraphInstantiate(&exec, graph, 0));
        CHECK(cuGraphLaunch(exec, NULL));
        CHECK(cuCtxSynchronize());
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
        unsigned *values = fetch(&parts[i]);
        show("a graph's step", values);
        free(values);
    }
    CHECK(cuLibraryUnload(library));
}

int main(void)
{
    int count = 0;
    static unsigned values[COUNT];
    struct part parts[2] = {0};
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    EXPECT(getenv("EXPECT_DEVICES") == NULL || count == atoi(getenv("EXPECT_DEVICES")));
    begin(&parts[0], 0);
    begin(&parts[1], count > 1 ? 1 : 0);
    for (int i = 0; i < 2; i++) {
        CUcontext owner = NULL;
        int ordinal = -1;
        CHECK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, parts[i].data));
        CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, parts[i].data));
        EXPECT(owner == parts[i].context && ordinal == parts[i].device);
    }
    EXPECT(parts[0].data != parts[1].data);

    for (int i = 0; i < COUNT; i++) {
        values[i] = (unsigned)i;
    }
    CHECK(cuCtxSetCurrent(parts[0].context));
    CHECK(cuMemcpyHtoD(parts[0].data, values, BYTES));
    CHECK(cuCtxSynchronize()); /* the streams wait for no other */
    CHECK(cuCtxSetCurrent(parts[1].context));
    CHECK(cuMemsetD32(parts[1].data, 7, COUNT));
    CHECK(cuCtxSynchronize());
    for (int round = 0; round < 4; round++) { /* there and back, never waiting on the host */
        step(&parts[0], 2 * round);
        send(&parts[1], &parts[0]);
        step(&parts[1], 2 * round + 1);
        send(&parts[0], &parts[1]);
    }
    unsigned *first = fetch(&parts[0]), *second = fetch(&parts[1]);
    show("the first part", first);
    show("the second part", second);
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned want = i;
        for (unsigned k = 0; k < 8; k++) {
            want = 3 * want + k;
        }
        EXPECT(first[i] == want && second[i] == want);
    }

    CHECK(cuMemcpyPeer(parts[0].data + BYTES / 2, parts[0].context, parts[1].data, parts[1].context,
                       BYTES / 2));
    free(first);
    first = fetch(&parts[0]);
    show("half of it copied once more", first);
    EXPECT(first[COUNT / 2] == second[0]);
    CHECK(cuCtxSetCurrent(parts[0].context));
    CHECK(cuMemsetD8(parts[0].data, 0x11, BYTES));
    CHECK(cuMemcpyDtoD(parts[0].data, parts[1].data, BYTES / 4)); /* addresses say where */
    free(first);
    first = fetch(&parts[0]);
    show("copied by address", first);
    EXPECT(first[0] == second[0] && first[COUNT - 1] == 0x11111111);

    CHECK(cuMemsetD32(parts[0].data, 9, COUNT));
    CHECK(cuCtxSynchronize());
    send_block(&parts[0], &parts[1]);
    free(first);
    first = fetch(&parts[0]);
    show("a block of it", first);
    /* Rows are 256 words there and 128 here. */
    EXPECT(first[0] == second[(2 * 64 + 3) * 256 + 32] && first[64] == 9);
    EXPECT(first[(4 * 32 + 19) * 128 + 63] == second[(6 * 64 + 22) * 256 + 95]);
    EXPECT(first[8 * 32 * 128] == first[0] && first[20 * 128] == 9);
    reach(&parts[0], &parts[1]);
    reach(&parts[1], &parts[0]);
    wait_for_all(&parts[0], &parts[1]);
    wait_for_all(&parts[1], &parts[0]);
    step_in_a_graph(parts);
    for (int i = 0; i < 2; i++) {
        CHECK(cuCtxSetCurrent(parts[i].context));
        CHECK(cuMemFree(parts[i].data));
        CHECK(cuCtxDestroy(parts[i].context));
    }
    free(first);
    free(second);
    puts("OK");
    return 0;
}
