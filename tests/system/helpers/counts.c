/* SPDX-License-Identifier: Apache-2.0 */
/* Does the things that are counted, and nothing else.
 *
 *     counts launches N   N launches and one synchronisation
 *     counts sized:B N    the same of a kernel with B bytes of arguments
 *     counts loop N       N steps like a training loop's, one synchronisation each
 *     counts frees N      N times memory is taken and freed in a stream's order, and a sync
 *     counts uploads N        N synchronous copies of pageable memory
 *     counts behind N         the same, each behind a launch
 *     counts downloads:B N    N asynchronous copies of B bytes into page-locked memory, and one
 *                             synchronisation; prints the milliseconds
 *     counts uploads:B N      N synchronous copies of B bytes of ordinary memory to the device,
 *                             each with a synchronisation of the context
 *     counts rows:B N         downloads in 64 rows of B bytes, with gaps
 *     counts registered:WHAT N  N times a registered shared mapping is written and: copy, crooked
 *                             (its first page is not whole), or kernel
 *     counts private:WHAT N   the same with private memory
 *     counts capture N        N launches, fills, copies, records and questions of two streams that
 *                             capture; the graph is launched once
 *     counts kernels N        loads an image of N kernels that is like no other, launches each
 *     counts events N         N times an event is recorded and asked for until it is done
 *     counts contexts N       N launches and synchronisations of the context
 *     counts copies N         N synchronous copies into page-locked memory
 *     counts told N           the same, and each time the stream is waited for and asked for
 *     counts poll:WHAT N      asks N times for an event, a stream or the default stream that is
 *                             held up, then until it is done; prints the milliseconds of the N
 *     counts rounds N         N times an event is recorded, asked for while it is held up, and
 *                             until it is done; prints the milliseconds
 *     counts build N          builds a graph of N kernels and as many empty nodes, fills and
 *                             copies, and launches it
 *     counts update N         N times all kernels of a graph get new arguments; it is launched
 *     counts refused N        N nodes and updates that are refused, each at its call
 *     counts heap N           prints how often N launches allocated memory
 *     counts time N           prints the milliseconds of N launches and one synchronisation
 *     counts ready 0          prints the milliseconds of cuInit and a context
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "../../lib/heap.h"

static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry bump(.param .u64 at, .param .u32 by)\n{\n"
                           ".reg .b64 %at;\n.reg .b32 %by, %value;\n"
                           "ld.param.u64 %at, [at];\nld.param.u32 %by, [by];\n"
                           "cvta.to.global.u64 %at, %at;\nld.global.u32 %value, [%at];\n"
                           "add.u32 %value, %value, %by;\nst.global.u32 [%at], %value;\nret;\n}\n";

static CUfunction bump;
static CUdeviceptr word;
static CUstream stream;
static unsigned bumped;

static void launch(void)
{
    unsigned by = 1;
    void *args[] = {&word, &by};
    CHECK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    bumped++;
}

/* Launches, and managed memory that is made and freed, among `count` pieces of which nobody uses
 * any after the host has written them once. */
static void among_pieces(unsigned count, unsigned n)
{
    for (unsigned i = 0; i < count; i++) {
        CUdeviceptr piece;
        CHECK(cuMemAllocManaged(&piece, 100000, CU_MEM_ATTACH_GLOBAL));
        memset((void *)(uintptr_t)piece, 1, 100000);
    }
    launch();
    CHECK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < n; i++) {
        CUdeviceptr more;
        CHECK(cuMemAllocManaged(&more, 100000, CU_MEM_ATTACH_GLOBAL));
        *(int *)(uintptr_t)more = 1;
        launch();
        launch();
        CHECK(cuMemFree(more));
        launch();
        CHECK(cuStreamSynchronize(stream));
    }
}

static void launches(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        launch();
    }
    CHECK(cuStreamSynchronize(stream));
}

/* Launches of a kernel that takes a structure of so many bytes; 0: nothing. */
static void sized(unsigned bytes, unsigned n)
{
    char code[256], argument[256] = "";
    void *args[] = {argument};
    CUmodule module;
    CUfunction take;
    if (bytes > sizeof argument) {
        exit(2);
    }
    int length = snprintf(code, sizeof code, ".version 7.0\n.target sm_70\n.address_size 64\n");
    if (bytes > 0) {
        snprintf(code + length, sizeof code - (size_t)length,
                 ".visible .entry take(.param .align 1 .b8 what[%u])\n{\nret;\n}\n", bytes);
    } else {
        snprintf(code + length, sizeof code - (size_t)length,
                 ".visible .entry take()\n{\nret;\n}\n");
    }
    CHECK(cuModuleLoadData(&module, code));
    CHECK(cuModuleGetFunction(&take, module, "take"));
    for (unsigned i = 0; i < n; i++) {
        CHECK(cuLaunchKernel(take, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    }
    CHECK(cuStreamSynchronize(stream));
}

static void capture(unsigned steps)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    CUstream side;
    CUevent fork, join;
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CHECK(cuMemAlloc(&memory, 8192));
    CHECK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK(cuEventRecord(fork, stream));
    CHECK(cuStreamWaitEvent(side, fork, 0));
    for (unsigned i = 0; i < steps; i++) {
        CHECK(cuStreamIsCapturing(stream, &status)); /* as libraries ask before each launch */
        if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
            exit(3);
        }
        launch();
        CHECK(cuMemsetD32Async(memory, i, 1024, side));
        CHECK(cuMemcpyDtoDAsync(memory + 4096, memory, 4096, side));
        CHECK(cuStreamGetCaptureInfo(side, &status, &id, NULL, NULL, NULL, NULL));
        CHECK(cuEventRecord(fork, side));
    }
    CHECK(cuEventRecord(join, side));
    CHECK(cuStreamWaitEvent(stream, join, 0));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    unsigned last = 0;
    CHECK(cuMemcpyDtoH(&last, memory + 8188, sizeof last));
    if (last != steps - 1) {
        fprintf(stderr, "counts: the graph filled with %u, not %u\n", last, steps - 1);
        exit(1);
    }
}

static void kernels(unsigned n)
{
    CUmodule module;
    CUfunction kernel;
    size_t room = 128 + n * 80, length = 0;
    char *code = malloc(room), name[16];
    length += (size_t)snprintf(code, room, ".version 7.0\n.target sm_70\n.address_size 64\n");
    for (unsigned i = 0; i < n; i++) {
        length += (size_t)snprintf(code + length, room - length,
                                   ".visible .entry k%u(.param .u32 what)\n{\nret;\n}\n", i);
    }
    CHECK(cuModuleLoadData(&module, code));
    for (unsigned i = 0; i < n; i++) {
        void *args[] = {&i};
        snprintf(name, sizeof name, "k%u", i);
        CHECK(cuModuleGetFunction(&kernel, module, name));
        CHECK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
    }
    if (cuModuleGetFunction(&kernel, module, "none") != CUDA_ERROR_NOT_FOUND) {
        exit(1);
    }
    CHECK(cuStreamSynchronize(stream));
    free(code);
}

static void loop(unsigned steps)
{
    enum { BATCH = 64 << 10, KERNELS = 20 };
    CUdeviceptr input, gradient;
    CUstream copies;
    CUevent ready, done;
    void *batch, *loss;
    char *labels = malloc(4096);
    CHECK(cuMemAlloc(&input, BATCH));
    CHECK(cuMemAlloc(&gradient, BATCH));
    CHECK(cuMemAllocHost(&batch, BATCH));
    CHECK(cuMemAllocHost(&loss, 4096));
    CHECK(cuStreamCreate(&copies, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    memset(batch, 1, BATCH);
    memset(labels, 2, 4096);
    for (unsigned i = 0; i < steps; i++) {
        CHECK(cuMemcpyHtoDAsync(input, batch, BATCH, copies));
        CHECK(cuMemcpyHtoDAsync(input, labels, 4096, copies));
        CHECK(cuEventRecord(ready, copies));
        CHECK(cuStreamWaitEvent(stream, ready, 0));
        CHECK(cuMemsetD32Async(gradient, 0, BATCH / 4, stream));
        for (int k = 0; k < KERNELS; k++) {
            launch();
        }
        CHECK(cuMemcpyDtoDAsync(gradient, input, BATCH, stream));
        CHECK(cuMemcpyDtoHAsync(loss, word, 4, stream));
        CHECK(cuEventRecord(done, stream));
        CHECK(cuStreamWaitEvent(copies, done, 0));
        CHECK(cuStreamSynchronize(stream));
        unsigned seen;
        memcpy(&seen, loss, 4);
        if (seen != bumped) {
            fprintf(stderr, "counts: step %u saw %u launches, not %u\n", i, seen, bumped);
            exit(1);
        }
    }
}

static void registered(int sharing, const char *what, unsigned n)
{
    enum { SIZE = 8 << 20 };
    CUdeviceptr memory, host_there;
    /* Of a file that the program has open: what has no name and no descriptor needs root to be
     * found. */
    int file = sharing == MAP_SHARED ? memfd_create("counts", MFD_CLOEXEC) : -1;
    char *host =
        mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
             sharing | (file >= 0 && ftruncate(file, SIZE) == 0 ? 0 : MAP_ANONYMOUS), file, 0);
    unsigned by = 1, off = strcmp(what, "crooked") == 0 ? 16 : 0;
    CHECK(cuMemAlloc(&memory, SIZE));
    CHECK(cuMemHostRegister(host + off, SIZE - off, 0));
    host_there = (CUdeviceptr)(uintptr_t)host;
    void *args[] = {&host_there, &by};
    for (unsigned i = 0; i < n; i++) {
        memset(host, (int)i, SIZE);
        if (off != 0) {
            CHECK(cuMemcpyHtoD(memory, host + off, SIZE - off));
            CHECK(cuMemcpyDtoH(host + off, memory, SIZE - off));
            continue;
        }
        if (strcmp(what, "copy") == 0) {
            CHECK(cuMemcpyHtoDAsync(memory, host, SIZE, stream));
            CHECK(cuMemcpyDtoHAsync(host, memory, SIZE, stream));
        } else {
            CHECK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL));
        }
        CHECK(cuStreamSynchronize(stream));
        if (host[0] != (char)(i + (strcmp(what, "copy") != 0)) || host[SIZE - 1] != (char)i) {
            fprintf(stderr, "counts: round %u lost its bytes\n", i);
            exit(1);
        }
    }
    CHECK(cuMemHostUnregister(host + off));
    munmap(host, SIZE);
    if (file >= 0) {
        close(file);
    }
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void uploads(size_t size, unsigned n)
{
    CUdeviceptr memory;
    unsigned char *host = malloc(size), *back = malloc(size);
    CHECK(cuMemAlloc(&memory, size));
    for (unsigned i = 0; i < n; i++) {
        memset(host, (int)i, size);
        CHECK(cuMemcpyHtoD(memory, host, size));
        CHECK(cuCtxSynchronize());
    }
    CHECK(cuMemcpyDtoH(back, memory, size));
    if (memcmp(host, back, size) != 0) {
        fprintf(stderr, "counts: the last upload did not come\n");
        exit(1);
    }
    free(host);
    free(back);
}

static void downloads(size_t size, unsigned n)
{
    CUdeviceptr memory;
    unsigned char *host;
    CHECK(cuMemAlloc(&memory, size));
    CHECK(cuMemAllocHost((void **)&host, size * n));
    CHECK(cuMemsetD8Async(memory, 7, size, stream));
    CHECK(cuStreamSynchronize(stream));
    double begin = now_ms();
    for (unsigned i = 0; i < n; i++) {
        CHECK(cuMemcpyDtoHAsync(host + i * size, memory, size, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    printf("%.3f\n", now_ms() - begin);
    for (size_t i = 0; i < size * n; i++) {
        if (host[i] != 7) {
            fprintf(stderr, "counts: byte %zu did not come\n", i);
            exit(1);
        }
    }
    CHECK(cuMemFreeHost(host));
    CHECK(cuMemFree(memory));
}

static void told(unsigned n, int ask)
{
    enum { SIZE = 256 << 10 };
    void *host;
    CUdeviceptr memory;
    CHECK(cuMemAllocHost(&host, SIZE));
    CHECK(cuMemAlloc(&memory, SIZE));
    for (unsigned i = 0; i < n; i++) {
        CHECK(cuMemcpyDtoH(host, memory, SIZE));
        if (ask) {
            CHECK(cuStreamSynchronize(NULL));
            CHECK(cuStreamQuery(NULL));
        }
    }
    CHECK(cuMemFree(memory));
    CHECK(cuMemFreeHost(host));
}

/* The same as downloads in 64 rows of `width` bytes. */
static void rows(size_t width, unsigned n)
{
    enum { ROWS = 64, GAP = 16 };
    size_t pitch = width + GAP, size = pitch * ROWS;
    CUdeviceptr memory;
    unsigned char *host;
    CHECK(cuMemAlloc(&memory, width * ROWS));
    CHECK(cuMemAllocHost((void **)&host, size * n));
    memset(host, 0, size * n);
    CHECK(cuMemsetD8Async(memory, 7, width * ROWS, stream));
    CHECK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < n; i++) {
        CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = memory,
                              .srcPitch = width,
                              .dstMemoryType = CU_MEMORYTYPE_HOST,
                              .dstHost = host + i * size,
                              .dstPitch = pitch,
                              .WidthInBytes = width,
                              .Height = ROWS};
        CHECK(cuMemcpy2DAsync(&copy, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    for (size_t i = 0; i < size * n; i++) {
        if (host[i] != (i % pitch < width ? 7 : 0)) {
            fprintf(stderr, "counts: byte %zu is %d\n", i, host[i]);
            exit(1);
        }
    }
    CHECK(cuMemFreeHost(host));
    CHECK(cuMemFree(memory));
}

/* The stream stands until let_go. */
static unsigned passes;

static void hold(CUstream held)
{
    CHECK(cuStreamWaitValue32(held, word + 64, ++passes, CU_STREAM_WAIT_VALUE_GEQ));
}

static void let_go(void)
{
    static CUstream other;
    if (other == NULL) {
        CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    }
    CHECK(cuStreamWriteValue32(other, word + 64, passes, 0));
}

static CUevent polled;

static CUresult poll(const char *what)
{
    return strcmp(what, "event") == 0    ? cuEventQuery(polled)
           : strcmp(what, "stream") == 0 ? cuStreamQuery(stream)
                                         : cuStreamQuery(NULL);
}

static void poll_held(const char *what, unsigned n)
{
    CUstream held = strcmp(what, "default") == 0 ? NULL : stream;
    CHECK(cuEventCreate(&polled, CU_EVENT_DISABLE_TIMING));
    hold(held);
    CHECK(cuEventRecord(polled, held));
    double begin = now_ms();
    for (unsigned i = 0; i < n; i++) {
        CUresult result = poll(what);
        if (result != CUDA_ERROR_NOT_READY) {
            fprintf(stderr, "counts: poll %u answered %d\n", i, (int)result);
            exit(1);
        }
    }
    printf("%.3f\n", now_ms() - begin);
    let_go();
    CUresult result;
    while ((result = poll(what)) == CUDA_ERROR_NOT_READY) {
    }
    CHECK(result);
}

static void rounds(unsigned n)
{
    CHECK(cuEventCreate(&polled, CU_EVENT_DISABLE_TIMING));
    double begin = now_ms();
    for (unsigned i = 0; i < n; i++) {
        hold(stream);
        CHECK(cuEventRecord(polled, stream));
        for (int k = 0; k < 3; k++) {
            if (cuEventQuery(polled) != CUDA_ERROR_NOT_READY) {
                fprintf(stderr, "counts: round %u is done before it is let go\n", i);
                exit(1);
            }
        }
        let_go();
        CUresult result;
        while ((result = cuEventQuery(polled)) == CUDA_ERROR_NOT_READY) {
        }
        CHECK(result);
    }
    printf("%.3f\n", now_ms() - begin);
}

/* ---- graphs that are built by hand ---- */

static CUDA_KERNEL_NODE_PARAMS bump_node(void **args)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = bump,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = args};
}

/* A chain of kernels, which add 1 each, empty nodes, fills and copies. */
static CUgraph build(CUgraphNode *ret_kernels, unsigned n)
{
    unsigned by = 1;
    void *args[] = {&word, &by};
    CUDA_KERNEL_NODE_PARAMS p = bump_node(args);
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = word + 128, .value = 7, .elementSize = 4, .width = 2, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = word + 128,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = word + 136,
                          .WidthInBytes = 8,
                          .Height = 1,
                          .Depth = 1};
    CUcontext context;
    CUgraphNode last = NULL, filled;
    CUgraph graph;
    CHECK(cuCtxGetCurrent(&context));
    CHECK(cuGraphCreate(&graph, 0));
    for (unsigned i = 0; i < n; i++) {
        CHECK(cuGraphAddKernelNode(&ret_kernels[i], graph, &last, i > 0, &p));
        CHECK(cuGraphAddEmptyNode(&last, graph, &ret_kernels[i], 1));
        CHECK(cuGraphAddMemsetNode(&filled, graph, &last, 1, &fill, context));
        CHECK(cuGraphAddMemcpyNode(&last, graph, &filled, 1, &copy, context));
    }
    return graph;
}

static void expect_copied(void)
{
    unsigned words[4] = {0};
    CHECK(cuMemcpyDtoH(words, word + 128, sizeof words));
    for (unsigned i = 0; i < 4; i++) {
        if (words[i] != 7) {
            fprintf(stderr, "counts: a graph filled or copied nothing\n");
            exit(1);
        }
    }
}

static void build_and_launch(unsigned n)
{
    CUgraphNode *kernels = calloc(n, sizeof *kernels);
    CUgraphExec exec;
    CUgraph graph = build(kernels, n);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphLaunch(exec, stream));
    bumped += n;
    CHECK(cuStreamSynchronize(stream));
    expect_copied();
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    free(kernels);
}

static void update_and_launch(unsigned rounds)
{
    enum { NODES = 20 };
    CUgraphNode kernels[NODES];
    CUgraphExec exec;
    CUgraph graph = build(kernels, NODES);
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned by = 1; by <= rounds; by++) {
        void *args[] = {&word, &by};
        CUDA_KERNEL_NODE_PARAMS p = bump_node(args);
        for (unsigned i = 0; i < NODES; i++) {
            CHECK(cuGraphExecKernelNodeSetParams(exec, kernels[i], &p));
            bumped += by;
        }
        CHECK(cuGraphLaunch(exec, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void refuse(CUresult result)
{
    if (result != CUDA_ERROR_INVALID_VALUE) {
        fprintf(stderr, "counts: a mistake was answered with %d\n", (int)result);
        exit(1);
    }
}

/* A kernel that runs with one block only, which nothing but the driver knows. */
static void refused(unsigned n)
{
    static const char exact[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry exact()\n.reqntid 32, 1, 1\n{\nret;\n}\n";
    CUmodule module;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node, other;
    CHECK(cuModuleLoadData(&module, exact));
    CUDA_KERNEL_NODE_PARAMS p = bump_node(NULL);
    CHECK(cuModuleGetFunction(&p.func, module, "exact"));
    CHECK(cuGraphCreate(&graph, 0));
    refuse(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
    p.blockDimX = 32;
    CHECK(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned i = 0; i < n; i++) {
        p.blockDimX = 64;
        refuse(cuGraphAddKernelNode(&other, graph, NULL, 0, &p));
        refuse(cuGraphExecKernelNodeSetParams(exec, node, &p));
        p.blockDimX = 32;
        CHECK(cuGraphAddKernelNode(&other, graph, NULL, 0, &p));
        CHECK(cuGraphExecKernelNodeSetParams(exec, node, &p));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    unsigned value = 0;
    if (argc != 3) {
        return 2;
    }
    unsigned n = (unsigned)strtoul(argv[2], NULL, 10);
    double start = now_ms();
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    if (strcmp(argv[1], "ready") == 0) {
        printf("%.3f\n", now_ms() - start);
        CHECK(cuCtxSynchronize());
        return 0;
    }
    CHECK(cuModuleLoadData(&module, text));
    CHECK(cuModuleGetFunction(&bump, module, "bump"));
    CHECK(cuMemAlloc(&word, 4096));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemsetD32Async(word, 0, 1024, stream));
    launch(); /* what a first launch asks for is no part of the count */
    CHECK(cuStreamSynchronize(stream));
    if (strcmp(argv[1], "loop") == 0) {
        loop(n);
    } else if (strcmp(argv[1], "kernels") == 0) {
        kernels(n);
    } else if (strcmp(argv[1], "capture") == 0) {
        capture(n);
    } else if (strncmp(argv[1], "sized:", 6) == 0) {
        sized((unsigned)strtoul(argv[1] + 6, NULL, 10), n);
    } else if (strcmp(argv[1], "uploads") == 0 || strcmp(argv[1], "behind") == 0) {
        enum { SIZE = 128 << 10 };
        CUdeviceptr memory;
        char *host = calloc(1, SIZE);
        CHECK(cuMemAlloc(&memory, SIZE));
        for (unsigned i = 0; i < n; i++) {
            if (strcmp(argv[1], "behind") == 0) {
                launch();
            }
            CHECK(cuMemcpyHtoD(memory, host, SIZE));
        }
        CHECK(cuStreamSynchronize(stream));
        free(host);
    } else if (strcmp(argv[1], "events") == 0) {
        /* As an allocator that keeps memory until its event is done. */
        CUevent event;
        CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        for (unsigned i = 0; i < n; i++) {
            launch();
            /* PyTorch calls the latter. */
            CHECK(i % 4 == 0 ? cuEventRecord(event, stream)
                             : cuEventRecordWithFlags(event, stream, 0));
            usleep(5000);
            while (cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
                usleep(1000);
            }
        }
    } else if (strcmp(argv[1], "contexts") == 0) {
        for (unsigned i = 0; i < n; i++) {
            launch();
            usleep(5000);
            CHECK(cuCtxSynchronize());
        }
    } else if (strncmp(argv[1], "downloads:", 10) == 0) {
        downloads(strtoul(argv[1] + 10, NULL, 10), n);
    } else if (strncmp(argv[1], "uploads:", 8) == 0) {
        uploads(strtoul(argv[1] + 8, NULL, 10), n);
    } else if (strncmp(argv[1], "rows:", 5) == 0) {
        rows(strtoul(argv[1] + 5, NULL, 10), n);
    } else if (strncmp(argv[1], "registered:", 11) == 0) {
        registered(MAP_SHARED, argv[1] + 11, n);
    } else if (strncmp(argv[1], "private:", 8) == 0) {
        registered(MAP_PRIVATE, argv[1] + 8, n);
    } else if (strcmp(argv[1], "copies") == 0 || strcmp(argv[1], "told") == 0) {
        told(n, argv[1][0] == 't');
    } else if (strncmp(argv[1], "poll:", 5) == 0) {
        poll_held(argv[1] + 5, n);
    } else if (strcmp(argv[1], "rounds") == 0) {
        rounds(n);
    } else if (strcmp(argv[1], "build") == 0) {
        build_and_launch(n);
    } else if (strcmp(argv[1], "update") == 0) {
        update_and_launch(n);
    } else if (strcmp(argv[1], "refused") == 0) {
        refused(n);
    } else if (strcmp(argv[1], "frees") == 0) {
        for (unsigned i = 0; i < n; i++) {
            CUdeviceptr memory;
            CHECK(cuMemAllocAsync(&memory, 4096, stream));
            CHECK(cuMemFreeAsync(memory, stream));
            CHECK(cuStreamSynchronize(stream));
        }
    } else if (strncmp(argv[1], "pieces:", 7) == 0) {
        among_pieces((unsigned)atoi(argv[1] + 7), n);
    } else if (strcmp(argv[1], "heap") == 0) {
        unsigned long before = atomic_load(&allocations);
        for (unsigned i = 0; i < n; i++) {
            launch();
        }
        unsigned long after = atomic_load(&allocations);
        CHECK(cuStreamSynchronize(stream));
        printf("%lu of %lu\n", after - before, before);
    } else if (strcmp(argv[1], "time") == 0) {
        double begin = now_ms();
        launches(n);
        printf("%.3f\n", now_ms() - begin);
    } else {
        launches(n);
    }
    CHECK(cuMemcpyDtoH(&value, word, sizeof value));
    if (value != bumped) {
        fprintf(stderr, "counts: %u launches were counted, not %u\n", value, bumped);
        return 1;
    }
    return 0;
}
