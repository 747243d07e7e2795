/* SPDX-License-Identifier: Apache-2.0 */
/* Stream-ordered memory: pools and their attributes, reuse, order, access, refusals. */
#include "driver.h"

#include <unistd.h>

static CUmemoryPool pool_of(CUmemAllocationHandleType types)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = dev;
    props.handleTypes = types;
    OK(cuMemPoolCreate(&pool, &props));
    return pool;
}

static CUmemoryPool pool_new(void)
{
    return pool_of(CU_MEM_HANDLE_TYPE_NONE);
}

static long long attribute(CUmemoryPool pool, CUmemPool_attribute name)
{
    cuuint64_t value = 0;
    int small = 0;
    if (name <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES) {
        OK(cuMemPoolGetAttribute(pool, name, &small));
        return small;
    }
    OK(cuMemPoolGetAttribute(pool, name, &value));
    return (long long)value;
}

CASE(pool_default_is_current, "a device's current pool is its default pool until another is set")
{
    CUmemoryPool a = NULL, b = NULL, mine = pool_new();
    OK(cuDeviceGetDefaultMemPool(&a, dev));
    OK(cuDeviceGetMemPool(&b, dev));
    TRUE(a != NULL && a == b);
    IS(cuDeviceSetMemPool(dev, mine), CUDA_SUCCESS);
    OK(cuDeviceGetMemPool(&b, dev));
    TRUE(b == mine);
    OK(cuDeviceGetDefaultMemPool(&b, dev));
    TRUE(b == a);
}

CASE(pool_attributes_at_first, "a new pool keeps nothing and reuses everything")
{
    CUmemoryPool pool = pool_new();
    EQ(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES), 1);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 1);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES), 1);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
}

CASE(pool_attributes_are_kept, "a pool's threshold and flags are what was set")
{
    CUmemoryPool pool = pool_new();
    cuuint64_t threshold = 12345678;
    int off = 0;
    IS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), CUDA_SUCCESS);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 12345678);
    IS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off), CUDA_SUCCESS);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC), 0);
    SEE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &threshold));
    SEE(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &threshold));
}

CASE(pool_counts_what_is_used, "a pool counts bytes in use and remembers the most there were")
{
    CUmemoryPool pool = pool_new();
    CUdeviceptr a = 0, b = 0;
    cuuint64_t zero = 0;
    OK(cuMemAllocFromPoolAsync(&a, 1 << 20, pool, side));
    OK(cuMemAllocFromPoolAsync(&b, 1 << 20, pool, side));
    OK(cuStreamSynchronize(side));
    EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 2 << 20);
    TRUE(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 2 << 20);
    OK(cuMemFreeAsync(a, side));
    OK(cuStreamSynchronize(side));
    EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1 << 20);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 2 << 20);
    IS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero), CUDA_SUCCESS);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1 << 20);
}

CASE(pool_trim, "trimming gives back what is not in use")
{
    CUmemoryPool pool = pool_new();
    CUdeviceptr a = 0;
    cuuint64_t all = ~0ull;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    OK(cuMemAllocFromPoolAsync(&a, 8 << 20, pool, side));
    OK(cuMemFreeAsync(a, side));
    OK(cuStreamSynchronize(side));
    TRUE(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 8 << 20);
    IS(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
    EQ(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

CASE(pool_threshold_zero_releases, "without a threshold a synchronisation gives unused memory back")
{
    CUmemoryPool pool = pool_new();
    CUdeviceptr a = 0;
    OK(cuMemAllocFromPoolAsync(&a, 8 << 20, pool, side));
    OK(cuMemFreeAsync(a, side));
    OK(cuStreamSynchronize(side));
    NUM(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
}

CASE(pool_reuses_in_one_stream,
     "memory freed in a stream is given again in that stream before it was reached")
{
    CUdeviceptr a = 0, b = 0;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    OK(cuMemAllocAsync(&a, 1 << 20, s));
    OK(cuMemFreeAsync(a, s));
    OK(cuMemAllocAsync(&b, 1 << 20, s));
    TRUE(a == b);
    OK(cuMemFreeAsync(b, s));
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
}

CASE(pool_memory_works_in_its_stream,
     "stream-ordered memory is used and freed in order, without waiting")
{
    CUdeviceptr w = words(1), a = 0;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    hold(s);
    IS(cuMemAllocAsync(&a, 4096, s), CUDA_SUCCESS);
    OK(launch_set(s, a, 21));
    OK(launch_copy(s, w, a));
    IS(cuMemFreeAsync(a, s), CUDA_SUCCESS);
    EQ(peek(w, 0), 0);
    let_go();
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 21);
}

CASE(pool_memory_in_other_stream,
     "stream-ordered memory may be used and freed in another stream after an event")
{
    CUdeviceptr w = words(1), a = 0;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING), t = stream_new(CU_STREAM_NON_BLOCKING);
    CUevent e = event_new(CU_EVENT_DISABLE_TIMING);
    OK(cuMemAllocAsync(&a, 4096, s));
    OK(launch_set(s, a, 22));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    OK(launch_copy(t, w, a));
    IS(cuMemFreeAsync(a, t), CUDA_SUCCESS);
    IS(cuStreamSynchronize(t), CUDA_SUCCESS);
    EQ(peek(w, 0), 22);
}

CASE(pool_mixed_frees,
     "cuMemFree takes stream-ordered memory, and cuMemFreeAsync takes cuMemAlloc's")
{
    CUdeviceptr a = 0, b = 0;
    OK(cuMemAllocAsync(&a, 4096, side));
    OK(cuStreamSynchronize(side));
    IS(cuMemFree(a), CUDA_SUCCESS);
    OK(cuMemAlloc(&b, 4096));
    IS_LATE(cuMemFreeAsync(b, side), CUDA_SUCCESS);
}

CASE(pool_null_stream, "stream-ordered memory of the null stream")
{
    CUdeviceptr w = words(1), a = 0;
    IS(cuMemAllocAsync(&a, 100, NULL), CUDA_SUCCESS);
    OK(launch_set(NULL, a, 23));
    OK(launch_copy(NULL, w, a));
    IS(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
    IS(cuStreamSynchronize(NULL), CUDA_SUCCESS);
    EQ(peek(w, 0), 23);
}

CASE(pool_alloc_nothing, "a stream-ordered allocation of no bytes")
{
    CUdeviceptr a = 1;
    SEE(cuMemAllocAsync(&a, 0, side));
    NUM(a == 0);
}

CASE(pool_alloc_too_much, "a stream-ordered allocation larger than the device")
{
    CUdeviceptr a = 0;
    IS(cuMemAllocAsync(&a, (size_t)1 << 50, side), CUDA_ERROR_OUT_OF_MEMORY);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    IS(cuMemAllocAsync(&a, 256, side), CUDA_SUCCESS);
}

CASE(pool_address_range, "the range of stream-ordered memory is that of its allocation")
{
    CUdeviceptr a = 0, base = 0;
    size_t size = 0;
    OK(cuMemAllocAsync(&a, 1000, side));
    OK(cuStreamSynchronize(side));
    SEE(cuMemGetAddressRange(&base, &size, a + 10));
    NUM(base == a);
    NUM(size);
    NUM(a % 256);
}

CASE(pool_access, "the pool's device may read and write, always")
{
    CUmemoryPool pool = pool_new();
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    CUmemAccess_flags flags = (CUmemAccess_flags)99;
    IS(cuMemPoolGetAccess(&flags, pool, &here), CUDA_SUCCESS);
    EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemAccessDesc none = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    SEE(cuMemPoolSetAccess(pool, &none, 1));
    none.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    IS(cuMemPoolSetAccess(pool, &none, 1), CUDA_SUCCESS);
}

CASE(pool_export_refused, "a pool that was not made for export is not exported")
{
    int fd = -1;
    CUresult result = cuMemPoolExportToShareableHandle(&fd, pool_new(),
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    TRUE(result != CUDA_SUCCESS);
    EQ(fd, -1);
}

CASE(pool_export, "a pool made for export is exported and used as any other")
{
    CUmemoryPool pool = pool_of(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemPoolPtrExportData data;
    CUdeviceptr a = 0, b = 0, plain = 0;
    int fd = -1;
    IS(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
       CUDA_SUCCESS);
    TRUE(fd > 2);
    OK(cuMemAllocFromPoolAsync(&a, 4096, pool, side));
    OK(cuMemAllocFromPoolAsync(&b, 5 << 20, pool, side));
    OK(launch_set(side, a, 31));
    OK(launch_copy(side, b, a));
    OK(cuMemAllocAsync(&plain, 4096, side));
    OK(cuStreamSynchronize(side));
    EQ(peek(b, 0), 31);
    IS(cuMemPoolExportPointer(&data, a), CUDA_SUCCESS);
    IS(cuMemPoolExportPointer(&data, b), CUDA_SUCCESS);
    SEE(cuMemPoolExportPointer(&data, plain));
    OK(cuMemFreeAsync(plain, side));
    OK(cuMemFreeAsync(a, side));
    OK(cuMemFreeAsync(b, side));
    OK(cuStreamSynchronize(side));
    close(fd);
    IS(cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

CASE(pool_destroy_with_memory, "a pool destroyed with memory in use ends when that is freed")
{
    CUmemoryPool pool = pool_new();
    CUdeviceptr w = words(1), a = 0;
    OK(cuMemAllocFromPoolAsync(&a, 4096, pool, side));
    IS(cuMemPoolDestroy(pool), CUDA_SUCCESS);
    OK(launch_set(side, a, 24));
    OK(launch_copy(side, w, a));
    IS(cuMemFreeAsync(a, side), CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(peek(w, 0), 24);
}

CASE(pool_default_stays, "the default pool cannot be destroyed")
{
    CUmemoryPool pool = NULL;
    CUdeviceptr a = 0;
    OK(cuDeviceGetDefaultMemPool(&pool, dev));
    IS(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemAllocAsync(&a, 256, side), CUDA_SUCCESS);
}

CASE(pool_of_device_is_used, "cuMemAllocAsync takes memory from the device's current pool")
{
    CUmemoryPool mine = pool_new(), got = NULL;
    CUdeviceptr a = 0;
    OK(cuDeviceSetMemPool(dev, mine));
    OK(cuMemAllocAsync(&a, 4096, side));
    OK(cuStreamSynchronize(side));
    OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, a));
    TRUE(got == mine);
    TRUE(attribute(mine, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 4096);
}

CASE(pool_of_a_place, "a device named as a place has the pools that it has as a device")
{
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    CUmemoryPool first = NULL, a = NULL, b = NULL, mine = pool_new();
    OK(cuDeviceGetDefaultMemPool(&first, dev));
    IS(cuMemGetDefaultMemPool(&a, &here, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
    TRUE(a == first);
    IS(cuMemSetMemPool(&here, CU_MEM_ALLOCATION_TYPE_PINNED, mine), CUDA_SUCCESS);
    IS(cuMemGetMemPool(&a, &here, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
    OK(cuDeviceGetMemPool(&b, dev));
    TRUE(a == mine && b == mine);
    OK(cuDeviceSetMemPool(dev, first));
    OK(cuMemGetMemPool(&a, &here, CU_MEM_ALLOCATION_TYPE_PINNED));
    TRUE(a == first);
}

CASE(pool_of_another_place, "a device's pool is not set for the host")
{
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    IS(cuMemSetMemPool(&host, CU_MEM_ALLOCATION_TYPE_PINNED, pool_new()), CUDA_ERROR_INVALID_VALUE);
}
