/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: addresses, ranges, what pointers are asked, fills, freeing while in use. */
#include "driver.h"

CASE(memory_is_aligned, "allocations begin at multiples of 256, however small")
{
    CUdeviceptr a = 0, b = 0;
    OK(cuMemAlloc(&a, 1));
    OK(cuMemAlloc(&b, 3));
    EQ(a % 256, 0);
    EQ(b % 256, 0);
    TRUE(a != b);
}

CASE(memory_address_range, "an address inside of an allocation leads to its base and size")
{
    CUdeviceptr a = 0, base = 0;
    size_t size = 0;
    OK(cuMemAlloc(&a, 1000));
    IS(cuMemGetAddressRange(&base, &size, a + 999), CUDA_SUCCESS);
    TRUE(base == a);
    EQ(size, 1000);
    IS(cuMemGetAddressRange(NULL, &size, a + 1), CUDA_SUCCESS);
    IS(cuMemGetAddressRange(&base, NULL, a + 1), CUDA_SUCCESS);
    SEE(cuMemGetAddressRange(NULL, NULL, a));
}

CASE(memory_attributes_of_device, "attributes of device memory")
{
    CUdeviceptr a = 0, got = 0, start = 0;
    CUcontext owner = NULL;
    unsigned type = 99, managed = 99, sync = 99;
    int ordinal = 99;
    size_t size = 0;
    OK(cuMemAlloc(&a, 1000));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 10));
    EQ(type, CU_MEMORYTYPE_DEVICE);
    managed = 0;
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, a));
    EQ(managed & 0xff, 0);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
    EQ(ordinal, 0);
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, a));
    TRUE(owner == ctx);
    OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a + 10));
    EQ(got - a, 10);
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 10));
    TRUE(start == a);
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 10));
    EQ(size, 1000);
    sync = 0;
    OK(cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    NUM(sync & 0xff);
    void *host = (void *)1;
    SEE(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, a));
}

CASE(memory_buffer_ids, "a buffer id is that of the allocation, and is not used again")
{
    CUdeviceptr a = 0, b = 0;
    unsigned long long one = 0, inside = 0, other = 0, again = 0;
    OK(cuMemAlloc(&a, 4096));
    OK(cuMemAlloc(&b, 4096));
    OK(cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
    OK(cuPointerGetAttribute(&inside, CU_POINTER_ATTRIBUTE_BUFFER_ID, a + 100));
    OK(cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
    TRUE(one == inside);
    TRUE(one != other);
    OK(cuMemFree(a));
    OK(cuMemAlloc(&a, 4096));
    OK(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
    TRUE(again != one && again != other);
}

static void attributes_of(CUdeviceptr at)
{
    unsigned type = 99, managed = 99, mapped = 99;
    int ordinal = 99;
    CUcontext owner = (CUcontext)1;
    CUdeviceptr device = 1;
    void *host = (void *)1;
    CUmemoryPool pool = (CUmemoryPool)1;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_MAPPED,         CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *values[] = {&type, &managed, &ordinal, &owner, &device, &host, &mapped, &pool};
    managed = mapped = 0;
    IS(cuPointerGetAttributes(8, names, values, at), CUDA_SUCCESS);
    conform_say("type %u managed %u ordinal %d mapped %u", type, managed & 0xff, ordinal,
                mapped & 0xff);
    conform_say("context %s, device pointer %s, host pointer %s, pool %s",
                owner == NULL  ? "none"
                : owner == ctx ? "this"
                               : "other",
                device == 0    ? "none"
                : device == at ? "the same"
                               : "other",
                host == NULL                    ? "none"
                : host == (void *)(uintptr_t)at ? "the same"
                                                : "other",
                pool == NULL ? "none" : "some");
}

CASE(memory_attributes_together_device, "cuPointerGetAttributes of device memory")
{
    attributes_of(words(4) + 4);
}

CASE(memory_attributes_together_pinned, "cuPointerGetAttributes of page-locked memory")
{
    void *p = NULL;
    OK(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    attributes_of((CUdeviceptr)(uintptr_t)p + 8);
}

CASE(memory_attributes_together_managed, "cuPointerGetAttributes of managed memory")
{
    CUdeviceptr p = 0;
    OK(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
    attributes_of(p);
}

CASE(memory_attributes_together_unknown, "cuPointerGetAttributes of memory CUDA does not know")
{
    static int mine[4];
    attributes_of((CUdeviceptr)(uintptr_t)mine);
}

CASE(memory_attributes_together_pool, "cuPointerGetAttributes of stream-ordered memory")
{
    CUdeviceptr p = 0;
    OK(cuMemAllocAsync(&p, 4096, side));
    OK(cuStreamSynchronize(side));
    attributes_of(p);
}

CASE(memory_attributes_of_global, "cuPointerGetAttributes of a module's global")
{
    CUdeviceptr p = 0;
    OK(cuModuleGetGlobal(&p, NULL, mod, "number"));
    attributes_of(p);
}

CASE(memory_sync_memops, "the attribute SYNC_MEMOPS is what was set")
{
    CUdeviceptr a = words(1);
    unsigned on = 1, got = 0;
    IS(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a), CUDA_SUCCESS);
    OK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    EQ(got & 0xff, 1);
    unsigned type = CU_MEMORYTYPE_HOST;
    IS(cuPointerSetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a), CUDA_ERROR_INVALID_VALUE);
}

CASE(memory_fill_bytes, "cuMemsetD8 takes any address and length")
{
    CUdeviceptr a = words(2);
    IS(cuMemsetD8(a + 1, 0xab, 5), CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    conform_say("%08x %08x", (unsigned)peek(a, 0), (unsigned)peek(a, 1));
    EQ((unsigned)peek(a, 0), 0xababab00u);
    EQ((unsigned)peek(a, 1), 0x0000ababu);
}

CASE(memory_fill_halves, "cuMemsetD16 writes halves at even addresses")
{
    CUdeviceptr a = words(2);
    IS(cuMemsetD16(a + 2, 0x1234, 2), CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    EQ((unsigned)peek(a, 0), 0x12340000u);
    EQ((unsigned)peek(a, 1), 0x00001234u);
}

CASE(memory_fill_nothing, "a fill of no elements succeeds and writes nothing")
{
    CUdeviceptr a = words(1);
    IS_LATE(cuMemsetD8(a, 1, 0), CUDA_SUCCESS);
    IS_LATE(cuMemsetD16(a, 1, 0), CUDA_SUCCESS);
    IS_LATE(cuMemsetD32(a, 1, 0), CUDA_SUCCESS);
    IS_LATE(cuMemsetD32Async(a, 1, 0, side), CUDA_SUCCESS);
    IS_LATE(cuMemsetD2D32(a, 4, 1, 0, 1), CUDA_SUCCESS);
    IS_LATE(cuMemsetD2D32(a, 4, 1, 1, 0), CUDA_SUCCESS);
    EQ(peek(a, 0), 0);
}

CASE(memory_fill_rows, "cuMemsetD2D fills the width of each row and leaves the rest")
{
    CUdeviceptr a = words(12);
    IS(cuMemsetD2D32(a, 16, 7, 2, 3), CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    int sum = 0;
    for (int i = 0; i < 12; i++) {
        sum = sum * 2 + (peek(a, i) == 7);
    }
    EQ(sum, 0xccc);
    IS(cuMemsetD2D8(a, 16, 1, 3, 2), CUDA_SUCCESS);
    IS(cuMemsetD2D16Async(a + 8, 16, 0x55, 1, 3, side), CUDA_SUCCESS);
    OK(cuCtxSynchronize());
    EQ((unsigned)peek(a, 0), 0x00010101u);
    EQ((unsigned)peek(a, 4), 0x00010101u);
    EQ((unsigned)peek(a, 8), 7);
    EQ((unsigned)peek(a, 10), 0x55);
}

CASE(memory_pitch, "cuMemAllocPitch gives rows that are wide enough and aligned")
{
    CUdeviceptr a = 0;
    size_t pitch = 0, size = 0;
    IS(cuMemAllocPitch(&a, &pitch, 100, 7, 4), CUDA_SUCCESS);
    TRUE(pitch >= 100);
    EQ(pitch % 256, 0);
    OK(cuMemGetAddressRange(NULL, &size, a));
    TRUE(size >= pitch * 7);
}

CASE(memory_info, "there is not more free memory than memory")
{
    size_t left = 0, all = 0, device = 0;
    IS(cuMemGetInfo(&left, &all), CUDA_SUCCESS);
    OK(cuDeviceTotalMem(&device, dev));
    TRUE(left > 0 && left <= all);
    TRUE(all <= device);
    SEE(cuMemGetInfo(NULL, &all));
    SEE(cuMemGetInfo(&left, NULL));
}

CASE(memory_free_while_in_use, "freeing memory that queued work uses waits for that work")
{
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = words(1), b = words(1);
    hold(s);
    OK(launch_set(s, a, 5));
    OK(launch_copy(s, b, a));
    let_go_in(30);
    IS(cuMemFree(a), CUDA_SUCCESS);
    NUM(peek(b, 0));
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(b, 0), 5);
}

CASE(memory_free_then_alloc, "an address that was freed can come back, and is fresh")
{
    CUdeviceptr a = 0, b = 0;
    size_t size = 0;
    OK(cuMemAlloc(&a, 5 << 20));
    OK(cuMemFree(a));
    OK(cuMemAlloc(&b, 3 << 20));
    OK(cuMemGetAddressRange(NULL, &size, b));
    EQ(size, 3 << 20);
    IS(cuMemsetD8(b, 1, 3 << 20), CUDA_SUCCESS);
    IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

CASE(memory_many_small, "a thousand allocations do not overlap")
{
    enum { COUNT = 1000 };
    static CUdeviceptr at[COUNT];
    for (int i = 0; i < COUNT; i++) {
        OK(cuMemAlloc(&at[i], 4));
        OK(cuMemsetD32Async(at[i], (unsigned)i, 1, side));
    }
    OK(cuStreamSynchronize(side));
    int wrong = 0;
    for (int i = 0; i < COUNT; i += 37) {
        wrong += peek(at[i], 0) != i;
    }
    EQ(wrong, 0);
    for (int i = 0; i < COUNT; i++) {
        OK(cuMemFree(at[i]));
    }
}

CASE(memory_device_sees_fill_order,
     "a fill in the null stream comes before a launch in a blocking stream")
{
    CUdeviceptr a = words(2);
    CUstream s = stream_new(0);
    OK(cuMemsetD32Async(a, 9, 1, NULL));
    OK(launch_copy(s, a + 4, a));
    OK(cuStreamSynchronize(s));
    EQ(peek(a, 1), 9);
}

/* ---- batches of managed memory ---- */

static int *managed_new(void)
{
    CUdeviceptr at = 0;
    OK(cuMemAllocManaged(&at, 1 << 16, CU_MEM_ATTACH_GLOBAL));
    return (int *)at;
}

static int last_prefetch(const int *at)
{
    int location = -99;
    OK(cuMemRangeGetAttribute(&location, sizeof location,
                              CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, (CUdeviceptr)at,
                              1 << 16));
    return location;
}

CASE(mem_prefetch_batch, "a batch brings each piece of managed memory where it is wanted")
{
    int *a = managed_new(), *b = managed_new();
    CUdeviceptr w = words(1), pieces[] = {(CUdeviceptr)a, (CUdeviceptr)b};
    size_t sizes[] = {1 << 16, 1 << 16}, first[] = {0, 1};
    CUmemLocation where[] = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
                             {.type = CU_MEM_LOCATION_TYPE_HOST}};
    a[0] = 5;
    b[0] = 6;
    IS(cuMemPrefetchBatchAsync(pieces, sizes, 2, where, first, 2, 0, side), CUDA_SUCCESS);
    OK(cuStreamSynchronize(side));
    NUM(last_prefetch(a));
    NUM(last_prefetch(b));
    OK(launch_copy(side, w, pieces[0]));
    OK(launch_inc(side, pieces[1], 10));
    OK(cuStreamSynchronize(side));
    EQ(peek(w, 0), 5);
    EQ(a[0], 5);
    EQ(b[0], 16);
    OK(cuMemFree(pieces[0]));
    OK(cuMemFree(pieces[1]));
}

CASE(mem_discard_batch, "managed memory that was discarded holds what is written to it afterwards")
{
    int *a = managed_new(), *b = managed_new();
    CUdeviceptr pieces[] = {(CUdeviceptr)a, (CUdeviceptr)b};
    size_t sizes[] = {1 << 16, 1 << 16};
    a[0] = 5;
    b[0] = 6;
    IS(cuMemDiscardBatchAsync(pieces, sizes, 2, 0, side), CUDA_SUCCESS);
    OK(launch_set(side, pieces[0], 7));
    OK(cuStreamSynchronize(side));
    b[0] = 8;
    OK(launch_inc(side, pieces[1], 10));
    OK(cuStreamSynchronize(side));
    EQ(a[0], 7);
    EQ(b[0], 18);
    OK(cuMemFree(pieces[0]));
    OK(cuMemFree(pieces[1]));
}

CASE(mem_discard_and_prefetch_batch, "memory is discarded and brought elsewhere at once")
{
    int *a = managed_new();
    CUdeviceptr piece = (CUdeviceptr)a;
    size_t size = 1 << 16, first = 0;
    CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    a[0] = 5;
    IS(cuMemDiscardAndPrefetchBatchAsync(&piece, &size, 1, &where, &first, 1, 0, side),
       CUDA_SUCCESS);
    OK(launch_set(side, piece, 7));
    OK(cuStreamSynchronize(side));
    NUM(last_prefetch(a));
    EQ(a[0], 7);
    OK(cuMemFree(piece));
}

CASE(mem_batch_of_ordinary_memory, "what batches say to memory that is not managed, and to none")
{
    CUdeviceptr w = words(1);
    size_t size = 4, first = 0;
    CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    SEE_LATE(cuMemPrefetchBatchAsync(&w, &size, 1, &where, &first, 1, 0, side));
    SEE_LATE(cuMemDiscardBatchAsync(&w, &size, 1, 0, side));
    SEE_LATE(cuMemDiscardBatchAsync(&w, &size, 0, 0, side));
    IS_LATE(cuMemDiscardBatchAsync(&w, &size, 1, 1, side), CUDA_ERROR_INVALID_VALUE);
    EQ(peek(w, 0), 0);
}

CASE(mem_decompress, "a device that decompresses nothing refuses to")
{
    CUdeviceptr w = words(64);
    CUmemDecompressParams p;
    int kinds = -1;
    OK(cuDeviceGetAttribute(&kinds, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, dev));
    NUM(kinds);
    memset(&p, 0, sizeof p);
    p.srcNumBytes = p.dstNumBytes = 64;
    p.src = (void *)(uintptr_t)w;
    p.dst = (void *)(uintptr_t)(w + 64);
    p.dstActBytes = (cuuint32_t *)(uintptr_t)(w + 128);
    p.algo = CU_MEM_DECOMPRESS_ALGORITHM_DEFLATE;
    if (kinds == 0) {
        SEE_LATE(cuMemBatchDecompressAsync(&p, 1, 0, NULL, side));
    }
}
