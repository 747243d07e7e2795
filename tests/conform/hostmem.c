/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that the device reaches: page-locked, registered, managed. */
#include "driver.h"

#include <sys/mman.h>

static CUdeviceptr of(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

/* Pages of the program's own. Not of its heap: AddressSanitizer has that where a worker's heap is,
 * too. */
static void *pages(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        abort();
    }
    return at;
}

/* Alone: what NVIDIA's driver tells of small pieces depends on which others there are. */
CASE_ALONE(hostmem_flags_are_kept, "cuMemHostGetFlags gives what the memory was made with")
{
    const unsigned wanted[] = {0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP,
                               CU_MEMHOSTALLOC_WRITECOMBINED, 7};
    for (int i = 0; i < 5; i++) {
        void *p = NULL;
        unsigned flags = 99;
        OK(cuMemHostAlloc(&p, 4096, wanted[i]));
        OK(cuMemHostGetFlags(&flags, p));
        conform_say("made with %u, told %u", wanted[i], flags);
        OK(cuMemFreeHost(p));
    }
    void *p = NULL;
    unsigned flags = 99;
    OK(cuMemAllocHost(&p, 100));
    OK(cuMemHostGetFlags(&flags, p));
    conform_say("cuMemAllocHost: told %u", flags);
}

CASE(hostmem_device_pointer, "page-locked memory has one address on both sides")
{
    char *p = NULL;
    CUdeviceptr at = 0, inside = 0;
    OK(cuMemHostAlloc((void **)&p, 4096, 0));
    IS(cuMemHostGetDevicePointer(&at, p, 0), CUDA_SUCCESS);
    TRUE(at == of(p));
    IS(cuMemHostGetDevicePointer(&inside, p + 100, 0), CUDA_SUCCESS);
    EQ(inside - at, 100);
}

CASE(hostmem_kernel_writes,
     "what a kernel writes to page-locked memory is there after a synchronisation")
{
    int *p = NULL;
    OK(cuMemHostAlloc((void **)&p, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    p[0] = 1;
    OK(launch_inc(side, of(p), 40));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(p[0], 41);
    p[0] = 100;
    OK(launch_inc(side, of(p), 40));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(p[0], 140);
}

CASE(hostmem_free_while_in_use,
     "freeing page-locked memory that queued work uses waits for that work")
{
    CUdeviceptr w = words(1);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    int *p = NULL;
    OK(cuMemAllocHost((void **)&p, 64));
    *p = 51;
    hold(s);
    OK(cuMemcpyHtoDAsync(w, p, 4, s));
    let_go_in(30);
    IS(cuMemFreeHost(p), CUDA_SUCCESS);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 51);
}

CASE(hostmem_register, "registered memory can be used by kernels under its device address")
{
    int *mine = pages(8192);
    CUdeviceptr at = 0;
    mine[0] = 2;
    IS(cuMemHostRegister(mine, 8192, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
    IS(cuMemHostGetDevicePointer(&at, mine, 0), CUDA_SUCCESS);
    OK(launch_inc(side, at, 5));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(mine[0], 7);
    IS(cuMemHostUnregister(mine), CUDA_SUCCESS);
    EQ(mine[0], 7);
    munmap(mine, 8192);
}

CASE(hostmem_register_part, "a part that begins and ends anywhere can be registered")
{
    char *mine = pages(20000);
    unsigned flags = 99;
    CUdeviceptr at = 0, inside = 0;
    IS(cuMemHostRegister(mine + 100, 5000, 0), CUDA_SUCCESS);
    IS(cuMemHostGetFlags(&flags, mine + 100), CUDA_SUCCESS);
    NUM(flags);
    OK(cuMemHostGetDevicePointer(&at, mine + 100, 0));
    OK(cuMemHostGetDevicePointer(&inside, mine + 300, 0));
    EQ(inside - at, 200);
    SEE(cuMemHostUnregister(mine + 200));
    IS(cuMemHostUnregister(mine + 100), CUDA_SUCCESS);
}

CASE(hostmem_register_pinned, "memory that CUDA made page-locked cannot be registered again")
{
    void *p = NULL;
    OK(cuMemAllocHost(&p, 8192));
    SEE(cuMemHostRegister(p, 8192, 0));
}

CASE(hostmem_register_again, "memory can be registered again after it was unregistered")
{
    char *mine = pages(8192);
    IS(cuMemHostRegister(mine, 8192, 0), CUDA_SUCCESS);
    IS(cuMemHostUnregister(mine), CUDA_SUCCESS);
    IS(cuMemHostRegister(mine, 4096, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
    IS(cuMemHostRegister(mine + 4096, 4096, 0), CUDA_SUCCESS);
    IS(cuMemHostUnregister(mine + 4096), CUDA_SUCCESS);
    IS(cuMemHostUnregister(mine), CUDA_SUCCESS);
    munmap(mine, 8192);
}

CASE(hostmem_registered_attributes, "attributes of registered memory")
{
    char *mine = pages(8192);
    unsigned type = 99, managed = 0;
    void *host = NULL;
    OK(cuMemHostRegister(mine, 8192, 0));
    IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, of(mine)), CUDA_SUCCESS);
    EQ(type, CU_MEMORYTYPE_HOST);
    IS(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, of(mine)), CUDA_SUCCESS);
    EQ(managed & 0xff, 0);
    IS(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, of(mine) + 10),
       CUDA_SUCCESS);
    TRUE(host == mine + 10);
}

CASE(hostmem_copies_are_asynchronous,
     "an asynchronous copy from page-locked memory does not wait for its stream")
{
    CUdeviceptr w = words(1);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    int *p = NULL;
    OK(cuMemAllocHost((void **)&p, 64));
    *p = 5;
    hold(s);
    IS(cuMemcpyHtoDAsync(w, p, 4, s), CUDA_SUCCESS);
    IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    EQ(peek(w, 0), 0);
    let_go();
    OK(cuStreamSynchronize(s));
    EQ(peek(w, 0), 5);
}

CASE(managed_host_and_kernel, "managed memory is one memory for host and kernels")
{
    CUdeviceptr m = 0;
    OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
    int *p = (int *)(uintptr_t)m;
    p[0] = 5;
    OK(launch_inc(NULL, m, 1));
    IS(cuCtxSynchronize(), CUDA_SUCCESS);
    EQ(p[0], 6);
    p[0] = 50;
    OK(launch_inc(NULL, m, 1));
    OK(cuCtxSynchronize());
    EQ(p[0], 51);
}

CASE(managed_attach_to_stream, "managed memory can be attached to one stream, the host and all")
{
    CUdeviceptr m = 0;
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_HOST));
    int *p = (int *)(uintptr_t)m;
    p[0] = 3;
    IS(cuStreamAttachMemAsync(s, m, 0, CU_MEM_ATTACH_SINGLE), CUDA_SUCCESS);
    OK(cuStreamSynchronize(s));
    OK(launch_inc(s, m, 1));
    OK(cuStreamSynchronize(s));
    EQ(p[0], 4);
    IS(cuStreamAttachMemAsync(s, m, 0, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    SEE_LATE(cuStreamAttachMemAsync(s, m, 100, CU_MEM_ATTACH_GLOBAL));
    SEE_LATE(cuStreamAttachMemAsync(s, m, 0, 0x55));
}

CASE(managed_attach_of_plain_memory, "memory that is not managed cannot be attached")
{
    CUdeviceptr w = words(1);
    SEE_LATE(cuStreamAttachMemAsync(side, w, 0, CU_MEM_ATTACH_GLOBAL));
}

CASE(managed_prefetch, "prefetching to the device and back keeps the bytes")
{
    CUdeviceptr m = 0;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    OK(cuMemAllocManaged(&m, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    int *p = (int *)(uintptr_t)m;
    p[1000] = 3;
    IS(cuMemPrefetchAsync(m, 1 << 20, here, 0, side), CUDA_SUCCESS);
    OK(launch_inc(side, m + 4000, 1));
    IS(cuMemPrefetchAsync(m, 1 << 20, host, 0, side), CUDA_SUCCESS);
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(p[1000], 4);
    OK(cuMemFree(m));
}

CASE(managed_prefetch_mistakes, "prefetching plain memory or to no device is refused")
{
    CUdeviceptr m = 0, w = words(1);
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 77};
    OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
    SEE_LATE(cuMemPrefetchAsync(w, 4, here, 0, side));
    SEE_LATE(cuMemPrefetchAsync(m, 4096, nowhere, 0, side));
    SEE_LATE(cuMemPrefetchAsync(m, 0, here, 0, side));
    SEE_LATE(cuMemPrefetchAsync(m, 4096, here, 1, side));
}

CASE(managed_advice_is_told, "what was advised can be asked")
{
    CUdeviceptr m = 0;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    int value = 99;
    OK(cuMemAllocManaged(&m, 1 << 21, CU_MEM_ATTACH_GLOBAL));
    IS(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 1 << 21),
       CUDA_SUCCESS);
    EQ(value, 0);
    IS(cuMemAdvise(m, 1 << 21, CU_MEM_ADVISE_SET_READ_MOSTLY, here), CUDA_SUCCESS);
    OK(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 1 << 21));
    EQ(value, 1);
    IS(cuMemAdvise(m, 1 << 21, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here), CUDA_SUCCESS);
    OK(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, 1 << 21));
    EQ(value, 0);
    IS(cuMemAdvise(m, 1 << 21, CU_MEM_ADVISE_UNSET_READ_MOSTLY, here), CUDA_SUCCESS);
    OK(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 1 << 21));
    EQ(value, 0);
    OK(cuMemFree(m));
}

CASE(managed_range_attribute_mistakes, "a range attribute wants its exact size and managed memory")
{
    CUdeviceptr m = 0, w = words(1);
    int value[4] = {0};
    OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
    SEE(cuMemRangeGetAttribute(value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 4096));
    SEE(cuMemRangeGetAttribute(value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, w, 4));
    SEE(cuMemRangeGetAttribute(value, 4, (CUmem_range_attribute)99, m, 4096));
}

CASE(managed_free_while_in_use, "managed memory in use is freed when the work is done")
{
    CUdeviceptr m = 0, w = words(1);
    CUstream s = stream_new(CU_STREAM_NON_BLOCKING);
    OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
    *(int *)(uintptr_t)m = 52;
    hold(s);
    OK(launch_copy(s, w, m));
    let_go_in(30);
    IS(cuMemFree(m), CUDA_SUCCESS);
    IS(cuStreamSynchronize(s), CUDA_SUCCESS);
    EQ(peek(w, 0), 52);
}

CASE(managed_fill,
     "fills and copies of managed memory are seen by the host after a synchronisation")
{
    CUdeviceptr m = 0;
    OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
    int *p = (int *)(uintptr_t)m;
    OK(cuMemsetD32Async(m, 7, 1024, side));
    OK(cuMemcpyDtoDAsync(m + 2048, m, 4, side));
    OK(launch_inc(side, m, 1));
    IS(cuStreamSynchronize(side), CUDA_SUCCESS);
    EQ(p[0], 8);
    EQ(p[512], 7);
    EQ(p[1023], 7);
}
