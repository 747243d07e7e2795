/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, copies, fills, pointers, pools, mappings. */
#include "base/mutex.h"
#include "soft_lib.h"

#include <pthread.h>
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/soft/engine/engine.h"
#include "backend/soft/entry/entry.h"
#include "backend/soft/ground/check.h"
#include "backend/soft/ground/state.h"
#include "backend/soft/ground/written.h"
#include "base/bits.h"
#include "gen/context.h"
#include "gen/copy.h"
#include "gen/core.h"
#include "gen/device.h"
#include "gen/event.h"
#include "gen/graph.h"
#include "gen/green.h"
#include "gen/memory.h"
#include "gen/pool.h"
#include "gen/stream.h"
#include "gen/texture.h"
#include "gen/vmm.h"
#include "ptx/ptx.h"

static void device_query_describes_a_gpu(void **state)
{
    (void)state;
    int count, value;
    OK(tow_drive(cu, cuDeviceGetCount)(&count));
    assert_int_equal(count, 1);
    CUdevice device;
    OK(tow_drive(cu, cuDeviceGet)(&device, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE, tow_drive(cu, cuDeviceGet)(&device, 1));
    FAILS(CUDA_ERROR_INVALID_DEVICE, tow_drive(cu, cuDeviceGet)(&device, -1));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuDeviceGet)(NULL, 0));
    char name[64];
    OK(tow_drive(cu, cuDeviceGetName)(name, sizeof name, 0));
    assert_string_equal(name, "Towline Software GPU");
    OK(tow_drive(cu, cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                           0));
    assert_int_equal(value, 12);
    OK(tow_drive(cu, cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                           0));
    assert_int_equal(value, 1);
    OK(tow_drive(cu, cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    assert_int_equal(value, 32);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuDeviceGetAttribute)(&value, (CUdevice_attribute)9999, 0));
    FAILS(CUDA_ERROR_INVALID_DEVICE,
          tow_drive(cu, cuDeviceGetAttribute)(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 3));
    CUuuid a, b;
    OK(tow_drive(cu, cuDeviceGetUuid)(&a, 0));
    OK(tow_drive(cu, cuDeviceGetUuid_v2)(&b, 0));
    assert_memory_equal(&a, &b, sizeof a);
    size_t total;
    OK(tow_drive(cu, cuDeviceTotalMem_v2)(&total, 0));
    assert_int_equal(total, 256 * MIB);
    int version;
    OK(tow_drive(cu, cuDriverGetVersion)(&version));
    assert_int_equal(version, 13000);
    char bus[32];
    OK(tow_drive(cu, cuDeviceGetPCIBusId)(bus, sizeof bus, 0));
    CUdevice found = 7;
    OK(tow_drive(cu, cuDeviceGetByPCIBusId)(&found, bus));
    assert_int_equal(found, 0);
}

static void memory_info_follows_allocations(void **state)
{
    (void)state;
    size_t before, after, total;
    CUdeviceptr p, small;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&before, &total));
    assert_int_equal(before, total);
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 64 * MIB));
    OK(tow_drive(cu, cuMemGetInfo_v2)(&after, &total));
    assert_int_equal(before - after, 64 * MIB);
    OK(tow_drive(cu, cuMemAlloc_v2)(&small, 1));
    assert_int_equal(small % 512, 0);
    OK(tow_drive(cu, cuMemFree_v2)(p));
    OK(tow_drive(cu, cuMemFree_v2)(small));
    OK(tow_drive(cu, cuMemGetInfo_v2)(&after, &total));
    assert_int_equal(after, before);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, tow_drive(cu, cuMemAlloc_v2)(&p, 257 * MIB));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, tow_drive(cu, cuMemAlloc_v2)(&p, (size_t)1 << 60));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemAlloc_v2)(&p, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemAlloc_v2)(NULL, 4));
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 200 * MIB));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, tow_drive(cu, cuMemAlloc_v2)(&small, 100 * MIB));
    OK(tow_drive(cu, cuMemFree_v2)(p));
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 250 * MIB));
}

static void wrong_frees_are_refused(void **state)
{
    (void)state;
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 4096));
    OK(tow_drive(cu, cuMemFree_v2)(0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFree_v2)(p + 512));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFree_v2)(12345));
    OK(tow_drive(cu, cuMemFree_v2)(p));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFree_v2)(p));
    void *host;
    OK(tow_drive(cu, cuMemHostAlloc)(&host, 100, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFree_v2)((CUdeviceptr)(uintptr_t)host));
    OK(tow_drive(cu, cuMemFreeHost)(host));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFreeHost)(host));
}

static void many_small_allocations_do_not_overlap(void **state)
{
    (void)state;
    enum { N = 3000 };
    static CUdeviceptr p[N];
    for (unsigned i = 0; i < N; i++) {
        OK(tow_drive(cu, cuMemAlloc_v2)(&p[i], 1 + i % 2000));
        OK(tow_drive(cu, cuMemsetD8_v2)(p[i], (unsigned char)i, 1 + i % 2000));
    }
    for (unsigned i = 0; i < N; i += 2) {
        OK(tow_drive(cu, cuMemFree_v2)(p[i]));
    }
    for (unsigned i = 1; i < N; i += 2) {
        unsigned char bytes[2000];
        size_t n = 1 + i % 2000;
        OK(tow_drive(cu, cuMemcpyDtoH_v2)(bytes, p[i], n));
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(bytes[k], (unsigned char)i);
        }
        OK(tow_drive(cu, cuMemFree_v2)(p[i]));
    }
    size_t left, total;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&left, &total));
    assert_int_equal(left, total);
}

static void copies_check_their_ranges(void **state)
{
    (void)state;
    char host[64] = "towline";
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 64));
    OK(tow_drive(cu, cuMemcpyHtoD_v2)(p, host, 64));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyHtoD_v2)(p, host, 65));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyHtoD_v2)(p + 1, host, 64));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuMemcpyHtoD_v2)((CUdeviceptr)(uintptr_t)host, host, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuMemcpyDtoH_v2)(host, (CUdeviceptr)(uintptr_t)host, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyDtoD_v2)(p, 0x1000, 8));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyHtoD_v2)(p, NULL, 8));
    OK(tow_drive(cu, cuMemcpyHtoD_v2)(p, host, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemsetD8_v2)(p, 0, 65));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemsetD32_v2)(p + 2, 0, 1));
    char back[64] = "";
    OK(tow_drive(cu, cuMemcpy)((CUdeviceptr)(uintptr_t)back, p, 64));
    assert_string_equal(back, "towline");
    OK(tow_drive(cu, cuCtxSynchronize)());
}

static void fills_of_every_width(void **state)
{
    (void)state;
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 1024));
    OK(tow_drive(cu, cuMemsetD8_v2)(p, 0x11, 1024));
    OK(tow_drive(cu, cuMemsetD16_v2)(p + 2, 0x2222, 3));
    OK(tow_drive(cu, cuMemsetD32_v2)(p + 8, 0x33333333, 2));
    OK(tow_drive(cu, cuMemsetD2D8_v2)(p + 512, 16, 0x44, 4, 3));
    OK(tow_drive(cu, cuMemsetD2D32_v2)(p + 768, 32, 0x55555555, 2, 2));
    unsigned char out[1024], want[1024];
    memset(want, 0x11, sizeof want);
    memset(want + 2, 0x22, 6);
    memset(want + 8, 0x33, 8);
    for (int y = 0; y < 3; y++) {
        memset(want + 512 + 16 * y, 0x44, 4);
    }
    for (int y = 0; y < 2; y++) {
        memset(want + 768 + 32 * y, 0x55, 8);
    }
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, p, sizeof out));
    assert_memory_equal(out, want, sizeof out);
}

static void pitched_copies_move_boxes(void **state)
{
    (void)state;
    CUdeviceptr p;
    size_t pitch;
    OK(tow_drive(cu, cuMemAllocPitch_v2)(&p, &pitch, 100, 40, 4));
    assert_int_equal(pitch, 512);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemAllocPitch_v2)(&p, &pitch, 100, 40, 3));
    unsigned char in[40][100], out[40][100];
    for (int y = 0; y < 40; y++) {
        for (int x = 0; x < 100; x++) {
            in[y][x] = (unsigned char)(y * 3 + x);
        }
    }
    CUDA_MEMCPY2D to = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                        .srcHost = in,
                        .srcPitch = 100,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p,
                        .dstPitch = pitch,
                        .WidthInBytes = 100,
                        .Height = 40};
    OK(tow_drive(cu, cuMemcpy2D_v2)(&to));
    memset(out, 0, sizeof out);
    CUDA_MEMCPY2D from = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = p,
                          .srcPitch = pitch,
                          .srcXInBytes = 10,
                          .srcY = 5,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 100,
                          .dstXInBytes = 1,
                          .dstY = 2,
                          .WidthInBytes = 20,
                          .Height = 8};
    OK(tow_drive(cu, cuMemcpy2DUnaligned_v2)(&from));
    for (int y = 0; y < 40; y++) {
        for (int x = 0; x < 100; x++) {
            bool inside = y >= 2 && y < 10 && x >= 1 && x < 21;
            assert_int_equal(out[y][x], inside ? in[y - 2 + 5][x - 1 + 10] : 0);
        }
    }
    from.Height = 36;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpy2D_v2)(&from));
    from.Height = 1;
    from.srcMemoryType = (CUmemorytype)9;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpy2D_v2)(&from));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpy2D_v2)(NULL));
}

static void boxes_travel_through_3d_arrays(void **state)
{
    (void)state;
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = 8,
                                    .Height = 6,
                                    .Depth = 4,
                                    .Format = CU_AD_FORMAT_UNSIGNED_INT16,
                                    .NumChannels = 2};
    OK(tow_drive(cu, cuArray3DCreate_v2)(&array, &desc));
    static unsigned in[4][6][8], out[4][6][8];
    for (unsigned i = 0; i < 4 * 6 * 8; i++) {
        ((unsigned *)in)[i] = i;
    }
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 32,
                          .srcHeight = 6,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = array,
                          .WidthInBytes = 32,
                          .Height = 6,
                          .Depth = 4};
    OK(tow_drive(cu, cuMemcpy3D_v2)(&copy));
    CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = array,
                          .srcXInBytes = 8,
                          .srcY = 1,
                          .srcZ = 2,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = out,
                          .dstPitch = 32,
                          .dstHeight = 6,
                          .WidthInBytes = 16,
                          .Height = 3,
                          .Depth = 2};
    OK(tow_drive(cu, cuMemcpy3D_v2)(&back));
    for (int z = 0; z < 4; z++) {
        for (int y = 0; y < 6; y++) {
            for (int x = 0; x < 8; x++) {
                bool inside = z < 2 && y < 3 && x < 4;
                assert_int_equal(out[z][y][x], inside ? in[z + 2][y + 1][x + 2] : 0);
            }
        }
    }
    back.Depth = 3;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpy3D_v2)(&back));
    CUDA_ARRAY3D_DESCRIPTOR got;
    OK(tow_drive(cu, cuArray3DGetDescriptor_v2)(&got, array));
    assert_memory_equal(&got, &desc, sizeof desc);
    OK(tow_drive(cu, cuArrayDestroy)(array));
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuArrayDestroy)(array));
    back.Depth = 1;
    FAILS(CUDA_ERROR_INVALID_HANDLE, tow_drive(cu, cuMemcpy3D_v2)(&back));
    size_t left, total;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&left, &total));
    assert_int_equal(left, total);
}

/* Extents and rows of a batch count elements where there is an array, else bytes. */
static void batches_of_boxes_count_elements(void **state)
{
    (void)state;
    CUarray array;
    CUstream stream;
    CUdeviceptr from, to;
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = 4, .Height = 3, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1};
    unsigned in[3][5], out[3][6] = {{0}};
    for (unsigned i = 0; i < 15; i++) {
        ((unsigned *)in)[i] = i + 1;
    }
    OK(tow_drive(cu, cuArray3DCreate_v2)(&array, &desc));
    OK(tow_drive(cu, cuStreamCreate)(&stream, 0));
    OK(tow_drive(cu, cuMemAlloc_v2)(&from, sizeof in));
    OK(tow_drive(cu, cuMemAlloc_v2)(&to, sizeof out));
    OK(tow_drive(cu, cuMemcpyHtoD_v2)(from, in, sizeof in));
    OK(tow_drive(cu, cuMemsetD8_v2)(to, 0, sizeof out));
    CUDA_MEMCPY3D_BATCH_OP ops[3] = {{.extent = {4, 3, 1}}, {.extent = {3, 2, 1}}};
    ops[0].src.type = ops[1].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[0].dst.type = ops[1].src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    ops[0].src.op.ptr.ptr = from;
    ops[0].src.op.ptr.rowLength = 5;
    ops[0].dst.op.array.array = ops[1].src.op.array.array = array;
    ops[1].src.op.array.offset = (CUoffset3D){1, 1, 0};
    ops[1].dst.op.ptr.ptr = to;
    ops[1].dst.op.ptr.rowLength = 6;
    ops[2] = ops[0];
    ops[2].dst.op.array.array = (CUarray)(uintptr_t)0x1234;
    size_t failed = 0;
    OK(tow_drive(cu, cuMemcpy3DBatchAsync)(2, ops, &failed, 0, stream));
    assert_int_equal(failed, SIZE_MAX);
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, to, sizeof out));
    for (unsigned y = 0; y < 3; y++) {
        for (unsigned x = 0; x < 6; x++) {
            assert_int_equal(out[y][x], x < 3 && y < 2 ? in[y + 1][x + 1] : 0);
        }
    }
    OK(tow_drive(cu, cuMemcpy3DBatchAsync_v2)(2, ops, 0, stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuMemcpy3DBatchAsync)(3, ops, &failed, 0, stream));
    assert_int_equal(failed, 2);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuMemcpy3DBatchAsync)(0, ops, &failed, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuMemcpy3DBatchAsync)(2, NULL, &failed, 0, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuMemcpy3DBatchAsync)(2, ops, &failed, 1, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpy3DBatchAsync)(2, ops, &failed, 0, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuMemcpy3DBatchAsync)(2, ops, &failed, 0, CU_STREAM_LEGACY));
    assert_int_equal(failed, SIZE_MAX);
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    OK(tow_drive(cu, cuStreamDestroy_v2)(stream));
}

static void pointers_say_what_they_are(void **state)
{
    (void)state;
    CUdeviceptr p, m;
    void *host, *pageable = malloc(64);
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 100));
    /* As many addresses as there are, some of which are taken. */
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, tow_drive(cu, cuMemAllocHost_v2)(&host, tow_soft.arena_size));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY,
          tow_drive(cu, cuMemAllocManaged)(&m, tow_soft.arena_size, CU_MEM_ATTACH_GLOBAL));
    OK(tow_drive(cu, cuMemAllocManaged)(&m, 100, CU_MEM_ATTACH_GLOBAL));
    OK(tow_drive(cu, cuMemHostAlloc)(&host, 100, CU_MEMHOSTALLOC_DEVICEMAP));
    unsigned type;
    OK(tow_drive(cu, cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    OK(tow_drive(cu, cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                            (CUdeviceptr)(uintptr_t)host));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                               (CUdeviceptr)(uintptr_t)pageable));
    FAILS(CUDA_ERROR_INVALID_VALUE,
          tow_drive(cu, cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 100));
    bool managed = false;
    OK(tow_drive(cu, cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
    assert_true(managed);
    CUdeviceptr base;
    size_t size;
    OK(tow_drive(cu, cuMemGetAddressRange_v2)(&base, &size, p + 50));
    assert_int_equal(base, p);
    assert_int_equal(size, 100);
    FAILS(CUDA_ERROR_NOT_FOUND,
          tow_drive(cu, cuMemGetAddressRange_v2)(&base, &size, (CUdeviceptr)(uintptr_t)pageable));
    CUcontext owner = NULL;
    int ordinal = -1;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    void *data[] = {&owner, &ordinal, &type};
    OK(tow_drive(cu, cuPointerGetAttributes)(3, attributes, data, p));
    assert_ptr_equal(owner, context);
    assert_int_equal(ordinal, 0);
    OK(tow_drive(cu, cuPointerGetAttributes)(3, attributes, data,
                                             (CUdeviceptr)(uintptr_t)pageable));
    assert_null(owner);
    assert_int_equal(type, 0);
    CUdeviceptr device;
    OK(tow_drive(cu, cuMemHostGetDevicePointer_v2)(&device, host, 0));
    assert_int_equal(device, (uintptr_t)host);
    OK(tow_drive(cu, cuMemHostRegister_v2)(pageable, 64, 0));
    FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
          tow_drive(cu, cuMemHostRegister_v2)((char *)pageable + 8, 8, 0));
    OK(tow_drive(cu, cuMemHostGetDevicePointer_v2)(&device, pageable, 0));
    OK(tow_drive(cu, cuMemHostUnregister)(pageable));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, tow_drive(cu, cuMemHostUnregister)(pageable));
    free(pageable);
}

struct unregistering {
    pthread_t thread;
    CUcontext current;
    void *memory;
    CUresult result;
};

static void *unregister(void *arg)
{
    struct unregistering *call = arg;
    tow_drive(cu, cuCtxSetCurrent)(call->current);
    call->result = tow_drive(cu, cuMemHostUnregister)(call->memory);
    return NULL;
}

static bool is_anything_running(void)
{
    tow_mutex_lock(&tow_soft.lock);
    bool running = tow_soft.running != NULL;
    tow_mutex_unlock(&tow_soft.lock);
    return running;
}

/* Two threads unregister memory. One waits for the context; meanwhile the other, whose context has
 * failed, did it at once, and the program registered the memory anew: that is not the first one's.
 */
static void unregistering_leaves_what_was_registered_meanwhile(void **state)
{
    (void)state;
    void *memory = calloc(1, 4096);
    volatile unsigned *flag;
    OK(tow_drive(cu, cuMemHostAlloc)((void **)&flag, 4, 0));
    *flag = 0;
    /* No thread runs streams: who waits for a context does. */
    tow_mutex_lock(&tow_soft.lock);
    assert_int_equal(tow_soft.runners, 0);
    tow_soft.runners = TOW_SOFT_RUNNERS_MAX;
    tow_mutex_unlock(&tow_soft.lock);
    CUcontext failed;
    OK(tow_drive(cu, cuCtxCreate_v2)(&failed, 0, 0));
    OK(soft_launch(soft_function(soft_module(), "crash"), 1, 1, NULL, NULL));
    CUresult error = tow_drive(cu, cuCtxSynchronize)();
    assert_int_not_equal(error, CUDA_SUCCESS);
    OK(tow_drive(cu, cuCtxSetCurrent)(context));

    OK(tow_drive(cu, cuMemHostRegister_v2)(memory, 4096, 0));
    void *params[] = {&flag};
    OK(soft_launch(soft_function(soft_module(), "spin"), 1, 1, NULL, params));
    struct unregistering waits = {.current = context, .memory = memory};
    struct unregistering at_once = {.current = failed, .memory = memory};
    assert_int_equal(pthread_create(&waits.thread, NULL, unregister, &waits), 0);
    while (!is_anything_running()) {
        sched_yield();
    }
    assert_int_equal(pthread_create(&at_once.thread, NULL, unregister, &at_once), 0);
    CUresult result;
    while ((result = tow_drive(cu, cuMemHostRegister_v2)(memory, 4096, 0)) ==
           CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        sched_yield();
    }
    OK(result);
    *flag = 1;
    pthread_join(waits.thread, NULL);
    pthread_join(at_once.thread, NULL);
    tow_mutex_lock(&tow_soft.lock);
    tow_soft.runners = 0;
    tow_mutex_unlock(&tow_soft.lock);
    OK(waits.result);
    FAILS(error, at_once.result);
    OK(tow_drive(cu, cuMemHostUnregister)(memory));
    free(memory);
}

/* Also while a kernel runs that ends only afterwards. */
static void refused_unregistering_waits_for_nothing(void **state)
{
    (void)state;
    char *memory = calloc(1, 4096);
    volatile unsigned *flag;
    OK(tow_drive(cu, cuMemHostAlloc)((void **)&flag, 4, 0));
    *flag = 0;
    OK(tow_drive(cu, cuMemHostRegister_v2)(memory, 64, 0));
    void *params[] = {&flag};
    OK(soft_launch(soft_function(soft_module(), "spin"), 1, 1, NULL, params));
    while (!is_anything_running()) {
        sched_yield();
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemHostUnregister)(NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemHostUnregister)(memory + 8));
    FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, tow_drive(cu, cuMemHostUnregister)(memory + 128));
    assert_true(is_anything_running());
    *flag = 1;
    OK(tow_drive(cu, cuMemHostUnregister)(memory));
    free(memory);
}

static void kernels_reach_host_and_managed_memory(void **state)
{
    (void)state;
    unsigned *host;
    CUdeviceptr managed;
    OK(tow_drive(cu, cuMemHostAlloc)((void **)&host, 64 * 4, 0));
    OK(tow_drive(cu, cuMemAllocManaged)(&managed, 64 * 4, CU_MEM_ATTACH_GLOBAL));
    CUfunction fill = soft_function(soft_module(), "fill");
    CUdeviceptr p = (uintptr_t)host;
    unsigned value = 5;
    void *params[] = {&p, &value};
    OK(soft_launch(fill, 2, 32, NULL, params));
    p = managed;
    value = 6;
    OK(soft_launch(fill, 2, 32, NULL, params));
    OK(tow_drive(cu, cuCtxSynchronize)());
    for (int i = 0; i < 64; i++) {
        assert_int_equal(host[i], 5);
        assert_int_equal(((unsigned *)(uintptr_t)managed)[i], 6);
    }
}

static void stream_ordered_memory_lives_until_its_stream_frees_it(void **state)
{
    (void)state;
    CUstream stream;
    OK(tow_drive(cu, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CUmemoryPool pool, again;
    OK(tow_drive(cu, cuDeviceGetDefaultMemPool)(&pool, 0));
    OK(tow_drive(cu, cuDeviceGetMemPool)(&again, 0));
    assert_ptr_equal(pool, again);
    CUdeviceptr p;
    OK(tow_drive(cu, cuMemAllocAsync)(&p, 4 * 32, stream));
    CUfunction fill = soft_function(soft_module(), "fill");
    unsigned value = 9;
    void *params[] = {&p, &value};
    OK(soft_launch(fill, 1, 32, stream, params));
    unsigned out[32];
    OK(tow_drive(cu, cuMemcpyDtoHAsync_v2)(out, p, sizeof out, stream));
    OK(tow_drive(cu, cuMemFreeAsync)(p, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    assert_int_equal(out[31], 9);
    cuuint64_t used;
    OK(tow_drive(cu, cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    assert_int_equal(used, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemFreeAsync)(p, stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyDtoH_v2)(out, p, 4));
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool own;
    OK(tow_drive(cu, cuMemPoolCreate)(&own, &props));
    OK(tow_drive(cu, cuMemAllocFromPoolAsync)(&p, MIB, own, stream));
    OK(tow_drive(cu, cuMemPoolDestroy)(own));
    OK(tow_drive(cu, cuMemFreeAsync)(p, stream));
    OK(tow_drive(cu, cuStreamSynchronize)(stream));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemPoolDestroy)(own));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemPoolDestroy)(pool));
    OK(tow_drive(cu, cuStreamDestroy_v2)(stream));
}

static void mapped_memory_needs_access_and_can_be_mapped_twice(void **state)
{
    (void)state;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    size_t granularity;
    OK(tow_drive(cu, cuMemGetAllocationGranularity)(&granularity, &prop,
                                                    CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemAllocationProp host = prop;
    size_t same = 0;
    for (int type = CU_MEM_LOCATION_TYPE_HOST; type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
         type++) {
        host.location.type =
            (CUmemLocationType)type; /* told, though such memory is not to be had */
        OK(tow_drive(cu, cuMemGetAllocationGranularity)(&same, &host,
                                                        CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
        assert_int_equal(same, granularity);
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemGetAllocationGranularity)(
                                        NULL, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemGetAllocationGranularity)(
                                        &same, &prop, (CUmemAllocationGranularity_flags)2));
    CUdeviceptr va;
    OK(tow_drive(cu, cuMemAddressReserve)(&va, 2 * granularity, 0, 0, 0));
    CUmemGenericAllocationHandle memory;
    OK(tow_drive(cu, cuMemCreate)(&memory, granularity, &prop, 0));
    OK(tow_drive(cu, cuMemMap)(va, granularity, 0, memory, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemMap)(va, granularity, 0, memory, 0));
    OK(tow_drive(cu, cuMemMap)(va + granularity, granularity, 0, memory, 0));
    OK(tow_drive(cu, cuMemRelease)(memory));
    unsigned value = 77, out = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyHtoD_v2)(va, &value, 4));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(tow_drive(cu, cuMemSetAccess)(va, 2 * granularity, &access, 1));
    OK(tow_drive(cu, cuMemcpyHtoD_v2)(va + 100, &value, 4));
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(&out, va + granularity + 100, 4));
    assert_int_equal(out, 77);
    /* The range is the reservation's, whichever mapping is asked for. */
    CUdeviceptr start = 0;
    size_t length = 0;
    OK(tow_drive(cu, cuPointerGetAttribute)(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                            va + granularity + 5));
    OK(tow_drive(cu, cuPointerGetAttribute)(&length, CU_POINTER_ATTRIBUTE_RANGE_SIZE, va + 5));
    assert_int_equal(start, va);
    assert_int_equal(length, 2 * granularity);
    /* A copy may cross from one mapping into the next. */
    CUdeviceptr linear;
    OK(tow_drive(cu, cuMemAlloc_v2)(&linear, 2 * granularity));
    OK(tow_drive(cu, cuMemcpyDtoD_v2)(linear, va, 2 * granularity));
    OK(tow_drive(cu, cuCtxSynchronize)());
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemAddressFree)(va, 2 * granularity));
    OK(tow_drive(cu, cuMemUnmap)(va, 2 * granularity));
    OK(tow_drive(cu, cuMemAddressFree)(va, 2 * granularity));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuMemcpyDtoH_v2)(&out, va, 4));
    OK(tow_drive(cu, cuMemFree_v2)(linear));
    size_t left, total;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&left, &total));
    assert_int_equal(left, total);
}

static void reading_only_is_enforced_on_mappings(void **state)
{
    (void)state;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUdeviceptr va;
    CUmemGenericAllocationHandle memory;
    OK(tow_drive(cu, cuMemAddressReserve)(&va, 2 * MIB, 0, 0, 0));
    OK(tow_drive(cu, cuMemCreate)(&memory, 2 * MIB, &prop, 0));
    OK(tow_drive(cu, cuMemMap)(va, 2 * MIB, 0, memory, 0));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
    OK(tow_drive(cu, cuMemSetAccess)(va, 2 * MIB, &access, 1));
    unsigned long long flags;
    OK(tow_drive(cu, cuMemGetAccess)(&flags, &access.location, va));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CUfunction fill = soft_function(soft_module(), "fill");
    unsigned value = 1;
    void *params[] = {&va, &value};
    OK(soft_launch(fill, 1, 1, NULL, params));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuCtxSynchronize)());
}

static void two_devices_need_peer_access(void **state)
{
    (void)state;
    soft_teardown(NULL);
    struct tow_soft_options options = {.devices = 2, .memory = 64 * MIB, .capability = 90};
    assert_int_equal(soft_open_with(&options), 0);
    CUcontext second;
    OK(tow_drive(cu, cuDevicePrimaryCtxRetain)(&second, 1));
    OK(tow_drive(cu, cuCtxSetCurrent)(second));
    CUdeviceptr p, q;
    OK(tow_drive(cu, cuMemAlloc_v2)(&p, 128));
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    OK(tow_drive(cu, cuMemAlloc_v2)(&q, 128));
    OK(tow_drive(cu, cuMemcpyPeer)(p, second, q, context, 128));
    int can, major;
    OK(tow_drive(cu, cuDeviceCanAccessPeer)(&can, 0, 1));
    assert_int_equal(can, 1);
    OK(tow_drive(cu, cuDeviceGetAttribute)(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                           1));
    assert_int_equal(major, 9);
    CUuuid a, b;
    OK(tow_drive(cu, cuDeviceGetUuid)(&a, 0));
    OK(tow_drive(cu, cuDeviceGetUuid)(&b, 1));
    assert_memory_not_equal(&a, &b, sizeof a);
    CUfunction fill = soft_function(soft_module(), "fill");
    unsigned value = 1;
    void *params[] = {&p, &value};
    OK(tow_drive(cu, cuCtxEnablePeerAccess)(second, 0));
    FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, tow_drive(cu, cuCtxEnablePeerAccess)(second, 0));
    OK(soft_launch(fill, 1, 32, NULL, params));
    OK(tow_drive(cu, cuCtxSynchronize)());
    OK(tow_drive(cu, cuCtxDisablePeerAccess)(second));
    OK(soft_launch(fill, 1, 32, NULL, params));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, tow_drive(cu, cuCtxSynchronize)());
    OK(tow_drive(cu, cuCtxSetCurrent)(second));
    unsigned out[32];
    OK(tow_drive(cu, cuMemcpyDtoH_v2)(out, p, 128));
    assert_int_equal(out[31], 1);
}

static long resident_bytes(void)
{
    long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* For initcheck a bit is kept for each byte of what is followed: not of memory that the host and
 * others write, of which there may be much that nobody uses. */
static void memory_that_is_not_followed_costs_nothing(void **state)
{
    struct tow_soft_options options = {.memory = 2048 * MIB};
    char why[256];
    CUdeviceptr p;
    (void)state;
    assert_int_equal(tow_backend_soft_check("initcheck:/dev/null", why, sizeof why), 0);
    assert_int_equal(soft_open_with(&options), 0);
    long before = resident_bytes();
    OK(tow_drive(cu, cuMemAllocManaged)(&p, 1024 * MIB, CU_MEM_ATTACH_GLOBAL));
    assert_in_range(resident_bytes() - before + (long)(32 * MIB), 0, 64 * MIB);
    OK(tow_drive(cu, cuMemFree_v2)(p));
    soft_teardown(state);
}

static long page_size; /* that the kernel has; 0: its own, -1: it gives nothing back */

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);
long __real_sysconf(int name);
long __wrap_sysconf(int name);

int __wrap_madvise(void *at, size_t bytes, int advice)
{
    uint64_t rest = page_size > 0 ? (uint64_t)page_size - 1 : 0;
    if (page_size < 0 || ((uintptr_t)at & rest) != 0) {
        errno = page_size < 0 ? ENOMEM : EINVAL;
        return -1;
    }
    return __real_madvise(at, (bytes + rest) & ~rest, advice);
}

long __wrap_sysconf(int name)
{
    return page_size > 0 && name == _SC_PAGESIZE ? page_size : __real_sysconf(name);
}

static void pages_of_any_size_lose_what_nobody_wrote_and_no_more(void **state)
{
    static const long sizes[] = {0, 16384, 65536, -1};
    struct tow_soft_options options = {.memory = 256 * MIB};
    const uint64_t all = 64 * MIB, at = 8 * MIB + 8 * 4096 + 40, bytes = 24 * MIB + 8 * 4096;
    char why[256];
    (void)state;
    assert_int_equal(tow_backend_soft_check("initcheck:/dev/null", why, sizeof why), 0);
    assert_int_equal(soft_open_with(&options), 0);
    const struct tow_ptx_written *written = tow_soft_written();
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tow_soft_written_all(written->low, all);
        page_size = sizes[i];
        tow_soft_written_none(written->low + at, bytes);
        page_size = 0;
        assert_true(tow_bits_all(written->bits, 0, at));
        assert_true(tow_bits_all(written->bits, at + bytes, all - at - bytes));
        for (uint64_t word = at / 64; word * 64 < at + bytes; word++) {
            assert_int_equal(written->bits[word] & tow_bits_mask(word, at, bytes), 0);
        }
    }
    soft_teardown(state);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Looking for races takes no more than half of it. */
static void control_groups_say_how_much_memory_there_is(void **state)
{
    static const struct {
        const char *list;
        uint64_t most;
    } lists[] = {{"1:cpu:/\n0::/a/b\n", 3000},
                 {"0::/a/b/c\n", 3000},
                 {"0::/a\n", 5000},
                 {"0::/\n", UINT64_MAX},
                 {"4:memory:/a\n", UINT64_MAX}};
    static const char *const made[] = {"a/b/memory.max", "a/b", "a/memory.max", "a", "list", ""};
    char root[] = "/tmp/towXXXXXX", path[256], list[256];
    (void)state;
    assert_non_null(mkdtemp(root));
    for (unsigned i = 2; i-- > 0;) {
        snprintf(path, sizeof path, "%s/%s", root, i ? "a" : "a/b");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    write_file(root, "a/memory.max", "5000\n");
    write_file(root, "a/b/memory.max", "3000\n");
    snprintf(list, sizeof list, "%s/list", root);
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
        write_file(root, "list", lists[i].list);
        assert_int_equal(tow_soft_check_group_memory(list, root), lists[i].most);
    }
    write_file(root, "a/b/memory.max", "max\n");
    write_file(root, "list", lists[0].list);
    assert_int_equal(tow_soft_check_group_memory(list, root), 5000);
    assert_int_equal(tow_soft_check_group_memory("/nonexistent", root), UINT64_MAX);
    for (unsigned i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/%s", root, made[i]);
        assert_int_equal(remove(path), 0);
    }
}

static void contexts_are_a_stack_per_thread(void **state)
{
    (void)state;
    CUgreenCtx green = NULL;
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          tow_drive(cu, cuGreenCtxCreate)(&green, (CUdevResourceDesc)(uintptr_t)0x1234, 0,
                                          CU_GREEN_CTX_DEFAULT_STREAM));
    CUfunc_cache cache = CU_FUNC_CACHE_PREFER_EQUAL;
    OK(tow_drive(cu, cuCtxGetCacheConfig)(&cache));
    assert_int_equal(cache, CU_FUNC_CACHE_PREFER_NONE);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuCtxGetCacheConfig)(NULL));
    OK(tow_drive(cu, cuCtxSetCacheConfig)(CU_FUNC_CACHE_PREFER_EQUAL));
    OK(tow_drive(cu, cuCtxGetCacheConfig)(&cache));
    assert_int_equal(cache, CU_FUNC_CACHE_PREFER_EQUAL);
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuCtxSetCacheConfig)((CUfunc_cache)4));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuCtxSetCacheConfig)((CUfunc_cache)-1));
    CUcontext own, now;
    OK(tow_drive(cu, cuCtxCreate_v2)(&own, 0, 0));
    OK(tow_drive(cu, cuCtxGetCurrent)(&now));
    assert_ptr_equal(now, own);
    OK(tow_drive(cu, cuCtxPopCurrent_v2)(&now));
    assert_ptr_equal(now, own);
    OK(tow_drive(cu, cuCtxGetCurrent)(&now));
    assert_ptr_equal(now, context);
    OK(tow_drive(cu, cuCtxPushCurrent_v2)(own));
    CUdevice device = 9;
    OK(tow_drive(cu, cuCtxGetDevice)(&device));
    assert_int_equal(device, 0);
    unsigned long long a, b;
    OK(tow_drive(cu, cuCtxGetId)(own, &a));
    OK(tow_drive(cu, cuCtxGetId)(context, &b));
    assert_int_not_equal(a, b);
    OK(tow_drive(cu, cuCtxDestroy_v2)(own));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, tow_drive(cu, cuCtxDestroy_v2)(own));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, tow_drive(cu, cuCtxSetCurrent)(own));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, tow_drive(cu, cuCtxDestroy_v2)(context));
    OK(tow_drive(cu, cuCtxSetCurrent)(NULL));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, tow_drive(cu, cuCtxSynchronize)());
    CUdeviceptr p;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, tow_drive(cu, cuMemAlloc_v2)(&p, 4));
    size_t value;
    OK(tow_drive(cu, cuCtxSetCurrent)(context));
    OK(tow_drive(cu, cuCtxGetLimit)(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    assert_int_equal(value, 8 * MIB);
    OK(tow_drive(cu, cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 16 * MIB));
    OK(tow_drive(cu, cuCtxGetLimit)(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    assert_int_equal(value, 16 * MIB);
    FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, tow_drive(cu, cuCtxSetLimit)((CUlimit)77, 1));
    unsigned flags;
    int active;
    OK(tow_drive(cu, cuDevicePrimaryCtxGetState)(0, &flags, &active));
    assert_int_equal(active, 1);
    OK(tow_drive(cu, cuDevicePrimaryCtxRelease_v2)(0));
    OK(tow_drive(cu, cuDevicePrimaryCtxGetState)(0, &flags, &active));
    assert_int_equal(active, 0);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, tow_drive(cu, cuDevicePrimaryCtxRelease_v2)(0));
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, tow_drive(cu, cuMemAlloc_v2)(&p, 4));
}

static void unused(void *user)
{
    (void)user;
}

static void nothing_works_before_init(void **state)
{
    (void)state;
    soft_teardown(NULL);
    char why[256];
    struct tow_soft_options options = {.memory = 64 * MIB};
    assert_int_equal(tow_backend_soft_open(&options, &backend, why, sizeof why), 0);
    int count;
    CUdeviceptr p;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuDeviceGetCount)(&count));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuMemAlloc_v2)(&p, 4));
    CUgraph graph;
    CUstream stream;
    CUevent event;
    CUuserObject object;
    CUmemoryPool pool;
    CUcontext none;
    CUmodule module;
    CUlibrary library;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuGraphCreate)(&graph, 0));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuStreamCreate)(&stream, 0));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuEventCreate)(&event, 0));
    FAILS(CUDA_ERROR_NOT_INITIALIZED,
          tow_drive(cu, cuUserObjectCreate)(&object, &count, unused, 1,
                                            CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuDeviceGetDefaultMemPool)(&pool, 0));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuDevicePrimaryCtxRetain)(&none, 0));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuCtxCreate_v2)(&none, 0, 0));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, tow_drive(cu, cuModuleLoadData)(&module, soft_kernels));
    FAILS(CUDA_ERROR_NOT_INITIALIZED,
          tow_drive(cu, cuLibraryLoadData)(&library, soft_kernels, NULL, NULL, 0, NULL, NULL, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, tow_drive(cu, cuInit)(1));
    OK(tow_drive(cu, cuInit)(0));
    struct tow_backend second;
    assert_true(tow_backend_soft_open(&options, &second, why, sizeof why) < 0);
    assert_string_not_equal(why, "");
}

/* Half of the machine's, but 16 GiB at most; it is taken when it is used. */
static void memory_has_a_default(void **state)
{
    (void)state;
    struct tow_soft_options options = {0};
    assert_int_equal(soft_open_with(&options), 0);
    uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
    uint64_t most = (uint64_t)16 << 30;
    size_t left, total;
    OK(tow_drive(cu, cuMemGetInfo_v2)(&left, &total));
    assert_int_equal(total, (half < most ? half : most) & ~(uint64_t)(2 * MIB - 1));
    assert_int_equal(left, total);
    soft_teardown(NULL);
}

/* CuPy takes them for a C string. Of random bytes one in sixteen devices would have a zero. */
static void uuids_differ_and_have_no_zero_byte(void **state)
{
    CUuuid one, before = {{0}};
    for (unsigned i = 0; i < 1000; i++) {
        tow_soft_uuid_make(i, &one);
        assert_null(memchr(one.bytes, 0, sizeof one.bytes));
        assert_int_equal(one.bytes[6] & 0xf0, 0x40); /* version and variant stay a UUID's */
        assert_int_equal(one.bytes[8] & 0xc0, 0x80);
        assert_memory_not_equal(&one, &before, sizeof one);
        before = one;
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, soft_setup, soft_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(device_query_describes_a_gpu),
        cmocka_unit_test(uuids_differ_and_have_no_zero_byte),
        cmocka_unit_test(memory_has_a_default),
        TEST(memory_info_follows_allocations),
        TEST(wrong_frees_are_refused),
        TEST(many_small_allocations_do_not_overlap),
        TEST(copies_check_their_ranges),
        TEST(fills_of_every_width),
        TEST(pitched_copies_move_boxes),
        TEST(boxes_travel_through_3d_arrays),
        TEST(batches_of_boxes_count_elements),
        TEST(pointers_say_what_they_are),
        TEST(unregistering_leaves_what_was_registered_meanwhile),
        TEST(refused_unregistering_waits_for_nothing),
        TEST(kernels_reach_host_and_managed_memory),
        TEST(stream_ordered_memory_lives_until_its_stream_frees_it),
        TEST(mapped_memory_needs_access_and_can_be_mapped_twice),
        TEST(reading_only_is_enforced_on_mappings),
        TEST(two_devices_need_peer_access),
        cmocka_unit_test(memory_that_is_not_followed_costs_nothing),
        cmocka_unit_test(control_groups_say_how_much_memory_there_is),
        cmocka_unit_test(pages_of_any_size_lose_what_nobody_wrote_and_no_more),
        TEST(contexts_are_a_stack_per_thread),
        TEST(nothing_works_before_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
