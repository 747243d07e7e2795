/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and memory apart: reserve, create, map, give access, unmap. */
#include "driver.h"

#include <unistd.h>

static CUmemAllocationProp prop_of(void)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = dev;
    return prop;
}

static size_t grain(void)
{
    CUmemAllocationProp prop = prop_of();
    size_t size = 0;
    OK(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return size;
}

static CUmemGenericAllocationHandle memory_of(size_t size, CUmemAllocationHandleType types)
{
    CUmemAllocationProp prop = prop_of();
    CUmemGenericAllocationHandle handle = 0;
    prop.requestedHandleTypes = types;
    OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static CUmemGenericAllocationHandle memory_new(size_t size)
{
    return memory_of(size, CU_MEM_HANDLE_TYPE_NONE);
}

static CUdeviceptr space(size_t size)
{
    CUdeviceptr at = 0;
    OK(cuMemAddressReserve(&at, size, 0, 0, 0));
    return at;
}

static CUresult allow(CUdeviceptr at, size_t size, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
                              .flags = flags};
    return cuMemSetAccess(at, size, &access, 1);
}

CASE(vmm_granularity, "the granularity is 2 MiB, and the recommended one a multiple of the least")
{
    CUmemAllocationProp prop = prop_of();
    size_t least = 0, best = 0;
    OK(cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemGetAllocationGranularity(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    EQ(least, 2 << 20);
    EQ(best % least, 0);
}

CASE(vmm_map_and_use, "mapped memory with access works as any other")
{
    size_t g = grain();
    CUdeviceptr at = space(g), w = words(1);
    CUmemGenericAllocationHandle memory = memory_new(g);
    IS(cuMemMap(at, g, 0, memory, 0), CUDA_SUCCESS);
    IS(allow(at, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
    IS(cuMemsetD32(at, 31, 4), CUDA_SUCCESS);
    OK(launch_copy(NULL, w, at + 8));
    IS(cuCtxSynchronize(), CUDA_SUCCESS);
    EQ(peek(w, 0), 31);
    IS(cuMemUnmap(at, g), CUDA_SUCCESS);
    IS(cuMemRelease(memory), CUDA_SUCCESS);
    IS(cuMemAddressFree(at, g), CUDA_SUCCESS);
}

CASE(vmm_two_views, "one memory mapped twice shows the same bytes at both places")
{
    size_t g = grain();
    CUdeviceptr a = space(2 * g);
    CUmemGenericAllocationHandle memory = memory_new(g);
    OK(cuMemMap(a, g, 0, memory, 0));
    IS(cuMemMap(a + g, g, 0, memory, 0), CUDA_SUCCESS);
    OK(allow(a, 2 * g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemsetD32(a, 32, 4));
    OK(cuCtxSynchronize());
    EQ(peek(a + g, 3), 32);
}

CASE(vmm_release_while_mapped, "memory whose handle was released lives as long as it is mapped")
{
    size_t g = grain();
    CUdeviceptr a = space(g);
    CUmemGenericAllocationHandle memory = memory_new(g);
    OK(cuMemMap(a, g, 0, memory, 0));
    IS(cuMemRelease(memory), CUDA_SUCCESS);
    OK(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemsetD32(a, 33, 4));
    OK(cuCtxSynchronize());
    EQ(peek(a, 3), 33);
    IS(cuMemUnmap(a, g), CUDA_SUCCESS);
}

CASE(vmm_map_anew, "memory unmapped here and mapped there keeps its bytes")
{
    size_t g = grain();
    CUdeviceptr a = space(g), b = space(g);
    CUmemGenericAllocationHandle memory = memory_new(g);
    OK(cuMemMap(a, g, 0, memory, 0));
    OK(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemsetD32(a, 34, 4));
    OK(cuCtxSynchronize());
    OK(cuMemUnmap(a, g));
    OK(cuMemMap(b, g, 0, memory, 0));
    OK(allow(b, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EQ(peek(b, 3), 34);
}

CASE(vmm_reserve_mistakes, "reservations of sizes or alignments that do not fit are refused")
{
    CUdeviceptr at = 0;
    SEE(cuMemAddressReserve(&at, 1000, 0, 0, 0));
    SEE(cuMemAddressReserve(&at, grain(), 3, 0, 0));
    SEE(cuMemAddressReserve(&at, grain(), 0, 0, 1));
}

CASE(vmm_map_mistakes,
     "mapping over a mapping, outside of a reservation or past the memory is refused")
{
    size_t g = grain();
    CUdeviceptr a = space(2 * g);
    CUmemGenericAllocationHandle memory = memory_new(g);
    IS(cuMemMap(a, 2 * g, 0, memory, 0), CUDA_ERROR_NOT_SUPPORTED);
    IS(cuMemMap(a + 4096, g, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemMap(a, g, 0, memory, 0), CUDA_SUCCESS);
    SEE(cuMemMap(a, g, 0, memory, 0));
    IS(cuMemMap(a + g, g, 0, memory, 1), CUDA_ERROR_INVALID_VALUE);
    SEE(cuMemMap(a + g, g, g, memory, 0));
}

CASE(vmm_access_mistakes, "access is given to what is mapped only")
{
    size_t g = grain();
    CUdeviceptr a = space(2 * g);
    CUmemGenericAllocationHandle memory = memory_new(g);
    SEE(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemMap(a, g, 0, memory, 0));
    SEE(allow(a, 2 * g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    IS(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_SUCCESS);
}

CASE(vmm_access_is_told, "cuMemGetAccess tells what was given")
{
    size_t g = grain();
    CUdeviceptr a = space(g);
    CUmemGenericAllocationHandle memory = memory_new(g);
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev};
    unsigned long long flags = 99;
    OK(cuMemMap(a, g, 0, memory, 0));
    OK(cuMemGetAccess(&flags, &here, a));
    EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuMemGetAccess(&flags, &here, a));
    EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

CASE(vmm_copy_without_access, "a copy to memory that is mapped but not accessible is refused")
{
    size_t g = grain();
    CUdeviceptr a = space(g);
    int value = 1;
    OK(cuMemMap(a, g, 0, memory_new(g), 0));
    SEE_LATE(cuMemcpyHtoD(a, &value, 4));
}

CASE(vmm_unmap_mistakes,
     "only whole mappings are unmapped; unmapping what is not mapped is no mistake")
{
    size_t g = grain();
    CUdeviceptr a = space(2 * g);
    OK(cuMemMap(a, 2 * g, 0, memory_new(2 * g), 0));
    SEE(cuMemUnmap(a, g));
    IS(cuMemUnmap(a, 2 * g), CUDA_SUCCESS);
    SEE(cuMemUnmap(a, 2 * g));
}

CASE(vmm_unmap_several, "one unmapping takes several whole mappings")
{
    size_t g = grain();
    CUdeviceptr a = space(2 * g);
    OK(cuMemMap(a, g, 0, memory_new(g), 0));
    OK(cuMemMap(a + g, g, 0, memory_new(g), 0));
    IS(cuMemUnmap(a, 2 * g), CUDA_SUCCESS);
    IS(cuMemAddressFree(a, 2 * g), CUDA_SUCCESS);
}

CASE(vmm_free_address_while_mapped, "addresses that are mapped cannot be freed")
{
    size_t g = grain();
    CUdeviceptr a = space(g);
    OK(cuMemMap(a, g, 0, memory_new(g), 0));
    SEE(cuMemAddressFree(a, g));
    SEE(cuMemUnmap(a, g));
    SEE(cuMemAddressFree(a, g));
}

CASE(vmm_properties_come_back, "a memory's properties are what it was made with")
{
    CUmemGenericAllocationHandle memory = memory_new(grain());
    CUmemAllocationProp prop;
    memset(&prop, 0x55, sizeof prop);
    IS(cuMemGetAllocationPropertiesFromHandle(&prop, memory), CUDA_SUCCESS);
    EQ(prop.type, CU_MEM_ALLOCATION_TYPE_PINNED);
    EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    EQ(prop.location.id, 0);
    EQ(prop.requestedHandleTypes, 0);
}

#define POSIX CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

CASE(vmm_import_is_the_same_memory, "a descriptor is good for another handle of the same memory")
{
    size_t g = grain();
    CUmemGenericAllocationHandle memory = memory_of(g, POSIX), other = 0;
    CUmemAllocationProp prop;
    CUdeviceptr a = space(g), b = space(g);
    CUmemoryPool pool = NULL;
    cuuint64_t types = 99;
    int fd = -1, second = -1;
    OK(cuMemMap(a, g, 0, memory, 0));
    OK(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    IS(cuMemExportToShareableHandle(&fd, memory, POSIX, 0), CUDA_SUCCESS);
    TRUE(fd > 2);
    SEE(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POSIX, 0));
    IS(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd, POSIX), CUDA_SUCCESS);
    SEE(cuMemExportToShareableHandle(&second, other, POSIX, 0));
    EQ(second, -1);
    close(fd);
    memset(&prop, 0x55, sizeof prop);
    IS(cuMemGetAllocationPropertiesFromHandle(&prop, other), CUDA_SUCCESS);
    NUM(prop.requestedHandleTypes);
    EQ(prop.location.id, dev);
    IS(cuMemMap(b, g, 0, other, 0), CUDA_SUCCESS);
    OK(allow(b, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, a));
    NUM(types);
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, b));
    NUM(types);
    OK(launch_set(side, a, 41));
    OK(cuStreamSynchronize(side));
    EQ(peek(b, 0), 41);
    OK(cuMemUnmap(a, g));
    IS(cuMemRelease(memory), CUDA_SUCCESS);
    EQ(peek(b, 0), 41);
    IS(cuMemRelease(other), CUDA_SUCCESS);
    EQ(peek(b, 0), 41);
    OK(cuMemUnmap(b, g));
}

CASE(vmm_import_after_release, "an open descriptor keeps memory that is released")
{
    size_t g = grain();
    CUmemGenericAllocationHandle memory = memory_of(g, POSIX), other = 0;
    CUdeviceptr a = space(g);
    int fd = -1;
    OK(cuMemMap(a, g, 0, memory, 0));
    OK(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(launch_set(side, a, 43));
    OK(cuStreamSynchronize(side));
    OK(cuMemExportToShareableHandle(&fd, memory, POSIX, 0));
    OK(cuMemUnmap(a, g));
    OK(cuMemRelease(memory));
    IS(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd, POSIX), CUDA_SUCCESS);
    close(fd);
    OK(cuMemMap(a, g, 0, other, 0));
    OK(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    EQ(peek(a, 0), 43);
    OK(cuMemUnmap(a, g));
    OK(cuMemRelease(other));
}

CASE(vmm_export_refused, "memory is exported only as what it was made for")
{
    CUmemGenericAllocationHandle plain = memory_new(grain()), memory = memory_of(grain(), POSIX);
    int fd = -1;
    SEE(cuMemExportToShareableHandle(&fd, plain, POSIX, 0));
    SEE(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_NONE, 0));
    SEE(cuMemExportToShareableHandle(&fd, memory, POSIX, 1));
    EQ(fd, -1);
    OK(cuMemRelease(plain));
    OK(cuMemRelease(memory));
}

CASE(vmm_import_refused, "what nobody exported is not imported")
{
    CUmemGenericAllocationHandle memory = 0;
    CUmemoryPool pool = NULL;
    int ends[2] = {-1, -1};
    EQ(pipe(ends), 0);
    SEE(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)-1, POSIX));
    SEE(cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)ends[0], POSIX));
    SEE(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)-1, POSIX, 0));
    SEE(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)ends[0], POSIX, 0));
    EQ(memory, 0);
    TRUE(pool == NULL);
    close(ends[0]);
    close(ends[1]);
}

CASE(vmm_retain_by_address, "an address leads back to its memory's handle")
{
    size_t g = grain();
    CUdeviceptr a = space(g);
    CUmemGenericAllocationHandle memory = memory_new(g), got = 0;
    OK(cuMemMap(a, g, 0, memory, 0));
    IS(cuMemRetainAllocationHandle(&got, (void *)(uintptr_t)(a + 100)), CUDA_SUCCESS);
    NUM(got == memory);
    IS(cuMemRelease(got), CUDA_SUCCESS);
    IS(cuMemRelease(memory), CUDA_SUCCESS);
    SEE(cuMemRetainAllocationHandle(&got, &memory));
}

CASE(vmm_free_is_not_for_mappings, "cuMemFree does not take mapped memory")
{
    size_t g = grain();
    CUdeviceptr a = space(g);
    OK(cuMemMap(a, g, 0, memory_new(g), 0));
    IS(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
}

CASE(vmm_pointer_attributes, "attributes of mapped memory")
{
    size_t g = grain(), size = 0;
    CUdeviceptr a = space(2 * g), start = 0;
    unsigned type = 99;
    int ordinal = 99;
    OK(cuMemMap(a, g, 0, memory_new(g), 0));
    OK(allow(a, g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    SEE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 5));
    NUM(type);
    SEE(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
    NUM(ordinal);
    SEE(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, a + 5));
    NUM(start == a);
    SEE(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 5));
    NUM(size == g);
    SEE(cuMemGetAddressRange(&start, &size, a + 5));
}

CASE(vmm_ranges, "what is told of two mappings in one reservation")
{
    size_t g = grain(), size = 0;
    CUdeviceptr a = space(4 * g), start = 0;
    OK(cuMemMap(a + g, g, 0, memory_new(g), 0));
    OK(cuMemMap(a + 2 * g, g, 0, memory_new(g), 0));
    OK(allow(a + g, 2 * g, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    for (int i = 1; i < 3; i++) {
        CUdeviceptr at = a + i * g + 5;
        OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at));
        OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at));
        conform_say("%d: range from %lld of %lld", i, (long long)(start - a) / (long long)g,
                    (long long)(size / g));
        OK(cuMemGetAddressRange(&start, &size, at));
        conform_say("%d: address range from %lld of %lld", i, (long long)(start - a) / (long long)g,
                    (long long)(size / g));
    }
    SEE(cuMemUnmap(a, 4 * g));
    SEE(cuMemAddressFree(a, 4 * g));
}

CASE(vmm_fixed_address, "a reservation at a given address gets it when it is free")
{
    size_t g = grain();
    CUdeviceptr a = space(g), b = 0;
    OK(cuMemAddressFree(a, g));
    IS(cuMemAddressReserve(&b, g, 0, a, 0), CUDA_SUCCESS);
    TRUE(a == b);
}

static CUarray array_new(unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUarray array = NULL;
    memset(&desc, 0, sizeof desc);
    desc.Width = desc.Height = 1024;
    desc.Format = CU_AD_FORMAT_UNSIGNED_INT32;
    desc.NumChannels = 1;
    desc.Flags = flags;
    OK(cuArray3DCreate(&array, &desc));
    return array;
}

static CUresult copy_row(CUarray array, int *host, bool to_array)
{
    CUDA_MEMCPY2D p;
    memset(&p, 0, sizeof p);
    p.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
    p.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
    p.srcHost = p.dstHost = host;
    p.srcArray = p.dstArray = array;
    p.WidthInBytes = 16;
    p.Height = 1;
    return cuMemcpy2D(&p);
}

CASE(vmm_sparse_array, "a tile of a sparse array keeps data once memory is mapped into it")
{
    CUarray array = array_new(CUDA_ARRAY3D_SPARSE);
    CUDA_ARRAY_SPARSE_PROPERTIES tiles;
    CUmemAllocationProp prop = prop_of();
    CUarrayMapInfo info;
    size_t g = grain();
    int out[4] = {1, 2, 3, 4}, back[4] = {0};
    memset(&tiles, 0x55, sizeof tiles);
    IS(cuArrayGetSparseProperties(&tiles, array), CUDA_SUCCESS);
    NUM(tiles.tileExtent.width);
    NUM(tiles.tileExtent.height);
    NUM(tiles.tileExtent.depth);
    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    memset(&info, 0, sizeof info);
    OK(cuMemCreate(&info.memHandle.memHandle, g, &prop, 0));
    info.resourceType = CU_RESOURCE_TYPE_ARRAY;
    info.resource.array = array;
    info.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
    info.subresource.sparseLevel.extentWidth = tiles.tileExtent.width;
    info.subresource.sparseLevel.extentHeight = tiles.tileExtent.height;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
    info.deviceBitMask = 1u << dev;
    IS_LATE(cuMemMapArrayAsync(&info, 1, side), CUDA_SUCCESS);
    IS(copy_row(array, out, true), CUDA_SUCCESS);
    IS(copy_row(array, back, false), CUDA_SUCCESS);
    EQ(back[0] * 1000 + back[1] * 100 + back[2] * 10 + back[3], 1234);
    CUmemGenericAllocationHandle memory = info.memHandle.memHandle;
    info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    info.memHandle.memHandle = 0;
    IS_LATE(cuMemMapArrayAsync(&info, 1, side), CUDA_SUCCESS);
    IS(cuArrayDestroy(array), CUDA_SUCCESS);
    IS(cuMemRelease(memory), CUDA_SUCCESS);
}

CASE(vmm_array_that_is_not_sparse, "an ordinary array has no tiles")
{
    CUarray array = array_new(0);
    CUDA_ARRAY_SPARSE_PROPERTIES tiles;
    IS(cuArrayGetSparseProperties(&tiles, array), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
}

CASE(vmm_array_without_memory, "an array that is to be mapped later tells how much memory it needs")
{
    CUarray array = array_new(CUDA_ARRAY3D_DEFERRED_MAPPING);
    CUDA_ARRAY_MEMORY_REQUIREMENTS need;
    memset(&need, 0, sizeof need);
    IS(cuArrayGetMemoryRequirements(&need, array, dev), CUDA_SUCCESS);
    TRUE(need.size >= 4 << 20);
    TRUE(need.alignment != 0);
    OK(cuArrayDestroy(array));
}

CASE(vmm_array_with_memory, "an array that has its memory tells no needs")
{
    CUarray array = array_new(0);
    CUDA_ARRAY_MEMORY_REQUIREMENTS need;
    IS(cuArrayGetMemoryRequirements(&need, array, dev), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
}

CASE(vmm_multicast, "what a device alone says to a multicast object for two")
{
    CUmulticastObjectProp prop;
    CUmemGenericAllocationHandle handle = 0;
    size_t least = 0;
    int supported = -1;
    OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, dev));
    NUM(supported);
    memset(&prop, 0, sizeof prop);
    prop.numDevices = 2;
    prop.size = 2 << 20;
    SEE(cuMulticastGetGranularity(&least, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    NUM(least);
    if (least != 0) {
        prop.size = least;
    }
    SEE(cuMulticastCreate(&handle, &prop));
    if (handle != 0) {
        SEE(cuMemRelease(handle));
    }
}
