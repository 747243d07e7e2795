/* SPDX-License-Identifier: Apache-2.0 */
/* A bit of every way that commands and bytes travel. Ends with 0: all of it was right; 1: a call
 * failed, and said so; 2: a result was wrong though every call had succeeded. */
#include "check.h"
#include "../programs/kernels_ptx.h"

#include <stdatomic.h>
#include <string.h>

enum { COUNT = 512, LARGEST = 4 << 20, LAUNCHES = 3 };

static unsigned char before[LARGEST], after[LARGEST];
static atomic_int ran;

static void wrong(const char *what)
{
    fprintf(stderr, "WRONG: %s\n", what);
    exit(2);
}

static void count(void *user)
{
    (void)user;
    atomic_fetch_add(&ran, 1);
}

static void copies(CUstream stream)
{
    const size_t sizes[] = {100, 60000, 1 << 20, LARGEST};
    CUdeviceptr device;
    CHECK(cuMemAlloc(&device, LARGEST));
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(before, (int)i + 1, sizes[i]);
        CHECK(cuMemcpyHtoD(device, before, sizes[i]));
        CHECK(cuMemcpyDtoH(after, device, sizes[i]));
        if (memcmp(before, after, sizes[i]) != 0) {
            wrong("a copy");
        }
    }
    CHECK(cuMemsetD8Async(device, 0x77, LARGEST, stream));
    CHECK(cuMemcpyDtoHAsync(after, device, LARGEST, stream));
    CHECK(cuStreamSynchronize(stream));
    if (after[0] != 0x77 || after[LARGEST - 1] != 0x77) {
        wrong("a copy in a stream");
    }
    CHECK(cuMemFree(device));
}

static void locked_copies(CUstream stream)
{
    unsigned char *up, *down;
    CUdeviceptr device;
    CHECK(cuMemAlloc(&device, 1 << 20));
    CHECK(cuMemHostAlloc((void **)&up, 1 << 20, 0));
    CHECK(cuMemHostAlloc((void **)&down, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(up, 0x5a, 1 << 20);
    CHECK(cuMemcpyHtoDAsync(device, up, 1 << 20, stream));
    CHECK(cuMemcpyDtoHAsync(down, device, 1 << 20, stream));
    CHECK(cuStreamSynchronize(stream));
    if (memcmp(up, down, 1 << 20) != 0) {
        wrong("page-locked memory");
    }
    CHECK(cuMemFreeHost(up));
    CHECK(cuMemFreeHost(down));
    CHECK(cuMemFree(device));
    CHECK(cuMemHostRegister(before, 1 << 20, 0));
    CHECK(cuMemHostUnregister(before));
}

static void launch(CUfunction scale, CUdeviceptr device, CUstream stream)
{
    unsigned n = COUNT, factor = 3;
    void *params[] = {&device, &n, &factor};
    CHECK(cuLaunchKernel(scale, COUNT / 32, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void kernels(CUstream stream)
{
    CUmodule module;
    CUfunction scale;
    CUdeviceptr device;
    CUevent event;
    unsigned numbers[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        numbers[i] = i;
    }
    CHECK(cuModuleLoadData(&module, kernels_ptx));
    CHECK(cuModuleGetFunction(&scale, module, "scale"));
    CHECK(cuMemAlloc(&device, sizeof numbers));
    CHECK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CHECK(cuMemcpyHtoDAsync(device, numbers, sizeof numbers, stream));
    launch(scale, device, stream);
    CHECK(cuEventRecord(event, stream));
    CHECK(cuLaunchHostFunc(stream, count, NULL));
    CHECK(cuEventSynchronize(event));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(numbers, device, sizeof numbers));
    for (unsigned i = 0; i < COUNT; i++) {
        if (numbers[i] != 9 * i) { /* by the factor, and by that of the kernel */
            wrong("a kernel");
        }
    }
    if (atomic_load(&ran) != 1) {
        wrong("a host function");
    }
    CHECK(cuEventDestroy(event));
    CHECK(cuMemFree(device));
    CHECK(cuModuleUnload(module));
}

static void graphs(CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr device;
    unsigned char byte = 0;
    CHECK(cuMemAlloc(&device, COUNT));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CHECK(cuMemsetD8Async(device, 0x44, COUNT, stream));
    CHECK(cuLaunchHostFunc(stream, count, NULL));
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    atomic_store(&ran, 0);
    for (int i = 0; i < LAUNCHES; i++) {
        CHECK(cuGraphLaunch(exec, stream));
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(&byte, device + COUNT - 1, 1));
    if (byte != 0x44 || atomic_load(&ran) != LAUNCHES) {
        wrong("a graph");
    }
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    CHECK(cuMemFree(device));
}

static void managed(void)
{
    CUdeviceptr memory;
    const volatile unsigned char *bytes;
    CHECK(cuMemAllocManaged(&memory, 64 << 10, CU_MEM_ATTACH_GLOBAL));
    memset((void *)memory, 0x22, 64 << 10);
    CHECK(cuMemsetD8(memory, 0x33, 32 << 10));
    CHECK(cuCtxSynchronize());
    bytes = (const unsigned char *)memory;
    (void)(bytes[0] +
           bytes[(64 << 10) - 1]); /* it is fetched; of a server that is lost come zeros */
    CHECK(cuCtxSynchronize());
    if (bytes[0] != 0x33 || bytes[(64 << 10) - 1] != 0x22) {
        wrong("managed memory");
    }
    CHECK(cuMemFree(memory));
}

int main(void)
{
    CUcontext context;
    CUstream stream;
    size_t available, total;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemGetInfo(&available, &total));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    copies(stream);
    locked_copies(stream);
    kernels(stream);
    graphs(stream);
    managed();
    CHECK(cuStreamDestroy(stream));
    CHECK(cuDevicePrimaryCtxRelease(0));
    puts("OK");
    return 0;
}
