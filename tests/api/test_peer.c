/* SPDX-License-Identifier: Apache-2.0 */
/* Two devices: of one server, or of two. Without a second device there is nothing to test. */
#include <pthread.h>

#include "api.h"

enum { N = 5000 };

static CUcontext context[2];
static CUdeviceptr memory[2];

static void fill(int device, int value)
{
    OK(cuCtxSetCurrent(context[device]));
    OK(cuMemsetD32(memory[device], (unsigned)value, N));
    OK(cuCtxSynchronize());
}

static void expect(int device, int value)
{
    static int got[N];
    OK(cuCtxSetCurrent(context[device]));
    OK(cuMemcpyDtoH(got, memory[device], sizeof got));
    EQUAL(got[0], value);
    EQUAL(got[N - 1], value);
}

static void copies_go_both_ways(void)
{
    fill(0, 5);
    fill(1, 6);
    OK(cuMemcpyPeer(memory[1], context[1], memory[0], context[0], N * sizeof(int)));
    expect(1, 5);
    fill(1, 8);
    OK(cuCtxSetCurrent(context[0]));
    OK(cuMemcpyPeerAsync(memory[0], context[0], memory[1], context[1], N * sizeof(int), NULL));
    OK(cuCtxSynchronize());
    expect(0, 8);
}

/* A copy that names no stream comes behind all work of both, whichever is current, and before what
 * they are given next. `late`: which of them is held up. */
static void copies_are_ordered_in_both(int late, int current, bool volume)
{
    CUDA_MEMCPY3D_PEER all = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = memory[0],
                              .srcContext = context[0],
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = memory[1],
                              .dstContext = context[1],
                              .WidthInBytes = N * sizeof(int),
                              .Height = 1,
                              .Depth = 1};
    pthread_t opening;
    fill(0, 5);
    fill(1, 6);
    sem_init(&api_gate, 0, 0);
    OK(cuCtxSetCurrent(context[late]));
    OK(cuLaunchHostFunc(NULL, api_pass_gate, NULL));
    OK(cuMemsetD32Async(memory[late], 21, N, NULL));
    pthread_create(&opening, NULL, api_open_gate, NULL);
    OK(cuCtxSetCurrent(context[current]));
    OK(volume ? cuMemcpy3DPeer(&all)
              : cuMemcpyPeer(memory[1], context[1], memory[0], context[0], N * sizeof(int)));
    expect(1, late == 0 ? 21 : 5);
    pthread_join(opening, NULL);
}

/* Part of a volume, from rows that are far apart, into an array of the other device; then that
 * array's back into plain memory. */
static void volumes_go_to_arrays_and_back(void)
{
    enum { W = 8, H = 6, D = 3, PITCH = 16 };
    static int values[N], got[N];
    CUarray array = NULL;
    CUDA_ARRAY3D_DESCRIPTOR made = {.Width = W,
                                    .Height = H,
                                    .Depth = D,
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                    .NumChannels = 1};
    for (int i = 0; i < N; i++) {
        values[i] = i;
    }
    OK(cuCtxSetCurrent(context[1]));
    OK(cuArray3DCreate(&array, &made));
    OK(cuCtxSetCurrent(context[0]));
    OK(cuMemcpyHtoD(memory[0], values, sizeof values));
    CUDA_MEMCPY3D_PEER there = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = memory[0],
                                .srcContext = context[0],
                                .srcPitch = PITCH * sizeof(int),
                                .srcHeight = 10,
                                .srcXInBytes = 2 * sizeof(int),
                                .srcY = 1,
                                .srcZ = 1,
                                .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                                .dstArray = array,
                                .dstContext = context[1],
                                .WidthInBytes = W * sizeof(int),
                                .Height = H,
                                .Depth = D};
    OK(cuMemcpy3DPeer(&there));
    CUDA_MEMCPY3D_PEER back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                               .srcArray = array,
                               .srcContext = context[1],
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = memory[0],
                               .dstContext = context[0],
                               .dstPitch = W * sizeof(int),
                               .dstHeight = H,
                               .WidthInBytes = W * sizeof(int),
                               .Height = H,
                               .Depth = D};
    OK(cuMemcpy3DPeerAsync(&back, NULL));
    OK(cuMemcpyDtoH(got, memory[0], sizeof got));
    for (int z = 0; z < D; z++) {
        for (int y = 0; y < H; y++) {
            for (int x = 0; x < W; x++) {
                EQUAL(got[(z * H + y) * W + x], ((z + 1) * 10 + y + 1) * PITCH + x + 2);
            }
        }
    }
    EQUAL(got[W * H * D], W * H * D); /* and nothing behind it */
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory[0],
                          .srcPitch = W * sizeof(int),
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED, /* the address says where */
                          .dstDevice = memory[1],
                          .dstPitch = PITCH * sizeof(int),
                          .WidthInBytes = W * sizeof(int),
                          .Height = H};
    fill(1, -1);
    OK(cuCtxSetCurrent(context[0]));
    OK(cuMemcpy2D(&rows));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(context[1]));
    OK(cuMemcpyDtoH(values, memory[1], sizeof values));
    EQUAL(values[PITCH + 3], got[W + 3]);
    EQUAL(values[PITCH + W], -1);
    OK(cuArrayDestroy(array));
}

static void addresses_tell_their_device(void)
{
    for (int i = 0; i < 2; i++) {
        int ordinal = -1;
        CUcontext owner = NULL;
        OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory[i]));
        OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory[i]));
        EQUAL(ordinal, i);
        TRUE(owner == context[i]);
    }
    TRUE(memory[0] != memory[1]);
}

static void kernels_reach_a_peer_once_allowed(void)
{
    int can = -1, count = N, value = -1;
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    OK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    EQUAL(value, can);
    OK(cuCtxSetCurrent(context[0]));
    if (!can) {
        EQUAL(cuCtxEnablePeerAccess(context[1], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        EQUAL(cuCtxDisablePeerAccess(context[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        return;
    }
    OK(cuCtxEnablePeerAccess(context[1], 0));
    EQUAL(cuCtxEnablePeerAccess(context[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    fill(1, 31);
    OK(cuCtxSetCurrent(context[0]));
    CUmodule module = NULL;
    CUfunction copy = NULL;
    OK(cuModuleLoadData(&module, api_ptx));
    OK(cuModuleGetFunction(&copy, module, "copy"));
    void *params[] = {&memory[0], &memory[1], &count};
    OK(cuLaunchKernel(copy, (N + 63) / 64, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    expect(0, 31);
    OK(cuCtxSetCurrent(context[0]));
    OK(cuModuleUnload(module));
    OK(cuCtxDisablePeerAccess(context[1]));
    EQUAL(cuCtxDisablePeerAccess(context[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

/* A location names the program's device, whichever server has it, with or without a context. */
static void locations_find_their_server(void)
{
    OK(cuCtxSetCurrent(NULL));
    for (int i = 0; i < 2; i++) {
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, i}};
        size_t size = 0;
        CUmemoryPool pool = NULL;
        OK(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        TRUE(size > 0);
        OK(cuDeviceGetDefaultMemPool(&pool, i));
        TRUE(pool != NULL);
    }
}

/* Streams and events of one device while the other is current. */
static void streams_and_events_are_used_from_elsewhere(void)
{
    CUstream stream[2];
    CUevent event[2], end;
    float milliseconds = -1;
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(context[i]));
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&event[i], 0));
    }
    OK(cuEventCreate(&end, 0));
    OK(cuMemsetD32Async(memory[1], 12, N, stream[1]));
    OK(cuCtxSetCurrent(context[0]));
    OK(cuEventRecord(event[1], stream[1]));
    OK(cuEventRecord(end, stream[1]));
    OK(cuStreamWaitEvent(stream[0], event[1], 0));
    OK(cuMemsetD32Async(memory[0], 13, N, stream[0]));
    OK(cuEventRecord(event[0], stream[0]));
    OK(cuStreamWaitEvent(stream[1], event[0], 0));
    OK(cuStreamSynchronize(stream[1]));
    OK(cuStreamQuery(stream[1]));
    OK(cuEventSynchronize(end));
    OK(cuEventQuery(end));
    OK(cuEventElapsedTime(&milliseconds, event[1], end));
    TRUE(milliseconds >= 0);
    expect(0, 13);
    expect(1, 12);
    CUcontext current = NULL;
    OK(cuCtxSetCurrent(context[0]));
    OK(cuStreamDestroy(stream[1]));
    OK(cuEventDestroy(event[1]));
    OK(cuEventDestroy(end));
    OK(cuCtxGetCurrent(&current));
    TRUE(current == context[0]);
    OK(cuStreamDestroy(stream[0]));
    OK(cuEventDestroy(event[0]));
}

static void memory_is_freed_from_elsewhere(void)
{
    CUdeviceptr far = 0;
    CUcontext current = NULL;
    OK(cuCtxSetCurrent(context[1]));
    OK(cuMemAlloc(&far, 8 << 20));
    OK(cuCtxSetCurrent(context[0]));
    OK(cuMemFree(far));
    OK(cuCtxGetCurrent(&current));
    TRUE(current == context[0]);
    EQUAL(cuMemFree(far), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    int count = 0;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    if (count < 2) {
        printf("there is one device only\n");
        return 77;
    }
    for (int i = 0; i < 2; i++) {
        OK(cuDevicePrimaryCtxRetain(&context[i], i));
        OK(cuCtxSetCurrent(context[i]));
        OK(cuMemAlloc(&memory[i], N * sizeof(int)));
    }
    addresses_tell_their_device();
    copies_go_both_ways();
    for (int i = 0; i < 8; i++) {
        copies_are_ordered_in_both(i % 2, i / 2 % 2, i >= 4);
    }
    volumes_go_to_arrays_and_back();
    streams_and_events_are_used_from_elsewhere();
    kernels_reach_a_peer_once_allowed();
    locations_find_their_server();
    memory_is_freed_from_elsewhere();
    for (int i = 0; i < 2; i++) {
        OK(cuCtxSetCurrent(context[i]));
        OK(cuMemFree(memory[i]));
        OK(cuDevicePrimaryCtxRelease(i));
    }
    printf("%s\n", api_failures == 0 ? "OK" : "FAILED");
    return api_failures != 0;
}
