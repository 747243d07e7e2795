/* SPDX-License-Identifier: Apache-2.0 */
/* Where memory is: advice, prefetching, pools and mappings on a device, batches of copies. */
#include "api.h"

enum { N = 1 << 16 };

static void advice_is_remembered(struct api *api)
{
    CUdeviceptr managed = 0;
    OK(cuMemAllocManaged(&managed, N, CU_MEM_ATTACH_GLOBAL));
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = api->device};
    OK(cuMemAdvise_v2(managed, N, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
    int value = -7;
    OK(cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed,
                              N));
    EQUAL(value, 1);
    OK(cuMemAdvise_v2(managed, N, CU_MEM_ADVISE_UNSET_READ_MOSTLY, here));
    OK(cuMemAdvise_v2(managed, N, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
    int type = -7, id = -7;
    void *data[] = {&value, &type, &id};
    size_t sizes[] = {4, 4, 4};
    CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                          CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
                                          CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID};
    OK(cuMemRangeGetAttributes(data, sizes, attributes, 3, managed, N));
    EQUAL(value, api->device);
    EQUAL(type, CU_MEM_LOCATION_TYPE_DEVICE);
    EQUAL(id, api->device);
    EQUAL(cuMemRangeGetAttribute(NULL, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, N),
          CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuMemRangeGetAttribute(&value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed, N),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemPrefetchAsync_v2(managed, N, here, 0, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemRangeGetAttribute(&value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                              managed, N));
    EQUAL(value, api->device);
    CUmemLocation nowhere = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99};
    EQUAL(cuMemPrefetchAsync_v2(managed, N, nowhere, 0, NULL), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemFree(managed));
}

static void mapped_memory_says_where_it_is(struct api *api)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, api->device}};
    size_t size = 0;
    OK(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUmemGenericAllocationHandle handle = 0, same = 0;
    CUdeviceptr address = 0;
    OK(cuMemCreate(&handle, size, &prop, 0));
    OK(cuMemAddressReserve(&address, size, 0, 0, 0));
    OK(cuMemMap(address, size, 0, handle, 0));
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(address, size, &access, 1));
    unsigned long long flags = 0;
    OK(cuMemGetAccess(&flags, &prop.location, address));
    EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemAllocationProp got = {0};
    OK(cuMemGetAllocationPropertiesFromHandle(&got, handle));
    EQUAL(got.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    EQUAL(got.location.id, api->device);
    OK(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)address));
    OK(cuMemRelease(same));
    OK(cuMemsetD32(address, 5, 1));
    int value = 0;
    OK(cuMemcpyDtoH(&value, address, sizeof value));
    EQUAL(value, 5);
    OK(cuMemUnmap(address, size));
    OK(cuMemAddressFree(address, size));
    OK(cuMemRelease(handle));
    prop.location.id = 99;
    TRUE(cuMemCreate(&handle, size, &prop, 0) != CUDA_SUCCESS);
}

static void pool_of_a_device(struct api *api)
{
    CUmemoryPool pool = NULL;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, api->device}};
    OK(cuMemPoolCreate(&pool, &props));
    CUmemAccess_flags flags = 0;
    OK(cuMemPoolGetAccess(&flags, pool, &props.location));
    EQUAL(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr memory = 0;
    OK(cuMemAllocFromPoolAsync(&memory, 4096, pool, NULL));
    OK(cuMemFreeAsync(memory, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolDestroy(pool));
}

static void memory_survives_a_free_that_failed(struct api *api)
{
    CUdeviceptr data = 7, none = 7;
    CUstream stream;
    (void)api;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&data, N, stream));
    TRUE(cuMemAllocAsync(&none, (size_t)1 << 50, stream) != CUDA_SUCCESS);
    EQUAL(none, 0);
    OK(cuStreamSynchronize(stream));
    TRUE(cuMemFreeAsync(data + 512, stream) != CUDA_SUCCESS);
    /* In a stream whose capture has become invalid. */
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRUE(cuStreamSynchronize(stream) != CUDA_SUCCESS);
    EQUAL(cuMemFreeAsync(data, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EQUAL(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamDestroy(stream));
    OK(cuMemsetD8(data, 1, N));
    OK(cuMemFreeAsync(data, NULL));
    TRUE(cuMemFreeAsync(data, NULL) != CUDA_SUCCESS);
    OK(cuCtxSynchronize());
}

static void batches_copy_in_order(void)
{
    CUstream stream = NULL;
    CUdeviceptr device = 0;
    static int from[2][256], back[256];
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&device, sizeof back));
    for (int i = 0; i < 256; i++) {
        from[0][i] = i;
        from[1][i] = -i;
    }
    /* The second copy goes over the first half of the first. */
    CUdeviceptr to[] = {device, device, (CUdeviceptr)(uintptr_t)back};
    CUdeviceptr source[] = {(CUdeviceptr)(uintptr_t)from[0], (CUdeviceptr)(uintptr_t)from[1],
                            device};
    size_t sizes[] = {sizeof back, sizeof back / 2, sizeof back}, first[] = {0}, fail = 0;
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUresult (*batch)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *,
                      size_t *, size_t, size_t *, CUstream) = NULL;
    CUdriverProcAddressQueryResult found;
    OK(cuGetProcAddress("cuMemcpyBatchAsync", (void **)&batch, 12080, 0, &found));
    if (batch != NULL) {
        OK(batch(to, source, sizes, 2, &how, first, 1, &fail, stream));
        OK(batch(to + 2, source + 2, sizes + 2, 1, &how, first, 1, &fail, stream));
        OK(cuStreamSynchronize(stream));
        EQUAL(back[10], -10);
        EQUAL(back[200], 200);
        EQUAL(batch(to, source, sizes, 0, &how, first, 1, &fail, stream), CUDA_ERROR_INVALID_VALUE);
    }
    OK(cuMemFree(device));
    OK(cuStreamDestroy(stream));
}

static void handles_for_others_are_refused_or_work(void)
{
    CUdeviceptr memory = 0;
    CUipcMemHandle handle;
    OK(cuMemAlloc(&memory, 4096));
    CUresult result = cuIpcGetMemHandle(&handle, memory);
    TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED);
    CUdeviceptr opened = 0;
    EQUAL(cuIpcOpenMemHandle(NULL, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
          CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
    (void)opened;
    OK(cuMemFree(memory));
}

/* What no stream frees is still there. */
static void managed_memory_is_not_freed_in_order(void)
{
    CUdeviceptr managed = 0;
    OK(cuMemAllocManaged(&managed, 8192, CU_MEM_ATTACH_GLOBAL));
    EQUAL(cuMemFreeAsync(managed, NULL), CUDA_ERROR_NOT_SUPPORTED);
    EQUAL(cuMemFreeAsync(managed + 4096, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemFree(managed));
}

int main(void)
{
    struct api api;
    api_begin(&api);
    advice_is_remembered(&api);
    mapped_memory_says_where_it_is(&api);
    pool_of_a_device(&api);
    memory_survives_a_free_that_failed(&api);
    batches_copy_in_order();
    managed_memory_is_not_freed_in_order();
    handles_for_others_are_refused_or_work();
    return api_end(&api);
}
